"""JSON that SmolLM2 writes under ten schemas: what is valid, and how many tokens a call of the model gives.

Every method writes under the same grammar. Rows that draw do so at temperature 1, with one seed for each schema.
Nothing is timed here.
"""

import json

from ...constraints.grammar import grammar
from ...decoders.eagle import eagle
from ...decoders.jump_ahead import jump_ahead
from ...decoders.prompt_lookup import prompt_lookup
from ...decoders.sample import sample
from ...drafting.draft_trees import dynamic_tree
from ...running.decoding import run
from ...sampling.randomness import Seeded
from . import Experiment, Setting, counts

SETTING: Setting = {"model": "SmolLM2-135M-Instruct", "tokens": 50, "gamma": 8, "tree": [8, 4, 4]}
NUMBER, WORD = {"type": "integer", "minimum": 0, "maximum": 200}, {"type": "string", "maxLength": 20}


def thing(**properties) -> dict:
    """The schema of an object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def some(items: dict, least: int, most: int) -> dict:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


# What is asked for -> its schema. The last four repeat their keys.
SCHEMAS = {
    "a person called Ada": thing(name=WORD, age=NUMBER),
    "a red car": thing(make=WORD, colour={"enum": ["red", "green", "blue"]}, electric={"type": "boolean"}),
    "the capital of France": thing(city=WORD, country={"const": "France"}),
    "three colours": some(WORD, 3, 3),
    "a cat": thing(name=WORD, age={"type": ["integer", "null"], "minimum": 0}, sounds=some(WORD, 1, 2)),
    "the weather today": thing(sunny={"type": "boolean"}, degrees={"type": "number", "minimum": -40, "maximum": 50}),
    "two friends": some(thing(first_name=WORD, age_in_years=NUMBER), 2, 2),
    "three fruits": some(thing(fruit_name=WORD, is_sweet={"type": "boolean"}), 3, 3),
    "a short shopping list": thing(items=some(thing(item_name=WORD, quantity=NUMBER), 2, 3)),
    "two points on a map": some(thing(latitude=NUMBER, longitude=NUMBER), 2, 2),
}  # fmt: skip
REPEATING = tuple(SCHEMAS)[6:]

METHODS = {
    "plain": lambda family, prompt, language, rng: sample(family.target, prompt, rng=rng, warp=[language]),
    "jump_ahead": lambda family, prompt, language, rng: jump_ahead(
        family.target, prompt, grammar=language, rng=rng),
    "prompt_lookup": lambda family, prompt, language, rng: prompt_lookup(
        family.target, prompt, gamma=SETTING["gamma"], rng=rng, warp=[language]),
    "EAGLE-3": lambda family, prompt, language, rng: eagle(
        family.target, family.eagle3, prompt, shape=dynamic_tree(*SETTING["tree"]), rng=rng, warp=[language]),
}  # fmt: skip
SETTINGS = {f"{name}, {way}": (name, way) for way in ("greedy", "seed 1") for name in METHODS}


def prompt_for(family, what: str) -> list[int]:
    return family.chat(f"Write JSON that describes {what}.")


def row(family, name: str, schemas=None) -> dict:
    """The figures of one row: about half a minute on one core.

    Parameters
    ----------
    family : Family
    name : str
        A key of `SETTINGS`.
    schemas : sequence of str, optional
        Only these keys of `SCHEMAS`; by default all.

    Returns
    -------
    dict
        ``tokens``, ``calls`` and ``per_call``; ``repeating``: tokens per call for the schemas that repeat their keys;
        ``finished``: how many texts ended; ``valid``: how many of these follow their schema, as jsonschema judges;
        ``texts``: all texts.
    """
    method, way = SETTINGS[name]
    traces = {
        what: run(
            METHODS[method](
                family,
                prompt_for(family, what),
                grammar(schema, family.target),
                None if way == "greedy" else Seeded(100 * int(way[-1]) + number),
            ),
            SETTING["tokens"],
            progress=False,
        )
        for number, (what, schema) in enumerate(SCHEMAS.items())
        if schemas is None or what in schemas
    }
    ended = {what: trace.text for what, trace in traces.items() if trace.stopped == "stop"}
    again = [trace for what, trace in traces.items() if what in REPEATING]
    return {
        **counts(list(traces.values())),
        "repeating": counts(again)["per_call"] if again else None,
        "finished": len(ended),
        "valid": sum(follows(text, SCHEMAS[what]) for what, text in ended.items()),
        "texts": {what: trace.text for what, trace in traces.items()},
    }


def follows(text: str, schema: dict) -> bool:
    """Whether a text is JSON that follows a schema, by the judgement of jsonschema."""
    import jsonschema

    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


EXPERIMENT = Experiment("constraints", SETTING, SETTINGS, row, "smollm2")
