"""The tree of a search: what became of each hypothesis, read off a trace or off lists, and drawn as it is."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib import TableLM, greedy, run
from tutorlib.decoders.beam_search import beam_search
from tutorlib.decoders.best_first_beam_search import best_first_beam_search
from tutorlib.run import Trace
from tutorlib.viz import palette
from tutorlib.viz.search_tree import FATES, _heights, search_nodes, search_tree

# By hand, two beams: b is behind a, and wins. Of what is seen, "aa" and "ac" are not kept.
LEVELS = [
    [[["a"], -0.4], [["b"], -1.1]],
    [[["b", "c"], -1.2], [["a", "d"], -1.4]],
    [[["b", "c", "e"], -1.3], [["b", "c", "a"], -2.4]],
]
DROPPED = [[["c"], -3.0], [["a", "a"], -1.6], [["a", "c"], -1.7], [["a", "d", "a"], -3.0]]
FINISHED = [[["b", "c", "e", "."], -1.35], [["b", "c", "a", "."], -2.5]]
WHOLE = {"dropped": DROPPED, "finished": FINISHED, "winner": ["b", "c", "e", "."]}


pytestmark = pytest.mark.usefixtures("figures")


def axes():
    return plt.subplots(figsize=(8, 6))[1]


def texts(ax):
    """Everything written in an axes, drawn first so that matplotlib has read it."""
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.findobj(matplotlib.text.Text) if text.get_text()]


def fates(nodes):
    return {"".join(tokens): node.fate for tokens, node in nodes.items()}


# What became of each hypothesis


def test_every_hypothesis_has_the_fate_that_it_had():
    nodes = search_nodes(LEVELS, **WHOLE)
    assert fates(nodes) == {
        "a": "given up", "b": "kept", "c": "dropped",
        "bc": "kept", "ad": "given up", "aa": "dropped", "ac": "dropped",
        "bce": "kept", "bca": "kept", "ada": "dropped",
        "bce.": "finished", "bca.": "finished",
    }  # fmt: skip
    assert {"".join(tokens) for tokens, node in nodes.items() if node.won} == {"b", "bc", "bce", "bce."}
    assert nodes["b", "c"].score == -1.2


def test_while_it_goes_on_what_the_beam_holds_is_alive_and_nothing_has_won():
    first = search_nodes(LEVELS, **WHOLE, until=1)
    assert fates(first) == {"a": "kept", "b": "kept", "c": "dropped"}
    second = search_nodes(LEVELS, **WHOLE, until=2)
    assert fates(second)["a"] == fates(second)["ad"] == "kept"
    third = search_nodes(LEVELS, **WHOLE, until=3)
    assert fates(third)["a"] == fates(third)["ad"] == "given up"
    assert not any(node.won for nodes in (first, second, third) for node in nodes.values())


def test_what_has_finished_by_then_is_there_already():
    early = [[["a"], -0.5]]
    nodes = search_nodes([[[["b"], -0.9]], [[["b", "c"], -1.0]]], finished=early, winner=["a"], until=1)
    assert fates(nodes) == {"b": "kept", "a": "finished"}


def test_a_search_without_a_winner_is_still_going_on():
    assert fates(search_nodes(LEVELS[:2])) == {"a": "kept", "b": "kept", "bc": "kept", "ad": "kept"}


def test_a_winner_that_was_never_held_is_refused():
    with pytest.raises(ValueError, match="is not among"):
        search_nodes(LEVELS, winner=["x"])
    with pytest.raises(ValueError, match="is not among"):
        search_nodes(LEVELS, dropped=DROPPED, winner=["c"])


@pytest.mark.parametrize("seed", range(8))
def test_a_trace_of_beam_search_reads_as_it_went(seed):
    lm, beams = TableLM.random(5, order=2, seed=seed, stop_tokens=["e"]), 3
    trace = run(beam_search(lm, "a", beams=beams, max_new_tokens=6), 6)
    nodes = search_nodes(trace)
    finished = {tokens for tokens, node in nodes.items() if node.fate == "finished"}
    assert finished == {tuple(tokens) for tokens, _ in trace.steps[-1].hypotheses}
    assert {tokens for tokens, node in nodes.items() if node.won and len(tokens) == len(trace.tokens)} == {
        tuple(trace.tokens)
    }
    for tokens, node in nodes.items():
        assert not tokens[:-1] or tokens[:-1] in nodes
        leads_on = any(end[: len(tokens)] == tokens and end != tokens for end in finished)
        assert (node.fate == "kept") == (leads_on and tokens not in finished)
    # And as if it had stopped after two tokens: the beam of then is alive.
    then = search_nodes(trace, until=2)
    alive = {tuple(tokens) for tokens, _ in trace.steps[1].hypotheses}
    assert alive <= {tokens for tokens, node in then.items() if node.fate == "kept"}


def test_the_empty_hypothesis_of_best_first_is_the_prompt():
    lm = TableLM.random(4, order=1, seed=1)
    trace = run(best_first_beam_search(lm, "a", beams=2, max_new_tokens=3), 3)
    assert trace.steps[0].hypotheses[0][0] == []
    assert () not in search_nodes(trace)
    assert "prompt" in texts(search_tree(axes(), trace))


# The picture


def test_it_shows_every_hypothesis_with_its_mark_and_its_score():
    ax = axes()
    assert search_tree(ax, LEVELS, **WHOLE) is ax
    shown = texts(ax)
    for what in ("● b\n−1.10", "○ a\n−0.40", "✗ c\n−3.00", "✓ .\n−1.35", "◂ wins", "prompt", "length 4"):
        assert what in shown, what
    legend = {text.get_text() for text in ax.get_legend().get_texts()}
    assert legend == {"● kept, and leads on", "✓ finished", "○ kept, then given up", "✗ seen, not kept"}


def test_the_fates_are_told_without_colour():
    kinds = list(FATES.values())
    assert len({palette.MARKS[kind] for kind in kinds}) == len(kinds)
    assert len({palette.LINES[kind] for kind in kinds if kind != "accepted"}) == len(kinds) - 1


def test_a_growing_tree_keeps_its_places():
    frame = search_nodes(LEVELS, **WHOLE)
    places = []
    for until in (1, 2, 3, None):
        ax = search_tree(axes(), LEVELS, **WHOLE, until=until, frame=frame)
        ax.figure.canvas.draw()
        places.append({t.get_text(): t.get_position() for t in ax.texts if "−1.10" in t.get_text()})
        limits = ax.get_xlim(), ax.get_ylim()
        assert places[-1] == places[0] and limits == (ax.get_xlim(), ax.get_ylim())
    assert len(places[0]) == 1


def test_no_two_boxes_lie_on_each_other_where_there_is_the_height_asked_for():
    ax = search_tree(axes(), LEVELS, **WHOLE)
    ax.figure.canvas.draw()
    boxes = [text.get_bbox_patch().get_window_extent() for text in ax.texts if text.get_bbox_patch()]
    assert len(boxes) == 13
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])


def test_names_numbers_and_texts_of_tokens():
    lm = TableLM({"": [0.5, 0.3, 0.2]}, ["a", "$x_1$", " "])
    trace = run(beam_search(lm, "a", beams=2, max_new_tokens=2, length_penalty=0), 2)
    ax = search_tree(axes(), trace, numbers={(1,): 7}, paths={"greedy": (0, 0)}, root="a", digits=3)
    shown = texts(ax)
    assert "● a\n−0.693" in shown and "○ 7: $x_1$\n−1.204" in shown and "◂ greedy, wins" in shown
    stored = Trace.from_dict(trace.to_dict())
    first, second = (texts(search_tree(axes(), one)) for one in (trace, stored))
    assert first == second


def test_what_cannot_be_drawn_is_refused():
    lm = TableLM({"": [0.5, 0.5]})
    with pytest.raises(ValueError, match="no hypothesis"):
        search_tree(axes(), run(greedy(lm, "a"), 3))
    with pytest.raises(ValueError, match="never held"):
        search_tree(axes(), LEVELS, paths={"greedy": ("x",)})


def test_a_deep_search_is_drawn_too():
    nodes = search_nodes([[[range(1500), -1.0]]])
    assert len(nodes) == 1500 and all(node.fate == "kept" for node in nodes.values())
    assert set(_heights(nodes).values()) == {0.0}
