"""The page that decodes: its models, tokenizer, rules and random draws are tutorlib's, and it answers whatever is done.

Most tests use two pages that hold nothing but live parts. They are served from this machine, and used in a real
browser. What they compare with is computed by the library.
"""

import functools
import itertools
import json
import os
import random
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import live_page
import make_kernel
import pytest
import torch
from built_site import built_site
from chromium import Chromium
from live_parts import CODE
from test_browser import AXE, AXE_CORE, BROWSER, HELPERS

from tutorlib import TableLM, beam_search, eagle, greedy, medusa, models, run, storyworld
from tutorlib.drafting.draft_trees import chain_draft
from tutorlib.measures.proof import target_distribution, total_variation
from tutorlib.sampling.warp import probabilities, temperature, top_p
from tutorlib.storyworld.questions import opening

# The last of these are as short as what readers type.
PROMPTS = [opening(f"live page {number}") for number in range(16)]
PROMPTS += ["This is a story about Mia and Ben.", "The red kite", "Once upon a time", "Mia is in the"]


def in_a_browser(test):
    without = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
    return pytest.mark.slow(without(test))


# What is written beside the scripts.


def test_the_committed_kernel_is_the_one_that_its_script_makes():
    assert make_kernel.TARGET.read_text(encoding="utf-8") == make_kernel.script()
    assert len(make_kernel.module()) < 5000


@pytest.mark.parametrize(
    "page, models", [("page", ("target", "draft")), ("trees", ("target", "medusa")), ("trees", ("target", "eagle"))]
)
def test_before_the_click_a_page_loads_less_than_100_kilobytes_and_after_it_less_than_13_megabytes(
    folder, page, models
):
    site = folder / "_static" / "live"
    code = sum((site / name).stat().st_size for name in live_page.files(PAGES[page]))
    assert code < 100e3
    assert code + sum((site / f"{name}.safetensors").stat().st_size for name in models) < 13e6


def test_the_page_knows_every_letter_that_the_models_have_read():
    known = json.loads(live_page.village().split("=", 2)[2].removesuffix(";\n"))
    assert set("".join(storyworld.story(f"unseen {seed}") for seed in range(50))) <= set(known["letters"])


PAGES = {"page": ("steps", "game", "race", "cost"), "trees": ("beams", "heads", "eagle")}


def write_pages(root):
    """Write the pages, and all that they need, into a folder."""
    folder = root / "_static" / "live"
    folder.mkdir(parents=True)
    for path in CODE.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    live_page.write_models(folder)
    for page, parts in PAGES.items():
        blocks = "".join(f'<div class="live" data-live="{name}"></div>' for name in parts)
        (root / f"{page}.html").write_text(
            '<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Live</title>'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<link rel="icon" href="data:,">{live_page.tags(parts, "_static/live/")}</head>'
            f'<body><article class="bd-article"><h1>Live</h1>{blocks}</article></body></html>',
            encoding="utf-8",
        )


class Server(SimpleHTTPRequestHandler):
    """Serves a folder, and lets nothing be kept; the files in `missing` cannot be had, those in `cut` only in part."""

    missing: tuple = ()
    cut: tuple = ()

    def send_head(self):
        name = Path(self.path).name
        if name in Server.missing:
            return self.send_error(404)
        return super().send_head()

    def copyfile(self, source, outputfile):
        outputfile.write(source.read(1000 if Path(self.path).name in Server.cut else -1))

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")
        if Path(self.path).name in Server.cut:
            self.close_connection = True
        super().end_headers()

    def log_message(self, *message):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    write_pages(folder)
    return folder


