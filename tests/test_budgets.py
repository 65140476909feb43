"""Warps that stop: where, by hand; that methods keep them exact is in test_lossless.py."""

import math

import pytest
import torch

from tutorlib import Seeded, TableLM, run, sample, stop_when_unsure, thinking_budget
from tutorlib.sampling.budgets import group_confidences, token_confidences
from tutorlib.sampling.known_text import History
from tutorlib.sampling.warp import probabilities

LM = TableLM({"": [0.1, 0.2, 0.3, 0.4]}, stop_tokens=[3])
BEGIN, END = [0], [2, 1]


def left(history, **budget):
    """The probabilities after a text, of which the model itself gives 0.1, 0.2, 0.3 and 0.4."""
    row = LM.log_probs(history)[None]
    return probabilities(row, [thinking_budget(BEGIN, END, **budget)], [history])[0].tolist()


def test_a_text_that_does_not_think_is_not_changed():
    plain = pytest.approx([0.1, 0.2, 0.3, 0.4])
    for history in ([], [2, 1, 3], [0, 2, 1], [0, 3, 2, 1, 1], [2, 1]):
        assert left(history, at_most=0, at_least=0) == plain
    assert left([0, 2, 1, 0], at_most=0) == [0, 0, 1, 0], "but a second thought has a budget of its own"


def test_after_its_tokens_a_thought_is_ended_token_by_token():
    assert left([0, 3], at_most=2) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert left([0, 3, 3], at_most=2) == [0, 0, 1, 0]
    assert left([0, 3, 3, 2], at_most=2) == [0, 1, 0, 0]
    assert left([0, 3, 2], at_most=2) == [0, 1, 0, 0], "of an end that has begun, only the rest is written"
    assert left([0, 0, 0], at_most=2) == [0, 0, 1, 0], "the beginning of a thought means nothing in a thought"


def test_an_end_that_comes_too_early_gives_its_probability_to_wait():
    assert left([0, 3, 2], at_most=9, at_least=2, wait=0) == pytest.approx([0.3, 0, 0.3, 0.4])
    assert left([0, 3, 2], at_most=9, at_least=2) == pytest.approx([0.125, 0, 0.375, 0.5])
    assert left([0, 3, 3, 2], at_most=9, at_least=2, wait=0) == pytest.approx([0.1, 0.2, 0.3, 0.4]), (
        "two tokens are enough"
    )


def test_the_end_of_a_text_becomes_wait_and_later_the_end_of_the_thought():
    assert left([0, 1], at_most=9, at_least=2, wait=0, stop_tokens=[3]) == pytest.approx([0.5, 0.2, 0.3, 0])
    assert left([0, 1, 1], at_most=9, at_least=2, wait=0, stop_tokens=[3]) == pytest.approx([0.1, 0.2, 0.7, 0])
    assert left([0, 1, 1, 2], at_most=9, at_least=2, wait=0, stop_tokens=[3]) == pytest.approx([0.1, 0.6, 0.3, 0])


def test_every_sampled_text_keeps_its_budget():
    warp = [thinking_budget(BEGIN, END, at_most=6, at_least=3, wait=0, stop_tokens=LM.stop_tokens)]
    lengths = set()
    for seed in range(40):
        tokens = run(sample(LM, [0], rng=Seeded(seed), warp=warp), 40).tokens
        ends = next(place for place in range(len(tokens)) if tokens[place : place + 2] == END)
        lengths.add(ends)
    assert min(lengths) == 3 and max(lengths) == 6


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"at_most": -1}, "in at_most how many tokens .* a whole number of 0 or more, got -1"),
        ({"at_most": 2, "at_least": 3}, "a whole number of 3 or more, got 2"),
        ({"at_least": 0.5}, "in at_least how many tokens .* got 0.5"),
        ({"end": []}, r"at least one token in begin and in end, got \[0\] and \[\]"),
        (
            {"begin": "<think>"},
            r"begin the ids of tokens \(ints\): encode a text first, lm.encode\(...\), got '<think>'",
        ),
        ({"wait": 1}, "wait=1 would itself end the thinking"),
        ({"wait": 3, "stop_tokens": [3]}, "wait=3 would itself end the thinking"),
    ],
)
def test_a_wrong_argument_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        thinking_budget(**{"begin": BEGIN, "end": END, "at_most": 4} | wrong)


