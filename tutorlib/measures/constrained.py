"""What a grammar does to the distribution of whole texts: exact sums for languages with few texts.

A grammar drops tokens one position at a time. The distribution that results is not the model's own, given that its text
is in the language. `futures` computes what is needed to say by how much, and `aligned` corrects it. What this file does
not do: estimate anything for languages that are too large to enumerate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..constraints.grammar import ENDED, Grammar
from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..sampling.checks import Warp, named
from ..sampling.warp import probabilities


@dataclass(frozen=True)
class WeightedText:
    """A text of the language, with its probabilities summed over all ways to write it in tokens.

    Attributes
    ----------
    text : str
    spellings : int
        In how many ways tokens write it.
    mass : float
        The probability that the model alone writes it, and then ends.
    local : float
        Its probability under the grammar.
    conditional : float
        Its probability given that the model alone writes a text of the language: `mass` divided by the sum of all.
    """

    text: str
    spellings: int
    mass: float
    local: float
    conditional: float


# The name of the release before.
Answer = WeightedText


def futures(lm: LM, prompt: str | Sequence[int], grammar: Grammar, most: int = 5000) -> dict[tuple[int, ...], float]:
    """For every beginning of a text of the language, how likely the model alone is to complete it.

    Source: the expected futures of Park et al. (2024), "Grammar-Aligned Decoding", section 3; there they are estimated
    from samples, here they are computed.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    grammar : Grammar
        Of a language with few texts.
    most : int
        Raise ValueError if there are more beginnings than this.

    Returns
    -------
    dict from tuples of new tokens to probabilities
        The empty tuple has the probability of the whole language; a text with its end has 1. One call of `lm` scores
        all beginnings.
    """
    following = next_probs(lm, prompt, grammar, most)
    mass: dict[tuple[int, ...], float] = {}
    for tokens in sorted(following, key=len, reverse=True):
        mass[tokens] = math.fsum(
            prob * mass.setdefault((*tokens, token), 1.0) for token, prob in following[tokens].items()
        )
    return mass


def next_probs(lm: LM, prompt, grammar: Grammar, most: int) -> dict[tuple[int, ...], dict[int, float]]:
    """For every beginning that is not ended, the model's own probabilities of the tokens that the grammar allows."""
    ways: list[tuple[int, ...]] = [()]
    tokens_of_nodes, parents, allowed = [], [], []
    for number, tokens in enumerate(ways):  # it grows meanwhile
        allowed.append(grammar.allowed(tokens).nonzero()[0].tolist())
        for token in allowed[-1]:
            if grammar.state((*tokens, token)) is not ENDED:
                ways.append((*tokens, token))
                tokens_of_nodes.append(token)
                parents.append(number - 1 if number else ROOT)
        if len(ways) > most:
            raise ValueError(f"the language has more than {most} beginnings: it must be small, with bounded repeats")
    session = lm.session(prompt)
    rows = session.feed()[-1:]
    if tokens_of_nodes:
        rows = torch.cat([rows, session.feed_tree(TokenTree(tokens_of_nodes, parents))])
    probs = probabilities(rows)
    return {
        tokens: dict(zip(after, probs[row, after].tolist(), strict=True))
        for row, (tokens, after) in enumerate(zip(ways, allowed, strict=True))
    }


def answers(lm: LM, prompt: str | Sequence[int], grammar: Grammar, most: int = 5000) -> list[WeightedText]:
    """The texts of a small language, the most likely first: how likely the model finds each, locally and truly.

    Parameters and errors are those of `futures`.
    """
    following = next_probs(lm, prompt, grammar, most)
    found: dict[str, list[tuple[float, float]]] = {}
    open_ways: dict[tuple[int, ...], tuple[float, float]] = {(): (1.0, 1.0)}
    while open_ways:
        longer: dict[tuple[int, ...], tuple[float, float]] = {}
        for tokens, (mass, local) in open_ways.items():
            total = math.fsum(following[tokens].values())
            for token, prob in following[tokens].items():
                way, weights = (*tokens, token), (mass * prob, local * prob / total if total else 0.0)
                if way in following:
                    longer[way] = weights
                else:
                    found.setdefault(lm.decode(tokens), []).append(weights)
        open_ways = longer
    whole = math.fsum(mass for ways in found.values() for mass, _ in ways)
    made = [
        WeightedText(
            text, len(ways), mass := math.fsum(one for one, _ in ways), math.fsum(one for _, one in ways), mass / whole
        )
        for text, ways in found.items()
    ]
    return sorted(made, key=lambda answer: -answer.conditional)


def aligned(grammar: Grammar, mass: Mapping[tuple[int, ...], float]) -> Warp:
    """A warp like the grammar, that also weighs each token by how likely the model is to complete the text after it.

    With the masses of `futures`, the texts have the model's own distribution, given that they are in the language.
    """

    def aligned_warp(logits, histories=None):
        logits = grammar(logits, histories).double()
        for row, history in enumerate(histories or ()):
            begun = grammar.new_tokens(history)
            for token in grammar.allowed(begun).nonzero()[0].tolist():
                future = mass.get((*begun, token), 1.0)  # after the end, nothing is left to complete
                logits[row, token] += math.log(future) if future else -math.inf
        return logits

    return named(aligned_warp, f"aligned({grammar})")
