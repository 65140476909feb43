"""The drawing of a beam search with what it dropped."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib import TableLM, beam_search, run
from tutorlib.course.drawings.beam_tree import beam_tree

LM = TableLM(
    {"x": {" a": 0.6, " b": 0.4}, " a": {" c": 0.5, " d": 0.3, " e": 0.2}, " b": {" c": 0.9, " e": 0.1}},
    vocab=["x", " a", " b", " c", " d", " e"],
)


@pytest.mark.parametrize(("dropped", "seen"), [(None, ["␣d", "␣e", "␣e"]), (1, ["␣d"])])
def test_what_was_seen_and_not_kept_is_drawn_beside_the_winner(dropped, seen):
    trace = run(beam_search(LM, "x", beams=2, max_new_tokens=2, length_penalty=0))
    ax = plt.subplots()[1]
    assert beam_tree(ax, trace, dropped=dropped, root="x") is ax
    plt.close(ax.figure)
    shown = [text.get_text().partition("\n")[0] for text in ax.texts]
    assert sorted(text[2:] for text in shown if text.startswith("✗")) == seen
    assert [text for text in shown if text.startswith("✓")] == ["✓ ␣c"] * 2 and "◂ wins" in shown
