"""What a token looks like to a reader: its text, with spaces, line ends, control characters and loose bytes visible.

A token is not always text. It can be one byte of a letter, a space that the tokenizer drops when decoded alone, or a
mark such as end-of-text. `token_bytes` finds out what it stands for; `visible` writes it for a small box, `flowing`
for running text. Nothing here escapes for HTML or for matplotlib: that is done where it is drawn.
"""

import codecs
import unicodedata

_SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}


def visible(text):
    """Write `text` on one line with everything invisible made visible, for a box around one token.

    Spaces become ``␣``, line ends ``↵``, tabs ``⇥``; control, formatting and separator characters (which could turn
    the direction of the page's text or vanish) become their code point, such as ``⟨U+202E⟩``. The empty string
    becomes ``∅``.
    """
    shown = "".join(_SHOWN.get(character) or _code(character) for character in text)
    if shown and unicodedata.combining(shown[0]):
        shown = "◌" + shown  # an accent needs a letter to sit on
    return shown or "∅"


def flowing(text):
    """Write `text` for running text: as `visible`, but spaces stay spaces and a line really ends after its ``↵``."""
    return "".join({" ": " ", "\n": "↵\n", "\t": "⇥\t"}.get(character) or _code(character) for character in text)


def _code(character):
    """The character itself, or its code point in brackets where it would not be seen as itself."""
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"):
        return f"⟨U+{ord(character):04X}⟩"
    return character


class Labels:
    """The text of tokens, asked for by id.

    Parameters
    ----------
    source : LM, tokenizer, function, sequence of str, dict, or None
        What knows the tokens: anything with ``decode(list of ids)`` or a ``.tokenizer``, a function from an id to its
        text, or the texts themselves by id. With None, or for an id it does not know, a token is shown as its number,
        ``<7>``.
    """

    def __init__(self, source=None):
        self.source = source
        self._known = {}

    def bytes(self, token):
        """Return the bytes that `token` stands for: UTF-8, possibly only a part of a character."""
        token = int(token)
        if token not in self._known:
            self._known[token] = token_bytes(self.source, token)
        return self._known[token]

    def visible(self, token):
        """Return the label of one token for a box, as `visible` writes it; loose bytes as ``⟨E2⟩``."""
        return visible(self.bytes(token).decode("utf-8", "tutorlib-loose-bytes"))

    def flowing(self, tokens):
        """Return for each token what it adds to the running text, as a list of str.

        A character made of several tokens appears with the last of them; the others add the empty string.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("tutorlib-loose-bytes")
        parts = [decoder.decode(self.bytes(token)) for token in tokens]
        if parts:
            parts[-1] += decoder.decode(b"", final=True)
        return [flowing(part) for part in parts]


def token_bytes(source, token):
    """Find the bytes that one token stands for, whatever the kind of tokenizer.

    Parameters
    ----------
    source : LM, tokenizer, function, sequence of str, dict, or None
        See `Labels`.
    token : int
        Its id.

    Returns
    -------
    bytes
        UTF-8. ``b"<7>"`` if the source cannot say.
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
        # Decode it twice in a row and take one off: alone, many a token loses the space that it starts with.
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
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):  # SentencePiece's byte fallback
        return bytes([int(piece[3:5], 16)])
    if all(character in _BYTE_OF for character in piece):
        data = bytes(_BYTE_OF[character] for character in piece)
        if data.decode("utf-8", "replace").lstrip() == text.lstrip():
            return data
    return None


def _byte_level_alphabet():
    """The letters that byte-level BPE (GPT-2 and its heirs) writes for the 256 bytes: most stand for themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


_BYTE_OF = _byte_level_alphabet()


def _loose_bytes(error):
    """Write bytes that are no character as ``⟨E2⟩⟨82⟩``; an error handler for `bytes.decode`."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"⟨{byte:02X}⟩" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("tutorlib-loose-bytes", _loose_bytes)
