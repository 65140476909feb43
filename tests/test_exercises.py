"""Every checker accepts what is right, names each of its mistakes, and answers anything else without raising.

One test for all chapters: the exercises are found in the modules of `tutorlib.course.exercises` and in the notebooks.
"""

import contextlib
import math
import re
import sys
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
import torch

import tutorlib
from tutorlib import TableLM
from tutorlib.course import zoo
from tutorlib.course.exercises import eagle as eagle_exercises
from tutorlib.course.exercises import sampling
from tutorlib.course.exercises import speculative as speculative_exercises
from tutorlib.course.exercises.judge import NOT_YET, NOTHING, Exercise

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CHAPTERS = {path.stem: path.stem[3:] for path in NOTEBOOKS}


OPTIONAL = {"best_first"}  # chapters that a reader may skip are shorter

# What a chapter's kernel holds when its exercises begin, beside the front door.
IN_THE_KERNEL = {
    "torch": torch, "math": math, "zoo": zoo,
    "expert_says": {"1961 ": 0.16, "1964 ": 0.1, "umber ": 0.0005},
    "amateur_says": {"1961 ": 0.1, "1964 ": 0.05, "umber ": 0.2},
}  # fmt: skip


def exercises_of(chapter):
    module = import_module(f"tutorlib.course.exercises.{chapter}")
    return {name: check for name, check in vars(module).items() if name.startswith("check_")}


EXERCISES = {
    (chapter, name): check
    for chapter in CHAPTERS.values()
    for name, check in exercises_of(chapter).items()
    if hasattr(check, "mistakes")
}
ALL = pytest.mark.parametrize("check", EXERCISES.values(), ids=["-".join(key) for key in EXERCISES])


class Odd:
    def __repr__(self):
        return "odd"


def stub(*_):
    raise NotImplementedError


def forgets_return(*given):
    result = given  # noqa: F841


def fails(*_):
    raise RuntimeError("as readers' code does")


class Hostile:
    """An object that cannot be shown, and ends the interpreter when it is compared, counted, read or converted."""

    def __repr__(self):
        raise RuntimeError

    __eq__ = __len__ = __iter__ = __getitem__ = __float__ = __bool__ = __array__ = lambda *_: sys.exit(0)
    __hash__ = None


class Message(Exception):
    def __str__(self):
        raise RuntimeError


def fails_without_words(*_):
    raise Message


ITSELF, MAPPED = [1], {}
ITSELF.append(ITSELF)
MAPPED["a"] = MAPPED
# What may do anything when it is looked at: a verdict is all that is promised.
HOSTILE = (Hostile(), [Hostile()], {"a": Hostile()}, ITSELF, MAPPED)
LEAVES = (lambda *_: sys.exit(0), lambda *_: exit(1), fails_without_words)  # functions that leave in other ways

ODD = (
    "abc", b"ab", math.nan, math.inf, -(10**400), True, [], {}, (), [[]], [[1], [1, 2]], [1, 2], ("a", "b"), {1, 2},
    Odd(), type, torch.zeros(0), torch.zeros(3, 3), torch.zeros(2, dtype=torch.complex64), iter([1]),
)  # fmt: skip


@ALL
def test_what_is_expected_is_right_and_each_of_at_most_five_mistakes_is_named(check):
    assert check.judge(check.expected).ok and 1 <= len(check.mistakes) <= 5
    for message, mistakes in check.mistakes.items():
        for number, mistake in enumerate(mistakes if isinstance(mistakes, tuple) else (mistakes,)):
            verdict = check.judge(mistake)
            assert verdict.ok is False and verdict.message.endswith(message), (message, number, verdict.message)


@ALL
def test_a_stub_is_not_answered_yet(check, capsys):
    assert check.judge(None) == check.judge(stub) == check.judge(lambda *_: None) == (None, NOT_YET)
    assert check.judge(forgets_return) == (False, NOTHING)
    assert check(stub) is None and capsys.readouterr().out == f"… {NOT_YET}\n"


@ALL
def test_odd_answers_are_wrong_and_raise_nothing(check):
    ok, said = check.judge(fails)
    assert ok is False and "RuntimeError: as readers' code does" in said
    assert "without parentheses" in check.judge([1, 2]).message
    for odd in ODD:
        verdict = check.judge(lambda *_: odd)  # noqa: B023
        assert verdict.ok is False and 0 < len(verdict.message) < 700, odd
        assert "cannot be read" not in verdict.message, odd
    for odd in HOSTILE:
        assert check.judge(odd).ok is check.judge(lambda *_: odd).ok is False  # noqa: B023
    for leaves in LEAVES:
        assert check.judge(leaves).ok is False


