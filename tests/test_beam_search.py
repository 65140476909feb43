"""Beam search is what transformers calls beam search, and what the papers define; diverse groups are what they say."""

import collections
import itertools
import math
import random

import pytest
import torch
from conftest import WINDOW, Float64Throughout
from conftest import _config as random_config
from full_passes import recomputed
from transformers import AutoModelForCausalLM

from tutorlib import LM, TableLM, beam_search, greedy, run, temperature

LENGTH_PENALTIES = (-1.0, 0.0, 0.5, 1.0, 2.0)


def search(lm, prompt, **options):
    """The steps of a beam search, the last of which holds the winner and the n-best list."""
    return list(beam_search(lm, prompt, **options))


def n_best(lm, prompt, **options):
    return [(tuple(tokens), score) for tokens, score in search(lm, prompt, **options)[-1].hypotheses]


def assert_same(ours, reference):
    """The same texts in the same order, with the same scores."""
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in reference]
    assert [score for _, score in ours] == pytest.approx([score for _, score in reference], abs=1e-9)


# ----------------------------------------------------------------------------------------------------------------------
# The same as transformers


@pytest.fixture(scope="module")
def small_models():
    """Random models in float64 with 5 to 19 tokens, whose logits spread enough for texts to end now and then."""
    models = []
    for seed, family in enumerate(("gpt2", "llama", "gemma2", "mistral")):
        config = random_config(family)
        config.vocab_size, config.num_hidden_layers = (5, 6, 9, 19)[seed], 1 + seed % 2
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config).to(torch.float64).eval()
            head = model.get_output_embeddings()
            head.weight = torch.nn.Parameter(0.4 * torch.randn_like(head.weight))
        models.append(LM(model))
    return models


def generated(lm, prompt, stop, **options):
    """The n-best list of `generate`: as many texts as beams, each up to its first stop token."""
    ids = torch.tensor([prompt])
    output = lm.model.generate(
        ids, attention_mask=torch.ones_like(ids), num_return_sequences=options["num_beams"], eos_token_id=stop or None,
        pad_token_id=0, do_sample=False, return_dict_in_generate=True, output_scores=True, **options,
    )  # fmt: skip
    texts = []
    for tokens in output.sequences[:, len(prompt) :].tolist():
        ends = [place for place, token in enumerate(tokens) if token in stop]
        texts.append(tuple(tokens[: ends[0] + 1] if ends else tokens[: options["max_new_tokens"]]))
    return list(zip(texts, output.sequences_scores.tolist(), strict=True))


def test_equals_generate_in_every_sequence_and_score(small_models):
    """A hundred cases: model, prompt, beams, stop tokens, penalty and lengths are all random."""
    rng, seen = random.Random(1), collections.Counter()
    for early_stopping in 34 * (False, True, "never"):
        lm = rng.choice(small_models)
        prompt = [rng.randrange(lm.vocab_size) for _ in range(rng.randint(1, WINDOW))]
        stop = rng.sample(range(lm.vocab_size), rng.choice((0, 1, 2, 3, 3)))
        beams = rng.randint(2, min(6, lm.vocab_size - len(stop)))
        longest = rng.choice((1, 2, 3, 5, 8, 8))
        penalty = rng.choice((*LENGTH_PENALTIES, 1.0, 2.0))
        least = rng.choice((0, 0, 0, rng.randint(1, longest)))
        common = {"max_new_tokens": longest, "length_penalty": penalty, "early_stopping": early_stopping}
        with Float64Throughout():
            *lengths, last = search(lm, prompt, beams=beams, stop=stop, min_new_tokens=least, **common)
            reference = generated(lm, prompt, stop, num_beams=beams, min_new_tokens=least or None, **common)
        assert_same([(tuple(tokens), score) for tokens, score in last.hypotheses], reference)
        assert (tuple(last.tokens), last.score) == (tuple(last.hypotheses[0][0]), last.hypotheses[0][1])
        ends = sum(tokens[-1] in stop for tokens, _ in last.hypotheses)
        seen["stopped early"] += len(lengths) < longest
        seen["went to the limit"] += len(lengths) == longest > 1
        seen["several ended by a stop token"] += ends > 1
        seen["some ended, some were cut"] += 0 < ends < beams
        first_end = next(length for length, step in enumerate(lengths, start=1) if step.note)
        seen["the best was not the first to finish"] += len(last.tokens) > first_end
        seen["stop tokens were forbidden"] += bool(stop) and least > 0
        seen["several stop tokens"] += len(stop) > 1
    assert len(seen) == 7 and min(seen.values()) >= 10, "too few cases of one kind to show anything"


