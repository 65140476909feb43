"""The sweep of the chapter on choosing among answers: what counts as right, the curves by hand, and one row again."""

from types import SimpleNamespace

import pytest

from tutorlib import Seeded, TableLM, run, sample, stop_when_unsure
from tutorlib.lab import experiments
from tutorlib.lab.experiments import choosing, results, rounded
from tutorlib.sampling.budgets import group_confidences


def test_an_answer_is_given_up_where_the_warp_ends_it(monkeypatch):
    """The first answer's lowest confidence is the threshold for the others; those that the warp changes do not vote."""
    monkeypatch.setitem(choosing.SETTING, "sure", {"group_size": 2, "first": 1, "percentiles": [50]})
    rows = {"": [0.46, 0.4, 0.06, 0.08], "b": [0.2, 0.3, 0.42, 0.08], "c": [0.8, 0.1, 0.02, 0.08]}
    lm = TableLM(rows, ["a", "b", "c", "."], stop_tokens=["."])

    def answers(warp=()):
        return [run(sample(lm, [0], rng=Seeded(seed), warp=warp), 9) for seed in (5, *range(20, 32))]

    traces = answers()
    below = min(group_confidences(choosing.confidences_of(lm, [0], traces[0].tokens), 2))
    warped = answers([stop_when_unsure(3, below=below, group_size=2)])
    kept = [one.tokens == other.tokens for one, other in zip(traces, warped, strict=True)]
    finals = [str(number) if keep else "given up" for number, keep in enumerate(kept)]
    made = choosing.sure(lm, [[0]], [traces], [finals], ["0"])["sure"]["50"]
    assert (made["right"], made["calls"]) == (1, sum(len(trace.tokens) for trace in warped))
    assert 1 < sum(kept) < len(kept) - 1 and kept[0]


def test_an_answer_is_right_if_all_its_whole_sentences_are():
    prompt = "Mia, Ben and Tom lived in a small village. The kite was with Mia."
    assert choosing.is_true(prompt, " The kite was still with Mia. Mia wen")
    assert not choosing.is_true(prompt, " The kite was still with Mia. The kite was still with Ben.")
    assert not choosing.is_true(prompt, " Mia eats.")


@pytest.mark.parametrize(
    "text, result",
    [
        ("2 + 3 = 5.", "5"), ("2 + 3 is 5, so 2 + 3 equals 6", "6"), ("The answer is 1,200 or so. 7", "1200"),
        ("5", "5"), ("This 12", "12"), ("none", None),
    ],
)  # fmt: skip
def test_the_result_of_a_sum_is_what_the_text_says_it_is(text, result):
    assert choosing.result_in(text.replace(",", "")) == result


def test_an_answer_is_one_of_the_values_that_are_possible():
    assert choosing.answer_in(' Mia," said', ["Ben", "Mia"]) == "Mia"
    assert choosing.answer_in(" Miami", ["Mia"]) is None
    assert choosing.answer_in(" eighteen", ["eight"]) is None


def test_pairs_of_words_are_shared_by_texts_and_not_by_strangers():
    assert choosing.shared_pairs("a b c", "a b c") == 1 and choosing.shared_pairs("a b", "b a") == 0
    assert choosing.shared_pairs("a b c", "a b d") == 0.5
    assert choosing.shared_pairs("", "") == 0


def test_curves_by_hand():
    right = [[True, False, False, False], [False, False, False, False]]
    made = choosing.curves(right, right, {"last": lambda number, group: group[-1]})
    assert made["n"] == [1, 2, 4]
    assert made["rules"]["last"]["right"] == [0.125, 0.0, 0.0]
    assert made["rules"]["any of them"]["right"] == [0.125, 0.25, 0.5]


def test_calls_are_counted_for_answers_one_after_the_other_and_together():
    traces = [[SimpleNamespace(tokens=[0] * length, steps=[0] * (length // 2)) for length in (2, 4, 6, 8)]]
    made = choosing.calls(traces, drafting=True)
    assert "together, with a draft" not in choosing.calls(traces)
    assert made["one after the other"] == [5, 10, 20]
    assert made["together"] == [5, 6, 8] and made["together, with a draft"] == [2.5, 3, 4]


def test_the_stored_rows_say_what_the_chapter_says():
    rows = results("choosing")["rows"]
    for name, row in rows.items():
        ceiling = row["rules"]["any of them"]["right"]
        assert ceiling == sorted(ceiling)
        for rule in row["rules"].values():
            assert rule["right"][0] == ceiling[0], "one answer leaves nothing to choose"
            assert all(chosen <= most for chosen, most in zip(rule["right"], ceiling, strict=True)), name
    assert rows["questions"]["rules"]["vote"]["right"][-1] <= rows["questions"]["greedy"]["right"]
    few, most = (rows["sums"]["sure"][percentile] for percentile in ("90", "10"))
    assert few["calls"] < 0.7 * rows["sums"]["calls"]["one after the other"][-1] < most["calls"]
    for low, high in (few["interval"], most["interval"]):
        assert low < rows["sums"]["rules"]["vote"]["right"][-1] < high, "nor can these"
    assert rows["sums"]["rules"]["vote"]["right"][-1] > 2 * rows["sums"]["greedy"]["right"]
    low, high = rows["sums"]["one long greedy"]["interval"]
    assert low < rows["sums"]["rules"]["vote"]["right"][1] < high, "they cannot be told apart"
    assert rows["stories"]["greedy"]["right"] == 1 > rows["stories"]["rules"]["most likely"]["right"][-1]


def test_a_part_of_a_row_is_computed_again(monkeypatch):
    monkeypatch.setitem(choosing.SETTING, "questions", choosing.SETTING["questions"] | {"most": 1})
    row = rounded(choosing.row(experiments.bundled("storyworld"), "questions"))
    assert row["greedy"] == results("choosing")["rows"]["questions"]["greedy"]
