"""The sweep of the chapter on joints: what a joint adds to a block's guesses, and how much of a draft to check.

The block network without its joint, the draft model and EAGLE-3 are rows of the sweep `blocks`, with the same prompts.
The row "sharing" also measures times. So its figures differ from machine to machine, and those in the file are of one.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...decoders.dflash import dflash
from ...decoders.dspark import dspark
from ...drafting.draft_trees import Draft, drawn_chain, dynamic_tree
from ...drafting.survival import shared_lengths
from . import Experiment, Setting, village_prompts
from .blocks import GREEDY, LENGTH, SAMPLING, by_position, chain_shape, drafted, written
from .blocks import SETTING as BLOCKS

NODES = (8, 32)
TEXTS = (1, 2, 4, 8, 16, 32, 64)  # that share a call
SETTING: Setting = {**BLOCKS, "tree_prompts": 25, "sharing_prompts": 40, "greedy_temperature": 0.3, "groups": 300}
HEADS: dict[str, tuple[Callable[..., Any], str]] = {
    "DFlash": (dflash, "dflash"),
    "DSpark": (dspark, "dspark"),
    "DFlash2": (dflash, "dflash2"),
}
ROWS: dict[str, Any] = {
    **{f"{way}, chain, {how}": (way, None, how) for way in ("DSpark", "DFlash2") for how in (GREEDY, SAMPLING)},
    **{
        f"{way}, {nodes} nodes, {how}": (way, nodes, how)
        for nodes in NODES for way in ("DFlash", "DSpark") for how in (GREEDY, SAMPLING)
    },
    "sharing": None,
}  # fmt: skip


def row(family, name: str) -> dict:
    """The figures of a row; up to a minute on one core.

    Returns
    -------
    dict
        As in `blocks`. For "sharing", see `sharing`.
    """
    if name == "sharing":
        return sharing(family)
    way, nodes, how = ROWS[name]
    method, head = HEADS[way]
    shape = chain_shape(how == GREEDY) if nodes is None else dynamic_tree(nodes, LENGTH, nodes, greedy_temperature=0.3)
    traces = written(
        lambda prompt, **draws: method(family.target, getattr(family, head), prompt, shape=shape, **draws),
        how,
        SETTING["prompts" if nodes is None else "tree_prompts"],
    )
    found = {"way": way, "how": how, **drafted(traces)}
    return found | by_position(traces) if nodes is None else found


def sharing(family) -> dict:
    """How fast a call is that checks the drafts of several texts, if more or less of each draft is checked.

    Whole chains are drawn and checked, and the chances that the joint predicted are noted. A shorter draft is accepted
    like the beginning of a whole one. So every length can be tried on the same drafts, for groups of texts that are
    drawn from all of them.

    Returns
    -------
    dict
        ``bins``: for predicted chances up to 0.2, 0.4, ... how many there were, their mean, and the share accepted.
        ``draft``, ``call``: milliseconds of a draft, and for each number of texts those of calls with some numbers of
        tokens. ``speed``: for each number of texts, times the plain loop's tokens a second, if 0, 1, 2, ... tokens of
        each draft are checked. ``chosen``: the same if `shared_lengths` chooses. ``length``: how many it checks.
    """
    noted: list[tuple[list[float], int]] = []

    def watching(draft: Draft):
        chances, grow = [draft.session.chances[0]], draft.grow

        def growing(tokens, parents):
            grow(tokens, parents)
            chances.append(draft.session.chances[0])

        draft.grow = growing  # type: ignore[method-assign]
        drafts.append(chances)
        return drawn_chain(LENGTH)(draft)

    drafts: list[list[float]] = []
    traces = written(
        lambda prompt, **draws: dspark(family.target, family.dspark, prompt, shape=watching, **draws),
        SAMPLING,
        SETTING["sharing_prompts"],
    )
    steps = [step for trace in traces for step in trace.steps[1:]]
    # A text's last draft may have been made in vain, after its last step.
    noted = [(row, step.accepted) for row, step in zip(drafts, steps, strict=False) if len(row) == LENGTH]
    pairs = [(chance, place < kept) for row, kept in noted for place, chance in enumerate(row[: kept + 1])]
    bins = []
    for top in range(1, 6):
        within = [pair for pair in pairs if top - 1 <= 5 * pair[0] < top]
        bins.append([len(within), *(sum(column) / max(1, len(within)) for column in zip(*within))])
    draft, calls = draft_seconds(family), {texts: call_seconds(family.target, texts) for texts in TEXTS}
    draw, speed, chosen, lengths = random.Random(0), {}, {}, {}
    for texts, times in calls.items():
        widths, seconds = zip(*times.items(), strict=True)

        def cost(tokens, texts=texts, widths=widths, seconds=seconds):
            return texts * draft + float(np.interp(tokens, widths, seconds))

        groups = [draw.choices(noted, k=texts) for _ in range(SETTING["groups"])]
        plain = texts / times[texts]
        speed[texts] = [
            sum(texts + sum(min(length, kept) for _, kept in group) for group in groups)
            / len(groups) / cost(texts * (1 + length)) / plain
            for length in range(LENGTH + 1)
        ]  # fmt: skip
        picked = [shared_lengths([row for row, _ in group], cost) for group in groups]
        tokens = sum(
            1 + min(length, kept)
            for group, some in zip(groups, picked, strict=True) for (_, kept), length in zip(group, some, strict=True)
        )  # fmt: skip
        chosen[texts] = tokens / sum(cost(texts + sum(some)) for some in picked) / plain
        lengths[texts] = sum(map(sum, picked)) / len(picked) / texts
    call = {texts: {width: 1000 * seconds for width, seconds in times.items()} for texts, times in calls.items()}
    return {"bins": bins, "draft": 1000 * draft, "call": call, "speed": speed, "chosen": chosen, "length": lengths}


def draft_seconds(family, repeats: int = 40) -> float:
    """The fastest of some drafts of a whole chain, in the processor's own time: others do not lengthen it."""
    target, head, times = family.target, family.dspark, []
    session = target.session(village_prompts(1)[0], hidden=head.feature_layers)
    session.feed()
    text, features = session.tokens, head.features(session.prompt_hidden)
    for _ in range(repeats):
        drafts = head.session(target)
        drafts.feed(text[1:-1], features[:-2])
        began = time.process_time()
        logits = drafts.feed(text[-1:], features[-2:-1])
        chain_shape(True)(Draft(drafts, logits, text, (), depth=LENGTH))
        times.append(time.process_time() - began)
    return min(times)


def call_seconds(target, texts: int, repeats: int = 8) -> dict[int, float]:
    """The fastest of some calls for several texts, in the processor's time: from the number of tokens to seconds."""
    found = {}
    for each in (1, 2, 3, 5, LENGTH + 1):
        batch, times = target.batch(village_prompts(texts)), []
        batch.feed([[0]] * texts)
        for _ in range(repeats):
            began = time.process_time()
            batch.feed([list(range(each))] * texts)
            times.append(time.process_time() - began)
            batch.rollback([each] * texts)
        found[texts * each] = min(times)
    return found


EXPERIMENT = Experiment("joints", SETTING, ROWS, row)
