"""A Sphinx extension for pages on which the village's models decode, in the reader's browser and without a kernel.

A page takes part by an element such as ``<div class="live" data-live="steps">``, in which stands what is shown without
JavaScript. Such a page gets those scripts of ``book/_static/live`` that its parts need (`PARTS`), in an order in which
each finds what it needs. When all pages are made, this extension writes beside the scripts what it takes from the
package, so that nothing is in the repository twice:

    village.js                              the tokenizer and the models' configurations
    target.safetensors, draft.safetensors   the weights, as they are in tutorlib/weights; fetched over HTTP
    medusa.safetensors                      the first Medusa heads (`HEADS`)
    eagle.safetensors                       the EAGLE-1 network
    target.js, draft.js, medusa.js ...      the same in base64: a page that was opened from a file may not fetch
    palette.css                             the colours of tutorlib/viz/palette.py
    bugs.js                                 the wrong decoders of tutorlib/course/zoo
"""

import base64
import json
import re
from pathlib import Path

from safetensors.torch import load_file, save

from tutorlib.course import zoo
from tutorlib.course.zoo.specimens import MARK, NOT_FOUND
from tutorlib.storyworld import story
from tutorlib.viz.palette import DARK, LIGHT, css_variables

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "tutorlib" / "weights" / "storyworld"
MODELS = ("target", "draft")
HEADS = 3  # with more, the target and its heads would be more than 13 MB
BEFORE = ("kernel.js", "village.js", "tokenizer.js", "model.js", "decoder.js", "loading.js", "drawing.js")
AFTER = ("page.js",)
TREES = ("trees.css", "tree.js", "branches.js")
# What each part needs. `page.js` starts the parts that run a model; the others start themselves.
PARTS = {
    "steps": (*BEFORE, "asking.js", "steps.js", *AFTER),
    "race": (*BEFORE, "race.js", *AFTER),
    "cost": (*BEFORE, "race.js", *AFTER),
    "game": (*BEFORE, "game.js", *AFTER),
    "beams": (*BEFORE, "asking.js", *TREES, "beam_search.js", "beams.js", *AFTER),
    "heads": (*BEFORE, "asking.js", *TREES, "tree_decoder.js", "medusa_decoder.js", "rounds.js", *AFTER),
    "eagle": (*BEFORE, "asking.js", *TREES, "tree_decoder.js", "eagle_decoder.js", "rounds.js", *AFTER),
    "why": ("drawing.js", "why_cases.js", "why.js"),
    "bug": ("drawing.js", "bugs.js", "bug.js"),
}
STYLES = ("palette.css", "live.css")  # of every part
SIGN = re.compile(r'data-live="(\w+)"')
STORIES = 400  # enough that they hold every letter that the models have read


def files(parts):
    """The style sheets and scripts of a page with these parts, in their order."""
    names = dict.fromkeys(name for part in sorted(parts) for name in PARTS[part] if name not in AFTER)
    return [*STYLES, *names, *(name for name in AFTER if any(name in PARTS[part] for part in parts))]


def tags(parts, folder=""):
    """The same as HTML, for a page that Sphinx does not make."""
    style, script = '<link rel="stylesheet" href="{}">', '<script defer src="{}"></script>'
    return "".join((style if name.endswith(".css") else script).format(folder + name) for name in files(parts))


def medusa(weights=WEIGHTS):
    """The first heads: the bytes of their safetensors file, and the part of their tree that these heads guess."""
    stored = load_file(weights / "medusa" / "medusa_lm_head.safetensors")
    config = json.loads((weights / "medusa" / "config.json").read_text(encoding="utf-8"))
    kept = {name: tensor for name, tensor in stored.items() if int(name.partition(".")[0]) < HEADS}
    return save(kept), [path for path in config["tutorlib"]["choices"] if len(path) <= HEADS]


def eagle(weights=WEIGHTS):
    """The EAGLE-1 network, as the bytes of a safetensors file, without the embeddings: they are the target's."""
    stored = load_file(weights / "eagle" / "model.safetensors")
    embeddings = load_file(weights / "target" / "model.safetensors")["model.embed_tokens.weight"]
    assert stored.pop("embed_tokens.weight").equal(embeddings)
    return save(stored)


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
    heads, choices = medusa(weights)
    known["models"]["medusa"] = {"bytes": len(heads), "choices": choices}
    known["models"]["eagle"] = {"bytes": len(eagle(weights))}
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
    stored = {name: (weights / name / "model.safetensors").read_bytes() for name in MODELS} | {
        "medusa": medusa(weights)[0],
        "eagle": eagle(weights),
    }
    for name, content in stored.items():
        (folder / f"{name}.safetensors").write_bytes(content)
        text = base64.b64encode(content).decode()
        (folder / f"{name}.js").write_text(f'Live.arrived("{name}", "{text}");\n', encoding="utf-8")


def add_scripts(app, pagename, templatename, context, doctree):
    parts = set(SIGN.findall(context.get("body", "")))
    if parts:
        app.live_pages = True
        for name in files(parts):
            if name.endswith(".css"):
                app.add_css_file(f"live/{name}")
            else:
                app.add_js_file(f"live/{name}", loading_method="defer")


def finish(app, error):
    if error is None and getattr(app, "live_pages", False):
        write_models(Path(app.outdir) / "_static" / "live")


def setup(app):
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
