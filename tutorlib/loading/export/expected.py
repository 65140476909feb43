"""What a server of an export should report for some prompts: the greedy texts, and how many guesses were accepted.

The counts are made as vLLM makes them, so that they can be compared with its metrics. A *draft* is a call of the target
that had guesses to check. Guesses that were accepted beyond the end of a text count too. What this file does not do:
ask a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...decoders.eagle import eagle
from ...decoders.greedy import greedy
from ...decoders.medusa import medusa
from ...decoders.speculative import speculative
from ...decoders.token_intersection import token_intersection
from ...disk import read_json
from ...drafting.draft_trees import chain_draft, dynamic_tree
from ...model.lm import LM
from ...running.step import Step
from ..formats import load_eagle, load_medusa
from ..models import Family, load

Method = Callable[[list[int]], Iterator[Step]]  # the steps after a prompt


@dataclass(frozen=True)
class Counts:
    """What was counted over some texts.

    Attributes
    ----------
    texts : list of lists of int
        The new tokens of each.
    calls : int
        Calls of the target, those that read the prompts among them.
    drafts : int
        Those of them that had guesses to check.
    drafted, accepted : int
        Guesses.
    by_position : list of int
        How many first, second, … guesses were accepted.
    """

    texts: list[list[int]]
    calls: int
    drafts: int
    drafted: int
    accepted: int
    by_position: list[int]

    @property
    def tokens_per_call(self) -> float:
        return sum(map(len, self.texts)) / self.calls

    @property
    def acceptance_length(self) -> float:
        """What engines call the mean acceptance length: accepted guesses and one more token, for each draft."""
        return 1 + self.accepted / max(self.drafts, 1)

    def in_words(self) -> str:
        """A line for each figure."""
        shares = ", ".join(f"{accepted / max(self.drafts, 1):.3f}" for accepted in self.by_position)
        lines = {
            "texts": f"{len(self.texts)} greedy texts, {sum(map(len, self.texts))} tokens",
            "calls of the target": f"{self.calls}, {self.calls - self.drafts} of them without a draft",
            "tokens per call": f"{self.tokens_per_call:.2f}",
            "drafts": self.drafts,
            "drafted tokens": self.drafted,
            "accepted tokens": f"{self.accepted} (guesses beyond the end of a text among them)",
            "accepted by position / drafts": shares,
            "mean acceptance length": f"{self.acceptance_length:.2f} (1 + accepted / drafts)",
        }
        return "\n".join(f"{name + ':':31}{value}" for name, value in lines.items())


def served(folder, *, dtype=None) -> tuple[Family, Method]:
    """The family of an export, and the method by which its engine writes greedy texts.

    Parameters
    ----------
    folder : path
        What `export` has written. It may have been moved.
    dtype : torch.dtype or str, optional

    Raises
    ------
    ValueError
        If the folder is no export, or its target cannot be found.
    """
    folder = Path(folder)
    try:
        about = read_json(folder / "serving.json")
        kind, settings = about["kind"], about["settings"]
        family = load(about["target"], device="cpu", dtype=dtype)
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is no export ({error!r}): write one with tutorlib.loading.export") from error
    target = family.target
    count = settings.get("num_speculative_tokens") or settings["speculative-num-steps"]
    if kind == "medusa":
        heads = load_medusa(folder, target).to(family.dtype)  # engines compute in the target's dtype
        return family, lambda prompt: medusa(target, heads, prompt, shape=[(0,) * count])
    if kind == "lookup":
        return family, lambda prompt: _lookup(target, prompt, count, settings["prompt_lookup_max"])
    if kind == "draft":
        place = settings.get("model") or settings["speculative-draft-model-path"]
        draft = load(place, device="cpu", dtype=dtype).target
        method = token_intersection if settings.get("use_heterogeneous_vocab") else speculative
        return family, lambda prompt: _begun(target, prompt, lambda text: method(target, draft, text, gamma=count))
    top_k = settings.get("speculative-eagle-topk", 1)
    nodes = settings.get("speculative-num-draft-tokens", 0) - 1
    tree = chain_draft(count) if top_k == 1 else dynamic_tree(nodes, count, top_k)
    head = load_eagle(folder, target, dtype=family.dtype)
    return family, lambda prompt: eagle(target, head, prompt, shape=tree)


def expected(method: Method, target: LM, prompts: Sequence[Sequence[int]], tokens: int) -> Counts:
    """Write greedy texts of up to so many tokens, and count as an engine does.

    Parameters
    ----------
    method : function from a prompt to steps
        Of `served`.
    target : LM
        Its stop tokens end a text.
    prompts : sequence of sequences of int
    tokens : int
    """
    texts, steps = [], []
    for prompt in prompts:
        text = []
        for step in method(list(prompt)):
            steps.append(step)
            ends = [place + 1 for place, token in enumerate(step.tokens) if token in target.stop_tokens]
            text += step.tokens[: ends[0]] if ends else step.tokens
            if ends or len(text) >= tokens:
                break
        texts.append(text[:tokens])
    drafts = [step for step in steps if step.drafted]
    most = max((step.accepted for step in drafts), default=0)
    return Counts(
        texts=texts,
        calls=len(steps),
        drafts=len(drafts),
        drafted=sum(len(step.drafted) for step in drafts),
        accepted=sum(step.accepted for step in drafts),
        by_position=[sum(step.accepted >= place for step in drafts) for place in range(1, most + 1)],
    )


def _begun(target, prompt, method) -> Iterator[Step]:
    """The steps of a method after a first token without a draft: engines read the prompt in a call of its own."""
    first = next(iter(greedy(target, prompt)))
    yield first
    yield from method([*prompt, *first.tokens])


def _lookup(target, prompt, count, longest) -> Iterator[Step]:
    """Prompt lookup as in vLLM: the tokens that followed the *first* occurrence are the draft.

    A greedy text is the same with every draft, so it is written plainly, and cut into the steps that drafts make of it.
    """
    text, tokens, drafted = list(prompt), [], []
    for step in greedy(target, prompt):
        tokens += step.tokens
        if len(tokens) > len(drafted) or tokens[-1] != drafted[len(tokens) - 1]:
            yield Step(tokens, drafted, len(tokens) - 1)
            text += tokens
            tokens, drafted = [], first_continuation(text, count, longest)


def first_continuation(text: list[int], count: int, longest: int) -> list[int]:
    """Up to `count` tokens that followed the first occurrence of the longest n-gram at the end of a text.

    Examples
    --------
    >>> first_continuation([7, 1, 2, 3, 1, 2, 4, 1, 2], count=2, longest=2)
    [3, 1]
    """
    for n in range(min(longest, len(text) - 1), 0, -1):
        for place in range(len(text) - n):
            if text[place : place + n] == text[-n:]:
                return text[place + n : place + n + count]
    return []
