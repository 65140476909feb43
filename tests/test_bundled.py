"""The bundled models are what their card says, and good enough for the chapters that stand on them."""

import json
from pathlib import Path

import pytest
import torch

import tutorlib
from tutorlib import (
    DFlash2Head,
    DFlashHead,
    DSparkHead,
    Eagle3Head,
    EagleHead,
    MedusaHeads,
    MtpHead,
    ParallelHead,
    dflash,
    dspark,
    eagle,
    greedy,
    medusa,
    models,
    mtp,
    parallel_draft,
    run,
)
from tutorlib.drafting.head_parts import TREE
from tutorlib.lab.training import accuracy
from tutorlib.storyworld.questions import opening

WEIGHTS = Path(tutorlib.__file__).parent / "weights" / "storyworld"
FIGURES = json.loads((WEIGHTS / "figures.json").read_text())
TOPICS = ("who has it", "where is it", "how many")


@pytest.fixture(scope="module")
def family():
    return models.load("storyworld", device="cpu")


def test_all_bundled_models_take_at_most_24_megabytes():
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()) <= 24e6


def test_the_target_is_deep_and_narrow_and_the_drafts_shallow(family):
    assert 8 <= family.target.model.config.num_hidden_layers <= 12
    assert family.draft.model.config.num_hidden_layers == family.other_draft.model.config.num_hidden_layers == 1


def test_target_and_draft_share_a_tokenizer_and_the_other_draft_does_not(family):
    text = opening("held out 1")
    assert family.target.encode(text) == family.draft.encode(text) != family.other_draft.encode(text)
    assert family.same_tokenizer
    for lm in (family.target, family.draft, family.other_draft):
        for text in (opening("held out 1"), "Ünlikely {wörds}, 3 times!"):
            assert lm.decode(lm.encode(text)) == text
    assert 500 <= family.target.vocab_size <= 1024


def test_tokenizers_leave_the_spaces_of_a_text_alone_in_every_program():
    # Without this entry, transformers.js removes spaces before punctuation when it decodes.
    written = list(WEIGHTS.parent.rglob("tokenizer_config.json"))
    assert len(written) >= 3
    for path in written:
        assert json.loads(path.read_text(encoding="utf-8"))["clean_up_tokenization_spaces"] is False, path


def test_the_models_write_stories(family):
    for lm in (family.target, family.draft, family.other_draft):
        assert (lm.device.type, lm.dtype) == ("cpu", torch.float32) and lm.stop_tokens
        trace = run(greedy(lm, "Mia is in the"), max_new_tokens=12)
        assert trace.text.isprintable() and len(trace.text.split()) > 3


@pytest.mark.parametrize(
    ("role", "kind", "method"),
    [
        ("medusa", MedusaHeads, medusa),
        ("eagle", EagleHead, eagle),
        ("eagle3", Eagle3Head, eagle),
        ("dflash", DFlashHead, dflash),
        ("mtp", MtpHead, mtp),
        ("parallel", ParallelHead, parallel_draft),
        ("dspark", DSparkHead, dspark),
        ("dflash2", DFlash2Head, dflash),
    ],
)
def test_the_heads_guess_for_the_target(family, role, kind, method):
    prompt = "Mia, Ben and Ada lived in a small village. Mia was at the mill."
    heads = getattr(family, role)
    assert isinstance(heads, kind) and {weight.dtype for weight in heads.parameters()} == {torch.float32}
    plain = run(greedy(family.target, prompt), 20)
    guessed = run(method(family.target, heads, prompt), 20)
    assert guessed.tokens == plain.tokens and guessed.target_calls < plain.target_calls / 2
    # What was measured to pay comes with them.
    assert heads.accuracies is not None if role == "medusa" else heads.tree != TREE


def test_the_target_looks_facts_up_and_a_draft_cannot():
    for topic in TOPICS:
        assert FIGURES["target"][f"{topic}, right"] >= 0.90
        assert FIGURES["draft"][f"{topic}, right"] <= 0.70


def test_the_target_tells_readable_consistent_stories_and_the_draft_worse_ones():
    assert FIGURES["target"]["readable"] >= 0.97
    assert FIGURES["target"]["consistent"] >= 0.92
    assert FIGURES["draft"]["consistent"] <= FIGURES["target"]["consistent"] - 0.15


def test_the_draft_is_accepted_often_but_not_always():
    assert 0.80 <= FIGURES["draft"]["acceptance"] <= 0.95


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("medusa", 2.4),
        ("eagle", 4.0),
        ("eagle3", 4.0),
        ("dflash", 4.0),
        ("dspark", 4.0),
        ("dflash2", 4.0),
        ("mtp", 4.0),
        ("parallel", 4.0),
    ],
)
def test_the_networks_on_the_target_make_enough_tokens_a_call(name, least):
    """Greedily, with the trees that they come with, on openings that nothing bundled has learnt from."""
    assert FIGURES[name]["tokens per call"] >= least and FIGURES[name].get("nodes", 8) in range(8, 17)


def test_the_card_tells_the_figures():
    text = (WEIGHTS / "MODEL_CARD.md").read_text()
    assert all(str(figure) in text for figures in FIGURES.values() for figure in figures.values())


@pytest.mark.slow
def test_the_card_and_the_shipped_files_agree(family):
    """A small part of the card measured again, from the same held-out questions."""
    again = accuracy.answer_shares(family.target.model, family.target.tokenizer)
    for topic in TOPICS:
        assert again[topic] == pytest.approx(FIGURES["target"][f"{topic}, right"], abs=0.02)


@pytest.mark.slow
def test_stories_end_by_themselves(family):
    told = accuracy.sampled_stories(family.target.model, family.target.tokenizer, prompts=20)
    assert sum(tokens[-1] in family.target.stop_tokens for _, tokens, _ in told) >= 19
