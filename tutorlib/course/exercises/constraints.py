"""The exercises of the chapter on constraints: allowed tokens, a mask, shares of whole texts, a case that misleads."""

import math
from collections.abc import Mapping, Sequence

from .answers import close, filled, listed, number
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Which tokens may follow

TOKENS = ("t", "tw", "twe", "el", "elve", "en", "ent", "y", "ve", "twenty", "eleven")
BEGUN = "tw"
WORDS = ("twelve", "twenty")


@checker
def check_allowed(answer) -> Verdict:
    """Judge a list of the tokens that may follow the text "tw", if it must become twelve or twenty."""
    given = [str(token) for token in listed(answer)]
    unknown = [token for token in given if token not in TOKENS]
    if unknown:
        return wrong(f"{unknown[0]!r} is not one of the tokens.")
    due = [token for token in TOKENS if allowed(WORDS, BEGUN, token)]
    for token in given:
        if token not in due:
            why = (
                "The token is added to the text that is already there."
                if any(word.startswith(token) for word in WORDS)
                else "No word of the language begins with this text."
            )
            return wrong(f"{token!r} is not allowed: it would make {BEGUN + token!r}. {why}")
    missing = [token for token in due if token not in given]
    if missing:
        return wrong(f"{missing[0]!r} is missing: {BEGUN + missing[0]!r} is how a word of the language begins.")
    return right("A short token may be allowed beside a long one that spells the same letters.")


def allowed(texts: Sequence[str], begun: str, token: str) -> bool:
    return any(text.startswith(begun + token) for text in texts)


check_allowed_token = Exercise(
    """Judge ``my_allowed(texts, begun, token)``: whether a token may follow, if one of the texts has to come out.""",
    [
        (["yes", "no, thanks"], "", "no"),
        (["yes", "no, thanks"], "n", "no"),
        (["twelve", "twenty"], "tw", "el"),
        (["twelve", "twenty"], "twe", "tw"),
        (["kitten", "kit"], "kit", "ten"),
        (["kitten", "kit"], "kit", "tens"),
        (["red", "blue"], "", "redden"),
        (["red", "blue"], "r", "lu"),
    ],
    allowed,
    {
        "You look at the token alone. It is added to the text that is already there: compare begun + token.": (
            lambda texts, begun, token: any(text.startswith(token) for text in texts)
        ),
        "A token that is somewhere in the text may not fit here. The text must *begin* with begun + token.": (
            lambda texts, begun, token: any(begun + token in text or token in text for text in texts)
        ),
        "You ask for a whole text. A token may also lead to the beginning of one.": (
            lambda texts, begun, token: begun + token in texts
        ),
        "You ask whether begun + token begins with a text. It is the other way round: a text begins with it.": (
            lambda texts, begun, token: any((begun + token).startswith(text) for text in texts)
        ),
        "Every text would have to begin like this. One of them is enough.": (
            lambda texts, begun, token: all(text.startswith(begun + token) for text in texts)
        ),
    },
    show=lambda texts, begun, token: f"the texts {texts}, begun with {begun!r}, and the token {token!r}",
    why="An automaton answers the same question for languages with infinitely many texts.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Whole texts


def normal(weights: Mapping[str, float]) -> list[float]:
    return [weight / math.fsum(weights.values()) for weight in weights.values()]


def true_shares(first: Mapping[str, float], rest: Mapping[str, float]) -> list[float]:
    return normal({answer: first[answer] * rest[answer] for answer in first})


check_true_shares = Exercise(
    """Judge ``my_shares(first, rest)``: the shares of answers among the texts of the language.""",
    [
        ({"yes": 0.03, "no, thanks": 0.02}, {"yes": 1.0, "no, thanks": 0.001}),
        ({"a": 0.2, "b": 0.2, "c": 0.1}, {"a": 0.5, "b": 0.25, "c": 1.0}),
        ({"left": 0.6, "right": 0.3}, {"left": 0.1, "right": 0.9}),
    ],
    true_shares,
    {
        "These are the shares under the grammar: the rest is never weighed. Multiply both numbers first.": (
            lambda first, rest: normal(first)
        ),
        "You left out the first token. An answer's probability is the product of both numbers.": (
            lambda first, rest: normal(rest)
        ),
        "These are the probabilities of the answers among all texts. Divide them by their sum: the share is among the "
        "texts of the language.": lambda first, rest: [first[answer] * rest[answer] for answer in first],
        "You added the two numbers. Both must happen, one after the other: multiply them.": (
            lambda first, rest: normal({answer: first[answer] + rest[answer] for answer in first})
        ),
    },
    show=lambda first, rest: f"first tokens {first} and rests {rest}",
    why="A mask weighs only the next token; here the whole answer counts.",
)


@checker
def check_misled(answer) -> Verdict:
    """Judge four probabilities: under the grammar, "long" comes out at least nine times in ten, truly at most once.

    The keys: "first short", "first long" for the first tokens, "rest short" and "rest long" for what follows.
    """
    keys = ("first short", "first long", "rest short", "rest long")
    answer = filled(answer, keys)
    given = {key: float(number(answer[key])) for key in keys}
    for key, value in given.items():
        if not 0 < value <= 1:
            return wrong(f"{key!r} must be a probability above 0 and at most 1, got {value:.3g}.")
    if given["first short"] + given["first long"] > 1 + 1e-9:
        return wrong("The two first tokens are alternatives, so their probabilities sum to 1 or less.")
    local = given["first long"] / (given["first long"] + given["first short"])
    first = {"short": given["first short"], "long": given["first long"]}
    true = true_shares(first, {"short": given["rest short"], "long": given["rest long"]})[1]
    said = f"Under the grammar, the long answer has {local:.3g}, and truly {true:.3g}."
    if local < 0.9 and not close(local, 0.9):
        return wrong(f"{said} The first token alone decides under the grammar: make that of the long answer likelier.")
    if true > 0.1 and not close(true, 0.1):
        return wrong(f"{said} Make the rest of the long answer less likely, after its first token.")
    return right(f"{said} The first token leads into a text that the model hardly ever completes.")
