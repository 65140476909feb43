"""EAGLE's draft networks for any target, trained on texts that the target tells itself.

EAGLE-1 learns to guess the target's next feature, and what the target's head reads in it. EAGLE-3 learns to guess
tokens alone, and learns on its own steps too: in training it goes on from what it guessed, as it will when it drafts.
The target is frozen. What this file does not do: tell the texts (`own_text`), or take the steps (`loop`).

Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.2; Li et al.
(2025), "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test", section 3.2.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig

from ..decoders.draft_trees import dynamic
from ..heads import formats
from ..heads.eagle import TREE, DraftNetwork, Eagle3Head, EagleHead, causal, usual_layers
from ..lm import LM
from ..warp import check_whole_number, is_number
from .devices import ALONE, Devices
from .loop import train, warmup_then_decay
from .own_text import Batch, Batches, Text, claim, fingerprint
from .tell import Told, write_log

TOKENS_WEIGHT = 0.1  # of the cross-entropy beside the features' loss, in EAGLE-1
DECAY = 0.8  # the weight of each step's loss in proportion to that of the step before, in EAGLE-3
KNOWN = 0.3  # of the target's tokens that an EAGLE-3 network knows, where nobody says how many
DEEP = 5  # steps that are measured


class Fitted(NamedTuple):
    """What training gave.

    Attributes
    ----------
    head : EagleHead or Eagle3Head
    accuracies : dict
        "cold" and "sampled" → for each step of a draft how often its best guess is right, all guesses before it being
        right, in held-out texts, where those had become cold and where they were sampled. Without such places, missing.
    log : list of dict
    """

    head: DraftNetwork
    accuracies: dict[str, list[float]]
    log: list[dict]


def new_eagle(target: LM) -> EagleHead:
    """An untrained EAGLE-1 network of a target's sizes, with the target's embeddings."""
    return _like(target, EagleHead(layer_config(target)))


def new_eagle3(
    target: LM, texts: Sequence[Text], feature_layers: Sequence[int] | None = None, vocabulary: int | None = None
) -> Eagle3Head:
    """An untrained EAGLE-3 network of a target's sizes, with its embeddings, and its output head to start from.

    Parameters
    ----------
    target : LM
    texts : sequence of Text
        The tokens that are most frequent in them are known.
    feature_layers : sequence of int, optional
        By default `usual_layers`.
    vocabulary : int, optional
        How many tokens are known; by default all.

    Raises
    ------
    ValueError
        For layers and tokens that the target does not have.
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
    """The sizes of a draft network's one layer: those of a layer of the target, where it says so in Llama's terms."""
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


def frequent(texts: Sequence[Text], count: int, vocab_size: int) -> list[int]:
    """The tokens that come most often in some texts, ascending; the first ones of the vocabulary where too few do."""
    check_vocabulary(count, vocab_size)
    counts = Counter(token for text in texts for token in text.tokens)
    order = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    if max(order[:count]) < count < vocab_size:
        # The map of the vocabulary's first tokens is all zeros, in files the sign of one that was never filled.
        order[count - 1], order[count] = order[count], order[count - 1]
    return sorted(order[:count])


def check_vocabulary(count: int, vocab_size: int) -> None:
    """Raise ValueError when a draft network cannot know so many of a target's tokens."""
    if not 1 <= count <= vocab_size:
        raise ValueError(f"the vocabulary must have from 1 to {vocab_size} tokens, the target's, got {count}")


