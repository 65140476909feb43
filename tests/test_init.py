"""The front door: quiet, the names that it promises, and no torch for what knows no model."""

import subprocess
import sys

import tutorlib


def python(code):
    """What a fresh interpreter prints for `code`, on both streams together."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def test_importing_tutorlib_and_the_player_prints_nothing_and_loads_nothing_that_draws():
    drawing = ["matplotlib", "seaborn", "ipywidgets", "IPython"]
    code = "import sys, tutorlib, tutorlib.running.decoding, tutorlib.viz.player, tutorlib.viz.palette\n"
    assert python(f"{code}print([name for name in {drawing} if name in sys.modules])") == "[]\n"


def test_what_knows_no_model_loads_nothing_slow():
    code = "import sys; sys.modules['tutorlib'] = type(sys)('tutorlib'); sys.modules['tutorlib'].__path__ = [PATH]\n"
    code += (
        "import tutorlib.storyworld, tutorlib.measures as m; m.distinct_n([[1, 2]], 1), m.bootstrap_interval([1, 2])\n"
    )
    code += "print([name for name in ('torch', 'nltk', 'scipy', 'transformers') if name in sys.modules])"
    assert python(code.replace("PATH", repr(tutorlib.__path__[0]))) == "[]\n"


def test_every_public_name_is_there():
    assert set(tutorlib.__all__) <= set(dir(tutorlib)) and None not in map(vars(tutorlib).get, tutorlib.__all__)
