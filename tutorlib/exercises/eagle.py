"""Checkers for chapter 11: pairs, the norm, the bonus token, places and mask, the best of a tree, and the map d2t.

Answers are tried on calls, networks, runs and trees made for the purpose, on which every usual mistake comes to another
result than the right one; an answer that equals one of them is told which. What is right is computed here, from the
papers, not with `tutorlib.heads` or `tutorlib.decoders`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..run import Step
from ..tree import TokenTree
from . import Verdict, _Ended, _short, attempt, checker, right, wrong
from .medusa import MASKS, PARENTS, _ancestors, _depths, _first_wrong_pair

# ----------------------------------------------------------------------------------------------------------------------
# Which token goes with which feature


class Call(NamedTuple):
    """One call of the target: what it read, which nodes of it were accepted, and the token that was drawn then."""

    read: tuple[int, ...]
    path: tuple[int, ...]
    drawn: int

    @property
    def kept(self) -> list[int]:
        """The rows of the call that belong to the text."""
        return [0, *(node + 1 for node in self.path)]


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
    if _equal(answers, [_right_pairs(call) for call in CALLS]):
        return _end(failed, "Each feature goes with the token that it could not know: the one that came after it.")
    for message, tokens, rows in PAIR_MISTAKES:
        if _equal(answers, [(tokens(call), rows(call)) for call in CALLS]):
            return wrong(f"{message} {_about_pairs(answers)}")
    parts = []
    for which, mistakes in ((0, TOKEN_MISTAKES), (1, ROW_MISTAKES)):
        mine = [answer[which] for answer in answers]
        if not _equal(mine, [_right_pairs(call)[which] for call in CALLS]):
            parts += [message for message, rule in mistakes if _equal(mine, [rule(call) for call in CALLS])][:1]
    return wrong(" ".join([*parts, _about_pairs(answers)]))


def _right_pairs(call: Call) -> tuple[list[int], list[int]]:
    return _later(call), call.kept


def _pairs(my_pairs, call: Call) -> tuple[list[int], list[int]]:
    """A reader's tokens, and the numbers of the rows that go with them."""
    features = torch.stack([torch.tensor([row + 1.0, 0.5 - row, row * row]) for row in range(len(call.read))])
    given = list(call.read), features.clone(), list(call.path)
    answer = attempt(my_pairs, *given, call.drawn)
    if (given[0], given[2]) != (list(call.read), list(call.path)) or not torch.equal(given[1], features):
        raise _Ended(wrong("Your function changed what it was given: work on copies."))
    tokens, mine = _two(answer, "two things, the tokens and the features")
    tokens, mine = _whole(tokens, "a list of tokens"), _array(mine, "rows of features")
    if not mine.size:
        return tokens, []
    if mine.ndim != 2 or mine.shape[1] != features.shape[1]:
        raise _Ended(wrong(f"Expected rows of {features.shape[1]} features; yours have shape {mine.shape}."))
    rows = []
    for place, row in enumerate(mine):
        same = [which for which, feature in enumerate(features.numpy()) if np.allclose(row, feature)]
        if not same:
            raise _Ended(wrong(f"What you give in place {place} is none of the rows of features: {_listed(row)}."))
        rows += same
    return tokens, rows


def _about_pairs(answers) -> str:
    """The first call that went wrong: what was given for it, and what was expected."""
    call, (tokens, rows) = next((call, mine) for call, mine in zip(CALLS, answers) if mine != _right_pairs(call))
    said = f"Where the target had read {list(call.read)}, accepted the nodes {list(call.path)} and drawn {call.drawn}, "
    if len(tokens) != len(rows):
        lengths = f"tokens and features of different lengths, {len(tokens)} and {len(rows)}"
        return f"{said}you gave {lengths}: each feature needs one token."
    mine, due = (
        ", ".join(f"{token} with row {row}" for token, row in zip(*pairs)) or "nothing"
        for pairs in ((tokens, rows), _right_pairs(call))
    )
    return f"{said}you paired {mine}; expected {due}."


def _own(call):
    return [call.read[row] for row in call.kept]


def _accepted(call):
    return _own(call)[1:]


def _later(call):
    return [*_accepted(call), call.drawn]


def _all_rows(call):
    return list(range(len(call.read)))


# (what to say, the mistaken tokens, the mistaken rows) for each call
PAIR_MISTAKES: tuple[tuple[str, Callable, Callable], ...] = (
    (
        "You pair x_t with f_t. That feature was made from this token and knows it already; what it cannot know is the "
        "token that came after it. Look at your last pair: the drawn token is not in it.",
        _own,
        lambda call: call.kept,
    ),
    (
        "You pair x_{t+1} with f_{t+1}: each token with the feature that was made from it. What goes with it is the "
        "feature *before* it, the row of its parent. Where nothing is accepted you have no pair, and there is one.",
        _accepted,
        lambda call: call.kept[1:],
    ),
    (
        "You shift the wrong way: x_t goes with f_{t+1}. The feature then knows the token and the one after it as "
        "well. The feature goes with the token that comes after it.",
        lambda call: _own(call)[:-1],
        lambda call: call.kept[1:],
    ),
    (
        "Your pairs are right, but the last one is missing: the drawn token, with the last row that was kept. The "
        "target has no feature of that token yet, and needs none: it is the one *before* it that goes with it. This is "
        "the place from which the next draft is guessed.",
        _accepted,
        lambda call: call.kept[:-1],
    ),
    (
        "You pair x_{t+2} with f_t: shifted by one too many.",
        lambda call: [*_own(call)[2:], call.drawn],
        lambda call: call.kept[:-1],
    ),
    (
        "You pair x_{t+2} with f_t: shifted by one too many.",
        lambda call: [*_own(call)[2:], call.drawn] if call.path else [],
        lambda call: call.kept[:-1],
    ),
    (
        "You feed everything that the target read. What was not accepted is not in the text, and the draft network "
        "would go on from a text that nobody wrote: keep row 0 and those of the path.",
        lambda call: [*call.read[1:], call.drawn],
        _all_rows,
    ),
    (
        "You feed the last pair alone. The network's cache needs every place of the text: those of the accepted "
        "tokens are still missing, for what it had drafted there was made from its own guesses of the features.",
        lambda call: [call.drawn],
        lambda call: call.kept[-1:],
    ),
    *(
        (
            "You took the number of a node for that of its row. Row 0 is the text's last token, so node n is in row "
            "n + 1.",
            lambda call: [*(call.read[node] for node in call.path), call.drawn],
            rows,
        )
        for rows in (
            lambda call: [0, *call.path],
            lambda call: [*call.path],
            lambda call: [len(call.read) - 1, *call.path],
        )
    ),
)
TOKEN_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "Your tokens are those that the features were made from, x_t. Wanted are those that came after, x_{t+1}.",
        _own,
    ),
    ("Among your tokens the one that was drawn is missing: the last feature has none to go with.", _accepted),
    (
        "Your tokens begin one too early. What stands in row 0 is in the text already: in a later call it went with "
        "the feature before it, a step ago, and the prompt's first token has no feature before it.",
        lambda call: [*_own(call), call.drawn],
    ),
    (
        "Among your tokens are those of nodes that were not accepted: they are not in the text.",
        lambda call: [*call.read[1:], call.drawn],
    ),
    (
        "For the tokens you took the number of a node for that of its row: node n is in row n + 1.",
        lambda call: [*(call.read[node] for node in call.path), call.drawn],
    ),
    ("Your only token is the one that was drawn: those accepted before it have places too.", lambda call: [call.drawn]),
)
ROW_MISTAKES: tuple[tuple[str, Callable], ...] = (
    ("Among your features row 0 is missing: it goes with the first token after it.", lambda call: call.kept[1:]),
    ("Among your features the last one is missing: it goes with the token that was drawn.", lambda c: c.kept[:-1]),
    *(
        ("For the features you took the number of a node for that of its row: node n is in row n + 1.", rows)
        for rows in (
            lambda call: [0, *call.path],
            lambda call: [*call.path],
            lambda call: [len(call.read) - 1, *call.path],  # what features[[-1, *path]] is
        )
    ),
    (
        "Of the features you took the first ones of the call. An accepted path may be anywhere in the tree: take the "
        "rows of its nodes.",
        lambda call: list(range(len(call.kept))),
    ),
    (
        "Of the features you took the last ones of the call: take row 0 and the rows of the path.",
        lambda call: _all_rows(call)[-len(call.kept) :],
    ),
    ("You took the features of the whole call, of what was refused as well.", _all_rows),
    ("Your only feature is the last one: those accepted before it have places too.", lambda call: call.kept[-1:]),
)


