"""Writes stories: simulates the village and narrates what happens, sentence by sentence."""

import random
import re

from tutorlib.storyworld import words
from tutorlib.storyworld.grammar import TEMPLATES, render
from tutorlib.storyworld.state import AWAY, LOST, StoryState
from tutorlib.storyworld.world import tell

# How often each kind of sentence is chosen after the opening, if it is possible.
BODY = {
    "move": 5, "give": 7, "lose": 3, "find": 9, "hide": 3, "take": 6, "carry": 2, "gain": 3, "spend": 3, "become": 3,
    "leave": 1, "come_back": 12, "paint": 1,
    "still_at": 5, "still_with": 7, "still_in": 4, "still_have": 5, "still_feel": 4,
    "who_has": 6, "where_is_thing": 3, "where_is": 4, "how_many": 4, "how_feels": 2, "scenery": 2,
}  # fmt: skip
# Mostly questions: a model is trained on these first, to learn that facts can be looked up.
DRILL = {
    "give": 4, "move": 2, "lose": 2, "find": 6, "hide": 2, "take": 6, "carry": 1, "gain": 2, "spend": 2, "become": 1,
    "still_at": 6, "still_with": 6, "still_in": 5, "still_have": 5, "still_feel": 6,
    "who_has": 4, "where_is": 3, "how_many": 3, "how_feels": 3,
}  # fmt: skip
LONG = 160  # number of words and punctuation marks after which no new sentence begins: stories stay under 200 tokens


def story(seed, *, kinds=None, sentences=(5, 9)):
    """A complete story.

    Parameters
    ----------
    seed : int or str
        The same seed gives the same story, on every machine.
    kinds : dict, optional
        Kind of sentence → weight, for the part after the opening; by default `BODY`.
    sentences : tuple of int
        The least and the most sentences after the opening (a question and its answer count as one).

    Returns
    -------
    str
        80 to 200 tokens of the bundled tokenizer; sentences joined by single spaces.
    """
    return " ".join(sentence for sentence, _, _ in told(seed, kinds=kinds, sentences=sentences))


def told(seed, *, kinds=None, sentences=(5, 9)):
    """The same story as a list of (sentence, kind, slots)."""
    rng = random.Random(f"storyworld {seed}")
    narrator = _Narrator(rng)
    narrator.open()
    kinds = dict(kinds or BODY)
    for _ in range(rng.randint(*sentences)):
        if narrator.length > LONG:
            break
        narrator.go_on(kinds)
    return narrator.told


