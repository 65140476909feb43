"""Export heads, drafts and lookups for vLLM and SGLang: the files that they load, and the command that serves them.

``python -m tutorlib export eagle3 --head FOLDER --target NAME --engine vllm --out FOLDER`` writes the head's files to
the folder, with ``serve.sh``, which starts the server, and ``serving.json``, which holds the same settings.
``python -m tutorlib export --check FOLDER`` prints what such a server should report; see `expected`.

What an engine expects of a head was found in the code of its loader, in the versions of `READ_IN`. If an engine would
load a head without an error but compute something else with it, the export is refused. vLLM has also been run with
every kind of export, in the version of `RUN_IN`, on a processor: ``make engines`` does so. What this package does not
do: install or start an engine.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from ...arguments import check_whole_number
from ...disk import filling, locked, write_text
from ..formats.files import CONFIG, read_config
from ..formats.ngram_files import is_ngram
from ..models import families, load
from .commands import MEDUSA_IN, READ_IN, RUN_IN, TOKENS, chain, command, for_sglang, for_vllm
from .head_files import write_eagle, write_medusa

KINDS = {
    "medusa": "Medusa heads",
    "eagle": "an EAGLE-1 network",
    "eagle3": "an EAGLE-3 network",
    "draft": "a draft model",
    "lookup": "prompt lookup",
}
HEADS = ("medusa", "eagle", "eagle3")


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
        As for `loading.models.load`; by default the target that is named in the head's folder. The command names a
        published target as the hub does, and one from a package or a folder by its folder.
    head : path, optional
        The folder of the heads, in any layout of `tutorlib.loading.formats`.
    draft : str or path, optional
        For "draft": a draft model to use in place of the family's own. With another tokenizer than the target's, vLLM
        serves it as `token_intersection` does.
    tokens : int, optional
        How many tokens are drafted in a row; by default the depth of the head's tree. Medusa heads draft one token
        each. vLLM drafts chains. SGLang also uses the other sizes of an EAGLE network's tree.
    dtype : torch.dtype or str, optional
        The dtype in which the target is read, to compare or copy its weights; see `load`.

    Returns
    -------
    list of str
        The command that starts the server. ``serve.sh`` adds to it the options that it is given.

    Raises
    ------
    ValueError
        If the engine cannot serve this; if the head is of another kind, belongs to another target, or would be computed
        differently by the engine; if the target is missing or unknown; if the folder is not empty or is in use.

    Notes
    -----
    If heads borrow weights from their target, copies are written. Weights that an engine always takes from the target
    (the embeddings in SGLang, the output head for EAGLE-1) must be those of the target.

    "lookup" copies what followed the *first* occurrence of the last tokens, as in the original; `prompt_lookup` copies
    what followed the last one.
    """
    if kind not in KINDS or engine not in READ_IN:
        raise ValueError(f"{kind!r} for {engine!r}: expected one of {', '.join(KINDS)}, and {' or '.join(READ_IN)}")
    if kind == "medusa" and engine == "sglang":
        raise ValueError('SGLang has no Medusa: export to "vllm", or train an EAGLE network')
    if kind == "lookup" and engine == "sglang":
        raise ValueError(
            "SGLang's lookup (NGRAM) keeps the texts of all requests together, so that one user's draft is copied from "
            'another user\'s text: export to "vllm", which looks in the text itself'
        )
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
        served = family.place("target")
        options: tuple[str, ...] = ()
        with filling(out) as fresh:
            if kind == "medusa":
                tree, options = write_medusa(head, family.target, fresh)
            elif kind in HEADS:
                tree = write_eagle(kind, engine, head, family.target, served, tokens, fresh)
            else:
                tree = chain(tokens or TOKENS)
            if engine == "sglang":
                settings = for_sglang(kind, _draft(family, engine) if kind == "draft" else out, tree)
            elif kind == "draft":
                settings = for_vllm(kind, _draft(family, engine), tree, family.same_tokenizer)
            else:
                settings = for_vllm(kind, out, tree)
            line = command(engine, served, settings, options)
            versions = {"read in": MEDUSA_IN if kind == "medusa" else READ_IN[engine], "run in": RUN_IN.get(engine)}
            about = {"engine": engine, "kind": kind, **versions, "target": served, "settings": settings}
            write_text(fresh / "serving.json", json.dumps(about | {"command": line}, indent=2) + "\n")
            note = ", ".join(f"{how} {version}" for how, version in versions.items() if version)
            write_text(fresh / "serve.sh", f'#!/bin/sh\n# {note}.\nexec {shlex.join(line)} "$@"\n')
            (fresh / "serve.sh").chmod(0o755)
    return line


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


def _draft(family, engine) -> str:
    """Where an engine finds a family's draft model, if it can serve it."""
    place = family.place("draft")
    if is_ngram(place):
        raise ValueError(f"{place} is an n-gram model, which no engine reads: name a draft model, draft=")
    if engine == "sglang" and not family.same_tokenizer:
        raise ValueError(
            f"{place} writes with another tokenizer than the target, which SGLang cannot serve: export to vllm, or "
            "name another draft model, draft="
        )
    return place
