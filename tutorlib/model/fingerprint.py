"""A number for the present state of a model: it changes with whatever may change how the model computes.

Two models of one class and configuration may compute differently: one has a hook, an adapter or trained weights, and
the other has not. And one model may change after it was tested. So `probe.py` remembers what it found together with
this number. Computing it takes no call of the model. What this file does not do: look into hooks and adapters.
"""

from __future__ import annotations

import torch
from torch.nn.modules import module as torch_modules

# Where modules keep which of their adapters act (peft, and transformers' own use of it).
_ADAPTERS = ("active_adapter", "_active_adapter", "_disable_adapters", "merged_adapters")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_HOOKS_OF_ALL = ("_global_forward_hooks", "_global_forward_pre_hooks")


def fingerprint(model: torch.nn.Module) -> tuple[int, bool]:
    """A hash of all modules of a model, their hooks and adapters, the versions of their weights, and where these lie on
    a processor; and whether any module is in training mode, in which values may be dropped at random.

    PyTorch counts a weight's version up whenever it is changed in place, as by an optimizer. Changes of `weight.data`
    in place are not counted.
    """
    found: list = [getattr(getattr(model, "config", None), "_attn_implementation", None)]
    for name in _HOOKS_OF_ALL:
        found += getattr(torch_modules, name, ())
    seen, pending, in_training = set(), [model], False
    while pending:
        module = pending.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        state = module.__dict__
        in_training |= state["training"]
        found += [id(module), type(module)]
        for name in _HOOKS:  # the number of a hook is used only once
            found += [number for number, hook in state[name].items() if not _is_idle(hook)]
        if "forward" in state:
            found.append(id(state["forward"]))
        for name in _ADAPTERS:
            if name in state:
                found.append(str(state[name]))
        if "_hf_hook" not in state:  # accelerate may bring these weights from elsewhere, anew in each call
            for weight in state["_parameters"].values():
                if weight is not None:
                    found += [weight.dtype, 0 if weight.is_inference() else weight._version]
                    found += [weight.data_ptr()] if weight.device.type == "cpu" else []
        pending += state["_modules"].values()
    return hash(tuple(found)), in_training


def has_hooks(model: torch.nn.Module) -> bool:
    """Whether something acts when a module of the model is called, besides the module's class."""
    if any(getattr(torch_modules, name, None) for name in _HOOKS_OF_ALL):
        return True
    for module in model.modules():
        state = module.__dict__
        if "forward" in state or "_hf_hook" in state:
            return True
        if any(not _is_idle(hook) for name in _HOOKS for hook in state[name].values()):
            return True
    return False


def _is_idle(hook) -> bool:
    """Whether a hook only takes note of what a module computes: transformers adds these at the first use."""
    return getattr(hook, "__module__", None) == "transformers.utils.output_capturing"


def original(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, if it is wrapped by `torch.compile`."""
    return getattr(model, "_orig_mod", model)
