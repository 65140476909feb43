"""When a model stops: warps that end its thinking after so many tokens, and not before, or its text where it is unsure.

What this file does not do: stop a run (`run` has a budget of its own, and cuts an answer wherever it is).
"""

import functools
import math
from collections.abc import Sequence
from statistics import fmean

import torch

from ..arguments import check_whole_number, ints, is_number, number_text
from .beginnings import Beginnings
from .checks import Warp, named, one_history_each
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


def token_confidences(logits: torch.Tensor, best: int = 20) -> torch.Tensor:
    """The confidence of each row of logits (n, vocab): the mean of -log p over its `best` most likely tokens, (n,).

    The more of the probability goes to one token, the less is left for the others, and the larger is the mean.

    Source: Fu et al. (2025), "Deep Think with Confidence", where it is the token confidence.
    """
    return -logits.log_softmax(-1).topk(min(best, logits.shape[-1])).values.mean(-1)


def group_confidences(confidences: Sequence[float], size: int) -> list[float]:
    """The mean confidence of each group of `size` tokens that follow one another: a window that slides over the text.

    A text of fewer tokens is one group. The smallest of the means is the text's lowest group confidence.

    Source: Fu et al. (2025), "Deep Think with Confidence", where it is the group confidence.

    Examples
    --------
    >>> group_confidences([4.0, 2.0, 6.0, 8.0], 2)
    [3.0, 4.0, 7.0]
    """
    ends = range(max(1, min(size, len(confidences))), len(confidences) + 1)
    return [fmean(confidences[max(0, end - size) : end]) for end in ends]


def stop_when_unsure(stop_token: int, *, below: float, best: int = 20, group_size: int = 1) -> Warp:
    """Write the stop token where the model's mean confidence in the last tokens is below a threshold.

    The mean is taken over a group of rows: this one, and those from which the tokens before it were chosen. As long as
    there are fewer, the text goes on; the prompt does not count. `token_confidences` says what the confidence of a
    row is. Let it be the first warp, so that it reads the model's own probabilities.

    The rows before are not among a warp's arguments. They are remembered for each beginning of a text, and only the
    target's: so the mean is a function of the text, and this is exact under every method that keeps the target's
    distribution. As for `mirostat`, the histories must then be `History` objects. With a group of one row, nothing
    is remembered.

    Source: Fu et al. (2025), "Deep Think with Confidence", online thinking: a text ends where its group confidence is
    below a threshold, which comes from the lowest group confidences (`group_confidences`) of the first answers. Here,
    the last token of the group is not written.

    Parameters
    ----------
    stop_token : int
        What ends a text, such as ``lm.stop_tokens[0]``.
    below : float
        The threshold; finite, otherwise ValueError.
    best : int
        How many tokens, at least 1. Of a smaller vocabulary, all count.
    group_size : int
        How many rows, at least 1. The authors' code takes 2048.

    Raises
    ------
    ValueError
        For a bad argument; for a stop token outside the vocabulary, when the warp is used.
    """
    check_whole_number(stop_token, 0, "stop_when_unsure needs the id of the token that ends a text")
    check_whole_number(best, 1, "stop_when_unsure needs in best how many tokens count")
    check_whole_number(group_size, 1, "stop_when_unsure needs in group_size over how many tokens the mean is taken")
    if not is_number(below):
        raise ValueError(f"stop_when_unsure needs in below a finite number, the threshold, got {below!r}")
    name = f"stop_when_unsure({stop_token}, below={number_text(below)})"
    if group_size > 1:
        name = f"{name[:-1]}, group_size={group_size})"

    def stopped(row, earlier):
        """A row, after the earlier ones' confidences: (the last one, (the one before it, ...)), or None at first."""
        if stop_token >= len(row):
            raise ValueError(f"{name}: the stop token is outside the vocabulary of {len(row)} tokens")
        confidence = float(token_confidences(row, best))
        group, before = [confidence], earlier
        while before and len(group) < group_size:
            group.append(before[0])
            before = before[1]
        if len(group) == group_size and fmean(group) < below:
            row = torch.full_like(row, -math.inf)
            row[stop_token] = 0.0
        return row, confidence

    if group_size > 1:
        return Beginnings(name, None, lambda earlier, confidence, token: (confidence, earlier)).warp(stopped)

    def stop_when_unsure_warp(logits, histories=None):
        return torch.stack([stopped(row, None)[0] for row in logits]) if len(logits) else logits

    return named(stop_when_unsure_warp, name)
