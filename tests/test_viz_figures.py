"""Figures: what all of them promise, once for every function, and for each that it draws what it was given."""

import inspect
import math
from types import SimpleNamespace

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from tutorlib import TableLM, TokenTree, Trace, beam_search, greedy, run
from tutorlib.lab.bench import Spread
from tutorlib.viz import bars, boxes, distributions, grids, palette, series, style, timelines, trees
from tutorlib.viz.search_nodes import search_nodes

pytestmark = pytest.mark.usefixtures("figures")

NASTY = ["$x_1$", " b", "\n", "日", "\\frac{a}{b}$"]
TREE = TokenTree([5, 6, 7, 8, 9], [-1, -1, 0, 0, 2])  # two guesses, two below the first of them, one below that
BEFORE, TOP_2 = [0.1, 0.4, 0.3, 0.15, 0.05], [0, 4 / 7, 3 / 7, 0, 0]
EXPERT, AMATEUR = [0.30, 0.40, 0.25, 0.02, 0.03], [0.05, 0.50, 0.30, 0.001, 0.149]
BRANCHES = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.5, ("a", "y"): 0.5, ("b", "z"): 0.9, ("b", "x"): 0.1}
LEVELS = [[[["a"], -0.4], [["b"], -1.1]], [[["b", "c"], -1.2], [["a", "d"], -1.4]]]
SEARCH = {"dropped": [[["c"], -3.0]], "finished": [[["b", "c", "."], -1.35]], "winner": ["b", "c", "."]}
MACHINE = {"bytes_moved": 40e6, "operations_per_token": 20e6, "bandwidth": 10e9, "operations_per_second": 150e9}
SPEEDS = [(1, Spread(1.25, 1.0, 1.6), 1.6), (2, Spread(2.0, 1.6, 2.5), 2.5), (3, Spread(0.8, 0.8, 0.8), 1.0)]
GAMMAS = [SimpleNamespace(gamma=gamma, over_plain=over, predicted=expected) for gamma, over, expected in SPEEDS]
SPEED = [("slow", Spread(0.8, 0.7, 1.0), None), ("$fast$", Spread(2.0, 1.9, 2.2), 2.5)]
MEASURED = {"ours": [SimpleNamespace(name=name, over_plain=over, predicted=due) for name, over, due in SPEED]}
MEASURED["yours"] = [SimpleNamespace(name="other", over_plain=Spread(3.0, 3.0, 3.0), predicted=3.5)]
PREDICTED = {"greedy": {"a": (2.0, 2.0), "b": (1.0, 3.0)}, "sampling": {"$a$": (4.0, 2.0), "c": (1.0, 1.1)}}
DRAFTED = [("c", 0.9), ("$d$", 0.8), ("e", 0.25)]
LANES = {"plain": [(4.0, "target", "␣$x$"), (4.0, "target", "␣b")],
         "drafts": [(0.1, "draft", "␣$x$"), (0.1, "draft", "␣b"), (5.0, "target", "checks")]}  # fmt: skip
SURE = {"EAGLE-2": [(0.1, 0.05, 900, 0.04, 0.07), (0.9, 0.95, 100, 0.88, 0.98)]}


def row(**values):
    return values | {f"{name}_interval": [value - 0.1, value + 0.2] for name, value in values.items()}


KINDS = {"sampling": {"$a$": row(acceptance=0.7) | {"places": 9}}, "greedy": {"$a$": row(acceptance=0.6)}}
POINTS = {"top-k": {"10": row(x=0.8, y=0.5), "2": row(x=0.4, y=0.7)}, "top-p": {"0.9": row(x=0.7, y=0.6)}}