def fit(
    target: LM,
    head: DraftNetwork,
    texts: Sequence[Text],
    held_out: Sequence[Text],
    folder,
    *,
    steps: int = 4000,
    rows: int = 16,
    rate: float = 1e-3,
    noise: float = 0.2,
    depth: int = 7,
    devices: Devices = ALONE,
    every: int = 250,
    progress: bool = True,
) -> Fitted:
    """Train a draft network on a target's own texts, going on from what is in the folder.

    Parameters
    ----------
    target : LM
        Not changed.
    head : EagleHead or Eagle3Head
        Trained in place, in float32; its embeddings stay as they are.
    texts, held_out : sequences of Text
        What is learnt from, and what accuracies are measured on: see `own_text.own_texts`.
    folder : path
        For the checkpoint and the log.
    steps, rows : int
        Training steps, and texts in each.
    rate : float
        AdamW's learning rate.
    noise : float
        EAGLE-1: the width of the uniform noise that is added to features, so that it learns to bear its own mistakes.
    depth : int
        EAGLE-3: how many of its own steps it learns on.
    devices : Devices

    Returns
    -------
    Fitted

    Raises
    ------
    ValueError
        For a folder that was begun with other settings; for texts too short to guess anything in them; for a number of
        steps, rows or depth below 1, a rate that is not above 0, noise below 0.
    """
    third = isinstance(head, Eagle3Head)
    for name, count in (("steps", steps), ("rows", rows), ("depth", depth)):
        check_whole_number(count, 1, f"training needs {name}")
    if not is_number(rate) or not rate > 0 or not is_number(noise) or not noise >= 0:
        raise ValueError(f"training needs a rate above 0 and noise of 0 or more, got rate {rate} and noise {noise}")
    for told, name in ((texts, "texts"), (held_out, "held-out texts")):
        if not any(places(0, text) for text in told):
            raise ValueError(f"the {name} are too short to learn from: let them have 3 tokens or more")
    settings = {"steps": steps, "rows": rows, "rate": rate, "texts": len(texts), "model": fingerprint(target.model)}
    settings |= {"depth": depth, "layers": list(head.feature_layers)} if third else {"noise": noise}
    settings["tokens"] = len(head.d2t) if third else target.vocab_size
    claim(folder, settings, devices)
    head.to(target.device).requires_grad_(True)
    head.embed_tokens.requires_grad_(False)
    layers = dict.fromkeys((*head.feature_layers, -1))
    batches = Batches(target, texts, rows, layers=layers, devices=devices)
    checked = Batches(target, held_out, rows, layers=layers)
    loss = _loss3(head, target, batches, depth, devices) if third else _loss1(head, target, batches, noise, devices)
    trained = [weight for weight in head.parameters() if weight.requires_grad]
    log = train(
        head,
        loss,
        [torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)],
        steps=steps,
        folder=folder,
        schedule=warmup_then_decay(steps, warmup=min(100, steps), flat=0.2),
        report=lambda: _flat(accuracies(head, target, checked)),
        every=every,
        devices=devices,
        progress=progress,
    )
    measured = accuracies(head, target, checked)
    return Fitted(head.eval().requires_grad_(False), measured, log)


# Steps on whole texts.


