"""The sweep of chapters 13 and 14: its counts are what the methods do, and the committed file holds what they say."""

import re
from types import SimpleNamespace

import pytest

from tutorlib import TableLM, run, speculative, storyworld
from tutorlib.lab.experiments import drafts, results
from tutorlib.sampling.randomness import Seeded

KINDS = ("story", "questions", "beginnings", "loop")


def rows():
    return results("drafts")["rows"]


def per_call(name, kind):
    return rows()[name][kind]["per_call"]


def factor(name, kind):
    """Over the plain loop, at the costs that the sweep gives."""
    return 1 / drafts.price(rows()[name][kind], lambda width: drafts.CALLS[width - 1], drafts.DRAFT_CALL)


def test_the_counts_of_a_row_fit_together():
    """Methods that share the draws of sampling made as many tokens; only those with a draft call one."""
    plain = rows()["plain loop"]
    assert all(found["per_call"] == found["width"] == 1 for found in plain.values())
    for name, row in rows().items():
        assert tuple(row) == KINDS
        same_draws = name.startswith(("prompt", "suffix", "lookahead", "string"))
        drafting = name.startswith(("speculative", "token", "string"))
        for kind, found in row.items():
            assert found["tokens"] == plain[kind]["tokens"] or not same_draws, name
            assert (found["draft_calls"] > 0) == drafting, name
            steps = sum(found["widths"])
            assert found["calls"] == steps, (name, "every method here makes one call of the target a step")
            assert found["per_call"] == pytest.approx(found["tokens"] / found["calls"], rel=1e-3)
            assert found["width"] == pytest.approx(1 + found["drafted"] / steps, rel=1e-3)
            assert found["accepted"] <= found["drafted"]
            # A step gives what was accepted, and one token more where the budget did not cut it off.
            assert found["accepted"] <= found["tokens"] <= found["accepted"] + steps


def test_questions_are_asked_twice_and_the_story_answers_them():
    first, second, third = drafts.asked_twice(3)
    assert third.startswith(second.rpartition('" ')[0]) and second.startswith(first)
    story = first[: first.index('"')]
    assert all(verdict.verdict == "consistent" for verdict in storyworld.check(first)) and story.count(".") > 6
    assert first.count("?") == 4 and third.count("?") == 6
    questions = [part.partition('"')[0] for part in third.split('"') if "?" in part]
    assert questions[:3] == questions[3:], "the same questions"
    askers = [one or other for one, other in re.findall(r"asked the (\w+)|The (\w+) asked", third)]
    assert len(askers) == 6 and all(one != other for one, other in zip(askers[:3], askers[3:])), "by somebody else"
    assert first.rpartition("?")[2] != "" and third.rstrip()[-1] in '."', "cut off right before the answer"


def test_a_row_counts_what_its_runs_did(monkeypatch):
    target = TableLM.random(4, 2, 1, context=60)
    draft, other = TableLM.random(4, 1, 2, context=60), TableLM.random(4, 1, 3, context=60)
    family = SimpleNamespace(target=target, draft=draft, other_draft=other)
    tasks = [([0, 1], 11, ()), ([2], 7, ())]
    monkeypatch.setattr(drafts, "texts", lambda lm: {"story": tasks, "loop": tasks})
    found = drafts.row(family, "speculative, gamma 2")["story"]
    traces = [
        run(speculative(target, draft, prompt, gamma=2, rng=Seeded(i)), count, stop)
        for i, (prompt, count, stop) in enumerate(tasks)
    ]
    steps = [step for trace in traces for step in trace.steps]
    assert (found["tokens"], found["calls"]) == (18, sum(trace.target_calls for trace in traces))
    assert found["drafted"] == sum(len(step.drafted) for step in steps)
    assert found["accepted"] == sum(step.accepted for step in steps)
    assert sum(found["widths"]) == len(steps) and found["widths"][2] == sum(len(step.drafted) == 2 for step in steps)


def test_the_price_by_hand():
    found = {"tokens": 10, "widths": [2, 0, 3], "draft_calls": 6}
    assert drafts.price(found, lambda width: width, 0.5) == pytest.approx((2 * 1 + 3 * 3 + 6 * 0.5) / 10)


