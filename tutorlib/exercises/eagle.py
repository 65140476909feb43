"""Checkers for chapter 11: pairs, the norm, the bonus token, places and mask, the best of a tree, and the map d2t.

Answers are tried on calls, networks, runs and trees made for the purpose, on which every usual mistake comes to another
result than the right one; an answer that equals one of them is told which. What is right is computed here, from the
papers, not with `tutorlib.heads` or `tutorlib.decoders`.
"""

import copy
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from ..run import Step
from ..tree import TokenTree
from . import Verdict, _Ended, _short, as_array, attempt, checker, right, wrong
from .medusa import MASKS, PARENTS, _ancestors, _depths, _first_wrong_pair, _shown

_near = functools.partial(np.allclose, rtol=1e-6, atol=1e-6, equal_nan=True)
Mistakes = Mapping[str, Callable | tuple[Callable, ...]]  # what to say, and what is mistaken: one function or several

# ----------------------------------------------------------------------------------------------------------------------
# Which token goes with which feature


class Call(NamedTuple):
    """One call of the target: what it read, which nodes of it were accepted, and the token that was drawn then."""

    read: tuple[int, ...]
    path: tuple[int, ...]
    drawn: int

    @property
    def kept(self) -> list[int]:
        """The rows that belong to the text."""
        return [0, *(node + 1 for node in self.path)]

    @property
    def own(self) -> list[int]:
        """The tokens of those rows."""
        return [self.read[row] for row in self.kept]

    @property
    def later(self) -> list[int]:
        """The tokens that came after them."""
        return [*self.own[1:], self.drawn]


# The prompt; a tree of which a path is accepted; one of which nothing is; a chain of which the beginning is.
CALLS = (
    Call((11, 12, 13, 14), (0, 1, 2), 15),
    Call((15, 21, 22, 23, 24, 25), (1, 4), 31),
    Call((31, 41, 42), (), 51),
    Call((51, 61, 62, 63), (0,), 71),
)


@checker
def check_pairs(my_pairs) -> Verdict:
    """Judge ``my_pairs(read, features, path, drawn)``: the tokens and the features that the draft network reads next.

    The target has read the tokens `read` in one call, and `features` has a row for each of them: row 0 is the text's
    last token (in the first call the prompt's first), row n + 1 the tree's node n. The nodes `path` were accepted, and
    then the token `drawn` was drawn. The answer is two things of one length: a list of tokens, and the rows of features
    that go with them.
    """
    answers, failed = _tried(CALLS, lambda call: _pairs(my_pairs, call))
    case = _first_off(answers, CALLS, _right_pairs)
    if case is None:
        return failed or right("Each feature goes with the token that it could not know: the one that came after it.")
    (read, path, drawn), (tokens, rows), due = CALLS[case], answers[case], _right_pairs(CALLS[case])
    return wrong(
        f"{_named(answers, CALLS, PAIR_MISTAKES)}Where the target had read {read}, accepted the nodes {path} and drawn "
        f"{drawn}, you gave the tokens {tokens} with the rows {rows}; expected {due[0]} with {due[1]}."
    )


def _pairs(my_pairs, call: Call) -> tuple[list[int], list[int]]:
    """A reader's tokens, and the numbers of the rows that go with them."""
    features = torch.stack([torch.tensor([row + 1.0, 0.5 - row, row * row]) for row in range(len(call.read))])
    answer = _asked(my_pairs, list(call.read), features, list(call.path), call.drawn)
    tokens, mine = _two(answer, "two things, the tokens and the features")
    tokens, mine = _whole(tokens, "a list of tokens"), _array(mine, "rows of features")
    if mine.size and (mine.ndim != 2 or mine.shape[1] != features.shape[1]):
        raise _Ended(wrong(f"Expected rows of {features.shape[1]} features; yours have shape {mine.shape}."))
    same = np.isclose(mine.reshape(-1, 1, features.shape[1]), features).all(-1)
    if not same.any(-1).all():
        raise _Ended(wrong(f"You give what is none of the rows of features: {_shown(mine[~same.any(-1)][0])}."))
    return tokens, same.argmax(-1).tolist()


def _as_rows(call: Call) -> list[int]:
    """The tokens of somebody who takes a node's number for that of its row."""
    return [*(call.read[node] for node in call.path), call.drawn]


