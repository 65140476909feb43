#!/bin/sh
# mlx-lm 0.32.2: with a draft model, the repetition penalty no longer sees the prompt.
#
# One would expect: a draft changes the speed. Greedy text with a draft is greedy text without one, penalties included.
# What happens: plain decoding gives the penalty the prompt and the text, speculative decoding the text alone. The first
#   token differs already where the prompt contains the most likely token.
# Why it matters: switching speculation on changes the text of every setting with a penalty, and no test of speed or of
#   acceptance shows it: target and draft are penalised alike.
# Seen (probabilities .4 .3 .2 .1 for the tokens 3 4 5 6, prompt 1 3 7, greedy; the draft is the target itself):
#   no penalty:             plain 3 3 3 3 3 3   with a draft 3 3 3 3 3 3
#   repetition_penalty=2:   plain 4 5 3 3 3 3   with a draft 3 4 5 3 3 3
#   presence_penalty=1:     plain 4 5 3 3 3 3   with a draft 3 4 5 3 3 3
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile "mlx[cpu]==0.32.2" mlx-lm==0.32.2 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.cache import KVCache
from mlx_lm.sample_utils import make_logits_processors


class Table(nn.Module):
    """A model whose logits are the same after every token."""

    layers = ()

    def __call__(self, tokens, cache=None):
        row = np.full(8, -30.0, np.float32)
        row[3:7] = np.log([.4, .3, .2, .1])
        return mx.broadcast_to(mx.array(row), (*tokens.shape, 8))

    def make_cache(self):
        return [KVCache()]


def texts(**penalty):
    """Six tokens, plain and with a draft."""
    prompt, model, processors = mx.array([1, 3, 7]), Table(), make_logits_processors(**penalty)
    plain = generate_step(prompt, model, max_tokens=6, logits_processors=processors)
    drafted = speculative_generate_step(
        prompt, model, model, num_draft_tokens=2, max_tokens=6, logits_processors=processors)
    return [[int(step[0]) for step in steps] for steps in (plain, drafted)]


seen = [texts(), texts(repetition_penalty=2.0), texts(presence_penalty=1.0)]
print("no penalty:", *seen[0], "repetition_penalty=2:", *seen[1], "presence_penalty=1:", *seen[2])
if seen != [[[3] * 6] * 2] + [[[4, 5, 3, 3, 3, 3], [3, 4, 5, 3, 3, 3]]] * 2:
    sys.exit("mlx-lm's penalties no longer see the prompt in plain decoding only.")
PY
