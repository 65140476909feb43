#!/bin/sh
# onnxruntime-genai 0.18.0: do_sample=True with top_k=0 writes greedy text, at every temperature.
#
# One would expect: top_k=0 switches top-k off, as in transformers, llama.cpp and CTranslate2, and do_sample=True draws.
# What happens: with top_k=0 and no top_p, every token is the most likely one, whatever the temperature is, without a
#   warning. With top_p=1.0, which changes nothing elsewhere, or without top_k (then it is 50), tokens are drawn.
# Why it matters: "sampling without filters" is greedy decoding here; self-consistency or best-of-n then compare one
#   answer with itself.
# Seen (probabilities .4 .3 .2 .1 for the tokens 3 4 5 6, 200 tokens, how many different ones):
#   do_sample, top_k=0: 1     and temperature=2: 1     and top_p=1.0: 4     do_sample, top_k=4: 4
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
        json.dump({"model": {"type": "llama", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "context_length": 256,
                             "vocab_size": len(logits), "decoder": decoder},
                   "search": {"max_length": 256, "past_present_share_buffer": False}}, file)
    return onnxruntime_genai.Model(folder)


def different(model, **options):
    """How many different tokens there are in a text of 200."""
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=201, random_seed=1, do_sample=True, **options)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(np.array([[1]], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return len(set(generator.get_sequence(0).tolist()[1:]))


logits = np.full((8, 8), -30.0)
logits[:, 3:7] = np.log([.4, .3, .2, .1])
model = table_model(logits, sys.argv[1])
seen = [different(model, **options) for options in ({"top_k": 0}, {"top_k": 0, "temperature": 2.0},
                                                    {"top_k": 0, "top_p": 1.0}, {"top_k": 4})]
print("different tokens with top_k=0:", seen[0], "at temperature 2:", seen[1], "with top_p=1:", seen[2], "with top_k=4:", seen[3])
if seen != [1, 1, 4, 4]:
    sys.exit("onnxruntime-genai no longer writes greedy text with do_sample=True and top_k=0.")
PY
