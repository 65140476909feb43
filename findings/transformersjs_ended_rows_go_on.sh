#!/bin/sh
# transformers.js 4.3.1: in a batch, a text goes on after its end token.
#
# One would expect: a row that has ended is filled with padding while its neighbours go on, as in Python.
# What happens: the model continues the row after the end token, with real tokens. The call ends when all rows write the
#   end token in the same step, or at max_new_tokens.
# Why it matters: decode each row only up to its first end token, and count tokens and time of a batch with care: a call
#   whose rows end one after another runs to the limit.
# Seen (2 is the end; after 7 it is certain, after the end this model writes 3; ten tokens at most):
#   prompt 7 alone: 2
#   prompts 7 and 3 together: 2 3 3 3 3 3 3 3 3 3 and 3 3 3 3 3 3 3 3 3 3
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile onnx==1.23.2 numpy==2.4.6 || exit 2
cd "$dir"
ONNXRUNTIME_NODE_INSTALL=skip npm install --silent --no-audit --no-fund @huggingface/transformers@4.3.1 || exit 2
venv/bin/python - <<'PY'
import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The logits are the last token's row of this table: 3 4 5 6 with .4 .3 .2 .1, but the end (2) after 7, and 3 after the end.
table = np.full((8, 8), -30, np.float32)
table[:, 3:7] = np.log([.4, .3, .2, .1])
table[[2, 7]] = -30
table[[2, 7], [3, 2]] = 0


def value(name, *shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


inputs = [value(name, "b", length, dtype=TensorProto.INT64) for name, length in (
    ("input_ids", "s"), ("attention_mask", "t"), ("position_ids", "s"))]
outputs = [value("logits", "b", "s", 8)]
nodes = [helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
         helper.make_node("Unsqueeze", ["input_ids", "axes"], ["tall"]),
         helper.make_node("Cast", ["tall"], ["float"], to=TensorProto.FLOAT),
         helper.make_node("Mul", ["float", "zero"], ["new"])]
for part in ("key", "value"):  # a cache of zeros
    inputs.append(value(f"past_key_values.0.{part}", "b", 1, "p", 1))
    outputs.append(value(f"present.0.{part}", "b", 1, "q", 1))
    nodes.append(helper.make_node("Concat", [f"past_key_values.0.{part}", "new"], [f"present.0.{part}"], axis=2))
constants = {"table": table, "axes": np.array([1, 3]), "zero": np.array(0, np.float32)}
graph = helper.make_graph(nodes, "table", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
os.makedirs("model/onnx")
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model/onnx/model.onnx")
with open("model/config.json", "w") as file:
    json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 1,
               "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1, "bos_token_id": 1,
               "eos_token_id": 2, "pad_token_id": 0}, file)
PY
cat >run.mjs <<'JS'
import { AutoModelForCausalLM, Tensor, env, random } from '@huggingface/transformers';

env.allowRemoteModels = false;
env.localModelPath = process.cwd() + '/';
const model = await AutoModelForCausalLM.from_pretrained('model', { dtype: 'fp32' });

async function texts(prompts, options) {
  const shape = [prompts.length, prompts[0].length];
  const ids = BigInt64Array.from(prompts.flat().map(BigInt));
  random.seed(1);
  const output = await model.generate({
    inputs: new Tensor('int64', ids, shape),
    attention_mask: new Tensor('int64', ids.map(() => 1n), shape),
    max_new_tokens: 10,
    ...options,
  });
  return output.tolist().map((row) => row.slice(shape[1]).join(' '));
}

function stop(sentence) {
  console.error(sentence);
  process.exit(1);
}

const alone = await texts([[7]], {});
const together = await texts([[7], [3]], {});
console.log('alone', alone, 'together', together);
if (alone[0] !== '2') stop('transformers.js no longer ends a single row at its end token.');
if (together[0] !== '2 3 3 3 3 3 3 3 3 3') stop('transformers.js no longer continues a row that has ended.');
JS
node run.mjs
