"""A small simulated village, a narrator that tells stories about it, and a reader that finds every contradiction."""

from tutorlib.storyworld.check import Verdict, check
from tutorlib.storyworld.narrate import story, told

__all__ = ["Verdict", "check", "story", "told"]
