"""Medusa heads and EAGLE networks in the compiled loops: what PyTorch computes, and which of them are left to it."""

import copy
import importlib.util

import pytest
import torch
from conftest import VOCAB
from draft_networks import randomised
from test_llama import TEXT, tiny
from transformers import LlamaConfig

from tutorlib import LM, Eagle3Head, EagleHead, EightBits, MedusaHeads, eagle, greedy, medusa, models, run
from tutorlib.drafting.head_loops import looped_heads, looped_network
from tutorlib.loading import wheel
from tutorlib.model import llama

NO_WHEEL = importlib.util.find_spec(wheel.PACKAGE) is None
REAL = pytest.param(
    "smollm2",
    marks=[pytest.mark.slow, pytest.mark.skipif(NO_WHEEL, reason=f"the wheel is not installed: {wheel.INSTALL}")],
)


@pytest.fixture(scope="module")
def target():
    return LM(tiny())


def random_heads(**settings):
    return randomised(MedusaHeads(32, VOCAB, heads=3, layers=2, **settings), torch.float32)


def network(kind=Eagle3Head, changes=(), **settings):
    config = tiny().config.to_dict() | {"num_hidden_layers": 1, "head_dim": 16} | dict(changes)
    settings = {"feature_layers": (0, 1, 2)} | settings if kind is Eagle3Head else settings
    head = randomised(kind(LlamaConfig(**config), **settings), torch.float32)
    head.fc.weight.data /= 8  # EAGLE-1 has no norm before its attention, which would magnify rounding
    return head


NETWORKS = {
    "EAGLE-1": lambda: network(EagleHead),
    "EAGLE-1 without a bias": lambda: network(EagleHead, bias=False),
    "EAGLE-3": network,
    "fewer tokens": lambda: network(tokens=range(1, VOCAB, 2)),
    "biases of queries, keys and values": lambda: network(changes={"qkv_bias": True}),
    "norm before the residual": lambda: network(norm_before_residual=True),
    "norm before fc": lambda: network(norm_before_fc=True),
    "EAGLE-3.1": lambda: network(fc_norm=True, norm_output=True),
}


def assert_close(made, expected):
    """As far from each other as sums in another order are, and -inf in the same places."""
    largest = float(expected[expected > -torch.inf].abs().max())
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-5 * max(1.0, largest))


def drafts(head, target, text):
    """The logits of two texts, trees of guesses after them, and a text that grows by some of the guesses."""
    session = target.session(text, hidden=head.feature_layers)
    session.feed()
    features, drafted = head.features(session.prompt_hidden), head.session(target)
    yield drafted._loops is not None
    yield drafted.feed(text[1:6], features[:5])
    yield drafted.grow([7, 3], [-1, -1])
    yield drafted.grow([2, 4, 5], [1, 0, 1])
    yield drafted.grow([9], [3])
    yield drafted.grow([1, 6, 2], [2, 3, 3])
    yield drafted.feed(text[6:8], features[5:7])
    yield drafted.grow([5], [-1])
    yield drafted.feed(text[8:], features[7:-1])
    yield drafted.grow([8, 1], [-1, -1])


def assert_same_drafts(head, target, text):
    """The expected logits are those of PyTorch in float64."""
    is_looped, *made = drafts(head, target, text)
    no_longer, *expected = drafts(copy.deepcopy(head).double(), target, text)
    assert is_looped and not no_longer
    for mine, other in zip(made, expected, strict=True):
        assert_close(mine, other.float())


def assert_same_guesses(heads, states):
    for state in states:
        for count in range(1, len(heads) + 1):
            with torch.inference_mode():
                assert_close(looped_heads(heads, count).guess(state), heads(state)[:count])


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_networks_draft_what_pytorch_computes(target, make):
    assert_same_drafts(make(), target, TEXT)


def test_a_long_text_is_read_by_pytorch_into_the_same_cache(target, monkeypatch):
    monkeypatch.setattr("tutorlib.drafting.draft_session.MANY", 3)
    assert_same_drafts(network(), target, TEXT)


@pytest.mark.parametrize("settings", [{}, {"token_map": [9, 2, 5]}], ids=["all tokens", "three tokens"])
def test_medusa_heads_guess_what_pytorch_computes(settings):
    assert_same_guesses(random_heads(**settings), torch.randn(3, 32))


def test_heads_with_one_output_layer_guess_what_pytorch_computes():
    heads = random_heads()
    for head in heads:
        head[-1].weight.data = heads[0][-1].weight.data.clone()
    assert looped_heads(heads, 3).are_one and not looped_heads(random_heads(), 3).are_one
    assert_same_guesses(heads, torch.randn(3, 32))


@pytest.mark.parametrize("name", ["storyworld", REAL])
def test_the_heads_that_come_with_tutorlib_too(name):
    family = models.load(name, device="cpu", dtype="float32")
    target, text = family.target, family.target.encode("Once upon a time there was a red kite, and it was old.")[:14]
    session = target.session(text, hidden=-1)
    session.feed()
    assert_same_guesses(family.medusa, session.prompt_hidden[-2:])
    for network in (family.eagle3, family.eagle) if name == "storyworld" else (family.eagle3,):
        assert_same_drafts(network, target, text)
        assert run(eagle(target, network, text), 24).tokens == run(greedy(target, text), 24).tokens
    assert run(medusa(target, family.medusa, text), 24).tokens == run(greedy(target, text), 24).tokens


def hooked(head):
    head.fc.register_forward_hook(lambda module, inputs, output: output * 2)
    return head


def with_another_linear(head):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    head.fc.__class__ = Doubled
    return head


class Other(Eagle3Head):
    def start(self, features):
        return 2 * super().start(features)


OTHERS = {
    "float64": lambda: network().double(),
    "half precision": lambda: network().bfloat16(),
    "biases": lambda: network(changes={"attention_bias": True}),
    "more biases": lambda: network(changes={"mlp_bias": True}),
    "40 features": lambda: network(changes={"intermediate_size": 40}),
    "heads of 8": lambda: network(changes={"head_dim": 8}),
    "a hook": lambda: hooked(network()),
    "another linear": lambda: with_another_linear(network()),
    "a subclass": lambda: randomised(Other(network().config, (0, 1, 2)), torch.float32),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_networks_are_computed_as_ever(target, make):
    assert looped_network(make(), target) is None


def test_eagle_1_needs_the_targets_own_output_head_in_loops(target):
    copy = EightBits(target)
    assert looped_network(network(EagleHead), target).output is llama.of(target.model).head
    assert looped_network(network(EagleHead), copy).output is copy.weights.head
    assert looped_network(network(EagleHead), LM(tiny(hidden_act="gelu"))) is None


def test_other_heads_are_computed_as_ever(target, monkeypatch):
    class Others(MedusaHeads):
        pass

    for heads in (random_heads().double(), Others(32, VOCAB), MedusaHeads(24, VOCAB), torch.nn.Linear(32, VOCAB)):
        assert looped_heads(heads, 1) is None
    monkeypatch.setattr(llama, "loops", lambda: None)
    assert looped_heads(random_heads(), 1) is None and looped_network(network(), target) is None


def test_where_the_loops_are_off_heads_are_too(target):
    with llama.without_loops():
        assert looped_heads(random_heads(), 1) is None and looped_network(network(), target) is None
