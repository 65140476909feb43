"""Train EAGLE's draft networks for any target, on texts that the target writes itself.

EAGLE-1 learns to predict the target's next feature, and the token distribution that the target's head computes from it.
EAGLE-3 learns to predict only tokens, and is trained over several of its own steps: as in drafting, it continues from
its own outputs. The target is frozen. What this file does not do: run the training, measure, and write files
(`learner`).

Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.2; Li et al.
(2025), "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test", section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig

from ...arguments import check_whole_number, is_number
from ...drafting.draft_trees import dynamic_tree
from ...drafting.eagle_head import TREE, DraftNetwork, Eagle3Head, EagleHead, causal, usual_layers
from ...loading import formats
from ...model.lm import LM
from ...model.read_out import scaled_or_capped
from .learner import Learner
from .sampled_texts import SampledText, TextBatch, frequent

TOKENS_WEIGHT = 0.1  # weight of the cross-entropy relative to the features' loss, in EAGLE-1
DECAY = 0.8  # the weight of each step's loss relative to that of the step before it, in EAGLE-3
KNOWN = 0.3  # the default share of the target's tokens that an EAGLE-3 network knows
DEEP = 5  # the number of steps that are measured
SMALL = 0.2  # factor for random weights, if a network starts as a copy of the target's last layer


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

    def guesses(self, batch):
        for step, hidden in enumerate(unroll(self.head, batch.tokens, joined(self.head, batch), self.depth)):
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


class Eagle3Learner(DraftLearner):
    """EAGLE-3. The loss compares the token predictions of each step with the target's, among the tokens that it knows.

    Parameters
    ----------
    target, head, tree :
        See `DraftLearner`.
    depth : int
        The number of its own steps over which it is trained.
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
        depth: int = 7,
        borrow: bool = False,
        from_last_layer: bool = False,
    ):
        check_whole_number(depth, 1, "training needs depth")
        super().__init__(target, head, tree)
        self.learnt, self.borrowed = depth, formats.BORROWED if borrow else ()
        self.settings = {"depth": depth, "layers": list(head.feature_layers), "tokens": len(head.d2t)}
        if borrow:
            head.lm_head.requires_grad_(False)
            _copy_final_norm(target, head.norm)
            self.settings["borrow"] = True
        if from_last_layer:
            start_from_last_layer(target, head)
            self.settings["from_last_layer"] = True

    def write(self, head, folder, base):
        return formats.save_eagle(head, folder, base=base, borrowed=self.borrowed)

    def loss(self, batch, step, steps):
        said = self.target.read_out(batch.hidden[-1], normed=True).float()
        known = self.head.t2d[said.argmax(-1)]  # where the target's best token is unknown, there is nothing to learn
        right, whole = said[..., self.head.tokens].softmax(-1), said.new_zeros(())
        for j, hidden in enumerate(unroll(self.head, batch.tokens, joined(self.head, batch), self.learnt)):
            rows, at = self.index(j, batch.texts, hidden.device)
            learnt = known[rows, at + 1 + j]
            rows, at = rows[learnt], at[learnt]
            logits = self.head.lm_head(self.head.norm(hidden[rows, at]))
            summed = F.cross_entropy(logits, right[rows, at + 1 + j], reduction="sum")
            whole = whole + DECAY**j * summed / self.count(j, batch.everybody)
        return whole


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


def readable(target: LM) -> Callable[[torch.Tensor], torch.Tensor]:
    """`LM.read_out` for the last features, as a function through which gradients flow, but not into the target."""
    output = target.model.get_output_embeddings()
    weight, bias = output.weight.detach().float(), getattr(output, "bias", None)
    bias = None if bias is None else bias.detach().float()
    return lambda features: scaled_or_capped(F.linear(features, weight, bias), target.forward.config)


# Steps on whole texts.


