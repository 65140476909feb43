"""The list of families in the book's models page is what its script finds."""

import model_families
import pytest
import transformers as hf

pytestmark = pytest.mark.filterwarnings("ignore:.* cannot be used with a cache")


def check(family):
    assert model_families.on_page()[family] == model_families.tried(family)


@pytest.mark.parametrize("family", ["llama", "gpt_neo", "xlm-roberta", "trocr", "mamba", "xlnet"])
def test_the_page_says_what_comes_of_a_family(family):
    check(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", list(model_families.CLASSES)[::8])
def test_the_page_says_what_comes_of_every_eighth_family(family):
    check(family)


def test_the_page_lists_every_family_of_the_version_that_it_names():
    page = model_families.PAGE.read_text(encoding="utf-8")
    if f"transformers {hf.__version__}:" in page:
        assert set(model_families.on_page()) == set(model_families.CLASSES)
    assert page.count(model_families.BEGIN) == page.count(model_families.END) == 1
