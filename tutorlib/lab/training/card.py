"""Measure the bundled models from their files, as a reader gets them, and write the results to the model card."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from tutorlib.decoders.dflash import dflash
from tutorlib.decoders.dspark import dspark
from tutorlib.decoders.eagle import eagle
from tutorlib.decoders.medusa import medusa
from tutorlib.disk import read_json, write_text
from tutorlib.lab.training import accuracy
from tutorlib.lab.training.train_dflash import LAYERS
from tutorlib.lab.training.train_village import RECIPES
from tutorlib.loading.models import load, write_checksums
from tutorlib.running.decoding import run
from tutorlib.storyworld.questions import opening

PROMPTS = 200  # how many stories are sampled
CARD = """\
# The village's language models

These three small models of the Llama type tell stories about the village of `tutorlib.storyworld`. They were made for
this book and come with it. They know one village, a few hundred English words and nothing else, because they were
trained only on stories from the simulation. Licence: MIT.

They were trained with the command `{command}`. The training is seeded: the same
machine, software versions and number of threads give the same weights. The seeds of the training stories begin with
"train". The results in the table were measured on held-out stories, with the half-precision files that come with the
book.

| | {names} |
|---|{rule}
{rows}

The rows marked *right* give the proportion of correct answers to 100 questions on each topic: the model reads a text
that ends just before the answer, and continues it greedily. The sentences come from {prompts} stories, sampled at
temperature 1 from held-out openings, and `storyworld.check` found which of them are readable and consistent.
Acceptance is Σ min(p, q) of the target's distribution p and the draft's distribution q, averaged over the positions of
the target's own stories.
"""
HEADS = "## Medusa heads"
EAGLE = "## EAGLE networks"
DRAFT_NETWORKS = {"eagle": "EAGLE-1", "eagle3": "EAGLE-3", "mtp": "MTP", "parallel": "parallel draft"}  # folder → name
DFLASH = "## A DFlash network"
JOINTS = {"dspark": "## A DSpark joint", "dflash2": "## A DFlash2 joint"}
# What is trained → the folders that its section describes.
SECTIONS = {name: (name,) for name in ("medusa", "dflash", *JOINTS)} | dict.fromkeys(
    DRAFT_NETWORKS, tuple(DRAFT_NETWORKS)
)
OPENINGS = 20  # how many stories are written with heads
HEADS_CARD = (
    HEADS
    + """

There are {count} heads for the target, {blocks} each, trained for {steps} steps of {rows} texts each. The
target itself wrote the {texts} texts. Of these, {cold:.0%} begin at temperature 1 and continue at {temperature};
the part at {temperature} is called *cold* in the table. The command was `{command}`.

| | |
|---|---|
{rows_of_table}

A head is right when its best guess is the token that really follows. The table shows how often each head was right in
{held_out} other texts of the target, separately for the cold parts and for the parts sampled at temperature 1. *Nodes*
counts those of the bundled tree. Tokens per call were counted in greedy decoding with this tree, on {openings} held-out
openings.
"""
)
EAGLE_CARD = (
    EAGLE
    + """

Each network has one layer and uses the target's embeddings; that of multi-token prediction (MTP) uses its output head,
too. All were trained on texts that the target wrote itself, with these commands:

{commands}

| | {names} |
|---|{rule}
{rows_of_table}

The row *hidden states* lists the layers of the target that a network reads; -1 is the last layer. A drafting step is
right when its best guess is the token that really follows, given the text's real tokens before it. (Only the parallel
draft does not read those between its text and its guess.) The table shows how often each step was right in other texts
of the target, separately for the cold parts and for the parts sampled at temperature 1.
Tokens per call were counted in greedy decoding with the bundled tree, on {openings} held-out openings.
"""
)
DFLASH_CARD = (
    DFLASH
    + """

The network guesses {guesses} tokens in one pass. It has {layers} layers, and uses the target's embeddings and output
head. It was trained on texts that the target wrote itself, with this command:

- `{command}`

| | |
|---|---|
{rows_of_table}

A step is a position in a block. It is right when its best guess is the token that really follows; the tokens between
the text and this position are unknown to the network. The table shows how often each was right in other texts of the
target, separately for the cold parts and for the parts sampled at temperature 1. Tokens per call were counted in greedy
decoding with the bundled tree, on {openings} held-out openings.
"""
)
JOINT_CARD = """{title}

The joint belongs to the DFlash network, which stays as it is. {what}
It was trained on texts that the target wrote itself, with this command:

