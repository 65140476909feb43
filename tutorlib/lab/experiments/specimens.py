"""A sweep of chapter 11: what some mistakes of the zoo do to stories, compared with correct methods.

The bundled pair draws story i with ``Seeded(i)``, without a warp.
"""

from functools import cache

from ... import storyworld
from ...course import zoo
from ...decoders.sample import sample
from ...decoders.speculative import speculative
from ...running.decoding import run
from ...sampling.randomness import Seeded
from . import PAIR, Experiment, Setting, figures, village_prompts

SETTING: Setting = {**PAIR, "prompts": 100, "tokens": 60, "gamma": 4}
LESSONS = 24  # number of stories on which the feature predictor is trained
MISTAKES = (
    zoo.rows_one_late,
    zoo.inverted_coin,
    zoo.resample_from_target,
    zoo.fixed_threshold,
    zoo.score_only,
    zoo.greedy_drafts,
    zoo.rollback_too_short,
    zoo.forgets_at_least_one,
    zoo.lagging_draft,
)


def _with_gamma(method):
    return lambda target, draft, prompt, rng: method(target, draft, prompt, gamma=SETTING["gamma"], rng=rng)


@cache
def trained_predictor(lm):
    """`zoo.feature_predictor` for a model of the village: a few seconds on one core."""
    return zoo.feature_predictor(lm, [storyworld.story(f"chapter 8, lesson {number}") for number in range(LESSONS)])


def _with_prediction(target, draft, prompt, rng):
    predict, _ = trained_predictor(target)
    return zoo.mixed_with_prediction(target, draft, prompt, gamma=SETTING["gamma"], rng=rng, predict=predict)


# A row's name -> a function (target, draft, prompt, rng) -> steps.
SETTINGS = {
    "target alone": lambda target, draft, prompt, rng: sample(target, prompt, rng=rng),
    "draft alone": lambda target, draft, prompt, rng: sample(draft, prompt, rng=rng),
    "speculative": _with_gamma(speculative),
    **{method.__name__: _with_gamma(method) for method in MISTAKES},
    "mixed_with_prediction": _with_prediction,
}


def row(family, name: str) -> dict:
    """The figures of one decoder; half a minute to a minute on one core.

    Returns
    -------
    dict
        ``"readable"``, ``"consistent"`` and their intervals, ``"perplexity"`` under the target, as in `figures`;
        ``"tokens"``, ``"target_calls"``.
    """
    lm, prompts = family.target, village_prompts(SETTING["prompts"])
    calls, traces = lm.calls, []
    for number, prompt in enumerate(prompts):
        steps = SETTINGS[name](lm, family.draft, prompt, Seeded(number))
        traces.append(run(steps, SETTING["tokens"], progress=False))
    calls = lm.calls - calls
    found = figures(lm, prompts, traces)
    keys = ("sentences", "readable", "readable_interval", "consistent", "consistent_interval", "perplexity")
    return {
        **{key: found[key] for key in keys},
        "tokens": sum(len(trace.tokens) for trace in traces),
        "target_calls": calls,
    }


EXPERIMENT = Experiment("specimens", SETTING, SETTINGS, row)
