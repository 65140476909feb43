"""`as_in` against the engines: what they reported, drew or wrote (a stored file), and transformers itself."""

import itertools

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import chisquare

from tutorlib import Seeded, TableLM, as_in, beam_search, match, run, sample, speculative
from tutorlib.course import settings_table
from tutorlib.lab import experiments
from tutorlib.lab.experiments import min_p, settings
from tutorlib.sampling import engines, warp
from tutorlib.sampling.known_text import History
from tutorlib.sampling.warp import probabilities

PROMPT = settings.PROMPT
LETTER_A = 3  # the token of the breaker in a question to llama.cpp
ROWS = [
    pytest.param(engine, number, id=f"{engine}, {' '.join(f'{name}={value}' for name, value in asked.items())}")
    for engine, questions in settings.QUESTIONS.items()
    for number, asked in enumerate(questions)
]
SEES_NO_PROMPT = ("presence_penalty", "frequency_penalty", "include_prompt_in_result")


def as_asked(engine, asked):
    """The logits and the warps of a question."""
    mine = {name: value for name, value in asked.items() if name not in settings.OF_THE_QUESTION}
    if "logit_bias" in mine:
        mine["logit_bias"] = {int(token): value for token, value in mine["logit_bias"].items()}
    if "dry_sequence_breakers" in mine:
        mine["dry_sequence_breakers"] = [LETTER_A]
    needs = engine in ("openvino-genai", "ctranslate2") and any(name in mine for name in SEES_NO_PROMPT)
    kind = next((name for name in ("ties", "below") if name in asked), "logits")
    logits = torch.tensor([settings.SETTING[kind]], dtype=torch.float64)
    return logits, as_in(engine, **mine, **({"prompt_length": len(PROMPT)} if needs else {}))


@pytest.mark.parametrize(("engine", "number"), ROWS)
def test_as_in_gives_what_the_engine_drew_from(engine, number):
    """Reported distributions to 1e-4; draws within what chance allows, and none outside; greedy texts exactly."""
    answer = experiments.results("settings")["rows"][engine]["answers"][number]
    assert answer["settings"] == settings.QUESTIONS[engine][number]
    logits, chain = as_asked(engine, answer["settings"])
    if "text" in answer:
        text = list(PROMPT)
        for place, token in enumerate(answer["text"]):
            probs = probabilities(logits, chain, [History(text)])[0].tolist()
            if "probs" in answer:
                reported = [answer["probs"][place].get(str(other), 0) for other in range(len(probs))]
                assert probs == pytest.approx(reported, abs=1e-4)
            else:
                assert probs[token] == 1
            text.append(token)
        return
    probs = probabilities(logits, chain, [PROMPT])[0].numpy()
    if "probs" in answer:
        assert probs.tolist() == pytest.approx([answer["probs"].get(str(t), 0) for t in range(len(probs))], abs=1e-4)
        return
    counts = np.array([answer["counts"].get(str(token), 0) for token in range(len(probs))])
    total = counts.sum()
    assert total == settings.SETTING["draws"] and not counts[probs < 1e-9].any()
    often = probs * total > 5
    seen, due = np.append(counts[often], counts[~often].sum()), np.append(probs[often], probs[~often].sum()) * total
    if due[-1] < 1e-6:
        seen, due = seen[:-1], due[:-1]
    assert len(seen) == 1 or chisquare(seen, due).pvalue > 1e-3


SEARCHES = [
    pytest.param(engine, number, id=f"{engine}, {' '.join(f'{name}={value}' for name, value in asked.items())}")
    for engine, asked_of in settings.BEAMS.items()
    for number, asked in enumerate(asked_of)
]