@pytest.fixture(scope="module")
def address(folder):
    """Where the page is served on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page.html"
    server.shutdown()


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def family():
    return models.load("storyworld", device="cpu")


# What is computed: the tests share one page, whose models are loaded once.

ENGINE = """
globalThis.tell = text => JSON.stringify(text);
globalThis.write = (method, prompt, count, settings) => {
  const {target: [target], draft: [draft] = []} = Live.desk.models.sessions, text = [...prompt];
  const models = method === "plain" ? [target] : [target, draft], steps = Live[method](...models, text, settings);
  while (text.length < prompt.length + count) steps.next();
  return text.slice(prompt.length, prompt.length + count);
};
globalThis.greedy = () => ({gamma: 4, rng: new Live.Greedy(), warp: {temperature: 0}});
/* Replays a method once for each outcome of its draws, and weighs each with its probability, as `Exhaustive` does. */
globalThis.distribution = (make, acceptAll = false) => {
  const found = {}, draws = [];
  do {
    let depth = 0, weight = 1;
    const draw = probs => {
      if (depth === draws.length) draws.push({ids: [...probs.keys()].filter(id => probs[id] > 0), at: 0});
      const {ids, at} = draws[depth++];
      weight *= probs[ids[at]];
      return ids[at];
    };
    const coin = p => draw([1 - Math.min(1, p), Math.min(1, p)]) === 1;
    const rng = {choose: probs => draw([...probs]), accept: p => acceptAll || coin(p)};
    const text = make(rng), key = text.join(",");
    found[key] = (found[key] ?? 0) + weight;
    while (draws.length && draws.at(-1).at + 1 === draws.at(-1).ids.length) draws.pop();
    if (draws.length) draws.at(-1).at += 1;
  } while (draws.length);
  return found;
};
globalThis.table = (rows, order) => ({context: 64, rows: (text, count = 1) => Array.from({length: count}, (_, i) => {
  const end = text.length - count + i + 1;
  return rows[text.slice(end - order, end)];
})});
Live.desk.ready(() => {}).then(found => Boolean(found));
"""


@pytest.fixture(scope="module")
def engine(window, address):
    window.open(address)
    assert window.ask(ENGINE)
    return window


def asked(engine, expression, **values):
    """The value of a JavaScript expression in which each of `values` is a constant."""
    constants = "".join(f"const {name} = {json.dumps(value)};" for name, value in values.items())
    return json.loads(engine.ask(f"(() => {{ {constants} return tell({expression}); }})()"))


@in_a_browser
def test_texts_have_the_tokens_that_python_gives_them(engine, family):
    draw = random.Random(1)
    pieces = [*" \t\n\r\x0b\x1c\x85\xa0\u2003\u3000\ufeff\u200b'stredvmlaéßñ漢字🙂9½٣!?.,-<|>"]
    pieces += ["<|end|>", "<|story|>", "'s", "'ll", " the", " kite", " \n ", "Mia"]
    texts = ["".join(draw.choices(pieces, k=draw.randint(0, 25))) for _ in range(500)]
    texts += [storyworld.story(seed) for seed in range(5)] + PROMPTS
    tokens = [family.target.encode(text) for text in texts]
    assert asked(engine, "texts.map(text => Live.desk.tokenizer.encode(text))", texts=texts) == tokens
    decoded = [family.target.decode(row) for row in tokens]
    assert asked(engine, "tokens.map(row => Live.desk.tokenizer.decode(row))", tokens=tokens) == decoded


@in_a_browser
@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "plain JavaScript"])
@pytest.mark.parametrize("name", live_page.MODELS)
def test_logits_are_those_of_the_library(engine, family, name, kernel):
    lm = getattr(family, name)
    text = lm.encode(storyworld.story("live page"))[:150]
    expected = lm.session(text[:-8]).feed(text[-8:])[-8:]
    model, session = f"Live.desk.models.{name}", f"Live.desk.models.sessions.{name}[1]"
    with_kernel = f"({model}.useKernel = {json.dumps(kernel)}, {session}.tokens.length = 0, 1)"
    rows = asked(engine, f"{with_kernel} && {session}.rows(text, 8).map(row => [...row])", text=text)
    engine.ask("Live.desk.useKernel()")
    assert float((torch.tensor(rows) - expected).abs().max()) < 1e-4


@in_a_browser
def test_a_call_with_several_tokens_and_one_after_a_rollback_give_the_same_logits(engine, family):
    text = family.target.encode(PROMPTS[0])
    far = """(() => {
      const [, session] = Live.desk.models.sessions.target, whole = session.rows(text, 5).map(row => [...row]);
      session.rows([...text.slice(0, 20), 5, 6, 7]);
      const alone = i => session.rows(text.slice(0, text.length - 4 + i))[0];
      return whole.map((row, i) => Math.max(...alone(i).map((logit, id) => Math.abs(logit - row[id]))));
    })()"""
    assert max(asked(engine, far, text=text)) < 1e-4


@in_a_browser
def test_greedy_texts_of_64_tokens_are_those_of_the_library_whatever_the_method(engine, family):
    prompts = [family.target.encode(prompt) for prompt in PROMPTS]
    expected = [run(greedy(family.target, prompt), max_new_tokens=64, stop=()).tokens for prompt in prompts]
    texts = "prompts.map(prompt => write(method, prompt, 64, greedy()))"
    assert asked(engine, texts, prompts=prompts, method="plain") == expected
    assert asked(engine, texts, prompts=prompts[-5:], method="speculative") == expected[-5:]
    few = prompts[-2:]
    without = "(Live.desk.models.target.useKernel = false, prompts.map(prompt => write('plain', prompt, 24, greedy())))"
    assert asked(engine, without, prompts=few) == [tokens[:24] for tokens in expected[-2:]]
    engine.ask("Live.desk.useKernel()")


@in_a_browser
@pytest.mark.parametrize("t, p", [(1, 1), (0.7, 0.9), (2, 0.5), (0.1, 0.05), (1, 0.75), (0.8, 0.95)])
def test_temperature_and_top_p_are_those_of_the_library(engine, t, p):
    draw = random.Random(7)
    rows = [[draw.gauss(0, 3) for _ in range(50)] for _ in range(10)]
    rows += [[float(draw.randint(0, 2)) for _ in range(8)] for _ in range(10)]  # many equals
    rows += [torch.tensor([0.5, 0.25, 0.15, 0.1]).double().log().tolist()]  # sums that hit the threshold exactly
    found = asked(engine, f"rows.map(row => [...Live.probabilities(row, {{temperature: {t}, topP: {p}}})])", rows=rows)
    for row, probs in zip(rows, found, strict=True):
        (expected,) = probabilities(torch.tensor([row], dtype=torch.float64), [temperature(t), top_p(p)])
        assert float((torch.tensor(probs, dtype=torch.float64) - expected).abs().max()) < 1e-12


def rows_of(lm, order):
    """A table model as JavaScript reads it: the log-probabilities after each context."""
    contexts = itertools.product(range(lm.vocab_size), repeat=order)
    return {",".join(map(str, context)): lm.log_probs(list(context)).tolist() for context in contexts}


@in_a_browser
@pytest.mark.parametrize(
    "gamma, length, warp", [(1, 3, {}), (2, 4, {}), (2, 4, {"temperature": 0.7, "topP": 0.8}), (3, 4, {})]
)
def test_speculative_sampling_in_the_page_has_the_targets_distribution(engine, gamma, length, warp):
    target, draft = (TableLM.random(2 if gamma == 3 else 3, 2, seed) for seed in (3, 8))
    warps = [temperature(warp["temperature"]), top_p(warp["topP"])] if warp else []
    expected = target_distribution(target, [0, 1], length, warp=warps)

    def distance(accept_all):
        code = f"""(() => {{
          const models = [target, draft].map(rows => table(rows, 2));
          return distribution(rng => {{
            const text = [0, 1], steps = Live.speculative(...models, text, {{gamma: {gamma}, rng, warp}});
            while (text.length < 2 + {length}) steps.next();
            return text.slice(2, 2 + {length});
          }}, {json.dumps(accept_all)});
        }})()"""
        found = asked(engine, code, target=rows_of(target, 2), draft=rows_of(draft, 2), warp=warp)
        found = {tuple(map(int, key.split(","))): probability for key, probability in found.items()}
        assert abs(sum(found.values()) - 1) < 1e-9
        return total_variation(found, expected)

    assert distance(accept_all=False) < 1e-9
    assert distance(accept_all=True) > 0.01  # the enumeration notices if no guess is ever rejected


@in_a_browser
def test_draws_can_be_repeated_and_follow_the_probabilities(engine):
    probs, count = [0.5, 0.0, 0.3, 0.2], 20000
    many = "(rng => Array.from({length: count}, () => rng.choose(probs)))(new Live.Seeded(seed))"
    draws = asked(engine, many, probs=probs, count=count, seed=7)
    same, other = (asked(engine, many, probs=probs, count=50, seed=seed) for seed in (7, 8))
    assert draws[:50] == same != other
    for token, probability in enumerate(probs):
        far = abs(draws.count(token) / count - probability)
        assert far < 4 * (probability * (1 - probability) / count) ** 0.5 + 1e-9
    accepted = asked(engine, f"(rng => Array.from({{length: {count}}}, () => rng.accept(0.25)))(new Live.Seeded(1))")
    assert abs(accepted.count(True) / count - 0.25) < 0.013


# The page with trees: beam search and Medusa.


@pytest.fixture(scope="module")
def trees(window, engine, address):
    window.open(address.replace("page.html", "trees.html"))
    assert window.ask(ENGINE)
    return window


@in_a_browser
@pytest.mark.parametrize("beams", range(1, 6))
def test_beam_search_in_the_page_finds_the_texts_and_scores_of_the_library(trees, family, beams):
    prompts = [family.target.encode(prompt) for prompt in PROMPTS[(beams - 1) * 4 :][:4]]
    prompts.append(prompts[0] + run(greedy(family.target, prompts[0]), 400).tokens[:-8])  # where stories end
    code = """prompts.map(prompt => {
      const settings = {beams, longest: 20, stop: Live.desk.tokenizer.end};
      const steps = [...Live.beamSearch(Live.desk.models.sessions.target[1], prompt, settings)];
      return [steps.map(({running}) => running.map(({tokens}) => tokens)),
        steps.at(-1).finished.map(({tokens, score}) => [tokens, score])];
    })"""
    for prompt, (running, finished) in zip(prompts, asked(trees, code, prompts=prompts, beams=beams), strict=True):
        *steps, last = run(beam_search(family.target, prompt, beams=beams, max_new_tokens=20)).steps
        # In its last step, a search that has finished may still show what ran on.
        expected = [[tokens for tokens, _ in step.hypotheses] for step in steps]
        assert running[: len(expected)] == expected
        assert [tokens for tokens, _ in finished] == [tokens for tokens, _ in last.hypotheses]
        assert [score for _, score in finished] == pytest.approx([score for _, score in last.hypotheses], abs=1e-4)


MEDUSA = """prompts.map(prompt => {
  const text = [...prompt], [session] = Live.desk.models.sessions.target, {choices} = Live.VILLAGE.models.medusa;
  const steps = Live.medusa(session, text, {choices, ...settings()}), rounds = [];
  while (text.length < prompt.length + count) { rounds.push(steps.next().value.tokens); }
  return rounds;
})"""


EAGLE = MEDUSA.replace("Live.medusa", "Live.eagle").replace("{choices, ", "{length: 5, ")
WITH_TREES = {
    MEDUSA: lambda family, prompt: medusa(family.target, family.medusa, prompt, shape=live_page.medusa()[1]),
    EAGLE: lambda family, prompt: eagle(family.target, family.eagle, prompt, shape=chain_draft(5)),
}
each_with_trees = pytest.mark.parametrize("method", WITH_TREES, ids=["medusa", "eagle"])


@in_a_browser
@each_with_trees
def test_a_method_with_a_tree_writes_the_tokens_of_the_library_in_the_same_rounds(trees, family, method):
    prompts = [family.target.encode(prompt) for prompt in PROMPTS]
    found = asked(trees, f"((settings, count) => {method})(greedy, 64)", prompts=prompts)
    for prompt, rounds in zip(prompts, found, strict=True):
        trace = run(WITH_TREES[method](family, prompt), 64, stop=())
        assert sum(rounds, [])[:64] == run(greedy(family.target, prompt), 64, stop=()).tokens
        assert rounds[:-1] == [step.tokens for step in trace.steps[:-1]]


@in_a_browser
@each_with_trees
def test_a_method_with_a_tree_draws_the_text_of_the_plain_loop(trees, family, method):
    prompts = [family.target.encode(prompt) for prompt in PROMPTS[:4]] + [[0] + [5, 9] * 240]
    settings = "() => ({rng: new Live.Seeded(5), warp: {temperature: 0.9}})"
    found = asked(trees, f"((settings, count) => {method})({settings}, 30)", prompts=prompts)
    plain = f"prompts.map(prompt => write('plain', prompt, 30, ({settings})()))"
    assert [sum(rounds, [])[:30] for rounds in found] == asked(trees, plain, prompts=prompts)


@in_a_browser
@pytest.mark.parametrize(("part", "pressed"), [("beams", 20), ("heads", 8), ("eagle", 6)])
def test_the_parts_with_trees_answer_whatever_is_done(window, address, monkeypatch, part, pressed):
    window.open(address.replace("page.html", "trees.html"))
    root = f"document.querySelector('[data-live={part}]')"
    said, press = f"{root}.querySelector('.live-status').textContent", f"{root}.querySelector('.live-main').click()"
    boxes = f"{root}.querySelectorAll('.live-box').length"
    heavy = (".safetensors", "target.js", "medusa.js", "eagle.js")
    assert not [asked for asked in window.asked if asked.endswith(heavy)]
    monkeypatch.setattr(Server, "missing", ("target.safetensors", "target.js"))
    window.ask(press)
    window.wait(f"/did not arrive/.test({said})")
    monkeypatch.setattr(Server, "missing", ())
    window.said.clear()
    window.ask(f"({press}, {press})")
    window.wait(boxes)
    for text in ("", "Mia hat 3 Bücher 🙂", "<img src=x onerror='window.hacked = true'>", "Mia" + " Mia" * 200):
        set_prompt(window, text, root)
        assert window.ask(boxes) == 0
        window.ask(press)
        window.wait(boxes, 60)
    assert window.ask("window.hacked") is None
    set_prompt(window, "Mia " * 600, root)
    window.ask(press)
    window.wait(f"/Shorten it/.test({said})")
    set_prompt(window, "This is a story about Mia and Ben.", root)
    for _ in range(pressed):
        count = window.ask(f"{root}.textContent")
        window.ask(press)
        window.wait(f"{root}.textContent !== {json.dumps(count)}")
    told = "the text that greedy decoding writes" if part == "beams" else "Tokens per call"
    assert told in window.ask(f"{root}.textContent")
    for dark, width in ((False, 1200), (True, 390)):
        window.ask(f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}'")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        window.call("Emulation.setDeviceMetricsOverride", **size)
        assert_it_can_be_read_and_fits(window, width)
    assert window.said == []


def assert_it_can_be_read_and_fits(window, width):
    assert window.ask("document.documentElement.scrollWidth") <= width
    words = ".live :is(p, span, b, li, dt, dd, u, button, label)"
    seen = f"all('{words}').filter(e => e.childElementCount === 0 && e.textContent.trim() && e.checkVisibility())"
    assert window.ask(f"(() => {{ {HELPERS} return worst({seen}); }})()") >= 4.5


# What a reader sees and does.

STEPS = "document.querySelector('[data-live=steps]')"
NEXT, WRITTEN = f"{STEPS}.querySelector('.live-main')", f"{STEPS}.querySelectorAll('.live-text u').length"
SAID = f"{STEPS}.querySelector('.live-status').textContent"


def press_next(window, seconds=20):
    count = window.ask(WRITTEN)
    window.ask(f"{NEXT}.click()")
    window.wait(f"{WRITTEN} === {count + 1}", seconds)


def set_field(window, field, value):
    window.ask(f"(one => {{ one.value = {json.dumps(value)}; one.dispatchEvent(new Event('input')); }})({field})")


def set_prompt(window, text, root=STEPS):
    set_field(window, f"{root}.querySelector('textarea')", text)


def set_slider(window, index, value):
    set_field(window, f"{STEPS}.querySelectorAll('input[type=range]')[{index}]", value)


@in_a_browser
@pytest.mark.parametrize("served", [True, False], ids=["http", "file"])
def test_the_page_decodes_and_asks_nobody_else(window, folder, address, served):
    own = address.rpartition("/")[0] if served else folder.as_uri()
    window.open(address if served else (folder / "page.html").as_uri())
    heavy = (".safetensors", "target.js", "draft.js")
    assert not [asked for asked in window.asked if asked.endswith(heavy)], "models are loaded before anybody asks"
    for _ in range(8):
        press_next(window)
    text = window.ask(f"{STEPS}.querySelector('.live-text').textContent")
    assert text.startswith("This is a story about Mia and Ben. Mia stood at the"), text
    window.ask("document.querySelector('[data-live=race] .live-main').click()")
    window.wait("document.querySelector('[data-live=race]').dataset.ratio", 120)
    assert window.said == []
    assert [asked for asked in window.asked if not asked.startswith((own, "data:"))] == []
    assert len([asked for asked in window.asked if asked.endswith(heavy)]) == 2


@in_a_browser
def test_the_page_of_the_book_decodes(window):
    window.open((built_site() / "book" / "live.html").as_uri())
    press_next(window)
    assert window.said == []


@in_a_browser
def test_everything_can_be_done_with_the_keyboard(window, address):
    window.open(address)
    reached = []
    for _ in range(40):
        window.press("Tab")
        name = window.ask("(e => e.closest('.live') ? e.textContent || e.value || e.type : '')(document.activeElement)")
        reached.append(name)
        if name == "Next token":
            break
    assert "Next token" in reached
    window.press("Enter")
    window.wait(f"{WRITTEN} === 1")
    window.press(" ")
    window.wait(f"{WRITTEN} === 2")
    # What is drawn anew does not take the focus.
    assert window.ask("document.activeElement.textContent") == "Next token"
    controls = "[...document.querySelectorAll('.live :is(button, input, textarea)')]"
    assert window.ask(f"{controls}.filter(e => e.tabIndex !== 0).length") == 0 < window.ask(f"{controls}.length")
    nameless = "[...document.querySelectorAll('.live :is(input, textarea)')].filter(e => !e.labels.length).length"
    assert window.ask(nameless) == 0


@in_a_browser
def test_two_clicks_at_once_write_one_token(window, address):
    window.open(address)
    window.ask(f"({NEXT}.click(), {NEXT}.click(), {NEXT}.click())")
    window.wait(f"{WRITTEN} > 0")
    assert window.ask(f"new Promise(done => setTimeout(() => done({WRITTEN}), 300))") == 1
    # A prompt that changes while the models are reading is the one that is continued.
    set_prompt(window, PROMPTS[0])
    window.ask(f"{NEXT}.click()")
    set_prompt(window, "The red kite")
    assert window.ask(f"new Promise(done => setTimeout(() => done({WRITTEN}), 500))") <= 1
    assert window.ask(f"{STEPS}.querySelector('.live-text').textContent").startswith("The red kite")
    assert window.said == []


@in_a_browser
def test_any_prompt_gets_an_answer(window, address):
    window.open(address)
    note = f"{STEPS}.querySelector('.live-note .live-note').textContent"
    set_prompt(window, "")
    assert "begins a story of its own" in window.ask(note)
    press_next(window)
    set_prompt(window, "Mia hat 3 Bücher 🙂")
    assert "never read “3”, “ü”, “🙂”" in window.ask(note)
    press_next(window)
    set_prompt(window, "Mia " * 600)
    assert "601 tokens" in window.ask(note) or "can read 512" in window.ask(note)
    window.ask(f"{NEXT}.click()")
    window.wait(f"/Shorten it/.test({SAID})")
    assert window.ask(WRITTEN) == 0
    set_prompt(window, "Mia" + " Mia" * 509)  # room for one token
    press_next(window)
    window.ask(f"{NEXT}.click()")
    window.wait(f"/as many as the models can read/.test({SAID})")
    set_prompt(window, "<img src=x onerror='window.hacked = true'>")
    press_next(window)
    assert window.ask("window.hacked") is None
    assert window.said == []


@in_a_browser
def test_sliders_may_stand_at_their_ends(window, address):
    window.open(address)
    for gamma, heat, nucleus in itertools.product((1, 8), (0, 2), (0.05, 1)):
        for index, value in enumerate((gamma, heat, nucleus)):
            set_slider(window, index, value)
        for _ in range(3):
            press_next(window)
    window.ask(f"{STEPS}.querySelector('[value=plain]').click()")
    press_next(window)
    assert window.said == []


@in_a_browser
def test_a_story_that_has_ended_is_not_continued(window, address):
    window.open(address)
    set_slider(window, 1, 0)
    set_prompt(window, PROMPTS[0])
    while not window.ask(SAID):
        press_next(window)
    assert "has ended" in window.ask(SAID)
    count = window.ask(WRITTEN)
    window.ask(f"{NEXT}.click()")
    assert window.ask(f"new Promise(done => setTimeout(() => done({WRITTEN}), 300))") == count


@in_a_browser
@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize("fault", ["missing", "cut"])
def test_a_file_that_does_not_arrive_is_a_sentence_and_the_next_press_tries_again(
    window, address, monkeypatch, name, fault
):
    window.open(address)
    monkeypatch.setattr(Server, fault, (f"{name}.safetensors", f"{name}.js"))
    window.ask(f"{NEXT}.click()")
    window.wait(f"/did not arrive/.test({SAID})")
    monkeypatch.setattr(Server, fault, ())
    press_next(window)
    assert not window.ask(SAID)


@in_a_browser
def test_where_a_server_lacks_the_weights_the_scripts_bring_them(window, address, monkeypatch):
    window.open(address)
    monkeypatch.setattr(Server, "missing", ("target.safetensors", "draft.safetensors"))
    press_next(window)


# How long the page has been deaf at a time, in milliseconds.
GAPS = """
(() => {
  let last = performance.now();
  window.gap = 0;
  setInterval(() => {
    window.gap = Math.max(window.gap, performance.now() - last);
    last = performance.now();
  }, 10);
})()
"""


@in_a_browser
@pytest.mark.parametrize(
    "without", ["delete globalThis.WebAssembly", "WebAssembly.compile = async () => { throw Error(); }"]
)
def test_without_webassembly_the_page_says_so_and_stays_alive(window, address, without):
    script = window.call("Page.addScriptToEvaluateOnNewDocument", source=without)["identifier"]
    try:
        window.open(address)
        window.ask(GAPS)
        set_prompt(window, " ".join(PROMPTS[:3]))
        press_next(window, 120)
        switch = "document.querySelector('.live-switch')"
        assert "no WebAssembly" in window.ask(f"{switch}.textContent")
        assert window.ask(f"{switch}.querySelector('input').disabled")
        assert window.ask("window.gap") < 3000  # reading the whole prompt at once would take longer
    finally:
        window.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    assert window.said == []


@in_a_browser
def test_the_kernel_can_be_switched_off_and_the_costs_measured(window, address):
    window.open(address)
    window.ask("document.querySelector('.live-switch input').click()")
    press_next(window)
    assert window.ask("Live.desk.models.target.useKernel") is False
    window.ask("document.querySelector('[data-live=cost] .live-main').click()")
    window.wait("/Without the kernel/.test(document.querySelector('[data-live=cost] .live-status').textContent)", 120)
    assert window.ask("Live.desk.models.target.useKernel") is False  # as it was before
    assert window.said == []


@in_a_browser
@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 390)], ids=["light", "dark phone"])
def test_the_page_in_use_can_be_read_and_fits(window, address, dark, width):
    window.open(address, width=width, dark=dark)
    window.ask(f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}'")
    for _ in range(3):  # the third guess is rejected: everything that there is is shown
        press_next(window)
    assert window.ask(f"{STEPS}.querySelectorAll('.live-line').length") == 2
    assert_it_can_be_read_and_fits(window, width)
    if AXE_CORE:
        found = window.ask(f"(async () => {{ {Path(os.environ['AXE_CORE']).read_text(encoding='utf-8')} {AXE} }})()")
        assert found == []


@in_a_browser
def test_in_the_game_only_the_rule_of_the_paper_keeps_the_targets_distribution(window, address):
    window.open(address)
    game = "document.querySelector('[data-live=game]')"
    accept = f"{game}.querySelectorAll('.live-buttons button')[0]"
    for _ in range(30):  # more than there are turns
        window.ask(f"{accept}.click()")
    cells = "row => [...row.cells].map(cell => cell.textContent)"
    rows = window.ask(f"[...{game}.querySelectorAll('tbody tr')].map({cells})")
    distances = {name: float(distance) for name, _, distance in rows}
    assert distances["You"] > 0.1 and distances["Accept everything"] > 0.1 and distances["Reject everything"] > 0.1
    assert distances["Accept with probability min(1, p/q)"] == 0
    outcome = "Live.outcome([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [1, 0.5, 1])"  # 0.25 of the draws are rejected
    assert window.ask(outcome) == pytest.approx([0.2 + 0.25, 0.25, 0.3])
    assert window.said == []
