"""The sweep over beams: its file is whole, and its rows are what they say, worked out another way."""

from types import SimpleNamespace

import pytest
import torch

from tutorlib import greedy, metrics, models, run, sweeps
from tutorlib.sweeps import beams


@pytest.fixture(scope="module")
def target():
    return models.load("storyworld", device="cpu", dtype="float32").target


def test_the_committed_file_has_every_row_of_the_present_setting():
    found = sweeps.results("beams")
    assert found["setting"] == beams.SETTING
    assert list(found["rows"]) == list(beams.SETTINGS)
    for name, row in found["rows"].items():
        assert 0 <= row["empty"] <= beams.SETTING["prompts"], name
        assert row["log_prob"] < row["log_prob_per_token"] < 0, name


def test_one_beam_is_greedy_whatever_the_length_penalty(target, monkeypatch):
    monkeypatch.setitem(beams.SETTING, "prompts", 2)
    monkeypatch.setitem(beams.SETTING, "max_new_tokens", 24)
    prompts = sweeps.village_prompts(2)
    traces = [run(greedy(target, prompt), 24) for prompt in prompts]
    logs = [metrics.log_probabilities(target, prompt, trace.tokens) for prompt, trace in zip(prompts, traces)]
    rows = [beams.row(target, f"1 beams, length_penalty {penalty}") for penalty in (0, 1)]
    assert sweeps.rounded(rows[0]) == sweeps.rounded(rows[1])
    assert rows[0]["length"] == sum(len(trace.tokens) for trace in traces) / 2
    assert rows[0]["log_prob"] == pytest.approx(float(torch.stack([log.sum() for log in logs]).mean()), abs=0.006)
    assert rows[0]["log_prob_per_token"] == pytest.approx(
        float(torch.stack([log.mean() for log in logs]).mean()), abs=6e-4
    )
    assert rows[0]["repetition_4"] == pytest.approx(sum(metrics.repetition(trace.tokens) for trace in traces) / 2)


def test_empty_stories_are_counted(target, monkeypatch):
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
    row = beams.row(target, "4 beams, length_penalty 0")
    assert row["empty"] == 1
    assert row["log_prob_per_token"] == -1
