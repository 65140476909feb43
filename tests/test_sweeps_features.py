"""The sweep of chapter 16 over what goes into a network: each gets what it should, and the file holds what is said."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from tutorlib.lab.experiments import features as sweep
from tutorlib.lab.experiments import results
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.sampled_texts import SampledText
from tutorlib.lab.training.train_eagle import new_eagle, unroll

LENGTH = 9


def rows():
    return results("features")["rows"]


@pytest.fixture
def tokens():
    return torch.randint(0, 19, (2, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def features(llama):
    return torch.randn(2, LENGTH, llama.width, generator=torch.Generator().manual_seed(2))


def guesses(head, tokens, features, steps=3):
    """What each step gives; its last places, which are for no use, left out."""
    with torch.no_grad():
        return [hidden[:, : LENGTH - 1 - j] for j, hidden in enumerate(unroll(head, tokens, features, steps))]


def changed(before, after):
    """For each step the places at which something is another, in one of the texts at least."""
    return [set(((one - other).abs().amax(-1) > 1e-6).any(0).nonzero()[:, 0].tolist())
            for one, other in zip(before, after, strict=True)]  # fmt: skip


@pytest.mark.parametrize("name", sweep.INPUTS)
def test_each_network_reads_what_it_is_given_and_nothing_else(name, llama, tokens, features):
    head, given = sweep.new_network(llama, sweep.INPUTS[name]), sweep.INPUTS[name]
    at, before = 4, guesses(head, tokens, features)
    other_token = tokens.clone()
    other_token[:, at] = (tokens[:, at] + 1) % 19
    # At step j, place t reads tokens up to t + 1 + j, or one less; the token of its first step is as old as its text.
    first = {"next": at - 1, "same": at, None: LENGTH}[given.token]
    due = [set(range(max(first - j, 0), LENGTH - 1 - j)) for j in range(3)]
    assert changed(before, guesses(head, other_token, features)) == due
    other_feature = features.clone()
    other_feature[:, at] += 1
    due = [set(range(at, LENGTH - 1 - j)) if given.feature else set() for j in range(3)]
    assert changed(before, guesses(head, tokens, other_feature)) == due


def test_all_networks_start_from_the_same_weights_and_the_last_is_eagles(llama, tokens, features):
    heads = [sweep.new_network(llama, given) for given in sweep.INPUTS.values()]
    for head in heads[1:]:
        for one, other in zip(heads[0].parameters(), head.parameters(), strict=True):
            assert torch.equal(one, other)
    ours, eagles = (guesses(head, tokens, features) for head in (heads[-1], new_eagle(llama)))
    assert all(torch.equal(one, other) for one, other in zip(ours, eagles, strict=True))


@pytest.fixture
def texts():
    generator = torch.Generator().manual_seed(3)
    return [SampledText(torch.randint(0, 19, (12,), generator=generator).tolist(), 2, cold) for cold in (2, 2, 12, 12)]


def test_the_distance_is_that_of_the_guess_from_the_feature_it_is_a_guess_of(llama, texts, monkeypatch):
    batches = Batches(llama, texts, 4)

    def off_by(difference, scale=1.0):
        def guessing(head, tokens, features, steps):
            for j in range(steps):
                yield scale * features.roll(-1 - j, dims=1) + difference

        return guessing

    head = sweep.new_network(llama, sweep.Given(True, "next"))
    monkeypatch.setattr(sweep, "unroll", off_by(0.0))
    found = sweep.distances(head, llama, batches, steps=3)
    assert found["distance"] == [0] * 3 and found["cosine"] == pytest.approx([1] * 3)
    monkeypatch.setattr(sweep, "unroll", off_by(0.5))  # smooth L1: half the square up to 1
    assert sweep.distances(head, llama, batches, steps=3)["distance"] == pytest.approx([0.125] * 3)
    monkeypatch.setattr(sweep, "unroll", off_by(0.0, -1.0))
    assert sweep.distances(head, llama, batches, steps=3)["cosine"] == pytest.approx([-1] * 3)


def test_a_row_trains_and_measures_and_is_the_same_again(llama, texts, monkeypatch):
    monkeypatch.setattr(sweep, "SETTING", {**sweep.SETTING, "steps": 4, "every": 2, "rows": 2})
    family = SimpleNamespace(target=llama)
    row = sweep.row(family, "token", (texts, texts))
    assert set(row) == {"cold", "sampled", "distance", "cosine", "curve", "right", "seen"}
    for kind, place in itertools.product(("cold", "sampled"), range(5)):
        right, seen = row["right"][kind][place], row["seen"][kind][place]
        assert len(right) == len(seen) == len(texts)
        assert row[kind][place] == pytest.approx(sum(right) / sum(seen), abs=1e-4)
    assert row["curve"]["step"] == [2, 4] and row["curve"]["cold"][-1] == row["cold"][0]
    assert len(row["cold"]) == len(row["distance"]) == 5
    assert sweep.row(family, "token", (texts, texts)) == row
    assert sweep.row(family, "feature", (texts, texts))["distance"] != row["distance"]


def test_intervals_are_of_texts_that_are_drawn_again_together():
    one = {"right": {"cold": [[4, 0, 2]]}, "seen": {"cold": [[4, 4, 4]]}}
    other = {"right": {"cold": [[3, 0, 1]]}, "seen": {"cold": [[4, 4, 4]]}}
    # Three texts are drawn in 27 ways, each with 1 / 27 > 0.025: so the bounds are the worst and the best of all.
    assert sweep.bounds(one, "cold") == [(0, 1)]
    ((gain, low, high),) = sweep.lead(one, other, "cold")
    assert (gain, low, high) == (2 / 12, 0, 1 / 4), "where one is right more often, the other is too"


def test_what_the_chapter_says_of_the_results_is_so():
    """Intervals of the differences that lie above 0."""
    token, feature, both, eagle = (rows()[name] for name in sweep.INPUTS)

    def ahead(one, other, kind):
        """The first of five guesses in which one is surely ahead, and so on."""
        return [guess for guess, (_, low, _) in enumerate(sweep.lead(one, other, kind), 1) if low > 0]

    assert ahead(feature, token, "cold") == [1, 2] and ahead(token, feature, "cold") == [5]
    assert ahead(feature, token, "sampled") == [1] and ahead(token, feature, "sampled") == [2, 3, 4, 5]
    for other in (token, feature, both):
        assert ahead(eagle, other, "sampled") == [1, 2, 3, 4, 5]
    # What knows the tokens hardly falls; a guess that does not falls with each step.
    assert token["sampled"][0] - token["sampled"][4] < 0.02 < 0.15 < feature["sampled"][0] - feature["sampled"][4]
