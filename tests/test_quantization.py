"""Models in eight and four bits: what may be asked for, what comes of it, and that everything works on such a model."""

import functools
import importlib.util
import json
import re
import warnings
from types import SimpleNamespace

import pytest
import torch
from conftest import Float64Throughout
from lossless import EXACT, distance, on
from test_models import write_heads
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tutorlib import Seeded, greedy, models, run, run_batch, sample, sample_batch, speculative, suffix_lookup
from tutorlib.decoders.eagle import eagle
from tutorlib.decoders.medusa import medusa
from tutorlib.lab import bench
from tutorlib.loading import pretrained
from tutorlib.loading.formats.files import output_weight
from tutorlib.loading.formats.ngram_files import KIND
from tutorlib.loading.pretrained import load_model
from tutorlib.measures.cost import weight_bytes
from tutorlib.model import quantization
from tutorlib.model.cache import KeyValues
from tutorlib.model.eight_bits import EightBits
from tutorlib.model.llama import LoopCache
from tutorlib.model.lm import LM
from tutorlib.model.quantization import Form, layer_bytes

bitsandbytes = pytest.importorskip("bitsandbytes")

NF4, DOUBLE, INT8 = Form("nf4"), Form("nf4", True), Form("int8")
EACH = pytest.mark.parametrize("how", [{"quantize": "nf4"}, {"quantize": "nf4", "double_quantization": False},
                                       {"quantize": "int8"}], ids=["double", "nf4", "int8"])  # fmt: skip


def forms_of(lm):
    """How the layers of a model are kept, all alike, and what the output head is."""
    layers = [module for module in lm.model.modules() if isinstance(module, torch.nn.Linear)]
    head = lm.model.get_output_embeddings()
    (form,) = {quantization.form_of(layer) for layer in layers if layer is not head}
    assert type(head) is torch.nn.Linear and head.weight is lm.model.get_input_embeddings().weight
    return form


# What may be asked for.


def test_a_layer_takes_the_bytes_counted_by_hand():
    assert layer_bytes(192, 192, INT8) == 192 * 192 + 4 * 192
    assert layer_bytes(192, 192, NF4) == 18432 + 4 * 576 + 64
    assert layer_bytes(192, 192, DOUBLE) == 18432 + 576 + 4 * 3 + 4 + 1024 + 64
    assert layer_bytes(3, 5, NF4) == 8 + 4 + 64, "half a byte and a block that are not full count as full ones"


def test_a_name_is_for_the_target_and_its_draft_and_a_dict_for_those_that_it_names(weights):
    family = models.load("storyworld", quantize="nf4")
    assert family.forms == {"target": DOUBLE, "draft": DOUBLE}
    assert repr(family).endswith("cpu, float32, target in nf4 (double), draft in nf4 (double))")
    assert forms_of(family.target) == forms_of(family.draft) == DOUBLE and forms_of(family.other_draft) is None
    family = models.load("storyworld", quantize={"draft": "nf4", "other_draft": "int8"}, double_quantization=False)
    assert forms_of(family.draft) == NF4 and forms_of(family.other_draft) == INT8 and forms_of(family.target) is None
    assert models.load("storyworld").forms == {}


def test_an_n_gram_draft_stays_as_it_is_and_cannot_be_asked_for(weights):
    folder = weights.parent / "counts"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": KIND}))
    assert models.load("storyworld", draft=folder, quantize="int8").forms == {"target": INT8}
    with pytest.raises(ValueError, match="'draft' is no language model of this family .* expected 'target'"):
        models.load("storyworld", draft=folder, quantize={"draft": "int8"})