_right_pairs = operator.attrgetter("later", "kept")
PAIR_MISTAKES: Mistakes = {
    "You pair x_t with f_t. That feature was made from this token and knows it; what it cannot know is the token "
    "that came after it: in the last pair the drawn one.": lambda c: (c.own, c.kept),
    "You pair x_{t+1} with f_{t+1}, each token with the feature that was made from it. The one *before* it goes with "
    "it, the row of its parent.": lambda c: (c.own[1:], c.kept[1:]),
    "You shift the wrong way: x_t goes with f_{t+1}, which knows the token and the one after it as well. The feature "
    "goes with the token that comes after it.": lambda c: (c.own[:-1], c.kept[1:]),
    "Your pairs are right, but the last one is missing: the drawn token, with the last row that was kept. From there "
    "the next draft is guessed.": lambda c: (c.own[1:], c.kept[:-1]),
    "You pair x_{t+2} with f_t: shifted by one too many.": (
        lambda c: ([*c.own[2:], c.drawn], c.kept[:-1]),
        lambda c: (c.later[1:], c.kept[:-1]),
    ),
    "You feed everything that the target read. What was not accepted is not in the text: keep row 0 and those of the "
    "path.": lambda c: ([*c.read[1:], c.drawn], [*range(len(c.read))]),
    "You feed the last pair alone. The accepted tokens before it have places too: what the network had drafted there "
    "was made from its own guesses of the features.": lambda c: ([c.drawn], c.kept[-1:]),
    "You took the number of a node for that of its row: node n is in row n + 1.": (
        lambda c: (_as_rows(c), [0, *c.path]),
        lambda c: (_as_rows(c), [len(c.read) - 1, *c.path]),  # what features[[-1, *path]] is
        lambda c: (_as_rows(c), [*c.path]),
        lambda c: (_as_rows(c), c.kept),
        lambda c: (c.later, [0, *c.path]),
        lambda c: (c.later, [len(c.read) - 1, *c.path]),
    ),
    "Your tokens begin one too early: that of row 0 is in the text already.": lambda c: ([*c.own, c.drawn], c.kept),
    "Among your tokens the one that was drawn is missing.": lambda c: (c.own[1:], c.kept),
    "Among your tokens are those of nodes that were not accepted.": lambda c: ([*c.read[1:], c.drawn], c.kept),
    "Among your features row 0 is missing: it goes with the first token after it.": lambda c: (c.later, c.kept[1:]),
    "Among your features the last one is missing: it goes with the drawn token.": lambda c: (c.later, c.kept[:-1]),
    "Of the features you took the first ones. Take the rows of the path.": lambda c: (c.later, [*range(len(c.kept))]),
    "You took the features of the whole call, of what was refused as well.": lambda c: (c.later, [*range(len(c.read))]),
}


# ----------------------------------------------------------------------------------------------------------------------
# What is normed


class Network(NamedTuple):
    """A draft network that a reader's function is tried with, by the rules of EAGLE-1 or of EAGLE-3."""

    eagle: int
    layer: Callable
    norm: Callable
    head: Callable


WIDTH, VOCAB = 8, 61
DRAFTS = ((5, 8), (12, 6), (40, 1))  # the token that goes in first, and how many are drafted


@checker
def check_draft(my_draft) -> Verdict:
    """Judge ``my_draft(network, token, feature, count)``: a chain of `count` tokens, each the likeliest.

    `network` has `layer(token, state)`, `norm(state)` and `head(state)`, and `network.eagle` is 1 or 3. The first call
    of the layer is given `token` and `feature`. For EAGLE-3 `norm` is the network's own; for EAGLE-1 it is the target's
    final norm, and `feature` has been through it. The answer is a list of `count` tokens.
    """
    cases = [(eagle, *draft) for eagle in (3, 1) for draft in DRAFTS]
    answers, failed = _tried(cases, lambda case: _tokens_of(my_draft, *case))
    complaints = []
    for eagle, mine in ((3, answers[: len(DRAFTS)]), (1, answers[len(DRAFTS) :])):
        due = functools.partial(_drafted, eagle)
        case = _first_off(mine, DRAFTS, due)
        if case is None:
            continue
        first, drafted, expected = DRAFTS[case][0], mine[case], due(DRAFTS[case])
        mistakes = {said: functools.partial(due, **way) for said, way in DRAFT_MISTAKES[eagle].items()}
        said = _named(mine, DRAFTS, mistakes) or f"after the token {first} you drafted {drafted}, expected {expected}. "
        agree = next(place for place, pair in enumerate(zip(drafted, expected)) if pair[0] != pair[1])
        complaints.append(f"EAGLE-{eagle}: {said}(Right from the start: {agree} of {len(expected)} tokens.)")
    if complaints:
        return wrong(" ".join(complaints))
    return failed or right("What goes on is the state as the layer made it; a norm stands before EAGLE-3's head alone.")


@functools.cache
def _network(eagle: int) -> Network:
    # Found by trying: no two mistakes come to the same draft.
    generator = torch.Generator().manual_seed(16)
    embedding, joining, output = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((VOCAB, WIDTH), (WIDTH, 2 * WIDTH), (VOCAB, WIDTH))
    )
    weight = 0.1 + 2.9 * torch.rand(WIDTH, generator=generator, dtype=torch.float64)

    def layer(token, state):
        read = torch.cat([embedding[int(token)], state / (1e-6 + state.square().mean().sqrt())])
        return state + 2 * torch.tanh(joining @ read)

    def norm(state):
        return weight * state / (1e-6 + state.square().mean().sqrt())

    return Network(eagle, layer, norm, lambda state: output @ state)


def _feature(token: int) -> torch.Tensor:
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(500 + token), dtype=torch.float64)


