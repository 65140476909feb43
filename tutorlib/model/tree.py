"""Token trees: several continuations in one call of the model.

A tree of candidate tokens follows the last token of a session. `TokenTree` holds its shape: the parent and the depth of
each node, and which nodes may attend to which. What this file does not do: call a model (see `Session.feed_tree`),
decide which candidates become nodes (the methods do), or choose a path through the tree (see `drafting.checking`).

Source: Miao et al. (2023), "SpecInfer: Accelerating Large Language Model Serving with Tree-based Speculative Inference
and Verification", section 4 (tree attention).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..arguments import ints

ROOT = -1  # the parent of nodes that follow the session's last token


@dataclass
class TokenTree:
    """Candidate tokens and the node that each of them follows.

    Nodes are numbered in the order given, parents before children; that order is also the order of the rows that
    `Session.feed_tree` returns. Several nodes may follow the session's last token (parent -1).

    Parameters
    ----------
    tokens : list of int, length n
        The token of each node.
    parents : list of int, length n
        The node that each node follows; -1 for the session's last token.

    Raises
    ------
    ValueError
        If the two lists differ in length or hold anything but whole numbers, or a parent does not come before its
        child.

    Examples
    --------
    >>> tree = TokenTree.from_paths([[5, 7], [5, 8], [6]])
    >>> tree.tokens, tree.parents, tree.depths
    ([5, 7, 8, 6], [-1, 0, 0, -1], [0, 1, 1, 0])
    """

    tokens: list[int]
    parents: list[int]

    def __post_init__(self):
        self.tokens = ints(self.tokens, "a tree needs the ids of its tokens (ints)")
        self.parents = ints(self.parents, "a tree needs the number of each node's parent (ints)")
        if len(self.tokens) != len(self.parents):
            raise ValueError(
                f"a tree needs one parent for each token, but got {len(self.tokens)} tokens "
                f"and {len(self.parents)} parents"
            )
        self.depths = depths = []
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(
                    f"node {node} has parent {parent}, expected an earlier node (0 to {node - 1}) "
                    "or -1 for the session's last token"
                )
            depths.append(0 if parent == ROOT else depths[parent] + 1)

    @classmethod
    def chain(cls, tokens: Iterable[int]) -> TokenTree:
        """A tree with a single path, such as a draft model proposes."""
        tokens = list(tokens)
        return cls(tokens, list(range(-1, len(tokens) - 1)))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> TokenTree:
        """The smallest tree that holds every given path of tokens: common beginnings are shared."""
        tokens, parents, node_of = [], [], {}
        for path in paths:
            parent = ROOT
            for token in ints(path, "a path must hold token ids (ints)"):
                node = node_of.get((parent, token))
                if node is None:
                    node = node_of[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                parent = node
        return cls(tokens, parents)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the node before it. Ordinary causal attention is then correct for the tree."""
        return self.parents == list(range(-1, len(self) - 1))

    def children(self, node: int = ROOT) -> list[int]:
        """The nodes that follow `node`, in order. With -1, the nodes that follow the session's last token."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """The nodes from the top of the tree down to `node`, itself included; empty for -1."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def paths(self) -> list[list[int]]:
        """One path of nodes for each leaf, in the order of the leaves."""
        inner = set(self.parents)
        return [self.path(node) for node in range(len(self)) if node not in inner]

    def mask(self) -> torch.Tensor:
        """Which nodes attend to which: (n, n) bool, True at [i, j] if j is i itself or an ancestor of i.

        All nodes also attend to everything before the tree; `Session.feed_tree` adds that part.
        """
        mask = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                mask[node] |= mask[parent]
        return torch.from_numpy(mask)
