"""EAGLE networks in files: bit-equal there and back, computed as the layouts are described, refused where they lie."""

import inspect
import json
import math
import os
import time

import pytest
import torch
from conftest import VOCAB, random_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from tutorlib.decoders import greedy
from tutorlib.decoders.draft_trees import dynamic
from tutorlib.decoders.eagle import eagle
from tutorlib.heads import formats
from tutorlib.heads.eagle import Eagle3Head, EagleHead, causal
from tutorlib.heads.formats import files, load_eagle, save_eagle, save_medusa
from tutorlib.heads.medusa import MedusaHeads
from tutorlib.lm import LM
from tutorlib.run import run
from tutorlib.table import TableLM

WIDTH, INNER = 16, 24  # of the models of conftest, which have 3 layers
KNOWN = [0, 2, 3, 7, 11, 18]  # tokens of a network that does not know all
READ = [0, 1, 3]
SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}  # fmt: skip


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# The three layouts, written down from their descriptions: nothing here uses the code under test.


def sizes(**more):
    return {
        "model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False, **more,
    }  # fmt: skip


def first_config(**more):
    return sizes(architectures=["LlamaForCausalLM"], torch_dtype="float64", **more)


def third_config(**more):
    more = {"draft_vocab_size": len(KNOWN), "eagle_aux_hidden_state_layer_ids": READ, **more}
    return sizes(architectures=["LlamaForCausalLM"], torch_dtype="float64", **more)


def package_config(inner=(), **more):
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.9.0",
        "draft_vocab_size": len(KNOWN), "norm_before_residual": False, "eagle_aux_hidden_state_layer_ids": READ,
        "transformer_layer_config": sizes(**dict(inner)),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "someone/model", "architectures": ["LlamaForCausalLM"]},
        },
        **more,
    }  # fmt: skip


def filled(shapes):
    """Random tensors: matrices that keep what goes through them about as large as it is, norms about 1."""
    tensors = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        scale, shift = (shape[1] ** -0.5, 0) if len(shape) == 2 else (0.3, 1 if "norm" in name else 0)
        scale = 1 if name == "embed_tokens.weight" else scale
        tensors[name] = numbers(*shape, seed=seed) * scale + shift
    return tensors


def layer_shapes(prefix, inputs, heads=4, kv=2, dim=4, qkv_bias=False, o_bias=False, mlp_bias=False):
    out = {"q_proj": heads * dim, "k_proj": kv * dim, "v_proj": kv * dim}
    shapes = {f"{prefix}.self_attn.{name}.weight": (size, inputs) for name, size in out.items()}
    shapes[f"{prefix}.self_attn.o_proj.weight"] = (WIDTH, heads * dim)
    mlp = {"gate_proj": (INNER, WIDTH), "up_proj": (INNER, WIDTH), "down_proj": (WIDTH, INNER)}
    shapes |= {f"{prefix}.mlp.{name}.weight": shape for name, shape in mlp.items()}
    shapes[f"{prefix}.post_attention_layernorm.weight"] = (WIDTH,)
    shapes |= {f"{prefix}.self_attn.{name}.bias": (size,) for name, size in out.items() if qkv_bias}
    shapes |= {f"{prefix}.self_attn.o_proj.bias": (WIDTH,)} if o_bias else {}
    return shapes | ({f"{prefix}.mlp.{name}.bias": shape[:1] for name, shape in mlp.items()} if mlp_bias else {})


def first(bias=True, **layer):
    shapes = {"embed_tokens.weight": (VOCAB, WIDTH), "fc.weight": (WIDTH, 2 * WIDTH)}
    shapes |= {"fc.bias": (WIDTH,)} if bias else {}
    return filled(shapes | layer_shapes("layers.0", WIDTH, **layer))


def third(prefix="midlayer", known=KNOWN, read=3, **layer):
    shapes = {
        "embed_tokens.weight": (VOCAB, WIDTH), "fc.weight": (WIDTH, read * WIDTH), "norm.weight": (WIDTH,),
        "lm_head.weight": (VOCAB if known is None else len(known), WIDTH),
        f"{prefix}.hidden_norm.weight": (WIDTH,), f"{prefix}.input_layernorm.weight": (WIDTH,),
    }  # fmt: skip
    tensors = filled(shapes | layer_shapes(prefix, 2 * WIDTH, **layer))
    return tensors | ({} if known is None else maps(known))


def maps(known):
    return {
        "d2t": torch.tensor([token - i for i, token in enumerate(known)]),
        "t2d": torch.tensor([token in known for token in range(VOCAB)]),
    }


def package(**options):
    return third("layers.0", **options)


LAYOUTS = {"first": (first_config, first), "third": (third_config, third), "package": (package_config, package)}


