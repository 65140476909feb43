"""The drawing of prompt lookup: the end of the text below its earlier occurrence, the draft below what followed."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.lookup import lookup_rows

pytestmark = pytest.mark.usefixtures("figures")


def test_the_draft_stands_below_what_followed_and_is_a_copy_of_it():
    _, ax = plt.subplots()
    assert lookup_rows(ax, ["$a$", "b"], ["c", "d"]) is ax
    at = {}
    for text in ax.texts:
        at.setdefault(text.get_text(), []).append(text.get_position())
    assert len(at["$a$"]) == len(at["b"]) == 2
    for word in "cd":
        (above,), (below,) = at[word], at[f"✓ {word}"]
        assert above[0] == below[0] and above[1] < below[1]


@pytest.mark.parametrize(("match", "followed"), [([], ["a"]), (["a"], [])])
def test_a_lookup_needs_a_match_and_what_followed(match, followed):
    with pytest.raises(ValueError, match="a match and the tokens that followed it"):
        lookup_rows(plt.subplots()[1], match, followed)
