"""The sweeps over beams, filters and penalties: rows are what they say, the files hold what the chapters say."""

from types import SimpleNamespace

import pytest
import torch

from tutorlib import greedy, metrics, run
from tutorlib.lab import experiments
from tutorlib.lab.experiments import beams, penalties

# ----------------------------------------------------------------------------------------------------------------------
# beams


def test_one_beam_is_greedy_whatever_the_length_penalty(monkeypatch):
    monkeypatch.setattr(beams, "SETTING", {**beams.SETTING, "prompts": 2, "max_new_tokens": 12})
    target = experiments.bundled().target
    prompts = experiments.village_prompts(2)
    traces = [run(greedy(target, prompt), 12) for prompt in prompts]
    logs = [metrics.log_probabilities(target, prompt, trace.tokens) for prompt, trace in zip(prompts, traces)]
    rows = [beams.row(experiments.bundled(), f"1 beams, length_penalty {penalty}") for penalty in (0, 1)]
    assert experiments.rounded(rows[0]) == experiments.rounded(rows[1])
    assert rows[0]["length"] == sum(len(trace.tokens) for trace in traces) / 2
    assert rows[0]["log_prob"] == pytest.approx(float(torch.stack([log.sum() for log in logs]).mean()), abs=0.006)
    assert rows[0]["log_prob_per_token"] == pytest.approx(
        float(torch.stack([log.mean() for log in logs]).mean()), abs=6e-4
    )
    assert rows[0]["repetition_4"] == pytest.approx(sum(metrics.repetition(trace.tokens) for trace in traces) / 2)


def test_empty_stories_are_counted(monkeypatch):
    target = experiments.bundled().target
    monkeypatch.setitem(beams.SETTING, "prompts", 2)
    winners = [(), target.encode("The sun was out.")[1:]]
    traces = [
        SimpleNamespace(
            tokens=[*tokens, *target.stop_tokens],
            text=target.decode(tokens),
            steps=[SimpleNamespace(score=-1.0 - len(tokens))],
        )
        for tokens in winners
    ]
    made = iter(traces)
    monkeypatch.setattr(beams, "run", lambda *_, **__: next(made))
    row = beams.row(experiments.bundled(), "4 beams, length_penalty 0")
    assert row["empty"] == 1
    assert row["log_prob_per_token"] == -1


def test_a_text_is_less_likely_than_each_of_its_tokens_on_average():
    for name, row in experiments.results("beams")["rows"].items():
        assert 0 <= row["empty"] <= beams.SETTING["prompts"], name
        assert row["log_prob"] < row["log_prob_per_token"] < 0, name


# ----------------------------------------------------------------------------------------------------------------------
# sampling


def test_shares_and_kinds_of_sampled_texts_fit_together():
    rows = experiments.results("sampling")["rows"]
    for name, row in rows.items():
        assert all(0 <= row[key] <= 1 for key in ("readable", "consistent", "distinct_2_within")), name
        shares = list(row["commonest_kinds"].values())
        assert shares == sorted(shares, reverse=True) and sum(shares) < 1.001 and row["kinds"] >= len(shares) == 3
    # By different code: float32 logits of the bundled target hardly ever tie.
    assert rows["top-k 1"] == rows["greedy"]


# ----------------------------------------------------------------------------------------------------------------------
# penalties


def test_the_names_of_penalties_say_whether_the_prompt_counts():
    prompts = [[1, 2, 3], [4]]
    logits = torch.full((2, 5), 2.0)
    for name, (_, warp, new_only) in penalties.SETTINGS.items():
        for one in penalties.after_prompts(warp, prompts) if new_only else warp:
            counted = not torch.equal(one(logits, prompts), logits)
            assert counted == ("penalty" in name and "new only" not in name), name


def test_after_prompts_a_warp_sees_the_new_tokens_of_each_row():
    seen = []
    (warp,) = penalties.after_prompts([lambda logits, histories: seen.append(histories)], [[1, 2, 3], [1, 4]])
    warp(None, [[1, 4, 1, 4], [1, 2, 3], [1, 2, 3, 7]])
    assert seen == [[[1, 4], [], [7]]]


def test_what_the_chapter_says_of_penalties_is_so():
    rows = experiments.results("penalties")["rows"]

    def true_share(name):
        return rows[name]["readable"] * rows[name]["consistent"]

    plain = true_share("greedy, no penalty")
    mild = ["repetition_penalty 1.2", "repetition_penalty 1.1, new only"]
    mild += ["frequency_penalty 0.5, new only", "presence_penalty 1, new only"]
    for name in mild:
        assert rows[f"greedy, {name}"]["repetition_4"] < 0.05 < rows["greedy, no penalty"]["repetition_4"]
        assert true_share(f"greedy, {name}") > plain - 0.01
    # The weakest strengths that do so: the next weaker ones do not.
    weaker = ["repetition_penalty 1.05, new only", "frequency_penalty 0.2, new only"]
    weaker += ["presence_penalty 0.5, new only", "no_repeat_ngram 5"]
    assert all(rows[f"greedy, {name}"]["repetition_4"] > 0.05 for name in weaker)
    bans = [name for name in rows if name.startswith("greedy, no_repeat")]
    assert all(true_share(name) < 0.8 for name in bans) and true_share("greedy, no_repeat_ngram 4") < plain / 2
    assert rows["sample, no penalty"]["repetition_4"] < 0.03
    assert true_share("sample, no_repeat_ngram 4") < 0.85 * true_share("sample, no penalty")
