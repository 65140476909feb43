"""Best-first beam search: what beam search finds, with fewer hypotheses scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..decoding import Prompt, checked_stop, decoder
from ..lm import LM
from ..step import Step
from ..warp import Warp, probabilities, takes
from .beam_search import check as check_beams


@dataclass(slots=True)
class Hypothesis:
    """A continuation of the prompt that waits for its turn.

    Attributes
    ----------
    tokens : list of int
        The new ones.
    log_prob : float
        Σ log p of the tokens.
    estimate : float
        The most that Σ log p can be of a text that begins with these tokens: `log_prob`, or less if a heuristic says
        so.
    ends : bool
        With a stop token, or because it is as long as a text may be.
    """

    tokens: list[int]
    log_prob: float
    estimate: float
    ends: bool


class Queue:
    """What waits: a line for each length, best estimate first, cut to what beam search could still take of it.

    A line is never longer than twice the beams. Hypotheses leave it in order: neither estimate nor bound is ever above
    the parent's, so whatever enters a line later ranks after all that have left it. The rank of a hypothesis among all
    of its length is therefore the number of those that left before it.
    """

    def __init__(self, beams: int, longest: int, length_penalty: float):
        self.beams, self.longest, self.length_penalty = beams, longest, length_penalty
        self.lines: list[list[Hypothesis]] = [[] for _ in range(longest + 1)]
        self.left = [0] * (longest + 1)  # how many have left the line of each length
        self.ran_on = [0] * (longest + 1)  # and how many of those do not end

    def __len__(self) -> int:
        return sum(map(len, self.lines))

    def bound(self, hypothesis: Hypothesis) -> float:
        """The best score that a text can have which begins with the hypothesis."""
        length = self.longest if self.length_penalty > 0 else max(len(hypothesis.tokens), 1)
        return hypothesis.estimate / length**self.length_penalty

    def push(self, hypotheses: list[Hypothesis]) -> None:
        """Put hypotheses of one length into its line; of equal ones those that came first stay first."""
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

    def pop(self) -> Hypothesis:
        """Take the one with the best bound; of equal ones the shortest, as parents go before children."""
        line = max(filter(None, self.lines), key=lambda line: self.bound(line[0]))
        best = line.pop(0)
        self.left[len(best.tokens)] += 1
        self.ran_on[len(best.tokens)] += not best.ends
        return best

    def is_open(self, length: int) -> bool:
        """Whether anything that begins with a hypothesis of this length, scored now, could still be finished."""
        for longer in range(length + 1, self.longest + 1):
            if self.left[longer] < self.beams:
                return True  # one that ends there
            if self.ran_on[longer] >= self.beams:
                return False  # not even one that runs on
        return False

    def cut(self, limit: int) -> None:
        """Forget the worst of the shortest until no more than `limit` wait."""
        while len(self) > limit:
            next(filter(None, self.lines)).pop()

    def first(self, count: int) -> list[Hypothesis]:
        """The `count` hypotheses with the best bounds, best first."""
        waiting = (hypothesis for line in self.lines for hypothesis in line)
        return sorted(waiting, key=self.bound, reverse=True)[:count]


def continuations(before: Hypothesis, log_probs, ends, heuristic, count: int) -> list[Hypothesis]:
    """The `count` best continuations by one token and what is as good as the last of them, in the order of token ids.

    Parameters
    ----------
    before : Hypothesis
    log_probs : (vocab,) float64 tensor
        What may follow it.
    ends : (vocab,) bool tensor
        Whether a text ends with each token.
    heuristic : function or None
    """
    sums = before.log_prob + log_probs
    estimates = sums.clone()
    if heuristic is not None:
        for token in (~ends & (sums > -math.inf)).nonzero()[:, 0].tolist():
            estimates[token] += most_to_come(heuristic, [*before.tokens, token])
        estimates.clamp_(max=before.estimate)  # what bounds every text from the parent on bounds these too
    least = estimates.topk(min(count, len(estimates))).values[-1]
    tokens = ((estimates >= least) & (estimates > -math.inf)).nonzero()[:, 0]
    columns = tokens, sums[tokens], estimates[tokens], ends[tokens]
    return [
        Hypothesis([*before.tokens, token], log_prob, estimate, end)
        for token, log_prob, estimate, end in zip(*(column.tolist() for column in columns))
    ]


def most_to_come(heuristic, tokens: list[int]) -> float:
    """What the heuristic says of a hypothesis; ValueError if that is not a number of at most 0."""
    value = heuristic(list(tokens))
    try:
        bound = float(value)
    except (TypeError, ValueError):
        bound = math.nan
    if not bound <= 0:
        raise ValueError(f"heuristic({tokens}) must be an upper bound on a log-probability, at most 0; got {value!r}")
    return bound


def check(lm, beams, max_new_tokens, length_penalty, n_best, heuristic, queue_limit, min_new_tokens, stop):
    """Raise ValueError for what is wrong with the arguments of `best_first_beam_search`."""
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
) -> Iterator[Step]:
    """Score the most promising hypothesis first, whatever its length, and no more than `beams` of any length.

    Beam search as a priority queue (Meister, Vieira and Cotterell 2020, "Best-first beam search", algorithm 2). The
    hypothesis whose texts can score best is taken out and scored, and its continuations are put in. A continuation can
    only be worse than what it continues, so hypotheses of one length come out best first: one that ends is finished if
    fewer than `beams` of its length came out before it, and one that does not end is scored if fewer than `beams` of
    those did. That is what beam search takes. It is over when `n_best` finished ones score at least as well as anything
    in the queue can. What beam search scores beyond that cannot change its result.

    The bound, for a Σ log p of s: a text's score is ``Σ log p / len ** length_penalty``, and lengthening it makes the
    sum smaller and (if `length_penalty` is above 0) the divisor larger. So nothing that begins with s scores better
    than ``s / longest ** length_penalty`` if `length_penalty` is above 0, and ``s / present length ** length_penalty``
    otherwise. Above 0 the bound is loose and saves less.

    Equal to ``beam_search(..., early_stopping="never")`` in its first `n_best` hypotheses and their scores. This needs:

    - scores that lengthening cannot improve but by its length: log-probabilities of a distribution, as here;
    - "never": with ``early_stopping=False`` and a `length_penalty` above 0 beam search stops on a guess, with True as
      soon as `beams` have finished, and either may miss what is found here;
    - one group; no heuristic; no `queue_limit`;
    - that a hypothesis gets the same logits alone as in a batch, to the last bit where two are equally good. Of equal
      ones the continuation of the earlier hypothesis comes first, then the lower token id, as in beam search.

    With a heuristic it is A*, cut to `beams` of a length, and ranks hypotheses by Σ log p plus the heuristic. If the
    heuristic is admissible (never too low) and `beams` large enough to cut nothing, it finds the best text there is,
    and a better heuristic finds it with fewer hypotheses scored.

    Cost: one call of `lm` for each hypothesis scored, where beam search has one for all of a length. A call with a row
    for each beam takes less time than as many calls, so time is saved only where most of the hypotheses are. One cache
    serves all: a call feeds again what the hypothesis does not share with the one scored before it.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    beams : int
        How many hypotheses of a length are scored at most.
    max_new_tokens : int
        Cut to the room in the context.
    length_penalty : float
        As for `beam_search`.
    n_best : int
        How many finished hypotheses are wanted, from 1 to `beams`; fewer are found sooner.
    heuristic : function, optional
        ``heuristic(new_tokens)``, with a list of ints, returns an upper bound on the log-probability of all that is
        still to come after them: at most 0, and -inf where no text can end. It is asked once for each continuation by
        one token that does not end and has a probability. If it grows along a hypothesis (if it is not consistent) the
        least of the sums on the way counts, which is a bound as well.
    queue_limit : int, optional
        The paper's memory-reduced form: when more than so many hypotheses wait, the worst of the shortest are
        forgotten. Results may then differ; with 1 this is greedy decoding. Without it no more than twice the beams wait
        of each length, since what beam search cannot take any more is not kept.
    min_new_tokens : int
        How many tokens come before a stop token at least. The probabilities of the others stay as they are.
    warp : sequence of functions
        Applied to the logits in order, before the softmax.
    stop : token ids, optional
        None means ``lm.stop_tokens``, ``()`` none.

    Yields
    ------
    Step
        One for each hypothesis scored, without tokens: its `hypotheses` are the one scored, then the first `beams` in
        the queue, each ``[new tokens, Σ log p]``. Then the winner with its score; its `hypotheses` are the `n_best`
        finished ``[new tokens, score]``, best first; fewer only if no more have a probability above zero, or if the
        heuristic or `queue_limit` gave them up.

    Raises
    ------
    ValueError
        At the call for a bad argument. While searching, when logits are NaN or +inf, a warp leaves some hypothesis no
        token, the heuristic returns a positive number or NaN, or nothing that may follow has a probability above zero.
    """
    stop = checked_stop(stop, lm)
    longest = min(max_new_tokens, lm.context - len(prompt))
    if longest < 1:
        return "context"
    session = lm.session(prompt)
    stops = torch.zeros(lm.vocab_size, dtype=torch.bool)
    stops[list(stop)] = True
    queue = Queue(beams, longest, length_penalty)
    queue.push([Hypothesis([], log_prob=0.0, estimate=0.0, ends=False)])
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
            logits = session.advance_to(prompt + best.tokens)[-1:]
            log_probs = probabilities(logits, warp, [session.tokens])[0].log()  # (vocab,)
            stops = stops.to(log_probs.device)
            if length < min_new_tokens:
                log_probs[stops] = -math.inf
            # Of one parent no more than the best `beams` can run on, and besides them only stop tokens end.
            ends = stops | (length + 1 == longest)
            queue.push(continuations(best, log_probs, ends, heuristic, beams + len(stop)))
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
