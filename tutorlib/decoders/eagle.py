"""EAGLE: a small network guesses the target's next features, its guesses grow a tree, and one call checks the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..checking import check_tree, exact
from ..decoding import Prompt, decoder
from ..drafting.draft_trees import Draft, Shape, chain, drawn_chain, drawn_tree, dynamic, static
from ..heads.eagle_head import DraftNetwork, check_target
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..tree import TokenTree
from ..warp import Warp, takes


def check(target, head, tree):
    """Raise ValueError for what is wrong with the arguments of `eagle`."""
    if not isinstance(head, DraftNetwork):
        raise ValueError(
            f"head must be an EagleHead or an Eagle3Head, got {type(head).__name__}: family.eagle, for instance"
        )
    check_target(target, head)
    device = head.fc.weight.device
    if device != target.device:
        raise ValueError(f"the draft network is on {device}, the target on {target.device}: head.to(target.device)")
    tree = dynamic(**head.tree) if tree is None else tree
    if not takes(tree, 1) or tree in (dynamic, static, chain, drawn_chain, drawn_tree):
        raise ValueError(f"tree must be a shape such as dynamic(59, 8, 10), static(paths) or chain(4), got {tree!r}")


@decoder(check=check)
def eagle(
    target: LM,
    head: DraftNetwork,
    prompt: Prompt,
    *,
    tree: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Let a network that reads the target's features draft a tree, and check the tree in one call.

    *Lossless* by construction, whatever the network and the tree: every token is drawn from the target, warped, and the
    tree only decides how many are drawn in one call; with one seed it gives the very text that `sample` gives. (A
    `drawn_tree` or `drawn_chain` is checked as a draft model's tokens are: lossless too, but another text for the same
    seed.)

    Cost: one call of `target`, as wide as the tree and one more, and one of the network for each level of the tree, for
    one token or more. The first call, which reads the prompt, gives one token.

    Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty"; Li et al. (2024),
    "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees"; Li et al. (2025), "EAGLE-3: Scaling up
    Inference Acceleration of Large Language Models via Training-Time Test".

    Parameters
    ----------
    target : LM
    head : EagleHead or Eagle3Head
        Trained on this target, see ``python -m tutorlib.training eagle`` and ``eagle3``.
    prompt : str or list of int
    tree : function
        `dynamic(nodes, depth, top_k)`, `static(paths)`, `chain(length)`, `drawn_tree(paths)` or `drawn_chain(length)`,
        see `tutorlib.drafting.draft_trees`. By default the dynamic tree that the network comes with.
    rng : Randomness or None
        For example ``Seeded(7)``. None takes the likeliest token instead.
    warp : sequence of functions
        Applied to the logits of both: the target's because that is asked for, the network's because the tree is then
        accepted further down.

    Yields
    ------
    Step
        The accepted tokens and one more; the tree, and the path taken in it.

    Raises
    ------
    ValueError
        At the call for a bad argument, a network of another model for instance; while running, for logits that are NaN.
    """
    tree = dynamic(**head.tree) if tree is None else tree
    session, drafts = target.session(prompt, hidden=head.feature_layers), head.session(target)
    session.rollback(1)  # the last token is fed with the tree
    text, features = list(prompt), None
    while len(text) < target.context:
        candidates, accept, room = TokenTree([], []), exact, target.context - len(text) - 1
        if features is not None and room:
            # A place pairs a token with the feature of the one before it, so that the text's first token has none.
            logits = drafts.feed(text[drafts.length + 1 :], features)
            draft = Draft(drafts, logits, text, warp, depth=room, rng=rng)
            candidates = tree(draft)
            accept = draft.accept
        checked = check_tree(session, text, candidates, rng, warp, accept)
        new = head.features(session.hidden)[checked.rows]
        features = torch.cat([head.features(session.prompt_hidden), new]) if features is None else new
        text += checked.tokens
        yield Step(
            checked.tokens,
            candidates.tokens,
            len(checked.path),
            tree=candidates or None,
            path=tuple(checked.path),
            candidates=checked.weighed,
        )
    return "context"
