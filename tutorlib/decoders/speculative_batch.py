"""Speculative decoding of several texts at once: each row accepts its own tokens, and no row waits for another."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch

from ..drafting.checking import check_logits
from ..drafting.rules import ChainRule, draft_token, ratio
from ..model.batch import Batch
from ..model.lm import LM
from ..model.tree import TokenTree
from ..model.vocabularies import check_prompt_of_both
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, draft_probabilities, over_ids
from .speculative import Gamma, check, is_unsure, tokens_to_draft


@dataclass
class BatchRow:
    """One text of the batch, with what `speculative` keeps in local variables.

    Attributes
    ----------
    number : int
        The index of its prompt. The row number may be smaller, because rows move up when others end.
    text : list of int
        The prompt and the tokens emitted so far.
    rng : Randomness
    read : int
        How many tokens the draft has been fed: tokens of the text, and then tokens that it drafted itself.
    unread : list of int
        The tokens at the end of the text that the target has not been fed: none at first, then one.
    rounds : list of (drafted, accepted)
    drafted : list of int
        The draft of this round.
    draft_probs : list of float64 tensors of shape (vocab,)
        The distribution that each of them was drawn from.
    """

    number: int
    text: list[int]
    rng: Randomness
    read: int
    unread: list[int] = field(default_factory=list)
    rounds: list[tuple[int, int]] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    draft_probs: list[torch.Tensor] = field(default_factory=list)


def draft_together(
    rows: list[BatchRow],
    batch: Batch,
    counts: list[int],
    confidence: float,
    rule: ChainRule,
    warp: Sequence[Warp],
    vocab_size: int,
) -> None:
    """Draft up to ``counts[i]`` of the target's `vocab_size` tokens for row i, with one call for all rows still
    drafting.
    """
    for row in rows:
        row.drafted, row.draft_probs = [], []
    drafting = [i for i, count in enumerate(counts) if count > 0]
    while drafting:
        # At first the draft reads what it has not seen of the text, and then each token that it has just drafted.
        lists = [[] for _ in rows]
        for i in drafting:
            lists[i] = rows[i].drafted[-1:] or rows[i].text[rows[i].read :]
            rows[i].read = len(rows[i].text) + len(rows[i].drafted)
        logits = batch.feed(lists)
        last = torch.cat([logits[i][-1:] for i in drafting])  # (drafting, vocab)
        probs = draft_probabilities(
            over_ids(last, vocab_size), warp, [History(rows[i].text, rows[i].drafted) for i in drafting]
        )
        drafted_on = []
        for i, row_probs, unsure in zip(drafting, probs, is_unsure(last, confidence), strict=True):
            if row_probs is None:  # a row that cannot be warped drafts no further
                continue
            rows[i].draft_probs.append(row_probs)
            rows[i].drafted.append(draft_token(rule, row_probs, rows[i].rng))
            if len(rows[i].drafted) < counts[i] and not unsure:
                drafted_on.append(i)
        drafting = drafted_on


def check_batch(target, draft, prompts, gamma, confidence, rule):
    """Raise ValueError if an argument of `speculative_batch` is wrong."""
    check(target, draft, max(prompts, key=len), gamma, confidence, rule)
    for prompt in prompts:
        check_prompt_of_both(prompt, "draft", draft)


@decoder(check=check_batch)
def speculative_batch(
    target: LM,
    draft: LM,
    prompts: Sequence[Prompt],
    *,
    gamma: Gamma = 4,
    confidence: float = 0.0,
    rule: ChainRule = ratio,
    rngs: Sequence[Randomness] | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[list[Step], set[int] | None, str]:
    """Speculative decoding of several texts, with one call of the target per round for all of them.

    *Lossless* for every row: each text is the one that `speculative` would write for the same prompt, rng and settings,
    apart from rounding (a call for several rows may add numbers in a different order). Rows accept different numbers of
    tokens, so their lengths differ more and more; each row forgets only its own rejected tokens.

    Cost: each round takes one call of `target` and up to γ calls of `draft`. Each call has one row for every text that
    has not ended, and is as wide as its longest row. Rows that have ended are removed from both caches. If all prompts
    are equal, they are read once.

    Source: as for `speculative`. Rows of uneven length are the subject of Qian et al. (2024), "BASS: Batched Attention-
    optimized Speculative Sampling".

    Parameters
    ----------
    target, draft, confidence, rule, warp
        As for `speculative`.
    prompts : list of str or of lists of int
        At least one; their lengths may differ.
    gamma : int or function
        As for `speculative`. A function is called for each row, with the rounds of that row.
    rngs : list of Randomness, or None
        One for each prompt, such as ``[Seeded(0), Seeded(1)]``. With None, the most likely tokens are taken instead.

    Yields
    ------
    list of Step
        One round: a step for each prompt, which is empty if the text has ended. Run the rounds with `run_batch`.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf.
    """
    target_batch, draft_batch = target.batch(prompts), draft.batch(prompts)
    texts = target_batch.tokens
    rows = [BatchRow(i, text, rng, read=len(text)) for i, (text, rng) in enumerate(zip(texts, rngs))]
    wanted = set(range(len(rows)))
    while True:
        going = [i for i, row in enumerate(rows) if row.number in wanted and len(row.text) < target.context]
        if not going:
            return "context"
        # Texts that have ended leave both caches, so that no call computes for them.
        rows = [rows[i] for i in going]
        target_batch.reorder(going)
        draft_batch.reorder(going)

        counts = [tokens_to_draft(gamma, row.rounds, row.text, target, draft) for row in rows]
        draft_together(rows, draft_batch, counts, confidence, rule, warp, target.vocab_size)
        logits = target_batch.feed([row.unread + row.drafted for row in rows])
        steps = [Step() for _ in prompts]
        target_forgets, draft_forgets = [], []
        for row, row_logits in zip(rows, logits, strict=True):
            drafted = TokenTree.chain(row.drafted)
            checked = check_logits(row_logits, row.text, drafted, row.rng, warp, rule(row.draft_probs))
            # The last of the tokens is fed in the next round.
            target_forgets.append(len(row.drafted) - len(checked.tokens) + 1)
            row.text += checked.tokens
            row.unread = checked.tokens[-1:]
            # Of what the draft has read, only its accepted guesses are text; its last token comes with the next draft.
            right = min(row.read, len(row.text) - 1)
            draft_forgets.append(row.read - right)
            row.read = right
            row.rounds.append((len(row.drafted), len(checked.path)))
            steps[row.number] = checked.step()
        target_batch.rollback(target_forgets)
        draft_batch.rollback(draft_forgets)
        wanted = (yield steps) or wanted
