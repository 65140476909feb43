"""What happened to the tokens of a step, as it follows from the step: accepted, rejected, drawn anew, and so on."""


def added_kinds(step):
    """The kind of each token that a step added.

    The first `step.accepted` tokens are ``"accepted"``. The token after them is ``"resampled"`` if it replaces a
    rejected one, and ``"bonus"`` if there was a draft and all of it was accepted. If the step drafted nothing, its
    tokens are ``"target"``.

    Returns
    -------
    list of str
        As long as `step.tokens`.
    """
    kinds = ["accepted"] * min(step.accepted, len(step.tokens))
    rest = len(step.tokens) - len(kinds)
    if rest:
        kinds.append("resampled" if step.checked > step.accepted else "bonus" if step.drafted else "target")
    return kinds + ["target"] * (rest - 1)


def drafted_kinds(step):
    """The kind of each token of a drafted chain: ``"accepted"``, ``"rejected"``, or ``"neutral"`` (never checked).

    Returns
    -------
    list of str
        As long as `step.drafted`.
    """
    fates = ["accepted"] * step.accepted + ["rejected"] * (step.checked - step.accepted)
    return fates + ["neutral"] * (len(step.drafted) - len(fates))


def tree_kinds(step):
    """The kind of each node of a drafted tree, in node order.

    The nodes of the kept path are ``"accepted"``. If a token was drawn at a node, its children that are not on the path
    are ``"rejected"``. Nodes that no draw reached are ``"neutral"``.
    """
    path = list(step.path)[: step.accepted]
    checked_at = [-1, *path]
    if len(step.tokens) <= len(path):
        checked_at.pop()  # the step was cut here: nothing was drawn at its last node
    return node_kinds(step.tree, path, checked_at)


def node_kinds(tree, path, checked_at):
    """Like `tree_kinds`, for a tree, the path in it that was kept, and the nodes at which a token was drawn."""
    on, checked = set(path), set(checked_at)
    return [
        "accepted" if node in on else "rejected" if parent in checked else "neutral"
        for node, parent in enumerate(tree.parents)
    ]
