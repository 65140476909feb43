"""Pulling steps: the budget, stop tokens, the context's end, what a method is handed, and progress."""

import inspect
import json
import sys

import numpy as np
import pytest
from conftest import in_words, random_model
from scripted import ABC, run_scripted

from tutorlib import decoders
from tutorlib.decoders import greedy, sample, speculative, speculative_batch
from tutorlib.model.table import TableLM
from tutorlib.running import decoding
from tutorlib.running.decoding import decoder, run, run_batch
from tutorlib.running.step import Step
from tutorlib.sampling.randomness import Greedy, Seeded
from tutorlib.sampling.warp import one_hot, temperature


@decoder
def scripted_batch(lm, prompts, rounds, *, rngs=None, warp=(), asked=None):
    """Yields the rounds it is given, and writes down which rows it is asked to go on with."""
    for made in rounds:
        wanted = yield made
        if asked is not None:
            asked.append(wanted)


def until_ctrl_c(made, closed):
    """The generator of a method that yields all of `made`, sees Ctrl-C pressed, and says when it is let go of."""
    try:
        yield from (steps for steps in made)  # a generator, as rounds are sent what is wanted next
        raise KeyboardInterrupt
    finally:
        closed.append(True)


@decoder
def interrupted(lm, prompt, made, closed):
    yield from until_ctrl_c(made, closed)


@decoder
def interrupted_batch(lm, prompts, made, closed):
    yield from until_ctrl_c(made, closed)


class TestHowARunEnds:
    ENDING = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"], stop_tokens=["c"])
    SHORT = TableLM({"": [0.5, 0.5]}, context=5)

    @pytest.mark.parametrize(
        ("lm", "budget", "stop", "tokens", "text", "stopped"),
        [
            (ABC, 4, None, [1, 2, 0, 1], "bcab", "budget"),
            (ABC, 10, [2], [1, 2], "bc", "stop"),  # the stop token stays the last token
            (ABC, 2, [2], [1, 2], "bc", "stop"),  # also where it uses up the budget
            (ENDING, 10, None, [1, 2], "b", "stop"),  # the model's own stop tokens, unless told otherwise
            (ENDING, 4, (), [1, 2, 0, 1], "bab", "budget"),
            (ENDING, 10, [0], [1, 2, 0], "ba", "stop"),
            (SHORT, 100, None, [0] * 4, "aaaa", "context"),  # prompt and text fill the context
            (SHORT, 4, None, [0] * 4, "aaaa", "budget"),
        ],
    )
    def test_at_the_budget_a_stop_token_or_the_contexts_end(self, lm, budget, stop, tokens, text, stopped):
        trace = run(greedy(lm, "a"), budget, stop=stop)
        assert (trace.tokens, trace.text, trace.stopped) == (tokens, text, stopped)

    def test_at_once_when_the_prompt_fills_the_context(self):
        lm = TableLM({"": [0.5, 0.5]}, context=3)
        trace = run(greedy(lm, "aba"), 5)
        assert (trace.tokens, trace.steps, trace.target_calls, trace.stopped) == ([], [], 0, "context")

    def test_when_the_method_ends(self):
        trace = run_scripted([Step(), Step(note="looking"), Step([1, 2], score=-0.5)])
        assert (trace.tokens, trace.stopped, len(trace.steps)) == ([1, 2], "end", 3)

    def test_when_a_method_says_that_a_context_is_full(self):
        @decoder
        def short_draft(lm, prompt):
            yield Step([1])
            return "context"

        assert run(short_draft(ABC, "a"), 5).stopped == "context"

    def test_with_ctrl_c_and_nothing_is_lost(self):
        trace = run(interrupted(ABC, "a", [Step([1]), Step([2])], []), 5)
        assert (trace.tokens, trace.text, trace.stopped) == ([1, 2], "bc", "interrupted")
        rows = run_batch(interrupted_batch(ABC, ["a", "b"], [[Step([2]), Step([0])]], []), 9, [2])
        assert [(row.tokens, row.stopped) for row in rows] == [([2], "stop"), ([0], "interrupted")]

    def test_and_the_method_is_let_go_of(self):
        closed = []
        steps = interrupted(ABC, "a", [Step([1])] * 9, closed)
        run(steps, 3)
        assert closed, "its caches would live as long as somebody holds the steps"
        rounds = interrupted_batch(ABC, ["a"], [[Step([1])]] * 9, closed)
        run_batch(rounds, 3)
        assert len(closed) == 2