def unroll(head: DraftNetwork, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """What a network gives at every place of some texts, and then on from what it gave, and so on.

    Step j at place t is what it gives in drafting after j right guesses: at place t it has the target's feature, since
    then its own, but the text's own tokens all the way. Source: EAGLE-3's training-time test, section 3.2.

    Parameters
    ----------
    head : DraftNetwork
    tokens : (rows, length) int64 tensor
    features : (rows, length, width * layers) tensor
    steps : int

    Yields
    ------
    (rows, length, width) tensor
        After step j, counted from 0: at place t what the target's feature will be at place t + 1 + j. What stands at
        the last 1 + j places of a text is for no use.
    """
    hidden = head.start(features)
    mix = _Unrolled()
    place = torch.arange(tokens.shape[1], device=tokens.device)[None]
    for step in range(steps):
        hidden = head(tokens.roll(-1 - step, dims=1), hidden, head.rotation(place + step), mix)
        yield hidden


class _Unrolled:
    """Attention in `unroll`: step j at place t reads the target's features up to t, and its own steps since then."""

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


def places(step: int, text: Text) -> range:
    """Places t of a text from which this step's guess, the token at t + 2 + step, can be checked and is its own."""
    first = max(0, text.own - 2 - step)
    return range(first, max(first, len(text.tokens) - 2 - step))


def index(step: int, texts: Sequence[Text], device) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, places) of all places for this step."""
    pairs = [(row, place) for row, text in enumerate(texts) for place in places(step, text)]
    return torch.tensor(pairs, dtype=torch.int64, device=device).reshape(-1, 2).unbind(1)


def joined(head: DraftNetwork, batch: Batch) -> torch.Tensor:
    """The features (rows, length, width * layers) that a network reads, in its type."""
    return head.features(batch.hidden).to(head.fc.weight.dtype)


# The losses: sums over this process's places, divided by everybody's.


def _loss1(head: EagleHead, target, batches: Batches, noise: float, devices) -> Callable[[int], torch.Tensor]:
    """EAGLE-1's: how far the guessed features are, and what the target's head makes of them."""

    read = readable(target)

    def loss(step):
        batch = batches.step(step)
        features = joined(head, batch)
        shake = _shake(step, batch, features, devices)
        (guessed,) = unroll(head, batch.tokens, features + noise * (shake - 0.5), 1)
        rows, at = index(0, batch.texts, features.device)
        total = max(1, sum(len(places(0, text)) for text in batch.everybody))
        guessed, right = guessed[rows, at], features[rows, at + 1]
        far = F.smooth_l1_loss(guessed, right, reduction="sum") / head.width
        said = target.read_out(batch.hidden[-1][rows, at + 1], normed=True).float()
        law = F.cross_entropy(read(guessed), said.softmax(-1), reduction="sum")
        return devices.processes * (far + TOKENS_WEIGHT * law) / total

    return loss


def _shake(step, batch, features, devices) -> torch.Tensor:
    """Numbers from 0 to 1, as many as there are features: for a text the same however many processes there are."""
    longest = max(len(text.tokens) for text in batch.everybody)
    shape = (len(batch.everybody), longest, features.shape[-1])
    generator = torch.Generator(features.device).manual_seed(step)
    shake = torch.rand(shape, generator=generator, device=features.device, dtype=features.dtype)
    return devices.share(shake)[:, : features.shape[1]]


def _loss3(head: Eagle3Head, target, batches: Batches, depth: int, devices) -> Callable[[int], torch.Tensor]:
    """EAGLE-3's: what each of its steps says of the tokens, beside what the target says among those that it knows."""

    def loss(step):
        batch = batches.step(step)
        said = target.read_out(batch.hidden[-1], normed=True).float()
        known = head.t2d[said.argmax(-1)]  # of what the target's best token is unknown, there is nothing to learn
        laws = said[..., head.tokens].softmax(-1)
        whole = 0.0
        for j, hidden in enumerate(unroll(head, batch.tokens, joined(head, batch), depth)):
            rows, at = index(j, batch.texts, hidden.device)
            learnt = known[rows, at + 1 + j]
            rows, at = rows[learnt], at[learnt]
            total = max(1, sum(len(places(j, text)) for text in batch.everybody))
            logits = head.lm_head(head.norm(hidden[rows, at]))
            whole = whole + DECAY**j * F.cross_entropy(logits, laws[rows, at + 1 + j], reduction="sum") / total
        return devices.processes * whole

    return loss


def readable(target: LM) -> Callable[[torch.Tensor], torch.Tensor]:
    """What `LM.read_out` makes of the last features, as a function that gradients go through, but not to the target."""
    output = target.model.get_output_embeddings()
    weight, bias = output.weight.detach().float(), getattr(output, "bias", None)
    bias = None if bias is None else bias.detach().float()
    scale, cap = target._after_head

    def read(features):
        logits = F.linear(features, weight, bias)
        logits = logits if scale == 1 else logits * scale
        return logits if cap is None else (logits / cap).tanh() * cap

    return read


# What a network has learnt.


def accuracies(head: DraftNetwork, target: LM, batches: Batches, steps: int = DEEP) -> dict[str, list[float]]:
    """How often each step's best guess is the token that came, all tokens before it being the text's.

    Returns
    -------
    dict
        See `Fitted`.
    """
    counted = right_guesses(head, target, batches, steps)
    return {
        kind: [round(share, 4) for share in (right.sum(0) / seen.sum(0)).tolist()]
        for kind, (right, seen) in counted.items()
        if (seen.sum(0) > 0).all()
    }


