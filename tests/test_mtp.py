"""Multi-token prediction drafts what transformers' own modules do. That it is exact: `test_lossless.py`.

The outside reference is `MtpModel` and its loop, which read our files beside those of a target of the GLM family.
"""

import json
import math

import pytest
import torch
from conftest import random_model
from draft_networks import best_tree, drafted_anew, law, law_of_modules, mtp_head
from safetensors.torch import load_file, save_file
from test_llama import TEXT, tiny
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM, LlamaConfig

from tutorlib.decoders.mtp import mtp
from tutorlib.drafting.draft_trees import chain_draft, dynamic_tree
from tutorlib.drafting.mtp_head import MtpHead
from tutorlib.loading.formats import load_mtp, save_mtp
from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits
from tutorlib.running.decoding import run

LAYERS, MODULES, INSIDE = 2, 3, 7


@pytest.fixture(scope="module")
def double():
    return LM(random_model("llama", torch.float64))


def glm():
    """A small target with places for modules, whose layers are as in Llama, but for experts."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    config = Glm4MoeConfig(
        vocab_size=19, hidden_size=12, intermediate_size=INSIDE, moe_intermediate_size=INSIDE, num_hidden_layers=LAYERS,
        num_attention_heads=2, num_key_value_heads=1, head_dim=4, rope_parameters=rope, first_k_dense_replace=LAYERS,
        num_nextn_predict_layers=MODULES, max_position_embeddings=64, n_routed_experts=2, num_experts_per_tok=1,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(3)
    model = Glm4MoeForCausalLM(config)
    for weight in model.parameters():
        weight.data.normal_(0, 0.6)
    return model.double().eval()


def in_its_file(head, model, folder):
    """The target's own file with the modules in it, as they are published. Their experts say nothing but one."""
    save_mtp(head, folder / "ours", layers=LAYERS)
    ours = load_file(folder / "ours" / "model.safetensors")
    modules = {name.replace(".mlp.", ".mlp.shared_experts."): weight for name, weight in ours.items()}
    for number in range(LAYERS, LAYERS + MODULES):
        inside = f"model.layers.{number}.mlp"
        modules |= {
            f"{inside}.gate.weight": torch.zeros(2, 12),
            f"{inside}.gate.e_score_correction_bias": torch.zeros(2),
        }
        for expert in range(2):
            for name, shape in {"gate": (INSIDE, 12), "up": (INSIDE, 12), "down": (12, INSIDE)}.items():
                modules[f"{inside}.experts.{expert}.{name}_proj.weight"] = torch.zeros(shape)
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    save_file(load_file(path) | {name: weight.double() for name, weight in modules.items()}, path, {"format": "pt"})


def test_several_modules_draft_and_write_what_transformers_does(tmp_path, monkeypatch):
    model = glm()
    target = LM(model)
    in_its_file(mtp_head(target, modules=MODULES), model, tmp_path)
    head = load_mtp(tmp_path / "ours", target)
    # Names of layers after the target's last, which transformers only knows for the published numbers of layers.
    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.[234]\..*"])
    theirs = Glm4MoeForCausalLM.from_pretrained(tmp_path, dtype=torch.float64, experts_implementation="eager")
    calls, forward = [], theirs.forward

    def counted(*args, **kwargs):
        calls.append(kwargs["input_ids"][0].tolist())
        return forward(*args, **kwargs)

    theirs.forward = counted
    for prompt in ([3, 1, 4, 1], [5, 9, 2, 6, 5, 3]):
        calls.clear()
        trace = run(mtp(target, head, prompt, shape=chain_draft(MODULES)), 30)
        made = theirs.generate(
            torch.tensor([prompt]), position_ids=torch.arange(len(prompt))[None], use_mtp=True,
            max_new_tokens=30, do_sample=False, pad_token_id=0,
        )  # fmt: skip
        assert made[0, len(prompt) :].tolist() == trace.tokens
        assert [call[1:] for call in calls[1:-1]] == [step.drafted for step in trace.steps[1:-1]]


