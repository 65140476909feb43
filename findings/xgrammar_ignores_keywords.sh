#!/bin/sh
# xgrammar 0.2.8: some keywords of a JSON schema are dropped without a word, and others forbid valid strings.
#
# One would expect: a schema with a keyword that the compiler cannot express is refused (as llguidance does) or warned
#   about; what is accepted is valid.
# What happens: uniqueItems, not, if/then, dependentRequired, keywords beside $ref or enum, and anyOf beside properties
#   are ignored: no error, no message. In the other direction, a string with minLength takes no escape such as \n, and a
#   number with a minimum takes at most six decimals.
# Why it matters: "the output follows the schema" holds for a part of the schema only: validate the finished text too.
# Seen (schema and text, both by the letter of JSON Schema):
#   invalid but accepted: the eight of INVALID below; valid but refused: the two of VALID below
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile torch==2.13.0 transformers==5.23.0 numpy==2.4.6 pydantic==2.14.4 apache-tvm-ffi==0.1.15.post2 || exit 2
"$dir/venv/bin/pip" install -q --no-compile --no-deps xgrammar==0.2.8 || exit 2  # without Triton
"$dir/venv/bin/python" - <<'PY'
import json
import sys

import xgrammar

TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
INVALID = [
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1, 1]"),
    ({"type": "string", "not": {"const": "no"}}, '"no"'),
    ({"not": {"type": "string"}}, '"no"'),
    ({"enum": ["a", 3], "type": "string"}, "3"),
    ({**TWO, "required": ["a"], "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, '{"a": 1}'),
    ({**TWO, "dependentRequired": {"a": ["b"]}}, '{"a": 1}'),
    ({**TWO, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "{}"),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}, "minimum": 5}, "3"),
]
VALID = [({"type": "string", "minLength": 2}, '"a\\n"'), ({"type": "number", "minimum": 0}, "0.12345678")]
CONTROL = [({"type": "string"}, '"a\\n"'), ({"type": "number"}, "0.12345678"), ({"type": "integer", "minimum": 5}, "7")]
REFUSED = [({"type": "integer", "minimum": 5}, "3"), ({**TWO, "required": ["a"]}, "{}")]

tokens = ["<end>", *map(chr, range(32, 127))]
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(tokens, stop_token_ids=[0]))


def accepts(schema, text):
    """Whether a model could write this text, character by character, and end."""
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return bool(matcher.accept_string(text) and matcher.accept_token(0))


for name, cases, expected in (("invalid", INVALID, True), ("valid", VALID, False), ("valid", CONTROL, True),
                              ("invalid", REFUSED, False)):
    for schema, text in cases:
        seen = accepts(schema, text)
        print(f"{name}, {'accepted' if seen else 'refused'}: {text} for {json.dumps(schema)}")
        if seen is not expected:
            sys.exit("xgrammar's treatment of this schema has changed.")
PY
