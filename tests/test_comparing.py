"""Comparing: everybody in turn on every prompt, and every figure what it says."""

import math

import pytest

from tutorlib import LM, Seeded, TableLM, beam_search, greedy, prompt_lookup, sample, speculative
from tutorlib.lab.bench.comparing import MEASURES, Compared, compare, measures, show_comparison
from tutorlib.measures.memory import Used, used

PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [2, 2]]


def test_methods_take_turns_prompt_by_prompt_and_each_begins_once(llama, clock):
    ran = []

    def timed(name, took):
        def method(prompt):
            steps = greedy(llama, prompt)
            ran.append((name, tuple(prompt)))
            clock.now += took  # making them is not timed
            steps._generator = ticking(steps._generator, took)
            return steps

        return method

    def ticking(generator, took):
        for step in generator:
            clock.now += took
            yield step

    rows = compare({"a": timed("a", 1.0), "b": timed("b", 2.0)}, PROMPTS, max_new_tokens=4, stop=(), clock=clock)
    timed_runs = ran[-6:]
    assert timed_runs == [(name, tuple(prompt)) for prompt, names in zip(PROMPTS, ("ab", "ba", "ab")) for name in names]
    assert [row.name for row in rows] == ["a", "b"]
    assert [row.seconds for row in rows] == [[4.0] * 3, [8.0] * 3]
    assert [(row.latency, row.tokens_per_second, row.tokens_per_call) for row in rows] == [(4, 1, 1), (8, 0.5, 1)]


def test_figures_are_those_of_the_runs(llama, models):
    draft = LM(models("gpt2"))
    methods = {
        "greedy": lambda prompt: greedy(llama, prompt),
        "sample": lambda prompt: sample(llama, prompt, rng=Seeded(1)),
        "same draft": lambda prompt: speculative(llama, llama, prompt, gamma=3),
        "speculative": lambda prompt: speculative(llama, draft, prompt),
        "lookup": lambda prompt: prompt_lookup(llama, prompt),
        "beams": lambda prompt: beam_search(llama, prompt, beams=2, max_new_tokens=8),
    }
    rows = {row.name: row for row in compare(methods, PROMPTS, max_new_tokens=8, stop=())}
    assert all(row.tokens == [8, 8, 8] for row in rows.values())
    assert rows["greedy"].calls == [8, 8, 8] and rows["same draft"].calls == [2, 2, 2]
    for name, method in methods.items():
        assert rows[name].memory == used(method(PROMPTS[1]), 8), "the longest prompt's run, of that method"
    assert rows["speculative"].memory.weights > rows["greedy"].memory.weights
    assert rows["greedy"].quality is None and "quality" not in measures(list(rows.values()))


def test_quality_is_the_mean_of_what_the_function_says_of_the_texts():
    lm = TableLM({"": [0.0, 1.0], "b": [1.0, 0.0]})  # a b a b ...
    judged = []

    def quality(text):
        judged.append(text)
        return {"bab": 1.0, "aba": math.nan}[text]

    (row,) = compare({"greedy": lambda prompt: greedy(lm, prompt)}, ["a", "b", "ba"], max_new_tokens=3, quality=quality)
    assert judged == ["bab", "aba", "bab"] and row.quality == 1.0


@pytest.mark.parametrize(
    ("methods", "prompts", "says"),
    [
        ({}, [[1]], "compare needs methods and prompts, got 0 and 1"),
        ({"a": greedy}, [], "compare needs methods and prompts, got 1 and 0"),
        ({"a": lambda prompt: [1]}, [[1]], "'a' must return a method's steps"),
    ],
)
def test_nonsense_is_named(methods, prompts, says):
    with pytest.raises(ValueError, match=says):
        compare(methods, prompts, max_new_tokens=3)


def test_a_comparison_is_a_table_with_a_row_for_each_method(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    rows = [
        Compared("greedy", [1.0, 3.0], [10, 30], [10, 30], Used(2_000_000, 0, 500_000)),
        Compared("fast", [0.5, 1.5], [10, 30], [5, 15], Used(3_000_000, 0, 750_000), quality=0.25),
    ]
    show_comparison(rows)
    assert shown[0].lines == [
        ["method", *MEASURES, "quality"],
        ["greedy", "2", "10", "1", "2", "0.5", "–"],
        ["fast", "1", "20", "2", "3", "0.75", "0.25"],
    ]
