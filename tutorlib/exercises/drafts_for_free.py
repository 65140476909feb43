"""Checkers for chapter 9: looking up, the pool of n-grams, a law over two vocabularies, a padded batch, and alpha.

An answer is tried on several cases at once, so that each usual mistake leaves a trail of its own: what it comes to on
all of them. An answer with the trail of a mistake is told which. What is right is written out here from definitions,
not taken from `tutorlib.decoders`.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence

from . import NOT_YET, Verdict, _Ended, attempt, checker, compare, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Looking up

# (text, longest n-gram, most tokens). Every mistake below comes to something else on one of them, and no two are alike.
TEXTS = (
    ((1, 2, 7, 8, 1, 2, 9, 5, 2, 6, 1, 2), 3, 3),
    ((4, 4, 4, 4), 2, 3),
    ((3, 1, 2, 3), 3, 5),
    ((1, 2, 3), 2, 2),
    ((5, 1, 6, 2, 1), 3, 2),
    ((7,), 3, 4),
    ((1, 2, 3, 9, 2, 3, 1, 2, 3), 2, 2),
)


def _continuation(
    tokens, longest, count, *, latest=True, lengths=None, first=1, itself=False, overlap=True, keep=0, full=False
):
    """What followed the last n-gram when it was last there; each option is a way to get it wrong."""
    tokens = list(tokens)
    for n in lengths or range(longest, first - 1, -1):
        end = len(tokens) - n
        starts = range(end + itself if overlap else max(end - n + 1, 0))
        for start in reversed(starts) if latest else starts:
            if full and start + n + count > len(tokens):
                continue
            if 0 < n <= len(tokens) and tokens[start : start + n] == tokens[end:]:
                return tokens[start + n - keep * n : start + n - keep * n + count]
    return []


LOOKED_UP = "The longest n-gram first, of its occurrences the latest, and no further than the text goes."
LOOKUP_MISTAKES: Sequence[tuple[Callable, str]] = (
    (
        lambda t, n, c: _continuation(t, n, c, itself=True),
        "You find nothing, ever: the last n-gram found *itself*, and nothing follows the end of the text. An "
        "occurrence counts only if it begins earlier.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, latest=False),
        "You take the *first* occurrence. Asked for is the latest: where things change, what was said last is right "
        "more often.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, lengths=range(1, n + 1)),
        "You begin with the shortest n-gram, which is nearly always found: the longest comes first, for it says most.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, first=n),
        "You look for n-grams of the largest length alone. Where none is found, try one token fewer, down to one.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, first=2),
        "You stop at n-grams of two tokens: a single token may be looked up too.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, keep=1),
        "Your draft begins with the n-gram itself. The text has it already; the draft is what *followed* it.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, overlap=False),
        "You leave out occurrences that overlap with the end of the text. In 4 4 4 4 the last 4 4 was said one place "
        "earlier, and 4 followed.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, full=True),
        "You pass over an occurrence that fewer than `count` tokens follow. It is the best one all the same: draft as "
        "many as there are.",
    ),
    (
        lambda t, n, c: _continuation(t, n, c, latest=False, itself=True),
        "You take the *first* occurrence; and where there is none, the last n-gram finds itself, so that no shorter "
        "one is tried. Go back from the end, and begin before it.",
    ),
)


@checker
def check_continuation(my_continuation) -> Verdict:
    """Judge ``my_continuation(tokens, longest, count)``: what followed the last n-gram when it was last there.

    `tokens` is a list of ids, `longest` the largest n to try, `count` how many tokens to return at most. The answer is
    a list, empty where not even the last token occurred before.
    """
    answers = []
    for text, longest, count in TEXTS:
        try:
            answers.append(attempt(my_continuation, list(text), longest, count))
        except _Ended as ended:
            if ended.verdict.ok is None and any(answers):
                return wrong(f"You return nothing for the text {list(text)}: an empty list, if there is no draft.")
            raise
    return _judge_lookup(answers)


def _judge_lookup(answers) -> Verdict:
    for (text, _, count), answer in zip(TEXTS, answers, strict=True):
        if isinstance(answer, (str, Mapping)) or not hasattr(answer, "__iter__"):
            return wrong(f"Expected a list of tokens, got {answer!r} for the text {list(text)}.")
        if len(list(answer)) > count:
            return wrong(f"You return {len(list(answer))} tokens for the text {list(text)}: at most {count} are asked.")
    answers = [list(answer) for answer in answers]
    should = [_continuation(*case) for case in TEXTS]
    if answers == should:
        return right(LOOKED_UP)
    for mistake, message in LOOKUP_MISTAKES:
        if answers == [mistake(*case) for case in TEXTS]:
            return wrong(message)
    for (text, _, _), answer, expected in zip(TEXTS, answers, should, strict=True):
        if expected and answer[: len(expected)] == expected and len(answer) > len(expected):
            return wrong(
                f"For the text {list(text)} you draft {answer}: after {expected} the text ends. What goes past the end "
                "was not said by anybody; a draft may be shorter than asked."
            )
    wrong_ones = [place for place, answer in enumerate(answers) if answer != should[place]]
    (text, longest, count), answer, expected = TEXTS[wrong_ones[0]], answers[wrong_ones[0]], should[wrong_ones[0]]
    return wrong(
        f"For the text {list(text)}, n-grams up to {longest} and up to {count} tokens you draft {answer}, expected "
        f"{expected}."
    )


@checker
def check_draft(prediction, text: str | Sequence[str], longest: int, count: int) -> Verdict:
    """Judge a draft that was predicted by hand. It and the text are lists of words, or one string of them.

    What is wrong is said without giving the draft away.
    """
    if isinstance(prediction, Mapping) or not hasattr(prediction, "__iter__"):
        return wrong(f"Expected some words, got {prediction!r}.")
    words, text = (part.split() if isinstance(part, str) else list(part) for part in (prediction, text))
    should = _continuation(text, longest, count)
    if words == should:
        return right(LOOKED_UP)
    if not words:
        return wrong("Something is drafted: the end of the text was said before. It has to begin before the end.")
    if len(words) > count:
        return wrong(f"At most {count} words are drafted; yours are {len(words)}.")
    if words == should[: len(words)]:
        return wrong(f"Right as far as it goes. Up to {count} words are drafted, where as many follow.")
    found = [n for n in range(1, longest + 1) if _continuation(text, n, count, first=n)]
    for n in found:  # the shorter ends of the text, and earlier places
        ending = text[-n:]
        for start in range(len(text) - n):
            if text[start : start + n] == ending and words == text[start + n : start + n + count]:
                if n < found[-1]:
                    return wrong(
                        f"That followed {' '.join(ending)!r} once. But a longer end of the text was said before, and "
                        "the longest comes first."
                    )
                return wrong(
                    f"That followed {' '.join(ending)!r} once, and later something else did: the latest counts."
                )
        if words == ending[:count]:
            return wrong("That is the end of the text itself. The draft is what *followed* it when it was last there.")
    return wrong(
        f"Take the last {longest} words of the text. Were they said before? If not, one word fewer. What came next, "
        f"when they were last there, is the draft: up to {count} words."
    )


# ----------------------------------------------------------------------------------------------------------------------
# The pool of n-grams

# Of size 2: one is said again, one is crowded out, another first token has its own list.
NGRAMS = ((1, 5, 5), (1, 6, 6), (2, 1, 1), (2, 1, 1), (1, 5, 5), (1, 8, 5), (3, 1, 1))
POOL_SIZE = 2


def _pooled(ngrams, size, *, order=1, again="moves", drop="oldest", key=0, whole=False, shared=False) -> dict:
    """The pool after these n-grams; each option is a way to get it wrong."""
    pool: dict = {}
    for ngram in ngrams:
        rest = list(ngram) if whole else [t for place, t in enumerate(ngram) if place != key % len(ngram)]
        known = pool.setdefault(ngram[key], [])
        if rest in known:
            if again == "stays":
                continue
            if again == "moves":
                known.remove(rest)
        if drop == "newest" and len(known) == size:
            continue
        known.insert(0, rest)
        if drop == "oldest" and len(known) > size:
            known.pop()
        if shared and sum(map(len, pool.values())) > size:
            del pool[next(iter(pool))]
    return {first: known[::order] for first, known in pool.items()}


POOL_MISTAKES: Sequence[tuple[dict, str]] = (
    ({"order": -1}, "Your oldest n-gram comes first. What was seen last fits best: put it in front."),
    ({"again": "stays"}, "An n-gram that is seen again stays where it was. It is the most recent now: to the front."),
    ({"again": "twice"}, "An n-gram that is seen again is in the list twice: it would be tried twice in one call."),
    ({"drop": "newest"}, "A full list takes nothing new in. The *oldest* has to make room, or the pool never learns."),
    ({"drop": "none"}, "Your lists grow without end: each keeps `size` n-grams, or the calls get wider and wider."),
    ({"key": -1}, "You file n-grams by their *last* token. They are looked up by the first: it is what the text has."),
    ({"whole": True}, "You keep the n-gram with its first token. The text has that one already: keep the rest."),
    ({"shared": True}, "All lists together keep `size` n-grams with you. It is `size` for *each* first token."),
    ({"order": -1, "again": "stays"}, "Oldest first, and what is seen again stays where it was: put both in front."),
    ({"order": -1, "drop": "none"}, "Oldest first, and no list is ever cut: newest in front, at most `size` of them."),
    ({"again": "twice", "drop": "none"}, "Nothing is ever taken out: neither what is seen again nor the oldest."),
)  # fmt: skip


@checker
def check_pool(my_add) -> Verdict:
    """Judge ``my_add(pool, ngram, size)``: file an n-gram under its first token, and return the pool.

    `pool` is a dict from a first token to a list of rests, each a list, the most recent first. Each list holds at most
    `size`, none of them twice.
    """
    pool: dict = {}
    trail = []  # the pool after each n-gram
    for ngram in NGRAMS:
        given = list(ngram)
        try:
            pool = attempt(my_add, pool, given, POOL_SIZE)
        except _Ended as ended:
            if ended.verdict.ok is None and pool:
                return wrong("You file the n-gram, and return nothing: the last line is `return pool`.")
            raise
        if not isinstance(pool, Mapping):
            return wrong(f"Expected the pool, a dict; got {pool!r}.")
        if given != list(ngram):
            return wrong("You changed the n-gram that you were given (pop?): it is the window's own list. Slice it.")
        try:
            trail.append({first: [list(rest) for rest in known] for first, known in pool.items() if len(known)})
        except TypeError:
            return wrong(f"Expected lists of rests, each a list of tokens; got {pool!r}.")
    should = _trail()
    if trail == should:
        return right("The most recent first, each once, and the oldest makes room.")
    for options, message in POOL_MISTAKES:
        if trail == _trail(**options):
            return wrong(message)
    place = next(place for place, found in enumerate(trail) if found != should[place])
    shown = ", ".join(map(str, NGRAMS[: place + 1]))
    return wrong(f"After {shown} (size {POOL_SIZE}) your pool is {trail[place]}; expected {should[place]}.")


def _trail(**options) -> list[dict]:
    return [_pooled(NGRAMS[:count], POOL_SIZE, **options) for count in range(1, len(NGRAMS) + 1)]


# ----------------------------------------------------------------------------------------------------------------------
# A law over the target's tokens

# (the target's vocabulary, the draft's, the draft's logits)
LAWS = (
    ((" kite", "a", " red", "b", "."), (".", " red", "x", " kite"), (0.5, 1.5, 2.0, -0.5)),
    (("c", "b", "a"), ("a", "b", "c", "d"), (0.3, -1.0, 1.1, 0.4)),
)


def _law(target, draft, logits, *, pairs=None, renormalised=True, missing=-math.inf):
    """Probabilities over the target's ids; each option is a way to get it wrong."""
    pairs = pairs or [(target.index(text), place) for place, text in enumerate(draft) if text in target]
    row = [missing] * len(target)
    for mine, theirs in pairs:
        row[mine] = logits[theirs]
    weights = [math.exp(logit) for logit in row]
    total = sum(weights) if renormalised else sum(map(math.exp, logits))
    return [weight / total for weight in weights]


