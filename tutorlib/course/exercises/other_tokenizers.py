"""The exercises on drafts with other tokenizers, and on batches."""

import math
from collections.abc import Mapping, Sequence

from .answers import array, close, expect, filled, number, parts, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# How often each method's guess is accepted, if every token is one word


def rates(p: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    """The probability that a single guess is accepted: TLI's is drawn, and SLEM's is the draft's most likely token."""
    total = sum(q[token] for token in q if token in p)
    return {
        "TLI": sum(min(p[token], q[token] / total) for token in q if token in p),
        "SLEM": p.get(max(q, key=q.__getitem__), 0.0),
    }


@checker
def check_rates(prediction, p: Mapping[str, float], q: Mapping[str, float]) -> Verdict:
    """Judge the predicted acceptance of TLI and SLEM for the target's distribution p and the draft's distribution q."""
    shared = [token for token in q if token in p]
    total = sum(q[token] for token in shared)
    mistakes = {
        "TLI": {
            sum(min(p[token], q[token]) for token in shared): (
                "You did not renormalise. The guess is drawn from the shared tokens alone, so divide their "
                "probabilities by their sum first."
            ),
            sum(p[token] for token in shared): "You added up what the target gives to the shared tokens. Add up min(p, "
            "q) instead.",
            sum(p[token] * q[token] / total for token in shared): (
                "You multiplied p and q, as if a guess were accepted with probability p. TLI uses min(1, p/q)."
            ),
        },
        "SLEM": {
            sum(p[token] * q[token] / total for token in shared): (
                "You let SLEM draw its guess. The draft writes its most likely token here."
            ),
            max(q.values()): "That is the draft's own probability of the guess. Take the target's, because the target "
            "decides.",
            sum(min(p[token], q[token] / total) for token in shared): "That is TLI's rate. SLEM's guess is not drawn "
            "from q.",
        },
    }
    due = rates(p, q)
    for name, value in filled(prediction, due).items():
        hint = "For TLI, add up min(p, q) over the shared tokens. For SLEM, take p of the guess."
        expect(value, due[name], mistakes[name], part=name, tolerance=0.005, otherwise=hint)
    return right("TLI adds up what p and q have in common. SLEM depends on a single probability.")


@checker
def check_slem_wins(tables, target: Sequence[str], draft: Sequence[str], ahead: float) -> Verdict:
    """Judge a case, "p" over the target's tokens and "q" over the draft's, in which SLEM is accepted more often."""
    tables = filled(tables, "pq")
    for name, tokens in (("p", target), ("q", draft)):
        table = tables[name]
        if not isinstance(table, Mapping) or set(table) != set(tokens):
            return wrong(f"{name} needs a probability for each of {', '.join(tokens)}; got {short(table)}.")
        values = [number(value) for value in table.values()]
        if not (all(0 <= value <= 1 for value in values) and close(math.fsum(values), 1, 1e-6)):
            return wrong(f"The probabilities of {name} must not be negative, and they must sum to 1.")
    p, q = tables["p"], tables["q"]
    if not any(q[token] for token in draft if token in target):
        return wrong("The draft must give some probability to a shared token, or TLI cannot draw.")
    found = rates(p, q)
    said = f"SLEM's guess is accepted with probability {found['SLEM']:.2f}, and TLI's with {found['TLI']:.2f}."
    if found["SLEM"] >= found["TLI"] + ahead:
        return right(
            f"{said} SLEM wins if the draft's most likely token is right, but the draft is less sure of it than the "
            "target."
        )
    favourite = max(q, key=q.get)
    if favourite not in target:
        return wrong(f"{said} SLEM guesses {favourite!r}, the draft's most likely token. The target has no such token.")
    if p[favourite] < max(p.values()):
        return wrong(f"{said} SLEM guesses {favourite!r}. Let this be the target's most likely token, too.")
    return wrong(f"{said} Make the target surer of {favourite!r}, or the draft less sure of it.")


# ----------------------------------------------------------------------------------------------------------------------
# Text in the target's tokens


def _tokens_of(text, vocab, *, pick=lambda fitting: max(fitting, key=lambda found: len(found[1])), unknown="ends"):
    """Ids of the target's tokens for a text, always the longest that fits; each option is a way to get it wrong."""
    ids, at = [], 0
    while at < len(text):
        fitting = [(token, piece) for token, piece in enumerate(vocab) if text.startswith(piece, at)]
        if not fitting and unknown == "ends":
            return ids
        if not fitting and unknown == "is no guess":
            return []
        token, piece = pick(fitting) if fitting else (None, text[at])
        ids += [token] * bool(fitting)
        at += len(piece)
    return ids


check_guess = Exercise(
    """Judge ``my_guess(written, vocab)``: the draft's text as a guess in the target's tokens, a list of ids.""",
    [
        (" kites", ["s", "e", " ", " ki", "kite", "te", " kite"]),
        ("abaab", ["ab", "a", "b", "aba"]),
        ("red.RED", [".", "d", "r", "re", "red", "e"]),
        ("xa", ["a"]),
        ("", ["a"]),
        ("aa#a", ["a", "aa", "aaa"]),
    ],
    _tokens_of,
    {
        "You take the first token that fits. The order of a vocabulary has no meaning: take the longest token.": {
            "pick": lambda fitting: fitting[0]
        },
        "You take the shortest token that fits, so the guess spells words in small pieces. The target's tokenizer "
        "takes the longest token.": {"pick": lambda fitting: min(fitting, key=lambda found: len(found[1]))},
        "If no token fits, you skip a character and continue. But then your guess is a different text: end the guess "
        "there.": {"unknown": "is left out"},
        "If no token fits, you give up the whole guess. But the part before is still a good guess, so return that "
        "part.": {"unknown": "is no guess"},
        "You return texts. A guess is a list of the target's ids.": (
            lambda written, vocab: [vocab[token] for token in _tokens_of(written, vocab)]
        ),
    },
    why="Your guess is the same text in the target's tokens, so the target can check it token by token.",
    hint="Look at the remaining text: with which tokens does it begin?",
)

# ----------------------------------------------------------------------------------------------------------------------
# A batch of uneven rows


def pad(rows, *, left=True, mask=lambda row, skip: [0] * skip + [1] * len(row), first=0, skipped=False):
    """(ids, mask, positions), padded with 0; each option is a way to get it wrong."""
    ids, masks, positions = [], [], []
    for row in rows:
        skip = max(map(len, rows)) - len(row)
        count = list(range(first + skip * skipped, first + skip * skipped + len(row)))
        ids.append([0] * skip + row if left else row + [0] * skip)
        masks.append(mask(row, skip) if left else mask(row, skip)[::-1])
        positions.append([0] * skip + count if left else count + [0] * skip)
    return ids, masks, positions


def rectangles(answer, due):
    """Ids and positions of padding do not matter: those of the answer are replaced by the expected ones."""
    shape = len(due[0]), len(due[0][0])
    made = [
        array(part, shape, f"{name} in a rectangle").tolist()
        for name, part in zip(("ids", "mask", "positions"), parts(answer, 3, "three values, (ids, mask, positions)"))
    ]
    there = due[1]
    for which in (0, 2):
        rows = zip(made[which], due[which], there, strict=True)
        made[which] = [[m if t else d for m, d, t in zip(*row, strict=True)] for row in rows]
    return tuple(made)


check_padding = Exercise(
    """Judge ``my_pad(rows)``: the rows as one rectangle, padded on the left, as ``(ids, mask, positions)``.""",
    [([[5, 0, 7, 2], [0, 3], [4, 1, 6]],)],
    pad,
    {
        "You pad on the right. Then the last column holds padding, and each row's next token goes into a different "
        "column. Pad on the left here.": {"left": False},
        "Your mask is 1 everywhere, so padding is read as text. The mask must be 0 for padding.": {
            "mask": lambda row, skip: [1] * (skip + len(row))
        },
        "Your mask is 0 wherever the id is 0, so it also hides real tokens. Use the lengths of the rows to find the "
        "padding, not the ids.": {"mask": lambda row, skip: [0] * skip + [int(token != 0) for token in row]},
        "Your positions count the padding too. Number each row's own tokens from 0, as if the row were alone.": {
            "skipped": True
        },
        "Your positions begin at 1. Subtract 1 from the running sum of the mask.": {"first": 1},
    },
    read=rectangles,
    why="The padding is hidden, whatever its id, and the tokens of each row are numbered as if the row were alone.",
)

# ----------------------------------------------------------------------------------------------------------------------
# What a batch gains


def _expected_tokens(gamma, alpha):
    return sum(alpha**i for i in range(gamma + 1))


def _gain(rows, gamma, alpha, free, *, expected=_expected_tokens, plain=lambda rows: rows,
         wide=lambda rows, gamma: rows * (gamma + 1)):  # fmt: skip
    """Tokens per second relative to the plain batch; each option is a way to get it wrong."""
    return expected(gamma, alpha) * max(1.0, plain(rows) / free) / max(1.0, wide(rows, gamma) / free)


check_gain = Exercise(
    """Judge ``my_gain(rows, gamma, alpha, free)``: the speed with a draft model relative to the plain batch.""",
    [(1, 4, 0.8, 32), (8, 4, 0.8, 32), (64, 4, 0.8, 32), (16, 2, 0.5, 8), (12, 6, 0.9, 100)],
    _gain,
    {
        "You count the tokens of a single row. A call holds the tokens of *all* rows: rows times (gamma + 1).": {
            "wide": lambda rows, gamma: gamma + 1
        },
        "You compare with a call with one token. A call of the plain batch holds one token for each row, so it can "
        "take longer too.": {"plain": lambda rows: 1},
        "You left out the last token before the draft. It is fed as well, so each row has gamma + 1 tokens.": {
            "wide": lambda rows, gamma: rows * gamma
        },
        "You count only accepted tokens. In each round, the target adds a token of its own.": {
            "expected": lambda gamma, alpha: sum(alpha**i for i in range(1, gamma + 1))
        },
        "A token counts only if all drafted tokens before it were accepted: add up alpha to the powers 0 to gamma.": {
            "expected": lambda gamma, alpha: 1 + alpha * gamma
        },
    },
    why="If the plain batch's calls are already wide, drafting makes them gamma + 1 times as long, and loses time.",
    hint="Divide the tokens of a row's round by the time of a round, and do the same for the plain batch.",
)
