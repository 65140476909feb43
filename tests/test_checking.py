"""Checking candidates: each rule by hand and by enumeration, and the one call that scores a tree and keeps a branch."""

import itertools
import math

import pytest
import torch
from conftest import VOCAB, exactly
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutorlib.drafting.checking import check_sampled, check_tree, drawn, exact
from tutorlib.drafting.draft_trees import without
from tutorlib.drafting.lossy_rules import threshold, typical_acceptance
from tutorlib.measures import theory
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.model.tree import ROOT, TokenTree
from tutorlib.sampling.randomness import Exhaustive, Greedy, Seeded
from tutorlib.sampling.warp import frequency_penalty, one_hot

EXACT = 1e-12
TOKENS = 3  # of the rows below that belong to no model


def row(*probs):
    return torch.tensor(probs, dtype=torch.float64)


def outcomes(method):
    """What comes of all draws, each with its probability."""
    found = {}
    for rng in Exhaustive():
        outcome = method(rng)
        found[outcome] = found.get(outcome, 0.0) + rng.weight
    return found


class Asked:
    """Rows of probabilities by node, drawn from a seed; remembers which were asked for."""

    def __init__(self, seed, sure=1.0):
        self.seed, self.sure, self.nodes = seed, sure, []

    def row(self, node):
        logits = torch.randn(TOKENS, generator=torch.Generator().manual_seed(100 * self.seed + node + 1))
        return (self.sure * logits.double()).softmax(-1)

    def __call__(self, node):
        self.nodes.append(node)
        return self.row(node)


@st.composite
def trees(draw, size=10):
    """Trees without twins: siblings hold different tokens, as ranks of one head do."""
    tree = TokenTree([], [])
    for _ in range(draw(st.integers(0, size))):
        parent, token = draw(st.integers(ROOT, len(tree) - 1)), draw(st.integers(0, TOKENS - 1))
        if token not in [tree.tokens[child] for child in tree.children(parent)]:
            tree = TokenTree([*tree.tokens, token], [*tree.parents, parent])
    return tree


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were drawn


# Target and draft at one position: unlike, with zeros on either side, equal, and as sure as they can be.
PAIRS = [
    (row(0.5, 0.3, 0.2), row(0.2, 0.2, 0.6)),
    (row(0.0, 0.7, 0.3), row(0.6, 0.4, 0.0)),
    (row(0.25, 0.25, 0.5), row(0.25, 0.25, 0.5)),
    (row(0.0, 1.0, 0.0), row(1.0, 0.0, 0.0)),
    (row(0.1, 0.2, 0.7), row(0.0, 0.0, 1.0)),
    (row(0.0, 1.0, 0.0), row(0.3, 0.4, 0.3)),
]
distributions = (
    st.lists(st.integers(0, 9), min_size=TOKENS, max_size=TOKENS)
    .filter(any)
    .map(lambda weights: torch.tensor(weights, dtype=torch.float64) / sum(weights))
)


def off(target_row, draft_row, children, spoil=lambda left, first: left):
    """Total variation between the target and what is kept when so many children are drawn without replacement."""
    made = torch.zeros(TOKENS, dtype=torch.float64)
    for rng in Exhaustive():
        tokens, said, left = [], [], draft_row
        while len(tokens) < children and left is not None:
            said.append(spoil(left, draft_row))
            tokens.append(rng.choose(left))
            left = without(left, tokens[-1])
        tree = TokenTree(tokens, [ROOT] * len(tokens))
        path, token = drawn(said)(tree, lambda node: target_row if node == ROOT else draft_row, rng)
        made[tokens[path[0]] if path else token] += rng.weight
    return float((made - target_row).abs().sum()) / 2


@settings(deadline=None, max_examples=40)
@given(distributions, distributions, st.integers(1, TOKENS))
@example(*PAIRS[2], 1)
@example(*PAIRS[3], 1)
def test_a_token_that_is_drawn_without_replacement_and_checked_has_the_targets_distribution(target, draft, children):
    assert off(target, draft, children) < EXACT


def draft_and_check(rng, target_rows, draft_rows):
    """One round on rows that do not depend on what came before: the tokens it emits."""
    drafted = [rng.choose(draft_row) for draft_row in draft_rows]
    accepted, token = check_sampled(drafted, draft_rows, torch.stack(target_rows), rng)
    return (*drafted[:accepted], token)


def test_a_token_is_kept_as_often_as_the_two_distributions_overlap():
    for target_row, draft_row in PAIRS:
        made = outcomes(lambda rng, p=target_row, q=draft_row: draft_and_check(rng, [p, p], [q]))
        kept = sum(probability for tokens, probability in made.items() if len(tokens) == 2)
        assert kept == pytest.approx(theory.acceptance_rate(target_row.tolist(), draft_row.tolist()), abs=EXACT)


