"""The checkers of chapter 8 accept what is right, and tell every usual mistake which one it is."""

import math
import re

import pytest
from exercise_answers import exercises_of, found, is_right, uses_every_checker

from tutorlib import proof, zoo
from tutorlib.decoders.speculative import speculative
from tutorlib.exercises import is_it_exact as exercises
from tutorlib.exercises.is_it_exact import (
    check_lengths,
    check_my_check,
    check_samples,
    check_suspects,
    check_total_variation,
)
from tutorlib.warp import temperature

FUNCTIONS = [check_total_variation, check_my_check, check_samples]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    def stub(*_):
        raise NotImplementedError

    for answer in (None, ..., stub, lambda *_: None):
        check(answer)
    assert capsys.readouterr().out == "… not answered yet\n" * 4


@pytest.mark.parametrize("check", FUNCTIONS)
def test_code_that_fails_is_told_how(check):
    assert "raised ZeroDivisionError" in found(check, lambda *_: 1 / 0)


# Total variation.


def outcomes(a, b):
    return a.keys() | b.keys()


def off(a, b, over=None):
    return [a.get(key, 0) - b.get(key, 0) for key in (outcomes(a, b) if over is None else over)]


def test_the_librarys_total_variation_is_right():
    assert "nothing in common" in is_right(check_total_variation, proof.total_variation)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda a, b: sum(map(abs, off(a, b))), "half is missing"),
        (lambda a, b: sum(map(abs, off(a, b, a.keys() & b.keys()))) / 2, "outcomes that both have"),
        (lambda a, b: sum(map(abs, off(a, b, a.keys()))) / 2, "first dict"),
        (lambda a, b: sum(map(abs, off(a, b, b.keys()))) / 2, "second dict"),
        (lambda a, b: max(map(abs, off(a, b))), "single outcome"),
        (lambda a, b: sum(off(a, b)), "signs cancel"),
        (lambda a, b: math.sqrt(sum(value**2 for value in off(a, b))), "Euclidean"),
        (lambda a, b: sum(value**2 for value in off(a, b)) / 2, "You squared"),
        (lambda a, b: sum(min(a.get(key, 0), b.get(key, 0)) for key in outcomes(a, b)), "overlap"),
        (lambda a, b: 0.123, "and not 0.4"),
        (lambda a, b: "near", "Expected a number"),
        (lambda a, b: sum(abs(a[key] - b[key]) for key in outcomes(a, b)) / 2, "raised KeyError"),
    ],
)
def test_wrong_distances_are_told_why(mistake, complaint):
    assert complaint in found(check_total_variation, mistake)


# Suspects.


def by_hand(name):
    """The first token's distribution under each suspect, from the definition of its mistake."""
    p, q = exercises.P, exercises.Q
    kept = [min(one, other) for one, other in zip(p, q)]
    if name == "speculative":
        return p
    if name == "score_only":
        return q
    if name == "resample_from_target":
        return [one + (1 - sum(kept)) * two for one, two in zip(kept, p)]
    if name == "fixed_threshold":  # a and b pass 0.25, c does not
        return [q[0] + q[2] * p[0], q[1] + q[2] * p[1], q[2] * p[2]]
    return [(2 / 3) * 0.75, (2 / 3) * 0.25, 1 / 3]  # c is drafted, p/q = 1/3; the residual is 3 to 1


def test_the_mysteries_are_what_the_mistakes_give_by_hand():
    for letter, place in exercises.CASES.items():
        assert exercises.mystery()[letter] == pytest.approx(by_hand(exercises.SUSPECTS[place]))


def test_the_mysteries_can_be_told_apart():
    assert len({tuple(round(prob, 3) for prob in one) for one in exercises.mystery().values()}) == 5


ANSWER = {letter: exercises.SUSPECTS[place] for letter, place in exercises.CASES.items()}


def test_the_right_suspects():
    assert "its own mark" in is_right(check_suspects, ANSWER)


@pytest.mark.parametrize("swap", ["AB", "AC", "BD", "CE", "DE"])
def test_wrong_suspects_are_told_what_they_would_have_done(swap):
    one, other = swap
    wrong = ANSWER | {one: ANSWER[other], other: ANSWER[one]}
    message = found(check_suspects, wrong)
    assert f"{one} = (" in message and ANSWER[other] in message and len(message) > 60


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([1, 2], "Expected a dict"),
        ({"A": "speculative"}, "Expected a dict"),
        (ANSWER | {"A": "beam_search"}, "none of the suspects"),
        (ANSWER | {"A": ANSWER["B"]}, "more than once"),
    ],
)
def test_answers_of_another_form_are_told_so(answer, complaint):
    assert complaint in found(check_suspects, answer)


def test_suspects_left_open_are_not_answered():
    assert check_suspects.judge(ANSWER | {"A": None}).ok is None


# Lengths.


