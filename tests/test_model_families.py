"""The list of families in the book's models page is what its script finds."""

import model_families
import pytest
import torch
import transformers as hf
from torch.utils._pytree import tree_leaves

from tutorlib.measures import memory
from tutorlib.model.lm import LM

pytestmark = pytest.mark.filterwarnings("ignore:.* cannot be used with a cache")


def check(family):
    assert model_families.on_page()[family] == model_families.tried(family)


@pytest.mark.parametrize("family", ["llama", "hrm_text", "gpt_neo", "xlm-roberta", "trocr", "mamba", "xlnet"])
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


def cached(model, tokens):
    """Bytes of the tensors in the layers of a model's own cache after a call of some tokens: keys, values, indexers."""
    with torch.no_grad():
        output = model(input_ids=torch.arange(tokens)[None] + 3, use_cache=True)
    cache = getattr(output, "past_key_values", None)
    cache = getattr(cache, "self_attention_cache", cache)
    parts = [cache, *getattr(cache, "layers", ())] if cache is not None else []
    states = {id(leaf): leaf for part in parts for leaf in tree_leaves(vars(part)) if torch.is_tensor(leaf)}
    return sum(state.nbytes for state in states.values() if state.ndim > 1)


def check_cache(family):
    try:
        model = model_families.tiny(family)
        own = cached(model, 4)  # fewer tokens than any window has
    except Exception:
        pytest.skip("no tiny version, or its input is not text")
    assert memory.predicted(model.config, 4, dtype="float32").cache == own
    assert memory.predicted(LM(model), 4).cache == own


@pytest.mark.parametrize("family", ["llama", "falcon", "deepseek_v3", "gemma4_text", "mimo_v2_flash", "mamba", "dbrx"])
def test_the_predicted_cache_is_the_models_own(family):
    check_cache(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", model_families.CLASSES)
def test_the_predicted_cache_of_every_family_is_the_models_own(family):
    check_cache(family)
