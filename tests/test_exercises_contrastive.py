"""The checkers of chapter 6 accept what is right, and tell every usual mistake which one it is."""

import math

import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker
from torch.nn.functional import normalize

from tutorlib.decoders.contrastive_decoding import contrastive_scores
from tutorlib.decoders.dola import jensen_shannon
from tutorlib.exercises import contrastive as exercises
from tutorlib.exercises.contrastive import (
    check_cut,
    check_jsd,
    check_scores,
    check_search_scores,
    check_step,
    check_thresholds,
)
from tutorlib.warp import min_p

FUNCTIONS = [check_cut, check_scores, check_step, check_search_scores, check_jsd]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", FUNCTIONS)
def test_what_is_of_another_form_is_said_to_be(check):
    assert "Expected" in found(check, lambda *_: "abc")
    assert "Expected" in found(check, lambda *_: [1.0])
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


@pytest.mark.parametrize(("check", "which"), [(check_cut, 0), (check_scores, 0), (check_scores, 1)])
def test_an_answer_that_spoils_its_input_is_told_so(check, which):
    def spoils(*given):
        given[which].sub_(1)
        return given[0]

    assert "clone" in found(check, spoils)


# The package's own functions are right answers.


def test_the_packages_own_functions_are_right_answers():
    is_right(check_cut, lambda logits, alpha: min_p(alpha)(logits[None], None)[0] > -math.inf)
    is_right(check_scores, lambda one, two, alpha, heat: contrastive_scores(one[None], two[None], alpha, heat)[0])
    is_right(check_jsd, lambda p, q: jensen_shannon(p.log()[None], q.log()[None])[0])


# Thresholds, with pencil and paper.

EXPERT = {"Honolulu ": 0.16, "1964 ": 0.1, "umber ": 0.0005, **dict.fromkeys("abcdefgh", 0.7395 / 8)}
AMATEUR = {"Honolulu ": 0.08, "1964 ": 0.001, "umber ": 1e-9, **dict.fromkeys("abcdefgh", 0.919 / 8)}
BEST, AMATEURS_BEST = 0.16, 0.919 / 8


def test_thresholds():
    prediction = {"1964 ": None, "umber ": ...}
    assert check_thresholds.judge(prediction, EXPERT, AMATEUR).ok is None
    is_right(check_thresholds, {"1964 ": 0.1 / BEST, "umber ": 0.0005 / BEST}, EXPERT, AMATEUR)
    assert "Expected a dict" in found(check_thresholds, 0.6, EXPERT, AMATEUR)
    assert "Expected a dict" in found(check_thresholds, {"Hawaii": 0.6}, EXPERT, AMATEUR)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (0.1, "own probability"),
        (0.1 / AMATEURS_BEST, "divided by the amateur's"),
        (0.001 / AMATEURS_BEST, "asked the amateur twice"),
        (0.001 / BEST, "took the amateur's probability"),
        (math.log(0.1) / math.log(BEST), "compared logarithms"),
        (BEST / 0.1, "wrong way round"),
        (0.3, "too small"),
        ("a", "Expected a number"),
    ],
)
def test_wrong_thresholds_are_told_why(value, complaint):
    assert complaint in found(check_thresholds, {"1964 ": value}, EXPERT, AMATEUR)


# The cut.


def share(logits, alpha):
    probs = logits.softmax(-1)
    return probs >= alpha * probs.max()


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda z, a: z.log_softmax(-1) >= a * z.log_softmax(-1).max(), "logarithm of alpha times a probability"),
        (lambda z, a: z >= a * z.max(), "softmax first"),
        (lambda z, a: z.softmax(-1) >= a, "alpha itself"),
        (lambda z, a: share(z.softmax(-1), a), "softmax of a softmax"),
        (lambda z, a: ~share(z, a), "wrong way round"),
        (lambda z, a: share(z, 1 - a), "1 - alpha"),
        (lambda z, a: z.softmax(-1) > a * z.softmax(-1).max(), "`>=`, not `>`"),
        (lambda z, a: z.masked_fill(~share(z, a), -math.inf), "gave back numbers"),
        (lambda z, a: z == z.max(), "you keep"),
    ],
)
def test_wrong_cuts_are_told_why(mistake, complaint):
    assert complaint in found(check_cut, mistake)


