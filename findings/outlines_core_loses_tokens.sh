#!/bin/sh
# outlines-core 0.2.14: a token that goes on after a complete match is masked, unless it completes the next match.
#
# One would expect: a mask allows a token if the text with it is the beginning of a string that matches. Then every
#   string of the expression can be written, whatever its tokens are.
# What happens: where the text could end, a token stays allowed only if the text with it could end too. With single
#   characters as tokens, an optional part of two or more characters is never written: no fraction in a number, nothing
#   but the empty text of (ab)*. If a token happens to hold the whole part, these strings come back.
# Why it matters: the constraint removes right answers in silence, and which ones depends on the tokenizer: two models
#   with the same schema have different languages. Compare the mask with brute force on a few short expressions.
# Seen (all strings of at most five tokens that can be written):
#   [0-9](\.[0-9])?  tokens 0 1 .       0 1
#   [0-9](\.[0-9])?  tokens 0 1 . .0    0 1 0.0 1.0
#   (ab)*            tokens a b         the empty text
#   (ab)*            tokens ab          the empty text, ab, abab, ababab, ...
#   the expression of {"type": "number"}, tokens 1 . -   1 -1 11 -11 111 -111 1111 -1111 11111
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile outlines-core==0.2.14 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

from outlines_core import Guide, Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema


def texts(expression, tokens):
    """What can be written with at most five tokens, found by trying all that the mask allows."""
    index = Index(expression, Vocabulary(0, {token: [i] for i, token in enumerate(tokens, 1)}))
    found, paths = set(), [()]
    for path in paths:
        guide = Guide(index)
        for i in path:
            guide.advance(i)
        for i in guide.get_tokens():
            if i == 0:
                found.add("".join(tokens[j - 1] for j in path))
            elif len(path) < 5:
                paths.append((*path, i))
    return found


number, pairs = r"[0-9](\.[0-9])?", "(ab)*"
schema = build_regex_from_schema('{"type": "number"}')
seen = [texts(number, ["0", "1", "."]), texts(number, ["0", "1", ".", ".0"]), texts(pairs, ["a", "b"]),
        texts(pairs, ["ab"]), texts(schema, ["1", ".", "-"])]
for found in seen:
    print(sorted(found, key=lambda text: (len(text), text)))
if (seen[:3] != [{"0", "1"}, {"0", "1", "0.0", "1.0"}, {""}] or seen[3] != {"ab" * n for n in range(6)}
        or any("." in text for text in seen[4])):
    sys.exit("outlines-core's masks no longer lose the tokens after a complete match.")
PY
