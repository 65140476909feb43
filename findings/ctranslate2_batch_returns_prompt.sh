#!/bin/sh
# CTranslate2 4.8.5: a neighbour of one token puts your prompt into your answer and shortens it.
#
# One would expect: rows of a batch are independent. With include_prompt_in_result=False and max_length=6, each row
#   returns six new tokens, and repetition_penalty looks back over the same tokens whatever the neighbour is.
# What happens: if the shortest prompt of the batch has one token, longer prompts are "decoded" token by token from
#   their second token on. These tokens are returned, count towards max_length, and leave three new tokens of six. If the
#   shortest prompt has two tokens, the answer has six new tokens again, but the repetition penalty now sees the part of
#   the prompt behind the neighbour's length, so the text is another one.
# Why it matters: sort or pad prompts to one length before you compare an engine with a reference.
# Seen (prompt t2 t3 t5 t2, then the answer):
#   alone:                       t2 t2 t2 t2 t2 t2   with repetition_penalty=2: t2 t3 t2 t2 t2 t2
#   beside a prompt of 1 token:  t3 t5 t2 t2 t2 t2   with repetition_penalty=2: t3 t5 t2 t2 t2 t2
#   beside a prompt of 2 tokens: t2 t2 t2 t2 t2 t2   with repetition_penalty=2: t3 t2 t2 t2 t2 t2
#   beside a prompt of 4 tokens: t2 t2 t2 t2 t2 t2   with repetition_penalty=2: t2 t3 t2 t2 t2 t2
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


generator = table_model(np.tile([0, -20, 3, 2, 1, 0, 0, 0], (8, 1)), sys.argv[1])
prompt, seen = ["t2", "t3", "t5", "t2"], []
for neighbour in (0, 1, 2, 4):
    batch = [prompt] + [["t6"] * neighbour] * (neighbour > 0)
    for penalty in (1, 2):
        seen.append(" ".join(generator.generate_batch(
            batch, max_length=6, repetition_penalty=penalty, include_prompt_in_result=False)[0].sequences[0]))
        print(f"neighbour of {neighbour} tokens, penalty {penalty}: {seen[-1]}")
if seen != ["t2 t2 t2 t2 t2 t2", "t2 t3 t2 t2 t2 t2", "t3 t5 t2 t2 t2 t2", "t3 t5 t2 t2 t2 t2",
            "t2 t2 t2 t2 t2 t2", "t3 t2 t2 t2 t2 t2", "t2 t2 t2 t2 t2 t2", "t2 t3 t2 t2 t2 t2"]:
    sys.exit("CTranslate2's answers no longer depend on the neighbour's length in the way described here.")
PY
