"""The trace of a run: what is cut, counted, streamed, written down and shown."""

import json
import math
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import ABC, run_scripted, scripted
from two_tokenizers import byte_tokenizer

from tutorlib.decoders import (
    greedy,
    prompt_lookup,
    sample,
    sample_batch,
    speculative,
    speculative_batch,
    token_intersection,
)
from tutorlib.model.table import TableLM
from tutorlib.model.tree import TokenTree
from tutorlib.running import trace as trace_module
from tutorlib.running.decoding import decoder, run, run_batch
from tutorlib.running.step import Step
from tutorlib.running.trace import Trace
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import frequency_penalty


class TestCutting:
    STEP = Step([1, 2, 0, 1, 2], drafted=[1, 2, 0, 1], accepted=4, candidates=[[(1, 1.0)]] * 5)

    @pytest.mark.parametrize(
        ("options", "kept", "stopped"),
        [
            ({"budget": 2}, 2, "budget"),
            ({"stop": [2]}, 2, "stop"),
            ({"budget": 1, "stop": [2]}, 1, "budget"),  # a stop token beyond the budget is not seen
            ({"lm": TableLM({"": [0.5, 0.25, 0.25]}, context=4)}, 3, "context"),
            ({"budget": 5}, 5, "budget"),
        ],
    )
    def test_a_step_that_does_not_fit_loses_its_end_and_what_was_said_of_it(self, options, kept, stopped):
        trace = run_scripted([self.STEP, Step([0])], **options)
        (last,) = trace.steps
        assert (trace.tokens, trace.stopped) == ([1, 2, 0, 1, 2][:kept], stopped)
        assert (last.accepted, last.drafted, last.cut) == (min(kept, 4), [1, 2, 0, 1][:kept], 5 - kept)
        assert len(last.candidates) == kept

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


class TestCounts:
    def test_target_calls_are_those_of_this_run_the_prompts_included(self):
        run(greedy(ABC, "a"), 3)
        trace = run(greedy(ABC, "a"), 5)
        assert (trace.target_calls, trace.tokens_per_call) == (5, 1.0)
        assert [step.calls for step in trace.steps] == [1, 2, 3, 4, 5]

    def test_a_model_that_drafts_for_itself_is_counted_as_the_target_alone(self):
        lm, draft = TableLM.random(3, 1, 0), TableLM.random(3, 1, 0)
        trace, apart = run(speculative(lm, lm, "a"), 12), run(speculative(lm, draft, "a"), 12)
        assert trace.target_calls == apart.target_calls == len(trace.steps) < 12
        assert [step.calls for step in trace.steps] == [step.calls for step in apart.steps]
        rows = run_batch(speculative_batch(lm, lm, ["a", "b"]), 12)
        assert [row.target_calls for row in rows] == [len(row.steps) for row in rows]

    def test_threads_that_share_a_model_count_each_their_own_calls(self, llama):
        lm, traces = llama, []
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
        counted = lambda tokenizer, token: read.append(token) or b"abc"  # noqa: E731
        monkeypatch.setattr("tutorlib.model.vocabularies.token_bytes", counted)
        for _ in range(2):
            run(token_intersection(lm, lm, "a"), 3)
        assert read == [0, 1, 2]

    def test_without_drafts_or_calls_there_is_no_rate(self):
        trace = run_scripted([Step([1])])
        assert math.isnan(trace.acceptance)
        assert math.isnan(trace.accepted_per_call)
        assert math.isnan(trace.tokens_per_call)

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


@pytest.fixture(scope="module")
def byte_lm():
    """A model over the 256 bytes."""
    lm = TableLM({"": [1 / 256] * 256}, context=1000)
    lm.tokenizer = byte_tokenizer()
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
        assert str(again) == str(trace) and again._repr_html_() == trace._repr_html_()

    def test_what_is_written_and_shown_holds_no_clock_time(self):
        first = run(greedy(ABC, "a"), 5)
        second = replace(first, seconds=first.seconds + 1)
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
        assert str(first) == str(second) and len(repr(first)) < 250
        assert math.isnan(Trace.from_dict(first.to_dict()).seconds)

    def test_special_tokens_have_a_name_but_are_not_in_the_text(self):
        lm = TableLM({"": [0.0, 1.0]}, ["a", "<end>"], stop_tokens=["<end>"])
        trace = run(greedy(lm, "a"), 5)
        assert (trace.text, trace.piece(1)) == ("", "<end>")

    def test_a_long_run_holds_a_bounded_amount_of_logits(self, monkeypatch):
        monkeypatch.setattr(trace_module, "CANDIDATE_BYTES", 10 * 3 * 8)
        trace = run(greedy(ABC, "a"), 40)
        assert sum(step.candidates.nbytes for step in trace.steps) == 10 * 3 * 8
        assert [step.candidates[0][0][0] for step in trace.steps] == trace.tokens

    @pytest.mark.parametrize("warp", [[], [frequency_penalty(0.1)]], ids=["no warp", "penalty"])
    @pytest.mark.parametrize("method", [sample, prompt_lookup, speculative])
    def test_what_a_step_keeps_does_not_grow_with_the_text(self, method, warp):
        pair = (ABC, ABC) if method is speculative else (ABC,)
        trace = run(method(*pair, "a", rng=Seeded(1), warp=warp), 60, stop=())
        assert {step.candidates.nbytes / len(step.tokens) for step in trace.steps} == {3 * 8}

    def test_the_texts_of_a_batch_together_hold_a_bounded_amount_of_logits(self, monkeypatch):
        monkeypatch.setattr(trace_module, "CANDIDATE_BYTES", 10 * 3 * 8)
        traces = run_batch(sample_batch(ABC, ["a", "ab"], warp=[frequency_penalty(0.1)]), 40)
        assert [sum(step.candidates.nbytes for step in trace.steps) for trace in traces] == [5 * 3 * 8] * 2
        assert all(step.candidates[0][0][0] == step.tokens[0] for trace in traces for step in trace.steps)
