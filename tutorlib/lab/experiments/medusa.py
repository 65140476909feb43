"""The sweep of chapter 15: tokens per call by the size of the tree, and what typical acceptance does to the text.

Trees are grown from the accuracies that are stored with the bundled heads. Random draws for text i use ``Seeded(i)``.
The prompts are those of the benchmark, after which the target does not repeat itself. Nothing is timed here.

The distance of a lossy rule from the target is measured position by position. If the rule accepts a token x, this token
comes with probability 1, but plain sampling would draw it with probability p(x). So the total variation of the two
distributions at this position is 1 - p(x). If a token was drawn from the target, it is 0.
"""

import math

from ...decoders.medusa import medusa
from ...drafting.checking import exact
from ...drafting.choices import grow
from ...drafting.lossy_rules import typical_acceptance
from ...model.tree import ROOT
from ...running.decoding import run
from ...sampling.randomness import Seeded
from ..bench import story_prompts
from . import Experiment, Setting, counts, figures

SIZES = (1, 2, 4, 8, 16, 32, 64)
EPSILONS = (0.01, 0.03, 0.09, 0.2, 0.4)  # with δ = √ε, as the authors chose it
SETTING: Setting = {
    "target": "storyworld target",
    "heads": "storyworld medusa",
    "texts": "beginnings of stories",
    "prompts": 24,
    "quality_prompts": 60,
    "tokens": 60,
    "nodes": 16,
}


def rule_name(epsilon: float) -> str:
    """The name of the row of typical acceptance with this ε and δ = √ε."""
    return f"typical {epsilon:g}"


# A row's name -> (nodes, rule, whether tokens are sampled, whether the texts are judged too).
SETTINGS = {
    **{f"greedy, {nodes} nodes": (nodes, exact, False, False) for nodes in SIZES},
    **{f"sampling, {nodes} nodes": (nodes, exact, True, False) for nodes in SIZES},
    "greedy": (SETTING["nodes"], exact, False, True),
    "exact": (SETTING["nodes"], exact, True, True),
    **{
        rule_name(epsilon): (SETTING["nodes"], typical_acceptance(epsilon, math.sqrt(epsilon)), True, True)
        for epsilon in EPSILONS
    },
    "typical, swapped": (SETTING["nodes"], typical_acceptance(0.3, 0.09), True, True),
}


class RecordedRule:
    """A rule of acceptance that records, for each token, how far its distribution is from the target's.

    Parameters
    ----------
    rule : function
        `exact` or another rule of `tutorlib.drafting.checking`.

    Attributes
    ----------
    distances : list of float
        Total variation at each position: 0 if the token was drawn from the target, 1 - p(x) if a lossy rule accepted
        it.
    """

    def __init__(self, rule):
        self.rule, self.distances = rule, []

    def __call__(self, tree, probs_at, rng):
        path, token = self.rule(tree, probs_at, rng)
        for above, node in zip((ROOT, *path), path):
            bound = 0.0 if self.rule is exact else 1 - float(probs_at(above)[tree.tokens[node]])
            self.distances.append(bound)
        self.distances.append(0.0)
        return path, token


def row(family, name: str) -> dict:
    """The figures of one row: about ten seconds on one core, a minute if the texts are judged.

    Returns
    -------
    dict
        ``tokens``, ``calls`` of the target (including those for prompts) and ``per_call``, tokens per call;
        ``accepted``, the mean number of candidates accepted in a step with a tree. If texts are judged, also
        ``distance``, the total variation from the target averaged over positions, and what `figures` gives.
    """
    lm, heads = family.target, family.medusa
    nodes, rule, drawn, judged = SETTINGS[name]
    prompts = story_prompts(lm, SETTING["quality_prompts" if judged else "prompts"])
    choices, watched = grow(heads.accuracies, nodes), RecordedRule(rule)
    traces = []
    for i, prompt in enumerate(prompts):
        steps = medusa(lm, heads, prompt, shape=choices, rule=watched, rng=Seeded(i) if drawn else None)
        traces.append(run(steps, SETTING["tokens"], progress=False))
    drafting = [step.accepted for trace in traces for step in trace.steps if step.drafted]
    found = {**counts(traces), "accepted": sum(drafting) / len(drafting)}
    if judged:
        # The last step of a text is cut to fit. The tokens cut off count here too, because they came about in the same
        # way.
        found["distance"] = math.fsum(watched.distances) / len(watched.distances)
        found |= figures(lm, prompts, traces)
    return found


EXPERIMENT = Experiment("medusa", SETTING, SETTINGS, row)
