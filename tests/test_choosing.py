"""Rules that choose one of several answers: what they choose, of equals the first, and errors that name the answer."""

import itertools
import math
from collections import Counter

import pytest
import torch

from tutorlib.measures.choosing import Choice, best_of_n, minimum_bayes_risk, pass_at, self_consistency

RULES = {
    "best_of_n": lambda answers: best_of_n(answers, len),
    "self_consistency": self_consistency,
    "minimum_bayes_risk": lambda answers: minimum_bayes_risk(answers, lambda one, other: one == other),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def test_best_of_n_takes_the_highest_score_of_any_kind_of_number():
    choice = best_of_n(["a", "bbb", "cc"], len)
    assert choice == Choice("bbb", 1, [1.0, 3.0, 2.0], [1])
    assert best_of_n([1, 2, 3], lambda answer: torch.tensor(-float(answer))).answer == 1
    assert best_of_n([0, 5], lambda answer: answer > 2).scores == [0.0, 1.0]
    assert best_of_n([1, 2], lambda answer: -math.inf).tied == [0, 1]


def test_the_vote_counts_final_answers_and_takes_the_first_text_that_has_the_winner():
    answers = ["so it is 4", "it is 5", "2 + 3 = 5", "no idea", ""]
    choice = self_consistency(answers, final=lambda text: text[-1:] if text[-1:].isdigit() else None)
    assert choice == Choice("it is 5", 1, [1.0, 2.0, 2.0, 0.0, 0.0], [1, 2])
    assert self_consistency(["", "", "x"]).answer == "x", "an empty answer does not vote"
    assert self_consistency(["", None]) == Choice("", 0, [0.0, 0.0], [0, 1])


def test_the_risk_is_smallest_for_what_lies_in_the_middle():
    """For numbers and the squared error, the mean minimises the risk; for the absolute error, the median."""
    answers = [0.0, 1.0, 2.0, 3.0, 10.0]
    squared = minimum_bayes_risk(answers, lambda one, other: -((one - other) ** 2))
    absolute = minimum_bayes_risk(answers, lambda one, other: -abs(one - other))
    assert (squared.answer, absolute.answer) == (3.0, 2.0)
    assert absolute.scores[2] == -(2 + 1 + 1 + 8) / 4
    one_way = minimum_bayes_risk([1, 2], lambda candidate, reference: candidate - 2 * reference)
    assert one_way.scores == [-3.0, 0.0], "candidates come first, references second"


def test_with_equality_as_utility_it_is_the_vote():
    for answers in itertools.product("ab", repeat=4):
        most = max(Counter(answers).values())
        risk, vote = RULES["minimum_bayes_risk"](answers), self_consistency(answers)
        assert (risk.index, risk.tied, max(vote.scores)) == (vote.index, vote.tied, most)


@every_rule
def test_of_equals_the_first_is_chosen_and_all_are_named(rule):
    choice = rule(["aa", "bb", "aa", "bb"])
    assert (choice.answer, choice.tied) == ("aa", [0, 1, 2, 3])
    assert rule(iter(["bb", "aa"])).answer == "bb"


@every_rule
def test_a_single_answer_is_chosen_even_if_it_is_empty(rule):
    assert (rule(["x"]).answer, rule([""]).answer) == ("x", "")


@every_rule
def test_no_answers_and_a_text_in_place_of_a_list_are_errors(rule):
    with pytest.raises(ValueError, match="no answers to choose from: draw at least one"):
        rule([])
    with pytest.raises(ValueError, match="expected a list of answers, got one text: 'Mia'"):
        rule("Mia")


@pytest.mark.parametrize(
    "rule, what",
    [
        (best_of_n, "the judge"),
        (self_consistency, "final"),
        (lambda answers, judge: minimum_bayes_risk(answers, lambda one, other: judge(one)), "the utility"),
    ],
)
def test_what_a_judge_raises_is_the_cause_of_an_error_that_names_the_answer(rule, what):
    def judge(answer):
        return 1 / answer

    with pytest.raises(ValueError, match=rf"{what} raised ZeroDivisionError \(.*\) for answer 1, 0") as error:
        rule([2, 0, 1], judge)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("value", [None, math.nan, "7", [1, 2], torch.ones(2), 1j])
def test_a_judge_that_returns_no_number_is_named(value):
    for rule in (best_of_n, lambda answers, judge: minimum_bayes_risk(answers, lambda *pair: judge(pair))):
        with pytest.raises(ValueError, match=r"must return a number \(not NaN\), got .* for answer 0, 'a{56}\.\.\."):
            rule(["a" * 99, "b"], lambda answer: value)


def test_a_final_answer_that_cannot_be_compared_is_named():
    with pytest.raises(ValueError, match=r"something hashable.*got \['x'\] for answer 0, 'x'"):
        self_consistency(["x"], final=list)


def test_pass_at_is_the_share_of_all_sets_with_a_right_answer():
    for drawn, right in ((5, 0), (5, 2), (6, 6)):
        marks = [place < right for place in range(drawn)]
        for k in range(1, drawn + 1):
            sets = list(itertools.combinations(marks, k))
            assert pass_at(k, right, drawn) == pytest.approx(sum(map(any, sets)) / len(sets))


@pytest.mark.parametrize("wrong", [(0, 1, 2), (3, 1, 2), (1, 3, 2), (1, -1, 2), (1.5, 1, 2)])
def test_pass_at_refuses_numbers_that_do_not_fit(wrong):
    with pytest.raises(ValueError, match="pass_at needs|only 2 answers were drawn"):
        pass_at(*wrong)
