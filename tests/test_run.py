"""Pulling steps: the budget, stop tokens, the context's end, cutting, streaming, and what the trace says of it all."""

import inspect
import json
import math
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import in_words, random_model

from tutorlib import decoders, decoding
from tutorlib import trace as trace_module
from tutorlib.decoders import greedy, sample, speculative, speculative_batch, token_intersection
from tutorlib.decoding import decoder, run, run_batch
from tutorlib.lm import LM
from tutorlib.randomness import Greedy, Seeded
from tutorlib.session import NaNLogits
from tutorlib.step import Candidates, Step
from tutorlib.table import TableLM
from tutorlib.trace import Trace
from tutorlib.tree import TokenTree
from tutorlib.warp import frequency_penalty, one_hot, temperature

ABC = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"])


@decoder
def scripted(lm, prompt, steps):
    """Yields the steps it is given: what any method looks like from outside."""
    yield from steps


def run_scripted(steps, budget=100, lm=ABC, **options):
    return run(scripted(lm, "a", steps), budget, **options)


class TestHowARunEnds:
    def test_at_the_budget(self):
        trace = run(greedy(ABC, "a"), 4)
        assert (trace.tokens, trace.text, trace.stopped) == ([1, 2, 0, 1], "bcab", "budget")

    def test_at_a_stop_token_which_stays_the_last_token(self):
        trace = run(greedy(ABC, "a"), 10, stop=[2])
        assert (trace.tokens, trace.stopped) == ([1, 2], "stop")

    def test_at_the_models_own_stop_tokens_unless_told_otherwise(self):
        lm = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"], stop_tokens=["c"])
        trace = run(greedy(lm, "a"), 10)
        assert (trace.tokens, trace.text, trace.stopped) == ([1, 2], "b", "stop")
        assert run(greedy(lm, "a"), 10, stop=()).stopped == "budget"
        assert run(greedy(lm, "a"), 10, stop=[0]).tokens == [1, 2, 0]

    def test_with_a_stop_token_that_uses_up_the_budget(self):
        assert run(greedy(ABC, "a"), 2, stop=[2]).stopped == "stop"

    def test_at_the_contexts_end_with_prompt_and_text_filling_it(self):
        lm = TableLM({"": [0.5, 0.5]}, context=7)
        trace = run(greedy(lm, "aba"), 100)
        assert (len(trace.tokens), trace.stopped) == (4, "context")
        assert run(greedy(lm, "aba"), 4).stopped == "budget"

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
        closed = []

        @decoder
        def interrupted(lm, prompt):
            try:
                yield Step([1])
                yield Step([2])
                raise KeyboardInterrupt
            finally:
                closed.append(True)

        trace = run(interrupted(ABC, "a"), 5)
        assert (trace.tokens, trace.text, trace.stopped) == ([1, 2], "bc", "interrupted")
        assert closed

    def test_and_the_method_is_let_go_of(self):
        closed = []

        @decoder
        def endless(lm, prompt):
            try:
                while True:
                    yield Step([1])
            finally:
                closed.append(True)

        steps = endless(ABC, "a")
        run(steps, 3)
        assert closed, "its caches would live as long as somebody holds the steps"