def _in_each_ones_order(target, draft, logits):
    """Specimen 14: the k-th shared token of one list with the k-th of the other."""
    mine = [place for place, text in enumerate(target) if text in draft]
    theirs = [place for place, text in enumerate(draft) if text in target]
    return _law(target, draft, logits, pairs=list(zip(mine, theirs, strict=True)))


def _same_ids(target, draft, logits):
    return _law(target, draft, logits, pairs=[(i, i) for i in range(min(len(target), len(draft)))])


def _uniform(target, draft, logits):
    return _law(target, draft, [0.0] * len(logits))


def _over_logits(target, draft, logits):
    shared = [logit for text, logit in zip(draft, logits, strict=True) if text in target]
    return [logits[draft.index(text)] / sum(shared) if text in draft else 0.0 for text in target]


LAW_MISTAKES: Sequence[tuple[Callable, str]] = (
    (
        lambda *case: _law(*case, renormalised=False),
        "It does not sum to 1: what the draft gives to tokens that the target lacks is gone, and was not divided out. "
        "The guess is drawn from the renormalised law, so that is q.",
    ),
    (
        _in_each_ones_order,
        "You pair the first shared token of one vocabulary with the first of the other, the second with the second, "
        "and so on. The two list them in different orders: pair them by their text. (This mistake was published.)",
    ),
    (_same_ids, "You pair equal *ids*. In another vocabulary the same id is another text: pair them by their text."),
    (
        lambda *case: _law(*case, missing=0.0),
        "Tokens that the draft lacks got the logit 0, and with it a probability. It can't draw them: -inf, or 0 after "
        "the softmax.",
    ),
    (_uniform, "All shared tokens are equally likely with you: the draft's logits are lost."),
    (_over_logits, "You divide logits by their sum. Probabilities come from their exponentials: a softmax."),
)


