"""The benchmark compares like with like, and its arithmetic is right."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import random_model
from packaging.version import Version
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tutorlib.decoders import beam_search, greedy
from tutorlib.decoders.speculative import speculative
from tutorlib.disk import locked
from tutorlib.drafting.dflash_head import DFlashHead
from tutorlib.drafting.dspark_head import DSparkHead
from tutorlib.drafting.eagle_head import Eagle3Head, EagleHead
from tutorlib.drafting.medusa_heads import MedusaHeads
from tutorlib.drafting.mtp_head import MtpHead
from tutorlib.drafting.parallel_head import ParallelHead
from tutorlib.lab import bench
from tutorlib.lab.bench import Condition, Costs, Result, Spread, by_gamma, costs, measure, other_programs, read_report
from tutorlib.lab.bench import __main__ as command
from tutorlib.lab.bench import report as report_file
from tutorlib.lab.bench.__main__ import main
from tutorlib.lab.bench.costs import WIDTHS, held_bytes, median_costs
from tutorlib.lab.bench.measuring import Tally, accepted_at, rows_at
from tutorlib.lab.bench.report import COMMITTED, ENVIRONMENT, KEYS, VERSION, file_name, write_report
from tutorlib.lab.bench.row_makers import Output, Row, settings
from tutorlib.lab.bench.rows import (
    CHAIN_OF_THREE,
    COPY_ALONE,
    FILTERS,
    GENERATE,
    GENERATE_ASSISTED,
    GENERATE_BEAMS,
    GENERATE_FILTERED,
    GENERATE_LOOKUP,
    LLAMA_CPP,
    OF_EACH_KIND,
    OPENVINO,
    OTHER_PROGRAMS,
    PLAIN,
    ROWS,
    TWO_MODELS,
    WITH_COPY,
)
from tutorlib.lab.training.train_eagle import layer_config
from tutorlib.lab.training.train_ngram import count_ngrams, made_to_fit
from tutorlib.measures import theory
from tutorlib.measures.cost import measured_cache_bytes, weight_bytes
from tutorlib.measures.memory import predicted
from tutorlib.model.lm import LM
from tutorlib.model.own_cache import OwnCache
from tutorlib.model.pruned import pruned
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run
from tutorlib.running.step import Step
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import probabilities, temperature
from tutorlib.viz.tables import Table

PROMPTS = [[1, 2, 3], [4, 5, 6, 7]]

ASSISTED = [row.name for row in ROWS if row.name.startswith(GENERATE_ASSISTED)]
# Old versions of transformers cannot draft with an assistant: `test_an_old_transformers_is_a_reason_...`.
OLD = Version(transformers.__version__) < Version("5.16")
LEFT_OUT = {*OTHER_PROGRAMS, *(ASSISTED if OLD else ())}  # these families are not in a file that others read
ABLE = [row for row in ROWS if row.name not in LEFT_OUT]


def letters(lm):
    """A tokenizer for a small model, so that drafts with another one have something to read."""
    vocab = {"<end>": 0, **{chr(ord("a") + i): i + 1 for i in range(lm.vocab_size - 1)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.fixture(scope="module")
def family():
    target, draft = LM(random_model("llama")), LM(random_model("gpt2"))
    tokenizer = letters(target)
    target.tokenizer = draft.tokenizer = tokenizer
    torch.manual_seed(0)
    config = layer_config(target)
    return SimpleNamespace(
        target=target,
        draft=draft,
        quantized=LM(random_model("gpt2")),  # stands for a copy in eight bits, for which this target is too small
        other_draft=LM(random_model("gpt2"), letters(target)),
        pruned=pruned(target, [0, target.layers - 1]),
        medusa=MedusaHeads(target.width, target.vocab_size),
        eagle=EagleHead(config).eval(),
        eagle3=Eagle3Head(config, (0, 1, -1)).eval(),
        dflash=DFlashHead(config, (0, 1, 3), 4, 0).eval(),
        mtp=MtpHead(config).eval(),
        parallel=ParallelHead(config, (0, 1, -1)).eval(),
        dspark=DSparkHead(DFlashHead(config, (0, 1, 3), 4, 0)).eval(),
    )


@pytest.fixture(autouse=True)
def costs_measured_once(monkeypatch):
    """The costs of the machine, measured with fewer repetitions."""
    calls, levels = costs.call_times, costs.level_seconds
    monkeypatch.setattr(costs, "call_times", lambda *given, repeats, **named: calls(*given, repeats=1, **named))
    monkeypatch.setattr(costs, "level_seconds", lambda *given, **named: levels(*given, repeats=1, **named))
    monkeypatch.setattr(command, "reading", lambda lm: costs.reading(lm, numbers=1000))


def decoded(row, family, prompts, count, seed=0, t=None):
    """What a row makes of some prompts one by one, greedily if it can."""
    t = (0.0 if row.greedily else 1.0) if t is None else t
    texts, calls, steps = zip(*(row.decode(family, [prompt], count, seed, t) for prompt in prompts), strict=True)
    return Output([text for (text,) in texts], None if None in calls else sum(calls), sum(map(list, steps), []))


@pytest.fixture(scope="module")
def made(family):
    """Each row's name -> 8 tokens after each prompt, and how often each draft was called for them."""
    found = {}
    for row in ABLE:
        called = Counter()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("eagle", "eagle3", "dflash", "dspark", "mtp", "parallel"):
                patch.setattr(getattr(family, name), "session", counting(getattr(family, name).session, called, name))
            before = {name: getattr(family, name).calls for name in ("draft", "quantized", "pruned", "other_draft")}
            output = decoded(row, family, PROMPTS, 8)
        called.update({name: getattr(family, name).calls - count for name, count in before.items()})
        found[row.name] = output, +called
    return found


