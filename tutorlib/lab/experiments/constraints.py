"""JSON that SmolLM2 writes under ten schemas: what is valid, how many tokens a call gives, and what a method saves.

Every method writes under the same grammar. Rows that draw do so at temperature 0.7, with a seed of its own for each
schema. `faster` is the one figure that depends on the machine: it compares processor seconds, taken in turns.
"""

import json
import time

from ...constraints.grammar import grammar
from ...decoders.eagle import eagle
from ...decoders.jump_ahead import jump_ahead
from ...decoders.prompt_lookup import prompt_lookup
from ...decoders.sample import sample
from ...drafting.draft_trees import chain_draft
from ...running.decoding import run
from ...running.trace import Trace
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature
from . import Experiment, Setting, counts

SETTING: Setting = {"model": "SmolLM2-135M-Instruct", "tokens": 50, "gamma": 8, "chain": 2, "temperature": 0.7}
TIMED = 2  # times in turns, of which the quickest counts
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
    "plain": lambda family, prompt, language, rng, warp: sample(
        family.target, prompt, rng=rng, warp=[language, *warp]),
    "jump_ahead": lambda family, prompt, language, rng, warp: jump_ahead(
        family.target, prompt, grammar=language, rng=rng, warp=warp),
    "prompt_lookup": lambda family, prompt, language, rng, warp: prompt_lookup(
        family.target, prompt, gamma=SETTING["gamma"], rng=rng, warp=[language, *warp]),
    "EAGLE-3": lambda family, prompt, language, rng, warp: eagle(
        family.target, family.eagle3, prompt, shape=chain_draft(SETTING["chain"]), rng=rng, warp=[language, *warp]),
}  # fmt: skip
WAYS = "greedy", "seed 1", "seed 2"
SETTINGS = {f"{name}, {way}": (name, way) for way in WAYS for name in METHODS}


def prompt_for(family, what: str) -> list[int]:
    return family.chat(f"Write JSON that describes {what}.")


def row(family, name: str, schemas=None) -> dict:
    """The figures of one row: about a minute on one core.

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
        ``faster``: how many times as long the plain loop takes for these (None with a seed, or for some schemas only);
        ``finished``: how many texts ended; ``valid``: how many of these follow their schema, as jsonschema judges;
        ``texts``: all texts.
    """
    method, way = SETTINGS[name]
    chosen = [what for what in SCHEMAS if schemas is None or what in schemas]
    traces = {what: _written(family, method, way, what)[0] for what in chosen}
    ended = {what: trace.text for what, trace in traces.items() if trace.stopped == "stop"}
    again = [what for what in chosen if what in REPEATING]
    return {
        **counts(list(traces.values())),
        "repeating": counts([traces[what] for what in again])["per_call"] if again else None,
        "faster": faster(family, method) if (schemas, way) == (None, "greedy") else None,
        "finished": len(ended),
        "valid": sum(follows(text, SCHEMAS[what]) for what, text in ended.items()),
        "texts": {what: trace.text for what, trace in traces.items()},
    }


def _written(family, method: str, way: str, what: str) -> tuple[Trace, float]:
    """One text, and the processor seconds that it took, without those for reading the schema."""
    number, language = list(SCHEMAS).index(what), grammar(SCHEMAS[what], family.target)
    rng = None if way == "greedy" else Seeded(100 * int(way[-1]) + number)
    warp = [] if rng is None else [temperature(SETTING["temperature"])]
    began = time.process_time()
    trace = run(
        METHODS[method](family, prompt_for(family, what), language, rng, warp), SETTING["tokens"], progress=False
    )
    return trace, time.process_time() - began


def faster(family, method: str) -> float:
    """How many times as long the greedy plain loop takes for the schemas that repeat their keys, prompt included."""
    if method == "plain":
        return 1.0
    seconds = []
    for what in REPEATING:
        pairs = [[_written(family, one, "greedy", what)[1] for one in ("plain", method)] for _ in range(TIMED)]
        seconds.append([min(times) for times in zip(*pairs)])
    plain, other = map(sum, zip(*seconds))
    return plain / other


def follows(text: str, schema: dict) -> bool:
    """Whether a text is JSON that follows a schema, by the judgement of jsonschema."""
    import jsonschema

    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


EXPERIMENT = Experiment("constraints", SETTING, SETTINGS, row, "smollm2")