@checker
def check_law(my_law) -> Verdict:
    """Judge ``my_law(draft_logits, target_vocab, draft_vocab)``: q, a probability for each of the target's tokens.

    Both vocabularies are lists of texts by id; `draft_logits` is a list of floats, one for each of the draft's tokens.
    """
    answers = []
    for target, draft, logits in LAWS:
        answer = attempt(my_law, list(logits), list(target), list(draft))
        answer = answer.tolist() if hasattr(answer, "tolist") else answer
        if isinstance(answer, (str, Mapping)) or not hasattr(answer, "__len__"):
            return wrong(f"Expected a list of {len(target)} probabilities, got {answer!r}.")
        if len(answer) != len(target):
            whose = " (the draft's?)" if len(answer) == len(draft) else ""
            return wrong(
                f"Expected a probability for each of the target's {len(target)} tokens, got {len(answer)}{whose}."
            )
        answers.append([float(value) for value in answer])
    if _alike(answers, [_law(*case) for case in LAWS]):
        return right("Cut to the shared tokens, renormalised, and in the target's order: this is what is drawn from.")
    for mistake, message in LAW_MISTAKES:
        if _alike(answers, [mistake(*case) for case in LAWS]):
            return wrong(message)
    if any(value < 0 for row in answers for value in row):
        return wrong("Some of your numbers are negative: logits, or logarithms? Asked for are probabilities.")
    for (target, draft, _), row in zip(LAWS, answers, strict=True):
        if any(value > 0 for text, value in zip(target, row, strict=True) if text not in draft):
            return wrong(
                "A token that the draft lacks has a probability, if a small one. It can't be drafted: exactly 0, from "
                "the logit -inf."
            )
    shown, should = ([round(value, 3) for value in row] for row in (answers[0], _law(*LAWS[0])))
    return wrong(f"For the first case you give {shown}, expected {should}: target {LAWS[0][0]}, draft {LAWS[0][1]}.")


