"""The exercises of the chapter on other engines: kept tokens, a window, top choices left out, and a request."""

import math

import numpy as np
import torch

from ...sampling.engines import as_in
from ...sampling.warp import probabilities
from .answers import expect, filled, short, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# How many tokens stay


def _kept(logits, temperature: float, p: float, first: bool) -> int:
    """How many tokens top-p keeps if the temperature comes first, or last."""
    chain = as_in("llama.cpp", temperature=temperature, top_p=p, top_k=0, min_p=0)
    if first:
        chain = as_in("transformers", do_sample=True, temperature=temperature, top_p=p, top_k=0)
    row = torch.tensor([list(logits)], dtype=torch.float64)
    return int((probabilities(row, chain) > 0).sum())


@checker
def check_kept(answer, logits, temperature, p) -> Verdict:
    """Judge how many tokens top-p keeps with the temperature first and last: a dict with "first" and "last"."""
    due = {"first": _kept(logits, temperature, p, True), "last": _kept(logits, temperature, p, False)}
    answer = filled(answer, due)
    cold = _kept(logits, 1 / temperature, p, True)
    for name, count in due.items():
        other = due["last" if name == "first" else "first"]
        mistakes: dict[float, str] = {
            other: "You have the two orders the wrong way round: a temperature above 1 makes the row flatter, and a "
            "flatter row needs more tokens to reach p.",
            count - 1: "The token that crosses the threshold stays, too.",
            cold: "You multiplied the logits by the temperature. It divides them.",
        }
        expect(answer[name], count, mistakes, part=name)
    return right("With the same two numbers, one engine draws from more tokens than the other.")


# ----------------------------------------------------------------------------------------------------------------------
# A penalty with a window


def windowed(
    logits, text, strength, last, seen=lambda text, last: text[-last:], times=lambda count: min(count, 1), sign=-1
):
    logits = list(map(float, logits))
    window = seen(list(text), last)
    return [logit + sign * strength * times(window.count(token)) for token, logit in enumerate(logits)]


check_windowed = Exercise(
    """Judge ``my_windowed(logits, text, strength, last)``: a presence penalty that sees the last tokens only.""",
    [
        ([1.0, 2.0, 3.0, 0.0], [0, 1, 1, 2, 2], 0.5, 3),
        ([0.5, -1.0, 2.0], [0, 0, 1], 1.5, 2),
        ([0.5, -1.0, 2.0], [2], 0.7, 5),
        ([1.0, 1.0], [], 2.0, 4),
        ([0.0, 1.0, 2.0, 3.0, 4.0], [4, 3, 2, 1, 0, 0, 0], 0.25, 4),
    ],
    windowed,
    {
        "You subtracted once for each occurrence. That is a frequency penalty: a presence penalty subtracts once.": {
            "times": lambda count: count
        },
        "You looked at the whole text. Only its last tokens count.": {"seen": lambda text, last: text},
        "You looked at the first tokens of the text, not at the last ones.": {"seen": lambda text, last: text[:last]},
        "You left the last token of the text out: a text's last tokens are text[-last:].": {
            "seen": lambda text, last: text[-last - 1 : -1]
        },
        "You added the strength. A penalty lowers the logit, whatever its sign is.": {"sign": 1},
    },
    show=lambda logits, text, strength, last: f"the logits {logits}, the text {text}, {strength} and last={last}",
    why="With last=64, this is what llama.cpp does.",
)

# ----------------------------------------------------------------------------------------------------------------------
# XTC without its coin


def without_top_choices(probs, threshold, stays=min, scale=lambda row: row / row.sum()):
    row = np.array([float(prob) for prob in probs])
    top = [token for token in range(len(row)) if row[token] >= threshold]
    if top and stays:
        keep = stays(top, key=lambda token: row[token])
        row[[token for token in top if token != keep]] = 0
    elif top and len(top) < len(row):
        row[top] = 0
    return scale(row).tolist()


check_without_top_choices = Exercise(
    """Judge ``my_xtc(probs, threshold)``: the probabilities without top choices, if XTC's coin says so.""",
    [
        ([0.4, 0.3, 0.2, 0.1], 0.15),
        ([0.1, 0.2, 0.3, 0.4], 0.25),
        ([0.7, 0.2, 0.1], 0.5),
        ([0.05, 0.5, 0.45], 0.1),
        ([0.25, 0.35, 0.4], 0.6),
    ],
    without_top_choices,
    {
        "You dropped every token above the threshold. The least likely of them stays.": {"stays": None},
        "You kept the most likely of the tokens above the threshold. It is the least likely one that stays.": {
            "stays": max
        },
        "Your probabilities do not sum to 1: divide by the sum of what is left.": {"scale": lambda row: row},
    },
    show=lambda probs, threshold: f"the probabilities {probs} and the threshold {threshold}",
    why="Where only one token is likely, XTC changes nothing, so it does no harm where there is only one good choice.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A request for another engine

_ROWS = [
    [3 - 0.4 * token for token in range(16)],
    [math.log(part) for part in (0.4, 0.3, 0.2, 0.1)],
    [2.0, 1.9, 1.8, -1.0, -3.0, 0.5] + [0.0] * 60,
    [7.0] + [0.0] * 60,
]


def _drawn_from(chain) -> list[torch.Tensor]:
    return [probabilities(tensor([row]), chain)[0] for row in _ROWS]


@checker
def check_request(answer, temperature, p) -> Verdict:
    """Judge a request to llama.cpp that draws from what transformers draws from with a temperature and top-p."""
    if not isinstance(answer, dict):
        return wrong(f"Expected a dict with the settings of the request, got {short(answer)}.")
    answer = filled(answer, answer)
    try:
        _drawn_from(as_in("llama.cpp", **answer))
    except (TypeError, ValueError) as error:
        return wrong(f"as_in does not take this request: {error}.")
    due = _drawn_from(as_in("transformers", do_sample=True, temperature=temperature, top_p=p, top_k=0))

    def same(change) -> bool:
        other = _drawn_from(as_in("llama.cpp", **answer | change))
        return all(torch.allclose(one, wanted, atol=1e-6) for one, wanted in zip(other, due, strict=True))

    if same({}):
        return right("llama.cpp draws from the same distribution now. Any engine that lets you order its filters can.")
    order = {"samplers": ["temperature", "top_p"]}
    hints = {
        "Only top_k is missing: it is 40 unless you switch it off.": {"top_k": 0},
        "Only min_p is missing: it is 0.05 unless you switch it off.": {"min_p": 0},
        "Its temperature is 0.8 unless you set it.": {"temperature": temperature},
        "Its top_p is 0.95 unless you set it.": {"top_p": p},
        "Only the order is missing: say in samplers that the temperature comes before top_p.": order,
    }
    for message, change in hints.items():
        if same(change):
            return wrong(message)
    return wrong(
        "The distributions differ. Set temperature and top_p, switch the other defaults off, and set the order."
    )