def _tokens_of(my_draft, eagle: int, token: int, count: int) -> list[int]:
    mine = _whole(_asked(my_draft, _network(eagle), token, _feature(token), count), f"a list of {count} tokens")
    if len(mine) != count:
        raise _Ended(wrong(f"Expected a draft of length {count} for EAGLE-{eagle}, yours has {len(mine)}."))
    return mine


def _drafted(eagle: int, case: tuple[int, int], on="made", read="", given="state", token="new", pick=torch.argmax):
    """A draft by the rules, or with some of them broken: see `DRAFT_MISTAKES`."""
    network, (first, count) = _network(eagle), case
    last, state, tokens = first, _feature(first), [first] if token == "given" else []
    while len(tokens) < count:
        enters = {"state": state, "normed": network.norm(state), "feature": _feature(first)}[given]
        made = network.layer(first if token == "first" else last, enters)
        normed = network.norm(made)
        shown = {"made": made, "normed": normed, "twice": network.norm(normed), "enters": enters}
        last = int(pick(network.head(shown[read or ("normed" if eagle == 3 else "made")])))
        tokens.append(last)
        state = shown[on]
    return tokens


# What to say in each version, and what is done in `_drafted`.
_GOES_ON = "you go on with the normed state. The norm is for the head alone"
_ONCE = "EAGLE-1's features are after the target's final norm, and that is what its network guesses: "
_BOTH = {
    "you give the layer the target's feature in every step, not the state that it made.": {"given": "feature"},
    "the head reads what goes *into* the layer: it has not read the token yet.": {"read": "enters"},
    "you give the layer the first token in every step, not the one that was guessed before.": {"token": "first"},
    "you take the least likely token: argmax.": {"pick": torch.argmin},
    "your draft begins with the token that was given. It is in the text already.": {"token": "given"},
}
DRAFT_MISTAKES: dict[int, dict[str, dict]] = {
    3: {
        f"{_GOES_ON}: the next step is given the state from before it, as in training.": {"on": "normed"},
        f"{_GOES_ON}, and what your head reads has been through the norm twice.": {"on": "normed", "read": "twice"},
        f"{_GOES_ON}, and yours reads the state as the layer made it: exchange them.": {"on": "normed", "read": "made"},
        "the head reads the state as the layer made it. Between the two stands the norm.": {"read": "made"},
        "what the head reads has been through the norm twice. Once is enough.": {"read": "twice"},
        "you norm what you give to the layer. The norm is for the head alone.": {"given": "normed"},
        **_BOTH,
    },
    1: {
        f"{_ONCE}going on, you norm it a second time.": {"on": "normed"},
        f"{_ONCE}for the head you norm it a second time.": {"read": "normed"},
        f"{_ONCE}for the head you norm it twice more.": {"read": "twice"},
        f"{_ONCE}both going on and for the head, you norm it a second time.": {"on": "normed", "read": "normed"},
        f"{_ONCE}what you give to the layer you norm a second time.": {"given": "normed"},
        **_BOTH,
    },
}


# ----------------------------------------------------------------------------------------------------------------------
# The bonus token


def _step(accepted: int, drafted: int, cut: int = 0) -> Step:
    """A step that drafted so many tokens and accepted some; `cut` tokens are then cut off its end."""
    tokens, refused = list(range(50, 51 + accepted)), drafted - accepted
    tree = TokenTree(tokens[:accepted] + [7] * refused, [*range(-1, accepted - 1), *[-1] * refused])
    step = Step(tokens, tree.tokens, accepted, tree=tree if drafted else None, path=tuple(range(accepted)))
    return step.first(len(tokens) - cut)


# Runs: the last step cut by two; a step without a draft in the middle; cut by one; and the prompt's call alone.
RUNS = (
    (_step(0, 0), _step(3, 9), _step(0, 9), _step(4, 9, cut=2)),
    (_step(0, 0), _step(5, 8), _step(0, 0), _step(1, 8), _step(0, 0)),
    (_step(0, 0), _step(2, 6), _step(6, 6), _step(3, 6, cut=1)),
    (_step(0, 0),),
)


@checker
def check_counts(my_counts) -> Verdict:
    """Judge ``my_counts(steps)``: the mean accepted length τ, and the tokens per call, of a run's steps.

    Each step is one call of the target. τ is how many tokens a call that checks a draft gives on average, had the
    budget not cut the last one; NaN if none does. Tokens per call counts the text as it is, and every call.
    """
    answers, failed = _tried(RUNS, lambda steps: as_array(_asked(my_counts, list(steps)), (2,), "two numbers"))
    parts = []
    for which, name, due, mistakes in ((0, "τ", _tau, TAU_MISTAKES), (1, "Tokens per call", _per_call, CALL_MISTAKES)):
        mine = [pair[which] for pair in answers]
        case = _first_off(mine, RUNS, due, _near)
        if case is None:
            continue
        steps = [f"{len(s.tokens)} tokens ({len(s.drafted)} drafted, {s.cut} cut off)" for s in RUNS[case]]
        said = f"{name}: for steps of {', '.join(steps)} you gave {mine[case]:.4g}, expected {due(RUNS[case]):.4g}. "
        if math.isnan(due(RUNS[case])):
            said += "Nothing was drafted in this run, so there is nothing to take the mean of: NaN."
        # Not by the run without a draft: what a mistake makes of that one depends on how the division is guarded.
        parts.append((said + _named(mine[:3], RUNS, mistakes, _near)).strip())
    if parts:
        return wrong(" ".join(parts))
    if failed and len(answers) == len(RUNS) - 1:
        said = "Nothing was drafted, so there is nothing to take the mean of: say NaN, float('nan')."
        return wrong(f"In a run of the prompt's call alone your function fails: {failed.message}. {said}")
    return failed or right("τ counts the target's own token; tokens per call counts the prompt's call as well.")


