"""Every specimen of the zoo is caught, and the right method passes the very same check; the list is whole."""

import inspect
import re
from functools import partial
from pathlib import Path

import pytest
import torch

from tutorlib.course import zoo
from tutorlib.course.zoo import cases, loops
from tutorlib.course.zoo.engines import race_again
from tutorlib.decoders.sample import sample
from tutorlib.decoders.speculative import speculative
from tutorlib.measures.proof import (
    exact_distribution,
    samples_needed,
    target_distribution,
    token_distribution,
    total_variation,
)
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import temperature

EXACT = 1e-9
CHAPTER = Path(__file__).parents[1] / "notebooks" / "11_is_it_exact.ipynb"
EVERY = zoo.EVERY
BY_NAME = {specimen.name: specimen for specimen in EVERY}


# ----------------------------------------------------------------------------------------------------------------------
# Caught


# These take long to enumerate; of most of them something quicker is claimed below.
LONG = {
    "rows_one_late", "inverted_coin", "prefixes_as_rows", "foreign_ids", "perplexity_threshold", "forgets_at_least_one",
    "unwarped_bonus", "other_warp", "past_the_end", "padding_is_token_zero", "dropped_after_the_draw",
}  # fmt: skip


@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(specimen, id=specimen.name, marks=[pytest.mark.slow] if specimen.name in LONG else [])
        for specimen in EVERY
    ],
)
def test_it_is_caught_and_the_right_method_passes_the_same_check(specimen):
    small = specimen.mistaken is zoo.drawn_in_half_precision  # as small as rounding in half precision
    assert 1 + EXACT >= specimen.distance() >= specimen.least > (1e4 if small else 1e6) * EXACT
    assert specimen.distance_of_correct() < EXACT


def test_what_is_long_to_enumerate_shows_in_short_texts_too():
    def distance(method):
        return total_variation(*zoo.texts(method, length=2, gamma=1, warp=[temperature(2.0)]))

    assert distance(speculative) < EXACT
    for method in (zoo.rows_one_late, zoo.inverted_coin, zoo.other_warp, zoo.unwarped_bonus):
        assert distance(method) > 0.01, method


def test_checked_by_the_row_after_the_first_token_has_a_distribution_worked_out_by_hand():
    # One drafted token, drawn from (0.5, 0.5). Checked by what may follow it: after a, a surely; after b, b with 0.25.
    target = TableLM({"": [0.9, 0.1], "a": [1.0, 0.0], "b": [0.75, 0.25]})
    draft = TableLM({"": [0.5, 0.5]})
    made = exact_distribution(lambda rng: zoo.rows_one_late(target, draft, "b", gamma=1, rng=rng), 1)
    # a: drafted and kept 0.5, or b drafted, refused (half the time), and the residual of (0.75, 0.25), which is a.
    assert made == pytest.approx({(0,): 0.75, (1,): 0.25})


def test_the_inverted_coin_rejects_as_often_as_it_should_accept():
    target, draft = TableLM({"": [0.8, 0.2]}), TableLM({"": [0.5, 0.5]})
    made = exact_distribution(lambda rng: zoo.inverted_coin(target, draft, "b", gamma=1, rng=rng), 1)
    # a is always kept; b, drafted half the time, is rejected with 0.2 / 0.5, and then the residual is a.
    assert made == pytest.approx({(0,): 0.5 + 0.5 * 0.4, (1,): 0.5 * 0.6})


def test_of_prefixes_as_rows_the_shorter_ones_say_what_follows_the_padding_and_none_says_what_follows_the_draft():
    target, draft = TableLM({"a": [0.4, 0.6], "b": [0.9, 0.1]}), TableLM({"": [0.5, 0.5]})
    made = exact_distribution(lambda rng: zoo.prefixes_as_rows(target, draft, "b", gamma=2, rng=rng), 1)
    assert made == pytest.approx({(0,): 0.4, (1,): 0.6})  # what follows a, the padding; not what follows b
    steps = run(zoo.prefixes_as_rows(target, target, "b", gamma=1, rng=Seeded(0)), 20, stop=()).steps
    assert {(step.accepted, len(step.tokens)) for step in steps} == {(1, 1)}