class _Narrator:
    def __init__(self, rng):
        self.rng, self.state, self.told = rng, StoryState(), []
        self.length = 0  # words and punctuation marks so far
        self.coloured = False  # whether the last thing was named with its colour, as an answer must repeat it

    def say(self, kind, **slots):
        """Adds a sentence in one of its wordings and makes it true."""
        state, rng = self.state, self.rng
        pronoun = kind not in ("opening",) and slots.get("who") == state.subject and rng.random() < 0.5
        if not kind.startswith("answer"):
            new = "thing" in slots and slots["thing"] not in state.keeper
            self.coloured = new or rng.random() < 0.5
        tell(state, kind, slots)
        template = rng.choice(TEMPLATES[kind])
        sentence = render(template, slots, pronoun=pronoun, colour=self.coloured)
        self.told.append((sentence, kind, slots))
        self.length += len(re.findall(r"\w+|[^\w\s]+", sentence))

    def open(self):
        rng = self.rng
        people = rng.sample(words.NAMES, 3)
        items = rng.choice(list(words.COUNTABLES.values()))
        boxes = rng.sample(words.CONTAINERS, 1)
        things = list(zip(rng.sample(words.THINGS, rng.choice((2, 3))), rng.sample(words.COLOURS, 3)))
        self.say("opening", who=people[0], to=people[1], third=people[2])
        for who in people:
            place = rng.choice(words.PLACES)
            if rng.random() < 0.85:
                self.say("be_at_feeling", who=who, place=place, feeling=rng.choice(words.FEELINGS))
            else:
                self.say("be_at", who=who, place=place)
            self.say("have", who=who, n=rng.randint(2, 9), items=items)
        for box in boxes:
            self.say("box_at", box=box, place=rng.choice(words.PLACES))
        for thing, colour in things:
            if rng.random() < 0.2:
                self.say("thing_in", thing=thing, colour=colour, box=rng.choice(boxes))
            else:
                self.say("thing_with", thing=thing, colour=colour, who=rng.choice(people))

    def go_on(self, kinds):
        """One more event, reminder, or question with its answer; kinds are drawn until one is possible."""
        names, weights = zip(*kinds.items())
        while True:
            kind = self.rng.choices(names, weights)[0]
            slots = self.slots(kind)
            if slots is not None:
                break
        self.say(kind, **slots)
        if self.state.question:
            self.answer()

    # -- who and what a kind of sentence could be about --

    def slots(self, kind):
        """Slots that make a sentence of this kind possible now, or None."""
        state, rng = self.state, self.rng
        present = [who for who in state.people if state.place[who] != AWAY]
        held = [thing for thing, keeper in state.keeper.items() if keeper in present]
        boxed = [thing for thing, keeper in state.keeper.items() if keeper.startswith("the ")]
        lost = [thing for thing, keeper in state.keeper.items() if keeper == LOST]
        owners = [(who, items) for who, items in state.count if who in present]
        boxes = [box for box in state.place if box.startswith("the ")]
        subject = state.subject if state.subject in present and rng.random() < 0.3 else None

        def person():
            return subject or rng.choice(present)

        def thing(choices):
            name = rng.choice(choices)
            return {"thing": name, "colour": state.colour.get(name)}

        def other(choices, than):
            return rng.choice([choice for choice in choices if choice != than])

        def keeper(slots):
            return state.keeper[slots["thing"]]

        if kind == "move":
            who = person()
            return {"who": who, "goal": other(words.PLACES, state.place[who])}
        if kind in ("give", "lose", "hide", "still_with"):
            if not held or (kind == "give" and len(present) < 2):
                return None
            slots = thing(held)
            slots["who"] = keeper(slots)
            if kind == "give":
                slots["to"] = other(present, slots["who"])
            if kind == "hide":
                slots["box"] = rng.choice(boxes)
            return slots
        if kind == "find":
            return {**thing(lost), "who": person()} if lost else None
        if kind in ("take", "still_in"):
            if not boxed:
                return None
            slots = thing(boxed)
            slots["box"] = keeper(slots)
            return {**slots, "who": person()} if kind == "take" else slots
        if kind == "carry":
            box = rng.choice(boxes)
            return {
                "who": person(),
                "box": box,
                "place": state.place[box],
                "goal": other(words.PLACES, state.place[box]),
            }
        if kind in ("gain", "spend", "still_have"):
            if not owners:
                return None
            who, items = rng.choice(owners)
            n = state.count[who, items] + {"gain": 1, "spend": -1, "still_have": 0}[kind]
            if not 2 <= n <= 9:
                return None
            slots = {"who": who, "n": n, "items": items}
            return slots if kind == "still_have" else {**slots, "item": words.SINGULAR[items]}
        if kind == "become":
            who = person()
            return {"who": who, "feeling": other(words.FEELINGS, state.feeling.get(who))}
        if kind == "leave":
            return {"who": person()} if len(present) == 3 else None
        if kind == "come_back":
            away = [who for who in state.people if who not in present]
            return {"who": away[0], "goal": rng.choice(words.PLACES)} if away else None
        if kind == "paint":
            slots = thing(list(state.keeper))
            return {**slots, "new": other(words.COLOURS, slots["colour"])}
        if kind == "still_at":
            who = person()
            return {"who": who, "place": state.place[who]}
        if kind == "still_feel":
            moody = [who for who in present if who in state.feeling]
            return {"who": (who := rng.choice(moody)), "feeling": state.feeling[who]} if moody else None
        if kind == "scenery":
            return {}
        return self.question(kind, present, thing)

    def question(self, kind, present, thing):
        state, rng = self.state, self.rng
        if kind == "who_has":
            held = [name for name, keeper in state.keeper.items() if keeper in state.people]
            return {**thing(held), "asker": rng.choice(words.ELDERS)} if held else None
        if kind == "where_is_thing":
            return {**thing(list(state.keeper)), "asker": rng.choice(words.ELDERS)}
        if kind == "how_many":
            who, items = rng.choice(list(state.count))
            return {"items": items, "who": who, "asker": rng.choice(words.ELDERS)}
        moody = list(state.feeling) if kind == "how_feels" else state.people
        return {"who": rng.choice(moody), "asker": rng.choice(words.ELDERS)} if moody else None

    def answer(self):
        """Answers the open question; if possible, the speaker is not the person whom the question is about."""
        state, rng = self.state, self.rng
        assert state.question is not None, "called only while a question is open"
        topic, subject = state.question
        present = [who for who in state.people if state.place[who] != AWAY]
        about = subject[0] if topic == "count" else state.keeper.get(subject, subject)
        speaker = rng.choice([who for who in present if who != about] or present)
        if topic == "thing":
            thing = {"thing": subject, "colour": state.colour.get(subject), "speaker": speaker}
            keeper = state.keeper[subject]
            if keeper == LOST:
                self.say("answer_lost", **thing)
            elif keeper in state.people:
                self.say("answer_with", **thing, who=keeper)
            else:
                self.say("answer_in", **thing, box=keeper)
        elif topic == "place":
            if state.place[subject] == AWAY:
                self.say("answer_away", who=subject, speaker=speaker)
            else:
                self.say("answer_at", who=subject, place=state.place[subject], speaker=speaker)
        elif topic == "count":
            who, items = subject
            self.say("answer_count", who=who, items=items, n=state.count[subject], speaker=speaker)
        else:
            self.say("answer_feels", who=subject, feeling=state.feeling[subject], speaker=speaker)
