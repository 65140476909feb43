"""A small simulated village that narrates itself, and a reader who notices every contradiction. No torch in here."""

from tutorlib.storyworld.check import Verdict, check
from tutorlib.storyworld.narrate import story, told

__all__ = ["Verdict", "check", "story", "told"]
