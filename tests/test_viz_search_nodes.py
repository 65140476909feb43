"""What became of each hypothesis of a search, read off a trace or off lists."""

import pytest

from tutorlib import TableLM, beam_search, best_first_beam_search, run
from tutorlib.viz.search_nodes import search_nodes

# By hand, two beams: b is behind a, and wins. Of what is seen, "aa" and "ac" are not kept.
LEVELS = [
    [[["a"], -0.4], [["b"], -1.1]],
    [[["b", "c"], -1.2], [["a", "d"], -1.4]],
    [[["b", "c", "e"], -1.3], [["b", "c", "a"], -2.4]],
]
DROPPED = [[["c"], -3.0], [["a", "a"], -1.6], [["a", "c"], -1.7], [["a", "d", "a"], -3.0]]
FINISHED = [[["b", "c", "e", "."], -1.35], [["b", "c", "a", "."], -2.5]]
WHOLE = {"dropped": DROPPED, "finished": FINISHED, "winner": ["b", "c", "e", "."]}


def fates(nodes):
    return {"".join(tokens): node.fate for tokens, node in nodes.items()}


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
    trace = run(beam_search(lm, "a", beams=beams, max_new_tokens=6))
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
    trace = run(best_first_beam_search(lm, "a", beams=2, max_new_tokens=3))
    assert trace.steps[0].hypotheses[0][0] == []
    assert () not in search_nodes(trace)
