"""The exercises on drafts with other tokenizers, and on batches."""

import math

from .judge import Exercise, array, parts

# ----------------------------------------------------------------------------------------------------------------------
# A distribution over the target's tokens


def over_shared(logits, target, draft, *, pairs=None, renormalised=True, missing=-math.inf):
    """Probabilities over the target's ids; each option is a way to get it wrong."""
    row = [missing] * len(target)
    for mine, theirs in pairs or [(target.index(text), i) for i, text in enumerate(draft) if text in target]:
        row[mine] = logits[theirs]
    total = sum(map(math.exp, row if renormalised else logits))
    return [math.exp(logit) / total for logit in row]


def in_each_ones_order(logits, target, draft):
    """The k-th shared token of one list with the k-th of the other: a mistake that was published."""
    mine = [i for i, text in enumerate(target) if text in draft]
    theirs = [i for i, text in enumerate(draft) if text in target]
    return over_shared(logits, target, draft, pairs=list(zip(mine, theirs, strict=True)))


def over_the_target(answer, due):
    return array(answer, (len(due),), "a probability for each of the target's tokens,").tolist()


check_intersection = Exercise(
    """Judge ``my_intersection(draft_logits, target_vocab, draft_vocab)``: q, a probability for each target token.""",
    [
        ([0.5, 1.5, 2.0, -0.5], [" kite", "a", " red", "b", "."], [".", " red", "x", " kite"]),
        ([0.3, -1.0, 1.1, 0.4], ["c", "b", "a"], ["a", "b", "c", "d"]),
    ],
    over_shared,
    {
        "It does not sum to 1: what the draft gives to tokens that the target lacks is missing. The guess is drawn "
        "from the renormalised distribution, so that one is q.": {"renormalised": False},
        "You pair the first shared token of one vocabulary with the first of the other, and so on. They list their "
        "tokens in different orders: pair them by their text. (This mistake was published.)": in_each_ones_order,
        "You pair equal *ids*. In another vocabulary the same id is another text: pair tokens by their text.": (
            lambda logits, target, draft: over_shared(
                logits, target, draft, pairs=[(i, i) for i in range(min(len(target), len(draft)))]
            )
        ),
        "Tokens that the draft lacks have the logit 0, and so a probability. The draft cannot draw them: use -inf, or "
        "0 after the softmax.": {"missing": 0.0},
        "You divide logits by their sum. Probabilities come from their exponentials: a softmax.": (
            lambda logits, target, draft: [
                logits[draft.index(text)] / sum(logits[draft.index(other)] for other in target if other in draft)
                if text in draft
                else 0.0
                for text in target
            ]
        ),
    },
    read=over_the_target,
    tolerance=1e-5,
    why="Cut to the shared tokens, renormalised, and in the target's order: the guess is drawn from this.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Text in the target's tokens


def tokens_of(text, vocab, *, pick=lambda fitting: max(fitting, key=lambda found: len(found[1])), unknown="ends"):
    """Ids of the target's tokens for a text, the longest that fits first; each option is a way to get it wrong."""
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
    tokens_of,
    {
        "You take the first token of the vocabulary that fits. Its order says nothing: take the longest one.": {
            "pick": lambda fitting: fitting[0]
        },
        "You take the shortest token that fits, so the target would have to spell its words in small pieces. Take the "
        "longest.": {"pick": lambda fitting: min(fitting, key=lambda found: len(found[1]))},
        "You leave out what the target has no token for, and go on after it. But then your guess is another text. End "
        "it there.": {"unknown": "is left out"},
        "You give up the whole guess where something in it has no token. What comes before it is still a good guess.": {
            "unknown": "is no guess"
        },
        "You return texts. A guess is a list of the target's ids.": (
            lambda written, vocab: [vocab[token] for token in tokens_of(written, vocab)]
        ),
    },
    why="The same text, in the target's own pieces: now the target can check it token by token.",
    hint="Look at the text that is left: which tokens does it start with?",
)