class TestCutting:
    STEP = Step([1, 2, 0, 1, 2], drafted=[1, 2, 0, 1], accepted=4, candidates=[[(1, 1.0)]] * 5)

    def test_a_last_step_over_the_budget_loses_its_end_and_what_was_said_of_it(self):
        trace = run_scripted([Step([0]), self.STEP], budget=3)
        assert trace.tokens == [0, 1, 2]
        last = trace.steps[-1]
        assert (last.tokens, last.accepted, last.drafted, len(last.candidates), last.cut) == ([1, 2], 2, [1, 2], 2, 3)

    def test_a_stop_token_inside_a_step_cuts_what_follows_it(self):
        trace = run_scripted([self.STEP, Step([0])], stop=[2])
        assert (trace.tokens, trace.stopped) == ([1, 2], "stop")
        assert trace.steps[-1].accepted == 2

    def test_a_stop_token_beyond_the_budget_is_not_seen(self):
        trace = run_scripted([self.STEP], budget=1, stop=[2])
        assert (trace.tokens, trace.stopped) == ([1], "budget")

    def test_at_the_contexts_end_too(self):
        lm = TableLM({"": [0.5, 0.25, 0.25]}, context=4)
        trace = run_scripted([self.STEP], lm=lm)
        assert (trace.tokens, trace.stopped) == ([1, 2, 0], "context")

    def test_a_step_that_fits_exactly_is_left_alone(self):
        trace = run_scripted([self.STEP], budget=5)
        assert (trace.steps[-1].drafted, trace.steps[-1].accepted, trace.steps[-1].cut) == ([1, 2, 0, 1], 4, 0)

    def test_a_tree_stays_whole_and_its_path_is_cut(self):
        tree = TokenTree.from_paths([[1, 2], [0]])
        step = Step([1, 2, 0], drafted=tree.tokens, tree=tree, path=(0, 1), accepted=2)
        last = run_scripted([step], budget=1).steps[-1]
        assert (last.tokens, last.path, last.accepted, last.drafted) == ([1], (0,), 1, [1, 2, 0])

    def test_tokens_of_other_kinds_of_integer_stop_a_run_too(self):
        for token in (torch.tensor(2), np.int64(2)):
            trace = run_scripted([Step([1, token, 0])], stop=[2])
            assert trace.tokens == [1, 2]
            assert all(type(token) is int for token in trace.tokens)


class TestArguments:
    @pytest.mark.parametrize("budget", [0, -1, 2.5, "ten", None, True])
    def test_a_budget_that_is_no_number_of_tokens(self, budget):
        with pytest.raises(ValueError, match=f"max_new_tokens must be .*{budget!r}"):
            run(greedy(ABC, "a"), budget)

    @pytest.mark.parametrize(
        ("stop", "words"),
        [
            ([3], "stop token 3 is outside the vocabulary, whose ids are 0 to 2"),
            ([-1], "-1"),
            (["c"], "'c'"),
            ("c", "'c'"),
            (2, "got 2"),
        ],
    )
    def test_a_stop_that_is_no_token(self, stop, words):
        with pytest.raises(ValueError, match=words):
            run(greedy(ABC, "a"), 5, stop=stop)

    def test_steps_that_have_been_run(self):
        steps = greedy(ABC, "a")
        run(steps, 2)
        with pytest.raises(ValueError, match="already been run"):
            run(steps, 2)

    def test_something_that_is_not_a_step(self):
        with pytest.raises(TypeError, match=r"Step\(\[token\]\); it yielded 7"):
            run_scripted([7])

    def test_nan_logits(self):
        model = random_model("llama")
        model.lm_head.weight.data[3] = math.nan
        with pytest.raises(NaNLogits):
            run(greedy(LM(model), [1, 2]), 5)

    @pytest.mark.parametrize(
        ("prompt", "words"),
        [
            ("", "no tokens"),
            ([], "empty"),
            ("a" * 65, "65 tokens, more than the context of 64"),
            ([3], r"\[3\]"),
            ("x", "'x'"),
        ],
    )
    def test_a_bad_prompt_is_refused_at_the_call(self, prompt, words):
        with pytest.raises(ValueError, match=words):
            greedy(ABC, prompt)

    def test_a_bare_model_is_refused_at_the_call(self):
        with pytest.raises(ValueError, match=r"LM as its argument 'lm', got LlamaForCausalLM: wrap"):
            greedy(random_model("llama"), "a")

    @pytest.mark.parametrize("rng", [7, "seed", object(), Seeded])
    def test_something_that_is_no_luck_is_refused_at_the_call(self, rng):
        with pytest.raises(ValueError, match="choose and accept"):
            sample(ABC, "a", rng=rng)

    def test_a_warp_that_is_no_list_is_refused_at_the_call(self):
        with pytest.raises(ValueError, match=r"write warp=\[temperature\(0.5\)\]"):
            sample(ABC, "a", rng=Seeded(0), warp=temperature(0.5))

    def test_missing_and_unknown_arguments_are_type_errors_at_the_call(self):
        with pytest.raises(TypeError, match=r"'rng' \(rng=Seeded\(7\), for instance.*call it as sample\(lm, prompt"):
            sample(ABC, "a")
        with pytest.raises(TypeError, match="beams"):
            greedy(ABC, "a", beams=3)


