#!/bin/sh
# bitsandbytes 0.50.2: in eight bits, a row's result depends on the other rows of the call.
#
# One would expect: each row is scaled and rounded by itself (that is what "row-wise absmax" says), so a token gets the
#   same logits alone, in a batch, and as one of several drafted tokens that are checked in one call.
# What happens: columns with a value above the threshold (6.0 as it comes) are computed in floating point, and a column
#   counts as an outlier for all rows if it is one in any row. A neighbour with one large value changes which of your
#   columns are rounded.
# Why it matters: speculative decoding with such a target is no longer lossless, greedy text changes with the batch, and
#   no test on single rows shows it. llm_int8_threshold=0.0 switches the outliers off: rows are then independent.
# Seen (rows of 64 numbers, Linear8bitLt with 64 outputs, on the CPU; one row alone, and beside one with eight outliers):
#   threshold 6.0: the 64 results differ by up to 0.00495 (the rounding itself: 0.01984)
#   threshold 0.0: they are equal
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 bitsandbytes==0.50.2 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import logging
import sys
import warnings

import bitsandbytes
import torch

logging.disable(logging.WARNING)  # one for each call: float32 is cast to float16
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
exact = torch.nn.Linear(64, 64, bias=False)
rows = torch.randn(2, 64)
rows[1, :8] = 20  # eight outliers, all in the second row
rows[0, 8] = 5.9  # no outlier, but coarse steps for its row


def layer(threshold):
    """The same weights in eight bits."""
    linear = bitsandbytes.nn.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False, threshold=threshold)
    linear.load_state_dict(exact.state_dict())
    return linear.to("cpu").eval()


seen = {}
with torch.no_grad():
    for threshold in (6.0, 0.0):
        linear = layer(threshold)
        linear(rows[:1])  # the first call quantizes the weights
        alone, together = linear(rows[:1])[0], linear(rows)[0]
        seen[threshold] = (alone - together).abs().max().item()
        rounding = (alone - exact(rows[:1])[0]).abs().max().item()
        print(f"threshold {threshold}: row 0 alone and beside an outlier differ by {seen[threshold]:.5f}, "
              f"rounding to eight bits costs {rounding:.5f}")
if not seen[6.0] > 5e-4 or seen[0.0] > 1e-6:
    sys.exit("bitsandbytes' outlier columns no longer depend on the neighbouring rows, or threshold 0 no longer helps.")
PY
