"""The exercises of the Medusa chapter: labels, the mask, positions, paths as a matrix, a threshold, a tree's worth."""

import math

import numpy as np

from .judge import Exercise, array, tensor

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

# Three nodes follow the text; two of them have children, and one branch goes four nodes deep.
PARENTS = [-1, -1, 0, 0, 1, 3, -1, 5]


def ancestors(parents):
    """Which nodes are node i itself or lie on the path to it: (nodes, nodes) of bool, a row for each node."""
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def siblings(parents):
    return np.equal.outer(parents, parents)


def square_of_booleans(answer, due):
    return array(answer, due.shape, "True and False, a row and a column for each node,")


check_mask = Exercise(
    """Judge ``my_mask(parents)``: which node of a tree may attend to which, shape (nodes, nodes), of bool.""",
    [(PARENTS,)],
    ancestors,
    {
        "That is the causal mask of plain text, where each node sees all nodes before it. In a tree, siblings are two "
        "guesses for the same position: if one of them is right, the other was never said.": (
            lambda parents: np.tril(siblings(parents) | True)
        ),
        "Siblings see each other. They are two guesses for the same position: if one of them is right, the other was "
        "never said, and nothing may attend to it.": (
            lambda parents: ancestors(parents) | siblings(parents),
            lambda parents: ancestors(parents) | np.tril(siblings(parents)),
        ),
        "Each node sees itself and its parent, but no further. Go all the way up: a token depends on every token "
        "before it.": lambda parents: np.eye(len(parents), dtype=bool) | np.equal.outer(parents, range(len(parents))),
        "No node sees itself. A token's own key and value are part of what its row is computed from.": (
            lambda parents: ancestors(parents) & ~np.eye(len(parents), dtype=bool)
        ),
        "Your mask is the wrong way round. Row i says what node i attends *to*, and True means that it may.": (
            lambda parents: ancestors(parents).T,
            lambda parents: ~ancestors(parents),
        ),
    },
    read=square_of_booleans,
    why="Each node sees itself and the nodes on the path to it, and no other guess.",
)


def positions(parents, length):
    return length + ancestors(parents).sum(1) - 1


check_positions = Exercise(
    """Judge ``my_positions(parents, length)``: the position of each node, after a text of `length` tokens.""",
    [(PARENTS, 7), (PARENTS, 1)],
    positions,
    {
        "You count nodes. A position says how far into the *text* a token stands, so it grows with the depth in the "
        "tree: siblings are guesses for the same position.": (
            lambda parents, length: length + np.arange(len(parents)),
            lambda parents, length: np.arange(len(parents)),
        ),
        "That is the depth alone. The tree continues a text: add the text's length.": (
            lambda parents, length: positions(parents, 0)
        ),
        "One too many: the text ends at position length - 1, so its direct children have position `length`.": (
            lambda parents, length: positions(parents, length + 1)
        ),
        "One too few: position length - 1 already belongs to the last token of the text.": (
            lambda parents, length: positions(parents, length - 1)
        ),
        "You give all nodes the same position. A child comes one position after its parent.": (
            lambda parents, length: np.full(len(parents), length)
        ),
    },
    why="Siblings share a position: they are guesses for the same place in the text.",
)


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

# accuracies[head][rank], and trees as paths of ranks
ACCURACIES = [[0.6, 0.2, 0.1], [0.5, 0.3, 0.05], [0.4, 0.1, 0.15]]
TREES = [
    [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)],
    [(2,)],
    [(0,), (0, 2), (0, 2, 1), (0, 2, 2)],
]


def path_right(accuracies, path):
    return math.prod(accuracies[head][rank] for head, rank in enumerate(path))


def leaves(tree):
    return [path for path in tree if not any(other[:-1] == path for other in tree)]


def worth(accuracies, tree, *, own=1, of=path_right):
    return own + sum(of(accuracies, path) for path in tree)


check_worth = Exercise(
    """Judge ``my_worth(accuracies, choices)``: how many tokens a step with this tree gives on average.""",
    [(ACCURACIES, tree) for tree in TREES],
    worth,
    {
        "You left out the token that the target itself adds in every step.": {"own": 0},
        "A node counts if its whole path is right: multiply along the path, and do not take the last guess alone.": {
            "of": lambda accuracies, path: accuracies[len(path) - 1][path[-1]]
        },
        "You counted the leaves. A path that is right half of the way still gives half of its tokens: every node "
        "counts.": lambda accuracies, tree: worth(accuracies, leaves(tree)),
        "You multiplied each node by its depth. The nodes above it are counted already: a node is one token.": {
            "of": lambda accuracies, path: len(path) * path_right(accuracies, path)
        },
        "You read the accuracies as [rank][head]. They are accuracies[head][rank].": {
            "of": lambda accuracies, path: math.prod(accuracies[rank][head] for head, rank in enumerate(path))
        },
    },
    why="One token for certain, and one for each node whose whole path is right.",
)
