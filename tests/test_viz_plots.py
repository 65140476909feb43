"""Palette, figures and widgets: colours that differ for everybody, figures that draw token text as it is."""

import itertools
import subprocess
import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tutorlib import TableLM
from tutorlib.viz import palette, plots, widgets

NASTY = ["$x_1$", "a_b", "\\frac{a}{b}$", " $", "\n", " 日本", "{", "^", "é", "%", "#"]


pytestmark = pytest.mark.usefixtures("figures")


def texts(ax):
    """Everything written in an axes, drawn first so that matplotlib has read it."""
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.findobj(matplotlib.text.Text) if text.get_text()]


# The palette

# Machado, Oliveira and Fernandes (2009), severity 1.0: what linear RGB becomes.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(color):
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one, other, sight):
    """How far apart two colours are seen (CIE 1976): 2.3 can just be told apart, side by side."""
    matrix = np.array(SIGHTS[sight])
    return np.linalg.norm(lab(matrix @ linear(one)) - lab(matrix @ linear(other)))


def contrast(one, other):
    """The contrast ratio of WCAG 2."""
    bright, dim = sorted((np.array([0.2126, 0.7152, 0.0722]) @ linear(color) for color in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_the_measures_agree_with_known_values():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert lab(linear("#ff0000")) == pytest.approx([53.2, 80.1, 67.2], abs=0.2)
    assert difference("#ff0000", "#00a000", "full") > 100 > 40 > difference("#b04030", "#6a7030", "deuteranopia")


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("colors", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_the_six_kinds_differ_however_colours_are_seen(colors, sight):
    for one, other in itertools.combinations(palette.KINDS, 2):
        assert difference(colors[one], colors[other], sight) > 20, (one, other)


@pytest.mark.parametrize("colors", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_every_kind_can_be_read_as_text_on_its_page(colors):
    for kind in (*palette.KINDS, "neutral", "context"):
        assert contrast(colors[kind], colors["background"]) >= 4.5, kind
        assert contrast(colors[kind], colors["surface"]) >= 4.2, kind
    assert contrast(colors["text"], colors["background"]) >= 12


@pytest.mark.parametrize("colors", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_marks_and_words_stand_out_in_the_boxes_of_the_player(colors):
    variables = dict(part.split(":") for part in palette.css_variables(colors).split(";") if part)
    for kind in (*palette.KINDS, "neutral"):
        red, green, blue, opacity = map(float, variables[f"--tl-{kind}-soft"][5:-1].split(","))
        page = np.array(to_rgb(colors["background"]))
        box = opacity * np.array([red, green, blue]) / 255 + (1 - opacity) * page
        assert contrast(colors[kind], tuple(box)) >= 3.6, kind  # a mark is a picture: WCAG asks 3 of it
        assert contrast(colors["text"], tuple(box)) >= 7, kind


def test_every_kind_has_a_mark_of_its_own_and_a_meaning():
    assert len({palette.MARKS[kind] for kind in (*palette.KINDS, "neutral")}) == 7
    assert set(palette.MARKS) == set(palette.MEANINGS) == set(palette.LINES) == set(palette.HATCHES)
    assert all(ord(mark) in plots._letters() for mark in palette.MARKS.values() if mark)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="'acepted' is not a kind of token; use one of target, draft, accepted"):
        palette.color("acepted")


def test_figures_in_the_books_style_are_opaque():
    figure, ax = plt.subplots()
    assert to_rgb(figure.get_facecolor()) == to_rgb(ax.get_facecolor()) == (1, 1, 1)
    assert not plt.rcParams["savefig.transparent"]


# The figures


def test_token_text_is_drawn_as_it_is_and_nothing_is_read_as_mathematics():
    _, ax = plt.subplots()
    plots.next_token_bars(ax, NASTY, np.full(len(NASTY), 1 / len(NASTY)), top=20)
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert shown[:5] == ["$x_1$", "a_b", "\\frac{a}{b}$", "␣$", "↵"]
    assert shown[5] == "␣⟨U+65E5⟩⟨U+672…"
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())
    for draw in (
        lambda ax: plots.token_strip(ax, NASTY, ["accepted"] * len(NASTY)),
        lambda ax: plots.kv_cache_picture(ax, NASTY, NASTY),
        lambda ax: plots.probability_tree(ax, {(text,): 0.05 for text in NASTY}),
    ):
        _, ax = plt.subplots()
        assert any("$x_1$" in text for text in texts(draw(ax)))


def test_bars_are_sorted_with_the_chosen_token_and_the_sum_of_the_rest():
    _, ax = plt.subplots()
    probs = [0.05, 0.5, 0.2, 0.1, 0.15]
    assert plots.next_token_bars(ax, list("abcde"), probs, chosen="a", top=3) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "c", "a", "2 others"]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.5, 0.2, 0.05, 0.25])
    assert "0.05  ◂ chosen" in texts(ax)
    assert ax.get_xlabel() == "probability" and ax.get_ylabel() == "next token"


def test_bars_name_what_is_wrong_with_their_probabilities():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="2 tokens and"):
        plots.next_token_bars(ax, ["a", "b"], [0.5])
    with pytest.raises(ValueError, match="between 0 and 1"):
        plots.next_token_bars(ax, ["a", "b"], [0.5, -0.5])
    with pytest.raises(ValueError, match="'z' is not among the tokens"):
        plots.next_token_bars(ax, ["a", "b"], [0.5, 0.5], chosen="z")


