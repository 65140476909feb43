"""Notebooks are compared with their pictures and the order of their outputs: see `book/_tools/compare_outputs.py`."""

import compare_outputs  # noqa: F401
