"""Contrastive decoding: prefer tokens that a large model finds more likely than a small one does."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence

import torch

from ..arguments import is_number
from ..model.lm import LM
from ..model.protocol import is_model
from ..model.vocabularies import check_prompt_of_both, check_same_vocabulary
from ..running.decoder import Prompt, decoder
from ..running.decoding import checked_stop
from ..running.step import Candidates, Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, in_float64, min_p, probabilities
from .beam_search import Group, feed_running
from .beam_search import check as check_beams

# Stands for an infinite score where scores are added up. It is larger than the sum over any text without such tokens.
# So texts with most of these tokens come first, and among them the one whose other tokens score best.
IMPOSSIBLE = 1e6


def contrastive_scores(
    expert_logits: torch.Tensor, amateur_logits: torch.Tensor, alpha: float = 0.1, amateur_temperature: float = 1.0
) -> torch.Tensor:
    """How much more likely the expert finds each token than the amateur does: log p_expert - log p_amateur.

    Only tokens that the expert finds plausible get this score: those with p_expert(x) >= alpha · max p_expert. (The
    filter `min_p`, which was published later, makes the same cut.) All other tokens score -inf.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3.

    Parameters
    ----------
    expert_logits, amateur_logits : tensors of floats, shape (n, vocab)
        If one has more columns, because its vocabulary is padded with ids that are not tokens, the extra columns are
        left out.
    alpha : float
        From 0, which removes only tokens of probability zero, to 1, which keeps only the most likely token and any
        equally likely ones.
    amateur_temperature : float
        The amateur's logits, but not the expert's, are divided by it. Below 1, the amateur's distribution is sharper.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        +inf for a plausible token to which the amateur gives probability zero.

    Raises
    ------
    ValueError
        When a row of logits holds NaN or +inf, or is all -inf; when all plausible tokens were in the columns that are
        left out.

    Examples
    --------
    >>> contrastive_scores(torch.tensor([[0.0, 0.0, -9.0]]), torch.tensor([[0.0, 1.0, -99.0]])).round(decimals=3)
    tensor([[ 0.6200, -0.3800,    -inf]], dtype=torch.float64)
    """
    expert = checked_log_softmax(expert_logits)
    amateur = checked_log_softmax(amateur_logits.to(expert.device).double() / amateur_temperature)
    plausible = min_p(alpha)(expert) > -math.inf
    shared = min(expert.shape[-1], amateur.shape[-1])
    if shared < expert.shape[-1] and not bool(plausible[:, :shared].any(-1).all()):
        raise ValueError(
            "all tokens that the expert finds plausible are ids that the amateur does not have: look at the expert"
        )
    return (expert[:, :shared] - amateur[:, :shared]).masked_fill(~plausible[:, :shared], -math.inf)


def checked_log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """The log-softmax of rows (n, vocab) in float64; ValueError where it does not exist."""
    log_probs = in_float64(logits).log_softmax(-1)
    if math.isnan(float(log_probs.max())):  # the largest of some numbers is NaN if one of them is
        row = int(log_probs.isnan().any(-1).int().argmax())
        raise ValueError(f"row {row} of the logits holds NaN or +inf, or nothing but -inf: look at the model")
    return log_probs


def check_alpha(alpha) -> None:
    """Raise ValueError if alpha is not a number from 0 to 1."""
    if not is_number(alpha) or not 0 <= alpha <= 1:
        raise ValueError(
            f"alpha must be a share of the highest probability, from 0 (no cut) to 1 (greedy), got {alpha!r}"
        )


def check(expert, amateur, prompt, alpha, amateur_temperature):
    """Raise ValueError if an argument that all three methods share is wrong."""
    if not is_model(amateur):
        raise ValueError(f"the amateur must be an LM, got {type(amateur).__name__}: wrap it as LM(model, tokenizer)")
    check_same_vocabulary(expert=expert, amateur=amateur)
    check_prompt_of_both(prompt, "amateur", amateur)
    check_alpha(alpha)
    if not is_number(amateur_temperature) or amateur_temperature <= 0:
        raise ValueError(f"amateur_temperature must be a finite number above 0, got {amateur_temperature!r}")


@decoder(check=check)
def contrastive_decoding(
    expert: LM, amateur: LM, prompt: Prompt, *, alpha: float = 0.1, amateur_temperature: float = 1.0
) -> Generator[Step, None, str | None]:
    """Always take the plausible token whose probability the expert raises most in comparison with the amateur.

    Small models repeat themselves and stay vague, and large models do the same to a lesser degree. Subtracting the
    small model's log-probabilities leaves what the larger size has added. The score is that of `contrastive_scores`; if
    scores are equal, the lowest id wins.

    *Lossy* by design: the text is neither the expert's greedy text nor a sample from its distribution. Nothing is
    random. With ``alpha=1``, or with an amateur that finds all tokens equally likely, this is greedy decoding of the
    expert (except for ties).

    Cost: one call of `expert` and one of `amateur` per token.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3. The paper
    searches with beams (`contrastive_beam_search`) and alpha = 0.1, and for GPT-2 with an amateur temperature of 0.5.

    Parameters
    ----------
    expert : LM
        The model whose text is written.
    amateur : LM
        A weaker model with the same vocabulary. If one of the two vocabularies is padded with further ids, these are
        never chosen.
    prompt : str or list of int
    alpha : float
        A token is excluded if the expert gives it less than this share of the probability of its most likely token: 0
        excludes nothing, and 1 leaves only the most likely token.
    amateur_temperature : float
        Above 0. Below 1, the amateur's distribution is sharper, and tokens that it prefers lose more.

    Yields
    ------
    Step
        One token per step, until the amateur's context is full. The candidates are the softmax of the scores.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf.
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
) -> Generator[Step, None, str | None]:
    """Draw each plausible token with a probability proportional to p_expert / p_amateur.

    This is the softmax of `contrastive_scores`, used as if they were logits. *Lossy* by design: it is not the expert's
    distribution. With ``rng=None`` and no warp it is the same as `contrastive_decoding`.

    Cost: one call of `expert` and one of `amateur` per token.

    Source: the scores are those of Li et al. (2022), who search for the text with the best score instead of sampling.

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
        One token per step, until the amateur's context is full.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf, or when the amateur gives a
        plausible token probability zero, because its score is then infinite and nothing can be drawn in proportion to
        it.
    """
    expert_session, amateur_session = expert.session(prompt), amateur.session(prompt)
    new = []
    while len(new) <= amateur_session.room:
        logits = expert_session.feed(new), amateur_session.feed(new)  # (1, vocab) each
        scores = contrastive_scores(*logits, alpha, amateur_temperature)
        # An infinite score is the best for a search, but no distribution can be made of it.
        if float(scores.max()) == math.inf:
            raise ValueError(
                f"the amateur gives token {int(scores.argmax())} no probability at all, so that its score is infinite: "
                "nothing can be drawn in proportion to that; contrastive_decoding can take such a token"
            )
        history = [expert_session.tokens]
        new = [rng.choose(probabilities(scores, warp, history)[-1])]
        yield Step(new, candidates=Candidates(scores, warp=warp, histories=history))
    return "context"