# ----------------------------------------------------------------------------------------------------------------------
# What is normed


class Network(NamedTuple):
    """A draft network that a reader's function is tried with.

    Attributes
    ----------
    eagle : int
        1 or 3: whose rules it follows.
    layer : function (token, state) -> state
    norm : function (state) -> state
    head : function (state) -> logits, shape (vocab,)
    """

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
    complaints, failures = [], []
    for eagle in (3, 1):
        try:
            answers, failed = _tried(DRAFTS, lambda case, eagle=eagle: _tokens_of(my_draft, eagle, *case))
        except _Ended as ended:
            answers, failed = [], ended
        if not _equal(answers, [_drafted(eagle, *case) for case in DRAFTS]):
            complaints.append(_about_draft(eagle, answers))
        elif failed:
            failures.append((eagle, failed))
    if complaints:
        return wrong(" ".join(complaints))
    if len(failures) == 1 and failures[0][1].verdict.ok is None:
        return wrong(f"For EAGLE-{failures[0][0]} your function returns nothing: it is asked for both.")
    return _end(
        failures[0][1] if failures else None,
        "What goes on is the state as the layer made it; a norm stands before EAGLE-3's head alone.",
    )


@functools.cache
def _network(eagle: int) -> Network:
    # Found by trying: no two mistakes, and no two pairs of them, come to the same draft.
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
    feature = _feature(token)
    answer = attempt(my_draft, _network(eagle), token, feature, count)
    if not torch.equal(feature, _feature(token)):
        raise _Ended(wrong("Your function changed the feature that it was given: work on a copy, feature.clone()."))
    return _whole(answer, f"a list of {count} tokens")


def _drafted(eagle: int, first: int, count: int, **done) -> list[int]:
    """A draft by the rules, or with some of them broken: see `DRAFT_MISTAKES`."""
    how = {"on": "made", "read": "normed" if eagle == 3 else "made", "token": "new", "take": "most", "front": "without"}
    how |= done
    network, feature = _network(eagle), _feature(first)
    token, state = first, feature
    tokens = [first] if how["front"] == "with" else []
    while len(tokens) < count:
        given = {"input": network.norm(state), "never": feature}.get(how["on"], state)
        made = network.layer(first if how["token"] == "first" else token, given)
        normed = network.norm(made)
        shown = {"made": made, "normed": normed, "twice": network.norm(normed), "given": given}[how["read"]]
        logits = network.head(shown)
        token = int(logits.argmin() if how["take"] == "least" else logits.argmax())
        state = normed if how["on"] == "normed" else made
        tokens.append(token)
    return tokens


_ONCE = "EAGLE-1's features are after the target's final norm, and that is what its network guesses: "
# What is done, for which version, and what to say to it.
DRAFT_MISTAKES: dict[tuple[str, str], dict[int, str]] = {
    ("on", "normed"): {
        3: "you go on with the normed state. The norm is for the head alone: the next step is given the state from "
        "before it, as it was in training.",
        1: _ONCE + "going on, you norm it a second time.",
    },
    ("on", "input"): {
        3: "you norm what you give to the layer. What goes in is the feature, and then the state as the layer made it; "
        "the norm is for the head alone.",
        1: _ONCE + "what you give to the layer you norm a second time.",
    },
    ("on", "never"): dict.fromkeys(
        (3, 1),
        "you give the layer the target's feature in every step. That is the feature of one place: from the second step "
        "on the layer needs what it made itself.",
    ),
    ("read", "made"): {
        3: "the head reads the state as the layer made it. Between the two stands the norm: without it the head reads "
        "what it was never trained on.",
    },
    ("read", "normed"): {1: _ONCE + "for the head you norm it a second time."},
    ("read", "twice"): {
        3: "what the head reads has been through the norm twice. Once is enough.",
        1: _ONCE + "for the head you norm it twice more.",
    },
    ("read", "given"): dict.fromkeys(
        (3, 1),
        "the head reads what goes *into* the layer. That is one place too early: it has not read the token yet.",
    ),
    ("token", "first"): dict.fromkeys(
        (3, 1),
        "you give the layer the first token in every step. It has to be told which token was guessed before.",
    ),
    ("take", "least"): dict.fromkeys((3, 1), "you take the least likely token: argmax."),
    ("front", "with"): dict.fromkeys(
        (3, 1), "your draft begins with the token that was given. It is in the text already."
    ),
}


