"""The checkers of chapter 10 accept what is right, and tell every usual mistake which one it is."""

import itertools
import math

import numpy as np
import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import TokenTree
from tutorlib.checking import threshold
from tutorlib.exercises import medusa as exercises
from tutorlib.exercises.medusa import (
    check_labels,
    check_mask,
    check_paths,
    check_positions,
    check_threshold,
    check_worth,
)
from tutorlib.heads.choices import expected_tokens

FUNCTIONS = [check_labels, check_mask, check_positions, check_paths, check_threshold, check_worth]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", FUNCTIONS)
def test_what_is_of_another_form_is_said_to_be(check):
    assert "Expected" in found(check, lambda *_: "abc")
    assert "Expected" in found(check, lambda *_: [1.0])
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


def test_the_packages_own_functions_are_right_answers():
    is_right(check_mask, lambda parents: TokenTree([0] * len(parents), parents).mask())
    is_right(
        check_positions, lambda parents, length: [length + d for d in TokenTree([0] * len(parents), parents).depths]
    )
    is_right(check_threshold, threshold)
    is_right(check_worth, expected_tokens)


# Labels. One function with every mistake in it as an option.


def labels(*, shift=2, step=1, filler=-100, then=None):
    """Looks head * step + shift places ahead; past the end stands `filler`, or what `then(text)` says."""

    def my_labels(texts, head):
        longest = max(map(len, texts))
        made = torch.full((len(texts), longest), filler)
        for row, text in enumerate(texts):
            for place in range(longest):
                at = place + head * step + shift
                if place < len(text) and 0 <= at < len(text):
                    made[row, place] = text[at]
                elif then is not None and place < len(text):
                    made[row, place] = then(text, at)
        return made

    return my_labels


def rolled(filler):
    def my_labels(texts, head):
        longest = max(map(len, texts))
        padded = torch.tensor([text + [filler] * (longest - len(text)) for text in texts])
        return padded.roll(-(head + 2), dims=1)

    return my_labels


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (labels(shift=1), "what the model's own head says"),
        (labels(shift=1, filler=0), "what the model's own head says"),
        (labels(shift=0), "just read"),
        (labels(shift=3), "one too many"),
        (labels(shift=-2, step=-1), "You look back"),
        (labels(step=0), "2 places ahead for every head"),
        (labels(step=2), "2·(i + 1)"),
        (labels(filler=0), "fill up with 0"),
        (labels(filler=7), "fill up with 7"),
        (labels(filler=-1), "leaves out -100"),
        (labels(then=lambda text, at: text[-1]), "repeat its last token"),
        (labels(then=lambda text, at: text[at % len(text)]), "did you roll"),
        (rolled(-100), "did you roll"),
        (rolled(0), "did you roll"),
        (lambda texts, head: texts, "rows of different lengths"),
        (lambda texts, head: labels()(texts, head)[:, :-1], "shape (3, 5)"),
        (lambda texts, head: labels()(texts, 0 if head == 2 else head), "For head 2"),
        (lambda texts, head: labels()([text.append(1) or text for text in texts], head)[:, :-1], "work on copies"),
    ],
)
def test_wrong_labels_are_told_why(mistake, complaint):
    assert complaint in found(check_labels, mistake)


def test_right_labels():
    assert "i + 2 places" in is_right(check_labels, labels())
    is_right(check_labels, lambda texts, head: labels()(texts, head).tolist())


def test_what_head_0_learns_is_what_the_package_trains_it_on():
    from tutorlib.training.medusa import _index
    from tutorlib.training.own_text import Text

    for head in exercises.HEADS:
        due = exercises._labels(head)
        rows, places = _index(head, [Text(list(text), 1, len(text)) for text in exercises.TEXTS], "cpu")
        assert sorted(zip(rows.tolist(), places.tolist())) == [tuple(at) for at in np.argwhere(due != -100).tolist()]


# The mask.


def mask(change=lambda mask, parents, depths: mask):
    def my_mask(parents):
        tree = TokenTree([0] * len(parents), parents)
        return change(tree.mask().numpy(), np.array(parents), np.array(tree.depths))

    return my_mask


def eye(like):
    return np.eye(len(like), dtype=bool)


