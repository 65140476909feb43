"""What can be measured on a text: how varied it is, how much it repeats, what a model thinks of it, whether it is true.

A text is a sequence of tokens or words (anything hashable), never one string: ``text.split()`` makes words of it. What
is counted is n-grams, the runs of n tokens in a row. Where a text is too short to have any, there is nothing to take a
share of, and the result is NaN. What this file does not do: time anything (`bench`), or judge a distribution (`proof`).
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

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
        When `n` is not a whole number above 0, or `tokens` is a string (or a lone value).

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

    ``-Σ f log2 f`` over the different n-grams, f being the share of each among all. 0 when they are all the same;
    ``log2(N)`` when all N of them differ, so longer texts can have more. Called Ent-n by Zhang et al. (2018),
    "Generating Informative and Diverse Conversational Responses via Adversarial Information Maximization".

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
    """Different n-grams, as a share of all n-grams of several texts together.

    No n-gram goes from one text into the next. From Li et al. (2016), "A Diversity-Promoting Objective Function for
    Neural Conversation Models". The more text there is, the lower it falls, for the words run out:
    compare amounts of text that are alike.

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
    """The share of a text's n-grams that occurred before in it: 0 if all are new.

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
    """How alike several texts are: the mean BLEU of each, with all the others as its references.

    1 when all are the same. From Zhu et al. (2018), "Texygen: A Benchmarking Platform for Text Generation Models". BLEU
    (Papineni et al. 2002) is `nltk`'s: the geometric mean of the precisions of 1- to n-grams, equally weighted, times
    the penalty for a text shorter than its references. A precision of zero becomes 0.1 over its count of n-grams
    (`SmoothingFunction().method1`, as in Texygen), or one of them would make the whole product zero.

    Parameters
    ----------
    texts : iterable of sequences
        At least two. An empty one is like nothing: its BLEU is 0.
    n : int
        The longest n-grams that count.

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
# What a model thinks of a text


@takes_iterators
def log_probabilities(lm, prompt: str | Sequence[int], tokens: Sequence[int]):
    """The natural log-probability of each token, given the prompt and the tokens before it. One call of `lm`.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        Its own tokens are not judged.
    tokens : sequence of int
        What follows it.

    Returns
    -------
    tensor of float64, shape (tokens,), on the CPU
        -inf where the model thinks a token impossible.

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

    As if the model had to choose among this many equally likely tokens each time: 1 when it is sure of every one, the
    vocabulary's size when it has no idea, infinite when one of them is impossible. Computed in float64 from the model's
    logits. (Jelinek et al. 1977, "Perplexity: a measure of the difficulty of speech recognition tasks".)

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        Its own tokens are not judged.
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
    """Counts of sentences. They add up over texts: ``sum(counts)``.

    Attributes
    ----------
    sentences : int
        All that were judged.
    readable : int
        Those that read like a sentence of the village.
    consistent : int
        Those of the readable ones that contradict nothing told before them.
    new : int
        Those that nobody had said before word for word, readable or not.
    """

    sentences: int = 0
    readable: int = 0
    consistent: int = 0
    new: int = 0

    @property
    def contradictions(self) -> int:
        """Readable sentences that contradict what was told before."""
        return self.readable - self.consistent

    @property
    def share_readable(self) -> float:
        """Of all sentences; NaN when there are none."""
        return self.readable / self.sentences if self.sentences else math.nan

    @property
    def share_consistent(self) -> float:
        """Of the readable sentences: what cannot be read cannot be wrong. NaN when there are none."""
        return self.consistent / self.readable if self.readable else math.nan

    def __add__(self, other) -> "Consistency":
        if not isinstance(other, Consistency):
            return NotImplemented
        return Consistency(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __radd__(self, other) -> "Consistency":
        return self if other == 0 else NotImplemented  # sum() starts from 0


def consistency(prompt_text: str, text: str) -> Consistency:
    """Judge the sentences that `text` adds to a village story, with `storyworld.check`.

    The story is read from its beginning, since what was told in the prompt is what the rest is held against, but only
    the added sentences are counted. One that the prompt began and the text ends counts as added; so does what was glued
    to the prompt's last sentence for want of a space. A last sentence that does not end, because a budget cut it off,
    does not count: one ends in a full stop, or in a question mark and a closing quote.

    Parameters
    ----------
    prompt_text : str
        For instance ``storyworld.questions.opening("a seed")``.
    text : str
        What a method wrote after it, ``trace.text``: with its leading space.

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


# ----------------------------------------------------------------------------------------------------------------------
# How sure one can be of a mean


@takes_iterators
def bootstrap_interval(
    values: Sequence[float],
    over: Sequence[float] | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float]:
    """Between which bounds a mean, or a ratio of sums, would lie with other prompts of the same kind.

    The percentile bootstrap (Efron 1979): draw as many prompts as there are, with replacement, compute the figure from
    them, do that many times, and take the middle `level` of what comes out. With few prompts (below about 20) it is
    too narrow.

    Parameters
    ----------
    values : sequence of floats, shape (n,)
        One a prompt.
    over : sequence of floats, shape (n,), optional
        The figure is then ``sum(values) / sum(over)``, such as consistent sentences over readable ones, and both
        numbers of a prompt are drawn together. Without it, it is the mean of `values`.
    level : float
        Between 0 and 1.
    seed : int
        The same seed gives the same bounds everywhere.
    resamples : int

    Returns
    -------
    (float, float)
        Lower and upper bound; NaN both when `over` sums to 0. Draws for which it does are left out.

    Raises
    ------
    ValueError
        For no values, NaN among them, `over` of another length, or a level outside (0, 1).
    """
    values = np.asarray(values, dtype=float)
    over = np.ones_like(values) if over is None else np.asarray(over, dtype=float)
    if values.ndim != 1 or not values.size or over.shape != values.shape:
        raise ValueError(f"expected one value a prompt, and as many in `over`; got {values.shape} and {over.shape}")
    if np.isnan(values).any() or np.isnan(over).any():
        raise ValueError("NaN among the values: leave out prompts that have none, or give counts and `over`")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    # RandomState, because its stream never changes; int64, because the default differs between systems.
    drawn = np.random.RandomState(seed).randint(values.size, size=(resamples, values.size), dtype=np.int64)
    top, bottom = values[drawn].sum(1), over[drawn].sum(1)
    figures = top[bottom != 0] / bottom[bottom != 0]
    if not figures.size:
        return math.nan, math.nan
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Between which bounds a probability lies when so many of some independent trials succeeded.

    Wilson's score interval: all probabilities that a test would not reject. It stays inside 0 and 1, and has a width
    for few trials and for shares of 0 and 1 too. For trials that depend on each other it is too narrow.

    Source: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".

    Parameters
    ----------
    successes, trials : int
        From 0 to `trials`; 1 trial or more.
    level : float
        Between 0 and 1.

    Returns
    -------
    (float, float)
        Lower and upper bound.

    Raises
    ------
    ValueError
        For numbers outside these bounds.

    Examples
    --------
    >>> low, high = wilson_interval(15, 148)
    >>> round(low, 4), round(high, 4)
    (0.0624, 0.1605)
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"expected from 0 to all of 1 or more trials to succeed, got {successes} of {trials}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = successes / trials, z * z / trials
    middle = share + spread / 2
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4))
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))
