"""Questions whose answers depend on the facts of a story, with the text cut off right before the answer."""

from dataclasses import dataclass

from tutorlib.storyworld import words
from tutorlib.storyworld.narrate import told

# topic → (kind of the answering sentence, the slot that answers)
TOPICS = {
    "who has it": ("answer_with", "who"),
    "where is it": ("answer_at", "place"),
    "how many": ("answer_count", "n"),
}


@dataclass(frozen=True)
class Question:
    """A story up to an answer, and the answer.

    Attributes
    ----------
    topic : str
        "who has it", "where is it" or "how many".
    prompt : str
        The story, the question, and the answer's beginning, without the space before the answer itself.
    answer : str
        With its leading space, e.g. ``" Mia"``, ``" the mill"``, ``" four"``.
    """

    topic: str
    prompt: str
    answer: str


def questions(seeds):
    """All questions in the stories with these seeds, in order.

    Parameters
    ----------
    seeds : iterable
        Seeds for `story`.

    Returns
    -------
    list of Question
    """
    found = []
    for seed in seeds:
        before = []
        for sentence, kind, slots in told(seed):
            for topic, (answering, slot) in TOPICS.items():
                if kind == answering:
                    value = words.NUMBERS[slots["n"] - 1] if slot == "n" else slots[slot]
                    cut = sentence.rindex(f" {value}", 0, sentence.index(',"'))
                    found.append(Question(topic, " ".join([*before, sentence[:cut]]), f" {value}"))
            before.append(sentence)
    return found


def opening(seed):
    """The beginning of a story with its first facts, to be used as a prompt."""
    introducing = {"opening", "be_at", "be_at_feeling", "have", "box_at", "thing_with", "thing_in"}
    return " ".join(sentence for sentence, kind, _ in told(seed) if kind in introducing)