@functools.cache
def _mistaken_drafts(eagle: int) -> list[tuple[tuple[tuple[str, str], ...], list[list[int]]]]:
    """Every way to break some of the rules, the fewest first, and what it comes to."""
    options: dict[str, list[str]] = {}
    for (part, value), said in DRAFT_MISTAKES.items():
        if eagle in said:
            options.setdefault(part, []).append(value)
    ways = itertools.product(*([None, *((part, value) for value in values)] for part, values in options.items()))
    broken = sorted((tuple(filter(None, way)) for way in ways if any(way)), key=len)
    return [(way, [_drafted(eagle, *case, **dict(way)) for case in DRAFTS]) for way in broken]


def _about_draft(eagle: int, answers) -> str:
    case, mine = next((case, mine) for case, mine in zip(DRAFTS, answers) if mine != _drafted(eagle, *case))
    (first, count), due = case, _drafted(eagle, *case)
    if len(mine) != count:
        extra = f" The first, {first}, is the one that was given: it is in the text already." if mine[1:] == due else ""
        return f"Expected a draft of length {count} for EAGLE-{eagle}, yours has {len(mine)}.{extra}"
    for way, made in _mistaken_drafts(eagle):
        if _equal(answers, made):
            before, once, after = " And ".join(DRAFT_MISTAKES[part][eagle] for part in way).partition(_ONCE)
            said = before + once + after.replace(_ONCE, "")
            break
    else:
        said = f"after the token {first} you drafted {mine}, expected {due}."
    agree = next((place for place, pair in enumerate(zip(mine, due)) if pair[0] != pair[1]), count)
    seen = "no token" if not agree else "only the first" if agree == 1 else f"only the first {agree}"
    return f"EAGLE-{eagle}: {said} (How it shows: {seen} of {count} right from the start.)"


# ----------------------------------------------------------------------------------------------------------------------
# The bonus token


def _step(accepted: int, drafted: int, cut: int = 0) -> Step:
    """A step that drafted so many tokens and accepted some; `cut` tokens are then cut off its end."""
    tokens = list(range(50, 51 + accepted))
    tree = TokenTree(
        tokens[:accepted] + [7] * (drafted - accepted), [*range(-1, accepted - 1), *[-1] * (drafted - accepted)]
    )
    step = Step(tokens, tree.tokens, accepted, tree=tree if drafted else None, path=tuple(range(accepted)))
    return step.first(len(tokens) - cut)


# Runs: the last step cut by two; a step without a draft in the middle; cut by one; whole; and the prompt's call alone.
RUNS = (
    (_step(0, 0), _step(3, 9), _step(0, 9), _step(4, 9, cut=2)),
    (_step(0, 0), _step(5, 8), _step(0, 0), _step(1, 8), _step(0, 0)),
    (_step(0, 0), _step(2, 6), _step(6, 6), _step(3, 6, cut=1)),
    (_step(0, 0),),
)


@checker
def check_counts(my_counts) -> Verdict:
    """Judge ``my_counts(steps)``: the mean accepted length τ, and the tokens per call, of a run's steps.

    Each step is one call of the target; the first reads the prompt. τ is how many tokens a call that checks a draft
    gives on average, had the budget not cut the last one; NaN if none does. Tokens per call counts the text as it is,
    and every call.
    """
    answers, failed = _tried(RUNS, lambda steps: _two_numbers(attempt(my_counts, list(steps)), "τ and tokens per call"))
    expected = [(_tau(steps), _per_call(steps)) for steps in RUNS]
    if _near(answers, expected):
        if failed and failed.__cause__ and len(answers) == len(RUNS) - 1:
            return wrong(
                f"A run may have the prompt's call alone, and there your function fails: {failed.__cause__!r}. Nothing "
                "was drafted, so there is nothing to take the mean of: say NaN, float('nan')."
            )
        return _end(failed, "τ counts the target's own token; tokens per call counts the prompt's call as well.")
    if _near(answers, [(per_call, tau) for tau, per_call in expected]):
        return wrong("The two are in the other order: τ comes first.")
    parts = []
    for which, (name, mistakes) in enumerate((("τ", TAU_MISTAKES), ("Tokens per call", CALL_MISTAKES))):
        mine, due = ([pair[which] for pair in pairs] for pairs in (answers, expected))
        if _near(mine, due):
            continue
        case = next(case for case, pair in enumerate(zip(mine, due)) if not _near([pair[0]], [pair[1]]))
        said = f"{name}: {_run_shown(RUNS[case])} you gave {mine[case]:.4g}, expected {due[case]:.4g}."
        if which == 0 and math.isnan(due[case]):
            parts.append(f"{said} Nothing was drafted in this run, so there is nothing to take the mean of: NaN.")
            continue
        # Not by the run without a draft: what a mistake makes of that one depends on how the division is guarded.
        named = [message for message, rule in mistakes if _near(mine[:3], [rule(steps) for steps in RUNS])][:1]
        parts.append(" ".join([said, *named]))
    return wrong(" ".join(parts))


def _run_shown(steps) -> str:
    """A run in words, for a message."""
    shown = []
    for place, step in enumerate(steps):
        kind = f"{step.accepted} accepted" if step.drafted else "no draft"
        cut = f", {step.cut} cut off" if step.cut else ""
        shown.append(f"{len(step.tokens)} ({'prompt' if not place else kind}{cut})")
    return f"for steps of {', '.join(shown)} tokens"


def _drafting(steps) -> list[Step]:
    return [step for step in steps if step.drafted]


def _tau(steps) -> float:
    return _divide(sum(len(step.tokens) + step.cut for step in _drafting(steps)), len(_drafting(steps)))


def _per_call(steps) -> float:
    return sum(len(step.tokens) for step in steps) / len(steps)


def _divide(above: float, below: float) -> float:
    return above / below if below else math.nan


