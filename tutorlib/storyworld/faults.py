"""Puts one error into a story, to test that `check` finds it."""

import random

from tutorlib.storyworld import words
from tutorlib.storyworld.grammar import TEMPLATES, render
from tutorlib.storyworld.narrate import told
from tutorlib.storyworld.world import PERSONAL

PRONOUNS = ("She", "He")
# fault → the kinds of sentence that repeat such a fact, and the slot that holds it
SWAPS = {
    "holder": ({"still_with", "answer_with", "give", "lose", "hide"}, "who"),
    "place": ({"still_at", "answer_at", "carry"}, "place"),
    "count": ({"still_have", "answer_count", "gain", "spend"}, "n"),
    "colour": ({"give", "lose", "find", "hide", "take", "paint", "still_with", "still_in", "answer_with"}, "colour"),
    "thing": ({"give", "lose", "find", "hide", "take", "paint", "still_with", "still_in", "who_has"}, "thing"),
    "feeling": ({"still_feel", "answer_feels"}, "feeling"),
    "pronoun": (PERSONAL, "pronoun"),
}
FAULTS = (*SWAPS, "absent")


def plant(seed, fault):
    """A story with one sentence made false.

    Parameters
    ----------
    seed : int or str
        Which story, and which fault in it.
    fault : str
        "holder", "place", "count", "colour" or "feeling": a fact is repeated with another value; "thing": a sentence is
        about something that is not in the story; "pronoun": "she" in place of "he", or the other way round; "absent": a
        person who has left the village does something there.

    Returns
    -------
    text : str
    index : int
        Which sentence is false.

    Raises
    ------
    ValueError
        For an unknown fault.
    """
    if fault not in FAULTS:
        raise ValueError(f"fault={fault!r} is not one of {', '.join(FAULTS)}")
    rng = random.Random(f"fault {fault} {seed}")
    attempt = 0
    while True:
        told_story = told(f"faulty {seed} {attempt}")
        sentences = [sentence for sentence, _, _ in told_story]
        planted = _absent(told_story, rng) if fault == "absent" else _swap(told_story, *SWAPS[fault], rng)
        if planted is not None:
            index, sentence, replaces = planted
            sentences[index : index + replaces] = [sentence]
            return " ".join(sentences), index
        attempt += 1


def _swap(told_story, kinds, slot, rng):
    pool = {
        "who": [told_story[0][2][role] for role in ("who", "to", "third")],
        "place": words.PLACES,
        "n": words.NUMBERS[1:],
        "colour": words.COLOURS,
        "thing": sorted(set(words.THINGS) - {slots.get("thing") for _, _, slots in told_story}),
        "feeling": words.FEELINGS,
        "pronoun": PRONOUNS,
    }[slot]
    choices = []
    for index, (sentence, kind, slots) in enumerate(told_story):
        text = slots.get(slot)
        if slot == "n" and text:
            text = words.NUMBERS[text - 1]
        elif slot == "pronoun" and sentence.startswith(PRONOUNS):
            text = sentence.split()[0]
        if kind in kinds and text is not None and text in sentence:
            choices.append((index, sentence, text))
    if not choices:
        return None
    index, sentence, text = rng.choice(choices)
    other = rng.choice([choice for choice in pool if choice != text])
    before, after = sentence.split(text, 1)
    return index, before + other + after, 1


def _absent(told_story, rng):
    for index, (_, kind, slots) in enumerate(told_story):
        if kind == "leave":
            who = slots["who"]
            kind, slots = rng.choice(
                [
                    ("move", {"who": who, "goal": rng.choice(words.PLACES)}),
                    ("become", {"who": who, "feeling": rng.choice(words.FEELINGS)}),
                ]
            )
            later = index + 1
            while later < len(told_story) and told_story[later][1] != "come_back" and rng.random() < 0.5:
                later += 1
            return later, render(rng.choice(TEMPLATES[kind]), slots), 0
    return None
