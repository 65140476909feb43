#!/bin/sh
# transformers 5.23.0: with a cache and no position_ids, Bamba numbers the new tokens from 0.
#
# One would expect: position_ids may be left out. A model then numbers the new tokens after those in its cache, as Llama
#   does, and also Zamba2, Falcon-H1 and Nemotron-H, which mix attention with recurrent layers as Bamba does.
# What happens: without position_ids, Bamba numbers the tokens of each call 0, 1, ..., whatever its cache holds, so that
#   each new token of a loop stands at position 0. Nothing warns; generate passes the positions and is right.
# Why it matters: a loop of one's own that is right for Llama writes another text with Bamba. Pass position_ids.
# Seen (a random model, 8 tokens and then 4 one by one; largest error of a logit, whose range is about 16):
#   Llama 6.7e-06 with and without position_ids; Bamba 6.7e-06 with them and 3.9 without
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import torch
from transformers import BambaConfig, BambaForCausalLM, LlamaConfig, LlamaForCausalLM, logging

logging.set_verbosity_error()
torch.set_num_threads(1)
text = torch.arange(5, 53, 4)[None]
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.5}
mamba = {"attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8,
         "mamba_expand": 2, "mamba_chunk_size": 4}


def error(model, told):
    """The largest error of a logit of the last 4 tokens, one by one, with their positions or without."""
    with torch.no_grad():
        whole = model(text, use_cache=False).logits
        cache, largest = model(text[:, :8], use_cache=True).past_key_values, 0.0
        for place in range(8, 12):
            positions = {"position_ids": torch.tensor([[place]])} if told else {}
            output = model(text[:, place:place + 1], past_key_values=cache, use_cache=True, **positions)
            cache = output.past_key_values
            largest = max(largest, (output.logits[:, 0] - whole[:, place]).abs().max().item())
    return largest


for kind, config in ((LlamaForCausalLM, LlamaConfig(**sizes)), (BambaForCausalLM, BambaConfig(**sizes, **mamba))):
    torch.manual_seed(0)
    model = kind(config).eval()
    without, told = error(model, False), error(model, True)
    print(f"{kind.__name__}: without position_ids {without:.2g}, with them {told:.2g}")
    if told > 1e-3 or (without > 1e-1) != (kind is BambaForCausalLM):
        sys.exit("Bamba changed: without position_ids its cached calls should be wrong, and Llama's right.")
PY