@pytest.mark.parametrize(("notebook", "chapter"), CHAPTERS.items(), ids=CHAPTERS)
def test_the_chapters_exercises_begin_unanswered_and_their_solutions_are_right(notebook, chapter, capsys):
    cells = nbformat.read(Path(__file__).parents[1] / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    tasks = [cell.source for cell in cells if cell.cell_type == "code" and re.search(r"(?m)^check_", cell.source)]
    folded = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    solutions = [code for text in folded for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    calls = [re.findall(r"(?m)^(?:check_.*)", task) for task in tasks]
    assert {call.partition("(")[0] for lines in calls for call in lines} == set(exercises_of(chapter))
    assert len(tasks) == len(solutions) >= (2 if chapter in OPTIONAL else 4)
    names = IN_THE_KERNEL | {name: getattr(tutorlib, name) for name in tutorlib.__all__}
    for task, solution, check in zip(tasks, solutions, calls, strict=True):
        exec(task, names)
        assert re.findall(r"(?m)^[✓✗…].*", capsys.readouterr().out) == [f"… {NOT_YET}"] * len(check)
        exec(solution, names)
        exec("\n".join(check), names)
        said = capsys.readouterr().out
        assert re.findall(r"(?m)^[✓✗…]", said) == ["✓"] * len(check), said


def test_a_function_must_leave_its_arguments_alone_and_answer_in_every_case():
    check = Exercise("", [([1, 2],), ([3],)], sum, {"You multiplied.": math.prod}, hint="Add.")
    assert "work on copies" in check.judge(lambda values: values.pop()).message
    assert "in every branch" in check.judge(lambda values: 3 if len(values) > 1 else None).message
    assert check.judge(lambda values: 7) == (False, "For ([1, 2]): you gave 7, expected 3. Add.")
    assert not check.judge(fails).message.endswith("Add.")
    with contextlib.redirect_stdout(None):
        assert check.judge(lambda values: print() or sum(values)).ok


# ----------------------------------------------------------------------------------------------------------------------
# Answers that are not functions of numbers: a prediction, a table, a loop over a model

ROUND = TableLM(
    {"a": {"b": 0.6, "c": 0.4}, "b": {"c": 0.9, "a": 0.1}, "c": {".": 0.5, "a": 0.3, "b": 0.2}},
    vocab=["a", "b", "c", "."],
    stop_tokens=["."],
)
BY_HAND_TREE = {"cells": 9, "positions": [7, 7, 8, 8, 9]}
BY_HAND = TableLM({"a": [0.1, 0.5, 0.4], "b": [0.4, 0.3, 0.3], "c": [0.8, 0.1, 0.1]}, vocab=["a", "b", "c"])
WORDS = "the cat saw the dog jump and the dog ran away and the dog"
CIRCLE = TableLM({"a": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, vocab=["a", "b", "c"])
SURE, UNSURE = {"red": 0.9, "kite": 0.05, "umbrella": 0.05}, {"red": 0.4, "kite": 0.3, "umb": 0.3}
WORDS_OF_TWO = {
    "p": {"red": 0.4, "kite": 0.45, "umbrella": 0.15}, "q": {"red": 0.5, "kite": 0.3, "umb": 0.2},
}  # fmt: skip
MYSTERY = ["speculative", "score_only", "greedy_drafts", "fixed_threshold", "resample_from_target"]
ONE_ROUND = {
    "a drafted token is accepted": 0.6, "c is rejected, if it is drafted": 0.8,
    "a is drawn after a rejection": 0.75, "a was drafted, if a was generated": 0.5,
}  # fmt: skip
LENGTHS = ["resample_from_target", "rollback_too_short", "unwarped_bonus", "forgets_at_least_one"]
STOPS = {"only presence stops it": [2, 1.5], "only repetition stops it": [12, 10.5]}
LONGEST = {"2 tokens, no 2-gram twice": 5, "3 tokens, no 2-gram twice": 10, "2 tokens, no 3-gram twice": 10}
THREE = {"expert": [0.6, 0.39, 0.01], "amateur": [0.8, 0.1999, 0.0001]}
P, Q = (0.6, 0.3, 0.1), (0.3, 0.2, 0.5)
REQUEST = {"temperature": 2, "top_p": 0.8, "samplers": ["temperature", "top_p"]}
MISLED = {"first short": 0.05, "first long": 0.45, "rest short": 1, "rest long": 0.01}
SHARES = {"match_drawn": 0.29, "match": 0.1, "ratio": 0.6}
FAULTS = {
    "the map d2t is read as ids": "near 0", "layer 9 is read three times": "about half",
    "64 requests share the calls": "unchanged",
}  # fmt: skip
ONE_LEVEL = {
    "features off by one": "fewer", "state normed": "the same", "wrong order of layers": "fewer", "empty map": "fewer",
}  # fmt: skip
COSTS = {"methods": {"lookup": (2.1, 7, 0), "model": (4.0, 7, 6)}, "costs": {7: 1.4}, "draft": 0.1}
SHAPES = {"top-p keeps more": [0.6] + 8 * [0.05], "min-p keeps more": 16 * [1 / 16]}
BELOW_GREEDY = {
    "a": {"b": 0.55, "c": 0.45}, "ab": {"a": 0.4, "b": 0.3, "c": 0.3}, "ac": {"a": 0.501, "b": 0.499},
    "ba": {"a": 1.0}, "bb": {"a": 1.0}, "bc": {"a": 1.0},
    "ca": {"a": 0.34, "b": 0.33, "c": 0.33}, "cb": {"a": 0.34, "b": 0.33, "c": 0.33},
}  # fmt: skip


def predicted(tokens=3, target_calls=3, stopped="stop"):
    return {"tokens": tokens, "target_calls": target_calls, "stopped": stopped}


def answers(chapter, name, right, *wrong, **given):
    """A row of the table: the right answer, wrong ones each with some words of what is said to it, other arguments."""
    check = getattr(import_module(f"tutorlib.course.exercises.{chapter}"), name)
    return pytest.param(check, right, wrong, given, id=f"{chapter}-{name}")


@pytest.mark.parametrize(
    ("check", "right", "wrong", "given"),
    [
        answers(
            "greedy", "check_prediction", predicted(), (predicted(stopped="budget"), "stop token first"),
            (predicted(tokens=2), "left the stop token out"), (predicted(tokens=10), "the budget"),
            (predicted(target_calls=4), "never fed"), (predicted(target_calls=1), "another call"), ({}, "keys"),
            lm=ROUND, prompt="a", max_new_tokens=10,
        ),
        answers(
            "greedy", "check_cycle", {"aa": [0, 1], "ab": [0, 1], "bb": [1, 0], "ba": [1, 0]},
            ({"a": [0, 1], "b": [1, 0]}, "every 2 tokens"), ({"": [0.9, 0.1]}, "repeats one token"),
            ({"aa": [0.1, 0.9], "ab": [0.1, 0.9], "bb": [0.9, 0.1], "ba": [0.1, 0.9]}, "every 3 tokens"),
            ({"": [0.5, 0.5]}, "equally likely"), ({"a": [0.5, 0.2]}, "sum to 1"), ([0.5], "Expected a dict"),
        ),
        answers(
            "greedy", "check_counterexample", {"a": [0, 0.51, 0.49], "b": [0.34, 0.33, 0.33], "c": [0, 0, 1]},
            ({"": [0.8, 0.1, 0.1]}, "greedy is right: of all 27"), ({"": [0.4, 0.4, 0.2]}, "equally likely"),
            ({"a": [0, 0.7, 0.3], "b": [0.34, 0.33, 0.33], "c": [0, 0, 1]}, "closer together"),
            ({"a": [0.5, 0.2, 0.2]}, "sum to 1"), ({"x": [1, 0, 0]}, "not a table"), ([0.5, 0.5], "Expected a dict"),
            (TableLM({"": [0.6, 0.4]}, ["x", "y"]), "cannot read"), (TableLM.random(30, 1, 0), "use fewer"),
        ),
        answers(
            "next_token", "check_rows", {"without a cache": 1540, "with a cache": 58},
            ({"without a cache": 1540, "with a cache": 59}, "never fed"),
            ({"without a cache": 1540, "with a cache": 40}, "left the prompt out"),
            ({"without a cache": 760, "with a cache": 58}, "the new tokens count too"),
            ({"without a cache": 1580, "with a cache": 58}, "one too many in each call"), ({}, "keys"),
            prompt=19, new=40,
        ),
        answers(
            "next_token", "check_flattened", [math.log(200)] + [0.0] * 20, ([3.0, 0.0], "more rivals"),
            ([0.0] * 20, "raise its logit"), ([9.0] + [0.0] * 20, "share the rest evenly"), (3, "list"),
        ),
        answers(
            "next_token", "check_intensity", 2.5, (1.25, "half of it"), (0.4, "upside down"), (0.5, "one token"),
            bytes_each=4, tokens=5,
        ),
        answers(
            "next_token", "check_break_even", 54, (27, "one byte arrives"), (108, "Twice too many"), (3, "Set the"),
            bytes_each=4, peak_operations=8.1e12, bandwidth=300e9,
        ),
        answers(
            "sampling", "check_order", {"temperature first": 0.405, "filter first": 0.586},
            ({"temperature first": 0.586, "filter first": 0.586}, "other order"),
            ({"temperature first": 0.322, "filter first": 0.586}, "temperature alone"), ({"a": 1}, "keys"),
            ({"temperature first": 0.464, "filter first": 0.586}, "Calculate with three decimals"),
            ({"temperature first": 0.405, "filter first": 1}, "(filter first) You drop the token that crosses"),
            ({"temperature first": None, "filter first": 0.405}, "(filter first) That is the other order"),
            probs=[0.5, 0.25, 0.1, 0.05, 0.05, 0.05], temperature=2, p=0.7,
        ),
        answers(
            "repetition", "check_stops", STOPS,
            (dict(zip(STOPS, reversed(STOPS.values()), strict=True)), "Here only repetition stops it"),
            (STOPS | {"only presence stops it": [3, 2.9]}, "both penalties"),
            (STOPS | {"only repetition stops it": [3, 0]}, "neither penalty"),
            (STOPS | {"only presence stops it": [1, 2]}, "larger logit"), ({}, "keys"),
            (STOPS | {"only presence stops it": [1, 2, 3]}, "token 0 and token 1"),
        ),
        answers(
            "repetition", "check_breaking", {"strength": 1.6, "given instead": "Tom"},
            ({"strength": 3, "given instead": "Leo"}, "lower strength"),
            ({"strength": -2, "given instead": "x"}, "more often"),
            ({"strength": 1.6, "given instead": "Leo"}, "compute all four"), ({}, "keys"),
        ),
        answers(
            "repetition", "check_longest", LONGEST, (LONGEST | {"2 tokens, no 3-gram twice": 8}, "that many different"),
            (LONGEST | {"3 tokens, no 2-gram twice": 7}, "follow itself"), ({}, "keys"),
            (LONGEST | {"3 tokens, no 2-gram twice": 6}, "any token"),
        ),
        answers(
            "sampling", "check_kept", {"top-k": 2, "top-p": 3, "min-p": 4},
            ({"top-k": 3, "top-p": 3, "min-p": 4}, "Top-k counts"),
            ({"top-k": 2, "top-p": 2, "min-p": 4}, "(top-p) You drop the token that crosses the threshold"),
            ({"top-k": None, "top-p": 2, "min-p": None}, "crosses the threshold"),
            ({"top-k": 2, "top-p": 3, "min-p": 1}, "is relative"), ({"top-k": 2, "top-p": 3, "min-p": 3}, "exactly"),
            ({"top-k": 2, "top-p": 6, "min-p": 4}, "from the largest down"), ({"top-k": 2}, "keys"),
            probs=[0.4, 0.2, 0.15, 0.1, 0.08, 0.07], k=2, p=0.7, min_p=0.25,
        ),
        answers(
            "sampling", "check_shapes", SHAPES, ({**SHAPES, "top-p keeps more": [0.5, 0.5]}, "one token so likely"),
            ({**SHAPES, "min-p keeps more": [0.95, 0.05]}, "has enough for min-p"),
            ({**SHAPES, "min-p keeps more": [0.9, 0.2]}, "sum to 1"), ({**SHAPES, "min-p keeps more": [1]}, "2 to"),
            ({**SHAPES, "min-p keeps more": [math.nan, 1]}, "sum to nan"), ({"a": 1}, "keys"),
            ({**SHAPES, "min-p keeps more": [0.5, -0.1, 0.6]}, "cannot be negative; one of yours is -0.1"),
            ({"top-p keeps more": None, "min-p keeps more": [0.95, 0.05]}, "has enough for min-p"), p=0.9, min_p=0.1,
        ),
        answers(
            "contrastive", "check_thresholds", {"umber ": 0.0005 / 0.16}, ({"umber ": 0.0005}, "divide by it"),
            ({"umber ": 320}, "wrong way round"), ({"umber ": 0.5}, "Solve"), ({"x": 1}, "texts of tokens"),
            expert=IN_THE_KERNEL["expert_says"], amateur=IN_THE_KERNEL["amateur_says"],
        ),
        answers(
            "contrastive", "check_weight", math.log(40, 100), (1 + math.log(40, 100), "guidance scale"),
            (0.4, "divided 40 by 100"), (math.log(100, 40), "wrong way round"), (1, "smaller weight"), (3, "both"),
        ),
        answers(
            "contrastive", "check_three", THREE,
            (THREE | {"expert": [0.3, 0.6, 0.1]}, "Greedy decoding chooses token 1"),
            (THREE | {"expert": [0.5, 0.3, 0.2]}, "below the cut"),
            (THREE | {"amateur": [0.4, 0.1, 0.5]}, "without a cut"), (THREE | {"amateur": [0.5, 0.5, 0]}, "above 0"),
            (THREE | {"expert": [1, 1]}, "three probabilities"), ({}, "keys"),
        ),
        answers(
            "speculative", "check_round", ONE_ROUND,
            (ONE_ROUND | {"a drafted token is accepted": 0.29}, "independent draws"),
            (ONE_ROUND | {"c is rejected, if it is drafted": 0.4}, "has been drafted"),
            (ONE_ROUND | {"a is drawn after a rejection": 0.43}, "Leave c out"),
            (ONE_ROUND | {"a is drawn after a rejection": 0.6}, "p itself"),
            (ONE_ROUND | {"a was drafted, if a was generated": 0.3}, "Divide by"), ({"a": 1}, "keys"),
        ),
        answers(
            "speculative", "check_disagreement", {"p": [0.34, 0.33, 0.33], "q": [0.33, 0.34, 0.33]},
            ({"p": [0.4, 0.3, 0.3], "q": [0.3, 0.4, 0.3]}, "probability 0.90 only"),
            ({"p": [0.4, 0.3, 0.3], "q": [0.5, 0.3, 0.2]}, "same most likely"),
            ({"p": [0.4, 0.4, 0.2], "q": [0.4, 0.3, 0.3]}, "share the largest"),
            ({"p": [0.4, 0.4, 0.4], "q": [0.4, 0.3, 0.3]}, "sum to 1"), ({"p": [1, 0, 0]}, "keys"),
        ),
        answers(
            "is_it_exact", "check_suspects",
            dict(zip("ABCDE", [MYSTERY[i] for i in (4, 2, 0, 3, 1)], strict=True)),
            (dict(zip("ABCDE", MYSTERY, strict=True)), "not from"),
            (dict.fromkeys("ABCDE", MYSTERY[0]), "more than once"), (dict.fromkeys("ABCDE", "me"), "of the five"),
        ),
        answers(
            "is_it_exact", "check_lengths",
            dict(zip(LENGTHS, (1, 2, 4, 5), strict=True)), (dict(zip(LENGTHS, (1, 2, 3, 5), strict=True)), "too small"),
            gamma=3,
        ),
        answers(
            "is_it_exact", "check_my_check",
            lambda method: not hasattr(zoo, method.__name__),
            (lambda method: True, "lets zoo."), (lambda method: False, "rejects a correct method"), (len, "raised"),
            (lambda method: 0.5, "True or False"),
        ),
        answers(
            "is_it_exact", "check_blind_case", {"p": [0.5, 0.5, 0], "q": [0.25, 0.25, 0.5]},
            ({"p": [0.5, 0.5, 0], "q": [0.2, 0.3, 0.5]}, "shows the mistake"),
            ({"p": [0.5, 0.5, 0], "q": [0.5, 0.5, 0]}, "only 0.00"),
            ({"p": [0.5, 0.5, 0.5], "q": [1, 0, 0]}, "sum to 1"), ({"p": [0.5, 0.5]}, "keys"),
        ),
        answers(
            "drafts_for_free", "check_draft", "ran away and", ("jump and the", "latest counts"),
            ("and the dog", "itself"),
            ("ran", "the beginning of the draft"), ([], "Something is drafted"), ("x", "one word fewer"), (3, "list"),
            text=WORDS, longest=3, count=3,
        ),
        answers(
            "drafts_for_free", "check_long_match", "a b c d yes b c d no a b c d", ("a b c d", "Nothing is drafted"),
            ("b c d no b c d", "repeat a longer passage"), ("a b c d yes a b c d", "has the same continuation"),
            ("a b c d yes " * 5, "Your text has 25 words"), ([1, 2, 1], "string of words"), (3, "list"),
            longest=3, most=20,
        ),
        answers(
            "drafts_for_free", "check_calls", {"one": 8, "two": 6, "eight": 4},
            ({"one": 16, "two": 6, "eight": 4}, "every draft were rejected"),
            ({"one": 8, "two": 8, "eight": 4}, "(two) Did you count the token"),
            ({"one": 8, "two": 6, "eight": 2}, "(eight) You let"), ({"one": 8, "two": 6, "eight": 5}, "too large"),
            ({"one": 8}, "keys"), gammas={"one": 1, "two": 2, "eight": 8}, lm=CIRCLE, prompt="abcabc", new_tokens=16,
        ),
        answers(
            "drafts_for_free", "check_pays", {"lookup": 1.5, "model": 2.0}, ({"lookup": 2.1, "model": 2.0}, "per call"),
            ({"lookup": 1.5, "model": 4 / 1.4}, "draft model's calls"), ({"model": 2.0}, "keys"), **COSTS,
        ),
        answers(
            "other_tokenizers", "check_rates", {"TLI": 0.775, "SLEM": 0.4},
            ({"TLI": 0.7, "SLEM": 0.4}, "did not renormalise"), ({"TLI": 0.85, "SLEM": 0.4}, "added up what"),
            ({"TLI": 0.419, "SLEM": 0.4}, "multiplied p and q"), ({"TLI": 0.775, "SLEM": 0.419}, "let SLEM draw"),
            ({"TLI": 0.775, "SLEM": 0.5}, "own probability"), ({"TLI": 0.775, "SLEM": 0.775}, "TLI's rate"),
            ({"TLI": 0.775, "SLEM": 0.1}, "take p of the guess"), ({"TLI": 0.775}, "keys"), **WORDS_OF_TWO,
        ),
        answers(
            "other_tokenizers", "check_slem_wins", {"p": SURE, "q": UNSURE}, (WORDS_OF_TWO, "target's most likely"),
            ({"p": SURE, "q": {"red": 0.9, "kite": 0.05, "umb": 0.05}}, "Make the target surer"),
            ({"p": SURE, "q": {"red": 0.3, "kite": 0.3, "umb": 0.4}}, "has no such token"),
            ({"p": SURE, "q": {"red": 0, "kite": 0, "umb": 1}}, "TLI cannot draw"), ({"p": SURE, "q": SURE}, "q needs"),
            ({"p": dict.fromkeys(SURE, 0.5), "q": UNSURE}, "sum to 1"), ({"p": SURE}, "keys"),
            target=list(SURE), draft=list(UNSURE), ahead=0.2,
        ),
        answers(
            "bake_off", "check_gammas", {"1 text": 7, "4 texts": 3, "16 texts": 0},
            ({"1 text": 7, "4 texts": 3, "16 texts": 2}, "Is any draft worth that"),
            ({"1 text": 2, "4 texts": 3, "16 texts": 0}, "For 1 text, draft more"),
            ({"1 text": 7, "4 texts": 7, "16 texts": 0}, "For 4 texts, draft fewer"),
            ({"1 text": 9, "4 texts": 3, "16 texts": 0}, "whole number"), ({"1 text": 7}, "keys"),
        ),
        answers(
            "bake_off", "check_machine", {"call": [10] * 9, "small": 0.5, "large": 5},
            ({"call": [10] * 9, "small": 0.5, "large": 0.5}, "large draft loses when"),
            ({"call": [10] * 9, "small": 0.5, "large": 10}, "Both must be faster"),
            ({"call": [10] * 8, "small": 0.5, "large": 5}, "nine times"),
            ({"call": [10] * 8 + [9], "small": 0.5, "large": 5}, "less time"),
            ({"call": [10] * 9, "small": 5, "large": 0.5}, "cannot take longer"), ({}, "keys"),
        ),
        answers(
            "medusa", "check_by_hand", BY_HAND_TREE, (BY_HAND_TREE | {"cells": 15}, "causal mask"),
            (BY_HAND_TREE | {"cells": 13}, "siblings see"), (BY_HAND_TREE | {"cells": 4}, "itself"),
            (BY_HAND_TREE | {"cells": 8}, "parent only"), (BY_HAND_TREE | {"cells": 10}, "too large"),
            (BY_HAND_TREE | {"positions": [7, 8, 9, 10, 11]}, "count nodes"),
            (BY_HAND_TREE | {"positions": [0, 0, 1, 1, 2]}, "depths alone"),
            (BY_HAND_TREE | {"positions": [8, 8, 9, 9, 10]}, "too many"),
            (BY_HAND_TREE | {"positions": [6, 6, 7, 7, 8]}, "too few"),
            (BY_HAND_TREE | {"positions": [7, 7]}, "for each node"), ({}, "keys"),
        ),
        answers(
            "medusa", "check_wide", [[0.35, 0.3, 0.25], [0.5, 0.2, 0.1]],
            ([[0.4, 0.3, 0.2], [0.9, 0.05, 0.05]], "Head 1 is too good"),
            ([[0.9, 0.05, 0.05], [0.5, 0.2, 0.1]], "the path (0, 0) in 0.45"),
            ([[0.5, 0.4, 0.3], [0.5, 0.2, 0.1]], "at most 1"), ([[0.2, 0.3, 0.25], [0.5, 0.2, 0.1]], "fall from rank"),
            ([[0.5, 0.4, 0.1]], "two lists"), ([[0.5], [0.5]], "two lists"),
        ),
        answers(
            "eagle", "check_kept", {"kept": ["red", "blue", "red lamp", "blue bell"], "tokens": 2.47},
            ({"kept": ["old hat", "blue bell", "red", "red lamp"], "tokens": 2.47}, "multiply along the path"),
            ({"kept": ["red", "red lamp", "red kite", "blue bell"], "tokens": 2.47}, "never be reached"),
            ({"kept": ["red", "red lamp", "red kite", "blue"], "tokens": 2.44}, "'blue bell' has"),
            ({"kept": ["red", "blue", "red lamp", "blue bell"], "tokens": 1.47}, "add 1"),
            ({"kept": ["red", "blue", "red lamp", "blue bell"], "tokens": 3}, "four paths"),
            ({"kept": ["red", "blue", "red lamp"], "tokens": 2.2}, "4 different"),
            ({"kept": ["lamp"] * 4, "tokens": 2.2}, "Give paths"), ({"kept": ["red"]}, "keys"),
        ),
        answers(
            "eagle", "check_chosen_wins", {"p": [0.9, 0.1, 0], "q": [0.4, 0.3, 0.3]},
            ({"p": [0.5, 0.5], "q": [0.6, 0.4]}, "nearly sure"), ({"p": [0.9, 0.1], "q": [0.8, 0.2]}, "nearly sure"),
            ({"p": [0.9, 0.1, 0], "q": [0.7, 0.1, 0.2]}, "right way round"),
            ({"p": [0.9, 0.1], "q": [0.5, 0.5]}, "equally likely"), ({"p": [0.9, 0.2], "q": [0.6, 0.4]}, "sum to 1"),
            ({"p": [1.0], "q": [0.5, 0.5]}, "same 2 to 10"), ({"p": [1.0]}, "keys"),
        ),
        answers(
            "beam_search", "check_beams", [["b", "c"], ["ca", "ba"], ["cab", "cac"]],
            ([["c", "b"]], "more likely one first"), ([["b", "c"], ["ba", "ca"], ["x", "y"]], "likely one first"),
            ([["b", "c"], ["ca", "bb"]], "more than"), ([["b", "c"], ["ca", "ba"], ["cab", "bab"]], "its own best"),
            ([["b"]], "holds 2"), ([["ab", "ac"]], "Leave the prompt out"), ([["b", "c"]], "as far as it goes"),
            (3, "list"), lm=BY_HAND, prompt="a", beams=2, length=3,
        ),
        answers(
            "beam_search", "check_penalties", {0: "A", 0.5: "B", 1: "C"},
            ({0: "C", 0.5: "B", 1: "C"}, "That is the worst"), ({0: "A", 0.5: "A", 1: "C"}, "to the power 0.5"),
            ({0: "A", 0.5: "B", 1: "D"}, "not one of the texts"), ({0: "A"}, "keys"),
            finished={"A": (-2.0, 1), "B": (-3.0, 3), "C": (-7.2, 9)},
        ),
        answers(
            "beam_search", "check_worse_beam", BELOW_GREEDY, ({"": [0.8, 0.1, 0.1]}, "at every length"),
            (BELOW_GREEDY | {"ca": [1, 0, 0]}, "end well"), ({"x": [1, 0, 0]}, "not a table"),
        ),
        answers(
            "best_first", "check_order", ["", "b", "c", "ca", "ba", "cab"], (["b", "c"], "begin with ''"),
            (["", "b", "ba"], "'c' with 0.4 is waiting"), (["", "b", "ca"], "'c' has to be scored first"),
            (["", "b", "c", "c"], "second time"), (["", "b", "c", "ca"], "goes on after 'ca'"), ([], "begin with ''"),
            (["", "b", "c", "ca", "ba", "cab", "bb"], "the search ends"), (["", "x"], "the letters a, b, c"),
            lm=BY_HAND, prompt="a", beams=2, length=3,
        ),
        answers(
            "best_first", "check_heuristic", {"a": 0, "b": 0, "c": -1},
            ({"a": 0, "b": 0, "c": 0}, "is admissible"), ({"a": 0, "b": 0, "c": -0.5}, "lower its number further"),
            ({"a": 0, "b": -2, "c": 0}, "made the number of 'b' too low"), ({"a": -9, "b": 0, "c": -1}, "only one"),
            ({"a": 0, "b": 0, "c": -math.inf}, "finite"), ({"a": 0}, "keys"), lm=BY_HAND, prompt="a",
        ),
        answers(
            "memory", "check_texts", {"cache": 1.05, "texts": 10}, ({"cache": 0.52, "texts": 10}, "half of it"),
            ({"cache": 1.05, "texts": 14}, "left out the weights"), ({"cache": 1.05, "texts": 11}, "Round down"),
            ({"cache": 4.19, "texts": 10}, "query heads"), ({"cache": 1.05e9, "texts": 10}, "in bytes"), ({}, "keys"),
            memory=15, weights=3.8, layers=32, heads=128, key_heads=32, head_size=128, tokens=2000, bytes_each=2,
        ),
        answers(
            "memory", "check_block", [0.9] * 63 + [1.0], ([0.1] * 63 + [1.0], "no worse"), ([0.0] * 64, "All weights"),
            (torch.linspace(-1, 1, 64), "at least twice"), ([1.0] * 63, "64 finite"), ("abc", "64 numbers"),
        ),
        answers(
            "checks", "check_kept_shares", SHARES, (SHARES | {"match_drawn": 0.46}, "drew both tokens from p"),
            (SHARES | {"match_drawn": 0.6}, "share of ratio"), (SHARES | {"match": 0.3}, "*its* most likely token"),
            (SHARES | {"match": 0.5}, "comes from p"), (SHARES | {"match": 0.6}, "not the most likely one of p"),
            (SHARES | {"ratio": 0.4}, "how often a token is rejected"), (SHARES | {"ratio": 0.29}, "the smaller one"),
            (SHARES | {"ratio": 0.9}, "(ratio) 0.9 is too large"), ({"ratio": 1}, "keys"), p=P, q=Q,
        ),
        answers(
            "checks", "check_whole_draft", {"p": [0.1, 0.9], "q": [0.9, 0.1]},
            ({"p": [0.9, 0.1], "q": [0.1, 0.9]}, "much less than the draft does"),
            ({"p": [0.1, 0.9], "q": [0.5, 0.5]}, "their product is 1 or more"),
            ({"p": [0.3, 0.7], "q": [0.7, 0.3]}, "at most 0.2"), ({"p": [0.5, 0.6], "q": [0.5, 0.5]}, "sum to 1"),
            ({"p": [0, 1], "q": [1, 0]}, "both a and b"), ({"p": [1], "q": [1]}, "two probabilities"),
        ),
        answers(
            "choosing", "check_pass_at", 1 - 21 / 45, (0.51, "draw one answer twice"), (21 / 45, "none"),
            (0.6, "counted twice"), (0.3, "one answer"), (0.09, "all of them"), (0.8, "only wrong answers"),
            k=2, correct=3, drawn=10,
        ),
        answers(
            "choosing", "check_case_for_voting", [(0.3, False), (0.25, True), (0.25, True), (0.2, True)],
            ([(0.4, True), (0.3, False), (0.3, True)], "a most probable text is right"),
            ([(0.6, False), (0.4, True)], "at least 0.7"), ([(0.5, False), (0.4, True)], "sum to 0.9"),
            ([(1.0, True)], "two to five pairs"), ([(0.5, 1), (0.5, 0)], "True or False"),
        ),
        answers(
            "other_engines", "check_kept", {"first": 8, "last": 5}, ({"first": 5, "last": 8}, "the wrong way round"),
            ({"first": 7, "last": 5}, "crosses the threshold"), ({"first": 8, "last": 4}, "crosses the threshold"),
            ({"first": 3, "last": 5}, "It divides them"), ({"first": 16, "last": 5}, "(first) 16 is too large"),
            ({"first": 8}, "keys"), logits=[3 - 0.4 * token for token in range(16)], temperature=2, p=0.8,
        ),
        answers(
            "other_engines", "check_request", REQUEST,
            ({"temperature": 2, "top_p": 0.8, "top_k": 0, "min_p": 0}, "Only the order is missing"),
            (REQUEST | {"samplers": ["top_k", "temperature", "top_p"]}, "Only top_k is missing"),
            (REQUEST | {"samplers": ["temperature", "top_p", "min_p"]}, "Only min_p is missing"),
            ({"top_p": 0.8, "samplers": ["temperature", "top_p"]}, "0.8 unless you set it"),
            ({"temperature": 2, "samplers": ["temperature", "top_p"]}, "0.95 unless you set it"),
            ({"temperature": 2}, "The distributions differ"), ({"top_q": 1}, "no setting 'top_q'"), ([1], "a dict"),
            temperature=2.0, p=0.8,
        ),
        answers(
            "constraints", "check_allowed", ["el", "elve", "en", "ent"],
            (["el", "elve", "en"], "'ent' is missing"), (["t", "tw"], "it would make 'twt'. The token is added"),
            (["el", "ve"], "No word of the language"), (["q"], "'q' is not one of"), ([], "'el' is missing"),
        ),
        answers(
            "constraints", "check_misled", MISLED,
            (MISLED | {"first long": 0.3}, "make that of the long answer likelier"),
            (MISLED | {"rest long": 1}, "Make the rest of the long answer less likely"),
            (MISLED | {"first long": 0.96}, "sum to 1 or less"), (MISLED | {"rest long": 0}, "above 0 and at most 1"),
            ({"a": 1}, "keys"),
        ),
        answers(
            "blocks", "check_fits", {"fits": 0.68, "kept": 1.68}, ({"fits": 0.8, "kept": 1.68}, "writes red kite"),
            ({"fits": 0.64, "kept": 1.68}, "red kite alone"), ({"fits": 0.32, "kept": 1.68}, "do *not* belong"),
            ({"fits": 1, "kept": 2}, "reads its first guess"), ({"fits": 0.5, "kept": 1}, "not equally likely"),
            ({"fits": 0.68, "kept": 1.36}, "is kept all the same"), ({"fits": 0.68, "kept": 0.68}, "one of the two"),
            ({"fits": 0.68, "kept": 2}, "its first guess"), ({"fits": 0.68, "kept": 2.68}, "that the target adds"),
            ({"fits": 1}, "keys"), first=0.8,
        ),
        answers(
            "blocks", "check_joint", [[0.49, 0.01], [0.01, 0.49]], ([[0.25, 0.25], [0.25, 0.25]], "loses nothing"),
            ([[0.9, 0.04], [0.02, 0.04]], "about equally likely"), ([[0.5, 0], [0, 0.5]], "at least 0.01"),
            ([[0.5, 0.5], [0.5, 0.5]], "sum to 1"), ([0.5, 0.5], "two rows"), ("ab", "two rows"),
        ),
        answers(
            "joints", "check_bias", [[3, -3], [-3, 3]], ([[1, -1], [1, -1]], "changes nothing"),
            ([[-3, 3], [3, -3]], "wrong way round"), ([[1, 0], [0, 1]], "at least 0.98"), ([3, -3], "two rows"),
        ),
        answers(
            "joints", "check_numbers", {"whole": 409600, "low": 40960}, ({"whole": 1280, "low": 40960}, "its sides"),
            ({"whole": 20480, "low": 40960}, "a cell for each pair"),
            ({"whole": 409600, "low": 20480}, "one of the two"),
            ({"whole": 409600, "low": 409600}, "the whole table again"),
            ({"whole": 409600, "low": 1024}, "for each token, too"), ({"whole": 1}, "keys"), vocabulary=640, rank=32,
        ),
        answers(
            "joints", "check_shared", [3, 1], ([3, 2], "for each text alone"), ([3, 3], "checked everything"),
            ([2, 1], "highest survival next"), ([3.5, 1], "whole number"), ([3, 4], "whole number"), ([3], "2 numbers"),
            chances=[[0.9, 0.8, 0.7], [0.5, 0.5, 0.5]], fixed=8,
        ),
        answers(
            "eagle3", "check_one_level", ONE_LEVEL, (ONE_LEVEL | {"state normed": "fewer"}, "one level has none"),
            (ONE_LEVEL | {"empty map": "the same"}, "Every guess"), (dict.fromkeys(ONE_LEVEL, 1), "neither"),
            ({"a": 1}, "keys"),
        ),
        answers(
            "eagle3", "check_two_trees", {"large": (59, 8, 3.2), "small": (2, 2, 2.5)},
            ({"large": (59, 8, 5), "small": (2, 2, 2.5)}, "1.48 times as fast"),
            ({"large": (59, 8, 2), "small": (2, 2, 2.5)}, "more tokens per call than the small"),
            ({"large": (59, 8, 3.2), "small": (2, 2, 1.5)}, "must reach 1.5"),
            ({"large": (59, 8, 3.2), "small": (1, 2, 2.5)}, "as many levels as candidates"),
            ({"large": (59, 8, 3.2), "small": (2, 1, 2.5)}, "one more"), ({"large": 3, "small": 2}, "three numbers"),
        ),
        answers(
            "serving", "check_prediction", FAULTS,
            (FAULTS | {"64 requests share the calls": "near 0"}, "does not depend on the other rows"),
            (dict.fromkeys(FAULTS, "0"), "is not one of"), ({"a": 1}, "keys"),
        ),
        answers(
            "serving", "check_leak", {"p": [0.05, 0.05, 0.9], "q": [0.5, 0.5, 0]},
            ({"p": [0.3, 0.3, 0.4], "q": [0.5, 0.5, 0]}, "let p prefer x"),
            ({"p": [0.1, 0, 0.9], "q": [0, 0.5, 0.5]}, "accepted in 0.00"),
            ({"p": [0, 0, 1], "q": [0.5, 0.5, 0]}, "besides x"), ({"p": [0.5, 0.5, 0.5], "q": [1, 0, 0]}, "sum to 1"),
            ({"p": [0.5, 0.5], "q": [1, 0]}, "over 1, 2 and x"),
        ),
    ],
)  # fmt: skip
def test_checkers_of_other_answers_tell_right_from_wrong_and_say_why(check, right, wrong, given):
    verdict = check.judge(right, **given)
    assert verdict.ok, verdict.message
    for answer, words in wrong:
        ok, said = check.judge(answer, **given)
        assert ok is False and words in said, said
    for odd in (*ODD, fails, lambda *_: math.nan):
        verdict = check.judge(odd, **given)
        assert verdict.ok is not True and "cannot be read" not in verdict.message
    keys = list(right) if isinstance(right, dict) else []
    for odd in (*HOSTILE, *LEAVES, *([dict.fromkeys(keys, odd) for odd in HOSTILE] if keys else ())):
        assert check.judge(odd, **given).ok is False
    assert check.judge(None, **given) == (None, NOT_YET)


def test_only_a_right_answer_makes_a_verdict_true_so_that_it_can_be_asserted():
    check = Exercise("", [(3,), (5,)], lambda x: 2 * x, {"You squared.": lambda x: x * x})
    assert check.judge(lambda x: x + x)
    assert not check.judge(lambda x: x * x) and not check.judge(None)
    assert check.judge(lambda x: sys.exit(0)).message.endswith("raised SystemExit: 0.")


def test_ctrl_c_ends_a_check():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Exercise("", [(3,)], lambda x: 2 * x, {}).judge(interrupted)


KEPT = {"top-k": 2, "top-p": 3, "min-p": 4}


@pytest.mark.parametrize(
    ("check", "answer", "missing", "given"),
    [
        (sampling.check_kept, KEPT | {"top-p": None, "min-p": ...}, "'top-p', 'min-p'",
         {"probs": [0.4, 0.2, 0.15, 0.1, 0.08, 0.07], "k": 2, "p": 0.7, "min_p": 0.25}),
        (sampling.check_shapes, SHAPES | {"min-p keeps more": None}, "'min-p keeps more'", {"p": 0.9, "min_p": 0.1}),
        (sampling.check_order, {"temperature first": None, "filter first": 0.586}, "'temperature first'",
         {"probs": [0.5, 0.25, 0.1, 0.05, 0.05, 0.05], "temperature": 2, "p": 0.7}),
    ],
)  # fmt: skip
def test_what_is_missing_in_a_prediction_is_named(check, answer, missing, given):
    assert check.judge(answer, **given) == (None, f"{NOT_YET}: {missing}")
    assert check.judge(dict.fromkeys(answer), **given) == (None, NOT_YET)


@pytest.mark.parametrize(
    "probs", [10 * [0.1], [0.6, 0.3, 0.1], [0.7, 0.2, 0.1], [0.3, 0.3, 0.3, 0.1], [0.25, 0.25, 0.2, 0.2, 0.1]]
)
def test_sums_that_equal_the_threshold_on_paper_are_counted_as_equal(probs):
    verdict = sampling.check_shapes.judge(SHAPES | {"min-p keeps more": probs}, p=0.9, min_p=0.1)
    assert verdict.ok, verdict.message


def kept_of(probs, p):
    return sampling.nucleus_probs(probs, p) > 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda probs, p: sampling.nucleus_probs(probs, p).sort().values.flip(0), "at the position of its token."),
        (lambda probs, p: torch.where(kept_of(probs, p), probs, 0.0), "their values sum to 0.8: divide each"),
        (lambda probs, p: kept_of(probs, p) / kept_of(probs, p).sum(), "but the values are wrong: divide each"),
        (lambda probs, p: torch.where(kept_of(probs, p), probs, -math.inf).softmax(-1), "the values are wrong: divide"),
        (kept_of, "their values sum to 3: divide"),
        (lambda probs, p: probs.log(), "A probability cannot be negative"),
        (lambda probs, p: probs.log().masked_fill(~kept_of(probs, p), -math.inf), "return logits?"),
        (lambda probs, p: probs, "You keep 7 tokens, but 3 should be kept."),
        (lambda probs, p: sampling.keep(probs, torch.arange(7) < 3), "the right number, but not the right ones."),
        (lambda probs, p: nothing_of_this_name, "raised NameError: name 'nothing_of_this_name' is not defined."),  # noqa: F821
        (lambda probs: probs, "2 were given."), (lambda probs, p: probs.zero_(), "work on copies."),
        (forgets_return, "forget to return its result?"),
    ],
)  # fmt: skip
def test_an_unknown_mistake_in_top_p_gets_a_hint_that_fits(answer, words):
    ok, said = sampling.check_top_p.judge(answer)
    assert ok is False and words in said, said
    if words.endswith((".", "?")):  # nothing follows
        assert said.endswith(words), said


