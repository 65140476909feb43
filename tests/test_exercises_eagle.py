"""The checkers of chapter 11 accept what is right, and tell every usual mistake which one it is."""

import functools
import itertools
import math
import operator
import re

import numpy as np
import pytest
import torch
from conftest import random_model
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker
from torch.nn.functional import scaled_dot_product_attention

from tutorlib import LM, TokenTree
from tutorlib.decoders.draft_trees import Draft, dynamic
from tutorlib.exercises import eagle as exercises
from tutorlib.exercises.eagle import (
    check_counts,
    check_draft,
    check_pairs,
    check_places,
    check_rerank,
    check_spread,
)
from tutorlib.run import Trace
from tutorlib.training.eagle import new_eagle, new_eagle3

FUNCTIONS = [check_pairs, check_draft, check_counts, check_places, check_rerank, check_spread]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)
    assert check.judge(lambda *_: ...).ok is None


ODD = ["abc", [1.0], [[1], [2, 3]], {}, (1, 2, 3), (None, None), ("a", [[]]), [float("nan")] * 2, object(), 1j]
ODD += [
    torch.tensor([[1.0]]),
    torch.ones(3, 3).bool(),
    (torch.ones(2), []),
    torch.ones(2, 2).to_sparse(),
    torch.ones(2, device="meta"),
    [10**400],
    (10**400, 1.0),
]


@pytest.mark.parametrize("check", FUNCTIONS)
@pytest.mark.filterwarnings("error")
def test_what_is_of_another_form_is_said_to_be(check):
    said = re.compile(r"[Ee]xpected|yours has|none of the rows|There is no candidate")
    for odd in ODD:
        assert said.search(found(check, lambda *_, odd=odd: odd))
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


def changes(answer, spoil):
    """A right answer that changes what it was given."""

    def my_answer(*given):
        made = answer(*given)
        spoil(*given)
        return made

    return my_answer


# Pairs.


def pairs(
    tokens=lambda own, drawn: [*own[1:], drawn], rows=lambda kept: kept, kept=lambda path: [0, *(n + 1 for n in path)]
):
    def my_pairs(read, features, path, drawn):
        taken = kept(path)
        return tokens([read[row] for row in taken], drawn), features[rows(taken)]

    return my_pairs


def of_the_call(tokens, rows):
    """Tokens and rows from everything there is."""
    return lambda read, features, path, drawn: (tokens(read, path, drawn), features[rows(read, path)])


def rooted(path):
    return [0, *(node + 1 for node in path)]


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (pairs(lambda own, drawn: own), "You pair x_t with f_t. That"),
        (pairs(lambda own, drawn: own[1:], lambda kept: kept[1:]), "You pair x_{t+1} with f_{t+1}"),
        (pairs(lambda own, drawn: own[:-1], lambda kept: kept[1:]), "You shift the wrong way"),
        (pairs(lambda own, drawn: own[1:], lambda kept: kept[:-1]), "the last one is missing"),
        (pairs(lambda own, drawn: [*own[2:], drawn], lambda kept: kept[:-1]), "one too many"),
        (pairs(lambda own, drawn: [*own, drawn][2:], lambda kept: kept[:-1]), "one too many"),
        (of_the_call(lambda r, p, x: [*r[1:], x], lambda r, p: list(range(len(r)))), "everything that the target read"),
        (pairs(lambda own, drawn: [drawn], lambda kept: kept[-1:]), "the last pair alone"),
        (
            of_the_call(lambda r, p, x: [*(r[n] for n in p), x], lambda r, p: [0, *p]),
            "number of a node for that of its",
        ),
        (
            of_the_call(lambda r, p, x: [*(r[n] for n in p), x], lambda r, p: [-1, *p]),
            "number of a node for that of its",
        ),
        (of_the_call(lambda r, p, x: [*(r[n] for n in p), x], lambda r, p: p), "number of a node for that of its"),
        # The tokens alone, or the features alone.
        (pairs(lambda own, drawn: [*own, drawn]), "begin one too early"),
        (pairs(lambda own, drawn: own[1:]), "the one that was drawn is missing"),
        (of_the_call(lambda r, p, x: [*r[1:], x], lambda r, p: rooted(p)), "nodes that were not accepted"),
        (
            of_the_call(lambda r, p, x: [*(r[n] for n in p), x], lambda r, p: rooted(p)),
            "number of a node for that of its",
        ),
        (pairs(rows=lambda kept: kept[1:]), "features row 0 is missing"),
        (pairs(rows=lambda kept: kept[:-1]), "the last one is missing"),
        (
            of_the_call(lambda r, p, x: [*(r[n + 1] for n in p), x], lambda r, p: [0, *p]),
            "number of a node for that of its",
        ),
        (
            of_the_call(lambda r, p, x: [*(r[n + 1] for n in p), x], lambda r, p: [-1, *p]),
            "number of a node for that of its",
        ),
        (pairs(rows=lambda kept: list(range(len(kept)))), "the first ones. Take"),
        (
            of_the_call(lambda r, p, x: [*(r[n + 1] for n in p), x], lambda r, p: slice(None)),
            "the features of the whole",
        ),
        (lambda r, f, p, x: (pairs()(r, f, p, x)[0], f[rooted(p)] * 2), "none of the rows"),
        (lambda r, f, p, x: (pairs()(r, f, p, x)[0], f[rooted(p)].T), "Expected rows of 3 features"),
        (lambda r, f, p, x: list(zip(*pairs()(r, f, p, x))), "two things"),
        (
            pairs(lambda own, drawn: [*own[1:], 99]),
            "[12, 13, 14, 99] with the rows [0, 1, 2, 3]; expected [12, 13, 14, 15]",
        ),
        (lambda r, f, p, x: pairs()(r, f, p, x) if p else None, "returns nothing"),
        (changes(pairs(), lambda r, f, p, x: p.append(7)), "changed what it was given"),
        (changes(pairs(), lambda r, f, p, x: r.pop()), "changed what it was given"),
        (changes(pairs(), lambda r, f, p, x: f.zero_()), "changed what it was given"),
    ],
)
def test_wrong_pairs_are_told_why(mistake, complaint):
    assert complaint in found(check_pairs, mistake)


