"""Export heads, drafts and lookups for vLLM and SGLang: the files that they load, and the command that serves them.

``python -m tutorlib.export eagle3 --head FOLDER --target NAME --engine vllm --out FOLDER`` writes the head's files to
the folder, with ``serve.sh``, which starts the server, and ``serving.json``, which holds the same settings.

What an engine expects of a head was found in the code of its loader, in the versions of `READ_IN`. If an engine would
load a head without an error but compute something else with it, the export is refused. What this file does not do: run
an engine.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import torch

from .arguments import check_whole_number
from .disk import filling, locked, write_text
from .heads.eagle_head import TREE, Eagle3Head
from .heads.formats import load_eagle, load_medusa, save_eagle, save_medusa
from .heads.formats.eagle_files import AUXILIARY, extra_norms
from .heads.formats.files import CONFIG, read_config
from .models import families, load
from .ngram import is_ngram

READ_IN = {"vllm": "vLLM 0.33.0", "sglang": "SGLang 0.5.23"}
MEDUSA_IN = "vLLM 0.32.0"  # the last version that has Medusa
KINDS = {
    "medusa": "Medusa heads",
    "eagle": "an EAGLE-1 network",
    "eagle3": "an EAGLE-3 network",
    "draft": "a draft model",
    "lookup": "prompt lookup",
}
HEADS = ("medusa", "eagle", "eagle3")
TOKENS = 4  # drafted for each call of the target, unless the head or the caller gives another number
LOOKED_UP = 3  # the longest n-gram, as in `prompt_lookup`


def export(
    kind: str, engine: str, out, *, target=None, head=None, draft=None, tokens: int | None = None, dtype=None
) -> list[str]:
    """Write a folder with everything an engine needs to serve a target with a head, a draft model or prompt lookup.

    Parameters
    ----------
    kind : {"medusa", "eagle", "eagle3", "draft", "lookup"}
    engine : {"vllm", "sglang"}
    out : path
        Created if it is missing; must be empty. The command contains this path, so choose one that the engine can read.
    target : str or path, optional
        As for `tutorlib.models.load`; by default the target that is named in the head's folder.
    head : path, optional
        The folder of the heads, in any layout of `tutorlib.heads.formats`.
    draft : str or path, optional
        For "draft": a draft model to use in place of the family's own.
    tokens : int, optional
        How many tokens are drafted in a row; by default the depth of the head's tree. Medusa heads draft one token
        each. vLLM drafts chains. SGLang also uses the other sizes of an EAGLE network's tree.
    dtype : torch.dtype or str, optional
        The dtype in which the target is read, to compare or copy its weights; see `load`.

    Returns
    -------
    list of str
        The command that starts the server.

    Raises
    ------
    ValueError
        If the engine cannot serve this; if the head is of another kind, belongs to another target, or would be computed
        differently by the engine; if the target is missing or unknown; if the folder is not empty or is in use.

    Notes
    -----
    If heads borrow weights from their target, copies are written. Weights that an engine always takes from the target
    (the embeddings in SGLang, the output head for EAGLE-1) must be those of the target.
    """
    if kind not in KINDS or engine not in READ_IN:
        raise ValueError(f"{kind!r} for {engine!r}: expected one of {', '.join(KINDS)}, and {' or '.join(READ_IN)}")
    if kind == "medusa" and engine == "sglang":
        raise ValueError('SGLang has no Medusa: export to "vllm", or train an EAGLE network')
    if (kind in HEADS) != (head is not None):
        raise ValueError(f"{kind} needs the folder of its heads, head=" if kind in HEADS else f"{kind} takes no head")
    if draft is not None and kind != "draft":
        raise ValueError(f'draft={str(draft)!r} is for "draft" alone, not for {kind!r}')
    if tokens is not None:
        check_whole_number(tokens, 1, "tokens is how many are drafted in a row")
        if kind == "medusa":
            raise ValueError("Medusa heads draft one token each, so that tokens cannot be chosen")
    out = Path(out).resolve()
    with locked(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} is not an empty folder: name one that is empty, or a new one")
        family = _family(target, head, device="cpu", dtype=dtype, **({"draft": draft} if draft else {}))
        served, version = family.place("target"), READ_IN[engine]
        with filling(out) as fresh:
            if kind == "medusa":
                tree, model, version = _write_medusa(head, family.target, fresh), out, MEDUSA_IN
            elif kind in HEADS:
                tree, model = _write_eagle(kind, engine, head, family.target, served, fresh), out
            else:
                tree, model = _chain(TOKENS), _draft(family) if kind == "draft" else None
            if tokens is not None:
                tree["depth"] = tokens
            settings = (_vllm if engine == "vllm" else _sglang)(kind, model, tree)
            command = _command(engine, served, settings)
            about = {"engine": engine, "read in": version, "target": served, "settings": settings, "command": command}
            write_text(fresh / "serving.json", json.dumps(about, indent=2) + "\n")
            write_text(fresh / "serve.sh", f"#!/bin/sh\n# For {version}.\nexec {shlex.join(command)}\n")
            (fresh / "serve.sh").chmod(0o755)
    return command


def _family(target, head, **settings):
    """The family of a target, or of the one that a head's folder names."""
    if target is not None or head is None:
        return load(target, **settings)
    config, place = read_config(Path(head)), Path(head) / CONFIG
    verifier = (config.get("speculators_config") or {}).get("verifier") or {}
    name = config.get("base_model_name_or_path") or verifier.get("name_or_path")
    if not name:
        raise ValueError(f"{place} does not say for which target these heads are: name it, target=")
    # A target that comes in a package is loaded by its family's name: its hub name means the hub's.
    name = next((row.name for row in families() if row.in_a_wheel and row.target.hub == name), name)
    try:
        return load(name, **settings)
    except ValueError as error:
        raise ValueError(
            f"{place} names the target {name!r}, which cannot be found: name it, target= ({error})"
        ) from error


