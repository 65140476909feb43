"""The checkers of chapter 2 accept what is right, and tell every usual mistake which one it is."""

import math

import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import TableLM, greedy, run
from tutorlib.exercises import greedy as exercises
from tutorlib.exercises.greedy import (
    check_counterexample,
    check_greedy,
    check_log_probability,
    check_prediction,
    check_temperature,
)


@pytest.mark.parametrize("check", [check_greedy, check_log_probability, check_temperature])
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


# Prediction.

ROUND = TableLM(
    {"a": {"b": 0.6, "c": 0.4}, "b": {"c": 0.9, "a": 0.1}, "c": {".": 0.5, "a": 0.3, "b": 0.2}},
    vocab=["a", "b", "c", "."],
    stop_tokens=["."],
)


def prediction(tokens=3, target_calls=3, stopped="stop"):
    return {"tokens": tokens, "target_calls": target_calls, "stopped": stopped}


def test_the_right_prediction():
    assert "'bc'" in is_right(check_prediction, prediction(), ROUND, "a", 10)
    assert is_right(check_prediction, prediction(2, 2, "budget"), ROUND, "a", 2)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"stopped": "budget"}, "stop token first"),
        ({"tokens": 2}, "left the stop token out"),
        ({"tokens": 4}, "one too many"),
        ({"tokens": 10}, "the budget"),
        ({"tokens": 7}, "not the number"),
        ({"target_calls": 4}, "the last is never fed"),
        ({"target_calls": 2}, "prompt's call counts"),
        ({"target_calls": 1}, "another call"),
    ],
)
def test_wrong_predictions_are_told_why(mistake, complaint):
    assert complaint in found(check_prediction, {**prediction(), **mistake}, ROUND, "a", 10)


def test_a_prediction_of_another_form():
    assert "keys" in found(check_prediction, {"tokens": 3}, ROUND, "a", 10)
    assert check_prediction.judge(prediction(None, None, None), ROUND, "a", 10).ok is None


# Greedy with a cache. One loop with every mistake in it as an option.


def loop(
    *, row=-1, again=False, cached=True, newest_alone=False, stop_kept=True, stops=True, extra=0, prompt_too=False
):
    @torch.no_grad()
    def my_greedy(model, prompt, max_new_tokens, stop_tokens):
        tokens, cache, fresh = [], None, list(prompt)
        while len(tokens) < max_new_tokens + extra:
            output = model(input_ids=torch.tensor([fresh]), past_key_values=cache, use_cache=True)
            token = int(output.logits[0, row if not tokens else -1].argmax())
            if stops and token in stop_tokens:
                tokens += [token] if stop_kept else []
                break
            tokens.append(token)
            cache = output.past_key_values if cached else None
            fresh = [*prompt, *tokens] if again or not (cached or newest_alone) else [token]
        return [*prompt, *tokens] if prompt_too else tokens

    return my_greedy


def test_a_right_loop():
    assert "each computed once" in is_right(check_greedy, loop())


def test_a_loop_with_one_call_too_many_is_right_and_told_so():
    @torch.no_grad()
    def my_greedy(model, prompt, max_new_tokens, stop_tokens):
        output = model(torch.tensor([prompt]), use_cache=True)
        tokens = []
        for _ in range(max_new_tokens):
            tokens.append(output.logits[0, -1].argmax())
            if tokens[-1] in stop_tokens:
                break
            output = model(tokens[-1].view(1, 1), past_key_values=output.past_key_values, use_cache=True)
        return tokens

    first = check_greedy.judge(my_greedy)
    assert first.ok, first.message


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"row": 0}, "first row"),
        ({"row": -2}, "row before the last"),
        ({"again": True}, "there twice"),
        ({"cached": False}, "there is no cache"),
        ({"cached": False, "newest_alone": True}, "forgotten everything"),
        ({"stop_kept": False}, "dropped the stop token"),
        ({"stops": False}, "goes on after the stop token"),
        ({"extra": 1}, "but the budget is"),
        ({"extra": -1}, "One token too few"),
        ({"prompt_too": True}, "new tokens only"),
    ],
)
def test_wrong_loops_are_told_why(mistake, complaint):
    assert complaint in found(check_greedy, loop(**mistake))


def test_other_wrong_loops():
    def spoils_its_input(model, prompt, max_new_tokens, stop_tokens):
        tokens = loop()(model, prompt, max_new_tokens, stop_tokens)
        prompt += tokens
        return tokens

    @torch.no_grad()
    def first_row_every_time(model, prompt, max_new_tokens, stop_tokens):
        tokens = []
        for _ in range(max_new_tokens):
            tokens.append(int(model(torch.tensor([[*prompt, *tokens]])).logits[0][0].argmax()))
        return tokens

    @torch.no_grad()
    def least_likely(model, prompt, max_new_tokens, stop_tokens):
        tokens = []
        for _ in range(max_new_tokens):
            tokens.append(int(model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].argmin()))
        return tokens

    def peer(model, prompt, max_new_tokens, stop_tokens):
        return model.generate(torch.tensor([prompt]), max_new_tokens=max_new_tokens)

    assert "copy it" in found(check_greedy, spoils_its_input)
    assert "first row" in found(check_greedy, first_row_every_time)
    assert "argmin" in found(check_greedy, least_likely)
    assert "write the loop" in found(check_greedy, peer)
    assert "never called the model" in found(check_greedy, lambda *_: [1, 2, 3])
    assert "list of token ids" in found(check_greedy, lambda *_: "abc")
    assert "without parentheses" in found(check_greedy, [1, 2])


def test_the_model_is_left_as_it_was():
    found(check_greedy, loop(row=0))
    model = exercises._small_model(2)
    assert "generate" not in vars(model) and not model._forward_pre_hooks


