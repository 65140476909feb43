"""Every guard of the methods on drafts matters: with any one of them undone, a check fails that passes as they are.

Each mutation says what it changes, in which file, and which check has to notice. The changed source is compiled into a
module object of its own, beside the others compiled from what is in the files; nothing is written. A check is an
exactness proof on small models (total variation from plain sampling), the greedy text, or one named thing that the
guard is there for.
"""

import contextlib
import functools
import sys
import tempfile
import types
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
import torch
from conftest import random_model
from draft_networks import (
    best_tree,
    drafted_anew,
    eagle1,
    eagle3,
    perfect_network,
    reduced,
    ring_network,
    sizes,
    tree_of_ranks,
)
from layouts import KNOWN, maps, package, package_config, third, third_config, write
from lossless import distance, ring, table
from test_suffix_lookup import reached
from test_vocabularies import Speller, byte_level, piece, sentencepiece
from two_tokenizers import renumbered, tables

import tutorlib
from tutorlib import theory
from tutorlib.decoders import greedy, sample
from tutorlib.lm import LM, Batch
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.randomness import Exhaustive, Seeded
from tutorlib.run import run, run_batch
from tutorlib.table import TableLM, TableTokenizer
from tutorlib.warp import frequency_penalty, no_repeat_ngram, temperature, top_k, top_p

# In the order in which they import each other.
FILES = (
    "vocabularies.py", "checking.py", "decoders/speculative.py", "decoders/speculative_batch.py",
    "decoders/prompt_lookup.py", "decoders/suffix_lookup.py", "decoders/lookahead.py", "decoders/token_intersection.py",
    "decoders/string_match.py", "heads/formats/eagle.py", "heads/eagle.py", "decoders/draft_trees.py",
    "decoders/eagle.py",
)  # fmt: skip
HERE = Path(tutorlib.__file__).parent
# A distribution that is wrong is wrong by more than this, and one that is right by less than 1e-9.
WRONG, RIGHT = 1e-3, 1e-9


@dataclass
class Mutation:
    """One guard undone: in `file`, `old` becomes `new`, and `check` must fail."""

    file: str
    check: str
    why: str
    old: str
    new: str


def module_name(file):
    return "tutorlib." + file.removesuffix(".py").replace("/", ".")


@functools.cache
def as_they_are(file):
    return compile((HERE / file).read_text(), file, "exec")


def changed(mutation):
    """The code of a file with the mutation in it; fails where the text that it is to change is not there."""
    source = (HERE / mutation.file).read_text()
    count = source.count(mutation.old)
    assert count == 1, (
        f"{mutation.file} holds the text to be changed {count} times, expected once: bring this mutation up to date\n"
        f"{mutation.old}"
    )
    return compile(source.replace(mutation.old, mutation.new), f"{mutation.file}, mutated", "exec")


@contextlib.contextmanager
def methods(mutation=None):
    """All names of the files, compiled anew, one of them mutated. While they are made, they import each other."""
    names = [module_name(file) for file in FILES]
    known = {name: import_module(name) for name in names}
    found = {}
    try:
        for file, name in zip(FILES, names, strict=True):
            module = sys.modules[name] = types.ModuleType(name)
            module.__package__ = name.rpartition(".")[0]
            code = changed(mutation) if mutation and mutation.file == file else as_they_are(file)
            exec(code, module.__dict__)
            # What is defined in a file, and not what it imports; `check` is a name that several have.
            own = {key: value for key, value in vars(module).items() if getattr(value, "__module__", "") == name}
            found |= own
        yield types.SimpleNamespace(**found)
    finally:
        sys.modules.update(known)


# ----------------------------------------------------------------------------------------------------------------------
# The checks. Each takes the methods, and how far from right a distribution may be.

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


PENALTY = [frequency_penalty(0.9)]  # which each token changes, also one that was there before


def pair(vocab=2, **options):
    """A target that looks two tokens back, and a draft that looks one back."""
    return TableLM.random(vocab, 2, 5, **options), TableLM.random(vocab, 1, 3, **options)


def exact(method, target, draft, prompt, length, limit, warp=(), **settings):
    """Fails for a total variation of `limit` or more from plain sampling."""
    make_steps = functools.partial(method, target, draft, prompt, warp=warp, **settings)
    made = exact_distribution(lambda rng: make_steps(rng=rng), length, stop=())
    found = total_variation(made, target_distribution(target, prompt, length, warp=warp, stop=()))
    assert found < limit, f"total variation {found:.3g}"


@check
def speculative_is_exact(m, limit):
    target, draft = pair()
    for prompt, length, options in (([1, 0], 3, {"gamma": 1, "confidence": 0.7}), ([0], 4, {"gamma": 2})):
        exact(m.speculative, target, draft, prompt, length, limit, **options)


@check
def speculative_is_exact_under_a_penalty(m, limit):
    exact(m.speculative, *pair(), [1], 3, limit, PENALTY, gamma=2)


@check
def speculative_is_exact_to_the_end_of_either_context(m, limit):
    for contexts in ((6, 64), (64, 4)):
        target, draft = (TableLM.random(2, 2, seed, context=context) for seed, context in zip((5, 3), contexts))
        steps = m.speculative(target, draft, [0, 1, 1], gamma=3, rng=Seeded(0))
        trace = run(steps, 20)
        assert trace.stopped == ("context" if contexts[0] == 6 else "budget")
        assert len(trace.tokens) == min(20, contexts[0] - 3)
        before = 3
        for step in trace.steps[:-1]:
            assert len(step.drafted) == max(0, min(3, contexts[0] - before - 1, contexts[1] - before + 1))
            before += len(step.tokens)
        exact(m.speculative, target, draft, [0, 1, 1], 3, limit, gamma=2)
        made = sum(len(step.tokens) for _, step in zip(range(30), m.speculative(target, draft, [0, 1, 1], rng=None)))
        assert made == 3 if contexts[0] == 6 else made >= 30


@check
def a_draft_is_the_drafts_own_text(m, limit):
    """Greedily, what is drafted after a rejection or a full acceptance is what the draft itself would write there."""
    target, draft = TableLM.random(5, 2, 0), TableLM.random(5, 2, 1)
    for steps in (
        m.speculative(target, draft, [3], gamma=3),
        _alone(m.speculative_batch(target, draft, [[3]], gamma=3)),
        m.token_intersection(target, draft, [3], gamma=3),
        m.string_match(target, draft, [3], gamma=3),
    ):
        text, accepted = [3], set()
        for _, step in zip(range(12), steps):
            assert step.drafted == run(greedy(draft, text), 3).tokens
            text += step.tokens
            accepted.add(step.accepted)
        assert text == [3, *run(greedy(target, [3]), len(text) - 1).tokens]


def _alone(rounds):
    return (steps[0] for steps in rounds)


@check
def a_perfect_draft_is_all_accepted(m, limit):
    """The target drafts for itself: where q is the law of the draft, warped as the target is, nothing is rejected."""
    target = TableLM.random(4, 2, 0)
    for warp in ([temperature(0.5)], [frequency_penalty(1.0), top_k(3)]):
        trace = run(m.speculative(target, target, [0], gamma=3, rng=Seeded(1), warp=warp), 32)
        assert trace.acceptance == 1
        batch = m.speculative_batch(target, target, [[0], [1, 2]], gamma=3, rngs=[Seeded(1), Seeded(2)], warp=warp)
        assert all(trace.acceptance == 1 for trace in run_batch(batch, 32))


@check
def an_unsure_draft_ends(m, limit):
    target = TableLM.random(4, 2, 5)
    draft = TableLM({"": [0.4, 0.2, 0.2, 0.2], "a": [0.9, 0.1, 0.0, 0.0]})
    for steps in (
        m.speculative(target, draft, "a", gamma=3, confidence=0.6, rng=Seeded(0)),
        _alone(m.speculative_batch(target, draft, ["a"], gamma=3, confidence=0.6, rngs=[Seeded(0)])),
    ):
        for _, step in zip(range(12), steps):
            assert all(token == 0 for token in step.drafted[:-2]), "after b, c or d it is unsure, and drafts one more"
    assert m.is_unsure(torch.tensor([[0.0, 0.0], [0.0, 5.0]]), 0.7) == [True, False]