def _draft(family) -> str:
    """Where an engine finds a family's draft model."""
    place = family.place("draft")
    if is_ngram(place):
        raise ValueError(f"{place} is an n-gram model, which no engine reads: name a draft model, draft=")
    if not family.same_tokenizer:
        raise ValueError(f"{place} writes with another tokenizer than the target: name another draft model, draft=")
    return place


# Files.


def _write_medusa(folder, target, fresh) -> dict:
    """Write Medusa heads for vLLM; return their tree, which is a chain there."""
    heads = load_medusa(folder, target)
    first, *others = (head[-1].weight for head in heads)
    shared = heads.layers > 0 and all(torch.equal(first, other) for other in others)
    if heads.token_map is not None and not shared:
        raise ValueError(
            f"{folder}: {MEDUSA_IN} lets heads know a part of the vocabulary only where all share the target's output "
            "layer: train them with --borrow, or for all tokens"
        )
    save_medusa(heads, fresh, "vllm", shared=shared).chmod(0o644)  # safetensors are written as private
    return _chain(len(heads))


def _write_eagle(kind, engine, folder, target, base, fresh) -> dict:
    """Write an EAGLE network for an engine; return its tree."""
    head = load_eagle(folder, target)
    third = isinstance(head, Eagle3Head)
    if third != (kind == "eagle3"):
        raise ValueError(f"{folder} holds {KINDS['eagle3' if third else 'eagle']}, expected {KINDS[kind]}")
    if third:
        head.feature_layers = _between(head.feature_layers, target.layers, folder)
    if engine == "sglang":
        _check_for_sglang(head, target, folder)
        if not third and head.fc.bias is None:
            head.fc.bias = torch.nn.Parameter(torch.zeros_like(head.fc.weight[:, 0]))  # or there are random numbers
    elif not third and head.fc.bias is not None:
        raise ValueError(
            f"{folder}: vLLM has no place for fc.bias of an EAGLE-1 network: export to sglang, or train one "
            "with --no-bias"
        )
    save_eagle(head, fresh, "speculators" if third and engine == "vllm" else "eagle", base=base).chmod(0o644)
    config = read_config(fresh)
    (_config_for_vllm if engine == "vllm" else _config_for_sglang)(config, head)
    write_text(fresh / CONFIG, json.dumps(config, indent=2) + "\n")
    return TREE | head.tree


def _config_for_vllm(config, head) -> None:
    """Add what vLLM reads beside what is published."""
    if isinstance(head, Eagle3Head):  # it does not count the layers itself, and takes them for 3
        config["transformer_layer_config"]["num_aux_hidden_states"] = len(head.feature_layers)