class TestDecoder:
    def test_rng_none_is_greedy_luck_and_one_hot_probabilities(self):
        seen, cool = {}, temperature(0.5)

        @decoder
        def look(lm, prompt, *, rng=None, warp=()):
            seen.update(rng=rng, warp=warp)
            yield Step([0])

        run(look(ABC, "a", warp=[cool]), 1)
        assert isinstance(seen["rng"], Greedy)
        assert seen["warp"] == (cool, one_hot)

    def test_any_object_with_choose_and_accept_is_luck(self):
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

    @pytest.mark.parametrize("prompts", [{"a": 1}, {"a", "b"}, b"a"], ids=lambda given: type(given).__name__)
    def test_prompts_without_an_order_are_refused(self, prompts):
        with pytest.raises(ValueError, match="prompts must be a list of prompts"):
            speculative_batch(ABC, ABC, prompts)

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

    def test_what_it_returns_knows_its_model_prompt_and_method(self):
        steps = greedy(ABC, "ab")
        assert (steps.lm, steps.prompt, steps.name) == (ABC, [0, 1], "greedy")
        assert next(steps).tokens == [2]
        assert greedy.__doc__.startswith("Take the likeliest")

    def test_nothing_is_computed_before_the_run(self):
        calls = ABC.calls
        greedy(ABC, "a")
        assert ABC.calls == calls

    def test_a_function_that_is_no_generator_is_refused(self):
        with pytest.raises(TypeError, match="generator function"):
            decoder(lambda lm, prompt: [])

    def test_steps_without_a_model_can_be_run_too(self):
        trace = run([Step([1, 2]), Step([3])], 10)
        assert (trace.tokens, trace.text, trace.target_calls, trace.stopped) == ([1, 2, 3], "", 0, "end")