# Every function that draws on an axes, with something to draw.
FIGURES = {
    boxes.token_strip: [NASTY, ["accepted"] * 4 + ["rejected"]],
    boxes.two_tokenizations: [{"one": [" $re", "d"], "two": [" ", "$red"]}, {"one": [True, False], "two": [True] * 2}],
    boxes.window_grid: [[["a", "b"], ["c", "$d"], ["e", "f"]], ["x", "y", "z"], {"explain": 1}],
    boxes.draft_step: [["a", "b"], DRAFTED],
    boxes.decision_list: [[("$a$?", "one"), ("b?", "two")], "none"],
    grids.kv_cache_picture: [NASTY, NASTY],
    grids.batch_round: [[2, 3], [3, 1], [1, 0]],
    grids.similarity_map: [np.eye(5)],
    distributions.next_token_bars: [NASTY, BEFORE],
    distributions.warp_bars: [NASTY, BEFORE, TOP_2, {"legend": True}],
    distributions.contrast_arrows: [NASTY, BEFORE, EXPERT],
    distributions.outcome_bars: [{(0, 1): 0.75, (1, 1): 0.25}, {(0, 0): 0.5, (0, 1): 0.5}],
    distributions.draw_strip: [NASTY, BEFORE, [0.05, 0.3]],
    distributions.level_histogram: [[-1, -0.2, 0, 0.1, 0.1, 1], [-1, 0, 0.5, 1]],
    trees.probability_tree: [BRANCHES, {"paths": {"greedy": ("a", "x"), "best": ("b", "z")}}],
    trees.search_tree: [LEVELS, SEARCH],
    series.curves: [{"a": [1.0, 0.5], "b": {1: 0.5, 59: 0.7}}, {"xlabel": "size", "ylabel": "share", "level": 1}],
    series.trade_off: [POINTS, {"greedy": row(x=0.1, y=0.9)}, {"x": "x", "y": "y", "shown": "top-k"}],
    series.setting_curves: [{"one": {"0": row(y=0.5), "1": row(y=0.7)}}, {"y": "y", "levels": {"greedy": row(y=0.9)}}],
    series.expected_curves: [{"α = 0.5": [1.5, 1.75, 1.875], "α = 0.9": [1.9, 2.7]}, {"sampling": {1: 1.8, 3: 3.1}}],
    series.cost_curve: [[1, 5, 9], [0.004, 0.006, 0.008], {"low": [0.003] * 3, "high": [0.009] * 3, "mark": 5}],
    series.roofline: [[1, 8, 64], {**MACHINE, "measured": [0.005, 0.006, 0.01]}],
    series.break_even: [[1, 2, 5], [1.0, 1.2, 1.5], {"a": {"x": (5, 2.0), "y": (3, 1.5)}, "b": {"z": (2, 1.1)}}],
    series.calibration: [SURE],
    series.diagonal: [PREDICTED, {"named": 2, "xlabel": "predicted", "ylabel": "measured"}],
    bars.bar_chart: [{"a": [0.5, 0.4], "b": [0.7, math.nan]}, {"xlabel": "guess", "ylabel": "right"}],
    bars.kind_bars: [KINDS],
    bars.speed_bars: [MEASURED],
    bars.distance_bars: [["one", "two", "three"], [0.25, 1.0, 0.5], {"plain": ["three"]}],
    bars.time_by_gamma: [GAMMAS, {"formula": {1: 1.8, 2: 2.5, 3: 4.0}}],
    bars.method_dots: [{"a": {"greedy": 4.0, "sampling": 3.9}, "b": {"sampling": 2.0}}, {"xlabel": "n", "level": 1}],
    timelines.gamma_rounds: [[(3, 3), (4, 1), (2, 0)]],
    timelines.call_timeline: [LANES],
}  # fmt: skip
# Their axes are for the caller to label: what is drawn differs from page to page.
UNLABELLED = {"trade_off", "setting_curves", "kind_bars", "outcome_bars"}


def draw(function, *args, **options):
    """The axes on which a function draws what it is given, or what stands in the table."""
    if not args:
        *args, last = FIGURES[function]
        named = isinstance(last, dict) and last.keys() <= parameters(function)
        args, given = (args, last) if named else ([*args, last], {})
        options = given | options
    ax = plt.subplots(figsize=(8, 4))[1]
    assert function(ax, *args, **options) is ax
    ax.figure.canvas.draw()
    return ax


def parameters(function):
    return inspect.signature(function).parameters.keys() | {"xlabel", "ylabel", "ylim"}


def everything(ax):
    return [text for text in ax.findobj(matplotlib.text.Text) if text.get_text()]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def place(ax, shown):
    """Where a text stands that is there once."""
    (found,) = [text.get_position() for text in ax.texts if text.get_text() == shown]
    return found


def heights(container):
    return [bar.get_height() for bar in container]


def widths(container):
    return [bar.get_width() for bar in container]


# What all promise


def test_every_function_that_draws_is_in_the_table():
    there = {
        function
        for module in (bars, boxes, distributions, grids, series, timelines, trees)
        for name, function in vars(module).items()
        if not name.startswith("_") and getattr(function, "__module__", "") == module.__name__
        and list(inspect.signature(function).parameters)[:1] == ["ax"]
    }  # fmt: skip
    assert there == set(FIGURES)


@pytest.mark.parametrize("function", FIGURES, ids=lambda function: function.__name__)
def test_a_figure_is_opaque_legible_labelled_titled_and_drawn_without_a_warning(function):
    takes_title = "title" in inspect.signature(function).parameters
    ax = draw(function, **({"title": "the title"} if takes_title else {}))
    assert to_rgb(ax.figure.get_facecolor()) == to_rgb(ax.get_facecolor()) == (1, 1, 1)
    assert not plt.rcParams["savefig.transparent"]
    assert min(text.get_fontsize() for text in everything(ax)) >= 7.5
    assert not takes_title or ax.get_title(loc="left") == "the title"
    if ax.axison and function.__name__ not in UNLABELLED:
        for axis in (ax.xaxis, ax.yaxis):
            named = axis.get_label().get_text() or any(not tick.replace(".", "").isdigit() for tick in ticks(axis))
            assert named or not axis.get_ticklocs().size, "a label that says what and in which unit, or names"
    formulas = ("_{t", "mathdefault")  # and powers on an axis
    dollars = [text for text in everything(ax) if "$" in text.get_text() and text.get_parse_math()]
    assert all(any(part in text.get_text() for part in formulas) for text in dollars), "token text is no mathematics"


SEVEN = {str(i): [0.5] for i in range(7)}
FOUR = {str(i): {"x": 1, "y": 1} for i in range(4)}


