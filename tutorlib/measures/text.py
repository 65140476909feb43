"""Measures of a text: its variety, its repetition, its probability under a model, and whether it contradicts itself.

A text is a sequence of tokens or words (anything hashable), not a string; ``text.split()`` gives its words. The
measures count n-grams, which are n tokens in a row. If a text is too short to have any, the result is NaN. What this
file does not do: time anything (`bench`), or check a distribution (`proof`).
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from ..arguments import takes_iterators
from ..storyworld import check

# ----------------------------------------------------------------------------------------------------------------------
# Variety and repetition: any sequences


@takes_iterators
def ngrams(tokens: Sequence[Hashable], n: int) -> list[tuple]:
    """All n-grams of one text, in order: ``len(tokens) - n + 1`` of them, or none.

    Raises
    ------
    ValueError
        If `n` is not a whole number above 0, or `tokens` is a string or a single value.

    Examples
    --------
    >>> ngrams("the cat the cat".split(), 2)
    [('the', 'cat'), ('cat', 'the'), ('the', 'cat')]
    """
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 1:
        raise ValueError(f"n is the length of an n-gram, a whole number of at least 1; got {n!r}")
    if isinstance(tokens, str) or not hasattr(tokens, "__len__"):
        raise ValueError(f"expected the tokens or words of a text, got {tokens!r}: split it, or encode it")
    # The elements of a tensor are tensors, no two of which have the same hash.
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


def ngram_entropy(tokens: Sequence[Hashable], n: int) -> float:
    """The Shannon entropy of a text's own n-grams, in bits.

    ``-Σ f log2 f`` over the different n-grams, where f is the share of an n-gram among all. The entropy is 0 if all are
    the same, and ``log2(N)`` if all N of them differ, so it can be higher for longer texts. Called Ent-n by Zhang et
    al. (2018), "Generating Informative and Diverse Conversational Responses via Adversarial Information Maximization".

    Parameters
    ----------
    tokens : sequence
    n : int

    Returns
    -------
    float
        NaN when the text has no n-gram.

    Examples
    --------
    >>> ngram_entropy(["a", "b", "a", "c"], 1)              # 1/2 · 1 bit + 2 · 1/4 · 2 bits
    1.5
    """
    grams = ngrams(tokens, n)
    if not grams:
        return math.nan
    return math.fsum(count / len(grams) * math.log2(len(grams) / count) for count in Counter(grams).values())


@takes_iterators
def distinct_n(texts: Iterable[Sequence[Hashable]], n: int) -> float:
    """The number of different n-grams divided by the number of all n-grams, in several texts together.

    N-grams do not cross from one text into the next. Source: Li et al. (2016), "A Diversity-Promoting Objective
    Function for Neural Conversation Models". The value falls as the amount of text grows, because words have to be used
    again. So compare only similar amounts of text.

    Parameters
    ----------
    texts : iterable of sequences
        One text alone is ``[tokens]``.
    n : int

    Returns
    -------
    float
        Above 0, at most 1; NaN when there is no n-gram.

    Examples
    --------
    >>> distinct_n([["a", "b"], ["a", "b", "c"]], 2)        # ab, ab, bc
    0.6666666666666666
    """
    grams = [gram for text in _checked_texts(texts) for gram in ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def repetition(tokens: Sequence[Hashable], n: int = 4) -> float:
    """The share of a text's n-grams that have already occurred earlier in it: 0 if all are new.

    ``1 - different / all``: seq-rep-n of Welleck et al. (2020), "Neural Text Generation with Unlikelihood Training",
    where it is averaged over texts.

    Parameters
    ----------
    tokens : sequence
    n : int

    Returns
    -------
    float
        From 0 to below 1; NaN when the text has no n-gram.

    Examples
    --------
    >>> repetition(["a", "b", "a", "b", "a"], 2)            # ab, ba, ab, ba
    0.5
    """
    return 1 - distinct_n([tokens], n)


@takes_iterators
def self_bleu(texts: Iterable[Sequence[Hashable]], n: int = 4) -> float:
    """How similar several texts are: the mean BLEU of each text with all the others as references.

    1 when all are the same. From Zhu et al. (2018), "Texygen: A Benchmarking Platform for Text Generation Models". BLEU
    (Papineni et al. 2002) is `nltk`'s: the geometric mean of the precisions of 1- to n-grams, equally weighted, times
    the penalty for a text shorter than its references. A precision of zero is replaced by 0.1 divided by its number of
    n-grams (`SmoothingFunction().method1`, as in Texygen), because otherwise the whole product would be zero.

    Parameters
    ----------
    texts : iterable of sequences
        At least two. The BLEU of an empty text is 0.
    n : int
        The length of the longest n-grams that are counted.

    Returns
    -------
    float
        From 0 to 1. The time it takes grows with the square of the number of texts.

    Raises
    ------
    ValueError
        For fewer than two texts.
    """
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu  # not at the top: it is slow to import

    texts = [[word for (word,) in ngrams(text, 1)] for text in _checked_texts(texts)]
    ngrams([], n)  # raises for a bad n
    if len(texts) < 2:
        raise ValueError(f"self_bleu compares texts with each other: give at least two, not {len(texts)}")
    smoothing = SmoothingFunction().method1
    scores = [
        sentence_bleu(texts[:i] + texts[i + 1 :], text, weights=[1 / n] * n, smoothing_function=smoothing)
        for i, text in enumerate(texts)
    ]
    return math.fsum(scores) / len(scores)


def _checked_texts(texts):
    if isinstance(texts, str):
        raise ValueError(f"expected several texts, each a sequence of tokens or words; got the string {texts!r}")
    return texts


# ----------------------------------------------------------------------------------------------------------------------
# The probability of a text under a model


@takes_iterators
def log_probabilities(lm, prompt: str | Sequence[int], tokens: Sequence[int]):
    """The natural log-probability of each token, given the prompt and the tokens before it. One call of `lm`.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        The prompt's own tokens are not included in the result.
    tokens : sequence of int
        The tokens after the prompt.

    Returns
    -------
    tensor of float64, shape (tokens,), on the CPU
        -inf for tokens to which the model gives probability zero.

    Raises
    ------
    ValueError
        For no tokens, or more than the context holds after the prompt.
    """
    session = lm.session(prompt)
    if len(tokens) > session.room:
        raise ValueError(
            f"{session.prompt_length} tokens of prompt and {len(tokens)} after it do not fit the context of "
            f"{lm.context}: judge fewer tokens"
        )
    if not len(tokens):
        raise ValueError("there are no tokens to judge: give what follows the prompt, such as trace.tokens")
    tokens = lm.check_tokens(tokens, "tokens")
    # Row i says what may stand where tokens[i] stands. What may follow the last of them is not asked.
    rows = session.feed(tokens[:-1]).cpu().double().log_softmax(-1)
    return rows[range(len(tokens)), tokens]


@takes_iterators
def perplexity(lm, prompt: str | Sequence[int], tokens: Sequence[int]) -> float:
    """exp of the mean negative log-probability of `tokens` after `prompt`, under the model as it is.

    A perplexity of 10 means that the model is as uncertain as if it had to choose among 10 equally likely tokens each
    time. It is 1 if the model is sure of every token, the size of the vocabulary if all tokens are equally likely, and
    infinite if one of the tokens has probability zero. It is computed in float64 from the model's logits. (Jelinek et
    al. 1977, "Perplexity: a measure of the difficulty of speech recognition tasks".)

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        The prompt's own tokens are not included in the result.
    tokens : sequence of int

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    ValueError
        For no tokens, or more than the context holds after the prompt.
    """
    return float((-log_probabilities(lm, prompt, tokens).mean()).exp())


# ----------------------------------------------------------------------------------------------------------------------
# Whether a story contradicts itself


class Consistency(NamedTuple):
    """Counts of sentences. They can be added over texts: ``sum(counts)``.

    Attributes
    ----------
    sentences : int
        All sentences that were checked.
    readable : int
        Sentences that can be read as sentences of the village.
    consistent : int
        Readable sentences that contradict nothing before them.
    new : int
        Sentences that did not occur before word for word, whether readable or not.
    """

    sentences: int = 0
    readable: int = 0
    consistent: int = 0
    new: int = 0

    @property
    def contradictions(self) -> int:
        """The number of readable sentences that contradict something before them."""
        return self.readable - self.consistent

    @property
    def share_readable(self) -> float:
        """The share of all sentences that are readable; NaN if there are no sentences."""
        return self.readable / self.sentences if self.sentences else math.nan

    @property
    def share_consistent(self) -> float:
        """The share of the readable sentences that are consistent; NaN if there are no readable sentences."""
        return self.consistent / self.readable if self.readable else math.nan

    def __add__(self, other) -> "Consistency":
        if not isinstance(other, Consistency):
            return NotImplemented
        return Consistency(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __radd__(self, other) -> "Consistency":
        return self if other == 0 else NotImplemented  # sum() starts from 0


def consistency(prompt_text: str, text: str) -> Consistency:
    """Check the sentences that `text` adds to a village story, with `storyworld.check`.

    The story is read from the beginning, because the sentences are checked against the facts in the prompt, but only
    the added sentences are counted. A sentence that begins in the prompt and ends in the text counts as added. So does
    text that is attached to the prompt's last sentence without a space. A last sentence without an end does not count,
    because a budget cut it off. A sentence ends with a full stop, or with a question mark and a closing quote.

    Parameters
    ----------
    prompt_text : str
        For example ``storyworld.questions.opening("a seed")``.
    text : str
        The text of a method after the prompt, ``trace.text``, with its leading space.

    Returns
    -------
    Consistency
    """
    for given in (prompt_text, text):
        if not isinstance(given, str):
            raise ValueError(f"consistency reads text, not tokens: give strings such as trace.text; got {given!r}")
    before, verdicts = check(prompt_text), check(prompt_text + text)
    # Not simply len(before): the last of them may go on in the text.
    known = sum(1 for old, now in zip(before, verdicts) if old.sentence == now.sentence)
    added = verdicts[known:]
    said = {one.sentence for one in verdicts[:known]}
    return Consistency(
        sentences=len(added),
        readable=sum(one.verdict != "unreadable" for one in added),
        consistent=sum(one.verdict == "consistent" for one in added),
        new=len({one.sentence for one in added} - said),
    )
