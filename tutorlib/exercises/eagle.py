"""The exercises of the EAGLE chapter: pairs, counting tokens, positions and mask, the best nodes."""

import math

import numpy as np
import torch

from ..step import Step
from ..tree import TokenTree
from .judge import Exercise, array, listed, parts
from .medusa import PARENTS, ancestors, positions, siblings

# ----------------------------------------------------------------------------------------------------------------------
# Which token goes with which feature


def features(rows):
    """A feature for each row, no two alike."""
    return torch.tensor([[row + 1.0, 0.5 - row, row * row] for row in range(rows)])


def call(read, path, drawn):
    return list(read), features(len(read)), list(path), drawn


def pairs(read, features, path, drawn):
    rows = [0, *(node + 1 for node in path)]
    return [*(read[row] for row in rows[1:]), drawn], features[rows]


def pairs_of_tokens_and_their_own_features(read, features, path, drawn):
    rows = [0, *(node + 1 for node in path)]
    return [read[row] for row in rows], features[rows]


def pairs_by_node_numbers(read, features, path, drawn):
    return [*(read[node + 1] for node in path), drawn], features[[0, *path]]


def tokens_and_features(answer, due):
    tokens, rows = parts(answer, 2, "a list of tokens and the rows of features that go with them")
    tokens = listed(tokens)
    return tokens, array(rows, (len(tokens), due[1].shape[1]), "a row of features for each token,")


check_pairs = Exercise(
    """Judge ``my_pairs(read, features, path, drawn)``: the tokens and features that the draft network reads next.""",
    # The prompt; a tree with an accepted path; a tree of which nothing is accepted; a chain, accepted in part.
    [
        call((11, 12, 13, 14), (0, 1, 2), 15),
        call((15, 21, 22, 23, 24, 25), (1, 4), 31),
        call((31, 41, 42), (), 51),
        call((51, 61, 62, 63), (0,), 71),
    ],
    pairs,
    {
        "You pair each token with its own feature. That feature was made from this token and knows it already. It "
        "lacks the token that came after it, and in the last pair that is the drawn one.": (
            pairs_of_tokens_and_their_own_features
        ),
        "Your pairs are right, but the last one is missing: the drawn token, with the last row that was kept. The next "
        "draft starts from there.": lambda *asked: tuple(part[:-1] for part in pairs(*asked)),
        "You feed everything that the target read. Rejected nodes are not in the text: keep row 0 and the rows of the "
        "path.": lambda read, features, path, drawn: ([*read[1:], drawn], features),
        "You feed the last pair alone. The accepted tokens before it need real features too: the network had only its "
        "own guesses there.": lambda *asked: tuple(part[-1:] for part in pairs(*asked)),
        "You took the number of a node for the number of its row: node n is in row n + 1.": pairs_by_node_numbers,
    },
    read=tokens_and_features,
    why="Each feature goes with the token that it could not know yet: the one that came after it.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Counting tokens


def step(accepted: int, drafted: int, cut: int = 0) -> Step:
    """A step that drafted so many tokens and accepted some; `cut` tokens are then cut off its end."""
    tokens, rejected = list(range(50, 51 + accepted)), drafted - accepted
    tree = TokenTree(tokens[:accepted] + [7] * rejected, [*range(-1, accepted - 1), *[-1] * rejected])
    made = Step(tokens, tree.tokens, accepted, tree=tree if drafted else None, path=tuple(range(accepted)))
    return made.first(len(tokens) - cut)


def mean(values):
    return sum(values) / len(values) if values else math.nan


def counts(steps, gave=lambda step: len(step.tokens) + step.cut, per_call=None, over=None):
    """(τ, tokens per call) by the rules, or with another count of what a step gave, or over other steps."""
    tau = mean([gave(step) for step in steps if (step.drafted if over is None else over(step))])
    return tau, mean([len(step.tokens) for step in steps]) if per_call is None else per_call(steps)


def in_words(steps):
    return "steps of " + ", ".join(
        f"{len(step.tokens)} tokens ({len(step.drafted)} drafted, {step.cut} cut off)" for step in steps
    )


check_counts = Exercise(
    """Judge ``my_counts(steps)``: the mean accepted length τ, and the tokens per call, of a run's steps.""",
    # The last step is cut by two; a step without a draft in the middle; cut by one; the prompt's call alone.
    [
        ([step(0, 0), step(3, 9), step(0, 9), step(4, 9, cut=2)],),
        ([step(0, 0), step(5, 8), step(0, 0), step(1, 8), step(0, 0)],),
        ([step(0, 0), step(2, 6), step(6, 6), step(3, 6, cut=1)],),
        ([step(0, 0)],),
    ],
    counts,
    {
        "Your τ leaves out the bonus token. After the accepted tokens the target adds one of its own in every step.": (
            {"gave": lambda step: len(step.tokens) + step.cut - 1},
            {"gave": lambda step: step.accepted},
        ),
        "Your τ takes the last step as the budget cut it. Add `cut`: so many tokens more had been found.": (
            {"gave": lambda step: len(step.tokens)},
            {"gave": lambda step: step.accepted + 1},
        ),
        "Your τ is the mean over all calls. Calls that checked no draft, like the prompt's, say nothing about the "
        "drafts.": {"over": lambda step: True},
        "Your tokens per call leave out the prompt's call. It is a call of the target too, and it gave a token.": (
            lambda steps: counts(steps, per_call=lambda steps: mean([len(step.tokens) for step in steps[1:]])),
            lambda steps: counts(steps, per_call=lambda steps: sum(len(s.tokens) for s in steps) / len(steps[1:])),
        ),
        "Your tokens per call count tokens that were cut off. They are not in the text.": lambda steps: counts(
            steps, per_call=lambda steps: mean([len(step.tokens) + step.cut for step in steps])
        ),
    },
    show=in_words,
    why="τ counts the target's own token, and tokens per call counts the prompt's call.",
    hint="Where nothing was drafted, there is nothing to take the mean of: float('nan').",
)

# ----------------------------------------------------------------------------------------------------------------------
# Positions and mask


def places(parents, length, tree=ancestors, before=0):
    text = np.ones((len(parents), length - 1), dtype=bool)
    return positions(parents, length - 1 + before), np.hstack([text, tree(parents)])


check_places = Exercise(
    """Judge ``my_places(parents, length)``: positions of drafted nodes in the network's sequence, and their mask.""",
    [(PARENTS, 7), (PARENTS, 2)],
    places,
    {
        "Your positions are those of the *target*. The draft network's sequence is shorter by one: its position 0 "
        "holds the second token of the text, with the feature of the first.": {"before": 1},
        "Your positions count nodes. A position says how far into the sequence a token stands: siblings share it.": (
            lambda parents, length: (length - 1 + np.arange(len(parents)), places(parents, length)[1]),
            lambda parents, length: (length + np.arange(len(parents)), places(parents, length)[1]),
        ),
        "In your mask siblings see each other. They are two guesses for the same position: if one of them is right, "
        "the other was never said.": {"tree": lambda parents: ancestors(parents) | siblings(parents)},
        "Your mask of the nodes is the causal mask of plain text. A node sees its own ancestors and itself, and no "
        "other guess.": {"tree": lambda parents: np.tril(siblings(parents) | True)},
        "In your mask the columns of the nodes come first. The text comes first.": lambda parents, length: (
            places(parents, length)[0],
            np.roll(places(parents, length)[1], len(parents), axis=1),
        ),
    },
    why="One position less than the target's. And every node sees the text, and of the tree only its own path.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The best of a tree


def rerank(log_probs, parents, nodes, score=sum, number=lambda kept, parent: kept.index(parent)):
    """The best paths by `score`, the earlier of equal ones; and how the parents of those kept are numbered."""
    paths = []
    for log_prob, parent in zip(log_probs, parents, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else ()), log_prob])
    kept = sorted(sorted(range(len(paths)), key=lambda i: (-score(paths[i]), i))[:nodes])
    return kept, [number(kept, parents[i]) if parents[i] in kept else -1 for i in kept]