_SHORT = "`accepted` counts what is left of it. Its tokens and those cut off, `step.cut`, are what it gave."
# What is counted, with what to say to it ("" is right); then what it is divided by.
TAU_COUNTS: tuple[tuple[str, Callable], ...] = (
    ("", lambda steps: sum(len(step.tokens) + step.cut for step in _drafting(steps))),
    (
        "You left out the bonus token. After the accepted ones the target adds one of its own, in every step, also "
        "where nothing is accepted; τ counts it.",
        lambda steps: sum(len(step.tokens) + step.cut - 1 for step in _drafting(steps)),
    ),
    (
        "You left out the bonus token, which the target adds in every step. And of a step that was cut, " + _SHORT,
        lambda steps: sum(step.accepted for step in _drafting(steps)),
    ),
    (
        "The bonus token is there. But of a step that was cut, " + _SHORT,
        lambda steps: sum(step.accepted + 1 for step in _drafting(steps)),
    ),
    (
        "You counted the step that was cut as if it had given no more. The budget cut it, not the check: add `cut`.",
        lambda steps: sum(len(step.tokens) for step in _drafting(steps)),
    ),
    (
        "You counted the bonus token twice: `tokens` has it already, at its end.",
        lambda steps: sum(len(step.tokens) + step.cut + 1 for step in _drafting(steps)),
    ),
    (
        "You counted the bonus token twice (`tokens` has it at its end), and the step that was cut as if it had given "
        "no more.",
        lambda steps: sum(len(step.tokens) + 1 for step in _drafting(steps)),
    ),
    (
        "You counted the tokens of calls that checked no draft, the prompt's for one. They give one token whatever the "
        "network guesses.",
        lambda steps: sum(len(step.tokens) + step.cut for step in steps),
    ),
    (
        "You counted the tokens of calls that checked no draft, the prompt's for one, and the step that was cut as if "
        "it had given no more.",
        lambda steps: sum(len(step.tokens) for step in steps),
    ),
    (
        "You counted a bonus token in calls that checked no draft as well, and of a step that was cut, " + _SHORT,
        lambda steps: sum(step.accepted + 1 for step in steps),
    ),
    (
        "You counted what was drafted. τ counts what came of it.",
        lambda steps: sum(len(step.drafted) for step in _drafting(steps)),
    ),
)
TAU_CALLS: tuple[tuple[str, Callable], ...] = (
    ("", lambda steps: len(_drafting(steps))),
    ("You divided by all calls. Those that checked no draft, the prompt's for one, say nothing of the drafts.", len),
    (
        "You divided by all calls but the first. There may be others without a draft: look at `step.drafted`.",
        lambda steps: len(steps) - 1,
    ),
    (
        "You divided by all drafted tokens: that is a share, between 0 and 1.",
        lambda steps: sum(len(step.drafted) for step in steps),
    ),
    ("You divided by one too many.", lambda steps: len(_drafting(steps)) + 1),
)
TAU_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "You left out the step that was cut. What it would have given is known: its tokens, and `cut` more.",
        lambda steps: _tau([step for step in steps if not step.cut]),
    ),
    (
        "You left out the steps in which nothing was accepted. They checked a draft too, and gave one token.",
        lambda steps: _tau([step for step in steps if step.accepted]),
    ),
    *(
        (
            f"You took all steps but the first. There may be others without a draft: look at `step.drafted`.{also}",
            lambda steps, gave=gave: _divide(sum(map(gave, steps[1:])), len(steps) - 1),
        )
        for also, gave in (
            ("", lambda step: len(step.tokens) + step.cut),
            (" And the step that was cut gave `cut` more.", lambda step: len(step.tokens)),
            (" And of a step that was cut, " + _SHORT, lambda step: step.accepted + 1),
        )
    ),
    (
        "You gave the best step, not the mean of all.",
        lambda steps: max([len(step.tokens) + step.cut for step in _drafting(steps)], default=math.nan),
    ),
    *(
        (f"{count} {call}".strip(), lambda steps, above=above, below=below: _divide(above(steps), below(steps)))
        for (count, above), (call, below) in sorted(
            itertools.product(TAU_COUNTS, TAU_CALLS), key=lambda pair: sum(bool(part[0]) for part in pair)
        )
        if count or call
    ),
)
CALL_COUNTS: tuple[tuple[str, Callable], ...] = (
    ("", lambda steps: sum(len(step.tokens) for step in steps)),
    (
        "You counted tokens that were cut off. They are not in the text.",
        lambda steps: sum(len(step.tokens) + step.cut for step in steps),
    ),
    (
        "You left out the tokens of calls that checked no draft, the prompt's for one. They are in the text too.",
        lambda steps: sum(len(step.tokens) for step in _drafting(steps)),
    ),
    (
        "You left out the tokens of calls that checked no draft, and counted tokens that were cut off.",
        lambda steps: sum(len(step.tokens) + step.cut for step in _drafting(steps)),
    ),
    (
        "You counted the accepted tokens alone: those that the target added are in the text too.",
        lambda steps: sum(step.accepted for step in steps),
    ),
    (
        "accepted + 1 is right for a whole step. Where one was cut, the last token is not in the text: len(tokens).",
        lambda steps: sum(step.accepted + 1 for step in steps),
    ),
    (
        "You left out the first token, which the prompt's call gave.",
        lambda steps: sum(len(step.tokens) for step in steps[1:]),
    ),
    (
        "You counted the bonus token twice: `tokens` has it already, at its end.",
        lambda steps: sum(len(step.tokens) + 1 for step in steps),
    ),
    ("You counted what was drafted, not what came of it.", lambda steps: sum(len(step.drafted) for step in steps)),
)
CALL_CALLS: tuple[tuple[str, Callable], ...] = (
    ("", len),
    ("You left out the prompt's call. It is a call of the target, and gave a token.", lambda steps: len(steps) - 1),
    (
        "You divided by the calls that checked a draft. The prompt's is a call too, and so is every other one.",
        lambda steps: len(_drafting(steps)),
    ),
    ("You divided by one too many: the prompt's call is the first step already.", lambda steps: len(steps) + 1),
    (
        "You divided by the drafted tokens. They are checked many at a time: a step is one call.",
        lambda steps: sum(len(step.drafted) for step in steps),
    ),
)
CALL_MISTAKES: tuple[tuple[str, Callable], ...] = (
    ("That is calls per token: upside down.", lambda steps: 1 / _per_call(steps)),
    ("That is τ. Here every call counts, the prompt's as well, and no token that was cut off.", _tau),
    *(
        (f"{count} {call}".strip(), lambda steps, above=above, below=below: _divide(above(steps), below(steps)))
        for (count, above), (call, below) in sorted(
            itertools.product(CALL_COUNTS, CALL_CALLS), key=lambda pair: sum(bool(part[0]) for part in pair)
        )
        if count or call
    ),
)


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
    complaints = [*_about_positions(answers), *_about_mask(answers)]
    if complaints:
        return wrong(" ".join(complaints))
    return _end(failed, "A place behind the target's positions; and of the tree, its own path and no other future.")


def _placed(my_places, length: int) -> tuple[np.ndarray, np.ndarray]:
    parents = list(PARENTS)
    answer = attempt(my_places, parents, length)
    if parents != list(PARENTS):
        raise _Ended(wrong("Your function changed the list of parents that it was given: work on a copy."))
    positions, mask = _two(answer, "two things, the positions and the mask")
    positions, mask = _array(positions, "a position for each node"), _array(mask, "a matrix of True and False")
    nodes, places = len(PARENTS), length - 1
    if positions.shape != (nodes,):
        raise _Ended(wrong(f"Expected a position for each of the {nodes} nodes; got shape {positions.shape}."))
    said = f"For a text of {length} tokens and {nodes} nodes the mask should have shape {(nodes, places + nodes)}, "
    said += f"yours has {mask.shape}."
    if mask.shape == (nodes, places + 1 + nodes):
        said += (
            f" A column too many: the text's {length} tokens fill {places} places, because the first token has no "
            "feature before it to be paired with."
        )
    elif mask.shape == (nodes, nodes):
        said += " The text's places are missing: the network attends to what it has read as well."
    elif mask.shape == (places + nodes, places + nodes):
        said += " A row for each node is enough: the text's own places are in the cache."
    elif mask.shape == (places + nodes, nodes):
        said += " Rows are what attends, columns what is attended to."
    if mask.shape != (nodes, places + nodes):
        raise _Ended(wrong(said))
    return positions, mask


