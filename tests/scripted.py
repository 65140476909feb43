"""Methods whose steps a test writes out: what any method looks like to what runs it."""

from tutorlib.model.table import TableLM
from tutorlib.running.decoding import decoder, run

ABC = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"])


@decoder
def scripted(lm, prompt, steps):
    """Yields the steps that it is given."""
    yield from steps


def run_scripted(steps, budget=100, lm=ABC, **options):
    return run(scripted(lm, "a", steps), budget, **options)