@pytest.mark.parametrize(("engine", "number"), SEARCHES)
def test_beam_search_finds_the_texts_that_the_engine_found(engine, number):
    """CTranslate2 stops as with ``early_stopping=True`` and its patience, and counts the prompt if it returns it."""
    stored = experiments.results("settings")["rows"][engine]["beams"][number]
    asked = stored["settings"]
    assert asked == settings.BEAMS[engine][number] and len(stored["tables"]) == settings.TABLES
    for place, found in enumerate(stored["tables"]):
        table = torch.tensor(settings.table_of_logits(place), dtype=torch.float64).log_softmax(-1)
        lm = TableLM({letter: row.exp().tolist() for letter, row in zip("abcdefg", table)}, "abcdefg", stop_tokens="c")
        prompt, penalty = PROMPT[:2], float(asked["length_penalty"])
        if asked["include_prompt_in_result"]:  # all but its first token; then other texts may be the best
            for text, score in zip(found["texts"], found["scores"], strict=True):
                total = sum(float(table[pair]) for pair in itertools.pairwise(text))
                assert score == pytest.approx(total / len(text) ** penalty, rel=1e-3)
            continue
        ours = beam_search(
            lm, prompt, beams=asked["beam_size"], max_new_tokens=asked["max_length"], early_stopping=True,
            length_penalty=penalty, patience=asked.get("patience", 1.0),
        )  # fmt: skip
        best = run(ours).steps[-1].hypotheses[: asked["num_hypotheses"]]
        assert [tokens for tokens, _ in best] == found["texts"]
        assert [score for _, score in best] == pytest.approx(found["scores"], rel=1e-3)


def test_the_stored_file_answers_the_questions_of_this_version():
    stored = experiments.results("settings")
    assert stored["setting"] == settings.SETTING and stored["rows"].keys() == settings.QUESTIONS.keys()
    assert len(settings.QUESTIONS["llama.cpp"]) >= 30
    pinned = {engine: packages.split()[0].partition("==")[2] for engine, packages in settings.PACKAGES.items()}
    assert all(
        version in engines.VERSIONS[engine] or engines.VERSIONS[engine] in version for engine, version in pinned.items()
    )
    assert engines.VERSIONS["transformers"] == transformers.__version__


IN_GENERATE = [
    {"do_sample": True, "top_k": 0},
    {"do_sample": True},
    {"do_sample": True, "temperature": 2.0, "top_p": 0.8, "top_k": 0},
    {"do_sample": True, "top_k": 3, "min_p": 0.2, "typical_p": 0.7},
    {"do_sample": True, "top_k": 0, "top_h": 0.5},
    {"do_sample": True, "top_k": 0, "epsilon_cutoff": 0.03, "eta_cutoff": 0.2},
    {"do_sample": True, "top_k": 9, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    {"do_sample": True, "top_k": 0, "sequence_bias": {(3,): 2.5}},
    {"repetition_penalty": 1.4},
]


@pytest.mark.parametrize("given", IN_GENERATE, ids=str)
def test_as_in_gives_what_transformers_makes_of_the_same_options(given):
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    model, made = transformers.LlamaForCausalLM(config), []

    def loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **more):
        made.extend(logits_processor)
        return input_ids

    model.generate(torch.tensor([PROMPT]), max_new_tokens=2, custom_generate=loop, pad_token_id=0, **given)
    for row in (settings.LOGITS, settings.TIES):
        logits = torch.tensor([row], dtype=torch.float64)
        due = transformers.LogitsProcessorList(made)(torch.tensor([PROMPT]), logits.clone()).softmax(-1)
        if not given.get("do_sample"):
            due = torch.nn.functional.one_hot(due.argmax(-1), 32).double()
        assert torch.allclose(probabilities(logits, as_in("transformers", **given), [PROMPT]), due, atol=1e-12)


def test_sixteen_logits_of_which_eight_or_five_stay():
    logits = torch.tensor([[3 - 0.4 * place for place in range(16)]], dtype=torch.float64)
    first = as_in("transformers", do_sample=True, temperature=2.0, top_p=0.8, top_k=0)
    last = as_in("llama.cpp", temperature=2, top_p=0.8, top_k=0, min_p=0)
    assert [int((probabilities(logits, chain) > 0).sum()) for chain in (first, last)] == [8, 5]