def unroll(head: DraftNetwork, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """The outputs of a network at every position of some texts, then its outputs from these, and so on.

    Step j at position t is the output of the network in drafting after j right guesses. The network uses the target's
    features up to position t and its own after that, but always the actual tokens of the text. Source: EAGLE-3's
    training-time test, section 3.2.

    Parameters
    ----------
    head : DraftNetwork
    tokens : (rows, length) int64 tensor
    features : (rows, length, width * layers) tensor
    steps : int

    Yields
    ------
    (rows, length, width) tensor
        After step j, counted from 0, the output at position t is the prediction of the target's feature at position t +
        1 + j. Ignore the last 1 + j positions of a text.
    """
    hidden = head.start(features)
    mix = _Unrolled()
    position = torch.arange(tokens.shape[1], device=tokens.device)[None]
    for step in range(steps):
        hidden = head(tokens.roll(-1 - step, dims=1), hidden, head.rotation(position + step), mix)
        yield hidden


class _Unrolled:
    """Attention in `unroll`: step j at position t attends to the target's features up to t, and to its own steps after
    t.
    """

    def __init__(self):
        self.keys, self.values = [], []

    def __call__(self, queries, keys, values):
        groups = queries.shape[1] // keys.shape[1]
        self.keys.append(keys.repeat_interleave(groups, dim=1))
        self.values.append(values.repeat_interleave(groups, dim=1))
        if len(self.keys) == 1:
            return causal(queries, keys, values)
        queries = queries / math.sqrt(queries.shape[-1])
        length = queries.shape[2]
        later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
        before = (queries @ self.keys[0].transpose(-1, -2)).masked_fill(later, -math.inf)
        since = [(queries * own).sum(-1, keepdim=True) for own in self.keys[1:]]
        weights = torch.cat([before, *since], dim=-1).softmax(-1)
        mixed = weights[..., :length] @ self.values[0]
        for step, own in enumerate(self.values[1:]):
            mixed = mixed + weights[..., length + step, None] * own
        return mixed


# Untrained networks.


def new_eagle(target: LM, bias: bool = True) -> EagleHead:
    """An untrained EAGLE-1 network with the sizes and embeddings of a target. For vLLM it must not have a bias."""
    return _like(target, EagleHead(layer_config(target), bias=bias))


def new_eagle3(
    target: LM, texts: Sequence[SampledText], feature_layers: Sequence[int] | None = None, vocabulary: int | None = None
) -> Eagle3Head:
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

    Raises
    ------
    ValueError
        If the target does not have these layers or this many tokens.
    """
    feature_layers = checked_layers(target, feature_layers)
    tokens = None if vocabulary is None else frequent(texts, vocabulary, target.vocab_size)
    head = _like(target, Eagle3Head(layer_config(target), feature_layers, tokens))
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


def _like(target: LM, head: Network) -> Network:
    """A new network with the target's embeddings, the same in every call."""
    embeddings = target.model.get_input_embeddings().weight.detach().float()
    if tuple(embeddings.shape) != tuple(head.embed_tokens.weight.shape):
        raise ValueError(
            f"the target's embeddings have shape {tuple(embeddings.shape)}, where its features have width "
            f"{target.width}: an EAGLE network joins the two, and cannot be made for this target"
        )
    generator = torch.Generator().manual_seed(0)
    for module in head.modules():
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
    head.embed_tokens.weight.data.copy_(embeddings)
    return head


@torch.no_grad()
def start_from_last_layer(target: LM, head: Eagle3Head) -> None:
    """Make an EAGLE-3 network start as a copy of its target's last layer, in place of random weights.

    At the start, the network passes on the highest of its features with a small part of the others, and treats the
    result like the last layer. Only the weights for the token's embedding are not copied: they are random and scaled
    down.

    Parameters
    ----------
    target : LM
    head : Eagle3Head
        Changed in place.

    Raises
    ------
    ValueError
        If the target's last layer is not built like Llama's, or its sizes differ from those of the network.
    """
    layers = getattr(target.model.get_decoder(), "layers", [])
    renamed = {"input_layernorm.weight": "hidden_norm.weight"}  # the norm before the features
    weights = layers[-1].state_dict() if len(layers) else {}
    theirs = {renamed.get(name, name): weight.float() for name, weight in weights.items()}
    ours = {name: weight for name, weight in head.midlayer.state_dict().items() if name not in renamed}
    if set(theirs) != set(ours) or any(
        theirs[name].shape != weight[..., -theirs[name].shape[-1] :].shape for name, weight in ours.items()
    ):
        raise ValueError(
            "the target's last layer is not built like Llama's, so an EAGLE-3 network cannot start as a copy of it: "
            "train without from_last_layer"
        )
    for name, weight in ours.items():
        copied = theirs[name].shape[-1]
        weight[..., :-copied] *= SMALL  # the weights for the token's embedding
        weight[..., -copied:] = theirs[name]
    head.fc.weight *= SMALL
    head.fc.weight[:, -head.width :] += torch.eye(head.width, device=head.fc.weight.device)


def _copy_final_norm(target: LM, norm: nn.RMSNorm) -> None:
    """Initialise the norm before the output head with the target's final norm, if it is of the same kind."""
    weight = getattr(getattr(target.model.get_decoder(), "norm", None), "weight", None)
    if weight is not None and weight.shape == norm.weight.shape:
        norm.weight.data.copy_(weight.detach().float())


def chosen_tree(nodes: int, depth: int, top_k: int, confidence: float = 0.0, greedy_temperature: float = 1.0) -> dict:
    """Arguments of `draft_trees.dynamic_tree` to store with a network."""
    tree: dict[str, Any] = {"nodes": nodes, "depth": depth, "top_k": top_k}
    tree |= {"confidence": confidence} if confidence else {}
    tree |= {"greedy_temperature": greedy_temperature} if greedy_temperature != 1 else {}
    dynamic_tree(**tree)  # raises ValueError if something is wrong
    return tree
