"""A sweep of chapter 11: does `transformers` sample from the right distribution with an assistant model?

`proof.empirical_check` is applied to `generate` in the installed version. The models are a pair of small random models,
each with its own tokenizer, so small that every text of two tokens occurs often; and the bundled models, with one
tokenizer. (With their two tokenizers, `generate` ends with an error, because it assumes that each tokenizer has tokens
which the other lacks.)

With two tokenizers, the result depends on the order of a hash table, which is different in each process. So the row
with the map in this order is only one case of many. The rows with the map sorted and backwards are the same every time.
"""

from collections.abc import Callable
from functools import cache

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

from ...decoders.token_intersection import token_intersection
from ...loading import hub
from ...measures.proof import Check, empirical_check
from ...model.lm import LM
from ...running.decoding import run
from ...sampling.randomness import Seeded
from . import Experiment, Setting, bundled, village_prompts

SETTING: Setting = {"length": 2, "written": 4, "small_samples": 10_000, "bundled_samples": 2_000}
# The tokens of the small models, in the order of their ids. The draft has all tokens of the target, and two more.
TARGET_LETTERS, DRAFT_LETTERS = "abcdefghij ", "kjbhdfe agcil"


# ----------------------------------------------------------------------------------------------------------------------
# The models


def letters_tokenizer(letters: str) -> PreTrainedTokenizerFast:
    """A tokenizer for which each of these letters is a token."""
    tokenizer = Tokenizer(tokenizer_models.WordLevel({letter: token for token, letter in enumerate(letters)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def letter_model(kind: str, letters: str, seed: int) -> LM:
    """A small random model, a "llama" or a "gpt2", whose tokens are letters."""
    sizes = {"vocab_size": len(letters), "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.8}
    llama = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    gpt2 = {"n_embd": 8, "n_layer": 1, "n_head": 2}
    config = LlamaConfig(**llama, **sizes) if kind == "llama" else GPT2Config(**gpt2, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LM(AutoModelForCausalLM.from_config(config), letters_tokenizer(letters))


@cache
def small_target() -> LM:
    return letter_model("llama", TARGET_LETTERS, 1)


def small_draft(letters: str = DRAFT_LETTERS) -> LM:
    """A new model at each call, because `generate` replaces its embeddings."""
    return letter_model("gpt2", letters, 2)


def in_order_of_ids(tokenizer, backwards=False):
    """The same tokenizer, with its vocabulary in the order of the ids, or backwards, and not a hash table's."""
    listed = dict(sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1], reverse=backwards))
    tokenizer.get_vocab = lambda: dict(listed)
    return tokenizer


# ----------------------------------------------------------------------------------------------------------------------
# The decoders to check: functions from a prompt to new tokens


def generated(target: LM, draft: LM | None = None, *, two_tokenizers=False) -> Callable:
    """Sampling with `generate`, with an assistant model if there is one; the random draws are torch's."""
    options = {} if draft is None else {"assistant_model": draft.model}
    if draft is not None and two_tokenizers:
        options |= {"tokenizer": target.tokenizer, "assistant_tokenizer": draft.tokenizer}

    def decode(prompt):
        ids = torch.tensor([prompt])
        made = target.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=SETTING["written"],
            pad_token_id=0,
            **options,
        )
        return made[0, len(prompt) :].tolist()

    return decode


def ours(target: LM, draft: LM) -> Callable:
    """`token_intersection`, with another seed at each call."""
    seeds = iter(range(10**9))
    return lambda prompt: (
        run(
            token_intersection(target, draft, prompt, rng=Seeded(next(seeds))), SETTING["written"], progress=False
        ).tokens
    )


def _sorted_draft(backwards=False):
    draft = small_draft()
    in_order_of_ids(draft.tokenizer, backwards)
    return draft


def _small(make: Callable[[LM], Callable]):
    return small_target, [0, 1], make, SETTING["small_samples"]


def _bundled(make: Callable[[LM], Callable]):
    return (lambda: bundled().target), village_prompts(1)[0], make, SETTING["bundled_samples"]


# A row's name -> the target, the prompt, what makes the decoder, and how many samples.
SETTINGS = {
    "generate": _small(generated),
    "assistant, one tokenizer": _small(lambda lm: generated(lm, small_draft(TARGET_LETTERS))),
    "assistant, two tokenizers": _small(lambda lm: generated(lm, small_draft(), two_tokenizers=True)),
    "assistant, two tokenizers, map sorted": _small(lambda lm: generated(lm, _sorted_draft(), two_tokenizers=True)),
    "assistant, two tokenizers, map backwards": _small(
        lambda lm: generated(lm, _sorted_draft(backwards=True), two_tokenizers=True)
    ),
    "token_intersection": _small(lambda lm: ours(lm, small_draft())),
    "bundled: assistant, one tokenizer": _bundled(lambda lm: generated(lm, bundled().draft)),
    "bundled: token_intersection": _bundled(lambda lm: ours(lm, bundled().other_draft)),
}


def check_row(name: str, samples: int | None = None) -> Check:
    """Run `proof.empirical_check` on the decoder of a row, with its usual number of samples or another."""
    get_target, prompt, make, usual = SETTINGS[name]
    target = get_target()
    with torch.random.fork_rng(devices=[]), hub.quiet():
        torch.manual_seed(0)
        prompt = target.prompt_tokens(prompt)
        return empirical_check(make(target), prompt, target, SETTING["length"], samples or usual)


def row(family, name: str) -> dict:
    """The figures of one row; minutes for the bundled models. (`family` is not used: each row has its own models.)

    Returns
    -------
    dict
        ``"statistic"`` G, ``"dof"``, ``"p_value"``, ``"samples"``, ``"passed"``, ``"impossible"`` as `proof.Check` has
        them; ``"distance"``: total variation between the observed and the expected shares, over the cells of the check
        (by chance, it is never exactly 0); ``"transformers"``: the version.
    """
    found = check_row(name)
    off = sum(abs(found.observed[cell] - due) for cell, due in found.expected.items()) + found.impossible
    return {
        "statistic": found.statistic,
        "dof": found.dof,
        "p_value": found.p_value,
        "samples": found.samples,
        "passed": found.passed,
        "impossible": found.impossible,
        "distance": off / found.samples / 2,
        "transformers": transformers.__version__,
    }


EXPERIMENT = Experiment("assisted", SETTING, SETTINGS, row)