def _about_positions(answers) -> list[str]:
    """What is wrong with the positions; empty if nothing is."""
    depths = _depths(PARENTS)
    mine = [positions for positions, _ in answers]
    due = [length - 1 + depths for length in LENGTHS]
    if _same_arrays(mine, due):
        return []
    case = next(case for case, (one, other) in enumerate(zip(mine, due)) if not np.array_equal(one, other))
    node = int(np.flatnonzero(mine[case] != due[case])[0])
    said = (
        f"Positions: in a text of {LENGTHS[case]} tokens you put node {node} at {mine[case][node]:g}, expected "
        f"{due[case][node]} (parents: {list(PARENTS)})."
    )
    named = [message for message, rule in POSITIONS if _same_arrays(mine, [rule(length) for length in LENGTHS])]
    return [" ".join([said, *named[:1]])]


_DEPTH = "A position says how far into the sequence a place is: siblings are guesses for one place, and share it."
POSITIONS: tuple[tuple[str, Callable], ...] = (
    (
        "That is where the *target* has it. The draft network's sequence is one shorter: its place 0 holds the "
        "text's second token, with the feature of the first.",
        lambda length: length + _depths(PARENTS),
    ),
    (
        f"You count nodes. {_DEPTH}",
        lambda length: length - 1 + np.arange(len(PARENTS)),
    ),
    (
        f"You count nodes, and from where the target has them. {_DEPTH} And the text fills one place less than it has "
        "tokens.",
        lambda length: length + np.arange(len(PARENTS)),
    ),
    (f"You count nodes, and from 0. {_DEPTH} And before the tree stands the text.", lambda n: np.arange(len(PARENTS))),
    ("That is the depth alone: before the tree stands the text.", lambda length: _depths(PARENTS)),
    (
        "One too few: the text fills the positions 0 to length - 2, and the first level comes after them.",
        lambda length: length - 2 + _depths(PARENTS),
    ),
    (
        "Two too many: the first level comes right after the text's places, which end at length - 2.",
        lambda length: length + 1 + _depths(PARENTS),
    ),
    *(
        (
            "All nodes at one place? A child comes one place after its parent.",
            lambda n, add=add: n + add + 0 * _depths(PARENTS),
        )
        for add in (-2, -1, 0)
    ),
    (
        "Each level is twice as far from the text as it should be: a child comes *one* place after its parent.",
        lambda length: length - 1 + 2 * _depths(PARENTS),
    ),
)


def _about_mask(answers) -> list[str]:
    """What is wrong with the mask; empty if nothing is."""
    due, above = _ancestors(PARENTS)
    masks = [mask for _, mask in answers]
    whole = [np.hstack([np.ones((len(PARENTS), length - 1), dtype=bool), due]) for length in LENGTHS]
    if _same_arrays(masks, whole):
        return []
    if not all(np.isin(mask, (0, 1)).all() for mask in masks):
        if _same_arrays([mask == 0 for mask in masks], whole):
            return ["Mask: that is what is added to the scores, 0 or a very large negative number. Give True or False."]
        return ["Mask: expected True and False (or 1 and 0)."]
    masks = [mask.astype(bool) for mask in masks]
    if _same_arrays(masks, [~mask for mask in whole]):
        return ["Mask: True where it should be False. Say what a node may attend to, not what is hidden from it."]
    if _same_arrays(masks, [np.roll(mask, len(PARENTS), axis=1) for mask in whole]):
        return ["Mask: the tree's columns come first in yours. The text's places were there before the tree: they do."]
    said, size = [], len(PARENTS)
    text, tree = [mask[:, :-size] for mask in masks], [mask[:, -size:] for mask in masks]
    if not all(part.all() for part in text):
        length, part = next((length, part) for length, part in zip(LENGTHS, text) if not part.all())
        row, column = map(int, np.argwhere(~part)[0])
        told = "no node sees the text. " if not any(part.any() for part in text) else ""
        told = told or ("only the first level sees the text. " if _first_level_only(text) else "")
        told = told or ("the text's last place is hidden. " if all(p[:, :-1].all() for p in text) else "")
        said.append(
            f"Mask: {told}Node {row} does not see place {column} of a text of {length} tokens. Every place of the text "
            "is known, and lies before every node."
        )
    if not _same_arrays(tree, [due] * len(tree)):
        named = [message for message, mistaken in MASKS if _same_arrays(tree, [mistaken(due, above)] * len(tree))] or [
            _first_wrong_pair(next(part for part in tree if not np.array_equal(part, due)), due)
        ]
        said.append(f"The mask, among the nodes. {named[0]}")
    return said


def _first_level_only(text) -> bool:
    first = np.array(PARENTS) == -1
    return all(np.array_equal(part, np.repeat(first[:, None], part.shape[1], axis=1)) for part in text)


def _same_arrays(answers, expected) -> bool:
    return all(np.array_equal(mine, due) for mine, due in zip(answers, expected))


# ----------------------------------------------------------------------------------------------------------------------
# The best of a tree


class Guesses(NamedTuple):
    """Candidates, each with the probability that the network gave it after its parent, and how many may be kept."""

    probs: tuple[float, ...]
    parents: tuple[int, ...]
    nodes: int

    @property
    def scores(self) -> list[float]:
        """The log-probability of each candidate's path."""
        scores: list[float] = []
        for prob, parent in zip(self.probs, self.parents):
            scores.append(math.log(prob) + (scores[parent] if parent >= 0 else 0.0))
        return scores


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
    for guesses, (kept, _) in zip(GUESSES, answers):
        if sorted(kept) != sorted(_best(guesses)):
            return wrong(_about_kept(guesses, [set(kept) for kept, _ in answers]))
    for guesses, (kept, _) in zip(GUESSES, answers):
        for place, candidate in enumerate(kept):
            parent = guesses.parents[candidate]
            if parent >= 0 and parent not in kept[:place]:
                return wrong(
                    f"The right candidates, in another order: {candidate} stands before its parent, {parent}. Parents "
                    "come first, or the tree cannot be built from the list."
                )
    if _equal([parents for _, parents in answers], [_renumbered(g, kept) for g, (kept, _) in zip(GUESSES, answers)]):
        return _end(
            failed,
            "A path is never likelier than its own beginning, so the best ones are a tree; with equal ones it is the "
            "order that sees to it.",
        )
    return wrong(_about_parents(answers))