class TestCounts:
    def test_target_calls_are_those_of_this_run_the_prompts_included(self):
        run(greedy(ABC, "a"), 3)
        trace = run(greedy(ABC, "a"), 5)
        assert (trace.target_calls, trace.tokens_per_call) == (5, 1.0)

    def test_a_model_that_drafts_for_itself_is_counted_as_the_target_alone(self):
        lm, draft = TableLM.random(3, 1, 0), TableLM.random(3, 1, 0)
        trace, apart = run(speculative(lm, lm, "a"), 12), run(speculative(lm, draft, "a"), 12)
        assert trace.target_calls == apart.target_calls == len(trace.steps) < 12
        assert [step.calls for step in trace.steps] == [step.calls for step in apart.steps]
        rows = run_batch(speculative_batch(lm, lm, ["a", "b"]), 12)
        assert [row.target_calls for row in rows] == [len(row.steps) for row in rows]

    @pytest.mark.parametrize("make", [lambda: TableLM.random(3, 1, 0), lambda: LM(random_model("llama"))])
    def test_threads_that_share_a_model_count_each_their_own_calls(self, make):
        lm, traces = make(), []
        together = threading.Barrier(4)

        def write(tokens):
            together.wait()
            traces.append(run(greedy(lm, [0]), tokens, progress=False))

        threads = [threading.Thread(target=write, args=[tokens]) for tokens in (6, 7, 8, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(trace.target_calls for trace in traces) == [6, 7, 8, 9]
        assert lm.calls == 6 + 7 + 8 + 9

    def test_runs_that_take_turns_count_each_their_own_calls(self):
        lm = TableLM.random(3, 1, 0)
        other = sample(lm, "b", rng=Seeded(0))
        assert run(greedy(lm, "a"), 5, on_text=lambda text: next(other)).target_calls == 5
        assert (lm.calls, other.lm) == (10, lm), "the model counts both"

    def test_what_a_method_runs_itself_belongs_to_it(self):
        lm = TableLM.random(3, 1, 0)

        @decoder
        def best_of_two(lm, prompt):
            tries = [run(sample(lm, prompt, rng=Seeded(seed)), 3) for seed in (0, 1)]
            assert [one.target_calls for one in tries] == [3, 3]
            yield Step(max(one.tokens for one in tries))

        assert (run(best_of_two(lm, "a"), 3).target_calls, lm.calls) == (6, 6)

    def test_a_vocabulary_is_read_once_for_all_runs_with_a_model(self, monkeypatch):
        lm, read = TableLM.random(3, 1, 0), []
        monkeypatch.setattr("tutorlib.vocabularies.token_bytes", lambda tokenizer, token: read.append(token) or b"abc")
        for _ in range(2):
            run(token_intersection(lm, lm, "a"), 3)
        assert read == [0, 1, 2]

    def test_acceptance_counts_the_drafted_tokens_that_were_judged(self):
        tree = {"drafted": [1, 2, 0, 1], "tree": TokenTree([1, 2, 0, 1], [-1, -1, 0, 2])}  # 1 0 1, and 2 beside it
        steps = [
            Step([1]),  # the prompt's step drafts nothing
            Step([1, 2, 0], drafted=[1, 2, 1, 1], accepted=2),  # 3 judged: the last came after the rejected one
            Step([2], drafted=[0, 0, 0], accepted=0),  # 1
            Step([1, 2, 0, 1], drafted=[1, 2, 0], accepted=3),  # 3
            Step([0], accepted=0, **tree),  # 1: neither 1 nor 2 was drawn at the root
            Step([1, 2], accepted=1, path=(0,), **tree),  # 2: after 1 there was a 0, which was not drawn
            Step([2, 1], accepted=1, path=(1,), **tree),  # 1: after 2 there was nothing to judge
            Step([1, 0, 1, 2], accepted=3, path=(0, 2, 3), **tree),  # 3
        ]
        assert [step.judged for step in steps] == [0, 3, 1, 3, 1, 2, 1, 3]
        trace = run_scripted(steps)
        assert trace.acceptance == pytest.approx(10 / 14)
        assert trace.accepted_per_call == pytest.approx(10 / 7)

    @pytest.mark.parametrize(("budget", "judged"), [(1, 1), (2, 2), (3, 3), (4, 3)])
    @pytest.mark.parametrize("tree", [None, TokenTree([1, 2, 0, 1], [-1, 0, 1, 2])], ids=["chain", "tree"])
    def test_what_a_run_cut_off_was_not_judged(self, budget, judged, tree):
        step = Step([1, 2, 1], drafted=[1, 2, 0, 1], accepted=2, tree=tree, path=(0, 1) if tree else ())
        trace = run_scripted([step], budget)
        assert trace.steps[0].judged == judged
        assert trace.acceptance == min(budget, 2) / judged

    def test_without_drafts_or_calls_there_is_no_rate(self):
        trace = run_scripted([Step([1])])
        assert math.isnan(trace.acceptance)
        assert math.isnan(trace.accepted_per_call)
        assert math.isnan(trace.tokens_per_call)

    def test_seconds_are_the_time_the_steps_took(self, clock, monkeypatch):
        @decoder
        def slow(lm, prompt):
            clock.now += 5
            yield Step([1])

        monkeypatch.setattr(trace_module, "time", SimpleNamespace(perf_counter=clock))
        assert run(slow(ABC, "a"), 1).seconds == 5


@pytest.fixture(scope="module")
def byte_lm():
    """A model over the 256 bytes, with a real byte-level tokenizer: characters beyond ASCII take several tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: token for token, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    lm = TableLM({"": [1 / 256] * 256}, context=1000)
    lm.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return lm


class TestStreaming:
    TEXT = "naïve 🙂🏽 ½ 東京 e\u0301!"

    def stream(self, lm, tokens, size=1, **options):
        pieces = []
        steps = [Step(tokens[start : start + size]) for start in range(0, len(tokens), size)]
        trace = run(scripted(lm, "a", steps), 1000, on_text=pieces.append, **options)
        return pieces, trace

    @pytest.mark.parametrize("size", [1, 2, 3, 50])
    def test_never_prints_half_a_character_and_leaves_nothing_out(self, byte_lm, size):
        tokens = byte_lm.encode(self.TEXT)
        assert len(tokens) == len(self.TEXT.encode()), "one token a byte"
        pieces, trace = self.stream(byte_lm, tokens, size)
        assert "".join(pieces) == trace.text == self.TEXT
        assert not any("\ufffd" in piece for piece in pieces)
        assert all(pieces)
        if size == 1:
            assert pieces == list(self.TEXT), "and each character comes as soon as it is whole"

    def test_a_character_cut_off_by_the_end_is_flushed_as_what_it_is(self, byte_lm):
        pieces, trace = self.stream(byte_lm, byte_lm.encode("ab🙂")[:-1])
        assert pieces[:2] == ["a", "b"]
        assert "".join(pieces) == trace.text
        assert trace.text.startswith("ab\ufffd")

    def test_bytes_that_are_no_character_come_out_once_the_next_one_shows_it(self, byte_lm):
        half, letter = byte_lm.encode("é")[0], byte_lm.encode("x")[0]
        pieces, trace = self.stream(byte_lm, [half, letter, letter])
        assert pieces == ["\ufffdx", "x"]
        assert trace.text == "\ufffdxx"

    def test_what_is_cut_off_is_not_printed(self):
        pieces = []
        run_scripted([Step([1, 2, 0, 1])], budget=2, on_text=pieces.append)
        assert pieces == ["bc"]

    def test_a_tokenizer_that_takes_text_back_repeats_nothing(self):
        class Tidying:
            def decode(self, tokens):
                return ["do", "do n", "don't", "don't go"][len(tokens) - 1]

        pieces = []
        stream = trace_module.TextStream(Tidying(), pieces.append)
        for end in range(1, 5):
            stream.write([0] * end)
        stream.close([0] * 4)
        assert pieces == ["do", " n"]  # what is out is out; nothing garbled follows it

    def test_without_a_tokenizer_there_is_no_text_to_stream(self, llama):
        assert run(greedy(llama, [1, 2]), 3).text == ""
        with pytest.raises(ValueError, match="tokenizer"):
            run(greedy(llama, [1, 2]), 3, on_text=print)


class TestProgress:
    def test_is_silent_where_nobody_watches(self, capfd):
        run(greedy(ABC, "a"), 50)
        assert capfd.readouterr() == ("", "")

    def test_is_silent_on_short_runs_in_a_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        run(greedy(ABC, "a"), 50)
        assert "token" not in capsys.readouterr().err

    def test_shows_on_long_runs_in_a_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(decoding, "PROGRESS_DELAY", 0.0)
        run(greedy(ABC, "a"), 50)
        assert "/50" in capsys.readouterr().err

    def test_can_be_asked_for_and_can_be_forbidden(self, monkeypatch, capsys):
        run(greedy(ABC, "a"), 40, progress=True)
        assert "/40" in capsys.readouterr().err
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(decoding, "PROGRESS_DELAY", 0.0)
        run(greedy(ABC, "a"), 40, progress=False)
        assert capsys.readouterr().err == ""


class TestCandidates:
    LOGITS = torch.tensor([[0.1, 0.4, 0.4, 0.1], [0.0, 1.0, 0.0, 0.0]]).log()

    def test_are_the_likeliest_tokens_the_lowest_of_equals_first_and_none_of_probability_zero(self):
        first, second = Candidates(self.LOGITS, count=3)
        assert [token for token, _ in first] == [1, 2, 0]
        assert [prob for _, prob in first] == pytest.approx([0.4, 0.4, 0.1])
        assert [token for token, _ in second] == [1]

    def test_are_computed_when_looked_at_and_then_hold_no_logits(self):
        candidates = Candidates(self.LOGITS)
        assert candidates.nbytes == self.LOGITS.numel() * 4
        assert len(candidates) == 2
        assert candidates.nbytes > 0
        candidates[0]
        assert candidates.nbytes == 0

    def test_slices_stay_uncomputed(self):
        part = Candidates(self.LOGITS)[:1]
        assert part.nbytes > 0
        assert len(part) == 1

    @pytest.mark.parametrize("rng", [None, Seeded(3)], ids=["greedy", "drawn"])
    @pytest.mark.parametrize("method", ["sample", "speculative", "prompt_lookup", "suffix_lookup", "lookahead"])
    def test_are_what_was_weighed_also_where_the_choice_is_greedy(self, method, rng):
        lm, draft, warp = TableLM.random(3, 2, 4), TableLM.random(3, 1, 5), [frequency_penalty(0.5)]
        models = (lm, draft) if method == "speculative" else (lm,)
        options = {"gamma": 2} if method.endswith("_lookup") else {}
        steps = getattr(decoders, method)(*models, [0, 1, 0], rng=rng, warp=warp, **options)
        trace = run(steps, 12, stop=())
        told = [weighed for step in trace.steps for weighed in step.candidates]
        for count, weighed in enumerate(told):
            before = [0, 1, 0, *trace.tokens[:count]]
            penalty = 0.5 * torch.tensor([before.count(token) for token in range(3)])
            assert dict(weighed) == pytest.approx(
                dict(enumerate((lm.log_probs(before) - penalty).softmax(-1).tolist()))
            )
        assert len(told) == 12

    def test_a_long_run_holds_a_bounded_amount_of_logits(self, monkeypatch):
        monkeypatch.setattr(trace_module, "CANDIDATE_BYTES", 10 * 3 * 8)
        trace = run(greedy(ABC, "a"), 40)
        assert sum(step.candidates.nbytes for step in trace.steps) == 10 * 3 * 8
        assert [step.candidates[0][0][0] for step in trace.steps] == trace.tokens


class TestTrace:
    def trace(self):
        tree = TokenTree.from_paths([[1, 2], [0]])
        steps = [
            Step([1], candidates=[[(1, 0.75), (0, 0.25)]]),
            Step([2, 0], drafted=[2, 1], accepted=1, note="<b>careful</b>"),
            Step([1, 2, 0], drafted=tree.tokens, accepted=2, tree=tree, path=(0, 1)),
            Step([1], hypotheses=[[[1, 2], -0.5]], score=-0.25),
        ]
        return run_scripted(steps, stop=())

    def test_goes_through_json_and_back(self):
        trace = self.trace()
        again = Trace.from_dict(json.loads(json.dumps(trace.to_dict())))
        assert again.to_dict() == trace.to_dict()
        assert again.tokens == trace.tokens
        assert again.steps[2].tree.tokens == [1, 2, 0]
        assert again.piece(1) == "b"
        assert str(again) == str(trace)

    def test_what_is_written_and_shown_holds_no_clock_time(self):
        first = run(greedy(ABC, "a"), 5)
        second = replace(first, seconds=first.seconds + 1)
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
        assert str(first) == str(second)
        assert math.isnan(Trace.from_dict(first.to_dict()).seconds)

    def test_its_steps_count_the_calls_made_so_far(self):
        assert [step.calls for step in run(greedy(ABC, "a"), 3).steps] == [1, 2, 3]

    def test_its_plain_text_has_a_line_a_step(self):
        lines = str(self.trace()).splitlines()
        assert "scripted" in lines[0]
        assert "7 new tokens" in lines[0]
        assert "careful" in next(line for line in lines if line.startswith("step 2"))

    def test_its_html_escapes_what_is_not_ours(self):
        page = self.trace()._repr_html_()
        assert "careful" in page
        assert "<b>careful" not in page

    def test_special_tokens_have_a_name_but_are_not_in_the_text(self):
        lm = TableLM({"": [0.0, 1.0]}, ["a", "<end>"], stop_tokens=["<end>"])
        trace = run(greedy(lm, "a"), 5)
        assert (trace.text, trace.piece(1)) == ("", "<end>")

    def test_its_repr_is_short(self):
        assert len(repr(run(greedy(ABC, "a"), 5))) < 250


@decoder
def scripted_batch(lm, prompts, rounds, *, rngs=None, warp=(), asked=None):
    """Yields the rounds it is given, and writes down which rows it is asked to go on with."""
    for made in rounds:
        wanted = yield made
        if asked is not None:
            asked.append(wanted)


class TestBatches:
    def run(self, rounds, budget=100, prompts=("a", "b"), lm=ABC, stop=None, **options):
        return run_batch(scripted_batch(lm, prompts, rounds, **options), budget, stop)

    def test_every_row_is_cut_and_ends_as_it_would_alone(self):
        rounds = [[Step([1, 2, 0], drafted=[1, 2], accepted=2), Step([0])], [Step([1]), Step([1, 2])]]
        first, second = self.run(rounds, budget=2, stop=[2])
        assert (first.tokens, first.stopped, len(first.steps)) == ([1, 2], "stop", 1)
        assert (first.steps[0].accepted, first.steps[0].cut) == (2, 1)
        assert (second.tokens, second.stopped, len(second.steps)) == ([0, 1], "budget", 2)

    def test_a_row_can_be_run_alone_with_the_same_trace(self):
        steps = [Step([1, 2]), Step([0, 1, 1]), Step([2, 2])]
        for budget, stop in ((4, ()), (10, [0]), (10, ()), (1, None)):
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

    def test_with_ctrl_c_nothing_is_lost(self):
        closed = []

        @decoder
        def interrupted(lm, prompts):
            try:
                yield [Step([2]), Step([0])]
                raise KeyboardInterrupt
            finally:
                closed.append(True)

        traces = run_batch(interrupted(ABC, ["a", "b"]), 9, [2])
        assert [(trace.tokens, trace.stopped) for trace in traces] == [([2], "stop"), ([0], "interrupted")]
        assert closed

    def test_the_method_is_let_go_of(self):
        closed = []

        @decoder
        def endless(lm, prompts):
            try:
                while True:
                    yield [Step([1])]
            finally:
                closed.append(True)

        run_batch(endless(ABC, ["a"]), 3)
        assert closed

    def test_calls_and_seconds_of_a_row_are_those_up_to_its_end(self, clock, monkeypatch):
        @decoder
        def calling(lm, prompts):
            while True:
                lm.batch(prompts).feed([[], []])
                clock.now += 5
                yield [Step([2]), Step([0])]

        monkeypatch.setattr(trace_module, "time", SimpleNamespace(perf_counter=clock))
        short, long = run_batch(calling(ABC, ["a", "b"]), 4, [2])
        assert (short.target_calls, long.target_calls) == (1, 4)
        assert (short.seconds, long.seconds) == (5, 20)
        assert [step.calls for step in long.steps] == [1, 2, 3, 4]

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
        luck = [Seeded(0), Seeded(1)]
        run_batch(look(ABC, ["a", "b"], rngs=luck), 1)
        assert (seen["rngs"], seen["warp"]) == (luck, ())

    def test_what_the_method_returns_knows_its_model_and_prompts(self):
        steps = scripted_batch(ABC, ["ab", "c"], [])
        assert (steps.lm, steps.prompts, steps.name, steps.begun) == (ABC, [[0, 1], [2]], "scripted_batch", False)
        assert "run_batch" in repr(steps)

    def test_batches_and_single_texts_are_not_mixed_up(self):
        with pytest.raises(TypeError, match="scripted_batch makes several texts at once: use run_batch"):
            run(scripted_batch(ABC, ["a", "b"], []), 5)
        with pytest.raises(TypeError, match="run_batch needs .* for one, use run"):
            run_batch(greedy(ABC, "a"), 5)

    @pytest.mark.parametrize("made", [Step([1]), [Step([1])], [Step([1])] * 3, [Step([1]), 7]])
    def test_something_that_is_not_a_round(self, made):
        with pytest.raises(TypeError, match="must yield"):
            self.run([made])

    def test_rounds_that_have_been_run(self):
        steps = scripted_batch(ABC, ["a", "b"], [[Step([1]), Step([1])]])
        run_batch(steps, 1)
        with pytest.raises(ValueError, match="already been run"):
            run_batch(steps, 1)

    @pytest.mark.parametrize(("budget", "stop", "words"), [(0, None, "at least 1"), (2, [3], "outside the vocabulary")])
    def test_bad_arguments(self, budget, stop, words):
        with pytest.raises(ValueError, match=words):
            self.run([], budget, stop=stop)

    def test_a_progress_bar_counts_the_tokens_of_all_rows(self, capsys):
        run_batch(scripted_batch(ABC, ["a", "b"], [[Step([1]), Step([1, 2])]]), 3, progress=True)
        assert "6" in capsys.readouterr().err