def test_other_ways_to_write_the_cut_are_right():
    is_right(check_cut, share)
    is_right(check_cut, lambda z, a: z - z.max() >= math.log(a) - 1e-9 if a else torch.ones_like(z).bool())


# The score. One function with every mistake in it as an option.


def scores(
    *,
    cut_by=lambda one, two, heat: one,
    cut=share,
    difference=lambda one, two: one.log_softmax(-1) - two.log_softmax(-1),
    heated=lambda one, two, heat: (one, two / heat),
    dropped=-math.inf,
):
    def my_scores(expert_logits, amateur_logits, alpha, amateur_temperature):
        kept = cut(cut_by(expert_logits, amateur_logits, amateur_temperature), alpha)
        return difference(*heated(expert_logits, amateur_logits, amateur_temperature)).masked_fill(~kept, dropped)

    return my_scores


def log_cut(z, alpha):
    return z.log_softmax(-1) >= alpha * z.log_softmax(-1).max()


def everything(z, alpha):
    return torch.ones_like(z).bool()


def cut_first(one, two, alpha, heat):
    kept = share(one, alpha)
    return one.masked_fill(~kept, -math.inf) - two.masked_fill(~kept, -math.inf)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (scores(cut=log_cut), "logarithm of alpha times a probability"),
        (scores(cut=lambda z, a: z >= a * z.max()), "softmax first"),
        (scores(cut=lambda z, a: z.softmax(-1) >= a), "alpha itself"),
        (scores(cut=lambda z, a: share(z.softmax(-1), a)), "after a second softmax"),
        (scores(cut=everything), "the cut is missing"),
        (scores(dropped=0.0), "scores 0 with you"),
        (scores(cut_by=lambda one, two, heat: two), "what the *amateur* finds plausible"),
        (scores(cut_by=lambda one, two, heat: two / heat), "what the *amateur* finds plausible"),
        (scores(difference=lambda one, two: two.log_softmax(-1) - one.log_softmax(-1)), "sign is wrong"),
        (
            scores(difference=lambda one, two: one.softmax(-1).log_softmax(-1) - two.softmax(-1).log_softmax(-1)),
            "softmax twice before the logarithm",
        ),
        (scores(difference=lambda one, two: one.softmax(-1) - two.softmax(-1)), "subtract probabilities"),
        (scores(difference=lambda one, two: one.softmax(-1) / two.softmax(-1)), "ratio"),
        (scores(difference=lambda one, two: one - two), "log_softmax of both"),
        (scores(difference=lambda one, two: one.log_softmax(-1)), "left out the amateur"),
        (scores(heated=lambda one, two, heat: (one / heat, two)), "landed on the expert"),
        (scores(heated=lambda one, two, heat: (one / heat, two), cut_by=lambda o, t, h: o / h), "landed on the expert"),
        (scores(heated=lambda one, two, heat: (one / heat, two / heat)), "heated both"),
        (scores(heated=lambda one, two, heat: (one, two * heat)), "multiplied by the temperature"),
        (scores(heated=lambda one, two, heat: (one, two)), "temperature is missing"),
        (
            lambda one, two, a, heat: (one.log_softmax(-1) - two.log_softmax(-1) / heat).masked_fill(
                ~share(one, a), -math.inf
            ),
            "no longer belong to a distribution",
        ),
        (cut_first, "NaN"),
        (lambda one, *_: one[:3], "shape"),
        (lambda one, *_: one, "expected"),
    ],
)
def test_wrong_scores_are_told_why(mistake, complaint):
    assert complaint in found(check_scores, mistake)


def test_every_usual_mistake_keeps_other_tokens():
    row = torch.tensor(exercises.UNEVEN, dtype=torch.float64).numpy()
    masks = [exercises._plausible(row, 0.3), *(mistake(row, 0.3) for mistake, _ in exercises.CUT_MISTAKES)]
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks)


