"""Token healing: a prompt that ends inside a word is continued as its text, and not as its last token.

What this file does not do: take back more than one token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..model.vocabularies import spellings
from ..sampling.checks import Warp, named, one_history_each, prompt_length
from ..sampling.warp import probabilities


def heal(lm: LM, prompt: str | Sequence[int]) -> tuple[list[int], Warp]:
    """Take back the last token of a prompt, and let the model choose again how its text is written and goes on.

    The new text then begins with the text of this token, in any tokens. A token that covers all that is left of it
    keeps its probability. A shorter one is weighed by how likely the model is to write what is then left. So the text
    has exactly the model's distribution, given how it begins. (A mask alone would not weigh.)

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        At least two tokens, of which the last stands for text; otherwise ValueError.

    Returns
    -------
    shorter : list of int
        The prompt without its last token: the prompt to write from.
    warp : function
        For this prompt, before all other warps. One call of `lm` has computed its weights.
    """
    *shorter, last = lm.prompt_tokens(prompt)
    known = spellings(lm)
    if not shorter or last not in known:
        raise ValueError("healing needs a prompt of two tokens or more, of which the last one stands for text")
    tail = known[last]
    inside = {token: data for token, data in known.items() if len(data) < len(tail) and data in tail}
    # All ways to write a beginning of the tail, and what is then left of it.
    ways: list[tuple[int, ...]] = [()]
    left, parents = [tail], []
    for number, way in enumerate(ways):  # it grows meanwhile
        for token, data in inside.items():
            if left[number].startswith(data) and data != left[number]:
                ways.append((*way, token))
                left.append(left[number][len(data) :])
                parents.append(number - 1 if number else ROOT)
    session = lm.session(shorter)
    rows = [session.feed()[-1:]]
    if parents:
        rows.append(session.feed_tree(TokenTree([way[-1] for way in ways[1:]], parents)))
    probs = probabilities(torch.cat(rows)).cpu()
    covering = {rest: [token for token, data in known.items() if data.startswith(rest)] for rest in set(left)}
    chance: dict[tuple[int, ...], float] = {}  # how likely the rest of the tail is written after each way
    following: dict[tuple[int, ...], list[int]] = {way: [] for way in ways}
    for number in reversed(range(len(ways))):
        further = math.fsum(
            float(probs[number, token]) * chance[(*ways[number], token)] for token in following[ways[number]]
        )
        chance[ways[number]] = float(probs[number, covering[left[number]]].sum()) + further
        if number:
            following[ways[number][:-1]].append(ways[number][-1])

    def healed_warp(logits, histories=None):
        logits = logits.clone()
        for row, history in enumerate(one_history_each(histories, logits, "heal")):
            way = tuple(history[prompt_length(history, "heal") :])
            if way in chance:
                kept = torch.full_like(logits[row], -math.inf)
                covers = covering[left[ways.index(way)]]
                kept[covers] = logits[row, covers]
                for token in following[way]:
                    weight = chance[(*way, token)]
                    kept[token] = logits[row, token] + math.log(weight) if weight else -math.inf
                logits[row] = kept
        return logits

    return shorter, named(healed_warp, f"heal({tail.decode('utf-8', 'replace')!r})")