class TestArguments:
    @pytest.mark.parametrize(
        ("budget", "stop", "words"),
        [
            *((budget, None, f"max_new_tokens must be .*{budget!r}") for budget in (0, -1, 2.5, "ten", True)),
            (5, [3], "stop token 3 is outside the vocabulary, whose ids are 0 to 2"),
            (5, [-1], "-1"),
            (5, ["c"], "'c'"),
            (5, "c", "'c'"),
            (5, 2, "got 2"),
        ],
    )
    def test_a_budget_that_is_no_number_of_tokens_or_a_stop_that_is_no_token(self, budget, stop, words):
        for pull, steps in ((run, greedy(ABC, "a")), (run_batch, scripted_batch(ABC, ["a"], []))):
            with pytest.raises(ValueError, match=words):
                pull(steps, budget, stop=stop)

    def test_steps_and_rounds_that_have_been_run(self):
        for pull, steps in ((run, greedy(ABC, "a")), (run_batch, speculative_batch(ABC, ABC, ["a", "b"]))):
            pull(steps, 2)
            with pytest.raises(ValueError, match="already been run"):
                pull(steps, 2)

    def test_something_that_is_not_a_step_or_not_a_round(self):
        with pytest.raises(TypeError, match=r"Step\(\[token\]\); it yielded 7"):
            run_scripted([7])
        for made in (Step([1]), [Step([1])], [Step([1])] * 3, [Step([1]), 7]):
            with pytest.raises(TypeError, match="must yield"):
                run_batch(scripted_batch(ABC, ["a", "b"], [made]), 5)

    def test_a_bad_prompt_is_refused_at_the_call(self):
        for prompt, words in (("a" * 65, "65 tokens, more than the context of 64"), ("x", "'x'")):
            with pytest.raises(ValueError, match=words):
                greedy(ABC, prompt)

    @pytest.mark.parametrize("prompts", [{"a": 1}, {"a", "b"}, b"a"], ids=lambda given: type(given).__name__)
    def test_prompts_without_an_order_are_refused(self, prompts):
        with pytest.raises(ValueError, match="prompts must be a list of prompts"):
            speculative_batch(ABC, ABC, prompts)

    def test_a_bare_model_is_refused_at_the_call(self):
        with pytest.raises(ValueError, match=r"LM as its argument 'lm', got LlamaForCausalLM: wrap"):
            greedy(random_model("llama"), "a")

    @pytest.mark.parametrize("rng", [7, "seed", object(), Seeded])
    def test_something_that_draws_nothing_is_refused_at_the_call(self, rng):
        with pytest.raises(ValueError, match="choose and accept"):
            sample(ABC, "a", rng=rng)

    def test_missing_and_unknown_arguments_are_type_errors_at_the_call(self):
        @decoder
        def drawn(lm: object, prompt, *, rng, warp=()):
            yield Step([0])

        call = r"call it as drawn\(lm, prompt, \*, rng, warp=\(\)\)$"
        with pytest.raises(TypeError, match=rf"'rng' \(rng=Seeded\(7\), for instance.*{call}"):
            drawn(ABC, "a")
        with pytest.raises(TypeError, match="beams"):
            greedy(ABC, "a", beams=3)


