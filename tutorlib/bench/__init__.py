"""How fast are the methods, on this machine, beside a plain loop and beside transformers?

    python -m tutorlib.bench [--family NAME] [--quick] [--json] [--results [FILE]]

The rows are compared under conditions: a kind of prompt, a temperature (0 is greedy), and how many texts are made at
once. A row that cannot run under a condition, such as beam search at temperature 1, is not in its table.

Under each condition every row makes the same number of new tokens from the same prompts with the same models. All rows
take turns, over and over, shuffled anew in each round, and each row is compared with what the plain loop and its peer
took *in the same round*, so a slow spell of the machine does not become somebody's advantage. The peer is
`transformers.generate` where it does the same work; it has no contrast, so those methods are compared with what they
add to. Shown are medians over the rounds, and quartiles.

A family of models need not have everything. A row that needs a draft, heads or a tokenizer which the family lacks is
left out, and named below the table with the reason. A row whose peer was left out has no figure for it.

Where a row drafts, its speed over the plain loop is also predicted, from what it drafted in each call and from what the
prompt's call and calls of that width were measured to cost, in the same rounds: see `measuring.prediction`. Several
texts at once are not predicted: calls are measured for one.

A family with a chat format is measured with six kinds of prompt. How many tokens a call makes depends on the text: a
summary or corrected code repeats much of its prompt, a story does not. With ``--results FILE`` each condition is
written down when it is done. After a stop the same command goes on with the next one, and a later command can add
conditions to the file.

The rows themselves are in `rows`, what calls cost in `costs`, the clock in `measuring`, tables and files in `report`.
Methods of your own are compared by `compare`.
"""

from __future__ import annotations

import random
from pathlib import Path

from .. import storyworld
from ..disk import read_json
from ..lm import LM
from .comparing import Compared, compare, measures, show_comparison
from .costs import Costs, level_seconds, measured_costs, reading
from .measuring import Condition, GammaResult, Result, Spread, by_gamma, measure, that_can_run
from .report import along, own_folder, read_report, reports, table, where

__all__ = [
    "Compared",
    "Condition",
    "Costs",
    "GammaResult",
    "Result",
    "Spread",
    "along",
    "by_gamma",
    "chat_prompts",
    "compare",
    "level_seconds",
    "measure",
    "measured_costs",
    "measures",
    "own_folder",
    "read_report",
    "reading",
    "reports",
    "show_comparison",
    "story_prompts",
    "table",
    "that_can_run",
    "where",
]


def story_prompts(lm: LM, count: int, tokens: int = 24, first_seed: int = 900_000) -> list[list[int]]:
    """The first `tokens` tokens of `count` stories; their seeds are far from those of the training data.

    For a model without a tokenizer: as many random tokens, the same every time.
    """
    if lm.tokenizer is None:
        draw = random.Random(first_seed).randrange
        return [[draw(lm.vocab_size) for _ in range(tokens)] for _ in range(count)]
    return [lm.encode(storyworld.story(first_seed + number))[:tokens] for number in range(count)]


def chat_prompts(family, count: int) -> dict[str, list[list[int]]]:
    """The first `count` prompts of each of six kinds, in the chat format of a family.

    They were written for this benchmark, and nothing that comes with tutorlib was trained on them. SmolLM2's greedy
    answers to all of them are longer than the 48 tokens that are measured, so no row goes on after an answer's end.

    Raises
    ------
    ValueError
        If there are not so many.
    """
    texts = read_json(Path(__file__).parent / "prompts.json", "restore it")
    most = min(map(len, texts.values()))
    if not 1 <= count <= most:
        raise ValueError(f"there are 1 to {most} prompts of each kind, got {count}")
    return {kind: [family.chat(text) for text in some[:count]] for kind, some in texts.items()}
