"""The facts of the village, and the rules for what may happen next.

A `State` holds the facts stated in a story so far. Every sentence of a story has a `kind` and named slots, and every
kind has a rule: a function that checks whether the sentence agrees with the state (if not, it raises `Contradiction`
and names the fact) and then makes the sentence true. Stories are written and read with the same rules, so the narrator
never writes anything that the reader would reject.

A contradiction is a sentence that makes an earlier statement untrue. To go where one already is, or to become what one
already is, is silly but allowed. The village is small: everybody is within shouting distance, so things may be handed
over and questions answered from anywhere, except by somebody who has left the village.
"""

from dataclasses import dataclass, field

from tutorlib.storyworld.words import COUNTABLES

LOST, AWAY = "lost", "away"


class Contradiction(ValueError):
    """A sentence that cannot be true; the message names the fact it contradicts."""


@dataclass
class State:
    """The facts stated so far. Things and containers are identified by their noun, people by their name.

    Attributes
    ----------
    people : list of str
        In the order in which they were named.
    place : dict
        Person or container → place; a person who left the village is at ``AWAY``.
    colour : dict
        Thing → colour.
    keeper : dict
        Thing → the person who has it, the container it is in, or ``LOST``.
    count : dict
        (person, countable in the plural) → number from 2 to 9.
    feeling : dict
        Person → feeling.
    subject : str or None
        The person that "she" or "he" would mean: the subject of the previous sentence.
    question : tuple or None
        The question in the previous sentence, as (topic, subject), if the next sentence has to answer it.
    """

    people: list = field(default_factory=list)
    place: dict = field(default_factory=dict)
    colour: dict = field(default_factory=dict)
    keeper: dict = field(default_factory=dict)
    count: dict = field(default_factory=dict)
    feeling: dict = field(default_factory=dict)
    subject: str | None = None
    question: tuple | None = None

    # -- what a sentence may take for granted --------------------------------------------------------------------------

    def present(self, *people):
        for person in people:
            if person not in self.people:
                raise Contradiction(f"nobody called {person} was named")
            if self.place.get(person) == AWAY:
                raise Contradiction(f"{person} had left the village")

    def known(self, thing):
        if thing not in self.keeper:
            raise Contradiction(f"no {thing} was mentioned before")

    def coloured(self, thing, colour):
        if colour is not None and self.colour.get(thing) != colour:
            raise Contradiction(f"the {thing} was {self.colour.get(thing) or 'of no told colour'}, not {colour}")

    def kept(self, thing, keeper):
        self.known(thing)
        if self.keeper[thing] != keeper:
            raise Contradiction(f"the {thing} was {where(self.keeper[thing])}, not {where(keeper)}")

    def at(self, who, place):
        if who not in self.place:
            raise Contradiction(f"nothing was told of where {who} was")
        if self.place[who] != place:
            raise Contradiction(f"{who} was {where_at(self.place[who])}, not {where_at(place)}")

    def counts(self, who, items, number):
        if (who, items) not in self.count:
            raise Contradiction(f"nothing was told of {items} that {who} had")
        if self.count[who, items] != number:
            raise Contradiction(f"{who} had {self.count[who, items]} {items}, not {number}")

    def feels(self, who, feeling):
        if who not in self.feeling:
            raise Contradiction(f"nothing was told of how {who} felt")
        if self.feeling[who] != feeling:
            raise Contradiction(f"{who} felt {self.feeling[who]}, not {feeling}")


def where(keeper):
    """'with Mia', 'in the chest' or 'lost'."""
    if keeper == LOST:
        return LOST
    return f"in {keeper}" if keeper.startswith("the ") else f"with {keeper}"


def where_at(place):
    return "away" if place == AWAY else f"at {place}"


# The rules, one a kind of sentence. Slots: who, to, third, speaker (people); asker (an elder); thing, its colour and
# new (another colour); box; place, goal (places); n, item, items (a count); feeling.

RULES = {}


def rule(function):
    RULES[function.__name__] = function
    return function


def introduce(facts, key, value, sentence):
    """States a fact for the first time. It may be stated again, but not differently."""
    if facts.setdefault(key, value) != value:
        raise Contradiction(f"{sentence} {facts[key]}, not {value}")


@rule
def opening(state, who, to, third):
    for person in (who, to, third):
        if person not in state.people:
            state.people.append(person)


@rule
def be_at(state, who, place):
    state.present(who)
    introduce(state.place, who, place, f"{who} was at")


@rule
def be_at_feeling(state, who, place, feeling):
    if who in state.feeling:
        state.feels(who, feeling)
    be_at(state, who, place)
    state.feeling[who] = feeling


@rule
def have(state, who, n, items):
    state.present(who)
    introduce(state.count, (who, items), n, f"the number of {items} that {who} had was")


@rule
def thing_with(state, thing, colour, who):
    state.present(who)
    if thing not in state.keeper and colour:
        state.colour[thing] = colour
    state.coloured(thing, colour)
    introduce(state.keeper, thing, who, f"the {thing} was with")


@rule
def thing_in(state, thing, colour, box):
    if box not in state.place:
        raise Contradiction(f"nothing was told of {box} before")
    if thing not in state.keeper and colour:
        state.colour[thing] = colour
    state.coloured(thing, colour)
    introduce(state.keeper, thing, box, f"the {thing} was in")


@rule
def box_at(state, box, place):
    introduce(state.place, box, place, f"{box} was at")


# events: what changes the state


