"""How probable a draft network finds its own guesses: the probability of each node's path, and how often it is right.

What this file does not do: draw them (`tutorlib.viz.series.calibration`).
"""

import math
from collections.abc import Sequence

import torch

from ..model.tree import ROOT, TokenTree
from .checking import Rule
from .draft_trees import (
    Draft,
    Shape,
)

BINS = 10  # of confidence


class Confidences:
    """A shape that records the network's probability of each path in its trees.

    Parameters
    ----------
    shape : function
        A shape of `tutorlib.drafting.draft_trees`.

    Attributes
    ----------
    trees : list of TokenTree
        In the order in which they were drafted.
    chances : list of lists of floats
        For each tree, for each node, the probability of the path that ends there.
    calls : list of int
        For each tree, the number of network calls for it, including the call that reads the text.

    Examples
    --------
    >>> watched = Confidences(dynamic_tree(16, 8, 10))                                              # doctest: +SKIP
    >>> trace = run(eagle(target, head, prompt, tree=watched), max_new_tokens=40)              # doctest: +SKIP
    >>> watched.trees[0], watched.chances[0]           # of the second step: the first one has none  # doctest: +SKIP
    """

    def __init__(self, shape: Shape):
        self.shape = shape
        self.trees, self.chances, self.calls = [], [], []

    def __call__(self, draft: Draft) -> TokenTree | tuple[TokenTree, Rule]:
        chances: dict[tuple[int, ...], float] = {(): 1.0}  # of each guessed path, by its tokens
        grown: list[tuple[int, ...]] = []  # paths that the network has read
        guessed_on: list[tuple[int, ...]] = [()]  # those that it read last
        guesses, probs, grow, calls = draft.guesses, draft.probs, draft.grow, 1

        def noting_guesses(*args, **kwargs):
            tokens, log_probs = guesses(*args, **kwargs)
            for path, ranked, row in zip(guessed_on, tokens, log_probs, strict=True):
                for token, log_prob in zip(ranked, row, strict=True):
                    chances[(*path, token)] = chances[path] * math.exp(log_prob)
            return tokens, log_probs

        def noting_probs():
            rows = probs()
            for path, row in zip(guessed_on, rows, strict=True):
                for token, prob in enumerate(() if row is None else row.tolist()):
                    chances[(*path, token)] = chances[path] * prob
            return rows

        def noting_grow(tokens, parents):
            nonlocal guessed_on, calls
            calls += 1
            guessed_on = [
                (*(grown[parent] if parent != ROOT else ()), token)
                for token, parent in zip(tokens, parents, strict=True)
            ]
            grown.extend(guessed_on)
            grow(tokens, parents)

        vars(draft).update(guesses=noting_guesses, probs=noting_probs, grow=noting_grow)
        made = self.shape(draft)
        tree = made[0] if isinstance(made, tuple) else made  # some shapes return the rule that checks it as well
        self.trees.append(tree)
        self.chances.append([chances[tuple(tree.tokens[i] for i in tree.path(node))] for node in range(len(tree))])
        self.calls.append(calls)
        return made


@torch.no_grad()
def drafted_with_confidence(target, head, text: Sequence[int], shape: Shape) -> tuple[TokenTree, list[float]]:
    """What a network drafts after a text, and its probability of the path to each node.

    Parameters
    ----------
    target : LM
    head : EagleHead or Eagle3Head
    text : sequence of int
        At least two tokens, because the network reads no token before the first feature.
    shape : function
        A shape of `tutorlib.drafting.draft_trees` that makes no random draws.
    """
    session = target.session(text[:-1], hidden=head.feature_layers)
    session.feed()
    features = torch.cat([session.prompt_hidden[layer] for layer in head.feature_layers], dim=-1)
    drafts, watched = head.session(target), Confidences(shape)
    watched(Draft(drafts, drafts.feed(list(text[1:]), features), list(text), (), depth=target.context))
    return watched.trees[0], watched.chances[0]


def accepted_by_confidence(drafts) -> list[list[float]]:
    """How often candidates are accepted, by the network's probability of their paths.

    Parameters
    ----------
    drafts : iterable of (chances, path)
        For each tree, the probability of each node, and the accepted nodes.

    Returns
    -------
    list of [mean probability, share accepted, candidates]
        For probabilities up to 0.1, 0.2, ..., 1. Ranges without candidates are left out.
    """
    bins = [[] for _ in range(BINS)]
    for chances, path in drafts:
        kept = set(path)
        for node, chance in enumerate(chances):
            bins[min(int(BINS * chance), BINS - 1)].append((chance, node in kept))
    return [
        [sum(chance for chance, _ in some) / len(some), sum(kept for _, kept in some) / len(some), len(some)]
        for some in bins
        if some
    ]


# The names of the release before.
drafted, calibration = drafted_with_confidence, accepted_by_confidence
