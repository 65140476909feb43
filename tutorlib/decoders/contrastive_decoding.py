"""Contrastive decoding: what a large model says more of than a small one; greedily, drawn, or searched for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from ..arguments import is_number
from ..decoding import Prompt, checked_stop, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Candidates, Step
from ..vocabularies import check_prompt_of_both, check_same_vocabulary
from ..warp import Warp, in_float64, min_p, probabilities
from .beam_search import Group, feed_running
from .beam_search import check as check_beams

# What stands for an infinite score where scores are added up: more than any text of other tokens has, so that the texts
# with most of such tokens come first, and among them the one whose other tokens score best.
IMPOSSIBLE = 1e6


def contrastive_scores(
    expert_logits: torch.Tensor, amateur_logits: torch.Tensor, alpha: float = 0.1, amateur_temperature: float = 1.0
) -> torch.Tensor:
    """How much more the expert makes of each token than the amateur does: log p_expert - log p_amateur.

    Only of tokens that the expert finds plausible: those with p_expert(x) >= alpha · max p_expert. (As a filter this
    cut is `min_p`, which came later.) The others score -inf.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3.

    Parameters
    ----------
    expert_logits, amateur_logits : tensors of floats, shape (n, vocab)
        Where one has more columns, for a vocabulary that is filled up with ids that are no tokens, these are left out.
    alpha : float
        From 0, which cuts nothing but what has no probability at all, to 1, which leaves the likeliest and its equals.
    amateur_temperature : float
        The amateur's logits, and not the expert's, are divided by it: below 1 the amateur is surer of itself.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        +inf where the cut leaves a token that the amateur gives no probability at all.

    Raises
    ------
    ValueError
        When a row of logits holds NaN or +inf, or nothing but -inf; when all that is plausible is left out.

    Examples
    --------
    >>> contrastive_scores(torch.tensor([[0.0, 0.0, -9.0]]), torch.tensor([[0.0, 1.0, -99.0]])).round(decimals=3)
    tensor([[ 0.6200, -0.3800,    -inf]], dtype=torch.float64)
    """
    expert = log_probabilities(expert_logits)
    amateur = log_probabilities(amateur_logits.to(expert.device).double() / amateur_temperature)
    plausible = min_p(alpha)(expert) > -math.inf
    shared = min(expert.shape[-1], amateur.shape[-1])
    if shared < expert.shape[-1] and not bool(plausible[:, :shared].any(-1).all()):
        raise ValueError(
            "all that the expert finds plausible are ids that the amateur does not have: look at the expert"
        )
    return (expert[:, :shared] - amateur[:, :shared]).masked_fill(~plausible[:, :shared], -math.inf)


def log_probabilities(logits: torch.Tensor) -> torch.Tensor:
    """The log-softmax of rows (n, vocab) in float64; ValueError where it does not exist."""
    log_probs = in_float64(logits).log_softmax(-1)
    if math.isnan(float(log_probs.max())):  # the largest of some numbers is NaN if one of them is
        row = int(log_probs.isnan().any(-1).int().argmax())
        raise ValueError(f"row {row} of the logits holds NaN or +inf, or nothing but -inf: look at the model")
    return log_probs


def check_alpha(alpha) -> None:
    """Raise ValueError when the cut is not a share."""
    if not is_number(alpha) or not 0 <= alpha <= 1:
        raise ValueError(
            f"alpha must be a share of the likeliest token's probability, from 0 (no cut) to 1 (greedy), got {alpha!r}"
        )


def check(expert, amateur, prompt, alpha, amateur_temperature):
    """Raise ValueError for what is wrong with the arguments that the three forms have in common."""
    if not hasattr(amateur, "session") or not hasattr(amateur, "prompt_tokens"):
        raise ValueError(f"the amateur must be an LM, got {type(amateur).__name__}: wrap it as LM(model, tokenizer)")
    check_same_vocabulary(expert=expert, amateur=amateur)
    check_prompt_of_both(prompt, "amateur", amateur)
    check_alpha(alpha)
    if not is_number(amateur_temperature) or amateur_temperature <= 0:
        raise ValueError(f"amateur_temperature must be a finite number above 0, got {amateur_temperature!r}")


@decoder(check=check)
def contrastive_decoding(
    expert: LM, amateur: LM, prompt: Prompt, *, alpha: float = 0.1, amateur_temperature: float = 1.0
) -> Iterator[Step]:
    """Take the plausible token that the expert likes most in comparison with the amateur, over and over.

    What small models do badly (repeat themselves, stay vague) large ones do too, only less: subtracting the small one's
    log-probabilities leaves what size has added. The score is `contrastive_scores`; of equal scores the lowest id wins.

    *Lossy* by design: neither the expert's greedy text nor its distribution. Deterministic. With ``alpha=1``, or with
    an amateur that finds all tokens equally likely, it is the expert's greedy decoding (ties aside).

    Cost: one call of `expert` and one of `amateur` a token.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3. The paper
    searches with beams (`contrastive_beam_search`), with alpha = 0.1; for GPT-2 with an amateur temperature of 0.5.

    Parameters
    ----------
    expert : LM
        The model whose text is written.
    amateur : LM
        A weaker one with the same vocabulary. If one of the two is filled up with more ids, these are not taken.
    prompt : str or list of int
    alpha : float
        Tokens below this share of the likeliest one's probability, both by the expert, are out: 0 cuts nothing, 1
        leaves only the likeliest.
    amateur_temperature : float
        Above 0. Below 1 the amateur is surer of itself, and what it likes is punished more.

    Yields
    ------
    Step
        One token each; ends where the amateur's context does. Its candidates are the softmax of the scores.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf.
    """
    expert_session, amateur_session = expert.session(prompt), amateur.session(prompt)
    new = []  # the first feed computes the prompt
    while len(new) <= amateur_session.room:
        logits = expert_session.feed(new), amateur_session.feed(new)  # (1, vocab) each
        scores = contrastive_scores(*logits, alpha, amateur_temperature)
        new = [int(scores[-1].argmax())]
        yield Step(new, candidates=Candidates(scores.clamp(max=IMPOSSIBLE)))
    return "context"


@decoder(check=check)
def contrastive_sampling(
    expert: LM,
    amateur: LM,
    prompt: Prompt,
    *,
    rng: Randomness | None = None,
    alpha: float = 0.1,
    amateur_temperature: float = 1.0,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Draw each plausible token with a probability proportional to p_expert / p_amateur.

    That is the softmax of `contrastive_scores`, as if they were logits. *Lossy* by design: this is not the expert's
    distribution. With ``rng=None`` and no warp it is `contrastive_decoding`.

    Cost: one call of `expert` and one of `amateur` a token.

    Source: the scores are those of Li et al. (2022), who search for the best of them.

    Parameters
    ----------
    expert, amateur, prompt, alpha, amateur_temperature
        As for `contrastive_decoding`.
    rng : Randomness or None
    warp : sequence of functions
        Applied in order to the scores, in the way in which `sample` applies them to logits.

    Yields
    ------
    Step
        One token each; ends where the amateur's context does.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf, and where the amateur gives a
        plausible token no probability at all: nothing can be drawn in proportion to that.
    """
    expert_session, amateur_session = expert.session(prompt), amateur.session(prompt)
    new = []
    while len(new) <= amateur_session.room:
        logits = expert_session.feed(new), amateur_session.feed(new)  # (1, vocab) each
        scores = contrastive_scores(*logits, alpha, amateur_temperature)
        if float(scores.max()) == math.inf:
            raise ValueError(
                f"the amateur gives token {int(scores.argmax())} no probability at all, so that its score is infinite: "
                "nothing can be drawn in proportion to that; contrastive_decoding takes such a token"
            )
        history = [expert_session.tokens]
        new = [rng.choose(probabilities(scores, warp, history)[-1])]
        yield Step(new, candidates=Candidates(scores, warp=warp, histories=history))
    return "context"


