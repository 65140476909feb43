"""Mirostat: a filter that keeps a text's surprise near a target, and so remembers what the text has surprised it with.

Its state is one number, and a function of the text: which tokens were written, and how surprising each was when it was
written. The warp keeps this number for every beginning of a text that it was asked about (`beginnings`). So a rejected
draft leaves nothing to undo, and a method that checks several tokens at once writes the distribution of plain sampling.
"""

import math

import torch

from ..arguments import is_number, number_text
from .beginnings import Beginnings
from .checks import Warp


def mirostat(tau: float, eta: float = 0.1) -> Warp:
    """Keep the tokens whose surprise, -log2 p, is at most a limit that follows the text.

    The limit begins at ``2 · tau``. After each token, it changes by ``-eta · (surprise - tau)``, where the surprise is
    that of the token among the tokens that were kept. So after surprising tokens the filter becomes stricter, and the
    mean surprise stays near `tau` bits.

    Its limit depends on the rows before, which a list of tokens does not contain. So the histories must be `History`
    objects over one list that grows, which is what the methods pass; a text begins where its first row is. A draft's
    rows are filtered with the limit at the last token that the target has read, and change nothing: this affects how
    many of its tokens are accepted, but not what is written.

    Source: Basu et al. (2021), "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity" (arXiv
    2007.14966), in the authors' second version, which needs no estimate of the vocabulary's shape. llama.cpp calls it
    mirostat 2.

    Parameters
    ----------
    tau : float
        Bits per token. Above 0 and finite; otherwise ValueError.
    eta : float
        How fast the limit changes. Above 0 and finite; otherwise ValueError.
    """
    for word, value in (("tau", tau), ("eta", eta)):
        if not is_number(value) or value <= 0:
            raise ValueError(f"mirostat needs a finite number above 0 as {word}, got {value!r}")
    name = f"mirostat({number_text(tau)}, {number_text(eta)})"
    # What a row tells is the surprise of each next token, in bits, among those that are kept.
    texts = Beginnings(name, 2 * tau, lambda limit, surprise, token: limit - eta * (float(surprise[token]) - tau))

    def surprises(row: torch.Tensor) -> torch.Tensor:
        return -row.double().log_softmax(-1) / math.log(2)

    def kept(row: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
        row = row.masked_fill((surprises(row) > limit) & (row < row.max()), -math.inf)
        return row, surprises(row)

    return texts.warp(kept)
