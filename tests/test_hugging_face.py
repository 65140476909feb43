"""Inside `generate` the methods write what they write alone, and heed what `generate` was asked for."""

import copy
import functools
import inspect
import math
import re

import pytest
import torch
import transformers
from conftest import CONTEXT, EVERY_FAMILY, VOCAB, encoder_with_decoder, exactly, random_model
from draft_networks import eagle3
from two_tokenizers import letters_tokenizer

import tutorlib
from tutorlib import decoders
from tutorlib.decoders.eagle import eagle
from tutorlib.drafting.draft_trees import dynamic_tree
from tutorlib.hugging_face import options as generate_options
from tutorlib.hugging_face.generate import as_warps, custom_generate
from tutorlib.model.cache import cache_name, call_with_cache
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import (
    frequency_penalty,
    min_p,
    no_repeat_ngram,
    probabilities,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
    typical,
)  # fmt: skip

PROMPT = [3, 1, 4, 1, 5]
NEW = 16
ALPHABET = [chr(ord("a") + token) for token in range(VOCAB)]
LETTERS = letters_tokenizer(ALPHABET)
OTHER_LETTERS = letters_tokenizer([chr(ord("a") + (token * 7 + 3) % VOCAB) for token in range(VOCAB)])


def ids(*rows):
    return torch.tensor(rows)


def generate(model, rows, **options):
    """The new tokens of each row."""
    rows = rows if isinstance(rows[0], list) else [rows]
    tensor = ids(*rows)
    options = {
        "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(tensor),
    } | options  # fmt: skip
    made = model.generate(tensor, **options)
    assert made[:, : tensor.shape[1]].tolist() == tensor.tolist() * (len(made) // len(rows)), "the prompt comes first"
    new = made[:, tensor.shape[1] :].tolist()
    return new[0] if len(new) == 1 else new


DRAFT = TableLM.random(ALPHABET, 1, 1)


@functools.cache
def usual(model, ended=False):
    """What `generate` writes by itself, to NEW tokens or to an end token."""
    with exactly(model.dtype):
        return generate(model, PROMPT, **(ENDED if ended else {}))


@functools.cache
def network():
    """An EAGLE-3 network for the small Llama, whose guesses are random."""
    return eagle3(LM(random_model("llama", torch.float64)))


# Every method of the chapters on drafts, and a few others; each as (method, what makes its settings).
METHODS = {
    "speculative": lambda: custom_generate(decoders.speculative, draft=DRAFT, gamma=3, seed=3),
    "adaptive": lambda: custom_generate(
        decoders.speculative, draft=DRAFT, gamma=decoders.adaptive_gamma([1.0, 1.1, 1.2, 1.3], 0.1), confidence=0.2
    ),
    "prompt_lookup": lambda: custom_generate(decoders.prompt_lookup, gamma=4),
    "suffix_lookup": lambda: custom_generate(decoders.suffix_lookup, gamma=4, texts=[[5, 4, 4, 4, 4, 5]]),
    "lookahead": lambda: custom_generate(decoders.lookahead, window=3),
    "token_intersection": lambda: custom_generate(
        decoders.token_intersection, tokenizer=OTHER_LETTERS, draft=DRAFT, gamma=3
    ),
    "string_match": lambda: custom_generate(decoders.string_match, tokenizer=OTHER_LETTERS, draft=DRAFT, gamma=3),
    "eagle": lambda: custom_generate(eagle, head=network(), shape=dynamic_tree(9, 3, 4)),
    "speculative_batch": lambda: custom_generate(decoders.speculative_batch, draft=DRAFT, gamma=3),
    "sample": lambda: custom_generate(decoders.sample),
    "sample_batch": lambda: custom_generate(decoders.sample_batch),
}
every_method = pytest.mark.parametrize("ours", METHODS.values(), ids=METHODS)


# ----------------------------------------------------------------------------------------------------------------------
# The same tokens


@every_method
def test_greedy_it_writes_what_generate_writes(models, ours):
    model, ours = models("llama", torch.float64), ours()
    with exactly(torch.float64):
        assert generate(model, PROMPT, custom_generate=ours) == usual(model)
    assert [len(trace.tokens) for trace in ours.traces] == [NEW]


@pytest.mark.parametrize("family", [family for family in EVERY_FAMILY if family != "llama"])
def test_greedy_it_writes_what_generate_writes_in_every_family(models, family):
    model = models(family, torch.float64)
    with exactly(torch.float64):
        assert generate(model, PROMPT, custom_generate=METHODS["lookahead"]()) == usual(model)


@pytest.mark.parametrize("name", ["speculative", "suffix_lookup", "speculative_batch"])
def test_greedy_under_penalties_it_writes_what_generate_writes(models, name):
    """Penalties look at the text before, which differs from one drafted token to the next."""
    model = models("qwen3", torch.float64)
    options = {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 8, "eos_token_id": 4}
    with exactly(torch.float64):
        mine = generate(model, PROMPT, custom_generate=METHODS[name](), **options)
        assert mine == generate(model, PROMPT, **options)
        assert mine != usual(model)


def test_greedy_and_the_searches_work_too(models):
    model = models("llama", torch.float64)
    with exactly(torch.float64):
        assert generate(model, PROMPT, custom_generate=custom_generate(decoders.greedy)) == usual(model)
        beams = custom_generate(decoders.beam_search, beams=3)
        expected = generate(model, PROMPT, num_beams=3, eos_token_id=[4, 99])
        assert generate(model, PROMPT, custom_generate=beams, eos_token_id=[4, 99]) == expected


@every_method
def test_sampled_it_writes_what_run_writes_with_the_same_seed(models, ours):
    model, ours = models("llama", torch.float64), ours()
    ours.seed = 5
    options = {"do_sample": True, "temperature": 1.4, "top_k": 9, "top_p": 0.8}
    mine = generate(model, PROMPT, custom_generate=ours, **options)
    warp = [temperature(1.4), top_k(9), top_p(0.8)]
    lm = LM(model, ours.tokenizer)
    alone = getattr(decoders, ours.name.removesuffix("_batch"))
    steps = alone(lm, prompt=PROMPT, rng=Seeded(5), warp=warp, **ours.settings)
    trace = run(steps, NEW)
    assert mine == trace.tokens
    assert ours.traces[0].target_calls == trace.target_calls


@pytest.mark.slow
def test_on_the_bundled_models_it_writes_what_generate_writes_with_fewer_calls():
    """In float32: a tie within rounding could differ, and none does here."""
    bundled = tutorlib.loading.models.load("storyworld")
    model, tokenizer = bundled.target.model, bundled.tokenizer
    options = {"max_new_tokens": 60, "do_sample": False}
    prompt = tokenizer(tutorlib.storyworld.story("adapter")[:200], return_tensors="pt")
    prompt = {name: prompt[name] for name in ("input_ids", "attention_mask")}
    expected = model.generate(**prompt, **options).tolist()
    for ours in (
        custom_generate(decoders.speculative, draft=bundled.draft, gamma=4),
        custom_generate(decoders.prompt_lookup, gamma=4),
        custom_generate(decoders.token_intersection, draft=bundled.other_draft, gamma=3, tokenizer=tokenizer),
        custom_generate(decoders.string_match, draft=bundled.other_draft, gamma=3, tokenizer=tokenizer),
    ):
        assert model.generate(**prompt, **options, custom_generate=ours).tolist() == expected
        assert ours.traces[0].tokens_per_call > 1.4


# ----------------------------------------------------------------------------------------------------------------------
# Its processors are our warps


def prepared(model, width, **options):
    """The list of processors that `generate` makes of these options."""
    seen = []

    def loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs):
        seen.extend(logits_processor)
        return input_ids

    model.generate(ids([1] * width), max_new_tokens=9, custom_generate=loop, pad_token_id=0, **options)
    return seen