def write(folder, config, tensors, name=SAFE):
    """A folder with a network, written without the code under test."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(tensors, folder / name)
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "network"


@pytest.fixture(scope="module")
def target():
    return LM(random_model("llama"))


# ----------------------------------------------------------------------------------------------------------------------
# What a file means: the description in plain words of tensors


def rms(x, weight, eps=1e-5):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def linear(tensors, name, x):
    return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0)


def turned(x, positions, angle):
    """Rotary embeddings: number i of a head and number i + half of it are a point, which is turned."""
    half = x.shape[-1] // 2
    angles = torch.tensor([[angle(position, i, 2 * half) for i in range(half)] for position in positions])
    cos, sin = angles.double().cos(), angles.double().sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def plain_angle(position, i, dim):
    return position * 10000.0 ** (-2 * i / dim)


def attention(tensors, prefix, states, positions, reads, angle, heads=4):
    """Softmax attention of some places; reads[i] are the places that place i sees."""
    q, k, v = (linear(tensors, f"{prefix}.self_attn.{name}_proj", states) for name in "qkv")
    dim = q.shape[-1] // heads
    shared = heads // (k.shape[-1] // dim)  # how many heads of queries read the same keys
    mixed = torch.zeros_like(q)
    for head in range(heads):
        mine, its = slice(head * dim, (head + 1) * dim), slice(head // shared * dim, (head // shared + 1) * dim)
        queries, keys = turned(q[:, mine], positions, angle), turned(k[:, its], positions, angle)
        for place, seen in enumerate(reads):
            scores = (keys[seen] @ queries[place]) / math.sqrt(dim)
            weights = torch.exp(scores - scores.max())
            mixed[place, mine] = weights @ v[seen][:, its] / weights.sum()
    return linear(tensors, f"{prefix}.self_attn.o_proj", mixed)


def forward_part(tensors, prefix, x):
    x = rms(x, tensors[f"{prefix}.post_attention_layernorm.weight"])
    gate = linear(tensors, f"{prefix}.mlp.gate_proj", x)
    gate = gate / (1 + torch.exp(-gate))
    return linear(tensors, f"{prefix}.mlp.down_proj", gate * linear(tensors, f"{prefix}.mlp.up_proj", x))


def first_by_hand(tensors, tokens, hidden, positions, reads, angle=plain_angle):
    """EAGLE-1: token and feature joined, then a decoder layer without a norm before its attention."""
    x = linear(tensors, "fc", torch.cat([tensors["embed_tokens.weight"][tokens], hidden], -1))
    x = x + attention(tensors, "layers.0", x, positions, reads, angle)
    return x + forward_part(tensors, "layers.0", x)


def third_by_hand(tensors, tokens, hidden, positions, reads, angle=plain_angle, prefix="midlayer", normed=False):
    """EAGLE-3: attention reads the two normed side by side, and is added to the hidden state."""
    token = rms(tensors["embed_tokens.weight"][tokens], tensors[f"{prefix}.input_layernorm.weight"])
    state = rms(hidden, tensors[f"{prefix}.hidden_norm.weight"])
    x = state if normed else hidden
    x = x + attention(tensors, prefix, torch.cat([token, state], -1), positions, reads, angle)
    return x + forward_part(tensors, prefix, x)


def third_logits(tensors, hidden):
    said = linear(tensors, "lm_head", rms(hidden, tensors["norm.weight"]))
    if "d2t" not in tensors:
        return said
    logits = torch.full((*said.shape[:-1], VOCAB), -math.inf, dtype=said.dtype)
    for i, offset in enumerate(tensors["d2t"].tolist()):
        logits[..., i + offset] = said[..., i]
    return logits


def below(length):
    return [list(range(place + 1)) for place in range(length)]


def close(found, expected, limit=1e-5):
    assert found.shape == expected.shape
    assert torch.equal(found.isinf(), expected.isinf())
    assert torch.allclose(found.double(), expected, rtol=limit, atol=limit)


TOKENS = [3, 0, 18, 7, 7, 11]
# What the configuration says, and the tensors that belong to it.
VARIANTS = {
    "grouped heads": ({}, {}),
    "as many key heads": ({"num_key_value_heads": 4}, {"kv": 4}),
    "no number of key heads": ({"num_key_value_heads": None}, {"kv": 4}),
    "heads of another size": ({"head_dim": 6}, {"dim": 6}),
    "biases of queries, keys and values": ({"qkv_bias": True}, {"qkv_bias": True}),
    "biases in attention": ({"attention_bias": True}, {"qkv_bias": True, "o_bias": True}),
    "biases everywhere": (
        {"attention_bias": True, "mlp_bias": True},
        {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    ),
}


@pytest.mark.parametrize("bias", [True, False, None])
@pytest.mark.parametrize(("says", "has"), VARIANTS.values(), ids=VARIANTS)
def test_a_published_file_of_eagle_1_is_computed_as_it_is_described(folder, says, has, bias):
    tensors, config = first(bias is not False, **has), first_config(**says)
    if bias is not None:  # absent, it means true
        config["bias"] = bias
    head = load_eagle(write(folder, config, tensors))
    assert isinstance(head, EagleHead) and head.fc.weight.dtype == torch.float64
    hidden = numbers(len(TOKENS), WIDTH, seed=99)
    positions = range(len(TOKENS))
    assert torch.equal(head.start(hidden), hidden)
    found = head(torch.tensor([TOKENS]), hidden[None], head.rotation(torch.arange(len(TOKENS))[None]))[0]
    close(found, first_by_hand(tensors, TOKENS, hidden, positions, below(len(TOKENS))))


@pytest.mark.parametrize("normed", [True, False, None])
@pytest.mark.parametrize("layout", ["third", "package"])
@pytest.mark.parametrize(("says", "has"), VARIANTS.values(), ids=VARIANTS)
def test_a_file_of_eagle_3_is_computed_as_it_is_described(folder, layout, says, has, normed):
    prefix = {"third": "midlayer", "package": "layers.0"}[layout]
    tensors = third(prefix, **has)
    config = third_config(**says) if layout == "third" else package_config(says)
    config["norm_before_residual"] = normed
    if normed is None:  # absent, it means true for the package, false as published
        del config["norm_before_residual"]
        normed = layout == "package"
    head = load_eagle(write(folder, config, tensors))
    assert isinstance(head, Eagle3Head) and head.feature_layers == tuple(READ)
    features = numbers(len(TOKENS), 3 * WIDTH, seed=99)
    hidden = linear(tensors, "fc", features)
    close(head.start(features), hidden)
    rotation = head.rotation(torch.arange(len(TOKENS))[None])
    found = head(torch.tensor([TOKENS]), hidden[None], rotation)[0]
    expected = third_by_hand(
        tensors, TOKENS, hidden, range(len(TOKENS)), below(len(TOKENS)), prefix=prefix, normed=normed
    )
    close(found, expected)
    close(head.read_out(found), third_logits(tensors, expected))


def llama3_angle(position, i, dim, theta=500000.0):
    """Llama 3.1's: slow turns are divided, fast ones kept, those between blended."""
    turn = theta ** (-2 * i / dim)
    factor, low, high, length = (LLAMA3[key] for key in list(LLAMA3)[1:])
    wave = 2 * math.pi / turn
    share = min(1.0, max(0.0, (length / wave - low) / (high - low)))
    return position * (share * turn + (1 - share) * turn / factor)