def test_one_beam_is_greedy_decoding_up_to_its_stop_token(small_models):
    """A single beam has no rival that could still win, but under "never" with a penalty that hopes for longer ones."""
    ended = 0
    for lm, first in itertools.product(small_models[:2], range(4)):
        trace = run(greedy(lm, [first, 1]), 8, stop=[3])
        for early_stopping, penalty in ((False, 1.0), (True, 1.0), ("never", 0.0)):
            options = {"max_new_tokens": 8, "early_stopping": early_stopping, "length_penalty": penalty}
            assert run(beam_search(lm, [first, 1], beams=1, stop=[3], **options), 8).tokens == trace.tokens
        ended += trace.stopped == "stop"
    assert 1 < ended < 7


# ----------------------------------------------------------------------------------------------------------------------
# The same as a slow search written from the definition, without cache, batch or tensors


def slowly(log_probs, vocab, prompt, stop, *, beams, longest, penalty=1.0, early=False, least=0, groups=1, diversity=0):
    """Diverse beam search: `log_probs(tokens)` is a list. Returns the finished texts of all groups, best first.

    Each group is searched by itself from beginning to end; of the groups before it only what they chose is known.
    """
    size, chosen, finished = beams // groups, collections.Counter(), []
    for _ in range(groups):
        alive, kept, choices = {(): 0.0}, {}, collections.Counter()
        for length in range(1, longest + 1):
            candidates = {}
            for text, before in alive.items():
                for token, log_prob in enumerate(log_probs([*prompt, *text])):
                    if log_prob > -math.inf and not (token in stop and length <= least):
                        candidates[(*text, token)] = before + log_prob
            order = sorted(candidates, key=lambda text: diversity * chosen[length, text[-1]] - candidates[text])
            for text in order[:size]:
                if text[-1] in stop or length == longest:
                    kept[text] = candidates[text] / length**penalty
            kept = dict(sorted(kept.items(), key=lambda item: -item[1])[:size])
            going_on = [text for text in order if text[-1] not in stop][:size]
            choices.update((length, text[-1]) for text in going_on)
            alive = {text: candidates[text] for text in going_on}
            if not alive or (len(kept) == size and early is True):
                break
            hope = longest if early == "never" and penalty > 0 else length
            if len(kept) == size and max(alive.values()) / hope**penalty <= min(kept.values()):
                break
        chosen += choices
        finished += kept.items()
    return sorted(finished, key=lambda item: -item[1])


def table_log_probs(lm):
    return lambda tokens: lm.log_probs(tokens).tolist()


@pytest.mark.parametrize("beams, groups", [(4, 1), (2, 2), (4, 2), (6, 2), (6, 3), (5, 5), (12, 3)])
def test_diverse_groups_equal_a_slow_search_written_from_the_definition(beams, groups):
    differ = 0
    for seed in range(12):
        rng = random.Random(seed)
        lm = TableLM.random(6, 2, seed)
        stop = rng.sample(range(6), rng.choice((0, 1, 2)))
        penalty, early = rng.choice(LENGTH_PENALTIES), rng.choice((False, True, "never"))
        diversity = rng.choice((0.1, 0.5, 1.0, 5.0)) if groups > 1 else 0
        longest, least = rng.randint(2, 6), rng.choice((0, 2))
        ours = n_best(
            lm, [0, 1], beams=beams, groups=groups, diversity=diversity, max_new_tokens=longest, stop=stop,
            length_penalty=penalty, early_stopping=early, min_new_tokens=least,
        )  # fmt: skip
        settings = {"beams": beams, "longest": longest, "penalty": penalty, "early": early, "least": least}
        slow = slowly(table_log_probs(lm), 6, [0, 1], stop, **settings, groups=groups, diversity=diversity)
        assert_same(ours, slow)
        differ += slow != slowly(table_log_probs(lm), 6, [0, 1], stop, **settings)
    assert groups == 1 or differ > 6, "groups that change nothing show nothing"


