"""The drawing of what fits says of each row how much it takes, and whether that is within the frame."""

import pytest
from matplotlib.figure import Figure

from tutorlib.course.drawings.what_fits import what_fits

ROWS = {"16 bits": {"weights": 18.0, "caches": 2.0}, "4 bits": {"weights": 6.0, "caches": 2.0}}


def test_a_row_fits_if_its_parts_end_within_the_frame():
    ax = Figure().add_subplot()
    assert what_fits(ax, ROWS, 15, "a T4") is ax
    texts = [text.get_text() for text in ax.texts]
    assert {"20.0 GB do not fit", "8.0 GB fit", "a T4: 15 GB", "weights", "caches"} <= set(texts)
    (frame,) = [patch for patch in ax.patches if type(patch).__name__ == "Rectangle"]
    assert (frame.get_x(), frame.get_width()) == (0, 15)


def test_rows_with_other_parts_are_refused():
    with pytest.raises(ValueError, match="the same parts"):
        what_fits(Figure().add_subplot(), {**ROWS, "8 bits": {"weights": 9.0}}, 15, "a T4")
