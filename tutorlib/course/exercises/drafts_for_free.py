"""The exercises on drafts without a draft model: looking up, long matches, calls in a loop, alpha, does it pay?"""

import math
from collections.abc import Mapping, Sequence

from ...decoders.prompt_lookup import prompt_lookup
from ...model.lm import LM
from ...running.decoding import run
from .answers import expect, filled, listed
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Looking up


def continuation(tokens, longest, count):
    """What followed the last n tokens at their latest earlier occurrence, for the largest such n up to `longest`."""
    tokens = list(tokens)
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in reversed(range(len(tokens) - n)):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + count]
    return []


LOOKED_UP = "You took the longest n-gram, at its latest earlier occurrence, and the draft ends where the text ends."


@checker
def check_draft(prediction, text: str | Sequence[str], longest: int, count: int) -> Verdict:
    """Judge a draft that was predicted by hand. The draft and the text are strings, or lists of words."""
    words, text = (part.split() if isinstance(part, str) else listed(part) for part in (prediction, text))
    due = continuation(text, longest, count)
    if words == due:
        return right(LOOKED_UP)
    if not words:
        return wrong("Something is drafted: the end of the text also occurs earlier.")
    if words == due[: len(words)]:
        return wrong(f"That is only the beginning of the draft: it has {count} words if as many follow the match.")
    for n in range(1, longest + 1):
        ending = text[-n:]
        if words == ending[:count]:
            return wrong("That is the end of the text itself. The draft is what *followed* its earlier occurrence.")
        for start in range(len(text) - n):
            if text[start : start + n] == ending and words == text[start + n : start + n + count]:
                once = f"Those words did follow an occurrence of {' '.join(ending)!r}."
                if words == continuation(text, n, count):
                    return wrong(
                        f"{once} But a longer ending of the text also occurs earlier, and the longest match comes "
                        "first."
                    )
                return wrong(f"{once} But other words follow its latest occurrence, and the latest counts.")
    return wrong(
        f"Take the last {longest} words of the text. Do they also occur earlier? If not, take one word fewer. The "
        f"draft is what follows their latest earlier occurrence: up to {count} words."
    )


# ----------------------------------------------------------------------------------------------------------------------
# A text on which long matches win


@checker
def check_long_match(text: str | Sequence[str], longest: int, most: int) -> Verdict:
    """Judge a text of at most `most` words for which matches of any length draft a different word than n-grams do."""
    words = text.split() if isinstance(text, str) else listed(text)
    if not all(isinstance(word, str) for word in words):
        return wrong("Expected a text: one string of words.")
    if len(words) > most:
        return wrong(f"Your text has {len(words)} words. Use at most {most}.")
    short_match, any_match = (continuation(words, n, 1) for n in (longest, len(words)))
    if not short_match:
        return wrong("Nothing is drafted after your text: its last word does not occur earlier.")
    if not _occurs_earlier(words, longest + 1):
        return wrong(
            f"The last {longest + 1} words of your text do not occur earlier in this order, so both lookups use the "
            f"same match and draft {short_match[0]!r}. First repeat a longer passage."
        )
    if short_match == any_match:
        return wrong(
            f"Both lookups draft {any_match[0]!r}. A long match exists, but the latest occurrence of the last "
            f"{longest} words has the same continuation. After the long passage, let these {longest} words occur once "
            "more, followed by a different word."
        )
    return right(
        f"The longest match drafts {any_match[0]!r}, and a match of {longest} words drafts {short_match[0]!r}. "
        "Usually, the longer match is more reliable."
    )


def _occurs_earlier(words, n):
    """Whether the last n words also occur earlier."""
    return any(words[start : start + n] == words[-n:] for start in range(len(words) - n))


# ----------------------------------------------------------------------------------------------------------------------
# Calls in a loop


