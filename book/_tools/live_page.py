"""A Sphinx extension for pages on which the village's models decode, in the reader's browser and without a kernel.

A page takes part by an element such as ``<div class="live" data-live="steps">``, in which stands what is shown without
JavaScript. Such a page gets the scripts of ``book/_static/live``, in an order in which each finds what it needs; one
with nothing but the calculator (``data-live="why"``) gets only those that need no model. When
all pages are made, this extension writes beside the scripts what it takes from the package, so that nothing is in the
repository twice:

    village.js                              the tokenizer and the models' configurations
    target.safetensors, draft.safetensors   the weights, as they are in tutorlib/weights; fetched over HTTP
    target.js, draft.js                     the same in base64: a page that was opened from a file may not fetch
    palette.css                             the colours of tutorlib/viz/palette.py
"""

import base64
import json
import re
import shutil
from pathlib import Path

from tutorlib.storyworld import story
from tutorlib.viz.palette import DARK, LIGHT, css_variables

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "tutorlib" / "weights" / "storyworld"
MODELS = ("target", "draft")
SCRIPTS = ("kernel.js", "village.js", "tokenizer.js", "model.js", "decoder.js")
SCRIPTS += ("loading.js", "drawing.js", "steps.js", "race.js", "game.js", "page.js")
STYLES = ("palette.css", "live.css")
CALCULATOR = ("drawing.js", "why_cases.js", "why.js")
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


def write_models(folder, weights=WEIGHTS):
    """Write into a folder of the site what the scripts there take from the package."""
    (folder / "village.js").write_text(village(weights), encoding="utf-8")
    (folder / "palette.css").write_text(palette(), encoding="utf-8")
    for name in MODELS:
        stored = weights / name / "model.safetensors"
        shutil.copyfile(stored, folder / f"{name}.safetensors")
        text = base64.b64encode(stored.read_bytes()).decode()
        (folder / f"{name}.js").write_text(f'Live.arrived("{name}", "{text}");\n', encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    parts = set(SIGN.findall(context.get("body", "")))
    if parts:
        app.live_pages = True
        models = SCRIPTS if parts - {"why"} else ()
        for name in dict.fromkeys(models + (CALCULATOR if "why" in parts else ())):
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
