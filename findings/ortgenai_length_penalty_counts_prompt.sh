#!/bin/sh
# onnxruntime-genai 0.18.0: beam search's length penalty counts the prompt, and leaves out the end token.
#
# One would expect: the score of a beam is the sum of the new tokens' log-probabilities, divided by their number to the
#   power of length_penalty, as in transformers. Then the length of the prompt decides nothing.
# What happens: the sum is divided by the number of all tokens, the prompt's too and the end token's not. After a short
#   prompt long answers win, after a long one the length hardly matters and short answers win.
# Why it matters: a length_penalty that was tuned elsewhere, or on other prompts, means something else here.
# Seen (after token 7 comes the end with probability .4, or with .3 the sure answer 3 4 5 6 1; 4 beams, length_penalty 1):
#   a prompt of 1 or 15 times token 7: 3 4 5 6 1    (15: log(.3) / (15 + 5) = -0.0602 > log(.4) / 15 = -0.0611)
#   a prompt of 16 or 30 times token 7: nothing     (16: log(.3) / (16 + 5) = -0.0573 = log(.4) / 16 less 0.00006)
# With the end token counted it would change between 14 and 15; without the prompt the long answer would always win.
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


probs = np.full((8, 8), 1e-6)
probs[7, [0, 2, 3]] = .3, .4, .3
for token, following in zip((3, 4, 5, 6, 1), (4, 5, 6, 1, 2)):
    probs[token, following] = 1
model = table_model(np.log(probs), sys.argv[1])
seen = [texts(model, [[7] * length], num_beams=4, length_penalty=1.0)[0] for length in (1, 15, 16, 30)]
print("after a prompt of 1, 15, 16, 30 tokens:", *seen)
if seen != [[3, 4, 5, 6, 1], [3, 4, 5, 6, 1], [], []]:
    sys.exit("onnxruntime-genai's length penalty no longer counts the prompt's tokens and leaves out the end token.")
PY
