"""EAGLE: a small network predicts the target's next features and drafts a tree from them; one call checks the tree."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from ..drafting.checking import Rule, check_tree, exact
from ..drafting.draft_session import check_device, check_target
from ..drafting.draft_trees import Draft, Shape, check_shape, drafted_with_rule, dynamic_tree
from ..drafting.eagle_head import DraftNetwork
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


def check(target, head, shape):
    """Raise ValueError if an argument of `eagle` is wrong."""
    if not isinstance(head, DraftNetwork):
        raise ValueError(
            f"head must be an EagleHead or an Eagle3Head, got {type(head).__name__}: family.eagle, for instance"
        )
    check_network(target, head, shape)


def check_network(target, head, shape):
    """Raise ValueError if a draft network does not fit a target, or a shape is none."""
    check_target(target, head)
    check_device(target, head)
    check_shape(dynamic_tree(**head.tree) if shape is None else shape)


@decoder(check=check, renamed={"tree": "shape"})
def eagle(
    target: LM,
    head: DraftNetwork,
    prompt: Prompt,
    *,
    shape: Shape | None = None,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let a network that reads the target's features draft a tree, and check the tree in one call.

    *Lossless* by construction, for any network and any tree: every token is drawn from the target's warped
    distribution, and the tree only decides how many tokens one call gives. With the same seed it gives exactly the text
    of `sample`. (A `drawn_tree` or `drawn_chain` is checked like the tokens of a draft model. It is lossless too, but
    gives another text for the same seed.)

    Cost: one call of `target`, with one token more than the tree has, and one call of the network for each level of the
    tree, for one or more new tokens. The first call, which reads the prompt, gives one token.

    Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty"; Li et al. (2024),
    "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees"; Li et al. (2025), "EAGLE-3: Scaling up
    Inference Acceleration of Large Language Models via Training-Time Test".

    Parameters
    ----------
    target : LM
    head : EagleHead or Eagle3Head
        A network trained on this target, see ``python -m tutorlib train eagle`` and ``eagle3``.
    prompt : str or list of int
    shape : function
        `dynamic_tree(nodes, depth, top_k)`, `static_tree(paths)`, `chain_draft(length)`, `drawn_tree(paths)` or
        `drawn_chain(length)`, see `tutorlib.drafting.draft_trees`. By default the dynamic tree whose settings are
        stored with the network.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits of both: to the target's because they define the distribution of the text, and to the
        network's because more of the tree is then accepted.

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


def network_rounds(
    target: LM, head: DraftNetwork, prompt: Prompt, shape: Shape | None, rng: Randomness | None, warp: Sequence[Warp]
) -> Generator[Step, None, str | None]:
    """The rounds of `eagle`, with any network that reads the target's features; the arguments are those of `eagle`."""
    shape = dynamic_tree(**head.tree) if shape is None else shape
    rule: Rule  # for what the shape drafts
    session, drafts = target.session(prompt, hidden=head.feature_layers), head.session(target)
    text, features = session.tokens, None
    session.rollback(1)  # the last token is fed with the tree
    while len(text) < target.context:
        drafted, rule, room = TokenTree([], []), exact, target.context - len(text) - 1
        if features is not None and room:
            # Each position pairs a token with the feature of the token before it, so the text's first token is left
            # out.
            logits = drafts.feed(text[drafts.length + 1 :], features)
            depth = int(min(room, head.ahead))
            drafted, rule = drafted_with_rule(shape, Draft(drafts, logits, text, warp, depth=depth, rng=rng))
        checked = check_tree(session, text, drafted, rng, warp, rule)
        new = head.features(session.hidden)[checked.rows]
        features = torch.cat([head.features(session.prompt_hidden), new]) if features is None else new
        text += checked.tokens
        yield checked.step(tree=True)
    return "context"
