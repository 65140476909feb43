"""Best-first beam search: the same result as beam search, with fewer hypotheses scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

import torch

from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.decoding import checked_stop
from ..running.step import Step
from ..sampling.checks import takes
from ..sampling.warp import Warp, probabilities
from .beam_search import check as check_beams


@dataclass(slots=True)
class QueuedHypothesis:
    """A continuation of the prompt that waits to be scored.

    Attributes
    ----------
    tokens : list of int
        The new tokens.
    log_prob : float
        Σ log p of the tokens.
    estimate : float
        An upper bound on Σ log p for every text that begins with these tokens: `log_prob`, or less if there is a
        heuristic.
    ends : bool
        Whether it is complete: it has a stop token at its end, or is as long as a text may be.
    """

    tokens: list[int]
    log_prob: float
    estimate: float
    ends: bool


class Queue:
    """The waiting hypotheses: a line for each length, best estimate first, cut to what beam search could still take.

    A line is never longer than twice the beams. Hypotheses leave it in order: an estimate or a bound is never larger
    than the parent's, so a hypothesis that enters a line later ranks after all that have already left it. The rank of a
    hypothesis among all of its length is therefore the number of hypotheses that left the line before it.
    """

    def __init__(self, beams: int, longest: int, length_penalty: float):
        self.beams, self.longest, self.length_penalty = beams, longest, length_penalty
        self.lines: list[list[QueuedHypothesis]] = [[] for _ in range(longest + 1)]
        self.left = [0] * (longest + 1)  # how many have left the line of each length
        self.ran_on = [0] * (longest + 1)  # and how many of those do not end

    def __len__(self) -> int:
        return sum(map(len, self.lines))

    def bound(self, hypothesis: QueuedHypothesis) -> float:
        """The best score that any text beginning with this hypothesis can have."""
        length = self.longest if self.length_penalty > 0 else max(len(hypothesis.tokens), 1)
        return hypothesis.estimate / length**self.length_penalty

    def push(self, hypotheses: list[QueuedHypothesis]) -> None:
        """Put hypotheses of one length into their line; among equals, those that came first stay first."""
        if not hypotheses:
            return
        length = len(hypotheses[0].tokens)
        rank, running = self.left[length], self.ran_on[length]
        kept = []
        for hypothesis in sorted(self.lines[length] + hypotheses, key=lambda hypothesis: -hypothesis.estimate):
            if (rank if hypothesis.ends else running) < self.beams:
                kept.append(hypothesis)
            rank, running = rank + 1, running + (not hypothesis.ends)
        self.lines[length] = kept

    def pop(self) -> QueuedHypothesis:
        """Take out the hypothesis with the best bound; among equals the shortest, so that parents come before
        children.
        """
        line = max(filter(None, self.lines), key=lambda line: self.bound(line[0]))
        best = line.pop(0)
        self.left[len(best.tokens)] += 1
        self.ran_on[len(best.tokens)] += not best.ends
        return best

    def is_open(self, length: int) -> bool:
        """Whether a text that begins with a hypothesis of this length, scored now, could still be finished."""
        for longer in range(length + 1, self.longest + 1):
            if self.left[longer] < self.beams:
                return True  # one that ends there
            if self.ran_on[longer] >= self.beams:
                return False  # not even one that runs on
        return False

    def cut(self, limit: int) -> None:
        """Drop the worst of the shortest hypotheses until no more than `limit` wait."""
        while len(self) > limit:
            next(filter(None, self.lines)).pop()

    def first(self, count: int) -> list[QueuedHypothesis]:
        """The `count` hypotheses with the best bounds, best first."""
        waiting = (hypothesis for line in self.lines for hypothesis in line)
        return sorted(waiting, key=self.bound, reverse=True)[:count]


def _continuations(before: QueuedHypothesis, log_probs, ends, heuristic, count: int) -> list[QueuedHypothesis]:
    """The `count` best continuations by one token, and any that are as good as the last of them, by token id.

    Parameters
    ----------
    before : Hypothesis
    log_probs : (vocab,) float64 tensor
        Log-probabilities of the next token.
    ends : (vocab,) bool tensor
        Whether a text ends with each token.
    heuristic : function or None
    """
    sums = before.log_prob + log_probs
    estimates = sums.clone()
    if heuristic is not None:
        for token in (~ends & (sums > -math.inf)).nonzero()[:, 0].tolist():
            estimates[token] += most_to_come(heuristic, [*before.tokens, token])
        estimates.clamp_(max=before.estimate)  # the parent's bound holds for these too
    least = estimates.topk(min(count, len(estimates))).values[-1]
    tokens = ((estimates >= least) & (estimates > -math.inf)).nonzero()[:, 0]
    columns = tokens, sums[tokens], estimates[tokens], ends[tokens]
    return [
        QueuedHypothesis([*before.tokens, token], log_prob, estimate, end)
        for token, log_prob, estimate, end in zip(*(column.tolist() for column in columns))
    ]


def most_to_come(heuristic, tokens: list[int]) -> float:
    """The heuristic's value for a hypothesis; ValueError if it is not a number of at most 0."""
    value = heuristic(list(tokens))
    try:
        bound = float(value)
    except (TypeError, ValueError):
        bound = math.nan
    if not bound <= 0:
        raise ValueError(f"heuristic({tokens}) must be an upper bound on a log-probability, at most 0; got {value!r}")
    return bound