- `{command}`

| | |
|---|---|
{rows_of_table}

A step is a position in a block. Unlike the network alone, the joint is given the token that really stands before it.
"""
JOINT_DOES = {
    "dspark": "It adds a bias of rank {rank} from the token\nbefore each position, and predicts acceptance.",
    "dflash2": "It adds scores of rank {rank} for pairs of\nneighbouring tokens, weighted by the network's state.",
}


def measure_family(folder):
    """The figures of the models in `folder`, by name.

    Parameters
    ----------
    folder : path
        With a subfolder for each model, as `train_village.make` writes them.

    Returns
    -------
    dict
        Name → figures.
    """
    folder, figures, target = Path(folder), {}, None
    for name in RECIPES:
        if not (folder / name).exists():
            continue
        lm = load(folder / name, device="cpu", dtype="float32").target
        model, tokenizer = lm.model, lm.tokenizer
        stories = accuracy.sampled_stories(model, tokenizer, prompts=PROMPTS)
        figures[name] = {
            **{f"{topic}, right": share for topic, share in accuracy.answer_shares(model, tokenizer).items()},
            **accuracy.readability(stories, tokenizer),
        }
        if name == "target":
            target, targets_stories = model, stories
        elif name == "draft" and target is not None:
            figures[name]["acceptance"] = accuracy.agreement(target, model, targets_stories)
    return figures


def write_card(folder, command="python -m tutorlib train storyworld"):
    """Write ``MODEL_CARD.md`` and ``checksums.json`` for the models in `folder`."""
    folder = Path(folder)
    measured = measure_family(folder)
    columns = {}
    for name, figures in measured.items():
        recipe, log = RECIPES[name], read_json(folder / name / "training_log.json")
        columns[name] = {
            "layers × width": f"{recipe.stages[-1].layers} × {recipe.width}",
            "vocabulary": recipe.vocab_size,
            "tokenizer seed": recipe.tokenizer_seed,
            "stages": "; ".join(
                f"{stage.layers} layer{'s' if stage.layers > 1 else ''}, {stage.steps} steps × {stage.rows} stories"
                + (f", the first {stage.drill} drills, {stage.hinted} hinted" if stage.drill else "")
                for stage in recipe.stages
            ),
            "weights": f"mean of the last {recipe.averaged} stages" if recipe.averaged > 1 else "from the last stage",
            "loss at the end": log[-1]["loss"],
            "wall time": f"{_minutes(log):.0f} min",
            **figures,
        }
    write_text(
        folder / "MODEL_CARD.md",
        CARD.format(
            command=command, names=" | ".join(columns), rule="---|" * len(columns), rows=_rows(columns), prompts=PROMPTS
        ),
    )
    write_text(folder / "figures.json", json.dumps(measured, indent=1) + "\n")
    write_checksums(folder)
    for names in dict.fromkeys(SECTIONS.values()):
        if any((folder / name).exists() for name in names):
            write_heads_card(folder, names)


def measure_head(folder, name):
    """The figures of the Medusa heads or the network `name` in `folder`, which also holds their target."""
    log = read_json(Path(folder) / name / "training_log.json")
    family = load(folder, device="cpu", dtype="float32")
    head, figures = getattr(family, name), {}
    method: Any = {"medusa": medusa, "dflash": dflash, "dflash2": dflash, "dspark": dspark}.get(name, eagle)
    step = "head" if name == "medusa" else "step"
    for kind, shares in log["accuracies"].items():
        best = [ranks[0] for ranks in shares] if name == "medusa" else shares
        figures |= {f"{step} {i}, right, {kind}": share for i, share in enumerate(best)}
    if name == "medusa":
        figures["nodes"] = len(head.choices)
    prompts = [opening(f"held out {number}") for number in range(OPENINGS)]
    traces = [run(method(family.target, head, prompt), max_new_tokens=150) for prompt in prompts]
    tokens, calls = sum(len(trace.tokens) for trace in traces), sum(trace.target_calls for trace in traces)
    return figures | {"tokens per call": round(tokens / calls, 2)}


def write_heads_card(folder, names=("medusa",)):
    """Write the section on heads in ``MODEL_CARD.md``, their figures and the checksums, and leave the rest as it is.

    Parameters
    ----------
    folder : path
    names : tuple of str
        The subject of the section, one of `SECTIONS`.
    """
    folder, logs = Path(folder), {}
    write_checksums(folder)  # `load` compares them, and the heads may be newer
    figures = read_json(folder / "figures.json")
    for name in names:
        figures.pop(name, None)
        if (folder / name).exists():
            logs[name] = read_json(folder / name / "training_log.json")
            figures[name] = measure_head(folder, name)
    sections: dict[str, Any] = {"medusa": (HEADS, _on_medusa), "dflash": (DFLASH, _on_dflash)}
    sections |= {name: (title, partial(_on_joint, name)) for name, title in JOINTS.items()}
    title, section = sections.get(names[0], (EAGLE, _on_eagle))
    card = folder / "MODEL_CARD.md"
    before, _, after = card.read_text().partition(title)
    _, mark, later = after.partition("\n## ")  # sections after this one
    write_text(card, before.rstrip() + "\n\n" + section(logs, figures) + mark + later)
    write_text(folder / "figures.json", json.dumps(figures, indent=1) + "\n")


def _on_medusa(logs, figures):
    log = logs["medusa"]
    return HEADS_CARD.format(
        count=log["heads"],
        blocks=f"{log['layers']} residual block" + ("s" if log["layers"] != 1 else ""),
        openings=OPENINGS,
        rows_of_table="\n".join(f"| {name} | {figure} |" for name, figure in figures["medusa"].items()),
        **{name: log[name] for name in ("texts", "steps", "rows", "cold", "temperature", "held_out", "command")},
    )


def _on_eagle(logs, figures):
    columns = {
        DRAFT_NETWORKS[name]: _made(log) | {"tree": _tree(log["tree"])} | figures[name] for name, log in logs.items()
    }
    return EAGLE_CARD.format(
        commands="\n".join(f"- {DRAFT_NETWORKS[name]}: `{log['command']}`" for name, log in logs.items()),
        names=" | ".join(columns),
        rule="---|" * len(columns),
        rows_of_table=_rows(columns),
        openings=OPENINGS,
    )


def _on_dflash(logs, figures):
    log = logs["dflash"]
    rows = _made(log) | {"tree": _tree(log["tree"])} | figures["dflash"]
    return DFLASH_CARD.format(
        guesses=log["block"] - 1, layers=LAYERS, command=log["command"], openings=OPENINGS,
        rows_of_table="\n".join(f"| {name} | {figure} |" for name, figure in rows.items()),
    )  # fmt: skip


def _on_joint(name, logs, figures):
    log = logs[name]
    rows = _made(log) | {"tree": _tree(log["tree"])} | figures[name]
    return JOINT_CARD.format(
        title=JOINTS[name], what=JOINT_DOES[name].format(rank=log["rank"]), command=log["command"],
        rows_of_table="\n".join(f"| {name} | {figure} |" for name, figure in rows.items()),
    )  # fmt: skip


def _made(log):
    """How an EAGLE network was made, as cells of a table."""
    texts = f"{log['texts']}, of which {log['cold']:.0%} begin at temperature 1 and continue at {log['temperature']}"
    special = f", {log['depth']} of its own steps" if "depth" in log else ""
    special = f", noise {log['noise']} on features" if "noise" in log else special
    return {
        "parameters": f"{log['parameters']:,}",
        "hidden states": ", ".join(map(str, log["layers"])),
        **({"tokens known": log["tokens"]} if "tokens" in log else {}),
        "texts": f"{texts}; {log['held_out']} others for the measurements",
        "training": f"{log['steps']} steps of {log['rows']} texts, learning rate {log['rate']}{special}",
    }


def _tree(tree):
    """The arguments of `dynamic` in words."""
    words = f"{tree['nodes']} nodes, {tree['depth']} levels, {tree['top_k']} guesses a node"
    more = {"confidence": tree.get("confidence"), "greedy temperature": tree.get("greedy_temperature")}
    return words + "".join(f", {name} {value}" for name, value in more.items() if value)


def _rows(columns):
    """The rows of a table whose columns are given, one for each model: a dict from the row's name to the cell."""
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    return "\n".join(
        f"| {row} | " + " | ".join(str(column.get(row, "–")) for column in columns.values()) + " |" for row in rows
    )


def _minutes(log):
    """Wall time of all stages, in minutes.

    In each stage, the clock and the steps start again at zero. So an entry is the last of its stage if the next entry
    has no larger step.
    """
    ends = [entry for entry, after in zip(log, [*log[1:], {"step": 0}]) if after["step"] <= entry["step"]]
    return sum(entry["seconds"] for entry in ends) / 60
