"""The forward call of a transformers model: the only place where tokens go in and logits come out.

All caches compute through `Forward`, and `probe.py` tests them with it. What this file does not do: keep keys and
values, or decide which tokens attend to which (`cache.py`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .fingerprint import original

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Forward:
    """A transformers model: how it is called, which masks it takes, and what is read from its output.

    Attributes
    ----------
    model : transformers.PreTrainedModel, perhaps wrapped by `torch.compile`
    config : the configuration of its decoder
    parameters : set of str
        The names of the arguments of a call.
    keeps_logits : bool
        Whether the model can compute the logits of some tokens only.
    windows : dict from str to int or None
        The kinds of attention, by the model's own names, with the window size of each.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.parameters = frozenset(inspect.signature(original(model).forward).parameters)
        self.keeps_logits = "logits_to_keep" in self.parameters
        self.windows = _windows(model, self.config)
        self._weight = next(model.parameters())  # for its dtype; finding it is slower than a draw

    @property
    def device(self) -> torch.device:
        if getattr(self.model, "hf_device_map", None):  # weights may be on several devices, or on none until a call
            hook = getattr(self.model.get_input_embeddings(), "_hf_hook", None)
            place = getattr(hook, "execution_device", None)
            return self.model.device if place is None else torch.device(place)
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self._weight.dtype

    def uncompiled(self) -> Forward:
        """The same, without `torch.compile`."""
        other = copy.copy(self)
        other.model = original(self.model)
        return other

    def __call__(
        self, tokens: torch.Tensor, keep: int | torch.Tensor, hidden: Sequence[int] = (), **options
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Any]:
        """One pass of the model, in evaluation mode even if the model is being trained meanwhile.

        Parameters
        ----------
        tokens : (rows, width) tensor
        keep : int or (columns,) tensor
            The columns whose logits are needed: so many at the end, or these.
        hidden : sequence of int
            The layers whose hidden states are needed.
        **options
            Other arguments of the call, such as a cache, masks or positions.

        Returns
        -------
        logits : (rows, columns, vocab) tensor
        hidden : dict from layer to (rows, width, features) tensor
        output : what the model returned, of which the others are copies on the device of `tokens`
        """
        if self.keeps_logits:
            options["logits_to_keep"] = keep
        if hidden:
            options["output_hidden_states"] = True
        if self.model.training:
            self.model.eval()
        with torch.inference_mode():
            output = self.model(input_ids=tokens, **options)
        logits = output.logits
        if not self.keeps_logits:
            logits = logits[:, -keep:] if isinstance(keep, int) else logits[:, keep]
        # Tensors made in inference mode cannot be changed in place outside of it, but copies can.
        states = self._states(output, hidden, tokens) if hidden else {}
        return logits.to(tokens.device).clone(), states, output

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The last `rows` rows of logits, and of hidden states by layer, of one pass over `tokens` without a cache."""
        options = {"use_cache": False} if "use_cache" in self.parameters else {}
        logits, states, _ = self(torch.tensor([tokens], device=self.device), rows, hidden, **options)
        return logits[0, -rows:], {layer: state[0, -rows:] for layer, state in states.items()}

    def masks(
        self, unseen: np.ndarray, positions: np.ndarray, slots: np.ndarray, device: torch.device
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The additive mask, (rows, 1, queries, slots), or a dict of them if the model has several kinds of attention.

        Parameters
        ----------
        unseen : (rows, queries, slots) array of bool
            Whether a token may not attend to a slot, whatever the window is.
        positions, slots : (rows, queries) and (slots,) arrays
            The positions of the tokens, and of what is in the slots.
        """
        masks = {}
        for kind, window in self.windows.items():
            left_out = unseen if window is None else unseen | (positions[:, :, None] - slots >= window)
            left_out = torch.from_numpy(left_out[:, None]).to(device)
            mask = torch.zeros(left_out.shape, dtype=self.dtype, device=device)
            masks[kind] = mask.masked_fill_(left_out, torch.finfo(self.dtype).min)
        return masks if len(masks) > 1 else masks.popitem()[1]

    def _states(self, output, layers: Sequence[int], tokens: torch.Tensor) -> dict[int, torch.Tensor]:
        name = type(self.model).__name__
        if output.hidden_states is None:
            raise ValueError(f"{name} gives no hidden states: this method needs them")
        states = {layer: output.hidden_states[layer].to(tokens.device).clone() for layer in layers}
        for layer, state in states.items():
            if state.ndim != 3 or state.shape[:2] != tokens.shape:
                rows, width = tokens.shape
                raise ValueError(
                    f"the hidden states of {name} are no vector for each token: layer {layer} has the shape "
                    f"{tuple(state.shape)} for {rows} rows of {width} tokens. This method cannot use them"
                )
        return states


def _windows(model, config) -> dict[str, int | None]:
    """See `Forward.windows`. Models with one kind take a single mask; models with several take a dict by name."""
    name = type(model).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{name} is an encoder with a decoder, not a decoder-only model: LM cannot use it")
    attention = getattr(config, "_attn_implementation", None) or "sdpa"
    if "flash" in attention or "flex" in attention:
        raise ValueError(
            f'{name} was loaded with attention "{attention}", which takes no mask of its own: '
            'load it with attn_implementation="sdpa"'
        )
    window = getattr(config, "sliding_window", None)
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    if not kinds:
        return {"attention": window}
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}
