"""What penalties for repetition do to village stories: how repetitive the stories are, and how much of them is true.

Each penalty is used in several strengths, in greedy decoding and in sampling, after the same openings.
"""

from collections.abc import Callable, Sequence

from ...decoders.sample_batch import sample_batch
from ...running.decoding import run_batch
from ...sampling.penalties import frequency_penalty, no_repeat_ngram, presence_penalty, repetition_penalty
from ...sampling.randomness import Seeded
from ...sampling.warp import Warp
from . import Experiment, Setting, figures, village_prompts

SETTING: Setting = {"model": "storyworld target", "prompts": 100, "max_new_tokens": 60, "sample_seed": 5}


# Kinds of penalties: a function from a strength to a warp, whether only new tokens count (as in an API that penalises
# only the tokens that it has generated; otherwise the prompt's tokens count too), and the strengths.
KINDS: dict[str, tuple[Callable[..., Warp], bool, Sequence[float]]] = {
    "repetition_penalty": (repetition_penalty, False, (1.05, 1.1, 1.2, 1.3, 1.5, 2)),
    "repetition_penalty, new only": (repetition_penalty, True, (1.05, 1.1, 1.2, 1.3, 1.5, 2)),
    "frequency_penalty, new only": (frequency_penalty, True, (0.1, 0.2, 0.5, 1, 2, 4)),
    "presence_penalty, new only": (presence_penalty, True, (0.2, 0.5, 1, 2, 4, 8)),
    "no_repeat_ngram": (no_repeat_ngram, False, (12, 8, 6, 5, 4, 3)),
}


def _penalties() -> dict:
    """Row names, without the way of choosing tokens, and for each its warp and whether only new tokens count."""
    found = {"no penalty": ([], False)}
    for kind, (make, new_only, strengths) in KINDS.items():
        name, *rest = kind.split(",")
        found |= {",".join([f"{name} {value:g}", *rest]): ([make(value)], new_only) for value in strengths}
    return found


# "greedy, no penalty" … "sample, no_repeat_ngram 3": how tokens are chosen, and the penalty.
SETTINGS = {f"{way}, {name}": (way, *penalty) for way in ("greedy", "sample") for name, penalty in _penalties().items()}


def after_prompts(warp: Sequence[Warp], prompts: Sequence[Sequence[int]]) -> list[Warp]:
    """Warps that see only the part of each history after its prompt. No prompt may begin with another prompt."""
    begun = {tuple(prompt) for prompt in prompts}
    lengths = {len(prompt) for prompt in begun}

    def new_only(history):
        return next(history[length:] for length in lengths if tuple(history[:length]) in begun)

    def of_new_tokens(one: Warp) -> Warp:
        return lambda logits, histories: one(logits, [*map(new_only, histories or ())])

    return [of_new_tokens(one) for one in warp]


def row(family, name: str) -> dict:
    """The figures of one row, as in `tutorlib.lab.experiments.figures`."""
    lm, (way, warp, new_only) = family.target, SETTINGS[name]
    prompts = village_prompts(SETTING["prompts"])
    rngs = None if way == "greedy" else [Seeded(SETTING["sample_seed"] + i) for i in range(len(prompts))]
    warp = after_prompts(warp, [lm.encode(prompt) for prompt in prompts]) if new_only else warp
    rounds = sample_batch(lm, prompts, rngs=rngs, warp=warp)
    return figures(lm, prompts, run_batch(rounds, SETTING["max_new_tokens"], progress=False))


EXPERIMENT = Experiment("penalties", SETTING, SETTINGS, row)