def test_the_filters_of_the_book_are_right_answers():
    for check, make in ((sampling.check_top_p, tutorlib.top_p), (sampling.check_typical, tutorlib.typical)):
        verdict = check.judge(lambda probs, mass: make(mass)(probs.log()[None], None).softmax(-1)[0])  # noqa: B023
        assert verdict.ok, verdict.message
        verdict = check.judge(lambda probs, mass: make(mass)(probs.log(), None).softmax(-1))  # noqa: B023
        assert verdict.ok, verdict.message


def test_a_typical_set_in_sorted_order_is_told_so():
    def in_sorted_order(probs, mass):
        return sampling.typical_probs(probs, mass)[sampling.surprise(probs).argsort(stable=True)]

    assert "at the position of its token" in sampling.check_typical.judge(in_sorted_order).message


def test_whoever_sorts_by_the_surprise_is_not_told_that_this_is_top_p():
    ok, said = sampling.check_typical.judge(lambda probs, mass: sampling.until(probs, mass, -probs.log()))
    assert ok is False and "The surprise itself puts it first" in said and "top-p" not in said


FIRST_LAST = {"temperature first": 0.405, "filter first": 0.586}
ORDER = {"probs": [0.5, 0.25, 0.1, 0.05, 0.05, 0.05], "temperature": 2, "p": 0.7}


