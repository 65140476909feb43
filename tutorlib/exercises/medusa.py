"""The exercises of the Medusa chapter: a tree by hand, labels, a wide tree, a threshold, paths as a matrix."""

import math

import numpy as np

from .judge import Exercise, Verdict, array, checker, compare, filled, listed, number, right, tensor, wrong

TEXTS = [[11, 12, 13, 14, 15, 16], [21, 22, 23, 24], [31, 32]]
IGNORED = -100  # what torch's cross-entropy leaves out


def labels(texts, head, ahead=2, filler=IGNORED):
    """At each position of each text the token `head + ahead` positions on; `filler` where there is none."""
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
        "starts one position later, at t + 2.": {"ahead": 1},
        "You look i + 3 positions ahead, one too many. Heads count from 0, and head 0 guesses the token at t + 2.": {
            "ahead": 3
        },
        "You look 2 positions ahead for every head. Each head looks one position further than the head before it.": (
            lambda texts, head: labels(texts, 0)
        ),
        "After the end of a text you fill up with a real token, so the head would learn to say it there. Use -100: "
        "cross-entropy leaves it out.": (
            {"filler": 0},
            labels_that_repeat_the_last_token,
        ),
        "The tokens are right. But cross-entropy leaves out -100 only, and raises an error for -1.": {"filler": -1},
    },
    why="Head i looks i + 2 positions ahead. After the end of a text there is nothing to learn.",
)

# A tree whose mask and positions are to be predicted: two guesses for the next token, and three nodes below the first.
PARENTS, LENGTH = [-1, -1, 0, 0, 3], 7
DEPTHS = [0, 0, 1, 1, 2]


@checker
def check_by_hand(prediction) -> Verdict:
    """Judge how many cells of the tree's mask are True, and the nodes' positions: a dict, "cells" and "positions"."""
    filled(prediction, ("cells", "positions"))
    positions = listed(prediction["positions"])
    if positions == [LENGTH + node for node in range(len(PARENTS))]:
        return wrong(
            "You count nodes. A position says how far into the *text* a token stands: siblings are guesses for the "
            "same position."
        )
    if positions == DEPTHS:
        return wrong("Those are the depths alone. The tree continues a text: add the text's length.")
    if positions == [LENGTH + depth + 1 for depth in DEPTHS]:
        return wrong(f"One too many: the text ends at position {LENGTH - 1}, so the tree begins at {LENGTH}.")
    if positions == [LENGTH + depth - 1 for depth in DEPTHS]:
        return wrong(f"One too few: position {LENGTH - 1} already belongs to the last token of the text.")
    if positions != [LENGTH + depth for depth in DEPTHS]:
        return wrong("A node's position is the text's length plus the node's depth, one number for each node.")
    return compare(
        prediction["cells"],
        len(DEPTHS) + sum(DEPTHS),
        {
            15: "15 is the causal mask of plain text, where each node sees all nodes before it. Siblings must not.",
            13: "You let siblings see each other. If one of them is right, the other was never written.",
            sum(DEPTHS): "Each node also sees itself.",
            8: "You go up to the parent only. A node sees all nodes on the path to it.",
        },
        why="Each node sees as many nodes as its path is long: 1, 1, 2, 2 and 3.",
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
            return wrong(f"The shares of head {head} must be 0 or more, and their sum at most 1: one token is right.")
        if row != sorted(row, reverse=True):
            return wrong(f"Head {head}'s best guess is rank 0: let the shares fall from rank to rank.")
    third, deep = rows[0][2], rows[0][0] * rows[1][0]
    if third > deep:
        return right("Where a head is unsure, more of its guesses are worth more than a longer path.")
    said = f"The third guess of head 0 is right in {third:.2f} of the cases, the path (0, 0) in {deep:.2f}."
    if rows[1][0] > 0.5 >= rows[0][0]:
        return wrong(f"{said} Head 1 is too good for a wide tree: make it worse, or head 0 less sure.")
    return wrong(f"{said} A wide tree needs a third guess of head 0 that is worth more than the path (0, 0).")


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
    """Any negative number does where a path has ended: it equals no token."""
    made = array(answer, due.shape, "tokens, a row for each path,")
    return np.where(made < 0, -1, made)


check_paths = Exercise(
    """Judge ``my_paths(tokens, paths)``: the tokens of each path, a row for each, filled up to the longest.""",
    [([5, 0, 6, 0, 4, 2], [[0, 2, 5], [0, 3], [1, 4], [1]])],
    matrix,
    {
        "You fill up short paths with 0, which is a real token. If the target says token 0 after the path, the path "
        "seems one token longer than it is. Fill up with a number that is no token: -1.": ({"filler": lambda row: 0.0}),
        "You repeat the last token of a short path. If the target repeats it too, the path seems longer than it is. "
        "Fill up with a number that is no token: -1.": {"filler": lambda row: row[-1]},
        "Those are the numbers of the nodes. Look up their tokens.": (
            lambda tokens, paths: matrix(range(len(tokens)), paths)
        ),
        "You fill up on the left. Tokens are compared from the left, so the path has to begin there.": {"left": True},
        "Your paths run from the leaf up. Begin with the node that follows the text.": (
            lambda tokens, paths: matrix(tokens, [path[::-1] for path in paths])
        ),
    },
    read=matrix_of_tokens,
    why="-1 equals no token, so a path never seems longer than it is.",
)


def entropy(probs, log=math.log):
    return -math.fsum(prob * log(prob) for prob in probs.tolist() if prob)


def threshold(probs, epsilon, delta, *, of=min, log=math.log, sign=-1):
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
    threshold,
    {
        "You swapped ε and δ. ε is the cap (0.09 in the authors' runs), and δ the factor of exp(-H) (0.3 there).": (
            lambda probs, epsilon, delta: threshold(probs, delta, epsilon)
        ),
        "You took the larger of the two. ε is a cap, so take the minimum.": {"of": max},
        "Your entropy is in bits. The formula has exp, so H is in nats: use the natural logarithm.": {"log": math.log2},
        "The sign of H is wrong. The less certain the target is, the *lower* the threshold: exp(-H).": {"sign": 1},
        "A probability of 0 gives 0·log 0, which is not a number. Count it as 0, as torch.special.entr does.": (
            lambda probs, *given: math.nan if 0 in probs else threshold(probs, *given)
        ),
    },
    why="A cap where the target is certain, and a lower threshold where many tokens are possible.",
)
