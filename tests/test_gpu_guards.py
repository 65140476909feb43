"""The pretend GPU notices: with one of its moves to the model's device left out, a function no longer runs there.

Each line names what is moved, the function, which of its moves is left out (they are counted as they stand in it), and
what fails then.
"""

import __future__

import ast
import inspect
import pkgutil
import textwrap
import weakref

import pytest
import test_gpu
from pretend_gpu import APPLE, GPU, pretend_gpu
from test_gpu import apple, gpu  # noqa: F401

from tutorlib import models
from tutorlib.model import probe


def method(name):
    return lambda family: test_gpu.written(name, family)


def loaded(name):
    """A method with heads or a network that is loaded anew."""
    return lambda family: test_gpu.written(name, models.load("storyworld", device=family.device))


def probed(family):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tutorlib.model.probe._verdicts", weakref.WeakKeyDictionary())
        family.target.session([1])


CACHE, FORWARD = "tutorlib.model.cache:KeyValues", "tutorlib.model.forward:Forward"
NETWORK = "tutorlib.drafting.draft_session:DraftSession"

PLACES = [
    ("the tokens of a call", f"{CACHE}._pass", 1, GPU, method("greedy")),
    ("the positions of a call", f"{CACHE}._pass", 2, GPU, method("greedy")),
    ("whom a tree's nodes see", f"{FORWARD}.masks", 0, GPU, method("medusa")),
    ("the mask of a call", f"{FORWARD}.masks", 1, GPU, method("speculative")),
    ("the branch of a tree that is kept", f"{CACHE}.move", 0, GPU, method("eagle, drawn")),
    ("slots of a batch", "tutorlib.model.cache:_Slots.aim", 2, GPU, method("speculative_batch")),
    ("a text without a cache", f"{FORWARD}.in_full", 0, GPU, probed),
    ("histories of penalties", "tutorlib.sampling.penalties:occurrences", 0, GPU, method("sample")),
    ("guesses of n-grams", "tutorlib.model.ngram:NgramLM.log_probs", 0, GPU, method("speculative, n-grams")),
    (
        "an amateur's logits",
        "tutorlib.decoders.contrastive_decoding:contrastive_scores",
        0,
        APPLE,
        method("contrastive_decoding"),
    ),
    (
        "the ids that two vocabularies share",
        "tutorlib.decoders.token_intersection:Guesses.probs",
        0,
        APPLE,
        method("token_intersection"),
    ),
    ("Medusa's heads", "tutorlib.loading.formats:load_medusa", 0, GPU, loaded("medusa")),
    ("EAGLE's network", "tutorlib.loading.formats:load_eagle", 0, GPU, loaded("eagle")),
    ("EAGLE's tokens", f"{NETWORK}._call", 0, GPU, method("eagle")),
    ("EAGLE's positions", f"{NETWORK}._with_room", 1, GPU, method("eagle")),
    ("EAGLE's tree", f"{NETWORK}._mask", 0, GPU, method("eagle, dynamic")),
    ("EAGLE-3's vocabulary", "tutorlib.drafting.eagle_head:Eagle3Head.tokens", 0, GPU, method("eagle3")),
]


class LeftOut(ast.NodeTransformer):
    """Leaves out one `.to(device)` or `device=...` of a function."""

    def __init__(self, which):
        self.which = which

    def visit_Call(self, call):
        self.generic_visit(call)
        moved = [one for one in call.args if "device" in ast.unparse(one)]
        named = [one for one in call.keywords if one.arg == "device"]
        to = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and moved
        if not (to or named):
            return call
        self.which -= 1
        if self.which != -1:
            return call
        call.keywords = [one for one in call.keywords if one not in named]
        if to:
            call.args = [one for one in call.args if one not in moved]
        return call.func.value if to and not call.args else call


def without_the_move(function, which):
    function = getattr(function, "fget", function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    left_out = LeftOut(which)
    tree = left_out.visit(tree)
    assert left_out.which < 0, "the function has no such move"
    made = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(tree, inspect.getfile(function), "exec", flags), function.__globals__, made)
    return made[function.__name__]


@pytest.mark.parametrize(
    ("where", "which", "device", "noticed"), [pytest.param(*place[1:], id=place[0]) for place in PLACES]
)
def test_a_move_that_is_left_out_is_noticed(where, which, device, noticed, request, monkeypatch):
    family = request.getfixturevalue("apple" if device == APPLE else "gpu")
    owner, _, name = where.rpartition("." if "." in where.partition(":")[2] else ":")
    monkeypatch.setattr(pkgutil.resolve_name(owner), name, without_the_move(pkgutil.resolve_name(where), which))
    errors = (RuntimeError, TypeError, ValueError, UserWarning)
    with pretend_gpu(device), pytest.raises(errors, match="same device|on cpu, the target on cuda|MPS Tensor"):
        noticed(family)
        # If it is noticed when the model is tried, the model is computed with its own cache and all goes well.
        raise RuntimeError(str([found for found in probe._verdicts.get(family.target.model, {}).values() if found]))
