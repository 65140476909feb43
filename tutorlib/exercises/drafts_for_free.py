"""The exercises on drafts without a draft model: looking up, the n-gram pool, alpha from rounds, what pays."""

from collections.abc import Mapping, Sequence

from .judge import Ended, Exercise, Verdict, ask, checker, compare, filled, listed, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Looking up


def continuation(tokens, longest, count, *, latest=True, lengths=None, itself=False, overlap=True, keep=0):
    """What followed the last n-gram when it last occurred; each option is a way to get it wrong."""
    tokens = list(tokens)
    for n in lengths(longest) if lengths else range(longest, 0, -1):
        end = len(tokens) - n
        starts = range(end + itself if overlap else max(end - n + 1, 0))
        for start in reversed(starts) if latest else starts:
            if 0 < n <= len(tokens) and tokens[start : start + n] == tokens[end:]:
                return tokens[start + n - keep * n : start + n - keep * n + count]
    return []


LOOKED_UP = "The longest n-gram first, its latest occurrence, and no further than the text goes."

check_continuation = Exercise(
    """Judge ``my_continuation(tokens, longest, count)``: what followed the last n-gram when it last occurred.""",
    [
        ([1, 2, 7, 8, 1, 2, 9, 5, 2, 6, 1, 2], 3, 3),
        ([4, 4, 4, 4], 2, 3),
        ([3, 1, 2, 3], 3, 5),
        ([1, 2, 3], 2, 2),
        ([5, 1, 6, 2, 1], 3, 2),
        ([7], 3, 4),
        ([1, 2, 3, 9, 2, 3, 1, 2, 3], 2, 2),
    ],
    continuation,
    {
        "You never find anything: the last n-gram finds *itself*, and nothing follows the end of the text. An "
        "occurrence counts only if it begins earlier.": {"itself": True},
        "You take the *first* occurrence. Take the latest: where things change, what was said last is right more "
        "often.": {"latest": False},
        "You begin with the shortest n-gram, which nearly always occurs. The longest comes first: it says most.": {
            "lengths": lambda longest: range(1, longest + 1)
        },
        "You do not try all lengths. Where an n-gram is not found, try one token fewer, down to a single token.": (
            {"lengths": lambda longest: [longest]},
            {"lengths": lambda longest: range(longest, 1, -1)},
        ),
        "Your draft begins with the n-gram itself. The text has it already; the draft is what *followed* it.": {
            "keep": 1
        },
    },
    why=LOOKED_UP,
    hint="A draft may be shorter than `count`, and occurrences may overlap with the end of the text.",
)


@checker
def check_draft(prediction, text: str | Sequence[str], longest: int, count: int) -> Verdict:
    """Judge a draft that was predicted by hand. It and the text are lists of words, or one string of them."""
    words, text = (part.split() if isinstance(part, str) else listed(part) for part in (prediction, text))
    due = continuation(text, longest, count)
    if words == due:
        return right(LOOKED_UP)
    if not words:
        return wrong("Something is drafted: the end of the text occurred before. The occurrence has to begin earlier.")
    if words == due[: len(words)]:
        return wrong(f"Right as far as it goes. Up to {count} words are drafted, where as many follow.")
    for n in range(1, longest + 1):
        ending = text[-n:]
        if words == ending[:count]:
            return wrong("That is the end of the text itself. The draft is what *followed* it when it last occurred.")
        for start in range(len(text) - n):
            if text[start : start + n] == ending and words == text[start + n : start + n + count]:
                once = f"That followed {' '.join(ending)!r} once."
                if words == continuation(text, n, count):
                    return wrong(f"{once} But a longer end of the text occurred before, and the longest comes first.")
                return wrong(f"{once} Later something else did, and the latest counts.")
    return wrong(
        f"Take the last {longest} words of the text. Did they occur before? If not, take one word fewer. What came "
        f"after their last occurrence is the draft: up to {count} words."
    )


# ----------------------------------------------------------------------------------------------------------------------
# The pool of n-grams


def add(pool, ngram, size, *, to_front=True, again="moves", full="drops the oldest", key=0, whole=False):
    """The pool after one more n-gram; each option is a way to get it wrong."""
    rest = list(ngram) if whole else [token for i, token in enumerate(ngram) if i != key % len(ngram)]
    known = pool.setdefault(ngram[key], [])
    if rest in known:
        if again == "stays":
            return pool
        known.remove(rest)
    if full == "takes nothing" and len(known) == size:
        return pool
    known.insert(0 if to_front else len(known), rest)
    if full == "drops the oldest" and len(known) > size:
        known.pop(-1 if to_front else 0)
    return pool


