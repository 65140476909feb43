"""Drawings of ideas, an idea a file: they show how something works, not what was measured."""