def test_right_pairs():
    assert "could not know" in is_right(check_pairs, pairs())
    is_right(check_pairs, lambda r, f, p, x: ([*(r[n + 1] for n in p), x], f[rooted(p)].tolist()))
    is_right(check_pairs, lambda r, f, p, x: (torch.tensor([*(r[n + 1] for n in p), x]), [f[i] for i in rooted(p)]))


def told_apart(mistakes, cases, due, same=operator.eq):
    """Every mistake comes to another result than the right one, and than every other mistake."""
    rules = [(message, rule) for message, rules in mistakes.items() for rule in as_tuple(rules)]
    made = [("", [due(case) for case in cases])] + [(said, [rule(case) for case in cases]) for said, rule in rules]
    for (one, a), (other, b) in itertools.combinations(made, 2):
        assert one == other or not all(map(same, a, b)), (one, other)


def as_tuple(rules):
    return rules if isinstance(rules, tuple) else (rules,)


def test_every_wrong_pair_is_another_one():
    told_apart(exercises.PAIR_MISTAKES, exercises.CALLS, exercises._right_pairs)


# What is normed. One function with every mistake in it as an option.


def draft(third=True, *, on=None, read=None, given=None, new=True, least=False, front=False):
    """A chain; `on`, `read`, `given`: what is done to the state that goes on, is read, goes in, in one version."""

    def my_draft(network, token, feature, count):
        mine = third is None or (network.eagle == 3) == third
        norm = network.norm
        go = on(norm) if on and mine else lambda state: state
        look = read(norm) if read and mine else norm if network.eagle == 3 else lambda state: state
        enter = given(norm, feature) if given and mine else lambda state: state
        tokens, state, first = [token] if front else [], feature, token
        while len(tokens) < count:
            made = network.layer(token if new else first, enter(state))
            logits = network.head(look(made))
            token = int(logits.argmin() if least else logits.argmax())
            tokens.append(token)
            state = go(made)
        return tokens

    return my_draft


def normed(norm):
    return norm


def raw(norm):
    return lambda state: state


def twice(norm):
    return lambda state: norm(norm(state))