def shortest(name, gamma):
    """The shortest length at which a specimen is not exact, by enumeration."""
    warp = HOT if name == "unwarped_bonus" else ()
    for length in range(1, gamma + 3):
        made, due = zoo.texts(getattr(zoo, name), length=length, gamma=gamma, warp=warp)
        if proof.total_variation(made, due) > 1e-9:
            return length
    return None


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("name", exercises.LENGTHS)
def test_the_lengths_are_those_at_which_enumeration_sees_it(name, gamma):
    assert exercises.LENGTHS[name](gamma) == shortest(name, gamma)


def lengths(**changes):
    return {name: length(3) for name, length in exercises.LENGTHS.items()} | changes


def test_the_right_lengths():
    assert "5 tokens see all four" in is_right(check_lengths, lengths(), 3)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lengths(unwarped_bonus=3), "are all right"),
        (lengths(unwarped_bonus=5), "no need to wait"),
        (lengths(unwarped_bonus=1), "drafted, or redrawn"),
        (lengths(forgets_at_least_one=4), "it is still right"),
        (lengths(forgets_at_least_one=3), "before γ tokens"),
        (lengths(forgets_at_least_one=2), "Only a full draft"),
        (lengths(rollback_too_short=1), "the first round"),
        (lengths(rollback_too_short=5), "No need for a full draft"),
        (lengths(resample_from_target=2), "the first new token"),
        (lengths(resample_from_target="one"), "Expected a number"),
        ({"unwarped_bonus": 4}, "Expected a dict"),
    ],
)
def test_wrong_lengths_are_told_why(answer, complaint):
    assert complaint in found(check_lengths, answer, 3)


def test_lengths_left_open_are_not_answered():
    assert check_lengths.judge(lengths(unwarped_bonus=None), 3).ok is None


# A check.


HOT = (temperature(2.0),)


def my_check(length=4, gamma=2, warp=HOT, limit=1e-9, against="target"):
    def check(method):
        made, due = zoo.texts(method, length=length, gamma=gamma, warp=warp)
        if against == "draft":
            due = proof.target_distribution(zoo.tables()[1], "b", length, warp=warp, stop=())
        return proof.total_variation(made, due) < limit

    return check


def test_a_check_that_catches_all_three():
    assert "little left" in is_right(check_my_check, my_check())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (my_check(warp=()), "zoo.unwarped_bonus pass. It is exact as long as there is no warp"),
        (my_check(length=1), "zoo.unwarped_bonus pass. It is exact as long as there is no warp"),
        (my_check(limit=0.09), "off by less than 0.1: look that far, and allow no more than rounding"),
        (my_check(length=3), "zoo.forgets_at_least_one pass. It shows after a full draft"),
        (my_check(limit=0.5), "zoo.greedy_drafts pass."),
        (my_check(length=2, against="draft"), "refuses a right method"),
        (my_check(length=2, limit=0.0), "do not ask for equality"),
        (lambda method: method is speculative, "how a method is called"),
        (lambda method: proof.total_variation(*zoo.texts(method, length=1)), "Expected True or False"),
        (lambda method: 0.0, "Expected True or False"),
        (lambda method: True, "zoo.greedy_drafts"),
        (lambda method: False, "refuses a right method"),
    ],
)
def test_wrong_checks_are_told_why(mistake, complaint):
    assert complaint in found(check_my_check, mistake)


# Samples.


def excess_of_one(made, due):
    return sum((made[key] - due[key]) ** 2 / due[key] for key in due)


@pytest.mark.parametrize("ends", [math.ceil, float, round])
def test_the_right_number_of_samples(ends):
    message = is_right(check_samples, lambda made, due, excess: ends(excess / excess_of_one(made, due)))
    assert "37,500" in message


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda m, d, e: e / sum(abs(m[k] - d[k]) for k in d), "not their squares"),
        (lambda m, d, e: e / (sum(abs(m[k] - d[k]) for k in d) / 2), "the *square* of the difference"),
        (lambda m, d, e: e / sum((m[k] - d[k]) ** 2 / m[k] for k in d), "what is made"),
        (lambda m, d, e: e / sum((m[k] - d[k]) ** 2 for k in d), "not divided"),
        (lambda m, d, e: e / sum(abs(m[k] - d[k]) / d[k] for k in d), "Square them first"),
        (lambda m, d, e: math.sqrt(e / excess_of_one(m, d)), "no square root"),
        (lambda m, d, e: e * excess_of_one(m, d), "wrong way round"),
        (lambda m, d, e: 1000, "and not 37,500"),
        (lambda m, d, e: [1000], "Expected a number"),
    ],
)
def test_wrong_numbers_of_samples_are_told_why(mistake, complaint):
    assert complaint in found(check_samples, mistake)


# The chapter itself.

CHAPTER = "08_is_it_exact"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    names = {"math": math, "zoo": zoo, "proof": proof, "temperature": temperature}
    for task, code in zip(*exercises_of(CHAPTER), strict=True):
        exec(task, names)
        assert capsys.readouterr().out.endswith("… not answered yet\n")
        exec(code, names)
        exec("\n".join(re.findall(r"(?m)^check_.*", task)), names)
        assert capsys.readouterr().out.startswith("✓")