def test_every_position_of_a_longer_draft_and_the_bonus_token_have_their_rows_distribution():
    rows = [pair[0] for pair in PAIRS[:2]] + [row(0.2, 0.5, 0.3)]
    made = outcomes(lambda rng: draft_and_check(rng, rows, [pair[1] for pair in PAIRS[:2]]))
    for length in (1, 2, 3):
        reached = {}
        for tokens, probability in made.items():
            if len(tokens) >= length:
                reached[tokens[:length]] = reached.get(tokens[:length], 0.0) + probability
        assert sum(reached.values()) > 0.1
        for tokens in itertools.product(range(TOKENS), repeat=length):
            # Whether a position is reached depends on the tokens before it, so only the last is free.
            before = sum(p for found, p in reached.items() if found[:-1] == tokens[:-1])
            expected = before * float(rows[length - 1][tokens[-1]])
            assert reached.get(tokens, 0.0) == pytest.approx(expected, abs=EXACT)


class Script:
    """Randomness that says what it is told to, and writes down what it was asked."""

    def __init__(self, answers, choices):
        self.answers, self.choices, self.asked, self.rows = list(answers), list(choices), [], []

    def accept(self, probability):
        self.asked.append(probability)
        return self.answers.pop(0)

    def choose(self, probs):
        self.rows.append(probs.tolist())
        return self.choices.pop(0)


TARGET = torch.stack([row(0.5, 0.3, 0.2), row(0.1, 0.1, 0.8), row(0.4, 0.4, 0.2)])
DRAFT = torch.stack([row(0.25, 0.5, 0.25), row(0.5, 0.25, 0.25)])


def test_a_round_by_hand():
    rng = Script([True, False], [2])
    assert check_sampled([0, 1], DRAFT, TARGET, rng) == (1, 2)
    assert rng.asked == [2.0, pytest.approx(0.4)], "p/q of each token in its own row"
    assert rng.rows == [[0.0, 0.0, 1.0]], "max(p - q, 0) = (0, 0, 0.55), normalised"
    rng = Script([True, True], [1])
    assert check_sampled([0, 1], DRAFT, TARGET, rng) == (2, 1)
    assert rng.rows == [TARGET[2].tolist()], "the bonus token comes from the last row"
    rng = Script([], [1])
    assert check_sampled([], [], TARGET[:1], rng) == (0, 1)
    assert rng.rows == [TARGET[0].tolist()], "no draft is a plain draw"


def test_a_token_that_the_draft_could_not_have_drawn_is_an_error():
    with pytest.raises(ValueError, match=r"token 1, drafted at node 0, has probability 0.0 in draft_probs"):
        check_sampled([1], row(1.0, 0.0, 0.0)[None], TARGET[:2], Seeded(0))


def test_a_rejection_that_only_rounding_allows_draws_from_the_target():
    target_row = row(0.1, 0.2, 0.7)
    rng = Script([False], [1])
    check_sampled([2], (target_row + row(0.0, 0.0, 1e-16))[None], torch.stack([target_row, target_row]), rng)
    assert math.fsum(rng.rows[0]) == pytest.approx(1)


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were not


@settings(deadline=None, max_examples=25)
@given(trees(4), st.integers(0, 50))
def test_exact_emits_every_text_with_the_probability_of_its_tokens(tree, seed):
    asked = Asked(seed)

    def text(rng):
        path, token = exact(tree, asked, rng)
        return (*(tree.tokens[node] for node in path), token)

    found = outcomes(text)
    for tokens, probability in found.items():
        node, expected = ROOT, 1.0
        for token in tokens:
            expected *= float(asked.row(node)[token])
            node = next((child for child in tree.children(node) if tree.tokens[child] == token), None)
        assert node is None, "it goes on as long as the tree holds what was drawn"
        assert probability == pytest.approx(expected, abs=EXACT)
    assert math.fsum(found.values()) == pytest.approx(1, abs=EXACT)


def test_exact_draws_once_for_each_token_and_asks_for_no_other_row():
    tree, asked = TokenTree.from_paths([[0, 1, 2], [1, 1], [2]]), Asked(3)
    path, _ = exact(tree, asked, Seeded(5))
    assert asked.nodes == [ROOT, *path]


def check_chain(drafted, target_probs, rng):
    """The rule for tokens that were not drawn, on a chain whose rows are all there."""
    path, token = exact(TokenTree.chain(drafted), lambda node: target_probs[node + 1], rng)
    return len(path), token