def _drafting(steps) -> list[Step]:
    return [step for step in steps if step.drafted]


def _mean(count: Callable, over: Callable = _drafting, calls: Callable | None = None) -> Callable:
    """A function of steps: what `count` says of each that `over` picks, added, and divided by the `calls`."""

    def mean(steps) -> float:
        below = len((calls or over)(steps))
        return sum(map(count, over(steps))) / below if below else math.nan

    return mean


_after_first = operator.itemgetter(slice(1, None))
_COUNTS = _gave, _in_text, _accepted, _and_one = (
    lambda step: len(step.tokens) + step.cut,
    lambda step: len(step.tokens),
    lambda step: step.accepted,
    lambda step: step.accepted + 1,
)
_tau, _per_call = _mean(_gave), _mean(_in_text, list)
_BONUS = "You left out the bonus token. After the accepted ones the target adds one of its own, in every step"
_CUT = "of a step that was cut, `accepted` counts what is left: `tokens` and `cut` say what it gave."
_TWICE = "You counted the bonus token twice: `tokens` has it already, at its end."
TAU_MISTAKES: Mistakes = {
    f"{_BONUS}; τ counts it.": _mean(lambda step: _gave(step) - 1),
    f"{_BONUS}. And {_CUT}": _mean(_accepted),
    f"The bonus token is there. But {_CUT}": _mean(_and_one),
    "You counted the step that was cut as if it had given no more: the budget cut it. Add `cut`.": _mean(_in_text),
    _TWICE: (_mean(lambda step: _gave(step) + 1), _mean(lambda step: len(step.tokens) + 1)),
    "You took all calls. Those that checked no draft, the prompt's for one, say nothing of the drafts.": tuple(
        _mean(count, over, list) for count in _COUNTS for over in (list, _drafting)
    ),
    "You took all steps but the first. There may be others without a draft: look at `step.drafted`.": tuple(
        _mean(count, over, _after_first) for count in _COUNTS for over in (_drafting, _after_first)
    ),
    "You counted the tokens of calls that checked no draft.": tuple(
        _mean(count, list, _drafting) for count in (_gave, _in_text)
    ),
    "You left out the step that was cut. It gave its tokens, and `cut` more.": _mean(
        _in_text, lambda steps: [step for step in _drafting(steps) if not step.cut]
    ),
    "You left out the steps in which nothing was accepted. They checked a draft too, and gave one token.": _mean(
        _gave, lambda steps: [step for step in steps if step.accepted]
    ),
}
CALL_MISTAKES: Mistakes = {
    "That is calls per token: upside down.": lambda steps: 1 / _per_call(steps),
    "That is τ, which comes first. Here every call counts, the prompt's as well, and no token that was cut off.": _tau,
    "You counted tokens that were cut off. They are not in the text.": _mean(_gave, list),
    "You left out the prompt's call. It is a call of the target, and gave a token.": tuple(
        _mean(_in_text, over, _after_first) for over in (list, _after_first)
    ),
    "You divided by the calls that checked a draft. The prompt's is a call too, and so is every other one.": tuple(
        _mean(_in_text, over, _drafting) for over in (list, _drafting)
    ),
    "You counted the accepted tokens alone: those that the target added are in the text too.": _mean(_accepted, list),
    "accepted + 1 is right for a whole step. Where one was cut, it is len(tokens).": _mean(_and_one, list),
    _TWICE: _mean(lambda step: len(step.tokens) + 1, list),
}


# ----------------------------------------------------------------------------------------------------------------------
# Places and mask

LENGTHS = (7, 2)  # of the text, in tokens


