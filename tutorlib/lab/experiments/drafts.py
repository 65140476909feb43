"""The sweep of chapters 13 and 14: which drafts pay on which text, in tokens per target call.

There are four kinds of text: continuations of stories; answers to questions that are asked a second time; stories from
the very beginning, without an opening; and a loop of greedy decoding. All but the last are sampled, with ``Seeded(i)``
for text i. The results contain no times: `timed` and `promised` are for the chapters, which write some of the texts
again and measure the time.
"""

import time
from functools import cache

from ...decoders.greedy import greedy
from ...decoders.lookahead import lookahead
from ...decoders.prompt_lookup import prompt_lookup
from ...decoders.sample import sample
from ...decoders.speculative import adaptive_gamma, speculative
from ...decoders.string_match import string_match
from ...decoders.suffix_lookup import suffix_lookup
from ...decoders.token_intersection import token_intersection
from ...running.decoding import run
from ...sampling.randomness import Seeded
from ...storyworld import story, told, words
from ...storyworld.questions import opening
from . import Experiment, Setting, counts

# The time of a target call with 1, 2, 3, ... tokens, and of a draft call with one token, relative to a target call with
# one token: measured for the bundled pair on two CPU cores, and rounded. `adaptive_gamma` uses them. They are fixed
# numbers, so that it chooses the same on every machine.
CALLS = tuple(round(1.08 + 0.042 * width, 3) if width > 1 else 1.0 for width in range(1, 14))
DRAFT_CALL = 0.13
ALPHA = 0.9  # the acceptance rate to expect in sampling: the models' card says 0.92
SETTING: Setting = {
    "models": "storyworld",
    "stories": 8,
    "story_tokens": 48,
    "asked": 6,
    "beginnings": 8,
    "beginning_tokens": 32,
    "loops": 4,
    "loop_tokens": 64,
    "other_stories": 30,
    "call_costs": list(CALLS),
    "draft_cost": DRAFT_CALL,
    "alpha": ALPHA,
}

# ----------------------------------------------------------------------------------------------------------------------
# The texts: lists of (prompt, most new tokens, stop tokens), and whether they are sampled

QUESTIONS = {"who_has": 4, "where_is": 3, "how_many": 3, "how_feels": 2}


def asked_twice(seed) -> list[str]:
    """A story with three questions and their answers, and then the same questions asked by somebody else.

    Returns
    -------
    list of str
        One prompt for each of the repeated questions: the story up to and including the question. The answer comes
        next.
    """
    sentences = told(seed, kinds=QUESTIONS, sentences=(3, 3))
    before = [sentence for sentence, _, _ in sentences]
    prompts = []
    for sentence, kind, slots in sentences:
        if kind in QUESTIONS:
            other = words.ELDERS[(words.ELDERS.index(slots["asker"]) + 1) % len(words.ELDERS)]
            before.append(sentence.replace(_noun(slots["asker"]), _noun(other)))
            prompts.append(" ".join(before))
        elif kind.startswith("answer") and prompts:
            before.append(sentence)
    return prompts


def _noun(elder: str) -> str:
    return elder.removeprefix("the ")


def texts(lm) -> dict[str, list]:
    """The texts to write: a dict from each kind of text to its list of (prompt, most new tokens, stop tokens)."""
    period = lm.encode("A.")[-1]
    s = SETTING
    return {
        "story": [(opening(f"drafts {i}"), s["story_tokens"], None) for i in range(s["stories"])],
        "questions": [(prompt, 20, [period]) for i in range(s["asked"]) for prompt in asked_twice(f"drafts {i}")],
        "beginnings": [(lm.encode("")[:1], s["beginning_tokens"], None)] * s["beginnings"],
        "loop": [(opening(f"drafts {i}"), s["loop_tokens"], ()) for i in range(s["loops"])],
    }


DRAWN = {"story": True, "questions": True, "beginnings": True, "loop": False}

# ----------------------------------------------------------------------------------------------------------------------
# The methods: functions (family, prompt, rng) -> steps


def _plain(family, prompt, rng):
    return greedy(family.target, prompt) if rng is None else sample(family.target, prompt, rng=rng)


def _alone(method, **settings):
    return lambda family, prompt, rng: method(family.target, prompt, rng=rng, **settings)


def _with(draft, method, **settings):
    return lambda family, prompt, rng: method(family.target, getattr(family, draft), prompt, rng=rng, **settings)


def _among_stories(gamma):
    return lambda family, prompt, rng: suffix_lookup(
        family.target, prompt, gamma=gamma, texts=other_stories(family.target), rng=rng
    )


@cache
def other_stories(lm) -> list[list[int]]:
    """Stories in which to look up drafts. None of them is one of the texts."""
    return [lm.encode(story(f"drafts, another {i}")) for i in range(SETTING["other_stories"])]


WINDOWS = ((1, 2, 1), (2, 3, 2), (4, 3, 4), (6, 3, 6), (10, 4, 10), (15, 5, 15))  # window, ngram, guesses