OPTIONS = {
    "temperature": ({"temperature": 0.6}, [temperature(0.6)]),
    "top_k": ({"top_k": 4}, [top_k(4)]),
    "top_p": ({"top_p": 0.73}, [top_p(0.73)]),
    "min_p": ({"min_p": 0.12}, [min_p(0.12)]),
    "typical_p": ({"typical_p": 0.6}, [typical(0.6)]),
    "repetition_penalty": ({"repetition_penalty": 1.7}, [repetition_penalty(1.7)]),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 2}, [no_repeat_ngram(2)]),
    "several": (
        {"repetition_penalty": 1.3, "temperature": 1.6, "top_k": 7, "top_p": 0.9},
        [repetition_penalty(1.3), temperature(1.6), top_k(7), top_p(0.9)],
    ),
    "its default": ({"top_k": None}, [top_k(50)]),
    "bad words": ({"bad_words_ids": [[3], [1, 5]], "suppress_tokens": [2]}, None),
    "begin and end": ({"min_new_tokens": 3, "begin_suppress_tokens": [4], "eos_token_id": 6}, None),
    "decay": ({"exponential_decay_length_penalty": (1, 1.5), "eos_token_id": 6}, None),
    "cutoffs": ({"epsilon_cutoff": 0.02, "eta_cutoff": 0.03}, None),
    "bias": ({"sequence_bias": {(7,): 2.5, (1, 5): -3.0}, "renormalize_logits": True}, None),
}


