"""When a model stops: warps that end its thinking after so many tokens, and not before, or its text where it is unsure.

What this file does not do: stop a run (`run` has a budget of its own, and cuts an answer wherever it is).
"""

import functools
import math
from collections.abc import Sequence

import torch

from ..arguments import check_whole_number, ints, is_number, number_text
from .checks import Filter, Warp, named, one_history_each
from .known_text import KnownText, KnownTexts


class Thought(KnownText):
    """Where a text thinks: from the end of `begin` to the end of the next `end`, and so on.

    Attributes
    ----------
    starts : list of int
        After each number of tokens, where the thought that is not finished begins; -1 if there is none.
    """

    def __init__(self, vocab: int, begin: list[int], end: list[int]):
        super().__init__(vocab)
        self.begin, self.end = begin, end
        self.starts = [-1]

    def push(self, token):
        super().push(token)
        start, length = self.starts[-1], len(self.tokens)
        if start < 0:
            start = length if self.tokens[-len(self.begin) :] == self.begin else -1
        elif self.tokens[max(start, length - len(self.end)) :] == self.end:
            start = -1
        self.starts.append(start)

    def pop(self):
        self.starts.pop()
        return super().pop()

    def written(self) -> int:
        """How many tokens of `end` the unfinished thought ends in."""
        thought = self.tokens[max(self.starts[-1], len(self.tokens) - len(self.end) + 1) :]
        return next(
            count for count in range(len(thought), -1, -1) if thought[len(thought) - count :] == self.end[:count]
        )


def thinking_budget(
    begin: Sequence[int],
    end: Sequence[int],
    *,
    at_most: int,
    at_least: int = 0,
    wait: int | None = None,
    stop_tokens: Sequence[int] = (),
) -> Warp:
    """Let a model think for at least `at_least` and at most `at_most` tokens, between `begin` and `end`.

    Only rows of a text that is thinking are changed:

    - After `at_most` tokens, only the tokens of `end` are left, one after the other. If the text already ends in the
      beginning of `end`, only its rest is written.
    - Before `at_least` tokens, `end` may not be completed. The probability of its last token goes to `wait`: where the
      model wants to end its thinking, it writes "Wait" and thinks again.
    - A token of `stop_tokens` would end the text without an answer. Before `at_least` tokens, its probability goes to
      `wait` too, and after that, to the next token of `end`.

    The warp depends only on the tokens of a text, and not on how they were drawn. So each method that keeps the
    target's distribution also keeps it under this warp, and a rejected draft leaves no trace. Let it be the last warp:
    then no filter drops what it has moved.

    Source: Muennighoff et al. (2025), "s1: Simple Test-Time Scaling", section 3.1, "Budget forcing". There, an end that
    came too early is replaced after it was chosen. Here, its probability is moved before, which is the same when
    decoding greedily or drawing without other warps.

    Parameters
    ----------
    begin : sequence of int
        The tokens after which the model thinks, such as those of ``<think>``, or of the beginning of an answer in a
        chat. They may stand in the prompt. In a thought, they have no meaning.
    end : sequence of int
        The tokens that end the thinking, such as ``lm.encode(" The answer is")``.
    at_most, at_least : int
        How many tokens; `at_most` counts those before the `end` that is forced. `at_least` is at most `at_most`.
    wait : int, optional
        What is written in place of an end that comes too early. Without it, such an end is only not allowed.
    stop_tokens : sequence of int
        Tokens that end a text, such as ``lm.stop_tokens``.

    Raises
    ------
    ValueError
        For a bad argument; for a token outside the vocabulary, when the warp is used.
    """
    check_whole_number(at_least, 0, "thinking_budget needs in at_least how many tokens are thought at least")
    check_whole_number(
        at_most, at_least, "thinking_budget needs in at_most how many tokens are thought, not fewer than in at_least"
    )
    begin, end = (
        ints(tokens, f"thinking_budget needs in {name} the ids of tokens (ints): encode a text first, lm.encode(...)")
        for name, tokens in (("begin", begin), ("end", end))
    )
    stop = sorted({*ints(stop_tokens, "thinking_budget needs in stop_tokens the ids of tokens (ints)")})
    if not begin or not end:
        raise ValueError(f"thinking_budget needs at least one token in begin and in end, got {begin} and {end}")
    if wait is not None and wait in (end[-1], *stop):
        raise ValueError(f"wait={wait} would itself end the thinking: choose a token that is not in end or stop")
    known = [*begin, *end, *stop, *([] if wait is None else [wait])]
    memory, name = KnownTexts(functools.partial(Thought, begin=begin, end=end)), f"thinking_budget(at_most={at_most})"
    if at_least:
        name = f"{name[:-1]}, at_least={at_least})"

    def thinking_budget_warp(logits, histories=None):
        vocab, logits = logits.shape[-1], logits.clone()
        if not 0 <= min(known) <= max(known) < vocab:
            raise ValueError(f"{name} names the tokens {known}, of which some are outside the vocabulary of {vocab}")
        for row, history in enumerate(one_history_each(histories, logits, name)):
            text = memory.of(row, history, vocab, name)
            if text.starts[-1] < 0:
                continue
            count, done = len(text.tokens) - text.starts[-1], text.written()
            if count >= at_most:
                logits[row] = -math.inf
                logits[row, end[done]] = 0.0
                continue
            early = count - done < at_least
            to = wait if early else end[done]
            ending = end[-1:] if early and done == len(end) - 1 else []
            closing = sorted({*stop, *ending} - {to})
            if closing:
                moved = logits[row, closing].logsumexp(-1)
                logits[row, closing] = -math.inf
                if to is not None:
                    logits[row, to] = torch.logaddexp(logits[row, to], moved)
        return logits

    return named(thinking_budget_warp, name)


