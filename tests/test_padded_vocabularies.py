"""Two models over one tokenizer whose vocabularies differ in size: ids 0 to 2, and a fourth in one of them."""

import pytest
import torch
from lossless import EXACT, WARPS, distance, table
from two_tokenizers import small_lm

from tutorlib.decoders import (
    contrastive_beam_search,
    contrastive_decoding,
    contrastive_sampling,
    greedy,
    speculative,
    speculative_batch,
)
from tutorlib.measures.proof import exact_distribution
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.model.vocabularies import check_same_vocabulary
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.randomness import Seeded

LARGE, SMALL = table(4), TableLM.random(3, 1, seed=8)
SMALL.tokenizer = LARGE.tokenizer
# Real embeddings have no row for an id beyond their vocabulary: whatever feeds it one raises.
LARGE_LLAMA, SMALL_GPT2 = small_lm("llama", "abcd", 1), small_lm("gpt2", "abc", 2)
SMALL_GPT2.tokenizer = LARGE_LLAMA.tokenizer
PAIRS = {
    "the draft lacks an id": (LARGE, SMALL),
    "the target lacks an id": (SMALL, LARGE),
    "real models, the draft lacks an id": (LARGE_LLAMA, SMALL_GPT2),
    "real models, the target lacks an id": (SMALL_GPT2, LARGE_LLAMA),
}
either_way = pytest.mark.parametrize(("target", "draft"), PAIRS.values(), ids=PAIRS)


@pytest.mark.parametrize(
    ("pair", "name", "gamma"),
    [(pair, name, gamma) for pair in list(PAIRS)[:2] for name, gamma in (("penalty", 1), ("temperature and top-p", 2))]
    + [(pair, "penalty and top-k", 1) for pair in list(PAIRS)[2:]],
)
def test_speculative_keeps_the_targets_distribution(pair, name, gamma):
    target, draft = PAIRS[pair]

    def method(lm, prompt, **settings):
        return speculative(lm, draft, prompt, gamma=gamma, **settings)

    assert distance(method, target, [0, 1], gamma + 2, WARPS[name]) < EXACT


@either_way
def test_speculative_without_randomness_is_greedy(target, draft):
    for prompt in ([0], [1, 2], [2, 0, 1]):
        assert run(speculative(target, draft, prompt, gamma=3), 9).tokens == run(greedy(target, prompt), 9).tokens


@either_way
def test_each_row_of_a_batch_is_what_it_is_alone(target, draft):
    prompts = [[0], [1, 2], [2, 0, 1]]
    rows = run_batch(speculative_batch(target, draft, prompts, rngs=[Seeded(seed) for seed in range(3)], gamma=2), 8)
    for seed, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        alone = run(speculative(target, draft, prompt, rng=Seeded(seed), gamma=2), 8)
        assert [(step.tokens, step.drafted) for step in row.steps] == [(s.tokens, s.drafted) for s in alone.steps]


def test_nothing_is_drafted_of_what_the_target_lacks_or_after_what_the_draft_lacks():
    to_padding = TableLM({(): [0, 0, 0, 1.0]}, "abcd")
    small = TableLM({(): [1.0, 0, 0]})
    small.tokenizer = to_padding.tokenizer
    assert [step.drafted for step in run(speculative(small, to_padding, "a"), 3).steps] == [[]] * 3
    assert [step.drafted for step in run(speculative(to_padding, small, "a", gamma=2), 3).steps] == [[0, 0], [], []]


def test_a_prompt_with_an_id_that_the_other_lacks_is_refused_at_the_call():
    for method, name in ((speculative, "draft"), (contrastive_decoding, "amateur")):
        with pytest.raises(ValueError, match=rf"the prompt holds \[3\], outside the {name}'s vocabulary of 3 tokens"):
            method(LARGE, SMALL, [0, 3])
    with pytest.raises(ValueError, match=r"the prompt holds \[3\]"):
        speculative_batch(LARGE, SMALL, [[0, 1, 2], [3]])


def scores(expert, amateur, text, alpha):
    """The definition: log p/q where p is at least alpha of its largest, for the ids that both have."""
    p, q = expert.log_probs(text), amateur.log_probs(text)
    return torch.where(p.exp()[:3] >= alpha * p.exp().max(), p[:3] - q[:3], -torch.inf)


@pytest.mark.parametrize(("expert", "amateur"), [(LARGE, SMALL), (SMALL, LARGE)])
def test_contrastive_decoding_compares_what_both_have(expert, amateur):
    for alpha in (0.0, 0.3):
        text = [0]
        for _ in range(6):
            text.append(int(scores(expert, amateur, text, alpha).argmax()))
        assert run(contrastive_decoding(expert, amateur, [0], alpha=alpha), 6).tokens == text[1:]
        search = contrastive_beam_search(expert, amateur, [0], beams=1, max_new_tokens=6, alpha=alpha)
        assert run(search, 6).tokens == text[1:]
        made = exact_distribution(lambda rng: contrastive_sampling(expert, amateur, [0], rng=rng, alpha=alpha), 1)  # noqa: B023
        expected = scores(expert, amateur, [0], alpha).softmax(-1).tolist()
        assert [made.get((token,), 0.0) for token in range(3)] == pytest.approx(expected, abs=1e-12)


def test_an_expert_that_finds_nothing_but_padding_plausible_is_an_error():
    expert = TableLM({(): [0, 0, 0, 1.0]}, "abcd")
    amateur = TableLM.random(3, 1, 0)
    amateur.tokenizer = expert.tokenizer
    with pytest.raises(ValueError, match="all tokens that the expert finds plausible"):
        run(contrastive_decoding(expert, amateur, "a"), 1)


def test_sizes_may_differ_only_where_tokenizers_are_known_to_be_equal():
    check_same_vocabulary(target=LARGE, draft=SMALL)
    equal = TableLM.random("abcd", 1, 0)
    check_same_vocabulary(target=equal, draft=SMALL)
    for target, draft in (
        (LM(LARGE_LLAMA.model), SMALL),
        (LARGE, LM(SMALL_GPT2.model)),
        (LARGE, TableLM.random(3, 1, 0)),
    ):
        with pytest.raises(ValueError, match="4 tokens and 3"):
            speculative(target, draft, [0])