def counting(function, counts, name):
    def called(*arguments):
        counts[name] += 1
        return function(*arguments)

    return called


def row_named(name):
    return next(row for row in ROWS if row.name == name)


LOSSLESS = [row for row in ABLE if row.peer in (GENERATE, GENERATE_ASSISTED, GENERATE_LOOKUP, GENERATE_FILTERED)]


def test_all_greedy_rows_make_the_same_tokens(made):
    texts = {row.name: made[row.name][0].texts for row in LOSSLESS if row.greedily}
    assert len(texts) >= 12
    assert all(each == texts[PLAIN] for each in texts.values()), texts


@pytest.mark.parametrize("row", [row for row in LOSSLESS if row.sampling], ids=lambda row: row.name)
def test_rows_draw_at_the_temperature_and_within_the_top_p_that_they_are_given(family, made, row):
    """Next to 0 each leaves the greedy text; at a high temperature even the filters leave many, and seeds matter."""
    assert decoded(row, family, PROMPTS, 8, t=1e-3).texts == made[PLAIN][0].texts
    assert [row.decode(family, [prompt], 8, 0, 9.0, 1e-6).texts[0] for prompt in PROMPTS] == made[PLAIN][0].texts
    first, second = (decoded(row, family, PROMPTS, 8, seed, 9.0).texts for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("row", [row for row in ROWS if row.in_batches], ids=lambda row: row.name)
def test_texts_made_at_once_are_those_made_alone_and_have_seeds_of_their_own(family, made, row):
    t = 0.0 if row.greedily else 1e-3
    output = row.decode(family, PROMPTS, 8, 0, t)
    assert output.texts == made[PLAIN][0].texts, "prompts of other lengths"
    assert output.calls is None or output.calls <= 8, "calls that rows share count once"
    texts = row.decode(family, PROMPTS[:1] * 8, 8, 0, 9.0).texts
    assert [len(text) for text in texts] == [8] * 8 and len(set(map(tuple, texts))) > 4


def test_what_a_models_own_file_sets_is_not_in_the_rows(family):
    with settings(family.target.model, {"repetition_penalty": 1.9, "no_repeat_ngram_size": 2}):
        names = [PLAIN, GENERATE, *([] if OLD else [GENERATE_ASSISTED])]
        plain, *others = (decoded(row_named(name), family, PROMPTS, 12) for name in names)
        assert all(output.texts == plain.texts for output in others)
        assert family.target.model.generation_config.repetition_penalty == 1.9, "and it has it again afterwards"


def test_the_beam_rows_make_the_tokens_of_four_beams(family):
    """With three beams or five, this prompt goes on otherwise."""

    def searched(beams):
        return [run(beam_search(family.target, [7], beams=beams, max_new_tokens=10), 10).tokens]

    rows = [row for row in ROWS if row.peer == GENERATE_BEAMS]
    assert len(rows) >= 2
    for row in rows:
        made = row.decode(family, [[7]], 10, 0, 0.0).texts
        assert made == searched(4) and made not in (searched(3), searched(5)), row.name


def test_the_filtered_rows_draw_from_the_same_tokens(family):
    """Every token that either of them draws is among those that the filters leave, which are few."""
    lm, prompt = family.target, PROMPTS[0]
    for row in ROWS:
        if row.peer == GENERATE_FILTERED:
            text = [*prompt, *row.decode(family, [prompt], 30, 0, 0.8).texts[0]]
            logits = lm.session(text[: len(prompt)]).feed(text[len(prompt) : -1])
            left = probabilities(logits, [temperature(0.8), *FILTERS]) > 0
            assert left[range(30), text[len(prompt) :]].all(), row.name
            assert left.double().mean() < 0.6


def test_the_rows_of_contrast_are_compared_with_what_they_add_to(made):
    """Both models read the whole text in the row beside contrastive decoding, whose tokens are the target's own."""
    rows = [row.name for row in ROWS if row.peer in (TWO_MODELS, PLAIN)]
    texts = {name: made[name][0].texts for name in rows}
    assert texts.pop(TWO_MODELS) == made[PLAIN][0].texts
    assert [made[name][1]["draft"] for name in rows] == [16, 16, 0, 0, 0]
    assert len(texts) == 4 and all(each != made[PLAIN][0].texts for each in texts.values()), texts


def test_a_copy_alone_is_the_copys_own_text_and_as_a_draft_it_is_called_for_each_token(family, made):
    output, called = made[COPY_ALONE]
    alone = [run(greedy(family.quantized, prompt), 8, stop=()).tokens for prompt in PROMPTS]
    assert output.texts == alone != made[PLAIN][0].texts and called == {"quantized": 16}
    assert set(made[WITH_COPY][1]) == {"quantized"} and row_named(WITH_COPY).is_drafting


def test_rows_of_ours_count_a_call_a_token_or_fewer(made):
    for row in ABLE:
        output, _ = made[row.name]
        if row.name.startswith("generate"):
            assert output.calls is None
        elif row.is_drafting or row.name.startswith(("string_match", "early_exit")):
            assert output.calls <= 16, row.name
        else:
            prompts_own = row.name.startswith("contrastive_search")  # a prompt is read before there are candidates
            assert output.calls == 16 + 2 * prompts_own, row.name


def test_rows_that_are_predicted_draft_with_the_model_that_they_name(made):
    """The target and that draft alone are called, the draft for each token drafted; lookups call none."""
    for row in ABLE:
        if row.is_drafting:
            output, called = made[row.name]
            assert sum(len(step.tokens) for step in output.steps) == 16
            assert set(called) == {*row.helpers} - {"medusa"}, row.name


def test_an_assistants_settings_are_its_own_again_afterwards(family):
    before = family.draft.model.generation_config.to_dict()
    for row in ABLE:
        if "tuned" in row.name:
            row.decode(family, PROMPTS[:1], 4, 0, 1.0)
    assert family.draft.model.generation_config.to_dict() == before


def test_no_stop_token_ends_a_row_early(family):
    first = decoded(row_named(PLAIN), family, PROMPTS[:1], 1).texts[0][0]
    settings = family.target.model.generation_config
    settings.eos_token_id = first
    try:
        stopping = SimpleNamespace(**vars(family) | {"target": LM(family.target.model, family.target.tokenizer)})
        assert first in stopping.target.stop_tokens
        for row in ABLE:
            assert {len(text) for text in decoded(row, stopping, PROMPTS[:1], 3).texts} == {3}, row.name
    finally:
        settings.eos_token_id = None


def clocked_rows(clock, **seconds):
    """Rows that take a known time: they move the clock on."""

    def row(name, took, peer=GENERATE, **at):
        def decode(family, prompts, count, seed, t):
            clock.now += len(prompts) * (took[seed] if isinstance(took, list) else took)
            return Output([[0] * count for _ in prompts], len(prompts) * count // 2)

        return Row(name, decode, peer, **at)

    return [
        row(PLAIN, seconds.get("plain", 1.0), in_batches=True),
        row("ours", seconds.get("ours", 0.5)),
        row("ours, filtered", 0.25, GENERATE_FILTERED, in_batches=True),
        row(GENERATE, 2.0, in_batches=True),
        row(GENERATE_FILTERED, 3.0, GENERATE_FILTERED),
    ]


def test_what_is_counted_holds_no_logits(made):
    """Those of 96 tokens, five rounds and twenty rows would be 10 GB."""
    tally, output = Tally(), made[PLAIN][0]
    tally.add([output], 1.0)
    assert output.steps[0].candidates and not any(step.candidates for step in tally.steps)


def test_rates_and_ratios_by_hand(family, clock):
    results = measure(family, PROMPTS, new_tokens=10, rounds=3, rows=clocked_rows(clock), clock=clock)
    by_name = {result.name: result for result in results}
    assert by_name["ours"].tokens_per_second == Spread(20, 20, 20)
    assert by_name["ours"].tokens_per_call == 2
    assert by_name["ours"].over_plain == Spread(2, 2, 2)
    assert by_name["ours"].over_peer == Spread(4, 4, 4)
    assert by_name["ours, filtered"].over_peer == Spread(12, 12, 12), "a row is compared with its own peer"
    assert by_name[PLAIN].over_plain == Spread(1, 1, 1)


def test_in_batches_the_last_is_filled_up_and_a_row_without_its_peer_is_compared_with_generate(family, clock):
    seen, rows = [], clocked_rows(clock)
    plain = rows[0].decode
    rows[0] = replace(rows[0], decode=lambda *given: (seen.append(given), plain(*given))[1])
    how = {"new_tokens": 10, "rounds": 1, "rows": rows, "clock": clock}
    results = measure(family, [[1], [2], [3]], temperature=0.7, batch=2, **how)
    assert [result.name for result in results] == [PLAIN, "ours, filtered", GENERATE]
    assert results[1].over_peer == Spread(8, 8, 8) and results[1].tokens_per_second == Spread(40, 40, 40)
    filled = [[[1], [2]], [[3], [1]]]
    assert [given[1:] for given in seen] == [
        (some, 10, n, 0.7) for n, some in ((-1, filled[0]), *((0, f) for f in filled))
    ]


@pytest.mark.parametrize("name, package", [(LLAMA_CPP[32], "xllamacpp"), (OPENVINO[True], "openvino-genai")])
def test_other_programs_are_left_out_where_they_cannot_run(name, package, monkeypatch):
    row, smollm2 = row_named(name), SimpleNamespace(name="smollm2")
    with pytest.raises(ValueError, match="measured with smollm2, whose file"):
        row.decode(SimpleNamespace(name="storyworld"), PROMPTS[:1], 2, 0, 0.0)
    monkeypatch.setattr(other_programs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"pip install {package}"):
        row.decode(smollm2, PROMPTS[:1], 2, 0, 0.0)


def test_rows_run_where_they_can():
    def names(t, batch):
        return {row.name for row in rows_at(ROWS, t, batch)}

    assert {"beam_search, 4 beams", "contrastive_decoding"} <= names(0.0, 1) - names(0.5, 1)
    assert names(0.5, 1) - names(0.0, 1) == {
        "eagle, 9 drawn", "eagle3, 1 drawn", "eagle3, 9 drawn", "dflash, drawn", "dspark, drawn", "sample, filtered",
        GENERATE_FILTERED,
    }  # fmt: skip
    assert names(0.0, 4) == {PLAIN, GENERATE, "speculative, gamma=2", "speculative, gamma=8"} == names(0.0, 16)
    assert names(1.0, 4) - names(0.0, 4) == {"sample, filtered", GENERATE_FILTERED}
    peers = {row.name: row.peer for row in rows_at(ROWS, 1.0, 4)}
    assert peers["speculative, gamma=8"] == GENERATE and peers["sample, filtered"] == GENERATE_FILTERED


def test_ratios_are_taken_within_a_round(family, clock):
    """The machine gets ten times slower in the second round, for everybody: no ratio may change."""
    rows = clocked_rows(clock, plain=[1.0, 10.0, 1.0, 9.0], ours=[0.5, 5.0, 0.5, 9.0])
    # (Seed -1, the round that is not counted, reads the last entry.)
    results = measure(family, PROMPTS, new_tokens=10, rounds=3, rows=rows, clock=clock)
    assert results[1].over_plain == Spread(2, 2, 2)


def drafting_row(clock, name, steps, took, draft=None):
    def decode(family, prompts, count, seed, t):
        clock.now += took
        return Output([[0] * count for _ in prompts], len(steps), steps)

    return Row(name, decode, PLAIN, is_drafting=True, helpers=(draft,) if draft else (), in_batches=True)


def test_acceptance_and_what_is_predicted_by_hand(family, clock):
    """The prompt's call, then two rounds of two drafted tokens: 1 of 2 checked is accepted, then 2 of 2.

    A call of three takes 1.5 times one, and the prompt's takes twice as long.
    """
    first = Step([0], calls=1)
    chains = [first, Step([0, 0], [0, 1], 1, calls=2), Step([0, 0, 0], [0, 0], 2, calls=3)]
    pair = TokenTree([0, 1], [-1, -1])
    trees = [first, Step([0, 0], [0, 1], 1, tree=pair, path=(0,), calls=2)]
    deeper = TokenTree([0, 1, 2], [-1, -1, 1])
    levels = [first, Step([0, 0, 0], [0, 1, 2], 2, tree=deeper, path=(1, 2), calls=2)]
    two_texts = [first, *chains[1:], *chains]
    cut = [first, Step([0], [0], 1, cut=2, calls=2)]
    rows = [
        drafting_row(clock, "with a draft", chains, 1.0, draft="draft"),
        drafting_row(clock, "looked up", chains, 1.0),
        drafting_row(clock, "trees", trees, 1.0),
        drafting_row(clock, "trees level by level", levels, 1.0, draft="draft"),
        drafting_row(clock, "two texts", two_texts, 1.0),
        drafting_row(clock, "cut", cut, 1.0),
        *clocked_rows(clock),
    ]
    asked = []

    def costs(family, prompt, drafts, new_tokens):
        asked.append((prompt, drafts, new_tokens))
        return Costs([2.0, 2.5, 3.0, 3.5], 4.0, {"draft": 0.25})

    results = measure(family, PROMPTS, new_tokens=5, rounds=2, rows=rows, clock=clock, costs=costs)
    drafting, looked_up, grown, by_level, twice, short, *others = results
    assert asked == [(PROMPTS[0], ["draft"], 5)] * 2, "once in each round, for the drafts in use"
    assert drafting.acceptance == looked_up.acceptance == pytest.approx(3 / 4)
    assert drafting.predicted == pytest.approx((4 + 5 * 2.0) / (4 + 2 * (3.0 + 2 * 0.25)))
    assert looked_up.predicted == twice.predicted == pytest.approx((4 + 5 * 2.0) / (4 + 2 * 3.0))
    # Where a tree ends, the next token checks nothing: both trees were walked to an end.
    assert (grown.acceptance, grown.predicted) == (1, pytest.approx((4 + 2 * 2.0) / (4 + 3.0)))
    assert (by_level.acceptance, by_level.predicted) == (1, pytest.approx((4 + 3 * 2.0) / (4 + 3.5 + 2 * 0.25)))
    assert short.predicted == pytest.approx((4 + 2.0) / (4 + 3.0)), "of three tokens that were made, two were cut off"
    assert drafting.accepted_at == [1, 0.5] and by_level.accepted_at == [1, 1]
    assert all(result.acceptance is result.accepted_at is result.predicted is None for result in others)
    how = {"new_tokens": 5, "rounds": 2, "rows": rows, "clock": clock}
    (in_batches, *_) = measure(family, PROMPTS, batch=2, **how, costs=None)
    assert in_batches.acceptance == pytest.approx(3 / 4) and in_batches.predicted is None


def test_acceptance_by_position_counts_the_steps_that_came_so_far():
    steps = [Step([0], [1, 2], 0), Step([0, 0], [0, 1], 1), Step([0, 0, 0], [0, 0], 2), Step([0])]
    assert accepted_at(steps) == pytest.approx([2 / 3, 1 / 2]) and accepted_at(steps[3:]) is None


def test_memory_by_hand(family, clock):
    """Two texts of 4 + 5 tokens; the widest call has two drafted tokens and one more, or one for each beam."""
    drafting = drafting_row(clock, "with a draft", [Step([0], [1], 0), Step([0, 0], [0, 1], 1)], 1.0, draft="draft")
    beams = replace(clocked_rows(clock)[0], name="beams", texts=4)
    rows = [drafting, beams, *clocked_rows(clock)]
    found = measure(family, PROMPTS, batch=2, new_tokens=5, rounds=1, rows=rows, clock=clock, costs=None)
    memory = {result.name: result.memory for result in found}
    layer = 9 * 2 * 4 * 4  # tokens, keys and values, bytes, numbers in a head: of 2 heads here, of 4 in the draft
    assert memory["with a draft"] == {
        "target": weight_bytes(family.target),
        "draft": weight_bytes(family.draft),
        "cache": 2 * 3 * layer * (2 + 4),
        "logits": 2 * 3 * 19 * 4,
    }
    assert memory["beams"]["cache"] == 4 * memory[PLAIN]["cache"] == 4 * 2 * 3 * layer * 2
    assert memory["beams"]["logits"] == 4 * memory[PLAIN]["logits"] and memory["beams"]["draft"] == 0


def test_each_kind_of_draft_has_weights_and_a_cache(family):
    heads = sum(weight.numel() * 4 for weight in family.medusa.parameters())
    assert held_bytes(family.medusa, 9) == (heads, 0)
    network = family.eagle
    session = network.session(family.target)
    session.feed([1, 2, 3], torch.zeros(3, network.width))
    slots = session._cache.shape[-2]
    assert held_bytes(network, slots) == (weight_bytes(network), session._cache.numel() * 4)
    assert held_bytes(family.draft, 1000) == (weight_bytes(family.draft), measured_cache_bytes(family.draft, 48))
    ngrams = made_to_fit(count_ngrams(PROMPTS, 1, 19), 1, tokenizer=family.target.tokenizer)
    size, cache = held_bytes(ngrams, 9)
    assert size >= sum(level.counts.nbytes for level in ngrams.levels) > 0 == cache


def test_a_model_that_uses_its_own_cache_holds_bytes_in_it():
    lm = LM(random_model("qwen3_5"))
    assert type(lm.open_cache(1)) is OwnCache
    weights, cache = held_bytes(lm, 40)
    assert (weights, cache) == (weight_bytes(lm), predicted(lm, 40).cache) and cache > held_bytes(lm, 20)[1] > 0


def test_costs_of_the_machine_are_those_of_the_middle_of_a_text():
    target = LM(random_model("llama"))
    small = SimpleNamespace(target=target, draft=LM(random_model("gpt2")), eagle=EagleHead(layer_config(target)))
    costs = bench.measured_costs(small, [1, 2, 3], ["draft", "eagle"], 8)
    assert set(costs.draft_seconds) == {"draft", "eagle"}
    assert len(costs.call_seconds) == max(WIDTHS)
    assert all(seconds > 0 for seconds in [*costs.call_seconds, costs.prompt_seconds, *costs.draft_seconds.values()])
    some = [Costs([1.0], 3.0, {"d": 5.0}), Costs([9.0], 7.0, {"d": 1.0}), Costs([2.0], 4.0, {"d": 2.0})]
    assert median_costs(some) == ([2.0], 4.0, {"d": 2.0})


@pytest.mark.parametrize("sampling", [False, True])
def test_by_gamma_counts_what_speculation_makes(family, sampling):
    first, second = by_gamma(family, PROMPTS, gammas=[1, 3], sampling=sampling, new_tokens=8, rounds=1)
    assert (first.gamma, second.gamma) == (1, 3)
    for result in (first, second):
        rngs = [Seeded(0) if sampling else None for _ in PROMPTS]
        traces = [
            run(speculative(family.target, family.draft, prompt, gamma=result.gamma, rng=rng), 8, stop=())
            for prompt, rng in zip(PROMPTS, rngs, strict=True)
        ]
        rounds = [(len(step.drafted), step.accepted) for trace in traces for step in trace.steps if step.drafted]
        assert result.acceptance == theory.estimated_alpha(rounds)
        assert result.tokens_per_call == 16 / sum(trace.target_calls for trace in traces)
        assert result.predicted > 0


def test_rows_are_shuffled_anew_in_each_round(family, clock):
    """So the row before a row is another one from round to round; and the same seed gives the same order again."""

    def order(seed):
        ran = []

        def noted(row):
            return replace(row, decode=lambda *args: (ran.append(row.name), row.decode(*args))[1])

        rows = [noted(row) for row in clocked_rows(clock)]
        measure(family, PROMPTS[:1], new_tokens=10, rounds=9, rows=rows, seed=seed, clock=clock)
        return [ran[i : i + len(rows)] for i in range(0, len(ran), len(rows))]

    rounds = order(3)
    assert len(rounds) == 10 and all(sorted(names) == sorted(rounds[0]) for names in rounds)
    assert order(3) == rounds != order(4)
    for name in rounds[0]:
        assert len({names[names.index(name) - 1] for names in rounds if names[0] != name}) > 1, name


def test_a_row_that_makes_too_few_tokens_is_not_timed_in_silence(family, clock):
    short = Row("short", lambda family, prompts, *_: Output([[0] for _ in prompts], 1))
    with pytest.raises(ValueError, match=r"short made \[1\] tokens, not 10 each"):
        measure(family, PROMPTS, new_tokens=10, rounds=1, rows=[*clocked_rows(clock), short], clock=clock)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds"),
        ({"prompts": []}, "need prompts"),
        ({"new_tokens": 60}, "do not fit the context of 48"),
        ({"rows": ROWS[:2]}, "missing: generate"),
        ({"temperature": -0.5}, "a temperature must be a finite number of 0 or more, where 0 is greedy; got -0.5"),
        ({"temperature": float("nan")}, "got nan"),
        ({"batch": 0}, "a batch size is how many texts are made at once, a whole number of 1 or more, got 0"),
    ],
)
def test_nonsense_is_named(family, options, words):
    with pytest.raises(ValueError, match=words):
        measure(family, **{"prompts": PROMPTS, "new_tokens": 4, "rounds": 1} | options)


