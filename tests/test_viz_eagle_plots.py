"""Figures about EAGLE: what is drawn is what was given, and what cannot be so is refused."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from tutorlib import TokenTree
from tutorlib.viz import eagle_plots, palette

pytestmark = pytest.mark.usefixtures("figures")

# Two guesses for the next token; below the first two more, below the first of these one.
TREE = TokenTree([5, 6, 7, 8, 9], [-1, -1, 0, 0, 2])
NAMES = ["$a$", "b", "c", "d", "e"]
CHANCES = [0.6, 0.3, 0.4, 0.1, 0.25]
SIX = {str(i): [0.9 - 0.1 * i, 0.5] for i in range(6)}


@pytest.fixture
def ax():
    return plt.subplots(figsize=(8, 4))[1]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def place(ax, shown):
    """Where a text stands that is there once."""
    (found,) = [text.get_position() for text in ax.texts if text.get_text() == shown]
    return found


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


DRAFTED = [("c", 0.9), ("$d$", 0.8), ("e", 0.25)]


def test_a_draft_step_feeds_each_guess_beside_the_feature_before_it(ax):
    assert eagle_plots.draft_step(ax, ["a", "b"], DRAFTED) is ax
    ax.figure.canvas.draw()
    below = {token: place(ax, token) for token in ("a", "b", "c", "$d$")}
    features = [text for text in ax.texts if text.get_position()[1] < below["a"][1] and "_{t" in text.get_text()]
    # The target's features belong to the tokens before a and b; behind them come the network's own.
    assert [text.get_text() for text in features] == ["$f_{t-1}$", "$f_{t}$", r"$\hat f_{t+1}$", r"$\hat f_{t+2}$"]
    columns = [text.get_position()[0] for text in features]
    assert columns == pytest.approx([below[token][0] for token in ("a", "b", "c", "$d$")])
    # The first guess comes out of the last column of the text, with its probability over it; the last goes in nowhere.
    guessed = [place(ax, shown)[0] for shown in ("◇ c", "◇ $d$", "◇ e")]
    assert guessed == pytest.approx(columns[1:])
    assert [place(ax, shown)[0] for shown in ("0.90", "0.80", "0.25")] == pytest.approx(guessed)
    outputs = [text.get_text() for text in ax.texts if text.get_text().startswith(r"$\hat f")]
    assert set(outputs) == {r"$\hat f_{t}$", r"$\hat f_{t+1}$", r"$\hat f_{t+2}$", r"$\hat f_{t+3}$"}
    assert "the target's head" in texts(ax) and "e" not in texts(ax)
    assert not any(text.get_parse_math() for text in ax.texts if "$d$" in text.get_text())


def test_eagle_3_fuses_layers_and_reads_its_own_states(ax):
    eagle_plots.draft_step(ax, ["a", "b"], DRAFTED, fused=(2, 6, 9), kept=1)
    shown = texts(ax)
    assert {"own norm and head", "layers 2, 6, 9", "$g_{t-1}$", "$g_{t}$"} <= set(shown)
    assert shown.count("$l$") == shown.count("$m$") == shown.count("$h$") == shown.count("fc") == 2
    assert r"$\hat a_{t+1}$" in shown and not any("f_" in text for text in shown)
    assert {"✓ c", "✗ $d$", "○ e"} <= set(shown)


def test_a_draft_step_without_guesses_or_with_more_kept_is_refused(ax):
    with pytest.raises(ValueError, match="a text and guesses, got 1 and 0"):
        eagle_plots.draft_step(ax, ["a"], [])
    with pytest.raises(ValueError, match="from 0 to 3 can be kept, got 4"):
        eagle_plots.draft_step(ax, ["a"], DRAFTED, kept=4)


def test_what_became_of_nodes():
    assert eagle_plots.fates(TREE, [0, 3]) == ["accepted", "rejected", "rejected", "accepted", "neutral"]
    # Nothing accepted: what nobody came to was never judged.
    assert eagle_plots.fates(TREE, []) == ["rejected", "rejected", "neutral", "neutral", "neutral"]


def test_a_drafted_tree_has_its_probabilities_and_the_targets_own_token(ax):
    eagle_plots.drafted_tree(ax, TREE, NAMES, CHANCES, path=[0, 2], own="z", root="t")
    ax.figure.canvas.draw()
    assert {"✓ $a$", "✗ b", "✓ c", "✗ d", "✗ e", "t", *(f"{chance:.2f}" for chance in CHANCES)} <= set(texts(ax))
    # Where e was the candidate, another came: it hangs beside e, and corrects it.
    assert place(ax, "↻ z")[0] == pytest.approx(place(ax, "✗ e")[0])
    thick = [line for line in ax.lines if line.get_linewidth() > 2]
    assert len(thick) == 2 and {line.get_color() for line in thick} == {palette.LIGHT["accepted"]}


def test_what_comes_after_a_leaf_is_a_bonus(ax):
    eagle_plots.drafted_tree(ax, TREE, NAMES, CHANCES, path=[1], own="z")
    assert "★ z" in texts(ax) and place(ax, "★ z")[0] > place(ax, "✓ b")[0]
    assert TREE.tokens == [5, 6, 7, 8, 9], "the tree that was given stays as it is"


def test_a_tree_of_which_nothing_is_known_is_drafted_only(ax):
    eagle_plots.drafted_tree(ax, TREE, NAMES, CHANCES)
    assert sum(text.startswith("◇") for text in texts(ax)) == 5
    with pytest.raises(ValueError, match="5 nodes; got 5 names and 4 probabilities"):
        eagle_plots.drafted_tree(ax, TREE, NAMES, CHANCES[1:])


def test_the_shape_of_a_tree_shows_its_levels_its_probabilities_and_the_path(ax):
    eagle_plots.tree_shape(ax, TREE, CHANCES, path=[0, 2], most=6)
    *nodes, root = ax.collections
    assert [mark.get_offsets()[0][1] for mark in nodes] == [1, 1, 2, 2, 3] and root.get_offsets()[0][1] == 0
    sizes = [mark.get_sizes()[0] for mark in nodes]
    assert sorted(range(5), key=lambda i: sizes[i]) == sorted(range(5), key=lambda i: CHANCES[i])
    kinds = [to_hex(mark.get_edgecolor()[0]) for mark in nodes]
    assert kinds == [palette.LIGHT[kind] for kind in ("accepted", "draft", "accepted", "draft", "draft")]
    assert ax.yaxis_inverted() and ax.get_ylim()[0] > 6
    with pytest.raises(ValueError, match="5 nodes needs as many probabilities, got 1"):
        eagle_plots.tree_shape(ax, TREE, [1.0])


def test_training_places_and_curves_look_alike_and_can_be_told_apart_without_colour(ax):
    rows = {"token": [0.5, 0.6], "feature and next token": [0.7, 0.8]}
    eagle_plots.training_curves(ax, [0, 50], rows, ylabel="right")
    assert [list(line.get_ydata()) for line in ax.lines] == list(rows.values()) and legend(ax) == list(rows)
    assert list(ax.lines[0].get_xdata()) == [0, 50]
    other = plt.subplots()[1]
    eagle_plots.place_curves(other, SIX, ylabel="accepted")
    assert len({(line.get_marker(), line.get_linestyle()) for line in other.lines}) == 6
    assert [line.get_color() for line in other.lines][:2] == [line.get_color() for line in ax.lines]
    assert [label.get_text() for label in other.get_xticklabels()] == ["1", "2"]
    with pytest.raises(ValueError, match="'b' has 1 values for 2 steps"):
        eagle_plots.training_curves(ax, [0, 1], {"b": [1.0]}, ylabel="right")
    for draw in (eagle_plots.place_curves, eagle_plots.place_bars):
        with pytest.raises(ValueError, match="looks for 1 to 6 curves or rows, got 7"):
            draw(ax, {**SIX, "6": [1]}, ylabel="x")


def test_bars_stand_in_groups_by_place(ax):
    rows = {"a": [0.5, 0.4], "b": [0.7, float("nan")]}
    eagle_plots.place_bars(ax, rows, ylabel="right", first=1)
    one, other = ax.containers
    assert [bar.get_height() for bar in one] == [0.5, 0.4]
    middles = [[bar.get_x() + bar.get_width() / 2 for bar in bars] for bars in (one, other)]
    assert middles[0] == pytest.approx([0.79, 1.79]) and middles[1] == pytest.approx([1.21, 2.21])
    assert one[0].get_hatch() != other[0].get_hatch()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2"]


def test_sizes_of_trees_are_drawn_over_powers_of_two(ax):
    eagle_plots.tree_sizes(ax, {"EAGLE-2": {1: 1.5, 59: 3.0}, "chain": {2: 2.0}}, ylabel="tokens", level=1)
    assert ax.get_xscale() == "log" and [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "59"]
    assert list(ax.lines[0].get_ydata()) == [1.5, 3.0] and legend(ax) == ["EAGLE-2", "chain", "plain loop"]


def test_each_method_has_its_marks_and_close_values_do_not_cover_each_other(ax):
    rows = {"a": {"greedy": 4.0, "sampling": 3.9}, "b": {"sampling": 2.0}}
    eagle_plots.method_dots(ax, rows, xlabel="tokens", level=1)
    greedy, sampling = (line for line in ax.lines if line.get_linestyle() == "None")
    assert list(greedy.get_xdata()) == [4.0] and list(sampling.get_xdata()) == [3.9, 2.0]
    assert list(sampling.get_ydata()) == [0, 1]
    sides = {text.get_text(): text.get_va() for text in ax.texts}
    assert sides == {"3.90": "bottom", "4.00": "top", "2.00": "bottom"}
    assert legend(ax) == ["greedy", "sampling", "plain loop"]
    with pytest.raises(ValueError, match="looks for 4 figures"):
        eagle_plots.method_dots(ax, {"a": {str(i): 1.0 for i in range(5)}}, xlabel="x")


def test_costs_are_stacked_and_noted_at_their_end(ax):
    rows = {"plain loop": {"target": 4.0}, "eagle": {"target": 1.5, "draft": 0.5, "neutral": 0.25}}
    eagle_plots.cost_bars(ax, rows, xlabel="ms", notes={"eagle": "1.8×"})
    parts = {bars.get_label(): [(bar.get_x(), bar.get_width()) for bar in bars] for bars in ax.containers}
    assert parts["calls of the target"] == [(0, 4.0), (0, 1.5)]
    assert parts["drafting"][1] == (1.5, 0.5) and parts["the rest"][1] == (2.0, 0.25)
    note = next(text for text in ax.texts if text.get_text() == "1.8×")
    assert note.xy == (2.25, 1) and ax.get_xlim()[1] > 4
    with pytest.raises(ValueError, match="divided into target, draft, neutral; got bonus"):
        eagle_plots.cost_bars(ax, {"a": {"bonus": 1.0}}, xlabel="ms")


def upright(lines):
    """Where upright lines stand, and from where to where they go."""
    return [tuple(float(x) for x in (*end[:1], *line[:, 1])) for line in lines.get_segments() for end in line[:1]]


def test_confidence_is_drawn_against_acceptance_beside_the_diagonal_with_its_bounds(ax):
    eagle_plots.calibration(ax, {"EAGLE-2": [(0.1, 0.05, 900, 0.04, 0.07), (0.9, 0.95, 100, 0.88, 0.98)]})
    diagonal, curve = ax.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]
    assert list(curve.get_xdata()) == [0.1, 0.9] and list(curve.get_ydata()) == [0.05, 0.95]
    lines, marks = ax.collections
    assert upright(lines) == [(0.1, 0.04, 0.07), (0.9, 0.88, 0.98)]
    many, few = marks.get_sizes()
    assert many > few and legend(ax) == ["as sure as it is right", "EAGLE-2"]


def test_bars_have_their_bounds_at_their_ends(ax):
    eagle_plots.place_bars(ax, {"a": [0.5, 0.4]}, ylabel="right", bounds={"a": [(0.45, 0.55), (0.3, 0.5)]})
    assert upright(ax.collections[0]) == [(1, 0.45, 0.55), (2, 0.3, 0.5)]
