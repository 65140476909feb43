"""Where the models of a family are computed, and in which dtype: arguments of `load`, checked."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")  # the names that accelerate accepts


def checked_device(device) -> torch.device:
    """The device; by default a CUDA GPU, if there is one. A ValueError if it is unknown or missing."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device={device!r}: expected "cpu", "cuda", "cuda:1" or "mps"') from error
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device.type in there and not there[device.type]():
        raise ValueError(f"device={str(device)!r}, but this machine (or this build of torch) has none: leave it out")
    return device


def check_map(device_map, device, offload_folder) -> None:
    """Raise an error if a model cannot be spread over devices as it was asked for."""
    if device_map is None:
        if offload_folder is not None:
            raise ValueError(f'offload_folder={str(offload_folder)!r} needs a device_map, "auto" for instance')
        return
    if device is not None:
        raise ValueError(f"device={str(device)!r} and device_map={device_map!r}: give one of the two")
    if not isinstance(device_map, dict) and device_map not in _MAPS:
        raise ValueError(f"device_map={device_map!r}: expected {', '.join(_MAPS)} or a dict from modules to devices")
    if importlib.util.find_spec("accelerate") is None:
        raise ImportError("device_map needs accelerate: `pip install accelerate`")


def checked_dtype(dtype, device, bundled) -> torch.dtype:
    """The dtype; by default float32 on a processor and for small bundled models, otherwise one of sixteen bits."""
    if dtype is None:
        if bundled or device.type != "cuda":
            return torch.float32  # half precision is slow on a processor, and no gain for such small models
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    given = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not (isinstance(given, torch.dtype) and given.is_floating_point):
        raise ValueError(f"dtype={dtype!r}: expected float32, bfloat16, float16 or float64")
    if given == torch.float64 and device.type == "mps":
        raise ValueError('device="mps" with dtype=float64: Apple\'s GPUs have no float64; take float32, or the CPU')
    return given
