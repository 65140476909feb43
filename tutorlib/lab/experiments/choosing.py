"""The sweep of the chapter on choosing among answers: how often the chosen answer is right, for how many target calls.

Several answers are drawn for each prompt. With n of them, each rule chooses among the first n, the next n, and so on,
and the results are averaged. So all numbers of answers are measured on the same draws.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from ... import measures
from ...decoders.sample import sample
from ...decoders.sample_batch import sample_batch
from ...decoders.speculative_batch import speculative_batch
from ...measures.choosing import best_of_n, minimum_bayes_risk, self_consistency
from ...model.eight_bits import EightBits
from ...running.decoding import run, run_batch
from ...sampling.budgets import group_confidences, thinking_budget, token_confidences
from ...sampling.randomness import Seeded
from ...sampling.warp import Warp, temperature
from ...storyworld import words
from ...storyworld.questions import questions
from . import Experiment, Setting, bundled, village_prompts

SETTING: Setting = {
    "stories": {"model": "storyworld target", "draft": "storyworld draft", "prompts": 60, "tokens": 60, "most": 16},
    "questions": {"model": "storyworld draft", "prompts": 120, "tokens": 4, "most": 32},
    "sums": {"model": "SmolLM2-135M-Instruct in eight bits", "prompts": 40, "tokens": 32, "most": 16},
    "temperature": {"stories": 1.0, "questions": 1.0, "sums": 0.7},
    "gamma": 4,
    "long": {"at_least": 30, "at_most": 40, "tokens": 48},
    "sure": {"group_size": 8, "first": 4, "percentiles": [10, 90]},
}
VALUES = {
    "who has it": words.NAMES,
    "where is it": words.PLACES,
    "how many": words.NUMBERS,
}


def is_true(prompt: str, text: str) -> bool:
    """Whether each whole sentence that a text adds to a story can be read and contradicts nothing."""
    found = measures.consistency(prompt, text)
    return found.consistent == found.sentences


def shared_pairs(candidate: str, reference: str) -> float:
    """How many pairs of neighbouring words two texts share, as a share of those they have: from 0 to 1."""
    one, other = ({*measures.ngrams(text.split(), 2)} for text in (candidate, reference))
    return 2 * len(one & other) / max(len(one) + len(other), 1)


def answer_in(text: str, values: Sequence[str]) -> str | None:
    """The first of some values that a text names, or None."""
    found = re.search(rf"\b({'|'.join(values)})\b", text)
    return found[1] if found else None


def result_in(text: str) -> str | None:
    """The number that a text gives as its result: the last one after "=", "is" or "equals", or else the last one."""
    found = re.findall(r"(?:=|\bis|\bequals) *(\d+)", text) or re.findall(r"\d+", text)
    return found[-1] if found else None


def sums(count: int) -> list[tuple[str, str]]:
    """Questions that a small model may get wrong, and their answers."""
    made = []
    for number in range(count):
        rng = random.Random(f"sum {number}")
        a, b = (rng.randint(3, 9), rng.randint(3, 9)) if number % 2 else (rng.randint(11, 49), rng.randint(11, 49))
        made.append((f"What is {a} + {b}?", str(a + b)))
    return made


def curves(drawn: Sequence[Sequence[Any]], right: Sequence[Sequence[bool]], rules: dict[str, Callable]) -> dict:
    """How often each rule is right with 1, 2, 4, … answers to a prompt.

    Parameters
    ----------
    drawn : one sequence of answers for each prompt
        Their number is a power of two.
    right : the same, with whether each answer is right
    rules : from a name to a function (prompt's number, places of answers) -> the chosen place

    Returns
    -------
    dict
        ``n``, the numbers of answers; and for each rule, ``right`` and ``interval`` for each of them: the share of the
        prompts, and 95 % from resampling the prompts. "any of them" is right if one of the answers is: no rule can be
        right more often.
    """
    most = len(drawn[0])
    counts = [2**power for power in range(most.bit_length())]
    made: dict[str, Any] = {"n": counts, "rules": {}}
    for name, rule in (rules | {"any of them": None}).items():
        shares, intervals = [], []
        for n in counts:
            groups = [range(first, first + n) for first in range(0, most, n)]
            of_prompts = [
                fmean(
                    any(marks[place] for place in group) if rule is None else marks[rule(number, group)]
                    for group in groups
                )
                for number, marks in enumerate(right)
            ]
            shares.append(fmean(of_prompts))
            intervals.append(list(measures.bootstrap_interval(of_prompts)))
        made["rules"][name] = {"right": shares, "interval": intervals}
    return made


def calls(traces: Sequence[Sequence], drafting: bool = False) -> dict:
    """Target calls for 1, 2, 4, … answers, on average over the prompts: one after the other, and all at once."""
    most = len(traces[0])
    counts = [2**power for power in range(most.bit_length())]

    def mean(of, length):
        return [
            fmean(
                of(length(trace) for trace in row[first : first + n]) for row in traces for first in range(0, most, n)
            )
            for n in counts
        ]

    written = mean(sum, lambda trace: len(trace.tokens)), mean(max, lambda trace: len(trace.tokens))
    made = {"one after the other": written[0], "together": written[1]}
    if drafting:
        made["together, with a draft"] = mean(max, lambda trace: len(trace.steps))
    return made


def greedily(lm, prompts, tokens: int, is_right: Callable[[int, str], bool], warp: Sequence[Warp] = ()) -> dict:
    """How often one greedy answer is right, and its target calls."""
    traces = [run(sample(lm, prompt, warp=warp), tokens, progress=False) for prompt in prompts]
    marks = [is_right(number, trace.text) for number, trace in enumerate(traces)]
    return {
        "right": fmean(marks),
        "interval": list(measures.wilson_interval(sum(marks), len(marks))),
        "calls": fmean(len(trace.tokens) for trace in traces),
    }


def voted(finals: Sequence[Sequence[str | None]], number: int, group: Sequence[int]) -> int:
    return group[self_consistency([finals[number][place] for place in group]).index]


def sure(lm, prompts, traces: Sequence[Sequence], finals: Sequence[Sequence], due: Sequence) -> dict:
    """The vote of the answers in which the model stays sure, as in DeepConf: how often it is right, and its calls.

    The first answers to a prompt are written to their end. A percentile of their lowest group confidences is the
    threshold for all. The other answers end where they fall below it, as under `stop_when_unsure`, and do not vote.
    """
    size, first = SETTING["sure"]["group_size"], SETTING["sure"]["first"]
    groups = [
        [group_confidences(confidences_of(lm, prompt, trace.tokens), size) for trace in row]
        for prompt, row in zip(prompts, traces, strict=True)
    ]
    made = {}
    for percentile in SETTING["sure"]["percentiles"]:
        marks, calls = [], []
        for means, row, results, answer in zip(groups, traces, finals, due, strict=True):
            threshold = np.percentile([min(one) for one in means[:first]], percentile)
            votes = [result for one, result in zip(means, results, strict=True) if min(one) >= threshold]
            marks.append(self_consistency(votes).answer == answer)
            ends = [
                next((end for end, mean in enumerate(one, size) if mean < threshold and place >= first), math.inf)
                for place, one in enumerate(means)
            ]
            calls.append(sum(min(end, len(trace.tokens)) for end, trace in zip(ends, row, strict=True)))
        interval = list(measures.wilson_interval(sum(marks), len(marks)))
        made[str(percentile)] = {"right": fmean(marks), "interval": interval, "calls": fmean(calls)}
    return {"sure": made}


def confidences_of(lm, prompt, tokens: Sequence[int]) -> list[float]:
    """The confidence of each token of a text, from one call."""
    return token_confidences(lm.session(prompt).feed(tokens[:-1])).tolist()


def stories(family, setting: dict) -> dict:
    """Continuations of village stories; an answer is right if none of its sentences is wrong."""
    lm, prompts = family.target, village_prompts(setting["prompts"])
    traces = [
        run_batch(
            speculative_batch(
                lm, family.draft, [prompt] * setting["most"], gamma=SETTING["gamma"],
                rngs=[Seeded(1000 * number + place) for place in range(setting["most"])],
                warp=[temperature(SETTING["temperature"]["stories"])],
            ),
            setting["tokens"], progress=False,
        )
        for number, prompt in enumerate(prompts)
    ]  # fmt: skip
    texts = [[trace.text for trace in row] for row in traces]
    likely = [
        [float(measures.log_probabilities(lm, prompt, trace.tokens).mean()) for trace in row]
        for prompt, row in zip(prompts, traces, strict=True)
    ]
    right = [[is_true(prompt, text) for text in row] for prompt, row in zip(prompts, texts, strict=True)]
    rules = {
        "most likely": lambda number, group: best_of_n(group, likely[number].__getitem__).answer,
        "minimum Bayes risk": lambda number, group: (
            minimum_bayes_risk(group, lambda one, other: shared_pairs(texts[number][one], texts[number][other])).answer
        ),
    }
    return {
        "greedy": greedily(lm, prompts, setting["tokens"], lambda number, text: is_true(prompts[number], text)),
        **curves(texts, right, rules),
        "calls": calls(traces, drafting=True),
    }


def short_answers(
    lm, prompts, setting: dict, name: str, read: Callable, due: Sequence[str], more: Callable = lambda *given: {}
) -> dict:
    """Answers of which only a final answer counts: single ones, a vote, and one greedy answer.

    ``more(lm, prompts, traces, finals, due)`` gives further figures of the same answers.
    """
    traces = [
        run_batch(
            sample_batch(
                lm, [prompt] * setting["most"],
                rngs=[Seeded(1000 * number + place) for place in range(setting["most"])],
                warp=[temperature(SETTING["temperature"][name])],
            ),
            setting["tokens"], progress=False,
        )
        for number, prompt in enumerate(prompts)
    ]  # fmt: skip
    finals = [[read(number, trace.text) for trace in row] for number, row in enumerate(traces)]
    right = [[final == answer for final in row] for row, answer in zip(finals, due, strict=True)]
    return {
        "greedy": greedily(lm, prompts, setting["tokens"], lambda number, text: read(number, text) == due[number]),
        **curves(finals, right, {"vote": partial(voted, finals)}),
        "calls": calls(traces),
        **more(lm, prompts, traces, finals, due),
    }


def row(family, name: str) -> dict:
    """The figures of one row: see `curves`, `greedily` and `calls`."""
    setting = SETTING[name]
    if name == "stories":
        return stories(family, setting)
    if name == "questions":
        asked = questions(f"choosing {number}" for number in range(setting["prompts"]))[: setting["prompts"]]
        values = [VALUES[question.topic] for question in asked]
        return short_answers(
            family.draft,
            [question.prompt for question in asked],
            setting,
            name,
            lambda number, text: answer_in(text, values[number]),
            [question.answer.strip() for question in asked],
        )
    family, asked = bundled("smollm2"), sums(setting["prompts"])
    lm, due = EightBits(family.target), [answer for _, answer in asked]
    prompts = [family.chat(question) for question, _ in asked]
    long = SETTING["long"]
    return short_answers(lm, prompts, setting, name, lambda number, text: result_in(text), due, sure) | {
        "one long greedy": greedily(
            lm, prompts, long["tokens"], lambda number, text: result_in(text) == due[number], [waiting(family.target)]
        )
    }


def waiting(lm) -> Warp:
    """SmolLM2 thinks for `SETTING["long"]` tokens, with "Wait" in place of an earlier end, and then says its answer."""
    begin, end, wait = map(lm.tokenizer.encode, ("<|im_start|>assistant\n", "\nThe answer is", " Wait"))
    budget = {key: SETTING["long"][key] for key in ("at_least", "at_most")}
    return thinking_budget(begin, end, **budget, wait=wait[0], stop_tokens=lm.stop_tokens)


EXPERIMENT = Experiment("choosing", SETTING, dict.fromkeys(("stories", "questions", "sums")), row)
