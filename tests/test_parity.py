"""Greedy decoding over sessions gives token for token what transformers' own loop gives, past sliding windows too."""

import functools

import pytest
import torch
from conftest import CONTEXT, EVERY_FAMILY, VOCAB, WINDOW, exactly

from tutorlib import LM, TokenTree, walk

PROMPT = [3, 1, 4, 1, 5]
NEW = 24
assert WINDOW < len(PROMPT) + NEW <= CONTEXT
# In float64 the logits themselves are compared, in test_lm.py.
in_float32_and_slowly_in_float64 = pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str
)
every_family = pytest.mark.parametrize("family", EVERY_FAMILY)


@functools.cache
def generated(model, prompt=tuple(PROMPT), new=NEW):
    """The `new` tokens of `generate(do_sample=False)`: the reference."""
    ids = torch.tensor([prompt])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    with exactly(model.dtype):
        return model.generate(ids, max_new_tokens=new, **options)[0, len(prompt) :].tolist()


@in_float32_and_slowly_in_float64
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@every_family
def test_greedy_over_a_session_equals_generate(models, family, dtype, cache):
    model = models(family, dtype)
    with exactly(dtype):
        session = LM(model).session(PROMPT, cache=cache)
        tokens = [int(session.feed()[-1].argmax())]
        while len(tokens) < NEW:
            tokens.append(int(session.feed([tokens[-1]])[-1].argmax()))
    assert tokens == generated(model)
    assert session.calls == NEW


@in_float32_and_slowly_in_float64
@every_family
def test_greedy_through_trees_equals_generate(models, family, dtype):
    """Three branches a step, one of them sometimes right: what is kept and what is cut off leave no trace."""
    model = models(family, dtype)
    expected = generated(model)
    with exactly(dtype):
        session = LM(model).session(PROMPT)
        tokens, accepted = [int(session.feed()[-1].argmax())], 0
        while len(tokens) < NEW:
            right = expected[len(tokens) : len(tokens) + 3]
            wrong = [(token + 1) % VOCAB for token in right]
            drafts = [wrong, right[: len(tokens) % 4] + wrong, wrong[:1] + right]
            tree = TokenTree.from_paths([[tokens[-1], *draft][: session.room] for draft in drafts])
            logits = session.feed_tree(tree)
            path, new = walk(tree, lambda node, logits=logits: int(logits[node].argmax()), start=0)
            session.keep([0, *path])
            tokens += new
            accepted += len(path)
    assert tokens[:NEW] == expected
    assert accepted >= NEW / 4


@in_float32_and_slowly_in_float64
@every_family
def test_greedy_over_a_batch_of_different_lengths_equals_generate_row_by_row(models, family, dtype):
    model = models(family, dtype)
    prompts, new = [PROMPT, [7], [2] * 16], 12
    with exactly(dtype):
        batch = LM(model).batch(prompts)
        rows = batch.feed([[]] * len(prompts))
        for _ in range(new):
            rows = batch.feed([[int(logits[-1].argmax())] for logits in rows])
    for tokens, prompt in zip(batch.tokens, prompts, strict=True):
        assert tokens == [*prompt, *generated(model, tuple(prompt), new)]
