#!/bin/sh
# CTranslate2 4.8.5: whether the prompt is returned decides which answer beam search finds.
#
# One would expect: include_prompt_in_result is about the result. The score that chooses among the beams is the sum of
#   the new tokens' log-probabilities, divided by their number to the power of length_penalty (1 as it comes).
# What happens: with include_prompt_in_result=True, the default of Generator.generate_batch, the prompt's tokens (less
#   the first) count as length. Their log-probabilities are not in the sum, so a long prompt makes the division almost
#   the same for all answers, and the shortest answer wins, as without any penalty.
# Why it matters: the same length_penalty means one rule in the book's beam search and another one for each prompt here.
# Seen (prompt of 21 tokens; after it the end has probability .4, and t2 t3 t4 t5 t6 and the end together .3):
#   include_prompt_in_result=False: t2 t3 t4 t5 t6, score -0.20067 = log(.3) / 6
#   include_prompt_in_result=True:  nothing new,    score -0.04363 = log(.4) / (20 + 1)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile ctranslate2==4.8.5 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - "$dir" <<'PY'
import sys

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec


def table_model(logits, folder):
    """A decoder whose layer adds nothing: the logits after a token are that token's row of the table."""
    size = len(logits)
    spec = TransformerDecoderModelSpec.from_config(1, 1, no_final_norm=True)
    decoder, layer = spec.decoder, spec.decoder.layer[0]
    decoder.scale_embeddings = False
    decoder.embeddings.weight = np.eye(size, dtype=np.float32)
    decoder.position_encodings.encodings = np.zeros((64, size), np.float32)
    decoder.projection.weight = np.ascontiguousarray(logits.T, np.float32)
    for norm in (layer.self_attention.layer_norm, layer.ffn.layer_norm):
        norm.gamma, norm.beta = np.ones(size, np.float32), np.zeros(size, np.float32)
    for linear, rows in zip([*layer.self_attention.linear, layer.ffn.linear_0, layer.ffn.linear_1], (3, 1, 1, 1)):
        linear.weight, linear.bias = np.zeros((rows * size, size), np.float32), np.zeros(rows * size, np.float32)
    spec.register_vocabulary([f"t{i}" for i in range(size)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "t0", "t1", "t0"
    spec.validate()
    spec.save(folder)
    return ctranslate2.Generator(folder, compute_type="float32")


probs = np.full((8, 8), 1e-6)
probs[7, [1, 2]] = .4, .3  # after the prompt: the end, or the start of a long answer that is certain from then on
for token, following in zip((2, 3, 4, 5, 6), (3, 4, 5, 6, 1)):
    probs[token, following] = 1
probs[7, 0] = .3
generator, seen = table_model(np.log(probs), sys.argv[1]), []
for shown in (False, True):
    result = generator.generate_batch(
        [["t7"] * 21], beam_size=4, max_length=40, include_prompt_in_result=shown, return_scores=True)[0]
    seen.append((" ".join(result.sequences[0][21 * shown:]), round(result.scores[0], 5)))
    print(f"include_prompt_in_result={shown}: new tokens '{seen[-1][0]}', score {seen[-1][1]}")
if seen != [("t2 t3 t4 t5 t6", -0.20067), ("", -0.04363)]:
    sys.exit("CTranslate2's length penalty no longer counts the prompt just where the prompt is returned.")
PY
