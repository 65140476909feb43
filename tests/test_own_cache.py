"""The cache of the model itself: what a snapshot holds, what is computed again, and what methods write with hybrids.

That logits are those of full passes, whatever is fed, kept and rolled back: see `tests/test_session.py` and
`tests/test_batch.py`.
"""

import contextlib
import functools
import itertools

import pytest
import torch
from conftest import CONTEXT, EVERY_HYBRID, HYBRIDS, exactly
from full_passes import assert_rows, recomputed
from lossless import EXACT, METHODS, distance, small, unlike

from tutorlib import LM, Seeded, TokenTree, greedy, run, sample
from tutorlib.model import own_cache
from tutorlib.model.own_cache import OwnCache

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
fast_hybrid = pytest.mark.parametrize("family", HYBRIDS[:3])


@contextlib.contextmanager
def widths(lm):
    """`seen(action)`: the (rows, tokens) of each pass of the model in `action`."""
    shapes = []

    def seen(action):
        shapes.clear()
        action()
        return shapes[:]

    with lm.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    ):
        lm.session([1])  # a model with another hook is tried anew
        yield seen


def tensors(mark):
    """All tensors of a snapshot that are left in it."""
    found = []
    mark.state.copied(found.append, lambda keys: found.append(keys) if keys is not None else None)
    return [part for part in found if isinstance(part, torch.Tensor)]


@pytest.mark.parametrize("family", EVERY_HYBRID)
def test_hybrids_are_computed_with_their_own_cache_and_rows_are_in_order_with_hidden_states(models, family):
    lm = LM(models(family, torch.float64), context=CONTEXT)
    with exactly(torch.float64):
        session = lm.session(TEXT, hidden=(1, -1))
        assert type(session._cache) is OwnCache

        def check(rows, tokens):
            with torch.no_grad():
                states = lm.model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states
            for layer in (1, -1):
                assert_rows(session.hidden[layer][rows], states[layer][0, -len(rows) :])

        session.feed([7])
        check([0, 1], [*TEXT, 7])
        session.feed([8])
        session.rollback(4)
        session.feed([2, 3])  # after two tokens that are computed again
        check([0, 1], [*TEXT[:-2], 2, 3])
        session.feed_tree(TokenTree.from_paths([[4, 5], [6, 7, 8]]))
        check([0, 1], [*TEXT[:-2], 2, 3, 4, 5])
        check([2, 3, 4], [*TEXT[:-2], 2, 3, 6, 7, 8])
        with torch.no_grad():
            states = lm.model(torch.tensor([TEXT]), use_cache=False, output_hidden_states=True).hidden_states
        assert_rows(session.prompt_hidden[1], states[1][0])
        session.keep([])
        session.rollback(len(session.tokens))
        assert_rows(session.feed_tree(TokenTree([4, 5], [-1, -1]))[1:], recomputed(lm.model, [5]))


@fast_hybrid
def test_a_session_has_at_most_three_snapshots_which_do_not_grow_with_the_text(models, family):
    lm = LM(models(family), context=10_000)
    session = lm.session(TEXT)
    session.feed()
    sizes = []
    for round_ in range(30):
        for tokens in ([1], [2], [3, 4, 5, 6]):
            session.feed(tokens)
        session.rollback(round_ % 4)
        (snapshots,) = session._cache.snapshots
        sizes.append(max(sum(part.numel() for part in tensors(mark)) for mark in snapshots))
        assert len(snapshots) <= 3
    assert len(set(sizes)) == 1


@fast_hybrid
def test_the_plain_loop_computes_each_token_once_and_a_rejected_draft_few_again(models, family):
    lm = LM(models(family), context=CONTEXT)
    with widths(lm) as seen:
        plain = seen(lambda: run(greedy(lm, TEXT), 20, stop=(), progress=False))
        assert plain == [(1, len(TEXT))] + [(1, 1)] * 19
        session = lm.session(TEXT)
        session.feed()
        for kept in (0, 1, 2, 3, 4, 0, 0, 1):
            passes = seen(lambda: session.feed([1, 2, 3, 4, 5]))
            session.rollback(4 - kept)
            assert sum(width for _, width in passes) <= 5 + 5 + own_cache._AGAIN


