"""Train the bundled models: a deep, narrow target, a shallow draft, and a shallow draft with another tokenizer.

To make the target learn quickly that facts can be looked up, it starts shallow, on stories that are mostly reminders
and questions, with hints where to look (see `hints`). Then it is made deeper. A draft with one layer cannot combine the
two look-ups that an answer needs, however long it is trained. This difference is why checking with the target is worth
its time.
"""

import json
import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from tutorlib.disk import filling, locked, write_text
from tutorlib.lab.training import accuracy, hints
from tutorlib.lab.training.corpus import IGNORED, Stories
from tutorlib.lab.training.loop import train, warmup_then_decay
from tutorlib.lab.training.tokenizers import END, START, learn

CONTEXT = 512


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one depth.

    Attributes
    ----------
    layers : int
    steps, rows : int
        Training steps, and stories in each.
    drill, hinted : int
        The first steps that are drills; the first steps that are hinted.
    rate : float
        Muon's learning rate; AdamW's is a tenth of it.
    """

    layers: int
    steps: int
    rows: int
    drill: int = 0
    hinted: int = 0
    rate: float = 0.02


@dataclass(frozen=True)
class Recipe:
    """A bundled model.

    Attributes
    ----------
    width, heads : int
        Its shape; the inner layers of its MLPs are three times as wide.
    vocab_size, tokenizer_seed, specials :
        Its tokenizer, see `tokenizers.learn`.
    stages : tuple of Stage
        The last one's depth is the model's.
    averaged : int
        The model is the mean of the weights at the end of so many last stages: they are in one valley, and the mean is
        nearer to its ground than any of them.
    """

    width: int
    heads: int
    vocab_size: int
    tokenizer_seed: str
    specials: tuple
    stages: tuple
    averaged: int = 1


SHALLOW = Stage(layers=3, steps=2400, rows=16, drill=800, hinted=2000)
DEEP = Stage(layers=12, steps=1200, rows=16, rate=0.004)
POLISH = Stage(layers=12, steps=650, rows=16, rate=0.005)
LAST = Stage(layers=12, steps=400, rows=32, rate=0.005)
ONE_LAYER = Stage(layers=1, steps=4000, rows=16)
RECIPES = {
    "target": Recipe(192, 6, 640, "tokenizer", (START, END), (SHALLOW, DEEP, POLISH, LAST), averaged=2),
    "draft": Recipe(128, 4, 640, "tokenizer", (START, END), (ONE_LAYER,)),
    "other_draft": Recipe(128, 4, 512, "another tokenizer", (END, START), (ONE_LAYER,)),
}
HINTED = ((0, 0), (1, 0), (1, 1))  # (layer, head) that look for the cue, the source, and what there is
HINT = 0.2  # the weight of the hints beside the loss


def build(recipe, layers):
    """A Llama of this shape with seeded weights: wide for tied embeddings, small where a layer adds to the stream."""
    config = LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.width,
        intermediate_size=3 * recipe.width,
        num_hidden_layers=layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=recipe.specials.index(START),
        eos_token_id=recipe.specials.index(END),
        pad_token_id=None,
        attn_implementation="eager",  # the hints need to see the attention, and short rows are quicker this way
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in _outputs(model):
            weight /= math.sqrt(2 * layers)
    return model


def deepen(model, recipe, layers):
    """The same function with more layers: the old ones spread out, and before each, new ones that at first add nothing.

    Parameters
    ----------
    model : LlamaForCausalLM
        With no more layers than `layers`; with as many, what is returned is a copy.
    """
    deep = build(recipe, layers)
    shallow = len(model.model.layers)
    places = [(i + 1) * layers // shallow - 1 for i in range(shallow)]
    with torch.no_grad():
        for weight in _outputs(deep):
            weight.zero_()
    for place, layer in zip(places, model.model.layers):
        deep.model.layers[place].load_state_dict(layer.state_dict())
    deep.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    deep.model.norm.load_state_dict(model.model.norm.state_dict())
    return deep


def _outputs(model):
    """The matrices through which layers add to the residual stream."""
    return [w for layer in model.model.layers for w in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight)]


def optimizers(model, rate):
    """Muon for the layers' matrices, AdamW for embeddings and norms."""
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed_tokens" in name]
    return [
        torch.optim.Muon(inside, lr=rate, weight_decay=0.01, momentum=0.95, nesterov=True),
        torch.optim.AdamW(rest, lr=rate / 10, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def fit_recipe(recipe, folder, *, device="cpu", compiled=False, progress=True):
    """Trains one model, resuming from `folder`.

    Parameters
    ----------
    recipe : Recipe
    folder : path
        For the checkpoint and the log.
    device : str
    compiled : bool
        Compile the training step (needs a C++ compiler on a CPU): about half the time, the same up to rounding.
    progress : bool
        Show a progress bar, with the state-tracking accuracy beside the loss.

    Returns
    -------
    model : LlamaForCausalLM
    tokenizer : transformers.PreTrainedTokenizerFast
    log : list of dict
    """
    tokenizer = learn(recipe.vocab_size, seed=recipe.tokenizer_seed, specials=recipe.specials)
    model: Any = None
    log, ends = [], []
    for number, stage in enumerate(recipe.stages, start=1):
        model = deepen(model, recipe, stage.layers) if model else build(recipe, stage.layers)
        model.to(device)
        log += train(
            model,
            _loss(
                model,
                Stories(tokenizer, stage.rows, drill=stage.drill, hinted=stage.hinted, seed=f"train {number}"),
                compiled,
            ),
            optimizers(model, stage.rate),
            steps=stage.steps,
            folder=Path(folder) / f"stage {number}",
            schedule=warmup_then_decay(stage.steps),
            report=partial(accuracy.answer_shares, model, tokenizer),
            every=250,
            progress=progress,
        )
        ends = [*ends, {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}]
    last = ends[-recipe.averaged :]
    model.load_state_dict({name: sum(end[name] for end in last) / len(last) for name in last[0]})
    return model.to("cpu"), tokenizer, log


def _loss(model, stories, compiled):
    """The loss of a step: cross-entropy of the stories' tokens, and of where the hinted heads look."""
    forward = torch.compile(model, dynamic=True) if compiled else model
    device = model.device

    def loss(step):
        batch = stories.batch(step)
        tokens, targets = batch.tokens.to(device), batch.targets.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            if batch.hints:
                out = model(tokens, use_cache=False, output_attentions=True)
            else:
                out = forward(tokens, use_cache=False)
        logits = out.logits[:, :-1].float()
        value = F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)
        for (layer, head), allowed in zip(HINTED, batch.hints or ()):
            length = allowed.shape[-1]
            attention = out.attentions[layer][:, head, :length, :length].float()
            value = value + HINT * hints.loss(attention, allowed.to(device))
        return value

    return loss


def save_model(model, tokenizer, folder):
    """Writes a model in half precision with its tokenizer and settings, as `transformers` reads them."""
    model = model.to(torch.float16)
    model.config.dtype = torch.float16
    model.config._attn_implementation = "sdpa"
    with filling(folder, 2 * model.num_parameters()) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        (fresh / "model.safetensors").chmod(0o644)


def make_village(folder, out, *, only=None, device="cpu", compiled=False, progress=True):
    """Trains the bundled models and writes them with their logs.

    Parameters
    ----------
    folder : path
        For checkpoints; a second call goes on from them.
    out : path
        Where the models go, a subfolder each.
    only : list of str, optional
        Which of them; by default all.
    """
    for name in only or RECIPES:
        began, runs, made = time.time(), Path(folder) / name, Path(out) / name
        with locked(runs), locked(made):
            model, tokenizer, log = fit_recipe(RECIPES[name], runs, device=device, compiled=compiled, progress=progress)
            save_model(model, tokenizer, made)
            write_text(made / "training_log.json", json.dumps(log, indent=1) + "\n")
        print(
            f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters, {time.time() - began:.0f} s, {log[-1]}"
        )