@check
def gamma_sees_the_rounds_so_far(m, limit):
    target, draft = pair(3)
    seen = []

    def every_other(rounds):
        seen.append(list(rounds))
        return 2 * (len(rounds) % 2)

    steps = [step for step, _ in zip(m.speculative(target, draft, "a", gamma=every_other, rng=Seeded(0)), range(4))]
    assert seen[3] == [(len(step.drafted), step.accepted) for step in steps[:3]]
    assert [len(step.drafted) for step in steps] == [0, 2, 0, 2]


@check
def adaptive_counts_what_was_judged(m, limit):
    seconds = [3.0, 3.3, 3.6, 3.9, 4.2, 4.5, 4.8]
    best = theory.best_measured_gamma
    gamma = m.adaptive(seconds, 0.5, prior=0.6, weight=2.0, memory=1.0)
    for accepted, judged, rounds in ((1.2, 2, []), (6.2, 8, [(4, 1), (4, 4)]), (1.2, 42, [(4, 0)] * 40)):
        assert gamma(rounds) == max(1, best(accepted / judged, seconds, 0.5, most=6))
    keen = m.adaptive(seconds, 0.5, memory=0.5)
    assert keen([(4, 0)] * 40 + [(4, 4)] * 8) == keen([(4, 4)] * 8) > 1


@check
def a_wrong_pair_is_refused(m, limit):
    target, draft = pair(3)
    elsewhere = LM(random_model("llama").to("meta"))
    for who, options, says in (
        (target, {"draft": TableLM.random(4, 1, 0)}, "token_intersection and string_match"),
        (target, {"draft": TableLM.random("acb", 1, 0)}, "token_intersection and string_match"),
        (target, {"draft": "gpt2"}, "must be an LM"),
        (target, {"draft": TableLM.random(3, 1, 0, context=2)}, "the draft's context is 2"),
        (target, {"gamma": 0}, "gamma"),
        (target, {"confidence": 2}, "confidence"),
        (LM(random_model("llama")), {"draft": elsewhere}, "one device"),
    ):
        arguments = {"draft": draft} | options
        prompt = [0, 1, 2]
        with pytest.raises(ValueError, match=says):
            m.speculative(who, prompt=prompt, **arguments)
        with pytest.raises(ValueError, match=says):
            m.speculative_batch(who, prompts=[[0], prompt], **arguments)


@check
def a_wrong_law_is_refused(m, limit):
    rows = torch.eye(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="drafted in place 0"):
        m.check_sampled([1], rows[[0]], rows[[1, 1]], Seeded(0))


@check
def the_residual_is_a_distribution_where_nothing_is_left_too(m, limit):
    row = torch.tensor([0.25, 0.75], dtype=torch.float64)
    assert m.residual(row, row).tolist() == row.tolist()
    other = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert m.residual(row, other).tolist() == [0.0, 1.0]


# -- batches --


@check
def every_row_is_what_it_is_alone(m, limit):
    target, draft = TableLM.random(4, 2, 6, context=30, stop_tokens=[3]), TableLM.random(4, 1, 1, context=24)
    prompts = ["a", "abca" * 5, "ab", "c" * 23, "ca", "b" * 24, "ba", "cb", "bb", "ac"]
    for options in ({"gamma": 3}, {"gamma": 3, "confidence": 0.5}, {"gamma": lambda rounds: 2 * (len(rounds) % 2)}):
        rngs = [Seeded(row) for row in range(len(prompts))]
        traces = run_batch(m.speculative_batch(target, draft, prompts, rngs=rngs, **options), 8)
        for row, trace in enumerate(traces):
            alone = run(m.speculative(target, draft, prompts[row], rng=Seeded(row), **options), 8)
            made, expected = ([(s.tokens, s.drafted, s.accepted) for s in one.steps] for one in (trace, alone))
            assert made == expected and trace.stopped == alone.stopped


@check
def a_row_is_exact_among_others(m, limit):
    target, draft = pair()
    prompts, made = [[1], [0, 1, 1, 0, 0, 1], [0, 1]], {}
    for rng in Exhaustive():
        rngs = [Seeded(0), rng, Seeded(2)]
        batch = m.speculative_batch(target, draft, prompts, rngs=rngs, gamma=1, warp=PENALTY)
        tokens = tuple(run_batch(batch, 3, ())[1].tokens)
        made[tokens] = made.get(tokens, 0.0) + rng.weight
    found = total_variation(made, target_distribution(target, prompts[1], 3, warp=PENALTY))
    assert found < limit, f"total variation {found:.3g}"


@check
def the_longest_prompt_must_fit_the_draft(m, limit):
    target, draft = TableLM.random(3, 1, 0), TableLM.random(3, 1, 1, context=4)
    for prompts in (["abcabc", "a"], ["a", "abcabc"]):
        with pytest.raises(ValueError, match="prompt has 6 tokens, but the draft's context is 4"):
            m.speculative_batch(target, draft, prompts)


@check
def ended_rows_cost_nothing(m, limit):
    lm = TableLM({"": {"a": 1.0}, "b": {"c": 1.0}}, ["a", "b", "c"], stop_tokens=["c"], context=12)
    draft = TableLM({"": {"a": 1.0}, "b": {"c": 1.0}}, ["a", "b", "c"])
    heights, feed = [], Batch.feed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "feed", lambda batch, lists: heights.append(len(lists)) or feed(batch, lists))
        run_batch(m.speculative_batch(lm, draft, ["b", "a", "a" * 9], gamma=1), 7)
    assert heights == [3, 3, 2, 2, 1, 1, 1, 1]


# -- drafts for free --


def _luck(method, lm, prompt, limit, **settings):
    """Exact, also where penalties look at the drafted tokens; with one seed the text that `sample` writes."""
    for warp in ([], PENALTY):
        found = distance(method, lm, prompt, 4, warp, **settings)
        assert found < limit, f"total variation {found:.3g}"
    plain = run(sample(lm, prompt, rng=Seeded(4), warp=PENALTY), 80)
    trace = run(method(lm, prompt, rng=Seeded(4), warp=PENALTY, **settings), 80)
    assert (trace.tokens, trace.stopped) == (plain.tokens, plain.stopped)


@check
def prompt_lookup_is_exact(m, limit):
    _luck(m.prompt_lookup, table(), [0, 1, 0, 2, 0], limit, gamma=2)


@check
def prompt_lookup_fills_the_context_and_no_more(m, limit):
    lm = ring(12, context=40)
    made = [len(step.tokens) for _, step in zip(range(99), m.prompt_lookup(lm, [*range(12)] * 2, gamma=10))]
    assert sum(made) == 40 - 24 and max(made) == 11


@check
def the_latest_continuation_of_the_longest_ngram_is_found(m, limit):
    text = m.NGrams(3)
    text.extend([1, 2, 7, 8, 1, 2, 9, 2, 5, 1, 2])
    assert text.continuation(2) == [9, 2]
    text = m.NGrams(3)
    text.extend([1, 2, 3])
    assert text.continuation(2) == []


@check
def suffix_lookup_is_exact(m, limit):
    texts = [[0, 1, 1, 0, 1], [0, 0], [1, 0, 0, 1, 1, 1, 0]]
    _luck(m.suffix_lookup, table(2), [0, 1, 1, 0], limit, gamma=4, least=0, texts=texts)


@check
def suffix_lookup_fills_the_context_and_no_more(m, limit):
    lm = ring(12, context=40)
    made = [len(step.tokens) for _, step in zip(range(99), m.suffix_lookup(lm, [*range(12)] * 2, gamma=10))]
    assert sum(made) == 40 - 24 and max(made) == 11
    steps = m.suffix_lookup(lm, [*range(12)], gamma=10)
    assert max(len(step.tokens) for _, step in zip(range(99), steps)) > 5, "it looks in the new tokens, too"