@checker
def check_places(my_places) -> Verdict:
    """Judge ``my_places(parents, length)``: positions of drafted nodes in the draft network's sequence, and their mask.

    The text has `length` tokens. The network's place t pairs token t + 1 with the target's feature t, so the text fills
    `length` - 1 places, from position 0. `parents[i]` is the node that node i follows, -1 for the text. The answer is
    two things: a position for each node; and a matrix of bool, a row for each node, and a column for each of the text's
    places and then for each node, True where the row's node may attend to it.
    """
    answers, failed = _tried(LENGTHS, lambda length: _placed(my_places, length))
    positions, masks = zip(*answers)
    complaints = []
    case = _first_off(positions, LENGTHS, _positions, np.array_equal)
    if case is not None:
        mine, due = positions[case], _positions(LENGTHS[case])
        node = int(np.flatnonzero(mine != due)[0])
        complaints.append(
            f"Positions: in a text of {LENGTHS[case]} tokens you put node {node} at {mine[node]:g}, expected "
            f"{due[node]} (parents: {list(PARENTS)}). {_named(positions, LENGTHS, POSITIONS, np.array_equal)}".strip()
        )
    case = _first_off(masks, LENGTHS, _mask, np.array_equal)
    if case is not None:
        said = _named(masks, LENGTHS, MASK_MISTAKES, np.array_equal) or _about_mask(masks[case])
        complaints.append(f"The mask. {said}")
    if complaints:
        return wrong(" ".join(complaints).strip())
    return failed or right("A place behind the target's positions; and of the tree, its own path and no other future.")


def _placed(my_places, length: int) -> tuple[np.ndarray, np.ndarray]:
    positions, mask = _two(_asked(my_places, list(PARENTS), length), "two things, the positions and the mask")
    mask, shape = _array(mask, "a matrix of True and False"), (len(PARENTS), length - 1 + len(PARENTS))
    if mask.shape == (shape[0], shape[1] + 1):
        said = f"{length} tokens fill {length - 1} places, because the first has no feature before it to go with."
        raise _Ended(wrong(f"A column too many in the mask: {said}"))
    if mask.shape == (shape[0], shape[0]):
        raise _Ended(wrong("The text's places are missing in the mask: the network attends to what it has read too."))
    positions = as_array(positions, shape[:1], "a position for each node")
    return positions, as_array(mask, shape, "a row for each node, a column for each place and each node")


def _positions(length: int) -> np.ndarray:
    return length - 1 + _depths(PARENTS)


_NODES, _FIRST_LEVEL = np.arange(len(PARENTS)), np.array(PARENTS)[:, None] < 0
POSITIONS: Mistakes = {
    "That is where the *target* has it. The draft network's sequence is one shorter: its place 0 holds the text's "
    "second token, with the feature of the first.": lambda n: _positions(n) + 1,
    "You count nodes. A position says how far into the sequence a place is: siblings are guesses for one place, and "
    "share it.": (lambda n: n - 1 + _NODES, lambda n: n + _NODES, lambda n: _NODES),
    "That is the depth alone: before the tree stands the text.": lambda n: _depths(PARENTS),
    "One too few: the text fills the positions 0 to length - 2.": lambda n: _positions(n) - 1,
    "Two too many: the text fills the positions 0 to length - 2.": lambda n: _positions(n) + 2,
    "All nodes at one place? A child is one further.": (lambda n: n - 1 + 0 * _NODES, lambda n: n + 0 * _NODES),
}


def _mask(length: int, tree: Callable = lambda due, above: due, text: Callable = lambda seen: seen) -> np.ndarray:
    """The mask by the rules, or with a mistake in it: what `tree` makes of the nodes' part, `text` of the text's."""
    return np.hstack([text(np.ones((len(PARENTS), length - 1), dtype=bool)), tree(*_ancestors(PARENTS))])


def _about_mask(mine: np.ndarray) -> str:
    if not np.isin(mine, (0, 1)).all():
        return "expected True and False (or 1 and 0), not what is added to the scores."
    text, tree = np.split(mine.astype(bool), [-len(PARENTS)], axis=1)
    if text.all():
        return _first_wrong_pair(tree, _ancestors(PARENTS)[0])
    row, column = map(int, np.argwhere(~text)[0])
    return f"Node {row} does not see place {column} of a text of {text.shape[1] + 1} tokens. {_TEXT}"


_TEXT = "Every place of the text is known, and lies before every node."
MASK_MISTAKES: Mistakes = {
    "True where it should be False: say what a node may attend to.": lambda n: ~_mask(n),
    "the tree's columns come first, and the text's should.": lambda n: np.roll(_mask(n), len(PARENTS), axis=1),
    f"no node sees the text. {_TEXT}": lambda n: _mask(n, text=np.logical_not),
    f"only the first level sees the text. {_TEXT}": lambda n: _mask(n, text=lambda seen: seen & _FIRST_LEVEL),
    f"the text's last place is hidden. {_TEXT}": lambda n: _mask(
        n, text=lambda seen: seen & (np.arange(n - 1) < n - 2)
    ),
} | {
    said: tuple((lambda length, made=made: _mask(length, made)) for other, made in MASKS if other == said)
    for said, _ in MASKS
}


# ----------------------------------------------------------------------------------------------------------------------
# The best of a tree


class Guesses(NamedTuple):
    """Candidates, each with the probability that the network gave it after its parent, and how many may be kept."""

    probs: tuple[float, ...]
    parents: tuple[int, ...]
    nodes: int