@pytest.mark.parametrize(("options", "warps"), OPTIONS.values(), ids=OPTIONS)
def test_options_change_the_probabilities_as_in_generate_and_as_our_own_warps_do(models, options, warps):
    options = {"do_sample": True, "top_k": 0} | options
    processors = prepared(models("llama"), 5, **{name: value for name, value in options.items() if value is not None})
    if "top_k" in options and options["top_k"] is None:
        assert len(processors) == 1
    mine = as_warps(processors)
    logits = 3 * torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    histories = [[1, 5, 1, 5, 1], [1, 5, 1, 5, 1, 3], [1, 5, 1, 5, 1, 3, 3], [1, 5, 1, 5, 1, 3, 3, 1]]
    made = probabilities(logits, mine, histories)
    for row, history in enumerate(histories):
        scores = transformers.LogitsProcessorList(processors)(ids(history), logits[row : row + 1].clone())
        assert torch.allclose(made[row], scores.softmax(-1)[0], rtol=1e-12, atol=0)
        in_float32 = transformers.LogitsProcessorList(processors)(ids(history), logits[row : row + 1].float())
        assert torch.allclose(made[row], in_float32.softmax(-1)[0].double(), atol=1e-6), "generate computes in float32"
    assert not torch.allclose(made, logits.softmax(-1)) or options.get("top_k") is None
    if warps is not None:
        assert torch.allclose(made, probabilities(logits, warps, histories), rtol=1e-9, atol=0)


def test_a_processor_and_a_warp_of_ones_own_are_heeded(models):
    class Never(transformers.LogitsProcessor):
        def __call__(self, input_ids, scores):
            scores[:, int(input_ids[0, -1])] = -math.inf  # in place, as many do
            return scores

    model = models("llama", torch.float64)
    mine = custom_generate(decoders.speculative, draft=DRAFT, warp=[frequency_penalty(0.5)])
    new = generate(model, PROMPT, custom_generate=mine, logits_processor=transformers.LogitsProcessorList([Never()]))
    assert all(one != other for one, other in zip([PROMPT[-1], *new], new))
    warp = [frequency_penalty(0.5), *as_warps([Never()])]
    assert new == run(decoders.sample(LM(model), PROMPT, rng=None, warp=warp), NEW).tokens
    logits = torch.zeros(1, VOCAB, dtype=torch.float64)
    assert float(as_warps([Never()])[0](logits, [PROMPT])[0, 5]) == -math.inf and float(logits[0, 5]) == 0


def test_a_model_whose_inputs_are_prepared_elsewhere_is_refused():
    # peft does this for a learned prompt, and puts back a bound method afterwards.
    model, other = random_model("llama"), random_model("llama", seed=1)
    own = model.prepare_inputs_for_generation
    model.prepare_inputs_for_generation = other.prepare_inputs_for_generation.__func__.__get__(model)
    expected = generate(model, PROMPT)
    assert generate(model, PROMPT, custom_generate=custom_generate(decoders.greedy)) == expected
    model.prepare_inputs_for_generation = lambda *args, **kwargs: own(*args, **kwargs)
    with pytest.raises(ValueError, match=r"prepare_inputs_for_generation of .* was replaced.*LM\(peft_model\)"):
        generate(model, PROMPT, custom_generate=custom_generate(decoders.greedy))


def test_what_is_not_a_function_of_the_text_is_refused(models):
    guided = transformers.UnbatchedClassifierFreeGuidanceLogitsProcessor(1.5, models("llama"))
    with pytest.raises(ValueError, match="Unbatched.*guidance_scale.*changes with every call"):
        generate(models("llama"), PROMPT, custom_generate=METHODS["prompt_lookup"](), logits_processor=[guided])


# ----------------------------------------------------------------------------------------------------------------------
# Every option there is: kept, as `generate` keeps it, or refused


