"""Train Medusa heads for any target, on texts that the target writes itself, with its probabilities as labels.

The target is frozen (Medusa-1), or trained together with the heads while a loss term keeps its predictions close to the
original ones (Medusa-2). What this file does not do: run the training, measure, and write files (`learner`).

Source: Cai et al. (2024), "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", sections
2.2 and 2.3.2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ...disk import filling
from ...drafting.choices import grow
from ...drafting.medusa_heads import NODES, MedusaHeads, output_layer
from ...loading.formats import save_medusa
from ...model.lm import LM
from .batches import TextBatch
from .labels import Labels, Loss, cross_entropy, readable
from .learner import Learner
from .sampled_texts import SampledText, hidden_states

DECAY = 0.8  # the weight of each head's loss, relative to that of the head before it
HEADS_WEIGHT = 0.2  # weight of the heads' losses relative to the target's own, in joint training
HEADS_RATE = 4  # the heads' learning rate relative to the target's, in joint training
ALONE_FIRST = 0.25  # the share of joint training in which only the heads learn, to protect the target
RANKS = 10  # the number of ranks for which accuracies are measured
LARGE = 2**27  # above this many logits of a head, they are computed again instead of kept for the gradient


class MedusaLearner(Learner):
    """Medusa heads for a frozen target (Medusa-1), with the best tree for their accuracies.

    Parameters
    ----------
    target : LM
    low_temperature : float
        The low temperature at which the ends of the texts were drawn (see `TextSettings`).
    heads, layers : int
        The number of heads, and of residual blocks in each head.
    nodes : int
        The number of nodes in the tree.
    hard : bool
        Whether the labels are the tokens of the texts. By default they are the distributions from which these were
        drawn.
    tokens : sequence of int, optional
        The tokens that the heads know; by default all. Positions at which the target's best token is not among them are
        skipped.
    borrow : bool
        Whether the heads use the target's output head, which is then neither trained nor written. This makes the files
        of heads for a large vocabulary much smaller.
    compare : function
        How guesses are compared with the labels, see `labels`: `cross_entropy` as published, or `lk`, which compares
        with distributions alone.
    """

    head: MedusaHeads
    name, betas, given, joint = "medusa", (0.9, 0.98), 0, False

    def __init__(
        self,
        target: LM,
        *,
        low_temperature: float,
        heads: int = 4,
        layers: int = 1,
        nodes: int = NODES,
        hard: bool = False,
        tokens: Sequence[int] | None = None,
        borrow: bool = False,
        compare: Loss = cross_entropy,
    ):
        if hard and compare is not cross_entropy:
            raise ValueError(
                f"hard labels are tokens, and {compare.__name__} compares with probabilities: choose one of the two"
            )
        output = target.model.get_output_embeddings().weight.detach().float()
        if tokens is not None:
            output = output[torch.tensor(tokens, device=output.device)]
        made = MedusaHeads(target.width, target.vocab_size, heads, layers, output, token_map=tokens)
        super().__init__(target, made)
        self.settings = {"heads": heads, "layers": layers, "hard": hard, "joint": self.joint}
        self.settings["loss"], self.compare = compare.__name__, compare
        known = torch.arange(target.vocab_size) if self.head.token_map is None else self.head.token_map
        self.known, self.borrow = known.to(target.device), borrow
        if tokens is not None:
            self.settings["tokens"] = len(tokens)
        if borrow:
            if self.joint:
                raise ValueError("heads cannot borrow the output head of a target that is trained with them (Medusa-2)")
            if not layers:
                raise ValueError("heads that borrow the target's output head need layers of 1 or more to learn in")
            self.settings["borrow"] = True
            for head in self.head.blocks():
                output_layer(head).requires_grad_(False)
        self.noted = {"nodes": nodes}
        self.depth, self.ranks, self.needed = heads, min(RANKS, target.vocab_size), heads - 1
        self.low_temperature, self.nodes, self.hard = low_temperature, nodes, hard
        self.read = readable(target, self.known)
        self.best = tokens is not None and not hard

    @staticmethod
    def first(step: int, text: SampledText) -> int:
        return text.own - 1  # there, the next token is the target's own, too

    def loss(self, batch, step, steps):
        return self.heads_loss(batch, batch.hidden[-1])

    def heads_loss(self, batch: TextBatch, hidden: torch.Tensor) -> torch.Tensor:
        """The loss of all heads, from hidden states (rows, length, width)."""
        labels, hidden, whole = self.labels(batch), hidden.float(), hidden.new_zeros((), dtype=torch.float32)
        for i in range(self.depth):
            rows, at = self.index(i, batch.texts, hidden.device)
            there, right = labels.at(rows, at + 1 + i)
            states = hidden[rows[there], at[there]]
            if len(states) * len(self.known) > LARGE:
                summed = checkpoint(self._compared, i, states, right, use_reentrant=False)
            else:
                summed = self._compared(i, states, right)
            whole = whole + DECAY**i * (summed / self.count(i, batch.everybody))
        return whole

    def _compared(self, i, states, labels):
        return self.compare(self.head[i](states), labels)

    def labels(self, batch: TextBatch) -> Labels:
        """What is right: the distributions from which the texts were drawn, among the tokens that the heads know, or
        the tokens themselves. There is no label where the best token (or the token itself) is not known.
        """
        rows, at = self.index(0, batch.texts, self.known.device)  # the other heads guess the same tokens, or fewer
        at = at + 1
        if self.hard:
            index = torch.full((self.target.vocab_size,), -1, device=self.known.device)
            index[self.known] = torch.arange(len(self.known), device=index.device)
            right = index[batch.tokens[rows, at + 1]]
            there = right >= 0
            return Labels(right[there], rows[there], at[there], batch.tokens.shape)
        if batch.best is not None:
            there = torch.isin(batch.best[rows, at], self.known)
            rows, at = rows[there], at[there]
        low_from = torch.tensor([text.low_from for text in batch.texts], device=rows.device)
        degrees = torch.where(at + 1 >= low_from[rows], self.low_temperature, 1.0)
        probs = (self.read(batch.hidden[-1][rows, at].float()) / degrees[:, None]).softmax(-1)
        return Labels(probs, rows, at, batch.tokens.shape)

    def guesses(self, batch):
        hidden = self.hidden(batch).float()
        for i, head in enumerate(self.head):
            rows, at = self.index(i, batch.texts, hidden.device)
            yield rows, at, self.head.spread(head(hidden[rows, at]))

    def hidden(self, batch: TextBatch) -> torch.Tensor:
        """The last hidden states of the target in its present state."""
        return batch.hidden[-1]

    def finish(self, accuracies):
        super().finish(accuracies)
        if not accuracies:
            raise ValueError(
                f"the held-out texts are too short to measure all {self.depth} heads: have more or longer ones"
            )
        self.head.accuracies = accuracies.get("cold") or accuracies["sampled"]
        self.head.choices = grow(self.head.accuracies, self.nodes)

    def write(self, head, folder, base):
        layout = "medusa" if head.token_map is None and not self.borrow else "vllm"
        return save_medusa(head, folder, layout, base=base, borrowed=self.borrow)


class JointMedusaLearner(MedusaLearner):
    """Medusa heads trained together with a copy of the target (Medusa-2), at a quarter of the heads' learning rate.

    In the first quarter of the steps only the heads are trained. After that, the copy learns hidden states that are
    more useful for the heads, while the Kullback-Leibler divergence in the loss keeps its predictions close to those of
    the target. A family is written: ``target`` and ``medusa``.

    Attributes
    ----------
    student : LM
        The copy.
    """

    trained: Joint
    name, part, joint = "medusa joint", "medusa", True

    def __init__(self, target: LM, **settings):
        if target.dtype == torch.float16:
            raise ValueError("a target in float16 cannot be trained: load it with dtype=float32 (or bfloat16)")
        super().__init__(target, **settings)
        model = copy.deepcopy(target.model)
        model.requires_grad_(True)
        self.student = LM(model, target.tokenizer, context=target.context)
        self.trained = Joint({"heads": self.head, "target": model})

    def groups(self, rate):
        heads, target = self.trained.values()
        return [{"params": heads.parameters()}, {"params": target.parameters(), "lr": rate / HEADS_RATE}]

    def loss(self, batch, step, steps):
        if step < ALONE_FIRST * steps:
            return super().loss(batch, step, steps)
        said = self.student.model(input_ids=batch.tokens, use_cache=False, output_hidden_states=True)
        old = self.target.read_out(batch.hidden[-1], normed=True)
        pairs = [(row, position) for row, text in enumerate(batch.texts) for position in range(len(text.tokens) - 1)]
        rows, at = torch.tensor(pairs, device=old.device).unbind(1)
        old, new = (logits[rows, at].float().log_softmax(-1) for logits in (old, said.logits))
        divergence = F.kl_div(new, old, reduction="sum", log_target=True)
        divergence = divergence / sum(len(text.tokens) - 1 for text in batch.everybody)
        return divergence + HEADS_WEIGHT * self.heads_loss(batch, said.hidden_states[-1])

    def hidden(self, batch):
        return hidden_states(self.student.model, batch.tokens, (-1,))[-1]

    def save(self, out, base):
        model = self.student.model
        with filling(out / "target", model.num_parameters() * model.dtype.itemsize) as fresh:
            model.save_pretrained(fresh)
            if self.student.tokenizer is not None:
                self.student.tokenizer.save_pretrained(fresh)
        super().save(out, base)


class Joint(nn.ModuleDict):
    """Heads and target as one module. It is trained without dropout, because the target's predictions should not
    change.
    """

    def train(self, mode: bool = True):
        return super().train(False)
