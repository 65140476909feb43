"""A pretend GPU: tensors that say `cuda:0`, hold the processor's memory, and refuse to be mixed with the processor's.

It finds what breaks the first time that code written on a processor meets a GPU. It needs no GPU, and no other build of
torch. It sees what is called from Python. It says nothing about speed, memory or rounding on a GPU.
"""

import contextlib
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda", 0)
APPLE = torch.device("mps", 0)
Generator = torch.Generator
PROPERTIES = {"device": GPU, "is_cuda": True, "is_cpu": False}  # of what is on the GPU that is pretended
CUDA = {  # what torch.cuda answers: a T4
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": "Tesla T4",
    "get_device_capability": (7, 5),
    "mem_get_info": (15 * 10**9, 16 * 10**9),
    "memory_allocated": 0,
    "memory_reserved": 0,
    "synchronize": None,
    "empty_cache": None,
}


class OnGPU(torch.Tensor):
    """A tensor of the processor's that says it is on the GPU."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})

    def __format__(self, form):
        return format(self.item() if self.ndim == 0 else self.cpu(), form)


class GeneratorOnGPU(Generator):
    """A generator that draws for tensors of the GPU; a plain one, if it is made for the processor."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls) if is_gpu(device) else Generator(device)


class PretendGPU(TorchFunctionMode):
    """While it is on, every function of torch is called as if there were a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})


@contextlib.contextmanager
def pretend_gpu(device=GPU):
    """Lends this machine a GPU while the context lasts; `APPLE` has no float64."""
    swap = torch.__future__.get_swap_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, answer in CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer: answer))
        stack.enter_context(mock.patch.object(torch.backends.mps, "is_available", lambda: device == APPLE))
        stack.enter_context(mock.patch.dict(PROPERTIES, device=device, is_cuda=device == GPU))
        stack.enter_context(mock.patch.object(torch, "Generator", GeneratorOnGPU))
        torch.__future__.set_swap_module_params_on_conversion(True)  # else Module.to keeps the class of its tensors
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swap)
        yield stack.enter_context(PretendGPU()) and device


def is_gpu(one):
    kind = PROPERTIES["device"].type
    return isinstance(one, torch.device) and one.type == kind or isinstance(one, str) and one in (kind, f"{kind}:0")


def tensors_in(arguments):
    for one in arguments:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (tuple, list)):
            yield from tensors_in(one)


def call(function, args, kwargs):
    """What comes of a call where there is a GPU: the processor's result, on the right device, or CUDA's error."""
    name = getattr(function, "__name__", "")
    with torch._C.DisableTorchFunctionSubclass():
        if name in ("device", "_parse_to"):
            return function(*args, **kwargs)
        tensors = list(tensors_in((*args, *kwargs.values())))
        here = any(isinstance(one, OnGPU) for one in tensors)
        if here and name == "__get__" and function.__self__.__name__ in PROPERTIES:
            return PROPERTIES[function.__self__.__name__]
        if here and name in ("numpy", "__array__"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")
        on_gpu = goes_to_gpu(name, args, kwargs, here)
        if here:
            check_devices(name, args, tensors)
        if "generator" in kwargs and isinstance(kwargs["generator"], GeneratorOnGPU) != on_gpu:
            raise RuntimeError(f"{name}: the generator and the tensor are on different devices")
        if name == "cuda":
            made = args[0]
        else:
            args = ["cpu" if is_gpu(one) else one for one in args]
            made = function(*args, **{key: "cpu" if is_gpu(one) else one for key, one in kwargs.items()})
        if isinstance(made, torch.Tensor):
            return placed(made, on_gpu, tensors)
        return tree_map(lambda one: placed(one, on_gpu, tensors), made) if isinstance(made, (tuple, list)) else made


def check_devices(name, args, tensors):
    """Raises what CUDA raises for tensors of both devices. A single number may be on the processor."""
    if name in ("to", "type_as", "copy_", "_has_compatible_shallow_copy_type"):
        return
    if name == "__getitem__":  # the processor's indices are fine anywhere, the GPU's are not
        tensors = [one for one in tensors if one is args[0] or isinstance(one, OnGPU)]
    if name == "__setitem__":  # to slices, values are copied; to indices, they are put
        by_index = any(isinstance(one, torch.Tensor) for one in tree_leaves(args[1]))
        tensors = [one for one in (args[0], args[2]) if by_index and isinstance(one, torch.Tensor)]
        tensors += [one for one in tree_leaves(args[1]) if isinstance(one, OnGPU)]
    there = [tuple(one.shape) for one in tensors if not isinstance(one, OnGPU) and one.ndim]
    if there and any(isinstance(one, OnGPU) for one in tensors):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{PROPERTIES['device']} and cpu! "
            f"({name} of tensors on the cpu with shapes {there})"
        )


def goes_to_gpu(name, args, kwargs, here):
    """Whether what a call makes is on the GPU."""
    first, second = (*args, None, None)[:2]
    if name == "copy_" or name == "__setitem__":
        return isinstance(first, OnGPU)
    if name in ("cpu", "cuda"):
        return name == "cuda"
    if name in ("to", "type_as") and isinstance(second, torch.Tensor):
        return isinstance(second, OnGPU)
    asked = [one for one in args if isinstance(one, torch.device)]
    asked += [second] if name == "to" and isinstance(second, str) else []
    asked += [kwargs["device"]] if kwargs.get("device") is not None else []
    if asked:
        return is_gpu(asked[0])
    return isinstance(first, OnGPU) if name == "tensor" else here


def placed(made, on_gpu, given):
    """A result on its device. What is moved there is a copy."""
    if not isinstance(made, torch.Tensor):
        return made
    if on_gpu and made.dtype == torch.float64 and PROPERTIES["device"] == APPLE:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
    if any(made is one for one in given):
        if isinstance(made, OnGPU) == on_gpu:
            return made
        made = made.clone()
    return made.as_subclass(OnGPU if on_gpu else torch.Tensor)
