"""The exercises of the EAGLE chapter: which nodes are kept, pairs, drawn or chosen tokens, counting tokens."""

import math

import torch

from ...model.tree import TokenTree
from ...running.step import Step
from .answers import array, close, filled, listed, number, parts, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

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


def best(score) -> set[str]:
    return set(sorted(GUESSED, key=score, reverse=True)[:NODES])


@checker
def check_kept(prediction) -> Verdict:
    """Judge a prediction of the tree of 4 nodes: a dict with "kept", a list of paths, and "tokens"."""
    filled(prediction, ("kept", "tokens"))
    kept, tokens = listed(prediction["kept"]), number(prediction["tokens"])
    strange = [path for path in kept if path not in GUESSED]
    if strange:
        return wrong(f"Give paths such as 'red' or 'red lamp'; got {short(strange[0])}.")
    if len(set(kept)) != len(kept) or len(kept) != NODES:
        return wrong(f"The tree holds {NODES} different nodes, but you named {len(set(kept))}.")
    missing = [path for path in kept if " " in path and path.split()[0] not in kept]
    if set(kept) == best(GUESSED.get):
        return wrong(
            "You ranked the candidates by their own probability. 'old hat' is certain after 'old', but 'old' is "
            "unlikely: multiply along the path."
        )
    if missing:
        return wrong(f"Without its parent, {missing[0]!r} can never be reached.")
    due = best(path_probability)
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
        "nothing new. Pair each feature with the token *after* it; in the last pair, that is the drawn token.": (
            pairs_of_tokens_and_their_own_features
        ),
        "Your pairs are right, but the last one is missing: the drawn token with the last kept row. The next draft "
        "starts from this pair.": lambda *asked: tuple(part[:-1] for part in pairs(*asked)),
        "You feed everything that the target read. Rejected nodes are not part of the text: keep row 0 and the rows of "
        "the path.": lambda read, features, path, drawn: ([*read[1:], drawn], features),
        "You feed only the last pair. The accepted tokens before it need real features too, because the network had "
        "only its own predictions there.": lambda *asked: tuple(part[-1:] for part in pairs(*asked)),
        "You used the numbers of nodes as numbers of rows: node n is in row n + 1.": pairs_by_node_numbers,
    },
    read=tokens_and_features,
    why="Each feature is paired with the token after it, which the feature does not contain yet.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Counting tokens


def step(accepted: int, drafted: int, cut: int = 0) -> Step:
    """A step with these numbers of accepted and drafted tokens; `cut` tokens are then cut off its end."""
    tokens, rejected = list(range(50, 51 + accepted)), drafted - accepted
    tree = TokenTree(tokens[:accepted] + [7] * rejected, [*range(-1, accepted - 1), *[-1] * rejected])
    made = Step(tokens, tree.tokens, accepted, tree=tree if drafted else None, path=tuple(range(accepted)))
    return made.first(len(tokens) - cut)


def mean(values):
    return sum(values) / len(values) if values else math.nan


def counts(steps, gave=lambda step: len(step.tokens) + step.cut, per_call=None, over=None):
    """(τ, tokens per call). The options count the tokens of a step in another way, or choose other steps."""
    tau = mean([gave(step) for step in steps if (step.drafted if over is None else over(step))])
    return tau, mean([len(step.tokens) for step in steps]) if per_call is None else per_call(steps)


def in_words(steps):
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
    counts,
    {
        "Your τ leaves out the bonus token. In every step, the target adds one token of its own after the accepted "
        "ones.": (
            {"gave": lambda step: len(step.tokens) + step.cut - 1},
            {"gave": lambda step: step.accepted},
        ),
        "Your τ leaves out the tokens that the budget cut off the last step. Add `cut`, because the call did yield "
        "them.": (
            {"gave": lambda step: len(step.tokens)},
            {"gave": lambda step: step.accepted + 1},
        ),
        "Your τ is the mean over all calls. Leave out calls that checked no draft, such as the prompt's: they say "
        "nothing about the drafts.": {"over": lambda step: True},
        "Your tokens per call leave out the prompt's call. It is a target call too, and it yields a token.": (
            lambda steps: counts(steps, per_call=lambda steps: mean([len(step.tokens) for step in steps[1:]])),
            lambda steps: counts(steps, per_call=lambda steps: sum(len(s.tokens) for s in steps) / len(steps[1:])),
        ),
        "Your tokens per call count tokens that were cut off. They are not in the text.": lambda steps: counts(
            steps, per_call=lambda steps: mean([len(step.tokens) + step.cut for step in steps])
        ),
    },
    show=in_words,
    why="τ includes the target's own token, and tokens per call includes the prompt's call.",
    hint="If no step has a draft, τ is the mean of nothing: return float('nan').",
)