# Each with a setting under which the greedy text is another one; or which alone leaves one token to draw, where nearly
# all would be equally likely without it.
ENDED = {"eos_token_id": [8, 17]}
DRAWN = {"do_sample": True, "top_k": 0, "temperature": 1e-3}
KEPT = {
    "max_length": {"max_length": 11, "max_new_tokens": None},
    "max_new_tokens": {"max_new_tokens": 7},
    "min_length": ENDED | {"min_length": 20},
    "min_new_tokens": ENDED | {"min_new_tokens": 15},
    "max_time": {"max_time": 0.0},
    "stop_strings": {"stop_strings": ["ef", "q"], "tokenizer": LETTERS},
    "eos_token_id": ENDED,
    "do_sample": {"do_sample": True, "top_k": 1, "repetition_penalty": 1.9},
    "temperature": DRAWN,
    "top_k": DRAWN | {"temperature": 9.0, "top_k": 1},
    "top_p": DRAWN | {"temperature": 9.0, "top_p": 1e-9},
    "min_p": DRAWN | {"temperature": 9.0, "min_p": 1.0},
    "top_h": DRAWN | {"temperature": 9.0, "top_h": 1e-9},
    "typical_p": DRAWN | {"temperature": 9.0, "typical_p": 1e-9},
    "epsilon_cutoff": DRAWN | {"temperature": 9.0, "epsilon_cutoff": 0.99},
    "renormalize_logits": {"renormalize_logits": True, "repetition_penalty": 1.9},
    "repetition_penalty": {"repetition_penalty": 1.9},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 3.0},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
    "bad_words_ids": {"bad_words_ids": [[3], [5, 4]]},
    "sequence_bias": {"sequence_bias": {(7,): 6.0}},
    "suppress_tokens": {"suppress_tokens": [4]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [5]},
    "forced_eos_token_id": {"forced_eos_token_id": 6},
    "exponential_decay_length_penalty": ENDED | {"exponential_decay_length_penalty": (1, 3.0)},
    "watermarking_config": {"watermarking_config": transformers.WatermarkingConfig(bias=9.0, greenlist_ratio=0.5)},
}  # fmt: skip
# What has a test of its own, changes no text of one row, or cannot be seen on a model that gives numbers.
SEEN_ELSEWHERE = {
    "pad_token_id", "num_return_sequences", "return_dict_in_generate", "bos_token_id", "forced_bos_token_id",
    "remove_invalid_values", "eta_cutoff",
}  # fmt: skip
REFUSED = {
    "num_beams": 4, "early_stopping": True, "length_penalty": 2.0, "num_beam_groups": 2, "diversity_penalty": 0.5,
    "constraints": ["any"], "force_words_ids": [[1, 2]], "penalty_alpha": 0.6, "dola_layers": "low",
    "prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 2, "guidance_scale": 1.5, "token_healing": True,
    "decoder_start_token_id": 1, "use_cache": False, "cache_implementation": "static", "cache_config": {"nbits": 4},
    "max_cache_len": 40, "prefill_chunk_size": 2, "low_memory": True, "is_assistant": True, "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.7, "assistant_early_exit": 1,
    "assistant_lookbehind": 3, "target_lookbehind": 3, "assistant_ensemble_weight": 0.5, "speculation_type": "dflash",
    "use_mtp": True, "compile_config": transformers.CompileConfig(), "disable_compile": True,
    "continuous_batching_config": {"num_blocks": 4}, "output_scores": True, "output_logits": True,
    "output_attentions": True, "output_hidden_states": True,
}  # fmt: skip
# Of `generate` itself, and not of its configuration.
ARGUMENTS = {
    "assistant_model": random_model("llama", seed=2), "assistant_tokenizer": LETTERS, "synced_gpus": True,
    "negative_prompt_ids": ids([1, 2]), "negative_prompt_attention_mask": ids([1, 1]), "trust_remote_code": True,
}  # fmt: skip


