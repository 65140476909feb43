"""The sweep of the chapter on checking drafts: what rules that are not exact gain, and what they do to the stories."""

from collections.abc import Callable

from ...decoders.speculative import speculative
from ...drafting.lossy_rules import above, alike, ensemble
from ...drafting.rules import ChainRule, ratio
from ...running.decoding import run
from ...sampling.randomness import Seeded
from . import PAIR, Experiment, Setting, counts, figures, per_call_interval, village_prompts

SETTING: Setting = {**PAIR, "prompts": 100, "tokens": 60, "gamma": 4}


def same_kind(lm) -> Callable[[int, int], float]:
    """A judge that looks at the target's own vectors of two tokens: their cosine."""
    vectors = lm.model.get_input_embeddings().weight.detach()
    vectors = vectors / vectors.norm(dim=-1, keepdim=True)
    return lambda drafted, own: float(vectors[drafted] @ vectors[own])


# A row's name -> its rule; None for the judge, which needs the target's vectors.
SETTINGS: dict[str, ChainRule | None] = {
    "ratio": ratio,
    **{f"ensemble({weight})": ensemble(weight) for weight in (0.75, 0.5, 0.25)},
    **{f"above({least})": above(least) for least in (0.3, 0.1, 0.03)},
    "alike(cosine, 0.3)": None,
}


def row(family, name: str) -> dict:
    """The figures of one rule; about half a minute on one core.

    Returns
    -------
    dict
        ``per_call``, the tokens that a call of the target gives, with its ``per_call_interval``, 95 % from resampling;
        ``readable``, ``consistent`` and ``consistent_interval`` of the stories, as in `experiments.figures`.
    """
    prompts, rule = village_prompts(SETTING["prompts"]), SETTINGS[name] or alike(same_kind(family.target), 0.3)
    traces = [
        run(
            speculative(
                family.target, family.draft, prompt, gamma=SETTING["gamma"], rule=rule, rng=Seeded(number)
            ),
            SETTING["tokens"],
            progress=False,
        )
        for number, prompt in enumerate(prompts)
    ]  # fmt: skip
    quality = figures(family.target, prompts, traces)
    return {
        "per_call": counts(traces)["per_call"],
        "per_call_interval": per_call_interval(traces),
        **{key: quality[key] for key in ("readable", "consistent", "consistent_interval")},
    }


EXPERIMENT = Experiment("lossy", SETTING, SETTINGS, row)
