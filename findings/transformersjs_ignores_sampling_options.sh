#!/bin/sh
# transformers.js 4.3.1: top_p, min_p, typical_p and num_beams are accepted and do nothing.
#
# One would expect: the names are those of the Python library, so they work, or are refused as not implemented. Python
#   raises for names that it does not know, and for a temperature of 0 or below.
# What happens: top_k and temperature work. With top_p=.3, min_p=.9 or typical_p=.1 the text is that of no filter, token by
#   token; num_beams=4 gives the greedy text, once, also with num_return_sequences=2; a misspelt name is accepted. A
#   temperature of -1 turns the distribution round and draws the least likely tokens.
# Why it matters: a browser demo "with nucleus sampling" samples from the whole distribution.
# Seen (probabilities .4 .3 .2 .1 for the tokens 3 4 5 6, one seed, ten tokens):
#   sampling, and with top_p=.3, min_p=.9, typical_p=.1:  3 5 5 3 4 4 4 5 3 3
#   with top_k=2:           3 4 4 3 3 3 4 4 3 3
#   with temperature=-1:    0 7 6 1 1 1 2
#   greedy, num_beams=4 with num_return_sequences=2, temprature=3:  3 3 3 3 3 3 3 3 3 3, one text
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

const plain = await texts([[1, 3]], { do_sample: true });
const greedy = await texts([[1, 3]], {});
console.log('sampling', plain, 'greedy', greedy);
for (const [options, same] of [
  [{ do_sample: true, top_p: 0.3 }, plain],
  [{ do_sample: true, min_p: 0.9 }, plain],
  [{ do_sample: true, typical_p: 0.1 }, plain],
  [{ num_beams: 4, num_return_sequences: 2 }, greedy],
  [{ temprature: 3 }, greedy],
]) {
  const seen = await texts([[1, 3]], options);
  console.log(JSON.stringify(options), seen);
  if (String(seen) !== String(same)) stop('transformers.js no longer ignores this option.');
}
const works = await texts([[1, 3]], { do_sample: true, top_k: 2 });
const reversed = await texts([[1, 3]], { do_sample: true, temperature: -1 });
console.log('top_k: 2', works, 'temperature: -1', reversed);
if (String(works) === String(plain)) stop('transformers.js ignores top_k too.');
if (!/[0127]/.test(reversed[0])) stop('transformers.js no longer draws the least likely tokens at temperature -1.');
JS
node run.mjs
