"""The sweep of chapter 11 over what goes into a network: each gets what it should, and the file holds what is said."""

import pytest
import torch

from tutorlib.sweeps import features as sweep
from tutorlib.sweeps import results
from tutorlib.training.eagle import new_eagle, unroll
from tutorlib.training.own_text import Batches, Text

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
    return [Text(torch.randint(0, 19, (12,), generator=generator).tolist(), 2, cold) for cold in (2, 2, 12, 12)]


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
    small = {**sweep.SETTING["short"], "steps": 4, "every": 2, "rows": 2}
    monkeypatch.setattr(sweep, "SETTING", {**sweep.SETTING, "short": small})
    row = sweep.row(llama, "short: token", (texts, texts))
    assert set(row) == {"cold", "sampled", "distance", "cosine", "curve"}
    assert row["curve"]["step"] == [2, 4] and row["curve"]["cold"][-1] == row["cold"][0]
    assert len(row["cold"]) == len(row["distance"]) == 5
    assert sweep.row(llama, "short: token", (texts, texts)) == row
    assert sweep.row(llama, "short: feature", (texts, texts))["distance"] != row["distance"]


def test_the_committed_file_holds_every_row_of_this_sweep_in_order():
    assert results("features")["setting"] == sweep.SETTING
    assert list(rows()) == list(sweep.SETTINGS)


def test_what_the_chapter_says_of_the_results_is_so():
    token, feature, both, eagle = (rows()[name] for name in sweep.INPUTS)
    # Features are nearer to a guess, though without a token it cannot know what was drawn; with the next token best.
    assert eagle["cold"][0] > max(token["cold"][0], feature["cold"][0], both["cold"][0])
    assert eagle["sampled"][0] > max(token["sampled"][0], feature["sampled"][0], both["sampled"][0])
    for name in ("cold", "sampled"):
        assert feature[name][0] > token[name][0]
        assert all(share > other for share, other in zip(eagle[name], both[name], strict=True))