@check
def the_automaton_knows_what_followed(m, limit):
    for size in (1, 2, 3):
        rng, text, seen = Seeded(size), [], m.SuffixAutomaton()
        for _ in range(40):
            text.append(rng.choose([1 / size] * size))
            seen.extend(text[-1:])
            tree = seen.continuations(most=1000, depth=3, least=0.05)
            paths = {tuple(tree.tokens[node] for node in tree.path(node)) for node in range(len(tree))}
            expected = {path for length in (1, 2, 3) for path, share in reached(text, length).items() if share >= 0.05}
            assert paths == expected
    seen = m.SuffixAutomaton()
    seen.extend([1, 5, 1, 6, 1, 6, 1, 7, 1])
    assert seen.continuations(most=2, depth=1).tokens == [6, 7]
    seen = m.SuffixAutomaton()
    seen.extend([1, 2, None, 5, 6, None, 4, 1, 2])
    assert len(seen.continuations(most=4)) == 0


@check
def lookahead_is_exact(m, limit):
    _luck(m.lookahead, table(2), [1, 1, 0], limit, window=2, ngram=3, guesses=2)


@check
def lookahead_fills_the_context_and_no_more(m, limit):
    lm = ring(12, context=40)
    steps = m.lookahead(lm, [*range(12)] * 2, window=10, ngram=4)
    assert sum(len(step.tokens) for _, step in zip(range(99), steps)) == 40 - 24
    prompt = [5, 6] * 15
    full = run(m.lookahead(ring(12, context=32), prompt, window=10, ngram=4, guesses=9), 9)
    assert full.stopped == "context" and len(full.tokens) == 2


@check
def the_window_and_the_pool_are_the_papers(m, limit):
    """Rounds from the definition: one token at a time, each from its own prompt."""
    lm, width, prompt = TableLM.random(4, 2, 0), 3, [0, 2, 1]

    def after(tokens):
        return int(lm.log_probs(tokens).argmax())

    for most in (1, 2):
        text, pool = list(prompt), []
        levels = [[prompt[(i + level) % 3] for i in range(width)] for level in range(2)]
        steps = m.lookahead(lm, prompt, window=width, ngram=3, guesses=most, rng=Seeded(0))
        for _, step in zip(range(20), steps):
            tries = [ngram[1:] for ngram in pool if ngram[0] == text[-1]][:most]
            rows = [levels[0][: i + 1] + [levels[1][i]] for i in range(width)]
            nodes = {tuple(step.tree.tokens[above] for above in step.tree.path(node)) for node in range(len(step.tree))}
            assert nodes == {tuple(path[:end]) for path in tries + rows for end in range(1, len(path) + 1)}
            new = [after(text + row) for row in rows]
            for i in range(width):
                ngram = [levels[0][i], levels[1][i], new[i]]
                pool = [ngram, *(known for known in pool if known != ngram)]
            levels = [levels[1], new]
            text += step.tokens


# -- other tokenizers --


@check
def token_intersection_is_exact(m, limit):
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"], seed=3)
    for warp in ([], [top_p(0.7)], PENALTY):
        exact(m.token_intersection, target, draft, [2, 1], 3, limit, warp, gamma=1)
    exact(m.token_intersection, target, draft, [1], 2, limit, gamma=2)


@check
def string_match_is_exact(m, limit):
    target, draft = tables(["a", "ab", "b"], ["b", "a"], seed=3)
    for warp in ([], PENALTY):
        exact(m.string_match, target, draft, [2, 1], 4, limit, warp, gamma=2)


@check
def the_target_renumbered_is_a_perfect_draft(m, limit):
    target = TableLM.random(["a", "b", "c", "d"], 2, 0)
    for seed in range(4):
        draft = renumbered(target, seed)
        for warp in ([], [frequency_penalty(1.0), top_k(3)]):
            trace = run(m.token_intersection(target, draft, [0, 3], gamma=3, rng=Seeded(seed), warp=warp), 40)
            assert trace.acceptance == 1 and trace.target_calls == 10
        assert run(m.string_match(target, draft, [0, 3], gamma=3), 24).tokens_per_call == 4


@check
def a_draft_that_has_nothing_to_say_harms_nothing(m, limit):
    target, silent = TableLM.random(["a", "b"], 1, 0), TableLM({"": [0.0, 0.0, 1.0]}, ["a", "b", "x"])
    exact(m.token_intersection, target, silent, [0], 2, limit, gamma=2)
    draft = TableLM.random(["a", "x"], 1, 0)  # which has no other shared token than the one that was said
    exact(m.token_intersection, target, draft, [0], 1, limit, [no_repeat_ngram(1)], gamma=2)
    # The prompt is nothing that the draft can read.
    for method in (m.token_intersection, m.string_match):
        deaf = TableLM.random(["a", "x"], 1, 0)
        assert len(run(method(TableLM.random(["b", "a"], 1, 0), deaf, [0], gamma=2, rng=Seeded(0)), 9).tokens) == 9


@check
def other_tokenizers_fill_either_context_and_no_more(m, limit):
    for method in (m.token_intersection, m.string_match):
        for contexts in ((6, 64), (64, 5), (64, 2)):
            target = TableLM.random(["a", "b"], 2, 1, context=contexts[0])
            draft = TableLM.random(["b", "abab", "a"], 2, 2, context=contexts[1])
            steps = method(target, draft, [0, 1, 1], gamma=4, rng=Seeded(0))
            made, drafts = 3, 0
            for _, step in zip(range(70), steps):
                assert made + len(step.drafted) < contexts[0]
                drafts += len(step.drafted)
                made += len(step.tokens)
            assert made == contexts[0] and (drafts > 0 or contexts[1] == 2)
    target = TableLM({"": [1.0, 0.0]}, ["a", "b"], context=6)
    trace = run(m.string_match(target, TableLM({"": [0.0, 1.0, 0.0]}, ["b", "aaaa", "a"]), [1, 0], gamma=3), 100)
    assert trace.steps[0].drafted == [0, 0, 0] and trace.stopped == "context"


@check
def an_end_is_drafted_by_its_role(m, limit):
    """The draft has an ordinary token that is spelled as the target's end-of-text is."""
    target = TableLM.random(["a", "b", "<end>"], 2, 11, stop_tokens=["<end>"])
    certain = TableLM({"": [0.0, 1.0, 0.0]}, ["<end>", "<eos>", "a"], stop_tokens=["<eos>"])
    assert next(m.token_intersection(target, certain, [0], gamma=3, rng=Seeded(0))).drafted == [2]
    ending = TableLM({"": [0.0, 0.0, 1.0], ("a", "a"): [0.0, 1.0, 0.0]}, certain.tokenizer.vocab, stop_tokens=["<eos>"])
    assert next(m.string_match(target, ending, [0], gamma=4, rng=Seeded(0))).drafted == [0, 2]
    spelling = TableLM({"": [1.0, 0.0, 0.0]}, certain.tokenizer.vocab, stop_tokens=["<eos>"])
    assert next(m.string_match(target, spelling, [0], gamma=4, rng=Seeded(0))).drafted == []
    assert m.shared_tokens(target, spelling).ordinary == 1
    # A mark that ends nothing.
    other_mark = TableLM({"": [0.0, 1.0, 0.0]}, ["<end>", "<tool>", "a"])
    other_mark.tokenizer.all_special_ids = (1,)
    assert next(m.string_match(target, other_mark, [0], gamma=4, rng=Seeded(0))).drafted == []