def _best(guesses: Guesses, score: Callable | None = None, more: int = 0, tie: int = 1) -> list[int]:
    """The candidates with the highest scores, of equal ones the earlier (`tie` -1: the later)."""
    scores = guesses.scores if score is None else score(guesses)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], tie * i))
    return sorted(order[: max(0, guesses.nodes + more)])


def _renumbered(guesses: Guesses, kept) -> list[int]:
    place = {-1: -1} | {candidate: number for number, candidate in enumerate(kept)}
    return [place[guesses.parents[candidate]] for candidate in kept]


def _reranked(my_rerank, guesses: Guesses) -> tuple[list[int], list[int]]:
    given = [math.log(prob) for prob in guesses.probs], list(guesses.parents)
    before = [list(part) for part in given]
    try:
        answer = attempt(my_rerank, *given, guesses.nodes)
    except _Ended as ended:
        if isinstance(ended.__cause__, KeyError | ValueError | IndexError):
            raise _Ended(wrong(f"{ended.verdict.message}. {_perhaps(guesses)}")) from ended.__cause__
        raise
    if [*map(list, given)] != before:
        raise _Ended(wrong("Your function changed a list that it was given: work on copies, or use sorted."))
    kept, parents = _two(answer, "two lists, the candidates kept and their parents")
    kept, parents = _whole(kept, "the numbers of candidates"), _whole(parents, "the places of their parents")
    if len(kept) != len(parents):
        raise _Ended(wrong(f"Expected a parent for each candidate kept: you gave {len(kept)} and {len(parents)}."))
    none = [candidate for candidate in kept if candidate not in range(len(guesses.probs))]
    if none:
        raise _Ended(wrong(f"There is no candidate {none[0]}: they are numbered from 0 to {len(guesses.probs) - 1}."))
    if len(set(kept)) < len(kept):
        twice = next(candidate for candidate in kept if kept.count(candidate) > 1)
        raise _Ended(wrong(f"You keep candidate {twice} more than once."))
    return kept, parents


def _perhaps(guesses: Guesses) -> str:
    """What may be behind an error: a parent that was not kept, and why."""
    scores = guesses.scores
    for candidate, parent in enumerate(guesses.parents):
        if parent >= 0 and scores[candidate] == scores[parent] and len(scores) > guesses.nodes:
            return (
                f"Did you keep a candidate without its parent? Here the paths to {candidate} and to its parent "
                f"{parent} are equally probable: keep the earlier of equal ones."
            )
    return (
        "Did you keep a candidate without its parent? Rank whole paths: the sum of the log-probabilities from the text "
        "down. Then no candidate is better than its parent."
    )


def _about_kept(guesses: Guesses, sets: Sequence[set[int]]) -> str:
    case = GUESSES.index(guesses)
    mine, due = sets[case], set(_best(guesses))
    said = (
        f"Of candidates with the probabilities {list(guesses.probs)} and the parents {list(guesses.parents)} you keep "
        f"{sorted(mine)}; the best {guesses.nodes} are {sorted(due)}."
    )
    for message, rule in KEPT_MISTAKES:
        if _equal(sets, [set(rule(guesses)) for guesses in GUESSES]):
            return f"{message} {said}"
    if len(mine) != len(due):
        return f"You keep {len(mine)}, and {len(due)} are wanted. {said}"
    for candidate in sorted(mine):
        if guesses.parents[candidate] not in {-1, *mine}:
            return (
                f"Candidate {candidate} hangs in the air: its parent, {guesses.parents[candidate]}, is not kept. {said}"
            )
    return said


def _own_logs(guesses):
    return [math.log(prob) for prob in guesses.probs]


def _paths(guesses, combine):
    """A score from the probabilities along each candidate's path."""
    paths: list[list[float]] = []
    for prob, parent in zip(guesses.probs, guesses.parents):
        paths.append([*(paths[parent] if parent >= 0 else ()), prob])
    return [combine(path) for path in paths]


def _leaves(guesses):
    inner = set(guesses.parents)
    return [i for i in range(len(guesses.probs)) if i not in inner]


def _with_ancestors(guesses, chosen):
    closed = set()
    for candidate in chosen:
        while candidate >= 0:
            closed.add(candidate)
            candidate = guesses.parents[candidate]
    return closed


def _best_leaves(guesses):
    leaves = _leaves(guesses)
    return sorted(leaves, key=lambda i: (-guesses.scores[i], i))[: guesses.nodes]


KEPT_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "You rank candidates by their own probability. However sure a guess is of itself, where its parent is wrong it "
        "is worth nothing: add the log-probabilities along the path.",
        lambda guesses: _best(guesses, _own_logs),
    ),
    (
        "You rank candidates by their own probability, and then add the ancestors of those chosen. That may be more "
        "than `nodes`, and they are not the best. Rank whole paths, and nothing has to be added.",
        lambda guesses: _with_ancestors(guesses, _best(guesses, _own_logs)),
    ),
    (
        "You rank the leaves and add their ancestors. Every node counts by itself: half a path may be worth keeping.",
        lambda guesses: _with_ancestors(guesses, _best_leaves(guesses)),
    ),
    (
        "You keep leaves alone. What lies above them has to be in the tree too, and is likelier.",
        _best_leaves,
    ),
    (
        "You add a parent's own log-probability to a candidate's, and no further: go all the way up. (In a loop from "
        "the first candidate to the last, the parent's *sum* is there already.)",
        lambda guesses: _best(
            guesses, lambda g: [own + (_own_logs(g)[p] if p >= 0 else 0.0) for own, p in zip(_own_logs(g), g.parents)]
        ),
    ),
    (
        "Of equal paths you keep the later. A child that the network is certain of is exactly as probable as its "
        "parent: keep the earlier one, or the child hangs in the air.",
        lambda guesses: _best(guesses, tie=-1),
    ),
    (
        "You keep one too few. `nodes` are the candidates; the text's last token is not among them. (In the published "
        "code it is: 60 there are 59 here.)",
        lambda guesses: _best(guesses, more=-1),
    ),
    ("You keep one too many: `nodes` of them.", lambda guesses: _best(guesses, more=1)),
    (
        "You keep the first ones, as they were guessed: level by level. Deep paths that are likely come too late then.",
        lambda guesses: range(min(guesses.nodes, len(guesses.probs))),
    ),
    ("You keep all candidates. Every one of them makes the target's call wider.", lambda g: range(len(g.probs))),
    (
        "You keep the *least* likely paths. Log-probabilities are negative: the largest, nearest to 0, is the best.",
        lambda guesses: _best(guesses, lambda g: [-score for score in g.scores]),
    ),
    (
        "You keep the *least* likely paths, and of equal ones the later: sorted from the wrong end.",
        lambda guesses: _best(guesses, lambda g: [-score for score in g.scores], tie=-1),
    ),
    (
        "You take the mean along the path. A long path is right less often than its beginning, and the mean hides it: "
        "take the sum.",
        lambda guesses: _best(guesses, lambda g: _paths(g, lambda path: math.fsum(map(math.log, path)) / len(path))),
    ),
    (
        "You add *probabilities* along the path: a longer path would always be better. They are multiplied, that is, "
        "their logarithms are added.",
        lambda guesses: _best(guesses, lambda g: _paths(g, math.fsum)),
    ),
    (
        "You *multiply* log-probabilities. They are added: probabilities are multiplied.",
        lambda guesses: _best(guesses, lambda g: _paths(g, lambda path: math.prod(map(math.log, path)))),
    ),
)


