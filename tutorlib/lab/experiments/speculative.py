"""The sweep of chapter 10: how often a draft is accepted in a story, by the kind of token.

No token is drawn. At each position of a story from the village's simulation, the two models' distributions determine
the probability that a token drafted there would be accepted: Σ min(p, q). In greedy decoding both distributions are
one-hot, so it is 1 if both models have the same most likely token, and 0 otherwise.
"""

import math
import re
from collections.abc import Iterator, Sequence

from ... import measures
from ...sampling.warp import one_hot, probabilities, temperature
from ...storyworld import words
from ...storyworld.narrate import told
from . import PAIR, Experiment, Setting

SETTING: Setting = {**PAIR, "stories": 100}

# A row's name -> the warps for the logits of both models.
SETTINGS = {
    **{f"temperature {heat:g}": (temperature(heat),) for heat in (1, 0.25, 0.5, 0.7, 1.5, 2, 3)},
    "greedy": (one_hot,),
}

# ----------------------------------------------------------------------------------------------------------------------
# Kinds of tokens

INSIDE = "rest of a word"
MARK = "punctuation"
LINK = "connective"
BEGINNING = "beginning of a sentence"
VERB = "verb or other word"
OTHER = "name, thing or number (free)"
THING = "fact: which thing has this colour"
WHO = "fact: who has it"
WHERE = "fact: where it is"
COUNT = "fact: how many"
FEELING = "fact: how somebody feels"
KINDS = (INSIDE, MARK, LINK, BEGINNING, VERB, OTHER, THING, WHO, WHERE, COUNT, FEELING)

# Sentences that introduce people and things: they state new facts, so no token in them follows from facts before.
INTRODUCING = {"opening", "be_at", "be_at_feeling", "have", "box_at", "thing_with", "thing_in"}
# Kind of sentence -> its slots that are determined by the story so far.
FACTS = {
    **dict.fromkeys(("give", "lose", "still_with", "answer_with"), {"who": WHO}),
    **dict.fromkeys(("take", "still_in", "answer_in"), {"box": WHERE}),
    **dict.fromkeys(("carry", "still_at", "answer_at"), {"place": WHERE}),
    **dict.fromkeys(("gain", "spend", "still_have", "answer_count"), {"n": COUNT}),
    **dict.fromkeys(("still_feel", "answer_feels"), {"feeling": FEELING}),
    "hide": {"who": WHO},
}
CONNECTIVES = frozenset(
    ("a", "again", "and", "as", "at", "away", "before", "by", "from", "in", "into", "now", "of", "out", "over", "still")
    + ("the", "to", "with")
)
NOUNS = frozenset(
    word.removeprefix("the ")
    for group in (
        words.NAMES, words.PLACES, words.THINGS, words.COLOURS, words.ELDERS, words.CONTAINERS, words.FEELINGS,
        words.COUNTABLES, words.SINGULAR, words.NUMBERS,
    )
    for word in group
)  # fmt: skip


def kinds_of_tokens(pieces: Sequence[str], sentences: Sequence[tuple]) -> Iterator[str | None]:
    """Yield the kind of each token of a story.

    Parameters
    ----------
    pieces : sequence of str
        The texts of the tokens, which together make up the story.
    sentences : list of (sentence, kind, slots)
        The story, as `storyworld.narrate.told` returns it.

    Yields
    ------
    str or None
        One of `KINDS`; None for tokens of the sentences that introduce people and things.
    """
    starts, facts, end = {}, {}, 0  # index in the text -> the kind of sentence or fact that begins there
    introduction = set()  # indices in the text
    for sentence, kind, slots in sentences:
        starts[end] = kind
        if kind in INTRODUCING:
            introduction.update(range(end, end + len(sentence)))
        facts |= {end + place: fact for place, fact in facts_of(sentence, kind, slots)}
        end += len(sentence) + 1
    text = " ".join(sentence for sentence, _, _ in sentences)
    if "".join(pieces) != text:
        raise ValueError("the texts of the tokens must make up the story, but they do not")
    place = 0
    for piece in pieces:
        start = place + piece.startswith(" ")
        place += len(piece)
        word = re.split(r"[^A-Za-z]", text[start:], maxsplit=1)[0]
        if start in introduction:
            yield None
        elif start in starts:
            yield BEGINNING
        elif start in facts:
            yield facts[start]
        elif start and word and text[start - 1].isalpha():
            yield INSIDE
        elif not word:
            yield MARK
        elif word.lower() in CONNECTIVES:
            yield LINK
        else:
            yield OTHER if word in NOUNS else VERB


