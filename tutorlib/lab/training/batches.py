"""Sampled texts in batches, with what the target computed for them."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch

from .devices import ALONE, Devices
from .sampled_texts import SampledText, best_tokens, hidden_states, padded
from .stored_features import StoredFeatures


class TextBatch(NamedTuple):
    """Several texts of similar length, with the target's hidden states.

    Attributes
    ----------
    texts : list of SampledText
        This process's share of the batch's rows.
    tokens : (rows, longest) int64 tensor
        Padded on the right. Attention is causal, so the padding does not affect anything before it.
    hidden : dict from layer to (rows, longest, width) tensor
        Layers are numbered as in transformers; -1 has passed the final norm.
    everybody : list of SampledText
        The texts of all processes, for means over all of them.
    devices : Devices
        Who shares the rows.
    best : (rows, longest) int64 tensor, or None
        The target's most likely token after each token, if it was asked for.
    """

    texts: list[SampledText]
    tokens: torch.Tensor
    hidden: dict[int, torch.Tensor]
    everybody: list[SampledText]
    devices: Devices
    best: torch.Tensor | None = None


class Batches:
    """Texts in batches, with the hidden states of a frozen target. Batch number n is always the same.

    Texts of similar length stay in the same batch, so their hidden states can be kept from one round to the next. The
    order of the batches changes in each round.

    Parameters
    ----------
    lm : LM
        The target, which must not change.
    texts : list of SampledText
    rows : int
        Texts in a batch. Remaining texts are added to the last batch.
    layers : sequence of int
        The layers whose hidden states are needed.
    devices : Devices
    memory : float
        Bytes for storing hidden states; those that do not fit are computed each time.
    best : bool
        Whether the target's most likely tokens are needed. Then so is layer -1.
    features : StoredFeatures, optional
        The hidden states of these texts on the disk. None are then computed or kept in memory.

    Raises
    ------
    ValueError
        If there are fewer texts or rows than processes.
    """

    def __init__(
        self,
        lm,
        texts,
        rows,
        *,
        layers=(-1,),
        devices: Devices = ALONE,
        memory: float = 2e9,
        best: bool = False,
        features: StoredFeatures | None = None,
    ):
        if min(len(texts), rows) < devices.processes:
            raise ValueError(
                f"{len(texts)} texts in batches of {rows} do not give each of {devices.processes} processes one: "
                "have more texts, more rows or fewer processes"
            )
        self.lm, self.layers, self.devices, self.memory = lm, tuple(layers), devices, memory
        self.best, self.features, self._texts = best, features, list(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number].tokens))
        starts = range(0, max(len(texts) - rows, 0) + 1, rows)  # a rest goes with the last full batch
        self._parts = [order[start : start + rows] for start in starts]
        self._parts[-1] = order[starts[-1] :]
        self._kept: dict[int, tuple[dict[int, torch.Tensor], torch.Tensor | None]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def step(self, step: int) -> TextBatch:
        """The batch of a training step."""
        turn, place = divmod(step, len(self))
        order = list(range(len(self)))
        random.Random(f"batches {turn}").shuffle(order)
        return self[order[place]]

    def __getitem__(self, number: int) -> TextBatch:
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} batches, and no number {number}")
        numbers = self._parts[number]
        everybody = [self._texts[one] for one in numbers]
        mine = self.devices.share(numbers)
        texts = [self._texts[one] for one in mine]
        tokens = padded([text.tokens for text in texts], self.lm.device)
        states, best = self._stored(self.features, mine) if self.features else self._computed(number, tokens)
        return TextBatch(texts, tokens, states, everybody, self.devices, best)

    def _computed(self, number, tokens):
        """The hidden states and best tokens of a batch, from memory if they are there."""
        if number not in self._kept:
            with torch.no_grad():
                states = hidden_states(self.lm.model, tokens, self.layers)
            best = best_tokens(self.lm, states[-1]) if self.best else None
            needed = sum(state.numel() * state.element_size() for state in states.values())
            if needed > self.memory:
                return states, best
            self.memory -= needed
            self._kept[number] = {layer: state.cpu() for layer, state in states.items()}, best
        states, best = self._kept[number]
        return {layer: state.to(self.lm.device) for layer, state in states.items()}, best

    def _stored(self, features, numbers):
        """The hidden states and best tokens of some texts, from the disk."""
        device = self.lm.device

        def side_by_side(parts):
            return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(device)

        states = {
            layer: side_by_side([features.read(number, layer) for number in numbers]).to(self.lm.dtype)
            for layer in self.layers
        }
        best = side_by_side([features.read_best(number) for number in numbers]).long() if self.best else None
        return states, best