def _about_parents(answers) -> str:
    """What to say when the right candidates are kept, and the parents are not their places in the list."""
    for message, rule in PARENT_MISTAKES:
        if _equal([parents for _, parents in answers], [rule(g, kept) for g, (kept, _) in zip(GUESSES, answers)]):
            return f"The right candidates. {message}"
    guesses, (kept, parents) = next((g, a) for g, a in zip(GUESSES, answers) if a[1] != _renumbered(g, a[0]))
    due = _renumbered(guesses, kept)
    place = next(place for place, pair in enumerate(zip(parents, due)) if pair[0] != pair[1])
    return (
        f"The right candidates. In {kept} the parent of {kept[place]} is {guesses.parents[kept[place]]} (-1 is the "
        f"text), so in place {place} of the parents stands {due[place]}; you gave {parents[place]}."
    )


PARENT_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "But the parents have their old numbers. Some candidates before them are gone: give a parent's place in the "
        "list of those kept.",
        lambda guesses, kept: [guesses.parents[candidate] for candidate in kept],
    ),
    (
        "But you count the text as place 0. It is no candidate: -1, and those kept are counted from 0.",
        lambda guesses, kept: [parent + 1 for parent in _renumbered(guesses, kept)],
    ),
    ("But all of them hang on the text in your tree.", lambda guesses, kept: [-1] * len(kept)),
    (
        "But your tree is a chain: each follows the one before it in the list.",
        lambda guesses, kept: list(range(-1, len(kept) - 1)),
    ),
)


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
    answers, failed = _tried(range(len(MAPS)), lambda case: _spread_by(my_spread, case))
    expected = [_spread(case) for case in range(len(MAPS))]
    case = next((c for c, (mine, due) in enumerate(zip(answers, expected)) if not _same_logits(mine, due)), None)
    if case is None:
        return _end(failed, "A token's number and its offset are the target's number; what is not known is impossible.")
    return wrong(_about_spread(answers, case))


def _map(case: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, d2t). In the first row all logits are negative: a 0 would beat them."""
    tokens, _ = MAPS[case]
    count = len(tokens)
    logits = torch.stack([-1.0 - torch.arange(count) * 0.75, 2.5 - (torch.arange(count) - 1.5).abs() * 1.25])
    return logits, torch.tensor(tokens) - torch.arange(count)


def _columns(case: int, where: Callable) -> np.ndarray:
    """The columns where(i, d2t) of the draft's tokens; as Python counts, so that -1 is the last."""
    _, offsets = _map(case)
    return where(np.arange(len(offsets)), offsets.numpy())


def _spread(case: int, filler: float = -math.inf) -> np.ndarray:
    logits, _ = _map(case)
    made = np.full((len(logits), MAPS[case][1]), filler)
    made[:, _columns(case, np.add)] = logits.numpy()
    return made


def _same_logits(mine, due) -> bool:
    return np.allclose(mine, due, rtol=1e-5, atol=1e-6)


def _spread_by(my_spread, case: int) -> np.ndarray:
    (logits, offsets), vocab_size = _map(case), MAPS[case][1]
    shape = (len(logits), vocab_size)
    try:
        answer = attempt(my_spread, logits, offsets, vocab_size)
    except _Ended as ended:
        if isinstance(ended.__cause__, IndexError | RuntimeError):
            said = (
                f"{ended.verdict.message}. Is a column outside the {vocab_size} of the target? The target's number of "
            )
            raise _Ended(wrong(f"{said}token i is i + d2t[i], added once.")) from ended.__cause__
        raise
    due = _map(case)
    if not (torch.equal(logits, due[0]) and torch.equal(offsets, due[1])):
        raise _Ended(wrong("Your function changed a tensor that it was given: work on a copy."))
    array = _array(answer, f"logits of shape {shape}")
    if array.shape == shape:
        return array
    said = f"Expected logits of shape {shape}, a column for each of the target's tokens; yours have {array.shape}."
    best = due[0].argmax(-1).numpy()
    if array.shape == best.shape and np.array_equal(array, best):
        said += (
            " Those are the likeliest tokens by the *draft's* numbers: argmax over the wrong vocabulary. The target "
            "knows them by others, and it is the logits that are asked for."
        )
    elif array.shape == best.shape and np.array_equal(array, (best + due[1].numpy()[best])):
        said += " The likeliest tokens are right. It is the logits of all of them that are asked for."
    elif array.shape == tuple(due[0].shape):
        said += " Those are the draft's own columns: the target has others."
    elif array.shape == shape[::-1]:
        said += " Rows and columns are exchanged."
    raise _Ended(wrong(said))