@pytest.mark.parametrize(
    ("function", "args", "options", "complaint"),
    [
        (boxes.token_strip, [["x"] * 9, ["accepted"]], {}, "9 tokens and 1 kinds"),
        (boxes.two_tokenizations, [{"one": ["ab"], "two": ["a", "c"]}, {}], {}, "must be the same text"),
        (boxes.window_grid, [[["a"], ["b", "c"]], ["x", "y"]], {}, "must have the same length"),
        (boxes.draft_step, [["a"], []], {}, "a text and guesses, got 1 and 0"),
        (boxes.draft_step, [["a"], DRAFTED], {"kept": 4}, "from 0 to 3 can be kept, got 4"),
        (boxes.decision_list, [[], "none"], {}, "at least one question"),
        (grids.batch_round, [[2], [3], [3]], {}, "cannot keep more than it drafted"),
        (grids.batch_round, [[2], [3, 1], [1]], {}, "one number for each row, got 1, 2 and 1"),
        (grids.similarity_map, [np.ones((2, 3))], {}, r"shape \(n, n\)"),
        (grids.similarity_map, [3 * np.eye(2)], {}, "by the lengths"),
        (distributions.contrast_arrows, [["a"], [0.0], [0.5]], {}, "above 0"),
        (distributions.next_token_bars, [["a", "b"], [0.5]], {}, "2 tokens and"),
        (distributions.next_token_bars, [["a", "b"], [0.5, -0.5]], {}, "between 0 and 1"),
        (distributions.warp_bars, [NASTY, BEFORE, [0.5, 0.5]], {}, "5 tokens and"),
        (distributions.warp_bars, [NASTY, BEFORE, [0.5] * 5], {}, "`after` must sum to 1, got 2.5"),
        (distributions.warp_bars, [NASTY, [0.5, 0.4, 0, 0, 0], TOP_2], {}, "`before` must sum to 1, got 0.9"),
        (distributions.warp_bars, [NASTY, TOP_2, BEFORE], {}, "probability 0 in `before` but not in `after`"),
        (distributions.warp_bars, [NASTY, BEFORE, [math.nan] * 5], {}, "between 0 and 1"),
        (distributions.outcome_bars, [{}, {}], {}, "no outcomes"),
        (distributions.draw_strip, [NASTY, BEFORE, [0.5, 1.0]], {}, r"\[0, 1\), got 0.5 to 1"),
        (distributions.draw_strip, [NASTY[:2], [0.1, 0.2], []], {}, "must sum to 1"),
        (distributions.level_histogram, [[], [0, 1]], {}, "no numbers to draw"),
        (trees.probability_tree, [{("q", "r"): 0.5}], {}, r"its beginning \('q',\) is not"),
        (trees.probability_tree, [BRANCHES], {"paths": {"best": ("a", "q")}}, "'best' is .* not in the tree"),
        (trees.search_tree, [run(greedy(TableLM({"": [0.5, 0.5]}), "a"), 3)], {}, "no hypothesis"),
        (trees.search_tree, [LEVELS], {"paths": {"greedy": ("x",)}}, "not a hypothesis"),
        (series.curves, [SEVEN], {}, "1 to 6 curves, got 7"),
        (series.curves, [{"b": [1.0]}, [0, 1]], {}, "'b' has 1 values for 2 positions"),
        (series.trade_off, [POINTS, FOUR], {"x": "x", "y": "y", "shown": "top-k"}, "1 to 3 points, got 4"),
        (series.trade_off, [POINTS, {}], {"x": "x", "y": "y", "shown": "z"}, "no curve 'z'; the curves are top-k"),
        (series.setting_curves, [{"a": {"1": row(y=1), "2": row(y=1)}, "b": {"7": row(y=1)}}], {"y": "y"}, "not among"),
        (series.expected_curves, [{"a": [1.0]}, {str(i): {1: 1} for i in range(3)}], {}, "2 measurements, got 3"),
        (series.roofline, [[1, 2]], {**MACHINE, "bandwidth": 0, "measured": []}, "bandwidth must be positive, got 0"),
        (series.diagonal, [{"a": {"b": (0, 1)}}], {}, "pairs of numbers above 0"),
        (series.diagonal, [{}], {}, "pairs of numbers above 0"),
        (bars.bar_chart, [SEVEN], {}, "1 to 6 rows of bars, got 7"),
        (bars.kind_bars, [{**KINDS, "third": KINDS["greedy"]}], {}, "1 to 2 rows of bars, got 3"),
        (bars.speed_bars, [{}], {}, "1 to 4 rows of bars, got 0"),
        (bars.distance_bars, [["one"], [0.1, 0.2]], {}, "1 names and 2 distances"),
        (bars.distance_bars, [["one"], [1.5]], {}, "that of one is 1.5"),
        (bars.method_dots, [{"a": {str(i): 1.0 for i in range(7)}}], {"xlabel": "x"}, "values of each method, got 7"),
        (timelines.gamma_rounds, [[(1, 2)]], {}, "cannot accept more"),
        (timelines.call_timeline, [{"lane": [(0, "target", "a")]}], {}, "must take some time, got 0 for 'a'"),
        (timelines.call_timeline, [{"lane": [(1, "large", "a")]}], {}, "'large' is not a kind of token"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(function, args, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        function(plt.subplots()[1], *args, **options)


def test_token_text_is_drawn_as_it_is_or_as_its_code_point():
    shown = [style.token_label(text) for text in (*NASTY, " 日本", "{")]
    assert shown == ["$x_1$", "␣b", "↵", "⟨U+65E5⟩", "\\frac{a}{b}$", "␣⟨U+65E5⟩⟨U+672…", "{"]


def test_every_curve_has_a_colour_a_mark_and_a_line_of_its_own():
    for look in ("color", "marker", "linestyle"):
        assert len({str(one[look]) for one in style.LOOKS}) == 6
    lines = draw(series.curves, {str(i): [0.5, 0.1 * i] for i in range(6)}, xlabel="x", ylabel="y").lines
    assert [(line.get_color(), line.get_marker()) for line in lines] == [
        (look["color"], look["marker"]) for look in style.ROW_LOOKS
    ]


# Boxes and grids


def test_a_strip_wraps_and_says_what_its_marks_mean():
    ax = draw(boxes.token_strip, [" word"] * 18 + ["x"], ["accepted"] * 18 + ["rejected"])
    assert len({patch.get_y() for patch in ax.patches}) > 1 and "✗ x" in texts(ax)
    assert legend(ax) == ["✓ drafted and accepted", "✗ drafted and rejected"]


def test_the_window_is_a_staircase_and_shows_what_a_guess_was_made_from():
    ax = draw(boxes.window_grid, [["a", "b"], ["c", "d"], ["e", "f"]], ["x", "y", "z"], explain=1)
    step = ax.patches[1].get_x() - ax.patches[0].get_x()
    assert [round(box.get_x() / step) for box in ax.patches] == [0, 1, 2, 1, 2, 3, 2, 3, 4]
    # Given: the first tokens of the columns before, and its own two. Asked: its own new one.
    assert [box.get_linestyle() for box in ax.patches] == ["-", ":", ":", "-", "-", "-", ":", ":", ":"]
    assert texts(ax)[:3] == ["◇ a", "◇ b", "● x"] and texts(ax)[-1] == "position 5"


def test_two_tokenizations_are_drawn_letter_under_letter():
    ax = draw(boxes.two_tokenizations)
    assert texts(ax) == [*"␣$red", "one", *"␣$red", "two"]
    fine, foul = palette.LIGHT["accepted"], palette.LIGHT["rejected"]
    found = [(round(box.get_x()), to_hex(box.get_edgecolor())) for box in ax.patches]
    assert found == [(0, fine), (4, foul), (0, fine), (1, fine)]


def test_a_draft_step_feeds_each_guess_beside_the_feature_before_it():
    ax = draw(boxes.draft_step)
    below = {token: place(ax, token) for token in ("a", "b", "c", "$d$")}
    features = [text for text in ax.texts if text.get_position()[1] < below["a"][1] and "_{t" in text.get_text()]
    # The target's features belong to the tokens before a and b; after them come the network's own.
    assert [text.get_text() for text in features] == ["$f_{t-1}$", "$f_{t}$", r"$\hat f_{t+1}$", r"$\hat f_{t+2}$"]
    columns = [text.get_position()[0] for text in features]
    assert columns == pytest.approx([below[token][0] for token in below])
    # The first guess comes out of the text's last column, its probability over it; the last goes in nowhere.
    for guesses in (("◇ c", "◇ $d$", "◇ e"), ("0.90", "0.80", "0.25")):
        assert [place(ax, shown)[0] for shown in guesses] == pytest.approx(columns[1:])
    assert "the target's head" in texts(ax) and "e" not in texts(ax)


def test_eagle_3_fuses_layers_and_reads_its_own_states():
    shown = texts(draw(boxes.draft_step, ["a", "b"], DRAFTED, fused=(2, 6, 9), kept=1))
    assert {"own norm and head", "layers 2, 6, 9", "$g_{t-1}$", r"$\hat a_{t+1}$", "✓ c", "✗ $d$", "○ e"} <= set(shown)
    assert [shown.count(letter) for letter in ("$l$", "$m$", "$h$", "fc")] == [2] * 4
    assert not any("f_" in text for text in shown)


def test_a_decision_list_leads_from_each_question_to_its_answer_and_to_the_next():
    ax = draw(boxes.decision_list)
    texts = [text.get_text() for text in ax.texts]
    assert [texts.count(word) for word in ("$a$?", "one", "b?", "two", "none", "yes", "no")] == [1, 1, 1, 1, 1, 2, 2]
    assert place(ax, "$a$?")[1] == place(ax, "one")[1] < place(ax, "b?")[1] < place(ax, "none")[1]


def test_the_cache_picture_counts_what_is_computed():
    said = [draw(grids.kv_cache_picture, list("abc"), list("def"), cached=way).get_xlabel() for way in (True, False)]
    assert said == ["with a cache: 5 tokens computed", "without a cache: 12 tokens computed"]


def test_the_batch_has_a_square_for_each_slot():
    squares = draw(grids.batch_round).patches
    assert [(round(box.get_x()), round(box.get_y())) for box in squares] == [(x, y) for y in (0, 1) for x in range(6)]
    assert [box.get_hatch() or "" for box in squares] == ["", "", "", "//", "xx", *[""] * 7]
    assert [at for at, box in enumerate(squares) if box.get_linestyle() == ":"] == [5, 10, 11]


def test_the_similarity_map_shows_the_past():
    cosines = np.array([[1, 0.2, 0.3], [0.2, 1, 0.4], [0.3, 0.4, 1]])
    shown = np.ma.filled(draw(grids.similarity_map, cosines).images[0].get_array(), np.nan)
    assert shown[1, 0] == 0.2 and shown[2, 1] == 0.4 and np.isnan(shown[np.triu_indices(3)]).all()


# Distributions


def test_bars_are_sorted_with_the_sum_of_the_rest():
    ax = draw(distributions.next_token_bars, list("abcde"), [0.05, 0.5, 0.2, 0.1, 0.15], top=3)
    assert ticks(ax.yaxis) == ["b", "c", "e", "2 others"] and "0.20" in texts(ax)
    assert widths(ax.patches) == pytest.approx([0.5, 0.2, 0.15, 0.15])


def warped(ax):
    """The lengths of the bars of each look, by their row, as `warp_bars` has them."""
    return {
        bars.get_label(): {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in bars}
        for bars in ax.containers
    }


def test_what_a_warp_keeps_is_filled_over_what_it_had_and_what_it_drops_is_crossed():
    ax = draw(distributions.warp_bars)
    found = warped(ax)
    assert found["kept: after the warp"] == pytest.approx({0: 4 / 7, 1: 3 / 7})
    assert found["kept: before the warp"] == pytest.approx({0: 0.4, 1: 0.3})
    assert found["removed: before the warp"] == pytest.approx({2: 0.15, 3: 0.1, 4: 0.05})
    assert "keeps 2 tokens (probability before: 0.700)" in texts(ax)
    kept, dropped, outline = (container[0] for container in ax.containers)
    assert not kept.get_hatch() and dropped.get_hatch() and outline.get_facecolor()[3] == 0
    few = draw(distributions.warp_bars, NASTY, BEFORE, [0.2, 0.5, 0.3, 0, 0], top=2)
    assert ticks(few.yaxis)[-1] == "3 others" and warped(few)["kept: after the warp"][2] == pytest.approx(0.2)
    rest = warped(draw(distributions.warp_bars, NASTY, BEFORE, TOP_2, top=2))
    assert rest["removed: before the warp"] == pytest.approx({2: 0.3})
    assert "keeps all tokens" in texts(draw(distributions.warp_bars, NASTY, BEFORE, [0.2] * 5))
    small = draw(distributions.warp_bars, NASTY, [0.99, 0.009, 0.001, 0, 0], [1, 0, 0, 0, 0], log=True)
    assert small.get_xlim()[0] == distributions.FAINTEST
    assert warped(small)["removed: before the warp"][1] == pytest.approx(0.009)


def test_the_grid_has_one_scale_and_names_its_tokens_once():
    axes = plt.subplots(2, 2)[1]
    afters = {"as it is": BEFORE, "top-k 2": TOP_2, "top-k 1": [0, 1.0, 0, 0, 0]}
    used = distributions.warp_grid(axes, NASTY, BEFORE, afters)
    assert [ax.get_title(loc="left") for ax in used] == list(afters) and len({ax.get_xlim() for ax in used}) == 1
    assert [any(ticks(ax.yaxis)) for ax in used] == [True, False, True] and not axes[1, 1].axison
    assert [ax.get_xlabel() for ax in used] == ["", "probability", "probability"]
    with pytest.raises(ValueError, match="3 warps, but only 1 axes"):
        distributions.warp_grid(axes[:1, :1], NASTY, BEFORE, afters)


def contrast(**options):
    axes = plt.subplots(1, 2)[1]
    assert distributions.contrast_bars(axes, NASTY, EXPERT, AMATEUR, **options) is axes
    return axes


def test_contrast_is_both_distributions_and_the_logarithm_of_their_ratio_with_the_cut():
    left, right = contrast(alpha=0.1)
    assert ticks(left.yaxis) == ["␣b", "$x_1$", "↵", "\\frac{a}{b}$", "⟨U+65E5⟩"]
    ours, theirs = left.containers
    assert widths(ours) == pytest.approx([0.4, 0.3, 0.25, 0.03, 0.02])
    assert widths(theirs) == pytest.approx([0.5, 0.05, 0.3, 0.149, 0.001])
    ratios = [0.4 / 0.5, 6, 0.25 / 0.3, 0.03 / 0.149, 20]
    assert widths(right.patches) == pytest.approx(np.log(ratios))
    assert [bool(bar.get_hatch()) for bar in right.patches] == [False] * 3 + [True] * 2
    assert right.texts[0].xy[1] == 1, "x_1, and not the implausible token whose score is highest"
    assert left.lines[0].get_xdata()[0] == pytest.approx(0.04)
    left, right = contrast(alpha=0.01, top=2)  # the winner is drawn even where it is not among the most likely
    assert ticks(left.yaxis) == ["␣b", "⟨U+65E5⟩"] and right.texts[0].xy[1] == 1
    wrong = (EXPERT, [0.1] * 5, "amateur must sum"), (TOP_2, AMATEUR, "gives '.x_1.' probability 0")
    for expert, amateur, complaint in wrong:
        with pytest.raises(ValueError, match=complaint):
            distributions.contrast_bars(plt.subplots(1, 2)[1], NASTY, expert, amateur, alpha=0.1)


def test_arrows_lead_from_before_to_after_and_the_cross_is_as_far_again():
    ax = draw(distributions.contrast_arrows, ["a", "b"], [0.01, 0.5], [0.1, 0.25])
    assert [(note.xyann[0], note.xy[0]) for note in ax.texts] == [(0.01, 0.1), (0.5, 0.25)]
    crosses = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "X"]
    assert crosses == pytest.approx([1.0, 0.125]) and ax.get_xscale() == "log"


def test_outcomes_have_a_bar_for_what_is_done_and_a_line_for_what_should_be():
    ax = draw(distributions.outcome_bars)
    assert heights(ax.patches) == [0, 0.75, 0.25] and all(bar.get_hatch() for bar in ax.patches)
    assert [segment[0][1] for segment in ax.collections[0].get_segments()] == [0.5, 0.5, 0]


def test_numbers_fall_on_the_running_sum():
    ax = draw(distributions.draw_strip)
    assert [bar.get_x() for bar in ax.patches] == pytest.approx([0, 0.1, 0.5, 0.8, 0.95])
    assert widths(ax.patches) == pytest.approx(BEFORE) and list(ax.lines[-1].get_xdata()) == [0.05, 0.3]
    assert texts(draw(distributions.draw_strip, NASTY[:3], [0.5, 0.49, 0.01], [])) == ["$x_1$", "␣b"]


def test_a_histogram_counts_every_number_and_has_a_line_at_each_level():
    ax = draw(distributions.level_histogram, [-1, 0, 0.1, 0.1, 1], [-1, 0.25, 1], bins=4, xlabel="weight")
    assert heights(ax.containers[0]) == [1, 0, 3, 1] and ax.get_xlabel() == "weight"
    assert [segment[0][0] for segment in ax.collections[0].get_segments()] == [-1, 0.25, 1]


# Trees


def test_leaves_stand_side_by_side_and_parents_in_the_middle_also_in_a_deep_tree():
    assert trees.layout({"root": "ab", "a": "cd"}, "root") == {"c": 0, "d": 1, "b": 2, "a": 0.5, "root": 1.25}
    assert set(trees.layout({i: [i + 1] for i in range(3000)}, 0).values()) == {0.0}


def test_continuations_have_their_products_and_paths():
    shown = {"0.300", "0.360", "0.040", "▴ greedy", "▴ best", "0.60", "0.90"}
    assert shown <= set(texts(draw(trees.probability_tree)))


def test_a_search_shows_every_hypothesis_with_its_mark_and_score_and_no_box_on_another():
    ax = draw(trees.search_tree)
    assert {"● b\n−1.10", "○ a\n−0.40", "✗ c\n−3.00", "✓ .\n−1.35", "◂ wins", "prompt", "length 3"} <= set(texts(ax))
    meanings = {"● kept", "✓ finished", "○ kept, later dropped", "✗ considered, not kept"}
    assert set(legend(ax)) == meanings and len({palette.MARKS[kind] for kind in trees.FATES.values()}) == 4
    drawn = [text.get_bbox_patch().get_window_extent() for text in ax.texts if text.get_bbox_patch()]
    assert len(drawn) == 7 and not any(a.overlaps(b) for i, a in enumerate(drawn) for b in drawn[i + 1 :])


def test_a_growing_search_keeps_its_places():
    look = {"frame": search_nodes(LEVELS, **SEARCH), **SEARCH}
    grown = [draw(trees.search_tree, LEVELS, until=until, **look) for until in (1, 2, None)]
    assert len({(place(ax, "● b\n−1.10"), ax.get_xlim(), ax.get_ylim()) for ax in grown}) == 1


def test_a_stored_search_is_drawn_as_the_run_was_with_names_and_numbers():
    lm = TableLM({"": [0.5, 0.3, 0.2]}, ["a", "$x_1$", " "])
    trace = run(beam_search(lm, "a", beams=2, max_new_tokens=2, length_penalty=0))
    options = {"numbers": {(1,): 7}, "paths": {"greedy": (0, 0)}, "root": "a", "digits": 3}
    first, second = (texts(draw(trees.search_tree, t, **options)) for t in (trace, Trace.from_dict(trace.to_dict())))
    assert first == second and {"● a\n−0.693", "○ 7: $x_1$\n−1.204", "◂ greedy, wins"} <= set(first)


# Curves


def test_curves_are_drawn_over_numbers_steps_or_sizes():
    rows = {"a": [0.5, 0.4], "b": [0.7, math.nan]}
    ax = draw(series.curves, rows, xlabel="level", ylabel="accepted")
    assert ticks(ax.xaxis) == ["1", "2"] and legend(ax) == ["a", "b"] and list(ax.lines[0].get_ydata()) == [0.5, 0.4]
    ax = draw(series.curves, {"a": [3.0, 2.0]}, [0, 50], xlabel="training steps", ylabel="loss")
    assert ax.lines[0].get_xydata().tolist() == [[0, 3], [50, 2]] and ax.get_legend() is None
    sizes = {"predicted": {n: 1 + n / 16 for n in range(1, 17)}}, {"measured": {1: 1.5, 16: 2.3}}
    ax = draw(series.curves, sizes[0], marks=sizes[1], sizes=True, best=16, level=1, xlabel="nodes", ylabel="tokens")
    assert ax.get_xscale() == "log" and ticks(ax.xaxis) == ["1", "2", "4", "8", "16"]
    assert ax.lines[0].get_marker() == "" and ax.lines[1].get_linestyle() == "None"
    assert legend(ax) == ["predicted", "measured", "plain loop", "best size: 16 nodes"]
    few = draw(series.curves, {"EAGLE-2": {1: 1.5, 59: 3.0}}, sizes=True, xlabel="candidates", ylabel="tokens")
    assert ticks(few.xaxis) == ["1", "59"]


def test_a_trade_off_shows_one_filter_with_intervals_before_the_others_and_names_what_it_shows():
    ax = draw(series.trade_off)
    assert ax.get_title(loc="left") == "top-k" and texts(ax) == ["10", "2", "greedy"]
    up = ax.collections[0].get_segments()[0]
    assert up.tolist() == [pytest.approx([0.8, 0.4]), pytest.approx([0.8, 0.7])]
    colours = {to_hex(line.get_color()) for line in ax.lines if len(line.get_xdata())}
    assert {palette.LIGHT["line"], style.LOOKS[0]["color"]} <= colours
    # No room for the settings of marks that are close together, except the first and the last.
    close = {f"{x:g}": row(x=x, y=0.5) for x in (0.8, 0.79, 0.78, 0.4)}
    assert texts(draw(series.trade_off, {"top-k": close}, {}, x="x", y="y", shown="top-k")) == ["0.8", "0.4"]
    bare = draw(series.trade_off, {"top-k": {"10": {"x": 0.8, "y": 0.5}}}, {}, x="x", y="y", shown="top-k")
    assert not bare.collections


def test_curves_over_a_setting_have_shaded_intervals_and_level_lines():
    long = {"0": {"y": None, "y_interval": [None, None]}, "0.1": row(y=0.5), "1": row(y=0.7)}
    ax = draw(series.setting_curves, {"long": long, "short": {"1": row(y=0.2)}}, y="y", levels={"greedy": row(y=0.9)})
    first, second, level = ax.lines
    assert first.get_xydata().tolist() == [[1, 0.5], [2, 0.7]] and second.get_xydata().tolist() == [[2, 0.2]]
    assert set(level.get_ydata()) == {0.9} and ticks(ax.xaxis) == ["0", "0.1", "1"]
    assert {round(float(y), 3) for _, y in ax.collections[0].get_paths()[0].vertices} == {0.4, 0.6, 0.7, 0.9}


def test_expected_curves_begin_at_gamma_1_and_measurements_are_marks():
    half, _, marks = draw(series.expected_curves).lines
    assert half.get_xydata().tolist() == [[1, 1.5], [2, 1.75], [3, 1.875]]
    assert marks.get_xydata().tolist() == [[1, 1.8], [3, 3.1]] and marks.get_linestyle() == "None"


def test_the_cost_is_in_milliseconds_and_the_roofline_bends_where_both_take_the_same_time():
    ax = draw(series.cost_curve)
    assert ax.lines[0].get_ydata() == pytest.approx([4, 6, 8]) and ax.lines[1].get_ydata() == pytest.approx([4, 20, 36])
    assert texts(ax) == ["5 tokens take 1.5 times as long as 1"] and "(ms)" in ax.get_ylabel()
    # 40 MB at 10 GB/s: 4 ms. 20 Mflop a token at 150 Gflop/s: 30 tokens in 4 ms.
    ax = draw(series.roofline)
    assert "equal at 30 tokens" in texts(ax)
    reading, computing, _ = (line.get_ydata() for line in ax.lines)
    assert [reading[-1], computing[-1]] == pytest.approx([4, 64 * 20e6 / 150e9 * 1000])


def test_break_even_has_the_cost_and_a_mark_for_each_setting():
    ax = draw(series.break_even)
    cost, *methods = [line.get_xydata().tolist() for line in ax.lines]
    assert cost == [[1, 1], [2, 1.2], [5, 1.5]] and methods == [[[3, 1.5], [5, 2]], [[2, 1.1]]]
    assert texts(ax) == ["x", "y", "z"]


def upright(lines):
    """Where upright lines stand, and from where to where they go."""
    return [(x, low, high) for (x, low), (_, high) in lines.get_segments()]


def test_confidence_is_drawn_against_acceptance_beside_the_diagonal_with_its_bounds():
    ax = draw(series.calibration)
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 0], [1, 1]], [[0.1, 0.05], [0.9, 0.95]]]
    lines, marks = ax.collections
    assert upright(lines) == [(0.1, 0.04, 0.07), (0.9, 0.88, 0.98)] and marks.get_sizes()[0] > marks.get_sizes()[1]


