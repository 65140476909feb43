"""The pages in a real browser: traces step without a kernel, both colour schemes can be read, nothing is cut off.

No page writes anything to the browser's console, whatever is asked of it: scripts that fail do.
"""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from built_site import built_site

from tutorlib import TableLM, greedy, run
from tutorlib.viz.player import Player

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = [Path(f"/Applications/{name}.app/Contents/MacOS/{name}") for name in ("Google Chrome", "Chromium")]
BROWSER = next((str(found) for found in [*map(shutil.which, NAMES), *filter(Path.exists, MAC)] if found), None)
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars
    --allow-file-access-from-files --enable-logging=stderr
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"),
]

# Relative luminance and contrast as WCAG 2 defines them; colours as the browser computed them.
HELPERS = """
const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const rgb = text => text.match(/[0-9.]+/g).map(Number);
const luminance = text => { const [r, g, b] = rgb(text).map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const style = element => getComputedStyle(element);
const opaque = text => { const parts = rgb(text); return parts.length < 4 || parts[3] > 0.99; };
const behind = element => {
  while (element && !opaque(style(element).backgroundColor)) element = element.parentElement;
  return element ? style(element).backgroundColor : "rgb(255, 255, 255)";
};
const all = selector => [...document.querySelectorAll(selector)];
const worst = words => Math.min(...words.map(word => contrast(style(word).color, behind(word))));
"""


