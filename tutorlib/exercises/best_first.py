"""The exercises of the chapter on best-first search: the queue, and the bound under a length penalty."""

import heapq

from ..table import TableLM
from .judge import Exercise, attempt, listed, parts, short


def best_first(successors, beams, length, *, sign=-1.0, limit=True, at_push=False, parent=True):
    """Best-first beam search; each option is a way to get it wrong."""
    queue, taken = [(0.0, ())], [0] * (length + 1)
    while queue:
        key, tokens = heapq.heappop(queue)
        if limit and taken[len(tokens)] >= beams:
            continue
        taken[len(tokens)] += 1
        if len(tokens) == length:
            return tokens
        continuations = successors(tokens)
        if at_push and len(tokens) + 1 == length:
            return (*tokens, max(continuations, key=continuations.get))
        for token, value in continuations.items():
            heapq.heappush(queue, ((key if parent else 0.0) + sign * value, (*tokens, token)))
    return ()


def what_is_scored(my_best_first):
    """The tokens that a search returns, and the hypotheses that it had scored on the way, in their order."""

    def searched(lm, beams, length):
        scored = []

        def successors(tokens):
            tokens = tuple(int(token) for token in tokens)
            if len(tokens) >= length:
                raise ValueError(f"{tokens} has its {length} tokens already: it is finished, do not go on from it")
            scored.append(list(tokens))
            return dict(enumerate(lm.log_probs([0, *tokens]).tolist()))

        return listed(attempt(my_best_first, successors, beams, length)), scored

    return searched


def about_search(given, due):
    (tokens, scored), (best, order) = given, due
    if not scored:
        return "Your function never called successors(tokens). Nothing is known before a hypothesis is scored."
    if len({tuple(one) for one in scored}) < len(scored):
        return "You scored the same hypothesis more than once: push each of its continuations once, and go on."
    if tokens == best:
        return f"That is beam search's text, but you scored {len(scored)} hypotheses, and {len(order)} are enough."
    return f"Expected beam search's text {best}, got {short(tokens)}, after scoring {short(scored)} in this order."


check_best_first = Exercise(
    """Judge ``my_best_first(successors, beams, length)`` that returns the tokens beam search would.""",
    [
        (TableLM.random(4, order=2, seed=seed), beams, length)
        for seed, beams, length in ((4, 2, 4), (22, 2, 5), (7, 3, 4))
    ],
    best_first,
    {
        "Your queue pops the worst. A heap pops the smallest number: push minus the score.": (
            {"sign": 1.0},
            {"sign": 1.0, "limit": False},
        ),
        "You left out the count for each length. Without it the search is exact, and no longer beam search: once as "
        "many hypotheses of a length have been taken as there are beams, skip the others.": {"limit": False},
        "You stopped as soon as a whole text was pushed. Another one in the queue may still be better: stop when a "
        "whole one is popped.": {"at_push": True},
        "The priority has to be the whole hypothesis's score: its parent's plus the new token's.": {"parent": False},
    },
    through=what_is_scored,
    read=lambda answer, due: parts(answer, 2),
    said=about_search,
    why="Beam search's text, with fewer hypotheses scored than level by level.",
)


# ----------------------------------------------------------------------------------------------------------------------
# The bound under a length penalty


def bound(log_prob, budget, alpha):
    return log_prob / budget**alpha


check_bound = Exercise(
    """Judge a function ``my_bound(log_prob, budget, alpha)`` that returns the best score still in reach.""",
    [(-3.0, 10, 1.0), (-3.0, 10, 0.0), (-0.5, 4, 2.0), (-12.0, 100, 0.5)],
    bound,
    {
        "That is the bound for raw sums. Here the sum is divided by the length to the power alpha. Which length makes "
        "a negative score highest?": lambda log_prob, budget, alpha: log_prob,
        "You divided by the budget without raising it to the power alpha.": (
            lambda log_prob, budget, alpha: log_prob / budget
        ),
        "A score is divided by the length to the power alpha, and not multiplied.": (
            lambda log_prob, budget, alpha: log_prob * budget**alpha
        ),
    },
    why="Nothing that begins with this hypothesis can score higher.",
)