def _alike(answers, others) -> bool:
    return all(
        math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-7)
        for row, other_row in zip(answers, others, strict=True)
        for one, other in zip(row, other_row, strict=True)
    )


# ----------------------------------------------------------------------------------------------------------------------
# A batch of uneven rows

ROWS = ([5, 0, 7, 2], [0, 3], [4, 1, 6])  # token 0 is a token like any other


@checker
def check_padding(my_pad) -> Verdict:
    """Judge ``my_pad(rows)``: the rows as one rectangle, padded on the left, as ``(ids, mask, positions)``.

    Each is a list of lists of equal length (or a tensor). `mask` is 1 where a token is and 0 where filler is;
    `positions` count each row's own tokens from 0 (what filler gets does not matter). What fills the ids does not
    matter either. Token 0 is a token like any other.
    """
    answer = attempt(my_pad, copy.deepcopy(list(ROWS)))
    if isinstance(answer, (str, Mapping)) or not hasattr(answer, "__len__") or len(answer) != 3:
        return wrong("Expected three things, (ids, mask, positions).")
    parts = [part.tolist() if hasattr(part, "tolist") else [list(row) for row in part] for part in answer]
    width = max(map(len, ROWS))
    for name, part in zip(("ids", "mask", "positions"), parts, strict=True):
        if [len(row) for row in part] != [width] * len(ROWS):
            return wrong(
                f"Expected {len(ROWS)} rows of {width} {name}; got rows of {[len(row) for row in part]}: a tensor is a "
                "rectangle."
            )
    ids, mask, positions = parts
    empty = [width - len(row) for row in ROWS]
    if [row[skip:] for row, skip in zip(ids, empty, strict=True)] != list(ROWS):
        if [line[: len(row)] for line, row in zip(ids, ROWS, strict=True)] == list(ROWS):
            return wrong(
                "You pad on the right. Then the last column holds filler, and what follows a row stands in another "
                "column for each row: pad on the left here."
            )
        return wrong(f"The rows' tokens are not where they should be: {ids}.")
    should = [[0] * skip + [1] * (width - skip) for skip in empty]
    found = [[int(value) for value in row] for row in mask]
    if found != should:
        if all(value for row in found for value in row):
            return wrong("Your mask is 1 everywhere, so that filler is read as text. 0 where there is no token.")
        if found == [[1 - value for value in row] for row in should]:
            return wrong("Your mask is the wrong way round: 1 is what may be seen.")
        hidden = [[value * (token != 0) for value, token in zip(*both)] for both in zip(should, ids, strict=True)]
        if found == hidden:
            return wrong(
                "Your mask asks whether the id is 0, and hides real tokens: 0 is in the vocabulary. What is filler is "
                "known from the rows' lengths, not from the ids."
            )
        return wrong(f"Your mask is {found}, expected {should}.")
    mine = [[int(value) for value in row[skip:]] for row, skip in zip(positions, empty, strict=True)]
    right_ones = [list(range(len(row))) for row in ROWS]
    if mine != right_ones:
        if mine == [list(range(skip, width)) for skip in empty]:
            return wrong(
                "Your positions count the filler too. A row would be computed as if it stood further back in its "
                "text, and would not be what it is alone: each row counts from 0."
            )
        if mine == [[place + 1 for place in row] for row in right_ones]:
            return wrong("Your positions begin at 1: a running sum of the mask, less 1.")
        return wrong(f"The positions of the rows' own tokens are {mine}, expected {right_ones}.")
    return right("Filler is hidden, whatever its id, and each row counts its own tokens: it is what it would be alone.")


