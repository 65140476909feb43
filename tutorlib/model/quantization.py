"""Models in eight and four bits: the possible forms, how bitsandbytes stores them, and how many bytes they take.

bitsandbytes replaces the linear layers; embeddings, norms and the output head stay as they are. It is imported only
here, and only when it is used. What this file does not do: load a model (`models`), or predict the memory of a whole
model (`measures.memory`).

Sources: Dettmers et al. (2022), "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale"; Dettmers et al.
(2023), "QLoRA: Efficient Finetuning of Quantized LLMs", section 3 (NF4 and double quantization).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

BLOCK = 64  # weights that share a scale in nf4
BLOCKS = 256  # scales that share a scale with double quantization
# The published forms whose weights transformers can unpack while it reads them, and the settings that make it do so.
# Otherwise it would keep them packed on some machines, for kernels that must be downloaded.
UNPACKED = {"fp8": "FineGrainedFP8Config", "mxfp4": "Mxfp4Config"}


class Form(NamedTuple):
    """The form of a model's linear layers: "nf4" or "int8", and whether the scales of nf4 are quantized too."""

    name: str
    double: bool = False

    def __str__(self) -> str:
        return self.name + " (double)" * self.double


def layer_bytes(rows: int, columns: int, form: Form) -> int:
    """Bytes of a linear layer's weight as stored by bitsandbytes.

    int8 takes a byte per weight and a float32 scale per row. nf4 takes half a byte per weight and a float32 scale for
    each block of 64 weights. Double quantization stores each of these scales in a byte, and adds a float32 scale for
    every 256 of them and their float32 mean. Each layer also has a table of the values of its codes: 16 for the
    weights, and 256 for the quantized scales.
    """
    weights = rows * columns
    if form.name == "int8":
        return weights + 4 * rows
    scales = -(-weights // BLOCK)
    kept = scales + 4 * (-(-scales // BLOCKS) + 1 + 256) if form.double else 4 * scales
    return -(-weights // 2) + kept + 4 * 16


def forms(quantize: str | Mapping[str, str] | None, double: bool | None, names: Iterable[str]) -> dict[str, Form]:
    """The requested forms, by role.

    Parameters
    ----------
    quantize : str, mapping from roles to str, or None
    double : bool or None
        None means True for roles in nf4.
    names : iterable of str
        The roles that a family has and that can be quantized.

    Raises
    ------
    ValueError
        If `quantize` is anything else or names an unknown role, or if `double` is given but nothing is in nf4.
    """
    names = list(names)
    asked: Mapping[str, str] = {}
    if isinstance(quantize, Mapping):
        asked = quantize
    elif quantize is not None:
        asked = {name: quantize for name in names if name != "other_draft"}
    if quantize is not None and (not asked or any(form not in ("nf4", "int8") for form in asked.values())):
        raise ValueError(
            f'quantize={quantize!r}: expected "nf4" or "int8", for the target and its draft, or a dict with one of '
            'these for each role, such as {"draft": "nf4"}'
        )
    if unknown := [role for role in asked if role not in names]:
        raise ValueError(
            f"quantize={quantize!r}: {unknown[0]!r} is no language model of this family that could be quantized, "
            f"expected {' or '.join(map(repr, names))}. Heads, networks and n-gram models stay as they are"
        )
    if double not in (None, True, False):
        raise ValueError(f"double_quantization={double!r}: expected True or False")
    if double is not None and "nf4" not in asked.values():
        raise ValueError(
            f'double_quantization={double} is for quantize="nf4" alone, which has scales to quantize, and '
            f"quantize={quantize!r}: leave it out"
        )
    return {role: Form(name, name == "nf4" and double is not False) for role, name in asked.items()}


def check_bitsandbytes(device: torch.device, dtype: torch.dtype) -> None:
    """Raise an error, with advice, if bitsandbytes is missing or does not support this dtype or device.

    Raises
    ------
    ImportError, ValueError
    """
    missing = [name for name in ("bitsandbytes", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"quantize= needs {' and '.join(missing)}: `pip install {' '.join(missing)}`, or on Colab "
            f"`%pip install --no-deps {' '.join(missing)}`, which leaves the installed torch alone"
        )
    if dtype == torch.float64:
        raise ValueError("dtype=float64 with quantize=: bitsandbytes takes float32, bfloat16 or float16")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns in each layer, at each call
    import bitsandbytes

    if device.type not in bitsandbytes.supported_torch_devices:
        raise ValueError(
            f'device="{device}" with quantize=: bitsandbytes {bitsandbytes.__version__} does not support it, only '
            f'{", ".join(sorted(bitsandbytes.supported_torch_devices))}: take device="cpu", or leave out quantize='
        )


def quantization_settings(form: Form, dtype: torch.dtype):
    """The settings with which transformers quantizes a model while it is loaded.

    In int8, activations are rounded too. By default, columns of activations with a number beyond 6 in any row of the
    call are left out of the rounding. So the logits of a token would depend on the other tokens in the call and on the
    other texts of a batch, and no method could keep the distribution of plain sampling. With a threshold of 0, every
    row is rounded by itself. This costs accuracy: the overlap with the original model, the mean of Σ min(p, q), is
    0.9985 in place of 0.9992 for the village's target, and 0.87 in place of 0.91 for SmolLM2 on one chat prompt.
    """
    from transformers import BitsAndBytesConfig

    if form.name == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=form.double,
    )


def saved_form(config: Mapping) -> str | None:
    """The form in which a model's weights are stored, by its configuration; None if they are not quantized."""
    saved = config.get("quantization_config")
    return str(saved.get("quant_method", "another form") if isinstance(saved, dict) else saved) if saved else None


def unpacking(form: str | None) -> dict:
    """The settings with which transformers unpacks a model while it is loaded; none for other forms."""
    import transformers

    return {"quantization_config": getattr(transformers, UNPACKED[form])(dequantize=True)} if form in UNPACKED else {}


def settle(model: torch.nn.Module) -> torch.nn.Module:
    """Keep four-bit weights as they were quantized, and release the file that they came from; return the model.

    On a processor with 16-bit vector instructions, bitsandbytes would repack them at the first call, undo double
    quantization and compute in bfloat16 whatever type was asked for. That is faster, but gives different results on
    different processors, and it fails if the number of rows of a layer is not a multiple of 32.

    Tensors that are not quantized may be views of the file, which is mapped into memory as a whole (for SmolLM2, 538 MB
    instead of the 168 MB that are needed). So they are copied.
    """
    module: Any  # its attributes are those of its class
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
        for name, weight in module.named_parameters(recurse=False):
            if weight.device.type == "cpu" and not (form_of(module) and name == "weight"):
                weight.data = weight.data.clone()
    return model


def depends_on_the_call(model: torch.nn.Module) -> bool:
    """Whether the logits of a token depend on the other tokens and texts in its call: int8 with a threshold, see
    `quantization_settings`.
    """
    modules: Iterator[Any] = model.modules()
    return any(module.state.threshold > 0 for module in modules if type(module).__name__ == "Linear8bitLt")


def form_of(layer: Any) -> Form | None:
    """The form of a linear layer; None if it is not quantized."""
    if type(layer).__name__ == "Linear8bitLt":
        return Form("int8")
    if type(layer).__name__ != "Linear4bit":
        return None
    return Form(layer.weight.quant_type, bool(layer.weight.compress_statistics))


def scales(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors of quantized weights that are neither parameters nor buffers: their scales, and tables."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        state = getattr(weight, "quant_state", None)
        eight = form_of(module) == Form("int8")
        for holder in (state, getattr(state, "state2", None), *((weight, module.state) if eight else ())):
            for name in ("absmax", "code", "offset", "SCB"):
                tensor = getattr(holder, name, None)
                if isinstance(tensor, torch.Tensor):
                    yield tensor