def test_results_along_temperatures_and_batches(family):
    rows = {1: ("a", "b"), 4: ("a",)}
    result = Result("", Spread(1, 1, 1), None, None, None, Spread(1, 1, 1), None, None, {})
    results = {
        Condition("story", t, n): [replace(result, name=name, predicted=t + n) for name in rows[n]]
        for n in (4, 1)
        for t in (1.0, 0.0)
    }
    report = {"results": results}

    def predicted(**fixed):
        return {
            name: {x: one.predicted for x, one in row.items()} for name, row in bench.along(report, **fixed).items()
        }

    assert predicted(kind="story", batch=1) == {"a": {0: 1, 1: 2}, "b": {0: 1, 1: 2}}
    assert predicted(kind="story", temperature=1) == {"a": {1: 2, 4: 5}, "b": {1: 2}}
    assert list(predicted(kind="story", temperature=1)["a"]) == [1, 4], "in ascending order"
    for fixed in ({"kind": "story"}, {"kind": "story", "batch": 2}, {"kind": "story", "size": 4}):
        with pytest.raises(
            ValueError, match="fix two of kind, temperature, batch at what was measured, got .*story, 1, 4"
        ):
            bench.along(report, **fixed)


WITH_A_COPY = [COPY_ALONE, WITH_COPY, CHAIN_OF_THREE]
WITH_A_DRAFT = [TWO_MODELS, "contrastive_decoding", *(row.name for row in ROWS if "speculative" in row.name), *ASSISTED]
WITH_HEADS = [
    row.name
    for row in ROWS
    if row.name.startswith(("medusa", "eagle", "pruned", "dflash", "dspark", "mtp", "parallel"))
]
WITH_ANOTHER_TOKENIZER = [row.name for row in ROWS if row.name.startswith(("token_intersection", "string_match"))]