@checker
def check_calls(prediction, gammas: Mapping[str, int], lm: LM, prompt, new_tokens: int) -> Verdict:
    """Judge predictions of how many target calls greedy prompt lookup needs; `gammas` maps each key to its gamma."""
    for key, value in filled(prediction, gammas).items():
        gamma = gammas[key]
        trace = run(prompt_lookup(lm, prompt, gamma=gamma), new_tokens, stop=())
        mistakes: dict[float, str] = {
            math.ceil(new_tokens / gamma): "Did you count the token that the target adds after a fully accepted draft?",
            math.ceil(new_tokens / (gamma + 1)): (
                "You let every draft have gamma tokens. But a draft is copied from the text, so it ends where the text "
                "ends. How many tokens follow the *latest* occurrence?"
            ),
            new_tokens: "That is one token per call, as if every draft were rejected.",
        }
        hint = "Write the text down. After each call, mark the latest earlier occurrence of its last three letters."
        expect(value, trace.target_calls, mistakes, part=key, otherwise=hint)
    return right(
        "In a loop, the latest occurrence is one period back, so a draft is at most one period long. Here, the first "
        "occurrence would allow a longer draft."
    )


# ----------------------------------------------------------------------------------------------------------------------
# Alpha from rounds


def alpha(rounds, checked=lambda drafted, kept: min(kept + 1, drafted), own=0):
    return sum(kept + own for _, kept in rounds) / sum(checked(*counts) + own for counts in rounds)


check_alpha = Exercise(
    """Judge ``my_alpha(rounds)``: the share of *checked* tokens that were accepted; rounds are (drafted, accepted).""",
    [([(5, 5), (4, 1), (6, 0), (2, 2), (4, 2)],)],
    alpha,
    {
        "You count the tokens after a rejection as rejected, but they were never checked. A round checks the accepted "
        "tokens and, if there is a rejection, the first rejected token.": {"checked": lambda drafted, kept: drafted},
        "You leave out the rounds in which all tokens were accepted. Their tokens were checked too.": lambda rounds: (
            alpha([(drafted, kept) for drafted, kept in rounds if kept < drafted])
        ),
        "You count one rejection in each round. A round in which all tokens were accepted has none.": {
            "checked": lambda drafted, kept: kept + 1
        },
        "You count the target's own token as an accepted one. It was not drafted.": (
            {"own": 1},
            {"checked": lambda drafted, kept: drafted, "own": 1},
        ),
        "You average the shares of the rounds, so a round with one checked token counts as much as a round with six. "
        "Add up the counts of all rounds first, then divide.": (
            lambda rounds: sum(kept / drafted for drafted, kept in rounds) / len(rounds),
            lambda rounds: sum(kept / min(kept + 1, drafted) for drafted, kept in rounds) / len(rounds),
        ),
    },
    why="You divide accepted by checked tokens. If tokens after a rejection counted, alpha would depend on gamma.",
)


@checker
def check_pays(prediction, methods: Mapping[str, tuple], costs: Mapping[int, float], draft: float) -> Verdict:
    """Judge predicted speed-ups; `methods` maps each name to (tokens per call, tokens in a call, draft calls)."""
    for name, value in filled(prediction, methods).items():
        tokens, width, calls = methods[name]
        cost = costs[width]
        mistakes = {
            tokens / width: "You divide by the number of tokens in a call, as if each took a call of its own.",
            tokens / (1 + calls * draft): "You left out that a call with more tokens costs more.",
            tokens / cost: "You left out the draft model's calls.",
            (cost + calls * draft) / tokens: "That is upside down: divide the tokens by the cost.",
            tokens: "That is the number of tokens per call, as if every call cost the same and drafting were free.",
        }
        hint = "Divide the tokens of a round by the cost of a round, in units of a one-token call."
        expect(value, tokens / (cost + calls * draft), mistakes, part=name, otherwise=hint, tolerance=0.02)
    return right("Speed is tokens per round divided by the cost of a round. Fewer calls do not always take less time.")
