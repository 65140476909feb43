"""Spot the bug: the game has the zoo's decoders without what tells, and answers a right tap, a wrong one and none."""

import json

import live_page
import pytest
from chromium import Chromium
from live_parts import page_with
from test_live_page import in_a_browser


def decoders():
    return json.loads(live_page.bugs().split("=", 2)[2].removesuffix(";\n"))


def test_each_decoder_has_one_wrong_line_among_several_and_nothing_that_tells_which():
    for decoder in decoders():
        assert len(decoder["wrong"]) == 1 and len(decoder["lines"]) >= 7
        told = " ".join(decoder["lines"])
        assert "mistake" not in told and decoder["lines"][0].startswith("def method(")
        assert decoder["note"] and decoder["what"] and decoder["why"] and decoder["published"]
        assert decoder["link"].startswith("https://") or not decoder["link"]
    assert len(decoders()) >= 12


@pytest.fixture
def page(tmp_path):
    with Chromium(tmp_path / "profile") as window:
        window.open(page_with("bug", tmp_path), width=360, height=800)
        yield window


@in_a_browser
def test_taps_are_answered_and_every_decoder_can_be_solved(page):
    def tap(line):
        page.ask(f"document.querySelectorAll('.bug-code button')[{line}].click()")
        return page.ask("document.querySelector('[role=status]').textContent")

    def press(name):
        buttons = "[...document.querySelectorAll('.live-buttons button')]"
        page.ask(f"{buttons}.find(b => b.textContent === '{name}').click()")
        return page.ask("document.querySelector('[role=status]').textContent")

    for number, decoder in enumerate(decoders()):
        (wrong,) = decoder["wrong"]
        if number % 3 == 0:
            assert "This line is right" in tap(0 if wrong else 1)
            assert "Found after 2 taps" in tap(wrong)
        elif number % 3 == 1:
            assert "Found at first sight" in tap(wrong)
        else:
            assert "Here it is" in press("Show me")
        assert decoder["what"] in page.ask("document.querySelector('[role=status]').textContent")
        assert page.ask("document.documentElement.scrollWidth") <= 360
        assert press("Next decoder") == ""
    assert page.said == []
    found = sum(number % 3 != 2 for number in range(len(decoders())))
    assert f"Found {found}" in page.ask("document.querySelector('.live-legend').textContent")
