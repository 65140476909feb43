"""The claims notice mistakes: with a function replaced by a wrong one, a test that passes as it is fails.

Each line names the function, what is wrong about the one that takes its place (made from the right one), and a test of
some method that has to notice.
"""

import dataclasses
import functools
import pkgutil

import pytest
import test_eagle
import test_fuzz
import test_llama
import test_lossless as every
import test_medusa
import test_own_cache
import test_speculative
import test_speculative_batch
import torch
from conftest import random_model
from draft_networks import eagle3

from tutorlib.model.tree import ROOT
from tutorlib.sampling.warp import probabilities

PENALTY = "penalty and temperature"


def distribution(name, warp="no warp"):
    return functools.partial(every.test_it_keeps_the_targets_distribution_under_every_warp, name, warp)


def longer(name):
    return functools.partial(
        every.test_it_keeps_it_through_full_drafts_and_the_rollback_after_them, name, [0, 1, 0], PENALTY
    )


def real(name):
    return functools.partial(every.test_it_keeps_it_over_real_caches, name)


def hybrid(name):
    claim = test_own_cache.test_methods_write_with_a_hybrid_what_greedy_writes_and_sample_with_a_seed
    return functools.partial(claim, name, "qwen3_5")


def ends(name):
    return functools.partial(every.test_a_context_that_ends_in_mid_draft_is_filled_and_no_more, name)


def all_accepted(name):
    return functools.partial(every.test_what_is_drawn_from_the_targets_own_distribution_is_all_accepted, name)


def text(name):
    return functools.partial(
        every.test_it_writes_what_greedy_writes_and_with_a_seed_what_sample_writes_to_the_contexts_end, name, "gemma2"
    )


def trees(shape):
    claim = test_eagle.test_every_tree_is_what_the_network_makes_of_the_whole_text
    return functools.partial(claim, random_model, eagle3, shape)


# ----------------------------------------------------------------------------------------------------------------------
# Wrong functions: each takes the right one


def instead(function):
    """Something else altogether."""
    return lambda right: function


def with_laws(change):
    """The rule for drawn tokens, told of other probabilities than those they were drawn from."""
    return lambda right: lambda laws: right([change(law) for law in laws])


def accepting(change):
    """The rule for drawn tokens, which accepts p/q with another probability."""

    class Changed:
        def __init__(self, rng):
            self.choose, self.accept = rng.choose, lambda ratio: rng.accept(change(min(1.0, ratio)))

    return lambda right: lambda laws: lambda tree, probs_at, rng: right(laws)(tree, probs_at, Changed(rng))


def at_another_node(change):
    return lambda right: lambda rows, node: right(rows, change(node, len(rows.tree)))


def with_histories(change):
    """Rows warped after other tokens than those before them; `change` makes them of the rows and a node's path."""

    def make(right):
        def warped(rows, nodes):
            others = [change(rows, rows.tree.path(node)) for node in nodes]
            return probabilities(rows.logits[nodes[0] + 1 : nodes[-1] + 2], rows.warp, others)

        return warped

    return make


def unwarped(right):
    return lambda logits, warp, histories: right(logits, (), histories)


def forgetful(right):
    """The tokens before a row but its last few are not seen."""
    return lambda logits, warp, histories: right(logits, warp, [history[-1:] for history in histories])


def down_the_first_branch(right):
    def walk(tree, choose_at, start=ROOT):
        path, tokens, node = [], [], start
        while True:
            tokens.append(int(choose_at(node)))
            if not tree.children(node):
                return path, tokens
            node = tree.children(node)[0]
            path.append(node)

    return walk


def drawing_twice(right):
    return lambda tree, probs_at, rng: rng.accept(0.5) in (True, False) and right(tree, probs_at, rng)


def keeping_a_rejected_token(right):
    def keep(session, path):
        further = session._tree.children(path[-1])
        right(session, [*path, *further[:1]])

    return keep


