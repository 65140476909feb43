"""Checkers for chapter 3: a beam, one step of it, its scores, its winner, and where it loses to greedy.

What is right is worked out beside the answer from the model's own log-probabilities, one sequence at a time; no decoder
of the library is asked. The usual mistakes are worked out, too: an answer that comes to one of them is told which.
"""

import heapq
import math
from collections.abc import Mapping, Sequence

import torch

from ..table import TableLM
from . import NOT_YET, Verdict, attempt, checker, compare, number, right, wrong

# What a search by hand holds: (tokens, log-probability), best first.
Beams = list[tuple[tuple[int, ...], float]]


def _candidates(lm: TableLM, prompt: Sequence[int], beams: Beams) -> Beams:
    """All continuations of some hypotheses by one token, best first; those of probability zero left out."""
    longer = []
    for tokens, score in beams:
        row = lm.log_probs([*prompt, *tokens]).tolist()
        longer += [((*tokens, token), score + value) for token, value in enumerate(row) if value > -math.inf]
    return sorted(longer, key=lambda one: -one[1])


def _search(lm: TableLM, prompt: Sequence[int], beams: int, length: int) -> list[Beams]:
    """What beam search holds after 1, 2 … `length` tokens; nothing ends before that."""
    levels: list[Beams] = [[((), 0.0)]]
    for _ in range(length):
        levels.append(_candidates(lm, prompt, levels[-1])[:beams])
    return levels[1:]


# ----------------------------------------------------------------------------------------------------------------------
# Following a beam with a finger


@checker
def check_beams(prediction, lm, prompt, beams=2, length=None) -> Verdict:
    """Judge which hypotheses were said to be in the beam, length by length.

    Parameters
    ----------
    prediction : list of lists of str
        For each length the texts in the beam, best first, without the prompt.
    lm : TableLM
    prompt : str
    beams : int
    length : int, optional
        How many lengths were asked for.
    """
    prediction = _plain(prediction)
    if not isinstance(prediction, Sequence) or isinstance(prediction, str) or not prediction:
        return wrong(f"Expected a list with one list of texts for each length, got {prediction!r}.")
    prediction = [_plain(level) for level in prediction]
    if any(
        level is None or level is ... or (_is_list(level) and (None in level or ... in level)) for level in prediction
    ):
        return Verdict(None, NOT_YET)
    for level in prediction:
        if not (isinstance(level, str) or _is_list(level)) or not all(isinstance(text, str) for text in level):
            return wrong(f'Expected texts such as ["b", "c"] for each length, got {level!r}.')
    start = lm.prompt_tokens(prompt)
    before: Beams = [((), 0.0)]
    for reached, level in enumerate(prediction, start=1):
        candidates = _candidates(lm, start, before)
        kept = candidates[:beams]
        said = list(level) if not isinstance(level, str) else [level]
        expected = [lm.decode(tokens) for tokens, _ in kept]
        if said != expected:
            return _judge_level(lm, start, said, expected, before, candidates, beams, reached)
        before = kept
    if length is not None and len(prediction) != length:
        return wrong(f"Right as far as it goes: {len(prediction)} lengths, and {length} were asked for.")
    best, score = before[0]
    return right(
        f"The beam ends with {lm.decode(best)!r}, of probability {math.exp(score):.3g}. "
        f"What it held on the way: {', then '.join(' and '.join(map(repr, level)) for level in prediction)}."
    )


