"""The exercises of the chapter on best-first search: the order of the queue, a heuristic that fails, and the bound."""

import math

from ...decoders.best_first_beam_search import best_first_beam_search
from ...running.decoding import run
from .answers import filled, listed, number, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong


def searched(lm, prompt, beams, length, heuristic=None):
    """The hypotheses in the order in which best-first search scores them, and at the end the text that it returns."""
    options = {"beams": beams, "max_new_tokens": length, "length_penalty": 0, "stop": (), "heuristic": heuristic}
    trace = run(best_first_beam_search(lm, prompt, **options))
    return [*(lm.decode(step.hypotheses[0][0]) for step in trace.steps[:-1]), trace.text]


def log_prob(lm, prompt, text):
    """The log-probability of a text of one-letter tokens after a prompt."""
    tokens, start = lm.encode(text), lm.prompt_tokens(prompt)
    return sum(float(lm.log_probs([*start, *tokens[:i]])[token]) for i, token in enumerate(tokens))


@checker
def check_order(order, *, lm, prompt, beams, length) -> Verdict:
    """Judge a list of texts: the hypotheses in the order in which they leave the queue, with the result at the end."""
    order, due = listed(order), searched(lm, prompt, beams, length)
    letters = set(lm.tokenizer.vocab)
    for step, given in enumerate(order):
        if not isinstance(given, str) or not set(given) <= letters:
            return wrong(
                f"Each hypothesis must be a text of the letters {', '.join(sorted(letters))}; got {short(given)}."
            )
        if step == len(due):
            return wrong(f"{due[-1]!r} is complete when it leaves the queue, so the search ends there.")
        if given == due[step]:
            continue
        if step == 0:
            return wrong("At the start, the queue holds only the empty hypothesis: begin with ''.")
        if given in order[:step]:
            return wrong(f"You take {given!r} a second time. Each hypothesis leaves the queue only once.")
        if given[:-1] not in order[:step]:
            return wrong(f"{given!r} is not in the queue yet: {given[:-1]!r} has to be scored first.")
        own, other = (math.exp(log_prob(lm, prompt, text)) for text in (given, due[step]))
        said = f"Step {step + 1}: you take {given!r} with probability {own:.3g}"
        return wrong(f"{said}, but {due[step]!r} with {other:.3g} is waiting in the queue too. Lengths do not matter.")
    if len(order) < len(due):
        return wrong(f"The search goes on after {order[-1]!r}: it ends when a complete text leaves the queue." if order
                     else "At the start, the queue holds only the empty hypothesis: begin with ''.")  # fmt: skip
    return right(f"The result is {due[-1]!r}, after {len(due) - 1} hypotheses were scored.")


@checker
def check_heuristic(values, *, lm, prompt) -> Verdict:
    """Judge heuristics for the one-token hypotheses: only one may be too low, and the search must go wrong."""
    tokens = lm.tokenizer.vocab
    values = {token: number(value) for token, value in filled(values, tokens).items()}
    if not all(map(math.isfinite, values.values())):
        return wrong("Give finite numbers.")
    best = {token: float(lm.log_probs([*lm.prompt_tokens(prompt), *lm.encode(token)]).max()) for token in tokens}
    low = [token for token in tokens if values[token] < best[token] - 1e-9]
    options = {"beams": len(tokens), "length": 2}
    found = searched(lm, prompt, **options, heuristic=lambda new: values[lm.decode(new)] if len(new) == 1 else 0.0)[-1]
    wanted = searched(lm, prompt, **options)[-1]
    if len(low) > 1:
        return wrong(f"The numbers of {' and '.join(map(repr, low))} are too low. Make only one number too low.")
    if found == wanted:
        after = f"The search still returns {wanted!r}. "
        if not low:
            return wrong(f"{after}Your heuristic is admissible, so it cannot fail. Make one number too low.")
        if low[0] != wanted[0]:
            return wrong(f"{after}This text begins with {wanted[0]!r}, but you made the number of {low[0]!r} too low.")
        return wrong(
            f"{after}{wanted[0]!r} must stay in the queue until a complete text has left it: lower its number further."
        )
    return right(f"The search returns {found!r}, although {wanted!r} is the most probable text.")


# ----------------------------------------------------------------------------------------------------------------------
# The bound under a length penalty


def bound(log_prob, budget, alpha):
    return log_prob / budget**alpha


check_bound = Exercise(
    """Judge a function ``my_bound(log_prob, budget, alpha)`` that returns the best score still possible.""",
    [(-3.0, 10, 1.0), (-3.0, 10, 0.0), (-0.5, 4, 2.0), (-12.0, 100, 0.5)],
    bound,
    {
        "That is the bound for raw sums. Here the sum is divided by the length to the power alpha. Which length gives "
        "a negative sum the highest score?": lambda log_prob, budget, alpha: log_prob,
        "You divided by the budget without raising it to the power alpha.": (
            lambda log_prob, budget, alpha: log_prob / budget
        ),
        "You multiplied. The score is the log-probability *divided* by the length to the power alpha.": (
            lambda log_prob, budget, alpha: log_prob * budget**alpha
        ),
    },
    why="No text that begins with this hypothesis can have a higher score.",
)
