"""Train a draft that is made of a few layers of its target, on texts that the target writes itself.

The draft has the target's embeddings and output head, which stay as they are. Its layers start as copies of the
target's first and last ones, and learn the target's probabilities without those in between. What this file does not do:
run the training, measure, and write files (`learner`).

Source: Muralidharan et al. (2024), "Compact Language Models via Pruning and Knowledge Distillation".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...loading.formats import save_pruned
from ...model.lm import LM
from ...model.pruned import first_and_last_layers, own_weights, pruned
from .batches import TextBatch
from .labels import Loss, cross_entropy, in_pieces, readable
from .learner import Learner
from .sampled_texts import SampledText


class PrunedLearner(Learner):
    """A draft of some of the target's layers. The loss compares its probabilities with the target's.

    Parameters
    ----------
    target : LM
    layers : sequence of int, optional
        The numbers of the target's layers; by default its first two and last two.
    tokens : sequence of int, optional
        The tokens that are compared; by default all, which takes longer. Positions at which the target's best token is
        not among them are skipped.
    compare : function
        How probabilities are compared, see `labels`: `cross_entropy` or `lk`.
    eight_bits : bool
        Whether its matrices are stored in eight bits. It is trained and measured in single precision all the same.
    """

    name, betas, given = "pruned", (0.9, 0.95), 1

    def __init__(
        self,
        target: LM,
        layers: Sequence[int] | None = None,
        *,
        tokens: Sequence[int] | None = None,
        compare: Loss = cross_entropy,
        eight_bits: bool = False,
    ):
        self.kept = first_and_last_layers(target) if layers is None else list(layers)
        self.draft = pruned(target, self.kept)
        super().__init__(target, own_weights(self.draft.model).float())
        self.head.requires_grad_(True)
        known = None if tokens is None else torch.tensor(tokens, device=target.device)
        self.known, self.compare, self.read = known, compare, readable(target, known)
        self.best = known is not None
        count = target.vocab_size if tokens is None else len(tokens)
        self.settings = {"layers": self.kept, "loss": compare.__name__, "tokens": count}
        self.eight_bits = eight_bits
        parameters = sum(weight.numel() for weight in self.head.parameters())
        self.noted = {"parameters": parameters, "eight_bits": eight_bits}

    @staticmethod
    def first(step: int, text: SampledText) -> int:
        return text.own - 2  # from there on, it guesses tokens of the target

    def loss(self, batch, step, steps):
        # At position t it has read the token at t + 1, and guesses that at t + 2.
        rows, at = self.index(0, batch.texts, batch.tokens.device)
        at = at + 1
        if self.known is not None and batch.best is not None:
            learnt = torch.isin(batch.best[rows, at], self.known)
            rows, at = rows[learnt], at[learnt]
        states, right = self.states(batch)[rows, at], batch.hidden[-1][rows, at]

        def compared(states, right):
            return self.compare(self.read(states), self.read(right.float()).softmax(-1))

        return in_pieces(compared, states, right) / self.count(0, batch.everybody)

    def states(self, batch: TextBatch) -> torch.Tensor:
        """The last hidden states (rows, length, width) of the draft."""
        with torch.no_grad():  # the embeddings are the target's
            embedded = self.target.model.get_input_embeddings()(batch.tokens).float()
        return self.draft.model.get_decoder()(inputs_embeds=embedded, use_cache=False).last_hidden_state

    def guesses(self, batch):
        rows, at = self.index(0, batch.texts, batch.tokens.device)
        states = self.states(batch)[rows, at + 1]
        yield rows, at, self.target.read_out(states.to(self.target.dtype), normed=True)

    def write(self, head, folder, base):
        return save_pruned(head, folder, self.target, self.kept, base=base, eight_bits=self.eight_bits)
