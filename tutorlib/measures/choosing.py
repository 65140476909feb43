"""Choose one of several answers: by a judge, by a vote, or by how much each has in common with the others.

Every rule takes answers that are already there and returns a `Choice`. Of several answers that are equally good, the
first one is chosen, which is the one that was drawn first, and `Choice.tied` names all of them. What this file does not
do: draw the answers (`sample_batch` and `speculative_batch` draw several of one prompt), or judge them.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..arguments import check_whole_number

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Choice(Generic[Answer]):
    """The result of a rule.

    Attributes
    ----------
    answer : the chosen answer
    index : int
        Its place among the answers.
    scores : list of float
        The score of every answer; the chosen one has the highest.
    tied : list of int
        The places of all answers with that score: more than one if the order of the answers has decided.
    """

    answer: Answer
    index: int
    scores: list[float]
    tied: list[int]


def best_of_n(answers: Sequence[Answer], judge: Callable[[Answer], float]) -> Choice[Answer]:
    """The answer that a judge gives the highest score.

    Cost: n calls of the judge, besides drawing the n answers. The choice is as good as the judge: a judge that is wrong
    about one answer of n is asked n times, and the answer about which it is most wrong in the answer's favour wins.

    Source: Stiennon et al. (2020), "Learning to Summarize from Human Feedback" ("best-of-N", with a model of human
    preferences as the judge); Cobbe et al. (2021), "Training Verifiers to Solve Math Word Problems", section 4.2.

    Parameters
    ----------
    answers : sequence
        At least one, of any type. A text counts as one answer and not as a sequence, so it is refused.
    judge : function from an answer to a number
        Higher is better; True counts as 1 and False as 0. Infinite scores are allowed.

    Raises
    ------
    ValueError
        If there are no answers, if the judge raises an error (which is then the cause), or if it returns NaN or no
        number. The message names the answer.
    """
    answers = _checked(answers)
    return _best(answers, [_score(judge, "the judge", place, answer) for place, answer in enumerate(answers)])


def self_consistency(
    answers: Sequence[Answer], final: Callable[[Answer], Any] = lambda answer: answer
) -> Choice[Answer]:
    """An answer whose final answer most answers agree on: a majority vote over the ways that lead to it.

    Cost: no call of a model besides drawing the n answers. With more and more answers, the vote takes the final answer
    that is most probable in all. So it can be better than greedy decoding only if several texts lead to one final
    answer: otherwise it approaches the answer that greedy decoding writes at once.

    Source: Wang et al. (2022), "Self-Consistency Improves Chain of Thought Reasoning in Language Models", section 2
    (unweighted).

    Parameters
    ----------
    answers : sequence
        At least one.
    final : function from an answer to its final answer, optional
        What is compared, for example the last number of a text. It must be hashable. An answer without one (None, or an
        empty text) does not vote, and gets the score 0. If no answer has one, the first is returned.

    Returns
    -------
    Choice
        The first of the answers with the winning final answer. The scores are numbers of votes, so `tied` also names
        the answers that agree. If two final answers have equally many votes, the one that was drawn first wins.

    Raises
    ------
    ValueError
        If there are no answers, if `final` raises an error (which is then the cause), or if it returns something that
        cannot be compared.
    """
    answers = _checked(answers)
    finals = []
    for place, answer in enumerate(answers):
        found = _asked(final, "final", place, answer)
        try:
            hash(found)
        except TypeError:
            raise ValueError(
                f"final must return something hashable, such as a text, a number or a tuple; got {found!r} for "
                f"{_named(place, answer)}"
            ) from None
        finals.append(None if found == "" else found)
    votes = Counter(found for found in finals if found is not None)
    return _best(answers, [float(votes[found]) for found in finals])


def minimum_bayes_risk(answers: Sequence[Answer], utility: Callable[[Answer, Answer], float]) -> Choice[Answer]:
    """The answer with the highest mean utility, if each of the others is taken for the truth in turn.

    The others stand for what the model holds to be likely. An answer like many others has a high utility on average,
    and so a low risk. With a utility of 1 for equal answers and 0 for others, this is the vote of `self_consistency`.

    Cost: n (n - 1) calls of `utility`, and no call of a model besides drawing the n answers.

    Source: Eikema and Aziz (2020), "Is MAP Decoding All You Need? The Inadequacy of the Mode in Neural Machine
    Translation", who estimate the expected utility from samples.

    Parameters
    ----------
    answers : sequence
        At least one. Equal answers are not merged: each stands for its part of the probability.
    utility : function from a candidate and a reference to a number
        How good the candidate is if the reference is the truth. It need not be symmetric. It is not called for an
        answer and itself.

    Returns
    -------
    Choice
        The scores are mean utilities. A single answer is chosen without a call, and its score is NaN.

    Raises
    ------
    ValueError
        As for `best_of_n`.
    """
    answers = _checked(answers)
    if len(answers) == 1:
        return Choice(answers[0], 0, [math.nan], [0])
    scores = []
    for place, answer in enumerate(answers):
        others = (other for number, other in enumerate(answers) if number != place)
        found = [_score(utility, "the utility", place, answer, other) for other in others]
        scores.append(math.fsum(found) / len(found))  # fsum: equal answers have equal sums, in whatever order
    return _best(answers, scores)


def pass_at(k: int, right: int, drawn: int) -> float:
    """The probability that at least one of `k` answers is right, estimated from `drawn` answers: "pass@k".

    No rule that chooses one of k answers is right more often. The estimate has no bias: it is the share of all sets of
    k of the drawn answers that contain a right one.

    Source: Chen et al. (2021), "Evaluating Large Language Models Trained on Code", section 2.1, equation 1.

    Parameters
    ----------
    k : int
        From 1 to `drawn`.
    right, drawn : int
        How many of the drawn answers are right.

    Examples
    --------
    >>> pass_at(2, right=1, drawn=4)
    0.5
    """
    check_whole_number(k, 1, "pass_at needs how many answers one chooses from")
    check_whole_number(right, 0, "pass_at needs how many of the answers are right")
    check_whole_number(drawn, 1, "pass_at needs how many answers were drawn")
    if max(k, right) > drawn:
        raise ValueError(f"only {drawn} answers were drawn, fewer than k = {k} or than the {right} that are right")
    return 1 - math.comb(drawn - right, k) / math.comb(drawn, k)


def _checked(answers) -> list:
    if isinstance(answers, str | bytes):
        raise ValueError(f"expected a list of answers, got one text: {answers[:40]!r}")
    answers = list(answers)
    if not answers:
        raise ValueError("there are no answers to choose from: draw at least one")
    return answers


def _named(place: int, answer) -> str:
    text = repr(answer)
    return f"answer {place}, {text if len(text) <= 60 else text[:57] + '...'}"


def _asked(function: Callable, what: str, place: int, answer, *other):
    """What a caller's function returns, or a ValueError that names the answer for which it raised an error."""
    try:
        return function(answer, *other)
    except Exception as error:  # it may be anybody's, and raise anything
        raise ValueError(f"{what} raised {type(error).__name__} ({error}) for {_named(place, answer)}") from error


def _score(function: Callable, what: str, place: int, answer, *other) -> float:
    value = _asked(function, what, place, answer, *other)
    try:
        score = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):  # the last two by tensors and arrays of several numbers
        score = math.nan
    if math.isnan(score):
        raise ValueError(f"{what} must return a number (not NaN), got {value!r} for {_named(place, answer)}")
    return score


def _best(answers: list, scores: list[float]) -> Choice:
    best = max(scores)
    tied = [place for place, score in enumerate(scores) if score == best]
    return Choice(answers[tied[0]], tied[0], scores, tied)
