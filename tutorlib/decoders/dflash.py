"""DFlash: a network guesses a whole block of tokens in one pass, and one call of the target checks them."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from ..drafting.checking import Rule, check_tree, exact
from ..drafting.dflash2_head import DFlash2Head
from ..drafting.dflash_head import DFlashHead
from ..drafting.draft_session import check_device, check_target
from ..drafting.draft_trees import Draft, Shape, check_shape, drafted_with_rule, dynamic_tree
from ..drafting.joint_head import JointHead
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


def check(target, head, shape):
    """Raise ValueError if an argument of `dflash` is wrong."""
    if not isinstance(head, DFlashHead | DFlash2Head):
        raise ValueError(
            f"head must be a DFlashHead or DFlash2Head, got {type(head).__name__}: family.dflash, for instance"
        )
    check_target(target, head)
    check_device(target, head, "DFlash network")
    check_shape(dynamic_tree(**head.tree) if shape is None else shape)


@decoder(check=check)
def dflash(
    target: LM,
    head: DFlashHead | DFlash2Head,
    prompt: Prompt,
    *,
    shape: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let a network guess the next tokens in one pass, make a chain or a tree of its guesses, and check it in one call.

    *Lossless*, for any network and any shape. A tree of the most likely guesses is checked like EAGLE's: every token is
    drawn from the target's warped distribution, and with the same seed it gives the text of `sample`. Guesses that are
    drawn (`drawn_chain`, `drawn_tree`) are checked like a draft model's tokens. A block's guesses are distributions of
    single positions: what is guessed at one is the same whatever is drawn at those before it. That costs acceptance,
    but not exactness, because the distribution from which a token was drawn is known. With a `DFlash2Head`, the scores
    of pairs of tokens make each guess depend on the one before it.

    Cost: one call of `target`, with one token more than was drafted, and one pass of the network, for one or more new
    tokens; with a `DFlash2Head` also two small products for each drafted token that is guessed on from. The first call,
    which reads the prompt, gives one token.

    Source: Chen et al. (2026), "DFlash: Block Diffusion for Flash Speculative Decoding". Trees over the guesses of a
    block: Ringel and Romano (2026), "Accelerating Speculative Decoding with Block Diffusion Draft Trees". Scores of
    pairs: Inco AI (2026), "DFlash 2", https://inco.ai/blog/dflash2/.

    Parameters
    ----------
    target : LM
    head : DFlashHead or DFlash2Head
        A network trained on this target, see ``python -m tutorlib train dflash``, or one with a joint, see ``train
        dflash2``.
    prompt : str or list of int
    shape : function
        As for `eagle`: `chain_draft(length)`, `dynamic_tree(nodes, depth, top_k)`, `drawn_chain(length)` and so on. No
        more tokens follow each other than the block has masks. In `dynamic_tree` a `top_k` of `nodes` gives exactly the
        most likely paths, as in DDTree. By default the dynamic tree whose settings are stored with the network.
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
    return (yield from block_rounds(target, head, prompt, shape, rng, warp))


def block_rounds(
    target: LM, head: DFlashHead | JointHead, prompt, shape, rng, warp
) -> Generator[Step, None, str | None]:
    """The rounds of `dflash` and of `dspark`, whose heads differ in what they guess."""
    shape = dynamic_tree(**head.tree) if shape is None else shape
    rule: Rule  # for what the shape drafts
    session, drafts = target.session(prompt, hidden=head.feature_layers), head.session(target)
    text, features = session.tokens, None
    session.rollback(1)  # the last token is fed with the tree
    while len(text) < target.context:
        drafted, rule = TokenTree([], []), exact
        room = min(head.block - 1, target.context - len(text) - 1)
        if features is not None and room:
            # The one pass: all that `shape` asks for is known after it.
            logits = drafts.feed(text[drafts.length + 1 :], features)
            drafted, rule = drafted_with_rule(shape, Draft(drafts, logits, text, warp, depth=room, rng=rng))
        checked = check_tree(session, text, drafted, rng, warp, rule)
        new = head.features(session.hidden)[checked.rows]
        features = torch.cat([head.features(session.prompt_hidden), new]) if features is None else new
        text += checked.tokens
        yield checked.step(tree=True)
    return "context"
