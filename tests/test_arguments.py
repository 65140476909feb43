"""Whatever takes a collection takes an iterator too, and makes the same of it, however often it reads it."""

import functools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from conftest import random_model
from lossless import random_heads, table

from tutorlib import decoders as d
from tutorlib import metrics, proof
from tutorlib.decoders.medusa import medusa
from tutorlib.drafting import choices
from tutorlib.hugging_face.generate import custom_generate
from tutorlib.measures import theory
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import frequency_penalty, presence_penalty, probabilities, temperature, top_k
from tutorlib.viz import boxes, distributions

LM3, OTHER = TableLM.random(3, 2, 5), TableLM.random(3, 1, 6)
PENALTIES = [frequency_penalty(0.5), presence_penalty(1.0)]


def drawn(plot, *args, **kwargs):
    """What stands in a plot, as text and numbers."""
    figure, ax = plt.subplots()
    plot(ax, *args, **kwargs)
    figure.canvas.draw()
    texts = [text.get_text() for text in [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels()]]
    plt.close(figure)
    return texts, [patch.get_bbox().bounds for patch in ax.patches if hasattr(patch, "get_bbox")]


def session_verbs(given):
    session, batch = LM3.session(given([0, 1])), LM3.batch(given([given([0]), given([1, 2])]))
    first = batch.feed(given([given([1]), given([2])]))
    batch.rollback(given([1, 0]))
    batch.reorder(given([1, 0, 1]))
    session.feed(given([2]))
    logits = session.advance_to(given([0, 2, 1]))
    session.feed_tree(TokenTree.from_paths(given([given([0, 1]), given([2])])))
    session.keep(given([0, 1]))
    return [rows.tolist() for rows in first], batch.tokens, logits.tolist(), session.tokens


@functools.cache
def llama():
    return LM(random_model("llama"))


@functools.cache
def heads():
    return random_heads(table(), 2)


def tokens(steps):
    return run(steps, 6).tokens


def drafts(steps):
    return [step.drafted for step in run(steps, 6).steps]


def batch_of_two(given):
    prompts, rngs = given([given([0]), given([1])]), given([Seeded(1), Seeded(2)])
    steps = d.speculative_batch(LM3, OTHER, prompts, rngs=rngs, warp=given(PENALTIES))
    return [trace.tokens for trace in run_batch(steps, 6, given([2]))]


def how_often(given):
    one, two = lambda prompt: [len(list(prompt)) % 2] * 2, given([0, 1])
    return proof.empirical_check(one, two, LM3, 2, 50, warp=given([temperature(2)]), stop=given([2])).observed


def table_from(given):
    lm = TableLM({"": given([0.5, 0.5]), "b": given([0.1, 0.9])}, given(["a", "b"]), stop_tokens=given(["b"]))
    return lm.log_probs([1]).tolist(), lm.stop_tokens


SEARCH = {"beams": 2, "max_new_tokens": 5}
TREE, RIGHT = [[0], [1, 0]], [[0.6, 0.2], [0.5, 0.1]]
# A function of `given`, which is how the lists in it are passed on.
CASES = {
    "run": lambda given: run(d.greedy(LM3, given([0])), 9, given([1])).tokens,
    "run_batch": batch_of_two,
    "beam_search": lambda given: tokens(d.beam_search(LM3, [0], **SEARCH, stop=given([1, 2]), warp=given(PENALTIES))),
    "best_first": lambda given: tokens(d.best_first_beam_search(LM3, [0], **SEARCH, stop=given([1, 2]))),
    "contrastive_beam": lambda given: tokens(d.contrastive_beam_search(LM3, OTHER, [0], **SEARCH, stop=given([1, 2]))),
    "context_contrast": lambda given: tokens(d.context_contrast(LM3, [0], without=given([1, 2]), weight=0.7)),
    "dola": lambda given: [step.note for step in run(d.dola(llama(), [1, 2], layers=given([0, 1])), 3).steps],
    "suffix_lookup": lambda given: drafts(d.suffix_lookup(LM3, [0], gamma=3, texts=given([given([0, 1, 2]), [1, 0]]))),
    "medusa": lambda given: drafts(medusa(table(), heads(), [0], shape=given(map(given, TREE)))),
    "adaptive": lambda given: drafts(d.speculative(LM3, OTHER, [0], gamma=d.adaptive_gamma(given([3, 3.1, 3.2]), 0.5))),
    "custom_generate": lambda given: custom_generate(d.dola, layers=given([0, 1])).settings,
    "checked_choices": lambda given: len(choices.checked_choices(given(map(given, TREE)))),
    "sessions": session_verbs,
    "probabilities": lambda given: probabilities(
        torch.zeros(2, 3), given(PENALTIES), given([given([0, 0]), given([1])])
    ).tolist(),
    "TableLM": table_from,
    "TableLM.random": lambda given: TableLM.random(given(["a", "b"]), 1, 0).log_probs([1]).tolist(),
    "exact_distribution": lambda given: proof.exact_distribution(
        lambda rng: d.sample(LM3, [0], rng=rng, warp=[top_k(2)]), 3, stop=given([1])
    ),
    "target_distribution": lambda given: proof.target_distribution(
        LM3, given([0]), 3, warp=given([temperature(0.5), top_k(2)]), stop=given([1])
    ),
    "empirical_check": how_often,
    "ngrams": lambda given: metrics.ngrams(given([1, 2, 3]), 2),
    "distinct_n": lambda given: metrics.distinct_n(given([given([1, 2]), given([1, 2, 3])]), 2),
    "self_bleu": lambda given: metrics.self_bleu(given([given([1, 2, 3]), given([1, 2, 4]), given([5, 2])]), 2),
    "perplexity": lambda given: metrics.perplexity(LM3, given([0]), given([1, 2])),
    "bootstrap_interval": lambda given: metrics.bootstrap_interval(given([1, 2, 3]), given([4, 4, 5]), resamples=20),
    "acceptance_rate": lambda given: theory.acceptance_rate(given([0.5, 0.5]), given([0.75, 0.25])),
    "measured_factor": lambda given: theory.measured_factor(0.8, 1, given([2.0, 2.5]), 0.5),
    "rounds_factor": lambda given: theory.rounds_factor(given([given([1, 1, 2]), (1, 1, 1)]), given([2.0, 2.5]), 0.5),
    "best_measured_gamma": lambda given: theory.best_measured_gamma(0.8, given([1.0, 1.1, 1.2, 1.3, 9.0]), 0.1, most=4),
    "grow": lambda given: choices.grow(given(map(given, RIGHT)), 4),
    "expected_tokens": lambda given: choices.expected_tokens(given(map(given, RIGHT)), given(map(given, TREE))),
    "best_size": lambda given: choices.best_size(given(map(given, RIGHT)), given([2.0, 2.1, 2.2, 4.0])),
    "full": lambda given: choices.full(given([2, 1])),
    "next_token_bars": lambda given: drawn(distributions.next_token_bars, given(["a", "b"]), given([0.3, 0.7])),
    "token_strip": lambda given: drawn(boxes.token_strip, given(["a", "b"]), given(["draft", "target"])),
}


@pytest.mark.parametrize("case", CASES)
def test_an_iterator_is_as_good_as_a_list(case):
    ways = (iter, lambda items: dict(enumerate(items)).values())
    expected = CASES[case](list)
    for given in ways:
        np.testing.assert_equal(CASES[case](given), expected)