def test_what_is_promised_by_hand(monkeypatch):
    lm = TableLM.random(4, 2, 1)
    monkeypatch.setattr(drafts, "texts", lambda lm: {"story": [None] * 2})
    counts = {
        "plain loop": {"story": {"tokens": 20, "widths": [20], "draft_calls": 0}},
        "lookup": {"story": {"tokens": 20, "widths": [2, 0, 6], "draft_calls": 0}},
    }
    # One text of 10 tokens, its prompt of 5 a call that costs 4 more: 14 plain calls, or 4 and half of 2 + 6 * 3.
    for name, factor in (("plain loop", 1), ("lookup", 14 / (4 + 10))):
        found = drafts.promised(lm, counts, name, "story", [([0, 1, 2, 3, 0], 10, ())], lambda width: width, 0.5)
        assert found == pytest.approx(factor)


def test_each_row_is_timed_on_each_text_and_the_quicker_measurement_counts(monkeypatch):
    clock = iter([0, 7, 7, 21, 21, 42, 42, 70])
    monkeypatch.setattr(drafts.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(drafts, "run", lambda steps, count, stop, progress: SimpleNamespace(tokens=[0] * count))
    family = SimpleNamespace(target=TableLM.random(4, 2, 1))
    tasks = {"story": [([0], 3, ()), ([1], 4, ())], "loop": [([0], 7, ())]}
    assert drafts.timed(family, ["plain loop"], tasks) == {("plain loop", "story"): 1, ("plain loop", "loop"): 2}


def test_what_the_chapters_say_of_the_results_is_so():
    # What repeats is copied, what does not is not.
    assert 2 < per_call("prompt_lookup, gamma 6", "questions") < per_call("suffix_lookup, gamma 8", "questions")
    for kind in ("story", "beginnings"):
        assert per_call("prompt_lookup, gamma 6", kind) < 1.3
        assert per_call("suffix_lookup, gamma 8, other stories", kind) > 2
        assert per_call("prompt_lookup, gamma 10", kind) - per_call("prompt_lookup, gamma 3", kind) < 0.02
    assert factor("prompt_lookup, gamma 10", "story") < 1 < factor("prompt_lookup, gamma 3", "story")
    # In a loop copying beats every draft model; elsewhere a draft model is ahead, most of all where nothing repeats.
    speculative_rows = [name for name in rows() if name.startswith("speculative")]
    assert factor("prompt_lookup, gamma 6", "loop") > max(factor(name, "loop") for name in speculative_rows)
    for kind in ("story", "beginnings"):
        assert factor("speculative, gamma 6", kind) > 1.4 * factor("suffix_lookup, gamma 8, other stories", kind)
    # The best fixed gamma is another one for each text; the adaptive one is near it without being told.
    fixed = {gamma: f"speculative, gamma {gamma}" for gamma in (1, 2, 4, 6, 8, 12)}
    best = {kind: max(fixed, key=lambda gamma, kind=kind: factor(fixed[gamma], kind)) for kind in KINDS}
    assert best == {"story": 6, "questions": 8, "beginnings": 12, "loop": 6}
    shares = [factor("speculative, adaptive", kind) / factor(fixed[best[kind]], kind) for kind in KINDS]
    assert min(shares) > 0.9 and sum(share > 1 for share in shares) == 2
    # Lookahead: more tokens a call for wider calls; hardly any on a story.
    assert all(per_call(drafts.lookahead_name(*window), "story") < 1.4 for window in drafts.WINDOWS)
    loops = [per_call(drafts.lookahead_name(*window), "loop") for window in drafts.WINDOWS]
    assert loops == sorted(loops)
    # Other tokenizers: less than the same one, more than none; sampling, TLI keeps more than SLEM.
    for kind in ("story", "questions", "beginnings"):
        same, tli, slem = (
            per_call(f"{name}, gamma 4", kind) for name in ("speculative", "token_intersection", "string_match")
        )
        assert same > tli > slem > 1.8
        assert factor("token_intersection, gamma 4", kind) > 1.4 and factor("string_match, gamma 4", kind) > 1.1