def test_with_foreign_ids_each_token_is_kept_by_the_probability_of_another():
    target, draft = TableLM({"": [0.5, 0.3, 0.2]}, list("abc")), TableLM({"": [1 / 3] * 3}, list("cab"))
    made = exact_distribution(lambda rng: zoo.foreign_ids(target, draft, "b", gamma=1, rng=rng), 1)
    # The draft's ids of a, b, c are 1, 2, 0: kept with 0.3, 0.2 and 0.5 over a third; the residual is a.
    assert made == pytest.approx({(0,): 0.3 + 0.5 / 3, (1,): 0.2, (2,): 1 / 3})


@pytest.mark.parametrize("alpha, kept", [(0.5, 1.0), (1.0, 0.0)])
def test_a_prediction_lets_a_token_pass_that_the_target_rules_out(alpha, kept):
    # The draft says a, always. After a the target gives it 0.04, less than the threshold; the prediction gives it 0.5.
    target, draft = TableLM({"b": [0.5, 0.5], "a": [0.04, 0.96]}), TableLM({"": [1.0, 0.0]})
    options = {"predict": lambda features: features.new_tensor([0.5, 0.5]).log().expand_as(features), "alpha": alpha}
    made = exact_distribution(lambda rng: zoo.mixed_with_prediction(target, draft, "b", gamma=2, rng=rng, **options), 2)
    assert made.get((0, 0), 0) == pytest.approx(kept + (1 - kept) * 0.04)


