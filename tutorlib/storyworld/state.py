"""The facts that a story of the village has stated so far.

What this file does not do: say which facts a sentence needs and states (`world`).
"""

from dataclasses import dataclass, field

LOST, AWAY = "lost", "away"


class Contradiction(ValueError):
    """A sentence that cannot be true; the message names the fact it contradicts."""


@dataclass
class StoryState:
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
            raise Contradiction(f"the {thing} was {_where(self.keeper[thing])}, not {_where(keeper)}")

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


def _where(keeper):
    """'with Mia', 'in the chest' or 'lost'."""
    if keeper == LOST:
        return LOST
    return f"in {keeper}" if keeper.startswith("the ") else f"with {keeper}"


def where_at(place):
    return "away" if place == AWAY else f"at {place}"