def test_of_every_option_it_is_known_whether_it_is_kept():
    """A version of transformers that has more needs a decision about each of them; until then they are refused."""
    names = {name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")}
    assert names - {"transformers_version"} <= KEPT.keys() | SEEN_ELSEWHERE | REFUSED.keys()
    assert KEPT.keys() | SEEN_ELSEWHERE == generate_options.KEPT and not generate_options.KEPT & REFUSED.keys()
    arguments = set(inspect.signature(transformers.GenerationMixin.generate).parameters)
    known = {"inputs", "generation_config", "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn"}
    assert arguments - {"self", "kwargs", "custom_generate", "streamer"} <= known | ARGUMENTS.keys()


@pytest.mark.parametrize("options", KEPT.values(), ids=KEPT)
def test_an_option_that_is_kept_does_what_it_does_in_generate(models, options):
    model = models("llama", torch.float64)
    with exactly(torch.float64):
        expected = generate(model, PROMPT, **options)
        for name in ("suffix_lookup", "speculative_batch"):
            assert generate(model, PROMPT, custom_generate=METHODS[name](), **options) == expected
    ended = "eos_token_id" in options and options != ENDED
    assert expected != usual(model, ended) or "temperature" in options


def test_what_begins_a_text_is_kept_too(models):
    model, options = models("llama", torch.float64), {"max_new_tokens": 6, "bos_token_id": 7, "pad_token_id": 0}
    with exactly(torch.float64):
        for more in ({}, {"forced_bos_token_id": 12}):
            made = model.generate(custom_generate=METHODS["lookahead"](), **options, **more)
            assert made.tolist() == model.generate(**options, **more).tolist()
    assert made[0, :2].tolist() == [7, 12]


@pytest.mark.parametrize(("name", "value"), (REFUSED | ARGUMENTS).items(), ids=REFUSED | ARGUMENTS)
def test_an_option_that_is_not_kept_is_refused_by_name(models, name, value):
    model, ours = models("llama"), METHODS["sample"]()
    options = {"do_sample": True} if name == "guidance_scale" else {}
    if name == "token_healing":  # which generate does before it asks anybody
        options["tokenizer"] = copy.deepcopy(LETTERS)
        options["tokenizer"].bos_token = options["tokenizer"].pad_token = "a"
    with pytest.raises(ValueError, match=rf"^{name}[=:].* Leave it out: ") as refusal:
        generate(model, PROMPT, custom_generate=ours, **{name: value}, **options)
    advice = re.search(r"custom_generate\((\w+)(, .*)?\)", str(refusal.value))
    assert not advice or length_of_what_is_written(advice[0], model, models("gpt2")) == NEW


@functools.cache
def length_of_what_is_written(advice, model, draft):
    names = vars(decoders) | {
        "custom_generate": custom_generate, "LM": LM, "tokenizer": OTHER_LETTERS, "model": draft,
        "negative_prompt": PROMPT[-1:], "guidance_scale": 1.5,
    }  # fmt: skip
    return len(generate(model, PROMPT, custom_generate=eval(advice, names), tokenizer=OTHER_LETTERS))


def test_options_of_other_programs_in_the_models_own_file_are_ignored_as_in_generate(models):
    model, ours = random_model("llama"), METHODS["sample"]()
    model.generation_config.chat_format = "chatml"
    assert len(generate(model, PROMPT, custom_generate=ours)) == NEW
    mine = transformers.GenerationConfig(chat_formt="chatml", max_new_tokens=3, num_beams=1, pad_token_id=0)
    with pytest.raises(ValueError, match="chat_formt='chatml'"):
        model.generate(ids(PROMPT), generation_config=mine, custom_generate=ours)


@pytest.mark.parametrize(
    ("name", "value"),
    [("use_cache", False), ("cache_implementation", "static"), ("output_scores", True), ("output_hidden_states", True),
     ("num_assistant_tokens", 7), ("assistant_confidence_threshold", 0.1), ("length_penalty", 2.0),
     ("repetition_penalty", 1.4)],
)  # fmt: skip
def test_what_the_models_own_file_has_is_kept_and_what_changes_no_text_is_ignored(name, value):
    model = random_model("llama", torch.float64)
    with exactly(torch.float64):
        expected = generate(model, PROMPT, **({name: value} if name in KEPT else {}))
        setattr(model.generation_config, name, value)
        assert generate(model, PROMPT, custom_generate=METHODS["sample"]()) == expected


@pytest.mark.parametrize(
    ("method", "own", "says"),
    [
        ("sample", {"num_beams": 2}, "have num_beams=2: pass num_beams=1 to generate. These methods do not support"),
        ("sample", {"penalty_alpha": 0.6, "top_k": 4}, "have penalty_alpha=0.6: pass penalty_alpha=None"),
        ("greedy", {"do_sample": True}, "greedy draws nothing: .* have do_sample=True: pass do_sample=False"),
        ("greedy", {"repetition_penalty": 1.3, "top_p": 0.8}, "greedy takes no warp, .*: the model's own generation "
         r"settings have repetition_penalty=1.3: pass repetition_penalty=1.0 to generate \(sample"),
        ("beam_search", {"length_penalty": 2.0}, "have length_penalty=2.0: pass length_penalty=1.0"),
    ],
    ids=str,
)  # fmt: skip
def test_what_only_the_models_own_file_has_and_cannot_be_kept_is_called_the_models_own(method, own, says):
    model = random_model("llama")
    for name, value in own.items():
        setattr(model.generation_config, name, value)
    ours = custom_generate(getattr(decoders, method), **({"beams": 2} if method == "beam_search" else {}))
    options = {"attention_mask": ids([1] * 5), "max_new_tokens": 4, "pad_token_id": 0}
    with pytest.raises(ValueError, match="the model's own generation settings .*") as refusal:
        model.generate(ids(PROMPT), custom_generate=ours, **options)
    assert re.search(says, str(refusal.value))
    advice = re.findall(r"pass (\w+)=(\S+) to generate", str(refusal.value))
    options |= {name: eval(value) for name, value in advice}
    assert model.generate(ids(PROMPT), custom_generate=ours, **options).shape[1] == 9, "the advice is good"


def test_the_tokenizer_of_generate_is_the_models_where_none_was_given(models):
    ours = custom_generate(decoders.string_match, draft=DRAFT, gamma=3)
    generate(models("llama"), PROMPT, custom_generate=ours, tokenizer=OTHER_LETTERS)
    assert ours.traces[0].text == OTHER_LETTERS.decode(ours.traces[0].tokens)


# ----------------------------------------------------------------------------------------------------------------------
# The random draws


def test_a_seed_draws_the_same_in_every_call_and_without_one_torch_decides(models):
    model = models("llama")
    options = {"do_sample": True, "top_k": 0, "temperature": 2.0}
    seeded, free = custom_generate(decoders.lookahead, seed=3), custom_generate(decoders.lookahead)
    one, other = (generate(model, PROMPT, custom_generate=seeded, **options) for _ in range(2))
    assert one == other
    torch.manual_seed(7)
    first, second = (generate(model, PROMPT, custom_generate=free, **options) for _ in range(2))
    assert first != second
    torch.manual_seed(7)
    assert [generate(model, PROMPT, custom_generate=free, **options) for _ in range(2)] == [first, second]


def test_ones_own_rng_goes_on_from_call_to_call(models):
    rng = Seeded(1)
    ours = custom_generate(decoders.sample, rng=rng)
    options = {"custom_generate": ours, "do_sample": True, "top_k": 0}
    made = [*generate(models("llama"), PROMPT, max_new_tokens=3, **options)]
    made += generate(models("llama"), PROMPT + made, max_new_tokens=3, **options)
    alone = run(decoders.sample(LM(models("llama")), PROMPT, rng=Seeded(1)), 6)
    assert made == alone.tokens


# ----------------------------------------------------------------------------------------------------------------------
# Where it ends


@every_method
def test_it_ends_with_the_first_of_the_end_tokens(models, ours):
    model = models("llama", torch.float64)
    with exactly(torch.float64):
        expected = generate(model, PROMPT, eos_token_id=[8, 17, 99])
        assert generate(model, PROMPT, custom_generate=ours(), eos_token_id=[8, 17, 99]) == expected
    assert len(expected) < NEW


def test_it_ends_where_the_context_does(models):
    new = generate(models("llama"), PROMPT, custom_generate=METHODS["speculative"](), max_new_tokens=100)
    assert len(PROMPT) + len(new) == CONTEXT


@pytest.mark.parametrize("name", ["suffix_lookup", "speculative_batch"])
def test_criteria_of_ones_own_end_it_within_a_step(models, name):
    class After(transformers.StoppingCriteria):
        """Ends at the second 4 after the prompt."""

        asked = []

        def __call__(self, input_ids, scores, **kwargs):
            self.asked.append(input_ids[0, len(PROMPT) :].tolist())
            return (input_ids[:, len(PROMPT) :] == 4).sum(-1) >= 2

    model, ours = models("llama", torch.float64), METHODS[name]()
    with exactly(torch.float64):
        expected = generate(model, PROMPT, stopping_criteria=transformers.StoppingCriteriaList([After()]))
        After.asked.clear()
        mine = generate(model, PROMPT, custom_generate=ours, stopping_criteria=[After()])
        assert mine == expected and mine.count(4) == 2 and ours.traces[0].stopped == "end"
        assert After.asked == [mine[:count] for count in range(1, len(mine) + 1)], "each beginning once"
        After.asked.clear()
        mine = generate(model, PROMPT, custom_generate=ours, stopping_criteria=[After()], eos_token_id=mine[-2])
    assert After.asked[-1] == mine and ours.traces[0].stopped == "stop", "nothing is asked about what is cut off"


# ----------------------------------------------------------------------------------------------------------------------
# Batches


PADDED = ids([0, 0, 0, 3, 1], [2, 4, 6, 8, 10], [0, 0, 0, 0, 0])
MASK = ids([0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1])  # the last row is a token 0 that is no padding
UNPADDED = [[3, 1], [2, 4, 6, 8, 10], [0]]


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}], ids=str)
def test_each_row_of_a_padded_batch_is_what_it_is_alone_and_is_filled_up_where_it_ends_early(models, options):
    model = models("llama", torch.float64)
    ours = METHODS["speculative_batch"]()
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": [13, 14]} | options
    with exactly(torch.float64):
        made = model.generate(PADDED, attention_mask=MASK, custom_generate=ours, **options)
        assert made[:, :5].tolist() == PADDED.tolist()
        alone = [generate(model, prompt, **options) for prompt in UNPADDED]
    assert len({len(tokens) for tokens in alone}) > 1
    longest = max(map(len, alone))
    assert made[:, 5:].tolist() == [tokens + [0] * (longest - len(tokens)) for tokens in alone]
    assert [trace.prompt for trace in ours.traces] == UNPADDED