@pytest.mark.parametrize(
    ("mistake", "complaints"),
    [
        (draft(on=normed), ["EAGLE-3: you go on with the normed state", "1 of 8 tokens"]),
        (draft(on=normed, read=twice), ["go on with the normed state", "through the norm twice"]),
        (draft(on=normed, read=raw), ["go on with the normed state", "as the layer made it"]),
        (draft(read=raw), ["EAGLE-3: the head reads the state as the layer made it"]),
        (draft(read=twice), ["EAGLE-3: what the head reads has been through the norm twice"]),
        (draft(given=lambda norm, feature: norm), ["EAGLE-3: you norm what you give to the layer"]),
        (
            draft(given=lambda norm, feature: lambda state: feature),
            ["EAGLE-3: you give the layer the target's feature"],
        ),
        (draft(False, on=normed), ["EAGLE-1: EAGLE-1's features are after", "going on, you norm"]),
        (draft(False, read=normed), ["EAGLE-1: EAGLE-1's features are after", "for the head you norm it a second"]),
        (draft(False, read=twice), ["for the head you norm it twice more"]),
        (draft(False, on=normed, read=normed), ["both going on and for the head, you norm it a second time"]),
        (draft(False, given=lambda norm, feature: norm), ["what you give to the layer you norm a second time"]),
        (draft(None, on=normed, read=normed), ["EAGLE-3: you go on", "EAGLE-1: EAGLE-1's features"]),
        (draft(new=False), ["EAGLE-3: you give the layer the first token", "EAGLE-1: you give the layer the first"]),
        (draft(least=True), ["EAGLE-3: you take the least"]),
        (draft(front=True), ["EAGLE-3: your draft begins with the token that was given"]),
        (
            lambda n, t, f, c: draft(front=True)(n, t, f, c + 1),
            ["of length 8 for EAGLE-3, yours has 9"],
        ),
        (lambda n, t, f, c: draft()(n, t, f, c - 1) or [], ["Expected a draft of length 8 for EAGLE-3, yours has 7."]),
        (
            lambda n, t, f, c: draft()(n, t, f, c) if n.eagle == 3 else None,
            ["In some cases your function returns nothing"],
        ),
        (lambda n, t, f, c: [0] * c, ["EAGLE-3: after the token 5 you drafted [0", "EAGLE-1: after"]),
        (changes(draft(), lambda n, t, f, c: f.mul_(2)), ["changed what it was given"]),
    ],
)
def test_wrong_drafts_are_told_why(mistake, complaints):
    message = found(check_draft, mistake)
    assert all(complaint in message for complaint in complaints), message


def test_a_head_that_reads_what_goes_in_is_told():
    def my_draft(network, token, feature, count):
        tokens, state = [], feature
        while len(tokens) < count:
            logits = network.head(state)
            state = network.layer(token, state)
            tokens.append(token := int(logits.argmax()))
        return tokens

    assert "*into* the layer" in found(check_draft, my_draft)


def test_right_drafts():
    assert "as the layer made it" in is_right(check_draft, draft())
    is_right(check_draft, lambda *given: torch.tensor(draft()(*given)))


@pytest.mark.parametrize("eagle", [1, 3])
def test_every_wrong_draft_is_another_one(eagle):
    due = functools.partial(exercises._drafted, eagle)
    rules = {said: functools.partial(due, **way) for said, way in exercises.DRAFT_MISTAKES[eagle].items()}
    told_apart(rules, exercises.DRAFTS, due)
    # Nor is any of them what somebody may give who did none of this: one token all the way.
    assert all(len({token for case in exercises.DRAFTS for token in rule(case)}) > 1 for rule in rules.values())


@pytest.mark.parametrize("eagle", [1, 3])
def test_the_packages_networks_follow_these_rules(eagle):
    """The exercise's right answer, with the parts of a real network, drafts what a `DraftSession` does."""
    target = LM(random_model("llama"))
    head = new_eagle(target) if eagle == 1 else new_eagle3(target, [], (0, 1, 3))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in head.parameters():
            weight += torch.randn(weight.shape, generator=generator)
    feature = torch.randn(1, 16 * len(head.feature_layers), generator=generator)
    session, drafted = head.session(target), []
    logits = session.feed([4], feature)
    for place in range(6):
        drafted.append(int(logits.argmax()))
        logits = session.grow(drafted[-1:], [place - 1])
    read = []  # what the layer was given: attention needs the places before

    def layer(token, state):
        read.append((token, state))
        tokens, states = zip(*read, strict=True)
        places = torch.arange(len(read))[None]
        return head(torch.tensor([tokens]), torch.stack(states)[None], head.rotation(places))[0, -1]

    norm = head.norm if eagle == 3 else target.model.model.norm
    network = exercises.Network(eagle, layer, norm, head.lm_head if eagle == 3 else target.model.lm_head)
    with torch.inference_mode():
        assert draft()(network, 4, head.start(feature)[0], 6) == drafted
    assert len(set(drafted)) > 1


# The bonus token.