GREEDILY = {row.name for row in ROWS if row.greedily}


def named(line):
    """The rows that a line names which says why they are left out."""
    return line.rpartition(": ")[2].split("; ")


def printed_by(capsys, *arguments):
    main(["--tokens", "2", "--rounds", "1", "--temperatures", "0", "--batches", "1", *arguments[0]], *arguments[1:])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("has", "left_out"),
    [
        ((), {*WITH_A_COPY, *WITH_A_DRAFT, *WITH_HEADS, *WITH_ANOTHER_TOKENIZER}),
        (("draft", "quantized"), {*WITH_HEADS, *WITH_ANOTHER_TOKENIZER}),
        (
            ("medusa", "eagle", "eagle3", "pruned", "dflash", "dspark", "mtp", "parallel"),
            {*WITH_A_COPY, *WITH_A_DRAFT, *WITH_ANOTHER_TOKENIZER},
        ),
    ],
    ids=["a target alone", "a draft", "heads but no draft"],
)
def test_rows_that_need_what_a_family_lacks_are_left_out_and_named(family, has, left_out):
    some = SimpleNamespace(target=family.target, **{role: getattr(family, role) for role in has})
    rows, found = bench.that_can_run(some, PROMPTS[0])
    left_out = left_out | LEFT_OUT
    assert found.keys() == left_out and all(found.values())
    assert [row.name for row in rows] == [row.name for row in ROWS if row.name not in left_out]
    assert all((row.peer is None) == (row_named(row.name).peer in {None, *left_out}) for row in rows)


