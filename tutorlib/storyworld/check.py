"""Reads a story back and says of each sentence whether it can be true."""

from dataclasses import dataclass

from tutorlib.storyworld import words
from tutorlib.storyworld.grammar import read, sentences
from tutorlib.storyworld.world import Contradiction, State, tell

CONSISTENT, CONTRADICTION, UNREADABLE = "consistent", "contradiction", "unreadable"


@dataclass(frozen=True)
class Verdict:
    """What the reader thinks of one sentence.

    Attributes
    ----------
    sentence : str
    verdict : str
        "consistent", "contradiction" or "unreadable".
    reason : str
        For a contradiction, the told fact that it contradicts; for an unreadable sentence, why; otherwise empty.
    kind : str or None
        The kind of sentence that it was read as.
    """

    sentence: str
    verdict: str
    reason: str = ""
    kind: str | None = None


def check(text):
    """Reads `text` from its first sentence and judges every sentence by what was told before it.

    A contradicting sentence changes nothing: what was told first is believed. A last sentence without its end (a text
    cut off by a budget) is not judged.

    Parameters
    ----------
    text : str
        A story, as `narrate.story` tells them or as a model made it up.

    Returns
    -------
    list of Verdict
        One a sentence, in order.
    """
    state, verdicts = State(), []
    parts = sentences(text)
    if parts and not parts[-1].endswith((".", '?"')):
        parts.pop()
    for sentence in parts:
        verdict, reason, kind = CONSISTENT, "", None
        parsed = read(sentence)
        if parsed is None:
            verdict, reason = UNREADABLE, "no sentence of the village reads like this"
            state.subject = state.question = None
        else:
            kind, slots = parsed
            try:
                slots = _resolve(state, slots)
                tell(state, kind, slots)
            except Contradiction as error:
                verdict, reason = CONTRADICTION, str(error)
                state.question = None
                state.subject = slots.get("who")
        verdicts.append(Verdict(sentence, verdict, reason, kind))
    return verdicts


def _resolve(state, slots):
    """Puts the person meant in place of "She" or "He"."""
    who = slots.get("who")
    if who not in ("She", "He"):
        return slots
    if state.subject is None or words.pronoun(state.subject) != who.lower():
        raise Contradiction(f"nobody was named in the sentence before whom {who.lower()!r} could mean")
    return {**slots, "who": state.subject}