def test_two_mistakes_at_once_are_both_told():
    mistake = scores(
        cut_by=lambda one, two, heat: two, difference=lambda one, two: two.log_softmax(-1) - one.log_softmax(-1)
    )
    message = found(check_scores, mistake)
    assert "sign is wrong" in message and "what the *amateur* finds plausible" in message


def test_both_models_asked_what_is_plausible():
    def both(one, two, alpha, heat):
        return scores()(one, two, alpha, heat).masked_fill(~share(two, alpha), -math.inf)

    assert "ask both models" in found(check_scores, both)


def test_right_scores():
    assert "amateur does" in is_right(check_scores, scores())


# A step, without gradients.


def step(*, grad=torch.no_grad, score=None, row=-1, end=lambda values: int(values.argmax()), calls=1):
    def my_step(expert, amateur, tokens, alpha):
        with grad():
            rows = [[model(tokens) for _ in range(calls)][-1][0, row] for model in (expert, amateur)]
        return end((score or scores())(*rows, alpha, 1.0))

    return my_step


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_a_right_step(grad):
    assert "no gradients" in is_right(check_step, step(grad=grad))
    is_right(check_step, step(grad=grad, end=lambda values: values.argmax()))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (step(grad=torch.enable_grad), "in the call of the expert and the amateur"),
        (step(grad=torch.enable_grad, end=lambda values: int(values.detach().argmax())), "comes too late"),
        (step(score=scores(cut=everything)), "cut is missing"),
        (step(score=scores(cut_by=lambda one, two, heat: two)), "what the *amateur* finds plausible"),
        (step(score=scores(cut=log_cut)), "not of its logarithm"),
        (step(score=scores(difference=lambda one, two: one.log_softmax(-1))), "own favourite"),
        (step(score=scores(difference=lambda one, two: two - one)), "sign is wrong"),
        (step(score=scores(difference=lambda one, two: two - one, cut=everything)), "sign is wrong, and the cut"),
        (step(row=0), "first token"),
        (step(calls=2), "one of each is enough"),
        (step(end=lambda values: values), "take the argmax"),
        (lambda *_: 5.5, "You gave token"),
    ],
)
def test_wrong_steps_are_told_why(mistake, complaint):
    assert complaint in found(check_step, mistake)


def test_gradients_left_on_in_one_model_are_told_of_that_one():
    def my_step(expert, amateur, tokens, alpha):
        with torch.no_grad():
            ours = expert(tokens)[0, -1]
        return scores()(ours, amateur(tokens)[0, -1], alpha, 1.0).argmax()

    assert "in the call of the amateur." in found(check_step, my_step)


def test_freezing_the_models_is_not_the_way():
    def my_step(expert, amateur, tokens, alpha):
        for model in (expert, amateur):
            model.requires_grad_(False)
        return step()(expert, amateur, tokens, alpha)

    assert "stay so" in found(check_step, my_step)


def test_every_wrong_step_leads_to_a_token_of_its_own():
    expert, amateur = (torch.tensor(rows[2]) for rows in (exercises.TOY_EXPERT, exercises.TOY_AMATEUR))
    ways = [
        scores(),
        scores(cut=everything),
        scores(cut_by=lambda one, two, heat: two),
        scores(difference=lambda one, two: one),
        scores(difference=lambda one, two: two - one),
        scores(difference=lambda one, two: two - one, cut=everything),
    ]
    chosen = [int(way(expert, amateur, 0.1, 1.0).argmax()) for way in ways]
    assert chosen[0] == 1 and len(set(chosen)) == len(ways)


# Contrastive search.


