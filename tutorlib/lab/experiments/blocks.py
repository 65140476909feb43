"""The sweep of the chapter on blocks: what is accepted of drafts that were made in one pass, and of those made in many.

A block's guesses do not know each other, and a chain's do. So what is accepted is counted position by position: of the
drafts whose tokens before a position were all accepted, the share whose token there was accepted, too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...decoders.dflash import dflash
from ...decoders.eagle import eagle
from ...decoders.mtp import mtp
from ...decoders.parallel_draft import parallel_draft
from ...decoders.speculative import speculative
from ...drafting.draft_trees import chain_draft, drawn_chain
from ...measures import bootstrap_interval
from ...running.decoding import run
from ...running.trace import Trace
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature
from . import PAIR, Experiment, Setting, counts, per_call_interval, village_prompts

LENGTH = 8  # tokens of a chain; the bundled network's block has as many masks
SETTING: Setting = {**PAIR, "prompts": 100, "tokens": 96, "length": LENGTH}
GREEDY, SAMPLING = "greedy", "temperature 1"


def chain_shape(is_greedy: bool):
    return chain_draft(LENGTH) if is_greedy else drawn_chain(LENGTH)


# A way to draft -> a function of the family, whether it is greedy, the prompt, and the draws.
WAYS: dict[str, Callable[..., Any]] = {
    "draft model, chain": lambda f, is_greedy, prompt, **how: speculative(
        f.target, f.draft, prompt, gamma=LENGTH, **how
    ),
    "EAGLE-3, chain": lambda f, is_greedy, prompt, **how: eagle(
        f.target, f.eagle3, prompt, shape=chain_shape(is_greedy), **how
    ),
    "EAGLE-3, tree": lambda f, is_greedy, prompt, **how: eagle(f.target, f.eagle3, prompt, **how),
    "DFlash, chain": lambda f, is_greedy, prompt, **how: dflash(
        f.target, f.dflash, prompt, shape=chain_shape(is_greedy), **how
    ),
    "DFlash, tree": lambda f, is_greedy, prompt, **how: dflash(f.target, f.dflash, prompt, **how),
    "MTP, chain": lambda f, is_greedy, prompt, **how: mtp(f.target, f.mtp, prompt, shape=chain_shape(is_greedy), **how),
    "MTP, tree": lambda f, is_greedy, prompt, **how: mtp(f.target, f.mtp, prompt, **how),
    "masks, chain": lambda f, is_greedy, prompt, **how: parallel_draft(
        f.target, f.parallel, prompt, shape=chain_shape(is_greedy), **how
    ),
}
SETTINGS = {f"{way}, {how}": (way, how) for way in WAYS for how in (GREEDY, SAMPLING)}


def row(family, name: str) -> dict:
    """The figures of one way to draft; up to a minute on one core.

    Returns
    -------
    dict
        ``way``, ``how``; ``tokens``, ``calls``, ``per_call`` and ``per_call_interval``, as in the sweep of rules;
        ``width``, the tokens of a target call after the first of a text, on average; ``levels``, how deep a draft is on
        average. For chains also ``accepted``, the share at each position, with ``intervals``, 95 % from resampling the
        texts.
    """
    way, how = SETTINGS[name]

    def steps(prompt, **draws):
        return WAYS[way](family, how == GREEDY, prompt, **draws)

    traces = written(steps, how)
    found = {"way": way, "how": how, **drafted(traces)}
    return found if way.endswith("tree") else found | by_position(traces)


def written(steps, how: str, prompts: int = SETTING["prompts"]) -> list[Trace]:
    """The texts after so many prompts; ``steps(prompt, **draws)`` decodes one."""
    traces = []
    for number, prompt in enumerate(village_prompts(prompts)):
        draws: dict[str, Any] = {} if how == GREEDY else {"rng": Seeded(number), "warp": [temperature(1.0)]}
        traces.append(run(steps(prompt, **draws), SETTING["tokens"], stop=(), progress=False))
    return traces


def drafted(traces: Sequence[Trace]) -> dict:
    """The tokens of a call, and how large a draft is on average."""
    drafts = [step for trace in traces for step in trace.steps[1:]]
    depths = [1 + max(step.tree.depths) if step.tree else len(step.drafted) for step in drafts]
    return {
        **counts(traces), "per_call_interval": per_call_interval(traces),
        "width": sum(1 + len(step.drafted) for step in drafts) / len(drafts), "levels": sum(depths) / len(depths),
    }  # fmt: skip


def by_position(traces) -> dict[str, list]:
    """The share of tokens accepted at each position of a chain, among those that were checked there."""
    shares, intervals = [], []
    for position in range(LENGTH):
        pairs = [
            [
                sum(step.accepted > position for step in trace.steps),
                sum(step.checked > position for step in trace.steps),
            ]
            for trace in traces
        ]
        kept, checked = zip(*pairs, strict=True)
        shares.append(sum(kept) / sum(checked) if sum(checked) else None)
        intervals.append(list(bootstrap_interval(kept, checked)))
    return {"accepted": shares, "intervals": intervals}


EXPERIMENT = Experiment("blocks", SETTING, SETTINGS, row)