def _config_for_sglang(config, head) -> None:
    """Add what SGLang reads beside what is published."""
    third = isinstance(head, Eagle3Head)
    config.pop("bias", None)  # of the layer in front; SGLang takes it for one of the attention
    config["architectures"] = ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLMEagle"]
    if third:
        layers = list(head.feature_layers)
        config["num_aux_hidden_states"] = len(layers)
        config["eagle_config"] = {"use_aux_hidden_state": True, AUXILIARY: [layer - 1 for layer in layers]}


def _between(feature_layers, layers, folder) -> tuple[int, ...]:
    """The hidden states that an EAGLE-3 network reads, counted from the first, if engines give them in this order."""
    counted = tuple(layer if layer >= 0 else layer + layers + 1 for layer in feature_layers)
    # The last one that engines could give has not passed the final norm, unlike ours.
    if list(counted) != sorted(set(counted)) or not 0 < counted[0] <= counted[-1] < layers:
        raise ValueError(
            f"{folder}: the network reads the hidden states {counted}, but engines give those between the layers, "
            f"1 to {layers - 1}, each once and ascending: train it with other --layers"
        )
    return counted


def _check_for_sglang(head, target, folder) -> None:
    """Raise ValueError for what SGLang would leave out without a word."""
    config = head.config
    odd = [key for key in ("attention_bias", "qkv_bias", "mlp_bias") if getattr(config, key, False)]
    odd += ["norm_before_residual"] if getattr(head, "norm_before_residual", False) else []
    odd += extra_norms(head)
    if odd:
        raise ValueError(f"{folder}: SGLang knows no {' and no '.join(odd)} in such a network: export to vllm")
    own = head.embed_tokens.weight
    if not torch.equal(target.model.get_input_embeddings().weight.detach().to(own), own):
        raise ValueError(
            f"{folder}: SGLang gives the network the target's embeddings, but it has others, which it has learnt with: "
            "export to vllm, or name the target that it was trained for"
        )


# Settings.


def _chain(length) -> dict:
    return {"nodes": length, "depth": length, "top_k": 1}


def _vllm(kind, model, tree) -> dict:
    """What vLLM calls its speculative configuration."""
    method = {"draft": "draft_model", "lookup": "ngram"}.get(kind, kind)
    settings = {"method": method, "num_speculative_tokens": tree["depth"]}
    if kind == "lookup":
        return settings | {"prompt_lookup_max": LOOKED_UP, "prompt_lookup_min": 1}
    return settings | {"model": str(model)}


def _sglang(kind, model, tree) -> dict:
    """SGLang's options. It counts the token before the draft among the drafted ones, and fails if a tree has fewer."""
    algorithm = {"eagle": "EAGLE", "eagle3": "EAGLE3", "draft": "STANDALONE", "lookup": "NGRAM"}[kind]
    depth, top_k = tree["depth"], tree["top_k"]
    most = top_k + (depth - 1) * top_k**2
    nodes = depth if top_k == 1 else min(tree["nodes"], most)
    settings = {"speculative-algorithm": algorithm, "speculative-num-draft-tokens": nodes + 1}
    if kind == "lookup":
        return settings
    return settings | {
        "speculative-draft-model-path": str(model),
        "speculative-num-steps": depth,
        "speculative-eagle-topk": top_k,
    }


def _command(engine, served, settings) -> list[str]:
    if engine == "vllm":
        return ["vllm", "serve", served, "--speculative-config", json.dumps(settings)]
    options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    return ["python", "-m", "sglang.launch_server", "--model-path", served, *options]


def main(arguments=None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib.export", description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS, help="what drafts")
    parser.add_argument("--engine", choices=READ_IN, required=True)
    parser.add_argument("--out", required=True, help="the folder to write, as the engine will find it")
    parser.add_argument("--target", help="a family, a hub name or a folder (default: what the head's folder says)")
    parser.add_argument("--head", help="the folder of the heads")
    parser.add_argument("--draft", help="a draft model (default: the family's own)")
    parser.add_argument("--tokens", type=int, help="drafted in a row (default: as deep as the head's tree)")
    parser.add_argument("--dtype", help="in which the target is read (default: float32)")
    chosen = vars(parser.parse_args(arguments))
    try:
        command = export(chosen.pop("kind"), chosen.pop("engine"), chosen.pop("out"), **chosen)
    except (ValueError, OSError, ImportError, AttributeError) as error:
        parser.error(str(error))
    print(shlex.join(command))


if __name__ == "__main__":
    main()
