"""Train EAGLE's draft networks for any target, on texts that the target writes itself.

EAGLE-1 learns to predict the target's next feature, and the token distribution that the target's head computes from it.
EAGLE-3 learns to predict only tokens, and is trained over several of its own steps: as in drafting, it continues from
its own outputs. The target is frozen. What this file does not do: run the training, measure, and write files
(`learner`), or take steps (`own_steps`).

Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.2; Li et al.
(2025), "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test", section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig

from ...arguments import check_whole_number, is_number
from ...drafting.draft_trees import dynamic_tree
from ...drafting.eagle_head import DraftNetwork, Eagle3Head, EagleHead, usual_layers
from ...drafting.head_parts import TREE
from ...loading import formats
from ...model.lm import LM
from .batches import TextBatch
from .labels import Labels, Loss, cross_entropy, readable
from .last_layer import copy_final_norm, start_from_last_layer
from .learner import Learner
from .own_steps import unroll
from .sampled_texts import SampledText, frequent

TOKENS_WEIGHT = 0.1  # weight of the cross-entropy relative to the features' loss, in EAGLE-1
DECAY = 0.8  # the weight of each step's loss relative to that of the step before it, in EAGLE-3
KNOWN = 0.3  # the default share of the target's tokens that an EAGLE-3 network knows
DEEP = 5  # the number of steps that are measured


Network = TypeVar("Network", bound=DraftNetwork)


# What is learnt.


class DraftLearner(Learner):
    """The common part for both kinds of draft networks.

    Parameters
    ----------
    target : LM
    head : DraftNetwork
        Trained in place, in float32; its embeddings stay as they are.
    tree : dict, optional
        The tree to use with it: arguments of `draft_trees.dynamic_tree`.
    """

    head: DraftNetwork
    betas, given, depth = (0.9, 0.95), 1, DEEP

    def __init__(self, target: LM, head: DraftNetwork, tree: dict | None = None):
        super().__init__(target, head)
        head.requires_grad_(True).embed_tokens.requires_grad_(False)
        head.tree = dict(TREE if tree is None else tree)
        self.layers = tuple(dict.fromkeys((*head.feature_layers, -1)))
        parameters = sum(weight.numel() for weight in head.parameters())
        self.noted = {"layers": list(head.feature_layers), "parameters": parameters, "tree": head.tree}

    @staticmethod
    def first(step: int, text: SampledText) -> int:
        return max(0, text.own - 2 - step)

    def steps(self, batch: TextBatch, steps: int, further: slice = slice(None)) -> Iterable[torch.Tensor]:
        """The outputs (rows, length, width) of the network's first steps, see `own_steps.unroll`."""
        return unroll(self.head, batch.tokens, joined(self.head, batch), steps, further)

    def guesses(self, batch):
        for step, hidden in enumerate(self.steps(batch, self.depth)):
            rows, at = self.index(step, batch.texts, hidden.device)
            yield rows, at, self.head.read_out(hidden[rows, at], self.target)

    def write(self, head, folder, base):
        return formats.save_eagle(head, folder, base=base)


class EagleLearner(DraftLearner):
    """EAGLE-1. The loss compares the predicted features, and the tokens predicted from them, with those of the target.

    Parameters
    ----------
    target, head, tree :
        See `DraftLearner`.
    noise : float
        The width of the uniform noise that is added to features, which makes the network robust against its own errors.
    """

    name = "eagle"

    def __init__(self, target: LM, head: EagleHead, tree: dict | None = None, *, noise: float = 0.2):
        if not is_number(noise) or not noise >= 0:
            raise ValueError(f"training needs noise of 0 or more, got {noise}")
        super().__init__(target, head, tree)
        self.noise, self.read = noise, readable(target)
        self.settings = {"noise": noise, "tokens": target.vocab_size}
        if head.fc.bias is None:
            self.settings["bias"] = False

    def loss(self, batch, step, steps):
        features = joined(self.head, batch)
        (guessed,) = unroll(self.head, batch.tokens, features + self.noise * (_shake(step, batch, features) - 0.5), 1)
        rows, at = self.index(0, batch.texts, features.device)
        guessed, right = guessed[rows, at], features[rows, at + 1]
        far = F.smooth_l1_loss(guessed, right, reduction="sum") / self.head.width
        said = self.target.read_out(batch.hidden[-1][rows, at + 1], normed=True).float()
        tokens = F.cross_entropy(self.read(guessed), said.softmax(-1), reduction="sum")
        return (far + TOKENS_WEIGHT * tokens) / self.count(0, batch.everybody)


