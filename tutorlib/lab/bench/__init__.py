"""Measure how fast the methods are on this machine, compared with plain decoding and with transformers.

    python -m tutorlib bench [--family NAME] [--quick] [--json] [--results [FILE]]

Each row of a table is a method. Rows are compared under conditions: a kind of prompt, a temperature (0 is greedy), and
the number of texts generated at once. A row that cannot run under a condition, such as beam search at temperature 1, is
not in its table.

Under each condition, every row generates the same number of new tokens from the same prompts with the same models. The
rows take turns in rounds, in a new random order each time. Each row is compared with plain decoding and with its peer
*in the same round*, so that a slow phase of the machine does not favour any of them. The peer is
`transformers.generate` if it does the same work. It has no contrastive methods, so these are compared with the method
that they extend. The tables show medians and quartiles over the rounds.

If a row needs a draft, heads or a tokenizer that the family of models lacks, it is left out and named below the table
with the reason. If the peer of a row was left out, there is no comparison with it.

If a row uses drafts, its speed relative to plain decoding is also predicted. The prediction uses what the row drafted
in each call, and the times of calls of that width and of the prompt's call, measured in the same rounds: see
`predicting.prediction`. There are no predictions for several texts at once, because calls are measured for a single
text.

A family with a chat format is measured with six kinds of prompt, because the number of tokens per call depends on the
text: a summary or corrected code repeats much of its prompt, but a story does not. With ``--results FILE`` each
condition is saved when it is done. If the command is stopped, the same command continues with the next condition, and
later commands can add conditions to the file.

The rows are in `rows`, those that can run in `choosing`, the costs of calls in `costs`, the timing in `measuring`, what
the rows' steps say in `predicting`, and tables and files in `report`. To compare methods of your own, use `compare`.
"""

from __future__ import annotations

import random
from pathlib import Path

from ... import storyworld
from ...disk import read_json
from ...model.lm import LM
from .choosing import that_can_run
from .comparing import Compared, compare, measures, show_comparison
from .costs import Costs, level_seconds, measured_costs, reading
from .measuring import Condition, GammaResult, Result, Spread, by_gamma, measure
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
    """The first `tokens` tokens of `count` stories, which are not in the training data.

    For a model without a tokenizer, they are random tokens, the same in every call.
    """
    if lm.tokenizer is None:
        draw = random.Random(first_seed).randrange
        return [[draw(lm.vocab_size) for _ in range(tokens)] for _ in range(count)]
    return [lm.encode(storyworld.story(first_seed + number))[:tokens] for number in range(count)]


def chat_prompts(family, count: int) -> dict[str, list[list[int]]]:
    """The first `count` prompts of each of six kinds, in the chat format of a family.

    They were written for this benchmark, and no model that comes with tutorlib was trained on them.

    Raises
    ------
    ValueError
        If there are not that many prompts.
    """
    texts = read_json(Path(__file__).parent / "prompts.json", "restore it")
    most = min(map(len, texts.values()))
    if not 1 <= count <= most:
        raise ValueError(f"there are 1 to {most} prompts of each kind, got {count}")
    return {kind: [family.chat(text) for text in some[:count]] for kind, some in texts.items()}
