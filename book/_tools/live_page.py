"""A Sphinx extension for pages on which the village's models decode, in the reader's browser and without a kernel.

A page takes part by an element such as ``<div class="live" data-live="steps">``, in which stands what is shown without
JavaScript. Such a page gets the scripts of ``book/_static/live``, in an order in which each finds what it needs; one
whose parts need no model (`WITHOUT_MODELS`) gets only theirs. When
all pages are made, this extension writes beside the scripts what it takes from the package, so that nothing is in the
repository twice:

    village.js                              the tokenizer and the models' configurations
    target.safetensors, draft.safetensors   the weights, as they are in tutorlib/weights; fetched over HTTP
    target.js, draft.js                     the same in base64: a page that was opened from a file may not fetch
    palette.css                             the colours of tutorlib/viz/palette.py
    bugs.js                                 the wrong decoders of tutorlib/course/zoo
"""

import base64
import json
import re
import shutil
from pathlib import Path

from tutorlib.course import zoo
from tutorlib.course.zoo.specimens import MARK, NOT_FOUND
from tutorlib.storyworld import story
from tutorlib.viz.palette import DARK, LIGHT, css_variables

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "tutorlib" / "weights" / "storyworld"
MODELS = ("target", "draft")
SCRIPTS = ("kernel.js", "village.js", "tokenizer.js", "model.js", "decoder.js")
SCRIPTS += ("loading.js", "drawing.js", "steps.js", "race.js", "game.js", "page.js")
STYLES = ("palette.css", "live.css")
WITHOUT_MODELS = {"why": ("drawing.js", "why_cases.js", "why.js"), "bug": ("drawing.js", "bugs.js", "bug.js")}
SIGN = re.compile(r'data-live="(\w+)"')
STORIES = 400  # enough that they hold every letter that the models have read


def village(weights=WEIGHTS):
    """The text of village.js: what a page must know of the models before it loads them."""
    tokenizer = json.loads((weights / "target" / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    known = {
        "vocab": sorted(vocab, key=vocab.get),
        "merges": tokenizer["model"]["merges"],
        "special": [token["id"] for token in tokenizer["added_tokens"]],
        "letters": "".join(sorted(set("".join(map(story, range(STORIES)))))),
        "models": {
            name: {
                "config": json.loads((weights / name / "config.json").read_text(encoding="utf-8")),
                "bytes": (weights / name / "model.safetensors").stat().st_size,
            }
            for name in MODELS
        },
    }
    return f"(globalThis.Live ??= {{}}).VILLAGE = {json.dumps(known, separators=(',', ':'))};\n"


def palette():
    """The text of palette.css: the colours of kinds of token, on a light and on a dark page."""
    return f'.live{{{css_variables(LIGHT)}}}\nhtml[data-theme="dark"] .live{{{css_variables(DARK)}}}\n'


def bugs():
    """The text of bugs.js: the zoo's decoders, line by line, and which line is wrong. Names that tell are left out."""
    found = []
    for specimen in zoo.EVERY:
        lines = [line for line in specimen.code.replace(f"def {specimen.name}(", "def method(", 1).splitlines() if line]
        wrong = [number for number, line in enumerate(lines) if MARK in line]
        if len(lines) < 7:
            continue
        where, _, link = specimen.source.partition(": https://")
        found.append(
            {
                "lines": [line.partition(MARK)[0].rstrip() for line in lines],
                "wrong": wrong,
                "note": "; ".join(lines[number].partition(MARK)[2].strip(" :") for number in wrong),
                "what": specimen.what.replace("`", ""),
                "why": specimen.why.replace("`", ""),
                "published": where or NOT_FOUND.rstrip("."),
                "link": f"https://{link}" if link else "",
            }
        )
    return f"(globalThis.Live ??= {{}}).BUGS = {json.dumps(found, ensure_ascii=False)};\n"


def write_models(folder, weights=WEIGHTS):
    """Write into a folder of the site what the scripts there take from the package."""
    (folder / "village.js").write_text(village(weights), encoding="utf-8")
    (folder / "palette.css").write_text(palette(), encoding="utf-8")
    (folder / "bugs.js").write_text(bugs(), encoding="utf-8")
    for name in MODELS:
        stored = weights / name / "model.safetensors"
        shutil.copyfile(stored, folder / f"{name}.safetensors")
        text = base64.b64encode(stored.read_bytes()).decode()
        (folder / f"{name}.js").write_text(f'Live.arrived("{name}", "{text}");\n', encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    parts = set(SIGN.findall(context.get("body", "")))
    if parts:
        app.live_pages = True
        for name in dict.fromkeys(name for part in sorted(parts) for name in WITHOUT_MODELS.get(part, SCRIPTS)):
            app.add_js_file(f"live/{name}", loading_method="defer")
        for name in STYLES:
            app.add_css_file(f"live/{name}")


def finish(app, error):
    if error is None and getattr(app, "live_pages", False):
        write_models(Path(app.outdir) / "_static" / "live")


def setup(app):
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
