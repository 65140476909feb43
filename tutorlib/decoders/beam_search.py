"""Beam search: follow several continuations at once, and keep the best of those that come to an end."""

from __future__ import annotations

import math
import operator
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..model.batch import Batch
from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.decoding import checked_budget, checked_stop
from ..running.step import Step
from ..sampling.warp import Warp, probabilities


@dataclass(slots=True)
class Hypothesis:
    """A continuation of the prompt: its tokens, their Σ log p, and the row of the batch that it continues.

    (Contrastive beam search adds up another score in place of log p.)
    """

    tokens: list[int]
    log_prob: float
    row: int


class Group:
    """Beams that compete with each other: those still running, and the best `size` that have finished.

    Attributes
    ----------
    running : list of Hypothesis
        At most `size`. The search starts with one, the empty continuation, because equal hypotheses would all choose
        the same tokens.
    finished : list of [new tokens, score], best first
        At most `wanted`. If two scores are equal, the hypothesis that finished first comes first.
    wanted : int
        How many must have finished before the group may stop: `size` times the patience.
    """

    def __init__(self, size: int, length_penalty: float, patience: float = 1.0):
        self.size, self.length_penalty = size, length_penalty
        self.wanted = max(1, math.floor(size * patience + 0.5))
        self.running = [Hypothesis([], 0.0, row=0)]
        self.finished: list[list] = []

    def score(self, log_prob: float, length: int) -> float:
        return log_prob / length**self.length_penalty

    def lengthen(self, log_probs: torch.Tensor, discount: torch.Tensor, stop, last: bool) -> int:
        """Add one token to every hypothesis. The best that end are finished, and the best of the others run on.

        Parameters
        ----------
        log_probs, discount : tensors
            As for `continuations`.
        stop : set of int
        last : bool
            Whether every hypothesis ends at this length.

        Returns
        -------
        int
            How many of the best `size` continuations ended.
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
        del self.finished[self.wanted :]

    def is_done(self, length: int, longest: int, early_stopping) -> bool:
        """Whether the group is done: nothing runs on, or no running hypothesis is expected to beat the worst finished
        one.
        """
        if length == longest or not self.running:
            return True
        if len(self.finished) < self.wanted:
            return False
        best = max(hypothesis.log_prob for hypothesis in self.running)
        expected_length = longest if early_stopping == "never" and self.length_penalty > 0 else length
        return early_stopping is True or self.score(best, expected_length) <= self.finished[-1][1]


def continuations(running, log_probs: torch.Tensor, discount: torch.Tensor, count: int) -> list[Hypothesis]:
    """The `count` best continuations by one token, best first; fewer if the others have probability zero.

    If two are equally good, the continuation of the earlier hypothesis comes first, then the lower token id.

    Parameters
    ----------
    running : list of Hypothesis
    log_probs : (rows, vocab) float64 tensor
        Log-probabilities of the token after each row of the batch.
    discount : (vocab,) float64 tensor
        Subtracted from each token's log-probability when continuations are compared. Their `log_prob` stays as it is.
    """
    vocab = log_probs.shape[1]
    before = log_probs.new_tensor([hypothesis.log_prob for hypothesis in running])
    sums = before[:, None] + log_probs[[hypothesis.row for hypothesis in running]]
    sums, ranks = sums.flatten(), (sums - discount).flatten()
    least = ranks.topk(min(count, len(ranks))).values[-1]
    places = ((ranks >= least) & (ranks > -math.inf)).nonzero()[:, 0]  # topk does not promise which of equals it takes
    places = places[ranks[places].argsort(descending=True, stable=True)[:count]]
    parents = [running[place // vocab] for place in places.tolist()]
    return [
        Hypothesis([*parent.tokens, place % vocab], log_prob, parent.row)
        for parent, place, log_prob in zip(parents, places.tolist(), sums[places].tolist(), strict=True)
    ]


def feed_running(running: list[Hypothesis], *batches: Batch) -> list[torch.Tensor]:
    """Make the running hypotheses the rows of each batch, and feed each its last token. Returns logits (rows,
    vocab).
    """
    rows = [hypothesis.row for hypothesis in running]
    for row, hypothesis in enumerate(running):
        hypothesis.row = row
    for batch in batches:
        batch.reorder(rows)
    return [torch.cat(batch.feed([hypothesis.tokens[-1:] for hypothesis in running])) for batch in batches]


def check(
    lm, beams, max_new_tokens, length_penalty, early_stopping, min_new_tokens, groups, diversity, stop, patience=1.0
):
    """Raise ValueError if an argument of `beam_search` is wrong."""
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
    if _finite("patience", patience) <= 0:
        raise ValueError(f"patience must be above 0, got {patience!r}: 1 waits for as many texts as there are beams")
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
    patience: float = 1.0,
    min_new_tokens: int = 0,
    groups: int = 1,
    diversity: float = 0.0,
    warp: Sequence[Warp] = (),
    stop: Iterable[int] | None = None,
) -> Generator[Step, None, str | None]:
    """Keep the `beams` most likely continuations, add one token to each of them, and repeat; return the best one.

    At each length, every continuation by one token is a candidate. Among the best `beams` candidates, those that end
    with a stop token or at `max_new_tokens` are finished. The best `beams` candidates that do not end run on. A
    finished hypothesis has the score ``Σ log p / len ** length_penalty``, where len is the number of its new tokens,
    including the stop token. The `beams` finished hypotheses with the best scores are kept. Nothing is random here.

    Sequences and scores are the same as those of ``transformers.generate(num_beams=beams, do_sample=False)``, except
    when there are warps. In transformers, processors change the log-probabilities, and the changed numbers are the
    scores. Here, a warp changes the logits, and the scores are log-probabilities of the warped distribution, which sums
    to 1.

    Cost: one call of `lm` per length, with a row for each beam. All beams share one cache, whose rows are reordered.
    The prompt is computed once.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    beams : int
        How many hypotheses run, and how many finished ones are kept. It may be larger than the vocabulary: the first
        lengths then have fewer hypotheses (transformers runs copies of the prompt in their stead). With
        ``vocab ** (max_new_tokens - 1)`` beams the search is exhaustive. A group cannot have more than
        ``vocab ** max_new_tokens``.
    max_new_tokens : int
        Reduced if the model's context has less room.
    length_penalty : float
        A number above 0 favours long texts, because log-probabilities are negative; a number below 0 favours short
        ones. With 0, texts are compared by Σ log p.
    early_stopping : False, True or "never"
        When to stop once `beams` hypotheses have finished. True: at once. False: as soon as the best running
        hypothesis, scored at its present length, does not beat the worst finished one (with a `length_penalty` above 0
        it might have done so later). "never": only when it could not beat it at any length.
    patience : float
        How many hypotheses must have finished, and are kept, in units of `beams`; rounded (a half up), and at least
        one. Above 0. With ``early_stopping=True`` it is the patience factor of Kasai et al. (2022), "A Call for Clarity
        in Beam Search: How It Works and When It Stops", which CTranslate2 has too.
    min_new_tokens : int
        How many tokens must come before a stop token. The probabilities of the other tokens stay as they are.
    groups : int
        Divides the beams into groups. Each group searches, finishes and stops by itself (Vijayakumar et al. 2018,
        "Diverse beam search", algorithm 1). The finished hypotheses of all groups are returned together, and two groups
        may find the same text.
    diversity : float
        At each length the groups choose one after the other. A token that earlier groups have already chosen at this
        length (as the last token of their best continuations; stop tokens are not counted) loses `diversity` times the
        number of those choices from its log-probability. This is the paper's λ, with Hamming diversity. The scores stay
        those of the model. With 0 all groups find the same texts.
    warp : sequence of functions
        Applied to the logits in order, before the softmax.
    stop : token ids, optional
        None means ``lm.stop_tokens``; ``()`` means no stop tokens.

    Yields
    ------
    Step
        First one step without tokens for each length: its `hypotheses` are the running ones as
        ``[new tokens, Σ log p]``, best first, and `scored` is the number of rows in the call. The last step holds the
        tokens of the winner and its score. Its `hypotheses` are the finished ones as ``[new tokens, score]``, best
        first: `beams` of them (times `patience`), or fewer if no other text has a probability above zero.

    Raises
    ------
    ValueError
        When called with a bad argument; while searching, when logits are NaN or +inf, when the warps leave a hypothesis
        without any token, or when no continuation has a probability above zero.
    """
    stop = checked_stop(stop, lm)
    longest = min(max_new_tokens, lm.context - len(prompt))
    if longest < 1:
        return "context"
    searching = all_groups = [Group(beams // groups, length_penalty, patience) for _ in range(groups)]
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
