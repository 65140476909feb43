"""A sweep of chapter 21: how small should a draft be? Drafts of several sizes for the bundled target.

Each draft is trained on the village's stories with the target's tokenizer, as the bundled draft was (`training`). The
sweep measures how often a draft is accepted, which does not depend on the machine. The cost of a draft call does, so
the chapter measures it on the machine where it runs.

The drafts are not shipped. When a row is computed for the first time, its draft is trained and stored in
``runs/draft_sizes``: one or two layers take 5 to 20 minutes on one core, and three take about 40. The bundled draft and
the target itself need no training.
"""

from pathlib import Path
from types import SimpleNamespace

from ...model.lm import LM
from . import Experiment, Setting, bundled, speculative

SETTING: Setting = {"target": "storyworld target", "stories": 100}
# A row's name -> layers, width, and where the draft comes from.
SETTINGS = {
    "1 × 32": (1, 32, "trained"),
    "1 × 64": (1, 64, "trained"),
    "1 × 128": (1, 128, "bundled"),
    "2 × 128": (2, 128, "trained"),
    "3 × 192": (3, 192, "trained"),
    "12 × 192": (12, 192, "target"),
}
RUNS = Path("runs") / "draft_sizes"


def recipe(name: str):
    """How the draft of a row is trained: like the bundled draft, or, with three layers, like the target at first."""
    from ..training.train_village import ONE_LAYER, RECIPES, SHALLOW, Recipe, Stage

    layers, width, _ = SETTINGS[name]
    given = RECIPES["draft"]
    stage = SHALLOW if layers == SHALLOW.layers else Stage(layers, ONE_LAYER.steps, ONE_LAYER.rows)
    return Recipe(width, max(1, width // 32), given.vocab_size, given.tokenizer_seed, given.specials, (stage,))


def draft(name: str, *, progress: bool = True) -> LM:
    """The draft of a row, on the CPU. It is trained now if it is not bundled and was not trained before."""
    _, _, what = SETTINGS[name]
    if what != "trained":
        return bundled().target if what == "target" else bundled().draft
    from ..training.train_village import fit_recipe

    model, tokenizer, _ = fit_recipe(recipe(name), RUNS / name.replace(" × ", "x"), compiled=True, progress=progress)
    model.config._attn_implementation = "sdpa"
    return LM(model.float().eval(), tokenizer)


def row(family, name: str) -> dict:
    """The figures of one draft; about twenty seconds on one core, once it is trained.

    Returns
    -------
    dict
        - ``layers``, ``width``, ``parameters``: the draft's size; a weight that is used twice counts once;
        - ``share``: its number of parameters divided by the target's;
        - ``acceptance``: mean of Σ min(p, q) over the tokens of the village's own stories, at temperature 1;
        - ``acceptance_greedy``: how often both models' most likely tokens are the same there.
    """
    layers, width, _ = SETTINGS[name]
    lm, small = family.target, draft(name)
    pair = SimpleNamespace(target=lm, draft=small)
    parameters = sum(weight.numel() for weight in small.model.parameters())
    return {
        "layers": layers,
        "width": width,
        "parameters": parameters,
        "share": parameters / sum(weight.numel() for weight in lm.model.parameters()),
        "acceptance": speculative.row(pair, "temperature 1")["acceptance"],
        "acceptance_greedy": speculative.row(pair, "greedy")["acceptance"],
    }


EXPERIMENT = Experiment("draft_sizes", SETTING, SETTINGS, row)
