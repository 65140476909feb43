"""Small cases that reveal the specimens, by enumeration of everything that can happen.

Each case is a function from a method to two distributions: what the method does, and what it should do.
"""

from collections.abc import Callable
from functools import partial

import torch

from ...constraints.grammar import grammar
from ...decoders.greedy import greedy
from ...decoders.sample import sample
from ...measures.proof import Sequences, exact_distribution, target_distribution
from ...model.table import TableLM
from ...running.decoding import run, run_batch
from ...sampling.randomness import Exhaustive, Seeded
from ...sampling.warp import frequency_penalty, temperature
from .rules import feature_predictor, mixed_with_prediction

Outcomes = dict[tuple, float]


def tables(vocab: int = 2) -> tuple[TableLM, TableLM]:
    """A target that looks two tokens back, and a draft that looks one back."""
    return TableLM.random(vocab, 2, 5), TableLM.random(vocab, 1, 3)


def texts(method: Callable, *, length: int = 4, gamma: int = 2, vocab: int = 2, warp=()) -> tuple[Sequences, Sequences]:
    """The distribution of a method's texts on `tables`, and that of sampling from the target.

    The method must have the signature of `speculative`.

    Returns
    -------
    made, due : dicts from tuples of `length` tokens to probabilities
    """
    target, draft = tables(vocab)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=gamma, rng=rng, warp=warp), length, stop=())
    return made, target_distribution(target, "b", length, warp=warp, stop=())


short_texts = partial(texts, length=3)
hot_texts = partial(texts, warp=(temperature(2.0),))
penalised_texts = partial(texts, warp=(frequency_penalty(0.5),))


def one_of_three(method):
    """A single token of three, where two can follow a rejection.

    Of all pairs of distributions in steps of 1/20, no other pair shows `shared_noise` better.
    """
    target, draft = TableLM({"": [0.55, 0.40, 0.05]}), TableLM({"": [0.35, 0.05, 0.60]})
    made = exact_distribution(lambda rng: method(target, draft, "a", gamma=1, rng=rng), 1)
    return made, target_distribution(target, "a", 1)


def greedy_texts(method):
    target, draft = tables(3)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=2, rng=rng), 3, stop=())
    return made, {tuple(run(greedy(target, "b"), 3, stop=()).tokens): 1.0}


def accepted_in_two_rounds(method):
    """How many of two drafted tokens are accepted in each of two rounds. The target drafts for itself: always both."""
    target, made = tables()[0], {}
    for rng in Exhaustive():
        trace = run(method(target, target, "b", gamma=2, rng=rng), 6, stop=())
        accepted = tuple(step.accepted for step in trace.steps[:2])
        made[accepted] = made.get(accepted, 0.0) + rng.weight
    return made, {(2, 2): 1.0}


def first_of_a_batch(method):
    """The text after a short prompt, in a batch with a long prompt whose random draws are fixed."""
    (target, draft), made = tables(), {}
    for rng in Exhaustive():
        traces = run_batch(method(target, draft, ["b", "abb"], gamma=1, rngs=[rng, Seeded(0)]), 3, stop=())
        tokens = tuple(traces[0].tokens)
        made[tokens] = made.get(tokens, 0.0) + rng.weight
    return made, target_distribution(target, "b", 3, stop=())


def ended_texts(method):
    """Texts of models for which only token c ends a text."""
    target, draft = (TableLM.random(3, order, seed, stop_tokens=[2]) for order, seed in ((2, 5), (1, 3)))
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=2, rng=rng), 3, stop=())
    return made, target_distribution(target, "b", 3)


def constrained_texts(method):
    """Texts of a small grammar, which counts: two letters, and the end."""
    rows = {"": [0.5, 0.3, 0.2], "a": [0.2, 0.5, 0.3]}, {"": [0.2, 0.5, 0.3], "a": [0.5, 0.2, 0.3]}
    target, draft = (TableLM(table, ["a", "b", "."], stop_tokens=["."]) for table in rows)
    warp = [grammar("[ab]{2}", target)]
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=1, rng=rng, warp=warp), 4)
    return made, target_distribution(target, "b", 4, warp=warp)


def nucleus(top):
    lm = TableLM({"": [0.5, 0.3, 0.2]})
    made = exact_distribution(lambda rng: sample(lm, "a", rng=rng, warp=[top(0.7)]), 1)
    return made, {(0,): 0.625, (1,): 0.375}  # by hand: 0.5 is below 0.7, and 0.5 + 0.3 is not


def ties(method):
    lm = TableLM({"": [0.2, 0.4, 0.4]})
    return exact_distribution(lambda rng: method(lm, "a", rng=rng), 2), {(1, 1): 1.0}  # by hand: the lowest id


def texts_with_prediction(method):
    if method is mixed_with_prediction:
        target, _ = tables()
        own = run(sample(target, "b", rng=Seeded(0)), 60, stop=()).tokens
        method = partial(method, predict=feature_predictor(target, [own])[0])
    return texts(method, length=3)


def two_vocabularies(method, tokens="cdab"):
    target, draft = TableLM.random(["a", "b", "c"], 2, 5), TableLM.random(list(tokens), 1, 3)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=1, rng=rng), 3, stop=())
    return made, target_distribution(target, "b", 3, stop=())


def same_size_vocabularies(method):
    return two_vocabularies(method, "cab")


def best_text(method):
    """With so many beams that nothing is dropped, the result should be the best of all texts, found by trying each."""
    table = {
        "a": {"b": 0.6, ".": 0.4},
        "b": {"a": 0.25, "b": 0.25, "c": 0.5},
        "c": {"a": 0.33, "b": 0.3, ".": 0.37},
    }
    lm = TableLM(table, ["a", "b", "c", "."], stop_tokens=["."])
    every = target_distribution(lm, "a", 3)
    best = max(every, key=lambda tokens: torch.tensor(every[tokens]).log() / len(tokens))
    winner = run(method(lm, "a", beams=16, max_new_tokens=3, length_penalty=1.0), 3).tokens
    return {tuple(winner): 1.0}, {best: 1.0}


def frequency_penalised(penalty):
    """Texts under a frequency penalty. The logits of a table are logarithms of probabilities, so all are below zero."""
    target, _ = tables()
    made = exact_distribution(lambda rng: sample(target, "b", rng=rng, warp=[penalty(0.5)]), 3, stop=())
    return made, target_distribution(target, "b", 3, warp=[frequency_penalty(0.5)], stop=())


def two_rows(method):
    """The texts after two equal prompts of a batch, as a pair."""
    target, made = tables()[0], {}
    for rng in Exhaustive():
        traces = run_batch(method(target, ["b", "b"], rngs=[rng, rng]), 2, stop=())
        pair = tuple(tuple(trace.tokens) for trace in traces)
        made[pair] = made.get(pair, 0.0) + rng.weight
    alone = target_distribution(target, "b", 2, stop=())
    return made, {(one, other): alone[one] * alone[other] for one in alone for other in alone}


def penalised_row(method):
    """The text after a long prompt under a penalty, beside a short prompt whose random draws are fixed."""
    target, made, warp = tables()[0], {}, [frequency_penalty(0.5)]
    for rng in Exhaustive():
        traces = run_batch(method(target, ["b", "abb"], rngs=[Seeded(0), rng], warp=warp), 3, stop=())
        tokens = tuple(traces[1].tokens)
        made[tokens] = made.get(tokens, 0.0) + rng.weight
    return made, target_distribution(target, "abb", 3, warp=warp, stop=())
