"""The templates for each kind of sentence. One table is used both to write a sentence and to read it back.

A template is plain text with slots in braces. `{She}` is the subject, which may be a pronoun if the previous sentence
has the same subject. `{thing}` may appear with its colour ("the red kite") or without it ("the kite"). Whatever the
reader needs in order to complete a fact comes before it: *the kite … with Mia*, *Tom … at the mill*.
"""

import re

from tutorlib.storyworld import words

TEMPLATES = {
    "opening": (
        "Once there were three friends, {who}, {to} and {third}.",
        "{who}, {to} and {third} lived in a small village.",
        "This is a story about {who}, {to} and {third}.",
    ),
    "be_at": ("{She} was at {place}.", "{She} stood at {place}.", "{She} waited at {place}."),
    "be_at_feeling": (
        "{She} was at {place} and felt {feeling}.",
        "{She} stood at {place} and felt {feeling}.",
        "{She} waited at {place} and felt {feeling}.",
    ),
    "have": ("{She} had {n} {items}.", "{She} owned {n} {items}."),
    "thing_with": ("{thing} was with {who}.", "{thing} belonged to {who}."),
    "thing_in": ("{thing} was in {box}.", "{thing} lay in {box}."),
    "box_at": ("{box} was at {place}.", "{box} stood at {place}."),
    "move": ("{She} went to {goal}.", "{She} walked over to {goal}.", "{She} hurried to {goal}."),
    "give": (
        "{thing} went from {who} to {to}.",
        "{thing} was given by {who} to {to}.",
        "{thing} passed from {who} to {to}.",
    ),
    "lose": ("{thing} slipped away from {who} and was lost.", "{thing} was dropped by {who} and was lost."),
    "find": ("{thing} was found again by {who}.", "{thing} was found by {who}."),
    "hide": ("{thing} was hidden by {who} in {box}.", "{thing} went from {who} into {box}."),
    "take": ("{thing} came out of {box} and went to {who}.", "{thing} was taken out of {box} by {who}."),
    "carry": ("{She} carried {box} from {place} to {goal}.", "{She} moved {box} from {place} to {goal}."),
    "gain": (
        "{She} found one more {item} and now had {n} {items}.",
        "{She} bought one {item} and now had {n} {items}.",
    ),
    "spend": ("{She} lost one {item} and now had {n} {items}.", "{She} gave away one {item} and now had {n} {items}."),
    "become": ("{She} grew {feeling}.", "{She} became {feeling}.", "All of a sudden {who} felt {feeling}."),
    "leave": ("{She} left the village.", "{She} went away from the village."),
    "come_back": ("{She} came back to {goal}.", "{She} returned to {goal}."),
    "paint": ("{thing} was painted {new}.", "{thing} got a coat of {new} paint."),
    "still_at": ("{She} was still at {place}.", "{She} stayed at {place}."),
    "still_with": ("{thing} was still with {who}.", "{thing} stayed with {who}."),
    "still_in": ("{thing} was still in {box}.", "{thing} stayed in {box}."),
    "still_have": ("{She} still had {n} {items}.", "{She} counted {n} {items}."),
    "still_feel": ("{She} still felt {feeling}.", "{She} was as {feeling} as before."),
    "who_has": ('"Who has {thing}?" asked {asker}.', '{asker} asked, "Who has {thing}?"'),
    "where_is_thing": ('"Where is {thing}?" asked {asker}.', '{asker} asked, "Where is {thing}?"'),
    "where_is": ('"Where is {who}?" asked {asker}.', '{asker} asked, "Where is {who}?"'),
    "how_many": (
        '"How many {items} does {who} have?" asked {asker}.',
        '{asker} asked, "How many {items} does {who} have?"',
    ),
    "how_feels": ('"How does {who} feel?" asked {asker}.', '{asker} asked, "How does {who} feel?"'),
    "answer_with": ('"{thing} is with {who}," said {speaker}.', '"{thing} is with {who}," replied {speaker}.'),
    "answer_in": ('"{thing} is in {box}," said {speaker}.', '"{thing} is in {box}," replied {speaker}.'),
    "answer_lost": ('"{thing} is lost," said {speaker}.', '"{thing} is lost," replied {speaker}.'),
    "answer_at": ('"{who} is at {place}," said {speaker}.', '"{who} is at {place}," replied {speaker}.'),
    "answer_away": ('"{who} is away," said {speaker}.', '"{who} is away," replied {speaker}.'),
    "answer_count": ('"{who} has {n} {items}," said {speaker}.', '"{who} has {n} {items}," replied {speaker}.'),
    "answer_feels": ('"{who} feels {feeling}," said {speaker}.', '"{who} feels {feeling}," replied {speaker}.'),
    "scenery": (
        "A dog barked.",
        "The wind was soft.",
        "It began to rain.",
        "The clock struck twelve.",
        "Swallows circled overhead.",
        "Thunder rumbled in the distance.",
        "Somebody whistled cheerfully.",
        "The afternoon was wonderfully quiet.",
        "Fresh bread smelled delicious.",
        "Nobody noticed the butterflies.",
    ),
}