@pytest.mark.parametrize(("modules", "deep"), [(1, 4), (3, 3)])
def test_it_drafts_what_the_modules_make_of_the_whole_text(double, modules, deep):
    head = mtp_head(double, modules=modules)
    for shape, nodes, top_k in ((chain_draft(4), 4, 1), (dynamic_tree(7, 4, 3), 7, 3)):
        trace = run(mtp(double, head, [3, 1], shape=shape), 16)

        def expected(guess, room, nodes=nodes, top_k=top_k):
            return best_tree(guess, nodes, min(deep, room), top_k)[0]

        drafted_anew(double, head, expected, trace, law=law if modules == 1 else law_of_modules)
        assert max(len(step.drafted) for step in trace.steps) >= deep


def test_the_compiled_loops_compute_the_same():
    target = LM(tiny())
    head = mtp_head(target, make=lambda _, modules: MtpHead(LlamaConfig(**tiny().config.to_dict()), modules))
    session = target.session(TEXT, hidden=head.feature_layers)
    session.feed()
    features, made = head.features(session.prompt_hidden), []
    for dtype in (torch.float32, torch.float64):
        drafts = head.to(dtype).session(target)
        assert (drafts._loops is not None) == (dtype == torch.float32)
        rows = [
            drafts.feed(TEXT[1:5], features[:4]),
            drafts.feed(TEXT[5:8], features[4:7]),
            drafts.grow([1, 2], [-1, -1]),
        ]
        made.append(torch.cat([*rows, drafts.grow([3], [1])]).float())
    torch.testing.assert_close(*made, rtol=0, atol=1e-4)


# -- bad input --


def test_bad_arguments_are_named_at_the_call(double):
    head = mtp_head(double, modules=2)
    for arguments, said in {
        (double, object()): "head must be an MtpHead, got object: family.mtp",
        (double, mtp_head(LM(tiny()))): "does not fit",
    }.items():
        with pytest.raises(ValueError, match=said):
            mtp(*arguments, [1])
    with pytest.raises(ValueError, match="shape must be a function of a draft"):
        mtp(double, head, [1], shape=3)
    with pytest.raises(ValueError, match="modules is how many there are, a whole number of 1 or more, got 0"):
        mtp_head(double, modules=0)
    drafts = head.session(double)
    with pytest.raises(ValueError, match="each token needs the feature of the token before it"):
        drafts.feed([1, 2], torch.zeros(1, double.width))
    with pytest.raises(ValueError, match="99.* are not all tokens of a vocabulary of 19"):
        drafts.feed([99], torch.zeros(1, double.width))
    with pytest.raises(NaNLogits, match="the draft network returned logits that are NaN"):
        drafts.feed([1], torch.full((1, double.width), math.nan))
    assert drafts.length == 0


def test_what_was_saved_is_loaded_and_what_is_wrong_is_named(double, tmp_path):
    head = mtp_head(double, modules=2)
    path = save_mtp(head, tmp_path, base="somebody/model", layers=double.layers)
    assert f"model.layers.{double.layers + 1}.shared_head.norm.weight" in load_file(path)
    again = load_mtp(tmp_path, double)
    for name, weight in again.state_dict().items():
        own = name == "embed_tokens.weight"
        assert torch.equal(weight, double.model.get_input_embeddings().weight if own else head.state_dict()[name])
    good = json.loads((tmp_path / "config.json").read_text())
    wrong = {
        "architectures": (["LlamaForCausalLM"], "holds no modules of MTP"),
        "num_nextn_predict_layers": (3, r"layers.5.self_attn.q_proj.weight"),
        "num_hidden_layers": (9, "model.layers.9.self_attn"),
        "vocab_size": (20, "the draft network knows 20 tokens, the target 19"),
        "hidden_size": (1 << 20, "do not belong together"),
    }
    for key, (value, said) in wrong.items():
        (tmp_path / "config.json").write_text(json.dumps(good | {key: value}))
        with pytest.raises(ValueError, match=said):
            load_mtp(tmp_path, double)
