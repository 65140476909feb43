"""Speculative decoding: a small model drafts some tokens, one call of the large one checks them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ..arguments import check_whole_number, is_number, takes_iterators
from ..checking import check_tree, drawn
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..theory import measured_factor
from ..tree import TokenTree
from ..vocabularies import check_prompt_of_both, check_same_vocabulary
from ..warp import Warp, draft_probabilities, over_ids, takes

# How many tokens to draft: always so many, or what a function makes of the rounds so far, (drafted, accepted) each.
Gamma = int | Callable[[Sequence[tuple[int, int]]], int]


@takes_iterators
def adaptive(
    call_seconds: Sequence[float],
    draft_seconds: float,
    *,
    most: int | None = None,
    prior: float = 0.7,
    weight: float = 4.0,
    memory: float = 0.95,
) -> Gamma:
    """A γ for each round: the one that makes the most tokens in a second, as far as acceptance is known by then.

    It maximises `theory.measured_factor`, with alpha estimated from the rounds so far: accepted tokens over tokens
    judged (those after the first that was rejected were not). Old rounds count less than new ones.

    Parameters
    ----------
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens; ``cost.call_times(target, range(1, 10)).seconds``, for instance.
        Given as numbers, so that the choice, and with it the text, is the same whenever it is run.
    draft_seconds : float
        Time of a draft call with one token, in the same unit.
    most : int, optional
        The largest γ, 1 or more; by default the largest that `call_seconds` covers. The least is 1, even where nothing
        pays: who does not draft learns nothing.
    prior, weight : float
        What alpha is taken to be before anything is seen, and how many judged tokens that is worth.
    memory : float
        By how much a round counts less than the one after it: 1 forgets nothing.

    Returns
    -------
    function from rounds to γ
        What `speculative` takes as `gamma`. It remembers nothing itself, so that it can be used again and again.

    Raises
    ------
    ValueError
        For a bad argument.

    Examples
    --------
    >>> gamma = adaptive([3.0, 3.3, 3.6, 3.9, 4.2], 0.5)
    >>> gamma([]), gamma([(4, 4)] * 9), gamma([(4, 0)] * 9)
    (2, 4, 1)
    """
    most = len(call_seconds) - 1 if most is None else most
    check_whole_number(most, 1, "most is the largest gamma, up to the number of call_seconds less 1")
    for name, share in (("prior", prior), ("memory", memory)):
        if not is_number(share) or not 0 <= share <= 1:
            raise ValueError(f"{name} must be a number from 0 to 1, got {share!r}")
    if not is_number(weight) or weight <= 0:
        raise ValueError(f"weight must be a finite number above 0, got {weight!r}")
    for gamma in range(1, most + 1):
        measured_factor(prior, gamma, call_seconds, draft_seconds)  # raises ValueError for times that are none

    def most_tokens_a_second(rounds):
        accepted, judged, counts = prior * weight, weight, 1.0
        for drafted, kept in reversed(rounds):
            accepted += counts * kept
            judged += counts * min(kept + 1, drafted)
            counts *= memory
        alpha = accepted / judged
        return max(range(1, most + 1), key=lambda gamma: measured_factor(alpha, gamma, call_seconds, draft_seconds))

    return most_tokens_a_second


def check_pair(target, draft, prompt, gamma, confidence):
    """Raise ValueError for what is wrong with the arguments of `speculative`."""
    if not hasattr(draft, "session") or not hasattr(draft, "prompt_tokens"):
        raise ValueError(f"the draft must be an LM, got {type(draft).__name__}: wrap it as LM(model, tokenizer)")
    advice = "for others there are token_intersection and string_match, which draft across tokenizers"
    check_same_vocabulary(advice, target=target, draft=draft)
    if draft.device != target.device:
        raise ValueError(f"the draft is on {draft.device}, the target on {target.device}: load both on one device")
    check_prompt_of_both(prompt, "draft", draft)
    if not callable(gamma):
        check_whole_number(gamma, 1, "gamma is how many tokens are drafted in a round")
    elif not takes(gamma, 1):
        raise ValueError(f"gamma must be a whole number, or a function of the rounds so far; got {gamma!r}")
    if not is_number(confidence) or not 0 <= confidence <= 1:
        raise ValueError(f"confidence must be a probability from 0 (draft on, however unsure) to 1, got {confidence!r}")


def tokens_to_draft(gamma: Gamma, rounds: Sequence[tuple[int, int]], text: Sequence[int], target, draft) -> int:
    """How many tokens to draft at most after a text: γ, or as many as there is room for; 0 if the draft cannot read it.

    The target adds a token to them, which has to fit its context; the draft reads all of them but the last.
    """
    length = len(text)
    if callable(gamma):
        gamma = gamma(rounds)
        check_whole_number(gamma, 0, "the function passed as gamma must return how many tokens to draft")
    if draft.vocab_size < target.vocab_size and max(text) >= draft.vocab_size:
        return 0
    return max(0, min(gamma, target.context - length - 1, draft.context - length + 1))


def is_unsure(logits: torch.Tensor, confidence: float) -> list[bool]:
    """Whether the draft, unwarped, gives even its likeliest token less than `confidence`; for each row (n, vocab)."""
    if confidence == 0:
        return [False] * len(logits)
    return (logits.softmax(-1).amax(-1) < confidence).tolist()


@decoder(check=check_pair)
def speculative(
    target: LM,
    draft: LM,
    prompt: Prompt,
    *,
    gamma: Gamma = 4,
    confidence: float = 0.0,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Let a small model draft γ tokens, check them in one call of the large one, and keep what passes.

    *Lossless*: the text has the distribution of ``sample(target, prompt, rng=..., warp=warp)``, whatever the draft; a
    good one makes it fast. With ``rng=None`` it is `greedy`, token for token (where two tokens are nearly equally
    likely, rounding may decide between them otherwise: a call of several tokens is computed in another order).

    Cost: one call of `target` (with γ + 1 tokens, the first also with the prompt) and up to γ calls of `draft` a round,
    which makes from 1 to γ + 1 tokens.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1; Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2.

    Parameters
    ----------
    target : LM
        The model whose text this is.
    draft : LM
        A faster one with the same vocabulary, on the same device. Vocabularies of one tokenizer that are filled up to
        different sizes will do: ids that the target lacks are not drafted, and a text with one that the draft lacks is
        continued without drafts.
    prompt : str or list of int
        No longer than the draft's context.
    gamma : int or function
        How many tokens to draft in a round. Or a function from the rounds so far, a list of ``(drafted, accepted)``, to
        that number (0 drafts nothing): see `adaptive`. It may look at the past alone, or the text is not exact.
    confidence : float
        Above 0, a draft ends before γ with a token in whose place the draft gave no token this much: what follows would
        probably be for nothing. That pays where one token is right, as in greedy decoding; sampled, an unsure draft is
        accepted as often as a sure one that is as much like the target.
    rng : Randomness or None
        For example ``Seeded(7)``. None takes the likeliest token instead.
    warp : sequence of functions
        Applied to the logits of both models: the target's because that is asked for, the draft's because it is then
        accepted more often.

    Yields
    ------
    Step
        One a round: the drafted tokens, those accepted, and the one that the target adds. Ends where the target's
        context does. Where only the draft's is full, it goes on without drafts.

    Raises
    ------
    ValueError
        At the call for a bad argument, for models with different vocabularies for instance; while running, for logits
        that are NaN or +inf.
    """
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    target_session.rollback(1)  # the last token is fed with the draft
    text, rounds = list(prompt), []
    while len(text) < target.context:
        drafted, draft_probs = [], []
        for _ in range(tokens_to_draft(gamma, rounds, text, target, draft)):
            # First back to the text and on to its end: that is one token, or two after a draft that was all accepted.
            logits = draft_session.feed(drafted[-1:]) if drafted else draft_session.advance_to(text)
            (row,) = draft_probabilities(over_ids(logits[-1:], target.vocab_size), warp, [text + drafted])
            if row is None:
                break
            draft_probs.append(row)
            drafted.append(rng.choose(row))
            if is_unsure(logits[-1:], confidence)[0]:
                break
        candidates = TokenTree.chain(drafted)
        path, tokens, weighed, _ = check_tree(target_session, text, candidates, rng, warp, drawn(draft_probs))
        text += tokens
        rounds.append((len(drafted), len(path)))
        yield Step(tokens, drafted, len(path), candidates=weighed)
    return "context"
