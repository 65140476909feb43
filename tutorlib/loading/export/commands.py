"""The settings and the command with which an engine serves a target and what drafts for it."""

from __future__ import annotations

import json

READ_IN = {"vllm": "vLLM 0.33.0", "sglang": "SGLang 0.5.23"}
MEDUSA_IN = "vLLM 0.32.0"  # the last version that has Medusa
RUN_IN = {"vllm": "vLLM 0.32.0 on a processor"}  # `make engines`; SGLang has not been run
TOKENS = 4  # drafted for each call of the target, unless the head or the caller gives another number
LOOKED_UP = 3  # the longest n-gram; vLLM copies what followed it first, and not last, as `prompt_lookup` does
# vLLM refuses a file with a tensor that its own class does not register, such as token_map, unless told not to look.
UNTRACKED = ("--model-loader-extra-config", '{"enable_weights_track": false}')


def chain(length) -> dict:
    return {"nodes": length, "depth": length, "top_k": 1}


def for_vllm(kind, model, tree, same_tokenizer=True) -> dict:
    """What vLLM calls its speculative configuration."""
    method = {"draft": "draft_model", "lookup": "ngram"}.get(kind, kind)
    settings = {"method": method, "num_speculative_tokens": tree["depth"]}
    if kind == "lookup":
        return settings | {"prompt_lookup_max": LOOKED_UP, "prompt_lookup_min": 1}
    return settings | {"model": str(model)} | ({} if same_tokenizer else {"use_heterogeneous_vocab": True})


def for_sglang(kind, model, tree) -> dict:
    """SGLang's options. It counts the token before the draft among the drafted ones, and fails if a tree has fewer."""
    algorithm = {"eagle": "EAGLE", "eagle3": "EAGLE3", "draft": "STANDALONE"}[kind]
    depth, top_k = tree["depth"], tree["top_k"]
    most = top_k + (depth - 1) * top_k**2
    nodes = depth if top_k == 1 else min(tree["nodes"], most)
    return {
        "speculative-algorithm": algorithm,
        "speculative-num-draft-tokens": nodes + 1,
        "speculative-draft-model-path": str(model),
        "speculative-num-steps": depth,
        "speculative-eagle-topk": top_k,
    }


def command(engine, served, settings, options=()) -> list[str]:
    """What starts the server. Modules are named, since not every package of vLLM has a working command `vllm`."""
    if engine == "vllm":
        start = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", served]
        return [*start, "--speculative-config", json.dumps(settings), *options]
    options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    return ["python", "-m", "sglang.launch_server", "--model-path", served, *options]
