"""JSON that follows a schema, read by the engine llguidance, which is an optional package.

The engine forks its state, and refuses keywords that it knows and cannot follow. It drops words that it does not know
in silence, so these are refused here, by name. What this file does not do: change logits (`grammar`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..model.vocabularies import found_once
from .automaton import Vocabulary

# JSON as `json.dumps` writes it. Free white space would let a model write spaces without end.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# What the engine follows. (Others that it knows, such as "not", it refuses itself.)
FOLLOWED = {
    *("type", "enum", "const", "anyOf", "allOf", "$ref", "$defs", "definitions"),
    *("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
# What says nothing about which JSON is valid.
REMARKS = {
    *("$schema", "$id", "$comment", "title", "description", "default", "examples"),
    *("deprecated", "readOnly", "writeOnly"),
}
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")


def check_keywords(schema: Any, where: str = "the schema") -> None:
    """Raise ValueError for a keyword that would be dropped, with its name and place."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise ValueError(f"{where} must be a dict (or true or false), got {schema!r}")
    for key, value in schema.items():
        if key not in FOLLOWED | REMARKS:
            raise ValueError(f"{where} has the keyword {key!r}, which is not supported: an answer could break it")
        for inner, place in _inside(key, value):
            check_keywords(inner, f"{where}, {place}")


def _inside(key: str, value: Any) -> Iterator[tuple[Any, str]]:
    """The schemas inside the value of a keyword, with their places."""
    if key in _OF_SCHEMAS and isinstance(value, Mapping):
        for name, inner in value.items():
            yield inner, f"{key} {name!r}"
    elif key in ("items", "additionalProperties"):
        yield value, key
    elif key in ("anyOf", "allOf", "prefixItems") and isinstance(value, list):
        for place, inner in enumerate(value):
            yield inner, f"{key} {place}"


def json_schema(schema: Mapping, vocabulary: Vocabulary) -> Engine:
    """The JSON texts that follow a schema: a `Language` of `grammar`.

    Keys come in the order of ``properties``, and white space as `json.dumps` writes it.

    Raises
    ------
    ValueError
        For a keyword that is not supported, or a schema that no JSON follows.
    ImportError
        Without the package llguidance.
    """
    check_keywords(schema)
    return Engine(f"start: %json {json.dumps({'x-guidance': LAYOUT, **schema})}", vocabulary)


class Engine:
    """A language of llguidance, with the engine's own states.

    The engine could force tokens, which would change the distribution: a forced byte is no forced token. So it is told
    not to.

    Parameters
    ----------
    rules : str
        In the engine's own notation.
    vocabulary : Vocabulary
    """

    def __init__(self, rules: str, vocabulary: Vocabulary):
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise ImportError("a JSON schema needs the package llguidance: pip install llguidance") from None
        self._size = vocabulary.size
        self._spelled = np.zeros(vocabulary.size, dtype=bool)
        self._spelled[vocabulary.ids] = True
        self.start = LLMatcher(_tokenizer(vocabulary), f'%llguidance {{"no_forcing": true}}\n{rules}', log_level=0)
        if self.start.is_error():
            reason = self.start.get_error().splitlines()[0].partition("JSON schema: ")
            raise ValueError(f"the schema cannot be followed: {reason[2] or reason[0]}")
        if not self.ends(self.start) and not self.allowed(self.start).any():
            raise ValueError("the tokens of this vocabulary cannot write any JSON that follows the schema")

    def allowed(self, state: Any) -> np.ndarray:
        bits = np.frombuffer(state.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._size].astype(bool) & self._spelled

    def step(self, state: Any, token: int) -> Any:
        if not 0 <= token < self._size or not self._spelled[token] or not state.validate_tokens([token]):
            return None
        fork = state.deep_copy()
        fork.consume_token(token)
        return fork

    def ends(self, state: Any) -> bool:
        return state.is_accepting()

    def forced(self, state: Any) -> bytes:
        return b"" if state.is_accepting() else state.compute_ff_bytes()


@found_once
def _tokenizer(vocabulary: Vocabulary) -> Any:
    """The vocabulary as the engine holds it: made once, because for SmolLM2 it takes as long as eight calls."""
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Tokens(vocabulary)), n_vocab=vocabulary.size + 1)


class _Tokens:
    """The vocabulary as the engine asks for it, with one more token for its own end."""

    def __init__(self, vocabulary: Vocabulary):
        self.eos_token_id, self.bos_token_id = vocabulary.size, None
        self.tokens = [vocabulary.spellings.get(token, b"") for token in range(vocabulary.size)] + [b"<end>"]
        self.special_token_ids = [token for token, data in enumerate(self.tokens) if not data] + [self.eos_token_id]
        self._first = {data: token for token, data in reversed(list(enumerate(self.tokens)))}

    def __call__(self, text: bytes) -> list[int]:
        """Any tokens of the text: the engine asks for it only where it forces tokens."""
        return [self._first[bytes([byte])] for byte in bytes(text) if bytes([byte]) in self._first]