def look(pages, questions, folder, dark=False):
    """Open pages, each once in a frame of one window, ask each the same questions, and return the answers.

    Parameters
    ----------
    pages : list of Path
        HTML files.
    questions : list of (int, str)
        The width of the frame in pixels, and the body of a JavaScript function that runs in the page and returns
        something JSON can hold. They are asked one after the other: what changes the page comes last.
    folder : Path
        Where to put what is only needed for the moment.
    dark : bool
        Which colour scheme the reader prefers.

    Returns
    -------
    list of list
        For each page its answers.
    """
    probe = folder / "probe.html"
    addresses = [page.as_uri() for page in pages]
    asked = [(f"{width}px", f"{HELPERS}\n{question}") for width, question in questions]
    settings = json.dumps({"pages": addresses, "questions": asked}).replace("<", "\\u003c")
    probe.write_text(
        f"""<!DOCTYPE html><html><body><script type="application/json">{settings}</script>
        <script>
        const {{pages, questions}} = JSON.parse(document.querySelector("script").textContent);
        const passed = time => new Promise(resolve => setTimeout(resolve, time));
        const ask = address => new Promise(resolve => {{
          const frame = document.createElement("iframe"), answers = [];
          frame.style.cssText = "height: 900px; border: 0";
          frame.style.width = questions[0][0];
          frame.onload = async () => {{
            await passed(1500);
            for (const [width, question] of questions) {{
              if (frame.style.width !== width) {{
                frame.style.width = width;
                await passed(500);
              }}
              try {{ answers.push(await frame.contentWindow.Function(question)()); }}
              catch (error) {{ answers.push({{failed: String(error)}}); }}
            }}
            frame.remove();
            resolve(answers);
          }};
          frame.src = address;
          document.body.appendChild(frame);
        }});
        (async () => {{
          const answers = [];
          for (const address of pages) answers.push(await ask(address));
          document.body.innerHTML = "<pre id=answers></pre>";
          document.querySelector("#answers").textContent = JSON.stringify(answers);
        }})();
        </script></body></html>""",
        encoding="utf-8",
    )
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    patience = f"--virtual-time-budget={3000 * (len(pages) + 2)}"
    window = ["--window-size=1200,900", f"--user-data-dir={profile}", "--dump-dom", probe.as_uri()]
    command = [BROWSER, *FLAGS.split(), scheme, patience, *window]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    found = re.search(r'<pre id="answers">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the pages gave no answer; the browser said: {done.stderr[-500:]}"
    answers = json.loads(unescape(found.group(1)))
    said = re.findall(r"CONSOLE\W\d+\W*\] (.*)", done.stderr)
    notes = ('"[PST]: ', '"[togglebutton]: ')  # what the theme and an extension note of themselves
    assert [line for line in said if not line.startswith(notes)] == []
    every = [answer for some in answers for answer in some]
    assert [answer for answer in every if isinstance(answer, dict) and "failed" in answer] == []
    return answers


STEP_THROUGH = """
const player = document.querySelector(".tl-player");
if (!player) return null;
const steps = [...player.querySelectorAll(".tl-step")];
const shown = () => steps.filter(s => style(s).display !== "none").map(s => s.querySelector(".tl-number").textContent);
const key = name => player.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
const seen = {start: shown()};
player.querySelector(".tl-next").click(); seen.next = shown();
key("Home"); seen.home = shown();
seen.hacked = window.hacked === true;
return seen;
"""

# In light and in dark: how bright the page is, and the least contrast of any words with what is behind them.
PLAYER_COLOURS = """
const words = all(".tl-player b, .tl-player u, .tl-player .tl-facts, .tl-player .tl-what");
return {page: luminance(behind(document.querySelector(".tl-player"))), worst: worst(words)};
"""

PAGE_COLOURS = """
const kinds = ["p", "td", "li", "h1", "h2", "dd"].map(name => "article " + name).join(", ");
const mine = word => word.textContent.trim() && word.checkVisibility() && !word.closest(".tl-player, .cell_output");
return {
  page: luminance(behind(document.querySelector("article"))),
  worst: worst(all(kinds).filter(mine)),
  lost: all("article img").filter(i => !i.src.startsWith("http") && !i.naturalWidth).map(i => i.src),
  asked: performance.getEntriesByType("resource").map(r => r.name).filter(name => !/^(file|data|blob):/.test(name)),
  flat: all("article math").filter(m => m.checkVisibility() && !m.getBoundingClientRect().width).length,
};
"""

# How far below its base's baseline each subscript's baseline is, in the base's font size. The box of a text reaches
# from its font's ascent to its descent. (An element put in to mark the baseline would move it.)
SUBSCRIPTS = """
const pen = document.createElement("canvas").getContext("2d");
const baseline = part => {
  const token = part.matches("mi, mo, mn, mtext") ? part : part.querySelector("mi, mo, mn, mtext");
  const range = document.createRange();
  range.selectNodeContents(token);
  const box = range.getBoundingClientRect();
  pen.font = `${style(token).fontSize} ${style(token).fontFamily}`;
  const {fontBoundingBoxAscent: above, fontBoundingBoxDescent: below} = pen.measureText("x");
  return box.top + box.height * above / (above + below);
};
return all("msub, msubsup").filter(part => part.checkVisibility()).map(({children: [base, subscript]}) =>
  (baseline(subscript) - baseline(base)) / parseFloat(style(base).fontSize));
"""

# What a reader with a keyboard or a screen reader needs of every page.
WITHIN_REACH = """
const seen = selector => all(selector).filter(e => e.checkVisibility());
const levels = seen("article :is(h1, h2, h3, h4, h5, h6)").map(h => Number(h.tagName[1]));
const alts = e => [...e.querySelectorAll("img[alt]")].map(i => i.alt).join("");
const name = e => (e.getAttribute("aria-label") || e.title || e.textContent).trim() || alts(e);
const told = e => e.outerHTML.slice(0, 120);
const wide = e => e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(style(e).overflowX);
const reached = e => e.tabIndex >= 0 || e.querySelector("a, button, input");
const ids = all("[id]").map(e => e.id);
return {
  titles: levels.filter(level => level === 1).length,
  skipped: levels.filter((level, i) => i && level > levels[i - 1] + 1),
  nameless: seen("article a[href], article button, article summary").filter(e => !name(e)).map(told),
  wordless: all("article img").filter(i => !i.alt.trim()).map(told),
  unreachable: seen("article *").filter(e => wide(e) && !reached(e)).map(told),
  twice: ids.filter((id, i) => ids.indexOf(id) !== i && document.getElementById(id).closest("article")),
};
"""

# axe-core where it is at hand: AXE_CORE names its file axe.min.js (`npm pack axe-core` fetches it). What it finds
# outside the article is the theme's. It need not load style sheets of its own: pages from files may not.
AXE_CORE = os.environ.get("AXE_CORE")
AXE = """;return window.axe.run("article", {resultTypes: ["violations"], preload: false}).then(found => found.violations
  .filter(one => ["serious", "critical"].includes(one.impact))
  .map(one => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 150)]));"""

FOLDED = """
const parts = all("article .solution.dropdown > *, article .admonition.toggle > *, article .admonition.dropdown > *");
const contents = parts.filter(part => !part.matches(".admonition-title, button"));
const open = all("article details[open]").filter(part => part.textContent.includes("Solution"));
const visible = {opacityProperty: true, visibilityProperty: true};
return contents.filter(part => part.checkVisibility(visible) && part.getBoundingClientRect().height > 2).length
  + open.length;
"""


@pytest.fixture(scope="module")
def trace_page(tmp_path_factory):
    """A page that holds nothing but a trace player, over a vocabulary that tries to break out of it."""
    hack = "window.hacked = true"
    vocab = [" kite", f"<script>{hack}</script>", f"</div><img src=x onerror='{hack}'>", " box"]
    lm = TableLM.random(vocab, order=1, seed=3)
    page = tmp_path_factory.mktemp("trace") / "trace.html"
    Player(run(greedy(lm, [0, 1, 2]), max_new_tokens=6)).save(page)
    return page


@pytest.fixture(scope="module")
def seen_player(trace_page, tmp_path_factory):
    """What the page with the player answers: in light, its colours and its steps, and in dark its colours."""
    folder, questions = tmp_path_factory.mktemp("player"), [(1200, PLAYER_COLOURS), (1200, STEP_THROUGH)]
    return [look([trace_page], questions[: 2 - dark], folder, dark)[0] for dark in (False, True)]


def test_model_text_cannot_break_out_of_the_player_and_a_script_that_does_would_be_noticed(
    seen_player, trace_page, tmp_path
):
    assert seen_player[0][1]["hacked"] is False
    page = tmp_path / "hacked.html"
    text = trace_page.read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", "<img src='data:,' onerror='hacked = true'></body>"), encoding="utf-8")
    assert look([page], [(1200, STEP_THROUGH)], tmp_path)[0][0]["hacked"] is True


def test_the_player_can_be_read_in_both_colour_schemes(seen_player):
    for dark, (colours, *_) in enumerate(seen_player):
        assert (colours["page"] < 0.2) == dark
        assert colours["worst"] >= 4.5


# Every page of the book, as rendered from the committed outputs. To open one takes long: each is opened twice, in light
# on a screen and in dark on a phone (and then made wider), and asked everything.

WIDTHS = "return [document.documentElement.scrollWidth, innerWidth];"
LIGHT = {
    "reach": (1200, WITHIN_REACH), "colours": (1200, PAGE_COLOURS), "subscripts": (1200, SUBSCRIPTS),
    "folded": (1200, FOLDED), "steps": (1200, STEP_THROUGH),
}  # fmt: skip
DARK = {"reach, phone": (390, WITHIN_REACH), "widths, phone": (390, WIDTHS), "colours": (1200, PAGE_COLOURS)}


@pytest.fixture(scope="module")
def pages():
    site = built_site()
    return sorted([*site.glob("book/*.html"), *site.glob("notebooks/*.html")])


@pytest.fixture(scope="module")
def seen(pages, tmp_path_factory):
    """`seen(scheme, name)`: what each page answers to a question of `LIGHT` or `DARK`."""

    @cache
    def answers(scheme):
        questions = {"light": LIGHT, "dark": DARK}[scheme]
        found = look(pages, list(questions.values()), tmp_path_factory.mktemp(scheme), dark=scheme == "dark")
        return [dict(zip(questions, some, strict=True)) for some in found]

    return lambda scheme, name: {page: some[name] for page, some in zip(pages, answers(scheme), strict=True)}


@pytest.mark.parametrize(("scheme", "name"), [("light", "reach"), ("dark", "reach, phone")], ids=["1200", "390"])
def test_every_page_can_be_used_with_a_keyboard_and_a_screen_reader(seen, scheme, name):
    fine = {"titles": 1, "skipped": [], "nameless": [], "wordless": [], "unreachable": [], "twice": []}
    assert {page.name: answer for page, answer in seen(scheme, name).items() if answer != fine} == {}


@pytest.mark.skipif(not AXE_CORE, reason="AXE_CORE names no file axe.min.js")
@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 390)], ids=["light", "dark phone"])
def test_axe_finds_nothing_serious_in_any_article(pages, tmp_path, dark, width):
    question = Path(AXE_CORE).read_text(encoding="utf-8") + AXE
    for page in pages:
        assert look([page], [(width, question)], tmp_path, dark=dark) == [[[]]], page.name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_in_both_colour_schemes(seen, scheme):
    for page, answer in seen(scheme, "colours").items():
        assert (answer["page"] < 0.2) == (scheme == "dark"), page.name
        assert answer["worst"] >= 4.5, page.name
        assert answer["lost"] == [], page.name
        assert answer["asked"] == [], page.name
        assert answer["flat"] == 0, page.name


def test_no_page_is_wider_than_a_small_screen(seen):
    for page, (needed, given) in seen("dark", "widths, phone").items():
        assert given == 390 and needed <= given + 1, f"{page.name} is {needed} pixels wide on a screen of {given}"


def test_the_traces_in_the_chapters_step_without_a_kernel(seen):
    found = {page: steps for page, steps in seen("light", "steps").items() if steps and page.parent.name == "notebooks"}
    assert found, "no chapter shows a trace"
    for page, steps in found.items():
        assert (steps["start"], steps["next"], steps["home"]) == (["Step 1"], ["Step 2"], ["Step 1"]), page.name


def test_every_subscript_stands_below_the_line(seen):
    heights = seen("light", "subscripts")
    assert sum(map(len, heights.values())) > 200
    on_the_line = {page.name: sum(drop < 0.1 for drop in drops) for page, drops in heights.items()}
    assert {name: count for name, count in on_the_line.items() if count} == {}


def test_solutions_are_folded_until_asked_for(seen):
    for page, visible in seen("light", "folded").items():
        assert page.parent.name != "notebooks" or visible == 0, f"{page.name} shows {visible} parts of solutions"
