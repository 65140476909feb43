"""The exercises of the EAGLE chapter: which nodes are kept, pairs, drawn or chosen tokens, counting tokens."""

import math

import numpy as np
import torch

from ...model.tree import TokenTree
from ...running.step import Step
from .answers import array, close, filled, listed, number, parts, same, short
from .judge import Exercise, checker
from .verdicts import Ended, Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Which candidates a dynamic tree keeps

# The guesses of a network, as in the exercise: the probability of each path's last token after the tokens before it.
GUESSED = {
    "red": 0.6, "blue": 0.3, "old": 0.1,
    "red lamp": 0.5, "red kite": 0.4, "blue bell": 0.9, "old hat": 1.0,
}  # fmt: skip
NODES = 4


def path_probability(path: str) -> float:
    words = path.split()
    return math.prod(GUESSED[" ".join(words[: i + 1])] for i in range(len(words)))


def _best(score) -> set[str]:
    return set(sorted(GUESSED, key=score, reverse=True)[:NODES])


def as_path(path):
    """A path in the form of the exercise; a reader may also write it as a tuple or a list of its words."""
    if isinstance(path, tuple | list) and path and all(isinstance(word, str) for word in path):
        return " ".join(path)
    return path


@checker
def check_kept(prediction) -> Verdict:
    """Judge a prediction of the tree of 4 nodes: a dict with "kept", a list of paths, and "tokens"."""
    filled(prediction, ("kept", "tokens"))
    kept, tokens = [as_path(path) for path in listed(prediction["kept"])], number(prediction["tokens"])
    strange = [path for path in kept if not isinstance(path, str) or path not in GUESSED]
    if strange:
        return wrong(f"Give paths such as 'red' or 'red lamp'; got {short(strange[0])}.")
    if len(set(kept)) != len(kept) or len(kept) != NODES:
        return wrong(f"The tree holds {NODES} different nodes, but you named {len(set(kept))}.")
    missing = [path for path in kept if " " in path and path.split()[0] not in kept]
    if set(kept) == _best(GUESSED.get):
        return wrong(
            "You ranked the candidates by their own probability. 'old hat' is certain after 'old', but 'old' is "
            "unlikely: multiply along the path."
        )
    if missing:
        return wrong(f"Without its parent, {missing[0]!r} can never be reached.")
    due = _best(path_probability)
    if set(kept) != due:
        off = max(due - set(kept), key=path_probability)
        return wrong(
            f"{off!r} has a probability of {path_probability(off):.2g}, which is one of the {NODES} largest, but you "
            "left it out."
        )
    expected = 1 + math.fsum(map(path_probability, due))
    if close(tokens, expected - 1, 1e-3):
        return wrong("The nodes are right. The target adds a token of its own after them: add 1.")
    if not close(tokens, expected, 1e-3):
        return wrong(
            "The nodes are right. For the number of tokens, add up the probabilities of the four paths, and add 1."
        )
    return right("'blue bell' is kept and 'red kite' is not, because 0.3 · 0.9 is more than 0.6 · 0.4.")


# ----------------------------------------------------------------------------------------------------------------------
# Drawn or chosen

GAP = 0.2


@checker
def check_chosen_wins(answer) -> Verdict:
    """Judge a case in which a chosen token is accepted more often than a drawn one: a dict of lists, "p" and "q"."""
    filled(answer, "pq")
    p, q = ([number(value) for value in listed(answer[name])] for name in "pq")
    if not 2 <= len(p) == len(q) <= 10:
        return wrong(f"p and q must be over the same 2 to 10 tokens; got {len(p)} and {len(q)} numbers.")
    for name, probs in (("p", p), ("q", q)):
        if not (min(probs) >= 0 and close(math.fsum(probs), 1, 1e-4)):
            return wrong(f"The probabilities in {name} must be 0 or more and sum to 1; got {short(probs)}.")
    favourite = q.index(max(q))
    if q.count(max(q)) > 1:
        return wrong(
            "Two tokens are equally likely in q, so it is unclear which one is chosen. Make one a little more likely."
        )
    chosen, drawn = p[favourite], math.fsum(map(min, p, q))
    said = f"The chosen token is accepted with probability {chosen:.2f}, and a drawn one with {drawn:.2f}."
    if chosen >= drawn + GAP - 1e-9:
        return right(f"{said} The network ranks the tokens well, but it is far less sure than the target.")
    if chosen <= drawn:
        return wrong(f"{said} Make the target nearly sure of the token that q prefers, and make q less sure of it.")
    return wrong(f"{said} That is the right way round, but the difference must be at least {GAP}.")