def stop_when_unsure(stop_token: int, *, below: float, best: int = 20) -> Filter:
    """Write the stop token where the model's confidence in the next token is below a threshold.

    The confidence of a row is the mean of -log p over its `best` most likely tokens: the more of the probability goes
    to one token, the less is left for the others, and the larger is the mean. Let it be the first warp, so that it
    reads the model's own probabilities.

    Source: Fu et al. (2025), "Deep Think with Confidence". The paper takes the mean over a window of tokens.
    A warp cannot: the rows of earlier tokens are not among its arguments, and if it remembered them from earlier calls,
    the text would depend on what was drafted. With a window of one token, only the row itself decides. So this is exact
    under every method that keeps the target's distribution.

    Parameters
    ----------
    stop_token : int
        What ends a text, such as ``lm.stop_tokens[0]``.
    below : float
        The threshold; finite, otherwise ValueError.
    best : int
        How many tokens, at least 1. Of a smaller vocabulary, all count.

    Raises
    ------
    ValueError
        For a bad argument; for a stop token outside the vocabulary, when the warp is used.
    """
    check_whole_number(stop_token, 0, "stop_when_unsure needs the id of the token that ends a text")
    check_whole_number(best, 1, "stop_when_unsure needs in best how many tokens count")
    if not is_number(below):
        raise ValueError(f"stop_when_unsure needs in below a finite number, the threshold, got {below!r}")
    name = f"stop_when_unsure({stop_token}, below={number_text(below)})"

    def stop_when_unsure_warp(logits, histories=None):
        if stop_token >= logits.shape[-1]:
            raise ValueError(f"{name}: the stop token is outside the vocabulary of {logits.shape[-1]} tokens")
        confidence = -logits.log_softmax(-1).topk(min(best, logits.shape[-1])).values.mean(-1, keepdim=True)
        only = torch.full_like(logits, -math.inf)
        only[:, stop_token] = 0.0
        return torch.where(confidence < below, only, logits)

    return named(stop_when_unsure_warp, name)