@check
def a_wrong_pair_of_tokenizers_is_refused(m, limit):
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"])
    bare, elsewhere = LM(random_model("llama")), LM(random_model("llama").to("meta"), TableTokenizer(["a"] + ["b"]))
    here = LM(random_model("llama"), TableTokenizer(["a", "b"]))
    for method in (m.token_intersection, m.string_match):
        for who, other, gamma, says in (
            (target, "gpt2", 1, "must be an LM"),
            (target, bare, 1, "the draft has no tokenizer"),
            (bare, draft, 1, "the target has no tokenizer"),
            (here, elsewhere, 1, "target is on cpu and the draft on meta"),
            (target, draft, 0, "gamma"),
        ):
            with pytest.raises(ValueError, match=says):
                method(who, other, [0], gamma=gamma)
    with pytest.raises(ValueError, match="none in common.*string_match"):
        m.token_intersection(target, TableLM({"": [0.5, 0.5]}, ["x", "y"]), [0])


@check
def tokens_are_paired_by_their_bytes(m, limit):
    gpt, llama = byte_level(), sentencepiece()
    pairs = m.shared_tokens(gpt, llama)
    shared = dict(zip(pairs.target, pairs.draft, strict=True))
    assert shared[piece(gpt, "Ġred")] == piece(llama, "▁red")
    assert shared[piece(gpt, "A")] == piece(llama, "A"), "and not <0x41>, which has a lower id"
    assert shared[piece(gpt, "â")] == piece(llama, "<0xE2>")
    assert list(shared) == sorted(shared)
    both = byte_level(specials=("<|endoftext|>", "<|endoftext|>"))
    assert m.roles(both) == {"end": 0}
    assert max(m.spellings(Speller(gpt.tokenizer, vocab_size=300))) == 299


@check
def a_text_is_read_as_the_continuation_it_is(m, limit):
    llama, gpt = sentencepiece(), byte_level()
    assert [m.spellings(llama)[token] for token in m.tokens_of(llama, "ed")] == [b"ed"]
    assert not set(m.tokens_of(gpt, "red</s>red")) & m.special_tokens(gpt)
    assert m.tokens_of(Speller(TableTokenizer(["a"])), "ab") is None
    assert m.whole_characters("aé—".encode()[:-1]) == "aé"


@check
def a_translation_grows_word_by_word(m, limit):
    other = byte_level(340)
    for source in (byte_level(400), byte_level(260)):
        tokens = m.tokens_of(source, "Mia had a red kite. Tom’s kite was lost.")
        translation = m.Translation(source, other)
        for count in range(1, len(tokens) + 1):
            told = translation(tokens[:count])
            if count == len(tokens) or m.spellings(source)[tokens[count]].startswith(b" "):
                assert told == m.tokens_of(other, b"".join(m.spellings(source)[t] for t in tokens[:count]).decode())
    end, marked = source.tokenizer.eos_token_id, m.Translation(source, other)
    assert marked([*tokens[:2], end, *tokens[:1]]).count(other.tokenizer.eos_token_id) == 1
    unreadable = m.Translation(*(Speller(TableTokenizer(letters)) for letters in (["a", "x", "b"], ["b", "a"])))
    assert unreadable([0, 1, 2, 2]) == [1, 0, 0]


@check
def a_translation_begins_as_the_others_texts_do(m, limit):
    family = tutorlib.models.load("storyworld")
    tokens = family.target.encode("Mia had a red kite.")
    expected = family.other_draft.encode("Mia had a red kite.")
    for given in (tokens, tokens[1:]):
        assert m.Translation(family.target, family.other_draft)(given) == expected


@check
def a_network_that_lies_in_its_file_is_refused(m, limit):
    target, count = LM(random_model("llama")), len(KNOWN)
    never_filled = {"d2t": torch.zeros(count, dtype=torch.int64), "t2d": torch.arange(target.vocab_size) < count}
    other_marks = {"t2d": maps([*KNOWN[:-1], 17])["t2d"]}
    beyond = {"d2t": maps(KNOWN)["d2t"] + torch.tensor([0] * (count - 1) + [1])}
    far = {"eagle_aux_hidden_state_layer_ids": [0, 1, 4]}
    with tempfile.TemporaryDirectory() as place:
        for config, tensors, says in (
            ({}, never_filled, "d2t is all zeros"),
            ({}, other_marks, "t2d has the target's token 17, d2t has not"),
            ({}, beyond, "d2t makes token 5 the target's 19"),
            ({"num_hidden_layers": 2}, {}, "num_hidden_layers is 2"),
            ({}, {"layers.1.mlp.up_proj.weight": torch.ones(2)}, "num_hidden_layers is 1, .* layers.1.mlp.up_proj"),
            ({"draft_vocab_size": 20}, {}, "draft_vocab_size is 20"),
            ({"norm_output": True}, {}, "norm_output is True"),
            ({"vocab_size": 21}, {"t2d": torch.ones(21)}, "knows 21 tokens, the target 19"),
            (far, {}, "layer 4, but the target has hidden states 0 to 3"),
        ):
            write(Path(place), third_config(**config), third() | tensors)
            with pytest.raises(ValueError, match=says):
                m.load_eagle(place, target)


