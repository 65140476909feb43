"""One sequence of drafts by several modules of multi-token prediction, each with a cache of its own.

Module k pairs what module k - 1 made of position t with the token k places further on. For the last k positions of the
text that token is a guess. So module k reads them again for each guess, and keeps only those whose tokens are known.

What this file does not do: compute a step (`mtp_head`), or decide which guesses are extended (`draft_trees`). A single
module that is used again and again has an ordinary `DraftSession`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from ..model.tree import ROOT
from .draft_session import check_fed, check_target, refuse_nan


class ModulesSession:
    """One sequence of several modules, with the verbs of `DraftSession`. Level k of a tree is module k's work.

    Attributes
    ----------
    length : int
        The number of confirmed positions, for which the target's features were fed.
    calls : int
    """

    def __init__(self, head, target):
        check_target(target, head)
        self.head, self.target = head, target
        self.length = self.calls = 0
        empty = head.fc.weight.new_zeros((2, 1, head.config.num_key_value_heads, 0, head.config.head_dim))
        self._caches = [empty for _ in head.layers]
        # Each module's output at its last confirmed position, (1, width), or (0, width) before there is one.
        self._last = [head.fc.weight.new_zeros((0, head.width)) for _ in head.layers]
        self._paths: list[list[int]] = []  # for each node of the tree, the tokens down to it
        self._rows: list[torch.Tensor] = []  # what its module made of the last positions, for each node

    def feed(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """Add confirmed tokens with their features, and forget the tree of guesses; see `DraftSession.feed`."""
        check_fed(self.head, tokens, features)
        made, caches, last = features.to(self.head.fc.weight), list(self._caches), []
        with torch.inference_mode():
            for step in range(len(self.head.layers)):
                # A later module reads one position less: what it lacks is the token after the last one.
                hidden = made if step == 0 else torch.cat([self._last[step - 1], made])[:-1]
                made = self._call(step, [list(tokens[len(tokens) - len(hidden) :])], hidden[None], caches)[0]
                last.append(made[-1:] if len(made) else self._last[step])
            logits = self._read_out(last[0])
        self.length += len(tokens)
        self._caches, self._last, self._paths, self._rows = caches, last, [], []
        return logits

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Add the nodes of one level to the tree of guesses, and guess what follows each; see `DraftSession.grow`."""
        paths = [[*(() if at == ROOT else self._paths[at]), token] for token, at in zip(tokens, parents, strict=True)]
        step = len(paths[0])
        above = [self._last[0] if at == ROOT else self._rows[at] for at in parents]
        with torch.inference_mode():
            # The text may have fewer positions than the module reads again.
            count = len(above[0])
            made = self._call(step, [path[-count:] for path in paths], torch.stack(above), None)
            logits = self._read_out(made[:, -1])
        self._paths += paths
        # What the next module reads again begins one position earlier, with the last that is confirmed in this one.
        self._rows += [torch.cat([self._last[step], rows]) for rows in made]
        return logits

    def _call(self, step: int, tokens: list[list[int]], hidden: torch.Tensor, caches: list | None) -> torch.Tensor:
        """The outputs of a module for rows of tokens and states, after its confirmed positions.

        With `caches`, the positions are confirmed, and added to the module's cache there.
        """
        if not hidden.shape[1]:
            return hidden
        self.calls += 1
        cache, count = self._caches[step], hidden.shape[1]
        start, device = cache.shape[3], hidden.device
        mask = torch.ones(count, start + count, dtype=torch.bool, device=device).tril(start)

        def cached(queries, keys, values):
            new = torch.stack([keys, values])
            new = torch.cat([cache.expand(-1, len(keys), -1, -1, -1), new], dim=3)
            if caches is not None:
                caches[step] = new
            return F.scaled_dot_product_attention(queries, new[0], new[1], attn_mask=mask, enable_gqa=True)

        rotation = self.head.rotation(torch.arange(start, start + count, device=device)[None])
        return self.head.forward(torch.tensor(tokens, device=device), hidden, rotation, cached, step)

    def _read_out(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.head.read_out(hidden, self.target)
        refuse_nan(logits, "the draft network")
        return logits