def test_tokens_of_another_model_and_missing_histories_are_named_when_it_is_used():
    row = torch.zeros(1, 3)
    with pytest.raises(
        ValueError, match=r"thinking_budget\(at_most=4\) names the tokens \[0, 7\].* the vocabulary of 3"
    ):
        probabilities(row, [thinking_budget([0], [7], at_most=4)], [[1]])
    with pytest.raises(ValueError, match="needs the tokens before each row"):
        probabilities(row, [thinking_budget([0], [1], at_most=4)])
    with pytest.raises(ValueError, match="no token is left in row 0"):
        only_the_end = torch.tensor([[-math.inf, 0.0, -math.inf]])
        probabilities(only_the_end, [thinking_budget([0], [1], at_most=4, at_least=2)], [[0]])


def test_a_row_whose_best_tokens_are_nearly_equal_is_the_end():
    rows = torch.tensor([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0]]).log()
    confidence = [-math.log(0.5), -(math.log(0.9) + math.log(0.1)) / 2]
    assert confidence[0] < 1 < confidence[1]
    warped = probabilities(rows, [stop_when_unsure(2, below=1, best=2)])
    assert warped.tolist() == [[0, 0, 1], pytest.approx([0.9, 0.1, 0])]
    assert probabilities(rows, [stop_when_unsure(2, below=1)]).argmax(-1).tolist() == [0, 0], "log 0 is sure"


def test_a_groups_confidence_is_a_mean_that_slides_over_the_new_tokens():
    """The confidences of a text by hand, and the first full group below the threshold ends it."""
    table = {"": [0.5, 0.4, 0.1], "a": [0.9, 0.09, 0.01], "b": [0.34, 0.33, 0.33]}
    lm = TableLM(table, ["a", "b", "c"], stop_tokens=["c"])
    sure, unsure = (-sum(map(math.log, table[letter])) / 3 for letter in "ab")
    given = [0, 1, 1, 1, 0, 0, 0, 1, 1, 1]  # after a, the rows' confidences are of a, a, b, b, b, a, ...
    confidences = token_confidences(torch.stack([lm.log_probs([0, *given[:n]]) for n in range(6)])).tolist()
    assert confidences == pytest.approx([sure, sure, unsure, unsure, unsure, sure])
    groups = group_confidences(confidences, 3)
    assert groups == pytest.approx([(2 * sure + unsure) / 3, (sure + 2 * unsure) / 3, unsure, (sure + 2 * unsure) / 3])
    assert group_confidences(confidences[:2], 3) == pytest.approx([sure]) and group_confidences([], 3) == []

    def ends(size, below):
        """After how many of the given tokens the end is certain."""
        warp, text = stop_when_unsure(2, below=below, group_size=size), [0]
        for number in range(len(given)):
            row = probabilities(lm.log_probs(text)[None], [warp], [History(text)])[0].tolist()
            if row == [0, 0, 1]:
                return number
            text.append(given[number])
        return None

    below = 0.4 * sure + 0.6 * unsure
    assert [ends(size, below) for size in (1, 2, 3, 4, 6, 11)] == [2, 3, 3, 4, None, None]
    with pytest.raises(ValueError, match=r"below=1, group_size=2\) needs a History over the text that grows"):
        stop_when_unsure(2, below=1.0, group_size=2)(torch.zeros(1, 3), [[0]])


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"stop_token": -1}, "id of the token that ends a text, a whole number of 0 or more, got -1"),
        ({"best": 0}, "in best how many tokens count"),
        ({"group_size": 0}, "in group_size over how many tokens the mean is taken, a whole number of 1 or more, got 0"),
        ({"below": math.nan}, "in below a finite number, the threshold, got nan"),
    ],
)
def test_a_wrong_threshold_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        stop_when_unsure(**{"stop_token": 2, "below": 1.0} | wrong)


def test_a_stop_token_of_another_model_is_named_when_it_is_used():
    with pytest.raises(ValueError, match=r"stop_when_unsure\(7, below=1\): the stop token is outside .* of 3 tokens"):
        probabilities(torch.zeros(1, 3), [stop_when_unsure(7, below=1.0)])