@check
def a_network_is_read_as_its_layout_means_it(m, limit):
    with tempfile.TemporaryDirectory() as place:
        for written, tensors, normed in ((third_config(), third(), False), (package_config(), package(), True)):
            del written["eagle_aux_hidden_state_layer_ids"]
            written.pop("norm_before_residual", None)
            written["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
            head = m.load_eagle(write(Path(place), written, tensors))
            assert head.norm_before_residual is normed and head.feature_layers == (1, 2, 3)


# -- EAGLE --


def _networks(m, lm):
    """EAGLE-1, EAGLE-3, and EAGLE-3 that knows fewer tokens; random."""
    return [eagle1(lm, make=m.EagleHead), eagle3(lm, make=m.Eagle3Head), reduced(lm, make=m.Eagle3Head)]


@check
def eagle_is_exact(m, limit):
    for head, tree in zip(_networks(m, table()), (m.chain(2), m.static([(0,), (1,), (1, 0)]), m.dynamic(4, 2, 2))):
        _luck(functools.partial(_on_networks, m, head, tree), table(), [0, 2], limit)


def _on_networks(m, head, tree, lm, prompt, **settings):
    return m.eagle(lm, head, prompt, tree=tree, **settings)


@check
def a_drawn_tree_is_exact(m, limit):
    two, three = table(2), table(3)
    for lm, head, tree, length, warp in (
        (two, eagle1(two, make=m.EagleHead), m.drawn_chain(2), 4, []),
        (two, eagle3(two, make=m.Eagle3Head), m.drawn_chain(1), 3, PENALTY),
        (three, eagle1(three, make=m.EagleHead), m.drawn_tree([(1,)]), 2, []),
    ):
        found = distance(functools.partial(_on_networks, m, head, tree), lm, [0, 1], length, warp)
        assert found < limit, f"total variation {found:.3g}"


@check
def what_is_drawn_from_the_targets_own_law_is_all_accepted(m, limit):
    lm = TableLM.random(4, 1, 0)
    head = perfect_network(lm, m.DraftNetwork)
    for warp in ([], [frequency_penalty(1.0), top_k(3)]):
        trace = run(m.eagle(lm, head, [0], tree=m.drawn_chain(3), rng=Seeded(1), warp=warp), 21)
        assert [len(step.tokens) for step in trace.steps] == [1, *[4] * 5]


@check
def every_tree_is_what_the_network_makes_of_the_whole_text(m, limit):
    """The network, and its trees, computed a second time from the text's beginning."""
    lm, ranks = TableLM.random(6, 2, 1, context=24), [(0,), (1,), (0, 0), (1, 1), (1, 0), (1, 1, 0)]
    for head, rng in zip(_networks(m, lm), (Seeded(1), None, Seeded(2))):
        for tree, paths in (
            (m.dynamic(7, 4, 3), lambda guess, room: best_tree(guess, 7, min(4, room), 3)[0]),
            (m.static(ranks), lambda guess, room: tree_of_ranks(guess, ranks, room)),
        ):
            trace = run(m.eagle(lm, head, [5, 1, 4], tree=tree, rng=rng, warp=PENALTY), 9)
            drafted_anew(lm, head, paths, trace, PENALTY)


@check
def what_belongs_together_goes_in_together(m, limit):
    """A network that is right where token and feature belong together is right up to the end of every chain."""
    lm = ring(10)
    for tree in (m.chain(3), m.drawn_chain(3), m.static([(0, 0, 0)])):
        steps = run(m.eagle(lm, ring_network(lm, m.DraftNetwork), [8, 9, 0], tree=tree), 13).steps
        assert [len(step.tokens) for step in steps] == [1, 4, 4, 4]


@check
def eagle_fills_the_context_and_no_more(m, limit):
    for context in range(2, 9):
        lm = ring(10, context=context)
        for tree in (m.chain(3), m.drawn_chain(3), m.static([(0, 0, 0)])):
            for rng in (None, Seeded(0)):
                settings = {"tree": tree, "rng": rng, "warp": [temperature(0.1)]}
                steps = m.eagle(lm, ring_network(lm, m.DraftNetwork), [0], **settings)
                tokens = [token for _, step in zip(range(20), steps) for token in step.tokens]
                assert tokens == list(range(1, context))


@check
def the_network_is_asked_no_more_than_it_has_to_be(m, limit):
    def even_or(certain):
        """A session of a network that is certain of the next token on a ring, or finds all ten alike."""
        head = ring_network(ring(10), m.DraftNetwork)
        head.read_out = lambda hidden, _: hidden.masked_fill(hidden == 0, -torch.inf) if certain else hidden * 0
        session = head.session(ring(10))
        return session, m.Draft(session, session.feed([1, 2], torch.eye(10)[[1, 2]]), [0, 1, 2], [], 50)

    for certain, tree, calls, size in (
        (True, m.dynamic(3, 8, 10), 3, 3),
        (True, m.dynamic(50, 4, 10), 4, 4),
        (False, m.dynamic(10, 8, 10), 1, 10),
        (False, m.dynamic(50, 8, 10, 0.2), 1, 10),
        (False, m.dynamic(50, 3, 3), 3, 3 + 9 + 9),
    ):
        session, draft = even_or(certain)
        assert (len(tree(draft)), session.calls) == (size, calls)


@check
def a_filter_that_leaves_a_network_nothing_harms_nothing(m, limit):
    lm = TableLM.random(3, 1, 0)
    head = eagle3(lm, make=m.Eagle3Head, tokens=[1, 2])

    def ban(logits, histories):
        even = torch.tensor([len(history) % 2 == 0 for history in histories])[:, None]
        return logits.masked_fill(even == torch.tensor([False, True, True]), -torch.inf)

    for tree in (m.dynamic(4, 2, 2), m.static([(0,), (0, 0), (1,)]), m.drawn_chain(2)):
        trace = run(m.eagle(lm, head, [0], tree=tree, rng=Seeded(1), warp=[ban]), 24)
        assert len(trace.tokens) == 24
        assert all(token > 0 for step in trace.steps for token in step.drafted)


@check
def a_wrong_network_is_refused(m, limit):
    lm = table(4)
    for head, says in (
        (eagle1(lm, make=m.EagleHead, hidden_size=6), "features of width 6"),
        (eagle1(lm, make=m.EagleHead, vocab_size=5), "knows 5 tokens"),
        (eagle3(lm, make=m.Eagle3Head, layers=(0, 1)), "features of layer 1"),
        (eagle1(lm, make=m.EagleHead).to("meta"), "is on meta"),
        (lm, "head must be an EagleHead"),
    ):
        with pytest.raises(ValueError, match=says):
            m.eagle(lm, head, [0])
    head = eagle1(lm, make=m.EagleHead)
    for tree in (m.dynamic, m.drawn_chain, 5):
        with pytest.raises(ValueError, match="tree must be a shape"):
            m.eagle(lm, head, [0], tree=tree)
    for make in (lambda: m.dynamic(nodes=0), lambda: m.dynamic(confidence=2), lambda: m.drawn_chain(0)):
        with pytest.raises(ValueError, match="got"):
            make()
    for tokens in ([1, 0], [0, 4], []):
        with pytest.raises(ValueError, match="tokens must be ids of a vocabulary of 4"):
            m.Eagle3Head(sizes(lm), (0,), tokens)
    head.fc.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="draft network returned logits that are NaN"):
        run(m.eagle(lm, head, [0]), 3)


# ----------------------------------------------------------------------------------------------------------------------
# The mutations

CHECKING, SPECULATIVE = "checking.py", "decoders/speculative.py"
BATCH = "decoders/speculative_batch.py"
PROMPT, SUFFIX, LOOKAHEAD = "decoders/prompt_lookup.py", "decoders/suffix_lookup.py", "decoders/lookahead.py"
NETWORKS = "heads/formats/eagle.py"
NETWORK = "heads/eagle.py"
TREES, EAGLE = "decoders/draft_trees.py", "decoders/eagle.py"
TLI, SLEM, VOCABULARIES = "decoders/token_intersection.py", "decoders/string_match.py", "vocabularies.py"

