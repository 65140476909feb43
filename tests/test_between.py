"""The share of a row's time between its models' calls is what a clock says that can be read by hand."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from conftest import Clock, random_model
from draft_networks import eagle1

from tutorlib import LM, EightBits, MedusaHeads, TableLM
from tutorlib.drafting.head_loops import LoopedHeads
from tutorlib.lab.bench.between import share_between
from tutorlib.lab.bench.row_makers import Output, Row
from tutorlib.lab.bench.rows import ROWS, WITH_COPY
from tutorlib.model.llama import LoopCache

PROMPTS = [[1, 2, 3], [4, 5, 6, 7]]


class Head(torch.nn.Module):
    """Takes 3 seconds, and as many as that again in a model that it asks."""

    def __init__(self, clock, inner=None):
        super().__init__()
        self.clock, self.inner = clock, inner

    def forward(self):
        self.clock.now += 3
        if self.inner is not None:
            self.inner()


def test_calls_are_inside_and_all_else_is_between():
    clock = Clock()
    inner = Head(clock)
    family = SimpleNamespace(target=LM(random_model("llama")), inner=inner, head=Head(clock, inner), idle=Head(clock))

    def decode(family, prompts, *_):
        for _ in range(2):
            clock.now += 1
            family.inner()  # 3 seconds
            family.head()  # 6, those of the call within it once
        return Output([], None)

    share = share_between(family, Row("by hand", decode), PROMPTS, 4, clock=clock)
    assert share == pytest.approx(2 / 20)


def test_a_model_is_as_it_was_afterwards_even_if_the_row_fails():
    family = SimpleNamespace(target=LM(random_model("llama")), head=Head(Clock()))
    own = family.head.forward = lambda: None

    def decode(family, prompts, *_):
        assert "forward" in vars(family.target.model)
        assert family.head.forward is not own
        raise KeyError

    with pytest.raises(KeyError):
        share_between(family, Row("fails", decode), PROMPTS, 4)
    assert "forward" not in vars(family.target.model)
    assert "read_out" not in vars(family.target)
    assert family.head.forward is own


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("plain loop", ["target"]),
        ("speculative, gamma=8", ["target", "draft"]),
        ("medusa", ["target", "medusa"]),
        ("eagle", ["target", "eagle"]),
        ("generate", ["target"]),
    ],
)
def test_every_model_of_a_row_is_timed_and_its_text_stays_the_same(name, roles):
    lm = LM(random_model("llama"))
    family = SimpleNamespace(
        target=lm,
        draft=TableLM.random(lm.vocab_size, 1, 0),
        medusa=MedusaHeads(lm.width, lm.vocab_size),
        eagle=eagle1(lm),
    )
    row = next(row for row in ROWS if row.name == name)
    texts = []

    def decode(watched, *given):
        texts.append(row.decode(watched, *given).texts)
        for role in roles:
            part = getattr(family, role)
            owner, call = {"draft": (part, "log_probs"), "medusa": (LoopedHeads, "guess")}.get(
                role, (getattr(part, "model", part), "forward")
            )
            assert hasattr(vars(owner)[call], "__wrapped__")
        return Output(texts[-1], None)

    assert 0 < share_between(family, Row(name, decode), PROMPTS[:1], 6) < 1
    assert texts[0] == row.decode(family, PROMPTS[:1], 6, 0, 0.0).texts


@pytest.mark.parametrize("name", ["plain loop", "medusa", "eagle"])
def test_what_the_compiled_loops_compute_is_timed_too(name):
    """A clock that goes on by one at each look: two looks at a call, and something of the run is inside of calls."""
    lm, ticks, loops = LM(random_model("looped_llama")), itertools.count(), []
    heads = MedusaHeads(lm.width, lm.vocab_size)
    family = SimpleNamespace(target=lm, medusa=heads, eagle=eagle1(lm))
    row = next(row for row in ROWS if row.name == name)

    def decode(watched, *given):
        output = row.decode(watched, *given)
        loops.append("forward" not in vars(lm.model) and "forward" not in vars(heads))
        return output

    share = share_between(family, Row(name, decode), PROMPTS[:1], 6, clock=lambda: next(ticks))
    assert loops == [True] and 0 < share < 1
    assert "open_cache" not in vars(lm)


def test_what_a_target_reads_for_its_copy_is_a_call_too(monkeypatch):
    clock, target = Clock(), LM(random_model("looped_llama"))
    family = SimpleNamespace(target=target, quantized=EightBits(target))
    row = next(row for row in ROWS if row.name == WITH_COPY)
    target.session([1]).feed()  # which tries the model
    computed, compute = [], LoopCache._compute

    def slow(self, tokens, *others):
        computed.append(len(tokens[0]))
        clock.now += 1
        return compute(self, tokens, *others)

    monkeypatch.setattr(LoopCache, "_compute", slow)
    assert share_between(family, row, [[1, 2, 3, 4] * 5], 3, clock=clock) == 0
    assert computed[0] == 19, "the prompt without its last token"