GUESSES = (
    Guesses((0.6, 0.35, 0.3, 0.2, 0.31), (-1, -1, 0, 0, 1), 3),
    Guesses((0.5, 0.3, 0.1, 0.64, 0.22, 0.9, 0.05, 0.7, 0.1, 0.95), (-1, -1, -1, 0, 0, 1, 1, 3, 3, 5), 5),
    Guesses((0.9, 0.05, 0.3, 0.25, 0.8), (-1, -1, 0, 0, 1), 3),
    Guesses((0.4, 0.35, 0.7, 0.3, 0.9), (-1, -1, 0, 0, 2), 9),  # more than there are
    Guesses((0.6, 0.4, 0.5, 0.4, 1.0), (-1, -1, 0, 0, 1), 2),  # 4 is as probable as its parent, 1
    Guesses((1.0, 1.0, 1.0), (-1, 0, 1), 1),
)


@checker
def check_rerank(my_rerank) -> Verdict:
    """Judge ``my_rerank(log_probs, parents, nodes)``: which candidates are kept, and their parents among those.

    `log_probs[i]` is how probable the network finds candidate i after its parent, `parents[i]`, which is -1 for the
    text and otherwise comes before i. The `nodes` candidates with the likeliest paths are kept, of equal ones the
    earlier. The answer is two lists of one length: the numbers of those kept, parents before children; and for each the
    place of its parent in that list, -1 for the text.
    """
    answers, failed = _tried(GUESSES, lambda guesses: _reranked(my_rerank, guesses))
    sets = [set(kept) for kept, _ in answers]
    case = _first_off(sets, GUESSES, lambda guesses: set(_best(guesses)))
    if case is not None:
        guesses, due = GUESSES[case], _best(GUESSES[case])
        said = _named(sets, GUESSES, KEPT_MISTAKES, lambda mine, due: mine == set(due))
        return wrong(
            f"{said}Of candidates with the probabilities {guesses.probs} and the parents {guesses.parents} you keep "
            f"{sorted(sets[case])}; the best {len(due)} are {due}."
        )
    for guesses, (kept, _) in zip(GUESSES, answers):
        early = [i for place, i in enumerate(kept) if guesses.parents[i] not in {-1, *kept[:place]}]
        if early:
            return wrong(f"The right candidates, but {early[0]} stands before its parent. Parents come first.")
    cases = [(guesses, kept) for guesses, (kept, _) in zip(GUESSES, answers)]
    mine = [parents for _, parents in answers]
    case = _first_off(mine, cases, _renumbered)
    if case is None:
        return failed or right("A path is never likelier than its own beginning: the best ones are a tree.")
    (guesses, kept), parents, due = cases[case], mine[case], _renumbered(cases[case])
    place = next(place for place, pair in enumerate(zip(parents, due)) if pair[0] != pair[1])
    return wrong(
        f"The right candidates. {_named(mine, cases, PARENT_MISTAKES)}In {kept} the parent of {kept[place]} is "
        f"{guesses.parents[kept[place]]}, so place {place} of the parents is {due[place]}; you gave {parents[place]}."
    )


def _reranked(my_rerank, guesses: Guesses) -> tuple[list[int], list[int]]:
    hint = "Did you keep a candidate without its parent? Rank whole paths, and keep the earlier of equal ones."
    answer = _asked(my_rerank, _logs(guesses), list(guesses.parents), guesses.nodes, hint=hint)
    kept, parents = _two(answer, "two lists, the candidates kept and their parents")
    kept, parents = _whole(kept, "the numbers of candidates"), _whole(parents, "the places of their parents")
    if len(kept) != len(parents):
        raise _Ended(wrong(f"Expected a parent for each candidate kept: you gave {len(kept)} and {len(parents)}."))
    if len(set(kept) & set(range(len(guesses.probs)))) < len(kept):
        raise _Ended(wrong(f"There is no candidate but 0 to {len(guesses.probs) - 1}, each once; you gave {kept}."))
    return kept, parents


def _logs(guesses: Guesses) -> list[float]:
    return [math.log(prob) for prob in guesses.probs]


def _paths(guesses: Guesses, combine: Callable) -> list[float]:
    """A score for each candidate: `combine` of the log-probabilities from the text down to it."""
    paths: list[list[float]] = []
    for log_prob, parent in zip(_logs(guesses), guesses.parents):
        paths.append([*(paths[parent] if parent >= 0 else ()), log_prob])
    return [combine(path) for path in paths]


def _best(guesses: Guesses, combine: Callable = sum, more: int = 0, tie: int = 1) -> list[int]:
    """The candidates whose paths have the highest scores, of equal ones the earlier (`tie` -1: the later)."""
    scores = _paths(guesses, combine)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], tie * i))
    return sorted(order[: max(0, guesses.nodes + more)])


def _with_ancestors(guesses: Guesses, chosen) -> set[int]:
    closed = {-1, *chosen}
    for _ in guesses.parents:
        closed |= {guesses.parents[candidate] for candidate in closed - {-1}}
    return closed - {-1}