# (file, check) -> mutations: what goes wrong, the text in the file, the text in its place.
MUTATIONS = {
    (CHECKING, "speculative_is_exact"): [
        ("accepting with p, not with p/q", "float(row[token]) / draft_prob", "float(row[token])"),
        ("after a rejection, drawing from p", "row = residual(row, draft_probs[child])", "pass"),
        ("the residual of the row after", "residual(row, draft_probs", "residual(probs_at(child), draft_probs"),
        (
            "judging by the row after",
            "row_or_none(probs_at, node)",
            "row_or_none(probs_at, min(node + 1, len(tree) - 1))",
        ),
        (
            "the bonus token from the row before the last",
            "return path, rng.choose(row)",
            "return path, rng.choose(probs_at(tree.parents[node]) if path else row)",
        ),
        ("the residual without its max(., 0)", ".clamp(min=0)", ".abs()"),
        (
            "the target's cache rolled back by one too few",
            "session.keep(checked.rows)",
            "session.keep(range(1 + min(len(tree), len(checked.path) + 1)))",
        ),
    ],
    (CHECKING, "a_wrong_law_is_refused"): [
        ("believing a law that could not have drawn the token", "if not draft_prob > 0:", "if False:"),
    ],
    (CHECKING, "the_residual_is_a_distribution_where_nothing_is_left_too"): [
        ("dividing by nothing", "excess / total if total > 0 else target_row", "excess / total"),
    ],
    (CHECKING, "prompt_lookup_is_exact"): [
        ("going on after a token that was not drafted", " if tree.tokens[child] == token)", ")"),
        (
            "drawing a chain's tokens from the row after",
            "rng.choose(probs_at(node))",
            "rng.choose(probs_at(min(node + 1, len(tree) - 1)))",
        ),
        ("penalties that do not see the draft", "self.text + [self.tree.tokens[above] for", "self.text + [] or [0 for"),
    ],
    (CHECKING, "speculative_is_exact_under_a_penalty"): [
        (
            "penalties that see the draft to its end",
            "for above in self.tree.path(node)]",
            "for above in range(len(self.tree))]",
        ),
    ],
    (SPECULATIVE, "speculative_is_exact"): [
        (
            "drafting greedily, judging as if sampled",
            "drafted.append(rng.choose(row))",
            "drafted.append(int(row.argmax()))",
        ),
    ],
    (SPECULATIVE, "a_draft_is_the_drafts_own_text"): [
        (
            "a draft that keeps what was rejected",
            "draft_session.advance_to(text)",
            "(draft_session.rollback(0) or draft_session.feed(text[-1:] if rounds else []))",
        ),
    ],
    (SPECULATIVE, "speculative_is_exact_to_the_end_of_either_context"): [
        (
            "drafting beyond the target's context",
            "min(gamma, target.context - length - 1, draft.context - length + 1)",
            "min(gamma, draft.context - length + 1)",
        ),
        (
            "drafting beyond the draft's context",
            "min(gamma, target.context - length - 1, draft.context - length + 1)",
            "min(gamma, target.context - length - 1)",
        ),
        (
            "no room for the token after the draft",
            "target.context - length - 1, draft",
            "target.context - length, draft",
        ),
        ("the draft's last place left empty", "draft.context - length + 1)", "draft.context - length)"),
        (
            "drafting where there is no room at all",
            "return max(0, min(gamma, target.context - length - 1, draft.context - length + 1))",
            "return max(1, min(gamma, target.context - length - 1, draft.context - length + 1))",
        ),
        ("going on in a full context", "while len(text) < target.context:", "while True:"),
    ],
    (SPECULATIVE, "an_unsure_draft_ends"): [
        ("an unsure draft that drafts on", "if is_unsure(logits[-1:], confidence)[0]:", "if False:"),
        (
            "unsure by the unlikeliest token",
            "(logits.softmax(-1).amax(-1) < confidence)",
            "(logits.softmax(-1).amin(-1) < confidence)",
        ),
    ],
    (SPECULATIVE, "gamma_sees_the_rounds_so_far"): [
        (
            "rounds that do not say what was drafted",
            "rounds.append((len(drafted), len(path)))",
            "rounds.append((gamma, len(path)))",
        ),
    ],
    (SPECULATIVE, "a_perfect_draft_is_all_accepted"): [
        (
            "a draft that is not warped",
            "over_ids(logits[-1:], target.vocab_size), warp, [text + drafted])",
            "over_ids(logits[-1:], target.vocab_size), (), [text + drafted])",
        ),
        (
            "a draft whose penalties do not see it",
            "over_ids(logits[-1:], target.vocab_size), warp, [text + drafted])",
            "over_ids(logits[-1:], target.vocab_size), warp, [text])",
        ),
    ],
    (SPECULATIVE, "speculative_is_exact_under_a_penalty"): [
        (
            "a target that is not warped",
            "candidates, rng, warp, drawn(draft_probs))",
            "candidates, rng, (), drawn(draft_probs))",
        ),
    ],
    (SPECULATIVE, "adaptive_counts_what_was_judged"): [
        (
            "counting tokens as judged that nobody judged",
            "judged += counts * min(kept + 1, drafted)",
            "judged += counts * drafted",
        ),
        ("forgetting nothing", "            counts *= memory\n", ""),
    ],
    (SPECULATIVE, "a_wrong_pair_is_refused"): [
        ("any two vocabularies", "    check_same_vocabulary(advice, target=target, draft=draft)\n", ""),
        ("any two devices", "if draft.device != target.device:", "if False:"),
        ("a prompt that the draft cannot read", '    check_prompt_of_both(prompt, "draft", draft)\n', ""),
        ("a gamma of 0", 'check_whole_number(gamma, 1, "gamma', 'check_whole_number(gamma, 0, "gamma'),
        ("a confidence above 1", "not is_number(confidence) or not 0 <= confidence <= 1", "not is_number(confidence)"),
    ],
    (BATCH, "a_row_is_exact_among_others"): [
        (
            "rejected tokens left in the target's rows",
            "target_batch.rollback(target_forgets)",
            "target_batch.rollback([0 for row in rows])",
        ),
        (
            "all rows rolled back as far as the one that rejected most",
            "target_batch.rollback(target_forgets)",
            "target_batch.rollback([max(target_forgets)] * len(rows))",
        ),
        (
            "penalties that look at another row",
            "check(row_logits, row.text,",
            "check(row_logits, rows[0].text,",
        ),
    ],
    (BATCH, "every_row_is_what_it_is_alone"): [
        ("rejected tokens left in the draft's rows", "        draft_batch.rollback(draft_forgets)\n", ""),
        ("a draft that keeps what was rejected", "right = min(row.read, len(row.text) - 1)", "right = row.read"),
        ("what was drafted not counted as read", "len(rows[i].text) + len(rows[i].drafted)", "len(rows[i].text)"),
        ("rows that stay after they have ended, in the target's cache", "        target_batch.reorder(going)\n", ""),
        ("rows that stay after they have ended, in the draft's cache", "        draft_batch.reorder(going)\n", ""),
        ("one luck for all rows", "rows[i].rng.choose(row_probs)", "rows[0].rng.choose(row_probs)"),
        (
            "all rows draft as many as the one that drafts most",
            "len(rows[i].drafted) < counts[i] and not unsure",
            "len(rows[i].drafted) < max(counts) and not unsure",
        ),
    ],
    (BATCH, "ended_rows_cost_nothing"): [
        ("rows that go on for nothing", "if row.number in wanted and len", "if len"),
    ],
    (BATCH, "an_unsure_draft_ends"): [
        (
            "unsure rows that draft on",
            "len(rows[i].drafted) < counts[i] and not unsure",
            "len(rows[i].drafted) < counts[i]",
        ),
    ],
    (BATCH, "a_perfect_draft_is_all_accepted"): [
        (
            "penalties of a draft that do not see it",
            "[rows[i].text + rows[i].drafted for i in drafting]",
            "[rows[i].text for i in drafting]",
        ),
    ],
    (BATCH, "the_longest_prompt_must_fit_the_draft"): [
        ("looking at the first prompt alone", "max(prompts, key=len)", "prompts[0]"),
    ],
    (PROMPT, "prompt_lookup_is_exact"): [
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the draft\n", ""),
    ],
    (PROMPT, "prompt_lookup_fills_the_context_and_no_more"): [
        (
            "drafting beyond the context",
            "text.continuation(min(gamma, lm.context - len(text.tokens) - 1))",
            "text.continuation(gamma)",
        ),
        ("going on in a full context", "while len(text.tokens) < lm.context:", "while True:"),
    ],
    (PROMPT, "the_latest_continuation_of_the_longest_ngram_is_found"): [
        (
            "the first occurrence",
            "self._after[tuple(self.tokens[-n:])] = place",
            "self._after.setdefault(tuple(self.tokens[-n:]), place)",
        ),
        ("the shortest n-gram", "for n in range(self.longest, 0, -1):", "for n in range(1, self.longest + 1):"),
        (
            "an n-gram that finds itself",
            "            place = len(self.tokens)\n",
            "            place = len(self.tokens)\n            self._after[(token,)] = place\n",
        ),
    ],
    (SUFFIX, "suffix_lookup_is_exact"): [
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the draft\n", ""),
    ],
    (CHECKING, "suffix_lookup_is_exact"): [
        ("accepted tokens that are not kept", "session.keep(checked.rows)", "session.keep([0])"),
        (
            "rows of a tree one place early",
            "self.logits[nodes[0] + 1 : nodes[-1] + 2]",
            "self.logits[max(nodes[0], 0) : max(nodes[-1], 0) + 1]",
        ),
    ],
    (SUFFIX, "suffix_lookup_fills_the_context_and_no_more"): [
        (
            "trees deeper than the context",
            "seen.continuations(gamma, lm.context - len(text) - 1, least)",
            "seen.continuations(gamma, None, least)",
        ),
        ("going on in a full context", "while len(text) < lm.context:", "while True:"),
        ("new tokens that are not looked in", "        seen.extend(tokens)\n", ""),
    ],
    (SUFFIX, "the_automaton_knows_what_followed"): [
        ("two states that share what follows", "dict(self._next[shared])", "self._next[shared]"),
        (
            "counts that are lost in a split",
            "self._count[split] = self._count[shared]",
            "self._count[split] = 0",
        ),
        ("states that are never split", "if self._length[shared] == self._length[state] + 1:", "if True:"),
        ("drafts from one text into the next", "if token is not None and share >= least", "if share >= least"),
        ("paths longer than asked for", "share >= least and (depth is None or level < depth)", "share >= least"),
    ],
    (LOOKAHEAD, "lookahead_is_exact"): [
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the tree\n", ""),
    ],
    (LOOKAHEAD, "the_window_and_the_pool_are_the_papers"): [
        ("what follows the node before", "int(logits[node + 1].argmax())", "int(logits[node].argmax())"),
        ("columns without those before them", "[[column[0] for column in columns[:i]] + column for i", "[column for i"),
        ("n-grams kept twice", "if known != rest]", "]"),
        ("a pool without a bound", "[rest, *others][: self.size]", "[rest, *others]"),
        ("a window that does not move", "columns[i] = longer[1:]", "columns[i] = longer[:-1]"),
    ],
    (LOOKAHEAD, "lookahead_fills_the_context_and_no_more"): [
        ("n-grams longer than the context", "[rest[:room] for rest", "[rest for rest"),
        ("columns beyond the context", "        ahead = [path for path in ahead if len(path) <= room]\n", ""),
        ("going on in a full context", "while len(text) < lm.context:", "while True:"),
    ],
    (TLI, "the_target_renumbered_is_a_perfect_draft"): [
        (
            "the draft's tokens in the order of their ids",
            "for ids in (shared.target, shared.draft)]",
            "for ids in (shared.target, sorted(shared.draft))]",
        ),
        (
            "penalties of a draft that do not see the text",
            "draft_probabilities(row, self.warp, [text])",
            "draft_probabilities(row, self.warp, [text[:1]])",
        ),
        (
            "a draft that is not brought back to the text",
            "self.draft.session(context)\n        logits = self.session.advance_to(context)[-1:]",
            "self.draft.session(context)\n        logits = self.session.feed(context[-1:])[-1:]",
        ),
    ],
    (TLI, "token_intersection_is_exact"): [
        ("q that is not the law drawn from", "laws.append(law)", "laws.append(law**2 / (law**2).sum())"),
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the draft\n", ""),
    ],
    (TLI, "a_draft_that_has_nothing_to_say_harms_nothing"): [
        (
            "a draft that leaves no shared token",
            "return draft_probabilities(row, self.warp, [text])[0]",
            "return draft_probabilities(row, self.warp, [text])[0].clone()",
        ),
        ("a text of which the draft can read nothing", "if not context or count < 1:", "if count < 1:"),
    ],
    (TLI, "an_end_is_drafted_by_its_role"): [
        (
            "drafting on after an end",
            "len(drafted) == count or drafted[-1] in self.target.stop_tokens",
            "len(drafted) == count",
        ),
    ],
    (TLI, "other_tokenizers_fill_either_context_and_no_more"): [
        ("drafting without room", "if not context or count < 1:", "if not context:"),
        ("going on in a full context", "while len(text) < target.context:", "while True:"),
    ],
    (TLI, "a_wrong_pair_of_tokenizers_is_refused"): [
        ("nothing in common", "if not shared_tokens(target, draft).ordinary:", "if False:"),
    ],
    (SLEM, "string_match_is_exact"): [
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the draft\n", ""),
    ],
    (SLEM, "other_tokenizers_fill_either_context_and_no_more"): [
        ("a guess longer than the context", "return guess[: self.target.context - len(text) - 1]", "return guess"),
    ],
    (SLEM, "an_end_is_drafted_by_its_role"): [
        (
            "an end wherever the draft falls silent",
            "if len(written) < count and token in self.draft.stop_tokens:",
            "if len(written) < count:",
        ),
        ("an end that is not drafted", "            guess += self.end\n", "            pass\n"),
    ],
    (SLEM, "a_draft_that_has_nothing_to_say_harms_nothing"): [
        ("a text of which the draft can read nothing", "if not context or count < 1:", "if count < 1:"),
    ],
    (SLEM, "a_draft_is_the_drafts_own_text"): [
        (
            "a draft that is not brought back to the text",
            "logits = self.session.advance_to(context)",
            "logits = self.session.feed(context[-1:])",
        ),
    ],
    (VOCABULARIES, "an_end_is_drafted_by_its_role"): [
        (
            "marks taken for text",
            "sorted(set(lm.tokenizer.get_vocab().values()) - special_tokens(lm))",
            "sorted(set(lm.tokenizer.get_vocab().values()))",
        ),
    ],
    (VOCABULARIES, "tokens_are_paired_by_their_bytes"): [
        ("ids beyond the model", "if 0 <= token < lm.vocab_size}\n        _spellings", "}\n        _spellings"),
        ("one mark in two roles", '    if found["begin"] == found["end"]:\n        del found["begin"]\n', ""),
        ("pairs in the draft's order", "    pairs.sort()\n", "    pairs.sort(key=lambda pair: pair[1])\n"),
        ("spelled bytes before letters", "return spelled_bytes | tokens", "return tokens | spelled_bytes"),
        (
            "tokens that lose their space",
            "text = twice[len(once) :] if twice.startswith(once) and len(twice) > len(once) else once",
            "text = once",
        ),
    ],
    (VOCABULARIES, "a_text_is_read_as_the_continuation_it_is"): [
        ("a space put in front", "tokens = both[len(front) :] if both[: len(front)] == front else tokens", "pass"),
        ("text that becomes a mark", "return [token for token in tokens if token in spelling]", "return list(tokens)"),
        ("half a character", 'data.decode("utf-8", "ignore")', 'data.decode("utf-8", "replace")'),
    ],
    (VOCABULARIES, "a_translation_grows_word_by_word"): [
        ("words that are told twice", "            self._read += start\n", ""),
        ("words that are told piece by piece", "return spelling is None or spelling[:1].isspace()", "return True"),
        ("marks that are left out", "                if token in self._marks:\n", "                if False:\n"),
        (
            "a run left out for one token in it",
            "        if tokens is not None:\n            return tokens\n",
            "        return tokens or []\n",
        ),
    ],
    (VOCABULARIES, "a_translation_begins_as_the_others_texts_do"): [
        (
            "no mark of the beginning",
            "return translated if translated[:1] == self._opening else self._opening + translated",
            "return translated",
        ),
    ],
    (VOCABULARIES, "other_tokenizers_fill_either_context_and_no_more"): [
        (
            "drafting beyond the draft's context",
            "return min(target.context - len(text) - 1, draft.context - len(context) + 1)",
            "return target.context - len(text) - 1",
        ),
        (
            "drafting beyond the target's context",
            "return min(target.context - len(text) - 1, draft.context - len(context) + 1)",
            "return draft.context - len(context) + 1",
        ),
    ],
    (VOCABULARIES, "a_wrong_pair_of_tokenizers_is_refused"): [
        ("models without a tokenizer", "        if lm.tokenizer is None:\n", "        if False:\n"),
        ("any two devices", "if target.device != draft.device:", "if False:"),
        ("a gamma of 0", "check_whole_number(gamma, 1,", "check_whole_number(gamma, 0,"),
    ],
    (NETWORKS, "a_network_that_lies_in_its_file_is_refused"): [
        ("a map that was never filled", "if known < vocab_size and not d2t.any():", "if False:"),
        ("a map beyond the vocabulary", "    if outside:\n", "    if False:\n"),
        ("maps that contradict each other", "    if differing:\n", "    if False:\n"),
        ("any number of layers, said", "if count == 1 and not further:", "if not further:"),
        ("any number of layers, there", "if count == 1 and not further:", "if count == 1:"),
        ("more tokens than the target has", "if known > sizes.vocab_size:", "if False:"),
        ("norms that are unknown", "if config.get(key):", "if False:"),
        ("another target's network", "            check_target(target, head)\n", "            pass\n"),
    ],
    (NETWORKS, "a_network_is_read_as_its_layout_means_it"): [
        ("the residual of one layout for both", 'layout == "speculators", place)', "False, place)"),
        ("layers counted by what puts them out", "nested.get(AUXILIARY), 1)", "nested.get(AUXILIARY), 0)"),
    ],
    (EAGLE, "eagle_is_exact"): [
        ("the last token fed twice", "    session.rollback(1)  # the last token is fed with the tree\n", ""),
        ("a target that is not warped", "candidates, rng, warp, accept)", "candidates, rng, (), accept)"),
    ],
    (EAGLE, "what_is_drawn_from_the_targets_own_law_is_all_accepted"): [
        ("what was drawn, checked as if it were not", "            accept = draft.accept\n", ""),
    ],
    (TREES, "what_is_drawn_from_the_targets_own_law_is_all_accepted"): [
        ("penalties that do not see the chain", "[self.text + path for path", "[self.text for path"),
        ("a law that is not warped", "self._log_probs().double()", "self._logits.double().log_softmax(-1)"),
    ],
    (CHECKING, "a_drawn_tree_is_exact"): [
        (
            "rows one place late",
            "row = row_or_none(probs_at, node)",
            "row = row_or_none(probs_at, min(node + 1, len(tree) - 1))",
        ),
        ("no residual between siblings", "row = residual(row, draft_probs[child])", "pass"),
    ],
    (TREES, "a_drawn_tree_is_exact"): [
        (
            "the likeliest token as if it were drawn",
            "tokens.append(draft.rng.choose(probs))",
            "tokens.append(int(probs.argmax()))",
        ),
        (
            "a law that was not drawn from",
            "draft_probs.append(probs)",
            "draft_probs.append(probs**2 / (probs**2).sum())",
        ),
        ("q without earlier siblings, not made to sum to 1", "return rest / total if", "return rest if"),
    ],
    (EAGLE, "every_tree_is_what_the_network_makes_of_the_whole_text"): [
        (
            "features of nodes that were not accepted",
            "[checked.rows]",
            "[list(range(len(checked.rows)))]",
        ),
        (
            "a prompt whose features are lost",
            "torch.cat([head.features(session.prompt_hidden), new])",
            "torch.cat([0 * head.features(session.prompt_hidden), new])",
        ),
        ("a draft that is not warped", "Draft(drafts, logits, text, warp,", "Draft(drafts, logits, text, (),"),
    ],
    (TREES, "every_tree_is_what_the_network_makes_of_the_whole_text"): [
        ("penalties that do not see the tree", "[self.text + path for path", "[self.text for path"),
        ("greedy trees that are chains", "[function for function in warp if function is not one_hot]", "list(warp)"),
        ("guesses ranked by themselves", "scores.append(above + log_prob)", "scores.append(log_prob)"),
        (
            "no reranking",
            "sorted(heapq.nsmallest(nodes, range(len(scores)), key=lambda i: (-scores[i], i)))",
            "list(range(len(scores)))[:nodes]",
        ),
    ],
    (NETWORK, "every_tree_is_what_the_network_makes_of_the_whole_text"): [
        ("siblings that see each other", "rows = [[False] * nodes for _", "rows = [[True] * nodes for _"),
        ("a tree that is not forgotten", "self._hidden, self._paths = [hidden[-1]], []", "self._hidden = [hidden[-1]]"),
        ("positions by the slot", "place = self.length + depth - 1", "place = self.length + first"),
        ("guessing on from another node", "self._hidden[parent + 1] for", "self._hidden[max(parent, 0)] for"),
        (
            "the normed state recursed",
            "return self.midlayer.forward(normed if self.norm_before_residual else hidden, states, rotation, mix)",
            "return self.norm(self.midlayer.forward(hidden, states, rotation, mix))",
        ),
        ("a vocabulary that is not mapped", "self.tokens, logits)", "torch.arange(len(self.d2t)), logits)"),
    ],
    (EAGLE, "what_belongs_together_goes_in_together"): [
        (
            "features one place late",
            "        text += checked.tokens\n",
            "        features, text = features.roll(-1, 0), text + checked.tokens\n",
        ),
        ("tokens one place early", "text[drafts.length + 1 :], features", "text[drafts.length : -1], features"),
    ],
    (EAGLE, "eagle_fills_the_context_and_no_more"): [
        ("no room for the token after the tree", "target.context - len(text) - 1\n", "target.context - len(text)\n"),
        ("going on in a full context", "while len(text) < target.context:", "while True:"),
    ],
    (TREES, "eagle_fills_the_context_and_no_more"): [
        ("trees deeper than the room", "range(min(depth, draft.depth))", "range(depth)"),
        ("trees of ranks deeper than the room", "for level in levels[: draft.depth]", "for level in levels"),
        ("drawn trees deeper than the room", "for deep in range(draft.depth)", "for deep in range(9)"),
    ],
    (TREES, "the_network_is_asked_no_more_than_it_has_to_be"): [
        ("guessing on from what cannot be kept", "scores[i] > worst and scores[i] >= least", "scores[i] >= least"),
        ("guessing on however unsure", " and scores[i] >= least]", "]"),
        ("a level wider than it may be", "key=lambda i: -scores[i])[:top_k]", "key=lambda i: -scores[i])[:99]"),
    ],
    (TREES, "a_filter_that_leaves_a_network_nothing_harms_nothing"): [
        ("rows of nothing", "return log_probs.nan_to_num(nan=-math.inf, neginf=-math.inf) if self.warp else", "return"),
        ("trees drawn from nothing", "                    if probs is None:\n                        break\n", ""),
        ("guesses that are impossible", "                    if log_prob > -math.inf:", "                    if True:"),
    ],
    (NETWORK, "a_wrong_network_is_refused"): [
        ("any width", "if head.width != target.width:", "if False:"),
        ("any vocabulary", "if head.vocab_size != target.vocab_size:", "if False:"),
        ("any layers", "    if beyond:", "    if False:"),
        ("tokens in any order", "or bool((known.diff() <= 0).any())", ""),
        ("what is no number", "        if top != top:", "        if False:"),
    ],
    (EAGLE, "a_wrong_network_is_refused"): [
        ("any device", "if device != target.device:", "if False:"),
        ("what is no network", "if not isinstance(head, DraftNetwork):", "if False:"),
        ("a function that makes shapes", " or tree in (dynamic, static, chain, drawn_chain, drawn_tree)", ""),
    ],
    (TREES, "a_wrong_network_is_refused"): [
        ("a confidence above 1", "not is_number(confidence) or not 0 <= confidence <= 1", "not is_number(confidence)"),
    ],
}
ALL = [Mutation(*place, *change) for place, changes in MUTATIONS.items() for change in changes]

