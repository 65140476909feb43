"""The exercises of the memory chapter: how many texts fit, other four-bit levels, whose text it is, NF4 beaten."""

import math

import torch

from .answers import expect, filled, judge_number, short, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# How many texts fit


@checker
def check_texts(prediction, *, memory, weights, layers, heads, key_heads, head_size, tokens, bytes_each) -> Verdict:
    """Judge a dict: the GB of one text's "cache" for `tokens` tokens, and how many "texts" fit beside the weights.

    `memory` and `weights` are in GB.
    """
    prediction = filled(prediction, ("cache", "texts"))
    cache = 2 * layers * key_heads * head_size * tokens * bytes_each / 1e9
    mistakes = {
        cache / 2: "That is half of it. Each token stores a key *and* a value, and each number takes two bytes.",
        cache / layers: "That is the cache of one layer. Each layer keeps its own keys and values.",
        cache * heads / key_heads: "You counted the query heads. Only the key-value heads store something.",
        cache * 1e9: "That is in bytes. Give GB.",
    }
    hint = "Start with what one token stores in one layer. Then multiply by the layers and the tokens."
    expect(prediction["cache"], cache, mistakes, part="cache", tolerance=0.02, otherwise=hint)
    texts = math.floor((memory - weights) / cache)
    mistakes = {
        math.floor(memory / cache): "You left out the weights. They are in the same memory.",
        texts + 1: "That is one too many: only whole texts count. Round down.",
    }
    hint = "(texts) Divide the memory that the weights leave free by the cache of one text, and round down."
    why = "The weights are paid for once, and the cache once for each text. So what limits a server is soon the cache."
    return judge_number(prediction["texts"], texts, mistakes, otherwise=hint, why=why)


# ----------------------------------------------------------------------------------------------------------------------
# A minimum and a step for each block


def min_and_step(block, top=15, index=torch.round, start=torch.min, back=lambda index, low, step: low + step * index):
    """A block of weights rounded to 16 evenly spaced values from its smallest to its largest, or with a mistake."""
    low = start(block)
    step = (block.max() - low) / top
    return back(index((block - low) / step), low, step)


check_min_and_step = Exercise(
    """Judge ``my_round(block: float64 tensor (n,)) -> (n,)``: rounded to 16 even levels from minimum to maximum.""",
    [
        (tensor((0.3, -0.1, 0.05, 0.71, 0.28, -0.24, 0.5)),),
        (tensor((2.0, 3.0, 2.3, 2.62, 2.95)),),
        (tensor((-1.0, -0.93, -0.2, -0.44)),),
    ],
    min_and_step,
    {
        "Sixteen values have fifteen steps between them: step = (maximum - minimum) / 15.": {"top": 16},
        "You returned the indices from 0 to 15. Turn them back into weights: minimum + step * index.": {
            "back": lambda index, low, step: index
        },
        "You rounded down. The nearest level may be the one above.": {"index": torch.floor},
        "Your levels do not begin at the block's minimum. Subtract it before you divide, and add it again at the "
        "end.": (
            {"start": lambda block: torch.zeros(())},
            {"back": lambda index, low, step: step * index},
        ),
        "You used the largest absolute value. Here, the levels depend on the minimum and a step, and 0 need not be a "
        "level.": (lambda block: (block / block.abs().max() * 7).round() / 7 * block.abs().max()),
    },
    why="Each block comes with two numbers, a minimum and a step. The weights of your SmolLM2 came in this form.",
    hint="The smallest weight has index 0, and the largest has index 15.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Whose text is it?


def _agreement(logits, tokens, prompt, rows=lambda prompt, length: slice(prompt - 1, length - 1), choose=torch.argmax):
    """The share of a text's new tokens that the model with these logits would have chosen, or with a mistake."""
    chosen = choose(logits[rows(prompt, len(tokens))], -1)
    return float((chosen == torch.tensor(tokens[prompt:])).double().mean())


def leading(logits, tokens, prompt):
    chosen = logits[prompt - 1 : len(tokens) - 1].argmax(-1).tolist()
    equal = [one == other for one, other in zip(chosen, tokens[prompt:], strict=True)]
    return (equal + [False]).index(False) / len(equal)


def with_the_prompt(logits, tokens, prompt):
    return _agreement(logits, tokens, 1)


def scored(seed, length, prompt):
    """(logits, tokens, prompt) of a text in which the model and the writer agree at some positions."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((length, 4), generator=generator, dtype=torch.float64)
    tokens = torch.randint(4, (length,), generator=generator)
    same = torch.rand(length, generator=generator) < 0.6
    tokens[1:] = torch.where(same[1:], logits[:-1].argmax(-1), tokens[1:])
    return logits, tokens.tolist(), prompt


check_agreement = Exercise(
    """Judge ``my_agreement(logits, tokens, prompt)``: the share of new tokens that the target would have chosen.""",
    [scored(1, 17, 4), scored(2, 30, 7), scored(3, 12, 3)],
    _agreement,
    {
        "You compare each token with the row of that same token. Row t predicts the token *after* token t, so use it "
        "for token t + 1.": {"rows": lambda prompt, length: slice(prompt, length)},
        "You count the prompt's tokens too. No model chose them.": with_the_prompt,
        "You stop at the first difference. Here, count all positions at which the two agree.": leading,
        "You took the least likely token of each row. Take the most likely one.": {"choose": torch.argmin},
    },
    show=lambda logits, tokens, prompt: f"logits {tuple(logits.shape)}, a text of {len(tokens)}, prompt {prompt}",
    why="One call is enough, because each row predicts the token after it. For a greedy text of the target the share "
    "is 1.",
    hint="The first new token is at position `prompt`, and the row before it predicts it.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A block on which NF4 loses

NF4 = tensor((
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
))  # fmt: skip
EVEN = torch.arange(-7, 8).double() / 7


def error(block, levels):
    """The mean squared error of a block that is divided by its largest absolute value and rounded to levels."""
    scaled = block / block.abs().max()
    return float((scaled[:, None] - levels).abs().amin(-1).square().mean())


@checker
def check_block(answer) -> Verdict:
    """Judge 64 weights: NF4's levels must give at least twice the mean squared error of even levels."""
    try:
        block = torch.as_tensor(answer).detach().cpu()
    except Exception:  # a reader's object may do anything when it is converted to a tensor
        return wrong(f"Expected 64 numbers, got {short(answer)}.")
    if block.shape != (64,) or block.is_complex() or not block.isfinite().all():
        return wrong(f"Expected 64 finite numbers in a row, got {short(answer)}.")
    block = block.double()
    if not block.any():
        return wrong("All weights are 0, so neither kind of level has an error.")
    nf4, even = error(block, NF4), error(block, EVEN)
    if nf4 <= even:
        return wrong(
            f"On your block, NF4's mean squared error is {nf4:.2g}, and that of even levels is {even:.2g}: NF4 is no "
            "worse. Its levels lie close together near 0. Where do they lie far apart?"
        )
    if nf4 < 2 * even:
        return wrong(f"NF4's error is {nf4 / even:.2f} times that of even levels. It must be at least twice as large.")
    return right(
        f"NF4's error is {nf4:.2g}, and that of even levels is {even:.2g}. NF4 is made for many small weights and few "
        "large ones."
    )
