"""Sampling under every warp, and under pairs of them, has exactly the distribution that the definitions give.

The other side of each comparison is written out here in plain Python, one row and one token at a time, from the
formulas in the papers: it shares no line with warp.py, knows no session and runs no method.
"""

import itertools
import math

import lossless
import pytest
import torch
from conftest import exactly
from full_passes import recomputed
from lossless import EXACT

from tutorlib.decoders import sample
from tutorlib.measures.proof import exact_distribution, total_variation
from tutorlib.model.table import TableLM
from tutorlib.sampling import budgets
from tutorlib.sampling import warp as warps

INF = math.inf
LENGTH = 3

# ----------------------------------------------------------------------------------------------------------------------
# The definitions, each a function (logits of one row as a list, tokens before it) -> logits


def softmax(logits):
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def only(tokens, logits):
    return [logit if token in tokens else -INF for token, logit in enumerate(logits)]


def temperature(t):
    return lambda logits, history: [logit / t for logit in logits]


def top_k(k):
    """A token stays when fewer than k are likelier."""
    return lambda logits, history: [logit if sum(other > logit for other in logits) < k else -INF for logit in logits]


def until(mass, order, probs):
    """Tokens in the given order, up to and with the one that brings their sum to `mass`."""
    chosen, total = [], 0.0
    for token in order:
        if total >= mass:
            break
        chosen.append(token)
        total += probs[token]
    return chosen


def top_p(p):
    def nucleus(logits, history):
        probs = softmax(logits)
        return only(until(p, sorted(range(len(probs)), key=lambda token: (-probs[token], token)), probs), logits)

    return nucleus


def min_p(p):
    def relative(logits, history):
        probs = softmax(logits)
        return only([token for token, prob in enumerate(probs) if prob >= p * max(probs)], logits)

    return relative


def typical(mass):
    def near_the_entropy(logits, history):
        probs = softmax(logits)
        entropy = -sum(prob * math.log(prob) for prob in probs if prob > 0)
        distance = [abs(-math.log(prob) - entropy) if prob > 0 else INF for prob in probs]
        furthest = distance[until(mass, sorted(range(len(probs)), key=lambda token: distance[token]), probs)[-1]]
        return only([token for token in range(len(probs)) if distance[token] <= furthest], logits)

    return near_the_entropy


def repetition_penalty(theta, ignore_first=0):
    def penalty(logits, history):
        logits = list(logits)
        for token in set(history[ignore_first:]):
            logits[token] = logits[token] / theta if logits[token] > 0 else logits[token] * theta
        return logits

    return penalty


def frequency_penalty(strength, ignore_first=0, counted=list):
    def penalty(logits, history):
        logits = list(logits)
        for token in counted(history[ignore_first:]):
            logits[token] -= strength
        return logits

    return penalty


def presence_penalty(strength, ignore_first=0):
    return frequency_penalty(strength, ignore_first, counted=set)


def no_repeat_ngram(n):
    def forbid(logits, history):
        def repeats(token):
            text = [*history, token]
            ngrams = [tuple(text[start : start + n]) for start in range(len(text) - n + 1)]
            return bool(ngrams) and ngrams[-1] in ngrams[:-1]

        return only([token for token in range(len(logits)) if not repeats(token)], logits)

    return forbid


def thinking_budget(begin, end, most, least=0, wait=None, stop=()):
    """The thoughts of a text are found from its first token on, each time anew."""

    def thought(history):
        text, found = list(history), None
        for place in range(len(text)):
            if found is None and text[max(0, place + 1 - len(begin)) : place + 1] == list(begin):
                found = place + 1
            elif found is not None and text[max(found, place + 1 - len(end)) : place + 1] == list(end):
                found = None
        return None if found is None else text[found:]

    def budget(logits, history):
        text = thought(history)
        if text is None:
            return logits
        done = max(
            count for count in range(len(end)) if count <= len(text) and text[len(text) - count :] == end[:count]
        )
        if len(text) >= most:
            return only([end[done]], [max(logit, -1e300) for logit in logits])
        early = len(text) - done < least
        probs = softmax(logits)
        for token in [*stop, *end[-1:]]:
            if (token in stop or early and done == len(end) - 1) and token != (wait if early else end[done]):
                moved, probs[token] = probs[token], 0.0
                if not early:
                    probs[end[done]] += moved
                elif wait is not None:
                    probs[wait] += moved
        return [math.log(prob) if prob > 0 else -INF for prob in probs]

    return budget


def stop_when_unsure(stop_token, below, top_k):
    def unsure(logits, history):
        best = sorted(softmax(logits))[-top_k:]
        confidence = sum(-math.log(prob) if prob > 0 else INF for prob in best) / len(best)
        return only([stop_token], [0.0] * len(logits)) if confidence < below else logits

    return unsure


def direct(next_logits, prompt, definitions):
    """All texts of LENGTH tokens, each with the product of its tokens' probabilities."""
    distribution = {(): 1.0}
    for _ in range(LENGTH):
        longer = {}
        for tokens, probability in distribution.items():
            history = [*prompt, *tokens]
            logits = next_logits(history)
            for definition in definitions:
                logits = definition(logits, history)
            for token, prob in enumerate(softmax(logits)):
                if prob > 0:
                    longer[(*tokens, token)] = probability * prob
        distribution = longer
    return distribution


# ----------------------------------------------------------------------------------------------------------------------
# What is compared. No sum of the tables' probabilities lies on a threshold, where rounding would decide.

