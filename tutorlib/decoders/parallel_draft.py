"""Parallel drafts: EAGLE-3's network guesses several tokens in one pass, from masks, and one call checks them."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..drafting.draft_trees import Shape
from ..drafting.parallel_head import ParallelHead
from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp
from .eagle import check_network, network_rounds


def check(target, head, shape):
    """Raise ValueError if an argument of `parallel_draft` is wrong."""
    if not isinstance(head, ParallelHead):
        raise ValueError(f"head must be a ParallelHead, got {type(head).__name__}: family.parallel, for instance")
    check_network(target, head, shape)


@decoder(check=check)
def parallel_draft(
    target: LM,
    head: ParallelHead,
    prompt: Prompt,
    *,
    shape: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let EAGLE-3's network guess several tokens in one pass, make a chain or a tree of them, and check it in one call.

    *Lossless*, for any network and any shape, as `eagle` is: the rounds are the same. What differs is how the network
    drafts. After the last token of the text it reads masks, all in the same pass, and each output is a guess. A mask
    sees the text and the masks before it, but no guess. So the guesses are distributions of single positions, as in
    `dflash`.

    Cost: one call of `target`, with one token more than was drafted, and one pass of the network, with a token more for
    each mask, for one or more new tokens. The first call, which reads the prompt, gives one token.

    Source: Hui et al. (2026), "P-EAGLE: Parallel-Drafting EAGLE with Scalable Training". An et al. (2025), "PARD:
    Accelerating LLM Inference with Low-Cost PARallel Draft Model Adaptation", turns a whole draft model into such a
    network.

    Parameters
    ----------
    target : LM
    head : ParallelHead
        A network trained on this target, see ``python -m tutorlib train parallel``.
    prompt : str or list of int
    shape : function
        As for `eagle`. No more tokens follow each other than the network has masks, and one. By default the dynamic
        tree whose settings are stored with the network.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits of both, the target and the network.

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more, the tree, and the path accepted in it.

    Raises
    ------
    ValueError
        When called with a bad argument, for example with a network that belongs to another model; while running, for
        logits that are NaN.
    """
    return (yield from network_rounds(target, head, prompt, shape, rng, warp))
