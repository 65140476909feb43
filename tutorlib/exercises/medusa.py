"""Checkers for chapter 10: labels, the mask, positions, paths as a matrix, the typical threshold, and a tree's worth.

Answers are tried on texts, trees and numbers made for the purpose, on which every usual mistake comes to another result
than the right one; an answer that equals one of them is told which. What is right is computed here, from the paper, not
with `tutorlib.tree`, `tutorlib.heads` or `tutorlib.decoders`.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from . import Verdict, _Ended, attempt, checker, number, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# What head i should say

IGNORED = -100  # what torch's cross-entropy leaves out
TEXTS = ([11, 12, 13, 14, 15, 16], [21, 22, 23, 24], [31, 32])
HEADS = (0, 1, 2)


@checker
def check_labels(my_labels) -> Verdict:
    """Judge ``my_labels(texts, head)``: at each position of each text the token that this head should guess there.

    `texts` are lists of tokens of different lengths, `head` counts from 0. The answer has shape (texts, longest), with
    -100 wherever there is no such token.
    """
    shape = (len(TEXTS), max(map(len, TEXTS)))
    answers = []
    for head in HEADS:
        texts = [list(text) for text in TEXTS]
        answers.append(_array(attempt(my_labels, texts, head), shape, "a row for each text"))
        if texts != [list(text) for text in TEXTS]:
            return wrong("Your function changed the texts that it was given: work on copies.")
    expected = [_labels(head) for head in HEADS]
    if all(map(np.array_equal, answers, expected)):
        return right("Head i looks i + 2 places ahead, and where the text has ended there is nothing to learn.")
    for shift, message in SHIFTS:
        for filler in (IGNORED, None):
            if all(_same(answer, _labels(head, shift), filler) for head, answer in zip(HEADS, answers, strict=True)):
                return wrong(message)
    for message, mistaken in OFFSETS:
        if all(_same(answer, mistaken(head), None) for head, answer in zip(HEADS, answers, strict=True)):
            return wrong(message)
    if all(_same(answer, due, None) for answer, due in zip(answers, expected, strict=True)):
        return wrong(_about_filler(answers, expected))
    head, row, place = next(
        (head, *map(int, np.argwhere(answer != due)[0]))
        for head, answer, due in zip(HEADS, answers, expected, strict=True)
        if not np.array_equal(answer, due)
    )
    return wrong(
        f"For head {head}, in the text {TEXTS[row]} at position {place}, you gave {answers[head][row, place]:g}, "
        f"expected {expected[head][row, place]:g}."
    )


def _labels(head: int, shift: int = 2) -> np.ndarray:
    """The labels of a head that looks head + shift places ahead; -100 where the text has ended or not yet begun."""
    made = np.full((len(TEXTS), max(map(len, TEXTS))), float(IGNORED))
    for row, text in enumerate(TEXTS):
        for place in range(len(text)):
            if 0 <= place + head + shift < len(text):
                made[row, place] = text[place + head + shift]
    return made


def _same(answer: np.ndarray, due: np.ndarray, filler: int | None) -> bool:
    """Whether an answer has the right tokens; with a filler of None no matter what stands where there is none."""
    there = due != IGNORED
    return np.array_equal(answer[there], due[there]) and (filler is None or bool((answer[~there] == filler).all()))


SHIFTS = (
    (
        1,
        "You look i + 1 places ahead. The token at t + 1 is what the model's own head says at t: head 0 begins one "
        "place further on, at t + 2.",
    ),
    (0, "You look i places ahead: head 0 would have to say the token that it has just read."),
    (3, "You look i + 3 places ahead: one too many. Heads count from 0, and head 0 guesses the token at t + 2."),
)
OFFSETS = (
    ("You look back, to t - 2 - i. The heads look ahead.", lambda head: _labels(head, -2 - 2 * head)),
    (
        "You look 2 places ahead for every head. Each head looks one place further than the one before it: t + 2 + i.",
        lambda head: _labels(0),
    ),
    (
        "You look 2·(i + 1) places ahead. One more for each head, not two: t + 2 + i.",
        lambda head: _labels(head, head + 2),
    ),
)


def _about_filler(answers, expected) -> str:
    """What to say when the tokens are right, and what stands where there is none is not -100."""
    found = [answer[due == IGNORED] for answer, due in zip(answers, expected, strict=True)]
    values = np.concatenate(found)
    if np.isin(values, [token for text in TEXTS for token in text]).any():
        last = {float(text[-1]) for text in TEXTS}
        if set(values.tolist()) <= last | {float(IGNORED), 0.0}:
            return (
                "After a text's end you repeat its last token. The head would learn to say it there: a real token is "
                "no padding. Use -100, which cross-entropy leaves out."
            )
        return (
            "After a text's end its beginning comes again: did you roll the row? The head would learn that "
            f"{TEXTS[0][0]} comes after {TEXTS[0][-1]}. Use -100 there, which cross-entropy leaves out."
        )
    filler = float(values[values != IGNORED][0])
    if filler < 0:
        return f"The tokens are right. But cross-entropy leaves out -100, and an error is all it has for {filler:g}."
    return (
        f"You fill up with {filler:g}, and that is a token like any other: the head would learn to say it after every "
        "text's end. Use -100, which cross-entropy leaves out."
    )


# ----------------------------------------------------------------------------------------------------------------------
# The mask

# Two nodes and one more hang on the text; below the first there are two, below one of these another.
PARENTS = (-1, -1, 0, 0, 1, 3, -1, 5)


@checker
def check_mask(my_mask) -> Verdict:
    """Judge ``my_mask(parents)``: which node of a tree may attend to which, shape (nodes, nodes), of bool.

    `parents[i]` is the node that node i follows, -1 for the text. True at [i, j] where node i may attend to node j.
    """
    size = len(PARENTS)
    answer = _array(attempt(my_mask, list(PARENTS)), (size, size), "a square of True and False, a row for each node")
    due, above = _ancestors(PARENTS)
    if not np.isin(answer, (0, 1)).all():
        if np.array_equal(answer == 0, due):
            return wrong("That is what is added to the scores, 0 or a very large negative number. Give True or False.")
        return wrong("Expected True and False (or 1 and 0).")
    answer = answer.astype(bool)
    if np.array_equal(answer, due):
        return right("Each node sees itself and what lies above it: its own path, and no other future.")
    for message, mistaken in MASKS:
        if np.array_equal(answer, mistaken(due, above)):
            return wrong(message)
    return wrong(_first_wrong_pair(answer, due))


def _ancestors(parents) -> tuple[np.ndarray, np.ndarray]:
    """(itself and its ancestors, its parent alone), each (nodes, nodes) of bool, a row for each node."""
    due, parent_of = np.eye(len(parents), dtype=bool), np.zeros((len(parents), len(parents)), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            due[node] |= due[parent]
            parent_of[node, parent] = True
    return due, parent_of


def _depths(parents) -> np.ndarray:
    return _ancestors(parents)[0].sum(1) - 1


def _siblings(parents) -> np.ndarray:
    """Which nodes follow the same one, each itself among them."""
    return np.equal.outer(parents, parents)


_SEES_SIBLINGS = (
    "Siblings see each other. They are two guesses for *one* place: if one of them is right the other was never said, "
    "and must not be attended to."
)
_EARLIER = np.tril(np.ones((len(PARENTS), len(PARENTS)), dtype=bool))
# What to say, and what the mistake makes of the right mask and of that of parents alone.
MASKS: tuple[tuple[str, Callable], ...] = (
    (
        "That is the causal mask of a plain text: each node sees all that stand before it. " + _SEES_SIBLINGS,
        lambda due, above: _EARLIER,
    ),
    ("Every node sees every other one. A node may see itself and its ancestors.", lambda due, above: due | True),
    (_SEES_SIBLINGS, lambda due, above: due | _siblings(PARENTS)),
    (_SEES_SIBLINGS, lambda due, above: due | (_siblings(PARENTS) & _EARLIER)),
    (
        "Nodes of one depth see each other. They are guesses for one place, from different futures.",
        lambda due, above: due | np.equal.outer(_depths(PARENTS), _depths(PARENTS)),
    ),
    (
        "A node sees everything that lies higher up in the tree. But its parent's sibling is another future: only the "
        "nodes on its own path.",
        lambda due, above: due | np.greater.outer(_depths(PARENTS), _depths(PARENTS)),
    ),
    (
        "Each node sees itself and its parent, and no further. Go all the way up: a token depends on every token "
        "before it.",
        lambda due, above: above | np.eye(len(PARENTS), dtype=bool),
    ),
    (
        "Each node sees its parent alone: not itself, and not what lies above the parent.",
        lambda due, above: above,
    ),
    (
        "No node sees itself. A token's own key and value are part of what its row is computed from.",
        lambda due, above: due & ~np.eye(len(PARENTS), dtype=bool),
    ),
    (
        "The wrong way round: nodes see what lies below them. Row i says what node i attends *to*.",
        lambda due, above: due.T,
    ),
    ("True where it should be False: say what a node may attend to, not what is hidden from it.", lambda due, a: ~due),
)


def _first_wrong_pair(answer, due) -> str:
    row, column = map(int, np.argwhere(answer != due)[0])
    if due[row, column]:
        who = "itself" if row == column else f"node {column}, which lies above it"
        return f"Node {row} must see {who} (parents: {list(PARENTS)})."
    if PARENTS[row] == PARENTS[column]:
        return f"Node {row} sees node {column}, its sibling. {_SEES_SIBLINGS}"
    where = "which comes after it" if due[column, row] else "which is not on its path"
    return f"Node {row} sees node {column}, {where} (parents: {list(PARENTS)})."


# ----------------------------------------------------------------------------------------------------------------------
# Positions

LENGTHS = (7, 1)


@checker
def check_positions(my_positions) -> Verdict:
    """Judge ``my_positions(parents, length)``: the position of each node, after a text of `length` tokens.

    The text's own positions are 0, 1, ..., length - 1.
    """
    answers = [
        _array(attempt(my_positions, list(PARENTS), length), (len(PARENTS),), "a number for each node")
        for length in LENGTHS
    ]
    depths = _depths(PARENTS)
    for message, mistaken in ((None, lambda length: length + depths), *POSITIONS):
        if all(np.array_equal(answer, mistaken(length)) for answer, length in zip(answers, LENGTHS, strict=True)):
            if message is None:
                return right("Siblings share a position: they are guesses for one place of the text.")
            return wrong(message)
    length, answer = next(
        (length, answer) for length, answer in zip(LENGTHS, answers) if not np.array_equal(answer, length + depths)
    )
    node = int(np.flatnonzero(answer != length + depths)[0])
    return wrong(
        f"After {length} tokens, node {node} is at {answer[node]:g}, expected {length + int(depths[node])} "
        f"(parents: {list(PARENTS)})."
    )


POSITIONS: tuple[tuple[str, Callable], ...] = (
    (
        "You count nodes. A position says how far into the *text* a token stands, and that is its depth: siblings are "
        "guesses for one place, and share it.",
        lambda length: length + np.arange(len(PARENTS)),
    ),
    (
        "You count nodes, and from 0. A position is the length of the text before the tree, and the node's depth.",
        lambda length: np.arange(len(PARENTS)),
    ),
    ("That is the depth alone. The tree hangs on a text: add its length.", lambda length: _depths(PARENTS)),
    (
        "One too many: the text ends at position length - 1, so the nodes that hang on it are at `length`.",
        lambda length: length + _depths(PARENTS) + 1,
    ),
    (
        "One too few: the text's last token has position length - 1 itself.",
        lambda length: length + _depths(PARENTS) - 1,
    ),
    ("All nodes at one place? A child comes one place after its parent.", lambda length: length + 0 * _depths(PARENTS)),
)


# ----------------------------------------------------------------------------------------------------------------------
# Paths as a matrix

TOKENS = (5, 0, 6, 0, 4, 2)
PATHS = ((0, 2, 5), (0, 3), (1, 4), (1,))


@checker
def check_paths(my_paths) -> Verdict:
    """Judge ``my_paths(tokens, paths)``: the tokens of each path, a row for each, filled up to the longest.

    `tokens` are those of the tree's nodes, `paths` lists of nodes of different lengths. The checker lets the target say
    something for each node, compares the two matrices in one go, and counts how many tokens from the left are equal.
    """
    shape = (len(PATHS), max(map(len, PATHS)))
    answer = _array(attempt(my_paths, list(TOKENS), [list(path) for path in PATHS]), shape, "a row for each path")
    due = np.full(shape, -1.0)
    for row, path in enumerate(PATHS):
        due[row, : len(path)] = [TOKENS[node] for node in path]
    there = due >= 0
    if np.array_equal(answer[there], due[there]):
        if (answer[~there] < 0).all():
            return right("What is not a token equals no token: a path is never longer than it is.")
        if not np.isfinite(answer).all():
            return wrong("Your filler is not a whole number, and a matrix of tokens holds nothing else: -1 would do.")
        row, column = map(int, np.argwhere((answer >= 0) & ~there)[0])
        filler, path = answer[row, column], [TOKENS[node] for node in PATHS[row]]
        ends = [(answer[row, len(path) :] == TOKENS[path[-1]]).all() for row, path in enumerate(PATHS)]
        repeated = " You repeat the path's last token." if all(ends) else ""
        return wrong(
            f"The path {path} is filled up with {filler:g}, and that may be a token of the vocabulary.{repeated} If "
            f"the target says {filler:g} after the path, one token more seems to be accepted than the path has. Fill "
            "up with a number that is no token: -1."
        )
    if np.array_equal(answer[there], [node for path in PATHS for node in path]):
        return wrong("Those are the numbers of the nodes. Look up their tokens.")
    for row, path in enumerate(PATHS):
        tokens = [TOKENS[node] for node in path]
        if not np.array_equal(answer[row, : len(path)], tokens):
            if np.array_equal(answer[row, -len(path) :], tokens):
                return wrong("You fill up on the left. Tokens are compared from the left: there the path begins.")
            if np.array_equal(answer[row, : len(path)], tokens[::-1]):
                return wrong("Your paths run from the leaf up. Begin with the node that hangs on the text.")
            return wrong(f"The path {list(path)} has the tokens {tokens}; your row is {_shown(answer[row])}.")
    raise AssertionError("a row that differs was found above")


# ----------------------------------------------------------------------------------------------------------------------
# The typical threshold

# (probabilities, ε, δ): now the cap decides, now the factor; the last has a zero among the probabilities.
THRESHOLDS = (
    ((0.97, 0.01, 0.01, 0.01), 0.09, 0.3),
    ((0.25, 0.25, 0.25, 0.25), 0.09, 0.3),
    ((0.4, 0.3, 0.2, 0.1), 0.2, 0.5),
    ((0.9, 0.1), 0.5, 0.2),
    ((0.5, 0.5, 0.0), 0.2, 0.3),
)


@checker
def check_threshold(my_threshold) -> Verdict:
    """Judge ``my_threshold(probs, epsilon, delta)``: the probability above which a candidate is accepted.

    `probs` is the target's distribution, a float64 tensor of shape (vocab,).
    """
    answers = []
    for probs, epsilon, delta in THRESHOLDS:
        answers.append(number(attempt(my_threshold, torch.tensor(probs, dtype=torch.float64), epsilon, delta)))
    expected = [_threshold(*case) for case in THRESHOLDS]
    case = _first_difference(answers, expected)
    if case is None:
        return right("A cap where the target is sure, and less the more it could have said.")
    probs, epsilon, delta = THRESHOLDS[case]
    said = f"For {list(probs)}, ε = {epsilon:g} and δ = {delta:g} you gave {answers[case]:g}, expected "
    said += f"{expected[case]:g}."
    if math.isnan(answers[case]) or 0 in probs:
        return wrong(f"{said} A probability of 0 makes 0·log 0: count it as 0 (torch.special.entr does).")
    for message, mistaken in THRESHOLD_MISTAKES:
        if _first_difference(answers, [mistaken(*given) for given in THRESHOLDS]) is None:
            return wrong(f"{said} {message}")
    return wrong(said)


def _entropy(probs, log=math.log) -> float:
    return -math.fsum(prob * log(prob) for prob in probs if prob)


def _threshold(probs, epsilon, delta) -> float:
    return min(epsilon, delta * math.exp(-_entropy(probs)))


THRESHOLD_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "You swapped ε and δ. ε is the cap (0.09 in the authors' runs), δ the factor before exp(-H) (0.3 there).",
        lambda probs, epsilon, delta: min(delta, epsilon * math.exp(-_entropy(probs))),
    ),
    (
        "You took the larger of the two. ε is a cap: min.",
        lambda probs, epsilon, delta: max(epsilon, delta * math.exp(-_entropy(probs))),
    ),
    (
        "You took the larger of the two, with ε and δ swapped.",
        lambda probs, epsilon, delta: max(delta, epsilon * math.exp(-_entropy(probs))),
    ),
    ("You left out the cap: min(ε, ...).", lambda probs, epsilon, delta: delta * math.exp(-_entropy(probs))),
    ("That is ε whatever the target says: where it is unsure, less is asked for.", lambda p, epsilon, delta: epsilon),
    (
        "Your entropy is in bits. The formula has exp, so H is in nats: the natural logarithm.",
        lambda probs, epsilon, delta: min(epsilon, delta * math.exp(-_entropy(probs, math.log2))),
    ),
    (
        "The sign of H: the more the target could have said, the *less* is asked for, exp(-H).",
        lambda probs, epsilon, delta: min(epsilon, delta * math.exp(_entropy(probs))),
    ),
    (
        "You left out exp: δ·exp(-H).",
        lambda probs, epsilon, delta: min(epsilon, delta * -_entropy(probs)),
    ),
    (
        "You left out exp: δ·exp(-H), not δ·H.",
        lambda probs, epsilon, delta: min(epsilon, delta * _entropy(probs)),
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# What a tree is worth

# accuracies[head][rank], and a tree of ranks
ACCURACIES = ((0.6, 0.2, 0.1), (0.5, 0.3, 0.05), (0.4, 0.1, 0.15))
TREES = (
    ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)),
    ((2,),),
    ((0,), (0, 2), (0, 2, 1), (0, 2, 2)),
)


@checker
def check_worth(my_worth) -> Verdict:
    """Judge ``my_worth(accuracies, choices)``: how many tokens a step with this tree gives on average.

    `accuracies[i][r]` is how often head i's guess of rank r is right; `choices` are all nodes of the tree as paths of
    ranks. Heads are taken to be right independently of each other.
    """
    answers = [number(attempt(my_worth, [list(row) for row in ACCURACIES], list(tree))) for tree in TREES]
    expected = [1 + _nodes(tree) for tree in TREES]
    case = _first_difference(answers, expected)
    if case is None:
        return right("One token for certain, and each node as often as its whole path is right.")
    said = f"For the tree {list(TREES[case])} you gave {answers[case]:g}, expected {expected[case]:g}."
    for message, mistaken in WORTH_MISTAKES:
        if _first_difference(answers, [mistaken(tree) for tree in TREES]) is None:
            return wrong(f"{said} {message}")
    return wrong(said)


def _right(path) -> float:
    return math.prod(ACCURACIES[head][rank] for head, rank in enumerate(path))


def _nodes(tree) -> float:
    return math.fsum(map(_right, tree))


def _leaves(tree):
    return [path for path in tree if not any(other[:-1] == path for other in tree)]


WORTH_MISTAKES: tuple[tuple[str, Callable], ...] = (
    ("You left out the token that the target itself adds, which comes in every step.", _nodes),
    (
        "A node counts if its whole path is right: multiply along the path, not just its last guess.",
        lambda tree: 1 + math.fsum(ACCURACIES[len(path) - 1][path[-1]] for path in tree),
    ),
    (
        "You added up along the path. All of its guesses have to be right: multiply.",
        lambda tree: 1 + math.fsum(ACCURACIES[head][rank] for path in tree for head, rank in enumerate(path)),
    ),
    (
        "You counted the leaves. A path that is right half the way gives half its tokens: every node counts.",
        lambda tree: 1 + math.fsum(map(_right, _leaves(tree))),
    ),
    (
        "You weighed each leaf with the length of its path. Its upper nodes may be right where it is not, and where "
        "paths share a beginning it is counted twice: add up the nodes.",
        lambda tree: 1 + math.fsum(len(path) * _right(path) for path in _leaves(tree)),
    ),
    (
        "You weighed each node with its depth. Its ancestors are nodes themselves, and count there: a node is one "
        "token.",
        lambda tree: 1 + math.fsum(len(path) * _right(path) for path in tree),
    ),
    (
        "You read the accuracies by rank and then head: accuracies[head][rank].",
        lambda tree: 1 + math.fsum(math.prod(ACCURACIES[rank][head] for head, rank in enumerate(p)) for p in tree),
    ),
    (
        "You took every guess for the first of its head. Ranks differ: accuracies[head][rank].",
        lambda tree: 1 + math.fsum(math.prod(ACCURACIES[head][0] for head in range(len(path))) for path in tree),
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _array(answer, shape: tuple[int, ...], what: str) -> np.ndarray:
    """An answer as a float64 array of this shape; the checker ends with a ✗ if it is not one."""
    if isinstance(answer, torch.Tensor):
        answer = answer.detach().cpu()
    try:
        array = np.asarray(answer, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        array = np.zeros(())
    if array.shape != shape:
        found = f"shape {tuple(array.shape)}" if array.ndim else _kind(answer)
        raise _Ended(wrong(f"Expected {what}, shape {shape}; got {found}."))
    return array


def _kind(answer) -> str:
    if isinstance(answer, (list, tuple)) and len({len(row) for row in answer if isinstance(row, (list, tuple))}) > 1:
        return "rows of different lengths"
    return type(answer).__name__


def _first_difference(answers, expected) -> int | None:
    """The number of the first answer that is not what it should be; None if there is none."""
    for case, (answer, due) in enumerate(zip(answers, expected, strict=True)):
        if not math.isclose(answer, due, rel_tol=1e-6, abs_tol=1e-9):
            return case
    return None


def _shown(row) -> str:
    return "[" + ", ".join(f"{value:g}" for value in row) + "]"
