"""Try a tiny random model of every causal language model in transformers with `LM`, and list what came of it.

    python book/_tools/model_families.py            writes the list into book/models.md
    python book/_tools/model_families.py NAME ...   prints what it finds about these

It needs no network: the models are made from configurations, with random weights, and are a few thousand numbers large.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import torch
import transformers as hf
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

from tutorlib.model.cache import KeyValues
from tutorlib.model.lm import LM
from tutorlib.model.own_cache import OwnCache

PAGE = Path(__file__).parents[1] / "models.md"
BEGIN, END = "<!-- families: made by book/_tools/model_families.py -->", "<!-- end of families -->"
CACHED, PREFIX, OWN, ONE_BY_ONE, IN_FULL, REFUSED, NOT_TRIED = (
    "Works with a cache",
    "Works with a cache, as a causal model: its own attention within a prompt (`token_type_ids`) goes both ways",
    "Works with its own cache",
    "Works with its own cache, one token at a time",
    "In full: has no cache that can be used",
    "Refused: not causal",
    "Not tried: no tiny version could be made, or its input is not text",
)
VOCAB, POSITIONS, WINDOW, LAYERS = 61, 64, 5, 4

# How large the parts of a tiny model are, by the names that configurations have for them.
SIZES = {
    VOCAB: "vocab_size vocab_size_per_layer_input pronunciation_vocab_size shape_vocab_size",
    POSITIONS: "max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length max_target_positions",
    16: "hidden_size d_model n_embd embedding_size word_embed_proj_dim lru_width emb_dim cross_attention_hidden_size "
    "pronunciation_embed_dim shape_embed_dim mamba_intermediate_size",
    24: "intermediate_size ffn_dim n_inner decoder_ffn_dim encoder_ffn_dim moe_intermediate_size dff d_inner "
    "shared_expert_intermediate_size ffn_hidden_size intermediate_size_mlp expert_ffn_hidden_size ffn_hidden_size",
    LAYERS: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts head_dim "
    "v_head_dim qk_nope_head_dim qk_rope_head_dim rotary_dim kv_channels attention_head_dim n_routed_experts "
    "num_local_experts moe_num_experts state_size mamba_d_state ssm_state_size mamba_state_dim mamba_num_heads "
    "linear_num_heads hidden_size_per_layer_input",
    2: "num_key_value_heads num_kv_heads num_experts_per_tok moe_topk moe_k num_experts_per_token top_k_experts "
    "index_n_heads",
    8: "q_lora_rank kv_lora_rank o_lora_rank linear_head_dim linear_key_head_dim linear_value_head_dim mamba_d_head "
    "mamba_head_dim index_head_dim",
    1: "n_group topk_group mamba_n_groups n_groups n_shared_experts num_shared_experts",
    WINDOW: "sliding_window attention_chunk_size window_size attention_window_size attention_window",
    0.4: "initializer_range init_std initializer_std",
}
SIZES = {name: size for size, names in SIZES.items() for name in names.split()}
OPTIONAL = ("sliding_window", "head_dim", "num_key_value_heads")  # set although their default is None
SLIDING = ["sliding_attention", "full_attention"] * 2
# What else a family needs.
ALSO = {
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 8, "attn_layer_indices": [1, 3]},
    "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
    "doge": {"keep_window_size": WINDOW},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"] * 2},
    "dbrx": {"ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
             "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "gemma3n_text": {"num_kv_shared_layers": 0, "laurel_rank": 2, "layer_types": SLIDING},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "mamba2": {"num_heads": 4, "head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 8, "layer_types": ["mamba", "attention"] * 2},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2, "hybrid_layer_ids": [1, 3], "mamba_headdim": 8,
               "n_mamba_heads": 4, "use_mem_rope": True},
    "zaya": {"num_experts_per_tok": 1},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"] * 2, "hash_seed": 1, "feed_forward_size": 24,
                 "attention_head_size": 4},
}  # fmt: skip


def tiny(family, seed=0):
    """A tiny random model of a family, by its name in transformers."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    make = CONFIG_MAPPING[family]
    default = make().to_dict()
    sizes = {
        name: size
        for name, size in SIZES.items()
        if name in default and (default[name] is not None or name in OPTIONAL)
    }
    if "qk_rope_head_dim" in default:  # attention through a latent vector: its heads are made of two parts
        sizes.pop("head_dim", None)
        sizes["num_key_value_heads"] = 4
    sizes |= {
        name: 3
        for name, value in default.items()
        if name.endswith("token_id") and type(value) is int and value >= VOCAB
    }
    if hasattr(make, "is_decoder") or "is_decoder" in default:
        sizes["is_decoder"] = True
    config = make(**(sizes | ALSO.get(family, {})))
    with torch.device("meta"):
        numbers = sum(weights.numel() for weights in AutoModelForCausalLM.from_config(config).parameters())
    if numbers > 8_000_000:
        raise ValueError(f"{numbers:,} weights are not tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).float().eval()


def tried(family) -> str:
    """What `LM` does with a family."""
    try:
        model = tiny(family)
    except Exception:
        return NOT_TRIED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            lm = LM(model)
            lm.session([5, 7]).feed()
        except ValueError as error:
            return REFUSED if "even without a cache" in str(error) else NOT_TRIED
    cache = lm.open_cache(1)
    if isinstance(cache, OwnCache):
        return OWN if cache.pieces else ONE_BY_ONE
    if not isinstance(cache, KeyValues):
        return IN_FULL
    return PREFIX if getattr(model.config, "prefix_lm", False) else CACHED


def table(found: dict[str, str]) -> str:
    """The families by what came of them, as a table in Markdown."""
    lines = ["| With a tiny random model | Families |", "|---|---|"]
    for result in (CACHED, PREFIX, OWN, ONE_BY_ONE, IN_FULL, REFUSED, NOT_TRIED):
        families = [f"`{family}`" for family in CLASSES if found.get(family) == result]
        if families:
            lines.append(f"| {result} ({len(families)}) | {', '.join(families)} |")
    return "\n".join([BEGIN, f"transformers {hf.__version__}:", "", *lines, END])


def on_page() -> dict[str, str]:
    """What the page says about each family."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \(\d+\) \| (.*) \|$", text[text.index(BEGIN) : text.index(END)], re.M)
    return {family: result for result, families in rows for family in re.findall("`(.*?)`", families)}


if __name__ == "__main__":
    hf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    found = {}
    for family in sys.argv[1:] or CLASSES:
        found[family] = tried(family)
        print(family, found[family], sep=": ", flush=True)
    if len(sys.argv) == 1:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
        PAGE.write_text(before + table(found) + after, encoding="utf-8")