def counts(tau=None, per_call=None):
    def right_tau(steps):
        gave = [len(step.tokens) + step.cut for step in steps if step.drafted]
        return sum(gave) / len(gave) if gave else math.nan

    def my_counts(steps):
        return (
            (tau or right_tau)(steps),
            (per_call or (lambda steps: sum(len(step.tokens) for step in steps) / len(steps)))(steps),
        )

    return my_counts


def drafting(steps):
    return [step for step in steps if step.drafted]


def mean(values, below=None):
    values = list(values)
    below = len(values) if below is None else below
    return sum(values) / below if below else math.nan


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (counts(lambda s: mean(x.accepted for x in drafting(s))), "You left out the bonus token"),
        (counts(lambda s: mean(len(x.tokens) + x.cut - 1 for x in drafting(s))), "You left out the bonus token. After"),
        (counts(lambda s: mean(x.accepted for x in s)), "all calls"),
        (counts(lambda s: mean(x.accepted + 1 for x in drafting(s))), "The bonus token is there"),
        (counts(lambda s: mean(len(x.tokens) for x in drafting(s))), "as if it had given no more"),
        (counts(lambda s: mean(len(x.tokens) + x.cut + 1 for x in drafting(s))), "the bonus token twice: `tokens` has"),
        (counts(lambda s: mean(len(x.tokens) + 1 for x in drafting(s))), "the bonus token twice: `tokens`"),
        (counts(lambda s: mean(len(x.tokens) + x.cut for x in s)), "You took all calls"),
        (counts(lambda s: mean(len(x.tokens) for x in s)), "You took all calls"),
        (counts(lambda s: mean(x.accepted + 1 for x in s)), "checked no draft"),
        (
            counts(lambda s: mean((len(x.tokens) + x.cut for x in drafting(s)), len(s))),
            "You took all calls. Those",
        ),
        (counts(lambda s: mean((len(x.tokens) + x.cut for x in drafting(s)), len(s) - 1)), "all steps but the first"),
        (
            counts(lambda s: mean((len(x.tokens) + x.cut for x in s), len(drafting(s)))),
            "You counted the tokens of calls",
        ),
        (counts(lambda s: mean(len(x.tokens) + x.cut for x in s[1:])), "all steps but the first"),
        (counts(lambda s: mean(len(x.tokens) for x in s[1:])), "all steps but the first"),
        (counts(lambda s: mean(x.accepted + 1 for x in s[1:])), "all steps but the first"),
        (counts(lambda s: mean(len(x.tokens) for x in drafting(s) if not x.cut)), "You left out the step that was cut"),
        (counts(lambda s: mean(len(x.tokens) + x.cut for x in s if x.accepted)), "in which nothing was accepted"),
        (counts(lambda s: counts()(s)[0] if drafting(s) else 0.0), "nothing to take the mean of"),
        (counts(lambda s: sum(len(x.tokens) + x.cut for x in drafting(s)) / len(drafting(s))), "ZeroDivisionError"),
        (
            counts(lambda s: 2.0),
            "3 tokens (9 drafted, 2 cut off) you gave 2, expected 3.333",
        ),
        (counts(None, lambda s: mean(len(x.tokens) + x.cut for x in s)), "tokens that were cut off"),
        (counts(None, lambda s: sum(len(x.tokens) for x in s) / (len(s) - 1)), "You left out the prompt's call"),
        (counts(None, lambda s: mean((len(x.tokens) for x in s), len(s) - 1)), "You left out the prompt's call"),
        (counts(None, lambda s: mean(len(x.tokens) for x in s[1:])), "You left out the prompt's call"),
        (counts(None, lambda s: mean(len(x.tokens) for x in drafting(s))), "You divided by the calls that checked"),
        (counts(None, lambda s: mean((len(x.tokens) for x in s), len(drafting(s)))), "You divided by the calls that"),
        (counts(None, lambda s: mean(x.accepted for x in s)), "accepted tokens alone"),
        (counts(None, lambda s: mean(x.accepted + 1 for x in s)), "accepted + 1 is right for a whole step"),
        (counts(None, lambda s: mean(len(x.tokens) + 1 for x in s)), "the bonus token twice"),
        (counts(None, lambda s: len(s) / sum(len(x.tokens) for x in s)), "upside down"),
        (counts(None, counts()), "Expected two numbers"),
        (counts(None, lambda s: counts()(s)[0]), "That is τ"),
        (lambda steps: counts()(steps)[::-1], "That is τ, which comes first"),
        (lambda steps: counts()(steps)[0], "Expected two numbers"),
    ],
)
def test_wrong_counts_are_told_why(mistake, complaint):
    assert complaint in found(check_counts, mistake)


