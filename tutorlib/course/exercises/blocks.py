"""The exercises of the chapter on blocks: guesses that do not fit, tokens per call, the likeliest paths of a block."""

import itertools
import math
from collections.abc import Sequence
from operator import mul

from .answers import array, expect, filled, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Two tokens that a block drafts


@checker
def check_fits(answer, first: float) -> Verdict:
    """Judge what a block drafts of "red kite" and "blue book": a dict with "fits" and "kept".

    `first` is the probability of "red kite"; the target writes nothing but these two.
    """
    due = {"fits": first**2 + (1 - first) ** 2, "kept": 1 + first**2 + (1 - first) ** 2}
    answer = filled(answer, due)
    mistakes: dict[str, dict[float, str]] = {
        "fits": {
            first: "That is how often the target writes red kite. The block draws its two tokens independently.",
            first**2: "That is the draft red kite alone. The draft blue book fits, too.",
            1 - due["fits"]: "That is how often the two tokens do *not* belong together.",
            1.0: "That would be a chain that reads its first guess. A block draws both tokens independently.",
            0.5: "The tokens are not equally likely: red comes with the probability of red kite.",
        },
        "kept": {
            2 * due["fits"]: "If the second token does not fit, the first one is kept all the same.",
            due["fits"]: "You counted one of the two tokens. The first one is always kept: there, p and q are equal.",
            2.0: "That would be a chain that reads its first guess.",
            1 + due["kept"]: "That also counts the token that the target adds.",
        },
    }
    for name, share in due.items():
        expect(answer[name], share, mistakes[name], part=name, tolerance=1e-3)
    return right("Both of the block's distributions are exactly right, and yet it loses a third of its second tokens.")


# ----------------------------------------------------------------------------------------------------------------------
# Tokens per call from the shares by position


def _tokens_per_call(shares: Sequence[float]) -> float:
    return 1 + sum(itertools.accumulate(shares, mul))


check_tokens_per_call = Exercise(
    """Judge ``my_tokens_per_call(shares)``: tokens of a target call, from the share accepted at each position.""",
    [([0.9, 0.8, 0.5],), ([0.7],), ([0.6, 0.9, 0.9, 0.4],), ([1.0, 1.0],), ([0.5, 0.0, 0.9],)],
    _tokens_per_call,
    {
        "You forgot the token that the target adds in every call.": lambda shares: _tokens_per_call(shares) - 1,
        "You added up the shares. A position is only checked if all tokens before it were accepted: multiply.": (
            lambda shares: 1 + math.fsum(shares)
        ),
        "You counted only whole drafts. A draft that is accepted in part gives tokens, too.": (
            lambda shares: 1 + len(shares) * math.prod(shares)
        ),
        "You used the mean of the shares at every position. Early positions count more, because the later ones are "
        "seldom reached.": lambda shares: _tokens_per_call([math.fsum(shares) / len(shares)] * len(shares)),
        "That is the probability that the whole draft is accepted.": lambda shares: math.prod(shares),
    },
    show=lambda shares: f"the shares {shares}",
    why="A low share at the first position costs the most, because every later position depends on it.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The most likely paths of a block

Block = Sequence[Sequence[float]]


def all_paths(block: Block) -> dict[tuple[int, ...], float]:
    """Every path of tokens, from the first position on, with its probability."""
    found: dict[tuple[int, ...], float] = {}
    for length in range(1, len(block) + 1):
        for path in itertools.product(*(range(len(row)) for row in block[:length])):
            found[path] = math.prod(row[token] for row, token in zip(block, path, strict=False))
    return found


def best_paths(block: Block, nodes: int, allowed=lambda path, block: True) -> list[tuple[int, ...]]:
    paths = {path: prob for path, prob in all_paths(block).items() if allowed(path, block)}
    return sorted(paths, key=lambda path: (-paths[path], path))[:nodes]


def _best_of_position(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


check_best_paths = Exercise(
    """Judge ``my_best_paths(block, nodes)``: the most likely paths of a block, as tuples of tokens, best first.""",
    [
        ([[0.7, 0.3], [0.6, 0.4]], 3),
        ([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.8, 0.1, 0.1]], 5),
        ([[0.45, 0.55], [0.35, 0.65], [0.3, 0.7]], 4),
        ([[0.95, 0.05], [0.9, 0.1], [0.85, 0.15]], 2),
    ],
    best_paths,
    {
        "You took whole paths only. The beginning of a path is a node, too, and it is more likely than the path.": {
            "allowed": lambda path, block: len(path) == len(block)
        },
        "You took the tokens of the first position only. Paths go on to the later positions.": {
            "allowed": lambda path, block: len(path) == 1
        },
        "That is a chain: you only continue the best token. A second token can be more likely than a long path.": {
            "allowed": lambda path, block: all(
                token == _best_of_position(row) for token, row in zip(path, block, strict=False)
            )
        },
        "You only vary the last token of a path. An earlier token can be the second best one as well.": {
            "allowed": lambda path, block: all(
                token == _best_of_position(row) for token, row in zip(path[:-1], block, strict=False)
            )
        },
    },
    show=lambda block, nodes: f"the block {block} and {nodes} nodes",
    why="No further pass of the network is needed for a larger tree: all its numbers are known after the first.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A pair of tokens that a block drafts badly

LEAST, AT_MOST = 0.01, 0.6


def second_kept(joint) -> float:
    """How often the second token is kept, if both are drawn from the right distributions of their positions."""
    second = joint.sum(0)
    return sum(min(joint[x, y], joint[x].sum() * second[y]) for x in (0, 1) for y in (0, 1))


@checker
def check_joint(answer) -> Verdict:
    """Judge the probabilities of aa, ab, ba and bb of a target whose second token a block seldom gets right."""
    joint = array(answer, (2, 2), "two rows of two probabilities")
    if not (joint >= 0).all() or abs(joint.sum() - 1) > 1e-6:
        return wrong(f"The four probabilities must sum to 1, got {short(joint)}.")
    if not (joint >= LEAST - 1e-9).all():
        return wrong(f"Each of the four texts must have a probability of at least {LEAST}, got {short(joint)}.")
    kept = second_kept(joint)
    said = f"The second token is kept with probability {kept:.3f}."
    if kept > 1 - 1e-6:
        return wrong(
            f"{said} In your target, the second token does not depend on the first one, so a block loses nothing."
        )
    if kept > AT_MOST + 1e-9:
        more = "Let each first token have a favourite of its own, and let both first tokens be about equally likely."
        return wrong(f"{said} It should be at most {AT_MOST}. {more}")
    return right(f"{said} A chain that reads the first token could keep it always.")
