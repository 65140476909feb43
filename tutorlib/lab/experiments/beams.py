"""More beams and other length penalties: how likely, long, repetitive and true the village stories become."""

from statistics import fmean

from ...decoders.beam_search import beam_search
from ...running.decoding import run
from . import Experiment, Setting, figures, village_prompts

SETTING: Setting = {"model": "storyworld target", "prompts": 40, "max_new_tokens": 160}

# Row name -> (beams, length_penalty).
SETTINGS = {
    f"{beams} beams, length_penalty {penalty:g}": (beams, penalty)
    for beams, penalty in (
        *((beams, penalty) for penalty in (0, 1) for beams in (1, 2, 4, 8, 16)),
        *((4, penalty) for penalty in (-1, 0.5, 1.5, 2, 3)),
    )
}


def row(family, name: str) -> dict:
    """The figures of one row: those of `tutorlib.lab.experiments.figures`, and three more.

    - ``log_prob``: Σ log p of the winner, including the stop token, averaged over openings;
    - ``log_prob_per_token``: the winner's mean log p per token, averaged over openings;
    - ``empty``: how many winners consist of nothing but the stop token.
    """
    lm, (beams, penalty) = family.target, SETTINGS[name]
    prompts = village_prompts(SETTING["prompts"])
    options = {"beams": beams, "max_new_tokens": SETTING["max_new_tokens"], "length_penalty": penalty}
    traces = [run(beam_search(lm, prompt, **options), progress=False) for prompt in prompts]
    sums = [trace.steps[-1].score * len(trace.tokens) ** penalty for trace in traces]
    return figures(lm, prompts, traces) | {
        "log_prob": round(fmean(sums), 2),
        "log_prob_per_token": round(fmean(total / len(trace.tokens) for total, trace in zip(sums, traces)), 3),
        "empty": sum(not trace.text for trace in traces),
    }


EXPERIMENT = Experiment("beams", SETTING, SETTINGS, row)