def lookahead_name(window, ngram, guesses) -> str:
    """The name of the row of lookahead with these arguments."""
    return f"lookahead {window}, {ngram}, {guesses}"


# A row's name -> the method.
SETTINGS = {
    "plain loop": _plain,
    **{f"prompt_lookup, gamma {gamma}": _alone(prompt_lookup, gamma=gamma) for gamma in (3, 6, 10)},
    "suffix_lookup, gamma 8": _alone(suffix_lookup, gamma=8),
    "suffix_lookup, gamma 8, other stories": _among_stories(8),
    **{lookahead_name(w, n, g): _alone(lookahead, window=w, ngram=n, guesses=g) for w, n, g in WINDOWS},
    **{f"speculative, gamma {gamma}": _with("draft", speculative, gamma=gamma) for gamma in (1, 2, 4, 6, 8, 12)},
    "speculative, adaptive": _with("draft", speculative, gamma=adaptive_gamma(CALLS, DRAFT_CALL, prior=ALPHA)),
    **{
        f"{name}, gamma {gamma}": _with("other_draft", method, gamma=gamma)
        for name, method in (("token_intersection", token_intersection), ("string_match", string_match))
        for gamma in (2, 4, 8)
    },
}


# ----------------------------------------------------------------------------------------------------------------------
# What is counted


def row(family, name: str) -> dict:
    """The figures of one method on each kind of text. About 900 tokens, a few seconds.

    Returns
    -------
    dict
        From each kind of text to a dict: ``tokens``, the number of new tokens; ``calls`` of the target; ``per_call``,
        tokens per call; ``draft_calls``; ``width``, the mean number of tokens in a call, not counting the prompt's;
        ``widths``, how many calls had 1, 2, 3, ... tokens, counted in the same way; ``drafted`` and ``accepted``
        tokens.
    """
    drafts = (family.draft, family.other_draft)
    found = {}
    for kind, tasks in texts(family.target).items():
        before = sum(draft.calls for draft in drafts)
        traces = []
        for i, (prompt, count, stop) in enumerate(tasks):
            rng = Seeded(i) if DRAWN[kind] else None
            traces.append(run(SETTINGS[name](family, prompt, rng), count, stop, progress=False))
        steps = [step for trace in traces for step in trace.steps]
        widths = [1 + len(step.drafted) for step in steps]
        found[kind] = {
            **counts(traces),
            "draft_calls": sum(draft.calls for draft in drafts) - before,
            "width": sum(widths) / len(widths),
            "widths": [widths.count(width) for width in range(1, max(widths) + 1)],
            "drafted": sum(widths) - len(widths),
            "accepted": sum(step.accepted for step in steps),
        }
    return found


EXPERIMENT = Experiment("drafts", SETTING, SETTINGS, row)


def price(found: dict, call_costs, draft_cost: float) -> float:
    """The cost of the calls per new token, in units of a target call with one token; prompts cost nothing here.

    Parameters
    ----------
    found : dict
        The figures of `row` for one kind of text.
    call_costs : function from a width to the cost of a target call
        Relative to a call with a single token.
    draft_cost : float
        The cost of a draft call, on the same scale.
    """
    spent = sum(count * call_costs(width) for width, count in enumerate(found["widths"], start=1))
    return (spent + draft_cost * found["draft_calls"]) / found["tokens"]


# ----------------------------------------------------------------------------------------------------------------------
# What is measured


def timed(family, names, tasks, repeats: int = 2) -> dict[tuple[str, str], float]:
    """Seconds per token, the smallest of `repeats` measurements: a dict with keys (row's name, kind of text).

    Parameters
    ----------
    family : Family
    names : iterable of str
        Keys of `SETTINGS`.
    tasks : mapping
        What `texts` returns, or a part of it.
    repeats : int
    """
    found = {}
    for _ in range(repeats):
        for name in names:
            for kind, some in tasks.items():
                began, made = time.perf_counter(), 0
                for i, (prompt, count, stop) in enumerate(some):
                    rng = Seeded(i) if DRAWN[kind] else None
                    made += len(run(SETTINGS[name](family, prompt, rng), count, stop, progress=False).tokens)
                took = (time.perf_counter() - began) / made
                found[name, kind] = min(took, found.get((name, kind), took))
    return found


def promised(lm, rows: dict, name: str, kind: str, tasks: list, call_costs, draft_cost: float) -> float:
    """The speed relative to the plain loop that follows from the counts of a row and the lengths of the prompts.

    Parameters
    ----------
    lm : LM
        The target.
    rows : dict
        The sweep's results.
    name, kind : str
        The row and the kind of text.
    tasks : list
        The texts of this kind that are timed. The cost of their prompts is included.
    call_costs, draft_cost
        As for `price`.
    """
    widths = [len(lm.prompt_tokens(prompt)) for prompt, _, _ in tasks]
    tokens = len(tasks) * rows["plain loop"][kind]["tokens"] / len(texts(lm)[kind])
    prompts = sum(call_costs(width) - 1 for width in widths) / tokens  # for each token
    return (1 + prompts) / (price(rows[name][kind], call_costs, draft_cost) + prompts)
