"""The exercises of the Medusa chapter: a tree by hand, labels, a wide tree, a threshold, paths as a matrix."""

import math

import numpy as np

from .answers import array, filled, judge_number, listed, number, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

TEXTS = [[11, 12, 13, 14, 15, 16], [21, 22, 23, 24], [31, 32]]
IGNORED = -100  # the label that PyTorch's cross-entropy ignores


def labels(texts, head, ahead=2, filler=IGNORED):
    """At each position of each text, the token `head + ahead` positions later; `filler` if there is none."""
    made = np.full((len(texts), max(map(len, texts))), float(filler))
    for row, text in enumerate(texts):
        for position in range(len(text)):
            if 0 <= position + head + ahead < len(text):
                made[row, position] = text[position + head + ahead]
    return made


def labels_that_repeat_the_last_token(texts, head):
    padded = [text + [text[-1]] * (max(map(len, texts)) + head + 2) for text in texts]
    return np.array([row[head + 2 :][: max(map(len, texts))] for row in padded], dtype=float)


check_labels = Exercise(
    """Judge ``my_labels(texts, head)``: at each position of each text, the token that this head should guess there.""",
    [(TEXTS, head) for head in range(3)],
    labels,
    {
        "You look i + 1 positions ahead. The model's own head at t already predicts the token at t + 1, so head 0 "
        "guesses one position further, the token at t + 2.": {"ahead": 1},
        "You look i + 3 positions ahead, one too many. Heads are counted from 0, and head 0 guesses the token at t + "
        "2.": {"ahead": 3},
        "You look 2 positions ahead for every head. Each head looks one position further than the head before it.": (
            lambda texts, head: labels(texts, 0)
        ),
        "After the end of a text you fill in a real token, so the head would learn to predict it there. Use -100, "
        "which cross-entropy ignores.": (
            {"filler": 0},
            labels_that_repeat_the_last_token,
        ),
        "The tokens are right. But cross-entropy ignores only -100, and raises an error for -1.": {"filler": -1},
    },
    why="Head i looks i + 2 positions ahead. After the end of a text there is nothing to learn.",
)

# The tree whose mask and positions are predicted: two guesses for the next token, and three nodes below the first.
PARENTS, LENGTH = [-1, -1, 0, 0, 3], 7
DEPTHS = [0, 0, 1, 1, 2]