# Bars


def test_bars_stand_in_groups_with_their_bounds_or_on_each_other():
    rows, bounds = {"a": [0.5, 0.4], "b": [0.7, math.nan]}, {"a": [(0.45, 0.55), (0.3, 0.5)]}
    ax = draw(bars.bar_chart, rows, intervals=bounds, xlabel="guess", ylabel="right")
    one, _, other = ax.containers
    middles = [bar.get_x() + bar.get_width() / 2 for bar in (*one, *other)]
    assert middles == pytest.approx([0.79, 1.79, 1.21, 2.21]) and heights(one) == [0.5, 0.4]
    assert one[0].get_hatch() != other[0].get_hatch() and ticks(ax.xaxis) == ["1", "2"] and legend(ax) == ["a", "b"]
    assert upright(ax.collections[0]) == [pytest.approx((0.79, 0.45, 0.55)), pytest.approx((1.79, 0.3, 0.5))]


def test_kinds_of_tokens_have_a_bar_for_each_way_and_their_number_of_positions():
    ax = draw(bars.kind_bars)
    sampling, greedily = (container for container in ax.containers if hasattr(container, "patches"))
    assert widths(sampling) == [0.7] and widths(greedily) == [0.6] and ticks(ax.yaxis) == ["$a$ (9)"]
    assert not sampling[0].get_hatch() and greedily[0].get_hatch() and ax.yaxis_inverted()


