"""The exercises of the EAGLE-3 chapter: mistakes and levels, the map d2t, what a training step reads, two trees."""

import math

import numpy as np
import torch

from .answers import filled, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# What a mistake costs in a tree of one level

ONE_LEVEL = {
    "features off by one": (
        "fewer",
        "The first guess is made from the target's features, so wrong features harm it too.",
    ),
    "state normed": (
        "the same",
        "The state is passed on to make the second guess. But a tree of one level has none.",
    ),
    "wrong order of layers": (
        "fewer",
        "The first guess is made from these three states, so their order matters for it too.",
    ),
    "empty map": ("fewer", "Every guess is translated by the map, including the first."),
}


@checker
def check_one_level(prediction) -> Verdict:
    """Judge a prediction of which mistakes cost tokens in a tree of one level: a dict like ONE_LEVEL."""
    prediction = filled(prediction, ONE_LEVEL)
    for mistake, (outcome, because) in ONE_LEVEL.items():
        if prediction[mistake] not in ("fewer", "the same"):
            return wrong(f"{short(prediction[mistake])} is neither 'fewer' nor 'the same'.")
        if prediction[mistake] != outcome:
            return wrong(f"{mistake}: not {prediction[mistake]!r}. {because}")
    return right("Now run `with_fault(fault, nodes=2, depth=1, top_k=2)` for each fault, and compare.")


# ----------------------------------------------------------------------------------------------------------------------
# The map from the draft's tokens to the target's


def _spread(logits, d2t, vocab_size, target=lambda own, offset: own + offset, filler=-math.inf):
    made = np.full((len(logits), vocab_size), filler)
    made[:, target(np.arange(len(d2t)), d2t.numpy())] = logits
    return made


def reduced(tokens, vocab_size):
    """(logits, d2t, vocab_size) of a network that knows these tokens. In the first row all logits are negative."""
    own = torch.arange(len(tokens))
    return torch.stack([-1 - own * 0.75, 2.5 - (own - 1.5).abs() * 1.25]), torch.tensor(tokens) - own, vocab_size


check_spread = Exercise(
    """Judge ``my_spread(logits, d2t, vocab_size)``: the draft network's logits over the target's vocabulary.""",
    [reduced((1, 2, 5, 6, 9), 20), reduced((0, 1, 2, 3), 5), reduced((3, 4, 5), 9), reduced((0, 1), 5)],
    _spread,
    {
        "The known tokens are right. But you gave unknown tokens the logit 0, which is the largest one if all others "
        "are negative. Give them -inf, so that they are impossible.": {"filler": 0.0},
        "You used d2t as the target's ids. It holds *offsets* that must be added to the network's ids. Several tokens "
        "have the same offset, so they overwrite each other.": {"target": lambda own, offset: offset},
        "You left the map out: the network's token i is not the target's token i. No error is raised, but the guesses "
        "are rejected.": {"target": lambda own, offset: own},
        "You added the offset twice: the target's id is i + d2t[i].": {"target": lambda own, offset: own + 2 * offset},
        "You subtracted the offset: the target's id is i + d2t[i].": {"target": lambda own, offset: own - offset},
    },
    why="The network's id plus the offset is the target's id. Tokens that the network does not know are impossible.",
)

# ----------------------------------------------------------------------------------------------------------------------
# What a training step reads


def reads(length, step, features=np.tri, own=np.eye):
    """The mask of the features that each position reads, followed by those of the states of each earlier step."""
    return np.hstack([features(length), *(own(length) for _ in range(step - 1))]).astype(bool)


def with_features_ahead(length, step):
    return reads(length, step, features=lambda length: np.tri(length, k=step - 1))


check_reads = Exercise(
    """Judge ``my_reads(length, step)``: what each position may read in a given step of training.""",
    [(4, 1), (4, 2), (5, 3), (3, 4)],
    reads,
    {
        "Your positions read features that come after their own. When the network drafts from a position, the target "
        "has not read those tokens yet, so the network has only its own states for them.": (
            with_features_ahead,
            {"features": lambda length: np.ones((length, length))},
        ),
        "Your positions read states of other positions. Those belong to drafts that start elsewhere. From each earlier "
        "step, a position reads only its own state.": {"own": np.tri},
        "Your positions leave out the text before them. In every step, each position reads all features up to its "
        "own.": {"features": np.eye},
        "Your positions read no states of their own. From step 2 on, each position also reads its own state from each "
        "earlier step.": {"own": lambda length: np.zeros((length, length))},
        "Your positions do not read their own feature. It is the latest that they know from the target.": {
            "features": lambda length: np.tri(length, k=-1)
        },
    },
    why="Each position reads all features up to its own, and its own state from each earlier step, just as in "
    "drafting.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A large tree that loses, and a small one that wins

CALL_MS, TOKEN_MS, LEVEL_MS = 20, 0.7, 1
LEAST = 1.5


def speed_up(nodes, levels, tokens):
    """The speed of a tree relative to the plain loop, on the exercise's machine."""
    plain = tokens * (CALL_MS + TOKEN_MS)
    return plain / (CALL_MS + TOKEN_MS * (nodes + 1) + LEVEL_MS * levels)


@checker
def check_two_trees(trees) -> Verdict:
    """Judge two trees, "large" and "small", each (candidates, levels, tokens per call)."""
    trees = filled(trees, ("large", "small"))
    found = {}
    for name in ("large", "small"):
        try:
            nodes, levels, tokens = map(float, trees[name])
        except (TypeError, ValueError):
            return wrong(f"({name}) Expected three numbers: candidates, levels, tokens per call.")
        if not (nodes % 1 == levels % 1 == 0 and 1 <= levels <= nodes < 10_000):
            return wrong(
                f"({name}) Give whole numbers of candidates and levels, at least 1 and below 10,000. A tree has at "
                "most as many levels as candidates."
            )
        if not 1 <= tokens <= levels + 1:
            return wrong(f"({name}) A step yields at least one token, and at most one for each level and one more.")
        found[name] = tokens, speed_up(nodes, levels, tokens)
    (many, slow), (few, fast) = found["large"], found["small"]
    if many <= few:
        return wrong("The large tree must yield more tokens per call than the small one.")
    if slow >= 1:
        return wrong(
            f"The large tree is {slow:.2f} times as fast as the plain loop. It must be slower: give it more "
            "candidates, or fewer tokens per call."
        )
    if fast < LEAST:
        return wrong(
            f"The small tree is {fast:.2f} times as fast as the plain loop, but it must reach {LEAST}. Give it fewer "
            "candidates, or more tokens per call."
        )
    return right(f"The large tree is {slow:.2f} times as fast as the plain loop, and the small one {fast:.2f} times.")
