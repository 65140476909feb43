"""Multi-token prediction: one more layer predicts the token after next, and again, and one call checks the guesses."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..drafting.draft_trees import Shape
from ..drafting.mtp_head import MtpHead
from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp
from .eagle import check_network, network_rounds


def check(target, head, shape):
    """Raise ValueError if an argument of `mtp` is wrong."""
    if not isinstance(head, MtpHead):
        raise ValueError(f"head must be an MtpHead, got {type(head).__name__}: family.mtp, for instance")
    check_network(target, head, shape)


@decoder(check=check)
def mtp(
    target: LM,
    head: MtpHead,
    prompt: Prompt,
    *,
    shape: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let modules of multi-token prediction guess the next tokens one after the other, and check them in one call.

    *Lossless*, for any modules and any shape, as `eagle` is: the rounds are the same. What differs is the network. A
    module is one more layer of the target, which reads the target's last feature together with the next token, and
    whose output the target's own head reads. A single module is used again for each further token. Several modules take
    turns, each with a cache of its own, and guess as many tokens as there are modules.

    Cost: one call of `target`, with one token more than the tree has, and one call of a module for each level of the
    tree, for one or more new tokens. Several modules read the new tokens of the text one by one, and each again some
    positions for every guess. The first call, which reads the prompt, gives one token.

    Source: DeepSeek-AI (2024), "DeepSeek-V3 Technical Report", section 2.2, "MTP in Inference". Training such heads
    side by side, without each other's tokens, is older: Gloeckle et al. (2024), "Better & Faster Large Language Models
    via Multi-token Prediction".

    Parameters
    ----------
    target : LM
    head : MtpHead
        Modules trained on this target, see ``python -m tutorlib train mtp``.
    prompt : str or list of int
    shape : function
        As for `eagle`: `chain_draft(length)`, `dynamic_tree(nodes, depth, top_k)`, `drawn_chain(length)` and so on. By
        default the dynamic tree whose settings are stored with the modules.
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
