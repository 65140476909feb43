"""Reads a story back and says of each sentence whether it can be true."""

from dataclasses import dataclass

from tutorlib.storyworld import words
from tutorlib.storyworld.grammar import read, sentences
from tutorlib.storyworld.world import PERSONAL, Contradiction, State, tell

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

    A sentence that contradicts or cannot be read is passed over: no fact changes, an open question stays open, and the
    next sentence is judged by what was true before. So what was told first is believed, and one fault never makes
    another. Only a pronoun goes by the words, true or not: where the faulty sentence names a person as its subject,
    "she" or "he" in the next sentence means that person.

    A last sentence without its end (a text cut off by a budget) is not judged.

    Parameters
    ----------
    text : str
        A story, as `narrate.story` tells them or as a model made it up.

    Returns
    -------
    list of Verdict
        One a sentence, in order.

    Examples
    --------
    Ben never had the kite. The sentence that says so has no person as its subject, so nobody is meant by "he":

    >>> opening = "Mia, Ben and Tom lived in a small village. The kite was with Mia."
    >>> for verdict in check(f"{opening} The kite went from Ben to Tom. He went to the mill.")[2:]:
    ...     print(verdict.reason)
    the kite was with Mia, not with Ben
    nobody was named in the sentence before whom 'he' could mean

    Ben was not at the mill, yet he is the one who is meant by "he", and he is where he was:

    >>> text = f"{opening} Ben was at the barn. Ben was still at the mill. He grew happy. Ben stayed at the barn."
    >>> [verdict.verdict for verdict in check(text)[3:]]
    ['contradiction', 'consistent', 'consistent']
    """
    state, verdicts = State(), []
    parts = sentences(text)
    if parts and not parts[-1].endswith((".", '?"')):
        parts.pop()
    for sentence in parts:
        verdict, reason = CONSISTENT, ""
        kind, slots = read(sentence) or (None, {})
        try:
            if kind is None:
                verdict, reason = UNREADABLE, "no sentence of the village reads like this"
            else:
                tell(state, kind, _resolve(state, slots))
        except Contradiction as error:
            verdict, reason = CONTRADICTION, str(error)
        if verdict != CONSISTENT:
            named = slots.get("who") if kind in PERSONAL else sentence.split()[0] if kind is None else None
            state.subject = named if named in words.NAMES else state.subject
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