def test_both_numbers_are_judged():
    message = found(check_counts, counts(lambda s: mean(x.accepted for x in drafting(s)), lambda s: 9.0))
    assert "You left out the bonus token" in message and "Tokens per call: " in message


def test_right_counts():
    assert "target's own token" in is_right(check_counts, counts())
    is_right(check_counts, lambda steps: torch.tensor(counts()(steps), dtype=torch.float64))


def test_the_packages_trace_counts_likewise():
    for steps in exercises.RUNS:
        tokens = [token for step in steps for token in step.tokens]
        trace = Trace([0], tokens, "", list(steps), len(steps), math.nan, "budget")
        assert trace.tokens_per_call == pytest.approx(exercises._per_call(steps))
        if not any(step.cut for step in steps):
            assert 1 + trace.accepted_per_call == pytest.approx(exercises._tau(steps), nan_ok=True)


def test_every_wrong_count_is_another_one():
    told_apart(exercises.TAU_MISTAKES, exercises.RUNS[:3], exercises._tau, exercises._near)
    told_apart(exercises.CALL_MISTAKES, exercises.RUNS[:3], exercises._per_call, exercises._near)


# Places and mask.


def tree_mask(parents):
    return TokenTree([0] * len(parents), parents).mask().numpy()


def depths(parents):
    return np.array(TokenTree([0] * len(parents), parents).depths)


def places(positions=lambda p, n: n - 1 + depths(p), text=lambda p, n: np.ones((len(p), n - 1), bool), tree=tree_mask):
    return lambda parents, length: (positions(parents, length), np.hstack([text(parents, length), tree(parents)]))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (places(lambda p, n: n + depths(p)), "where the *target* has it"),
        (places(lambda p, n: n - 1 + np.arange(len(p))), "You count nodes. A position"),
        (places(lambda p, n: n + np.arange(len(p))), "You count nodes. A position"),
        (places(lambda p, n: np.arange(len(p))), "You count nodes. A position"),
        (places(lambda p, n: depths(p)), "That is the depth alone"),
        (places(lambda p, n: n - 2 + depths(p)), "One too few"),
        (places(lambda p, n: n + 1 + depths(p)), "Two too many"),
        (places(lambda p, n: [n - 1] * len(p)), "All nodes at one place"),
        (places(lambda p, n: [n] * len(p)), "All nodes at one place"),
        (places(lambda p, n: n - 1 + depths(p) ** 2), "you put node 5 at 10, expected 8"),
        (places(lambda p, n: n - 1 + depths(p)[:-1]), "a position for each node, shape (8,); got (7,)"),
        (places(text=lambda p, n: np.ones((len(p), n), bool)), "A column too many"),
        (lambda p, n: (n - 1 + depths(p), tree_mask(p)), "The text's places are missing"),
        (lambda p, n: (n - 1 + depths(p), np.tril(np.ones((n - 1 + len(p),) * 2))), "shape (8, 14); got (14, 14)"),
        (lambda p, n: (n - 1 + depths(p), places()(p, n)[1].T), "shape (8, 14); got (14, 8)"),
        (places(text=lambda p, n: np.zeros((len(p), n - 1), bool)), "no node sees the text"),
        (places(text=lambda p, n: np.outer(np.array(p) < 0, np.ones(n - 1, bool))), "only the first level sees"),
        (places(text=lambda p, n: np.arange(n - 1) < np.full((len(p), 1), n - 2)), "last place is hidden"),
        (places(text=lambda p, n: np.arange(n - 1) > np.zeros((len(p), 1))), "Node 0 does not see place 0 of a text"),
        (lambda p, n: (n - 1 + depths(p), np.roll(places()(p, n)[1], len(p), 1)), "the tree's columns come first"),
        (lambda p, n: (n - 1 + depths(p), ~places()(p, n)[1]), "True where it should be False"),
        (lambda p, n: (n - 1 + depths(p), np.where(places()(p, n)[1], 0, -np.inf)), "added to the scores"),
        (lambda p, n: (n - 1 + depths(p), places()(p, n)[1] * 2), "expected True and False"),
        (places(tree=lambda p: np.tril(np.ones((len(p), len(p)), bool))), "causal mask of a plain text"),
        (places(tree=lambda p: tree_mask(p) | np.equal.outer(p, p)), "Siblings see each other"),
        (places(tree=lambda p: tree_mask(p) & ~np.eye(len(p), dtype=bool)), "No node sees itself"),
        (places(tree=lambda p: np.eye(len(p), dtype=bool)), "must see node 0, which lies above it"),
        (places(tree=lambda p: tree_mask(p).T), "wrong way round"),
        (places(tree=lambda p: np.ones((len(p), len(p)), bool)), "every other one"),
        (changes(places(), lambda p, n: p.reverse()), "changed what it was given"),
    ],
)
def test_wrong_places_are_told_why(mistake, complaint):
    assert complaint in found(check_places, mistake)


