"""Batches of stories. Each row is one story, so a fact is never cut off from the question about it."""

import random
from typing import NamedTuple

import torch

from tutorlib.lab.training import hints
from tutorlib.storyworld import told
from tutorlib.storyworld.narrate import DRILL

IGNORED = -100  # the target of positions after a story's end
BUCKET = 8  # batches that are made together and sorted by length, so rows of a batch have similar lengths


class StoryBatch(NamedTuple):
    """Stories as tensors.

    Attributes
    ----------
    tokens, targets : (rows, longest) int64
        Targets are `IGNORED` after a story's end.
    hints : (to_cue, to_source, to_told), or None
        As returned by `tutorlib.lab.training.hints.masks`.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    hints: tuple | None


class Stories:
    """An endless corpus whose batch number n is always the same.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerFast
    rows : int
        Stories a batch.
    drill : int
        For this many batches stories are mostly reminders and questions: looking facts up is learnt from these first.
    hinted : int
        This many batches come with hints of where to look.
    seed : str
        Which corpus; held-out stories use another.
    """

    def __init__(self, tokenizer, rows, *, drill=0, hinted=0, seed="train"):
        self.tokenizer, self.rows, self.drill, self.hinted, self.seed = tokenizer, rows, drill, hinted, seed
        self._bucket, self._batches = -1, []

    def batch(self, n):
        """StoryBatch number n."""
        bucket, place = divmod(n, BUCKET)
        if bucket != self._bucket:
            self._bucket, self._batches = bucket, self._make(bucket)
        return self._batches[place]

    def _make(self, bucket):
        style = {"kinds": DRILL, "sentences": (10, 12)} if bucket * BUCKET < self.drill else {}
        stories = [told(f"{self.seed} {bucket} {row}", **style) for row in range(BUCKET * self.rows)]
        encodings = self.tokenizer([" ".join(sentence for sentence, _, _ in story) for story in stories]).encodings
        pairs = sorted(zip(encodings, stories), key=lambda pair: len(pair[0]))
        batches = []
        for start in range(0, len(pairs), self.rows):
            chosen, their_stories = zip(*pairs[start : start + self.rows])
            pointed = hints.masks(chosen, their_stories) if bucket * BUCKET < self.hinted else None
            tokens, targets = self._pad([encoding.ids for encoding in chosen])
            batches.append(StoryBatch(tokens, targets, pointed))
        random.Random(f"{self.seed} {bucket}").shuffle(batches)
        return batches

    def _pad(self, rows):
        """Ends the rows and pads them on the right. Attention is causal, so padding does not affect anything before
        it.
        """
        end = self.tokenizer.eos_token_id
        tokens = torch.full((len(rows), max(map(len, rows)) + 1), end)
        targets = torch.full_like(tokens, IGNORED)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = targets[i, : len(row)] = torch.tensor(row)
            targets[i, len(row)] = end
        return tokens, targets
