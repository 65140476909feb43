"""The sweep of the chapter on checking drafts: how many tokens each rule keeps of the bundled draft's chains.

Two rules use their random draws in different ways and so write different texts, although all texts have the same
distribution. Their rows differ by chance too: hence the intervals.
"""

from typing import Any

from ...decoders.speculative import speculative
from ...drafting.rules import block, match, match_drawn, ratio
from ...running.decoding import run
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature
from . import PAIR, Experiment, Setting, counts, per_call_interval, village_prompts

SETTING: Setting = {**PAIR, "prompts": 400, "tokens": 96, "temperature": 1.0}
RULES = {rule.__name__: rule for rule in (match_drawn, match, ratio, block)}
GAMMAS = (2, 4, 8, 16)
# A row's name -> its rule and its γ.
SETTINGS = {f"{name}, γ = {gamma}": (name, gamma) for name in RULES for gamma in GAMMAS}


def row(family, name: str) -> dict:
    """The figures of one rule and one γ; about a minute on one core.

    Returns
    -------
    dict
        ``rule``, ``gamma``; ``tokens`` and ``calls``, of all texts together; ``per_call``, the tokens that a call of
        the target gives, with its ``per_call_interval``, 95 % from resampling the texts.
    """
    rule, gamma = SETTINGS[name]
    how: dict[str, Any] = {"gamma": gamma, "rule": RULES[rule], "warp": [temperature(SETTING["temperature"])]}
    traces = [
        run(
            speculative(family.target, family.draft, prompt, rng=Seeded(number), **how),
            SETTING["tokens"],
            stop=(),
            progress=False,
        )
        for number, prompt in enumerate(village_prompts(SETTING["prompts"]))
    ]
    return {"rule": rule, "gamma": gamma, **counts(traces), "per_call_interval": per_call_interval(traces)}


EXPERIMENT = Experiment("rules", SETTING, SETTINGS, row)