def test_with_llama_cpps_rule_a_seeds_text_is_that_of_plain_sampling():
    target, draft = TableLM.random(6, 2, 1), TableLM.random(6, 1, 2)
    chain = as_in("llama.cpp", repeat_penalty=1.3, repeat_last_n=4, top_k=5, xtc_probability=0.3)
    for seed in range(5):
        plain = run(sample(target, [0, 1], rng=Seeded(seed), warp=chain), 30)
        drafted = run(speculative(target, draft, [0, 1], rng=Seeded(seed), warp=chain, rule=match), 30)
        assert drafted.tokens == plain.tokens and drafted.target_calls < plain.target_calls


def test_node_llama_cpp_transformers_js_and_vllm_are_chains_of_the_same_warps():
    """Their rows are read from what was seen of them: two engines run in Node. vLLM's is read in its source."""
    names = [one.__name__ for one in as_in("node-llama-cpp", temperature=2, prompt_length=3, penalty=1.1)]
    assert names == [
        "repetition_penalty(1.1, ignore_first=3, last=64)", "exactly_k(40)", "top_p(0.95)", "temperature(2)",
    ]  # fmt: skip
    read = {"temperature": 2, "top_k": 4, "top_p": 0.8, "min_p": 0.1, "presence_penalty": 1, "repetition_penalty": 1.1}
    assert [one.__name__ for one in as_in("vllm", prompt_length=3, logit_bias={3: 1.0}, **read)] == [
        "logit_bias({3: 1.0})", "repetition_penalty(1.1)", "presence_penalty(1, ignore_first=3)", "temperature(2)",
        "min_p(0.1)", "top_k(4)", "top_p(0.8)",
    ]  # fmt: skip
    assert as_in("vllm", temperature=0) == [warp.one_hot] and as_in("vllm") == []
    assert [one.__name__ for one in as_in("transformers.js", do_sample=True, temperature=2, top_k=4)] == [
        "temperature(2)",
        "exactly_k(4)",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("sglang", {}), "as_in knows transformers, llama.cpp, .*, not 'sglang'"),
        (("vllm", {"temperature": 0, "top_p": 0.9}), "vllm ignores top_p at temperature 0: leave it out"),
        (("vllm", {"presence_penalty": 1}), r"does not see the prompt: pass prompt_length=len\(prompt\)"),
        (("llama.cpp", {"repetition_penalty": 2}), "no setting 'repetition_penalty' here; it has .*repeat_penalty"),
        (("llama.cpp", {"mirostat": 2, "repeat_penalty": 1.2}), "llama.cpp ignores repeat_penalty with mirostat"),
        (("llama.cpp", {"mirostat": 1}), "as_in knows mirostat 2 of llama.cpp, got mirostat=1"),
        (("llama.cpp", {"samplers": ["top_q"]}), "llama.cpp has no sampler 'top_q'; it has penalties, "),
        (("llama.cpp", {"repeat_last_n": -1}), "llama.cpp refuses a repeat_last_n below 0, got -1"),
        (("llama.cpp", {"top_p": 0}), "top_p needs a probability above 0"),
        (("transformers", {"top_p": 0.9}), "transformers ignores top_p without do_sample=True"),
        (("transformers", {"do_sample": True, "sequence_bias": {(1, 2): 1.0}}), "sequence_bias for single tokens only"),
        (("transformers.js", {"top_p": 0.9}), "transformers.js 4.3.1 accepts top_p and ignores it: leave it out"),
        (("transformers.js", {"top_k": 9}), "transformers.js ignores top_k without do_sample"),
        (("openvino-genai", {"top_k": 9}), "openvino-genai ignores top_k without do_sample=True"),
        (("openvino-genai", {"presence_penalty": 1}), r"does not see the prompt: pass prompt_length=len\(prompt\)"),
        (("openvino-genai", {"no_repeat_ngram_size": 3}), "accepts no_repeat_ngram_size and ignores it"),
        (("ctranslate2", {"sampling_topp": 0.9}), "ctranslate2 ignores sampling_topp unless sampling_topk is set"),
        (("ctranslate2", {"repetition_penalty": 2, "include_prompt_in_result": False}), "pass prompt_length"),
        (("onnxruntime-genai", {"do_sample": True, "top_k": 0, "temperature": 2}), "ignores temperature with top_k=0"),
        (("mlx-lm", {"top_p": 0.9}), "mlx-lm ignores top_p at temp=0"),
        (("node-llama-cpp", {"penalty": 1.1}), "repeatPenalty does not see the prompt"),
        (("node-llama-cpp", {"minP": 0.1}), "node-llama-cpp ignores minP at temperature 0"),
    ],
)  # fmt: skip
def test_what_an_engine_would_ignore_or_does_not_have_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        warp.as_in(given[0], **given[1])