def test_what_is_left_out_is_in_the_file_and_a_row_without_its_peer_has_no_ratio(family, capsys):
    found = json.loads(printed_by(capsys, ["--json"], SimpleNamespace(target=family.target), PROMPTS[:1]))
    assert found["left_out"].keys() == {*WITH_A_COPY, *WITH_A_DRAFT, *WITH_HEADS, *WITH_ANOTHER_TOKENIZER, *LEFT_OUT}
    (part,) = found["results"]
    assert {row["name"] for row in part["rows"]} == GREEDILY - found["left_out"].keys()
    for row in part["rows"]:
        assert (row["over_peer"] is None) == (row_named(row["name"]).peer in {None, *found["left_out"]}), row["name"]


@pytest.mark.slow
def test_the_tables_have_all_rows_for_a_family_that_has_everything(family, capsys):
    conditions = ["--temperatures", "0", "1", "--batches", "1", "3"]
    first, *parts = printed_by(capsys, ["--quick", "--seed", "5", *conditions], family, PROMPTS[:1]).split("\n\n")
    assert "new_tokens: 2" in first and "seed: 5" in first
    for part, (t, batch) in zip(parts, [(0, 1), (0, 3), (1, 1), (1, 3)], strict=True):
        title, _, *lines = part.splitlines()
        lines = [line for line in lines if not line.startswith("left out") or LEFT_OUT.isdisjoint(named(line))]
        assert title == f"story, temperature {t}, texts at once: {batch}"
        assert [line.split("  ")[0] for line in lines] == [row.name for row in rows_at(ABLE, t, batch)]


