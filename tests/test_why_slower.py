"""Why is mine slower? The calculator computes what `theory` does, names the causes, and answers bad input."""

import json
import random

import pytest
from chromium import Chromium
from live_parts import page_with
from test_live_page import in_a_browser

from tutorlib import models
from tutorlib.lab.bench.__main__ import main
from tutorlib.lab.bench.slowness import slowness
from tutorlib.measures import theory


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as window:
        window.open(page_with("why", tmp_path_factory.mktemp("why")))
        yield window


def asked(page, expression, **values):
    constants = "".join(f"const {name} = {json.dumps(value)};" for name, value in values.items())
    return json.loads(page.ask(f"(() => {{ {constants} return JSON.stringify({expression}); }})()"))


def filled(page, **fields):
    """Type into the form, and return what it answers."""
    for name, text in fields.items():
        page.ask(
            f"(() => {{ const input = document.querySelector('.why-{name} input'); input.value = {json.dumps(text)}; "
            "input.dispatchEvent(new Event('input', {bubbles: true})); return 1; })()"
        )
    return page.ask("document.querySelector('[role=status]').textContent")


@in_a_browser
def test_it_computes_what_theory_computes(page):
    draw = random.Random(0)
    for _ in range(50):
        calls, draft, alpha = sorted(draw.uniform(1, 3) for _ in range(9)), draw.uniform(0, 1), draw.random()
        given = {"calls": calls, "draft": draft, "accepted": [alpha], "gamma": 4}
        found = asked(
            page, "[Live.why.round(given, 4).factor, Live.why.round(given, 4).tokens, Live.why.bestGamma(given)]",
            given=given,
        )  # fmt: skip
        assert found[0] == pytest.approx(theory.measured_factor(alpha, 4, calls, draft), rel=1e-12)
        assert found[1] == pytest.approx(theory.expected_tokens(alpha, 4), rel=1e-12)
        assert found[2] == theory.best_measured_gamma(alpha, calls, draft, 8)


@in_a_browser
def test_acceptance_by_position_is_a_sum_of_products(page):
    assert asked(page, "Live.why.expectedTokens([0.5, 0.25], 4)") == 1 + 0.5 + 0.125 + 0.03125 + 0.0078125


@in_a_browser
def test_what_is_lost_adds_up_to_the_gain_of_a_perfect_round(page):
    given = {"calls": [2, 3, 4, 5, 6], "draft": 0.5, "accepted": [0.6], "gamma": 3, "between": 0.4, "prompt": 9}
    found = asked(page, "[Object.values(Live.why.losses(given, 3)), Live.why.round(given, 3).factor]", given=given)
    assert sum(found[0]) == pytest.approx(asked(page, "Math.log(4 / factor)", factor=found[1]))


WORST = {
    "The target's own copy in eight bits": "draft",
    "Products made for one row": "wide",
    "A draft that is too deep": "draft",
    "The draft was trained to a smaller depth": "rejected",
    "The chat template is missing": "rejected",
    "The draft reads a long prompt": "prompt",
    "The target is quantized, the draft is not": "draft",
    "A mixture of experts": "wide",
    "The engine needs time between calls": "between",
}


@in_a_browser
def test_in_each_case_it_names_the_cause(page):
    found = asked(page, "Object.entries(Live.CASES).map(([name, given]) => [name, Live.why.verdict(given).worst])")
    assert dict(found) == WORST
    slow = asked(page, "Object.values(Live.CASES).map(given => Live.why.round(given, given.gamma).factor)")
    assert slow[0] > 1.5 and all(factor < 1.35 for factor in slow[1:])


@in_a_browser
def test_each_case_can_be_chosen_and_changed(page):
    for name, given in asked(page, "Object.entries(Live.CASES)"):
        page.ask(
            f"(() => {{ const choice = document.querySelector('select'); choice.value = {json.dumps(name)}; "
            "choice.dispatchEvent(new Event('change')); return 1; })()"
        )
        assert given["told"] in page.ask("document.querySelector('.why-told').textContent")
        assert f"With γ = {given['gamma']}" in page.ask("document.querySelector('[role=status]').textContent")
    assert "A round gives 3.00 tokens" in filled(page, gamma="2", accepted="1")
    assert page.ask("document.querySelector('select').value") == ""  # the numbers are the reader's own now


@in_a_browser
@pytest.mark.parametrize(
    ["fields", "message"],
    [
        ({"calls": ""}, "“Calls of the target with 1, 2, 3, … tokens” needs numbers of 0 or more"),
        ({"calls": "1 two 3"}, "needs numbers of 0 or more"),
        ({"calls": "0 1 2"}, "a time is 0"),
        ({"calls": "1 1 1", "gamma": "3"}, "γ = 3 needs the time of a call with 4 tokens. There are 3 times"),
        ({"accepted": "70"}, "Shares of accepted tokens are from 0 to 1"),
        ({"gamma": "2.5"}, "γ is a whole number"),
        ({"draft": "-1"}, "“One drafted token” needs a number of 0 or more"),
        ({"draft": "1 2"}, "needs one number"),
        ({"tokens": "0"}, "at least one new token"),
    ],
)
def test_what_is_no_number_is_named(page, fields, message):
    right = {
        "calls": "1 1 1 1 1", "draft": "0.1", "accepted": "0.8", "gamma": "4", "between": "", "prompt": "",
        "tokens": "",
    }  # fmt: skip
    assert "times as fast" in filled(page, **right)
    assert message in filled(page, **fields)


@in_a_browser
def test_the_line_of_the_command_can_be_pasted(page):
    line = json.dumps({"calls": [2, 2, 2], "draft": 0.5, "accepted": [1.0], "gamma": 2, "between": 0, "tokens": 10})
    paste = "(() => { const input = document.querySelector('input[placeholder]'); input.value = %s; "
    paste += "input.dispatchEvent(new Event('input')); return document.querySelector('.live').textContent; })()"
    assert "speculation is 2.00 times as fast" in page.ask(paste % json.dumps(line))
    assert "not the line that the command printed" in page.ask(paste % json.dumps("[1, 2"))


@in_a_browser
def test_it_says_nothing_to_the_console_and_fits_a_phone(page):
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=True)
    assert page.ask("document.documentElement.scrollWidth") <= 360
    assert page.said == []


# The command.


def test_the_command_prints_what_the_page_takes(capsys):
    family = models.load("storyworld", device="cpu")
    main(["--why", "draft", "--tokens", "12", "--prompts", "1"], family=family)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"calls", "draft", "accepted", "gamma", "between", "prompt", "tokens"}
    assert len(found["calls"]) == found["gamma"] + 5 and all(time > 0 for time in found["calls"])
    assert all(0 <= share <= 1 for share in found["accepted"]) and found["draft"] > 0


def test_a_wrong_gamma_or_a_draft_that_is_not_there_is_an_error():
    family = models.load("storyworld", device="cpu")
    with pytest.raises(ValueError, match="gamma is how many"):
        slowness(family, [[1, 2]], draft="draft", gamma=0)
    with pytest.raises(SystemExit):
        main(["--why", "nothing"], family=family)
