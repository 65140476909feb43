#!/bin/sh
# CTranslate2 4.8.5: set_random_seed works once, before the first draw, and is ignored afterwards.
#
# One would expect: set_random_seed(1) before each call makes each call draw the same text, as torch.manual_seed does.
# What happens: the seed is read when a thread of the generator draws for the first time. Later calls of
#   set_random_seed change nothing there; only a generator made after the call starts from the seed again.
# Why it matters: "the same seed, with and without this setting" compares two different streams of random numbers. Make a
#   new Generator for each text that you want to be able to repeat.
# Seen (vocabulary of 64 equally likely tokens, 8 tokens each):
#   seed 1, three calls of one generator: three different texts
#   seed 1, three new generators: one text, which is also the first of the three above
#   seed 1 and seed 2, two new generators: different texts
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile ctranslate2==4.8.5 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - "$dir" <<'PY'
import sys

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec


def table_model(logits, folder):
    """A decoder whose layer adds nothing: the logits after a token are that token's row of the table."""
    size = len(logits)
    spec = TransformerDecoderModelSpec.from_config(1, 1, no_final_norm=True)
    decoder, layer = spec.decoder, spec.decoder.layer[0]
    decoder.scale_embeddings = False
    decoder.embeddings.weight = np.eye(size, dtype=np.float32)
    decoder.position_encodings.encodings = np.zeros((64, size), np.float32)
    decoder.projection.weight = np.ascontiguousarray(logits.T, np.float32)
    for norm in (layer.self_attention.layer_norm, layer.ffn.layer_norm):
        norm.gamma, norm.beta = np.ones(size, np.float32), np.zeros(size, np.float32)
    for linear, rows in zip([*layer.self_attention.linear, layer.ffn.linear_0, layer.ffn.linear_1], (3, 1, 1, 1)):
        linear.weight, linear.bias = np.zeros((rows * size, size), np.float32), np.zeros(rows * size, np.float32)
    spec.register_vocabulary([f"t{i}" for i in range(size)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "t0", "t1", "t0"
    spec.validate()
    spec.save(folder)
    return ctranslate2.Generator(folder, compute_type="float32")


def draw(generator):
    """Eight tokens, each of them drawn."""
    result = generator.generate_batch([["t0"]], max_length=8, sampling_topk=0, include_prompt_in_result=False)[0]
    return " ".join(result.sequences[0])


def fresh(seed):
    """A text of a generator that was made after its seed was set."""
    ctranslate2.set_random_seed(seed)
    return draw(ctranslate2.Generator(sys.argv[1], compute_type="float32"))


flat = np.zeros((64, 64))
flat[:, 1] = -30
ctranslate2.set_random_seed(1)
generator, texts = table_model(flat, sys.argv[1]), []
for _ in range(3):
    ctranslate2.set_random_seed(1)
    texts.append(draw(generator))
new, other = [fresh(1) for _ in range(3)], fresh(2)
print("one generator, seed 1 set before each call:", *texts, sep="\n  ")
print("a new generator for each call, seed 1:", *new, sep="\n  ")
print("a new generator, seed 2:", other, sep="\n  ")
if len(set(texts)) != 3 or set(new) != {texts[0]} or other in new:
    sys.exit("CTranslate2's seed no longer works for the first draw of a generator only.")
PY