# ----------------------------------------------------------------------------------------------------------------------
# A batch of uneven rows


def pad(rows, *, left=True, mask=lambda row, skip: [0] * skip + [1] * len(row), first=0, skipped=False):
    """(ids, mask, positions), filled up with 0; each option is a way to get it wrong."""
    ids, masks, positions = [], [], []
    for row in rows:
        skip = max(map(len, rows)) - len(row)
        count = list(range(first + skip * skipped, first + skip * skipped + len(row)))
        ids.append([0] * skip + row if left else row + [0] * skip)
        masks.append(mask(row, skip) if left else mask(row, skip)[::-1])
        positions.append([0] * skip + count if left else count + [0] * skip)
    return ids, masks, positions


def rectangles(answer, due):
    """Filler has no right id and no right position: whatever the answer has there is replaced by what is due."""
    shape = len(due[0]), len(due[0][0])
    made = [
        array(part, shape, f"{name}, a rectangle").tolist()
        for name, part in zip(("ids", "mask", "positions"), parts(answer, 3, "three things, (ids, mask, positions)"))
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
        "You pad on the right. Then the last column holds filler, and what follows a row is in another column for each "
        "row: pad on the left here.": {"left": False},
        "Your mask is 1 everywhere, so filler is read as text. It is 0 where there is no token.": {
            "mask": lambda row, skip: [1] * (skip + len(row))
        },
        "Your mask asks whether the id is 0, and so hides real tokens. The rows' lengths tell what is filler, not the "
        "ids.": {"mask": lambda row, skip: [0] * skip + [int(token != 0) for token in row]},
        "Your positions count the filler too. Each row counts its own tokens from 0, as if it were alone.": {
            "skipped": True
        },
        "Your positions begin at 1. Take a running sum of the mask, less 1.": {"first": 1},
    },
    read=rectangles,
    why="Filler is hidden, whatever its id, and each row counts its own tokens, as if it were alone.",
)

# ----------------------------------------------------------------------------------------------------------------------
# What a batch gains


def gain(rows, gamma, alpha, free, *, expected=lambda gamma, alpha: sum(alpha**i for i in range(gamma + 1)),
         plain=lambda rows: rows, wide=lambda rows, gamma: rows * (gamma + 1)):  # fmt: skip
    """Tokens a second over those of the plain batch; each option is a way to get it wrong."""
    return expected(gamma, alpha) * max(1.0, plain(rows) / free) / max(1.0, wide(rows, gamma) / free)


check_gain = Exercise(
    """Judge ``my_gain(rows, gamma, alpha, free)``: how many times as fast as the plain batch a speculating one is.""",
    [(1, 4, 0.8, 32), (8, 4, 0.8, 32), (64, 4, 0.8, 32), (16, 2, 0.5, 8), (12, 6, 0.9, 100)],
    gain,
    {
        "You count one row's tokens alone. A call holds the tokens of *all* rows: rows times (gamma + 1).": {
            "wide": lambda rows, gamma: gamma + 1
        },
        "You compare with a call of one token. The plain batch's calls hold one token for each row, and they get "
        "slower too.": {"plain": lambda rows: 1},
        "You left out the token that each row had before its draft. It is fed as well: gamma + 1 tokens a row.": {
            "wide": lambda rows, gamma: rows * gamma
        },
        "You count accepted tokens only. The target adds one of its own in each round.": {
            "expected": lambda gamma, alpha: sum(alpha**i for i in range(1, gamma + 1))
        },
        "A token counts only if all drafted tokens before it were accepted: add up alpha to the powers 0 to gamma.": {
            "expected": lambda gamma, alpha: 1 + alpha * gamma
        },
    },
    why="Where the plain batch's calls are wide already, a draft makes them gamma + 1 times as long: it loses.",
    hint="Divide the tokens of a row's round by the time of a round, and do the same for the plain batch.",
)