@pytest.mark.parametrize("two_decimals", [0.4, 0.41])
def test_two_decimals_are_enough_where_no_mistake_is_near(two_decimals):
    assert sampling.check_order.judge(FIRST_LAST | {"temperature first": two_decimals}, **ORDER).ok
    assert sampling.check_order.judge(FIRST_LAST | {"temperature first": 0.39}, **ORDER).ok is False


def test_where_a_mistake_is_near_two_decimals_are_said_to_be_too_few():
    """The last token has almost no probability, so dropping it changes the result by less than 0.01."""
    near = {"probs": [0.6, 0.39, 0.01], "temperature": 1.1, "p": 0.97}
    right = {"temperature first": 0.597, "filter first": 0.597}
    assert sampling.check_order.judge(right, **near).ok
    ok, said = sampling.check_order.judge(right | {"temperature first": 0.6}, **near)
    assert ok is False and "with three decimals" in said
    assert "after the temperature alone" in sampling.check_order.judge(right | {"filter first": 0.588}, **near).message


@pytest.mark.parametrize("kept", [
    ("red", "blue", "red lamp", "blue bell"), [("red",), ("blue",), ("red", "lamp"), ("blue", "bell")],
    (["red"], "blue", ["red", "lamp"], ("blue", "bell")), {"red", "blue", "red lamp", ("blue", "bell")},
])  # fmt: skip
def test_paths_may_be_tuples_or_lists_of_words(kept):
    verdict = eagle_exercises.check_kept.judge({"kept": kept, "tokens": 2.47})
    assert verdict.ok, verdict.message
    ok, said = eagle_exercises.check_kept.judge({"kept": [("red", "bell"), [1], "blue", "red"], "tokens": 2.47})
    assert ok is False and said.endswith("got 'red bell'.")


