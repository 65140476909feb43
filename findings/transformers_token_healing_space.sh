#!/bin/sh
# transformers 5.23.0: token_healing does nothing after a space, if the tokenizer has a token for unknown text.
#
# One would expect: generate(token_healing=True) takes back the last token of the prompt, " ti", and lets the model
#   choose among the tokens that begin with its text, " time" for instance.
# What happens: to find these tokens, the space is replaced by the first character of convert_tokens_to_ids(" "). Byte
#   tokenizers write a space as another character, so " " is no token of theirs, and the answer is the token for
#   unknown text. Its first character is "<": tokens are looked for that begin with "<ti". There are none, and the
#   prompt stays as it is. Nothing warns.
# Why it matters: nearly every last token of a prompt begins with a space. SmolLM2's tokenizer is of this kind.
# Seen (a model whose logit for " time" and "time" is 5 higher than for all others):
#   "a ti" stays "a ti"; "ati", where the last token has no space, is healed to "atime"
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

logging.set_verbosity_error()
pieces = ["<|endoftext|>", "<s>", "<pad>", *"aetimĠ", "ti", "Ġti", "tim", "time", "Ġtim", "Ġtime"]
vocab = {piece: number for number, piece in enumerate(pieces)}
merges = [("t", "i"), ("Ġ", "ti"), ("ti", "m"), ("tim", "e"), ("Ġti", "m"), ("Ġtim", "e")]
bpe = Tokenizer(models.BPE(vocab, merges))
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bpe, unk_token="<|endoftext|>", bos_token="<s>", pad_token="<pad>")

model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(vocab), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
    bos_token_id=1, eos_token_id=None, pad_token_id=2)).eval()
with torch.no_grad():
    for weight in model.parameters():
        weight.zero_()
    model.model.embed_tokens.weight.fill_(1.0)
    model.model.norm.weight.fill_(1.0)
    for piece in ("time", "Ġtime"):
        model.lm_head.weight[vocab[piece]] = 5 / 16

seen = {}
for prompt in ("a ti", "ati"):
    ids = torch.tensor([tokenizer.encode(prompt)])
    seen[prompt] = tokenizer.decode(model.heal_tokens(ids, tokenizer)[0])
    print(f"{prompt!r} ({tokenizer.convert_ids_to_tokens(ids[0])}) is healed to {seen[prompt]!r}")
if seen != {"a ti": "a ti", "ati": "atime"}:
    sys.exit("transformers' token healing has changed.")
PY
