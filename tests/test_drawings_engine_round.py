"""The drawing of a round in an engine: all parts are there, and the check comes after the target."""

from matplotlib.figure import Figure

from tutorlib.course.drawings.engine_round import BOXES, engine_round


def test_every_part_is_named_and_a_round_leads_from_the_requests_to_the_check_and_back():
    ax = Figure().add_subplot()
    assert engine_round(ax) is ax
    texts = [text.get_text() for text in ax.texts]
    assert {*BOXES, "guesses", "states", "next round"} < set(texts)
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert len(arrows) == 7, "six parts in a row, states back to the head, and the next round"
