"""The sweep of chapter 5: all filters from weak to strong, and what they do to the truth and the variety of stories.

In each row, the bundled target continues the same openings with another warp. Story i is drawn with ``Seeded(i)`` in
every row, so all rows share their random numbers. The figures are explained in `experiments.figures`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from ... import measures
from ...decoders.sample_batch import sample_batch
from ...running.decoding import run_batch
from ...running.trace import Trace
from ...sampling.randomness import Seeded
from ...sampling.warp import Warp, min_p, one_hot, temperature, top_k, top_p, typical
from ...storyworld import check
from . import Experiment, Setting, figures, village_prompts

UNREADABLE = "unreadable"
SETTING: Setting = {"prompts": 100, "tokens": 60, "side_by_side": 20}

# The settings of each filter, from weak to strong.
GRID: dict[str, tuple[Callable[..., Warp], Sequence[float]]] = {
    "temperature": (temperature, (1.5, 1.2, 0.8, 0.6, 0.4, 0.2)),
    "top-k": (top_k, (40, 10, 5, 3, 2, 1)),
    "top-p": (top_p, (0.95, 0.9, 0.8, 0.7, 0.5, 0.3)),
    "min-p": (min_p, (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)),
    "typical": (typical, (0.95, 0.9, 0.8, 0.6, 0.4, 0.2)),
}

# A row's name -> its warps. In the last three, a filter comes after a high temperature.
SETTINGS = {
    "plain sampling": (),
    "greedy": (one_hot,),
    **{f"{name} {value:g}": (make(value),) for name, (make, values) in GRID.items() for value in values},
    "temperature 1.5, top-k 10": (temperature(1.5), top_k(10)),
    "temperature 1.5, top-p 0.9": (temperature(1.5), top_p(0.9)),
    "temperature 1.5, min-p 0.1": (temperature(1.5), min_p(0.1)),
}


def in_groups(write, prompts) -> list:
    """The texts of ``write(prompts, numbers)``, called with groups of prompts and their numbers."""
    size, texts = SETTING["side_by_side"], []
    for start in range(0, len(prompts), size):
        group = prompts[start : start + size]
        texts += write(group, range(start, start + len(group)))
    return texts


def sampled(lm, prompts, numbers, *, warp=(), greedy=False) -> list[Trace]:
    """Texts of one model, sampled or greedy."""
    rngs = None if greedy else [Seeded(number) for number in numbers]
    return run_batch(sample_batch(lm, prompts, rngs=rngs, warp=warp), SETTING["tokens"], progress=False)


def kinds_of_sentences(prompts, texts) -> dict:
    """``kinds``: the number of different kinds of sentences; ``commonest_kinds``: the three most common ones, each with
    its share of all added sentences. The kinds are those that `storyworld.check` reads; what it cannot read is one too.
    """
    added = (check(prompt + text.text)[len(check(prompt)) :] for prompt, text in zip(prompts, texts))
    kinds = Counter(verdict.kind or UNREADABLE for verdicts in added for verdict in verdicts)
    return {
        "kinds": len(kinds.keys() - {UNREADABLE}),
        "commonest_kinds": {kind: count / kinds.total() for kind, count in kinds.most_common(3)},
    }


def row(family, name: str) -> dict:
    """The figures of one row: `experiments.figures`, and the variety within each story.

    About 6,000 tokens of the bundled target, 20 stories at a time: some seconds on one core.

    Returns
    -------
    dict
        The figures of `experiments.figures`; ``distinct_2_within``: distinct-2 of each story separately, averaged over
        the stories, with its ``distinct_2_within_interval``; and those of `kinds_of_sentences`.
    """
    lm, prompts = family.target, village_prompts(SETTING["prompts"])
    texts = in_groups(partial(sampled, lm, warp=SETTINGS[name]), prompts)
    within = [measures.distinct_n([text.tokens], 2) for text in texts if len(text.tokens) > 1]
    return {
        **figures(lm, prompts, texts),
        "distinct_2_within": fmean(within),
        "distinct_2_within_interval": measures.bootstrap_interval(within),
        **kinds_of_sentences(prompts, texts),
    }


EXPERIMENT = Experiment("sampling", SETTING, SETTINGS, row)
