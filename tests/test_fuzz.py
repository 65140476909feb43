"""Any lossless method, any warps, stop tokens, context and prompt: the text of plain sampling, or its error.

The models are tables with zeros, and some warps leave rows no token, or raise errors of their own. A method has to end
where sampling would have ended: a row that nobody reaches, because a stop token, the budget or a rejected draft comes
before it, must not matter.
"""

import functools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless import AFTER_ONE, EXACT, METHODS, SAME_TEXT, distance, heads_of, small

from tutorlib.decoders import sample
from tutorlib.decoders.medusa import medusa
from tutorlib.drafting.lossy_rules import typical_acceptance
from tutorlib.measures.proof import total_variation
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling import warp as warps
from tutorlib.sampling.randomness import Exhaustive, Seeded

VOCAB = 3


def sparse(seed, vocab="abc", **settings):
    """A table for contexts of up to two tokens, in which about a third of the probabilities are 0."""
    rng, rows = random.Random(seed), {}
    for context in ["", *vocab, *(one + other for one in vocab for other in vocab)]:
        weights = [rng.random() * (rng.random() > 0.35) for _ in vocab]
        weights = weights if any(weights) else [1.0] * len(vocab)
        rows[context] = [weight / sum(weights) for weight in weights]
    return TableLM(rows, list(vocab), **settings)


class Watched:
    """Steps that remember their tokens, for runs that end with an error."""

    def __init__(self, steps):
        self.steps, self.tokens = steps, []

    def __iter__(self):
        return self

    def __next__(self):
        step = next(self.steps)
        self.tokens += step.tokens
        return step

    def __getattr__(self, name):
        return getattr(self.steps, name)


def typically(lm, draft, prompt, gamma, **how):
    accept = typical_acceptance(0.2, 0.5)
    return medusa(lm, heads_of(lm, draft, gamma), prompt, shape=[(0,) * gamma, (1,)], rule=accept, **how)


# A row of a batch by itself: it would end with the errors of the others.
ALONE = {name: functools.partial(METHODS[name], alone=True) for name in ("sample_batch", "speculative_batch")}
ALL = METHODS | ALONE | {"medusa, typical": typically}


def plain(lm, draft, prompt, gamma, **how):
    return sample(lm, prompt, **how)


def outcome(method, lm, draft, prompt, budget, stop, **how):
    """The tokens of a run, and why it ended, or with what error."""
    steps = Watched(method(lm, draft, prompt, **how))
    try:
        trace = run(steps, budget, stop, progress=False)
    except Exception as error:
        return tuple(steps.tokens), f"{type(error).__name__}: {error}"
    return tuple(trace.tokens), trace.stopped


def forbidding(token):
    """Filters everything away after this token."""

    def forbid(logits, histories):
        ends = torch.tensor([history[-1] == token for history in histories])
        return logits.masked_fill(ends[:, None], -torch.inf)

    return warps.named(forbid, f"forbidding({token})")


def failing(length):
    """Raises an error of its own for texts of this length."""

    def fails(logits, histories):
        return logits / min(1 / (len(history) != length) for history in histories)

    return warps.named(fails, f"failing({length})")


WARPS = st.one_of(
    st.builds(warps.temperature, st.sampled_from([0.3, 1.7])),
    st.builds(warps.top_k, st.integers(1, 2)),
    st.builds(warps.top_p, st.sampled_from([0.3, 0.83])),
    st.builds(warps.min_p, st.sampled_from([0.21, 0.9])),
    st.builds(warps.typical, st.sampled_from([0.2, 0.77])),
    st.builds(warps.repetition_penalty, st.just(1.6)),
    st.builds(warps.frequency_penalty, st.sampled_from([-0.5, 0.9])),
    st.builds(warps.presence_penalty, st.just(0.7)),
    st.builds(warps.no_repeat_ngram, st.integers(1, 3)),
    st.builds(forbidding, st.integers(0, VOCAB - 1)),
    st.builds(failing, st.integers(2, 8)),
)