_own = operator.itemgetter(-1)
KEPT_MISTAKES: Mistakes = {
    "You rank candidates by their own probability. However sure a guess is of itself, where its parent is wrong it is "
    "worth nothing: add the log-probabilities along the path.": lambda g: _best(g, _own),
    "You rank candidates by their own probability, and then add the ancestors of those chosen. Rank whole paths, and "
    "nothing has to be added.": lambda g: _with_ancestors(g, _best(g, _own)),
    "You add the parent's log-probability, and no further up.": lambda g: _best(g, lambda path: sum(path[-2:])),
    "Of equal paths you keep the later. A child that the network is certain of is exactly as probable as its parent: "
    "keep the earlier one, or the child hangs in the air.": lambda g: _best(g, tie=-1),
    "You keep one too few: the text's last token is none of the `nodes`.": lambda g: _best(g, more=-1),
    "You keep one too many: `nodes` of them.": lambda g: _best(g, more=1),
    "You keep the first ones, level by level: likely deep paths come too late.": lambda g: range(len(g.probs))[
        : g.nodes
    ],
    "You keep all candidates. Every one of them makes the target's call wider.": lambda g: range(len(g.probs)),
    "You keep the *least* likely paths. Log-probabilities are negative: the largest, nearest to 0, is the best.": (
        lambda g: _best(g, lambda path: -sum(path)),
        lambda g: _best(g, lambda path: -sum(path), tie=-1),
    ),
    "You take the mean along the path, which hides that a long path is right less often than its beginning: take "
    "the sum.": lambda g: _best(g, lambda path: sum(path) / len(path)),
    "You add *probabilities* along the path: a longer path would always be better. They are multiplied, that is, their "
    "logarithms are added.": lambda g: _best(g, lambda path: sum(map(math.exp, path))),
    "You *multiply* log-probabilities. They are added: probabilities are multiplied.": lambda g: _best(g, math.prod),
}


def _renumbered(case: tuple[Guesses, list[int]]) -> list[int]:
    guesses, kept = case
    return [kept.index(parent) if (parent := guesses.parents[i]) >= 0 else -1 for i in kept]


PARENT_MISTAKES: Mistakes = {
    "But the parents have their old numbers: give their places in the list of those kept.": lambda case: (
        [case[0].parents[candidate] for candidate in case[1]]
    ),
    "But you count the text as place 0. It is -1.": lambda case: [parent + 1 for parent in _renumbered(case)],
    "But all of them hang on the text in your tree.": lambda case: [-1] * len(case[1]),
    "But your tree is a chain: each follows the one before it.": lambda case: [*range(-1, len(case[1]) - 1)],
}


# ----------------------------------------------------------------------------------------------------------------------
# The map from the draft's tokens to the target's

# (tokens of the target that the network knows, the target's vocabulary): the first leaves room for adding twice.
MAPS = (((1, 2, 5, 6, 9), 20), ((0, 1, 2, 3), 4), ((3, 4, 5), 6), ((0, 1), 5))


@checker
def check_spread(my_spread) -> Verdict:
    """Judge ``my_spread(logits, d2t, vocab_size)``: the draft network's logits over the target's vocabulary.

    `logits` has a column for each token that the network knows, `d2t` (int64) says for each what to *add* to its number
    to have the target's. The answer has shape (rows, vocab_size), and -inf for every token that is not known.
    """
    answers, failed = _tried(MAPS, lambda case: _spread_by(my_spread, case))
    number = _first_off(answers, MAPS, _spread, _near)
    if number is None:
        return failed or right(
            "A token's number and its offset are the target's number; what is not known is impossible."
        )
    mine, (tokens, size), due = answers[number], MAPS[number], _spread(MAPS[number])
    logits, offsets = _map(MAPS[number])
    about = f"For d2t = {offsets.tolist()} and a vocabulary of {size}: "
    if _near(mine[:, tokens], logits.numpy()):
        others = np.delete(mine, tokens, axis=1)
        filler = float(others[others != -math.inf][0])
        said = (
            f"{about}the known tokens are right. But there are unknown ones with the logit {filler:g}, and one of them "
        )
        return wrong(f"{said}may be drafted, which the network cannot know. -inf makes them impossible.")
    # The first map tells all mistakes apart; in the others some of them leave the vocabulary.
    said = _named(answers[:1], MAPS, SPREAD_MISTAKES, _near)
    row, column = map(int, np.argwhere(~np.isclose(mine, due))[0])
    whose = f"the draft's {tokens.index(column)}" if column in tokens else "which the network cannot know"
    found = f"has {mine[row, column]:g}, expected {due[row, column]:g}."
    return wrong(f"{said}{about}in row {row} the target's token {column}, {whose}, {found}")