def parent_only(parents):
    made = np.zeros((len(parents), len(parents)), dtype=bool)
    made[np.arange(len(parents))[parents >= 0], parents[parents >= 0]] = True
    return made


def with_pair(row, column, value):
    def change(mask, parents, depths):
        mask = mask.copy()
        mask[row, column] = value
        return mask

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m, p, d: np.tril(np.ones_like(m)), "causal mask of a plain text"),
        (lambda m, p, d: np.ones_like(m), "every other one"),
        (lambda m, p, d: m | (p[:, None] == p), "Siblings see each other"),
        (lambda m, p, d: m | np.tril(p[:, None] == p), "Siblings see each other"),
        (lambda m, p, d: m | (d[:, None] == d), "one depth"),
        (lambda m, p, d: m | (d[:, None] > d), "parent's sibling"),
        (lambda m, p, d: eye(m) | parent_only(p), "Go all the way up"),
        (lambda m, p, d: parent_only(p), "its parent alone"),
        (lambda m, p, d: m & ~eye(m), "No node sees itself"),
        (lambda m, p, d: m.T, "wrong way round"),
        (lambda m, p, d: ~m, "True where it should be False"),
        (lambda m, p, d: np.where(m, 0.0, -np.inf), "added to the scores"),
        (lambda m, p, d: m * 2, "Expected True and False"),
        (with_pair(3, 2, True), "node 2, its sibling"),
        (with_pair(0, 1, True), "its sibling"),
        (with_pair(5, 0, False), "must see node 0, which lies above it"),
        (with_pair(4, 4, False), "must see itself"),
        (with_pair(4, 0, True), "not on its path"),
        (with_pair(0, 2, True), "comes after it"),
    ],
)
def test_wrong_masks_are_told_why(change, complaint):
    assert complaint in found(check_mask, mask(change))


def test_a_right_mask():
    assert "its own path" in is_right(check_mask, mask())
    is_right(check_mask, lambda parents: mask()(parents).astype(int).tolist())


def test_every_wrong_mask_is_another_one():
    due, above = exercises._ancestors(exercises.PARENTS)
    assert np.array_equal(due, TokenTree([0] * len(due), list(exercises.PARENTS)).mask().numpy())
    made = [(message, mistaken(due, above)) for message, mistaken in exercises.MASKS]
    for (one, wrong), (other, other_wrong) in itertools.combinations(made, 2):
        assert not np.array_equal(wrong, due) and (one == other or not np.array_equal(wrong, other_wrong)), (one, other)


# Positions.


def depths(parents):
    return np.array(TokenTree([0] * len(parents), parents).depths)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda p, n: list(range(n, n + len(p))), "You count nodes. A position"),
        (lambda p, n: list(range(len(p))), "from 0"),
        (lambda p, n: depths(p), "the depth alone"),
        (lambda p, n: n + 1 + depths(p), "One too many"),
        (lambda p, n: n - 1 + depths(p), "One too few"),
        (lambda p, n: [n] * len(p), "All nodes at one place"),
        (lambda p, n: torch.tensor(n + 2 * depths(p)), "node 2 is at 9, expected 8"),
    ],
)
def test_wrong_positions_are_told_why(mistake, complaint):
    assert complaint in found(check_positions, mistake)


def test_right_positions():
    assert "share a position" in is_right(check_positions, lambda p, n: torch.tensor(n + depths(p)))


# Paths as a matrix.


def matrix(filler=-1, node=lambda tokens, node: tokens[node], row=lambda path, rest: path + rest):
    def my_paths(tokens, paths):
        longest = max(map(len, paths))
        made = []
        for path in paths:
            path = [node(tokens, n) for n in path]
            rest = [filler(path) if callable(filler) else filler] * (longest - len(path))
            made.append(row(path, rest))
        return torch.tensor(made)

    return my_paths


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (matrix(0), "filled up with 0, and that may be a token of the vocabulary. If the target"),
        (matrix(3), "filled up with 3, and that may be a token"),
        (matrix(10**6), "filled up with 1e+06, and that may be a token"),
        (matrix(float("nan")), "not a whole number"),
        (matrix(lambda path: path[-1]), "repeat the path's last token"),
        (matrix(node=lambda tokens, n: n), "numbers of the nodes"),
        (matrix(row=lambda path, rest: rest + path), "fill up on the left"),
        (matrix(row=lambda path, rest: path[::-1] + rest), "from the leaf up"),
        (matrix(row=lambda path, rest: [9] + path[1:] + rest), "your row is [9, 6, 2]"),
        (lambda tokens, paths: [[tokens[n] for n in path] for path in paths], "rows of different lengths"),
    ],
)
def test_wrong_matrices_of_paths_are_told_why(mistake, complaint):
    assert complaint in found(check_paths, mistake)