@st.composite
def cases(draw, new_tokens):
    """A target, a draft, a prompt, a budget, stop tokens and warps."""
    prompt = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4))
    length = len(prompt)
    lm = sparse(draw(st.integers(0, 99)), context=length + draw(st.integers(0, 2 * new_tokens)))
    draft = sparse(draw(st.integers(100, 199)), context=length + draw(st.integers(0, 2 * new_tokens)))
    budget = draw(st.integers(1, new_tokens))
    stop = draw(st.sets(st.integers(0, VOCAB - 1), max_size=1))
    gamma = draw(st.integers(1, min(3, new_tokens - 1)))
    return {"warp": draw(st.lists(WARPS, max_size=2)), "gamma": gamma}, (lm, draft, prompt, budget, stop)


def assert_possible(found, lm, prompt, budget, stop, warp):
    """Each token has a probability, and the run ends where it should, or with the error of the row it has reached."""
    tokens, end = found
    text, seen = list(prompt), []
    for token in tokens:
        assert not seen or seen[-1] not in stop
        assert warps.probabilities(lm.session(text).feed(), warp, [text])[0][token] > 0
        text.append(token)
        seen.append(token)
    full, ended = len(text) == lm.context, bool(seen) and seen[-1] in stop
    expected = "stop" if ended else "budget" if len(seen) == budget else "context" if full else None
    if expected is None:
        with pytest.raises(Exception) as error:
            warps.probabilities(lm.session(text).feed(), warp, [text])
        expected = f"{type(error.value).__name__}: {error.value}"
    assert end == expected


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.sampled_from(sorted(ALL)), cases(8), st.one_of(st.none(), st.integers(0, 50)))
def test_every_method_writes_what_sampling_writes_or_fails_where_it_fails(name, case, seed):
    how, (lm, draft, prompt, budget, stop) = case
    found, expected = (
        outcome(method, lm, draft, prompt, budget, stop, rng=None if seed is None else Seeded(seed), **how)
        for method in (ALL[name], plain)
    )
    if name in SAME_TEXT or (seed is None and name in METHODS):
        assert found == expected
    warp = [*how["warp"], *([warps.one_hot] if seed is None else [])]
    assert_possible(found, lm, prompt, budget, stop, warp)


def distribution(method, *case, **how):
    """How probable each outcome is, errors among them."""
    found = {}
    for rng in Exhaustive():
        one = outcome(method, *case, rng=rng, **how)
        found[one] = found.get(one, 0.0) + rng.weight
    return found


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.sampled_from(sorted(METHODS)), cases(3))
def test_every_method_has_samplings_distribution_of_texts_and_errors(name, case):
    how, case = case
    assert total_variation(distribution(ALL[name], *case, **how), distribution(plain, *case, **how)) < EXACT


@pytest.mark.parametrize("name", ALL)
def test_no_method_draws_from_what_a_warp_has_cut_or_repeated(name):
    for warp in ([lambda logits, _: logits[:, :2]], [lambda logits, _: logits.repeat(2, 1)]):
        tokens, error = outcome(ALL[name], sparse(0), sparse(1), [0, 1], 4, (), gamma=2, rng=Seeded(0), warp=warp)
        assert not tokens and "a warp must return logits" in error


# Over real caches a filter leaves nothing after a stop token: rows there are computed, but never wanted.
@pytest.mark.parametrize("name", METHODS)
def test_what_lies_after_a_stop_token_does_not_matter(name):
    lm = small("llama")

    def method(lm, prompt, **how):
        return METHODS[name](lm, small("gpt2", seed=2), prompt, **how)

    length = 2 + (name in AFTER_ONE)
    assert distance(method, lm, [0, 1, 2, 0], length, [forbidding(2)], stop=[2], gamma=1) < EXACT
