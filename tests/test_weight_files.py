"""Folders as they are published in 2026: loaded as the models that they hold, or refused by what they are."""

import json
import shutil

import pytest
import torch
from conftest import random_model
from layouts import SAFE, change_config, published, with_prediction_layer, write_inside
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    GptOssConfig,
    LlamaConfig,
    LlavaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from tutorlib import greedy, models, run
from tutorlib.loading import pretrained as load_folder
from tutorlib.loading import weight_files
from tutorlib.loading.formats import load_eagle, load_medusa
from tutorlib.measures.memory import predicted, weight_bytes
from tutorlib.model import quantization

IDS = torch.tensor([[5, 7, 9, 11]])


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


# Layers for multi-token prediction.


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"])
def test_layers_for_prediction_that_are_announced_are_left_out_and_named(tmp_path, key):
    model = with_prediction_layer(tmp_path, random_model("llama"), {key: 1})
    with pytest.warns(UserWarning, match=r"10 are not, model.layers.3.\S+ among them: layers for multi-token"):
        found = models.load(tmp_path).target.model
    assert torch.equal(logits(found), logits(model))


@pytest.mark.parametrize("says", [{}, {"num_nextn_predict_layers": 0}, {"mtp_token_id": 9}], ids=str)
def test_layers_that_nothing_announces_are_refused(tmp_path, says):
    with_prediction_layer(tmp_path, random_model("llama"), says)
    says = "9 tensors are of more layers than the config.json .*multi-token prediction, it must say how many"
    with pytest.raises(ValueError, match=says):
        _ = models.load(tmp_path).target


def test_what_is_no_part_of_the_model_is_named(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    save_file(load_file(tmp_path / SAFE) | {"score.weight": torch.ones(2)}, tmp_path / SAFE, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match="not all tensors are used .1 are not, score.weight among them: no part of"):
        _ = models.load(tmp_path).target


# Quantized files.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_eight_bit_floats_are_unpacked_into_the_type_that_is_asked_for(tmp_path, dtype):
    """Each number is the stored one times the scale of its matrix."""
    pytest.importorskip("accelerate")
    model = random_model("llama")
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / SAFE)
    for name in [name for name in tensors if "_proj" in name]:
        scale = tensors[name].abs().max() / 448
        tensors[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
        tensors[name.replace("weight", "weight_scale_inv")] = scale.reshape(1, 1)
        model.get_parameter(name).data = tensors[name].float() * scale
    save_file(tensors, tmp_path / SAFE, metadata={"format": "pt"})
    form = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    change_config(tmp_path, {"quantization_config": form})
    lm = models.load(tmp_path, dtype=dtype).target
    assert lm.dtype == dtype and {weight.dtype for weight in lm.model.parameters()} == {dtype}
    for name, weight in lm.model.named_parameters():
        expected = model.get_parameter(name)
        assert torch.allclose(weight.float(), expected, rtol=2**-8, atol=1e-7)
    assert len(run(greedy(lm, [5, 7, 9]), 6, stop=()).tokens) == 6
    if dtype != torch.bfloat16:
        with pytest.raises(ValueError, match='weights in fp8: with a device_map, they take dtype="bfloat16" alone'):
            _ = models.load(tmp_path, dtype=dtype, device_map={"": "cpu"}).target
    with pytest.raises(ValueError, match=r"is already quantized .fp8, .* load it without quantize="):
        _ = models.load(tmp_path, dtype=dtype, quantize="int8").target


def test_two_weights_in_a_byte_are_two_weights(tmp_path):
    """MXFP4: 32 numbers of four bits, and the byte of their scale, for each expert's matrix."""
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    config = GptOssConfig(vocab_size=61, num_key_value_heads=1, head_dim=16, **sizes, **experts)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    tensors, weights = load_file(tmp_path / SAFE), sum(weight.numel() for weight in model.parameters())
    for name in [name for name in tensors if name.endswith("_proj") and "experts" in name]:
        experts, inputs, outputs = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.full((experts, outputs, inputs // 32), 122, dtype=torch.uint8)
    save_file(tensors, tmp_path / SAFE, metadata={"format": "pt"})
    change_config(tmp_path, {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}})
    scales = sum(tensor.numel() for name, tensor in tensors.items() if name.endswith("_scales"))
    assert weight_files.count_weights([tmp_path / SAFE])[0] == weights + scales
    lm = models.load(tmp_path).target
    assert {weight.dtype for weight in lm.model.parameters()} == {torch.float32}
    assert len(run(greedy(lm, [5, 7, 9]), 6, stop=()).tokens) == 6


# Models that also see, and others that are no language models.


def test_a_model_that_also_sees_continues_a_text(tmp_path):
    text = LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                       max_position_embeddings=64, initializer_range=0.2)  # fmt: skip
    sight = CLIPVisionConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                             image_size=16, patch_size=8)  # fmt: skip
    torch.manual_seed(0)
    config = LlavaConfig(text_config=text, vision_config=sight, image_token_index=60)
    model = AutoModelForImageTextToText.from_config(config).eval()
    model.save_pretrained(tmp_path)
    plain = model.generate(IDS, max_new_tokens=6, do_sample=False, eos_token_id=None)[0, IDS.shape[1] :].tolist()
    assert run(greedy(models.load(tmp_path).target, IDS[0].tolist()), 6, stop=()).tokens == plain
    # What it takes is predicted in four bits too: no more than the weights before, and not nothing.
    form = quantization.forms("nf4", None, ["target"])["target"]
    needed = load_folder._bytes_needed(tmp_path, 0, torch.float32, form)
    assert needed == predicted(config, dtype=torch.float32, quantize="nf4").weights
    assert 0 < needed < weight_bytes(model)


