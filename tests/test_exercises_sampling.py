"""The checkers of chapter 4 accept what is right, and tell every usual mistake which one it is."""

import math

import numpy as np
import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import min_p, temperature, top_k, top_p, typical
from tutorlib.exercises import sampling as exercises
from tutorlib.exercises.sampling import (
    check_draw,
    check_min_p,
    check_order,
    check_top_k,
    check_top_p,
    check_two_warps,
    check_typical,
)
from tutorlib.warp import probabilities

FUNCTIONS = [check_draw, check_top_k, check_top_p, check_min_p, check_typical, check_two_warps]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", FUNCTIONS)
def test_what_is_no_answer_is_told_what_was_expected(check):
    assert "xpected" in found(check, lambda row, *parameters: torch.tensor([0.5, 0.5]))
    assert "xpected" in found(check, lambda row, *parameters: "abc")
    assert "ZeroDivisionError" in found(check, lambda row, *parameters: 1 / 0)


# Drawing.


def draw(*, side="right", shift=0, sort=False, back=True, clamp="last with probability", argmax=False):
    def my_draw(probs, u):
        if argmax:
            return int(probs.argmax())
        values, order = probs.sort(descending=True, stable=True) if sort else (probs, torch.arange(len(probs)))
        token = int(torch.searchsorted(values.cumsum(-1), u, right=side == "right")) + shift
        if clamp == "last with probability" and token >= len(probs):
            token = int(values.nonzero()[-1])
        if clamp == "last":
            token = min(token, len(probs) - 1)
        return int(order[token]) if back else token

    return my_draw


def test_the_right_draw_in_several_ways():
    assert "no token of probability 0" in is_right(check_draw, draw())

    def loop(probs, u):
        total = 0.0
        for token, prob in enumerate(probs.tolist()):
            total += prob
            if prob:
                last = token
            if u < total:
                return token
        return torch.tensor(last)

    is_right(check_draw, loop)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"side": "left"}, "not at least u"),
        ({"shift": 1}, "too far"),
        ({"shift": -1}, "one token short"),
        ({"sort": True, "back": False}, "places in the sorted order"),
        ({"sort": True}, "you sorted the probabilities first"),
        ({"argmax": True}, "argmax ignores u"),
        ({"clamp": None}, "an index that does not exist"),
        ({"clamp": "last"}, "token 10"),
    ],
)
def test_wrong_draws_are_told_why(mistake, complaint):
    assert complaint in found(check_draw, draw(**mistake))


def test_other_wrong_draws():
    def steps_over_zeros(probs, u):
        token = int(torch.searchsorted(probs.cumsum(-1), u))
        while not probs[token]:
            token += 1
        return token

    assert "exactly on an edge" in found(check_draw, steps_over_zeros)
    assert "probability 0" in found(check_draw, draw(side="left"))
    assert "first above u is that of token 0" in found(check_draw, lambda probs, u: 4 if u < 0.1 else draw()(probs, u))
    assert "Expected the id" in found(check_draw, lambda probs, u: 0.5)


# Top-k.


def my_top_k(*, k_shift=0, strict=False, places=False, smallest=False, fill=-math.inf, clip=True, after=None):
    def filter(logits, k):
        k = min(k, len(logits)) if clip else k
        if places:
            kept = torch.zeros(len(logits), dtype=torch.bool)
            kept[logits.topk(k).indices] = True
        else:
            ranked = logits.sort(descending=not smallest).values
            kth = ranked[min(k - 1 + k_shift, len(logits) - 1)]
            kept = logits > kth if strict else logits <= kth if smallest else logits >= kth
        answer = torch.where(kept, logits, fill)
        return after(answer) if after else answer

    return filter


def test_the_right_top_k():
    is_right(check_top_k, my_top_k())
    # The library's own, too: a check of the checker.
    is_right(check_top_k, lambda logits, k: top_k(k)(logits[None])[0])


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"places": True}, "nothing prefers one of two equals"),
        ({"k_shift": 1}, "one too many"),
        ({"strict": True}, "k-th one itself is missing"),
        ({"smallest": True}, "descending=True"),
        ({"fill": 0.0}, "exp(0) = 1"),
        ({"clip": False, "places": True}, "nothing prefers"),
        ({"after": lambda row: row.softmax(-1)}, "gave back probabilities"),
        ({"after": lambda row: row - row.max()}, "changed their logits"),
        ({"after": lambda row: row.roll(1)}, "and not tokens 1, 2"),
        ({"after": lambda row: row[~row.isneginf()]}, "all 6 tokens"),
    ],
)
def test_wrong_top_k_filters_are_told_why(mistake, complaint):
    assert complaint in found(check_top_k, my_top_k(**mistake))