@pytest.mark.parametrize("groups, diversity", [(1, 0.0), (2, 0.7), (4, 2.0)])
def test_groups_over_one_cache_equal_the_slow_search_without_a_cache(small_models, groups, diversity):
    def log_probs(tokens):
        return recomputed(lm.model, tokens)[-1].log_softmax(-1).tolist()

    with Float64Throughout():
        for lm in small_models[1:3]:
            options = {"beams": 4, "groups": groups, "diversity": diversity}
            ours = n_best(lm, [1, 2, 3], max_new_tokens=5, stop=[4], **options)
            assert_same(ours, slowly(log_probs, lm.vocab_size, [1, 2, 3], [4], longest=5, **options))


def test_a_later_group_avoids_what_an_earlier_one_chose_by_hand():
    # Group 1 takes a. For group 2 a counts as log 0.5 - 1 = -1.69, so it takes b with log 0.3 = -1.20. For group 3 c,
    # log 0.2 = -1.61, comes before a, and b would count as -2.20.
    lm = TableLM({"": [0.5, 0.3, 0.2]})
    ours = n_best(lm, "a", beams=3, groups=3, diversity=1.0, max_new_tokens=1)
    assert_same(ours, [((0,), math.log(0.5)), ((1,), math.log(0.3)), ((2,), math.log(0.2))])


def test_without_diversity_every_group_finds_the_same():
    lm = TableLM.random(5, 2, 3, stop_tokens=[4])
    alone = n_best(lm, "ab", beams=2, max_new_tokens=5)
    together = n_best(lm, "ab", beams=6, groups=3, max_new_tokens=5)
    assert together == [pair for pair in alone for _ in range(3)]


# ----------------------------------------------------------------------------------------------------------------------
# The same as looking at every text there is


def all_texts(lm, prompt, longest, stop, penalty):
    """Every text that ends with a stop token or at `longest`, with its score, best first."""
    open_texts, finished = {(): 0.0}, []
    for length in range(1, longest + 1):
        longer = {
            (*text, token): before + log_prob
            for text, before in open_texts.items()
            for token, log_prob in enumerate(lm.log_probs([*prompt, *text]).tolist())
        }
        done = {text for text in longer if text[-1] in stop or length == longest}
        finished += [(text, longer[text] / length**penalty) for text in done]
        open_texts = {text: log_prob for text, log_prob in longer.items() if text not in done}
    return sorted(finished, key=lambda pair: -pair[1])


@pytest.mark.parametrize("stop", [[], [2]])
def test_enough_beams_leave_nothing_out(stop):
    beams = 3**3
    for seed, penalty in enumerate(LENGTH_PENALTIES):
        lm = TableLM.random(3, 3, seed)
        ours = n_best(lm, "a", beams=beams, max_new_tokens=4, length_penalty=penalty, stop=stop)
        assert_same(ours, all_texts(lm, [0], 4, stop, penalty)[:beams])


def test_when_each_kind_of_early_stopping_gives_up_by_hand():
    # a ends the text. b is as likely at first, and whatever comes after b is certain: log 0.5 / 2 would beat log 0.5.
    # But an equal score is no better one, so only the search that looks at later lengths goes on.
    lm = TableLM({"c": {"a": 0.5, "b": 0.5}, "b": {"b": 1.0}}, vocab="abc")
    options = {"beams": 1, "max_new_tokens": 3, "stop": [0]}
    for early_stopping, tokens in ((True, [0]), (False, [0]), ("never", [1, 1, 1])):
        last = search(lm, "c", early_stopping=early_stopping, **options)[-1]
        assert (last.tokens, last.score) == (tokens, pytest.approx(math.log(0.5) / len(tokens)))
    assert search(lm, "c", early_stopping="never", length_penalty=0.0, **options)[-1].tokens == [0]