# ----------------------------------------------------------------------------------------------------------------------
# Which token goes with which feature


def features(rows):
    """A feature for each row, all different."""
    return torch.tensor([[row + 1.0, 0.5 - row, row * row] for row in range(rows)])


def call(read, path, drawn):
    return list(read), features(len(read)), list(path), drawn


def pairs(read, features, path, drawn, tokens_at=None, rows_at=None, drawn_last=True):
    """The pairs that are read next. Each option is a way to get them wrong: other rows, or no drawn token.

    ``tokens_at(path)`` and ``rows_at(path)`` are the rows from which tokens and features are taken.
    """
    tokens = [read[row] for row in (tokens_at or accepted_rows)(path)] + [drawn] * drawn_last
    return tokens, features[[*(rows_at or kept_rows)(path)]]


def accepted_rows(path):
    return [node + 1 for node in path]


def kept_rows(path):
    return [0, *accepted_rows(path)]


def kept_nodes(path):
    return [0, *path]


def tokens_and_features(answer, due):
    """The tokens and the rows of an answer. Their numbers may differ: then a mistake is named, or else the numbers."""
    tokens, rows = parts(answer, 2, "a list of tokens and the rows of features that go with them")
    tokens, count = listed(tokens), len(listed(rows))
    if count and all(isinstance(row, int) for row in listed(rows)):
        raise Ended(wrong("You return numbers of rows. Return the rows themselves, for example features[[0, 2]]."))
    width = due[1].shape[1]
    return tokens, array(rows, (count, width), "rows of features") if count else np.zeros((0, width))


def hint_on_pairs(given, due):
    tokens, rows = given
    if len(tokens) != len(rows):
        return f"Each token needs a row of features, but your numbers differ: {len(tokens)} tokens, {len(rows)} rows."
    if same(sorted(map(str, tokens)), sorted(map(str, due[0]))):
        return "Your tokens are right, but some of them are paired with other rows, or stand in another order."
    return "The tokens to read are those of the path, and then the drawn token."


check_pairs = Exercise(
    """Judge ``my_pairs(read, features, path, drawn)``: the tokens and features that the draft network reads next.""",
    # A prompt; a tree with an accepted path; a tree with nothing accepted; a chain of which a part is accepted.
    [
        call((11, 12, 13, 14), (0, 1, 2), 15),
        call((15, 21, 22, 23, 24, 25), (1, 4), 31),
        call((31, 41, 42), (), 51),
        call((51, 61, 62, 63), (0,), 71),
    ],
    pairs,
    {
        "You pair each token with its own feature. That feature was computed from this token, so the token adds "
        "nothing new. Pair each feature with the token *after* it: row 0 with the first accepted token, and the last "
        "kept row with the drawn token.": (
            {"tokens_at": kept_rows, "drawn_last": False},
            {"rows_at": accepted_rows, "drawn_last": False},  # the same, without the text's last token
            {"rows_at": accepted_rows},  # and the drawn token is left without a row
            {"rows_at": lambda path: [*accepted_rows(path), kept_rows(path)[-1]]},  # or gets the last row again
            {"tokens_at": kept_rows},  # the text's last token is read again
        ),
        "Your pairs are right, but the last one is missing: the drawn token with the last kept row. The next draft "
        "starts from this pair.": (
            {"rows_at": lambda path: kept_rows(path)[:-1], "drawn_last": False},
            {"drawn_last": False},
        ),
        "You feed everything that the target read. Rejected nodes are not part of the text: keep row 0 and the rows of "
        "the path.": (
            lambda read, features, path, drawn: ([*read[1:], drawn], features),
            lambda read, features, path, drawn: ([*read, drawn], features),
        ),
        "You feed only the last pair. The accepted tokens before it need real features too, because the network had "
        "only its own predictions there.": lambda *asked: tuple(part[-1:] for part in pairs(*asked)),
        "You used the numbers of nodes as numbers of rows: node n is in row n + 1.": (
            {"rows_at": kept_nodes},
            {"tokens_at": list},
            {"tokens_at": list, "rows_at": kept_nodes},
            {"tokens_at": list, "rows_at": list},
        ),
    },
    read=tokens_and_features,
    why="Each feature is paired with the token after it, which the feature does not contain yet.",
    hint=hint_on_pairs,
)

