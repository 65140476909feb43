"""Two tokenizers: find the tokens that they share, and convert a text from the tokens of one to those of the other.

Tokens are compared by the bytes that they stand for, not by the spelling in the vocabulary: ``"Ġred"``, ``"▁red"`` and
``" red"`` are the same token. This also works for tokens that are part of a character. Special tokens stand for a role
and not for their text, so they are compared by role: the token that ends a text, and the token that begins it.

The conversion affects only how often the draft's guesses are right. It does not affect the output of a method: the
target's tokens are the text, and nothing here changes them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..arguments import check_whole_number
from .protocol import is_model

if TYPE_CHECKING:
    from .lm import LM

# In a text without spaces, how many tokens are converted again together before the older ones are kept.
LONGEST_WORD = 32


# ----------------------------------------------------------------------------------------------------------------------
# What a token stands for


def token_bytes(source, token):
    """Find the bytes that a token stands for, for any kind of tokenizer.

    Parameters
    ----------
    source : LM, tokenizer, function, sequence of str, dict, or None
        An object with ``decode(list of ids)`` or with a ``.tokenizer``, a function from an id to its text, or the texts
        themselves by id.
    token : int
        Its id.

    Returns
    -------
    bytes
        UTF-8, possibly only a part of a character. ``b"<7>"`` if `source` does not know the token.
    """
    unknown = f"<{token}>".encode()
    if source is None:
        return unknown
    if not hasattr(source, "decode"):
        try:
            return (source(token) if callable(source) else source[token]).encode("utf-8", "surrogatepass")
        except (LookupError, TypeError, AttributeError):
            return unknown
    tokenizer = getattr(source, "tokenizer", None) or source
    convert = getattr(tokenizer, "convert_ids_to_tokens", None)
    try:
        # Decode it twice in a row and remove one: decoded alone, many tokens lose the space that they start with.
        once, twice = _decode(tokenizer, [token]), _decode(tokenizer, [token, token])
        text = twice[len(once) :] if twice.startswith(once) and len(twice) > len(once) else once
        piece = convert(token) if convert else None
    except (LookupError, TypeError, ValueError, OverflowError):  # no tokenizer, or none with such a token
        return unknown
    if "\N{REPLACEMENT CHARACTER}" in text and isinstance(piece, str):
        return _piece_bytes(piece, text) or text.encode()
    if not text and isinstance(piece, str):
        text = piece  # a mark that decoding skips
    return text.encode("utf-8", "surrogatepass")


def _decode(tokenizer, tokens):
    """Decode with special tokens shown and nothing cleaned up, where the tokenizer has such options."""
    try:
        return tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    except TypeError:
        return tokenizer.decode(tokens)


def _piece_bytes(piece, text):
    """The bytes of a vocabulary entry that is not whole UTF-8 and decodes to `text`; None if its form is unknown."""
    if _is_spelled_byte(piece):
        return bytes([int(piece[3:5], 16)])
    if all(character in _BYTE_OF for character in piece):
        data = bytes(_BYTE_OF[character] for character in piece)
        if data.decode("utf-8", "replace").lstrip() == text.lstrip():
            return data
    return None


def _is_spelled_byte(piece) -> bool:
    """Whether a vocabulary entry is SentencePiece's way to spell a single byte, ``<0x41>``."""
    return isinstance(piece, str) and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _byte_level_alphabet():
    """The letters that byte-level BPE (GPT-2 and its heirs) writes for the 256 bytes: most stand for themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


_BYTE_OF = _byte_level_alphabet()


# ----------------------------------------------------------------------------------------------------------------------
# A vocabulary


def found_once(find):
    """Let a function of an `LM` compute its result once for each `LM`, and remember it while the `LM` exists."""
    found = weakref.WeakKeyDictionary()

    @functools.wraps(find)
    def call(lm):
        lm = getattr(lm, "original", lm)
        if lm not in found:
            found[lm] = find(lm)
        return found[lm]

    return call


@found_once
def spellings(lm: LM) -> dict[int, bytes]:
    """The bytes of every ordinary token of a model, by id in ascending order, without special tokens.

    Computed once for each `LM` and then remembered, because it takes about 0.1 ms per token.
    """
    ids = sorted(set(lm.tokenizer.get_vocab().values()) - special_tokens(lm))
    known = {token: token_bytes(lm.tokenizer, token) for token in ids if 0 <= token < lm.vocab_size}
    return {token: spelling for token, spelling in known.items() if spelling}


def special_tokens(lm: LM) -> set[int]:
    """The special tokens of a model, which do not stand for text."""
    added = getattr(lm.tokenizer, "added_tokens_decoder", {})
    marks = {token for token, entry in added.items() if entry.special}
    return {*marks, *getattr(lm.tokenizer, "all_special_ids", ()), *lm.stop_tokens}


def roles(lm: LM) -> dict[str, int]:
    """The special tokens with a known role: the "end" of a text and, if it is a different token, its "begin"."""
    ends = [getattr(lm.tokenizer, "eos_token_id", None), *lm.stop_tokens]
    found = {"end": next((token for token in ends if token is not None), None)}
    found["begin"] = getattr(lm.tokenizer, "bos_token_id", None)
    if found["begin"] == found["end"]:
        del found["begin"]
    return {role: token for role, token in found.items() if token is not None and 0 <= token < lm.vocab_size}


@dataclass(frozen=True)
class SharedTokens:
    """The tokens that two models have in common: ``target[i]`` and ``draft[i]`` are the ids of the same token.

    Attributes
    ----------
    target, draft : tuple of int
        Two tuples of the same length, without repeated ids, in ascending order of the target's ids.
    ordinary : int
        How many of them stand for text; the rest are special tokens with the same role.
    """

    target: tuple[int, ...]
    draft: tuple[int, ...]
    ordinary: int


def shared_tokens(target: LM, draft: LM) -> SharedTokens:
    """Find the tokens that two models share: ordinary tokens by their bytes, special tokens by their role.

    The order of a vocabulary makes no difference. If several tokens stand for the same bytes, the lowest id is used;
    the spelling of a byte such as ``<0x41>`` is used only if there is no other token.
    """
    by_bytes = [_tokens_by_bytes(lm) for lm in (target, draft)]
    by_role = [roles(lm) for lm in (target, draft)]
    pairs = [(by_bytes[0][spelling], by_bytes[1][spelling]) for spelling in by_bytes[0].keys() & by_bytes[1].keys()]
    ordinary = len(pairs)
    pairs += [(by_role[0][role], by_role[1][role]) for role in by_role[0].keys() & by_role[1].keys()]
    pairs.sort()
    return SharedTokens(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs), ordinary)


@found_once
def _tokens_by_bytes(lm: LM) -> dict[bytes, int]:
    tokens: dict[bytes, int] = {}
    spelled_bytes = {}
    for token, spelling in spellings(lm).items():
        is_spelled = len(spelling) == 1 and _is_spelled_byte(lm.tokenizer.convert_ids_to_tokens(token))
        (spelled_bytes if is_spelled else tokens).setdefault(spelling, token)
    return spelled_bytes | tokens


# ----------------------------------------------------------------------------------------------------------------------
# A text


def tokens_of(lm: LM, text: str) -> list[int] | None:
    """The ordinary tokens of a text as it would appear inside a longer text, with nothing added in front.

    Many tokenizers add a space before the first word. In that case a line end is put in front of the text, and its
    tokens are removed afterwards.

    Returns
    -------
    list of int, or None if the tokenizer cannot read the text
    """
    spelling = spellings(lm)
    try:
        tokens = _plain_tokens(lm, text)
        if b"".join(spelling.get(token, b"") for token in tokens) != text.encode("utf-8", "surrogatepass"):
            front, both = _plain_tokens(lm, "\n"), _plain_tokens(lm, "\n" + text)
            tokens = both[len(front) :] if both[: len(front)] == front else tokens
    except Exception:  # tokenizers itself raises nothing more precise for a text that it has no tokens for
        return None
    return [token for token in tokens if token in spelling]


def _plain_tokens(lm: LM, text: str) -> list[int]:
    """The tokens of a text, without the special tokens that the tokenizer adds."""
    backend = getattr(lm.tokenizer, "backend_tokenizer", None)
    if backend is not None:  # the same without transformers' preparations, which take thirty times as long
        return backend.encode(text, add_special_tokens=False).ids
    try:
        return list(lm.tokenizer(text, add_special_tokens=False)["input_ids"])
    except TypeError:
        return list(lm.tokenizer(text)["input_ids"])


class Translation:
    """Converts a growing text from the tokens of one model to the tokens of another.

    It works word by word: when tokens are added, only the last word, which may be incomplete, is converted again.
    Everything before it stays, so a session over the result has little to compute again. An incomplete character is
    left out until the rest of it has come. Special tokens are converted by their role, or left out.

    Parameters
    ----------
    source : LM
        The model whose tokens are given.
    other : LM
        The model whose tokens are wanted.
    """

    def __init__(self, source: LM, other: LM):
        self.other = other
        self._spelling = spellings(source)
        known, wanted = roles(source), roles(other)
        self._marks = {known[role]: wanted[role] for role in known if role in wanted}
        # What the other tokenizer puts before every text: a token for the beginning, or nothing.
        self._opening = [token for token in other.encode("") if token == wanted.get("begin")]
        self._read = 0  # how many of the source's tokens belong to finished words
        self._finished: list[int] = []  # those words in the other's tokens

    def __call__(self, tokens: list[int]) -> list[int]:
        """Convert `tokens`, the whole text so far, which must begin with the tokens given in the last call."""
        last = tokens[self._read :]
        start = max((place for place, token in enumerate(last) if self._begins_word(token)), default=0)
        if len(last) - start > LONGEST_WORD:
            start = len(last) - 1
        if start:
            self._finished += self._written(last[:start])
            self._read += start
        translated = self._finished + self._written(last[start:])
        return translated if translated[:1] == self._opening else self._opening + translated

    def _begins_word(self, token: int) -> bool:
        spelling = self._spelling.get(token)
        return spelling is None or spelling[:1].isspace()

    def _written(self, tokens: list[int]) -> list[int]:
        written, run = [], []  # run: the spellings of ordinary tokens in a row
        for token in tokens:
            if token in self._spelling:
                run.append(self._spelling[token])
            else:
                written += self._words(run)
                run = []
                if token in self._marks:
                    written.append(self._marks[token])
        return written + self._words(run)

    def _words(self, run: list[bytes]) -> list[int]:
        tokens = tokens_of(self.other, whole_characters(b"".join(run)))
        if tokens is not None:
            return tokens
        # Something cannot be read: leave out the tokens that contain it.
        parts = (tokens_of(self.other, whole_characters(spelling)) for spelling in run)
        return [token for part in parts for token in part or ()]


def whole_characters(data: bytes) -> str:
    """Decode UTF-8; bytes that are not a whole character are left out."""
    return data.decode("utf-8", "ignore")


# ----------------------------------------------------------------------------------------------------------------------
# What can be wrong with a pair


def check_pair(target: LM, draft: LM, gamma) -> None:
    """Raise ValueError if an argument of a method for two tokenizers is wrong."""
    if not is_model(draft):
        raise ValueError(f"the draft must be an LM, got {type(draft).__name__}: wrap it as LM(model, tokenizer)")
    for name, lm in (("target", target), ("draft", draft)):
        if lm.tokenizer is None:
            raise ValueError(f"the {name} has no tokenizer, so the text of its tokens is unknown: LM(model, tokenizer)")
    if target.device != draft.device:
        raise ValueError(f"the target is on {target.device} and the draft on {draft.device}: move one to the other's")
    check_whole_number(gamma, 1, "gamma must be how many tokens to draft at a time")


def room_to_draft(target: LM, text: list[int], draft: LM, context: list[int]) -> int:
    """How many tokens may be drafted after `text`, which is `context` in the draft's tokens; none if this is 0 or less.

    The target's context must also hold the token that the target adds after them. The draft reads all of them but the
    last.
    """
    return min(target.context - len(text) - 1, draft.context - len(context) + 1)


# ----------------------------------------------------------------------------------------------------------------------
# One vocabulary

# Advice in error messages.
_OTHER_TOKENIZERS = "what can be done with others is in chapter 14"


def check_same_vocabulary(advice: str = _OTHER_TOKENIZERS, /, **lms: LM) -> None:
    """Raise ValueError unless two models, named as in ``expert=..., amateur=...``, have the same tokens with the same
    ids.

    Models with equal tokenizers may have vocabularies of different sizes, because many vocabularies are padded with ids
    that are not tokens. If one of the models has no tokenizer, only the sizes can be compared. `advice` is the end of
    the error message: what to do with models of different families.
    """
    (first, one), (second, other) = lms.items()
    known = one.tokenizer is not None and other.tokenizer is not None
    # text -> id
    vocabs = [lm.tokenizer.get_vocab() for lm in (one, other)] if known and one.tokenizer is not other.tokenizer else []
    if vocabs[:1] == vocabs[1:] and (known or one.vocab_size == other.vocab_size):
        return
    if one.vocab_size != other.vocab_size:
        difference = f"{one.vocab_size} tokens and {other.vocab_size}"
    else:
        token = min(token for _, token in vocabs[0].items() ^ vocabs[1].items())
        texts = [lm.tokenizer.convert_ids_to_tokens(token) for lm in (one, other)]
        difference = f"different tokens: {token} is {texts[0]!r} here and {texts[1]!r} there"
    raise ValueError(
        f"the {first} and the {second} must have one vocabulary, but they have {difference}. Choose models of one "
        f"family; {advice}"
    )


def check_prompt_of_both(prompt: Sequence[int], name: str, lm: LM) -> None:
    """Raise ValueError if the second model, called `name` in the message, cannot read the prompt of the first."""
    unknown = [token for token in prompt if token >= lm.vocab_size]
    if len(prompt) > lm.context:
        problem = f"has {len(prompt)} tokens, but the {name}'s context is {lm.context}"
    elif unknown:
        problem = f"holds {unknown[:5]}, outside the {name}'s vocabulary of {lm.vocab_size} tokens"
    else:
        return
    raise ValueError(f"the prompt {problem}: take another {name}, or do without one")
