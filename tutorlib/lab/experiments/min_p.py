"""The dispute about min-p, in the village: three ways to keep unlikely tokens out, each with eight settings to choose.

Settings are chosen on one half of the openings, and judged on the other half. `chosen` picks, for each way, the setting
with the most different pairs of tokens among those whose stories are true often enough.
"""

from collections.abc import Mapping

from ...decoders.sample_batch import sample_batch
from ...running.decoding import run_batch
from ...sampling.filters import min_p, top_p
from ...sampling.randomness import Seeded
from ...sampling.temperatures import temperature
from . import Experiment, Setting, figures, village_prompts

SETTING: Setting = {"model": "storyworld target", "prompts": 64, "max_new_tokens": 40, "seed": 11}
HOT = (1.0, 2.0)
# Each way has eight settings: a temperature, and a filter after it.
WAYS: dict[str, list[tuple[float, tuple[str, float] | None]]] = {
    "temperature alone": [(round(0.4 + 0.15 * step, 2), None) for step in range(8)],
    "top-p": [(t, ("top_p", p)) for t in HOT for p in (0.4, 0.6, 0.8, 0.95)],
    "min-p": [(t, ("min_p", p)) for t in HOT for p in (0.02, 0.05, 0.1, 0.3)],
}
ROWS = {
    f"{way}, temperature {t:g}" + (f", {setting[1]:g}" if setting else ""): (t, setting)
    for way, settings in WAYS.items()
    for t, setting in settings
}
FILTERS = {"top_p": top_p, "min_p": min_p}
KEPT = ("distinct_2", "readable", "consistent", "sentences", "perplexity")


def row(family, name: str) -> dict:
    """Figures of both halves of the openings; ``true`` is the share of sentences that are read and consistent."""
    lm, (t, setting) = family.target, ROWS[name]
    prompts = village_prompts(SETTING["prompts"])
    rngs = [Seeded(SETTING["seed"] + number) for number in range(len(prompts))]
    warp = [temperature(t), *([FILTERS[setting[0]](setting[1])] if setting else [])]
    traces = run_batch(sample_batch(lm, prompts, rngs=rngs, warp=warp), SETTING["max_new_tokens"], progress=False)
    halves = {}
    for half, part in (("tuning", slice(0, None, 2)), ("test", slice(1, None, 2))):
        found = figures(lm, prompts[part], traces[part])
        halves[half] = {key: found[key] for key in KEPT} | {"true": found["readable"] * found["consistent"]}
    return halves


def chosen(rows: Mapping[str, Mapping], least: float) -> dict[str, str | None]:
    """For each way, the row with the largest distinct_2 in the tuning half, of those with at least this ``true``."""
    best = {}
    for way in WAYS:
        fit = [name for name in rows if name.startswith(f"{way},") and rows[name]["tuning"]["true"] >= least]
        best[way] = max(fit, key=lambda name: rows[name]["tuning"]["distinct_2"], default=None)
    return best


EXPERIMENT = Experiment("min_p", SETTING, ROWS, row)
