"""Speculative decoding: a small model drafts some tokens, and one call of the large model checks them all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch

from ..arguments import check_whole_number, is_number, takes_iterators
from ..drafting.checking import check_tree
from ..drafting.rules import ChainRule, check_chain_rule, draft_token, ratio
from ..measures.theory import measured_factor
from ..model.lm import LM
from ..model.protocol import is_model
from ..model.tree import TokenTree
from ..model.vocabularies import check_prompt_of_both, check_same_vocabulary
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.checks import takes
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, draft_probabilities, over_ids

# How many tokens to draft: a fixed number, or a function of the rounds so far, each a pair (drafted, accepted).
Gamma = int | Callable[[Sequence[tuple[int, int]]], int]


@takes_iterators
def adaptive_gamma(
    call_seconds: Sequence[float],
    draft_seconds: float,
    *,
    most: int | None = None,
    prior: float = 0.7,
    weight: float = 4.0,
    memory: float = 0.95,
) -> Gamma:
    """Choose γ anew for each round: the γ that should give the most tokens per second, going by the rounds so far.

    It maximises `theory.measured_factor`, with alpha estimated from the rounds so far: the number of accepted tokens
    divided by the number of checked tokens. (Tokens after the first rejected one were not checked.) Old rounds count
    less than new ones.

    Parameters
    ----------
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens; ``cost.call_times(target, range(1, 10)).seconds``, for instance.
        Since these are fixed numbers, the choice of γ is the same in every run, and so is the text.
    draft_seconds : float
        Time of a draft call with one token, in the same unit.
    most : int, optional
        The largest γ, 1 or more; by default the largest that `call_seconds` covers. The smallest γ is always 1, even if
        drafting does not pay, because without drafts nothing could be learnt about acceptance.
    prior, weight : float
        The value of alpha before the first round, and the number of checked tokens that this prior value counts for.
    memory : float
        The weight of a round relative to the round after it: with 1, all rounds count the same.

    Returns
    -------
    function from rounds to γ
        To be passed to `speculative` as `gamma`. The function stores nothing, so it can be used for many runs.

    Raises
    ------
    ValueError
        For a bad argument.

    Examples
    --------
    >>> gamma = adaptive_gamma([3.0, 3.3, 3.6, 3.9, 4.2], 0.5)
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
        measured_factor(prior, gamma, call_seconds, draft_seconds)  # raises ValueError for wrong times

    def most_tokens_a_second(rounds):
        accepted, checked, counts = prior * weight, weight, 1.0
        for drafted, kept in reversed(rounds):
            accepted += counts * kept
            checked += counts * min(kept + 1, drafted)
            counts *= memory
        alpha = accepted / checked
        return max(range(1, most + 1), key=lambda gamma: measured_factor(alpha, gamma, call_seconds, draft_seconds))

    return most_tokens_a_second


def check(target, draft, prompt, gamma, confidence, rule):
    """Raise ValueError if an argument of `speculative` is wrong."""
    if not is_model(draft):
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
    check_chain_rule(rule)


def tokens_to_draft(gamma: Gamma, rounds: Sequence[tuple[int, int]], text: Sequence[int], target, draft) -> int:
    """How many tokens may be drafted after a text: γ, or fewer if there is less room; 0 if the draft cannot read the
    text.

    The target's context must also hold the token that the target adds after them. The draft reads all of them but the
    last.
    """
    length = len(text)
    if callable(gamma):
        gamma = gamma(rounds)
        check_whole_number(gamma, 0, "the function passed as gamma must return how many tokens to draft")
    if draft.vocab_size < target.vocab_size and max(text) >= draft.vocab_size:
        return 0
    return max(0, min(gamma, target.context - length - 1, draft.context - length + 1))


def is_unsure(logits: torch.Tensor, confidence: float) -> list[bool]:
    """For each row (n, vocab): whether the draft, without warps, gives even its most likely token less than
    `confidence`.
    """
    if confidence == 0:
        return [False] * len(logits)
    return (logits.softmax(-1).amax(-1) < confidence).tolist()


@decoder(check=check)
def speculative(
    target: LM,
    draft: LM,
    prompt: Prompt,
    *,
    gamma: Gamma = 4,
    confidence: float = 0.0,
    rule: ChainRule = ratio,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let a small model draft γ tokens, check them all in one call of the large model, and keep those that pass.

    *Lossless*: the text has the distribution of ``sample(target, prompt, rng=..., warp=warp)``, whatever the draft is;
    the draft only decides how fast it goes. With ``rng=None`` the text is the same as that of `greedy`. (If two tokens
    are nearly equally likely, rounding may lead to a different choice, because a call with several tokens may add
    numbers in a different order.)

    Cost: each round takes one call of `target` with γ + 1 tokens and up to γ calls of `draft`, and gives from 1 to γ +
    1 tokens. The first call also reads the prompt.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1; Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2. The
    rules have sources of their own: see `tutorlib.drafting.rules`.

    Parameters
    ----------
    target : LM
        The model whose text is written.
    draft : LM
        A faster model with the same vocabulary, on the same device; `with_lookup` makes a chain of three. The two
        vocabularies may be padded to different sizes if they belong to the same tokenizer. Ids that the target lacks
        are then not drafted, and a text that contains an id which the draft lacks is continued without drafts.
    prompt : str or list of int
        No longer than the draft's context.
    gamma : int or function
        How many tokens to draft in a round; or a function that takes the rounds so far, a list of
        ``(drafted, accepted)``, and returns that number, such as `adaptive_gamma` makes (0 means no draft). The
        function must depend on past rounds only, or the method is no longer lossless.
    confidence : float
        If this is above 0, a draft may end before γ tokens: it ends with the first token that was chosen at a position
        where the draft gave no token this probability, since the tokens after it would probably be rejected. This helps
        in greedy decoding, where only one token is accepted. It does not help in sampling, where an unsure draft is
        accepted as often as a sure one, provided that both are equally close to the target.
    rule : function
        How drafted tokens are checked: `ratio`, `block`, `match` or `match_drawn`. All are lossless, and `block` keeps
        the most tokens.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits of both models: to the target's because they define the distribution of the text, and to
        the draft's because its tokens are then accepted more often.

    Yields
    ------
    Step
        One step per round: the drafted tokens, how many were accepted, and the token that the target adds. The method
        ends when the target's context is full. If only the draft's context is full, it continues without drafts.

    Raises
    ------
    ValueError
        When called with a bad argument, for example with models that have different vocabularies; while running, for
        logits that are NaN or +inf.
    """
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, rounds = target_session.tokens, []
    target_session.rollback(1)  # the last token is fed with the draft
    target_session.share_prompt(draft_session)  # if the draft is the target's own copy
    while len(text) < target.context:
        drafted, draft_probs = [], []
        for _ in range(tokens_to_draft(gamma, rounds, text, target, draft)):
            # First go back to the text and read its end: one token, or two if the whole draft was accepted.
            logits = draft_session.feed(drafted[-1:]) if drafted else draft_session.advance_to(text)
            (row,) = draft_probabilities(over_ids(logits[-1:], target.vocab_size), warp, [History(text, drafted)])
            if row is None:
                break
            draft_probs.append(row)
            drafted.append(draft_token(rule, row, rng))
            if is_unsure(logits[-1:], confidence)[0]:
                break
        checked = check_tree(target_session, text, TokenTree.chain(drafted), rng, warp, rule(draft_probs))
        text += checked.tokens
        rounds.append((len(drafted), len(checked.path)))
        yield checked.step()
    return "context"