class StepsLearner(DraftLearner):
    """A network that is trained over several of its own steps, and compared with the target's probabilities of tokens.

    Parameters
    ----------
    target, head, tree :
        See `DraftLearner`.
    depth : int
        The number of its own steps over which it is trained.
    compare : function
        How guesses are compared with the target's probabilities, see `labels`: `cross_entropy` as published, or `lk`.
    thin : int
        The steps after the first are trained only at every so many-th position, and at others in the next training
        step. With 2 and depth 5, this takes about 60 % of the time.
    """

    def __init__(
        self,
        target: LM,
        head: DraftNetwork,
        tree: dict | None = None,
        *,
        depth: int = 7,
        compare: Loss = cross_entropy,
        thin: int = 1,
    ):
        check_whole_number(depth, 1, "training needs depth")
        check_whole_number(thin, 1, "training needs thin")
        super().__init__(target, head, tree)
        self.learnt, self.thin, self.compare, self.read = depth, thin, compare, readable(target)
        self.settings = {"depth": depth, "layers": list(head.feature_layers), "loss": compare.__name__}
        if thin > 1:
            self.settings["thin"] = thin

    def loss(self, batch, step, steps):
        labels, whole = self.labels(batch), batch.hidden[-1].new_zeros((), dtype=torch.float32)
        start = min(self.first(self.learnt, text) for text in batch.everybody) + step % self.thin
        further = slice(start, None, self.thin)
        for j, hidden in enumerate(self.steps(batch, self.learnt, further)):
            rows, at = self.index(j, batch.texts, hidden.device)
            here, count = at, self.count(j, batch.everybody)
            if j:
                chosen = (at >= start) & ((at - start) % self.thin == 0)
                rows, at = rows[chosen], at[chosen]
                here = (at - start) // self.thin
                count = max(1, sum(len(_thinned(self.positions(j, text), further)) for text in batch.everybody))
            there, probs = labels.at(rows, at + 1 + j)
            logits = self.logits(hidden[rows[there], here[there]])
            whole = whole + DECAY**j * self.compare(logits, probs) / count
        return whole

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., known) of the tokens that the network knows, from the output of a step."""
        return self.read(hidden)

    def labels(self, batch: TextBatch) -> Labels:
        """The target's probabilities of the known tokens, where its best token is one of them."""
        # The steps after the first one guess the same tokens, or fewer.
        rows, at = self.index(0, batch.texts, batch.tokens.device)
        if batch.best is not None and isinstance(self.head, Eagle3Head):
            learnt = self.head.t2d[batch.best[rows, at + 1]]
            rows, at = rows[learnt], at[learnt]
        probs = self.read(batch.hidden[-1][rows, at + 1].float()).softmax(-1)
        return Labels(probs, rows, at + 1, batch.tokens.shape)


class Eagle3Learner(StepsLearner):
    """EAGLE-3. The loss is over the tokens that it knows.

    Parameters
    ----------
    target, head, tree, **how :
        See `StepsLearner`.
    borrow : bool
        Whether the network uses the target's output head, which is then not trained. Neither this head nor the target's
        embeddings are written, which makes the files of a network for a large vocabulary much smaller.
    from_last_layer : bool
        Whether the network starts as a copy of the target's last layer, see `start_from_last_layer`. This helps if
        there is little time for training.
    """

    head: Eagle3Head
    name = "eagle3"

    def __init__(
        self,
        target: LM,
        head: Eagle3Head,
        tree: dict | None = None,
        *,
        borrow: bool = False,
        from_last_layer: bool = False,
        **how,
    ):
        super().__init__(target, head, tree, **how)
        self.borrowed = formats.BORROWED if borrow else ()
        self.settings |= {"tokens": len(head.d2t), **formats.extra_norms(head)}
        self.read = readable(target, head.tokens)  # for the labels
        self.best = len(head.d2t) < head.vocab_size
        if borrow:
            head.lm_head.requires_grad_(False)
            copy_final_norm(target, head.norm)
            self.settings["borrow"] = True
        if from_last_layer:
            start_from_last_layer(target, head)
            self.settings["from_last_layer"] = True

    def write(self, head, folder, base):
        return formats.save_eagle(head, folder, base=base, borrowed=self.borrowed)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.head.known_logits(hidden)


def _thinned(positions: range, further: slice) -> range:
    """Those of some positions that are also positions of a slice, which begins less than a step after the first."""
    return positions[(further.start - positions.start) % further.step :: further.step]


def joined(head: DraftNetwork, batch: TextBatch) -> torch.Tensor:
    """The features (rows, length, width * layers) that a network reads, in its dtype."""
    return head.features(batch.hidden).to(head.fc.weight.dtype)


def _shake(step, batch, features) -> torch.Tensor:
    """Random numbers from 0 to 1, one for each feature. They do not depend on the number of processes."""
    longest = max(len(text.tokens) for text in batch.everybody)
    shape = (len(batch.everybody), longest, features.shape[-1])
    generator = torch.Generator(features.device).manual_seed(step)
    shake = torch.rand(shape, generator=generator, device=features.device, dtype=features.dtype)
    return batch.devices.share(shake)[:, : features.shape[1]]


