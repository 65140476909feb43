#!/bin/sh
# transformers 5.23.0: generate of RoBERTa, CamemBERT and XLM-RoBERTa writes another text than their forward pass.
#
# One would expect: greedy generate is a loop: take the token with the largest logit of model(ids), append it, repeat.
# What happens: these models number positions from pad_token_id + 1 (2 as they come) if nobody tells them. generate passes
#   position_ids that begin at 0, so every token stands two positions early; also with use_cache=False. BERT, which
#   numbers from 0 itself, is right.
# Why it matters: generate begins at position 0, which the forward pass gives to no token, and 1, which it gives only to
#   padding; and a loop of one's own does not reproduce generate. It does if generate is given position_ids that begin at
#   pad_token_id + 1.
# Seen (10 random models of each kind, 10 new tokens, greedy; texts equal to those of the loop):
#   BERT 10 of 10; RoBERTa, CamemBERT and XLM-RoBERTa 1 of 10, with a cache and without
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import torch
from transformers import (
    BertConfig, BertLMHeadModel, CamembertConfig, CamembertForCausalLM, RobertaConfig, RobertaForCausalLM,
    XLMRobertaConfig, XLMRobertaForCausalLM, logging)

logging.set_verbosity_error()
torch.set_num_threads(1)
prompt = torch.arange(5, 53, 8)[None]


def texts_equal(kind, config):
    """Of 10 random models: how often generate writes the loop's text, with a cache and without."""
    equal = [0, 0]
    for seed in range(10):
        torch.manual_seed(seed)
        model = kind(config).eval()
        text = prompt
        with torch.no_grad():
            for _ in range(10):
                text = torch.cat([text, model(text, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        for place, use_cache in enumerate((True, False)):
            written = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, do_sample=False,
                                     use_cache=use_cache)
            equal[place] += torch.equal(written, text)
    return equal


sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "max_position_embeddings": 64, "is_decoder": True, "initializer_range": 0.3, "pad_token_id": 1,
         "bos_token_id": None, "eos_token_id": None}
for kind, config in (
    (BertLMHeadModel, BertConfig), (RobertaForCausalLM, RobertaConfig), (CamembertForCausalLM, CamembertConfig),
    (XLMRobertaForCausalLM, XLMRobertaConfig),
):
    cached, plain = texts_equal(kind, config(**sizes))
    print(f"{kind.__name__}: {cached} of 10 texts equal, without a cache {plain}")
    if (max(cached, plain) > 5) != (kind is BertLMHeadModel) or (kind is BertLMHeadModel and cached + plain < 20):
        sys.exit("generate of these decoders changed: BERT's texts should equal the loop's, RoBERTa's and its like not.")
PY