# Log-probability.


def log_probability(rows_of=lambda rows: rows[:-1], of=None, axis=-1, judged=lambda prompt, tokens: tokens, total=sum):
    def my_log_probability(lm, prompt, tokens):
        rows = lm.session(prompt).feed(tokens).double()
        values = rows if axis is None else rows.log_softmax(axis)
        picked = [float(row[token]) for row, token in zip(rows_of(values), judged(prompt, tokens), strict=False)]
        return total(of(value) for value in picked) if of else total(picked)

    return my_log_probability


def test_the_right_log_probability():
    assert "probability of" in is_right(check_log_probability, log_probability())


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def with_prompt(lm, prompt, tokens):
    tokens = [*prompt[1:], *tokens]
    return log_probability()(lm, prompt[:1], tokens)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (log_probability(of=math.exp, total=math.prod), "probability itself"),
        (log_probability(of=math.exp), "You added probabilities"),
        (log_probability(of=math.exp, total=lambda values: math.log(sum(values))), "added, then took the logarithm"),
        (log_probability(of=lambda value: -value), "sign"),
        (log_probability(of=lambda value: value / math.log(2)), "base 2"),
        (log_probability(of=lambda value: value / math.log(10)), "base 10"),
        (log_probability(total=mean), "mean"),
        (log_probability(total=lambda values: math.exp(-mean(values))), "perplexity"),
        (with_prompt, "prompt's tokens"),
        (log_probability(rows_of=lambda rows: rows[1:]), "one row late"),
        (
            log_probability(lambda rows: rows[1:], judged=lambda prompt, tokens: tokens[1:]),
            "first new token is missing",
        ),
        (log_probability(judged=lambda prompt, tokens: tokens[:-1]), "last token is missing"),
        (log_probability(axis=None), "raw logits"),
        (log_probability(axis=0), "over the positions"),
        (lambda lm, prompt, tokens: lm.session(prompt).feed(tokens)[:-1].log_softmax(0)[0, 0], "is too"),
        (
            lambda lm, prompt, tokens: lm.session(prompt).feed(tokens)[:-1].log_softmax(-1).amax(-1).sum(),
            "largest value",
        ),
        (lambda lm, prompt, tokens: [1.0], "Expected a number"),
    ],
)
def test_wrong_log_probabilities_are_told_why(mistake, complaint):
    assert complaint in found(check_log_probability, mistake)


def test_the_usual_mistakes_come_to_different_numbers():
    model = exercises._small_model(3)
    for prompt, tokens in (([2, 7, 1, 8], [12, 8, 1]), ([5, 3], [11, 3, 6, 10, 3])):
        expected, mistakes = exercises._log_probability_and_mistakes(model, prompt, tokens)
        values = sorted([expected, *mistakes])
        assert all(b - a > 1e-3 * abs(a) for a, b in zip(values, values[1:], strict=False)), values


# The counterexample.

GOOD = {
    "a": {"b": 0.51, "c": 0.49},
    "b": {"a": 0.34, "b": 0.33, "c": 0.33},
    "c": {"c": 1.0},
}


def test_a_right_counterexample():
    message = is_right(check_counterexample, GOOD)
    # By hand: greedy takes b, a, b: 0.51 · 0.34 · 0.51; c, c, c has 0.49.
    assert "'bab' with probability 0.0884" in message and "'ccc' has 0.49" in message and "5.54 times" in message
    is_right(check_counterexample, TableLM(GOOD, ["a", "b", "c"]))


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"": [0.8, 0.1, 0.1]}, "Here greedy is right: of all 27"),
        ({"a": [0, 0.7, 0.3], "b": [0.34, 0.33, 0.33], "c": [0, 0, 1]}, "two first probabilities closer"),
        ({"a": [0, 0.51, 0.49], "b": [0.34, 0.33, 0.33], "c": [0.6, 0.4, 0]}, "surer"),
        ({"a": [0, 0.51, 0.49], "b": [0.1, 0.8, 0.1], "c": [0, 0, 1]}, "Spread"),
        ({"": [0.4, 0.4, 0.2]}, "equally likely"),
        ({"a": [0.5, 0.2, 0.2]}, "sum to 1"),
        ({"x": [1, 0, 0]}, "not a table"),
        (TableLM({"": [0.6, 0.4]}, ["x", "y"]), "cannot read"),
        (TableLM.random(30, 1, 0), "use fewer"),
        ([0.5, 0.5], "Expected a dict"),
    ],
)
def test_what_is_no_counterexample_is_told_why(table, complaint):
    assert complaint in found(check_counterexample, table, *(["<0>"] if getattr(table, "vocab_size", 0) > 26 else []))


# The temperature.


def test_the_right_temperature():
    is_right(check_temperature, lambda margin, share: margin / math.log(share / (1 - share)))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda m, s: math.log(s / (1 - s)) / m, "inverse"),
        (lambda m, s: m / math.log((1 - s) / s), "sign"),
        (lambda m, s: m * math.log(s / (1 - s)), "multiplied"),
        (lambda m, s: m / (s / (1 - s)), "odds themselves"),
        (lambda m, s: m / math.log10(s / (1 - s)), "log10"),
        (lambda m, s: m / math.log(s), "ratio"),
        (lambda m, s: -m / math.log(1 - s), "ratio"),
        (lambda m, s: m * s, "not a proportion"),
        (lambda m, s: 1.0, "solve"),
    ],
)
def test_wrong_temperatures_are_told_why(mistake, complaint):
    assert complaint in found(check_temperature, mistake)


# The chapter itself.

CHAPTER = "02_greedy"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch, "TableLM": TableLM, "greedy": greedy, "run": run}, capsys)