# ----------------------------------------------------------------------------------------------------------------------
# Counting tokens


def step(accepted: int, drafted: int, cut: int = 0) -> Step:
    """A step with these numbers of accepted and drafted tokens; `cut` tokens are then cut off its end."""
    tokens, rejected = list(range(50, 51 + accepted)), drafted - accepted
    tree = TokenTree(tokens[:accepted] + [7] * rejected, [*range(-1, accepted - 1), *[-1] * rejected])
    made = Step(tokens, tree.tokens, accepted, tree=tree if drafted else None, path=tuple(range(accepted)))
    return made.first(len(tokens) - cut)


def divided(values):
    return sum(values) / len(values)


def mean(values):
    return divided(values) if values else math.nan


def mean_or_zero(values):
    return divided(values) if values else 0.0


def yielded(step):
    return len(step.tokens) + step.cut


def with_draft(steps):
    return [step for step in steps if step.drafted]


def _tokens_per_call(steps):
    return divided([len(step.tokens) for step in steps])


def _counts(steps, gave=yielded, over=with_draft, per_call=_tokens_per_call, mean=mean):
    """(τ, tokens per call). The options count a step's tokens in another way, take other steps, or another mean."""
    return mean([gave(step) for step in over(steps)]), per_call(steps)


def whatever_the_mean(*mistakes):
    """Each mistake, also as it is made by a reader who does not think of the run without a draft."""
    return tuple(mistake | {"mean": way} for mistake in mistakes for way in (mean, divided, mean_or_zero))


def _in_words(steps):
    return "steps of " + ", ".join(
        f"{len(step.tokens)} tokens ({len(step.drafted)} drafted, {step.cut} cut off)" for step in steps
    )


check_counts = Exercise(
    """Judge ``my_counts(steps)``: the mean accepted length τ, and the tokens per call, of a run's steps.""",
    # The last step is cut by two; a step in the middle has no draft; the last is cut by one; only the prompt's call.
    [
        ([step(0, 0), step(3, 9), step(0, 9), step(4, 9, cut=2)],),
        ([step(0, 0), step(5, 8), step(0, 0), step(1, 8), step(0, 0)],),
        ([step(0, 0), step(2, 6), step(6, 6), step(3, 6, cut=1)],),
        ([step(0, 0)],),
    ],
    _counts,
    {
        "Your τ leaves out the bonus token. In every step, the target adds one token of its own after the accepted "
        "ones.": whatever_the_mean({"gave": lambda step: yielded(step) - 1}, {"gave": lambda step: step.accepted}),
        "Your τ leaves out the tokens that the budget cut off the last step. Add `cut`, because the call did yield "
        "them.": whatever_the_mean({"gave": lambda step: len(step.tokens)}, {"gave": lambda step: step.accepted + 1}),
        "Your τ is a mean over other calls than those with a draft. Count a call if `step.drafted` is not empty, even "
        "if nothing was accepted. The first call has no draft, and a later call may have none either.": (
            {"over": list},
            {"over": list, "gave": lambda step: len(step.tokens)},  # the tokens per call, twice
            *whatever_the_mean({"over": lambda steps: steps[1:]}),
            *whatever_the_mean({"over": lambda steps: [step for step in steps if step.accepted]}),
            lambda steps: _counts(steps, mean=lambda values: sum(values) / len(steps)),
            lambda steps: _counts(steps, mean=lambda values: sum(values) / len(steps) if values else math.nan),
        ),
        "The tokens per call are all tokens in `steps`, divided by the number of all calls. The first call counts, and "
        "so does every call without a draft. Tokens that were cut off do not count, because they are not in the "
        "text.": whatever_the_mean(
            {"per_call": lambda steps: mean([len(step.tokens) for step in steps[1:]])},
            {"per_call": lambda steps: mean_or_zero([len(step.tokens) for step in steps[1:]])},
            {"per_call": lambda steps: sum(len(step.tokens) for step in steps) / len(steps[1:])},
            {"per_call": lambda steps: mean([len(step.tokens) for step in with_draft(steps)])},
            {"per_call": lambda steps: divided([yielded(step) for step in steps])},
        ),
        "If no step has a draft, τ is the mean of nothing: return float('nan').": (
            {"mean": divided},
            {"mean": mean_or_zero},
        ),
    },
    show=_in_words,
    why="τ includes the target's own token, and tokens per call includes the prompt's call.",
    hint="τ is a mean over the steps with a draft, and the tokens per call are a mean over all steps.",
)
