#!/bin/sh
# llama.cpp (xllamacpp 2026.10.11549): top-p and min-p do not see the temperature.
#
# One would expect: temperature first, then top-p, as in the paper on nucleus sampling, in transformers, CTranslate2,
#   OpenVINO GenAI and onnxruntime-genai. A sharper distribution needs fewer tokens to reach p, a flatter one more.
# What happens: the default chain ends with the temperature, so top-p keeps the tokens that it would keep at temperature
#   1. At temperature 5 the rare tokens that the usual order lets in stay out; at 0.25 tokens stay that it would drop.
#   A request can ask for the usual order: "samplers": ["temperature", "top_p"].
# Why it matters: "temperature 1.5, top-p 0.9" is a different distribution here; published settings do not carry over.
# Seen (probabilities .4 .3 .2 .1, top-p 0.6; "usual" is with the list of samplers):
#   T 0.25: a .7596 b .2404           usual: a 1
#   T 1:    a .5714 b .4286           usual: a .5714 b .4286
#   T 5:    a .5144 b .4856           usual: a .3553 b .3354 c .3093
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - "$dir" <<'PY'
import sys

import gguf
import numpy as np
import xllamacpp


def table_server(row, path):
    """A Llama whose layer adds nothing: after every token, the logits are this row. Its tokens 3, 4, ... read a, b, ..."""
    size = len(row)
    zero, one = np.zeros((size, size), np.float32), np.ones(size, np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in ((writer.add_block_count, 1), (writer.add_context_length, 256), (writer.add_vocab_size, size),
                       (writer.add_embedding_length, size), (writer.add_feed_forward_length, size),
                       (writer.add_head_count, 1), (writer.add_layer_norm_rms_eps, 1e-9),
                       (writer.add_tokenizer_model, "llama"), (writer.add_token_scores, [0.0] * size),
                       (writer.add_token_list, ["<unk>", "<s>", "</s>"] + [chr(94 + i) for i in range(3, size)]),
                       (writer.add_token_types, [2, 3, 3] + [1] * (size - 3))):
        add(value)
    writer.add_tensor("token_embd.weight", np.eye(size, dtype=np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", zero)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(name + ".weight", one)
    writer.add_tensor("output.weight", np.repeat(np.float32(row)[:, None] / size**.5, size, 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup, params.verbosity = path, 256, 4, False, -1
    return xllamacpp.Server(params)


row = np.full(32, -30.0)
row[3:7] = np.log([.4, .3, .2, .1])  # a, b, c, d
server = table_server(row, sys.argv[1] + "/table.gguf")


def kept(temperature, **more):
    """What sampling chooses from, as the server reports it."""
    answer = server.handle_completions({
        "prompt": [1, 3], "n_predict": 1, "temperature": temperature, "top_k": 0, "top_p": 0.6, "min_p": 0, "n_probs": 6,
        "post_sampling_probs": True, **more})
    return {top["token"]: round(top["prob"], 4) for top in answer["choices"][0]["logprobs"]["content"][0]["top_probs"]}


sizes = []
for temperature in (0.25, 1, 5):
    default, usual = kept(temperature), kept(temperature, samplers=["temperature", "top_p"])
    sizes.append((len(default), len(usual)))
    print(f"T {temperature}: {default}, with the temperature first: {usual}")
if sizes != [(2, 1), (2, 2), (2, 3)]:
    sys.exit("llama.cpp's top-p no longer comes before the temperature unless the request says so.")
PY
