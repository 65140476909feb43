#!/bin/sh
# onnxruntime-genai 0.18.0: whether a text contains its end token depends on its neighbours in the batch.
#
# One would expect: one rule for all rows: a sequence that is handed back ends with the end token, or none does.
# What happens: the row that is the last to end has no end token; rows that ended before have it, and padding after it.
#   With beams the end token is left out in all rows.
# Why it matters: counting tokens, or averaging scores over them, gives one token more or less, depending on the batch.
# Seen (2 is the end, 0 the padding; the prompt is the one token in front of the colon):
#   alone:            7:            3: 4 5 6 1
#   together:         7: 2 0 0 0    3: 4 5 6 1
#   together, 2 beams 7:            3: 4 5 6 1
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile onnxruntime-genai==0.18.0 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - "$dir" <<'PY'
import json
import sys

import numpy as np
import onnx
import onnxruntime_genai
from onnx import TensorProto, helper, numpy_helper


def table_model(logits, folder):
    """A model whose logits are the last token's row of the table. Its cache holds zeros."""
    def value(name, *shape, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [value("input_ids", "b", "s", dtype=TensorProto.INT64), value("attention_mask", "b", "t", dtype=TensorProto.INT64)]
    outputs = [value("logits", "b", "s", len(logits))]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
             helper.make_node("Unsqueeze", ["input_ids", "axes"], ["tall"]),
             helper.make_node("Cast", ["tall"], ["float"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["float", "zero"], ["new"])]
    for part in ("key", "value"):
        inputs.append(value(f"past.{part}.0", "b", 1, "p", 1))
        outputs.append(value(f"present.{part}.0", "b", 1, "t", 1))
        nodes.append(helper.make_node("Concat", [f"past.{part}.0", "new"], [f"present.{part}.0"], axis=2))
    constants = {"table": np.float32(logits), "axes": np.array([1, 3]), "zero": np.array(0, np.float32)}
    graph = helper.make_graph(nodes, "table", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder + "/model.onnx")
    decoder = {"filename": "model.onnx", "head_size": 1, "hidden_size": 1, "num_attention_heads": 1,
               "num_key_value_heads": 1, "num_hidden_layers": 1, "session_options": {"provider_options": []},
               "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                          "past_key_names": "past.key.%d", "past_value_names": "past.value.%d"},
               "outputs": {"logits": "logits", "present_key_names": "present.key.%d", "present_value_names": "present.value.%d"}}
    with open(folder + "/genai_config.json", "w") as file:
        json.dump({"model": {"type": "llama", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "context_length": 64,
                             "vocab_size": len(logits), "decoder": decoder},
                   "search": {"max_length": 64, "past_present_share_buffer": False}}, file)
    return onnxruntime_genai.Model(folder)


def texts(model, prompts, **options):
    """What follows each prompt."""
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(batch_size=len(prompts), max_length=60, **options)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(np.array(prompts, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [generator.get_sequence(i).tolist()[len(prompt):] for i, prompt in enumerate(prompts)]


logits = np.full((8, 8), -30.0)
for token, following in zip((7, 3, 4, 5, 6, 1), (2, 4, 5, 6, 1, 2)):
    logits[token, following] = 0
model = table_model(logits, sys.argv[1])
alone = texts(model, [[7]]) + texts(model, [[3]])
together, beams = texts(model, [[7], [3]]), texts(model, [[7], [3]], num_beams=2)
print("alone:", alone, "together:", together, "with beams:", beams)
if alone != [[], [4, 5, 6, 1]] or together != [[2, 0, 0, 0], [4, 5, 6, 1]] or beams != alone:
    sys.exit("onnxruntime-genai's end tokens no longer depend on the neighbours in the way described here.")
PY