class TestDecoder:
    def test_rng_none_is_greedy_and_probabilities_are_one_hot(self):
        seen, cool = {}, temperature(0.5)

        @decoder
        def look(lm, prompt, *, rng=None, warp=()):
            seen.update(rng=rng, warp=warp)
            yield Step([0])

        run(look(ABC, "a", warp=[cool]), 1)
        assert isinstance(seen["rng"], Greedy)
        assert seen["warp"] == (cool, one_hot)

    def test_any_object_with_choose_and_accept_draws(self):
        class Always:
            def choose(self, probs):
                return 2

            def accept(self, probability):
                return True

        assert run(sample(ABC, "a", rng=Always()), 3).tokens == [2, 2, 2]

    @pytest.mark.parametrize(
        ("method", "settings"),
        [
            (decoders.sample, {}),
            (decoders.speculative, {"draft": TableLM.random(3, 1, 1), "gamma": 3}),
            (decoders.prompt_lookup, {"gamma": 3, "max_ngram": 2}),
            (decoders.suffix_lookup, {"gamma": 3}),
            (decoders.lookahead, {"window": 2, "ngram": 2, "guesses": 2}),
            (decoders.string_match, {"draft": TableLM.random(3, 1, 1), "gamma": 3}),
            (decoders.token_intersection, {"draft": TableLM.random(3, 1, 1), "gamma": 3}),
            (decoders.contrastive_sampling, {"amateur": TableLM.random(3, 1, 1)}),
            (decoders.context_contrast, {"without": "b", "weight": 1.5}),
            (decoders.contrastive_search, {"k": 2, "penalty": 0.5}),
            (
                decoders.beam_search,
                {"beams": 4, "groups": 2, "diversity": 0.5, "max_new_tokens": 8, "min_new_tokens": 2},
            ),
            (decoders.best_first_beam_search, {"beams": 4, "n_best": 2, "max_new_tokens": 8, "queue_limit": 9}),
            (decoders.contrastive_beam_search, {"amateur": TableLM.random(3, 1, 1), "beams": 2, "max_new_tokens": 8}),
        ],
        ids=in_words,
    )
    def test_numpy_numbers_are_numbers_from_settings_to_trace(self, method, settings):
        class Numpys(Seeded):
            def choose(self, probs):
                return np.int64(super().choose(probs))

            def accept(self, probability):
                return np.bool_(super().accept(probability))

        lm, takes_rng = TableLM.random(3, 2, 0), "rng" in inspect.signature(method).parameters
        expected = run(method(lm, prompt="abab", **settings, **({"rng": Seeded(3)} if takes_rng else {})), 8)
        for name, value in settings.items():
            if isinstance(value, int | float):
                settings = settings | {name: np.asarray(value)[()]}
        trace = run(method(lm, prompt="abab", **settings, **({"rng": Numpys(3)} if takes_rng else {})), np.int64(8))
        assert json.dumps(trace.to_dict()) == json.dumps(expected.to_dict())

    @pytest.mark.parametrize("answer", [3, -1, 1.0, "1", None, True])
    def test_a_choice_that_is_no_index_is_an_error(self, answer):
        class Odd(Seeded):
            def choose(self, probs):
                return answer

        with pytest.raises(ValueError, match=rf"from 0 to 2, but that of .* returned {answer!r}"):
            run(sample(ABC, "a", rng=Odd(0)), 3)

    def test_an_acceptance_that_is_no_answer_is_an_error(self):
        class Odd(Seeded):
            def accept(self, probability):
                super().accept(probability)

        with pytest.raises(ValueError, match="accept must return True or False, but that of .* returned None"):
            run(speculative(ABC, ABC, "a", rng=Odd(0)), 3)

    def test_its_check_gets_the_arguments_it_names_defaults_too(self):
        def check(gamma, prompt):
            if gamma < 1:
                raise ValueError(f"gamma must be at least 1, got {gamma}, after {prompt}")

        @decoder(check=check)
        def drafted(lm, prompt, *, gamma=4):
            yield Step([gamma])

        assert next(drafted(ABC, "a")).tokens == [4]
        with pytest.raises(ValueError, match=r"got 0, after \[0\]"):
            drafted(ABC, "a", gamma=0)

    def test_what_it_returns_knows_its_model_prompt_and_method_and_has_computed_nothing(self):
        calls = ABC.calls
        steps, rounds = greedy(ABC, "ab"), speculative_batch(ABC, ABC, ["ab", "c"])
        assert (steps.lm, steps.prompt, steps.name, steps.begun) == (ABC, [0, 1], "greedy", False)
        assert (rounds.lm, rounds.prompts, rounds.name, rounds.begun) == (
            ABC, [[0, 1], [2]], "speculative_batch", False,
        )  # fmt: skip
        assert "run()" in repr(steps) and "run_batch()" in repr(rounds)
        assert ABC.calls == calls
        assert next(steps).tokens == [2]
        assert greedy.__doc__.startswith("Take the ")

    def test_a_function_that_is_no_generator_is_refused(self):
        with pytest.raises(TypeError, match="generator function"):
            decoder(lambda lm, prompt: [])

    def test_steps_without_a_model_can_be_run_too(self):
        trace = run([Step([1, 2]), Step([3])], 10)
        assert (trace.tokens, trace.text, trace.target_calls, trace.stopped) == ([1, 2, 3], "", 0, "end")


