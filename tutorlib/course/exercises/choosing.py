"""The exercises of the chapter on choosing among answers: pass@k, a vote, a risk, and a case for voting."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from ...measures.choosing import pass_at
from .answers import array, judge_number, listed, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# How often one of several answers is right


@checker
def check_pass_at(answer, k, correct, drawn) -> Verdict:
    """Judge the estimate of pass@k from some drawn answers, of which some are right."""
    share = correct / drawn
    return judge_number(
        answer,
        pass_at(k, correct, drawn),
        {
            1
            - (1 - share)
            ** k: "You may draw one answer twice. Of the answers that are there, choose a set: the second "
            "one is a different one.",
            1 - pass_at(k, correct, drawn): "That is how often *none* of them is right.",
            k * share: "You added the probabilities. Sets with two right answers are then counted twice.",
            share: "That is one answer. How often is at least one of several right?",
            share**k: "That is roughly how often all of them are right.",
        },
        why="Most pairs without a right answer are rare: that is why the ceiling rises so quickly.",
        otherwise="Count the sets that hold only wrong answers, and divide by the number of all sets.",
        tolerance=1e-3,
    )


# ----------------------------------------------------------------------------------------------------------------------
# A vote


def vote(finals: Sequence, counted: Callable = lambda final: final is not None, best: Callable = max) -> int:
    votes = Counter(final for final in finals if counted(final))
    places = [place for place, final in enumerate(finals) if counted(final)]
    return best(places, key=lambda place: votes[finals[place]])


check_vote = Exercise(
    """Judge ``my_vote(finals)``: the place of the first answer that has the final answer with the most votes.""",
    [
        (["7", "8", "8"],),
        (["8", "7", "7", "8"],),
        ([None, None, None, "5"],),
        (["9", None, "10", None, None, "10"],),
        (["12"],),
        (["a", "b", "c", "c", "b"],),
    ],
    vote,
    {
        "None is not a final answer, and must not get votes.": {"counted": lambda final: True},
        "Of two final answers with equally many votes, the one that was drawn first wins.": (
            lambda finals: vote(
                finals,
                best=lambda places, key: max(
                    places, key=lambda place: (key(place), finals.index(finals[place]), -place)
                ),
            ),
            lambda finals: vote(
                finals, best=lambda places, key: min(places, key=lambda place: (-key(place), finals[place], place))
            ),
        ),
        "You return the last of the winner's answers. Return the place of its first one.": (
            lambda finals: max(place for place, final in enumerate(finals) if final == finals[vote(finals)])
        ),
        "You return the final answer with the *fewest* votes.": {"best": min},
    },
    read=lambda answer, due: answer,
    show=lambda finals: f"the final answers {finals}",
    hint="Count the final answers that are not None. Then find the first place whose final answer has the most votes.",
    why="The vote never looks at the texts, only at where they end.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A risk


def means(utilities, cell: Callable = lambda table, i, j: table[i][j], alone: bool = False) -> list[float]:
    n = len(utilities)
    return [
        math.fsum(float(cell(utilities, i, j)) for j in range(n) if alone or i != j) / (n if alone else n - 1)
        for i in range(n)
    ]


check_utilities = Exercise(
    """Judge ``my_utilities(table)``: the mean utility of each answer, over the others as references.""",
    [
        ([[1.0, 0.2, 0.6], [0.3, 1.0, 0.8], [0.5, 0.9, 1.0]],),
        ([[9.0, 1.0], [2.0, 5.0]],),
        ([[0.0, 1.0, 1.0, 0.0], [0.5, 3.0, 0.5, 0.5], [0.25, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]],),
    ],
    means,
    {
        "You also compared each answer with itself. That says nothing about the others: leave out the diagonal.": {
            "alone": True
        },
        "You took the mean over the candidates. Row i holds the utilities of candidate i, one for each reference.": {
            "cell": lambda table, i, j: table[j][i]
        },
        "You divided by n, but there are only n - 1 other answers.": (
            lambda table: [mean * (len(table) - 1) / len(table) for mean in means(table)]
        ),
        "You added the utilities up. The mean divides the sum by n - 1.": (
            lambda table: [mean * (len(table) - 1) for mean in means(table)]
        ),
    },
    show=lambda table: f"the utilities {table}",
    why="The answer with the largest mean has the smallest risk.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A case for voting

AT_LEAST = 0.7


@checker
def check_case_for_voting(answer) -> Verdict:
    """Judge up to five texts, each ``(probability, is right)``: greedy decoding must be wrong, and a vote mostly right.

    Greedy decoding is taken to write the most probable text.
    """
    texts = listed(answer)
    if not 2 <= len(texts) <= 5 or any(not isinstance(text, tuple | list) or len(text) != 2 for text in texts):
        return wrong(f"Expected two to five pairs (probability, True or False), got {short(answer)}.")
    probs = array([text[0] for text in texts], (len(texts),), "probabilities")
    marks = [text[1] for text in texts]
    if any(not isinstance(mark, bool) for mark in marks):
        return wrong(f"The second part of each pair must be True or False, got {short(marks)}.")
    if (probs < 0).any() or abs(probs.sum() - 1) > 1e-6:
        return wrong(f"The probabilities must be 0 or more and sum to 1; these sum to {probs.sum():.3g}.")
    of_right = float(sum(prob for prob, mark in zip(probs, marks, strict=True) if mark))
    said = f"The right answer has {of_right:.3g} in all."
    if any(mark for prob, mark in zip(probs, marks, strict=True) if prob >= probs.max()):
        return wrong(f"{said} But a most probable text is right, so greedy decoding may be right too.")
    if of_right < AT_LEAST:
        return wrong(f"{said} Let it have at least {AT_LEAST}: several texts must share it.")
    return right(f"{said} Each of its texts is less probable than the wrong one, but together they win the vote.")
