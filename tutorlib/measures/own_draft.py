"""One check that finds most mistakes of a method with a draft: the target drafts for itself.

What this file does not do: enumerate (`enumeration`), or test programs that draw by themselves (`sampled_check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..arguments import check_whole_number, takes_iterators
from ..running.decoding import checked_budget
from ..running.step import Step
from ..sampling.checks import checked_warp
from ..sampling.randomness import Exhaustive, Randomness
from ..sampling.warp import Warp, frequency_penalty
from .enumeration import EXACT, Sequences, target_distribution, total_variation

if TYPE_CHECKING:
    from ..model.lm import LM


@dataclass(frozen=True)
class OwnDraftCheck:
    """The result of `check_own_draft`.

    Attributes
    ----------
    distance : float
        Total variation between the method's texts and those of plain sampling, without a warp.
    distance_with_penalty : float
        The same with a penalty for repeated tokens.
    distance_with_other : float or None
        The same with another draft, whose tokens can be rejected; None if no other draft was given.
    missing : float
        How many tokens a round lacks on average. A round should give all drafted tokens and one more.
    missing_greedily : float
        The same without random draws. Methods that draw the target's token and compare it with the draft (`match`,
        `match_drawn`, `string_match`) lack tokens if they sample, and must lack none here.
    compares : bool
        Whether the method was said to be one of those.
    """

    distance: float
    distance_with_penalty: float
    distance_with_other: float | None
    missing: float
    missing_greedily: float
    compares: bool = False

    @property
    def faults(self) -> list[str]:
        """What is wrong, a sentence for each fault; empty if nothing is."""
        found = [
            f"{which} the texts do not have the distribution of plain sampling (total variation {distance:.2g})"
            for which, distance in (
                ("with the target as its own draft,", self.distance),
                ("with a penalty,", self.distance_with_penalty),
                ("with the other draft,", self.distance_with_other),
            )
            if distance is not None and distance > EXACT
        ]
        found += [
            f"{which} a round lacks {missing:.2g} tokens on average, although the target drafts for itself"
            for which, missing in (
                ("", 0.0 if self.compares else self.missing),
                ("without random draws,", self.missing_greedily),
            )
            if missing > EXACT
        ]
        return [text.strip() for text in found]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.faults:
            return "wrong: " + "; ".join(self.faults)
        return "no fault found: the texts have the distribution of plain sampling, and every drafted token is accepted"

    def __str__(self) -> str:
        return self.verdict


@takes_iterators
def check_own_draft(
    method: Callable[..., Iterable[Step]],
    target: LM,
    prompt: str | Sequence[int],
    *,
    gamma: int = 2,
    length: int | None = None,
    penalty: Iterable[Warp] = (frequency_penalty(0.5),),
    other: LM | None = None,
    compares: bool = False,
    max_branches: int = 1_000_000,
) -> OwnDraftCheck:
    """Let the target draft for itself: the texts must be those of plain sampling, and all drafts must be accepted.

    If p and q are the same, no draft can be bad. So each rejection and each difference from plain sampling is a mistake
    of the method. All random draws are enumerated, once without a warp and once with a penalty. The penalty shows
    whether every row sees the right tokens: the prompt, the text, and the drafted tokens before it.

    The target's own draft is never rejected. So this part does not see mistakes in what happens *after* a rejection:
    the draw from the residual, the rollback of a cache or of a state. For these, pass another draft as `other`. Still
    not seen is what none of these runs does: greedy decoding that goes wrong, batches, stop tokens.

    Parameters
    ----------
    method : function
        Called as ``method(target, draft, prompt, gamma=..., rng=..., warp=...)``, like `speculative`. For a rule, pass
        ``partial(speculative, rule=block)``.
    target : LM
        A small one: a `TableLM` with two or three tokens.
    prompt : str or list of int
        Of several tokens if possible, so that the penalty has something to see.
    gamma : int
        How many tokens to draft in a round.
    length : int, optional
        How many new tokens to look at; by default γ + 2, which is the shortest text that shows a wrong cache after a
        full draft.
    penalty : sequence of functions
        The warp of the run with a penalty.
    other : LM, optional
        Another draft, with the vocabulary of the target.
    compares : bool
        True for methods that draw the target's token and keep a drafted token only if it is the same. They reject
        some of the target's own drafts. Then all drafts must be accepted only in the run without random draws.
    max_branches : int
        As for `exact_distribution`.

    Returns
    -------
    OwnDraftCheck
        Print it for a verdict.

    Raises
    ------
    ValueError
        If there are more branches than `max_branches`, or for a bad argument.
    """
    check_whole_number(gamma, 1, "gamma is how many tokens are drafted in a round")
    length = checked_budget(gamma + 2 if length is None else length)
    penalty = checked_warp(penalty)

    def rounds(draft: LM, warp: Sequence[Warp], rng: Randomness | None, length: int) -> tuple[list[int], float]:
        """The text of a run, and how many tokens a round lacks. Unlike with `run`, the last round is not cut."""
        tokens: list[int] = []
        lacking = []
        for step in method(target, draft, prompt, gamma=gamma, rng=rng, warp=warp):
            tokens += step.tokens
            if len(step.drafted):
                lacking.append(len(step.drafted) + 1 - len(step.tokens))
            if len(tokens) >= length:
                break
        return tokens[:length], sum(lacking) / len(lacking) if lacking else 0.0

    def texts(draft: LM, warp: Sequence[Warp]) -> tuple[float, float]:
        """Total variation from plain sampling, and how many tokens a round lacks on average."""
        made: Sequences = {}
        missing = 0.0
        for rng in Exhaustive(max_branches):
            tokens, lacking = rounds(draft, warp, rng, length)
            made[tuple(tokens)] = made.get(tuple(tokens), 0.0) + rng.weight
            missing += rng.weight * lacking
        return total_variation(made, target_distribution(target, prompt, length, warp=warp, stop=())), missing

    distance, missing = texts(target, ())
    return OwnDraftCheck(
        distance,
        texts(target, penalty)[0],
        None if other is None else texts(other, ())[0],
        missing,
        rounds(target, (), None, 3 * (gamma + 1))[1],
        compares,
    )