# What readers write who have only begun to think of the rows, and of the run without a draft.


def pairs_from_node_numbers(read, features, path, drawn):
    return [read[node] for node in path] + [drawn], features[[0] + path]


def pairs_without_row_0(read, features, path, drawn):
    rows = [node + 1 for node in path]
    return [read[row] for row in rows] + [drawn], features[rows]


def pairs_without_drawn(read, features, path, drawn):
    rows = [0] + [node + 1 for node in path]
    return [read[row] for row in rows[1:]], features[rows]


def row_numbers(read, features, path, drawn):
    return [read[node + 1] for node in path] + [drawn], [0] + [node + 1 for node in path]


def pairs_and_a_row_too_few(read, features, path, drawn):
    return [read[node + 1] for node in path] + [drawn], features[:1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (pairs_from_node_numbers, "node n is in row n + 1"), (pairs_without_row_0, "row 0 with the first accepted"),
        (pairs_without_drawn, "the last one is missing"), (row_numbers, "Return the rows themselves"),
        (pairs_and_a_row_too_few, "4 tokens, 1 rows"),
    ],
)  # fmt: skip
def test_the_likeliest_mistakes_in_pairs_are_named(answer, words):
    ok, said = eagle_exercises.check_pairs.judge(answer)
    assert ok is False and words in said, said


