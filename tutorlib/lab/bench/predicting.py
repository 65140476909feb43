"""What a row's steps say of it: how much was accepted, and how fast it should be by the measured times of calls.

What this file does not do: measure these times (`costs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...running.step import Step
from .costs import Costs
from .row_makers import Row


def acceptance(steps) -> float | None:
    """Accepted tokens divided by checked tokens; None if nothing was checked."""
    checked = sum(step.checked for step in steps)
    return sum(step.accepted for step in steps) / checked if checked else None


def accepted_at(steps) -> list[float] | None:
    """Accepted tokens divided by checked tokens, for each position in the draft; None if nothing was checked."""
    deepest = max((step.checked for step in steps), default=0)
    reached = [[step.accepted > at for step in steps if step.checked > at] for at in range(deepest)]
    return [sum(kept) / len(kept) for kept in reached] or None


def prediction(row: Row, steps: Sequence[Step], costs: Costs | None) -> float | None:
    """Predict how much faster than plain decoding a row should be, from the measured times of calls.

    Both read each prompt in one call. After that, plain decoding makes a call of one token for each token. In each
    step, the row calls its draft, and then the target with all drafted tokens and one more. Nothing else is counted.
    """
    if not row.is_drafting or costs is None:
        return None
    draft_seconds = sum(costs.draft_seconds[role] for role in row.helpers)
    texts, tokens, seconds, calls = 0, 0, 0.0, math.inf
    for step in steps:
        tokens += len(step.tokens)
        seconds += draft_calls(step) * draft_seconds
        assert step.calls is not None  # `run` has counted them
        if step.calls <= calls:  # another text begins: this call reads its prompt
            texts += 1
            seconds += costs.prompt_seconds
        else:
            # `run` takes tokens that it cuts off out of a drafted chain; the call had them all the same.
            drafted = max(len(step.drafted), len(step.tokens) + step.cut - 1)
            seconds += costs.call_seconds[drafted]
        calls = step.calls
    return (texts * costs.prompt_seconds + (tokens - texts) * costs.call_seconds[0]) / seconds


def draft_calls(step: Step) -> int:
    """How often the draft was called in a step: once for each level of a tree, or for each token of a chain."""
    return 1 + max(step.tree.depths) if step.tree else len(step.drafted)