def _map(case: tuple[tuple[int, ...], int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, d2t). In the first row all logits are negative: a 0 would beat them."""
    number = torch.arange(len(case[0]))
    return torch.stack([-1.0 - number * 0.75, 2.5 - (number - 1.5).abs() * 1.25]), torch.tensor(case[0]) - number


def _spread(case, where: Callable = np.add, filler: float = -math.inf, become: Callable = np.asarray) -> np.ndarray:
    """The logits by the rules, or put where(i, d2t), with something else for the unknown, or changed before."""
    logits, offsets = _map(case)
    made = np.full((len(logits), case[1]), filler)
    made[:, where(np.arange(len(offsets)), offsets.numpy())] = become(logits)
    return made


def _spread_by(my_spread, case) -> np.ndarray:
    (logits, offsets), shape = _map(case), (2, case[1])
    hint = f"Is a column outside the {case[1]} of the target? The target's number of token i is i + d2t[i], added once."
    answer = _asked(my_spread, logits, offsets, case[1], hint=hint)
    array = _array(answer, f"logits of shape {shape}")
    if np.array_equal(array, logits.argmax(-1).numpy()):
        said = "Those are the likeliest tokens by the *draft's* numbers: argmax over the wrong vocabulary."
        raise _Ended(wrong(f"{said} The target knows them by others, and it is the logits that are asked for."))
    return as_array(array, shape, "logits, a column for each of the target's tokens")


SPREAD_MISTAKES: Mistakes = {
    message: tuple(functools.partial(_spread, where=where, filler=filler) for filler in (-math.inf, 0.0))
    for message, where in {
        "You took d2t for the target's numbers. It holds *offsets*, what to add: several tokens have the same one, and "
        "overwrite each other.": lambda own, offset: offset,
        "You forgot the map: the draft's token i is not the target's token i. Nothing fails, but guesses are "
        "refused.": lambda own, offset: own,
        "You added the offset twice: the target's number is i + d2t[i].": lambda own, offset: own + 2 * offset,
        "You subtracted the offset: the target's number is i + d2t[i].": lambda own, offset: own - offset,
        "You summed the offsets up to i. Each is whole: i + d2t[i].": lambda own, offset: own + np.cumsum(offset),
        "You summed the offsets up to i, and left out i. It is i + d2t[i].": lambda own, offset: np.cumsum(offset),
        "One too many: i + d2t[i], counted from 0.": lambda own, offset: own + offset + 1,
        "One too few: i + d2t[i], counted from 0.": lambda own, offset: own + offset - 1,
    }.items()
} | {
    "You give log-probabilities, not logits.": functools.partial(_spread, become=lambda rows: rows.log_softmax(-1)),
    "You give probabilities, not logits.": functools.partial(_spread, become=lambda rows: rows.softmax(-1)),
}


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _asked(function: Callable, *given, hint: str = ""):
    """What a reader's function answers; `hint`: what may be behind an error. It must not change what it is given."""
    lent = copy.deepcopy(given)
    try:
        answer = attempt(function, *lent)
    except _Ended as ended:
        if isinstance(ended.__cause__, LookupError | ValueError | RuntimeError) and hint:
            raise _Ended(wrong(f"{ended.verdict.message}. {hint}")) from ended.__cause__
        raise
    if not all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(lent, given, strict=True)):
        raise _Ended(wrong("Your function changed what it was given: work on copies."))
    return answer


def _tried(cases, ask: Callable) -> tuple[list, Verdict | None]:
    """What a reader's function answers in each case until it fails, and how it fails: its answers say more."""
    answers: list = []
    for case in cases:
        try:
            answers.append(ask(case))
        except _Ended as ended:
            if not answers:
                raise
            nothing = wrong("In some cases your function returns nothing: is there a return in every branch?")
            return answers, nothing if ended.verdict.ok is None else ended.verdict
    return answers, None


def _first_off(answers, cases, due: Callable, same: Callable = operator.eq) -> int | None:
    """The number of the first case whose answer is not what is due; None if there is none."""
    return next((n for n, (mine, case) in enumerate(zip(answers, cases)) if not same(mine, due(case))), None)


def _named(answers, cases, mistakes: Mistakes, same: Callable = operator.eq) -> str:
    """What to say to the mistake that makes these answers of the cases, and a space; "" if none does."""
    for message, rules in mistakes.items():
        for mistaken in rules if isinstance(rules, tuple) else (rules,):
            if _first_off(answers, cases, mistaken, same) is None:
                return message + " "
    return ""


def _two(answer, what: str) -> tuple:
    """Two things, in a tuple or a list; the checker ends with a ✗ for anything else."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise _Ended(wrong(f"Expected {what}; got {_short(answer)}."))
    return tuple(answer)


def _array(answer, what: str) -> np.ndarray:
    """An answer as a float64 array of whatever shape; the checker ends with a ✗ if it is none."""
    try:
        return np.asarray([part.tolist() if isinstance(part, torch.Tensor) else part for part in answer], dtype=float)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise _Ended(wrong(f"Expected {what}; got {_short(answer)}.")) from None


def _whole(answer, what: str) -> list[int]:
    """An answer as a list of whole numbers; the checker ends with a ✗ if it is none."""
    array = _array(answer, what)
    if array.ndim != 1 or not np.isfinite(array).all() or (array != array.round()).any():
        raise _Ended(wrong(f"Expected {what}; got {_short(answer)}."))
    return [int(value) for value in array]
