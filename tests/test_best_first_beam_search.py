"""Best-first beam search finds what beam search finds and scores less; with a heuristic it is A*, cut to the beams."""

import importlib
import itertools
import math
import random
from functools import lru_cache

import pytest
import torch
from conftest import VOCAB, exactly, random_model

from tutorlib import LM, TableLM, beam_search, best_first_beam_search, greedy, run, temperature

LENGTH_PENALTIES = [-1, 0, 0.5, 1, 2]
module = importlib.import_module("tutorlib.decoders.best_first_beam_search")


def search(method, lm, prompt, **options):
    """A search that compares Σ log p, unless it is told to divide it by a power of the length."""
    return run(method(lm, prompt, **{"length_penalty": 0.0} | options), max_new_tokens=100, stop=())


def found(trace):
    """The finished hypotheses, best first: (new tokens, score) each."""
    return [(tuple(tokens), pytest.approx(score, abs=1e-9)) for tokens, score in trace.steps[-1].hypotheses]


def every_finished_by_hand(lm, prompt, *, beams, max_new_tokens, length_penalty=0.0, stop=(), min_new_tokens=0,
                           heuristic=lambda tokens: 0.0):  # fmt: skip
    """All that beam search finishes, best first, and how many hypotheses it scores when nothing stops it early.

    Without cache, batch or bound: at each length all candidates are sorted by Σ log p plus the heuristic's value, or by
    the least that this was on the way.
    """
    running, finished, scored = [((), 0.0, 0.0)], [], 0
    for length in range(1, max_new_tokens + 1):
        candidates = []
        for tokens, log_prob, least in running:
            scored += 1
            log_probs = lm.session([*prompt, *tokens]).feed()[-1].double().softmax(-1).log().tolist()
            for token, added in enumerate(log_probs):
                if added == -math.inf or (token in stop and length <= min_new_tokens):
                    continue
                new, ends = (*tokens, token), token in stop or length == max_new_tokens
                rank = min(least, log_prob + added + (0.0 if ends else heuristic(new)))
                candidates.append((rank, new, log_prob + added, ends))
        candidates.sort(key=lambda candidate: -candidate[0])
        finished += [(new, log_prob / length**length_penalty) for _, new, log_prob, ends in candidates[:beams] if ends]
        running = [(new, log_prob, rank) for rank, new, log_prob, ends in candidates if not ends][:beams]
    return sorted(finished, key=lambda pair: -pair[1]), scored


@lru_cache
def random_cases(length_penalty, count=24):
    """Random tables with ways to search them."""
    cases = []
    for seed in range(count):
        rng = random.Random(f"{length_penalty} {seed}")
        lm = TableLM.random(rng.randint(2, 6), rng.randint(1, 2), seed)
        cases.append((lm, {
            "max_new_tokens": rng.randint(3, 9),
            "beams": rng.randint(1, 6),
            "length_penalty": length_penalty,
            "min_new_tokens": rng.choice([0, 0, 0, 2]),
            "stop": rng.sample(range(lm.vocab_size), rng.choice([0, 1, 1, 1, 2]) if lm.vocab_size > 2 else 1),
        }))  # fmt: skip
    return cases


