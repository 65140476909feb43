"""Reads a story and checks, for each sentence, whether it can be true."""

from dataclasses import dataclass

from tutorlib.storyworld import words
from tutorlib.storyworld.grammar import read, sentences
from tutorlib.storyworld.state import Contradiction, StoryState
from tutorlib.storyworld.world import PERSONAL, tell

CONSISTENT, CONTRADICTION, UNREADABLE = "consistent", "contradiction", "unreadable"


@dataclass(frozen=True)
class Verdict:
    """The result of checking one sentence.

    Attributes
    ----------
    sentence : str
    verdict : str
        "consistent", "contradiction" or "unreadable".
    reason : str
        For a contradiction, the earlier fact that it contradicts; for an unreadable sentence, why; otherwise empty.
    kind : str or None
        The kind of sentence that it was read as.
    """

    sentence: str
    verdict: str
    reason: str = ""
    kind: str | None = None


def check(text):
    """Reads `text` from its first sentence and checks every sentence against the facts before it.

    A sentence that contradicts an earlier one or cannot be read is skipped: no fact changes, an open question stays
    open, and the next sentence is checked against the same facts. So the first statement of a fact is believed, and one
    error never causes another. Only pronouns follow the words even if they are not true: if the wrong sentence has a
    person as its subject, "she" or "he" in the next sentence means that person.

    A last sentence without an end (because a budget cut it off) is not checked.

    Parameters
    ----------
    text : str
        A story by `narrate.story` or by a model.

    Returns
    -------
    list of Verdict
        One for each sentence, in order.

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
    state, verdicts = StoryState(), []
    parts = sentences(text)
    if parts and not parts[-1].endswith((".", '?"')):
        parts.pop()
    for sentence in parts:
        verdict, reason = CONSISTENT, ""
        kind, slots = read(sentence) or (None, dict[str, str]())
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
