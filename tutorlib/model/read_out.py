"""What the output head makes of hidden states, as if the model ended at their layer (the "logit lens").

Which modules stand between the last layer and the head is found out by watching a call, so that no model family has to
be known here. What this file does not do: compute hidden states (`forward.py`).
"""

from __future__ import annotations

import functools
import itertools
import threading
from typing import TypeGuard

import torch

from .forward import Forward


class ReadOut:
    """`LM.read_out` as an object, which remembers what it has found out about the model."""

    def __init__(self, forward: Forward):
        self.forward = forward

    def __call__(self, hidden: torch.Tensor, normed: bool) -> torch.Tensor:
        """See `LM.read_out`."""
        after_layers, device = self._after_layers, hidden.device
        with torch.no_grad():
            for module in () if normed else after_layers:
                hidden = module(hidden)
            return self._head(hidden).to(device)

    def _head(self, states: torch.Tensor) -> torch.Tensor:
        return scaled_or_capped(self.forward.model.get_output_embeddings()(states), self.forward.config)

    @functools.cached_property
    def _after_layers(self) -> list[torch.nn.Module]:
        """The modules between the last layer and the output head, tested on a short text."""
        forward = self.forward.uncompiled()
        model = forward.model
        modules = itertools.chain(model.get_decoder().modules(), model.modules())
        decoder = next((one for one in modules if any(map(self._are_layers, one.children()))), torch.nn.Module())
        state, found = None, {}  # what the last layer made, and the modules that were called after it, in their order
        thread = threading.get_ident()  # other threads may be computing with the same modules

        def take(_, inputs, output):
            nonlocal state
            if threading.get_ident() == thread:
                state = output[0] if isinstance(output, (tuple, list)) else output
                found.clear()

        def note(module, inputs, name):
            if threading.get_ident() == thread and len(inputs) == 1:
                found[name] = module

        hooks = []
        for name, child in decoder.named_children():
            if self._are_layers(child):
                hooks += [layer.register_forward_hook(take) for layer in child]
            else:
                hooks.append(child.register_forward_pre_hook(functools.partial(note, name=name)))
        try:
            with torch.inference_mode():
                # Several tokens, because one of them may be padding, whose embedding is 0 and tests nothing.
                text = torch.arange(4, device=forward.device)[None] % forward.config.vocab_size
                logits, _, output = forward(text, 4, use_cache=False, output_hidden_states=True)
                normed = (output.hidden_states or [None])[-1]
                for module in found.values() if state is not None else ():
                    state = module(state)
                # Both must give the model's own logits: the state normed here, and the state that the model normed.
                right = all(
                    state is not None
                    and state.shape[:2] == text.shape
                    and bool((self._head(state) - logits).abs().max() <= 0.01 * logits.abs().max())
                    for state in (state, normed)
                )
        finally:
            for hook in hooks:
                hook.remove()
        if not right:
            raise ValueError(
                f"{type(model).__name__} does something else between its layers and its logits than the modules "
                f"after its layers ({', '.join(found) or 'none'}) and its output head do: LM cannot read out its "
                "hidden states"
            )
        return list(found.values())

    def _are_layers(self, module: torch.nn.Module) -> TypeGuard[torch.nn.ModuleList]:
        return isinstance(module, torch.nn.ModuleList) and len(module) == self.forward.config.num_hidden_layers


def scaled_or_capped(logits: torch.Tensor, config) -> torch.Tensor:
    """What some families do to the logits of their output head, by their configuration."""
    scale = getattr(config, "logit_scale", None) or 1  # Cohere
    scale /= getattr(config, "logits_scaling", None) or 1  # Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma
    logits = logits if scale == 1 else logits * scale
    return logits if cap is None else (logits / cap).tanh() * cap