@pytest.mark.parametrize("patience", [0.5, 1, 1.5, 3])
def test_a_patient_search_waits_for_so_many_texts(patience):
    """Kasai et al. (2022), by a slow search that keeps all texts; many of them end early."""
    stop, beams = {2}, 2
    for seed in range(12):
        lm, running, finished = TableLM.random(3, 2, seed), [((), 0.0)], []
        for length in range(1, 7):
            longer = [
                ((*text, token), before + log_prob)
                for text, before in running
                for token, log_prob in enumerate(lm.log_probs([0, *text]).tolist())
            ]
            longer.sort(key=lambda pair: -pair[1])
            ended = [pair for pair in longer[:beams] if pair[0][-1] in stop or length == 6]
            finished += [(text, log_prob / length**0.7) for text, log_prob in ended]
            running = [pair for pair in longer if pair[0][-1] not in stop][:beams]
            if len(finished) >= round(beams * patience):
                break
        options = {"early_stopping": True, "patience": patience, "length_penalty": 0.7, "max_new_tokens": 6}
        ours = n_best(lm, "a", beams=beams, stop=stop, **options)
        assert_same(ours, sorted(finished, key=lambda pair: -pair[1])[: round(beams * patience)])


# ----------------------------------------------------------------------------------------------------------------------
# Ties, zeros, warps, the context's end


def test_of_equal_continuations_the_earlier_beam_and_then_the_lower_id_comes_first():
    lm = TableLM({"": [0.25] * 4})
    first, second, last, winner = search(lm, "a", beams=3, max_new_tokens=3, length_penalty=0.0)
    assert [tokens for tokens, _ in first.hypotheses] == [[0], [1], [2]]
    assert [tokens for tokens, _ in second.hypotheses] == [[0, 0], [0, 1], [0, 2]]
    assert [tokens for tokens, _ in winner.hypotheses] == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]


def test_what_has_probability_zero_is_in_no_list():
    lm = TableLM({"": {"a": 1.0}, "c": {"a": 0.5, "b": 0.5}, "b": {"a": 0.5, "b": 0.5}}, vocab="abc")
    first, second, last, winner = search(lm, "c", beams=5, max_new_tokens=3)
    assert [len(step.hypotheses) for step in (first, second, last, winner)] == [2, 3, 0, 4]
    assert [step.scored for step in (first, second, last)] == [1, 2, 3]
    assert all(math.isfinite(score) for _, score in winner.hypotheses)
    assert winner.hypotheses == sorted(
        ([list(text), score] for text, score in all_texts(lm, [2], 3, [], 1.0) if score > -math.inf),
        key=lambda pair: (-pair[1], pair[0]),
    )


def test_more_beams_than_tokens_grow_into_their_number():
    steps = search(TableLM.random(3, 1, 0), "a", beams=8, max_new_tokens=4)
    assert [step.scored for step in steps] == [1, 3, 8, 8, 0]
    assert [len(step.hypotheses) for step in steps] == [3, 8, 8, 0, 8]


def test_a_minimal_length_that_only_the_stop_token_could_fill_is_an_error():
    lm = TableLM({"": {"b": 1.0}, "a": {"b": 1.0}}, vocab="ab", stop_tokens="b")
    assert n_best(lm, "a", beams=2, max_new_tokens=3) == [((1,), 0.0)]
    with pytest.raises(ValueError, match="probability 0 after 1 tokens: is min_new_tokens=1 possible"):
        search(lm, "a", beams=2, max_new_tokens=3, min_new_tokens=1)


def test_a_warp_is_applied_before_the_softmax_with_the_tokens_before_each_row():
    lm, histories = TableLM.random(4, 2, 5, stop_tokens=[3]), []

    def look(logits, before):
        assert len(logits) == len(before)
        histories.append([list(row) for row in before])
        return logits

    options = {"beams": 3, "max_new_tokens": 4, "min_new_tokens": 1}
    *lengths, last = search(lm, "ab", warp=[temperature(0.5), look], **options)
    assert histories[0] == [[0, 1]]
    for step, seen in zip(lengths[:-1], histories[1:], strict=True):
        assert sorted(seen) == sorted([0, 1, *tokens] for tokens, _ in step.hypotheses)

    def squared(tokens):  # temperature 0.5 squares the probabilities, which are then made to sum to 1 again
        probs = lm.log_probs(tokens).exp() ** 2
        return (probs / probs.sum()).log().tolist()

    slow = slowly(squared, 4, [0, 1], [3], beams=3, longest=4, least=1)
    assert_same([(tuple(tokens), score) for tokens, score in last.hypotheses], slow)


