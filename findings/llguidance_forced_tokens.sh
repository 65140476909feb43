#!/bin/sh
# llguidance 1.9.1: where only one text can follow, the mask allows only the tokenizer's own spelling of it.
#
# One would expect: the mask allows each token with which the text is still the beginning of a valid string.
# What happens: if the rest, or the next stretch, is forced, only the token that the tokenizer would use there is allowed;
#   other valid spellings are masked, though they may be consumed. How far this reaches depends on the stretch: after
#   "yes|no, thanks" began with "no", the comma is masked; in "kitten, thanks" even the first token has one choice of four.
#   With the grammar option no_forcing the masks are those of brute force.
# Why it matters: a mask that differs from brute force here is no bug in your own automaton; drafts from a model or a
#   lookup that spell the text differently are rejected; and the model reads other tokens than it would have written.
# Seen (all token paths of the expression; 35 tokens; masks that differ from brute force, as it comes / no_forcing):
#   yes|no, thanks   2 of 26 / 0 of 26     first: after "no" the token "," is missing
#   kitten, thanks   15 of 109 / 0 of 109  first: at the start the tokens "k" "ki" "kit" are missing
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile llguidance==1.9.1 numpy==2.4.6 || exit 2
"$dir/venv/bin/python" - <<'PY'
import sys

import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

PIECES = ["<end>", *"abcdefghijklmnopqrstuvwxyz ,", "kit", "ki", "tt", "ten", "kitt", "no", ", thanks", "yes"]


class Longest:
    """A tokenizer that takes the longest piece that fits."""

    eos_token_id, bos_token_id, special_token_ids, tokens = 0, None, [0], [piece.encode() for piece in PIECES]

    def __call__(self, text):
        text, found = text if isinstance(text, bytes) else text.encode(), []
        while text:
            piece = max((piece for piece in self.tokens[1:] if text.startswith(piece)), key=len)
            found.append(self.tokens.index(piece))
            text = text[len(piece):]
        return found


tokenizer = LLTokenizer(TokenizerWrapper(Longest()))


def differences(strings, head):
    """The masks on all token paths of these strings, and those that differ from brute force, with what they lack."""
    grammar, paths, wrong = LLMatcher.grammar_from_lark(f"{head}start: /{'|'.join(strings)}/"), [()], []
    for path in paths:
        text, matcher = "".join(PIECES[i] for i in path), LLMatcher(tokenizer, grammar)
        if not matcher.consume_tokens(list(path)):
            sys.exit("llguidance no longer consumes a valid spelling.")
        mask = llguidance.numpy.allocate_token_bitmask(1, len(PIECES))
        llguidance.numpy.fill_next_token_bitmask(matcher, mask)
        allowed = {i for i in range(len(PIECES)) if mask[0, i // 32] >> (i % 32) & 1}
        valid = {i for i, piece in enumerate(PIECES) if i and any(s.startswith(text + piece) for s in strings)}
        paths += [(*path, i) for i in sorted(valid)]
        if allowed - {0} != valid:
            wrong.append((text, [PIECES[i] for i in sorted(valid - allowed)], [PIECES[i] for i in sorted(allowed - valid)]))
    return len(paths), wrong


counts = []
for strings in (["yes", "no, thanks"], ["kitten, thanks"]):
    for head in ("", '%llguidance {"no_forcing": true}\n'):
        total, wrong = differences(strings, head)
        counts.append((len(wrong), total))
        print(strings, "no_forcing" if head else "as it comes", f"{len(wrong)} of {total} masks differ", wrong[:1])
if counts != [(2, 26), (0, 26), (15, 109), (0, 109)]:
    sys.exit("llguidance's forced tokens no longer narrow the masks in the way described here.")
PY