def test_a_top_k_that_spoils_its_input_is_told_so():
    def spoils(logits, k):
        logits[logits < logits.topk(min(k, len(logits))).values[-1]] = -math.inf
        return logits

    assert "work on a copy" in found(check_top_k, spoils)


def test_a_k_above_the_vocabulary_is_tried_too():
    def no_room(logits, k):
        return torch.where(logits >= logits.topk(k).values[-1], logits, -math.inf)

    assert "raised" in found(check_top_k, no_room)


# Filters from probabilities to probabilities: every mistake of the checker's own list, each under its own name.

FILTERS = {
    check_top_p: (exercises._nucleus, exercises.TOP_P_MISTAKES, exercises.MIXED, 0.7),
    check_min_p: (exercises._near_the_best, exercises.MIN_P_MISTAKES, exercises.HESITANT, 0.36),
    check_typical: (exercises._typical_set, exercises.TYPICAL_MISTAKES, exercises.SURPRISING, 0.3),
}


def filter_that_keeps(mask, finish=lambda kept, probs: kept / kept.sum()):
    def my_filter(probs, parameter):
        kept = torch.where(torch.from_numpy(mask(probs.numpy(), parameter)), probs, 0.0)
        return finish(kept, probs)

    return my_filter


@pytest.mark.parametrize("check", FILTERS)
def test_right_filters(check):
    is_right(check, filter_that_keeps(FILTERS[check][0]))


@pytest.mark.parametrize("check", FILTERS)
def test_what_the_checkers_hold_to_be_right_is_what_the_library_keeps(check):
    library = {check_top_p: top_p, check_min_p: min_p, check_typical: typical}[check]
    generator = np.random.RandomState(0)
    for _ in range(200):
        probs, parameter = generator.dirichlet(np.ones(6)), generator.uniform(0.05, 0.95)
        kept = library(parameter)(torch.tensor(probs).log()[None])[0].softmax(-1) > 0
        assert np.array_equal(FILTERS[check][0](probs, parameter), kept), (probs, parameter)


@pytest.mark.parametrize("by", ["signed", "plus", "probability"])
def test_three_ways_to_make_top_p_of_the_typical_set(by):
    def my_typical(probs, mass):
        surprise, entropy = -probs.log(), -(probs * probs.log()).sum()
        distance = {
            "signed": surprise - entropy,
            "plus": (surprise + entropy).abs(),
            "probability": (probs - entropy).abs(),
        }
        order = distance[by].argsort()
        sums = probs[order].cumsum(-1)
        kept = torch.zeros_like(probs)
        kept[order] = torch.where(sums - probs[order] < mass, probs[order], 0.0)
        return kept / kept.sum()

    assert "order of top-p" in found(check_typical, my_typical)


@pytest.mark.parametrize(
    ("check", "number"),
    [(check, number) for check, (_, mistakes, *_) in FILTERS.items() for number in range(len(mistakes))],
)
def test_every_wrong_filter_is_told_why(check, number):
    mask, complaint = FILTERS[check][1][number]
    assert complaint in found(check, filter_that_keeps(mask))


@pytest.mark.parametrize("check", FILTERS)
def test_mistakes_of_different_names_keep_different_tokens_on_the_first_row(check):
    keeps, mistakes, probs, parameter = FILTERS[check]
    probs = np.asarray(probs)
    by_support = {}
    for mask, message in mistakes:
        by_support.setdefault(tuple(mask(probs, parameter)), set()).add(message)
    expected = by_support.pop(tuple(keeps(probs, parameter)), set())
    # What differs at exact equality only cannot be seen on the first row; later rows are made for it.
    assert all("exactly" in message for message in expected)
    assert all(len(messages) == 1 for messages in by_support.values()), by_support


@pytest.mark.parametrize("check", FILTERS)
@pytest.mark.parametrize(
    ("finish", "complaint"),
    [
        (lambda kept, probs: kept, "divide by the sum"),
        (lambda kept, probs: (kept / kept.sum()).sort(descending=True).values, "in sorted order"),
        (lambda kept, probs: torch.where(kept > 0, probs, -math.inf).softmax(-1), "softmax of probabilities"),
        (lambda kept, probs: kept / kept.sum() * torch.arange(1, len(kept) + 1), "but gave them"),
        (lambda kept, probs: probs.div_(2), "work on a copy"),
        (lambda kept, probs: kept[kept > 0], "dropped ones included"),
        (lambda kept, probs: kept / 0, "nothing is left"),
    ],
)
def test_right_tokens_with_wrong_numbers(check, finish, complaint):
    assert complaint in found(check, filter_that_keeps(FILTERS[check][0], finish))