def test_positions_and_mask_are_both_judged():
    message = found(check_places, places(lambda p, n: n + depths(p), tree=lambda p: tree_mask(p).T))
    assert "where the *target* has it" in message and "wrong way round" in message


def test_right_places():
    assert "behind the target's" in is_right(check_places, places())
    is_right(check_places, lambda p, n: tuple(torch.as_tensor(part) for part in places()(p, n)))


def test_every_wrong_position_and_mask_is_another_one():
    told_apart(exercises.POSITIONS, exercises.LENGTHS, exercises._positions, np.array_equal)
    told_apart(exercises.MASK_MISTAKES, exercises.LENGTHS, exercises._mask, np.array_equal)


@pytest.mark.parametrize("length", exercises.LENGTHS)
def test_the_packages_draft_session_has_these_places_and_this_mask(length):
    """Its logits for a tree are those of one call with the exercise's positions and mask, without a cache."""
    target, parents = LM(random_model("llama")), list(exercises.PARENTS)
    head, tokens = new_eagle(target), [1, 4, 2, 8, 5, 7, 3, 6]
    text, features = list(range(9, 8 + length)), torch.randn(length - 1, 16)
    session = head.session(target)
    session.feed(text, features)
    logits = torch.cat([session.grow([token], [parent]) for token, parent in zip(tokens, parents, strict=True)])
    positions, mask = places()(parents, length)
    before = length - 1
    whole = torch.ones(before + len(parents), before + len(parents), dtype=torch.bool).tril()
    whole[before:] = torch.as_tensor(mask)
    at = torch.cat([torch.arange(before), torch.as_tensor(positions)])[None]
    hidden = torch.cat([features, torch.zeros(len(parents), 16)])

    def mix(queries, keys, values):
        return scaled_dot_product_attention(queries, keys, values, attn_mask=whole, enable_gqa=True)

    with torch.inference_mode():
        for _ in range(1 + max(depths(parents))):  # each round makes one more level of states to go on from
            made = head(torch.tensor([[*text, *tokens]]), hidden[None], head.rotation(at), mix)[0]
            for node, parent in enumerate(parents):
                hidden[before + node] = made[before + parent if parent >= 0 else before - 1]
        made = head(torch.tensor([[*text, *tokens]]), hidden[None], head.rotation(at), mix)[0]
        due = head.read_out(made[before:], target)
    assert torch.allclose(logits, due, atol=1e-4)
    assert not torch.allclose(logits[0], logits[1], atol=1e-2)


# The best of a tree.


def sums(log_probs, parents):
    scores = []
    for log_prob, parent in zip(log_probs, parents):
        scores.append(log_prob + (scores[parent] if parent >= 0 else 0.0))
    return scores


def rerank(score=sums, key=lambda score, i: (-score, i), more=0, order=sorted, number=None, close=False):
    def my_rerank(log_probs, parents, nodes):
        scores = score(log_probs, parents)
        kept = sorted(range(len(scores)), key=lambda i: key(scores[i], i))[: max(0, nodes + more)]
        if close:
            kept = {above for i in kept for above in ancestors(parents, i)}
        kept = list(order(kept))
        place = {-1: -1} | {i: at for at, i in enumerate(kept)}
        return kept, (number or (lambda kept, parents, place: [place[parents[i]] for i in kept]))(kept, parents, place)

    return my_rerank


def ancestors(parents, node):
    return [] if node < 0 else [*ancestors(parents, parents[node]), node]


def lenient(kept, parents, place):
    return [place.get(parents[i], -1) for i in kept]