def tau_without_a_guard(steps):
    gave = [len(s.tokens) + s.cut for s in steps if s.drafted]
    return sum(gave) / len(gave), sum(len(s.tokens) for s in steps) / len(steps)


def the_same_twice(steps):
    per_call = sum(len(s.tokens) for s in steps) / len(steps)
    return per_call, per_call


def tau_after_the_first_step(steps):
    gave = [len(s.tokens) + s.cut for s in steps[1:]]
    return sum(gave) / max(1, len(gave)), sum(len(s.tokens) for s in steps) / len(steps)


def tau_of_accepted_tokens(steps):
    accepted = [s.accepted for s in steps if s.drafted]
    return sum(accepted) / len(accepted), sum(len(s.tokens) for s in steps) / len(steps)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (tau_without_a_guard, "return float('nan')"), (the_same_twice, "over other calls than those with a draft"),
        (tau_after_the_first_step, "a later call may have none"), (tau_of_accepted_tokens, "leaves out the bonus"),
        (lambda steps: (1, 1), "τ is a mean over the steps with a draft"),
    ],
)  # fmt: skip
def test_the_likeliest_mistakes_in_counting_tokens_are_named(answer, words):
    ok, said = eagle_exercises.check_counts.judge(answer)
    assert ok is False and words in said, said


def test_every_checker_is_tested_here():
    (table,) = test_checkers_of_other_answers_tell_right_from_wrong_and_say_why.pytestmark
    assert {row.id for row in table.args[1]} == {
        f"{chapter}-{name}"
        for chapter in CHAPTERS.values()
        for name, check in exercises_of(chapter).items()
        if not hasattr(check, "mistakes")
    }


def test_a_check_that_is_exact_but_keeps_too_little_is_told_so():
    ok, said = speculative_exercises.check_check.judge(lambda drafted, q, p, rng: (0, rng.choose(p[0])))
    assert ok is False and "distribution is right" in said and "you keep 0.000 on average" in said