def test_a_folder_with_a_model_and_no_tokenizer_is_enough(tmp_path, capsys):
    random_model("llama").save_pretrained(tmp_path)
    lines = printed_by(capsys, ["--family", str(tmp_path)]).splitlines()
    (draft,) = [line for line in lines if f"the family {tmp_path.name!r} has no draft: " in line]
    assert named(draft) == WITH_A_DRAFT
    assert WITH_ANOTHER_TOKENIZER in map(named, lines)


def test_a_draft_that_does_not_fit_the_target_is_a_reason_too(family):
    larger = random_model("gpt2")
    larger.resize_token_embeddings(23, mean_resizing=False)
    odd = SimpleNamespace(**vars(family) | {"draft": LM(larger)})
    rows, left_out = bench.that_can_run(odd, PROMPTS[0])
    assert "vocabular" in left_out["speculative, gamma=2"]
    assert PLAIN in {row.name for row in rows}


def test_an_n_gram_draft_is_measured_and_no_assistant_of_generate(family):
    counting_model = made_to_fit(
        count_ngrams(PROMPTS, 1, family.target.vocab_size), 1, tokenizer=family.target.tokenizer
    )
    rows, left_out = bench.that_can_run(SimpleNamespace(target=family.target, draft=counting_model), PROMPTS[0])
    assert "speculative, gamma=2" in {row.name for row in rows}
    assert {left_out[name] for name in ASSISTED} == {
        "generate takes a network as its assistant, and the draft is NgramLM"
    }