def replayed(add):
    """The pool after each of some n-grams, the answer's own pool going from call to call."""

    def replay(ngrams, size):
        pool, after_each = {}, []
        for ngram in ngrams:
            pool = ask_for_pool(add, pool, ngram, size)
            after_each.append({first: [listed(rest) for rest in known] for first, known in pool.items() if len(known)})
        return after_each

    return replay


def ask_for_pool(add, pool, ngram, size):
    try:
        pool = ask(lambda ngram, size: add(pool, ngram, size), ngram, size)
    except Ended as ended:
        if ended.verdict.ok is None and pool:
            said = "You file the n-gram, but return nothing: the last line is `return pool`."
            raise Ended(wrong(said)) from None
        raise
    if not isinstance(pool, Mapping) or not all(isinstance(known, list) for known in pool.values()):
        raise Ended(wrong(f"Expected the pool, a dict from a first token to a list of rests; got {pool!r}."))
    return pool


check_pool = Exercise(
    """Judge ``my_add(pool, ngram, size)``: file an n-gram under its first token, and return the pool.""",
    # One n-gram comes again, one is crowded out, and another first token has a list of its own.
    [([[1, 5, 5], [1, 6, 6], [2, 1, 1], [2, 1, 1], [1, 5, 5], [1, 8, 5], [3, 1, 1]], 2)],
    add,
    {
        "Your oldest n-gram comes first. The one that was seen last fits best: put it in front.": {"to_front": False},
        "An n-gram that is seen again stays where it was. It is the most recent now: move it to the front.": {
            "again": "stays"
        },
        "A full list takes nothing new in. The *oldest* has to make room, or the pool never learns.": {
            "full": "takes nothing"
        },
        "Your lists grow without end. Each keeps `size` n-grams, or the calls get wider and wider.": {"full": "grows"},
        "File the n-gram under its *first* token, the one that the text has, and keep the rest of it.": (
            {"key": -1},
            {"whole": True},
        ),
    },
    through=replayed,
    why="The most recent first, each once, and the oldest makes room.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Alpha from rounds


def alpha(rounds, judged=lambda drafted, kept: min(kept + 1, drafted), own=0):
    return sum(kept + own for _, kept in rounds) / sum(judged(*counts) + own for counts in rounds)


check_alpha = Exercise(
    """Judge ``my_alpha(rounds)``: the share of *judged* tokens that were accepted; rounds are (drafted, accepted).""",
    [([(5, 5), (4, 1), (6, 0), (2, 2), (4, 2)],)],
    alpha,
    {
        "You count what came after a rejection as rejected, but those tokens were never judged. A round judges the "
        "accepted tokens, and the first rejected one if there is one.": {"judged": lambda drafted, kept: drafted},
        "You leave out the rounds in which all tokens were accepted. They were judged too.": lambda rounds: alpha(
            [(drafted, kept) for drafted, kept in rounds if kept < drafted]
        ),
        "You count one rejection in each round. A round in which all tokens were accepted has none.": {
            "judged": lambda drafted, kept: kept + 1
        },
        "You count the target's own token as an accepted one. It was not drafted.": (
            {"own": 1},
            {"judged": lambda drafted, kept: drafted, "own": 1},
        ),
        "You average the shares of the rounds, so a round of one judged token counts as much as one of six. Add up, "
        "then divide.": (
            lambda rounds: sum(kept / drafted for drafted, kept in rounds) / len(rounds),
            lambda rounds: sum(kept / min(kept + 1, drafted) for drafted, kept in rounds) / len(rounds),
        ),
    },
    why="Accepted over judged. If tokens after a rejection counted, alpha would depend on gamma.",
)


@checker
def check_pays(prediction, methods: Mapping[str, tuple], costs: Mapping[int, float], draft: float) -> Verdict:
    """Judge how much faster than the plain loop methods of (tokens per call, tokens in a call, draft calls) are."""
    for name, value in filled(prediction, methods).items():
        tokens, width, calls = methods[name]
        cost = costs[width]
        mistakes = {
            tokens / width: "You divide by the width, as if a call of so many tokens took so many times as long.",
            tokens / (1 + calls * draft): "You left out that a wider call costs more.",
            tokens / cost: "You left out the draft's calls.",
            (cost + calls * draft) / tokens: "That is upside down: the time of a token, in plain calls.",
            tokens: "That is tokens per call, as if every call cost the same and drafting cost nothing.",
        }
        due = tokens / (cost + calls * draft)
        hint = "Divide the tokens of a round by the time of a round, in plain calls."
        found = compare(value, due, {at: f"({name}) {said}" for at, said in mistakes.items() if at != due},
                        tolerance=0.02, otherwise=f"({name}) {hint}")  # fmt: skip
        if not found.ok:
            return found
    return right("Tokens of a round over its time: fewer calls are not always less time.")
