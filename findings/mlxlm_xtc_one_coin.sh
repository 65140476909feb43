#!/bin/sh
# mlx-lm 0.32.2: XTC throws one coin for all rows of a batch.
#
# One would expect: XTC removes the top choices with probability xtc_probability at each token of each text, so about
#   half of the rows lose them at 0.5.
# What happens: one number is drawn for the whole array of logits: all rows lose their top choices, or none does.
# Why it matters: each text alone is right, but the texts of a batch are correlated, token by token: means over a batch
#   have a larger error than its size suggests, and a test on one row cannot see it.
# Seen (six equal rows, probabilities .4 .3 .2 .1, threshold 0.15, probability 0.5, 40 calls, seed 0):
#   tokens left in the six rows: always six times 2 or six times 4 (14 of 40 calls with 2)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile "mlx[cpu]==0.32.2" mlx-lm==0.32.2 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import mlx.core as mx
from mlx_lm.sample_utils import apply_xtc

mx.random.seed(0)
logits = mx.log(mx.array([[.4, .3, .2, .1]] * 6))
left = [(apply_xtc(logits, 0.5, 0.15, []) > -100).sum(-1).tolist() for _ in range(40)]
print("tokens left in each row, first calls:", *left[:4], "calls that left 2:", left.count([2] * 6), "4:", left.count([4] * 6))
if left.count([2] * 6) + left.count([4] * 6) != 40 or not 0 < left.count([2] * 6) < 40:
    sys.exit("mlx-lm's rows no longer share XTC's coin.")
PY