def test_speeds_are_sorted_with_their_quartiles_and_what_was_predicted_on_each_machine():
    ax = draw(bars.speed_bars)
    assert ticks(ax.yaxis) == ["$fast$", "slow", "other"] and ax.yaxis_inverted()
    ours, _, yours, _ = ax.containers
    assert widths(ours)[:2] == [2.0, 0.8] and widths(yours)[2:] == [3.0]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in (ours[0], ours[1], yours[2])]
    assert middles == pytest.approx([-0.21, 0.79, 2.21])
    ends = [[x for x, _ in segment] for segment in ax.collections[0].get_segments() if len(segment)]
    assert ends[:2] == [pytest.approx([1.9, 2.2]), pytest.approx([0.7, 1.0])]
    (marks,) = [line for line in ax.lines if line.get_label().startswith("predicted")]
    assert marks.get_xydata().tolist() == [pytest.approx([2.5, -0.21]), pytest.approx([3.5, 2.21])]
    assert {"ours", "yours", "plain loop"} <= set(legend(ax))


def test_pairs_stand_beside_the_diagonal_and_the_furthest_from_it_are_named():
    ax = draw(series.diagonal)
    equal, *groups = ax.lines
    assert equal.get_xydata().tolist() == [[0, 0], [4.4, 4.4]] and legend(ax) == ["equal", "greedy", "sampling"]
    assert [line.get_xydata().tolist() for line in groups] == [[[2, 2], [1, 3]], [[4, 2], [1, 1.1]]]
    assert [(text.get_text(), text.xy, text.get_ha()) for text in ax.texts] == [
        ("b", (1, 3), "left"), ("$a$", (4, 2), "right"),
    ]  # fmt: skip