def test_an_old_transformers_is_a_reason_to_leave_its_assistants_out(family, monkeypatch):
    monkeypatch.setattr(transformers, "__version__", "5.15.1")
    rows, left_out = bench.that_can_run(family, PROMPTS[0])
    assert left_out.keys() == {*ASSISTED, *OTHER_PROGRAMS}
    assert all("5.15.1 leaves rejected tokens in the cache" in left_out[name] for name in ASSISTED)
    assert all(row.peer is None for row in rows if row_named(row.name).peer == GENERATE_ASSISTED)


# -- kinds of prompt, and files of results --

KINDS = ("story", "question", "summary", "translation", "code", "arithmetic")


@pytest.fixture
def chatting(family, monkeypatch):
    """The family with a chat format, in which all prompts are short; two kinds of them are measured."""

    def two_kinds(family, count):
        return {kind: bench.chat_prompts(family, count)[kind] for kind in ("story", "code")}

    monkeypatch.setattr(command, "chat_prompts", two_kinds)
    tokenizer = SimpleNamespace(chat_template="a format")
    return SimpleNamespace(**vars(family), tokenizer=tokenizer, chat=lambda text: [len(text) % 9 + 1, 2, 3])


def chat_bench(family, *arguments):
    main(["--tokens", "2", "--rounds", "1", "--prompts", "1", *map(str, arguments)], family)


def test_six_kinds_of_prompt_have_some_each_all_different(chatting):
    chatting.chat = lambda text: [text]
    prompts = bench.chat_prompts(chatting, 4)
    assert tuple(prompts) == KINDS and len({text for some in prompts.values() for (text,) in some}) == 24
    with pytest.raises(ValueError, match="there are 1 to 4 prompts of each kind, got 5"):
        bench.chat_prompts(chatting, 5)


@pytest.mark.slow
def test_a_chat_model_is_measured_with_each_kind_and_with_the_heads_that_it_has(chatting, tmp_path, capsys):
    chat_bench(chatting, "--results", tmp_path / "new" / "all.json")
    report, text = read_report(tmp_path / "new" / "all.json"), capsys.readouterr().out
    assert list(report["results"]) == [Condition(kind, t, 1) for kind in ("story", "code") for t in (0, 0.7)]
    assert all(f"\n\n{kind}, temperature {t:g}, " in text for kind, t, _ in report["results"])
    for (_, t, batch), results in report["results"].items():
        names = {row.name for row in rows_at(ABLE, t, batch)} & {*OF_EACH_KIND, PLAIN, GENERATE, GENERATE_ASSISTED}
        assert {result.name for result in results} == names
    assert report["setting"]["dtype"] == "float32" and report["machine"]["processor"]
    main(["--show", str(tmp_path / "new" / "all.json")])
    assert capsys.readouterr().out == text
    del chatting.medusa, chatting.eagle
    more = ("--kinds", "code", "--temperatures", 0, "--rows", "medusa", "eagle3")
    chat_bench(chatting, "--results", tmp_path / "some.json", *more)
    report = read_report(tmp_path / "some.json")
    assert set(report["left_out"]) == {"medusa"} | LEFT_OUT & {GENERATE_ASSISTED}
    ((condition, results),) = report["results"].items()
    assert condition == ("code", 0, 1)
    assert {result.name for result in results} == {PLAIN, GENERATE, "eagle3", GENERATE_ASSISTED} - LEFT_OUT


def test_where_none_of_the_asked_rows_can_run_nothing_is_measured(family, capsys):
    main(["--rows", "beam_search, 4 beams", "--tokens", "2", "--rounds", "1", "--json"], family, PROMPTS[:1])
    (part,) = json.loads(capsys.readouterr().out)["results"]
    assert (part["temperature"], part["batch"]) == (0, 1)


