"""Constraints: a language, described by an expression or a schema, and the tokens that keep a text inside it."""
