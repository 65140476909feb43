"""DFlash drafts what its network makes of the target's features in one pass. That it is exact: `test_lossless.py`.

The outside reference is transformers' own DFlash network and loop, which take our weights as they are.
"""

import json
import math

import pytest
import torch
from conftest import exactly, random_model
from draft_networks import best_tree, dflash_head, drafted_anew, features_of, knowing_block, tree_of_ranks
from lossless import EXACT, distance, on
from safetensors.torch import load_file, save_file
from test_llama import TEXT, tiny
from transformers import LlamaConfig, MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

from tutorlib.decoders.dflash import dflash
from tutorlib.drafting.dflash_head import DFlashHead
from tutorlib.drafting.draft_trees import chain_draft, drawn_chain, dynamic_tree, static_tree
from tutorlib.drafting.head_loops import looped_blocks
from tutorlib.loading import models
from tutorlib.loading.formats import load_dflash, save_dflash
from tutorlib.model import llama
from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Exhaustive, Seeded
from tutorlib.sampling.warp import temperature


def theirs(head):
    """The network of transformers with the weights of ours."""
    config = head.config
    sizes = {
        name: getattr(config, name)
        for name in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "head_dim", "rms_norm_eps", "max_position_embeddings",
        )
    }  # fmt: skip
    made = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(
            **sizes,
            rope_parameters=dict(config.rope_parameters),
            layer_types=["full_attention"] * config.num_hidden_layers,
            block_size=head.block,
            mask_token_id=head.mask,
            target_layer_ids=[layer - 1 for layer in head.feature_layers],
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    made.load_state_dict({names.get(name, name): weight for name, weight in head.state_dict().items()})
    return made.to(head.fc.weight.dtype).eval()


def law(network, head, lm, text):
    """Logits (block - 1, vocab) after a text, by transformers' network, everything computed anew; and its outputs."""
    features = features_of(lm, text, head.feature_layers)[: len(text) - 1]
    embed = lm.model.get_input_embeddings()
    block = embed(torch.tensor([[text[-1], *[head.mask] * (head.block - 1)]]))
    positions = torch.arange(len(text) - 1 + head.block)[None]
    with torch.no_grad():
        made = network(noise_embeds=block, context_hidden_states=features[None], position_ids=positions)
        states = made.last_hidden_state[0, 1:]
        return lm.model.get_output_embeddings()(states), states


@pytest.fixture(scope="module")
def double():
    return LM(random_model("llama", torch.float64))


def test_it_drafts_what_transformers_own_network_makes_of_the_whole_text(double):
    head = dflash_head(double)
    network = theirs(head)
    for shape, expected in {
        chain_draft(3): lambda guess, room: best_tree(guess, 3, min(3, room), 1)[0],
        dynamic_tree(7, 4, 7): lambda guess, room: best_tree(guess, 7, min(3, room), 7)[0],
        static_tree([(0, 1), (1,)]): lambda guess, room: tree_of_ranks(guess, [(0,), (0, 1), (1,)], room),
    }.items():
        trace = run(dflash(double, head, [3, 1, 4], shape=shape), 16)
        cached = {}

        def by_position(head, lm, text, path, cached=cached):
            text = tuple(text)
            cached.setdefault(text, law(network, head, lm, list(text))[0])
            return cached[text][len(path)]

        drafted_anew(double, head, expected, trace, law=by_position)
        assert max(len(step.drafted) for step in trace.steps) >= 3


def test_it_runs_unchanged_in_transformers():
    family = models.load("storyworld", device="cpu")
    target, head, prompt = family.target, family.dflash, family.target.encode("Once upon a time")
    trace = run(dflash(target, head, prompt, shape=chain_draft(head.block - 1)), 40, stop=())
    calls, forward = [], target.model.forward

    def counted(*args, **kwargs):
        calls.append(kwargs["input_ids"][0].tolist())
        return forward(*args, **kwargs)

    target.model.forward = counted
    ids = torch.tensor([prompt])
    made = target.model.generate(
        ids, attention_mask=torch.ones_like(ids), position_ids=torch.arange(len(prompt))[None],
        assistant_model=theirs(head), speculation_type="dflash", max_new_tokens=40, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    target.model.forward = forward
    assert made[0, len(prompt) :].tolist() == trace.tokens and len(calls) == trace.target_calls < 20
    # All drafts but the last, which each of the two cuts to the room in its own way.
    assert [call[1:] for call in calls[1:-1]] == [step.drafted for step in trace.steps[1:-1]]


def test_speculators_converts_its_files_and_guesses_the_same(double, tmp_path):
    converter = pytest.importorskip("speculators.convert.dflash.converter")
    package = pytest.importorskip("speculators")
    head = dflash_head(double, layers=(1, 2))
    double.model.save_pretrained(tmp_path / "target")
    save_dflash(head, tmp_path / "ours")
    # What the converter checks at its end is the model's own reading, below.
    made = converter.DFlashConverter()
    made.convert(tmp_path / "ours", tmp_path / "made", str(tmp_path / "target"), validate=False)
    model = package.SpeculatorModel.from_pretrained(str(tmp_path / "made")).double().eval()
    assert model.target_layer_ids == [1, 2]
    model.config.transformer_layer_config._attn_implementation = "eager"
    text = [3, 1, 4, 1, 5]
    features = features_of(double, text, head.feature_layers)[:-1]
    places = torch.arange(len(text) - 1 + head.block)[None]
    with torch.no_grad():
        context = model.hidden_norm(model.fc(features[None]))
        states = model.embed_tokens(torch.tensor([[text[-1], *[head.mask] * (head.block - 1)]]))
        turned = model.rotary_emb(context, places)
        for layer in model.layers:
            states = layer(
                hidden_states=states, target_hidden=context, attention_mask=None, position_ids=places,
                position_embeddings=turned, use_cache=False,
            )  # fmt: skip
        guesses = model.lm_head(model.norm(states))[0, 1:]
    drafts = head.session(double)
    drafts.feed(text[1:], features)
    torch.testing.assert_close(guesses, drafts.logits, rtol=0, atol=1e-5)  # their norms are in float32


def test_the_compiled_loops_compute_the_same():
    target = LM(tiny())
    config = LlamaConfig(**(tiny().config.to_dict() | {"num_hidden_layers": 2, "head_dim": 16}))
    head = dflash_head(target, block=5, make=lambda _, *rest: DFlashHead(config, *rest))
    session = target.session(TEXT, hidden=head.feature_layers)
    session.feed()
    features, made = head.features(session.prompt_hidden), {}
    for dtype in (torch.float32, torch.float64):
        drafts = head.to(dtype).session(target)
        assert (drafts._loops is not None) == (dtype == torch.float32)
        ends = (0, 4, 5, len(TEXT) - 1)
        made[dtype] = [
            (drafts.feed(TEXT[start + 1 : end + 1], features[start:end]), drafts.logits.float())[1]
            for start, end in zip(ends, ends[1:])
        ]
    for mine, other in zip(*made.values(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)
    head.float()
    with llama.without_loops():
        assert looped_blocks(head, target) is None
    assert looped_blocks(head.half(), target) is None


def test_guesses_do_not_know_each_other_and_that_is_what_acceptance_loses():
    """After c, a target writes ab or ba. A block with the right distribution of each position drafts aa and bb, too."""
    both, rest = [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]
    lm = TableLM({"": rest, "c": both, "ca": [0.0, 1.0, 0.0], "cb": [1.0, 0.0, 0.0], "ab": rest, "ba": rest})
    head = knowing_block(lm, block=3)
    head.forward = lambda *_: torch.tensor([[both, both, both]]).log()
    kept = 0.0
    for rng in Exhaustive():
        steps = dflash(lm, head, "ab", shape=drawn_chain(2), rng=rng)
        assert next(steps).tokens == [2]
        accepted = next(steps).accepted
        kept += rng.weight * accepted
    assert kept == pytest.approx(1.5)
    assert distance(on(dflash, head), lm, "ab", 4, shape=drawn_chain(2)) < EXACT


def test_more_tokens_than_the_block_has_or_the_context_holds_are_not_drafted(double):
    head = dflash_head(double, block=3)
    trace = run(dflash(double, head, [3, 1, 4], shape=chain_draft(9)), 100)
    assert {len(step.drafted) for step in trace.steps} == {0, 1, 2} and trace.stopped == "context"


# -- bad input --


def test_bad_arguments_are_named_at_the_call(double):
    head = dflash_head(double)
    other = LM(random_model("gpt2", torch.float64))
    narrow = dflash_head(LM(tiny()))
    for arguments, said in {
        (double, object()): "head must be a DFlashHead or DFlash2Head, got object: family.dflash",
        (double, narrow): "does not fit",
        (LM(tiny()), head): "does not fit",
    }.items():
        with pytest.raises(ValueError, match=said):
            dflash(*arguments, [1])
    for shape in (dynamic_tree, 3):
        with pytest.raises(ValueError, match="shape must be a function of a draft"):
            dflash(double, head, [1], shape=shape)
    assert dflash(other, dflash_head(other), [1]) is not None
    drafts = head.session(double)
    with pytest.raises(ValueError, match="each token needs the feature of the token before it"):
        drafts.feed([1, 2], torch.zeros(1, 3 * double.width))
    with pytest.raises(ValueError, match="99 is no token of a vocabulary of 19"):
        drafts.feed([99], torch.zeros(1, 3 * double.width))
    with pytest.raises(NaNLogits, match="the DFlash network returned logits that are NaN"):
        drafts.feed([1], torch.full((1, 3 * double.width), math.nan))
    with pytest.raises(ValueError, match="mask must be a token of a vocabulary of 19, got 19"):
        DFlashHead(head.config, (1,), 3, 19)
    with pytest.raises(ValueError, match="needs feature_layers"):
        DFlashHead(head.config, (), 3, 0)


def test_what_was_saved_is_loaded_and_what_is_wrong_is_named(double, tmp_path):
    head = dflash_head(double)
    path = save_dflash(head, tmp_path, base="somebody/model")
    again = load_dflash(tmp_path, double)
    assert (again.block, again.mask, again.feature_layers) == (head.block, head.mask, head.feature_layers)
    for name, weight in head.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    good, tensors = json.loads((tmp_path / "config.json").read_text()), load_file(path)
    wrong = {
        "architectures": (["LlamaForCausalLM"], "is not of a DFlash network"),
        "block_size": (1, "block_size must be a whole number of 2 or more, got 1"),
        "dflash_config": (None, '"dflash_config" must be an object'),
        "num_hidden_layers": (3, "layers.2.input_layernorm.weight"),
        "vocab_size": (20, "the draft network knows 20 tokens, the target 19"),
        "hidden_size": (1 << 20, "do not belong together"),
    }
    for key, (value, said) in wrong.items():
        (tmp_path / "config.json").write_text(json.dumps(good | {key: value}))
        with pytest.raises(ValueError, match=said):
            load_dflash(tmp_path, double)
    layers = good | {"dflash_config": good["dflash_config"] | {"target_layer_ids": [0, 9]}}
    (tmp_path / "config.json").write_text(json.dumps(layers))
    with pytest.raises(ValueError, match="reads features of layer 10"):
        load_dflash(tmp_path, double)
    (tmp_path / "config.json").write_text(json.dumps(good))
    save_file(tensors | {"norm.weight": tensors["norm.weight"] * math.nan}, path)
    with pytest.raises(ValueError, match="norm.weight has numbers that are not finite"):
        load_dflash(tmp_path, double)


def test_a_warp_changes_what_is_drafted(double):
    """At a low temperature a drawn chain is the likeliest one."""
    head = dflash_head(double)
    with exactly(torch.float64):
        drawn = run(dflash(double, head, [3, 1], shape=drawn_chain(3), rng=Seeded(0), warp=[temperature(1e-4)]), 12)
        best = run(dflash(double, head, [3, 1], shape=chain_draft(3)), 12)
    assert [step.drafted for step in drawn.steps] == [step.drafted for step in best.steps]
