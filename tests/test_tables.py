"""Tables show what they are given, whatever it is."""

import pytest

from tutorlib.viz.tables import Table, show_table


def test_a_table_is_markdown_in_a_notebook_with_numbers_on_the_right():
    table = Table(("method", "speed"), ("greedy", 1), ("beam search", "0.25"), ("none", "–"))
    assert table._repr_markdown_().splitlines() == [
        "| method | speed |", "| --- | ---: |", "| greedy | 1 |", "| beam search | 0.25 |", "| none | – |",
    ]  # fmt: skip


def test_a_table_is_lined_up_as_text():
    assert repr(Table(("", "tokens"), ("a", 7), ("long", "12 %"))) == "      tokens\na          7\nlong    12 %"


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("`<|im_end|>`", "`<\\|im_end\\|>`"),
        ("a|b", "a\\|b"),
        ("two\nlines", "two lines"),
        ("‮abc 🙂 �", "‮abc 🙂 �"),
        ("` <b> &amp;", "` &lt;b&gt; &amp;amp;"),
    ],
)
def test_any_token_stays_text_and_in_its_cell(token, shown):
    assert Table(("token",), (token,))._repr_markdown_().splitlines()[2:] == [f"| {shown} |"]


def test_a_row_that_does_not_fit_the_headings_is_refused():
    with pytest.raises(ValueError, match="row 2 of the table has 1 cells, and there are 2 headings: .'b'."):
        Table(("x", "y"), ("a", 1), ("b",))


def test_a_table_is_shown(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show_table(("x",), (1,))
    assert repr(shown[0]) == "x\n1"
