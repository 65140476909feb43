"""The rules for what may happen next in the village.

A `StoryState` holds the facts stated in a story so far. Every sentence has a `kind` and named slots, and every
kind has a rule: a function that checks whether the sentence agrees with the state (if not, it raises `Contradiction`
and names the fact) and then makes the sentence true. Stories are written and read with the same rules, so the narrator
never writes anything that the reader would reject.

A contradiction is a sentence that makes an earlier statement untrue. To go where one already is, or to become what one
already is, is silly but allowed. The village is small: everybody is within shouting distance, so things may be handed
over and questions answered from anywhere, except by somebody who has left the village.
"""

from tutorlib.storyworld.state import AWAY, LOST, Contradiction
from tutorlib.storyworld.words import COUNTABLES

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


ASKED = {  # topic -> what a question is about, in words
    "thing": "the {}".format, "place": "where {} is".format, "feeling": "how {} feels".format,
    "count": lambda counted: "the {1} of {0}".format(*counted),
}  # fmt: skip


def ask(state, topic, subject):
    if topic == "thing":
        state.known(subject)
    elif (who := subject[0] if topic == "count" else subject) not in state.people:
        raise Contradiction(f"nobody called {who} was named")
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
        topic, subject = state.question
        raise Contradiction(f"the question was about {ASKED[topic](subject)}")


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