@pytest.mark.parametrize("name", ["sample", "sample_batch", "speculative_batch"])
@pytest.mark.parametrize(
    "options",
    [
        {"min_new_tokens": 9}, {"min_length": 13}, {"exponential_decay_length_penalty": (3, 1.5)},
        {"forced_eos_token_id": 3},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_count_tokens_do_in_uneven_rows_what_they_do_in_generate(models, name, options):
    model = models("llama", torch.float64)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": [3, 13, 14]} | options
    with exactly(torch.float64):
        expected = model.generate(PADDED, attention_mask=MASK, **options)
        made = model.generate(PADDED, attention_mask=MASK, custom_generate=METHODS[name](), **options)
    assert made.tolist() == expected.tolist()


def test_a_mask_of_ones_says_that_a_first_token_is_no_padding(models):
    model = models("llama", torch.float64)
    first = {"attention_mask": ids([1, 1, 1], [1, 1, 1]), "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with exactly(torch.float64):
        made = model.generate(ids([0, 3, 1], [5, 3, 1]), custom_generate=METHODS["sample_batch"](), **first)
        assert made[:, 3:].tolist() == [generate(model, row, max_new_tokens=6) for row in ([0, 3, 1], [5, 3, 1])]
    with pytest.raises(ValueError, match="mask that generate has made of the tokens 0 has a 0 .* pass attention_mask"):
        generate(model, [3, 0, 1], custom_generate=METHODS["sample"](), attention_mask=None)


def test_a_method_for_one_text_writes_several_one_after_another(models):
    model = models("llama")
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 6, "pad_token_id": 0, "attention_mask": MASK}
    one, together = custom_generate(decoders.sample, seed=4), custom_generate(decoders.sample_batch, seed=4)
    made = model.generate(PADDED, custom_generate=one, **options)
    assert made.tolist() == model.generate(PADDED, custom_generate=together, **options).tolist()
    assert [trace.prompt for trace in one.traces] == UNPADDED


def test_sampled_rows_have_an_rng_each(models):
    model = models("llama")
    ours = custom_generate(decoders.speculative_batch, draft=DRAFT, seed=4)
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 12, "pad_token_id": 0, "custom_generate": ours}
    made = model.generate(PADDED, attention_mask=MASK, **options)[:, 5:].tolist()
    for row, prompt in enumerate(UNPADDED):
        steps = decoders.speculative(LM(model), DRAFT, prompt, rng=Seeded(4 + row))
        assert made[row] == run(steps, 12).tokens
    several = model.generate(ids(PROMPT), num_return_sequences=3, **options)
    assert several.shape == (3, 17) and len(set(map(tuple, several.tolist()))) == 3


def test_a_padded_prompt_alone_is_what_it_is_without_padding(models):
    model = models("llama", torch.float64)
    options = {"repetition_penalty": 1.4, "min_new_tokens": 6, "eos_token_id": 4}
    options |= {"pad_token_id": 0, "max_new_tokens": 12, "do_sample": False}
    with exactly(torch.float64):
        made = model.generate(PADDED[:1], attention_mask=MASK[:1], custom_generate=METHODS["lookahead"](), **options)
        assert made[0, 5:].tolist() == generate(model, [3, 1], **options)


# ----------------------------------------------------------------------------------------------------------------------
# What comes out


class Listener:
    def __init__(self):
        self.heard, self.ended = [], False

    def put(self, tokens):
        self.heard.append(tokens.flatten().tolist())

    def end(self):
        self.ended = True


def test_a_streamer_hears_the_prompt_each_step_and_the_end(models):
    listener, ours = Listener(), METHODS["suffix_lookup"]()
    new = generate(models("llama"), PROMPT, custom_generate=ours, streamer=listener, eos_token_id=8)
    assert listener.heard == [PROMPT, *(step.tokens for step in ours.traces[0].steps)]
    assert sum(listener.heard[1:], []) == new and listener.ended


def test_the_streamers_of_transformers_print_the_text(models, capsys):
    streamer = transformers.TextStreamer(LETTERS, skip_prompt=True)
    new = generate(models("llama"), PROMPT, custom_generate=METHODS["suffix_lookup"](), streamer=streamer)
    assert capsys.readouterr().out.strip() == LETTERS.decode(new)


def test_a_dict_holds_the_sequences(models):
    options = {"max_new_tokens": 4, "return_dict_in_generate": True, "do_sample": False, "pad_token_id": 0}
    made = models("llama").generate(ids(PROMPT), custom_generate=METHODS["lookahead"](), **options)
    assert made.sequences.shape == (1, len(PROMPT) + 4)


def test_what_is_found_out_about_the_model_is_kept_for_the_next_call(models, monkeypatch):
    from tutorlib.model import vocabularies

    settings = {"draft": TableLM.random(ALPHABET, 1, 1), "gamma": 3, "tokenizer": OTHER_LETTERS}
    ours, asked = custom_generate(decoders.string_match, **settings), []
    spell = vocabularies.token_bytes
    monkeypatch.setattr(vocabularies, "token_bytes", lambda *given: asked.append(given) or spell(*given))
    for _ in range(3):
        generate(models("llama"), PROMPT, custom_generate=ours, max_new_tokens=4)
    assert len(asked) == 2 * VOCAB
    other = models("qwen2_mixed")
    assert generate(other, PROMPT, custom_generate=ours) == generate(other, PROMPT), "but not for another model"


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: custom_generate("speculative"), "needs a method such as speculative, got 'speculative'"),
        (lambda: custom_generate(len), "needs a method such as speculative"),
        (lambda: custom_generate(decoders.adaptive_gamma), "needs a method such as speculative"),
        (lambda: custom_generate(decoders.speculative), r"needs draft: custom_generate\(speculative, draft=...\)"),
        (lambda: custom_generate(decoders.lookahead, gama=3), "lookahead has no setting 'gama' .* window, ngram"),
        (lambda: custom_generate(decoders.lookahead, prompt="a"), "no setting 'prompt'"),
        (lambda: custom_generate(decoders.speculative, target=1, draft=2), "no setting 'target'"),
        (lambda: custom_generate(decoders.sample, seed=1, rng=Seeded(1)), "give either seed or rng"),
        (lambda: custom_generate(decoders.sample, seed=1.5), "integer seed, got 1.5"),
        (lambda: custom_generate(decoders.sample, warp=top_k(3)), r"write warp=\[top_k\(3\)\]"),
    ],
)
def test_nonsense_is_named_at_once(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"position_ids": ids([0, 1, 1, 2, 3])}, "position_ids"),
        ({"attention_mask": ids([1, 1, 1, 1, 0])}, "row 0: attention_mask has a 0 after a 1; .* on the left"),
        ({"attention_mask": ids([1, 0, 1, 1, 1])}, "0 after a 1"),
        ({"attention_mask": ids([0, 0, 0, 0, 0])}, "row 0 of input_ids is empty, or padding alone"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_kept_are_named(models, options, says):
    with pytest.raises(ValueError, match=says):
        generate(models("llama"), PROMPT, custom_generate=METHODS["prompt_lookup"](), **options)


def test_a_cache_that_holds_text_is_refused(models):
    model, ours = models("llama"), METHODS["prompt_lookup"]()
    _, cache = call_with_cache(model, ids(PROMPT[:3]))
    name = cache_name(model)
    with pytest.raises(ValueError, match=f"{name} already holds tokens"):
        generate(model, PROMPT, custom_generate=ours, **{name: cache})


def test_what_is_for_another_part_of_the_model_is_refused(models):
    options = {"inputs_embeds": torch.zeros(1, 3, 16), "max_new_tokens": 2}
    with pytest.raises(ValueError, match="generate was given inputs_embeds, which these methods cannot hand"):
        models("llama").generate(custom_generate=METHODS["prompt_lookup"](), **options)


def test_several_rows_are_refused_where_they_cannot_be_kept_apart(models):
    model, several = models("llama"), METHODS["speculative_batch"]()
    rows = {"attention_mask": MASK, "max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    with pytest.raises(ValueError, match="the rows begin with 3, 0, 4 tokens 0, which is pad_token_id, and no att"):
        unmasked = ids([0, 0, 0, 3, 1], [2, 4, 6, 8, 10], [0, 0, 0, 0, 1])
        model.generate(unmasked, custom_generate=several, **rows | {"attention_mask": None, "eos_token_id": 0})
    with pytest.raises(ValueError, match="a streamer takes one text"):
        model.generate(PADDED, custom_generate=several, streamer=Listener(), **rows)
    with pytest.raises(ValueError, match=r"MinLength.* .min_new_tokens .* \[3, 1, 2\] begins with another, \[3, 1\]: "):
        told_apart = rows | {"attention_mask": ids([0, 1, 1], [1, 1, 1])}
        model.generate(ids([0, 3, 1], [3, 1, 2]), custom_generate=several, min_length=9, eos_token_id=4, **told_apart)
    with pytest.raises(ValueError, match="PrefixConstrained.*depends on the row"):
        model.generate(PADDED, custom_generate=several, prefix_allowed_tokens_fn=lambda row, text: [1, 2], **rows)
    with pytest.raises(ValueError, match="pass pad_token_id to pad them with"):
        many = rows | {"pad_token_id": None, "max_new_tokens": 60, "attention_mask": MASK}
        model.generate(PADDED, custom_generate=several, **many)


def test_options_that_the_method_has_no_use_for_are_refused(models):
    plain = custom_generate(decoders.greedy)
    with pytest.raises(ValueError, match="greedy draws nothing: leave out do_sample=True"):
        generate(models("llama"), PROMPT, custom_generate=plain, do_sample=True, top_k=0)
    with pytest.raises(ValueError, match="greedy takes no warp, but generate has made RepetitionPenalty"):
        generate(models("llama"), PROMPT, custom_generate=plain, repetition_penalty=1.2)


def test_an_encoder_is_refused():
    model = encoder_with_decoder()
    with pytest.raises(ValueError, match="BartForConditionalGeneration has an encoder: .* decoder-only"):
        model.generate(ids([3, 4]), max_new_tokens=3, custom_generate=METHODS["prompt_lookup"]())


def test_what_is_wrong_with_the_method_itself_is_said_in_its_own_words(models):
    stranger = LM(random_model("llama"), OTHER_LETTERS)
    with pytest.raises(ValueError, match="token_intersection and string_match"):
        ours = custom_generate(decoders.speculative, tokenizer=LETTERS, draft=stranger)
        generate(models("llama"), PROMPT, custom_generate=ours)
    with pytest.raises(ValueError, match="gamma .* got 0"):
        generate(models("llama"), PROMPT, custom_generate=custom_generate(decoders.prompt_lookup, gamma=0))
    with pytest.raises(ValueError, match="the target has no tokenizer"):
        ours = custom_generate(decoders.string_match, draft=DRAFT)
        generate(models("llama"), PROMPT, custom_generate=ours)
    with pytest.raises(ValueError, match=f"the prompt has {CONTEXT + 1} tokens, more than the context"):
        generate(models("llama"), [1] * (CONTEXT + 1), custom_generate=METHODS["prompt_lookup"]())