def test_a_draft_that_is_certain_is_kept_as_often_as_one_that_was_not_drawn():
    sure = torch.eye(3, dtype=torch.float64)[[0, 2]]
    sampled = outcomes(lambda rng: check_sampled([0, 2], sure, TARGET, rng))
    assert sampled == pytest.approx(outcomes(lambda rng: check_chain([0, 2], TARGET, rng)))


def test_without_random_draws_the_most_likely_tokens_come_out():
    one_hot_rows = torch.eye(3, dtype=torch.float64)
    target = one_hot_rows[[1, 0, 2]]
    for drafted, expected in (([1, 0], (2, 2)), ([1, 2], (1, 0)), ([2, 0], (0, 1))):
        assert check_sampled(drafted, one_hot_rows[drafted], target, Greedy()) == expected
        assert check_chain(drafted, target, Greedy()) == expected


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that are likely enough


def by_brute_force(tree, asked, epsilon, delta):
    """Every path of the tree on which each candidate is likely enough: the longest, then the most probable."""
    best = (0, 1.0, [])
    for leaf in range(len(tree)):
        path, likelihood, fine = tree.path(leaf), 1.0, True
        for node in path:
            probs = asked.row(tree.parents[node])
            entropy = -sum(float(p) * math.log(float(p)) for p in probs if p > 0)
            prob = float(probs[tree.tokens[node]])
            fine &= prob > min(epsilon, delta * math.exp(-entropy))
            likelihood *= prob
        if fine and (len(path), likelihood) > best[:2]:
            best = (len(path), likelihood, path)
    return best[2]


@settings(deadline=None, max_examples=60)
@given(
    trees(),
    st.integers(0, 200),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from([0.05, 0.2, 0.6]),
    st.sampled_from([0.1, 0.6, 1.0]),
)
def test_typical_keeps_the_longest_path_it_accepts_and_of_those_the_most_probable(tree, seed, sure, epsilon, delta):
    asked = Asked(seed, sure)
    path, token = typical_acceptance(epsilon, delta)(tree, asked, Greedy())
    assert path == by_brute_force(tree, asked, epsilon, delta)
    assert token == int(asked.row(path[-1] if path else ROOT).argmax())
    accepted = {ROOT}
    for node, (candidate, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        probs = asked.row(parent)
        if parent in accepted and float(probs[candidate]) > threshold(probs, epsilon, delta):
            accepted.add(node)
    assert set(asked.nodes) <= accepted, "after what is not accepted no row is asked for"
    assert len(asked.nodes) == len(set(asked.nodes)), "and none twice"


def test_a_candidate_at_the_threshold_is_not_above_it_and_one_of_probability_zero_never_is():
    tree, rows = TokenTree([0], [ROOT]), {ROOT: row(0.5, 0.5, 0.0), 0: row(0.0, 0.0, 1.0)}
    assert typical_acceptance(0.5, 1.0)(tree, rows.__getitem__, Greedy())[0] == []
    assert typical_acceptance(0.4999, 1.0)(tree, rows.__getitem__, Greedy()) == ([0], 2)
    for tokens in range(2, 30):  # exp(-H) of equal tokens is the probability of each
        equal = row(*[1 / tokens] * tokens)
        assert typical_acceptance(1.0, 1.0)(tree, {ROOT: equal, 0: equal}.__getitem__, Greedy())[0] == [], tokens
    sure = one_hot(torch.tensor([[0.0, 1.0, 0.0]]), [[0]]).softmax(-1).double()[0]
    assert typical_acceptance(epsilon=0.0, delta=1e-9)(tree, lambda node: sure, Greedy()) == ([], 1)


def test_typical_draws_once_and_what_it_draws_is_the_targets():
    tree, asked = TokenTree.from_paths([[0, 1], [1, 2]]), Asked(8)
    rule = typical_acceptance(0.9, 0.1)
    path, _ = rule(tree, asked, Greedy())
    seen = outcomes(lambda rng: rule(tree, asked, rng)[1])
    assert seen == pytest.approx(dict(enumerate(asked.row(path[-1] if path else ROOT).tolist())))


def test_the_threshold_is_a_cap_where_the_target_is_sure_and_falls_with_the_entropy():
    sure, coin, even = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), torch.full((100,), 0.01)
    assert threshold(sure, 0.09, 0.3) == threshold(coin, 0.09, 0.3) == 0.09
    assert threshold(coin, 0.2, 0.3) == pytest.approx(0.15)
    assert threshold(even, 0.09, 0.3) == pytest.approx(0.3 / 100)  # exp(-ln 100) = 1/100
    # A much-read survey has the two swapped: a cap of 0.3 and a factor of 0.09. Where the target is sure nothing shows.
    assert threshold(sure, 0.3, 0.09) == 0.09
    assert threshold(even, 0.3, 0.09) == pytest.approx(0.09 / 100)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilon": -0.1}, "epsilon, the cap on the probability asked for, must be from 0 to 1, got -0.1"),
        ({"epsilon": 1.1}, "from 0 to 1, got 1.1"),
        ({"epsilon": math.nan}, "from 0 to 1, got nan"),
        ({"epsilon": "0.09"}, "got '0.09'"),
        ({"delta": 0}, r"delta, the factor of exp\(-entropy\), must be a finite number above 0, got 0"),
        ({"delta": math.inf}, "got inf"),
    ],
    ids=str,
)
def test_bad_numbers_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        typical_acceptance(**settings)


