"""Measures the bundled models as a reader will meet them, from their files, and writes that down beside them."""

import json
from pathlib import Path

from tutorlib.models import load, write_checksums
from tutorlib.training import accuracy
from tutorlib.training.storyworld import RECIPES

PROMPTS = 200  # how many stories are sampled
CARD = """\
# The village's language models

Three small Llama-type models that tell stories of `tutorlib.storyworld`, made for this book and shipped with it. They
know one village, a few hundred English words and nothing else. Licence: MIT. No data but the simulation's own was
used.

Made by `{command}` (seeded; the same machine, versions and number of threads give the same weights). Training stories
have seeds "train …", everything below was measured on held-out stories, from the shipped half-precision files.

| | {names} |
|---|{rule}
{rows}

Questions are answered greedily, right before the answer; 100 of each topic. Sentences are those of {prompts} stories
sampled at temperature 1 from held-out openings, as `storyworld.check` judges them. Acceptance is the mean over
positions of Σ min(p, q) of the target and the draft, on the target's own stories.
"""


def measure(folder):
    """Figures of the models in `folder`, by name.

    Parameters
    ----------
    folder : path
        With a subfolder a model, as `storyworld.make` writes them.

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
        told = accuracy.stories(model, tokenizer, prompts=PROMPTS)
        figures[name] = {
            **{f"{topic}, right": share for topic, share in accuracy.answers(model, tokenizer).items()},
            **accuracy.judge(told, tokenizer),
        }
        if name == "target":
            target, targets_stories = model, told
        elif name == "draft" and target is not None:
            figures[name]["acceptance"] = accuracy.agreement(target, model, targets_stories)
    return figures


def write_card(folder, command="python -m tutorlib.training storyworld"):
    """Writes ``MODEL_CARD.md`` and ``checksums.json`` for the models in `folder`."""
    folder = Path(folder)
    measured = measure(folder)
    columns = {}
    for name, figures in measured.items():
        recipe, log = RECIPES[name], json.loads((folder / name / "training_log.json").read_text())
        columns[name] = {
            "layers × width": f"{recipe.stages[-1].layers} × {recipe.width}",
            "vocabulary": recipe.vocab_size,
            "tokenizer seed": recipe.tokenizer_seed,
            "stages": "; ".join(
                f"{stage.layers} layer{'s' if stage.layers > 1 else ''}, {stage.steps} steps × {stage.rows} stories"
                + (f", the first {stage.drill} drills, {stage.hinted} hinted" if stage.drill else "")
                for stage in recipe.stages
            ),
            "weights": f"mean of the last {recipe.averaged} stages'" if recipe.averaged > 1 else "the last stage's",
            "loss at the end": log[-1]["loss"],
            "wall time": f"{_minutes(log):.0f} min",
            **figures,
        }
    rows = list(dict.fromkeys(row for column in columns.values() for row in column))
    table = "\n".join(
        f"| {row} | " + " | ".join(str(column.get(row, "–")) for column in columns.values()) + " |" for row in rows
    )
    (folder / "MODEL_CARD.md").write_text(
        CARD.format(command=command, names=" | ".join(columns), rule="---|" * len(columns), rows=table, prompts=PROMPTS)
    )
    (folder / "figures.json").write_text(json.dumps(measured, indent=1) + "\n")
    write_checksums(folder)


def _minutes(log):
    """Wall time of all stages: a stage's clock starts at zero, and its last entry is where the steps begin anew."""
    ends = [entry for entry, after in zip(log, [*log[1:], {"step": 0}]) if after["step"] <= entry["step"]]
    return sum(entry["seconds"] for entry in ends) / 60
