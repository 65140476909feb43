#!/bin/sh
# llama.cpp (xllamacpp 2026.10.11549): with mirostat, all penalties are off, in silence.
#
# One would expect: mirostat replaces top-k, top-p and the like (the help says so), and penalties still apply: they
#   change logits before anything is drawn.
# What happens: the chain then holds temperature and mirostat alone. Repetition, presence and frequency penalties and DRY
#   are accepted and have no effect.
# Why it matters: "mirostat against repetition penalty" in an experiment on loops measures mirostat alone.
# Seen (probabilities .4 .3 .2 .1, greedy or mirostat with a tau of 0.01, which draws the most likely token):
#   presence_penalty 2: mirostat 0: abcdaaaa   mirostat 1: aaaaaaaa   mirostat 2: aaaaaaaa
#   no penalty:         mirostat 0: aaaaaaaa   mirostat 1: aaaaaaaa   mirostat 2: aaaaaaaa
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


def text(mirostat, penalty):
    """Eight tokens, the most likely ones unless a penalty changes which these are."""
    return server.handle_completions({
        "prompt": [1], "n_predict": 8, "temperature": int(mirostat > 0), "mirostat": mirostat, "mirostat_tau": 0.01,
        "seed": 1, "presence_penalty": penalty})["choices"][0]["text"]


seen = {(mirostat, penalty): text(mirostat, penalty) for penalty in (2, 0) for mirostat in (0, 1, 2)}
for (mirostat, penalty), answer in seen.items():
    print(f"presence_penalty {penalty}, mirostat {mirostat}: {answer}")
if seen[0, 2] == seen[0, 0] or seen[1, 2] != seen[1, 0] or seen[2, 2] != seen[2, 0]:
    sys.exit("llama.cpp's mirostat no longer switches the penalties off, or the penalty no longer works without it.")
PY