def facts_of(sentence: str, kind: str, slots: dict) -> Iterator[tuple[int, str]]:
    """The index of each word in a sentence that the story so far determines, with its kind of fact."""
    for slot, fact in FACTS.get(kind, {}).items():
        value = words.NUMBERS[slots[slot] - 1] if slot == "n" else slots[slot].removeprefix("the ")
        # A number may occur twice ("lost one egg and now had one"): the last is the count. Names occur once.
        yield (sentence.rindex if slot == "n" else sentence.index)(value), fact
    colour = re.search(rf"[Tt]he (?:{'|'.join(words.COLOURS)}) ", sentence)
    if colour and kind not in INTRODUCING and not kind.startswith("answer"):  # an answer repeats the question's thing
        yield colour.end(), THING


# ----------------------------------------------------------------------------------------------------------------------
# What is measured


def places(target, draft, warp, seed) -> Iterator[tuple[str, float, float]]:
    """Every position of a story after its introduction: (kind of token, acceptance, largest probability of p)."""
    sentences = told(seed)
    tokens = target.encode(" ".join(sentence for sentence, _, _ in sentences))
    special = next(count for count in range(len(tokens)) if target.decode(tokens[count : count + 1]))
    pieces = [target.decode([token]) for token in tokens[special:]]
    rows = [lm.session(tokens[:special]).feed(tokens[special:])[:-1] for lm in (target, draft)]
    histories = [tokens[: special + place] for place in range(len(pieces))]
    target_probs, draft_probs = (probabilities(logits, warp, histories) for logits in rows)
    acceptance = target_probs.minimum(draft_probs).sum(-1).tolist()
    largest = target_probs.amax(-1).tolist()
    for kind, accepted, sure in zip(kinds_of_tokens(pieces, sentences), acceptance, largest, strict=True):
        if kind is not None:
            yield kind, accepted, sure


def row(family, name: str) -> dict:
    """The figures of one row: 100 stories, about ten seconds on one core.

    Returns
    -------
    dict
        ``places``: the number of positions; ``acceptance``: the mean of Σ min(p, q) over them; ``acceptance_interval``:
        a 95 % interval [low, high] from resampling the stories; ``hard``: the share of positions with an acceptance
        below 1/2. ``kinds`` has the same for each kind of token, by its name, and also ``sure``: the mean probability
        of the target's most likely token.
    """
    pair, warp = (family.target, family.draft), SETTINGS[name]
    stories = [list(places(*pair, warp, f"sweep story {i}")) for i in range(SETTING["stories"])]
    by_kind = {kind: [[place for place in story if place[0] == kind] for story in stories] for kind in KINDS}
    found = {kind: _figures(stories) for kind, stories in by_kind.items()}
    overall = _figures(stories)
    del overall["sure"]
    return overall | {"kinds": found}


EXPERIMENT = Experiment("speculative", SETTING, SETTINGS, row)


def shares(kinds: dict, beginning: str) -> tuple[float, float]:
    """The shares of all tokens, and of all rejections, that belong to the kinds whose names start with `beginning`.

    Parameters
    ----------
    kinds : dict
        From kinds of tokens to their figures, as in a row of the results.
    beginning : str
        "fact" for all kinds of facts.

    Returns
    -------
    two floats
        The share of all positions, and the share of the expected rejections.
    """
    places = {kind: figures["places"] for kind, figures in kinds.items()}
    lost = {kind: places[kind] * (1 - figures["acceptance"]) for kind, figures in kinds.items()}
    chosen = [kind for kind in kinds if kind.startswith(beginning)]
    positions, rejections = (sum(counts[kind] for kind in chosen) / sum(counts.values()) for counts in (places, lost))
    return positions, rejections


def _figures(stories: Sequence[Sequence[tuple]]) -> dict:
    every = [place for story in stories for place in story]
    if not every:
        raise ValueError("there is no token of this kind in the stories")
    sums = [math.fsum(accepted for _, accepted, _ in story) for story in stories]
    return {
        "places": len(every),
        "acceptance": math.fsum(sums) / len(every),
        "acceptance_interval": measures.bootstrap_interval(sums, [len(story) for story in stories]),
        "hard": sum(accepted < 0.5 for _, accepted, _ in every) / len(every),
        "sure": math.fsum(sure for _, _, sure in every) / len(every),
    }