def test_distances_are_sorted_the_largest_on_top_with_their_numbers():
    ax = draw(bars.distance_bars)
    assert ticks(ax.yaxis) == ["one", "three", "two"] and widths(ax.patches) == [0.25, 0.5, 1.0]
    assert texts(ax) == ["0.25", "0.50", "1.00"]
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [True, False, True]


def test_time_by_gamma_is_in_units_of_the_plain_loop_and_its_best_is_filled():
    ax = draw(bars.time_by_gamma)
    assert heights(ax.containers[0]) == pytest.approx([0.8, 0.5, 1.25]) and texts(ax) == ["1.25×", "2.00×", "0.80×"]
    assert [bool(bar.get_hatch()) for bar in ax.containers[0]] == [True, False, True]
    lines = {line.get_label()[:20]: list(line.get_ydata()) for line in ax.lines}
    assert set(lines["plain loop"]) == {1} and lines["predicted from the m"] == pytest.approx([0.625, 0.4, 1.0])
    assert lines["predicted if every c"] == pytest.approx([1 / 1.8, 0.4, 0.25])
    whiskers = [(1, 0.625, 1), (2, 0.4, 0.625), (3, 1.25, 1.25)]
    assert [sorted(found) for found in upright(ax.collections[0])] == [pytest.approx(sorted(due)) for due in whiskers]


