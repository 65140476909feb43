"""Hints where to look: for each fact in a story, the positions where it was stated before.

To repeat a fact, a model needs two steps of attention: from the present position back to what the fact is about (the
*cue*, "kite"), and from there to the last position where the same cue had a value ("the kite … with Mia"). Without
help, a small model learns this late or never. The simulation knows these positions, so the first stage of training
rewards three attention heads for looking there: one for the cue, one for the source, and one for the things and boxes
mentioned so far, from which a word is chosen. After this stage there are no hints.
"""

import re
from typing import NamedTuple

import torch

from tutorlib.storyworld import grammar, words
from tutorlib.storyworld.state import LOST

THING = re.compile(rf"\b{grammar.THING}\b")
BOX = re.compile(rf"\b(?P<box>{grammar.noun(words.CONTAINERS)})\b")

# kind of sentence → the facts it mentions, in the order of the words: (topic, slot of the cue, slot of the value)
MENTIONS: dict[str, list[tuple[str, str, str | None]]] = {
    **dict.fromkeys(("be_at", "still_at", "answer_at"), [("place", "who", "place")]),
    **dict.fromkeys(("move", "come_back"), [("place", "who", "goal")]),
    "be_at_feeling": [("place", "who", "place"), ("feeling", "who", "feeling")],
    **dict.fromkeys(("become", "still_feel", "answer_feels"), [("feeling", "who", "feeling")]),
    **dict.fromkeys(("have", "gain", "spend", "still_have", "answer_count"), [("count", "who", "n")]),
    **dict.fromkeys(("thing_with", "still_with", "answer_with", "find"), [("keeper", "thing", "who")]),
    **dict.fromkeys(("thing_in", "still_in", "answer_in"), [("keeper", "thing", "box")]),
    "give": [("keeper", "thing", "who"), ("keeper", "thing", "to")],
    "lose": [("keeper", "thing", "who"), ("keeper", "thing", None)],
    "answer_lost": [("keeper", "thing", None)],
    "hide": [("keeper", "thing", "who"), ("keeper", "thing", "box")],
    "take": [("keeper", "thing", "box"), ("keeper", "thing", "who")],
    "box_at": [("place", "box", "place")],
    "carry": [("place", "box", "place"), ("place", "box", "goal")],
}


class Mention(NamedTuple):
    """A statement of a fact: character positions of the last letters of words.

    Attributes
    ----------
    topic : str
    cue, value : int
        What the fact is about, and its value.
    sources : list of int
        Where the present value of the fact was stated: the value to repeat, to count from, or to change.
    """

    topic: str
    cue: int
    value: int
    sources: list


def mentions(told):
    """The facts of a told story, in the order of its words.

    Parameters
    ----------
    told : list of (sentence, kind, slots)

    Returns
    -------
    list of Mention
    """
    known, found, start = {}, [], 0

    def mention(topic, about, cue, value, place, quiet):
        before, sources = known.get((topic, about), (None, []))
        if not quiet:
            found.append(Mention(topic, cue, place, list(sources)))
        fresh = [] if quiet else [place]
        known[topic, about] = value, [*sources, *fresh] if value == before else fresh

    for sentence, kind, slots in told:
        colour, thing = slots.get("colour"), slots.get("thing")
        if colour and f" {colour} {thing}" in f" {sentence.lower()}":
            noun = start + sentence.lower().index(f"{colour} {thing}") + len(f"{colour} {thing}") - 1
            mention("name", colour, noun - len(thing) - 1, thing, noun, quiet=False)
        for topic, cue_slot, value_slot in MENTIONS.get(kind, ()):
            about, value = slots[cue_slot], slots[value_slot] if value_slot else LOST
            text = words.NUMBERS[slots["n"] - 1] if value_slot == "n" else value
            cue = sentence.lower().find(about.lower())
            place = sentence.find(f" {text}", max(cue, 0))
            quiet = cue < 0 or place < 0  # told of "she": nothing to point at
            mention(topic, about, start + cue + len(about) - 1, value, start + place + len(text), quiet)
        start += len(sentence) + 1
    return found


def choices(told):
    """Where a story names a thing or a box, and where the words to choose from were mentioned.

    Parameters
    ----------
    told : list of (sentence, kind, slots)

    Returns
    -------
    list of (int, list of int)
        Character positions of the last letters of words: of the colour, thing or box, and of those told before. An
        answer has no choice: it repeats the question.
    """
    found, start, told_words, asked = [], 0, {}, {}
    for sentence, kind, _ in told:
        here = {}
        for match in (*THING.finditer(sentence), *BOX.finditer(sentence)):
            sort = next(sort for sort, text in match.groupdict().items() if text)
            end = start + match.end(sort) - 1
            before = asked.get(sort, []) if kind.startswith("answer") and sort != "box" else told_words.get(sort, [])
            found.append((end, list(before)))
            for sort, text in match.groupdict().items():
                if text:
                    here.setdefault(sort, []).append(start + match.end(sort) - 1)
        for sort, ends in here.items():
            told_words.setdefault(sort, []).extend(ends)
        asked = here
        start += len(sentence) + 1
    return found


def masks(encodings, stories):
    """For a batch, the positions at which each position should look.

    Parameters
    ----------
    encodings : list of tokenizers.Encoding
        Of the stories' texts.
    stories : list of lists of (sentence, kind, slots)

    Returns
    -------
    to_cue, to_source, to_told : (rows, longest, longest) bool tensors
        [row, position, other] is true where `position` may look at `other`; positions without any are not hinted. What
        predicts a word is the position before it. About a thing the source is of use from the thing on: it decides
        what can happen to it.
    """
    longest = max(len(encoding) for encoding in encodings)
    to_cue, to_source, to_told = torch.zeros(3, len(stories), longest, longest, dtype=torch.bool)
    for row, (encoding, told) in enumerate(zip(encodings, stories)):
        token = encoding.char_to_token
        for topic, cue, value, sources in mentions(told):
            first, last = token(cue), token(value)
            to_cue[row, last, first] = True
            to_cue[row, max(last - 1, first), first] = True
            if topic == "keeper":
                to_cue[row, first + 1 : last, first] = True
            for source in sources:
                to_source[row, first if topic == "keeper" else last - 1 : last, token(source)] = True
        for end, before in choices(told):
            to_told[row, token(end) - 1, [token(other) for other in before]] = True
    return to_cue, to_source, to_told


def loss(attention, allowed):
    """Mean over positions with hints of −log of the attention that one head gives to the allowed positions.

    Parameters
    ----------
    attention : (rows, length, length) tensor, one head's
    allowed : (rows, length, length) bool tensor
    """
    hinted = allowed.any(-1)
    paid = (attention * allowed).sum(-1)[hinted]
    return -paid.clamp_min(1e-6).log().mean()
