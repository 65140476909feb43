"""What a method yields: one `Step` after another, each with the tokens it adds and how they were chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..model.tree import TokenTree
from ..sampling.known_text import History
from ..sampling.warp import in_float64, one_hot, probabilities


class Candidates(Sequence):
    """The most likely alternatives for each emitted token: a list of lists of (token, probability), most likely first.

    The lists are computed only when they are first read, so providing candidates with every step costs a method no
    time.

    Parameters
    ----------
    logits : tensor of floats, shape (tokens, vocab)
        The logits from which the tokens were chosen, before the warps. They must not be changed afterwards.
    count : int
        How many of the most likely tokens to keep for each row.
    warp, histories
        As for `probabilities`. A `one_hot` at the end is left out, because it would hide the alternatives of a greedy
        choice.

    Examples
    --------
    >>> Candidates(torch.tensor([[1.0, 1.0, -torch.inf]]))[0]
    [(0, 0.5), (1, 0.5)]
    """

    def __init__(self, logits: torch.Tensor, count: int = 5, *, warp: Sequence = (), histories=None):
        self._logits: torch.Tensor | None = logits
        self._count = count
        self._warp = warp[:-1] if warp and warp[-1] is one_hot else warp
        self._histories: list | None = None if histories is None or not self._warp else list(histories)
        self._lists: list[list[tuple[int, float]]] = []

    @property
    def nbytes(self) -> int:
        """Bytes that the logits, and histories that are not shared, take until the lists are computed; 0 afterwards."""
        if self._logits is None:
            return 0
        own = [history for history in self._histories or () if isinstance(history, list)]
        return self._logits.numel() * self._logits.element_size() + 8 * sum(map(len, own))

    def share(self, text: list[int], start: int) -> None:
        """Let each history that is the beginning of a text be a part of this text, and not a copy of its tokens.

        Parameters
        ----------
        text : list of int
            Prompt and new tokens. It may grow, but what it holds must not change.
        start : int
            How many tokens of the text come before the first of the tokens.
        """
        histories = self._histories or []
        for row, history in enumerate(histories):
            if isinstance(history, list) and history == text[: start + row]:
                histories[row] = History(text, same=start + row)

    def settled(self) -> list[list[tuple[int, float]]]:
        """Compute the lists, if that has not been done yet, and release the logits."""
        if self._logits is not None:
            rows = in_float64(self._logits)
            probs = probabilities(rows, self._warp, self._histories) if self._warp else rows.softmax(-1)
            self._lists = [likeliest(row, self._count) for row in probs]
            self._logits = self._histories = None
        return self._lists

    def __getitem__(self, index):
        if isinstance(index, slice) and self._logits is not None:
            part = Candidates(self._logits[index], self._count, warp=self._warp)
            part._histories = self._histories and self._histories[index]
            return part
        return self.settled()[index]

    def __len__(self) -> int:
        return len(self._lists) if self._logits is None else len(self._logits)

    def __eq__(self, other) -> bool:
        return list(self) == list(other) if isinstance(other, Candidates | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # how Python says that equal lists have no hash

    def __repr__(self) -> str:
        return repr(self.settled())


def likeliest(probs: torch.Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` most likely tokens of a row (vocab,) as (token, probability), without tokens of probability zero.

    If probabilities are equal, the lowest id comes first, which `topk` does not promise.
    """
    least = probs.topk(min(count, len(probs))).values[-1]
    tokens = ((probs >= least) & (probs > 0)).nonzero()[:, 0].tolist()
    pairs = list(zip(tokens, probs[tokens].tolist(), strict=True))
    return sorted(pairs, key=lambda pair: -pair[1])[:count]