def test_each_method_has_its_marks_and_close_values_do_not_cover_each_other():
    ax = draw(bars.method_dots)
    marks = [line.get_xydata().tolist() for line in ax.lines if line.get_linestyle() == "None"]
    assert marks == [[[4.0, 0]], [[3.9, 0], [2.0, 1]]] and legend(ax) == ["greedy", "sampling", "plain loop"]
    assert {text.get_text(): text.get_va() for text in ax.texts} == {"3.90": "bottom", "4.00": "top", "2.00": "bottom"}


def test_rounds_stand_where_they_begin_in_the_text():
    ax = draw(timelines.gamma_rounds)
    kept, rest = ax.containers
    assert [(bar.get_x(), bar.get_height()) for bar in kept] == [(0, 3), (4, 1), (6, 0)]
    assert [(bar.get_y(), bar.get_height()) for bar in rest] == [(3, 0), (1, 3), (0, 2)]
    assert ax.lines[0].get_ydata().tolist() == [3, 4, 2, 2] and ax.get_xlim() == (0, 7)


def test_calls_follow_each_other_and_are_as_wide_as_they_take_long():
    ax = draw(timelines.call_timeline)
    found = [(round(box.get_x(), 6), box.get_width(), round(box.get_y() + 0.32)) for box in ax.patches]
    assert found == [(0, 4, 0), (4, 4, 0), (0, 0.1, 1), (0.1, 0.1, 1), (0.2, 5, 1)]
    assert {"8.0 ms", "5.2 ms", "␣$x$ · ␣b"} <= set(texts(ax))  # what is too wide for its box stands below
    assert legend(ax) == ["● one call of the target", "◇ one call of the draft"] and ax.yaxis_inverted()


def test_measures_have_an_axes_each_with_the_values_at_the_bars():
    axes = plt.subplots(1, 2, figsize=(8, 3))[1]
    measures = {"seconds": [1.0, 0.5, math.nan], "MB": [538.0, 168.4, 0.0]}
    drawn = bars.measure_bars(axes, ["a", "$b$", "c"], measures, title="the title")
    drawn[0].figure.canvas.draw()
    assert [ax.get_xlabel() for ax in drawn] == ["seconds", "MB"] and drawn[0].get_title(loc="left") == "the title"
    assert ticks(drawn[0].yaxis) == ["a", "$b$", "c"] and ticks(drawn[1].yaxis) == []
    assert widths(drawn[1].containers[0]) == measures["MB"]
    assert [texts(ax) for ax in drawn] == [["1", "0.5"], ["538", "168", "0"]]
    with pytest.raises(ValueError, match="an axes for each measure, and a value for each name; got 1 axes, 3 names"):
        bars.measure_bars(axes[:1], ["a", "b", "c"], measures)
    with pytest.raises(ValueError, match="got 2 axes, 2 names"):
        bars.measure_bars(axes, ["a", "b"], measures)