def check_search(expert, amateur, prompt, alpha, amateur_temperature, beams, max_new_tokens, length_penalty, stop):
    """Raise ValueError if an argument of `contrastive_beam_search` is wrong."""
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
) -> Generator[Step, None, str | None]:
    """Search, among texts of plausible tokens, for the one that the expert favours most over the amateur.

    This is `beam_search` on Σ `contrastive_scores` in place of Σ log p. The score of a text is
    ``Σ score / len ** length_penalty``. With a penalty of 0 that is the paper's objective: log p_expert minus log
    p_amateur of the whole text. In the paper all texts have the same length. If stop tokens end some texts earlier, the
    sum favours long texts wherever the expert gives most tokens more probability than the amateur does; with a penalty
    of 1, averages are compared. Unlike log-probabilities, these scores may be positive, so a text may improve as it
    goes on. The search therefore ends only at `max_new_tokens`, or when no hypothesis is left running.

    A plausible token to which the amateur gives probability zero scores 1e6 instead of infinity, so that sums can still
    be compared.

    *Lossy* by design. Nothing is random. With one beam it is `contrastive_decoding`, unless there are stop tokens: then
    a text that has ended competes with longer ones.

    Cost: one call of `expert` and one of `amateur` per length, with a row for each beam.

    Source: Li et al. (2022), "Contrastive Decoding: Open-ended Text Generation as Optimization", section 3. The paper
    uses 5 beams.

    Parameters
    ----------
    expert, amateur, prompt, alpha, amateur_temperature
        As for `contrastive_decoding`.
    beams : int
        How many hypotheses run, and how many finished ones are kept.
    max_new_tokens : int
        Reduced if one of the two contexts has less room.
    length_penalty : float
        See above.
    stop : token ids, optional
        None means ``expert.stop_tokens``; ``()`` means no stop tokens.

    Yields
    ------
    Step
        As for `beam_search`: one step without tokens for each length, then one with the winner and its score. The
        `hypotheses` are the running ones as ``[new tokens, Σ score]`` and, in the last step, the finished ones as
        ``[new tokens, score]``, best first.

    Raises
    ------
    ValueError
        When called with a bad argument; while searching, for logits that are NaN or +inf.
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
        scores = contrastive_scores(logits[0], logits[1], alpha, amateur_temperature).clamp(max=IMPOSSIBLE)
        # As in `beam_search`, but it never ends early: scores may be positive, so a running one may still rise.
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
