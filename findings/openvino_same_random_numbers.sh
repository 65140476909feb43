#!/bin/sh
# OpenVINO GenAI 2026.4.1: without a seed, each call and each row of a batch draws with the same random numbers.
#
# One would expect: no seed was given, so two calls write different texts, and so do two rows with the same prompt.
# What happens: rng_seed is 0 unless it is set, and the generator starts from it in each call and for each row. The same
#   prompt always gets the same text, also within a batch, and rows with different prompts get correlated texts.
# Why it matters: each text is a right sample, but the second to the hundredth one add nothing: a measured mean looks
#   exact, and is one draw. Set another rng_seed for each call, and sample several texts with num_return_sequences.
# Seen (probabilities .4 .3 .2 .1 for the tokens 3 4 5 6, temperature 1, eight tokens):
#   first call, second call, and each row of a batch (prompts 1 7, 1 7, 1 3): 4 4 5 5 4 5 4 5
#   rng_seed=5: 3 3 5 5 3 3 6 6
#   num_return_sequences=3: three different texts
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
pipeline = table_pipeline(row, f"{sys.argv[1]}/model")


def texts(*prompts, **options):
    """One text for each prompt, or more."""
    config = openvino_genai.GenerationConfig(
        max_new_tokens=8, eos_token_id=2, do_sample=True, temperature=1.0, top_k=8, **options)
    ids = np.array(prompts)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
    return [" ".join(map(str, tokens)) for tokens in pipeline.generate(inputs, config).tokens]


same = texts([1, 7]) + texts([1, 7]) + texts([1, 7], [1, 7], [1, 3])
seeded, several = texts([1, 7], rng_seed=5), texts([1, 7], num_return_sequences=3)
print("two calls, then three rows:", *same, sep="\n  ")
print("rng_seed=5:", *seeded, sep="\n  ")
print("num_return_sequences=3:", *several, sep="\n  ")
if len(set(same)) != 1 or seeded[0] == same[0] or len(set(several)) != 3:
    sys.exit("OpenVINO GenAI's calls or rows no longer share their random numbers.")
PY