def sorted_for_the_draft(right):
    def shared_tokens(target, draft):
        pairs = right(target, draft)
        return dataclasses.replace(pairs, draft=sorted(pairs.draft))

    return shared_tokens


def by_the_slot(right):
    def call(session, loops, tokens, hidden, start, positions, *paths):
        return right(session, loops, tokens, hidden, start, list(range(start, start + len(tokens))), *paths)

    return call


CHECKING, TREES, RULES = (f"tutorlib.drafting.{name}" for name in ("checking", "draft_trees", "rules"))
SPECULATIVE, BATCH = "tutorlib.decoders.speculative", "tutorlib.decoders.speculative_batch"
TLI = "tutorlib.decoders.token_intersection"

# What is wrong, in which function, the wrong one, and who notices.
MISTAKES = [
    # Tokens that were drawn
    ("after a rejection a draw from p", f"{CHECKING}:residual", instead(lambda p, q: p), distribution("speculative")),
    ("and between siblings", f"{CHECKING}:residual", instead(lambda p, q: p), distribution("eagle, drawn tree")),
    ("the residual without max(., 0)", f"{CHECKING}:residual",
     instead(lambda p, q: (p - q).abs() / (p - q).abs().sum()), distribution("speculative")),
    ("the residual of q", f"{CHECKING}:residual", lambda right: lambda p, q: right(q, p), distribution("speculative")),
    ("accepted with p, not p/q", f"{RULES}:drawn", with_laws(torch.ones_like), distribution("speculative")),
    ("accepted by a threshold", f"{RULES}:drawn", accepting(lambda p: float(p > 0.5)), distribution("speculative")),
    ("accepted with (p/q)²", f"{RULES}:drawn", accepting(lambda p: p**2), distribution("speculative_batch")),
    ("q not what was drawn from", f"{RULES}:drawn", with_laws(lambda q: q**2 / (q**2).sum()),
     distribution("speculative_batch")),
    ("q not made to sum to 1", f"{RULES}:drawn", with_laws(lambda q: q / 2), distribution("token_intersection")),
    ("q as if all were alike", f"{RULES}:drawn", with_laws(torch.ones_like), distribution("eagle, drawn chain")),
    ("q of siblings too small", f"{RULES}:drawn", with_laws(lambda q: q / 2), distribution("eagle, drawn tree")),
    # Tokens that were not
    ("on after what was not drafted", f"{CHECKING}:walk", down_the_first_branch, distribution("suffix_lookup")),
    ("a draw too many", "tutorlib.decoders.prompt_lookup:check_tree",
     lambda right: functools.partial(right, rule=drawing_twice(pkgutil.resolve_name(f"{CHECKING}:exact"))),
     text("prompt_lookup")),
    # Rows of probabilities
    ("rows one position late", f"{CHECKING}:Rows.__call__", at_another_node(lambda node, n: min(node + 1, n - 1)),
     distribution("speculative")),
    ("and of a tree", f"{CHECKING}:Rows.__call__", at_another_node(lambda node, n: min(node + 1, n - 1)),
     distribution("medusa")),
    ("rows one position early", f"{CHECKING}:Rows.__call__", at_another_node(lambda node, n: max(node - 1, ROOT)),
     distribution("suffix_lookup")),
    ("the bonus token from the row before", f"{CHECKING}:Rows.__call__",
     at_another_node(lambda node, n: node - (node == n - 1 > ROOT)), distribution("speculative")),
    ("penalties that do not see the draft", f"{CHECKING}:Rows._warped", with_histories(lambda rows, path: rows.text),
     longer("prompt_lookup")),
    ("penalties that see all of the draft", f"{CHECKING}:Rows._warped",
     with_histories(lambda rows, path: rows.text + rows.tree.tokens), longer("speculative")),
    ("a target that is not warped", f"{CHECKING}:probabilities", unwarped, distribution("speculative", "top-k")),
    ("an error for a row that is not wanted", f"{CHECKING}:row_or_none", instead(lambda probs_at, node: probs_at(node)),
     functools.partial(test_fuzz.test_what_lies_after_a_stop_token_does_not_matter, "speculative")),
    # Sessions, their trees and caches
    ("a rejected token kept", "tutorlib.model.session:Session.keep", keeping_a_rejected_token, longer("speculative")),
    ("accepted tokens not kept", "tutorlib.model.session:Session.keep",
     lambda right: lambda session, path: right(session, path[:1]), longer("eagle, chain")),
    ("rolled back by one too few", "tutorlib.model.session:Session.rollback",
     lambda right: lambda session, n: right(session, max(n - 1, 0)), distribution("prompt_lookup")),
    ("a draft that keeps what was rejected", "tutorlib.model.session:Session.advance_to",
     instead(lambda session, tokens: session.feed(tokens[-1:])),
     test_speculative.test_with_the_target_as_draft_every_round_gives_gamma_and_one_tokens),
    ("rows of the path as if it were the first", f"{CHECKING}:Checked.rows",
     instead(property(lambda checked: list(range(len(checked.tokens))))), longer("medusa")),
    ("nodes that see their siblings", "tutorlib.model.tree:TokenTree.mask",
     instead(lambda tree: torch.ones(len(tree), len(tree)).tril().bool()), real("medusa")),
    ("positions by the slot", "tutorlib.model.cache:KeyValues._positions",
     lambda right: lambda cache, starts, width, tree: right(cache, starts, width, None), real("medusa")),
    ("a kept branch that is not moved", "tutorlib.model.cache:KeyValues.move", instead(lambda cache, start, path: None),
     real("eagle, static")),
    ("a kept branch that is not moved, in the loops", "tutorlib.model.llama:LoopCache.move",
     instead(lambda cache, start, path: None),
     test_llama.test_rows_trees_and_pieces_have_the_same_bits_as_one_token_at_a_time),
    ("a copy in four bits", "tutorlib.model.eight_bits:in_eight_bits",
     lambda right: lambda matrix: (lambda made: made._replace(weight=made.weight // 16 * 16))(right(matrix)),
     test_llama.test_a_copy_in_eight_bits_drafts_nearly_what_its_model_chooses_and_changes_nothing),
    ("a recurrent state that keeps what was rejected", "tutorlib.model.own_cache:OwnCache._base",
     instead(lambda cache, row, start: cache.latest[row]), hybrid("prompt_lookup")),
    # Batches
    ("all rows rolled back as far as one", "tutorlib.model.batch:Batch.rollback",
     lambda right: lambda batch, counts: right(batch, [max(counts)] * len(counts)), distribution("speculative_batch")),
    ("rejected tokens left in the rows", "tutorlib.model.batch:Batch.rollback", instead(lambda batch, counts: None),
     distribution("speculative_batch")),
    ("rows that stay after they have ended", "tutorlib.model.batch:Batch.reorder", instead(lambda batch, rows: None),
     test_speculative_batch.test_rows_that_end_at_a_stop_token_the_context_or_the_budget_are_what_they_are_alone),
    ("penalties that see another text", f"{BATCH}:check_logits",
     lambda right: lambda logits, text, *rest: right(logits, text[-1:], *rest),
     distribution("speculative_batch", "penalty")),
    ("one source of randomness for all rows", "tutorlib.running.decoder:checked_rngs",
     lambda right: lambda rngs, count: right(rngs, count)[:1] * count,
     test_speculative_batch.test_rows_that_end_at_a_stop_token_the_context_or_the_budget_are_what_they_are_alone),
    ("all rows draft as many as one", f"{BATCH}:tokens_to_draft", instead(lambda gamma, *_: 2),
     test_speculative_batch.test_gamma_adapts_and_unsure_drafts_end_row_by_row),
    # The end of the context, and of the text
    ("drafts beyond the context", f"{SPECULATIVE}:tokens_to_draft", instead(lambda gamma, *_: gamma),
     ends("speculative")),
    ("and in a batch", f"{BATCH}:tokens_to_draft", instead(lambda gamma, *_: gamma), ends("speculative_batch")),
    ("and across tokenizers", f"{TLI}:room_to_draft", instead(lambda *_: 99), ends("token_intersection")),
    ("and of what was found", "tutorlib.decoders.prompt_lookup:NGrams.continuation",
     lambda right: lambda ngrams, count: right(ngrams, 4), ends("prompt_lookup")),
    ("and by suffixes", "tutorlib.decoders.suffix_lookup:SuffixAutomaton.continuations",
     lambda right: lambda seen, most, depth, least: right(seen, most, None, least), ends("suffix_lookup")),
    ("and of heads", "tutorlib.decoders.medusa:ranked_tree",
     lambda right: lambda guesses, choices, depth: right(guesses, choices, 99), ends("medusa")),
    ("and of networks", f"{TREES}:Draft.__init__",
     lambda right: lambda draft, *args, depth, **more: right(draft, *args, depth=99, **more), ends("eagle, chain")),
    ("steps that go on after the end of the text", "tutorlib.running.trace:cut_to_fit",
     instead(lambda step, room, stop: (step, None)),
     functools.partial(every.test_an_end_of_text_inside_a_draft_is_the_last_token, "prompt_lookup")),
    # What drafts are made of: wrong ones are as exact, but accepted less often
    ("a draft that is not warped", f"{SPECULATIVE}:draft_probabilities", unwarped, all_accepted("speculative")),
    ("a draft's penalties that do not see the text", f"{BATCH}:draft_probabilities", forgetful,
     all_accepted("speculative_batch")),
    ("and across tokenizers", f"{TLI}:draft_probabilities", forgetful, all_accepted("token_intersection")),
    ("and of networks", f"{TREES}:draft_probabilities", forgetful, all_accepted("eagle, drawn chain")),
    ("the draft's tokens in the order of their ids", f"{TLI}:shared_tokens", sorted_for_the_draft,
     all_accepted("token_intersection")),
    ("heads asked where the tree ends", "tutorlib.decoders.medusa:guesses",
     lambda right: lambda heads, count: lambda hidden: right(heads, count)(hidden.roll(1)),
     test_medusa.test_after_a_path_the_heads_are_asked_where_it_ends),
    ("features one position late", "tutorlib.drafting.draft_session:DraftSession.feed",
     lambda right: lambda session, tokens, features: right(session, tokens, features.roll(1, 0)),
     test_eagle.test_a_network_that_knows_the_ring_is_right_up_to_the_end_of_every_tree),
    ("a network whose siblings see each other", "tutorlib.drafting.draft_session:DraftSession._mask",
     lambda right: lambda session, start, count, paths: None, trees("static")),
    ("a network's positions by the slot", "tutorlib.drafting.draft_session:DraftSession._call", by_the_slot,
     trees("static")),
    ("a network's guesses after the first node", "tutorlib.drafting.draft_session:DraftSession.grow",
     lambda right: lambda session, tokens, parents: right(session, tokens, parents[::-1]), trees("dynamic")),
]  # fmt: skip


QUICK = (distribution, ends, all_accepted)


def cases():
    """Of the mistakes in each function one is tried in the fast tests, if what notices it is quick."""
    tried = set()
    for why, where, wrong, claim in MISTAKES:
        quick = where not in tried and getattr(claim, "func", claim) in [make("medusa").func for make in QUICK]
        tried.add(where)
        yield pytest.param(where, wrong, claim, id=why, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize(("where", "wrong", "claim"), list(cases()))
def test_the_mistake_is_noticed(where, wrong, claim, monkeypatch):
    owner, _, name = where.rpartition("." if "." in where.partition(":")[2] else ":")
    monkeypatch.setattr(pkgutil.resolve_name(owner), name, wrong(pkgutil.resolve_name(where)))
    try:
        claim()
    except (TypeError, NameError, AttributeError):  # that is no mistake in a method, but in this file
        raise
    except (Exception, pytest.fail.Exception):
        return
    pytest.fail("nobody noticed")
