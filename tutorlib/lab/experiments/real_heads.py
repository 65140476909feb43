"""The sweep of chapters 15 to 17 on a published model: tokens per call with the heads trained for SmolLM2.

The prompts are those of the bench, two of each kind, in the chat format. Every network was trained on other prompts.
Sampling draws from the target's own distribution (temperature 1), seeded for each prompt. Nothing is timed here.
"""

from functools import partial
from statistics import fmean

import torch

from ...decoders.eagle import eagle
from ...decoders.medusa import medusa
from ...drafting.choices import grow
from ...drafting.draft_trees import drawn_tree, dynamic_tree, static_tree
from ...drafting.lossy_rules import typical_acceptance
from ...running.decoding import run
from ...sampling.randomness import Seeded
from ..bench import chat_prompts
from . import Experiment, Setting, counts

LEVELS = 4  # accepted candidates are counted up to this number
SETTING: Setting = {
    "model": "SmolLM2-135M-Instruct",
    "prompts": 2,  # of each kind
    "tokens": 40,
    # How often the guess of each rank of a network with less training was right, averaged over three steps.
    "by_rank": [0.34, 0.11, 0.06, 0.04, 0.03, 0.03],
}


def _fixed(make, nodes):
    """A tree of fixed shape, grown as if the guesses of a rank were right equally often at each level."""
    return make(grow([SETTING["by_rank"]] * 6, nodes))


def _medusa(family, prompt, rng, nodes, **rule):
    heads = family.medusa
    return medusa(family.target, heads, prompt, shape=grow(heads.accuracies, nodes), rng=rng, **rule)


def _eagle(family, prompt, rng, shape):
    return eagle(family.target, family.eagle3, prompt, shape=shape, rng=rng)


# A row's name -> (the decoder (family, prompt, rng) that writes it, whether tokens are sampled).
SETTINGS = {
    **{f"Medusa, {way}, {nodes} nodes": (partial(_medusa, nodes=nodes), way == "sampling")
       for way in ("greedy", "sampling") for nodes in (4, 16)},
    "Medusa, typical, 16 nodes": (partial(_medusa, nodes=16, rule=typical_acceptance(0.09, 0.3)), True),
    **{f"{name}, {way}, {nodes} nodes": (partial(_eagle, shape=make(nodes)), way == "sampling")
       for name, make, ways in (
           ("fixed tree", partial(_fixed, static_tree), ("greedy", "sampling")),
           ("dynamic tree", lambda nodes: dynamic_tree(nodes, 6, 6), ("greedy", "sampling")),
           ("drawn tree", partial(_fixed, drawn_tree), ("sampling",)),
       ) for way in ways for nodes in (4, 16)},
}  # fmt: skip


def row(family, name: str, kinds=None) -> dict:
    """The figures of one row: a minute or two on one core.

    Parameters
    ----------
    family : Family
        Has the target, the heads and the chat format.
    name : str
        A key of `SETTINGS`.
    kinds : sequence of str, optional
        Only the prompts of these kinds; by default all six.

    Returns
    -------
    dict
        ``tokens``, ``calls`` of the target (including those for prompts) and ``per_call``, tokens per call; ``kinds``,
        tokens per call for each kind of prompt; ``levels``: the share of the steps with a tree in which at least 1, 2,
        3 and 4 candidates were accepted; ``unknown``: for each kind, the share of written tokens that the heads do not
        know.
    """
    steps_of, drawn = SETTINGS[name]
    known = (family.medusa.token_map if name.startswith("Medusa") else family.eagle3.tokens).cpu()
    traces = {}
    for number, (kind, prompts) in enumerate(chat_prompts(family, SETTING["prompts"]).items()):
        if kinds is None or kind in kinds:
            rngs = [Seeded(10 * number + i) if drawn else None for i in range(len(prompts))]
            runs = [steps_of(family, prompt, rng) for prompt, rng in zip(prompts, rngs)]
            traces[kind] = [run(steps, SETTING["tokens"], progress=False) for steps in runs]
    every = [trace for some in traces.values() for trace in some]
    accepted = [step.accepted for trace in every for step in trace.steps if step.drafted]
    return {
        **counts(every),
        "kinds": {kind: counts(some)["per_call"] for kind, some in traces.items()},
        "levels": [fmean(count > level for count in accepted) for level in range(LEVELS)],
        "unknown": {kind: _unknown(some, known) for kind, some in traces.items()},
    }


def _unknown(traces, known) -> float:
    written = torch.tensor([token for trace in traces for token in trace.tokens])
    return 1 - fmean(torch.isin(written, known).tolist())


EXPERIMENT = Experiment("real_heads", SETTING, SETTINGS, row, "smollm2")