# ----------------------------------------------------------------------------------------------------------------------
# One call of the target. That a tree's rows are right over the caches of all families: `test_session.py`

TEXT = [1, 2, 3, 4, 2, 7, 7, 0, 5]
TREE = TokenTree.from_paths([[3, 1, 4], [3, 1, 5], [3, 6], [8], [9, 3, 1, 1]])


def opened(lm, text, hidden=None):
    session = lm.session(text, hidden=hidden)
    session.rollback(1)
    return session


def test_a_trees_rows_are_those_of_each_path_and_the_session_goes_on_from_the_accepted_one(models):
    lm = LM(models("llama", torch.float64))
    with exactly(torch.float64):
        for node in range(-1, len(TREE)):
            session, path, before = opened(lm, TEXT, hidden=-1), TREE.path(node), lm.calls

            def accept(tree, probs_at, rng, node=node, path=path):
                return path, rng.choose(probs_at(node))

            checked = check_tree(session, TEXT, TREE, Greedy(), [], accept)
            assert lm.calls == before + 1 and checked.logits.shape == (len(TREE) + 1, VOCAB)
            text = TEXT + [TREE.tokens[above] for above in path]
            assert session.tokens == text
            alone = lm.session(text, hidden=-1)
            expected = alone.feed()[-1]
            assert checked.tokens == [*text[len(TEXT) :], int(expected.argmax())]
            assert checked.rows[-1] == node + 1, "the row that the last token was drawn from"
            assert torch.allclose(checked.logits[node + 1], expected, rtol=0, atol=1e-10)
            assert torch.allclose(session.hidden[node + 1], alone.hidden[-1], rtol=0, atol=1e-10)
            again = check_tree(session, TEXT + checked.tokens, TokenTree([], []), Greedy(), [])
            assert torch.allclose(again.logits[-1], alone.feed(checked.tokens[-1:])[-1], rtol=0, atol=1e-10)
            assert (again.path, again.tokens) == ([], [int(again.logits[0].argmax())]), "an empty tree is a plain step"


@pytest.mark.parametrize("accept", [exact, typical_acceptance(0.05, 0.3)], ids=["exact", "typical"])
def test_each_position_is_warped_with_the_tokens_before_it(accept):
    """By hand: a penalty of 0.5 a time on the log-probabilities of a table."""
    lm, text, tree = TableLM.random(3, 2, 4), [0, 1, 0], TokenTree.from_paths([[0, 0], [1, 0], [2, 0]])
    for seed in range(12):
        checked = check_tree(opened(lm, text), text, tree, Seeded(seed), [frequency_penalty(0.5)], accept)
        for count, weighed in enumerate(checked.alternatives):
            before = text + checked.tokens[:count]
            counts = torch.tensor([before.count(token) for token in range(3)])
            probs = (lm.log_probs(before) - 0.5 * counts).softmax(-1)
            assert dict(weighed) == pytest.approx(dict(enumerate(probs.tolist())))
        assert len(checked.alternatives) == len(checked.tokens) == len(checked.path) + 1


def test_only_rows_that_the_rule_asks_for_are_warped():
    seen = []

    def watch(logits, histories):
        seen.extend(map(tuple, histories))
        return logits

    lm, text = TableLM.random(3, 2, 4), [0, 1]
    tree = TokenTree.from_paths([[0, 0], [1, 0], [2, 0]])
    checked = check_tree(opened(lm, text), text, tree, Seeded(3), [watch])
    assert seen == [tuple(text + checked.tokens[:count]) for count in range(len(checked.tokens))]


def test_a_session_that_still_holds_the_last_token_is_refused(models):
    session = LM(models("llama")).session(TEXT)
    with pytest.raises(ValueError, match=r"holds 9 tokens and the text 9.*call session\.rollback\(1\)"):
        check_tree(session, TEXT, TREE, Greedy(), [])
