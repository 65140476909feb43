"""How a token is shown to a reader: its text, with spaces, line ends, control characters and loose bytes made visible.

A token is not always text. It can be one byte of a character, a space that the tokenizer drops if the token is decoded
alone, or a mark such as end-of-text. `vocabularies.token_bytes` finds out what it stands for; `visible` writes it for a
small box, `flowing` for running text. Nothing here escapes text for HTML or matplotlib: the modules that draw do that.
"""

import codecs
import unicodedata

from ..model.vocabularies import token_bytes

_SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}


def visible(text):
    """Write `text` on one line with invisible characters made visible, for a box around one token.

    Spaces become ``␣``, line ends ``↵``, tabs ``⇥``; control, formatting and separator characters (which could be
    invisible, or change the direction of the page's text) become their code point, such as ``⟨U+202E⟩``. The empty
    string becomes ``∅``.
    """
    shown = "".join(_SHOWN.get(character) or _code(character) for character in text)
    if shown and unicodedata.combining(shown[0]):
        shown = "◌" + shown  # an accent needs a letter to sit on
    return shown or "∅"


def flowing(text):
    """Write `text` for running text: like `visible`, but spaces stay spaces, and ``↵`` is followed by a line end."""
    return "".join({" ": " ", "\n": "↵\n", "\t": "⇥\t"}.get(character) or _code(character) for character in text)


def _code(character):
    """The character itself, or its code point in brackets if the character is not visible."""
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"):
        return f"⟨U+{ord(character):04X}⟩"
    return character


class Labels:
    """The texts of tokens, by id.

    Parameters
    ----------
    source : LM, tokenizer, function, sequence of str, dict, or None
        The source of the texts: anything with ``decode(list of ids)`` or a ``.tokenizer``, a function from an id to its
        text, or the texts themselves by id. If it is None, or does not know an id, the token is shown as its number,
        such as ``<7>``.
    """

    def __init__(self, source=None):
        self.source = source
        self._known = {}

    def bytes(self, token):
        """Return the bytes that `token` stands for: UTF-8, possibly only part of a character."""
        token = int(token)
        if token not in self._known:
            self._known[token] = token_bytes(self.source, token)
        return self._known[token]

    def visible(self, token):
        """Return the label of one token for a box, as `visible` writes it, with loose bytes as ``⟨E2⟩``."""
        return visible(self.bytes(token).decode("utf-8", "tutorlib-loose-bytes"))

    def flowing(self, tokens):
        """Return what each token adds to the running text, as a list of str.

        A character made of several tokens appears with the last of them; the others add the empty string.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("tutorlib-loose-bytes")
        parts = [decoder.decode(self.bytes(token)) for token in tokens]
        if parts:
            parts[-1] += decoder.decode(b"", final=True)
        return [flowing(part) for part in parts]


def labels_of(trace, labels=None):
    """Return `labels` as `Labels`; if they are None, use the trace's model (`lm`), or else its own `piece`."""
    if labels is None:
        labels = trace.lm if getattr(trace, "lm", None) is not None else getattr(trace, "piece", None)
    return labels if isinstance(labels, Labels) else Labels(labels)


def _loose_bytes(error):
    """Write bytes that are not a whole character as ``⟨E2⟩⟨82⟩``; an error handler for `bytes.decode`."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"⟨{byte:02X}⟩" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("tutorlib-loose-bytes", _loose_bytes)
