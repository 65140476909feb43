"""An n-gram model counts right, its rows are distributions, and it drafts like any model. Its files are checked."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lossless import METHODS, distance, on
from safetensors.numpy import load_file, save_file
from tiny_family import write_model

import tutorlib
from tutorlib import models
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.train_ngram import count_ngrams, discount, made_to_fit, prune
from tutorlib.loading.formats.ngram_files import load_ngram, save_ngram
from tutorlib.model.ngram import NgramLM
from tutorlib.model.table import TableLM

BUNDLED = Path(tutorlib.__file__).parent / "weights" / "smollm2" / "draft"


def texts(vocab_size=5, count=8, length=30, seed=0):
    """Random texts in which some tokens are rare."""
    draw = random.Random(seed)
    return [[min(draw.randrange(vocab_size), draw.randrange(vocab_size)) for _ in range(length)] for _ in range(count)]


def model_of(some, order, vocab_size=5, **lm):
    return made_to_fit(count_ngrams(some, order, vocab_size), 1, **lm)


def by_hand(some, order, vocab_size, context):
    """The formula of Ney, Essen and Kneser, counted with a dictionary: probabilities of all tokens after a context."""
    probs = [1 / vocab_size] * vocab_size
    for length in range(min(order, len(context)) + 1):
        counts = Counter(tuple(t[i : i + length + 1]) for t in some for i in range(len(t) - length))
        of_counts = Counter(counts.values())
        d = of_counts[1] / (of_counts[1] + 2 * of_counts[2]) if of_counts[1] else 0.5
        before = tuple(context[len(context) - length :])
        seen = sum(len(t) for t in some) if not before else sum(
            tuple(t[i : i + length]) == before for t in some for i in range(len(t) - length + 1)
        )  # fmt: skip
        if not seen:
            break
        kept = [max(counts[(*before, w)] - d, 0) / seen for w in range(vocab_size)]
        probs = [mine + (1 - sum(kept)) * shorter for mine, shorter in zip(kept, probs, strict=True)]
    return probs


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_rows_are_those_of_the_formula(order):
    some = texts()
    lm = model_of(some, order)
    for context in ([], [4], [0, 1], [4, 4, 4], [1, 0, 2], [3, 1, 0, 0], [4, 3, 4, 3, 4]):
        assert lm.log_probs(context).exp().tolist() == pytest.approx(by_hand(some, order, 5, context), abs=1e-6)


def test_rows_sum_to_one_and_leave_no_token_out_with_n_grams_left_out_too():
    levels = count_ngrams(texts(50), 3, 50)
    for least in ([1, 1, 1, 1], [1, 2, 2, 3], [1, 9, 9, 9]):
        lm = NgramLM(prune(levels, least), [discount(level.counts) for level in levels])
        for context in ([], [7], [0, 0], *texts(50, 4, 3, seed=1), *texts(50, 4, 9, seed=2)):
            row = lm.log_probs(context).double()
            assert float(row.exp().sum()) == pytest.approx(1, abs=1e-6) and bool(row.isfinite().all())


def test_the_rarest_n_grams_are_left_out_first_and_the_longest_of_them():
    levels = count_ngrams(texts(8, 40), 3, 8)
    all_of_them = made_to_fit(levels, 1)
    assert [len(level.tokens) for level in all_of_them.levels] == [len(level.tokens) for level in levels]
    smaller = made_to_fit(levels, 0.0015)
    kept = [len(level.tokens) / len(before.tokens) for level, before in zip(smaller.levels, levels, strict=True)]
    assert kept[1] == 1 and kept[2] > kept[3] and kept[3] < 0.5
    for level, before in zip(smaller.levels[1:], levels[1:], strict=True):
        assert level.counts.sum() == before.counts[before.counts >= level.counts.min()].sum()
    with pytest.raises(ValueError, match="single tokens alone take .* MB, more than 1e-05: allow more"):
        made_to_fit(levels, 0.00001)


def test_its_sessions_and_batches_forget_and_go_other_ways():
    lm = model_of(texts(), 3)
    session = lm.session([1, 2])
    session.feed([3, 4])
    session.rollback(2)
    assert torch.equal(session.feed([0, 1])[-1], lm.log_probs([1, 2, 0, 1]))
    assert torch.equal(session.advance_to([1, 3])[-1], lm.log_probs([1, 3])) and lm.calls == session.calls == 3
    batch = lm.batch([[1, 2], [3]])
    batch.feed([[], [0, 1]])
    batch.rollback([0, 1])
    rows = batch.feed([[4], [2]])
    assert torch.equal(rows[0][-1], lm.log_probs([1, 2, 4])) and torch.equal(rows[1][-1], lm.log_probs([3, 0, 2]))


@pytest.mark.parametrize(("method", "gamma", "length"), [("speculative", 2, 4), ("speculative_batch", 1, 3)])
def test_what_it_drafts_changes_no_probability(method, gamma, length):
    draft = model_of(texts(2), 2, 2)
    assert distance(on(METHODS[method], draft), TableLM.random(2, 2, 5), [0, 1], length, gamma=gamma) < 1e-9


def test_a_draft_that_counted_the_targets_texts_is_accepted_more_often():
    target = TableLM.random(5, 2, 1)
    written = [run_of(target, seed) for seed in range(60)]
    of_all, of_nothing = model_of(written, 2), model_of([[0]], 0)
    rates = [acceptance(target, draft) for draft in (of_all, of_nothing)]
    assert rates[0] > 0.8 > 0.75 > rates[1]


def run_of(target, seed):
    return tutorlib.run(tutorlib.sample(target, [0], rng=tutorlib.Seeded(seed)), 40).tokens


def acceptance(target, draft):
    return tutorlib.run(tutorlib.speculative(target, draft, [0], rng=tutorlib.Seeded(0)), 60, progress=False).acceptance


# -- files --


@pytest.fixture
def written(tmp_path):
    """A model in a folder, and what it drafts for."""
    lm = model_of(texts(), 2)
    save_ngram(lm, tmp_path / "draft", base="somebody/some-model")
    return tmp_path / "draft", SimpleNamespace(
        vocab_size=5, tokenizer=None, stop_tokens=(4,), device=torch.device("cpu")
    )


def test_what_is_written_is_read(written):
    folder, target = written
    lm = load_ngram(folder, target)
    for context in itertools.product(range(5), repeat=2):
        assert torch.equal(lm.log_probs(context), model_of(texts(), 2).log_probs(context))
    assert lm.stop_tokens == (4,) and lm.order == 2


def test_a_draft_of_another_vocabulary_is_refused(written):
    folder, target = written
    target.vocab_size = 6
    with pytest.raises(ValueError, match=r"5 tokens of somebody/some-model.*another vocabulary, of 6: count texts of"):
        load_ngram(folder, target)


def test_the_same_number_of_other_tokens_is_another_vocabulary(tmp_path):
    one, other = (TableLM.random(list(letters), 1, 0) for letters in ("abcde", "vwxyz"))
    save_ngram(model_of(texts(), 1, tokenizer=one.tokenizer), tmp_path)
    assert load_ngram(tmp_path, one).tokenizer is one.tokenizer
    with pytest.raises(ValueError, match="has another vocabulary, of 5"):
        load_ngram(tmp_path, other)


def with_array(name, change):
    def damage(folder):
        arrays = load_file(folder / "model.safetensors")
        arrays[name] = change(arrays[name])
        save_file({name: array for name, array in arrays.items() if array is not None}, folder / "model.safetensors")

    return damage


def with_setting(key, value):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {key: value}))

    return damage


def truncated(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-9])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (truncated, "half-written or broken"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no tensors: expected model.safetensors"),
        (with_setting("model_type", "medusa"), "not of an n-gram model: its model_type is 'medusa'"),
        (with_setting("order", -1), "order must be a whole number of 0 or more, got -1"),
        (with_setting("order", 1), "2.children, 3.counts, 3.tokens are unknown"),
        (with_setting("discounts", [0.5, 0.5, 1.5]), "discounts must be 3 numbers above 0 and up to 1"),
        (with_array("2.tokens", lambda tokens: None), "2.tokens is missing"),
        (with_array("2.tokens", lambda tokens: tokens[:-1]), "2-grams, by the numbers of those before"),
        (with_array("2.tokens", lambda tokens: tokens[::-1].copy()), "below 5 and in ascending order"),
        (with_array("3.tokens", lambda tokens: tokens + np.uint8(1)), "below 5 and in ascending order"),
        (with_array("3.counts", lambda counts: counts + np.uint8(9)), "3-grams were seen more often than what they"),
        (with_array("1.children", lambda children: children - np.float32(1)), "1-grams must be rows of whole numbers"),
        (with_array("1.counts", lambda counts: -counts.astype(np.int32)), "1-grams must be rows of whole numbers"),
    ],
)
def test_a_file_that_is_not_right_is_named(written, damage, says):
    folder, target = written
    damage(folder)
    with pytest.raises(ValueError, match=says) as raised:
        load_ngram(folder, target)
    assert str(folder) in str(raised.value)


# -- a family's --


def test_the_command_counts_the_texts_that_the_target_tells_and_the_family_drafts_with_it(tmp_path):
    write_model(tmp_path / "family" / "target", 300, "one")
    out = tmp_path / "family" / "draft"
    made = ["ngram", "--target", str(tmp_path / "family"), "--out", str(out), "--runs", str(tmp_path / "runs")]
    made += ["--texts", "64", "--held-out", "8", "--length", "24", "--order", "2", "--quiet"]
    assert main(made) == 0
    log = json.loads((out / "training_log.json").read_text())
    assert log["texts"] == 64 and log["order"] == 2 and len(log["n-grams"]) == 3 and 0 < log["held out"]["right"] <= 1
    family = models.load(tmp_path / "family")
    assert isinstance(family.draft, NgramLM) and family.same_tokenizer
    assert family.draft.stop_tokens == family.target.stop_tokens and family.draft.encode("Mia") == family.target.encode(
        "Mia"
    )
    trace = tutorlib.run(tutorlib.speculative(family.target, family.draft, "Mia is"), 12)
    assert trace.tokens == tutorlib.run(tutorlib.greedy(family.target, "Mia is"), 12).tokens
    with pytest.raises(ValueError, match="cannot be loaded as a language model"):
        print(models.load(out).target)


def test_the_bundled_one_takes_less_than_3_megabytes():
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 3e6
    assert json.loads((BUNDLED / "config.json").read_text())["base_model_name_or_path"].endswith(
        "SmolLM2-135M-Instruct"
    )