@rule
def move(state, who, goal):
    state.present(who)
    state.place[who] = goal


@rule
def give(state, thing, colour, who, to):
    state.present(who, to)
    state.kept(thing, who)
    state.coloured(thing, colour)
    if who == to:
        raise Contradiction(f"{who} had the {thing} already")
    state.keeper[thing] = to


@rule
def lose(state, thing, colour, who):
    state.present(who)
    state.kept(thing, who)
    state.coloured(thing, colour)
    state.keeper[thing] = LOST


@rule
def find(state, thing, colour, who):
    state.present(who)
    state.kept(thing, LOST)
    state.coloured(thing, colour)
    state.keeper[thing] = who


@rule
def hide(state, thing, colour, who, box):
    state.present(who)
    state.kept(thing, who)
    state.coloured(thing, colour)
    if box not in state.place:
        raise Contradiction(f"nothing was told of {box} before")
    state.keeper[thing] = box


@rule
def take(state, thing, colour, box, who):
    state.present(who)
    state.kept(thing, box)
    state.coloured(thing, colour)
    state.keeper[thing] = who


@rule
def carry(state, who, box, place, goal):
    state.present(who)
    state.at(box, place)
    state.place[box] = goal


@rule
def gain(state, who, item, n, items):
    state.present(who)
    if COUNTABLES[item] != items:
        raise Contradiction(f"one more {item} does not make more {items}")
    state.counts(who, items, n - 1)
    state.count[who, items] = n


@rule
def spend(state, who, item, n, items):
    state.present(who)
    if COUNTABLES[item] != items:
        raise Contradiction(f"one {item} less does not make fewer {items}")
    state.counts(who, items, n + 1)
    state.count[who, items] = n


@rule
def become(state, who, feeling):
    state.present(who)
    state.feeling[who] = feeling


@rule
def leave(state, who):
    state.present(who)
    state.place[who] = AWAY


@rule
def come_back(state, who, goal):
    if state.place.get(who) != AWAY:
        raise Contradiction(f"{who} had not left the village")
    state.place[who] = goal


@rule
def paint(state, thing, colour, new):
    state.known(thing)
    state.coloured(thing, colour)
    state.colour[thing] = new


# what is true still


@rule
def still_at(state, who, place):
    state.present(who)
    state.at(who, place)


@rule
def still_with(state, thing, colour, who):
    state.kept(thing, who)
    state.coloured(thing, colour)


@rule
def still_in(state, thing, colour, box):
    state.kept(thing, box)
    state.coloured(thing, colour)


@rule
def still_have(state, who, n, items):
    state.present(who)
    state.counts(who, items, n)


@rule
def still_feel(state, who, feeling):
    state.present(who)
    state.feels(who, feeling)


# questions, asked by the elders; the next sentence owes the answer, by somebody who is there


def ask(state, topic, subject):
    if topic == "thing":
        state.known(subject)
    elif (subject[0] if topic == "count" else subject) not in state.people:
        raise Contradiction(f"nobody called {subject} was named")
    state.question = (topic, subject)


@rule
def who_has(state, thing, colour, asker):
    state.coloured(thing, colour)
    ask(state, "thing", thing)


@rule
def where_is_thing(state, thing, colour, asker):
    who_has(state, thing, colour, asker)


@rule
def where_is(state, who, asker):
    ask(state, "place", who)


@rule
def how_many(state, items, who, asker):
    ask(state, "count", (who, items))


@rule
def how_feels(state, who, asker):
    ask(state, "feeling", who)


def answer(state, topic, subject, speaker):
    state.present(speaker)
    if state.question not in (None, (topic, subject)):
        raise Contradiction(f"the question was about {state.question[1]}")


@rule
def answer_with(state, thing, colour, who, speaker):
    answer(state, "thing", thing, speaker)
    still_with(state, thing, colour, who)


@rule
def answer_in(state, thing, colour, box, speaker):
    answer(state, "thing", thing, speaker)
    still_in(state, thing, colour, box)


@rule
def answer_lost(state, thing, colour, speaker):
    answer(state, "thing", thing, speaker)
    still_with(state, thing, colour, LOST)


@rule
def answer_at(state, who, place, speaker):
    answer(state, "place", who, speaker)
    state.at(who, place)


@rule
def answer_away(state, who, speaker):
    answer(state, "place", who, speaker)
    state.at(who, AWAY)


@rule
def answer_count(state, who, n, items, speaker):
    answer(state, "count", (who, items), speaker)
    state.counts(who, items, n)


@rule
def answer_feels(state, who, feeling, speaker):
    answer(state, "feeling", who, speaker)
    state.feels(who, feeling)


@rule
def scenery(state):
    """Weather, birds and bells: a sentence that cannot contradict any fact."""


# Kinds whose subject is a person, whom "she" or "he" in the next sentence then means.
PERSONAL = {
    *("be_at", "be_at_feeling", "have", "still_at", "still_have", "still_feel"),
    *("move", "gain", "spend", "become", "leave", "come_back", "carry"),
}
QUESTIONS = ("who_has", "where_is_thing", "where_is", "how_many", "how_feels")


def tell(state, kind, slots):
    """Makes one sentence true in `state`, or raises `Contradiction` and leaves the facts as they were.

    Rules look before they change anything, so there is nothing to undo.
    """
    RULES[kind](state, **slots)
    if kind not in QUESTIONS:  # a question without an answer is not a contradiction
        state.question = None
    state.subject = slots["who"] if kind in PERSONAL else None
