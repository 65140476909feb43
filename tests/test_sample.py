"""Sampling draws from the model's own distribution, warped or not."""

import pytest
import torch

from tutorlib.decoders import greedy, sample
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import (
    min_p,
    no_repeat_ngram,
    probabilities,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
    typical,
)

# That its distribution is exactly the right one is shown in test_proof.py, and under every warp in test_proof_warps.py.


def test_without_random_draws_it_is_greedy_whatever_keeps_the_most_likely_token(llama):
    expected = run(greedy(llama, [1, 2]), 12).tokens
    for warp in ([], [temperature(3.0)], [top_k(3)], [top_p(0.5)], [min_p(0.2)]):
        assert run(sample(llama, [1, 2], rng=None, warp=warp), 12).tokens == expected


def test_without_random_draws_it_takes_the_most_likely_of_what_is_left():
    lm = TableLM({"": [0.4, 0.3, 0.2, 0.1]})
    assert run(sample(lm, "a", rng=None, warp=[typical(0.4)]), 1).tokens == [1], "0.4 is too unsurprising"
    assert run(sample(lm, "a", rng=None, warp=[no_repeat_ngram(1)]), 3).tokens == [1, 2, 3]


class Replay:
    """Randomness that repeats a text, and keeps the probabilities that each of its tokens was drawn with."""

    def __init__(self, tokens):
        self.tokens, self.seen = list(tokens), []

    def choose(self, probs):
        self.seen.append(probs)
        return self.tokens[len(self.seen) - 1]

    def accept(self, probability):
        raise AssertionError("sampling accepts nothing")


# What transformers is asked for, and the same as a warp. Its order is fixed: penalties, then filters as they stand.
GENERATE_OPTIONS = {
    "the three usual filters": (
        {"temperature": 1.7, "top_k": 6, "top_p": 0.6},
        [temperature(1.7), top_k(6), top_p(0.6)],
    ),
    "the other two": (
        {"temperature": 1.5, "top_k": 0, "min_p": 0.1, "typical_p": 0.8},
        [temperature(1.5), min_p(0.1), typical(0.8)],
    ),
    "penalties and a filter": (
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "temperature": 2.0, "top_k": 0, "top_p": 0.8},
        [repetition_penalty(1.4), no_repeat_ngram(2), temperature(2.0), top_p(0.8)],
    ),
}


@pytest.mark.parametrize("setting", GENERATE_OPTIONS)
def test_draws_from_what_generate_draws_from_with_the_same_options(llama, setting):
    options, warp = GENERATE_OPTIONS[setting]
    prompt = [3, 1, 4, 1]
    ids = torch.tensor([prompt])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = llama.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=True, eos_token_id=None,
            pad_token_id=0, return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip
    theirs = torch.cat(made.scores).double().softmax(-1)
    replay = Replay(made.sequences[0, len(prompt) :].tolist())
    run(sample(llama, prompt, rng=replay, warp=warp), 20)
    ours = torch.stack(replay.seen)
    assert torch.equal(ours > 0, theirs > 0), "the same tokens are left"
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    plain = probabilities(llama.session([*prompt, *replay.tokens[:-1]]).feed())
    assert not torch.allclose(ours[-1], plain[0], atol=0.01), "options that change nothing compare nothing"


def test_offers_the_warped_distribution_as_candidates():
    lm = TableLM({"": [0.25, 0.75]})
    step = run(sample(lm, "a", rng=Seeded(0), warp=[temperature(0.5)]), 1).steps[0]
    assert [token for token, _ in step.candidates[0]] == [1, 0]
    assert [prob for _, prob in step.candidates[0]] == pytest.approx([0.9, 0.1])
