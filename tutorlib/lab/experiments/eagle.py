"""The sweep of chapters 16 and 17: tokens per target call with EAGLE's trees, and with the methods before it.

All rows continue the same prompts, greedily or sampled with ``Seeded(i)`` for text i. They are those of the benchmark,
after which the target does not repeat itself. "EAGLE-1" is EAGLE-1's network
with a tree of fixed shape, which is grown from how often the network's guesses were right in other texts. The tree
holds the most likely tokens in greedy decoding, and drawn tokens in sampling. "EAGLE-1 chosen" has the tree of the most
likely tokens in sampling too. "EAGLE-2" is the same network with a dynamic tree, "EAGLE-3" is EAGLE-3's network with a
dynamic tree, and "cooled" means a `greedy_temperature` below 1. Nothing is timed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch

from ...decoders.eagle import eagle
from ...decoders.medusa import medusa
from ...decoders.prompt_lookup import prompt_lookup
from ...decoders.sample_batch import sample_batch
from ...decoders.speculative import speculative
from ...drafting.choices import Choices, grow
from ...drafting.confidences import Confidences, accepted_by_confidence
from ...drafting.confidences import drafted_with_confidence as drafted  # noqa: F401 (for the chapters)
from ...drafting.draft_trees import (
    chain_draft,
    drawn_chain,
    drawn_tree,
    dynamic_tree,
    static_tree,
)
from ...running.decoding import run, run_batch
from ...sampling.randomness import Greedy, Seeded
from ..bench import story_prompts
from ..training.batches import Batches
from ..training.sampled_texts import SampledText
from ..training.train_eagle import EagleLearner, joined, unroll
from . import Experiment, Setting, counts

SIZES = (1, 2, 4, 8, 16, 32, 59)
SAME = 8  # candidates of every method in the rows that compare all methods
CHAINS = (2, 4, SAME)
LONGER = 16  # length of one more drawn chain, with as many tokens as a drawn tree
DEPTHS = (2, 4, 6)  # in addition to that of all other rows
TOP_K = 10
OTHERS = 950_000  # the seed of the first story from which no prompt of the rows is taken
SETTING: Setting = {
    "models": "storyworld",
    "texts": "beginnings of stories",
    "prompts": 16,
    "fewer_prompts": 8,
    "tokens": 60,
    "depth": 8,
    "greedy_temperature": 0.2,
    "ranked_texts": 32,
    "ranked_tokens": 60,
}


# ----------------------------------------------------------------------------------------------------------------------
# Trees of fixed shape


@cache
def ranks(target, head, drawn: bool) -> list[list[float]]:
    """How often a network's guesses of each rank are right, level by level. Trees of fixed shape are grown from this.

    Measured in texts written by the target, half of them greedily and half by sampling. The tokens before a guess are
    always those of the text. The sweep does not use these texts. Takes some seconds.

    Parameters
    ----------
    target : LM
    head : EagleHead or Eagle3Head
    drawn : bool
        If True, rank 1 is the second token drawn without replacement, and it is right if it is kept: see `kept`. If
        False, rank 1 is the second most likely token, and it is right if it is the text's token.

    Returns
    -------
    list of lists of floats
        For each level, the shares of ranks 0, 1, 2, ...
    """
    count, levels, best = SETTING["ranked_texts"], SETTING["depth"], min(TOP_K, head.vocab_size)
    prompts = story_prompts(target, count, first_seed=OTHERS)
    rounds = sample_batch(target, prompts, rngs=[Greedy() if i % 2 else Seeded(i) for i in range(count)])
    sampled = run_batch(rounds, SETTING["ranked_tokens"], progress=False)
    texts = [SampledText(text.prompt + text.tokens, len(text.prompt), 0) for text in sampled]
    batches = Batches(target, texts, min(8, count), layers=dict.fromkeys((*head.feature_layers, -1)))
    right, seen = torch.zeros(levels, best), torch.zeros(levels, 1)
    generator = torch.Generator(target.device).manual_seed(0)
    with torch.no_grad():
        for number in range(len(batches)):
            batch = batches[number]
            for level, hidden in enumerate(unroll(head, batch.tokens, joined(head, batch), levels)):
                rows, at = EagleLearner.index(level, batch.texts, hidden.device)
                guesses = head.read_out(hidden[rows, at], target)
                if drawn:
                    said = target.read_out(batch.hidden[-1][rows, at + 1 + level], normed=True)
                    hits = kept(said.double().softmax(-1), guesses.double().softmax(-1), best, generator)
                else:
                    hits = guesses.topk(best, dim=-1).indices == batch.tokens[rows, at + 2 + level, None]
                right[level] += hits.float().sum(0).cpu()
                seen[level] += len(rows)
    return (right / seen).tolist()


def kept(target_probs: torch.Tensor, draft_probs: torch.Tensor, children: int, generator) -> torch.Tensor:
    """The probability that the first child drawn without replacement is kept, that the second is kept, and so on.

    Parameters
    ----------
    target_probs, draft_probs : tensors (rows, vocab)
    children : int
    generator : torch.Generator
        For drawing one token for each child in each row. The probability that it is kept is computed, not sampled.

    Returns
    -------
    tensor (rows, children)
    """
    left, found = torch.ones_like(target_probs[:, :1]), []
    for _ in range(children):
        token = torch.multinomial(draft_probs, 1, generator=generator)
        keeps = (target_probs.gather(1, token) / draft_probs.gather(1, token)).clamp(max=1)
        found.append(left * keeps)
        left = left - found[-1]
        target_probs = _normed((target_probs - draft_probs).clamp(min=0))
        draft_probs = _normed(draft_probs.scatter(1, token, 0))
    return torch.cat(found, dim=1)


def _normed(rows):
    """Rows divided by their sums. A row of zeros, after which nothing can be reached, becomes uniform."""
    rows = torch.where(rows.sum(-1, keepdim=True) > 0, rows, 1.0)
    return rows / rows.sum(-1, keepdim=True)


def shape(target, head, nodes: int, drawn: bool = False) -> Choices:
    """The best tree of fixed shape with this number of nodes, as far as one can know without the text."""
    return grow(ranks(target, head, drawn), nodes)


# ----------------------------------------------------------------------------------------------------------------------
# The rows


class Way(NamedTuple):
    """How the stories of a row are written.

    Attributes
    ----------
    steps : function from (family, prompt, rng) to steps, with a shape as well where `tree` is given
    drawn : bool
        Whether tokens are sampled; otherwise decoding is greedy.
    tree : function from a family to a shape, optional
        The tree; only in EAGLE's rows.
    """

    steps: Callable
    drawn: bool
    tree: Callable | None = None


def _eagle(network: str, drawn: bool, tree: Callable) -> Way:
    def steps(family, prompt, rng, tree):
        return eagle(family.target, getattr(family, network), prompt, shape=tree, rng=rng)

    return Way(steps, drawn, tree)


def _static(nodes):
    return lambda family: static_tree(shape(family.target, family.eagle, nodes))


def _drawn_tree(nodes):
    return lambda family: drawn_tree(shape(family.target, family.eagle, nodes, drawn=True))


def _dynamic(nodes, depth=SETTING["depth"], **settings):
    return lambda family: dynamic_tree(nodes, depth, TOP_K, **settings)


def _cooled(nodes):
    return _dynamic(nodes, greedy_temperature=SETTING["greedy_temperature"])


def _chain(length):
    return lambda family: chain_draft(length)


def _drawn_chain(length):
    return lambda family: drawn_chain(length)


def _draft_model(drawn) -> Way:
    return Way(lambda family, prompt, rng: speculative(family.target, family.draft, prompt, gamma=SAME, rng=rng), drawn)


def _lookup(drawn) -> Way:
    return Way(lambda family, prompt, rng: prompt_lookup(family.target, prompt, gamma=SAME, rng=rng), drawn)


def _medusa(drawn) -> Way:
    def steps(family, prompt, rng):
        tree = grow(family.medusa.accuracies, SAME)
        return medusa(family.target, family.medusa, prompt, shape=tree, rng=rng)

    return Way(steps, drawn)


WAYS = {"greedy": False, "sampling": True}
# EAGLE's trees for each way of decoding: the name of the method, its network, and its tree for a number of nodes.
TREES = {
    "greedy": {
        "EAGLE-1": ("eagle", _static),
        "EAGLE-2": ("eagle", _dynamic),
        "EAGLE-2 cooled": ("eagle", _cooled),
        "EAGLE-3": ("eagle3", _dynamic),
        "EAGLE-3 cooled": ("eagle3", _cooled),
    },
    "sampling": {
        "EAGLE-1": ("eagle", _drawn_tree),
        "EAGLE-1 chosen": ("eagle", _static),
        "EAGLE-2": ("eagle", _dynamic),
        "EAGLE-3": ("eagle3", _dynamic),
    },
}


def _rows():
    for way, drawn in WAYS.items():
        for method, made in (("draft model", _draft_model), ("prompt lookup", _lookup), ("medusa", _medusa)):
            yield f"{method}, {way}, {SAME} nodes", made(drawn)
        for method, (network, tree) in TREES[way].items():
            for nodes in SIZES:
                yield f"{method}, {way}, {nodes} nodes", _eagle(network, drawn, tree(nodes))
        for method, network in (("EAGLE-1", "eagle"), ("EAGLE-3", "eagle3")):
            for length in CHAINS:
                yield f"{method} chain, {way}, {length} nodes", _eagle(network, drawn, _chain(length))
            for length in (*CHAINS, LONGER) if drawn else ():
                yield f"{method} drawn chain, {way}, {length} nodes", _eagle(network, drawn, _drawn_chain(length))
        for depth in DEPTHS:
            name = f"EAGLE-2, {way}, {SIZES[-1]} nodes, depth {depth}"
            yield name, _eagle("eagle", drawn, _dynamic(SIZES[-1], depth))


# A row's name -> how it is written.
SETTINGS: dict[str, Way] = dict(_rows())

# Rows that use all prompts: those that compare all methods, and the largest trees, whose levels are plotted. The others
# use fewer.
MANY = [name for name in SETTINGS if name.endswith((f", {SAME} nodes", f", {SIZES[-1]} nodes"))]


def row(family, name: str) -> dict:
    """The figures of one row: some seconds on one core.

    Returns
    -------
    dict
        ``tokens``; ``calls`` of the target, including those for prompts; and ``per_call``, tokens per call. The other
        figures leave out the last step of each text, which is cut to fit, and a first step without a draft:
        ``accepted``, the mean number of accepted candidates; ``levels``, see `levels`; ``candidates``, their mean
        number; and for EAGLE's trees ``draft_calls``, the mean number of network calls, and ``confidence``, see
        `accepted_by_confidence`.
    """
    way = SETTINGS[name]
    deepest, traces, accepted, candidates, drafts = 0, [], [], [], []
    prompts = story_prompts(family.target, SETTING["prompts" if name in MANY else "fewer_prompts"])
    for i, prompt in enumerate(prompts):
        rng = Seeded(i) if way.drawn else None
        watched = Confidences(way.tree(family)) if way.tree else None
        steps = way.steps(family, prompt, rng, watched) if watched else way.steps(family, prompt, rng)
        trace = run(steps, SETTING["tokens"], progress=False)
        traces.append(trace)
        whole = trace.steps[:-1]
        whole = whole[1:] if whole and not whole[0].drafted else whole
        accepted += [step.accepted for step in whole]
        candidates += [len(step.drafted) for step in whole]
        deepest = max([deepest, *(max(step.tree.depths) + 1 if step.tree else len(step.drafted) for step in whole)])
        if watched:
            drafts += zip(whole, watched.chances, watched.calls)  # the last tree was drafted for the last step
    found = {
        **counts(traces),
        "accepted": sum(accepted) / len(accepted),
        "levels": levels(accepted, deepest),
        "candidates": sum(candidates) / len(candidates),
    }
    if drafts:
        found["draft_calls"] = sum(calls for _, _, calls in drafts) / len(drafts)
        found["confidence"] = accepted_by_confidence((chances, step.path) for step, chances, _ in drafts)
    return found


def levels(accepted: Sequence[int], deepest: int, least: int = 10) -> list[float]:
    """Of the steps accepted up to a level, the share in which the next is too; only levels that `least` steps reach.

    Examples
    --------
    >>> levels([2, 1, 0, 2], deepest=2, least=2)
    [0.75, 0.6666666666666666]
    """
    shares = []
    for level in range(deepest):
        reached = sum(count >= level for count in accepted)
        if reached < least:
            break
        shares.append(sum(count > level for count in accepted) / reached)
    return shares


EXPERIMENT = Experiment("eagle", SETTING, SETTINGS, row)