class TestEqualToBeamSearch:
    @pytest.mark.parametrize("length_penalty, factor", [(-1, 1.5), (0, 1.5), (0.5, 1.1), (1, 1.1), (2, 1.1)])
    def test_finds_the_same_on_random_tables_and_never_scores_more_but_clearly_less(self, length_penalty, factor):
        totals = [0, 0, 0]
        for lm, options in random_cases(length_penalty):
            expected = search(beam_search, lm, [0], early_stopping="never", **options)
            by_hand, _ = every_finished_by_hand(lm, [0], **options)
            assert found(expected) == by_hand[: options["beams"]]
            counts = [expected.scored_hypotheses]
            for n_best in (options["beams"], 1):
                trace = search(best_first_beam_search, lm, [0], n_best=n_best, **options)
                assert found(trace) == by_hand[:n_best], options
                assert (tuple(trace.tokens), pytest.approx(trace.steps[-1].score)) == by_hand[0]
                counts.append(trace.scored_hypotheses)
            assert counts[0] >= counts[1] >= counts[2]
            totals = [total + count for total, count in zip(totals, counts)]
        assert totals[0] > totals[1] and totals[0] > factor * totals[2], totals

    def test_finds_the_same_on_random_transformers(self):
        rng = random.Random(0)
        with exactly(torch.float64):
            for family, length_penalty in zip(("gpt2", "llama", "gpt2", "llama", "gpt2"), LENGTH_PENALTIES):
                lm = LM(random_model(family, torch.float64))
                prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 6))]
                beams = rng.randint(2, 5)
                options = {
                    "beams": beams,
                    "max_new_tokens": 7,
                    "length_penalty": length_penalty,
                    "stop": rng.sample(range(VOCAB), 4),
                }
                by_hand, _ = every_finished_by_hand(lm, prompt, **options)
                expected = search(beam_search, lm, prompt, early_stopping="never", **options)
                trace = search(best_first_beam_search, lm, prompt, n_best=beams, **options)
                assert found(trace) == found(expected) == by_hand[:beams]
                assert trace.scored_hypotheses <= expected.scored_hypotheses

    def test_breaks_ties_alike(self):
        for seed, length_penalty in enumerate(12 * LENGTH_PENALTIES):
            rng = random.Random(seed)
            halves = [[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
            lm = TableLM({context: rng.sample(rng.choice(halves), 4) for context in [(), (0,), (1,), (2,), (3,)]})
            options = {"beams": rng.randint(1, 5), "max_new_tokens": 6, "length_penalty": length_penalty, "stop": [3]}
            expected = search(beam_search, lm, [0], early_stopping="never", **options)
            for n_best in {1, options["beams"]}:
                trace = search(best_first_beam_search, lm, [0], n_best=n_best, **options)
                assert trace.steps[-1].hypotheses == expected.steps[-1].hypotheses[:n_best]

    def test_under_a_warp_and_at_the_contexts_end(self):
        lm = TableLM.random(5, 2, seed=3, context=9)
        options = {"beams": 4, "max_new_tokens": 50, "warp": [temperature(0.6)], "stop": [4], "length_penalty": 0.5}
        expected = search(beam_search, lm, [0, 1], early_stopping="never", **options)
        trace = search(best_first_beam_search, lm, [0, 1], n_best=4, **options)
        assert trace.steps[-1].hypotheses == expected.steps[-1].hypotheses
        assert max(len(tokens) for tokens, _ in trace.steps[-1].hypotheses) == 7
        assert search(best_first_beam_search, lm, [0] * 9, beams=2, max_new_tokens=5).stopped == "context"

    def test_not_to_a_beam_search_that_stops_on_a_guess(self):
        # The text "c" ends at once with 0.5. What begins with a (0.45) costs nothing more, so that its mean improves
        # with each token: log(0.45) / 3 > log(0.5). At its first token it does not look like that.
        lm = TableLM({"": [1.0, 0.0, 0.0], "b": [0.45, 0.05, 0.5]}, stop_tokens=["c"])
        options = {"beams": 1, "max_new_tokens": 3, "length_penalty": 1.0}
        stopped = search(beam_search, lm, "b", early_stopping=False, **options)
        went_on = search(beam_search, lm, "b", early_stopping="never", **options)
        trace = search(best_first_beam_search, lm, "b", **options)
        assert (stopped.tokens, stopped.steps[-1].score) == ([2], pytest.approx(math.log(0.5)))
        assert trace.tokens == went_on.tokens == [0, 0, 0]
        assert trace.steps[-1].score == pytest.approx(math.log(0.45) / 3)


class TestSavings:
    def test_scores_at_most_the_beams_of_a_length_each_once_and_in_one_call(self):
        for lm, options in random_cases(0):
            lm.calls = 0
            trace = search(best_first_beam_search, lm, [0], n_best=options["beams"], **options)
            scored = [tuple(step.hypotheses[0][0]) for step in trace.steps[:-1]]
            assert scored[0] == () and len(set(scored)) == len(scored) == trace.scored_hypotheses == trace.target_calls
            for length in range(options["max_new_tokens"]):
                assert sum(len(tokens) == length for tokens in scored) <= options["beams"]

    def test_does_not_score_what_has_no_place_left_to_go(self):
        # Of two beams a (0.9) leads to aa and ab (0.45 each), and these to texts of 0.09: less than b alone (0.1). But
        # what b leads to is worse than aa and ab, which take both places of their length.
        lm = TableLM({"": [0.2] * 5, "e": [0.9, 0.1, 0, 0, 0], "ea": [0.5, 0.5, 0, 0, 0]})
        options = {"beams": 2, "max_new_tokens": 3}
        trace = search(best_first_beam_search, lm, "e", n_best=2, **options)
        assert [step.hypotheses[0][0] for step in trace.steps[:-1]] == [[], [0], [0, 0], [0, 1]]
        assert search(beam_search, lm, "e", early_stopping="never", **options).scored_hypotheses == 5


class TestAStar:
    """The likeliest text, with beams that cut nothing, by enumeration; and with beams that do, by hand."""

    LENGTH, STOP = 5, 2

    def likeliest_rest(self, lm, prompt):
        """The exact heuristic: the log-probability of the likeliest way to end, by dynamic programming."""

        @lru_cache(None)
        def rest(tokens):
            if len(tokens) == self.LENGTH or tokens[-1:] == (self.STOP,):
                return 0.0
            log_probs = lm.log_probs([*prompt, *tokens]).tolist()
            return max(added + rest((*tokens, token)) for token, added in enumerate(log_probs))

        return lambda tokens: rest(tuple(tokens))

    def next_token(self, lm, prompt):
        """A weaker admissible heuristic: at least one more token must come."""
        return lambda tokens: float(lm.log_probs([*prompt, *tokens]).max())

    def inconsistent(self, lm, prompt):
        """Admissible, but without regard to what it said of the parent: any share of the exact one."""
        exact = self.likeliest_rest(lm, prompt)
        return lambda tokens: random.Random(str(list(tokens))).random() * exact(tokens)

    def texts(self, lm, prompt):
        """Every text that ends, with its Σ log p."""
        for length in range(1, self.LENGTH + 1):
            for tokens in itertools.product(range(lm.vocab_size), repeat=length):
                if self.STOP not in tokens[:-1] and (length == self.LENGTH or tokens[-1] == self.STOP):
                    yield (
                        tokens,
                        sum(float(lm.log_probs([*prompt, *tokens[:i]])[token]) for i, token in enumerate(tokens)),
                    )

    def test_finds_the_likeliest_text_and_sooner_the_better_the_heuristic(self):
        totals = [0, 0, 0, 0]
        for seed in range(12):
            lm, prompt = TableLM.random(4, 2, seed), [0, 1]
            tokens, log_prob = max(self.texts(lm, prompt), key=lambda pair: pair[1])
            heuristics = [make(lm, prompt) for make in (self.likeliest_rest, self.next_token, self.inconsistent)]
            counts = []
            for heuristic in [*heuristics, None]:
                trace = search(
                    best_first_beam_search, lm, prompt, beams=4**self.LENGTH, max_new_tokens=self.LENGTH,
                    stop=[self.STOP], heuristic=heuristic,
                )  # fmt: skip
                assert (tuple(trace.tokens), trace.steps[-1].score) == (tokens, pytest.approx(log_prob))
                counts.append(trace.scored_hypotheses)
            assert counts[0] == len(tokens), "the exact heuristic goes straight there"
            assert counts[0] <= counts[1] <= counts[3] and counts[2] <= counts[3]
            totals = [total + count for total, count in zip(totals, counts)]
        assert totals[0] < totals[1] < totals[3] and totals[2] < totals[3], totals

    @pytest.mark.parametrize("name", ["likeliest_rest", "next_token", "inconsistent"])
    def test_with_few_beams_equals_a_beam_search_that_ranks_by_the_sum(self, name):
        differs = 0
        for seed, length_penalty in enumerate(3 * LENGTH_PENALTIES):
            lm, prompt = TableLM.random(4, 2, seed), [0, 1]
            options = {
                "beams": 2 + seed % 2,
                "max_new_tokens": self.LENGTH,
                "stop": [self.STOP],
                "length_penalty": length_penalty,
            }
            heuristic = getattr(self, name)(lm, prompt)
            by_hand, scored = every_finished_by_hand(lm, prompt, heuristic=heuristic, **options)
            for n_best in {1, options["beams"]}:
                trace = search(best_first_beam_search, lm, prompt, heuristic=heuristic, n_best=n_best, **options)
                assert found(trace) == by_hand[:n_best]
                assert trace.scored_hypotheses <= scored
            differs += by_hand != every_finished_by_hand(lm, prompt, **options)[0]
        assert differs > 3, "a heuristic that changes nothing would hide that it is not asked"

    def test_what_the_heuristic_gives_up_is_never_scored(self):
        lm = TableLM({"": [0.6, 0.3, 0.1]}, stop_tokens=["c"])
        trace = search(
            best_first_beam_search, lm, "b", beams=9, max_new_tokens=3,
            heuristic=lambda tokens: -math.inf if 0 in tokens else 0.0,
        )  # fmt: skip
        assert not any(0 in tokens for step in trace.steps for tokens, _ in step.hypotheses if step.scored)
        assert trace.tokens == [2], "0.1, and not ba..., 0.18 and more, nor bb..., 0.09 and less"

    def test_a_heuristic_that_is_too_low_misleads_the_search_but_not_the_score(self):
        lm = TableLM({"": [0.6, 0.3, 0.1]}, stop_tokens=["c"])
        trace = search(best_first_beam_search, lm, "b", beams=9, max_new_tokens=2, heuristic=lambda tokens: -3.0)
        assert (trace.tokens, trace.steps[-1].score) == ([2], pytest.approx(math.log(0.1))), "aa has 0.36"
        trace = search(
            best_first_beam_search, lm, "b", beams=9, max_new_tokens=2, stop=(), heuristic=lambda tokens: -3.0
        )
        assert (trace.tokens, trace.steps[-1].score) == ([0, 0], pytest.approx(math.log(0.36)))

    @pytest.mark.parametrize("value", [0.1, math.nan, None, "much"])
    def test_a_value_that_bounds_no_log_probability_is_an_error(self, value):
        lm = TableLM({"": [0.6, 0.4]})
        steps = best_first_beam_search(
            lm, "a", beams=2, max_new_tokens=3, heuristic=lambda tokens: value if tokens == [0, 1] else 0
        )
        with pytest.raises(ValueError, match=rf"heuristic\(\[0, 1\]\).*at most 0; got {value!r}"):
            run(steps, 10)


class TestQueue:
    @pytest.fixture
    def queues(self, monkeypatch):
        """The queues made in a test, with the most that ever waited: in one line, and at once when one was scored."""
        made = []

        class Watched(module.Queue):
            def __init__(self, *args):
                super().__init__(*args)
                made.append(self)
                self.longest_line = self.most = 0

            def push(self, hypotheses):
                super().push(hypotheses)
                self.longest_line = max(self.longest_line, *map(len, self.lines))

            def cut(self, limit):
                super().cut(limit)
                self.most = max(self.most, len(self))

        monkeypatch.setattr(module, "Queue", Watched)
        return made

    def test_holds_at_most_twice_the_beams_of_a_length(self, queues):
        for lm, options in random_cases(1):
            search(best_first_beam_search, lm, [0], n_best=options["beams"], **options)
            assert queues[-1].longest_line <= 2 * options["beams"]
        assert any(queue.longest_line > queue.beams for queue in queues)

    def test_keeps_what_beam_search_could_take_and_nothing_else(self):
        def waiting(tokens, log_prob, ends):
            return module.QueuedHypothesis(tokens, log_prob, log_prob, ends)

        queue = module.Queue(beams=2, longest=3, length_penalty=0.0)
        line = [(-1, False), (-2, True), (-3, True), (-4, False), (-5, False)]
        queue.push([waiting([i], log_prob, ends) for i, (log_prob, ends) in enumerate(line)])
        assert [h.tokens for h in queue.lines[1]] == [[0], [1], [3]], "the third rank is too low to end, not to run on"
        assert queue.pop().tokens == [0]
        queue.push([waiting([7], -1.5, True)])
        assert [h.tokens for h in queue.lines[1]] == [[7], [3]], "the one that ended second is third now"

    def test_a_limit_is_kept_and_changes_what_is_found_only_when_it_bites(self, queues):
        better = worse = 0
        for lm, options in random_cases(0):
            full = search(best_first_beam_search, lm, [0], **options)
            most = queues[-1].most
            assert search(best_first_beam_search, lm, [0], queue_limit=most, **options).steps == full.steps
            small = search(best_first_beam_search, lm, [0], queue_limit=2, **options)
            assert queues[-1].most <= 2
            tokens, score = small.tokens, small.steps[-1].score
            log_probs = [float(lm.log_probs([0, *tokens[:i]])[token]) for i, token in enumerate(tokens)]
            assert score == pytest.approx(sum(log_probs))
            better, worse = better + (score > full.steps[-1].score), worse + (score < full.steps[-1].score)
        assert 0 < better < worse < len(random_cases(0)) / 2, (better, worse)

    def test_a_limit_of_one_is_greedy(self):
        for lm, options in random_cases(0):
            options = {**options, "beams": 2, "min_new_tokens": 0}
            trace = search(best_first_beam_search, lm, [0], queue_limit=1, **options)
            assert trace.tokens == run(greedy(lm, [0]), options["max_new_tokens"], stop=options["stop"]).tokens


class TestSteps:
    def test_show_the_one_scored_then_the_best_that_wait_and_last_the_finished(self):
        lm = TableLM({"": [0.6, 0.3, 0.1], "a": [0.2, 0.2, 0.6]}, stop_tokens=["c"])
        trace = search(best_first_beam_search, lm, "b", beams=2, n_best=2, max_new_tokens=3)
        assert all((step.tokens, step.scored) == ([], 1) for step in trace.steps[:-1])
        assert [tokens for tokens, _ in trace.steps[0].hypotheses] == [[], [0], [1]]
        # a is scored: ac, 0.36, is better than b, 0.3.
        assert [tokens for tokens, _ in trace.steps[1].hypotheses] == [[0], [0, 2], [1]]
        assert trace.steps[1].hypotheses[1][1] == pytest.approx(math.log(0.36))
        assert trace.steps[1].note == "waiting: 4, finished: 0"
        last = trace.steps[-1]
        assert (last.tokens, last.scored, trace.stopped) == ([0, 2], 0, "end")
        # bac, 0.3 * 0.6 * 0.6, is next; aa and ab (0.12) could still lead to 0.072, b to bb (0.09).
        assert found(trace) == [((0, 2), math.log(0.36)), ((1, 0, 2), math.log(0.108))]

    def test_hypotheses_of_probability_zero_are_never_seen(self):
        lm = TableLM({"": [0.5, 0.5, 0.0, 0.0]})
        trace = search(best_first_beam_search, lm, "a", beams=8, n_best=8, max_new_tokens=2)
        assert len(trace.steps[-1].hypotheses) == 4
        assert not any({2, 3} & set(tokens) for step in trace.steps for tokens, _ in step.hypotheses)

    def test_the_trace_can_be_shown(self):
        lm = TableLM.random(4, 1, seed=1)
        trace = search(best_first_beam_search, lm, "ab", beams=3, max_new_tokens=4)
        assert "hypotheses scored" in str(trace) and "waiting" in trace._repr_html_()


class TestBadInput:
    @pytest.mark.parametrize(
        "options, message",
        [
            ({"beams": 0}, "beams must be"),
            ({"n_best": 0}, "n_best must be a whole number from 1 to beams=2, got 0"),
            ({"n_best": 3}, "n_best must be a whole number from 1 to beams=2, got 3"),
            ({"queue_limit": 0}, "queue_limit must be .* at least 1"),
            ({"heuristic": lambda: 0.0}, "heuristic must be a function of new tokens"),
            ({"stop": [3]}, "stop token 3 is outside"),
        ],
    )
    def test_is_named_at_the_call(self, options, message):
        given = {"prompt": "a", "beams": 2, "max_new_tokens": 3, **options}
        with pytest.raises(ValueError, match=message):
            best_first_beam_search(TableLM.random(3, 1, seed=0), **given)

    def test_a_model_that_returns_nan_is_an_error(self, llama):
        broken = random_model("llama")
        torch.nn.init.constant_(broken.lm_head.weight, math.nan)
        with pytest.raises(ValueError, match="NaN"):
            search(best_first_beam_search, LM(broken), [1], beams=2, max_new_tokens=3)

    def test_nothing_that_can_end_is_an_error(self):
        lm = TableLM({"": [0.0, 1.0]}, stop_tokens=["b"])
        with pytest.raises(ValueError, match="min_new_tokens=1 possible"):
            search(best_first_beam_search, lm, "a", beams=2, max_new_tokens=3, min_new_tokens=1)