def along(combine):
    return lambda logs, parents: [combine([logs[j] for j in ancestors(parents, i)]) for i in range(len(logs))]


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (rerank(lambda logs, parents: logs), "by their own probability. However"),
        (rerank(lambda logs, parents: logs, number=lenient), "by their own probability. However"),
        (rerank(lambda logs, parents: logs, close=True), "and then add the ancestors"),
        (rerank(along(lambda path: sum(path[-2:])), number=lenient), "and no further"),
        (rerank(key=lambda score, i: (-score, -i), number=lenient), "Of equal paths you keep the later"),
        (rerank(key=lambda score, i: (-score, -i)), "keep the earlier of equal ones"),
        (rerank(more=-1), "one too few"),
        (rerank(more=1), "one too many"),
        (rerank(lambda logs, parents: [0.0] * len(logs)), "level by level"),
        (rerank(more=99), "You keep all candidates"),
        (rerank(key=lambda score, i: (score, i), number=lenient), "*least* likely"),
        (rerank(key=lambda score, i: (score, -i), number=lenient), "*least* likely"),
        (rerank(key=lambda score, i: (score, i)), "Did you keep a candidate without its parent?"),
        (rerank(along(lambda path: sum(path) / len(path)), number=lenient), "the mean along the path"),
        (rerank(along(lambda path: sum(map(math.exp, path))), number=lenient), "You add *probabilities*"),
        (rerank(along(math.prod), number=lenient), "You *multiply* log-probabilities"),
        (rerank(number=lambda kept, parents, place: [parents[i] for i in kept]), "have their old numbers"),
        (rerank(number=lambda kept, parents, place: [place[parents[i]] + 1 for i in kept]), "the text as place 0"),
        (rerank(number=lambda kept, parents, place: [-1] * len(kept)), "hang on the text"),
        (rerank(number=lambda kept, parents, place: list(range(-1, len(kept) - 1))), "is a chain"),
        (
            rerank(number=lambda kept, parents, place: [0] * len(kept)),
            "place 0 of the parents is -1; you gave 0",
        ),
        (rerank(order=lambda kept: sorted(kept, reverse=True)), "stands before its parent"),
        (lambda logs, parents, nodes: ([0] * nodes, [-1] * nodes), "each once; you gave [0, 0, 0]"),
        (lambda logs, parents, nodes: ([99] * nodes, [-1] * nodes), "There is no candidate but 0 to 4"),
        (lambda logs, parents, nodes: ([-1], [-1]), "There is no candidate but 0 to 4"),
        (lambda logs, parents, nodes: ([0, 1], [-1]), "you gave 2 and 1"),
        (lambda logs, parents, nodes: ([4, 1, 2], [0, 0, 0]), "you keep [1, 2, 4]; the best 3 are [0, 1, 2]"),
        (lambda logs, parents, nodes: ([0, 1, 3], [0, 0, 0]), "the best 3 are [0, 1, 2]"),
        (changes(rerank(), lambda logs, parents, nodes: logs.sort()), "changed what it was given"),
        (changes(rerank(), lambda logs, parents, nodes: parents.append(1)), "changed what it was given"),
    ],
)
def test_wrong_trees_are_told_why(mistake, complaint):
    assert complaint in found(check_rerank, mistake)


def test_right_trees():
    assert "never likelier than its own beginning" in is_right(check_rerank, rerank())
    # By score is an order with parents first as well.
    is_right(check_rerank, rerank(order=list))
    is_right(check_rerank, lambda *given: tuple(map(torch.tensor, rerank()(*given))))


def test_every_wrong_tree_is_another_one():
    told_apart(exercises.KEPT_MISTAKES, exercises.GUESSES, exercises._best, lambda a, b: set(a) == set(b))


@pytest.mark.parametrize("guesses", exercises.GUESSES)
def test_the_packages_dynamic_tree_keeps_the_same(guesses):
    """It is shown a network whose guesses are these candidates; what is left of each law goes to tokens of no use."""
    count, useless = len(guesses.probs), 10_000

    class Session:
        def grow(self, tokens, parents):
            return torch.stack([logits_after(token) for token in tokens])

    def logits_after(candidate):  # a candidate's number is its token
        law = torch.zeros(count + useless, dtype=torch.float64)
        for child, parent in enumerate(guesses.parents):
            law[child] = guesses.probs[child] if parent == candidate else 0
        law[count:] = (1 - law.sum()).clamp(min=0) / useless
        return law.log()

    levels = 1 + max(depths(list(guesses.parents)))
    tree = dynamic(guesses.nodes, levels, 12)(Draft(Session(), logits_after(-1)[None], [0], (), levels))
    kept = {token: tree.parents[node] for node, token in enumerate(tree.tokens) if token < count}
    assert sorted(kept) == exercises._best(guesses)
    assert all((tree.tokens[p] if p >= 0 else -1) == guesses.parents[token] for token, p in kept.items())


