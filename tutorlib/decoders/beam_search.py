"""Beam search: follow several continuations at once, and keep the best of those that end."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..batch import Batch
from ..decoding import Prompt, checked_budget, checked_stop, decoder
from ..lm import LM
from ..step import Step
from ..warp import Warp, probabilities


@dataclass(slots=True)
class Hypothesis:
    """A continuation of the prompt: its tokens, their Σ log p, and the row of the batch that it goes on from.

    (Contrastive beam search sums another score of each token in place of log p.)
    """

    tokens: list[int]
    log_prob: float
    row: int


class Group:
    """Beams that compete with each other: those still running, and the best `size` that have finished.

    Attributes
    ----------
    running : list of Hypothesis
        At most `size`. At the start only one, the empty continuation: equal ones would all choose the same tokens.
    finished : list of [new tokens, score], best first
        At most `size`. Of equal scores the one that finished first comes first.
    """

    def __init__(self, size: int, length_penalty: float):
        self.size, self.length_penalty = size, length_penalty
        self.running = [Hypothesis([], 0.0, row=0)]
        self.finished: list[list] = []

    def score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty

    def lengthen(self, log_probs: torch.Tensor, discount: torch.Tensor, stop, last: bool) -> int:
        """Go on by one token: the best that end are finished, the best of the others run on.

        Parameters
        ----------
        log_probs, discount : tensors
            As `continuations` takes them.
        stop : set of int
        last : bool
            Whether all end at this length.

        Returns
        -------
        int
            How many of the best `size` ended.
        """
        best = continuations(self.running, log_probs, discount, (1 + len(stop)) * self.size)
        ended = [hypothesis for hypothesis in best[: self.size] if last or hypothesis.tokens[-1] in stop]
        for hypothesis in ended:
            self.finish(hypothesis)
        self.running = [hypothesis for hypothesis in best if hypothesis.tokens[-1] not in stop][: self.size]
        return len(ended)

    def finish(self, hypothesis: Hypothesis) -> None:
        self.finished.append([hypothesis.tokens, self.score(hypothesis.log_prob, len(hypothesis.tokens))])
        self.finished.sort(key=lambda pair: -pair[1])
        del self.finished[self.size :]

    def is_done(self, length: int, longest: int, early_stopping) -> bool:
        """Whether nothing runs on, or what runs on at this length is not expected to beat the worst that is kept."""
        if length == longest or not self.running:
            return True
        if len(self.finished) < self.size:
            return False
        best = max(hypothesis.log_prob for hypothesis in self.running)
        expected_length = longest if early_stopping == "never" and self.length_penalty > 0 else length
        return early_stopping is True or self.score(best, expected_length) <= self.finished[-1][1]


def continuations(running, log_probs: torch.Tensor, discount: torch.Tensor, count: int) -> list[Hypothesis]:
    """The `count` best continuations by one token, best first; fewer where the others have probability zero.

    Of equally good ones the continuation of the earlier hypothesis comes first, then the lower token id.

    Parameters
    ----------
    running : list of Hypothesis
    log_probs : (rows, vocab) float64 tensor
        What may follow each row of the batch.
    discount : (vocab,) float64 tensor
        Subtracted from each token's log-probability when continuations are compared, and not from their `log_prob`.
    """
    vocab = log_probs.shape[1]
    before = log_probs.new_tensor([hypothesis.log_prob for hypothesis in running])
    sums = before[:, None] + log_probs[[hypothesis.row for hypothesis in running]]
    sums, ranks = sums.flatten(), (sums - discount).flatten()
    least = ranks.topk(min(count, len(ranks))).values[-1]
    places = ((ranks >= least) & (ranks > -math.inf)).nonzero()[:, 0]  # topk alone does not say which of equals it took
    places = places[ranks[places].argsort(descending=True, stable=True)[:count]]
    parents = [running[place // vocab] for place in places.tolist()]
    return [
        Hypothesis([*parent.tokens, place % vocab], log_prob, parent.row)
        for parent, place, log_prob in zip(parents, places.tolist(), sums[places].tolist(), strict=True)
    ]


def feed_running(running: list[Hypothesis], *batches: Batch) -> list[torch.Tensor]:
    """Make the running hypotheses the rows of each batch and feed each its last token: (rows, vocab) logits a batch."""
    rows = [hypothesis.row for hypothesis in running]
    for row, hypothesis in enumerate(running):
        hypothesis.row = row
    for batch in batches:
        batch.reorder(rows)
    return [torch.cat(batch.feed([hypothesis.tokens[-1:] for hypothesis in running])) for batch in batches]


def check(lm, beams, max_new_tokens, length_penalty, early_stopping, min_new_tokens, groups, diversity, stop):
    """Raise ValueError for what is wrong with the arguments of `beam_search`."""
    longest = checked_budget(max_new_tokens)
    checked_stop(stop, lm)
    beams = _whole("beams", beams, least=1)
    groups = _whole("groups", groups, least=1)
    if beams % groups:
        divisors = ", ".join(str(number) for number in range(1, beams + 1) if beams % number == 0)
        raise ValueError(
            f"groups must divide beams evenly, got beams={beams} and groups={groups}: give groups one of {divisors}"
        )
    texts = lm.vocab_size ** min(longest, 64)
    if beams // groups > texts:
        texts_in_all = f"{lm.vocab_size} tokens make only {texts} texts of length {longest}"
        raise ValueError(f"beams={beams} in groups={groups}, but {texts_in_all}: give at most {texts * groups}")
    if _whole("min_new_tokens", min_new_tokens, least=0) > longest:
        raise ValueError(f"min_new_tokens={min_new_tokens} is more than max_new_tokens={max_new_tokens}")
    if _finite("diversity", diversity) < 0:
        raise ValueError(f"diversity must be 0 or more, got {diversity!r}")
    if diversity and groups == 1:
        raise ValueError(f"diversity={diversity!r} needs groups that differ: give groups=2 or more, or diversity=0")
    if not (early_stopping == "never" or isinstance(early_stopping, bool)):
        raise ValueError(f'early_stopping must be False, True or "never", got {early_stopping!r}')
    if abs(_finite("length_penalty", length_penalty)) * math.log(longest) > 700:
        raise ValueError(
            f"length_penalty={length_penalty!r} is too large, {longest} ** length_penalty overflows: 0 to 3 is usual"
        )


def _whole(name: str, value, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return operator.index(value)


def _finite(name: str, value) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__") or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


@decoder(check=check)
def beam_search(
    lm: LM,
    prompt: Prompt,
    *,
    beams: int,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    min_new_tokens: int = 0,
    groups: int = 1,
    diversity: float = 0.0,
    warp: Sequence[Warp] = (),
    stop: Iterable[int] | None = None,
) -> Iterator[Step]:
    """Keep the `beams` likeliest continuations, lengthen them all by one token, and again; return the best finished.

    At each length every continuation by one token is a candidate. Of the best `beams` candidates those that end, with a
    stop token or at `max_new_tokens`, are finished; the best `beams` that do not end run on. A finished one scores
    ``Σ log p / len ** length_penalty``, where len counts its new tokens, the stop token included, and the best `beams`
    of them are kept. Deterministic: there is nothing to draw.

    Sequences and scores are those of ``transformers.generate(num_beams=beams, do_sample=False)``, except for warps:
    there, processors act on log-probabilities and the scores are what is left of them; here, a warp acts on the logits,
    and the scores are log-probabilities of the warped distribution, which sums to 1.

    Cost: one call of `lm` a length with a row for each beam, over one cache whose rows are reordered; the prompt is
    computed once.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    beams : int
        How many hypotheses run, and how many finished ones are kept. It may exceed the vocabulary: early lengths then
        have fewer hypotheses (transformers runs copies of the prompt in their place). ``vocab ** (max_new_tokens - 1)``
        of them leave nothing out; more than ``vocab ** max_new_tokens`` in a group cannot be.
    max_new_tokens : int
        Cut to the room in the context.
    length_penalty : float
        Above 0 favours long texts, since log-probabilities are negative; below 0 short ones; 0 compares Σ log p.
    early_stopping : False, True or "never"
        When to stop once `beams` have finished. True: at once. False: when the best running one, scored at its present
        length, does not beat the worst finished one; it might have later, if `length_penalty` is above 0. "never": when
        it could not at any length.
    min_new_tokens : int
        How many tokens come before a stop token at least. The probabilities of the others stay as they are.
    groups : int
        Divides the beams into groups that search, finish and stop each by itself (Vijayakumar et al. 2018, "Diverse
        beam search", algorithm 1). All finished ones are returned together, so that groups may return equal texts.
    diversity : float
        At each length the groups choose in turn, and a token's log-probability counts for less by `diversity` times how
        often groups before chose it: as the last token of their best continuations, stop tokens apart (the paper's λ,
        with Hamming diversity). Scores stay the model's own. With 0 all groups find the same.
    warp : sequence of functions
        Applied to the logits in order, before the softmax.
    stop : token ids, optional
        None means ``lm.stop_tokens``, ``()`` none.

    Yields
    ------
    Step
        One for each length, without tokens: its `hypotheses` are the running ``[new tokens, Σ log p]``, best first, and
        `scored` is the number of rows in the call. Then the winner with its score; its `hypotheses` are the finished
        ``[new tokens, score]``, best first; fewer than `beams` only where no more have a probability above zero.

    Raises
    ------
    ValueError
        At the call for a bad argument. While searching, when logits are NaN or +inf, a warp leaves some hypothesis no
        token, or nothing that may follow has a probability above zero.
    """
    stop = checked_stop(stop, lm)
    longest = min(max_new_tokens, lm.context - len(prompt))
    if longest < 1:
        return "context"
    searching = all_groups = [Group(beams // groups, length_penalty) for _ in range(groups)]
    batch = lm.batch([prompt])
    logits = torch.cat(batch.feed([[]]))  # (rows, vocab)
    for length in range(1, longest + 1):
        log_probs = probabilities(logits, warp, batch.tokens).log()
        if length <= min_new_tokens:
            log_probs[:, list(stop)] = -math.inf
        chosen = torch.zeros_like(log_probs[0])  # how often groups have chosen each token at this length
        finished_here = 0
        for group in searching:
            finished_here += group.lengthen(log_probs, diversity * chosen, stop, last=length == longest)
            for hypothesis in group.running:
                chosen[hypothesis.tokens[-1]] += 1
        running = [hypothesis for group in searching for hypothesis in group.running if length < longest]
        yield Step(
            hypotheses=sorted(([h.tokens, h.log_prob] for h in running), key=lambda pair: -pair[1]),
            scored=len(batch),
            note=f"finished: {finished_here}" if finished_here else "",
        )
        searching = [group for group in searching if not group.is_done(length, longest, early_stopping)]
        if not searching:
            break
        logits = feed_running([hypothesis for group in searching for hypothesis in group.running], batch)[0]
    finished = sorted((pair for group in all_groups for pair in group.finished), key=lambda pair: -pair[1])
    if not finished:
        raise ValueError(
            f"every continuation has probability 0 after {length} tokens: is min_new_tokens={min_new_tokens} possible?"
        )
    yield Step(list(finished[0][0]), score=finished[0][1], hypotheses=finished)
