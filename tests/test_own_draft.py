"""The target as its own draft: what the check finds, what it needs another draft for, and what passes it."""

from functools import partial

import pytest
from lossless import METHODS, TWO_MODELS

from tutorlib import match, speculative
from tutorlib.course import zoo
from tutorlib.measures.proof import check_own_draft
from tutorlib.model.table import TableLM

TARGET, DRAFT = zoo.tables(3)
COMPARES = {"string_match", "speculative, match", "speculative, match_drawn"}
# Mistakes that show without a single rejection: in the texts, only with a penalty, or only in the tokens of a round.
IN_THE_TEXTS = {
    "rows_one_late", "fixed_threshold", "greedy_drafts", "padding_is_token_zero",
    "forgets_at_least_one", "perplexity_threshold", "dropped_after_the_draw", "raw_logits_as_q",
    "drawn_in_half_precision",
}  # fmt: skip
WITH_A_PENALTY = {
    "other_warp", "unwarped_bonus", "unwarped_check", "penalty_without_the_prompt", "penalty_of_before_the_draft",
}  # fmt: skip
IN_THE_ROUNDS = {"score_only", "lagging_draft", "prefixes_as_rows"}  # of the last, with longer drafts, the texts too
# These go wrong after a rejection.
WITH_ANOTHER_DRAFT = {
    "inverted_coin", "resample_from_target", "rollback_too_short", "shared_noise", "rejected_in_the_state",
}  # fmt: skip
# Other signatures; the end of a text; two vocabularies, which are one here.
NOT_FOR_THIS_CHECK = {
    "greedy_with_coins", "padding_as_text", "top_p_without_the_crossing", "top_k_one_for_greedy", "beam_starts_at_one",
    "length_off_by_one", "first_finished_beam", "mixed_with_prediction", "map_in_hash_order", "past_the_end",
    "foreign_ids", "penalty_that_rewards", "prompt_in_the_length", "one_stream_for_all_rows",
    "penalty_from_the_shortest_prompt", "grammar_advanced_by_drafts", "rollback_of_all_rejected",
}  # fmt: skip
BY_NAME = {specimen.name: specimen.mistaken for specimen in zoo.EVERY}


def checked(name, **options):
    return check_own_draft(BY_NAME[name], TARGET, "ab", gamma=1, **options)


def test_every_specimen_is_in_one_of_the_sets():
    sets = (IN_THE_TEXTS, WITH_A_PENALTY, IN_THE_ROUNDS, WITH_ANOTHER_DRAFT, NOT_FOR_THIS_CHECK)
    assert set().union(*sets) == set(BY_NAME) and sum(map(len, sets)) == len(BY_NAME)


@pytest.mark.parametrize("name", sorted(IN_THE_TEXTS))
def test_a_mistake_is_found_in_the_texts(name):
    result = checked(name)
    assert not result.passed and result.distance > 1e-4
    assert "with the target as its own draft" in result.verdict and str(result) == result.verdict


@pytest.mark.parametrize("name", sorted(WITH_A_PENALTY))
def test_a_mistake_is_found_with_a_penalty_alone(name):
    result = checked(name)
    assert result.distance < 1e-9 and result.distance_with_penalty > 0.01
    assert result.verdict.startswith("wrong: with a penalty")


@pytest.mark.parametrize("name, missing", [("score_only", 1), ("lagging_draft", 0.1), ("prefixes_as_rows", 1)])
def test_a_mistake_that_leaves_the_texts_right_is_found_in_the_rounds(name, missing):
    result = checked(name)
    assert max(result.distance, result.distance_with_penalty) < 1e-9 and result.missing >= missing
    assert len(result.faults) == (1 if name == "lagging_draft" else 2) and "a round lacks" in result.verdict


@pytest.mark.parametrize("name", sorted(WITH_ANOTHER_DRAFT))
def test_what_goes_wrong_after_a_rejection_needs_another_draft(name):
    assert checked(name).passed
    result = checked(name, other=DRAFT)
    assert result.distance_with_other > 0.01 and result.verdict.startswith("wrong: with the other draft")


@pytest.mark.parametrize("name", TWO_MODELS)
def test_every_lossless_method_with_a_draft_passes(name):
    def method(target, draft, prompt, *, gamma, rng, warp):
        return METHODS[name](target, draft, prompt, gamma, rng=rng, warp=warp)

    target, draft = zoo.tables()
    result = check_own_draft(method, target, "ab", gamma=1, other=draft, compares=name in COMPARES)
    assert result.passed, result.verdict
    assert (result.missing > 0.1) == (name in COMPARES)


def test_by_default_a_round_has_two_drafted_tokens_and_methods_that_compare_have_to_say_so():
    target, _ = zoo.tables()
    method = partial(speculative, rule=match)
    assert check_own_draft(method, target, "ab", compares=True).verdict.startswith("no fault found")
    assert "a round lacks" in check_own_draft(method, target, "ab").verdict


def test_texts_are_as_long_as_asked_and_enumeration_has_an_end():
    target = TableLM({"": [0.5, 0.5]})
    assert check_own_draft(speculative, target, "a", gamma=1, length=1).passed
    with pytest.raises(ValueError, match="branches"):
        check_own_draft(speculative, target, "a", max_branches=10)
    with pytest.raises(ValueError, match="gamma"):
        check_own_draft(speculative, target, "a", gamma=0)
