"""Warps that change all logits of a row and drop none: temperatures, and a bias for chosen tokens.

What this file does not do: drop tokens (`filters`), or read the text so far (`penalties`).
"""

import math
import numbers
from collections.abc import Mapping

import torch

from ..arguments import is_number, number_text
from .checks import Filter, named


def temperature(t: float) -> Filter:
    """Divide the logits by `t`: below 1, likely tokens become more likely; above 1, unlikely tokens do.

    Source: Ackley, Hinton and Sejnowski (1985), "A Learning Algorithm for Boltzmann Machines"; for language models
    Holtzman et al. (2020), section 3.3.

    Parameters
    ----------
    t : float
        Above 0 and finite; otherwise ValueError. Values near 0 are nearly greedy; for greedy decoding pass
        ``rng=None``.

    Examples
    --------
    >>> temperature(0.5)(torch.tensor([[0.0, 1.0]]))
    tensor([[0., 2.]])
    """
    if not is_number(t) or t <= 0:
        raise ValueError(f"temperature needs a finite number above 0, got {t!r}: for greedy decoding pass rng=None")

    def temperature_warp(logits, histories=None):
        return logits / t

    return named(temperature_warp, f"temperature({number_text(t)})")


def dynamic_temperature(t: float, spread: float, exponent: float = 1.0) -> Filter:
    """A temperature between `t - spread` and `t + spread`, higher where the model is less certain.

    With the entropy H of the row and its largest possible value, the logarithm of the number of tokens that are left,
    the temperature is ``t - spread + 2 · spread · (H / log count) ** exponent``. So a row that is certain gets the
    lowest temperature, and an even one the highest. A row with one token left is not changed.

    Source: llama.cpp, pull request 4972 (2024), where the settings are called dynatemp_range and dynatemp_exponent.

    Parameters
    ----------
    t, spread, exponent : float
        Finite, with `spread` from 0 to below `t`, and `exponent` above 0; otherwise ValueError.
    """
    if not is_number(t) or not is_number(spread) or not 0 <= spread < t:
        raise ValueError(f"dynamic_temperature needs t above spread, and spread of 0 or more, got {t!r} and {spread!r}")
    if not is_number(exponent) or exponent <= 0:
        raise ValueError(f"dynamic_temperature needs an exponent above 0, got {exponent!r}")

    def dynamic_temperature_warp(logits, histories=None):
        log_probs = logits.double().log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).nansum(-1, keepdim=True)
        largest = (logits > -math.inf).sum(-1, keepdim=True).clamp(min=2).double().log()
        share = (entropy / largest).clamp(0, 1) ** exponent
        return (logits / (t - spread + 2 * spread * share)).to(logits.dtype)

    parts = ", ".join(map(number_text, (t, spread) if exponent == 1 else (t, spread, exponent)))
    return named(dynamic_temperature_warp, f"dynamic_temperature({parts})")


def logit_bias(added: Mapping[int, float]) -> Filter:
    """Add a number to the logits of chosen tokens.

    Source: OpenAI's API reference, "logit_bias".

    Parameters
    ----------
    added : mapping from token ids to numbers
        -inf forbids a token. ValueError if a key is not a token id, or a value is NaN or +inf. An id outside the
        vocabulary is an error when the warp is used.
    """
    if not isinstance(added, Mapping):
        raise ValueError(f"logit_bias needs a dict from token ids to numbers, got {added!r}")
    for token, value in added.items():
        if not isinstance(token, numbers.Integral) or isinstance(token, bool) or token < 0:
            raise ValueError(f"logit_bias needs token ids of 0 or more as keys, got {token!r}")
        if not is_number(value) and value != -math.inf:
            raise ValueError(f"logit_bias needs finite numbers (or -inf, which forbids a token), got {value!r}")
    tokens, name = [int(token) for token in added], f"logit_bias({dict(added)})"

    def logit_bias_warp(logits, histories=None):
        if tokens and max(tokens) >= logits.shape[-1]:
            raise ValueError(f"{name} names the token {max(tokens)}, outside the vocabulary of {logits.shape[-1]}")
        logits = logits.clone()
        logits[..., tokens] += torch.tensor(list(added.values()), dtype=logits.dtype, device=logits.device)
        return logits

    return named(logit_bias_warp, name)
