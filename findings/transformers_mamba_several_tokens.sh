#!/bin/sh
# transformers 5.23.0: Mamba and FalconMamba give wrong logits for several tokens after a cache.
#
# One would expect: a recurrent model continues from its cache, so that a text in two pieces has the logits of the whole.
#   In one call of several tokens or in calls of one token makes no difference.
# What happens: calls of one token are right. A call of several tokens runs, and nothing says that its result is wrong:
#   the convolution goes on from the cache, but the recurrent state begins at zero again. Mamba2 is right both ways.
# Why it matters: a loop of one's own that reads a prompt in pieces or checks drafted tokens makes such calls. (generate
#   refuses assistant models and prompt lookup for these families.) Feed these two families token by token, or compute
#   the text anew.
# Seen (random models, 8 tokens and then 4; largest error of a logit, whose range is about 15):
#   Mamba 4.4 in one call and 3e-06 one by one, FalconMamba 1.4 and 1.9e-06, Mamba2 0 and 1.4e-06
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import torch
from transformers import (
    FalconMambaConfig, FalconMambaForCausalLM, Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM, logging)

logging.set_verbosity_error()
torch.set_num_threads(1)
text = torch.arange(5, 53, 4)[None]


def errors(kind, config):
    """The largest error of a logit after 8 tokens: the other 4 in one call, and one by one."""
    torch.manual_seed(0)
    model = kind(config).eval()
    found = []
    with torch.no_grad():
        whole = model(text, use_cache=False).logits
        for size in (4, 1):
            cache = model(text[:, :8], use_cache=True).cache_params
            pieces = []
            for start in range(8, 12, size):
                output = model(text[:, start:start + size], cache_params=cache, use_cache=True)
                cache = output.cache_params
                pieces.append(output.logits)
            found.append((torch.cat(pieces, 1) - whole[:, 8:]).abs().max().item())
    return found


sizes = {"vocab_size": 64, "hidden_size": 16, "state_size": 8, "num_hidden_layers": 2, "expand": 2,
         "initializer_range": 0.5}
for kind, config, is_wrong in (
    (MambaForCausalLM, MambaConfig(**sizes), True),
    (FalconMambaForCausalLM, FalconMambaConfig(**sizes), True),
    (Mamba2ForCausalLM, Mamba2Config(**sizes, num_heads=4, head_dim=8, n_groups=1, chunk_size=4), False),
):
    together, alone = errors(kind, config)
    print(f"{kind.__name__}: 4 tokens in one call {together:.2g}, one by one {alone:.2g}")
    if alone > 1e-3 or (together > 1e-1) != is_wrong:
        sys.exit("transformers' recurrent models changed: several tokens after a cache should be wrong in Mamba and "
                 "FalconMamba, and one by one right in all.")
PY