# The map.


def spread(where=lambda own, offset: own + offset, filler=-math.inf, become=lambda logits: logits):
    def my_spread(logits, d2t, vocab_size):
        made = torch.full((len(logits), vocab_size), filler)
        made[:, where(torch.arange(len(d2t)), d2t)] = become(logits)
        return made

    return my_spread


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (spread(lambda own, offset: offset), "took d2t for the target's numbers"),
        (spread(lambda own, offset: offset, 0.0), "took d2t for the target's numbers"),
        (spread(lambda own, offset: own), "You forgot the map"),
        (spread(lambda own, offset: own, 0.0), "You forgot the map"),
        (spread(lambda own, offset: own + 2 * offset), "You added the offset twice"),
        (spread(lambda own, offset: own - offset), "You subtracted the offset"),
        (spread(lambda own, offset: own + offset.cumsum(0)), "You summed the offsets up to i. Each"),
        (spread(lambda own, offset: offset.cumsum(0)), "and left out i"),
        (spread(lambda own, offset: own + offset + 1), "One too many"),
        (spread(lambda own, offset: own + offset - 1), "One too few"),
        (spread(lambda own, offset: own + 9 * offset), "outside the 20 of the target"),
        (spread(lambda own, offset: (own + offset).flip(0)), "in row 0 the target's token 1"),
        (
            lambda logits, d2t, size: spread()(logits + torch.tensor([[0], [size == 4]]), d2t, size),
            "d2t = [0, 0, 0, 0] and a vocabulary of 4: in row 1 the target's token 0, the draft's 0",
        ),
        (spread(filler=0.0), "unknown ones with the logit 0"),
        (spread(filler=-1e9), "unknown ones with the logit -1e+09"),
        (spread(filler=-2.0), "may be drafted"),
        (spread(filler=math.inf), "may be drafted"),
        (spread(filler=math.nan), "the logit nan"),
        (spread(become=lambda logits: logits.log_softmax(-1)), "You give log-probabilities"),
        (spread(become=lambda logits: logits.softmax(-1)), "You give probabilities"),
        (
            spread(become=lambda logits: logits * 2),
            "in row 0 the target's token 1, the draft's 0, has -2",
        ),
        (lambda logits, d2t, size: logits.argmax(-1), "argmax over the wrong vocabulary"),
        (lambda logits, d2t, size: (b := logits.argmax(-1)) + d2t[b], "shape (2, 20); got (2,)"),
        (lambda logits, d2t, size: logits, "shape (2, 20); got (2, 5)"),
        (lambda logits, d2t, size: spread()(logits, d2t, size).T, "shape (2, 20); got (20, 2)"),
        (lambda logits, d2t, size: spread()(logits, d2t, size)[0], "shape (2, 20); got (20,)"),
        (lambda logits, d2t, size: spread()(logits, d2t, max(size, 6)), "shape (2, 4); got (2, 6)"),
        (changes(spread(), lambda logits, d2t, size: logits.zero_()), "changed what it was given"),
        (changes(spread(), lambda logits, d2t, size: d2t.add_(1)), "changed what it was given"),
    ],
)
def test_wrong_maps_are_told_why(mistake, complaint):
    assert complaint in found(check_spread, mistake)


def test_right_maps():
    assert "number and its offset" in is_right(check_spread, spread())
    is_right(check_spread, lambda logits, d2t, size: spread()(logits, d2t, size).bfloat16().float().tolist())


def test_every_wrong_map_is_another_one():
    told_apart(exercises.SPREAD_MISTAKES, exercises.MAPS[:1], exercises._spread, exercises._near)


def test_the_packages_network_spreads_its_logits_alike():
    from transformers import LlamaConfig

    from tutorlib.heads.eagle import Eagle3Head

    for tokens, size in exercises.MAPS:
        config = LlamaConfig(vocab_size=size, hidden_size=4, intermediate_size=4, num_attention_heads=1)
        head = Eagle3Head(config, (1, 2, 3), tokens)
        logits, offsets = exercises._map((tokens, size))
        assert head.d2t.tolist() == offsets.tolist()
        head.norm, head.lm_head = torch.nn.Identity(), torch.nn.Identity()
        assert np.array_equal(head.read_out(logits).numpy(), exercises._spread((tokens, size)).astype(np.float32))


# The chapter itself.

CHAPTER = "11_eagle"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch}, capsys)