def test_branches_are_rows_of_one_pass_and_equal_rows_of_a_batch_are_computed_together(models):
    lm = LM(models("qwen3_5"))
    session, batch = lm.session(TEXT), lm.batch([TEXT, TEXT[::-1], TEXT[:5]])
    session.feed()
    tree = TokenTree.from_paths([[1, 2], [3], [4, 5, 6]])
    with widths(lm) as seen:
        assert seen(lambda: session.feed_tree(tree)) == [(3, 3)]
        session.keep([3, 4])
        assert seen(lambda: session.feed_tree(tree)) == [(1, 2), (3, 3)], "the branch that was kept comes first"
        assert sorted(seen(lambda: batch.feed([[], [], []]))) == [(1, 5), (2, 12)]
        batch.reorder([1, 0, 1])
        assert seen(lambda: batch.feed([[1], [2], [3]])) == [(3, 1)]


@fast_hybrid
def test_sessions_on_one_model_do_not_see_each_other(models, family):
    lm = LM(models(family, torch.float64), context=CONTEXT)
    with exactly(torch.float64):
        one, two = lm.session(TEXT), lm.session(TEXT[::-1])
        for token in range(6):
            for session in (one, two):
                rows = session.feed([token] if token else [])
                assert_rows(rows, recomputed(lm.model, session.tokens)[-1:])


@fast_hybrid
def test_after_a_call_that_fails_the_session_goes_on_as_if_nothing_had_been(models, family, monkeypatch):
    lm = LM(models(family, torch.float64), context=CONTEXT)
    head = lm.model.get_output_embeddings()
    with exactly(torch.float64):
        session = lm.session(TEXT)
        session.feed([7])
        for spoilt in (
            lambda *_: (_ for _ in ()).throw(RuntimeError("broken")),
            lambda *_: torch.full((1, 2, 19), torch.nan),
        ):
            with head.register_forward_hook(spoilt), pytest.raises((RuntimeError, ValueError)):
                session.feed([8, 9])
            assert_rows(session.feed([8]), recomputed(lm.model, [*TEXT, 7, 8])[-1:])
            session.rollback(1)


# ----------------------------------------------------------------------------------------------------------------------
# Methods


PROMPT = [3, 1, 2, 0, 7, 1, 2] * 4
LIKE_THE_FIRST = [(name, family) for name in ("sample_batch", "speculative_batch") for family in HYBRIDS[1:3]]


@pytest.mark.parametrize(
    "name, family",
    [
        pytest.param(*case, marks=pytest.mark.slow if case in LIKE_THE_FIRST else [])
        for case in itertools.product(
            ("speculative", "prompt_lookup", "medusa", "sample_batch", "speculative_batch"), HYBRIDS[:3]
        )
    ],
)
def test_methods_write_with_a_hybrid_what_greedy_writes_and_sample_with_a_seed(name, family):
    draft = unlike("lfm2", 1)
    with exactly(torch.float64):
        for seed in (None, 4):
            rng = None if seed is None else Seeded(seed)
            made = run(METHODS[name](unlike(family, 0), draft, PROMPT, 3, rng=rng), 99, progress=False)
            if rng is None or not name.startswith("speculative"):
                assert made.tokens == plain_text(family, seed)
            assert len(made.tokens) == CONTEXT - len(PROMPT)


@functools.cache
def plain_text(family, seed):
    lm = unlike(family, 0)
    steps = greedy(lm, PROMPT) if seed is None else sample(lm, PROMPT, rng=Seeded(seed))
    return run(steps, 99, progress=False).tokens


@pytest.mark.slow
def test_speculation_between_hybrids_keeps_the_targets_distribution():
    """The other methods: see `tests/test_lossless.py`."""
    target, draft = small("lfm2, with states"), small("lfm2, with states", seed=2)

    def method(lm, prompt, **how):
        return METHODS["speculative"](lm, draft, prompt, 1, **how)

    assert distance(method, target, [0, 1], 3) < EXACT