def search(
    *,
    similarity=lambda cosines: cosines.max(1).values,
    ours=lambda states: normalize(states, dim=-1),
    theirs=lambda past, states: normalize(past, dim=-1),
    weights=lambda penalty: (1 - penalty, penalty),
    likelihood=lambda probs: probs,
    sign=-1,
):
    def my_scores(probs, states, past, penalty):
        one, two = weights(penalty)
        return one * likelihood(probs) + sign * two * similarity(ours(states) @ theirs(past, states).T)

    return my_scores


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (search(theirs=lambda past, states: normalize(torch.cat([past, states]), dim=-1)), "own states"),
        (search(ours=lambda states: states, theirs=lambda past, _: past), "did not normalise"),
        (search(theirs=lambda past, _: past), "candidates' states only"),
        (search(ours=lambda states: states), "past's states only"),
        (
            search(ours=lambda states: normalize(states, dim=0), theirs=lambda past, _: normalize(past, dim=0)),
            "wrong dimension",
        ),
        (search(similarity=lambda cosines: cosines.mean(1)), "take the largest"),
        (search(similarity=lambda cosines: cosines.min(1).values), "smallest"),
        (search(similarity=lambda cosines: cosines.sum(1)), "grows with the text"),
        (search(similarity=lambda cosines: cosines[:, -1]), "last token only"),
        (search(similarity=lambda cosines: cosines.max(0).values[:3]), "wrong dimension"),
        (search(sign=1), "reward what resembles"),
        (search(weights=lambda penalty: (penalty, 1 - penalty)), "swapped"),
        (search(weights=lambda penalty: (1, penalty)), "(1 - penalty) before the probability is missing"),
        (search(likelihood=lambda probs: probs.log()), "log-probabilities"),
        (lambda probs, *_: probs, "expected"),
        (lambda probs, states, past, penalty: probs.sub_(1), "changed a tensor"),
    ],
)
def test_wrong_search_scores_are_told_why(mistake, complaint):
    assert complaint in found(check_search_scores, mistake)


def test_right_search_scores():
    assert "Penalty 0 leaves greedy" in is_right(check_search_scores, search())


# The Jensen-Shannon divergence.


def kl(p, q):
    return (p * (p.log() - q.log())).nansum()


def jsd(p, q):
    return (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda p, q: jsd(p, q) / math.log(2), "bits"),
        (lambda p, q: 2 * jsd(p, q), "*average*"),
        (kl, "KL(p || q), which"),
        (lambda p, q: kl(q, p), "KL(q || p), which"),
        (lambda p, q: (kl(p, q) + kl(q, p)) / 2, "averaged KL(p || q)"),
        (lambda p, q: kl(p, q) + kl(q, p), "added KL(p || q)"),
        (lambda p, q: (kl((p + q) / 2, p) + kl((p + q) / 2, q)) / 2, "published code"),
        (lambda p, q: kl(p, (p + q) / 2), "one half"),
        (lambda p, q: kl(q, (p + q) / 2), "one half"),
        (lambda p, q: jsd(p, q).sqrt(), "square root"),
        (lambda p, q: (kl(p, p + q) + kl(q, p + q)) / 2, "forgot the half"),
        (lambda p, q: -jsd(p, q), "sign"),
        (
            lambda p, q: (lambda m: (kl(p, m / m.sum()) + kl(q, m / m.sum())) / 2)((p * q).sqrt()),
            "mean is one of logarithms",
        ),
        (
            lambda p, q: sum((r * (r.log() - ((p + q) / 2).log())).sum() for r in (p, q)) / 2,
            "nansum",
        ),
        (lambda p, q: torch.tensor(math.inf), "never is"),
        (lambda p, q: 0.123, "expected"),
    ],
)
def test_wrong_divergences_are_told_why(mistake, complaint):
    assert complaint in found(check_jsd, mistake)


def test_a_right_divergence():
    assert "Symmetric" in is_right(check_jsd, jsd)


def test_the_checkers_own_divergence_is_scipys():
    from scipy.spatial.distance import jensenshannon  # the distance: its square root

    for p, q in exercises.PAIRS:
        mine = exercises._jsd(*(torch.tensor(row, dtype=torch.float64).numpy() for row in (p, q)))
        assert mine == pytest.approx(float(jensenshannon(p, q)) ** 2, abs=1e-12)


# The chapter itself.

CHAPTER = "06_contrastive"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch, "expert_says": EXPERT, "amateur_says": AMATEUR}, capsys)
