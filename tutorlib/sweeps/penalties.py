"""What penalties for repetition do to village stories: how much they repeat themselves, and how much of them is true.

Each penalty in several strengths, once with greedy choices and once with sampling, from the same openings.
"""

from ..randomness import Greedy, Seeded
from ..warp import frequency_penalty, no_repeat_ngram, presence_penalty, repetition_penalty
from . import figures, sample_side_by_side, village_prompts

SETTING = {"model": "storyworld target", "prompts": 100, "max_new_tokens": 60, "sample_seed": 5}


def _penalties() -> dict:
    """Row names, without how it is chosen, and for each a function from the prompt's length to a warp."""
    found = {"no penalty": lambda length: []}
    for theta in (1.05, 1.1, 1.2, 1.3, 1.5, 2):
        found[f"repetition_penalty {theta:g}"] = lambda length, theta=theta: [repetition_penalty(theta)]
    for theta in (1.05, 1.1, 1.2, 1.3, 1.5, 2):
        found[f"repetition_penalty {theta:g}, new only"] = lambda length, theta=theta: [
            repetition_penalty(theta, ignore_first=length)
        ]
    for strength in (0.1, 0.2, 0.5, 1, 2, 4):
        found[f"frequency_penalty {strength:g}, new only"] = lambda length, strength=strength: [
            frequency_penalty(strength, ignore_first=length)
        ]
    for strength in (0.2, 0.5, 1, 2, 4, 8):
        found[f"presence_penalty {strength:g}, new only"] = lambda length, strength=strength: [
            presence_penalty(strength, ignore_first=length)
        ]
    for n in (12, 8, 6, 5, 4, 3):
        found[f"no_repeat_ngram {n}"] = lambda length, n=n: [no_repeat_ngram(n)]
    return found


# "greedy, no penalty" … "sample, no_repeat_ngram 3": how it is chosen, and the penalty. "new only": the prompt's tokens
# do not count, as in an API that penalises what it has generated. Penalties without it count the prompt, too.
SETTINGS = {f"{way}, {name}": (way, make) for way in ("greedy", "sample") for name, make in _penalties().items()}


def row(lm, name: str) -> dict:
    """The figures of one row, as `tutorlib.sweeps.figures` has them."""
    way, make = SETTINGS[name]
    prompts = village_prompts(SETTING["prompts"])
    rngs = [Greedy() if way == "greedy" else Seeded(SETTING["sample_seed"] + i) for i in range(len(prompts))]
    warps = [make(len(lm.encode(prompt))) for prompt in prompts]
    return figures(lm, prompts, sample_side_by_side(lm, prompts, rngs, warps, SETTING["max_new_tokens"]))