@dataclass
class Step:
    """One step of a method: the tokens it added to the text, and information on how they were chosen.

    Only `tokens` is required. A search yields steps without tokens until it has finished.

    Attributes
    ----------
    tokens : list of int
        The tokens emitted, in order.
    drafted : list of int
        The drafted tokens: a chain, or the tokens of `tree` in the order of its nodes.
    accepted : int
        How many of the drafted tokens were accepted. They are the first of `tokens`.
    tree : TokenTree or None
        The tree of candidates, for methods that draft one.
    path : tuple of int
        The nodes of `tree` that were accepted, from the top down.
    candidates : list of lists of (token, probability)
        For each emitted token, the most likely tokens at its position. `Candidates` computes them when they are read.
    note : str
        A remark that the step view shows.
    hypotheses : list
        For searches: the hypotheses at this step, as lists ``[tokens, score]``.
    score : float or None
        For searches: the score of the emitted tokens.
    scored : int
        For searches: how many hypotheses the model scored in this step. Scoring a hypothesis means computing the
        distribution of the next token after it.
    cut : int
        How many tokens `run` cut off at the end, because of the budget or a stop token.
    calls : int or None
        Calls of the target up to the end of this step, as `run` counted them.
    """

    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    accepted: int = 0
    tree: TokenTree | None = None
    path: tuple[int, ...] = ()
    candidates: Sequence[list[tuple[int, float]]] = field(default_factory=list)
    note: str = ""
    hypotheses: list = field(default_factory=list)
    score: float | None = None
    scored: int = 0
    cut: int = 0
    calls: int | None = None

    @property
    def checked(self) -> int:
        """How many drafted tokens were checked: the accepted ones, and one more if the next was rejected.

        Tokens that were drafted after a rejected one were never checked, nor were those that `run` cut off. In a tree,
        each draw at a node checks once, however many children the node has. The last draw counts if the node had
        children but none of them was accepted.
        """
        last = self.path[self.accepted - 1] if self.accepted and self.tree is not None else -1
        goes_on = len(self.drafted) > self.accepted if self.tree is None else last in self.tree.parents
        return self.accepted + (goes_on and len(self.tokens) > self.accepted)

    @property
    def judged(self) -> int:
        """The name of `checked` in the release before: it goes with the next one."""
        return self.checked

    def first(self, count: int) -> "Step":
        """This step as if it had stopped after its first `count` tokens (itself, when it is no longer than that).

        Tokens that were drafted beyond them no longer count as drafted, because they were not checked.
        """
        if count >= len(self.tokens):
            return self
        accepted = min(self.accepted, count)
        return replace(
            self,
            tokens=self.tokens[:count],
            accepted=accepted,
            drafted=self.drafted if self.tree is not None else self.drafted[:count],
            path=tuple(self.path[:accepted]),
            candidates=self.candidates[:count],
            cut=self.cut + len(self.tokens) - count,
        )

    def to_dict(self) -> dict:
        """This step as plain lists, numbers and strings; empty fields are left out."""
        plain: dict[str, Any] = {"tokens": list(self.tokens)}
        if self.drafted:
            plain["drafted"] = list(self.drafted)
        if self.accepted:
            plain["accepted"] = self.accepted
        if self.tree is not None:
            plain["tree"] = {"tokens": list(self.tree.tokens), "parents": list(self.tree.parents)}
        if self.path:
            plain["path"] = list(self.path)
        if len(self.candidates):
            plain["candidates"] = [[[token, round(prob, 6)] for token, prob in row] for row in self.candidates]
        if self.note:
            plain["note"] = self.note
        if self.hypotheses:
            plain["hypotheses"] = [[list(tokens), round(float(score), 6)] for tokens, score in self.hypotheses]
        if self.score is not None:
            plain["score"] = round(float(self.score), 6)
        if self.scored:
            plain["scored"] = self.scored
        if self.cut:
            plain["cut"] = self.cut
        if self.calls is not None:
            plain["calls"] = self.calls
        return plain

    @classmethod
    def from_dict(cls, plain: dict) -> "Step":
        """The step that `to_dict` wrote."""
        plain = dict(plain)
        if "tree" in plain:
            plain["tree"] = TokenTree(**plain["tree"])
        if "path" in plain:
            plain["path"] = tuple(plain["path"])
        if "candidates" in plain:
            plain["candidates"] = [[(token, prob) for token, prob in row] for row in plain["candidates"]]
        return cls(**plain)