@pytest.mark.parametrize(
    ("how", "says"),
    [
        *(({"quantize": form}, 'expected "nf4" or "int8"') for form in ("fp4", "4 bits", 4, {}, {"target": "int4"})),
        *(({"quantize": {role: "nf4"}}, f"{role!r} is no language model of this family")
          for role in ("medusa", "traget")),
        ({"quantize": "int8", "double_quantization": True}, 'is for quantize="nf4" alone'),
        ({"quantize": {"target": "int8"}, "double_quantization": False}, 'is for quantize="nf4" alone'),
        ({"double_quantization": False}, 'is for quantize="nf4" alone'),
        ({"quantize": "nf4", "double_quantization": "yes"}, "double_quantization='yes': expected True or False"),
        ({"quantize": "nf4", "dtype": "float64"}, "dtype=float64 with quantize=: bitsandbytes takes float32"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_the_call(weights, how, says):
    write_heads(weights / "medusa", "medusa")
    models.write_checksums(weights)
    with pytest.raises(ValueError, match=re.escape(says)):
        models.load("storyworld", **how)


def test_a_role_that_the_family_lacks_is_named(weights):
    with pytest.raises(ValueError, match="'draft' is no language model of this family .* expected 'target'"):
        models.load(weights / "target", quantize={"draft": "nf4"})


@pytest.mark.parametrize("missing", [("bitsandbytes",), ("bitsandbytes", "accelerate")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(weights, monkeypatch, missing):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    names = " ".join(missing)
    says = f"`pip install {names}`, or on Colab `%pip install --no-deps {names}`"
    with pytest.raises(ImportError, match=re.escape(says)):
        models.load("storyworld", quantize="nf4")
    assert models.load("storyworld").target


def test_a_device_that_bitsandbytes_does_not_support_is_refused_by_name(weights, monkeypatch):
    monkeypatch.setattr(bitsandbytes, "supported_torch_devices", {"cuda", "cpu"})
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match='device="mps" with quantize=: bitsandbytes .* only cpu, cuda'):
        models.load("storyworld", device="mps", quantize="nf4")


def test_a_model_that_is_quantized_already_is_not_quantized_again(weights):
    place = weights / "target" / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(ValueError, match=r"is already quantized \(gptq, .* asks for int8: load it without quantize="):
        _ = models.load(weights / "target", quantize="int8").target


def test_a_model_that_does_not_fit_in_four_bits_is_refused_before_it_is_loaded(weights, monkeypatch):
    """Llama-2-7B: 6.48 billion weights in linear layers, at 0.516 bytes, and 0.26 billion others in sixteen bits."""
    sizes = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    LlamaConfig(vocab_size=32000, tie_word_embeddings=False, **sizes).save_pretrained(weights / "target")
    (weights / "target" / "model.safetensors").unlink()
    with open(weights / "target" / "pytorch_model.bin", "wb") as file:
        file.truncate(13_476_831_232)  # an empty file of that size takes no room
    memory = SimpleNamespace(available=0)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    for quantize, double, free, says in (
        ("nf4", None, 3_700_000, r"in nf4 \(double\) take 3.9 GB, .* load\('\w[\w.-]*', quantize='nf4'\)$"),
        ("nf4", False, 3_950_000, r"in nf4 take 4.2 GB"),
        ("int8", None, 6_500_000, r"in int8 take 7.0 GB, .* quantize='int8'\), or fewer bytes .*\(quantize='nf4'\)"),
    ):
        memory.available = free * 1024
        how = {"dtype": "float16", "quantize": quantize, "double_quantization": double}
        with pytest.raises(MemoryError, match="6,738 million weights " + says):
            _ = models.load(weights / "target", **how).target
    memory.available = 4_096_000_000  # enough: it is the broken file that is wrong now
    with pytest.raises(ValueError, match="the pickle is broken|cannot be loaded"):
        _ = models.load(weights / "target", dtype="float16", quantize="nf4").target


# What comes, and what works on it.


@EACH
def test_everything_works_on_a_quantized_target_and_says_nothing(weights, how, capfd, recwarn, caplog):
    for role in ("medusa", "eagle", "eagle3"):
        write_heads(weights / role, role)
    models.write_checksums(weights)
    family = models.load("storyworld", **how)
    target, prompt = family.target, "Mia was"
    session = target.session(prompt, hidden=[0, -1])
    assert session.feed().isfinite().all() and session.prompt_hidden[-1].dtype == torch.float32
    assert isinstance(session._cache, (KeyValues, LoopCache)), "the model is computed with a cache"
    plain = run(greedy(target, prompt), 10, stop=()).tokens
    for steps in (speculative(target, family.draft, prompt), medusa(target, family.medusa, prompt),
                  eagle(target, family.eagle, prompt), eagle(target, family.eagle3, prompt)):  # fmt: skip
        assert run(steps, 10, stop=()).tokens == plain
    assert capfd.readouterr() == ("", "") and not recwarn.list and not caplog.records


@pytest.mark.parametrize("double", [False, True])
def test_four_bits_are_computed_in_the_familys_type_and_stay_as_they_were_quantized(weights, double):
    lm = models.load("storyworld", quantize="nf4", double_quantization=double).target
    layer, before = lm.model.model.layers[0].mlp.up_proj, weight_bytes(lm)
    given = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    weight = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    with torch.inference_mode():
        assert torch.allclose(layer(given), F.linear(given, weight), atol=1e-6)
    assert weight_bytes(lm) == before and forms_of(lm) == Form("nf4", double)


@pytest.mark.parametrize("form", ["nf4", "int8"])
def test_the_bundled_family_can_be_quantized(form):
    family, prompt = models.load("storyworld", quantize=form), "Mia is in the"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (greedy(family.target, prompt), speculative(family.target, family.draft, prompt)):
            assert run(steps, 5, stop=()).text.isprintable()


# Eight bits on a processor, without bitsandbytes.


def in_bitsandbytes(folder):
    return load_model(folder, str(folder), torch.device("cpu"), torch.float32, INT8)


@pytest.fixture
def folder(tmp_path):
    """A random Llama of a size that the loops take, with an output head of its own."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 64}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).save_pretrained(tmp_path)
    return tmp_path


def test_a_llama_in_int8_on_a_processor_is_its_copy_in_eight_bits_and_needs_no_other_package(folder, monkeypatch):
    find = importlib.util.find_spec
    missing = ("bitsandbytes", "accelerate")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    family, plain = models.load(folder, device="cpu", quantize="int8"), models.load(folder, device="cpu").target
    target, copy = family.target, EightBits(plain)
    assert isinstance(target, EightBits)
    assert target.in_full([3, 1, 4], 3)[0].equal(copy.in_full([3, 1, 4], 3)[0])
    matrices = [module.weight for module in target.model.modules() if isinstance(module, torch.nn.Linear)]
    assert len(matrices) == 2 * 7 + 1 and all(weight.is_meta for weight in matrices)
    assert weight_bytes(target) == weight_bytes(copy) < weight_bytes(plain)
    assert target.own_bytes == target.nbytes and copy.own_bytes < copy.nbytes
    with pytest.raises(ValueError, match="is a copy in eight bits already"):
        _ = family.quantized
    with pytest.raises(ValueError, match="has given up its matrices for those in eight bits: load it without"):
        LM(target.model).session([3, 1]).feed()
    with pytest.raises(ValueError, match="has no output head of shape"):
        output_weight(target)


@pytest.mark.parametrize("kind", ["gpt2", "bfloat16", "no memory"])
def test_other_models_in_int8_are_left_to_bitsandbytes(folder, monkeypatch, kind):
    if kind == "gpt2":
        GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).save_pretrained(folder)
    elif kind == "no memory":

        def load(folder, name, device, dtype, form=None, placement=None):
            if form is None:
                raise MemoryError
            return load_model(folder, name, device, dtype, form, placement)

        monkeypatch.setattr(pretrained, "load_model", load)
        monkeypatch.setattr(models, "load_model", load)
    how = {"device": "cpu", "quantize": "int8", "dtype": "bfloat16" if kind == "bfloat16" else None}
    model = models.load(folder, **how).target.model
    assert any(quantization.form_of(module) == INT8 for module in model.modules()) or kind == "gpt2"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else find(name))
    with pytest.raises(ImportError, match="quantize= needs bitsandbytes: `pip install bitsandbytes`"):
        _ = models.load(folder, **how).target


def test_a_target_in_int8_writes_its_own_greedy_text_with_drafts_and_in_a_batch():
    """On village texts, by the loops: rows do not depend on their neighbours."""
    family = models.load("storyworld", device="cpu", quantize="int8")
    target, prompts = family.target, bench.story_prompts(family.target, 3)
    plain = [run(greedy(target, prompt), 40, stop=()).tokens for prompt in prompts]
    for method in (
        lambda prompt: speculative(target, family.draft, prompt),
        lambda prompt: suffix_lookup(target, prompt),
        lambda prompt: medusa(target, family.medusa, prompt),
        lambda prompt: eagle(target, family.eagle, prompt),
    ):
        assert [run(method(prompt), 40, stop=()).tokens for prompt in prompts] == plain
    alone = [run(sample(target, prompt, rng=Seeded(row)), 40, stop=()).tokens for row, prompt in enumerate(prompts)]
    rngs = [Seeded(row) for row in range(len(prompts))]
    together = run_batch(sample_batch(target, prompts, rngs=rngs), 40, stop=(), progress=False)
    assert [trace.tokens for trace in together] == alone
    batch = target.batch(prompts).feed([[1], [], [2, 3]])
    for rows, prompt, more in zip(batch, prompts, ([1], [], [2, 3])):
        assert rows.equal(target.session(prompt).feed(more)), "the same bits"


def test_a_row_of_a_layer_in_int8_does_not_depend_on_the_other_rows_of_its_call(weights):
    lm = LM(in_bitsandbytes(weights / "target"))
    layer, rows = lm.model.model.layers[0].mlp.up_proj, torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    rows[2, 3] = 20.0  # an outlier
    with torch.inference_mode():
        assert torch.equal(layer(rows), torch.cat([layer(row[None]) for row in rows]))
    for module in lm.model.modules():
        if quantization.form_of(module) == INT8:
            module.state.threshold = 6.0  # as others load it
    with pytest.warns(UserWarning, match="llm_int8_threshold=0.0"):
        LM(lm.model)


# What is kept: a draft decides how quickly a text comes, a target which text.


_ROUNDING = [*Float64Throughout.ROUNDING, (torch.Tensor, "float")]
_ROUNDING = [(place, name, getattr(place, name)) for place, name in _ROUNDING]


def in_its_own_type(model):
    """The model, which computes in float32 as ever while `exactly` keeps others in float64."""
    forward = model.forward

    @functools.wraps(forward)
    def call(*args, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            for place, name, usual in _ROUNDING:
                patch.setattr(place, name, usual)
            return forward(*args, **kwargs)

    model.forward = call
    return model


@pytest.fixture(scope="module")
def small_of(tmp_path_factory):
    """`small_of(vocab)`: a random Llama with so many tokens, whose layers are 64 wide: in float64, and in four bits."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"bos_token_id": None, "eos_token_id": None, "max_position_embeddings": 16, "initializer_range": 0.3}

    def made(vocab):
        folder = tmp_path_factory.mktemp("small")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **sizes))
        model.save_pretrained(folder)
        return LM(model.double().eval()), LM(in_its_own_type(models.load(folder, quantize="nf4").target.model))

    return made


@pytest.fixture(scope="module")
def small(small_of):
    return small_of(3)


@pytest.mark.slow
def test_a_draft_in_four_bits_keeps_the_targets_distribution_exactly(small, small_of):
    target, quantized = small
    assert distance(on(speculative, quantized), target, [0, 2, 1], 3, gamma=1) < EXACT
    target, quantized = small_of(2)  # two tokens: a thirtieth of the ways to draw two drafts after each other
    assert distance(on(speculative, quantized), target, [1], 3, gamma=2) < EXACT


@pytest.mark.slow
def test_a_target_in_four_bits_has_a_distribution_of_its_own_which_speculation_keeps(small):
    target, quantized = small

    def with_it(lm, prompt, **how):
        return speculative(quantized, lm, prompt, gamma=1, **how)

    of_sampling = distance(lambda lm, prompt, **how: sample(quantized, prompt, **how), target, [1], 3)
    of_speculation = distance(with_it, target, [1], 3)
    assert of_sampling > 0.01 and of_speculation == pytest.approx(of_sampling, abs=1e-5)
    assert distance(on(speculative, target), quantized, [1], 3, gamma=1) < 1e-5, "in float32, to its rounding"