def test_a_right_matrix_and_what_a_real_token_would_do():
    assert "longer than it is" in is_right(check_paths, matrix())
    is_right(check_paths, matrix(-100))
    # The harm: a target that says 0 everywhere would seem to accept more of the path [0] than there is.
    said = torch.zeros(len(exercises.PATHS), 3)
    kept = {
        filler: (matrix(filler)(exercises.TOKENS, exercises.PATHS) == said).cumprod(1).sum(1).tolist()
        for filler in (-1, 0)
    }
    assert kept[-1] == [0, 0, 1, 1] and kept[0] == [0, 0, 1, 3]


# The threshold.


def entropy(probs, log=torch.log):
    return float(-(probs * log(probs)).nansum())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda p, e, d: min(d, e * math.exp(-entropy(p))), "You swapped ε and δ. ε is the cap"),
        (lambda p, e, d: max(e, d * math.exp(-entropy(p))), "ε is a cap: min"),
        (lambda p, e, d: max(d, e * math.exp(-entropy(p))), "with ε and δ swapped"),
        (lambda p, e, d: d * math.exp(-entropy(p)), "left out the cap"),
        (lambda p, e, d: e, "whatever the target says"),
        (lambda p, e, d: min(e, d * math.exp(-entropy(p, torch.log2))), "in bits"),
        (lambda p, e, d: min(e, d * math.exp(entropy(p))), "The sign of H"),
        (lambda p, e, d: min(e, d * -entropy(p)), "You left out exp"),
        (lambda p, e, d: min(e, d * entropy(p)), "not δ·H"),
        (lambda p, e, d: min(e, d * float((p * p.log()).sum().exp())), "0·log 0"),
        (lambda p, e, d: 0.5, "expected"),
        (lambda p, e, d: p, "Expected a number"),
    ],
)
def test_wrong_thresholds_are_told_why(mistake, complaint):
    message = found(check_threshold, mistake)
    assert complaint in message


def test_a_right_threshold():
    assert "A cap" in is_right(check_threshold, lambda p, e, d: min(e, d * math.exp(-entropy(p))))


def test_in_the_cases_now_the_cap_decides_and_now_the_factor():
    capped = [exercises._threshold(*case) == case[1] for case in exercises.THRESHOLDS]
    assert any(capped) and not all(capped)


# What a tree is worth.


def right(path, accuracies):
    return math.prod(accuracies[head][rank] for head, rank in enumerate(path))


def leaves(tree):
    return [path for path in tree if not any(other[:-1] == path for other in tree)]


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda a, t: sum(right(p, a) for p in t), "the target itself adds"),
        (lambda a, t: 1 + sum(a[len(p) - 1][p[-1]] for p in t), "multiply along the path"),
        (lambda a, t: 1 + sum(a[h][r] for p in t for h, r in enumerate(p)), "added up along the path"),
        (lambda a, t: 1 + sum(right(p, a) for p in leaves(t)), "You counted the leaves"),
        (lambda a, t: 1 + sum(len(p) * right(p, a) for p in leaves(t)), "weighed each leaf"),
        (lambda a, t: 1 + sum(len(p) * right(p, a) for p in t), "weighed each node with its depth"),
        (lambda a, t: 1 + sum(right(p, list(zip(*a))) for p in t), "by rank and then head"),
        (lambda a, t: 1 + sum(right([0] * len(p), a) for p in t), "first of its head"),
        (lambda a, t: 2.0, "expected"),
    ],
)
def test_wrong_worths_are_told_why(mistake, complaint):
    assert complaint in found(check_worth, mistake)


def test_a_right_worth():
    assert "one token for certain" in is_right(check_worth, lambda a, t: 1 + sum(right(p, a) for p in t)).lower()


# The chapter itself.

CHAPTER = "10_medusa"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch}, capsys)
