"""DSpark: a block guessed in one pass, whose guesses a small joint makes dependent on each other again."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..drafting.draft_session import check_device, check_target
from ..drafting.draft_trees import Shape, check_shape, dynamic_tree
from ..drafting.dspark_head import DSparkHead
from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp
from .dflash import block_rounds


def check(target, head, shape):
    """Raise ValueError if an argument of `dspark` is wrong."""
    if not isinstance(head, DSparkHead):
        raise ValueError(f"head must be a DSparkHead, got {type(head).__name__}: family.dspark, for instance")
    check_target(target, head)
    check_device(target, head, "DSpark head")
    check_shape(dynamic_tree(**head.tree) if shape is None else shape)


@decoder(check=check)
def dspark(
    target: LM,
    head: DSparkHead,
    prompt: Prompt,
    *,
    shape: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let a network guess the next tokens in one pass, correct each guess by the one before it, and check them in one
    call.

    *Lossless*, for any network, any joint and any shape. The rounds are those of `dflash`. What differs is inside the
    head: after a drafted token, `grow` adds to the next position's logits the bias of this token. So a shape that
    drafts token after token gets conditional distributions from a network that computed all positions at once, without
    another pass. With `confident_chain(costs)` as the shape, the head also decides how much of the block is checked.

    Cost: one call of `target`, with one token more than was drafted, and one pass of the network, for one or more new
    tokens; and for each drafted token that is guessed on from, a product of a row with a matrix (rank, vocab). The
    first call, which reads the prompt, gives one token.

    Source: Cheng et al. (2026), "DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive
    Generation", sections 3.1 and 3.2.

    Parameters
    ----------
    target : LM
    head : DSparkHead
        A network and a joint trained on this target, see ``python -m tutorlib train dspark``.
    prompt : str or list of int
    shape : function
        As for `dflash`, or `tutorlib.drafting.survival.confident_chain(costs)`. By default the dynamic tree whose
        settings are stored with the joint.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits of both, the target and the head.

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more, the tree, and the path accepted in it.

    Raises
    ------
    ValueError
        When called with a bad argument, for example with a head that belongs to another model; while running, for
        logits that are NaN.
    """
    return (yield from block_rounds(target, head, prompt, shape, rng, warp))
