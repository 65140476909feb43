"""The drawings with which chapters open: what is on them is computed, and what cannot be drawn is refused."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tutorlib import TableLM, TokenTree, beam_search, run
from tutorlib.constraints.automaton import Automaton
from tutorlib.course.drawings import automaton
from tutorlib.course.drawings.beam_tree import beam_tree
from tutorlib.course.drawings.best_first import queue_tree
from tutorlib.course.drawings.block_passes import block_passes
from tutorlib.course.drawings.branches import branches
from tutorlib.course.drawings.check_rows import check_rows
from tutorlib.course.drawings.choices import margin_bars, rising_loop
from tutorlib.course.drawings.contrast import expert_minus_amateur
from tutorlib.course.drawings.eagle_loop import eagle_loop
from tutorlib.course.drawings.engine_round import BOXES, engine_round
from tutorlib.course.drawings.joint import jointed_block
from tutorlib.course.drawings.kept_sets import kept_sets, kept_shares
from tutorlib.course.drawings.lookup import lookup_rows
from tutorlib.course.drawings.loop import self_feeding_loop
from tutorlib.course.drawings.medusa_heads import medusa_heads
from tutorlib.course.drawings.next_token import one_round
from tutorlib.course.drawings.rejection import rejection
from tutorlib.course.drawings.rollback import rollback
from tutorlib.course.drawings.suffix_automaton import states_of, suffix_automaton
from tutorlib.course.drawings.temperature_strips import temperature_strips
from tutorlib.course.drawings.tli_slem import GUESS, tli_beside_slem
from tutorlib.course.drawings.tree_and_mask import tree_and_mask
from tutorlib.course.drawings.tree_outline import in_outline, tree_outline
from tutorlib.course.drawings.unrolled_training import unrolled_training
from tutorlib.course.drawings.what_fits import what_fits
from tutorlib.course.drawings.wide_call import wide_call
from tutorlib.decoders.suffix_lookup import SuffixAutomaton
from tutorlib.measures import cost
from tutorlib.viz.palette import LIGHT
from tutorlib.viz.style import pale
from tutorlib.viz.trees import branches_of

pytestmark = pytest.mark.usefixtures("figures")


def drawn(draw, *args, **options):
    """The axes on which something was drawn, as they are when they are shown."""
    ax = plt.subplots(figsize=(7.2, 3.2))[1]
    assert draw(ax, *args, **options) is ax
    ax.figure.canvas.draw()
    return ax


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def places(ax):
    return {text.get_text(): text.get_position() for text in ax.texts if text.get_text()}


def bars(ax):
    return [patch for patch in ax.patches if type(patch) is Rectangle]


# What is refused: a drawing, its arguments, and what the message says.
REFUSED = [
    (one_round, ([], {"c": 0.5}, 9), {}, "needs a text"),
    (wide_call, ([0],), {}, "1 to 12"),
    (margin_bars, ("abc", [1]), {}, "3 tokens"),
    (rising_loop, ([0.1], 4, 2), {}, "must begin"),
    (queue_tree, ([([], 0.0)], [([1], -0.9)], [3, 3]), {"text": str}, "must be in `waiting`"),
    (kept_sets, ("abcde", [0.1, 0.4, 0.3, 0.15, 0.05], {"two": [True, True]}), {},
     "'two' must have one bool for each of the 5 tokens"),
    (expert_minus_amateur, (["a", "b"], [0.5, 0.5], [1.0, 0.0]), {"alpha": 0.1}, "above 0"),
    (check_rows, (".", ["The", "blue", "bell", "was"], -1, "book"), {}, "4 drafted tokens can be accepted, got -1"),
    (check_rows, (".", ["The", "blue", "bell", "was"], 5, "book"), {}, "4 drafted tokens can be accepted, got 5"),
    (rollback, (["The", "blue", "bell", "was"], 5, "book"), {}, "4 drafted tokens can be accepted, got 5"),
    (lookup_rows, ([], ["a"]), {}, "a match and the tokens that followed it"),
    (lookup_rows, (["a"], []), {}, "a match and the tokens that followed it"),
    (suffix_automaton, ("abcbd",), {}, "need a state of their own"),
    (medusa_heads, (["a"], {"own head": [("b", 0.9)], "head 0": [("c", 0.5)]}, ["b"]), {},
     "2 columns of guesses, but 1 tokens"),
    (tree_outline, (TokenTree([5, 6, 7, 8], [-1, -1, 0, 2]), "abc"), {}, "4 nodes .* got 3 names"),
    (unrolled_training, (), {"position": 3, "steps": 4, "length": 5},
     "4 steps from position 3 do not fit into a text of 5"),
    (block_passes, ("a", ["b"], [{"c": 1.0}], ["d", "e"]), {}, "1 passes, 1 positions and 2 drawn tokens"),
    (jointed_block, ("a", [{"b": 1.0}], []), {}, "1 positions alone and 0 with a joint"),
    (what_fits, ({"16 bits": {"weights": 18.0, "caches": 2.0}, "8 bits": {"weights": 9.0}}, 15, "a T4"), {},
     "the same parts"),
]  # fmt: skip


@pytest.mark.parametrize(("draw", "args", "options", "says"), REFUSED)
def test_what_cannot_be_drawn_is_refused(draw, args, options, says):
    with pytest.raises(ValueError, match=says):
        draw(plt.subplots()[1], *args, **options)


# -- one token at a time, and searches --


def test_a_round_ends_with_the_chosen_token_and_all_probability_is_drawn():
    ax = drawn(one_round, ["a", "$b$"], {"c$_": 0.5, "d": 0.2}, 1000)
    shown = texts(ax)
    assert shown[:3] == ["a", "$b$", "c$_"] and {"998 others", "0.30", "2  1,000 probabilities come out."} <= set(shown)
    widths = [bar.get_width() for bar in bars(ax)]
    assert sum(widths) == pytest.approx(widths[0] / 0.5)


def test_a_wide_call_reads_as_long_as_a_narrow_one_and_computes_longer():
    ax = drawn(wide_call, (1, 9))
    assert texts(ax)[0] == "A call with 1 token" and "A call with 9 tokens" in texts(ax)
    once, little, again, more = [bar.get_width() for bar in bars(ax) if bar.get_height() == 0.8]
    assert once == again > more == pytest.approx(9 * little)


def test_the_rates_of_a_machine_are_those_of_its_fastest_repeat(llama):
    ticks = iter([0, 4, 10, 12, 20, 23, 30, 31, 40, 44, 50, 58])  # 4, 2 and 3 seconds; then 1, 4 and 8
    rates = cost.machine_rates(llama, repeats=3, clock=lambda: next(ticks))
    assert rates == {"peak_operations": 2 * 1024**3 / 2, "bandwidth": 2 * 4 * 2**25}


def test_close_choices_are_hatched_and_a_loop_has_a_line_for_each_repetition():
    ax = drawn(margin_bars, ["a", "b", "c"], [0.1, 3.0, 0.7])
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [False, False, True]
    ax = drawn(rising_loop, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 2, 2)
    assert [line.get_xdata()[0] for line in ax.lines[:2]] == [1.5, 3.5]


def test_the_phrase_of_a_loop_stands_twice_and_each_repetition_is_more_likely():
    ax = drawn(self_feeding_loop, "Over and $over$.")
    assert texts(ax).count("Over and $over$.") == 2 and "a penalty cuts here" in texts(ax)
    heights = [abs(bars[0].get_height()) for bars in ax.containers]
    assert len(heights) == 3 and heights == sorted(heights)
    assert "a penalty cuts here" not in texts(drawn(self_feeding_loop, "Over and $over$.", penalty=False))


@pytest.mark.parametrize(("dropped", "seen"), [(None, ["␣d", "␣e", "␣e"]), (1, ["␣d"])])
def test_what_a_beam_search_saw_and_did_not_keep_is_drawn_beside_the_winner(dropped, seen):
    lm = TableLM(
        {"x": {" a": 0.6, " b": 0.4}, " a": {" c": 0.5, " d": 0.3, " e": 0.2}, " b": {" c": 0.9, " e": 0.1}},
        vocab=["x", " a", " b", " c", " d", " e"],
    )
    trace = run(beam_search(lm, "x", beams=2, max_new_tokens=2, length_penalty=0))
    shown = [text.partition("\n")[0] for text in texts(drawn(beam_tree, trace, dropped=dropped, root="x"))]
    assert sorted(text[2:] for text in shown if text.startswith("✗")) == seen
    assert [text for text in shown if text.startswith("✓")] == ["✓ ␣c"] * 2 and "◂ wins" in shown


def test_the_queue_is_numbered_in_its_order_and_the_result_comes_last():
    taken, waiting = [([], 0.0), ([1], -0.5), ([2], -0.7)], [([1, 2], -0.9), ([2, 2], -1.5)]
    shown = texts(drawn(queue_tree, taken, waiting, [1, 2], text="_$bc".__getitem__))
    assert sorted(text for text in shown if text.isdigit()) == ["1", "2", "3", "4"]
    assert "the result" in shown and "−1.50" in shown and shown.count("prompt") == 1


def test_branches_multiply_to_the_probabilities_of_the_texts():
    found = branches_of({("a", "x"): 0.3, ("a", "y"): 0.3, ("b", "x"): 0.4})
    assert found == pytest.approx({("a",): 0.6, ("a", "x"): 0.5, ("a", "y"): 0.5, ("b",): 0.4, ("b", "x"): 1.0})


# -- choosing --


def test_each_strip_is_cut_into_the_same_tokens_and_the_others():
    rows = {"cold": [0.1, 0.85, 0.05, 0.0], "hot": [0.25, 0.4, 0.2, 0.15]}
    ax = drawn(temperature_strips, ["$a$", "b", "c", "d"], rows, top=2)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.85, 0.1, 0.05, 0.4, 0.25, 0.35])
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [False, False, True] * 2
    assert {"b\n0.85", "$a$\n0.25", "2 others\n0.35"} <= set(texts(ax))
    assert "2 others\n0.05" not in texts(ax), "no room"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cold", "hot"]
    joined = [tuple(line.get_xdata()) for line in ax.lines]
    assert joined == [pytest.approx((0.85, 0.4)), pytest.approx((0.95, 0.65))]


NAMES, PROBS = ["$a$", " b", "c", "d", "e"], [0.1, 0.4, 0.3, 0.15, 0.05]  # in order: b, c, d, a, e
KEPT = {"two": [False, True, True, False, False], "middle": [True, False, True, True, False], "all": [True] * 5}


def brackets(ax):
    return [(round(line.get_xdata()[0]), round(line.get_xdata()[-1])) for line in ax.lines]


def test_a_bracket_goes_around_the_bars_of_what_is_kept():
    ax = drawn(kept_sets, NAMES, PROBS, KEPT, top=4)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["␣b", "c", "d", "$a$", "1 others"]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.4, 0.3, 0.15, 0.1, 0.05])
    assert brackets(ax) == [(0, 1), (1, 3), (0, 4)] and texts(ax)[-3:] == list(KEPT)
    assert brackets(drawn(kept_sets, NAMES, PROBS, {"gap": [True, True, True, False, False]})) == [(0, 1), (3, 3)]


def test_a_strip_is_filled_where_the_kept_tokens_lie_and_says_how_many_they_are():
    ax = drawn(kept_shares, PROBS, KEPT)
    filled = [(bar.get_x(), bar.get_width()) for bar in ax.patches if bar.get_hatch()]
    assert filled == [pytest.approx(one) for one in [(0, 0.7), (0.4, 0.55), (0, 1)]]
    assert texts(ax) == ["2 tokens", "3 tokens", "5 tokens"]
    assert texts(drawn(kept_shares, [1 / 250] * 250, {"most": [True] * 249 + [False]})) == ["200 tokens"]


EXPERT, AMATEUR = [0.5, 0.4, 0.001], [0.5, 0.1, 1e-6]


@pytest.mark.parametrize(("alpha", "winner"), [(1, 0), (0.1, 1), (0, 2)])
def test_the_winner_of_a_contrast_is_the_plausible_token_with_the_largest_ratio(alpha, winner):
    ax = drawn(expert_minus_amateur, ["$a$", "b", "c"], EXPERT, AMATEUR, alpha=alpha)
    assert [text.get_position()[1] for text in ax.texts if text.get_text() == "✓"] == [winner]


def test_scores_are_logarithms_of_the_ratio_and_what_the_cut_removes_is_crossed_out():
    ax = drawn(expert_minus_amateur, ["$a$", "b", "c"], EXPERT, AMATEUR, alpha=0.1)
    scores = [ax.containers[3 * row + 2][0] for row in range(3)]
    widths, expected = np.array([bar.get_width() for bar in scores]), np.log(np.array(EXPERT) / np.array(AMATEUR))
    assert widths / widths.max() == pytest.approx(expected / expected.max())
    assert [bar.get_hatch() == "xxx" for bar in scores] == [False, False, True]


# -- a draft and its check --


def test_each_bar_ends_at_its_probability_and_the_legends_sum_up_the_parts():
    """Of both distributions: they share the accepted part, and what is left is equally large."""
    axes, p, q = plt.subplots(1, 2)[1], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6]
    assert rejection(axes, ["$a", "b", "c"], p, q) is axes
    for ax, probs, other in zip(axes, (q, p), ("✗ rejected: 0.4", "↻ drawn instead: 0.4"), strict=True):
        common, more = ax.containers
        assert [bar.get_height() for bar in common] == pytest.approx([0.1, 0.3, 0.2])
        tops = {round(bar.get_x() + bar.get_width() / 2): bar.get_y() + bar.get_height() for bar in more}
        assert all(tops[place] == pytest.approx(probs[place]) for place in tops)
        assert len(tops) == sum(prob > low for prob, low in zip(probs, [0.1, 0.3, 0.2], strict=True))
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["✓ accepted: 0.6", other]


def test_a_rejection_of_what_is_no_distribution_is_refused():
    with pytest.raises(ValueError, match="of the draft must sum to 1"):
        rejection(plt.subplots(1, 2)[1], ["a", "b"], [0.5, 0.5], [0.5, 0.2])


@pytest.mark.parametrize("accepted", range(5))
def test_a_check_has_a_row_more_than_drafted_tokens_and_one_token_of_the_targets_own(accepted):
    shown = texts(drawn(check_rows, ".", ["The", "$blue", "bell", "was"], accepted, "book"))
    assert [text for text in shown if text.startswith("row")] == [f"row {i}" for i in (1, 2, 3, 4, 5)]
    fates = [text[0] for text in shown if text.endswith(("The", "blue", "bell", "was"))]
    assert "".join(fates) == ("✓" * accepted + "✗" + "○" * 4)[:4]
    assert ("★ book" if accepted == 4 else "↻ book") in shown


@pytest.mark.parametrize("accepted", range(5))
def test_after_a_rollback_the_draft_has_read_a_token_less_and_both_keep_what_was_accepted(accepted):
    drafted = ["The", "blue", "bell", "was"]
    shown = texts(drawn(rollback, drafted, accepted, "book"))
    words = [text.split()[-1] for text in shown]
    for number, token in enumerate(drafted):
        read_by = 2 if number < 3 else 1
        assert words.count(token) == (2 * read_by if number < accepted else read_by)
    assert ("★ book" if accepted == 4 else "↻ book") in shown


def residual(p, q):
    excess = np.maximum(p - q, 0)
    return excess / excess.sum()


@pytest.mark.parametrize(
    ("redraw", "shown"),
    [
        (residual, {"a 0.40", "b 0.30", "a 0.30", "a: 0.70 = p(a)", "b: 0.30 = p(b)"}),
        (lambda p, q: p, {"a 0.21", "b 0.09", "a: 0.61, but p(a) = 0.7", "b: 0.39, but p(b) = 0.3"}),
    ],
    ids=["from the residual", "from the target"],
)
def test_all_outcomes_of_a_draw_sum_to_the_targets_probabilities_if_the_residual_is_drawn_from(redraw, shown):
    assert shown <= set(texts(drawn(branches, ["a", "b"], [0.7, 0.3], [0.4, 0.6], redraw)))


def test_the_draft_of_a_lookup_stands_below_what_followed_and_is_a_copy_of_it():
    ax, at = drawn(lookup_rows, ["$a$", "b"], ["c", "d"]), {}
    for text in ax.texts:
        at.setdefault(text.get_text(), []).append(text.get_position())
    assert len(at["$a$"]) == len(at["b"]) == 2
    for word in "cd":
        (above,), (below,) = at[word], at[f"✓ {word}"]
        assert above[0] == below[0] and above[1] < below[1]


WORDS = ["the", "red", "kite", "the", "red", "drum", "the", "red"]


@pytest.mark.parametrize("words", [WORDS, list("aba"), list("abcabdab"), list("aaaa")], ids=" ".join)
def test_the_automaton_is_the_one_that_drafts(words):
    seen = SuffixAutomaton()
    seen.extend(words)
    arrows, match = states_of(words)
    length = seen._length
    assert arrows == {
        (length[state], token): length[end] for state, after in enumerate(seen._next) for token, end in after.items()
    }
    assert match == length[seen._link[seen._whole]]


def test_the_thick_arrows_of_the_automaton_are_what_followed_the_match():
    ax = drawn(suffix_automaton, WORDS)
    thick = [text.get_text() for text in ax.texts if to_hex(text.get_color()) == LIGHT["draft"]]
    assert sorted(thick) == ["drum", "kite"]
    assert [text for text in texts(ax) if text.isdigit()] == [str(state) for state in range(9)]


TOKENIZED = ({"red": 0.5, "kite": 0.3, "umb": 0.2}, ["red", "kite", "umbrella", "."], ["umb", "rella", "."])


def test_tli_divides_by_what_the_shared_tokens_have_and_the_targets_tokens_are_framed():
    ax = drawn(lambda ax: tli_beside_slem(ax, *TOKENIZED, ["umbrella", "."], drawn="kite"))
    assert {"0.5", "0.3", "0.2", "0.625", "0.375", "not shared"} <= set(texts(ax))
    framed = [box for box in ax.patches if box.get_linewidth() == GUESS["linewidth"]]
    assert len(framed) == 3  # the token that TLI draws, and both tokens of SLEM's guess


@pytest.mark.parametrize(
    ("guess", "token", "says"), [(["umb"], "kite", "be the same text"), (["umbrella", "."], "umb", "of both models")]
)
def test_what_tli_and_slem_could_not_do_is_refused(guess, token, says):
    with pytest.raises(ValueError, match=says):
        tli_beside_slem(plt.subplots()[1], *TOKENIZED, guess, drawn=token)


# -- heads, networks and trees --


def test_each_head_has_a_column_over_the_one_vector_and_what_was_right_is_ticked():
    guesses = {"own head": [("$b$", 0.9), ("c", 0.1)], "head 0": [("c", 0.5), ("d", 0.25)]}
    at = places(drawn(medusa_heads, ["a"], guesses, ["$b$", "d"]))
    own, other = at["own head"][0], at["head 0"][0]
    assert own == at["✓ $b$ 0.90"][0] == at["✗ c 0.10"][0] < at["$h_t$"][0] < other == at["✗ c 0.50"][0]
    heights = [at[text][1] for text in ("… a", "$h_t$", "head 0", "✓ d 0.25", "✗ c 0.50", "token $t + 2$")]
    assert heights == sorted(heights)


TREE, NODES = TokenTree([5, 6, 7, 8], [-1, -1, 0, 2]), ["a", "$b$", "c", "日"]


def test_children_stand_under_their_parents_and_further_to_the_right():
    assert in_outline(TREE) == [0, 2, 3, 1]
    at = places(drawn(tree_outline, TREE, NODES, notes=["0.1", "0.2", "0.3", "0.4"], root="…"))
    shown = ["…", "◇ a", "◇ c", "◇ ⟨U+65E5⟩", "◇ $b$"]
    assert [at[text][1] for text in shown] == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert at["◇ a"][0] < at["◇ c"][0] < at["◇ ⟨U+65E5⟩"][0] and at["0.2"][1] == at["◇ $b$"][1]


def test_a_row_of_the_mask_is_filled_where_its_node_attends_and_green_where_it_is_kept():
    ax = drawn(tree_and_mask, TREE, NODES, [0, 2], root="…")
    kinds = {"": "white", **{kind: pale(LIGHT[kind]) for kind in ("accepted", "context", "target")}}
    looks = {to_hex(color): kind[:1] or "." for kind, color in kinds.items()}
    rows = {}
    for cell in sorted(bars(ax), key=lambda cell: (round(cell.get_y()), cell.get_x())):
        rows.setdefault(round(cell.get_y()), []).append(looks[to_hex(cell.get_facecolor())])
    # Columns: the text, then the nodes in the order of the rows: a, c, 日, b.
    assert ["".join(row) for row in rows.values()] == ["aa...", "aaa..", "cttt.", "c...t"]


def test_feature_and_token_go_into_eagles_layer_and_both_guesses_come_back():
    ax = drawn(eagle_loop, "$a$", "b")
    at = places(ax)
    assert at["$f_t$"][0] == at["$a$"][0] < at["EAGLE:\none layer"][0] < at["b"][0] == at[r"$\hat f_{t+1}$"][0]
    assert at["$f_t$"][1] == at[r"$\hat f_{t+1}$"][1] < at["target's head"][1] < at["b"][1] == at["$a$"][1]
    ways_back = [line.get_xdata() for line in ax.lines]
    assert [(way[0], way[-1]) for way in ways_back] == [(at["b"][0], at["$a$"][0])] * 2
    assert {to_hex(line.get_color()) for line in ax.lines} == {LIGHT["draft"]}


def test_each_step_of_training_replaces_one_more_state_of_the_target_by_the_networks_own():
    shown = texts(drawn(unrolled_training, position=3, steps=3, length=5))
    rows = [shown[shown.index(f"step {step}") + 1 :][:5] for step in (1, 2, 3)]
    assert rows[0] == ["$g_1$", "$g_2$", "$g_3$", "$g_4$", "$g_5$"]
    assert rows[1] == ["$g_1$", "$g_2$", "$g_3$", r"$\hat a_4$", "$g_5$"]
    assert rows[2] == ["$g_1$", "$g_2$", "$g_3$", r"$\hat a_4$", r"$\hat a_5$"]
    assert [text for text in shown if text.startswith("token")] == ["token 5?", "token 6?", "token 7?"]


def test_a_block_shows_all_guesses_of_a_position_and_the_drawn_ones_in_bold():
    guesses = [{"red": 0.5, "blue": 0.5}, {"kite": 0.75, "book": 0.25}]
    ax = drawn(block_passes, "the", ["red", "kite"], guesses, ["red", "book"])
    shown = {text.get_text(): text.get_weight() for text in ax.texts}
    assert {"pass 1", "pass 2", "draft: red kite", "draft: red book"} <= set(shown)
    weights = [shown[text] for text in ("red 50%", "blue 50%", "kite 75%", "book 25%")]
    assert weights == ["bold", "normal", "normal", "bold"]


def test_a_jointed_block_has_its_drawn_tokens_in_bold_in_the_lower_row_only():
    alone, jointed = [{"red": 0.6, "blue": 0.4}, {"kite": 0.5, "book": 0.5}], [{"red": 0.6}, {"kite": 0.9, "book": 0.1}]
    ax = drawn(jointed_block, "the", alone, jointed)
    bold = {text.get_text() for text in ax.texts if text.get_weight() == "bold"}
    assert bold == {"one pass", "with a joint", "red 60%", "kite 90%"}
    assert {"kite 50%", "book 50%", "blue 40%", "book 10%"} <= {text.get_text() for text in ax.texts}


# -- real machines --


def test_a_row_fits_if_its_parts_end_within_the_frame():
    rows = {"16 bits": {"weights": 18.0, "caches": 2.0}, "4 bits": {"weights": 6.0, "caches": 2.0}}
    ax = drawn(what_fits, rows, 15, "a T4")
    assert {"20.0 GB do not fit", "8.0 GB fit", "a T4: 15 GB", "weights", "caches"} <= set(texts(ax))
    (frame,) = bars(ax)
    assert (frame.get_x(), frame.get_width()) == (0, 15)


def test_every_part_of_an_engine_is_named_and_a_round_leads_from_the_requests_to_the_check_and_back():
    ax = drawn(engine_round)
    assert {*BOXES, "guesses", "states", "next round"} < set(texts(ax))
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert len(arrows) == 7, "six parts in a row, states back to the head, and the next round"


def test_the_automaton_drawn_is_that_of_its_two_words():
    ax = automaton.two_words(plt.subplots()[1])
    words, states = Automaton("twelve|twenty"), {"0": Automaton.start}
    for begin, end, letter in automaton.LETTERS:
        states[end] = words.after(letter.encode(), states[begin])
    assert set(states) == set(automaton.STATES) and 0 not in states.values()
    assert [name for name, state in states.items() if words.accepting[state]] == ["6", "9"]
    assert all(words.after(token.encode()) == states[str(letters)] for token, letters in automaton.TOKENS)
    assert {text.get_text() for text in ax.texts} >= {"t", "w", "e", "start"}