ANGLES = {
    "theta": ({"rope_theta": 500.0}, lambda p, i, dim: p * 500.0 ** (-2 * i / dim)),
    "old linear scaling": (
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        lambda p, i, dim: p / 2 * 10000.0 ** (-2 * i / dim),
    ),
    "scaling and theta": ({"rope_theta": 500000.0, "rope_scaling": LLAMA3}, llama3_angle),
    "new parameters": ({"rope_parameters": {"rope_theta": 500000.0, **LLAMA3}}, llama3_angle),
    "new parameters of no kind": ({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
                                  lambda p, i, dim: p * 500.0 ** (-2 * i / dim)),
    "no scaling": ({"rope_scaling": None}, plain_angle),
}  # fmt: skip


@pytest.mark.parametrize(("says", "angle"), ANGLES.values(), ids=ANGLES)
def test_positions_turn_by_what_the_file_says_in_either_way(folder, says, angle):
    hidden = numbers(len(TOKENS), WIDTH, seed=99)
    positions = [0, 1, 2, 9, 17, 40]
    for config, tensors, by_hand in (
        (first_config(**says), first(), first_by_hand),
        (third_config(**says), third(), third_by_hand),
    ):
        head = load_eagle(write(folder, config, tensors))
        found = head(torch.tensor([TOKENS]), hidden[None], head.rotation(torch.tensor([positions])))[0]
        close(found, by_hand(tensors, TOKENS, hidden, positions, below(len(TOKENS)), angle))
        save_eagle(head, folder / "again")  # and is written so that it is read as the same again
        assert load_eagle(folder / "again").config.rope_parameters == head.config.rope_parameters


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kv", [2, 4])
def test_a_session_with_cache_and_tree_gives_the_logits_of_the_description(folder, target, layout, kv):
    config, tensors = LAYOUTS[layout]
    heads = {"num_key_value_heads": kv}
    config, tensors = config(heads) if layout == "package" else config(**heads), tensors(kv=kv)
    head = load_eagle(write(folder, config, tensors), target)
    prefix = "layers.0" if layout == "package" else "midlayer"

    def state(*places):
        if layout == "first":
            return first_by_hand(tensors, *places)
        return third_by_hand(tensors, *places, prefix=prefix)

    def logits(hidden):
        if layout == "first":  # the target's own head reads it
            return hidden @ target.model.lm_head.weight.detach().double().T
        return third_logits(tensors, hidden)

    features = numbers(5, WIDTH * (1 if layout == "first" else 3), seed=99)
    hidden = features if layout == "first" else linear(tensors, "fc", features)
    session = head.session(target)
    given = state(TOKENS[:3], hidden[:3], range(3), below(3))
    close(session.feed(TOKENS[:3], features[:3]), logits(given[-1:]), 1e-4)
    # A tree: two guesses after the text, two after the first of them, one after the last of those.
    nodes, parents, paths = [4, 9, 2, 5, 1], [-1, -1, 0, 0, 3], [[0], [1], [0, 2], [0, 3], [0, 3, 4]]
    tokens, states, out = list(TOKENS[:3]), list(hidden[:3]), list(given)
    for level in ([0, 1], [2, 3], [4]):
        for node in level:
            tokens.append(nodes[node])
            states.append(out[2] if parents[node] < 0 else out[3 + parents[node]])
        count = len(tokens) - 3
        positions = [0, 1, 2, *(2 + len(path) for path in paths[:count])]
        reads = below(3) + [[0, 1, 2, *(3 + above for above in path)] for path in paths[:count]]
        out = list(state(tokens, torch.stack(states), positions, reads))
        found = session.grow([nodes[node] for node in level], [parents[node] for node in level])
        close(found, logits(torch.stack(out[-len(level) :])), 1e-4)
    # The text goes on, and the tree is forgotten.
    given = state(TOKENS[:5], hidden, range(5), below(5))
    close(session.feed(TOKENS[3:5], features[3:]), logits(given[-1:]), 1e-4)
    tokens, states = TOKENS[:5], hidden
    for node, (token, parent) in enumerate([(6, -1), (8, 0)]):
        tokens, states = [*tokens, token], torch.cat([states, given[-1:]])
        given = state(tokens, states, range(6 + node), below(6 + node))
        close(session.grow([token], [parent]), logits(given[-1:]), 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_loaded_drafts_for_its_target_and_may_be_trained(folder, target, layout):
    config, tensors = LAYOUTS[layout]
    tensors = {name: t.float() if t.is_floating_point() else t for name, t in tensors().items()}
    head = load_eagle(write(folder, config(), tensors), target)
    assert not head.training and head.fc.weight.dtype == torch.float32
    assert run(eagle(target, head, [1, 2]), 20).tokens == run(greedy(target, [1, 2]), 20).tokens
    states = head.start(numbers(1, 2, len(head.feature_layers) * WIDTH, dtype=torch.float32))
    head(torch.tensor([[1, 2]]), states, head.rotation(torch.arange(2)[None])).sum().backward()
    assert head.fc.weight.grad.any() and head.embed_tokens.weight.grad.any()


def test_a_network_that_knows_every_token_needs_no_maps(folder):
    for prefix, config in (("midlayer", third_config()), ("layers.0", package_config())):
        config["draft_vocab_size"] = VOCAB
        tensors = third(prefix, known=None)
        for given in ({}, maps(range(VOCAB))):
            head = load_eagle(write(folder, config, tensors | given))
            assert head.tokens.tolist() == list(range(VOCAB)) and bool(head.t2d.all())
        close(head.read_out(numbers(2, WIDTH)), third_logits(tensors, numbers(2, WIDTH)))
        with pytest.raises(ValueError, match="d2t is missing"):
            load_eagle(write(folder, config, tensors | {"t2d": maps(range(VOCAB))["t2d"]}))
    del config["draft_vocab_size"]
    assert len(load_eagle(write(folder, config, tensors)).d2t) == VOCAB


def test_a_midlayer_is_enough_to_tell_eagle_3(folder):
    config = third_config()
    del config["draft_vocab_size"]
    assert isinstance(load_eagle(write(folder, config, third(known=None))), Eagle3Head)


# ----------------------------------------------------------------------------------------------------------------------
# Which of the target's hidden states are read, and what is taken from it


@pytest.mark.parametrize(
    ("says", "read"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [0, 3, 2]}, (0, 3, 2)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 0, 2]}}, (2, 1, 3)),  # counts what puts them out
        ({"tutorlib": {"feature_layers": [-1, 1, 2]}}, (-1, 1, 2)),
        ({"tutorlib": {"feature_layers": [1, 2, 3]}, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, (1, 2, 3)),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, 2],
          "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}}, (0, 1, 2)),
        ({"eagle_aux_hidden_state_layer_ids": None, "eagle_config": None, "tutorlib": {"feature_layers": [3, 1, 2]}},
         (3, 1, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_the_layers_that_are_read_are_those_the_file_says(folder, target, says, read):
    config = third_config()
    del config["eagle_aux_hidden_state_layer_ids"]
    write(folder, config | says, third())
    assert load_eagle(folder).feature_layers == load_eagle(folder, target).feature_layers == read


def test_where_the_file_says_no_layers_they_are_the_usual_ones_of_the_target(folder, target):
    config = third_config()
    del config["eagle_aux_hidden_state_layer_ids"]
    write(folder, config, third())
    assert load_eagle(folder, deep(8)).feature_layers == (2, 4, 5)
    with pytest.raises(ValueError, match="does not say which of the target's layers .*: load_eagle.folder, target. "):
        load_eagle(folder)
    with pytest.raises(ValueError, match="does not say eagle_aux_hidden_state_layer_ids, and in a target of 3 layers"):
        load_eagle(folder, target)


def deep(layers):
    """A target of so many layers."""
    from transformers import LlamaForCausalLM

    made = LlamaConfig(**{**sizes(), "num_hidden_layers": layers, "hidden_act": "silu"})
    return LM(LlamaForCausalLM(made).eval())


@pytest.mark.parametrize("layout", ["third", "package"])
def test_a_file_without_embeddings_takes_the_targets(folder, target, layout):
    config, tensors = LAYOUTS[layout]
    tensors = {name: t.half() if t.is_floating_point() else t for name, t in tensors().items()}
    del tensors["embed_tokens.weight"]
    write(folder, config(), tensors)
    head = load_eagle(folder, target)
    embeddings = target.model.get_input_embeddings().weight
    assert torch.equal(head.embed_tokens.weight, embeddings.half())
    assert torch.equal(load_eagle(folder, target, dtype=torch.float32).embed_tokens.weight, embeddings)  # not rounded
    write(folder, config(), {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    load_eagle(folder, target).embed_tokens.weight.data.zero_()
    assert embeddings.any(), "they are a copy"
    with pytest.raises(ValueError, match=f"{SAFE}: embed_tokens.weight is missing, .*: load_eagle.folder, target."):
        load_eagle(folder)


def test_a_target_that_has_no_embeddings_cannot_lend_them(folder):
    config, tensors = third_config(), third()
    del tensors["embed_tokens.weight"]
    config |= {"hidden_size": VOCAB, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
    config["eagle_aux_hidden_state_layer_ids"] = [0, 0, 0]
    with pytest.raises(ValueError, match=r"embed_tokens.weight is missing, and .* has no embeddings of shape .19, 19."):
        load_eagle(write(folder, config, tensors), TableLM.random(VOCAB, 0, 0))


def test_eagle_1_brings_its_own_embeddings(folder, target):
    tensors = first()
    del tensors["embed_tokens.weight"]
    with pytest.raises(ValueError, match=f"{SAFE}: embed_tokens.weight is missing"):
        load_eagle(write(folder, first_config(), tensors), target)


# ----------------------------------------------------------------------------------------------------------------------
# There and back


def random_network(kind, dtype=torch.float32, **settings):
    """A network of random numbers with every extra there is."""
    options = {
        "head_dim": 6,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": {"rope_theta": 77.0, **LLAMA3},
    }
    config = LlamaConfig(**{**sizes(), **options, **settings})
    if kind == "first":
        head = EagleHead(config, bias=settings.get("bias", True))
    else:
        head = Eagle3Head(config, READ, KNOWN, norm_before_residual=settings.get("normed", False))
    for seed, parameter in enumerate(head.parameters()):
        parameter.data = numbers(*parameter.shape, seed=seed, dtype=dtype)
    head.tree = {"nodes": 8, "depth": 4, "top_k": 3, "confidence": 0.25, "greedy_temperature": 0.5}
    return head


def bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.detach().contiguous().view(torch.uint8).tolist()


def same(head, other):
    return {name: bits(tensor) for name, tensor in head.state_dict().items()} == {
        name: bits(tensor) for name, tensor in other.state_dict().items()
    }


KINDS = {"first": ("first", "eagle"), "third": ("third", "eagle"), "package": ("third", "speculators")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
@pytest.mark.parametrize(("kind", "layout"), KINDS.values(), ids=KINDS)
def test_saved_networks_load_back_bit_equal(folder, kind, layout, pickled, dtype):
    head = random_network(kind, dtype)
    assert save_eagle(head, folder, layout, pickled=pickled).name == (PICKLE if pickled else SAFE)
    found = load_eagle(folder)
    assert same(found, head) and type(found) is type(head)
    assert (found.feature_layers, found.tree) == (head.feature_layers, head.tree)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(("kind", "layout"), KINDS.values(), ids=KINDS)
def test_a_network_that_was_loaded_computes_what_it_did(folder, kind, layout, flag):
    head = random_network(kind, bias=flag, normed=flag, attention_bias=flag, mlp_bias=not flag)
    save_eagle(head, folder, layout)
    found = load_eagle(folder)
    arguments = torch.tensor([TOKENS]), numbers(1, len(TOKENS), WIDTH, dtype=torch.float32)
    rotation = head.rotation(torch.arange(30, 36)[None])
    assert torch.equal(found.rotation(torch.arange(30, 36)[None])[0], rotation[0])
    assert torch.equal(found(*arguments, rotation), head(*arguments, rotation, causal))
    for key in ("rms_norm_eps", "max_position_embeddings", "rope_parameters", "attention_bias", "mlp_bias"):
        assert getattr(found.config, key) == getattr(head.config, key)


@pytest.mark.parametrize("layout", ["eagle", "speculators"])
def test_tensors_that_share_memory_can_be_saved(folder, layout):
    head = Eagle3Head(LlamaConfig(**sizes()), READ)
    head.lm_head.weight = head.embed_tokens.weight
    save_eagle(head, folder, layout)
    found = load_eagle(folder)
    assert same(found, head)
    found.embed_tokens.weight.data.zero_()
    assert found.lm_head.weight.any()


def test_biases_of_queries_alone_come_back_too(folder):
    head = random_network("third", attention_bias=False, qkv_bias=True)
    save_eagle(head, folder)
    assert same(load_eagle(folder), head) and "midlayer.self_attn.o_proj.bias" not in head.state_dict()
    with pytest.raises(ValueError, match='qkv_bias without attention_bias is unknown to the layout "speculators"'):
        save_eagle(head, folder, "speculators")


def test_a_tree_is_kept_with_every_argument_there_is(folder):
    head = random_network("first")
    assert head.tree.keys() == inspect.signature(dynamic).parameters.keys()
    save_eagle(head, folder)
    assert load_eagle(folder).tree == head.tree and dynamic(**head.tree)


def test_from_one_layout_to_the_other_and_back_nothing_is_lost(folder, tmp_path):
    head = random_network("third")
    save_eagle(head, folder, "speculators")
    save_eagle(load_eagle(folder), tmp_path / "again")
    assert same(load_eagle(tmp_path / "again"), head)


def test_a_network_may_be_loaded_in_another_type_with_angles_as_they_are(folder):
    head = random_network("third")
    save_eagle(head, folder)
    found = load_eagle(folder, dtype=torch.bfloat16)
    places = torch.arange(400)[None]
    exact = head.rotation(places)
    assert same(found, head.to(torch.bfloat16))
    for network in (found, head):  # also one that was turned into another type later
        assert all(map(torch.equal, network.rotation(places), (part.to(torch.bfloat16) for part in exact)))


def test_loading_draws_no_random_numbers(folder):
    save_eagle(random_network("third"), folder)
    before = torch.get_rng_state()
    load_eagle(folder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
def test_a_published_folder_has_the_names_and_keys_that_the_authors_code_reads(folder, pickled):
    plain = {"attention_bias": False, "mlp_bias": False, "head_dim": 4, "rope_parameters": None}
    read = load_file if not pickled else lambda path: torch.load(path, weights_only=True)
    for kind, described, config in (("first", first(), first_config()), ("third", third(), third_config())):
        head = random_network(kind, torch.float64, **plain)
        tensors = read(save_eagle(head, folder, base="someone/model", pickled=pickled))
        assert {name: (t.shape, t.dtype) for name, t in tensors.items()} == {
            name: (t.shape, t.dtype) for name, t in described.items()
        }
        found = json.loads((folder / "config.json").read_text())
        assert config.items() <= found.items() and found["base_model_name_or_path"] == "someone/model"
        assert found.get("bias", kind) == (True if kind == "first" else "third")
        assert found["rope_theta"] == 10000.0 and "rope_scaling" not in found


def test_an_old_kind_of_scaling_is_written_as_the_authors_code_reads_it(folder):
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    save_eagle(random_network("first", rope_parameters=rope), folder)
    assert json.loads((folder / "config.json").read_text())["rope_scaling"] == {"type": "linear", "factor": 2.0}
    assert load_eagle(folder).config.rope_parameters == rope


# ----------------------------------------------------------------------------------------------------------------------
# The package `speculators`: its schema as it stands in its source (0.9.0), and the package itself where it is installed

TEXT, COUNT, FLAG, NUMBER = str, int, bool, (int, float)
# For each key what it may be. All are asked for here; the package does without those that it has defaults for, and
# refuses a folder that lacks speculators_model_type or one of the keys in speculators_config or in verifier.
PROPOSAL = {"proposal_type": "greedy", "speculative_tokens": COUNT}
SCHEMA = {
    "architectures": [TEXT],
    "speculators_model_type": "eagle3",
    "speculators_version": TEXT,
    "speculators_config": {
        "algorithm": TEXT,
        "proposal_methods": [PROPOSAL],
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": (str, type(None)), "architectures": [TEXT]},
    },
    "draft_vocab_size": COUNT,
    "norm_before_residual": FLAG,
    "eagle_aux_hidden_state_layer_ids": [COUNT],
    "transformer_layer_config": {
        "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "tie_word_embeddings": False,
        "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": NUMBER,
        "attention_bias": FLAG, "mlp_bias": FLAG, "rope_parameters": {"rope_theta": 77.0, **LLAMA3},
    },
}  # fmt: skip


def follows(value, schema, place="config"):
    """Fails where a configuration is not as the schema has it: all keys, no others, and their types or values."""
    if isinstance(schema, dict):
        assert isinstance(value, dict) and value.keys() == schema.keys(), place
        for key in schema:
            follows(value[key], schema[key], f"{place}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), place
        for entry in value:
            follows(entry, schema[0], place)
    elif isinstance(schema, type | tuple):
        assert isinstance(value, schema) and (schema is FLAG or not isinstance(value, bool)), place
    else:
        assert value == schema, place


@pytest.mark.parametrize("base", ["", "someone/model"])
def test_a_saved_folder_follows_the_schema_of_speculators(folder, base):
    head = random_network("third")
    path = save_eagle(head, folder, "speculators", base=base)
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("tutorlib").keys() == {"tree", "feature_layers"}  # further keys are let pass there
    follows(config, SCHEMA)
    described = config["speculators_config"]
    assert described["verifier"]["name_or_path"] == (base or None)
    assert [method["proposal_type"] for method in described["proposal_methods"]] == ["greedy"]
    assert all(method["speculative_tokens"] >= 1 for method in described["proposal_methods"])
    # What the package makes of the layer's sizes.
    layer = LlamaConfig(**config["transformer_layer_config"])
    assert layer.rope_parameters == head.config.rope_parameters and layer.head_dim == head.config.head_dim
    every = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
    assert {name: t.shape for name, t in load_file(path).items()} == {
        name: t.shape for name, t in package(dim=6, **every).items()
    }


def test_a_network_that_knows_every_token_is_saved_for_speculators_without_maps(folder):
    head = Eagle3Head(LlamaConfig(**sizes()), READ)
    assert not {"d2t", "t2d"} & load_file(save_eagle(head, folder, "speculators")).keys()
    assert same(load_eagle(folder), head)


@pytest.fixture
def verifier(tmp_path, monkeypatch):
    """A tiny target on disk, for the package to find."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    random_model("llama").save_pretrained(tmp_path / "verifier")
    return str(tmp_path / "verifier")


@pytest.mark.parametrize("normed", [True, False])
def test_the_package_itself_accepts_a_saved_folder(folder, verifier, normed):
    package = pytest.importorskip("speculators")
    head = random_network("third", normed=normed)
    for base in ("", "someone/model", verifier):
        save_eagle(head, folder, "speculators", base=base)
        config = package.SpeculatorModelConfig.from_pretrained(folder)
        assert type(config).__name__ == "Eagle3SpeculatorConfig"
        assert (config.draft_vocab_size, config.norm_before_residual) == (len(KNOWN), normed)
        assert config.eagle_aux_hidden_state_layer_ids == READ
        assert config.speculators_config.verifier.name_or_path == (base or None)
        layer, ours = config.transformer_layer_config, head.config
        for key in ("vocab_size", "hidden_size", "head_dim", "num_key_value_heads", "rms_norm_eps", "rope_parameters"):
            assert getattr(layer, key) == getattr(ours, key), key


@pytest.mark.parametrize("normed", [True, False])
def test_the_packages_own_model_reads_a_saved_folder_and_computes_the_same(folder, tmp_path, verifier, normed):
    package = pytest.importorskip("speculators")
    head = random_network("third", normed=normed)
    for parameter in head.parameters():
        parameter.data *= 0.3
    save_eagle(head, folder, "speculators", base=verifier)
    theirs = package.SpeculatorModel.from_pretrained(folder)
    tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in theirs.state_dict().items()}
    assert all(bits(tensors[name]) == bits(tensor) for name, tensor in head.state_dict().items())
    theirs.config.transformer_layer_config._attn_implementation = "eager"
    tokens, hidden = torch.tensor([TOKENS]), numbers(1, len(TOKENS), WIDTH, dtype=torch.float32)
    joined = torch.cat([theirs.embed_tokens(tokens), hidden], dim=-1)
    places = torch.arange(len(TOKENS))[None]
    mask = torch.full((len(TOKENS), len(TOKENS)), -math.inf).triu(1)[None, None]
    angles = theirs.rotary_emb(joined, places)
    expected = theirs.layers[0](joined, attention_mask=mask, position_ids=places, position_embeddings=angles)
    found = head(tokens, hidden, head.rotation(places))
    assert torch.allclose(found, expected, atol=1e-5)
    # What it saves is read here.
    theirs.save_pretrained(tmp_path / "theirs")
    assert same(load_eagle(tmp_path / "theirs"), head)


# ----------------------------------------------------------------------------------------------------------------------
# What is wrong is named

CASES = [(name, *LAYOUTS[name]) for name in LAYOUTS]
LAYER = {"first": "layers.0", "third": "midlayer", "package": "layers.0"}


def inner_of(layout):
    """Changes keys of the sizes, wherever they stand in this layout."""
    config, _ = LAYOUTS[layout]
    return (lambda **more: config(more)) if layout == "package" else config


def refused(folder, config, tensors, says, target=None, name=SAFE):
    write(folder, config, tensors, name)
    with pytest.raises(ValueError, match=says) as caught:
        load_eagle(folder, target)
    assert str(folder) in str(caught.value), "an error names the file"


@pytest.mark.parametrize(("layout", "config", "tensors"), CASES, ids=LAYOUTS)
class TestTensors:
    def test_missing(self, folder, layout, config, tensors):
        for name in tensors():
            held = tensors()
            del held[name]
            refused(folder, config(), held, f"{name} is missing")

    def test_unknown(self, folder, layout, config, tensors):
        refused(folder, config(), tensors() | {"extra.weight": numbers(3)}, f"{SAFE}: extra.weight is unknown")
        name = f"{LAYER[layout]}.self_attn.q_norm.weight"
        refused(folder, config(), tensors() | {name: numbers(4)}, f"{name} is unknown")

    def test_renamed(self, folder, layout, config, tensors):
        held = tensors()
        held["fc.wight"] = held.pop("fc.weight")
        refused(folder, config(), held, "fc.weight is missing, and fc.wight is unknown")

    def test_shapes(self, folder, layout, config, tensors):
        for name, tensor in tensors().items():
            if tensor.is_floating_point():
                wrong = torch.cat([tensor, tensor[:1]])
                says = rf"{name} has shape \({len(wrong)}, ?.*, expected \({len(tensor)}"
                refused(folder, config(), tensors() | {name: wrong}, says)

    def test_types(self, folder, layout, config, tensors):
        for name, tensor in tensors().items():
            if tensor.is_floating_point() and name != "embed_tokens.weight":
                refused(folder, config(), tensors() | {name: tensor.half()}, f"{name} is torch.float16, expected")
        held = {name: tensor.to(torch.int8) for name, tensor in tensors().items()}
        refused(folder, config(), held, "embed_tokens.weight is torch.int8, expected numbers of a floating type")

    @pytest.mark.parametrize("length", [0, 1, 7, 100, 0.5, -1])
    @pytest.mark.parametrize("name", [SAFE, PICKLE])
    def test_half_written(self, folder, layout, config, tensors, name, length):
        write(folder, config(), tensors(), name)
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: int(length * len(whole)) if isinstance(length, float) else length])
        with pytest.raises(ValueError, match=f"{name} is (half-written or )?broken"):
            load_eagle(folder)

    def test_another_target(self, folder, layout, config, tensors):
        write(folder, config(), tensors())
        where = "config.json: transformer_layer_config" if layout == "package" else "config.json"
        for vocab in (VOCAB + 2, VOCAB - 2):
            with pytest.raises(ValueError, match=f"{where}: vocab_size is 19, the target's is {vocab}: .* not its"):
                load_eagle(folder, TableLM.random(vocab, 0, 0))
        with pytest.raises(ValueError, match=f"{where}: hidden_size is 16, the target's is 19: the network is not its"):
            load_eagle(folder, TableLM.random(VOCAB, 0, 0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_number_of_layers_that_lies_is_named_beside_a_tensor(folder, layout):
    config, (_, tensors) = inner_of(layout), LAYOUTS[layout]
    for count in (2, 32):
        says = f"num_hidden_layers is {count}, and .*{SAFE} has no layers.1.self_attn.q_proj.weight: expected 1"
        refused(folder, config(num_hidden_layers=count), tensors(), says)
    more = {f"layers.1.{name}": tensor for name, tensor in layer_shapes("", 2).items()}
    more = {name.replace("..", "."): numbers(*shape) for name, shape in more.items()}
    for count in (1, 2):
        says = rf"num_hidden_layers is {count}, and .*{SAFE} has layers.1.mlp.down_proj.weight: expected 1"
        refused(folder, config(num_hidden_layers=count), tensors() | more, says)
    for count in (0, -1, 1.0, "1", None, True):
        refused(folder, config(num_hidden_layers=count), tensors(), "num_hidden_layers must be a whole number of 1 or")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"])
def test_a_size_that_is_missing_or_none_is_named(folder, layout, key):
    config, (_, tensors) = inner_of(layout), LAYOUTS[layout]
    for value in (None, "3", 2.5, True, -1, 0, [3]):
        refused(folder, config(**{key: value}), tensors(), f"{key} must be a whole number of 1 or more, got")
    lacking = config()
    del lacking.get("transformer_layer_config", lacking)[key]
    refused(folder, lacking, tensors(), f"lacks the key '{key}'|{key} is missing|expected the sizes .* {key}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("says", "match"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads, 4, got 3"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a whole number of 1 or more, got 0"),
        ({"head_dim": 5}, "head_dim must be even, .* got 5"),
        ({"head_dim": "4"}, "head_dim must be a whole number of 1 or more, got '4'"),
        ({"max_position_embeddings": -1}, "max_position_embeddings must be a whole number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0, got 0"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number above 0, got 'small'"),
        ({"hidden_act": "gelu"}, "hidden_act must be .silu., got 'gelu'"),
        ({"attention_bias": "no"}, "attention_bias must be true or false, got 'no'"),
        ({"mlp_bias": 1}, "mlp_bias must be true or false, got 1"),
        ({"qkv_bias": [True]}, "qkv_bias must be true or false"),
        ({"rope_theta": 0}, "rope_theta must be a number above 0, got 0"),
        ({"rope_theta": "10000"}, "rope_theta must be a number above 0, got '10000'"),
        ({"rope_scaling": [2]}, r"rope_scaling must be an object, got \[2\]"),
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling has rope_type 'spiral', which nobody knows"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_parameters has rope_type 'spiral'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "these sizes, or rope_parameters, make no"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "head_dim must be even|these sizes, .* make no layer"),
        ({"attention_bias": True}, "self_attn.q_proj.bias.* are missing"),
        ({"intermediate_size": 25}, r"gate_proj.weight has shape \(24, 16\), expected \(25, 16\)"),
        ({"vocab_size": 21}, r"(embed_tokens.weight|t2d) .*\(19.*21"),
        ({"num_key_value_heads": 4}, r"k_proj.weight has shape \(8, .*, expected \(16"),
        ({"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}, r"q_proj.weight has shape \(16.*\(8"),
    ],
    ids=str,
)
def test_a_key_that_is_wrong_is_named(folder, layout, says, match):
    refused(folder, inner_of(layout)(**says), LAYOUTS[layout][1](), match)


def test_a_bias_that_lies_is_named(folder):
    refused(folder, first_config(bias=False), first(), "fc.bias is unknown, by what .*config.json says")
    for config in (first_config(), first_config(bias=True)):
        refused(folder, config, first(bias=False), "fc.bias is missing, by what .*config.json says")
    refused(folder, first_config(bias="yes"), first(), "bias must be true or false, got 'yes'")
    refused(folder, third_config(), third() | {"fc.bias": numbers(WIDTH)}, "fc.bias is unknown")


@pytest.mark.parametrize("layout", ["third", "package"])
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"d2t": torch.zeros(6, dtype=torch.int64)}, "d2t is all zeros, as a map that was never filled"),
        ({"d2t": torch.zeros(6, dtype=torch.int64), "t2d": torch.arange(VOCAB) < 6}, "d2t is all zeros"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 14])}, "d2t makes token 5 the target's 19, expected one of 0 to 18"),
        ({"d2t": torch.tensor([-1, 1, 1, 4, 7, 13])}, "d2t makes token 0 the target's -1"),
        ({"d2t": torch.tensor([0, 1, 1, 2**62, 7, 13])}, "d2t makes token 3 the target's 46"),
        ({"d2t": torch.tensor(KNOWN)}, "d2t makes token 5 the target's 23"),  # ids in place of offsets
        ({"d2t": torch.tensor([0, 1, 0, 4, 7, 13])}, "d2t goes from the target's token 2 to 2: expected ascending"),
        ({"d2t": torch.tensor([2, -1, 1, 4, 7, 13])}, "d2t goes from the target's token 2 to 0"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 12])}, "d2t has the target's token 17, t2d has not: they contradict"),
        ({"t2d": torch.arange(VOCAB) < 6}, "t2d has the target's token 1, d2t has not: they contradict each other"),
        ({"t2d": torch.zeros(VOCAB, dtype=torch.bool)}, "d2t has the target's token 0, t2d has not"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7])}, r"d2t is of shape \(5,\) and torch.int64, expected 6 offsets"),
        ({"d2t": torch.tensor([[0, 1, 1, 4, 7, 13]])}, r"d2t is of shape \(1, 6\)"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 13.0])}, "d2t is .* torch.float32, expected 6 .*, torch.int64"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 13], dtype=torch.int32)}, "d2t is .*torch.int32"),
        ({"t2d": maps(KNOWN)["t2d"][:-1]}, r"t2d is of shape \(18,\) and torch.bool, expected 19 marks"),
        ({"t2d": maps(KNOWN)["t2d"].long()}, "t2d is .* torch.int64, expected 19 marks, by vocab_size, torch.bool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_maps_that_cannot_be_are_named(folder, layout, changed, says):
    config, tensors = LAYOUTS[layout]
    refused(folder, config(), tensors() | changed, f"{SAFE}: {says}")


def test_a_map_of_a_whole_vocabulary_maps_each_token_to_itself(folder):
    tensors, config = third(known=None), third_config(draft_vocab_size=VOCAB)
    shifted = maps(range(VOCAB)) | {"d2t": torch.ones(VOCAB, dtype=torch.int64)}
    refused(folder, config, tensors | shifted, "d2t makes token 18 the target's 19")


@pytest.mark.parametrize("layout", ["third", "package"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"draft_vocab_size": 20}, "draft_vocab_size is 20, expected at most vocab_size, 19"),
        ({"draft_vocab_size": "6"}, "draft_vocab_size must be a whole number of 1 or more, got '6'"),
        ({"draft_vocab_size": 0}, "draft_vocab_size must be a whole number of 1 or more, got 0"),
        ({"draft_vocab_size": 7}, r"lm_head.weight has shape \(6, 16\), expected \(7, 16\)"),
        ({"norm_before_residual": "yes"}, "norm_before_residual must be true or false, got 'yes'"),
        ({"norm_before_fc": True}, "norm_before_fc is True, expected false: such networks are unknown here"),
        ({"fc_norm": True}, "fc_norm is True, expected false"),
        ({"norm_output": True}, "norm_output is True, expected false"),
        ({"target_hidden_size": 32}, "target_hidden_size is 32, expected hidden_size, 16"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, r"fc.weight has shape \(16, 48\), expected \(16, 32\)"),
        ({"eagle_aux_hidden_state_layer_ids": []}, "layer_ids must be a list of numbers of the target's layers"),
        ({"eagle_aux_hidden_state_layer_ids": [1, "2", 3]}, "layer_ids must be a list of numbers"),
        ({"eagle_aux_hidden_state_layer_ids": 3}, "layer_ids must be a list of numbers"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, True]}, "layer_ids must be a list of numbers"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state in eagle_config is false"),
        ({"tutorlib": [1]}, '"tutorlib" must be an object'),
        ({"tutorlib": {"feature_layers": "0, 1, 3"}}, 'feature_layers in "tutorlib" must be a list of numbers'),
        ({"tutorlib": {"tree": {"width": 3}}}, '"tutorlib": tree must have the keys nodes, depth, top_k, '),
        ({"tutorlib": {"tree": 60}}, '"tutorlib": tree must have the keys nodes, depth, top_k, '),
        ({"tutorlib": {"tree": {"nodes": 0}}}, '"tutorlib": the tree\'s nodes must be a whole number of 1 or more'),
        ({"tutorlib": {"tree": {"depth": 2.0}}}, "the tree's depth must be a whole number"),
        ({"tutorlib": {"tree": {"confidence": 2}}}, "the tree's confidence must be from 0 to 1, got 2"),
        ({"tutorlib": {"tree": {"greedy_temperature": 0}}}, "the tree's greedy_temperature must be above 0, got 0"),
    ],
    ids=str,
)
def test_what_a_configuration_of_eagle_3_gets_wrong_is_named(folder, layout, more, says):
    config, tensors = LAYOUTS[layout]
    refused(folder, config(**more), tensors(), f"config.json.*{says}|{SAFE}: {says}")


@pytest.mark.parametrize(
    ("says", "key"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [0, 4, 3]}, "eagle_aux_hidden_state_layer_ids"),
        ({"eagle_aux_hidden_state_layer_ids": None, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 1]}},
         "eagle_aux_hidden_state_layer_ids in eagle_config"),
        ({"tutorlib": {"feature_layers": [0, -5, 3]}}, 'feature_layers in "tutorlib"'),
    ],
    ids=str,
)  # fmt: skip
def test_a_network_for_a_target_of_more_layers_is_refused(folder, target, says, key):
    write(folder, third_config(**says), third())
    load_eagle(folder)
    with pytest.raises(ValueError, match=f"{key} has the target's hidden state (4|-5), but this target has 0 to 3"):
        load_eagle(folder, target)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "half-written or broken"),
        ('{"hidden_size": 16, "voc', "half-written or broken"),
        ("[1, 2]", "must hold an object with keys and values"),
        ("{}", "is not that of an EAGLE network: expected the sizes of a Llama layer"),
        ('{"medusa_num_heads": 3}', "is not that of an EAGLE network.*it has medusa_num_heads"),
        ('{"speculators_model_type": "dflash"}', "speculators_model_type must be .eagle3., got 'dflash'"),
        ('{"speculators_model_type": "eagle3"}', "transformer_layer_config must be an object .* got None"),
        ('{"speculators_model_type": "eagle3", "transformer_layer_config": {"model_type": "qwen3"}}',
         "model_type in transformer_layer_config must be .llama., got 'qwen3'"),
        ('{"speculators_model_type": "eagle3", "transformer_layer_config": {"hidden_size": 16}}',
         "model_type in transformer_layer_config must be .llama., got None"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_none_is_refused(folder, text, says):
    write(folder, first_config(), first())
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=f"config.json.*{says}"):
        load_eagle(folder)


def test_a_whole_language_model_is_no_network(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="num_hidden_layers is 3, and .* expected 1"):
        load_eagle(tmp_path)


def test_a_folder_without_one_of_the_files_is_refused(folder):
    write(folder, first_config(), first())
    (folder / SAFE).unlink()
    with pytest.raises(ValueError, match=f"has a config.json but no tensors: expected {SAFE} or {PICKLE}"):
        load_eagle(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="config.json is missing"):
        load_eagle(folder)


class Intruder:
    """Unpickled, it would write a file."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.open, (str(self.place), os.O_CREAT | os.O_WRONLY)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hidden", [False, True], ids=["alone", "among tensors"])
def test_a_pickle_that_brings_code_is_refused_and_the_code_does_not_run(folder, tmp_path, layout, hidden):
    config, tensors = LAYOUTS[layout]
    mark = tmp_path / "mark"
    cargo = tensors() | {"fc.weight": Intruder(mark)} if hidden else Intruder(mark)
    refused(folder, config(), cargo, f"{PICKLE} .*holds more than tensors; no code in it was run", name=PICKLE)
    assert not mark.exists()
    torch.load(folder / PICKLE, weights_only=False)
    assert mark.exists(), "this is what it would have done"


def test_a_published_pickle_is_read(folder):
    head = load_eagle(write(folder, third_config(), third(), PICKLE))
    assert torch.equal(head.fc.weight, third()["fc.weight"])
    write(folder, third_config(), first())  # safetensors come before it
    with pytest.raises(ValueError, match=SAFE):
        load_eagle(folder)


# ----------------------------------------------------------------------------------------------------------------------
# Writing


@pytest.mark.parametrize(("kind", "layout"), KINDS.values(), ids=KINDS)
def test_writing_that_is_cut_off_leaves_the_old_network(folder, kind, layout, monkeypatch):
    def half(tensors, path, **_):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    old, new = random_network(kind), random_network(kind, mlp_bias=False)
    save_eagle(old, folder, layout)
    with monkeypatch.context() as patch:
        patch.setattr(files, "save_file", half)
        with pytest.raises(KeyboardInterrupt):
            save_eagle(new, folder, layout)
    assert same(load_eagle(folder), old)
    save_eagle(new, folder, layout, pickled=True)
    assert same(load_eagle(folder), new) and not (folder / SAFE).exists()


def test_another_network_may_take_its_place_but_nothing_else_is_overwritten(tmp_path):
    networks = [(random_network(kind), layout) for kind, layout in KINDS.values()]
    for head, layout in networks + networks[::-1]:
        save_eagle(head, tmp_path / "network", layout)
        assert same(load_eagle(tmp_path / "network"), head)
    random_model("llama").save_pretrained(tmp_path / "model")
    save_medusa(MedusaHeads(WIDTH, VOCAB, 2), tmp_path / "medusa")
    write(tmp_path / "dflash", package_config(speculators_model_type="dflash"), {})
    for other in ("model", "medusa", "dflash"):
        before = {path.name: path.read_bytes() for path in (tmp_path / other).iterdir()}
        for head, layout in networks:
            with pytest.raises(ValueError, match="config.json is not that of an EAGLE network: give a folder of its"):
                save_eagle(head, tmp_path / other, layout)
        assert {path.name: path.read_bytes() for path in (tmp_path / other).iterdir()} == before
    with pytest.raises(ValueError, match="config.json is not that of Medusa heads"):
        save_medusa(MedusaHeads(WIDTH, VOCAB, 2), tmp_path / "network")


def test_what_could_not_be_read_again_is_not_written(folder):
    with pytest.raises(ValueError, match="layout='vllm' is not known: use .eagle., as published, or .speculators."):
        save_eagle(random_network("first"), folder, "vllm")
    with pytest.raises(ValueError, match='"speculators" is for EAGLE-3 networks alone: use layout="eagle"'):
        save_eagle(random_network("first"), folder, "speculators")
    beginning = Eagle3Head(LlamaConfig(**sizes()), READ, range(5))
    with pytest.raises(ValueError, match="d2t is all zeros"):
        save_eagle(beginning, folder)
    from_the_end = Eagle3Head(LlamaConfig(**sizes()), (-1, -2), KNOWN)
    with pytest.raises(ValueError, match=r"feature_layers=\(-1, -2\) counts the target's layers from the last"):
        save_eagle(from_the_end, folder, "speculators")
    odd = random_network("third")
    odd.tree = {"nodes": 0}
    with pytest.raises(ValueError, match="the tree's nodes must be a whole number of 1 or more, got 0"):
        save_eagle(odd, folder)
    assert not folder.exists()
    save_eagle(from_the_end, folder)
    assert load_eagle(folder).feature_layers == (-1, -2)
    assert "eagle_aux_hidden_state_layer_ids" not in json.loads((folder / "config.json").read_text())


def test_the_package_lists_what_it_offers():
    assert set(formats.__all__) <= set(dir(formats))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim"])
def test_sizes_beyond_what_the_file_holds_are_refused_at_once(folder, layout, key):
    config, tensors = (make() for make in LAYOUTS[layout])
    said = config.get("transformer_layer_config", config)
    said[key] = 10**12
    began = time.process_time()
    with pytest.raises(ValueError, match=rf"config.json.*{key} is 1000000000000, but"):
        load_eagle(write(folder, config, tensors))
    assert time.process_time() - began < 2
