"""The reference of sessions: full passes without any cache."""

import pytest
import torch
from conftest import CONTEXT, LOOPED, VOCAB
from hypothesis import HealthCheck

from tutorlib.model.table import TableLM

TABLE = TableLM.random(VOCAB, 2, 5, context=CONTEXT)  # a model whose reference is the table itself
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
PROPERTY = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


def in_float64_and_slowly_in_float32(families, hybrids):
    """Cases of family and dtype. The finer dtype shows every fault of a cache that the other would.

    Hybrids have float64 alone: they compute a text by a scan and a token by a loop, and what these differ by in float32
    may grow with their state to a thousandth of the logits. The compiled loops have float32 alone.
    """

    def case(family, dtype, *marks):
        name, own = (family.values[0], family.marks) if hasattr(family, "values") else (family, ())
        return pytest.param(name, dtype, marks=[*own, *marks], id=f"{name}-{dtype}")

    looped = [case(family, torch.float32) for family in LOOPED]
    finer = [case(family, torch.float64) for family in (*families, *hybrids)]
    coarser = [case(family, torch.float32, pytest.mark.slow) for family in families]
    return pytest.mark.parametrize(("family", "dtype"), looped + finer + coarser)


def recomputed(model, tokens):
    """Logits after each of `tokens`, (len, vocab), by one call of the model without any cache: the reference."""
    if model is TABLE:
        return torch.stack([TABLE.log_probs(tokens[:end]) for end in range(1, len(tokens) + 1)])
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def assert_rows(logits, expected):
    assert logits.shape == expected.shape
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE[logits.dtype])