def test_a_stopped_run_goes_on_with_the_conditions_that_are_not_done(chatting, tmp_path, monkeypatch):
    file, rows, done = tmp_path / "results.json", ("--rows", PLAIN), []

    def stopping(family, prompts, **how):
        if done:
            raise KeyboardInterrupt
        done.append(measure(family, prompts, **how))
        return done[-1]

    monkeypatch.setattr(command, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        chat_bench(chatting, "--results", file, *rows)
    ((condition, first),) = read_report(file)["results"].items()
    assert condition == ("story", 0, 1)
    monkeypatch.setattr(command, "measure", measure)
    chat_bench(chatting, "--results", file, *rows)
    found = read_report(file)["results"]
    assert len(found) == 4 and found[condition] == first
    chat_bench(chatting, "--results", file, *rows, "--kinds", "code", "--temperatures", 0.5)
    assert [*read_report(file)["results"]] == [*found, ("code", 0.5, 1)], "a later command adds to it"


def test_a_readers_own_files_stand_beside_those_that_came_with_the_book(chatting, tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine"))
    assert [*bench.reports()] == sorted(COMMITTED.glob("*.json")), "there need be none of a reader's"
    chat_bench(chatting, "--rows", PLAIN, "--kinds", "story", "--temperatures", 0, "--results")
    *_, own = bench.reports()
    assert own.parent == bench.own_folder() == tmp_path / "mine" and own.name.startswith("storyworld_float32_")
    report = bench.reports()[own]
    assert bench.where(report).startswith(report["machine"]["processor"])
    write_report(report, tmp_path / "mine" / "other.json")
    assert len(bench.reports()) == 2 + len([*COMMITTED.glob("*.json")])
    monkeypatch.delenv(ENVIRONMENT)
    assert str(bench.own_folder()) == "bench_results"


def test_a_file_is_named_after_the_family_and_what_computed():
    machine = {"processor": "Intel(R) Xeon(R) @ 2.2GHz", "threads": 1, "gpu": "NVIDIA H100 80GB"}
    report = {"machine": machine, "setting": {"family": "/some/where/Small", "dtype": "float32", "device": "cpu"}}
    assert file_name(report) == "small_float32_intel-xeon-2.2ghz-1-thread.json"
    report["setting"]["device"] = "cuda:0"
    assert bench.where(report) == "NVIDIA H100 80GB" and file_name(report) == "small_float32_nvidia-h100-80gb.json"


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ('{"version": 0}', (), "holds results of version 0, and this is version 3: delete it, or name another"),
        ("[]", (), "holds results of version None"),
        ('{"version": 2, "kinds": {}}', (), "of version 2, and this is version 3: delete it, or name another file"),
        ('{"version": 3, "machine": {}}', (), "is not a whole file of results"),
        ('{"version": 3, "results": [{"rows": [{"name": "greedy"}]}]}', (), "is not a whole file of results"),
        ("{", (), "is half-written or broken"),
        (None, ("--seed", "1"), "was measured with seed 0 instead of 1: name another file"),
        (None, ("--rows", PLAIN, "lookahead"), "was measured with rows"),
    ],
)
def test_a_file_of_other_results_is_refused_and_left_as_it_is(chatting, tmp_path, capsys, content, options, says):
    file = tmp_path / "results.json"
    if content is None:
        chat_bench(chatting, "--results", file, "--rows", PLAIN)
    else:
        file.write_text(content)
    before = file.read_text()
    with pytest.raises(SystemExit):
        chat_bench(chatting, "--results", file, "--rows", PLAIN, *options)
    assert says in capsys.readouterr().err and file.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--family", "smolm2"], "Did you mean 'smollm2'?"),
        (["--dtype", "float12"], "dtype='float12': expected float32"),
        (["--rows", "greedily"], "there is no row 'greedily'"),
        (
            ["--rows", "beam_search, 4 beams", "--temperatures", "0", "1"],
            "at temperature 1 none of these rows",
        ),
        (
            ["--rows", "medusa", "eagle", "--batches", "4"],
            "at batch size 4 none of these rows can run: medusa; eagle",
        ),
        (["--temperatures", "-1"], "where 0 is greedy; got -1.0"),
        (["--batches", "-2"], "a whole number of 1 or more, got -2"),
        *(
            ([f"--{name}", "0"], f"--{name} needs how many, a whole number of 1 or more, got 0")
            for name in ("prompts", "tokens", "rounds")
        ),
        (["--cpu-time"], "adds up the time of all threads, and there are 2: set OMP_NUM_THREADS=1"),
        (["--kinds", "poem"], "there are no prompts of the kind 'poem'; the kinds are: story"),
        (["--show", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_words(arguments, says, capsys, monkeypatch):
    if arguments == ["--cpu-time"]:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(SystemExit):
        main(arguments)
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("damage", ["machine", "setting", "reading", "left_out", "results"])
def test_a_damaged_file_is_named_and_so_is_what_helps(tmp_path, capsys, damage):
    file = tmp_path / "results.json"
    for broken in ([1], {}, None, 7, [{"kind": "story", "temperature": "hot", "batch": 1, "rows": []}]):
        report = json.loads(next(COMMITTED.glob("*.json")).read_text())
        file.write_text(json.dumps(report | {damage: broken}))
        try:
            main(["--show", str(file)])  # {} may be right
        except SystemExit:
            said = " ".join(capsys.readouterr().err.split())
            assert "results.json is not a whole file of results" in said and "delete it, or name another file" in said


def test_temperatures_that_differ_in_the_fifth_digit_are_kept_apart_and_not_measured_again(
    family, tmp_path, monkeypatch
):
    file, asked = tmp_path / "results.json", ["0.333333", "0.33334"]
    for _ in range(2):
        main(["--temperatures", *asked, "--batches", "1", "--rows", "plain loop", "--tokens", "2", "--rounds", "1",
              "--results", str(file)], family, PROMPTS[:1])  # fmt: skip
        monkeypatch.setattr(command, "measure", lambda *_, **__: pytest.fail("measured again"))
    found = read_report(file)
    assert [condition.temperature for condition in found["results"]] == [0.333333, 0.33334]
    assert all(f"temperature {temperature}," in report_file.as_text(found) for temperature in asked)


def test_the_share_of_the_memorys_bandwidth(family):
    found = costs.reading(family.target, numbers=1000)
    assert found["weight_bytes"] == weight_bytes(family.target)
    assert found["share"] == pytest.approx(
        found["weight_bytes"] / found["call_seconds"] / found["sum_bytes_per_second"]
    )


def test_committed_results_can_be_read_and_name_their_machine():
    for path in COMMITTED.glob("*.json"):
        report = read_report(path)
        assert path.name == file_name(report) and report.keys() == {*KEYS} and report["version"] == VERSION
        for results in report["results"].values():
            assert len(Table(*bench.table(results)).lines) == 1 + len(results)


@pytest.mark.parametrize("name", ["all.json", None], ids=["a file", "the reader's own folder"])
def test_two_benches_cannot_write_to_one_place(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "own"))
    with locked(tmp_path / (name or "own")), pytest.raises(SystemExit):
        main(["--family", "nothing is loaded", "--results", *([str(tmp_path / name)] if name else [])])
    assert f"{name or 'own'} is in use: process" in capsys.readouterr().err
