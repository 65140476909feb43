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


def test_importing_tutorlib_prints_nothing_and_loads_nothing_that_draws():
    drawing = ["matplotlib", "seaborn", "ipywidgets", "IPython"]
    assert python(f"import sys, tutorlib; print([name for name in {drawing} if name in sys.modules])") == "[]\n"


def test_what_knows_no_model_loads_no_torch():
    code = "import sys; sys.modules['tutorlib'] = type(sys)('tutorlib'); sys.modules['tutorlib'].__path__ = [PATH]\n"
    code += "import tutorlib.storyworld; print('torch' in sys.modules)"
    assert python(code.replace("PATH", repr(tutorlib.__path__[0]))) == "False\n"


@pytest.mark.parametrize("name", tutorlib.__all__)
def test_every_public_name_is_there(name):
    assert getattr(tutorlib, name) is not None
    assert name in dir(tutorlib)
