#!/bin/sh
# OpenVINO GenAI 2026.4.1: frequency and presence penalties reward repetition where logits are negative.
#
# One would expect: the penalty is subtracted from the logit of each token that was written, as the two penalties are
#   defined. Subtracting is the same for logits and for log-probabilities: a constant in all logits changes nothing.
# What happens: the penalty is subtracted from logits above 0 and added to logits below 0, as if the sign rule of the
#   repetition penalty, which divides or multiplies, applied here too. Which tokens are rewarded depends on the constant.
# Why it matters: many models' logits are mostly negative, and models with normalised outputs have nothing else. There
#   the penalty makes loops more likely.
# Seen (probabilities .4 .3 .2 .1 for the tokens 3 4 5 6, greedy, eight tokens):
#   logits log p + 40: frequency_penalty=0.5: 3 4 3 5 4 3 5 4, -0.5: 3 3 3 3 3 3 3 3
#   logits log p:      frequency_penalty=0.5: 3 3 3 3 3 3 3 3, -0.5: 3 4 3 5 4 3 5 4
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile openvino-genai==2026.4.1.0 openvino==2026.4.1 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - "$dir" <<'PY'
import os
import sys

import numpy as np
import openvino
import openvino_genai
from openvino import opset13 as op


def table_pipeline(row, folder):
    """A pipeline whose logits are this row after every token; the other inputs that it expects are read, times 0."""
    inputs, unused = [], op.constant(np.float32(0))
    for name, shape, dtype in (("input_ids", [-1, -1], np.int64), ("attention_mask", [-1, -1], np.int64),
                               ("position_ids", [-1, -1], np.int64), ("beam_idx", [-1], np.int32)):
        inputs.append(op.parameter(shape, dtype, name=name))
        inputs[-1].output(0).set_names({name})
        total = op.reduce_sum(inputs[-1], op.constant(list(range(len(shape)))), False)
        unused = op.add(unused, op.multiply(op.convert(total, "f32"), op.constant(np.float32(0))))
    table = op.constant(np.tile(np.float32(row), (len(row), 1)))
    result = op.result(op.add(op.gather(table, inputs[0], op.constant(0)), unused))
    result.output(0).set_names({"logits"})
    os.makedirs(folder)
    openvino.save_model(openvino.Model([result], inputs), f"{folder}/openvino_model.xml", compress_to_fp16=False)
    with open(f"{folder}/config.json", "w") as file:
        file.write('{"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2}')
    return openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND="SDPA")


row = np.full(8, -30.0)
row[3:7] = np.log([.4, .3, .2, .1])
above, below = (table_pipeline(row + constant, f"{sys.argv[1]}/{constant}") for constant in (40, 0))


def text(pipeline, penalty):
    """Eight tokens, the most likely ones after the penalty."""
    config = openvino_genai.GenerationConfig(max_new_tokens=8, eos_token_id=2, frequency_penalty=penalty)
    return pipeline.generate(openvino.Tensor(np.array([[1, 7]])), config).tokens[0]


seen = [text(pipeline, penalty) for pipeline in (above, below) for penalty in (0.5, -0.5)]
print("logits above 0: penalty 0.5", seen[0], "penalty -0.5", seen[1])
print("logits below 0: penalty 0.5", seen[2], "penalty -0.5", seen[3])
varied, loop = [3, 4, 3, 5, 4, 3, 5, 4], [3] * 8
if seen != [varied, loop, loop, varied]:
    sys.exit("OpenVINO GenAI no longer adds the frequency penalty to logits below 0.")
PY
