"""A fresh model of any family and token ids alone: `generate` gives more than that, and `custom_generate` works."""

import model_families
import pytest
import torch
import transformers as hf
from packaging.version import Version

from tutorlib import LM, custom_generate, run, sample

pytestmark = pytest.mark.filterwarnings("ignore:.* cannot be used with a cache")

IDS = torch.tensor([[5, 7, 9, 11]])
OPTIONS = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
# To these `generate` passes positions from 0 on, though their texts begin at another.
SHIFTED = "In full: does not number positions from 0"
# Of tiny models without any attention layer, `generate` asks how many tokens attention has seen, or shapes do not fit.
FAIL_ALONE = {"bamba", "jamba", "kimi_linear", "xlstm"}
ON_PAGE = model_families.on_page()
WORKING = [name for name, says in ON_PAGE.items() if says == model_families.CACHED or says.startswith("In full")]
QUICK = ("mamba", "xglm")


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WORKING]
)
def test_a_model_of_any_family_takes_ids_alone(family):
    model = model_families.tiny(family)
    if family in FAIL_ALONE or ON_PAGE[family] == SHIFTED:
        expected = [*IDS[0].tolist(), *run(sample(LM(model), IDS[0].tolist()), 4, stop=()).tokens]
    else:
        expected = model.generate(IDS, **OPTIONS)[0].tolist()
    assert model.generate(IDS, custom_generate=custom_generate(sample), **OPTIONS)[0].tolist() == expected


def tiny_with_eyes(family):
    """A tiny random model that reads text and pictures."""
    kind = hf.CONFIG_MAPPING[family]
    default = kind()
    sizes = model_families.SIZES | dict.fromkeys(("embed_dim", "out_hidden_size"), 16)
    sizes |= {"image_size": 8, "patch_size": 4, "depth": 1}

    def smaller(part):
        given = part.to_dict()
        small = {name: size for name, size in sizes.items() if isinstance(given.get(name), (int, float))}
        return type(part)(**small | tokens(given) | model_families.ALSO.get(part.model_type, {}))

    def tokens(given):
        names = [name for name in given if name.endswith(("token_id", "token_index")) and isinstance(given[name], int)]
        return dict.fromkeys((name for name in names if given[name] >= model_families.VOCAB), 3)

    parts = {name: smaller(getattr(default, name)) for name in ("text_config", "vision_config")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return hf.AutoModelForImageTextToText.from_config(kind(**parts, **tokens(default.to_dict()))).float().eval()


@pytest.mark.parametrize(
    "family",
    ["llava", "lfm2_vl", *(pytest.param(name, marks=pytest.mark.slow) for name in
                           ("gemma3", "idefics3", "internvl", "llava_next", "mistral3", "qwen3_vl", "smolvlm"))],
)  # fmt: skip
def test_a_model_with_eyes_takes_text_alone(family):
    model = tiny_with_eyes(family)
    ours = custom_generate(sample)
    assert torch.equal(model.generate(IDS, custom_generate=ours, **OPTIONS), model.generate(IDS, **OPTIONS))
    pictures = {"mm_encoder_outputs": {"image": torch.zeros(1, 4, 16)}}
    refusal = "generate was given mm_encoder_outputs, which these methods cannot hand"
    if Version(hf.__version__) < Version("5.18"):  # it has no such argument yet, and says so itself
        refusal = r"not used by the model: \['mm_encoder_outputs'\]"
    with pytest.raises(ValueError, match=refusal):
        model.generate(IDS, custom_generate=ours, **pictures, **OPTIONS)
