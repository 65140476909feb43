#!/bin/sh
# transformers 5.23.0: the SynthID watermark is gone with an assistant model or prompt lookup.
#
# One would expect: a watermark is a change of the distribution that the last tokens determine. Methods that keep the
#   target's distribution then keep the mark.
# What happens: the processor keeps the last tokens itself: it appends the newest token once per call. An assisted step
#   scores several positions of one text and goes back after a rejection; the kept tokens are then not those in front of
#   the position that is scored, so the mark belongs to other n-grams. Nothing warns.
# Why it matters: the text looks right, and the detector says "not marked". A mark that reads its context from the ids
#   that it is given does not have this weakness.
# Seen (mean g value over 100 tokens, 30 keys, n-grams of 5; .5 is an unmarked text; a random model of 64 tokens):
#   no mark .503, sampling .694, the model as its own assistant .499, prompt lookup .518
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import torch
from transformers import (
    LlamaConfig, LlamaForCausalLM, SynthIDTextWatermarkingConfig, SynthIDTextWatermarkLogitsProcessor, logging)

logging.set_verbosity_error()
torch.manual_seed(0)
torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
    max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()
model.generation_config.num_assistant_tokens = 4
model.generation_config.num_assistant_tokens_schedule = "constant"
model.generation_config.assistant_confidence_threshold = 0
KEYS = torch.randint(0, 2**20, (30,)).tolist()
reader = SynthIDTextWatermarkLogitsProcessor(ngram_len=5, keys=KEYS, sampling_table_size=2**16, sampling_table_seed=0,
                                             context_history_size=1024, device="cpu")
prompt = torch.randint(1, 64, (1, 8))


def mean_g(**options):
    """The detector's statistic of 100 new tokens."""
    text = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=0, max_new_tokens=100, min_new_tokens=100,
        **options)
    return reader.compute_g_values(text[:, 8:]).float().mean().item()


mark = {"watermarking_config": SynthIDTextWatermarkingConfig(ngram_len=5, keys=KEYS)}
seen = {"no mark": mean_g(), "sampling": mean_g(**mark), "the model as its own assistant": mean_g(assistant_model=model, **mark),
        "prompt lookup": mean_g(prompt_lookup_num_tokens=4, **mark)}
for name, mean in seen.items():
    print(f"{name}: {mean:.3f}")
if seen["sampling"] < .58 or max(mean for name, mean in seen.items() if name != "sampling") > .54:
    sys.exit("SynthID's mark is no longer kept by plain sampling and lost with drafts.")
PY