def check(lm, beams, max_new_tokens, length_penalty, n_best, heuristic, queue_limit, min_new_tokens, stop):
    """Raise ValueError if an argument of `best_first_beam_search` is wrong."""
    check_beams(lm, beams, max_new_tokens, length_penalty, "never", min_new_tokens, 1, 0.0, stop)
    if isinstance(n_best, bool) or not hasattr(n_best, "__index__") or not 1 <= n_best <= beams:
        raise ValueError(f"n_best must be a whole number from 1 to beams={beams}, got {n_best!r}")
    if not (heuristic is None or takes(heuristic, 1)):
        raise ValueError(f"heuristic must be a function of new tokens, or None for 0 everywhere; got {heuristic!r}")
    if queue_limit is not None and (
        isinstance(queue_limit, bool) or not hasattr(queue_limit, "__index__") or queue_limit < 1
    ):
        raise ValueError(f"queue_limit must be a whole number of at least 1, or None for no limit; got {queue_limit!r}")


@decoder(check=check)
def best_first_beam_search(
    lm: LM,
    prompt: Prompt,
    *,
    beams: int,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    n_best: int = 1,
    heuristic: Callable[[list[int]], float] | None = None,
    queue_limit: int | None = None,
    min_new_tokens: int = 0,
    warp: Sequence[Warp] = (),
    stop: Iterable[int] | None = None,
) -> Generator[Step, None, str | None]:
    """Always score the most promising hypothesis next, whatever its length, but at most `beams` of each length.

    This is beam search with a priority queue (Meister, Vieira and Cotterell 2020, "Best-first beam search", algorithm
    2). The hypothesis whose texts can reach the best score is taken out of the queue and scored, and its continuations
    are put in. A continuation is never better than the hypothesis it continues, so hypotheses of the same length come
    out best first. A hypothesis that ends is finished if fewer than `beams` hypotheses of its length came out before
    it. A hypothesis that does not end is scored if fewer than `beams` of its length that do not end came out before it.
    Beam search makes exactly the same selection. The search is over when `n_best` finished hypotheses score at least as
    well as anything in the queue can. Beam search scores more hypotheses than that, but they cannot change its result.

    The best score that a hypothesis with Σ log p = s can reach is bounded as follows. A text's score is
    ``Σ log p / len ** length_penalty``. Each further token makes the sum smaller and, if `length_penalty` is above 0,
    the divisor larger. So no text that begins with this hypothesis scores better than ``s / longest ** length_penalty``
    if `length_penalty` is above 0, or ``s / present length ** length_penalty`` otherwise. With a `length_penalty` above
    0 the bound is loose, and fewer calls are saved.

    The first `n_best` hypotheses and their scores are those of ``beam_search(..., early_stopping="never")``. This holds
    under these conditions:

    - A further token never increases the sum. That is true of log-probabilities, which are used here.
    - Beam search runs with "never". With ``early_stopping=False`` and a `length_penalty` above 0 it stops on a guess,
      and with True as soon as `beams` hypotheses have finished. Either may miss a text that is found here.
    - There is one group, no heuristic and no `queue_limit`.
    - A hypothesis gets the same logits alone as in a batch; where two hypotheses are equally good, to the last bit.
      Among equals, the continuation of the earlier hypothesis comes first, then the lower token id, as in beam search.

    With a heuristic this is A* search, limited to `beams` hypotheses of each length, and hypotheses are ranked by Σ log
    p plus the heuristic. If the heuristic is admissible (never too low) and `beams` is large enough that nothing is
    cut, the search finds the best text of all. The better the heuristic, the fewer hypotheses have to be scored.

    Cost: one call of `lm` for each hypothesis scored, whereas beam search makes one call for all hypotheses of a
    length. One call with a row for each beam takes less time than one call for each beam, so this method saves time
    only if it avoids scoring most of the hypotheses. All hypotheses use one cache: each call feeds again those tokens
    that the hypothesis does not share with the one scored before it.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    beams : int
        The largest number of hypotheses of one length that are scored.
    max_new_tokens : int
        Reduced if the model's context has less room.
    length_penalty : float
        As for `beam_search`.
    n_best : int
        How many finished hypotheses are wanted, from 1 to `beams`. A smaller number is found sooner.
    heuristic : function, optional
        ``heuristic(new_tokens)`` takes a list of ints and returns an upper bound on the log-probability of everything
        that may still come after them: at most 0, and -inf if no text can end from there. It is called once for each
        continuation by one token that does not end and has a probability above zero. If the sum with the heuristic
        grows along a hypothesis (the heuristic is then called inconsistent), the smallest sum so far is used, which is
        a bound too.
    queue_limit : int, optional
        The paper's variant that needs less memory: when more than this many hypotheses wait, the worst of the shortest
        are dropped. The result may then differ from that of beam search; with 1 it is greedy decoding. Without a limit,
        at most twice `beams` hypotheses of each length wait, because those that beam search could no longer take are
        not kept.
    min_new_tokens : int
        How many tokens must come before a stop token. The probabilities of the other tokens stay as they are.
    warp : sequence of functions
        Applied to the logits in order, before the softmax.
    stop : token ids, optional
        None means ``lm.stop_tokens``; ``()`` means no stop tokens.

    Yields
    ------
    Step
        First one step without tokens for each hypothesis scored: its `hypotheses` are that hypothesis and then the
        first `beams` in the queue, each as ``[new tokens, Σ log p]``. The last step holds the tokens of the winner and
        its score. Its `hypotheses` are the `n_best` finished ones as ``[new tokens, score]``, best first. There are
        fewer if no other text has a probability above zero, or if the heuristic or `queue_limit` excluded them.

    Raises
    ------
    ValueError
        When called with a bad argument; while searching, when logits are NaN or +inf, when the warps leave a hypothesis
        without any token, when the heuristic returns a positive number or NaN, or when no continuation has a
        probability above zero.
    """
    stop = checked_stop(stop, lm)
    longest = min(max_new_tokens, lm.context - len(prompt))
    if longest < 1:
        return "context"
    session = lm.session(prompt)
    text = session.tokens
    stops = torch.zeros(lm.vocab_size, dtype=torch.bool)
    stops[list(stop)] = True
    queue = Queue(beams, longest, length_penalty)
    queue.push([QueuedHypothesis([], log_prob=0.0, estimate=0.0, ends=False)])
    finished = []  # [new tokens, score], best first
    while queue:
        best = queue.pop()
        length = len(best.tokens)
        if len(finished) == n_best and finished[-1][1] >= queue.bound(best):
            break
        if best.ends:
            finished.append([best.tokens, best.log_prob / length**length_penalty])
            finished.sort(key=lambda pair: -pair[1])
            del finished[n_best:]
        elif queue.is_open(length):
            logits = session.advance_to(text + best.tokens)[-1:]
            log_probs = probabilities(logits, warp, [session.tokens])[0].log()  # (vocab,)
            stops = stops.to(log_probs.device)
            if length < min_new_tokens:
                log_probs[stops] = -math.inf
            # At most the best `beams` continuations of one parent can run on. The only others of interest end with a
            # stop token.
            ends = stops | (length + 1 == longest)
            queue.push(_continuations(best, log_probs, ends, heuristic, beams + len(stop)))
            queue.cut(queue_limit or len(queue))
            yield Step(
                hypotheses=[[h.tokens, h.log_prob] for h in [best, *queue.first(beams)]],
                scored=1,
                note=f"waiting: {len(queue)}, finished: {len(finished)}",
            )
    if not finished:
        raise ValueError(
            "no text that ends has a probability above 0: "
            f"is min_new_tokens={min_new_tokens} possible{', and the heuristic right' if heuristic else ''}?"
        )
    yield Step(list(finished[0][0]), score=finished[0][1], hypotheses=finished)