def test_a_histogram_shows_shares():
    _, ax = plt.subplots()
    plots.probability_histogram(ax, [0.05, 0.95, 0.97, 1.0], bins=10, label="target")
    heights = ax.patches[0].get_data().values
    assert heights[0] == 0.25 and heights[-1] == 0.75
    assert "target" in texts(ax)


def test_the_cost_curve_is_in_milliseconds_and_points_out_a_width():
    _, ax = plt.subplots()
    plots.cost_curve(ax, [1, 5, 9], [0.004, 0.006, 0.008], low=[0.003] * 3, high=[0.009] * 3, mark=5)
    assert ax.lines[0].get_ydata() == pytest.approx([4, 6, 8])
    assert ax.lines[1].get_ydata() == pytest.approx([4, 20, 36])
    assert "5 tokens: 1.5 times the time of 1" in texts(ax)
    assert "(ms)" in ax.get_ylabel()


def test_the_roofline_bends_where_reading_and_computing_take_the_same_time():
    _, ax = plt.subplots()
    # 40 MB at 10 GB/s: 4 ms. 20 Mflop a token at 150 Gflop/s: 30 tokens in 4 ms.
    numbers = {"bytes_moved": 40e6, "operations_per_token": 20e6, "bandwidth": 10e9, "operations_per_second": 150e9}
    plots.roofline(ax, [1, 8, 64], **numbers, measured=[0.005, 0.006, 0.01])
    assert "even at 30 tokens" in " ".join(texts(ax))
    bound = ax.lines[0]
    assert bound.get_ydata()[0] == pytest.approx(4) and bound.get_ydata()[-1] == pytest.approx(64 * 20e6 / 150e9 * 1000)
    with pytest.raises(ValueError, match="bandwidth must be positive, got 0"):
        plots.roofline(ax, [1, 2], **{**numbers, "bandwidth": 0})


def test_a_strip_wraps_and_says_what_its_marks_mean():
    _, ax = plt.subplots(figsize=(3, 2))
    plots.token_strip(ax, [" word"] * 8 + ["x"], ["accepted"] * 8 + ["rejected"])
    assert len({patch.get_y() for patch in ax.patches}) > 1
    assert "✓ drafted and accepted" in texts(ax) and "✗ x" in texts(ax)
    with pytest.raises(ValueError, match="9 tokens and 1 kinds"):
        plots.token_strip(ax, ["x"] * 9, ["accepted"])


def test_a_tree_of_continuations_shows_products_and_paths():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.5, ("a", "y"): 0.5, ("b", "z"): 0.9, ("b", "x"): 0.1}
    _, ax = plt.subplots()
    plots.probability_tree(ax, tree, paths={"greedy": ("a", "x"), "best": ("b", "z")})
    shown = texts(ax)
    assert {"0.3", "0.36", "0.04", "◂ greedy", "◂ best", "0.60", "0.90"} <= set(shown)
    with pytest.raises(ValueError, match=r"its beginning \('q',\) is not"):
        plots.probability_tree(ax, {("q", "r"): 0.5})
    with pytest.raises(ValueError, match="'best' is .* not in the tree"):
        plots.probability_tree(ax, tree, paths={"best": ("a", "q")})


def test_the_cache_picture_counts_what_is_computed():
    _, (with_cache, without) = plt.subplots(1, 2)
    plots.kv_cache_picture(with_cache, ["a", "b", "c"], ["d", "e", "f"])
    plots.kv_cache_picture(without, ["a", "b", "c"], ["d", "e", "f"], cached=False)
    assert with_cache.get_xlabel() == "with a cache: 5 tokens computed"
    assert without.get_xlabel() == "without a cache: 12 tokens computed"


# The widgets


LM = TableLM({"": [0.7, 0.2, 0.1], "a": [0.1, 0.6, 0.3]}, vocab=["a", " b", "$"])


def test_the_explorer_redraws_when_its_controls_move_and_keeps_its_picture_on_a_bad_prompt():
    box = widgets.next_token_explorer(LM, "a", temperature=1.0)
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


def test_without_ipywidgets_the_explorer_is_a_figure(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert isinstance(widgets.next_token_explorer(LM, "a"), matplotlib.figure.Figure)


def test_the_static_form_shows_one_picture_a_temperature():
    figure = widgets.next_token_figure(LM, [0], (0.5, 1.0))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["temperature 0.5", "temperature 1"]
    assert [bar.get_width() for bar in figure.axes[1].patches] == pytest.approx([0.6, 0.3, 0.1])
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx(np.array([36, 9, 1]) / 46)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        widgets.next_token_figure(LM, [0], (0,))
    with pytest.raises(ValueError, match="between 0.1 and 3"):
        widgets.next_token_explorer(LM, [0], temperature=9)


@pytest.mark.slow
def test_the_front_door_and_the_player_import_neither_matplotlib_nor_ipywidgets():
    code = (
        "import sys, tutorlib, tutorlib.run, tutorlib.viz.player, tutorlib.viz.palette\n"
        "print([name for name in ('matplotlib', 'ipywidgets', 'seaborn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