# Untrained networks.


def new_eagle(target: LM, bias: bool = True) -> EagleHead:
    """An untrained EAGLE-1 network with the sizes and embeddings of a target. For vLLM it must not have a bias."""
    return like(target, EagleHead(layer_config(target), bias=bias))


def new_eagle3(
    target: LM,
    texts: Sequence[SampledText],
    feature_layers: Sequence[int] | None = None,
    vocabulary: int | None = None,
    *,
    normed: bool = False,
    make: type[Eagle3Head] = Eagle3Head,
    **how,
) -> Any:
    """An untrained EAGLE-3 network with the sizes, the embeddings and (as a start) the output head of a target.

    Parameters
    ----------
    target : LM
    texts : sequence of SampledText
        The network knows the most frequent tokens of these texts.
    feature_layers : sequence of int, optional
        By default `usual_layers`.
    vocabulary : int, optional
        How many tokens the network knows; by default all.
    normed : bool
        Whether it has the two norms of EAGLE-3.1 (`fc_norm` and `norm_output`, see `Eagle3Head`).
    make, **how :
        The kind of network, and what it takes beside.

    Raises
    ------
    ValueError
        If the target does not have these layers or this many tokens.
    """
    feature_layers = checked_layers(target, feature_layers)
    tokens = None if vocabulary is None else frequent(texts, vocabulary, target.vocab_size)
    how |= {"fc_norm": True, "norm_output": True} if normed else {}
    head = like(target, make(layer_config(target), feature_layers, tokens, **how))
    output = target.model.get_output_embeddings().weight.detach().float()
    head.lm_head.weight.data.copy_(output[head.tokens.to(output.device)])
    return head


def checked_layers(target: LM, feature_layers: Sequence[int] | None = None) -> tuple[int, ...]:
    """The layers whose hidden states an EAGLE-3 network reads, or ValueError if the target has no such layers."""
    chosen = usual_layers(target.layers) if feature_layers is None else tuple(feature_layers)
    inside = target.model.config.get_text_config().hidden_size
    if inside != target.width:
        raise ValueError(
            f"the target's layers have hidden states of width {inside}, what its output head reads has {target.width}: "
            "an EAGLE-3 network joins features of one width; train an EAGLE-1 network, which reads the last alone"
        )
    for layer in chosen:
        check_whole_number(layer, -target.layers - 1, "feature_layers are numbers of hidden states")
        if layer > target.layers:
            raise ValueError(
                f"feature_layers {chosen}: the target has {target.layers} layers, and so the hidden states 0 to "
                f"{target.layers}, none of number {layer}"
            )
    return chosen


def layer_config(target: LM) -> LlamaConfig:
    """The sizes of a draft network's single layer: those of the target's layers, if its configuration is like
    Llama's.
    """
    theirs = target.model.config.get_text_config()
    heads = theirs.num_attention_heads
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=target.width,
        intermediate_size=getattr(theirs, "intermediate_size", None) or 4 * target.width,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=getattr(theirs, "num_key_value_heads", None) or heads,
        head_dim=getattr(theirs, "head_dim", None) or 2 * math.ceil(target.width / heads / 2),
        max_position_embeddings=min(target.context, 2**20),
        rms_norm_eps=getattr(theirs, "rms_norm_eps", 1e-6),
        tie_word_embeddings=False,
        bos_token_id=theirs.bos_token_id,
        eos_token_id=theirs.eos_token_id,
    )
    rope = getattr(theirs, "rope_parameters", None)
    if rope and "rope_type" in rope:
        config.rope_parameters = dict(rope)
    return config


def like(target: LM, head: Network) -> Network:
    """A new network with the target's embeddings, the same in every call."""
    embeddings = target.model.get_input_embeddings().weight.detach().float()
    if tuple(embeddings.shape) != tuple(head.embed_tokens.weight.shape):
        raise ValueError(
            f"the target's embeddings have shape {tuple(embeddings.shape)}, where its features have width "
            f"{target.width}: an EAGLE network joins the two, and cannot be made for this target"
        )
    initialise(head)
    head.embed_tokens.weight.data.copy_(embeddings)
    return head


def initialise(head: nn.Module) -> None:
    """Give the linear layers of a network their first weights, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    for module in head.modules():
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)


def chosen_tree(nodes: int, depth: int, top_k: int, confidence: float = 0.0, greedy_temperature: float = 1.0) -> dict:
    """Arguments of `draft_trees.dynamic_tree` to store with a network."""
    tree: dict[str, Any] = {"nodes": nodes, "depth": depth, "top_k": top_k}
    tree |= {"confidence": confidence} if confidence else {}
    tree |= {"greedy_temperature": greedy_temperature} if greedy_temperature != 1 else {}
    dynamic_tree(**tree)  # raises ValueError if something is wrong
    return tree
