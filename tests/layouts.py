"""The layouts that heads are published in, written down from their descriptions, and random heads for each of them.

`config` and `tensors` of a layout are what is in a folder: nothing of these is made by the code under test.
"""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from conftest import VOCAB
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from tutorlib import Eagle3Head, EagleHead, MedusaHeads, eagle, medusa
from tutorlib.loading.formats import load_eagle, load_medusa, save_eagle, save_medusa

WIDTH, INNER = 16, 24  # of the models of conftest, which have 3 layers
KNOWN = [0, 2, 3, 7, 11, 18]  # tokens of a network that does not know all
READ = [0, 1, 3]
SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}  # fmt: skip


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def filled(shapes, dtype=torch.float32):
    """Random tensors: matrices that keep what goes through them about as large as it is, norms about 1."""
    tensors = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        scale, shift = (shape[1] ** -0.5, 0) if len(shape) == 2 else (0.3, 1 if "norm" in name else 0)
        scale = 1 if name == "embed_tokens.weight" else scale
        tensors[name] = numbers(*shape, seed=seed, dtype=dtype) * scale + shift
    return tensors


# Medusa


def published_config(heads=3, layers=2, **more):
    return {"medusa_num_heads": heads, "medusa_num_layers": layers, "base_model_name_or_path": "someone/model", **more}


def published(heads=3, layers=2, vocab=VOCAB, width=WIDTH, outputs=True):
    shapes = {}
    for i in range(heads):
        for j in range(layers):
            shapes |= {f"{i}.{j}.linear.weight": (width, width), f"{i}.{j}.linear.bias": (width,)}
        shapes |= {f"{i}.{layers}.weight": (vocab, width)} if outputs else {}
    return filled(shapes)