def check_search(expert, amateur, prompt, alpha, amateur_temperature, beams, max_new_tokens, length_penalty, stop):
    """Raise ValueError for what is wrong with the arguments of `contrastive_beam_search`."""
    check(expert, amateur, prompt, alpha, amateur_temperature)
    check_beams(expert, beams, max_new_tokens, length_penalty, False, 0, 1, 0.0, stop)


@decoder(check=check_search)
def contrastive_beam_search(
    expert: LM,
    amateur: LM,
    prompt: Prompt,
    *,
    beams: int,
    max_new_tokens: int,
    alpha: float = 0.1,
    amateur_temperature: float = 1.0,
    length_penalty: float = 1.0,
    stop: Iterable[int] | None = None,
) -> Iterator[Step]:
    """Search for the text that the expert likes most in comparison with the amateur, of plausible tokens alone.

    Beam search on Σ `contrastive_scores` in place of Σ log p; see `beam_search` for how it goes. A text scores
    ``Σ score / len ** length_penalty``. With a penalty of 0 that is the paper's objective: log p_expert less
    log p_amateur of the whole text. The paper's texts all have one length. Where stop tokens end some, the sum favours
    long ones as far as the expert is the surer one, token by token; 1 compares averages. Unlike log-probabilities,
    scores may be positive, so that a text which goes on may get better: nothing short of `max_new_tokens` ends the
    search while a hypothesis runs.

    A plausible token that the amateur gives no probability at all scores 1e6 in place of infinity, so that sums can be
    compared.

    *Lossy* by design. Deterministic. With one beam it is `contrastive_decoding`, unless there are stop tokens: then a
    text that has ended competes with what comes of going on.

    Cost: one call of `expert` and one of `amateur` a length, with a row for each beam.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3; the paper
    has 5 beams.

    Parameters
    ----------
    expert, amateur, prompt, alpha, amateur_temperature
        As for `contrastive_decoding`.
    beams : int
        How many hypotheses run, and how many finished ones are kept.
    max_new_tokens : int
        Cut to the room in both contexts.
    length_penalty : float
        See above.
    stop : token ids, optional
        None means ``expert.stop_tokens``, ``()`` none.

    Yields
    ------
    Step
        As `beam_search` does: one for each length, without tokens, then the winner with its score; the `hypotheses` are
        the running ``[new tokens, Σ score]`` and at last the finished ``[new tokens, score]``, best first.

    Raises
    ------
    ValueError
        At the call for a bad argument; while searching, for logits that are NaN or +inf.
    """
    stop = checked_stop(stop, expert)
    room = amateur.context - len(prompt)
    longest = min(max_new_tokens, expert.context - len(prompt), room)
    if longest < 1:
        return "context"
    group = Group(beams, length_penalty)
    batches = expert.batch([prompt]), amateur.batch([prompt])
    logits = [torch.cat(batch.feed([[]])) for batch in batches]  # (rows, vocab) each
    for length in range(1, longest + 1):
        scores = contrastive_scores(*logits, alpha, amateur_temperature).clamp(max=IMPOSSIBLE)
        finished_here = group.lengthen(scores, torch.zeros_like(scores[0]), stop, last=length == longest)
        running = group.running if length < longest else []
        yield Step(
            hypotheses=[[hypothesis.tokens, hypothesis.log_prob] for hypothesis in running],
            scored=len(scores),
            note=f"finished: {finished_here}" if finished_here else "",
        )
        if not running:
            break
        logits = feed_running(running, *batches)
    tokens, score = group.finished[0]
    yield Step(list(tokens), score=score, hypotheses=group.finished)
    return "context" if len(tokens) == room < max_new_tokens else None
