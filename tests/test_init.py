"""The front door: quick, quiet, and the same names whatever was imported before."""

import subprocess
import sys

import pytest

import tutorlib


def python(code):
    """What a fresh interpreter prints for `code`, on both streams together."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def test_importing_tutorlib_prints_nothing_and_loads_nothing_heavy():
    heavy = ["torch", "transformers", "matplotlib", "ipywidgets", "IPython"]
    assert python(f"import sys, tutorlib; print([name for name in {heavy} if name in sys.modules])") == "[]\n"


def test_run_is_the_function_even_after_the_file_run_py_was_imported_and_nothing_draws():
    printed = python(
        "import sys, tutorlib.run\n"
        "from tutorlib.run import Step\n"
        "from tutorlib import LM, run, sample\n"
        "print(run.__name__, tutorlib.run is run, [n for n in ('matplotlib', 'ipywidgets') if n in sys.modules])"
    )
    assert printed == "run True []\n"


@pytest.mark.parametrize("name", tutorlib.__all__)
def test_every_public_name_is_there(name):
    assert getattr(tutorlib, name) is not None
    assert name in dir(tutorlib)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known_ones():
    with pytest.raises(AttributeError, match="no 'nonsense'.*TokenTree"):
        _ = tutorlib.nonsense
