"""The palette: kinds of token that differ for everybody, and can be read on the page they are for."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tutorlib.viz import palette, style

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
    assert all(ord(mark) in style.drawable() for mark in palette.MARKS.values() if mark)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="'acepted' is not a kind of token; use one of target, draft, accepted"):
        palette.color("acepted")