def test_ends_where_the_context_does(models):
    lm = LM(models("llama"), context=9)
    trace = run(beam_search(lm, [3, 1, 4], beams=3, max_new_tokens=50, length_penalty=2.0, early_stopping="never"))
    alike = run(beam_search(LM(models("llama")), [3, 1, 4], beams=3, max_new_tokens=6, length_penalty=2.0), 50)
    assert (trace.tokens, len(trace.tokens), trace.stopped) == (alike.tokens, 6, "context")
    assert search(lm, list(range(9)), beams=3, max_new_tokens=5) == []
    assert run(beam_search(lm, list(range(9)), beams=3, max_new_tokens=5)).stopped == "context"


# ----------------------------------------------------------------------------------------------------------------------
# What it tells and what it costs


def test_one_call_a_length_with_a_row_for_each_beam(llama):
    trace = run(beam_search(llama, [3, 1, 4], beams=4, max_new_tokens=7))
    assert (trace.target_calls, trace.scored_hypotheses, trace.stopped) == (7, 1 + 6 * 4, "budget")
    assert [len(step.tokens) for step in trace.steps] == [0] * 7 + [7]


def test_steps_hold_the_running_beams_and_then_the_winner_with_the_n_best():
    lm = TableLM({"": {"a": 0.5, "b": 0.4, "e": 0.1}}, vocab="abe", stop_tokens="e")
    one, two, winner = search(lm, "a", beams=3, max_new_tokens=2, length_penalty=0.0)
    assert one.hypotheses == [[[0], pytest.approx(math.log(0.5))], [[1], pytest.approx(math.log(0.4))]]
    assert (one.tokens, one.scored, one.note, one.score) == ([], 1, "finished: 1", None)
    assert (two.hypotheses, two.scored, two.note) == ([], 2, "finished: 3")
    assert (winner.tokens, winner.score) == ([0, 0], pytest.approx(math.log(0.25)))
    assert [tokens for tokens, _ in winner.hypotheses] == [[0, 0], [0, 1], [1, 0]]


# ----------------------------------------------------------------------------------------------------------------------
# Bad input

GOOD = {"beams": 4, "max_new_tokens": 4}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beams": 0}, "beams must be a whole number of at least 1, got 0"),
        ({"beams": 2.0}, r"beams must be a whole number of at least 1, got 2\.0"),
        ({"beams": 6, "max_new_tokens": 1}, "5 tokens make only 5 texts of length 1: give at most 5"),
        ({"beams": 26, "max_new_tokens": 2}, "only 25 texts of length 2"),
        ({"groups": 3}, "got beams=4 and groups=3: give groups one of 1, 2, 4"),
        ({"groups": 0}, "groups must be a whole number of at least 1"),
        ({"groups": 2, "diversity": -0.1}, r"diversity must be 0 or more, got -0\.1"),
        ({"groups": 2, "diversity": math.nan}, "diversity must be a finite number"),
        ({"diversity": 0.5}, "give groups=2 or more"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"min_new_tokens": 5}, "min_new_tokens=5 is more than max_new_tokens=4"),
        ({"min_new_tokens": -1}, "min_new_tokens must be a whole number of at least 0"),
        ({"length_penalty": math.nan}, "length_penalty must be a finite number"),
        ({"length_penalty": 1000.0}, "length_penalty=1000.0 is too large"),
        ({"length_penalty": -1000.0}, "length_penalty=-1000.0 is too large"),
        ({"early_stopping": "always"}, 'early_stopping must be False, True or "never"'),
        ({"early_stopping": 1}, "early_stopping must be"),
        ({"patience": 0}, "patience must be above 0, got 0"),
        ({"stop": [5]}, "stop token 5 is outside the vocabulary"),
        ({"stop": "end"}, "stop must be token ids"),
        ({"warp": temperature(0.5)}, "warp must be a list"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    with pytest.raises(ValueError, match=words):
        beam_search(TableLM.random(5, 1, 0), "a", **GOOD | options)


@pytest.mark.parametrize("options", [{"beams": 5, "max_new_tokens": 1}, {"min_new_tokens": 4}, {"beams": 125}])
def test_the_limits_themselves_are_allowed(options):
    assert len(n_best(TableLM.random(5, 1, 0), "a", **GOOD | options)) == (GOOD | options)["beams"]


def test_a_model_without_stop_tokens_has_none_to_forbid():
    lm = TableLM.random(4, 1, 0)
    assert lm.stop_tokens == ()
    assert n_best(lm, "a", **GOOD, min_new_tokens=3) == n_best(lm, "a", **GOOD)