def _any(choices):
    return "(?:" + "|".join(sorted(choices, key=len, reverse=True)) + ")"


def noun(choices):
    """'the mill' with a small or a capital letter in front."""
    return "[Tt]he " + _any(choice.removeprefix("the ") for choice in choices)


_PERSON = _any(words.NAMES)
_SLOTS = {  # slot → the text it may stand for
    **dict.fromkeys(("who", "to", "third", "speaker"), _PERSON),
    "asker": noun(words.ELDERS),
    "She": _any((*words.NAMES, "She", "He")),
    **dict.fromkeys(("place", "goal"), noun(words.PLACES)),
    "box": noun(words.CONTAINERS),
    "n": _any(words.NUMBERS),
    "items": _any(words.COUNTABLES.values()),
    "item": _any(words.COUNTABLES),
    "feeling": _any(words.FEELINGS),
    "new": _any(words.COLOURS),
}
THING = f"[Tt]he (?:(?P<colour>{_any(words.COLOURS)}) )?(?P<thing>{_any(words.THINGS)})"


def _compile(template):
    parts = re.split(r"\{(\w+)\}", template)
    pattern = re.escape(parts[0])
    for slot, text in zip(parts[1::2], parts[2::2]):
        pattern += (THING if slot == "thing" else f"(?P<{slot}>{_SLOTS[slot]})") + re.escape(text)
    return re.compile(pattern)


_PATTERNS = [(kind, _compile(template)) for kind, templates in TEMPLATES.items() for template in templates]


def expression() -> str:
    """One regular expression, without named groups, that every sentence of the village matches."""
    return _any(re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern) for _, pattern in _PATTERNS)


def render(template, slots, *, pronoun=False, colour=True):
    """Fill the slots of a template.

    Parameters
    ----------
    template : str
        One of `TEMPLATES`.
    slots : dict
        Slot name → value, as for `world.tell`.
    pronoun, colour : bool
        Whether the subject is "she" or "he", and whether a thing is named with its colour.
    """
    texts = {key: str(value) for key, value in slots.items() if value is not None}
    if "who" in slots:
        texts["She"] = words.pronoun(slots["who"]) if pronoun else slots["who"]
    if "n" in slots:
        texts["n"] = words.NUMBERS[slots["n"] - 1]
    if "thing" in slots:
        told = f"{slots['colour']} " if colour and slots.get("colour") else ""
        texts["thing"] = f"the {told}{slots['thing']}"
    sentence = template.format(**texts)
    start = 1 if sentence.startswith('"') else 0
    return sentence[:start] + sentence[start].upper() + sentence[start + 1 :]


def read(sentence):
    """Reads one sentence: (kind, slots), or None if no template fits. A pronoun stays as it is in `slots["who"]`."""
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(sentence)
        if match:
            slots = match.groupdict()
            if "She" in slots:
                slots["who"] = slots.pop("She")
            for slot in ("place", "goal", "box", "asker"):
                if slot in slots:
                    slots[slot] = slots[slot][0].lower() + slots[slot][1:]
            if "n" in slots:
                slots["n"] = words.NUMBERS.index(slots["n"]) + 1
            return kind, slots
    return None


def sentences(text):
    """Splits a text into its sentences, each ending in a full stop, or in a question mark and a closing quote."""
    return [sentence for sentence in re.split(r'(?<=\.)\s+|(?<=\?")\s+(?=[A-Z"])', text.strip()) if sentence]
