"""Drawings of ideas, one idea per file. They show how something works, not what was measured."""
