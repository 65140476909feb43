#!/bin/sh
# llama.cpp (xllamacpp 2026.10.11549): with a seed, all prompts of a list get the same random numbers.
#
# One would expect: a request with a list of prompts and one seed is reproducible as a whole, and its rows draw
#   independently, as three answers to one prompt (n=3) do.
# What happens: each prompt starts from the same seed. Equal prompts get equal texts, and different prompts with similar
#   distributions get correlated ones. Each row alone is a right sample; the batch together is one sample.
# Why it matters: a mean over the rows of such a batch has the error of a single text, whatever the number of rows.
# Seen (logits that depend on nothing, seed 1, 12 tokens):
#   prompts [1 3], [1 3], [1 4 5]: ddadaaabdcab ddadaaabdcab ddadaaabdcab
#   n=3, prompt [1 3]:             ddadaaabdcab addbaababbcb acabbaaaabab
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


def texts(**request):
    """The answers to a request."""
    return [choice["text"] for choice in server.handle_completions({
        "n_predict": 12, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 1, **request})["choices"]]


rows, answers = texts(prompt=[[1, 3], [1, 3], [1, 4, 5]]), texts(prompt=[1, 3], n=3)
print("three prompts:", *rows)
print("three answers to one prompt:", *answers)
if len(set(rows)) != 1 or len(set(answers)) != 3:
    sys.exit("llama.cpp's prompts of one list no longer share their random numbers, or answers to one prompt now do.")
PY