@checker
def check_by_hand(prediction) -> Verdict:
    """Judge how many "cells" of the tree's mask are True, and the nodes' "positions": a dict with these two keys."""
    filled(prediction, ("cells", "positions"))
    positions = listed(prediction["positions"])
    if positions == [LENGTH + node for node in range(len(PARENTS))]:
        return wrong(
            "You count nodes. A position is a token's index in the *text*, and siblings are guesses for the same "
            "position."
        )
    if positions == DEPTHS:
        return wrong("Those are the depths alone. The tree follows a text: add the text's length.")
    if positions == [LENGTH + depth + 1 for depth in DEPTHS]:
        return wrong(f"One too many: the text ends at position {LENGTH - 1}, so the tree begins at {LENGTH}.")
    if positions == [LENGTH + depth - 1 for depth in DEPTHS]:
        return wrong(f"One too few: position {LENGTH - 1} already belongs to the last token of the text.")
    if positions != [LENGTH + depth for depth in DEPTHS]:
        return wrong("A node's position is the text's length plus the node's depth. Give one number for each node.")
    return judge_number(
        prediction["cells"],
        len(DEPTHS) + sum(DEPTHS),
        {
            15: "15 would be right for the causal mask of plain text, where each token sees all tokens before it. "
            "Siblings must not see each other.",
            13: "You let siblings see each other. If one of them is right, the other is not in the text.",
            sum(DEPTHS): "Each node also sees itself.",
            8: "You go up to the parent only, and no further. A node sees all nodes on the path to it.",
        },
        why="Each node sees the nodes on its path, itself included: 1, 1, 2, 2 and 3.",
        otherwise="For each node, count the nodes on the path to it, itself included.",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Accuracies for which a tree should be wide


@checker
def check_wide(accuracies) -> Verdict:
    """Judge accuracies[head][rank] of two heads for which the best tree of three nodes has three guesses of head 0."""
    rows = [[number(value) for value in listed(row)] for row in listed(accuracies)]
    if len(rows) != 2 or min(map(len, rows)) < 3:
        return wrong("Give two lists, one for each head, with the shares of at least three ranks each.")
    for head, row in enumerate(rows):
        if min(row) < 0 or math.fsum(row) > 1 + 1e-9:
            return wrong(
                f"The shares of head {head} must be 0 or more, and their sum at most 1, because only one token is "
                "right."
            )
        if row != sorted(row, reverse=True):
            return wrong(f"Rank 0 is a head's best guess, so the shares of head {head} must fall from rank to rank.")
    third, deep = rows[0][2], rows[0][0] * rows[1][0]
    if third > deep:
        return right("If a head is unsure, another of its guesses is worth more than a longer path.")
    said = f"The third guess of head 0 is right in {third:.2f} of the cases, and the path (0, 0) in {deep:.2f}."
    if rows[1][0] > 0.5 >= rows[0][0]:
        return wrong(f"{said} Head 1 is too good for a wide tree: make it worse, or head 0 less sure.")
    return wrong(f"{said} In a wide tree, the third guess of head 0 must be right more often than the path (0, 0).")


# ----------------------------------------------------------------------------------------------------------------------
# Paths as a matrix


def matrix(tokens, paths, filler=lambda row: -1.0, left=False):
    made = []
    for path in paths:
        row = [float(tokens[node]) for node in path]
        fill = [filler(row)] * (max(map(len, paths)) - len(row))
        made.append(fill + row if left else row + fill)
    return np.array(made)


def matrix_of_tokens(answer, due):
    """After the end of a path any negative number is accepted, because it equals no token."""
    made = array(answer, due.shape, "a matrix of tokens, one row per path,")
    return np.where(made < 0, -1, made)


check_paths = Exercise(
    """Judge ``my_paths(tokens, paths)``: the tokens of each path, one row per path, padded to the longest.""",
    [([5, 0, 6, 0, 4, 2], [[0, 2, 5], [0, 3], [1, 4], [1]])],
    matrix,
    {
        "You pad short paths with 0, which is a real token. If the target predicts token 0 after the path, the path "
        "seems one token longer than it is. Pad with a number that is not a token: -1.": ({"filler": lambda row: 0.0}),
        "You repeat the last token of a short path. If the target repeats it too, the path seems longer than it is. "
        "Pad with a number that is not a token: -1.": {"filler": lambda row: row[-1]},
        "Those are the indices of the nodes. Look up their tokens.": (
            lambda tokens, paths: matrix(range(len(tokens)), paths)
        ),
        "You pad on the left. Tokens are compared from the left, so the path has to begin there.": {"left": True},
        "Your paths run from the leaf up. Begin with the node that follows the text.": (
            lambda tokens, paths: matrix(tokens, [path[::-1] for path in paths])
        ),
    },
    read=matrix_of_tokens,
    why="The padding equals no token, so a path never seems longer than it is.",
)


def entropy(probs, log=math.log):
    return -math.fsum(prob * log(prob) for prob in probs.tolist() if prob)


def _threshold(probs, epsilon, delta, *, of=min, log=math.log, sign=-1):
    return of(epsilon, delta * math.exp(sign * entropy(probs, log)))


check_threshold = Exercise(
    """Judge ``my_threshold(probs, epsilon, delta)``: the probability above which a candidate is accepted.""",
    [
        (tensor((0.97, 0.01, 0.01, 0.01)), 0.09, 0.3),
        (tensor((0.25, 0.25, 0.25, 0.25)), 0.09, 0.3),
        (tensor((0.4, 0.3, 0.2, 0.1)), 0.2, 0.5),
        (tensor((0.9, 0.1)), 0.5, 0.2),
        (tensor((0.5, 0.5, 0.0)), 0.2, 0.3),
    ],
    _threshold,
    {
        "You swapped ε and δ. ε is the cap (0.09 in the authors' runs), and δ the factor of exp(-H) (0.3 there).": (
            lambda probs, epsilon, delta: _threshold(probs, delta, epsilon)
        ),
        "You took the larger of the two. ε is a cap, so take the minimum.": {"of": max},
        "Your entropy is in bits. The formula has exp, so H is in nats: use the natural logarithm.": {"log": math.log2},
        "The sign of H is wrong. The less certain the target is, the *lower* the threshold: exp(-H).": {"sign": 1},
        "A probability of 0 gives 0·log 0, which is not a number. Count it as 0, as torch.special.entr does.": (
            lambda probs, *given: math.nan if 0 in probs else _threshold(probs, *given)
        ),
    },
    why="If the target is certain, the threshold is the cap; if many tokens are possible, it is lower.",
)