def test_a_feature_predictor_learns_and_is_the_same_each_time():
    target, _ = zoo.tables()
    state = torch.get_rng_state()
    own = run(sample(target, "b", rng=Seeded(0)), 60, stop=()).tokens
    (predict, losses), (again, _) = (zoo.feature_predictor(target, [own]) for _ in range(2))
    assert losses[0] > 0.8 and sum(losses[-20:]) / 20 < 0.7 * losses[0]
    features = target.session("b", hidden=-1)
    features.feed([0, 1])
    assert predict(features.hidden).shape == (3, 2)
    torch.testing.assert_close(predict(features.hidden), again(features.hidden), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_scored_only_the_text_is_the_drafts_own():
    target, draft = zoo.tables()
    made, _ = zoo.texts(zoo.score_only)
    assert total_variation(made, target_distribution(draft, "b", 4, stop=())) < EXACT
    note = next(zoo.score_only(target, draft, "b", gamma=2, rng=Seeded(0))).note
    assert re.fullmatch(r"average log-likelihood -\d\.\d\d", note)


def test_a_lagging_draft_is_exact_and_only_accepted_less():
    made, due = zoo.texts(zoo.lagging_draft, length=3, gamma=1)
    assert total_variation(made, due) < EXACT
    assert BY_NAME["lagging_draft"].compares != "texts"


def test_what_is_forgotten_after_a_full_draft_shows_in_texts_two_longer_than_it_and_in_no_shorter_one():
    distances = [total_variation(*zoo.texts(zoo.forgets_at_least_one, length=length, gamma=1)) for length in (1, 2, 3)]
    assert max(distances[:-1]) < EXACT < 0.01 < distances[-1]


@pytest.mark.parametrize(
    "method, thresholds, nothing",
    [(zoo.fixed_threshold, (0.1, 0.9), 1.1), (zoo.perplexity_threshold, (0.1, 0.6), 1.0)],
)
def test_no_threshold_is_right_but_one_that_accepts_nothing(method, thresholds, nothing):
    for threshold in thresholds:
        made, due = zoo.texts(partial(method, threshold=threshold), length=3)
        assert total_variation(made, due) > 0.001, threshold
    target, draft = zoo.tables()
    steps = method(target, draft, "b", gamma=2, rng=Seeded(0), threshold=nothing)
    assert run(steps, 20, stop=()).acceptance == 0


def test_perplexity_moves_the_bar_as_worked_out_by_hand():
    # After b the draft says a for sure, after a either: its perplexity is the root of 2, the bar 0.3 times that, 0.42.
    target = TableLM({"": [0.5, 0.5], "a": [0.4, 0.6]})
    draft = TableLM({"": [1.0, 0.0], "a": [0.5, 0.5]})
    made = exact_distribution(lambda rng: zoo.perplexity_threshold(target, draft, "b", gamma=2, rng=rng), 2, stop=())
    # a, with 0.5, is kept. Then b is kept; a, with 0.4, is refused, and one of the two drawn from (0.4, 0.6).
    assert made == pytest.approx({(0, 0): 0.5 * 0.4, (0, 1): 0.5 + 0.5 * 0.6})


def test_a_race_with_the_numbers_of_the_first_one_is_what_the_numbers_say():
    first, second = torch.tensor([0.5, 0.2, 0.2, 0.1]).double(), torch.tensor([0.0, 0.75, 0.125, 0.125]).double()
    numbers = torch.empty(400_000, 4).double().exponential_(generator=torch.Generator().manual_seed(0))
    again = (numbers / second).argmin(1)[(numbers / first).argmin(1) == 0]
    drawn = torch.bincount(again, minlength=4) / len(again)
    won = race_again(first, second)
    torch.testing.assert_close(won, drawn.double(), rtol=0, atol=4e-3)
    assert float(won.sum()) == pytest.approx(1) and abs(float(won[1]) - 0.75) > 0.05


def test_shared_noise_does_no_harm_where_only_one_token_can_follow_a_rejection():
    made, due = zoo.texts(zoo.shared_noise, length=3)  # of two tokens, one is left
    assert total_variation(made, due) < EXACT < 0.05 < BY_NAME["shared_noise"].distance()


def test_a_draft_that_asks_before_the_draw_is_exact_and_one_that_asks_after_it_is_not():
    made, due = zoo.texts(partial(speculative, confidence=0.7), length=3)
    assert total_variation(made, due) < EXACT
    for threshold, wrong in ((0.0, False), (0.3, True), (1.1, False)):  # with 1.1, everything is dropped
        made, due = zoo.texts(partial(zoo.dropped_after_the_draw, threshold=threshold), length=3, gamma=1)
        assert (total_variation(made, due) > 0.01) == wrong, threshold


def test_a_greedy_draft_with_raw_logits_is_the_other_greedy_draft_if_there_is_no_warp():
    made, other = (zoo.texts(method, length=3)[0] for method in (zoo.raw_logits_as_q, zoo.greedy_drafts))
    assert total_variation(made, other) < EXACT


def test_what_needs_a_warp_to_be_seen_is_exact_without_one():
    for method in (zoo.unwarped_check, zoo.penalty_without_the_prompt, zoo.penalty_of_before_the_draft):
        assert total_variation(*zoo.texts(method, length=3, gamma=1)) < EXACT


def test_samples_needed_counts_the_position_that_shows_the_mistake_best():
    made, due = (token_distribution(one, 3) for one in BY_NAME["forgets_at_least_one"].outcomes())
    assert BY_NAME["forgets_at_least_one"].samples_needed() == samples_needed(made, due) > 1000
    assert BY_NAME["drawn_in_half_precision"].samples_needed() > 10**8


def test_the_loops_that_specimens_share_are_right_with_the_right_rule():
    from tutorlib.drafting.checking import check_sampled
    from tutorlib.running.decoding import decoder

    @decoder
    def shared(target, draft, prompt, *, gamma, rng, warp=()):
        return (yield from loops.speculate(target, draft, prompt, gamma, rng, warp))

    @decoder
    def across(target, draft, prompt, *, gamma, rng, warp=()):
        def rule(guesses, drafted, draft_probs, target_probs):
            return check_sampled(drafted, draft_probs, target_probs, rng)

        return (yield from loops.speculate_across(target, draft, prompt, gamma, rng, warp, rule=rule))

    warmer = zoo.texts(shared, length=3, gamma=1, warp=[temperature(2.0)])
    for made, due in (warmer, cases.two_vocabularies(across)):
        assert total_variation(made, due) < EXACT
    assert run(shared(*zoo.tables(), "b", gamma=3, rng=Seeded(1)), 200, stop=()).stopped == "context"


def test_the_beam_search_that_specimens_share_is_right_as_it_is():
    from tutorlib.running.decoding import decoder

    @decoder
    def shared(lm, prompt, *, beams, max_new_tokens, length_penalty):
        def score(tokens, total):
            return total / len(tokens) ** length_penalty

        yield loops.beam_loop(lm, prompt, beams, max_new_tokens, score=score)

    assert total_variation(*cases.best_text(shared)) == 0


def test_the_three_wrong_beams_go_wrong_in_their_own_way_and_not_by_the_number_of_beams():
    for name in ("beam_starts_at_one", "length_off_by_one", "first_finished_beam"):
        made, due = BY_NAME[name].outcomes()
        assert list(made) == [(3,)] and list(due) == [(1, 2, 3)]  # they stop at once; the best text goes on


@pytest.mark.parametrize("name", ["rows_one_late", "score_only", "rollback_too_short", "lagging_draft", "past_the_end"])
def test_specimens_run_to_the_end_of_a_text_without_an_error(name):
    target, draft = zoo.tables()
    trace = run(BY_NAME[name].mistaken(target, draft, "b", gamma=3, rng=Seeded(2)), 100, stop=())
    assert trace.stopped in ("context", "end") and len(trace.tokens) > 50


# ----------------------------------------------------------------------------------------------------------------------
# The list


def test_no_specimen_is_there_twice():
    lists = zoo.SPECIMENS, zoo.ENGINE_SPECIMENS, zoo.GRAMMAR_SPECIMENS, zoo.SETTING_SPECIMENS
    assert [len(some) for some in lists] == [25, 8, 2, 4] and len(BY_NAME) == 39


def test_as_many_were_found_published_as_the_chapter_says():
    assert sum(bool(specimen.source) for specimen in zoo.SPECIMENS) == 20
    assert all(specimen.source for specimen in zoo.ENGINE_SPECIMENS + zoo.SETTING_SPECIMENS)


def test_every_public_function_of_the_zoo_is_a_specimen_or_shows_them():
    functions = {name for name, value in vars(zoo).items() if inspect.isfunction(value)}
    assert functions - {"tables", "texts", "feature_predictor", "named"} == set(BY_NAME)


@pytest.mark.parametrize("specimen", EVERY, ids=lambda specimen: specimen.name)
def test_it_is_documented_marked_one_screen_and_shown_and_says_where_it_was_seen_or_claims_nothing(specimen):
    source = inspect.getsource(inspect.unwrap(specimen.mistaken))
    assert source.count(zoo.MARK) == 1 and specimen.wrong_lines.count(zoo.MARK) == 1
    assert zoo.MARK in specimen.code and '"""' not in specimen.code
    assert len(source.splitlines()) <= 30
    assert inspect.getdoc(inspect.unwrap(specimen.mistaken)).endswith(".")
    for text in (specimen.what, specimen.why):
        assert len(text) > 25 and text.rstrip().endswith((".", "?"))
    assert specimen.compares
    assert specimen not in zoo.SPECIMENS or specimen.name in CHAPTER.read_text(encoding="utf-8")
    if specimen.source:
        has_link = len(re.findall(r": https://[\w.]+\.com/\S+$", specimen.source)) == 1
        assert has_link or specimen.source.endswith("no lasting address")
        assert specimen.published.startswith("Published in: [" if has_link else "Published in: a")
    else:
        assert not re.search(r"publish|tutorial|article|repositor", specimen.what + specimen.why)
        assert "Not found published" in specimen.published


@pytest.mark.parametrize("specimen", EVERY, ids=lambda specimen: specimen.name)
def test_what_the_chapter_prints_of_it_is_in_the_fields_words(specimen):
    printed = " ".join((specimen.code, specimen.what, specimen.why))
    assert not re.search(r"\b(luck|places?|coins?|mended)\b", printed)


def test_a_specimen_is_shown_with_its_wrong_line_and_its_source_and_an_unknown_one_is_refused():
    (one,) = zoo.named("greedy_drafts")
    shown = one._repr_markdown_()
    assert repr(one) == "Specimen(greedy_drafts)" and zoo.MARK in shown and one.published in shown
    with pytest.raises(ValueError, match="the zoo has no 'speculative'; it has rows_one_late"):
        zoo.named("speculative")


def test_it_has_the_signature_of_what_it_wants_to_be():
    own = {"threshold", "alpha", "predict"}  # what only the mistake needs
    for specimen in EVERY:
        mistaken, correct = (list(inspect.signature(one).parameters) for one in (specimen.mistaken, specimen.correct))
        assert [name for name in mistaken if name not in own] == [name for name in correct if name in mistaken]