def write_inside(folder, model, heads, name, **more):
    """A folder of a whole model that was trained with its heads: in one file, or in two if `name` is None."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | published_config(**more)
    whole = load_file(folder / SAFE) | {f"medusa_head.{name}": tensor for name, tensor in heads.items()}
    (folder / SAFE).unlink()
    return write(folder, config, whole, name) if name else write_parts(folder, config, whole, SAFE)


def change_config(folder, changes):
    """Other keys in the configuration of a folder."""
    place = folder / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))


def with_prediction_layer(folder, model, says):
    """A folder of a model with a layer for multi-token prediction after its last; returns the model."""
    model.save_pretrained(folder)
    tensors, last = load_file(folder / SAFE), model.config.num_hidden_layers - 1
    more = {name: tensor for name, tensor in tensors.items() if f"layers.{last}." in name}
    more = {name.replace(f"layers.{last}.", f"layers.{last + 1}."): tensor.clone() for name, tensor in more.items()}
    more[f"model.layers.{last + 1}.eh_proj.weight"] = numbers(WIDTH, 2 * WIDTH)
    save_file(tensors | more, folder / SAFE, metadata={"format": "pt"})
    change_config(folder, says)
    return model


def vllm_config(heads=3, layers=2, **more):
    return {
        "model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": heads, "num_hidden_layers": layers,
        "hidden_size": WIDTH, "vocab_size": VOCAB, "truncated_vocab_size": VOCAB, "medusa_fc_bias": True, **more,
    }  # fmt: skip


def for_vllm(heads=3, layers=2, known=VOCAB, bias=True):
    shapes = {}
    for i in range(heads):
        for j in range(layers):
            shapes[f"blocks.{i}.layers.{j}.weight"] = (WIDTH, WIDTH)
            shapes |= {f"blocks.{i}.layers.{j}.bias": (WIDTH,)} if bias else {}
        shapes[f"lm_heads.{i}.weight"] = (known, WIDTH)
    return filled(shapes)


def from_vllm(name, layers=2):
    """What is called so there is called what here."""
    name = re.sub(r"blocks\.(.)\.layers\.(.)", r"\1.\2.linear", name)
    return re.sub(r"lm_heads\.(.)", rf"\1.{layers}", name)


def random_heads(heads=3, layers=2, dtype=torch.float32, **settings):
    """Heads of random numbers, none of them zero."""
    return randomised(MedusaHeads(WIDTH, VOCAB, heads, layers, **settings), dtype)


# EAGLE


def sizes(**more):
    return {
        "model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False, **more,
    }  # fmt: skip


def first_config(**more):
    return sizes(architectures=["LlamaForCausalLM"], torch_dtype="float64", **more)


def third_config(**more):
    return first_config(**{"draft_vocab_size": len(KNOWN), "eagle_aux_hidden_state_layer_ids": READ, **more})


def normed_config(**more):
    """EAGLE-3.1's: each layer's features are normed, and the network continues from its normed state."""
    return third_config(**{"fc_norm": True, "norm_output": True, **more})


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
    return filled(shapes | layer_shapes("layers.0", WIDTH, **layer), torch.float64)


def third(prefix="midlayer", known=KNOWN, read=3, **layer):
    shapes = {
        "embed_tokens.weight": (VOCAB, WIDTH), "fc.weight": (WIDTH, read * WIDTH), "norm.weight": (WIDTH,),
        "lm_head.weight": (VOCAB if known is None else len(known), WIDTH),
        f"{prefix}.hidden_norm.weight": (WIDTH,), f"{prefix}.input_layernorm.weight": (WIDTH,),
    }  # fmt: skip
    tensors = filled(shapes | layer_shapes(prefix, 2 * WIDTH, **layer), torch.float64)
    return tensors | ({} if known is None else maps(known))


def normed(**options):
    tensors = third(**options)
    return tensors | filled({f"fc_norm.{i}.weight": (WIDTH,) for i in range(options.get("read", 3))}, torch.float64)


def maps(known):
    return {
        "d2t": torch.tensor([token - i for i, token in enumerate(known)]),
        "t2d": torch.tensor([token in known for token in range(VOCAB)]),
    }


def package(**options):
    return third("layers.0", **options)


def random_network(kind, dtype=torch.float32, bias=True, normed=False, **settings):
    """A network of random numbers with every extra there is."""
    rope = {"rope_theta": 77.0, **LLAMA3}
    extras = {"head_dim": 6, "attention_bias": True, "mlp_bias": True, "rope_parameters": rope}
    config = LlamaConfig(**{**sizes(), **extras, **settings})
    norms = {"norm_before_residual": normed} | dict.fromkeys(["fc_norm", "norm_output"], kind == "EAGLE-3.1")
    head = EagleHead(config, bias=bias) if kind == "EAGLE-1" else Eagle3Head(config, READ, KNOWN, **norms)
    head.tree = {"nodes": 8, "depth": 4, "top_k": 3, "confidence": 0.25, "greedy_temperature": 0.5}
    return randomised(head, dtype)


# All of them


@dataclass(frozen=True)
class Layout:
    """What a layout is called by its writer, what is in a folder of it, and how heads go in and out."""

    name: str
    config: Callable[..., dict]  # keyword arguments change the keys of its sizes, wherever they stand
    tensors: Callable[..., dict]
    sizes: tuple[str, ...]  # the keys without which it cannot be read
    files: tuple[str, str]
    random: Callable  # heads of any type, with all that a folder can hold
    load: Callable
    write: Callable
    decode: Callable
    here: Callable[[str], str] = str  # from the name of a tensor in the file to that in the module

    def save(self, heads, folder, **options):
        return self.write(heads, folder, self.name, **options)


PATHS, SHARES = [(0,), (1,), (1, 0)], [[0.61, 1 / 3], [0.5, 0.0], [0.25, 1e-9]]
_medusa = {"load": load_medusa, "write": save_medusa, "decode": medusa,
           "random": functools.partial(random_heads, choices=PATHS, accuracies=SHARES)}  # fmt: skip
_eagle = {"load": load_eagle, "write": save_eagle, "decode": eagle, "files": (SAFE, PICKLE),
          "sizes": ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")}  # fmt: skip
LAYOUTS = {
    "medusa": Layout("medusa", published_config, published, ("medusa_num_heads", "medusa_num_layers"),
                     ("medusa_lm_head.safetensors", "medusa_lm_head.pt"), **_medusa),
    "vllm": Layout("vllm", vllm_config, for_vllm, ("num_heads", "num_hidden_layers", "hidden_size", "vocab_size"),
                   (SAFE, PICKLE), here=from_vllm, **_medusa),
    "EAGLE-1": Layout("eagle", first_config, first, random=functools.partial(random_network, "EAGLE-1"), **_eagle),
    "EAGLE-3": Layout("eagle", third_config, third, random=functools.partial(random_network, "EAGLE-3"), **_eagle),
    "EAGLE-3.1": Layout("eagle", normed_config, normed, random=functools.partial(random_network, "EAGLE-3.1"),
                        **_eagle),
    "speculators": Layout("speculators", lambda **more: package_config(more), package,
                          random=functools.partial(random_network, "EAGLE-3"),
                          here=lambda name: name.replace("layers.0", "midlayer"), **_eagle),
}  # fmt: skip


def randomised(module, dtype):
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = numbers(*parameter.shape, seed=seed, dtype=dtype)
    return module


def write(folder, config, tensors, name=None):
    """A folder of heads, written without the code under test."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    name = name or ("medusa_lm_head.safetensors" if "medusa_num_heads" in config else SAFE)
    (save_file if name.endswith(".safetensors") else torch.save)(tensors, folder / name)
    return folder


def write_parts(folder, config, tensors, name):
    """A folder of heads whose file is in two parts, with an index of them."""
    stem, _, ending = name.rpartition(".")
    names = sorted(tensors)
    parts = {f"{stem}-0000{i + 1}-of-00002.{ending}": names[i::2] for i in range(2)}
    for part, some in parts.items():
        write(folder, config, {name: tensors[name] for name in some}, part)
    index = {"metadata": {}, "weight_map": {name: part for part, some in parts.items() for name in some}}
    (folder / f"{name}.index.json").write_text(json.dumps(index))
    return folder


def bits(tensors):
    """Tensors by name, to be compared to the last bit."""
    return {
        name: (tensor.dtype, tuple(tensor.shape), tensor.detach().contiguous().view(torch.uint8).tolist())
        for name, tensor in tensors.items()
    }


def same(heads, others):
    return type(heads) is type(others) and bits(heads.state_dict()) == bits(others.state_dict())
