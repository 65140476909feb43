"""Which models there are: found by their names, and as the table on the page says."""

import re
from pathlib import Path

import pytest

from tutorlib import models
from tutorlib.loading import wheel

PAGE = Path(__file__).parents[1] / "book" / "models.md"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("storywolrd", "storyworld"), ("gpt-2", "gpt2"), ("gpt2large", "openai-community/gpt2-large"),
        ("Quen2.5", "qwen2.5"), ("opt-125", "facebook/opt-125m"), ("gema2", "gemma-2"), ("vicuna7b", "vicuna"),
    ],
)  # fmt: skip
def test_an_unknown_name_suggests_the_nearest(typed, meant):
    with pytest.raises(ValueError, match=f"'{re.escape(typed)}' is no known model.*Did you mean '{re.escape(meant)}'"):
        models.load(typed)


@pytest.mark.parametrize("name", ["zzzzzz", "", "./nowhere", "/nowhere/at/all", "a/b/c", 7, ["gpt2"]])
def test_a_name_that_is_nothing_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        models.load(name)


@pytest.mark.parametrize("name", ["a\0b", "\udcff", "a" * 10_000, "..\\..", "CON", "/dev/null", "owner/name\n", "~"])
def test_odd_names_are_no_models(name):
    with pytest.raises(ValueError, match=r"no known model|holds no model"):
        models.load(name)


@pytest.mark.parametrize("name", ["gpt2", "GPT2", "gpt2-large", "openai-community/gpt2-large"])
def test_a_published_family_is_found_by_its_name_and_its_targets(weights, cache, name):
    cache.add("openai-community/gpt2-large", weights / "target")
    cache.add("openai-community/gpt2", weights / "draft")
    family = models.load(name)
    assert family.published.name == family.name == "gpt2" and family.same_tokenizer
    assert family.target.vocab_size == 300 and family.draft.vocab_size == 300


def row(family):
    """A line of the page's table."""
    links = [f"[{model.hub.partition('/')[2]}]({model.page})" if model else "–" for model in
             (family.target, family.draft, family.other_draft)]  # fmt: skip
    size = f"{family.download:.0f} GB" if family.download >= 10 else f"{family.download:.1f} GB"
    fits = {"float16": "yes, in float16", "4 bits": "target in 4 bits", "no": "no"}[family.t4]
    cells = [f"`{family.name}`", *links, size, family.licence, "yes" if family.gated else "no", fits, family.note]
    return "| " + " | ".join(cells) + " |"


def test_the_page_lists_the_published_families_as_they_are():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert lines == [row(family) for family in models.families()]


def test_the_table_agrees_with_what_is_known_of_the_published_models():
    table = {family.name: family for family in models.families()}
    assert len(table) == len(models.families()) == 11
    assert {name for name, family in table.items() if family.gated} == {"gemma-2", "llama-2"}
    assert {name for name, family in table.items() if family.t4 == "4 bits"} == {"gemma-2", "llama-2", "vicuna"}
    assert {family.t4 for family in table.values()} == {"float16", "4 bits"}
    for family in table.values():
        assert not family.draft or family.target.parameters > 2 * family.draft.parameters
        for model in family.models:  # published in 2 or 4 bytes a weight; shared buffers and rounding aside
            assert 1.8 < model.download * 1000 / model.parameters < 4.6, model.hub
        assert repr(family).startswith(f"{family.name}: ") and family.target.hub in repr(family)
    assert table["smollm2"].target.hub == wheel.ORIGINAL and table["smollm2"].download == 0.093
