"""The sliders over a distribution, and the figure that says the same without a kernel."""

import io
import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tutorlib import TableLM
from tutorlib.viz import widgets

pytestmark = pytest.mark.usefixtures("figures")

LM = TableLM({"": [0.5, 0.25, 0.15, 0.1]}, vocab=["a", " b", "$x$", "d"])
OFF = {"temperature": 1.0, "top-k": 50, "top-p": 1.0, "min-p": 0.0, "typical": 1.0}


def kept(ax):
    """What the filled bars say, from the top one down."""
    (container,) = [bars for bars in ax.containers if bars.get_label() == "kept: after the warp"]
    return [bar.get_width() for bar in container]


def test_every_slider_redraws_and_all_of_them_off_is_the_model():
    box = widgets.warp_explorer(LM, "a")
    *sliders, picture = box.children
    assert {slider.description: slider.value for slider in sliders} == OFF
    plain = seen = bytes(picture.value)
    assert plain.startswith(b"\x89PNG")
    for slider, value in zip(sliders, (0.5, 2, 0.6, 0.5, 0.5), strict=True):
        slider.value = value
        assert bytes(picture.value) != seen, slider.description
        seen = bytes(picture.value)
        slider.value = OFF[slider.description]
        assert bytes(picture.value) == plain
        seen = plain


def test_the_picture_keeps_its_size_wherever_the_sliders_stand():
    box = widgets.warp_explorer(LM, "a")
    sizes = set()
    for value in (0.5, 1.0, 3.0):
        box.children[0].value = value
        sizes.add(plt.imread(io.BytesIO(bytes(box.children[-1].value))).shape[1::-1])
    ((width, _),) = sizes
    assert box.children[-1].layout.width == f"{width // 2}px"


def test_the_sliders_are_applied_from_top_to_bottom():
    active = widgets._active_warps({**OFF, "typical": 0.9, "temperature": 1.5, "top-p": 0.8})
    assert [warp.__name__ for warp in active] == ["temperature(1.5)", "top_p(0.8)", "typical(0.9)"]
    assert widgets._active_warps(OFF) == []


def test_every_value_that_a_slider_can_have_makes_a_warp():
    for name, make, low, high, step, off in widgets.WARP_SLIDERS:
        values = [low + step * i for i in range(round((high - low) / step) + 1)]
        assert values[-1] == pytest.approx(high) and any(value == pytest.approx(off) for value in values), name
        for value in values:
            if value != pytest.approx(off):
                make(value)


def test_sliders_can_start_elsewhere_and_say_what_is_wrong():
    box = widgets.warp_explorer(LM, "a", top_k=3, min_p=0.1)
    assert [slider.value for slider in box.children[:-1]] == [1.0, 3, 1.0, 0.1, 1.0]
    with pytest.raises(
        ValueError, match="no slider 'beams'; the sliders are temperature, top_k, top_p, min_p, typical"
    ):
        widgets.warp_explorer(LM, "a", beams=3)
    with pytest.raises(ValueError, match="top_p must be between 0.05 and 1.0"):
        widgets.warp_explorer(LM, "a", top_p=2)


def test_only_what_both_versions_of_ipywidgets_have_is_used():
    sliders = widgets.warp_explorer(LM, "a").children[:-1]
    assert {type(slider).__name__ for slider in sliders} == {"FloatSlider", "IntSlider"}
    assert type(widgets.warp_explorer(LM, "a")).__name__ == "VBox"


def test_without_ipywidgets_the_explorer_is_a_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    figure = widgets.warp_explorer(LM, "a", top_k=2)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["top-k 2"]
    assert kept(figure.axes[0]) == pytest.approx([2 / 3, 1 / 3])


def test_the_picture_says_before_and_after_what_and_explains_only_bars_that_are_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    (ax,) = widgets.warp_explorer(LM, "a", temperature=0.5, top_k=2).axes
    assert "keeps 2 tokens (probability before: 0.750)" in [text.get_text() for text in ax.texts]
    labels = ["kept: after the warp", "removed: before the warp", "kept: before the warp"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == labels
    (ax,) = widgets.warp_explorer(LM, "a", temperature=2).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [labels[0], labels[2]]


def test_many_tokens_are_counted_with_commas(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    many = TableLM({"": [1 / 1200] * 1200}, vocab=[f"w{i} " for i in range(1200)])
    (ax,) = widgets.warp_explorer(many, [0], temperature=2).axes
    assert ax.get_yticklabels()[-1].get_text() == "1,188 others"
    assert "1,192 more tokens" in widgets.next_token_figure(many, [0], (1.0,)).axes[0].get_xlabel()


TWO = TableLM({"": [0.7, 0.2, 0.1], "a": [0.1, 0.6, 0.3]}, vocab=["a", " b", "$"])


def test_the_explorer_redraws_when_its_controls_move_and_keeps_its_picture_on_a_bad_prompt():
    box = widgets.next_token_explorer(TWO, "a", temperature=1.0)
    field, slider, picture, complaint = box.children
    first = bytes(picture.value)
    assert first.startswith(b"\x89PNG")
    slider.value = 2.0
    warm = bytes(picture.value)
    assert warm != first
    field.value = ""
    assert bytes(picture.value) == warm and "has no tokens" in complaint.value
    field.value = " b"
    assert bytes(picture.value) != warm and complaint.value == ""


def test_without_ipywidgets_the_next_token_explorer_is_a_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert isinstance(widgets.next_token_explorer(TWO, "a"), matplotlib.figure.Figure)


def test_the_static_form_shows_one_picture_a_temperature():
    figure = widgets.next_token_figure(TWO, [0], (0.5, 1.0))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["temperature 0.5", "temperature 1"]
    assert [bar.get_width() for bar in figure.axes[1].patches] == pytest.approx([0.6, 0.3, 0.1])
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx(np.array([36, 9, 1]) / 46)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        widgets.next_token_figure(TWO, [0], (0,))
    with pytest.raises(ValueError, match="between 0.1 and 3"):
        widgets.next_token_explorer(TWO, [0], temperature=9)
