"""The drawing of EAGLE's loop."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from tutorlib.course.drawings.eagle_loop import eagle_loop
from tutorlib.viz.palette import LIGHT

pytestmark = pytest.mark.usefixtures("figures")


def test_feature_and_token_go_into_the_layer_and_both_guesses_come_back():
    ax = eagle_loop(plt.subplots()[1], "$a$", "b")
    at = {text.get_text(): text.get_position() for text in ax.texts}
    assert at["$f_t$"][0] == at["$a$"][0] < at["EAGLE:\none layer"][0] < at["b"][0] == at[r"$\hat f_{t+1}$"][0]
    assert at["$f_t$"][1] == at[r"$\hat f_{t+1}$"][1] < at["target's head"][1] < at["b"][1] == at["$a$"][1]
    ways_back = [line.get_xdata() for line in ax.lines]
    assert [(way[0], way[-1]) for way in ways_back] == [(at["b"][0], at["$a$"][0])] * 2
    assert {to_hex(line.get_color()) for line in ax.lines} == {LIGHT["draft"]}