SINGLE = [
    [("temperature", 0.5)], [("temperature", 3.0)], [("top_k", 1)], [("top_k", 2)], [("top_k", 100)], [("top_p", 0.58)],
    [("top_p", 1)], [("min_p", 0.4)], [("typical", 0.45)], [("repetition_penalty", 1.8)],
    [("repetition_penalty", 1.8, 5)], [("frequency_penalty", 0.7)], [("frequency_penalty", 0.7, 4)],
    [("presence_penalty", 1.1)], [("presence_penalty", 1.1, 4)], [("no_repeat_ngram", 2)], [("no_repeat_ngram", 3)],
    [("thinking_budget", [0], [1], 2)], [("stop_when_unsure", 3, 1.0, 2)],
    [("thinking_budget", [2, 0], [1, 1], 2, 1, 2)], [("thinking_budget", [2, 0], [1, 2], 4, 3, 0, [2])],
    [("thinking_budget", [0], [2, 1], 5, 1, None, [1, 3])],
]  # fmt: skip
# Each in both orders, which are two cases.
PAIRS = [
    [("temperature", 2.5), ("top_p", 0.58)],
    [("temperature", 2.5), ("min_p", 0.4)],
    [("temperature", 0.5), ("typical", 0.45)],
    [("top_k", 2), ("top_p", 0.57)],
    [("repetition_penalty", 1.8), ("top_p", 0.58)],
    [("repetition_penalty", 1.8), ("typical", 0.45)],
    [("frequency_penalty", 0.7), ("temperature", 0.6)],
    [("presence_penalty", 1.1, 4), ("top_k", 2)],
    [("no_repeat_ngram", 3), ("top_p", 0.72)],
    [("frequency_penalty", 0.7), ("min_p", 0.4)],
    [("thinking_budget", [2, 0], [1, 1], 4, 4, 2, [3]), ("temperature", 0.4)],
]
CASES = SINGLE + PAIRS + [pair[::-1] for pair in PAIRS]


def label(case):
    return ", ".join(f"{name}{setting}" for name, *setting in case)


def thinking(begin, end, most, least=0, wait=None, stop=()):
    return budgets.thinking_budget(begin, end, at_most=most, at_least=least, wait=wait, stop_tokens=stop)


def unsure(stop_token, below, best):
    return budgets.stop_when_unsure(stop_token, below=below, best=best)


STOPS = {"thinking_budget": thinking, "stop_when_unsure": unsure}


def ours(case):
    return [(STOPS.get(name) or getattr(warps, name))(*settings) for name, *settings in case]


def definitions(case):
    return [globals()[name](*settings) for name, *settings in case]


class Table:
    """Four tokens; tokens without probability, equal ones, one sure of itself; the prompt holds id 0."""

    prompt = [0, 2, 0, 2, 0]
    lm = TableLM(
        {
            "": [0.4, 0.3, 0.2, 0.1], "a": [0.3, 0.3, 0.3, 0.1], "b": [0.0, 0.55, 0.0, 0.45],
            "ca": [0.15, 0.05, 0.5, 0.3], "ba": [0.28, 0.24, 0.24, 0.24], "bb": [0.9, 0.05, 0.04, 0.01],
            "d": [0.25, 0.25, 0.25, 0.25],
        }
    )  # fmt: skip

    def next_logits(self, text):
        return self.lm.log_probs(text).tolist()


class Llama:
    """Three tokens and real layers in float64, with logits on both sides of zero; whole texts, no cache."""

    prompt = [0, 2, 0, 2, 0]

    lm = lossless.small("llama")

    def next_logits(self, text):
        return recomputed(self.lm.model, text)[-1].tolist()


def compared(small, case):
    """Total variation between sampling and the definitions, and what the definitions give."""
    with exactly(torch.float64):
        sampled = exact_distribution(
            lambda rng: sample(small.lm, small.prompt, rng=rng, warp=ours(case)), LENGTH, stop=()
        )
        expected = direct(small.next_logits, small.prompt, definitions(case))
    return total_variation(sampled, expected), expected


NEUTRAL = ([("top_k", 100)], [("top_p", 1)])


@pytest.mark.parametrize("case", CASES, ids=label)
def test_sampling_under_a_warp_is_exactly_what_the_definitions_give(case):
    distance, expected = compared(Table(), case)
    assert distance < EXACT
    change = total_variation(expected, direct(Table().next_logits, Table.prompt, []))
    assert (change < EXACT) == (case in NEUTRAL) and (change > 0.01) != (case in NEUTRAL), "it would prove nothing"


# What depends on the logits themselves, or on their histories, and not on probabilities alone.
@pytest.mark.parametrize("case", [case for case in SINGLE if "penalty" in case[0][0]] + PAIRS[4:6], ids=label)
def test_and_over_real_layers(case):
    assert compared(Llama(), case)[0] < EXACT


def test_the_two_orders_of_a_pair_differ():
    """So that warps applied in another order than the one asked for would be seen."""
    table = Table()
    for pair in PAIRS:
        one, other = (direct(table.next_logits, table.prompt, definitions(case)) for case in (pair, pair[::-1]))
        assert total_variation(one, other) > 0.001, label(pair)


def test_the_models_logits_lie_on_both_sides_of_zero():
    """A repetition penalty does two different things there."""
    with exactly(torch.float64):
        logits = [logit for text in itertools.product(range(3), repeat=3) for logit in Llama().next_logits(text)]
    assert min(logits) < -0.1 and max(logits) > 0.1
