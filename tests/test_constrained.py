"""What grammars do to whole texts, against sums over all texts that the model can write."""

import pytest

from tutorlib import TableLM, grammar, sample
from tutorlib.constraints.healing import heal
from tutorlib.lab.experiments import constraints as sweep
from tutorlib.lab.experiments import results
from tutorlib.measures import proof
from tutorlib.measures.constrained import aligned, answers, futures

LM = TableLM.random(["y", "n", "no", "o", "."], 1, 3, stop_tokens=["."])
LANGUAGE = "y|no(n|o)?|ny"


def in_the_language():
    """The texts that the model writes with their ends, without any grammar."""
    texts = proof.target_distribution(LM, "y", 4)
    wanted = {"y", "no", "non", "noo", "ny"}
    return {tokens: prob for tokens, prob in texts.items() if tokens[-1] == 4 and LM.decode(tokens) in wanted}


def test_masses_and_shares_are_those_of_all_texts_that_the_model_writes():
    right, made = in_the_language(), answers(LM, "y", grammar(LANGUAGE, LM))
    total = sum(right.values())
    assert futures(LM, "y", grammar(LANGUAGE, LM))[()] == pytest.approx(total, abs=1e-12)
    assert [one.text for one in made] == sorted({one.text for one in made}, key=lambda text: -next(
        one.conditional for one in made if one.text == text))  # fmt: skip
    for one in made:
        ways = {tokens: prob for tokens, prob in right.items() if LM.decode(tokens) == one.text}
        assert (one.spellings, one.mass) == (len(ways), pytest.approx(sum(ways.values()), abs=1e-12))
        assert one.conditional == pytest.approx(one.mass / total)
    local = proof.target_distribution(LM, "y", 4, warp=[grammar(LANGUAGE, LM)])
    for one in made:
        assert one.local == pytest.approx(sum(p for t, p in local.items() if LM.decode(t) == one.text), abs=1e-12)


def test_expected_futures_give_the_models_own_distribution_of_texts_in_the_language():
    language, right = grammar(LANGUAGE, LM), in_the_language()
    warp = [aligned(language, futures(LM, "y", language))]
    made = proof.exact_distribution(lambda rng: sample(LM, "y", rng=rng, warp=warp), 4)
    total = sum(right.values())
    assert proof.total_variation(made, {tokens: prob / total for tokens, prob in right.items()}) < 1e-9
    local = proof.target_distribution(LM, "y", 4, warp=[language])
    assert proof.total_variation(made, local) > 0.05


def test_a_language_with_too_many_texts_is_refused():
    with pytest.raises(ValueError, match="more than 50 beginnings: it must be small, with bounded repeats"):
        futures(LM, "y", grammar("[yno]*", LM), most=50)


def test_json_of_the_sweep_is_judged_by_jsonschema():
    schema = sweep.SCHEMAS["a person called Ada"]
    assert sweep.follows('{"name": "Ada", "age": 25}', schema)
    assert not sweep.follows('{"name": "Ada", "age": 250}', schema) and not sweep.follows('{"name": "Ada"}', schema)


def test_what_the_chapter_says_of_the_sweep():
    rows = results("constraints")["rows"]
    assert set(rows) == set(sweep.SETTINGS)
    for way in sweep.WAYS:
        plain = rows[f"plain, {way}"]
        for name in sweep.METHODS:
            row = rows[f"{name}, {way}"]
            assert row["texts"] == plain["texts"] and row["valid"] == row["finished"] >= 8
        assert rows[f"jump_ahead, {way}"]["repeating"] > 3
        assert rows[f"prompt_lookup, {way}"]["repeating"] > rows[f"prompt_lookup, {way}"]["per_call"]
    assert rows["jump_ahead, greedy"]["faster"] > 1.5


def test_a_healed_prompt_has_the_models_distribution_given_how_the_text_begins():
    lm = TableLM.random(["a", "b", "ab", "aba", "abb"], 2, 3)
    shorter, warp = heal(lm, [1, 0, 3])  # the last token is aba, and its text may also be a + b + a, ab + a, a + ba ...
    assert shorter == [1, 0]
    made = proof.exact_distribution(lambda rng: sample(lm, shorter, rng=rng, warp=[warp]), 4)
    due = {
        tokens: prob
        for tokens, prob in proof.target_distribution(lm, shorter, 4).items()
        if lm.decode(tokens).startswith("aba")
    }
    total = sum(due.values())
    assert proof.total_variation(made, {tokens: prob / total for tokens, prob in due.items()}) < 1e-9
    with pytest.raises(ValueError, match="a prompt of two tokens or more"):
        heal(lm, [3])