@pytest.mark.parametrize(
    ("terminal", "long", "asked", "shown"),
    [
        (False, True, None, False), (True, False, None, False), (True, True, None, True), (False, False, True, True),
        (True, True, False, False),
    ],
)  # fmt: skip
def test_progress_is_shown_of_long_runs_in_a_terminal_or_as_asked(terminal, long, asked, shown, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    if long:
        monkeypatch.setattr(decoding, "PROGRESS_DELAY", 0.0)
    run(greedy(ABC, "a"), 40, progress=asked)
    out, err = capsys.readouterr()
    assert ("/40" in err) == shown and out == ""
    assert shown or not err.strip()


class TestBatches:
    def run(self, rounds, budget=100, prompts=("a", "b"), lm=ABC, stop=None, **options):
        return run_batch(scripted_batch(lm, prompts, rounds, **options), budget, stop)

    def test_a_row_can_be_run_alone_with_the_same_trace(self):
        steps = [Step([1, 2, 0], drafted=[1, 2], accepted=2), Step([0, 1, 1]), Step([2, 2])]
        for budget, stop in ((2, ()), (4, ()), (10, [0]), (10, ()), (1, None)):
            traces = self.run([[step, Step([0])] for step in steps], budget, stop=stop)
            assert traces[0].to_dict() | {"method": ""} == (
                run_scripted(steps, budget, stop=stop).to_dict() | {"method": ""}
            )

    def test_the_method_is_told_which_rows_go_on(self):
        asked = []
        rounds = [[Step([1]), Step([0]), Step([2])], [Step([2]), Step([0]), Step()], [Step(), Step([0]), Step()]]
        traces = self.run(rounds, budget=3, prompts=["a", "b", "c"], stop=[2], asked=asked)
        assert asked == [{0, 1}, {1}]
        assert [trace.tokens for trace in traces] == [[1, 2], [0, 0, 0], [2]]
        assert [len(trace.steps) for trace in traces] == [2, 3, 1]

    def test_a_row_whose_prompt_fills_the_context_ends_at_once(self):
        lm = TableLM({"": [0.5, 0.5]}, context=3)
        full, other = self.run([[Step(), Step([1])], [Step(), Step([1])]], prompts=["aba", "a"], lm=lm)
        assert (full.tokens, full.stopped, full.steps) == ([], "context", [])
        assert (other.tokens, other.stopped) == ([1, 1], "context")
        (alone,) = self.run([], prompts=["aba"], lm=lm)
        assert (alone.stopped, alone.target_calls) == ("context", 0)

    def test_the_end_of_the_method_ends_the_rows_that_are_left(self):
        @decoder
        def short(lm, prompts, why):
            yield [Step([2]), Step([0])]
            return why

        for why, stopped in ((None, "end"), ("context", "context")):
            traces = run_batch(short(ABC, ["a", "b"], why), 9, [2])
            assert [trace.stopped for trace in traces] == ["stop", stopped]

    def test_without_rngs_every_row_is_greedy_and_probabilities_are_one_hot(self):
        seen = {}

        @decoder
        def look(lm, prompts, *, rngs=None, warp=()):
            seen.update(prompts=prompts, rngs=rngs, warp=warp)
            yield [Step([0])] * 2

        warm = temperature(2.0)
        run_batch(look(ABC, ["a", [1, 2]], warp=[warm]), 1)
        assert seen["prompts"] == [[0], [1, 2]]
        assert [type(rng) for rng in seen["rngs"]] == [Greedy, Greedy]
        assert seen["warp"] == (warm, one_hot)
        rngs = [Seeded(0), Seeded(1)]
        run_batch(look(ABC, ["a", "b"], rngs=rngs), 1)
        assert (seen["rngs"], seen["warp"]) == (rngs, ())

    def test_batches_and_single_texts_are_not_mixed_up(self):
        with pytest.raises(TypeError, match="scripted_batch makes several texts at once: use run_batch"):
            run(scripted_batch(ABC, ["a", "b"], []), 5)
        with pytest.raises(TypeError, match="run_batch needs .* for one, use run"):
            run_batch(greedy(ABC, "a"), 5)

    def test_a_progress_bar_counts_the_tokens_of_all_rows(self, capsys):
        run_batch(scripted_batch(ABC, ["a", "b"], [[Step([1]), Step([1, 2])]]), 3, progress=True)
        assert "6" in capsys.readouterr().err