# ----------------------------------------------------------------------------------------------------------------------
# Alpha from rounds

ROUNDS = ((5, 5), (4, 1), (6, 0), (2, 2), (4, 2))  # (drafted, accepted)


@checker
def check_alpha(my_alpha) -> Verdict:
    """Judge ``my_alpha(rounds)``: the share of *judged* tokens that were accepted; rounds are (drafted, accepted)."""
    answer = attempt(my_alpha, [tuple(round_) for round_ in ROUNDS])
    drafted, kept = (sum(round_[i] for round_ in ROUNDS) for i in (0, 1))
    judged = sum(min(accepted + 1, count) for count, accepted in ROUNDS)
    ended = [(count, accepted) for count, accepted in ROUNDS if accepted < count]
    mistakes = {
        sum(accepted for _, accepted in ended) / sum(accepted + 1 for _, accepted in ended): "You leave out the rounds "
        "in which all were accepted: their tokens were judged too, and found good.",
        kept / drafted: "You count what came after a rejection as rejected. Nobody looked at those tokens: of a round "
        "the accepted ones were judged, and the one that was rejected, if there was one.",
        kept / (kept + len(ROUNDS)): "You count one rejection in each round. In a round where all were accepted there "
        "was none.",
        (kept + len(ROUNDS)) / (drafted + len(ROUNDS)): "You count the target's own token as an accepted one: it was "
        "not drafted.",
        (kept + len(ROUNDS)) / (judged + len(ROUNDS)): "You count the target's own token as accepted: nobody drafted "
        "it.",
        sum(accepted / count for count, accepted in ROUNDS) / len(ROUNDS): "A mean of the rounds' shares counts a "
        "round of two tokens as much as one of six, and what came after a rejection as rejected. Add up, then divide.",
        sum(accepted / min(accepted + 1, count) for count, accepted in ROUNDS) / len(ROUNDS): "You average the "
        "rounds' shares: a round of one judged token counts as much as one of four. Add up, then divide.",
        kept / len(ROUNDS): "That is the mean number of accepted tokens, not a share.",
        1 - kept / judged: "That is the share that was rejected.",
    }  # fmt: skip
    return compare(
        answer,
        kept / judged,
        mistakes,
        why="Accepted over judged. With what came after rejections in the count, alpha would depend on gamma.",
        otherwise=f"In {list(ROUNDS)} {kept} tokens were accepted; how many were judged?",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Does it pay?


@checker
def check_pays(prediction, methods: Mapping[str, tuple], costs: Mapping[int, float], draft: float) -> Verdict:
    """Judge how much faster than the plain loop methods are.

    Parameters
    ----------
    prediction : dict
        From a method's name to its factor.
    methods : mapping from names to (tokens per call, tokens in a call, draft calls a round)
    costs : mapping from the tokens in a call to its time, in plain calls
    draft : float
        Time of a draft call, in plain calls.
    """
    if not isinstance(prediction, Mapping) or not set(prediction) <= set(methods):
        return wrong(f"Expected a dict with the keys {', '.join(methods)}; got {prediction!r}.")
    if any(value in (None, ...) for value in prediction.values()):
        return Verdict(None, NOT_YET)
    for name, value in prediction.items():
        tokens, width, calls = methods[name]
        cost = costs[width]
        mistakes = {
            tokens: "That is tokens per call: as if every call cost the same, however wide, and drafting nothing.",
            tokens / width: "You divide by the width: as if a call of so many tokens took so many times as long.",
            tokens / (1 + calls * draft): "You left out that a wider call costs more.",
            tokens / cost: "You left out the draft's calls.",
            (cost + calls * draft) / tokens: "The wrong way round: that is the time of a token, in plain calls.",
            (tokens - 1) / (cost + calls * draft): "The token that the target adds itself counts as well.",
        }
        try:
            verdict = compare(
                value,
                tokens / (cost + calls * draft),
                mistakes,
                tolerance=0.02,
                otherwise=f"({name}) Tokens of a round over the time of a round, both in plain calls.",
            )
        except _Ended as ended:
            return ended.verdict
        if not verdict.ok:
            return verdict
    missing = [name for name in methods if name not in prediction]
    if missing:
        return wrong(f"Right so far; missing: {', '.join(missing)}.")
    return right("Tokens of a round over its time. Above 1 it pays; tokens per call alone do not say so.")
