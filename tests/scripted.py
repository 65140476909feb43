"""Methods whose steps a test writes out: what any method looks like to what runs it."""

from tutorlib.decoding import decoder, run
from tutorlib.table import TableLM

ABC = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"])


@decoder
def scripted(lm, prompt, steps):
    """Yields the steps that it is given."""
    yield from steps


def run_scripted(steps, budget=100, lm=ABC, **options):
    return run(scripted(lm, "a", steps), budget, **options)