def test_a_nucleus_that_keeps_what_ties_with_its_last_token_is_too_large():
    def all_equals(probs, p):
        values = probs.sort(descending=True).values
        least = values[values.cumsum(-1) - values < p].min()
        kept = torch.where(probs >= least, probs, 0.0)
        return kept / kept.sum()

    def the_last_of_equals(probs, p):
        order = probs.flip(-1).sort(descending=True, stable=True).indices
        order = len(probs) - 1 - order
        kept = torch.zeros_like(probs)
        kept[order] = torch.where(probs[order].cumsum(-1) - probs[order] < p, probs[order], 0.0)
        return kept / kept.sum()

    assert "the fewest that do" in found(check_top_p, all_equals)
    is_right(check_top_p, the_last_of_equals)


def test_a_filter_that_is_wrong_only_where_one_token_has_all_of_p_is_caught():
    def only_there(probs, p):
        mask = exercises._nucleus if len(probs) == 7 else exercises._without_the_crossing_token
        return filter_that_keeps(mask)(probs, p)

    message = found(check_top_p, only_there)
    assert "nothing is left" in message and "crosses the threshold" in message


# The order.

ORDER = ([0.5, 0.25, 0.1, 0.05, 0.05, 0.05], 2.0, 0.7)


def order(first=0.4048, second=0.5858):
    return {"temperature first": first, "filter first": second}


def test_the_right_order():
    # By hand: the roots 0.7071, 0.5, 0.3162 and three times 0.2236 sum to 2.1941. Heated, four tokens are needed for
    # 0.7, and the likeliest has 0.7071 / 1.7469; unheated two, 0.7071 / 1.2071.
    assert "keeps 4 tokens, before it 2" in is_right(check_order, order(0.7071 / 1.7469, 0.7071 / 1.2071), *ORDER)
    is_right(check_order, order(0.405, 0.586), *ORDER)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"first": 0.5858, "second": 0.4048}, "the other order"),
        ({"second": 0.4048}, "the other order"),
        ({"first": 0.4642}, "belongs to the nucleus"),
        ({"first": 2 / 3}, "filter without any temperature"),
        ({"first": 0.3223}, "after the temperature alone"),
        ({"first": 1.0}, "wrong way round"),
        ({"second": 0.8}, "wrong way round"),
        ({"second": 2 / 3}, "filter alone"),
        ({"second": 0.3223}, "first comes the filter"),
        ({"second": 1.0}, "belongs to the nucleus"),
        ({"second": 0.9}, "Write down"),
        ({"first": "half"}, "Expected a number"),
    ],
)
def test_wrong_orders_are_told_why(mistake, complaint):
    assert complaint in found(check_order, order(**mistake), *ORDER)


def test_an_order_of_another_form():
    assert "keys" in found(check_order, {"first": 0.5}, *ORDER)
    assert check_order.judge(order(None, None), *ORDER).ok is None


# Both warps, in code. One function with every mistake in it as an option.


def warped(*, filter_first=False, divides=True, on_probs=False, filters=True, crossing=True, normalised=True):
    def nucleus(probs, p):
        values, ids = probs.sort(descending=True, stable=True)
        before = values.cumsum(-1) - (values if crossing else 0)
        kept = torch.zeros_like(probs)
        kept[ids] = torch.where(before < p, values, 0.0)
        return kept

    def my_warped(logits, temperature, p):
        heat = temperature if divides else 1 / temperature
        if filter_first:
            return (nucleus(logits.softmax(-1), p).log() / heat).softmax(-1)
        probs = logits.softmax(-1) / heat if on_probs else (logits / heat).softmax(-1)
        probs = probs / probs.sum()
        kept = nucleus(probs, p) if filters else probs
        return kept / kept.sum() if normalised else kept

    return my_warped


def test_both_warps_in_the_right_order_and_as_the_library_has_them():
    assert "cut" in is_right(check_two_warps, warped())
    is_right(check_two_warps, lambda z, t, p: probabilities(z[None], [temperature(t), top_p(p)])[0])
    is_right(check_two_warps, lambda z, t, p: warped()(z.float(), t, p).tolist())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"filter_first": True}, "you filter first"),
        ({"divides": False}, "you multiply the logits"),
        ({"on_probs": True}, "no effect"),
        ({"filters": False}, "no filter"),
        ({"crossing": False}, "drop the token that crosses"),
        ({"normalised": False}, "does not sum to 1"),
    ],
)
def test_two_warps_gone_wrong_are_told_why(mistake, complaint):
    assert complaint in found(check_two_warps, warped(**mistake))


def test_two_warps_that_are_wrong_in_no_usual_way_are_shown_what_was_expected():
    assert "expected [0.399" in found(check_two_warps, lambda z, t, p: z.softmax(-1).flip(0))


# The chapter itself.

CHAPTER = "04_sampling"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch}, capsys)
