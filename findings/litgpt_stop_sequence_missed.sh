#!/bin/sh
# litgpt 0.5.13: the stop sequence 3 4 is not found in 3 3 4.
#
# One would expect: decoding ends when the text ends with the stop sequence.
# What happens: the matcher counts how far the sequence has been matched, and a token that does not continue it sets the
#   count to 0 without asking whether this token begins the sequence. So after 3, the second 3 is lost and 4 is no match.
# Why it matters: stop sequences such as two newlines or "###" are missed exactly where one of their tokens is repeated,
#   and the text goes on to the limit.
# Seen (the model writes 1 3 4 5 6 or 1 3 3 4 5 6, stop sequence 3 4):
#   1 3 4: it stops, and the text is 1; 1 3 3 4: it goes on, and the text is 1 3 3 4 5 6
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 litgpt==0.5.13 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys
import warnings

import torch
from litgpt.generate.base import generate_fn

warnings.simplefilter("ignore")
torch.set_num_threads(1)


class Script(torch.nn.Module):
    """A model that writes given tokens, whatever it reads."""

    max_seq_length = 64

    def __init__(self, tokens):
        super().__init__()
        self.logits = 30 * torch.nn.functional.one_hot(torch.tensor(tokens), 8).float()

    def forward(self, idx, input_pos=None, **more):
        return self.logits[input_pos][None]


def text(script):
    """What comes back when the model writes these tokens, with the stop sequence 3 4."""
    tokens = generate_fn(Script(script), torch.tensor([0]), len(script) + 1, temperature=0.0, stop_tokens=([3, 4],),
                         include_prompt=False, include_eos=False)
    return [int(token) for token in tokens]


once, twice = text([1, 3, 4, 5, 6]), text([1, 3, 3, 4, 5, 6])
print("1 3 4 5 6:", once, "1 3 3 4 5 6:", twice)
if once != [1] or twice != [1, 3, 3, 4, 5, 6]:
    sys.exit("litgpt's stop sequence 3 4 is now found in 3 3 4, or no longer in 3 4.")
PY