# Checks that take a moment: they and their mutations are part of the fast tests.
QUICK = {
    "a_wrong_law_is_refused", "the_residual_is_a_distribution_where_nothing_is_left_too", "a_wrong_pair_is_refused",
    "the_longest_prompt_must_fit_the_draft", "the_latest_continuation_of_the_longest_ngram_is_found",
    "prompt_lookup_fills_the_context_and_no_more", "an_end_is_drafted_by_its_role",
    "a_network_that_lies_in_its_file_is_refused", "a_network_is_read_as_its_layout_means_it",
    "what_belongs_together_goes_in_together", "what_is_drawn_from_the_targets_own_law_is_all_accepted",
    "a_wrong_network_is_refused",
    "the_network_is_asked_no_more_than_it_has_to_be", "a_filter_that_leaves_a_network_nothing_harms_nothing",
}  # fmt: skip


def marked(check, *values):
    return pytest.param(*values, marks=[] if check in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name, name) for name in CHECKS])
def test_as_the_files_are_the_check_passes(name):
    with methods() as m:
        CHECKS[name](m, RIGHT)


@pytest.mark.parametrize(
    "mutation", [marked(one.check, one) for one in ALL], ids=lambda one: f"{Path(one.file).stem}: {one.why}"
)
def test_without_the_guard_the_check_fails(mutation):
    with methods(mutation) as m:
        try:
            CHECKS[mutation.check](m, WRONG)
        except (NameError, ImportError):  # that is no mutation, but no program
            raise
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail(f"nobody noticed: {mutation.why}")


@pytest.mark.slow
def test_every_file_has_mutations_and_every_check_a_mutation():
    assert {one.file for one in ALL} == set(FILES)
    assert {one.check for one in ALL} == set(CHECKS)
    assert len(ALL) >= 25


def test_a_text_that_is_no_longer_there_is_said():
    with pytest.raises(AssertionError, match="checking.py holds the text to be changed 0 times"):
        changed(Mutation(CHECKING, "", "", "if the moon is full:", "if False:"))