def test_a_prompt_length_must_be_a_number():
    with pytest.raises(ValueError, match="prompt_length how many tokens the prompt has, a whole number .* got 'a'"):
        as_in("openvino-genai", prompt_length="a")


# ----------------------------------------------------------------------------------------------------------------------
# The chapter's tables, and its experiment


PARTS = [settings_table.FILTERS, settings_table.DEFAULTS, settings_table.PENALTIES, settings_table.TEXTS]


def test_the_tables_have_a_cell_for_each_engine_and_say_what_as_in_does():
    for columns, cells in PARTS:
        assert list(cells) == list(settings_table.VERSIONS) == ["tutorlib", *engines.CHAINS]
        assert all(len(row) == len(columns) for row in cells.values())
    last = {engine: cells[0].endswith(" T") for engine, cells in settings_table.FILTERS[1].items()}
    for engine, hot in (("llama.cpp", {"temperature": 2, "top_p": 0.8}), ("mlx-lm", {"temp": 2.0, "top_p": 0.8})):
        assert last[engine] and as_in(engine, **hot)[-1].__name__ == "temperature(2)"
    for engine in ("transformers", "openvino-genai"):
        chain = as_in(engine, do_sample=True, temperature=2.0, top_p=0.8, top_k=5)
        assert not last[engine] and chain[0].__name__ == "temperature(2)"
    for engine, cells in settings_table.DEFAULTS[1].items():
        if settings_table.IGNORED in cells[1]:
            name = {"ctranslate2": "sampling_topp", "node-llama-cpp": "topP"}.get(engine, "top_p")
            with pytest.raises(ValueError, match=f"ignores {name}|accepts {name} and ignores it"):
                as_in(engine, **{name: 0.9})


def test_each_way_has_eight_settings_and_the_choice_is_made_on_the_tuning_half():
    stored = experiments.results("min_p")
    assert stored["setting"] == min_p.SETTING and list(stored["rows"]) == list(min_p.ROWS)
    assert {len(found) for found in min_p.WAYS.values()} == {8}
    rows = {
        "top-p, temperature 1, 0.4": {"tuning": {"true": 0.95, "distinct_2": 0.2}, "test": {"distinct_2": 0.9}},
        "top-p, temperature 1, 0.6": {"tuning": {"true": 0.93, "distinct_2": 0.3}, "test": {"distinct_2": 0.1}},
        "top-p, temperature 2, 0.6": {"tuning": {"true": 0.50, "distinct_2": 0.8}, "test": {"distinct_2": 0.8}},
    }
    assert min_p.chosen(rows, 0.9) == {
        "temperature alone": None, "top-p": "top-p, temperature 1, 0.6", "min-p": None,
    }  # fmt: skip


def test_a_row_of_the_dispute_counts_true_sentences_in_both_halves(monkeypatch):
    monkeypatch.setitem(min_p.SETTING, "prompts", 4)
    monkeypatch.setitem(min_p.SETTING, "max_new_tokens", 12)
    found = min_p.row(experiments.bundled(), "min-p, temperature 1, 0.3")
    assert found.keys() == {"tuning", "test"} and found["tuning"] != found["test"]
    for half in found.values():
        assert half["true"] == half["readable"] * half["consistent"] and half["sentences"] >= 2