def test_what_does_not_continue_a_text_is_refused_in_a_sentence(tmp_path):
    config = T5Config(vocab_size=61, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="its model_type is 't5', and such models do not continue a text") as caught:
        _ = models.load(tmp_path).target
    assert len(str(caught.value)) < 400


# Adapters of peft.


@pytest.mark.parametrize("whole", [False, True], ids=["alone", "beside a model"])
def test_an_adapter_is_named_as_what_it_is(tmp_path, weights, cache, whole):
    place = tmp_path / "adapter"
    place.mkdir()
    if whole:
        random_model("llama").save_pretrained(place)
    settings = {"peft_type": "LORA", "base_model_name_or_path": "someone/model", "r": 4}
    (place / "adapter_config.json").write_text(json.dumps(settings))
    save_file({"base_model.model.lm_head.lora_A.weight": torch.ones(4, 16)}, place / "adapter_model.safetensors")
    cache.add("someone/adapter", place)
    says = "holds an adapter of peft .LORA. for the model someone/model, says adapter_config.json: merge the two, .*"
    for load in (
        lambda: models.load(place),
        lambda: models.load(weights / "target", draft=place),
        lambda: models.load(weights / "target", eagle3=place),
        lambda: models.load("someone/adapter"),
        lambda: models.load(weights / "target", eagle3="someone/adapter").eagle3,
        lambda: load_eagle(place),
        lambda: load_medusa(place),
    ):
        with pytest.raises(ValueError, match=says):
            load()


# Heads inside the file of their model, or in several files.


@pytest.mark.parametrize("file", [SAFE, "pytorch_model.bin", None], ids=["one file", "pickle", "parts"])
@pytest.mark.parametrize("by", ["folder", "hub name"])
def test_a_model_with_heads_inside_is_a_family_with_both(tmp_path, weights, file, recwarn, cache, by):
    model = random_model("llama")
    write_inside(tmp_path, model, published(), file)
    shutil.copy(weights / "target" / "tokenizer.json", tmp_path)  # without one, a hub's model is not complete
    cache.add("someone/model-with-heads", tmp_path, only="*.*")
    family = models.load(tmp_path if by == "folder" else "someone/model-with-heads")
    assert "medusa=" in repr(family)
    assert torch.equal(logits(family.target.model), logits(model))
    assert all(torch.equal(family.medusa.state_dict()[name], tensor) for name, tensor in published().items())
    assert not [warning for warning in recwarn if "not all tensors" in str(warning.message)]
