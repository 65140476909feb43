"""The benchmark compares like with like, and its arithmetic is right."""

import json
from types import SimpleNamespace

import pytest
from conftest import random_model

from tutorlib import bench
from tutorlib.bench import (
    GENERATE,
    GENERATE_BEAMS,
    GENERATE_FILTERED,
    GENERATE_SAMPLING,
    GREEDY,
    PLAIN,
    ROWS,
    TWO_MODELS,
    Output,
    Row,
    Spread,
    measure,
)
from tutorlib.decoders import beam_search
from tutorlib.lm import LM
from tutorlib.run import run
from tutorlib.warp import probabilities

PROMPTS = [[1, 2, 3], [4, 5, 6, 7]]


@pytest.fixture(scope="module")
def family():
    return SimpleNamespace(target=LM(random_model("llama")), draft=LM(random_model("gpt2")))


def test_all_greedy_rows_make_the_same_tokens(family):
    made = {row.name: [row.decode(family, p, 12, 0).tokens for p in PROMPTS] for row in ROWS if row.peer == GENERATE}
    assert len(made) >= 4
    assert all(tokens == made[PLAIN] for tokens in made.values()), made


def test_the_beam_rows_make_the_tokens_of_four_beams(family):
    """With three beams or five, either of these prompts goes on otherwise."""

    def searched(beams):
        return [run(beam_search(family.target, p, beams=beams, max_new_tokens=36), 36).tokens for p in ([9], [2, 8])]

    rows = [row for row in ROWS if row.peer == GENERATE_BEAMS]
    assert len(rows) >= 2
    for row in rows:
        made = [row.decode(family, p, 36, 0).tokens for p in ([9], [2, 8])]
        assert made == searched(4) and made not in (searched(3), searched(5)), row.name


def test_the_filtered_rows_draw_from_the_same_tokens(family):
    """Every token that either of them draws is among those that the filters leave, which are few."""
    lm, prompt = family.target, PROMPTS[0]
    for row in ROWS:
        if row.peer == GENERATE_FILTERED:
            text = [*prompt, *row.decode(family, prompt, 30, 0).tokens]
            left = probabilities(lm.session(text[: len(prompt)]).feed(text[len(prompt) : -1]), bench.FILTERS) > 0
            assert left[range(30), text[len(prompt) :]].all(), row.name
            assert left.double().mean() < 0.6


def test_the_rows_of_contrast_are_compared_with_what_they_add_to(family):
    """Both models read the whole text in the row beside contrastive decoding, whose tokens are the target's own."""
    made, calls = {}, {}
    for row in ROWS:
        if row.peer in (TWO_MODELS, GREEDY):
            before = family.draft.calls
            made[row.name] = row.decode(family, PROMPTS[0], 12, 0).tokens
            calls[row.name] = family.draft.calls - before
    greedy_tokens = next(row for row in ROWS if row.name == GREEDY).decode(family, PROMPTS[0], 12, 0).tokens
    assert made.pop(TWO_MODELS) == greedy_tokens
    assert list(calls.values()) == [12, 12, 0, 0], calls
    assert len(made) == 3 and all(tokens != greedy_tokens for tokens in made.values()), made


def test_rows_of_ours_count_a_call_a_token(family):
    for row in ROWS:
        calls = row.decode(family, PROMPTS[0], 12, 0).calls
        prompts_own = row.name.startswith("contrastive_search")  # the prompt is read before there are candidates
        assert calls == (None if row.name.startswith("generate") else 12 + prompts_own), row.name


def test_no_stop_token_ends_a_row_early(family):
    first = bench.forward_loop(family, PROMPTS[0], 1, 0).tokens[0]
    settings = family.target.model.generation_config
    settings.eos_token_id = first
    try:
        stopping = SimpleNamespace(target=LM(family.target.model), draft=family.draft)
        assert stopping.target.stop_tokens == (first,)
        for row in ROWS:
            assert len(row.decode(stopping, PROMPTS[0], 5, 0).tokens) == 5, row.name
    finally:
        settings.eos_token_id = None


def clocked_rows(clock, **seconds):
    """Rows that take a known time: they move the clock on."""

    def row(name, took, peer=GENERATE):
        def decode(family, prompt, count, seed):
            clock.now += took[seed] if isinstance(took, list) else took
            return Output([0] * count, count // 2)

        return Row(name, decode, peer)

    return [
        row(PLAIN, seconds.get("plain", 1.0)),
        row("ours", seconds.get("ours", 0.5)),
        row("ours, drawing", 0.25, GENERATE_SAMPLING),
        row(GENERATE, 2.0),
        row(GENERATE_SAMPLING, 3.0, GENERATE_SAMPLING),
    ]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_rates_and_ratios_by_hand(family):
    clock = Clock()
    results = measure(family, PROMPTS, new_tokens=10, rounds=3, rows=clocked_rows(clock), clock=clock)
    by_name = {result.name: result for result in results}
    assert by_name["ours"].tokens_per_second == Spread(20, 20, 20)
    assert by_name["ours"].tokens_per_call == 2
    assert by_name["ours"].over_plain == Spread(2, 2, 2)
    assert by_name["ours"].over_peer == Spread(4, 4, 4)
    assert by_name["ours, drawing"].over_peer == Spread(12, 12, 12), "a sampler is compared with sampling"
    assert by_name[PLAIN].over_plain == Spread(1, 1, 1)


def test_ratios_are_taken_within_a_round(family):
    """The machine gets ten times slower in the second round, for everybody: no ratio may change."""
    clock = Clock()
    rows = clocked_rows(clock, plain=[1.0, 10.0, 1.0, 9.0], ours=[0.5, 5.0, 0.5, 9.0])
    # (Seed -1, the round that is not counted, reads the last entry.)
    results = measure(family, PROMPTS, new_tokens=10, rounds=3, rows=rows, clock=clock)
    assert results[1].over_plain == Spread(2, 2, 2)


def test_a_row_that_makes_too_few_tokens_is_not_timed_in_silence(family):
    clock = Clock()
    short = Row("short", lambda family, prompt, count, seed: Output([0], 1))
    with pytest.raises(ValueError, match=r"short made \[1, 1\] tokens, not 10 each"):
        measure(family, PROMPTS, new_tokens=10, rounds=1, rows=[*clocked_rows(clock), short], clock=clock)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds"),
        ({"prompts": []}, "need prompts"),
        ({"new_tokens": 60}, "do not fit the context of 48"),
        ({"rows": ROWS[:2]}, "missing: generate"),
    ],
)
def test_nonsense_is_named(family, options, words):
    with pytest.raises(ValueError, match=words):
        measure(family, **{"prompts": PROMPTS, "new_tokens": 4, "rounds": 1} | options)


def test_the_command_prints_a_table_and_json(family, capsys):
    bench.main(["--tokens", "4", "--rounds", "1"], family, PROMPTS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[-len(ROWS) :]] == [row.name for row in ROWS]
    bench.main(["--quick", "--tokens", "4", "--rounds", "1", "--json"], family, PROMPTS)
    printed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in printed["rows"]] == [row.name for row in ROWS]
    assert printed["setting"]["new_tokens"] == 4
    assert printed["rows"][0]["over_plain"][0] == 1