def guesses(probs, parents, nodes):
    return [math.log(prob) for prob in probs], list(parents), nodes


check_rerank = Exercise(
    """Judge ``my_rerank(log_probs, parents, nodes)``: which candidates are kept, and their parents among those.""",
    [
        guesses((0.6, 0.35, 0.3, 0.2, 0.31), (-1, -1, 0, 0, 1), 3),
        guesses((0.5, 0.3, 0.1, 0.64, 0.22, 0.9, 0.05, 0.7, 0.1, 0.95), (-1, -1, -1, 0, 0, 1, 1, 3, 3, 5), 5),
        guesses((0.9, 0.05, 0.3, 0.25, 0.8), (-1, -1, 0, 0, 1), 3),
        guesses((0.4, 0.35, 0.7, 0.3, 0.9), (-1, -1, 0, 0, 2), 9),  # more than there are
        guesses((0.6, 0.4, 0.5, 0.4, 1.0), (-1, -1, 0, 0, 1), 2),  # 4 is as probable as its parent, 1
        guesses((1.0, 1.0, 1.0), (-1, 0, 1), 1),
    ],
    rerank,
    {
        "You rank candidates by their own probability. However certain a guess is, it is worth nothing where its "
        "parent is wrong: add the log-probabilities along the path.": {"score": lambda path: path[-1]},
        "You take the mean along the path. That hides that a long path is right less often than its beginning: take "
        "the sum.": {"score": lambda path: sum(path) / len(path)},
        "You keep the *least* probable paths. Log-probabilities are negative: the largest, nearest to 0, is the "
        "best.": {"score": lambda path: -sum(path)},
        "You keep one candidate too few. The last token of the text is not one of the `nodes`.": (
            lambda log_probs, parents, nodes: rerank(log_probs, parents, nodes - 1)
        ),
        "The right candidates, but their parents have their old numbers. Give the index of each parent in the list of "
        "those kept.": {"number": lambda kept, parent: parent},
    },
    why="A path is never more probable than its own beginning, so the best ones form a tree.",
)