@torch.no_grad()
def right_guesses(
    head: DraftNetwork, target: LM, batches: Batches, steps: int = DEEP
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """In each text, how many of each step's best guesses are right, and how many there are.

    Returns
    -------
    dict
        "cold" and "sampled" → two int64 tensors (texts, steps), the texts in the order of the batches. A place counts
        as cold if all tokens guessed were drawn cold, as sampled if none was.
    """
    found = {"cold": [], "sampled": []}
    for number in range(len(batches)):
        batch = batches[number]
        cold = torch.tensor([text.cold for text in batch.texts], device=batch.tokens.device)
        here = torch.zeros(2, 2, steps, len(batch.texts), dtype=torch.int64)  # kind; right or seen
        for j, hidden in enumerate(unroll(head, batch.tokens, joined(head, batch), steps)):
            rows, at = index(j, batch.texts, hidden.device)
            hits = head.read_out(hidden[rows, at], target).argmax(-1) == batch.tokens[rows, at + 2 + j]
            for kind, which in enumerate((at + 2 >= cold[rows], at + 2 + j < cold[rows])):
                for what, chosen in enumerate((which & hits, which)):
                    here[kind, what, j] = rows[chosen].bincount(minlength=len(batch.texts)).cpu()
        for kind, both in zip(found, here, strict=True):
            found[kind].append(both.transpose(1, 2))
    return {kind: torch.cat(parts, dim=1).unbind(0) for kind, parts in found.items()}


def _flat(measured):
    """For the log."""
    return {f"{name} {j}": share for name, shares in measured.items() for j, share in enumerate(shares)}


def _like(target: LM, head: DraftNetwork) -> DraftNetwork:
    """A fresh network with the target's embeddings; the same at every call."""
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


# Files.


def chosen_tree(
    nodes: int | None = None,
    depth: int | None = None,
    top_k: int | None = None,
    confidence: float = 0.0,
    greedy_temperature: float = 1.0,
) -> dict:
    """Arguments of `draft_trees.dynamic` for a network to come with, `heads.eagle.TREE` unless told otherwise."""
    tree = {
        name: default if given is None else given for (name, default), given in zip(TREE.items(), (nodes, depth, top_k))
    }
    tree |= {"confidence": confidence} if confidence else {}
    tree |= {"greedy_temperature": greedy_temperature} if greedy_temperature != 1 else {}
    dynamic(**tree)  # which says what is wrong with it
    return tree


def write(
    fitted: Fitted,
    out,
    *,
    settings: dict,
    command: Sequence[str] = (),
    base: str = "",
    half: bool = True,
) -> Path:
    """Write a network with its log into a folder.

    Parameters
    ----------
    settings : dict
        What the network was made with, for the log.
    command : sequence of str
        How to make it again.
    base : str
        The target's name.
    half : bool
        In half precision.

    Returns
    -------
    path of the folder
    """
    folder = Path(out)
    write_log(folder, command, settings, fitted.accuracies, fitted.log)
    head = copy.deepcopy(fitted.head)
    path = formats.save_eagle(head.half() if half else head, folder, base=base)
    path.chmod(0o644)  # safetensors are written as private
    return folder


def make(
    told: Told,
    head: DraftNetwork,
    out,
    *,
    tree: dict | None = None,
    devices: Devices = ALONE,
    command: Sequence[str] = (),
    progress: bool = True,
    **settings,
) -> Path:
    """Train a draft network on a target's own texts, and write it; what was done before is gone on from.

    Parameters
    ----------
    told : Told
        See `tell.tell`.
    head : EagleHead or Eagle3Head
        From `new_eagle` or `new_eagle3`.
    out : path
        Where the network goes.
    tree : dict, optional
        The tree that pays with it, arguments of `draft_trees.dynamic`.
    **settings
        See `fit`.

    Returns
    -------
    path of the network's folder
    """
    third = isinstance(head, Eagle3Head)
    fitted = fit(
        told.target,
        head,
        told.train,
        told.held_out,
        told.place / ("eagle3" if third else "eagle"),
        devices=devices,
        progress=progress,
        **settings,
    )
    head.tree = dict(TREE if tree is None else tree)
    if devices.first:
        sizes = {"layers": list(head.feature_layers), "tokens": len(head.d2t) if third else head.vocab_size}
        sizes["parameters"] = sum(weight.numel() for weight in head.parameters())
        write(
            fitted, out, settings=told.setting | settings | sizes | {"tree": head.tree}, command=command, base=told.base
        )
    devices.wait()
    return Path(out)