def _about_spread(answers, case: int) -> str:
    """What is wrong with the first answer that is: where the logits went, what stands elsewhere, what they became."""
    (logits, offsets), (tokens, size), mine = _map(case), MAPS[case], answers[case]
    about = f"d2t = {offsets.tolist()} and a vocabulary of {size}:"
    columns = list(tokens)
    if _same_logits(mine[:, columns], logits.numpy()):
        others = np.delete(mine, columns, axis=1)
        filler = float(others[others != -math.inf][0])
        said = f"{about} the known tokens are right. But there are unknown ones with the logit {filler:g}"
        if math.isnan(filler):
            return f"{said}, and argmax takes a NaN for the largest: -inf."
        if filler > float(logits[0].max()):
            return (
                f"{said}. In row 0 this beats all of the network's own guesses, and a token that it cannot know would "
                "be drafted. -inf makes them impossible."
            )
        return (
            f"{said}, and that leaves them possible. Where more guesses are asked for than tokens are known, they "
            "would be candidates. -inf makes them impossible."
        )
    found = {float(value): np.flatnonzero(np.isclose(mine[0], value)).tolist() for value in logits[0].tolist()}
    where = [places[0] if len(places) == 1 else None for places in found.values()]
    for message, rule in SPREAD_MISTAKES if case == 0 else ():  # the first map tells them all apart
        due = _columns(case, rule)
        inside = (due >= -size) & (due < size)
        # Where two are put in one column, either may have been written last, or the two were added.
        only = [column % size for column, there in zip(due.tolist(), inside) if there]
        lone = [i for i, there in enumerate(inside) if there and only.count(due[i] % size) == 1]
        if inside.all() and all(where[i] == due[i] % size for i in lone) and _used(mine) <= set(only) and lone:
            return f"{message} For {about} token {_first_off(due, tokens)}."
        if inside.all() and not lone and _used(mine) == set(only):
            return f"{message} For {about} token {_first_off(due, tokens)}."
    if _same_logits(mine[:, columns], torch.as_tensor(logits).log_softmax(-1).numpy()):
        return f"{about} the places are right, but you give log-probabilities: it is the logits that are asked for."
    if _same_logits(mine[:, columns], logits.softmax(-1).numpy()):
        return f"{about} the places are right, but you give probabilities: it is the logits that are asked for."
    row, column = map(int, np.argwhere(~np.isclose(mine, _spread(case)))[0])
    due = _spread(case)[row, column]
    whose = f"that is the draft's token {tokens.index(column)}" if column in tokens else "which the network cannot know"
    return f"{about} in row {row} the target's token {column}, {whose}, has {mine[row, column]:g}, expected {due:g}."


def _used(mine) -> set[int]:
    """Columns in which something stands: neither -inf, nor what fills most of the others."""
    values, counts = np.unique(mine[0], return_counts=True)
    filler = values[counts.argmax()] if counts.max() > 1 else -math.inf
    return set(np.flatnonzero((mine[0] != -math.inf) & (mine[0] != filler)).tolist())


def _first_off(due, tokens) -> str:
    """The first of the draft's tokens that went to another column than its own."""
    i = next(i for i, (column, token) in enumerate(zip(due.tolist(), tokens)) if column != token)
    return f"{i} is the target's {tokens[i]}, and you put it at {due[i]}"


SPREAD_MISTAKES: tuple[tuple[str, Callable], ...] = (
    (
        "You took d2t for the target's numbers. It holds *offsets*, what to add: several tokens have the same one, and "
        "overwrite each other.",
        lambda own, offset: offset,
    ),
    (
        "You forgot the map: the draft's token i is not the target's token i. Decoding goes on as if nothing were "
        "wrong, only that guesses are refused.",
        lambda own, offset: own,
    ),
    ("You added the offset twice: the target's number is i + d2t[i].", lambda own, offset: own + 2 * offset),
    ("You subtracted the offset: the target's number is i + d2t[i].", lambda own, offset: own - offset),
    (
        "You summed the offsets up to i. Each is whole by itself: i + d2t[i].",
        lambda own, offset: own + np.cumsum(offset),
    ),
    ("You summed the offsets up to i, and left out i. It is i + d2t[i].", lambda own, offset: np.cumsum(offset)),
    ("One too many: i + d2t[i], counted from 0.", lambda own, offset: own + offset + 1),
    ("One too few: i + d2t[i], counted from 0.", lambda own, offset: own + offset - 1),
)


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _tried(cases, ask: Callable) -> tuple[list, _Ended | None]:
    """What a reader's function answers in each case, as far as it gets; and how it failed then, or None.

    That it fails in a later case says less than what is wrong with its answers to those before.
    """
    answers: list = []
    for case in cases:
        try:
            answers.append(ask(case))
        except _Ended as ended:
            if not answers:
                raise
            if ended.verdict.ok is None:
                ended = _Ended(wrong("In some cases your function returns nothing: is there a return in every branch?"))
            return answers, ended
    return answers, None


def _end(failed: _Ended | None, message: str) -> Verdict:
    """The verdict when all answers are right: that they are, unless the function failed to give some."""
    if failed:
        raise failed
    return right(message)


def _equal(answers, expected) -> bool:
    """Whether answers are as expected, as far as there are any."""
    return all(mine == due for mine, due in zip(answers, expected))


def _near(answers, expected) -> bool:
    """Whether numbers, or pairs of them, are as expected, as far as there are any."""
    mine, due = (np.array([*pairs], dtype=float) for pairs in (answers, [*expected][: len(answers)]))
    return mine.shape == due.shape and bool(np.isclose(mine, due, rtol=1e-6, atol=1e-9, equal_nan=True).all())


def _two(answer, what: str) -> tuple:
    """Two things in a tuple or a list; the checker ends with a ✗ for anything else."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise _Ended(wrong(f"Expected {what}; got {_seen(answer)}."))
    return tuple(answer)


def _two_numbers(answer, what: str) -> tuple[float, float]:
    if isinstance(answer, torch.Tensor | np.ndarray) and answer.shape == (2,):
        answer = list(answer)
    pair = _two(answer, f"two numbers, {what}")
    values = [_array(value, "a number") for value in pair]
    for value, array in zip(pair, values, strict=True):
        if array.size != 1:
            raise _Ended(wrong(f"Expected a number, got {_seen(value)}."))
    return float(values[0].item()), float(values[1].item())


def _array(answer, what: str) -> np.ndarray:
    """An answer as a float64 array of whatever shape; the checker ends with a ✗ if it is none."""
    try:
        if isinstance(answer, torch.Tensor):
            answer = answer.detach().cpu()
            answer = answer.double() if answer.is_floating_point() else answer.numpy()
        if isinstance(answer, str | bytes) or np.iscomplexobj(answer):
            raise TypeError
        return np.asarray(answer, dtype=float)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise _Ended(wrong(f"Expected {what}; got {_seen(answer)}.")) from None


def _whole(answer, what: str) -> list[int]:
    """An answer as a list of whole numbers; the checker ends with a ✗ if it is none."""
    array = _array(answer, what)
    if array.ndim != 1 or not np.isfinite(array).all() or (array != array.round()).any():
        raise _Ended(wrong(f"Expected {what}; got {_seen(answer)}."))
    return [int(value) for value in array]


def _seen(answer) -> str:
    """An answer as a message shows it; of a tensor that holds no numbers to show, its kind."""
    try:
        return _short(answer)
    except (RuntimeError, ValueError):
        return type(answer).__name__


def _listed(row) -> str:
    return "[" + ", ".join(f"{value:g}" for value in row) + "]"