def _plain(value):
    """A list in place of a numpy array; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_list(value) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _judge_level(lm, start, said, expected, before, candidates, beams, length) -> Verdict:
    where = f"After {length} token{'s' * (length > 1)}: "
    known = {lm.decode(tokens): math.exp(score) for tokens, score in candidates}
    if any(text not in known and str(text).removeprefix(lm.decode(start)) in known for text in said):
        return wrong(f"{where}leave the prompt out, and write only what follows it.")
    for text in said:
        if text not in known:
            return wrong(
                f"{where}{text!r} does not go on from the beam before it, which held "
                f"{' and '.join(repr(lm.decode(tokens)) for tokens, _ in before)}."
                if length > 1
                else f"{where}{text!r} can't follow the prompt."
            )
    if len(set(said)) < len(said):
        return wrong(f"{where}you gave {next(text for text in said if said.count(text) > 1)!r} more than once.")
    if sorted(said) == sorted(expected):
        return wrong(f"{where}these are the right ones. Write the likelier one first.")
    if len(said) != beams:
        return wrong(f"{where}the beam holds {beams} hypotheses, and you gave {len(said)}.")
    if len(before) > 1:
        best_children = [_best_child(candidates, tokens) for tokens, _ in before]
        if {lm.decode(tokens) for tokens in best_children} == set(said):
            return wrong(
                f"{where}you let each hypothesis keep its own best continuation. They compete with each other: take "
                f"the {beams} best of all, even if all come from one."
            )
        of_the_best = [lm.decode(tokens) for tokens, _ in candidates if tokens[:-1] == before[0][0]][:beams]
        if of_the_best == said:
            return wrong(f"{where}you went on from the best hypothesis only. The others' continuations compete, too.")
        last = {tokens: math.exp(score) / _total(before, tokens[:-1]) for tokens, score in candidates}
        by_last = sorted(last, key=lambda tokens: -last[tokens])[:beams]
        if {lm.decode(tokens) for tokens in by_last} == set(said):
            return wrong(
                f"{where}you compared the last tokens' probabilities. What counts is the whole hypothesis: the product "
                "of its parent's probability and that of the new token."
            )
    missing = next(text for text in expected if text not in said)
    extra = next(text for text in said if text not in expected)
    return wrong(f"{where}{missing!r} has {known[missing]:.3g}, more than {extra!r} with {known[extra]:.3g}.")


def _best_child(candidates: Beams, parent: tuple) -> tuple:
    return next((tokens for tokens, _ in candidates if tokens[:-1] == parent), ())


def _total(beams: Beams, tokens: tuple) -> float:
    return math.exp(dict(beams)[tokens])


# ----------------------------------------------------------------------------------------------------------------------
# One step of beam search


@checker
def check_beam_step(my_beam_step) -> Verdict:
    """Judge a function ``my_beam_step(log_probs, scores, beams)`` that returns (parents, tokens, scores).

    It is given log-probabilities, (rows, vocab), the rows' scores so far, (rows,), and how many hypotheses to keep. It
    returns three lists, best first: whose continuation each is (a row), by which token, and with what score.
    """
    ordinary = torch.tensor([[0.1, 0.2, 0.65, 0.05], [0.25, 0.05, 0.1, 0.6], [0.35, 0.3, 0.2, 0.15]]).double()
    so_far = torch.tensor([-1.0, -1.2, -4.0]).double()
    cases = [
        (ordinary, so_far, 3, "with three hypotheses"),
        # A row that is ahead by far: the beam must hold its continuations alone.
        (torch.tensor([[0.5, 0.4, 0.1], [0.9, 0.05, 0.05]]).double(), torch.tensor([-0.5, -4.0]).double(), 2, "when "
         "one hypothesis is far ahead"),
        (torch.tensor([[0.1, 0.6, 0.3]]).double(), torch.zeros(1).double(), 2, "on the prompt's single row"),
        (ordinary[:1].repeat(3, 1), torch.tensor([0.0, -math.inf, -math.inf]).double(), 3, "at the first step, where "
         "all rows are the same prompt and all scores but the first are -inf"),
    ]  # fmt: skip
    for probs, scores, beams, where in cases:
        log_probs = probs.log()
        given = log_probs.clone(), scores.clone()
        answer = _parts(attempt(my_beam_step, *given, beams))
        if isinstance(answer, Verdict):
            return answer
        if not (torch.equal(given[0], log_probs) and torch.equal(given[1], scores)):
            return wrong("Your function changed the tensors that it was given: others may still need them.")
        found = _judge_step(answer, log_probs, scores, beams, where)
        if not found.ok:
            return found
    return right("The best of all continuations of all hypotheses, and each with its parent.")


def _parts(answer):
    """The three lists of an answer as plain numbers, or a verdict."""
    try:
        parents, tokens, scores = (part.tolist() if hasattr(part, "tolist") else list(part) for part in answer)
        parents, tokens, scores = [[float(one) for one in part] for part in (parents, tokens, scores)]
    except (TypeError, ValueError):
        return wrong(f"Expected three lists, (parents, tokens, scores); got {answer!r}.")
    for name, part in (("parents", parents), ("tokens", tokens)):
        if any(not one.is_integer() for one in part):
            return wrong(
                f"The {name} are {_rounded(part)}, and should be whole numbers. Give three lists, (parents, tokens, "
                "scores), in this order; a place becomes a row by //, not by /."
            )
    return [int(row) for row in parents], [int(token) for token in tokens], scores


def _judge_step(answer, log_probs, scores, beams, where) -> Verdict:
    parents, tokens, totals = answer
    rows, vocab = log_probs.shape
    expected = _top(scores[:, None] + log_probs, beams)
    if _same(answer, expected):
        return right("")
    if not len(parents) == len(tokens) == len(totals) == len(expected[0]):
        if rows > 1 and len(parents) == len(tokens) == rows * min(beams, vocab):
            return wrong(_PER_ROW)
        counts = f"{len(parents)} parents, {len(tokens)} tokens, {len(totals)} scores"
        return wrong(f"{where.capitalize()}: expected {beams} of each, got {counts}.")
    if (parents, tokens) == (expected[1], expected[0]) and _close(totals, expected[2]):
        return wrong(
            "Parent and token are the wrong way round. In the flat list of rows · vocab numbers, place // vocab is the "
            "row, and place % vocab the token."
        )
    if (parents, tokens, totals) == tuple(part[::-1] for part in expected):
        return wrong(f"{where.capitalize()}: the right ones, but worst first. Put the best first.")
    if len(set(tokens)) < len(tokens) and torch.isinf(scores).any() and any(parents):
        return wrong(
            f"{where.capitalize()}: you took continuations of rows {sorted(set(parents))}, so the beam holds the same "
            "text more than once. Only row 0 is alive: what is added to -inf stays -inf."
        )
    places = scores[:, None] + log_probs
    mistaken = [
        (_top(log_probs + 0 * scores[:, None].nan_to_num(0, 0, 0), beams), "You forgot the parent's score: a "
         "hypothesis's score is its parent's plus the new token's log-probability."),
        (_top(scores[:, None] * log_probs, beams), _MULTIPLIED),
        (_top(scores[:, None] + log_probs.exp(), beams), "You added probabilities to a sum of log-probabilities. Add "
         "the log-probability."),
        (_top(scores.exp()[:, None] * log_probs.exp(), beams), "The order is right, but these scores are "
         "probabilities: sums of log-probabilities are wanted."),
        (_per_row(places, 1), _PER_ROW),
        (_top(places[:1], beams), "You took continuations of the first hypothesis only. The others' compete, too."),
    ]  # fmt: skip
    for guess, message in mistaken:
        if _same(answer, guess) or ([parents, tokens] == list(guess[:2]) and message is _PER_ROW):
            return wrong(message)
    worst = _top(-(scores[:, None] + log_probs), beams)
    if [parents, tokens] == list(worst[:2]):
        return wrong("You keep the worst. Log-probabilities are below 0: the best is the largest, nearest to 0.")
    if [parents, tokens] == list(expected[:2]):
        shift = totals[0] - expected[2][0]
        if _close([total - shift for total in totals], expected[2]):
            return wrong(
                f"The scores are off by {shift:.3g} all alike: a log-probability starts at 0, because the prompt is "
                "given and has probability 1."
            )
        return wrong(f"{where.capitalize()}: the right continuations, but expected the scores {_rounded(expected[2])}.")
    if any(not 0 <= row < rows for row in parents) or any(not 0 <= token < vocab for token in tokens):
        return wrong(
            f"{where.capitalize()}: there are rows 0 to {rows - 1} and tokens 0 to {vocab - 1}, and you gave parents "
            f"{parents} and tokens {tokens}. Divide a place in the flat list by the size of the vocabulary."
        )
    return wrong(
        f"{where.capitalize()}: expected parents {expected[0]} and tokens {expected[1]}, got {parents} and {tokens}."
    )


_MULTIPLIED = "You multiplied. Logarithms of probabilities are added where probabilities are multiplied."
_PER_ROW = (
    "You took the best of each row by itself. The rows compete: flatten all continuations of all hypotheses into one "
    "list, and take the best of that."
)


def _top(totals: torch.Tensor, beams: int) -> tuple[list[int], list[int], list[float]]:
    best = totals.flatten().topk(min(beams, totals.numel()))
    places = best.indices.tolist()
    return (
        [place // totals.shape[1] for place in places],
        [place % totals.shape[1] for place in places],
        best.values.tolist(),
    )


def _per_row(totals: torch.Tensor, each: int) -> tuple[list[int], list[int], list[float]]:
    """The `each` best of every row, row by row or sorted: what one gets without flattening."""
    best = totals.topk(min(each, totals.shape[1]))
    flat = [
        (row, int(token), float(value))
        for row, pair in enumerate(zip(best.indices, best.values, strict=True))
        for token, value in zip(*pair, strict=True)
    ]
    flat = sorted(flat, key=lambda one: -one[2])
    return [row for row, _, _ in flat], [token for _, token, _ in flat], [value for _, _, value in flat]


def _same(answer, expected) -> bool:
    return list(answer[0]) == expected[0] and list(answer[1]) == expected[1] and _close(answer[2], expected[2])


def _close(values, others) -> bool:
    return len(values) == len(others) and all(
        math.isclose(value, other, rel_tol=1e-5, abs_tol=1e-6) for value, other in zip(values, others, strict=True)
    )


def _rounded(values) -> list[float]:
    return [round(value, 3) for value in values]


# ----------------------------------------------------------------------------------------------------------------------
# Scores and winners


@checker
def check_score(my_score) -> Verdict:
    """Judge a function ``my_score(log_prob, prompt, tokens, length_penalty)``: the score of a finished hypothesis."""
    prompt = [3, 1, 4, 1, 5]
    # The first penalty is not 1, or mistakes with the exponent would look like others.
    for log_prob, tokens, penalty in ((-6.0, [2, 7, 2, 8, 0], 0.5), (-6.0, [2, 7, 0], 2.0), (-6.0, [2, 7, 1, 0], 1.0)):
        answer = number(attempt(my_score, log_prob, list(prompt), list(tokens), penalty))
        n = len(tokens)
        mistakes = {
            -log_prob / n**penalty: "The sign is wrong: a log-probability is below 0, and so is its mean.",
            log_prob * n**penalty: "You multiplied. A longer text has a lower sum, so dividing is what favours it.",
            log_prob / (n + 1) ** penalty: f"Off by one: there are {n} new tokens, and you divided by {n + 1}.",
            log_prob / (n - 1) ** penalty: "You left the stop token out. It was chosen like the others, and counts.",
            log_prob / (n + len(prompt)) ** penalty: "You counted the prompt's tokens. Only new ones have a score.",
            log_prob / (n + len(prompt) + 1) ** penalty: "You counted the prompt's tokens, and one too many.",
            log_prob / len(prompt) ** penalty: "You divided by the prompt's length. The new tokens' length counts.",
            log_prob: "That is the raw sum: divide it by the number of new tokens to the power of length_penalty.",
            log_prob / n: "You divided by the length, whatever the length penalty is. It is the exponent.",
            log_prob / (n * penalty): "You multiplied the length with the penalty. The penalty is its exponent.",
            log_prob / penalty**n: "Base and exponent are the wrong way round: the length to the power of the penalty.",
            log_prob - penalty * n: "You subtracted. The penalty is the exponent of the length that you divide by.",
            log_prob / ((5 + n) / 6) ** penalty: "That is the penalty of Wu et al. (2016), ((5 + n) / 6) to the power "
            "of α. Here, and in transformers, it is n to the power of α.",
            math.exp(log_prob) / n**penalty: "You divided the probability. Divide its logarithm.",
            (1 + log_prob) / n**penalty: "Your sum begins at 1. A probability begins at 1, its logarithm at 0.",
        }
        expected = log_prob / n**penalty
        mistakes = {value: said for value, said in mistakes.items() if not math.isclose(value, expected, rel_tol=1e-6)}
        found = compare(
            answer,
            expected,
            mistakes,
            why=f"{log_prob:g} over {n} tokens with penalty {penalty:g}: {expected:.4f}. With 0 it is the raw sum, "
            "with 1 the mean over the tokens.",
            otherwise=f"For a sum of {log_prob:g} over {n} new tokens and penalty {penalty:g} expected {expected:.4f}.",
        )
        if not found.ok:
            return found
    return found


@checker
def check_winner(my_winner) -> Verdict:
    """Judge a function ``my_winner(finished, running, length_penalty)`` that returns the tokens of the winner.

    Both lists hold pairs (tokens, log-probability): finished ones in the order in which they were finished, running
    ones cut off by the budget.
    """
    # The first, the likeliest, the best, the worst and the last, all different.
    finished = [
        ([5, 2, 0], -5.1),
        ([4, 0], -3.2),
        ([5, 1, 2, 2, 4, 0], -6.0),
        ([3, 2, 0], -7.2),
        ([1, 2, 1, 2, 1, 2, 0], -9.1),
    ]
    running = [([3, 1, 3, 1, 3, 1, 3, 1], -2.4), ([3, 1, 3, 1, 3, 1, 3, 2], -2.6)]
    tied = [([7, 7, 0], -3.0), ([8, 0], -1.9)]
    # By sum / n the second wins; by sum / (n + 1) it is the third, by sum / (n - 1) the fifth.
    close = [
        ([6, 2, 0], -4.5),
        ([4, 1, 2, 0], -4.0),
        ([3, 5, 0], -3.15),
        ([7, 0], -3.0),
        ([1, 2, 1, 2, 1, 2, 1, 0], -8.8),
        ([8, 0], -5.0),
        ([5, 5, 4, 0], -6.4),
    ]
    cases = [
        (finished, running, 1.0),
        (finished, running, 0.0),
        (close, running, 1.0),
        (tied, running, 1.0),
        ([], [([3, 1], -2.5), ([1, 1], -2.0), ([2, 1], -3.0)], 1.0),
    ]
    for done, alive, penalty in cases:
        answer = attempt(my_winner, list(done), list(alive), penalty)
        found = _judge_winner(answer, done, alive, penalty)
        if not found.ok:
            return found
    return found


def _judge_winner(answer, done, alive, penalty) -> Verdict:
    def score(one):
        return one[1] / len(one[0]) ** penalty

    pool = done or alive
    best = max(pool, key=score)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], (list, tuple)):
        return wrong("Give back the tokens alone, not the pair of tokens and score.")
    try:
        answer = [int(token) for token in answer]
    except (TypeError, ValueError):
        return wrong(f"Expected the winner's tokens, a list of ids; got {answer!r}.")
    if answer == best[0]:
        return right(
            "The best of what is finished, by the normalised score; and only where nothing is finished, the best of "
            "what was still running."
        )
    if done and answer in [tokens for tokens, _ in alive]:
        return wrong(
            "You took a hypothesis that is not finished, although there are finished ones. Its sum is still falling: "
            "what it has not paid yet can't be compared."
        )
    if not done and answer not in [tokens for tokens, _ in alive]:
        return wrong(f"Nothing is finished here: take the best of what was still running. Got {answer}.")
    raw = max(pool, key=lambda one: one[1])
    if penalty and answer == raw[0]:
        return wrong(
            "You compared raw sums. With a length penalty above 0 compare sum / length ** penalty: the raw sum prefers "
            "the shorter text."
        )
    if answer == max(pool, key=lambda one: one[1] / (len(one[0]) + 1) ** penalty)[0]:
        return wrong("Off by one: you divided by a length that is one too large. Only the new tokens count.")
    if answer == max(pool, key=lambda one: one[1] / max(len(one[0]) - 1, 1) ** penalty)[0]:
        return wrong(
            "Off by one: you divided by a length that is one too small. The stop token counts like the others."
        )
    if answer == min(pool, key=score)[0]:
        return wrong("That is the worst. Scores are below 0, and the best is the largest, nearest to 0.")
    if not done:
        return wrong(f"Nothing is finished here: take the *best* of what was still running. Got {answer}.")
    if answer == pool[0][0]:
        return wrong("You took the first to finish. It finished first because it is short; the best may come later.")
    if answer == pool[-1][0]:
        return wrong("You took the last to finish. The order says nothing: compare the scores.")
    normalised = max(pool, key=lambda one: one[1] / len(one[0]))
    if answer == normalised[0]:
        return wrong(f"You divided by the length although the penalty is {penalty:g}: divide by length ** penalty.")
    return wrong(f"Expected {best[0]}, whose score {score(best):.3f} is the largest; got {answer}.")


# ----------------------------------------------------------------------------------------------------------------------
# Beam search below greedy


@checker
def check_worse_beam(table, prompt="a", length=3, beams=2) -> Verdict:
    """Judge a table on which beam search with `beams` beams ends with a less probable text than greedy.

    Parameters
    ----------
    table : dict or TableLM
        A dict becomes ``TableLM(table, ["a", "b", "c"])``.
    prompt : str
    length : int
        New tokens.
    """
    if isinstance(table, Mapping):
        try:
            table = TableLM(table, ["a", "b", "c"])
        except (ValueError, TypeError) as error:
            return wrong(f"That is not a table of probabilities: {error}.")
    if not isinstance(table, TableLM):
        return wrong(f"Expected a dict of probabilities or a TableLM, got {table!r}.")
    try:
        start = table.prompt_tokens(prompt)
    except ValueError as error:
        return wrong(f"The prompt is {prompt!r}, and your table cannot read it: {error}.")
    greedy = _search(table, start, 1, length)
    levels = _search(table, start, beams, length)
    before: Beams = [((), 0.0)]
    tie = None
    for beam in levels:
        candidates = _candidates(table, start, before)
        if len(candidates) > len(beam) and math.isclose(beam[-1][1], candidates[len(beam)][1], abs_tol=1e-9):
            tie = tie or [table.decode(candidates[place][0]) for place in (len(beam) - 1, len(beam))]
        before = beam
    own, found = math.exp(greedy[-1][0][1]), math.exp(levels[-1][0][1])
    names = table.decode(greedy[-1][0][0]), table.decode(levels[-1][0][0])
    facts = f"greedy writes {names[0]!r} with probability {own:.3g}, beam search {names[1]!r} with {found:.3g}"
    out = _pushed_out(levels, greedy[-1][0][0])
    if found < own * (1 - 1e-9) and tie:
        return wrong(
            f"{tie[0]!r} and {tie[1]!r} are equally likely, so which of them stays in the beam hangs on their ids. "
            "Make one of them a little likelier."
        )
    if found < own * (1 - 1e-9):
        held = " and ".join(repr(table.decode(tokens)) for tokens, _ in levels[out - 1])
        text = f"{facts}: {own / found:.2f} times less. After {out} tokens its beam held {held}, and not greedy's text."
        return right(text.replace("greedy", "Greedy", 1))
    if out is None:
        return wrong(
            f"{facts}. Greedy's beginning is in the beam at every length, so beam search can't do worse. Push it out: "
            f"for a moment {beams} other hypotheses have to be likelier."
        )
    if math.isclose(found, own, rel_tol=1e-9):
        return wrong(f"{facts}: as much. Spread thinner what follows the hypotheses that push greedy's out.")
    return wrong(
        f"{facts}. Greedy's beginning is pushed out after {out} tokens, but by hypotheses that end well. Let them die: "
        "spread thin what follows them, and make what follows greedy's nearly certain."
    )


def _pushed_out(levels: list[Beams], tokens: tuple) -> int | None:
    """The first length at which the beam does not hold the beginning of `tokens`; None if it always does."""
    for length, beam in enumerate(levels, start=1):
        if tokens[:length] not in [held for held, _ in beam]:
            return length
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Best-first


@checker
def check_best_first(my_best_first) -> Verdict:
    """Judge a function ``my_best_first(successors, beams, length)`` that returns the tokens beam search would.

    ``successors(tokens)`` scores a hypothesis, a tuple: it returns the continuations' log-probabilities by token. The
    checker looks at what was scored, and in which order.
    """
    for seed, beams, length in ((4, 2, 4), (22, 2, 5), (7, 3, 4)):
        lm = TableLM.random(4, order=2, seed=seed)
        found = _judge_best_first(my_best_first, lm, beams, length)
        if not found.ok:
            return found
    return found


def _judge_best_first(my_best_first, lm, beams, length) -> Verdict:
    start = [0]
    scored: list[tuple] = []

    def successors(tokens):
        tokens = tuple(int(token) for token in tokens)
        if len(tokens) >= length:
            raise ValueError(f"{tokens} has its {length} tokens already: it is finished, do not go on from it")
        scored.append(tokens)
        return dict(enumerate(lm.log_probs([*start, *tokens]).tolist()))

    answer = attempt(my_best_first, successors, beams, length)
    try:
        answer = tuple(int(token) for token in answer)
    except (TypeError, ValueError):
        return wrong(f"Expected the winner's tokens, got {answer!r}.")
    expected, order = _best_first(lm, start, beams, length)
    if answer == expected and scored == order:
        level_by_level = 1 + sum(map(len, _search(lm, start, beams, length)[:-1]))
        return right(
            f"Beam search's text, {answer}, with {len(scored)} hypotheses scored; level by level it takes "
            f"{level_by_level}."
        )
    if not scored:
        return wrong("Your function never called successors(tokens): nothing is known before a hypothesis is scored.")
    if len(answer) != length:
        return wrong(f"Expected {length} tokens, got {answer}.")
    if len(set(scored)) < len(scored):
        return wrong("You scored the same hypothesis more than once: push each of its continuations once, and go on.")
    for options, message in _MISTAKES:
        mistaken, order_of_it = _best_first(lm, start, beams, length, **options)
        if scored == order_of_it and (answer == mistaken or scored != order):
            return wrong(message)
    crowded = [n for n in range(1, length) if sum(len(tokens) == n for tokens in scored) > beams]
    if crowded:
        return wrong(
            f"You scored more than {beams} hypotheses of length {crowded[0]}. Count how many of each length you have "
            "taken from the queue, and leave the rest of that length alone."
        )
    if answer == expected:
        return wrong(
            f"That is beam search's text, but you scored {len(scored)} hypotheses, and {len(order)} are enough: stop "
            "as soon as a whole one is taken from the queue."
        )
    return wrong(f"Expected beam search's text {expected}, got {answer}, after scoring {scored[:4]} … in this order.")


def _best_first(lm, start, beams, length, *, sign=-1.0, limit=True, at_push=False, parent=True):
    """Best-first beam search, or a usual mistake of it: the tokens found, and the hypotheses scored, in order."""
    queue: list[tuple[float, tuple]] = [(0.0, ())]
    taken = [0] * (length + 1)
    scored: list[tuple] = []
    while queue:
        key, tokens = heapq.heappop(queue)
        if limit and taken[len(tokens)] >= beams:
            continue
        taken[len(tokens)] += 1
        if len(tokens) == length:
            return tokens, scored
        scored.append(tokens)
        for token, value in enumerate(lm.log_probs([*start, *tokens]).tolist()):
            longer = (*tokens, token)
            if at_push and len(longer) == length:
                # Taken for finished when it is found, not when it is the best of the queue.
                best = int(lm.log_probs([*start, *tokens]).argmax())
                return (*tokens, best), scored
            heapq.heappush(queue, ((key if parent else 0.0) + sign * value, longer))
    return (), scored


_MISTAKES = (
    ({"sign": 1.0}, "Your queue pops the worst. A heap pops the smallest number: push minus the score."),
    (
        {"limit": False},
        "You forgot the count for each length. Without it the search is exact, and no longer beam search: skip what is "
        "taken from the queue once as many of its length have been taken as there are beams.",
    ),
    (
        {"at_push": True},
        "You stopped as soon as a whole text was pushed. Another one in the queue may still be better: stop when a "
        "whole one is the best of the queue, that is, when it is popped.",
    ),
    ({"parent": False}, "The priority must be the whole hypothesis's score: its parent's plus the new token's."),
    ({"sign": 1.0, "limit": False}, "Your queue pops the worst: push minus the score. And count for each length."),
)
