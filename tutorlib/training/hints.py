"""Where to look: for a story, the places where each repeated fact was told before.

A question needs two steps of attention: from the place of the answer back to what is asked about (the *cue*, "kite"),
and from there to where the same cue was last told with a value ("the kite … with Mia"). Left alone, a small model
finds this late or never. The simulation knows the places, so the first steps of training reward two heads for looking
there; after that nothing is hinted any more.
"""

import torch

from tutorlib.storyworld import words

# kind of sentence → the facts it mentions, in the order of the words: (topic, slot of the cue, slot of the value)
MENTIONS = {
    **dict.fromkeys(("be_at", "still_at", "answer_at"), [("place", "who", "place")]),
    **dict.fromkeys(("move", "come_back"), [("place", "who", "goal")]),
    "be_at_feeling": [("place", "who", "place"), ("feeling", "who", "feeling")],
    **dict.fromkeys(("become", "still_feel", "answer_feels"), [("feeling", "who", "feeling")]),
    **dict.fromkeys(("have", "gain", "spend", "still_have", "answer_count"), [("count", "who", "n")]),
    **dict.fromkeys(("thing_with", "still_with", "answer_with", "find"), [("keeper", "thing", "who")]),
    **dict.fromkeys(("thing_in", "still_in", "answer_in"), [("keeper", "thing", "box")]),
    "give": [("keeper", "thing", "who"), ("keeper", "thing", "to")],
    "lose": [("keeper", "thing", "who"), ("keeper", "thing", None)],
    "hide": [("keeper", "thing", "who"), ("keeper", "thing", "box")],
    "take": [("keeper", "thing", "box"), ("keeper", "thing", "who")],
    "box_at": [("place", "box", "place")],
    "carry": [("place", "box", "place"), ("place", "box", "goal")],
}


def mentions(told):
    """The facts of a told story, by where they stand in its text.

    Parameters
    ----------
    told : list of (sentence, kind, slots)

    Returns
    -------
    list of (cue, value, sources)
        Character positions: of the cue; of the value (its last word); and of all earlier mentions of the fact as it
        is at that moment, from which the value (or, for a changed count, the number it is counted from) can be known.
    """
    known, found, start = {}, [], 0
    for sentence, kind, slots in told:
        for topic, cue_slot, value_slot in MENTIONS.get(kind, ()):
            key = topic, slots[cue_slot]
            value = slots.get(value_slot)
            text = words.NUMBERS[value - 1] if value_slot == "n" else str(value)
            cue = sentence.lower().find(slots[cue_slot].lower())
            place = sentence.find(f" {text}", max(cue, 0))
            before, sources = known.get(key, (None, []))
            if value_slot is None or cue < 0 or place < 0:  # told by a pronoun, or lost: nothing to point at
                if value != before:
                    known[key] = value, []
                continue
            cue += start + len(slots[cue_slot]) - 1
            place += start + len(text)
            if value == before or kind in ("gain", "spend"):
                found.append((cue, place, list(sources)))
            else:
                found.append((cue, place, []))
            known[key] = value, [*sources, place] if value == before else [place]
        start += len(sentence) + 1
    return found


def masks(encodings, stories):
    """Which position should look where, for a batch.

    Parameters
    ----------
    encodings : list of tokenizers.Encoding
        Of the stories' texts.
    stories : list of lists of (sentence, kind, slots)

    Returns
    -------
    to_cue, to_source : (rows, longest, longest) bool tensors
        [row, position, other] is true where `position` may look at `other`; positions without any are not hinted. What
        predicts a value is the position before it.
    """
    longest = max(len(encoding) for encoding in encodings)
    to_cue = torch.zeros(len(stories), longest, longest, dtype=torch.bool)
    to_source = torch.zeros_like(to_cue)
    for row, (encoding, told) in enumerate(zip(encodings, stories)):
        for cue, value, sources in mentions(told):
            cue, value = encoding.char_to_token(cue), encoding.char_to_token(value)
            to_cue[row, [value - 1, value], cue] = True
            for source in sources:
                to_source[row, value - 1, encoding.char_to_token(source)] = True
    return to_cue, to_source


def loss(attention, allowed):
    """Mean over hinted positions of −log of the attention that one head pays to the allowed places.

    Parameters
    ----------
    attention : (rows, length, length) tensor, one head's
    allowed : (rows, length, length) bool tensor
    """
    hinted = allowed.any(-1)
    paid = (attention * allowed).sum(-1)[hinted]
    return -paid.clamp_min(1e-6).log().mean()
