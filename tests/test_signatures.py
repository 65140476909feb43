"""One way to call: what has one name means one thing, has one default, and says its type."""

import importlib
import inspect
import re
import typing
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedModel

import tutorlib
from tutorlib import decoders
from tutorlib.course import zoo
from tutorlib.drafting.dflash_session import BlockSession
from tutorlib.drafting.draft_session import DraftSession
from tutorlib.drafting.mtp_session import ModulesSession
from tutorlib.drafting.parallel_session import ParallelSession
from tutorlib.model.table import TableLM
from tutorlib.running.decoder import BatchSteps, Steps, decoder
from tutorlib.running.decoding import run
from tutorlib.running.step import Step
from tutorlib.viz.player import Player

ROOT = Path(__file__).parents[1]
EXPORTED = {name: item for name, item in vars(decoders).items() if not name.startswith("_")}
FRONT_DOOR = {name: getattr(tutorlib, name) for name in tutorlib.__all__}
RETURNED = {
    name: inspect.signature(function).return_annotation
    for name, function in FRONT_DOOR.items()
    if inspect.isroutine(function) and inspect.unwrap(function).__module__ != "tutorlib.drafting.checking"
}  # rules for checking drafts are left out: methods call them, with all that they have
METHODS = {name: FRONT_DOOR[name] for name, returned in RETURNED.items() if returned in ("Steps", "BatchSteps")}
NOT_LOSSLESS = {
    "sample", "greedy", "beam_search", "best_first_beam_search", "dola", "context_contrast",
    "contrastive_search", "contrastive_decoding", "contrastive_sampling", "contrastive_beam_search",
}  # fmt: skip
NOT_MEASURED = {
    "best_first_beam_search",
    "contrastive_beam_search",
    "contrastive_sampling",
    "jump_ahead",
}  # as others, or slower, or in need of a grammar
NEEDS_HIDDEN_STATES = {"contrastive_search"}  # which a table has not; heads and networks need them too
OLDER = {"greedy", "sample", "sample_batch", "beam_search", "best_first_beam_search"}  # than any one source
# What the cheat sheet calls a method, where that is not its name.
CALLED = {
    "context_contrast": "context aware decoding",
    "contrastive_sampling": "contrastive decoding",
    "mtp": "multi token prediction",
    "sample_batch": "sampling of several texts",
    "speculative_batch": "speculation in a batch",
}
# Not to be left out in one place, and with a default in another: top_k(k), searches, which have no end without one, and
# the weight of a context, which depends on the task.
NEEDED_SOMEWHERE = {"k", "method", "max_new_tokens", "weight"}
# Of specimens too, which are called as the methods are whose mistakes they show.
OF_ALL_METHODS = {"prompt", "prompts", "gamma", "rng", "rngs", "warp"}


def functions(name, item):
    """A function by its name, or the public ones of a class."""
    if inspect.isclass(item):
        for part, member in vars(item).items():
            member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            ours = inspect.isfunction(member) and member.__module__.startswith("tutorlib")
            if ours and (part == "__init__" or not part.startswith("_")):
                yield f"{name}.{part}", member
    elif inspect.isroutine(item):
        yield name, item


PUBLIC = {name: function for item in FRONT_DOOR.items() for name, function in functions(*item)}


def test_decoders_exports_functions_alone():
    assert EXPORTED.keys() >= METHODS.keys() and all(map(inspect.isfunction, EXPORTED.values()))


def is_method(item) -> bool:
    return inspect.isroutine(item) and inspect.signature(item).return_annotation in ("Steps", "BatchSteps")


def methods_in_files() -> dict[str, Callable]:
    """The methods in tutorlib/decoders, exported or not yet."""
    found = {}
    for path in (ROOT / "tutorlib/decoders").glob("[!_]*.py"):
        module = importlib.import_module(f"tutorlib.decoders.{path.stem}")
        ours = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
        methods = {item.__name__: item for item in ours if is_method(item)}
        assert methods, f"{path.name} holds no method: put @decoder over it"
        found |= methods
    return found


def test_a_method_is_in_every_place_that_the_contributors_page_names():
    """All that is missing is named at once, also before the method is exported; see "To add one" in CONTRIBUTING.md."""
    pages = ("book/api.md", *(path.relative_to(ROOT) for path in (ROOT / "book/api").glob("*.md")))
    rows, contract, gpu, greedy, sheet = (
        (ROOT / path).read_text()
        for path in (
            "tutorlib/lab/bench/rows.py", "tests/lossless.py", "tests/test_gpu.py", "tests/test_greedy.py",
            "book/cheat_sheet.md",
        )
    )  # fmt: skip
    api = "".join((ROOT / page).read_text() for page in pages).split()

    def used(name, source):  # imported, and then in a table
        return len(re.findall(rf"\b{name}\b", source)) > 1

    missing = []
    for name, method in methods_in_files().items():
        parameters = inspect.signature(method).parameters
        with_layers = {"head", "heads", "layers", "prompts"} & parameters.keys() or name in NEEDS_HIDDEN_STATES
        doc = inspect.getdoc(method) or ""
        places = {
            "what it costs, and its `Source: ...` (or `New: ...`), in its docstring": "ost" in doc
            and (name in OLDER or "Source:" in doc or "New:" in doc),
            "an export in tutorlib/decoders/__init__.py": name in EXPORTED,
            "an export in tutorlib/__init__.py": name in tutorlib.__all__,
            "a section for its module on a page in book/api/": inspect.unwrap(method).__module__ in api,
            "its name in a group of the list in book/api.md": name in api,
            "a line in tests/lossless.py, or, if it is lossy, its name in NOT_LOSSLESS here": name in NOT_LOSSLESS
            or used(name, contract),
            "a row in tutorlib/lab/bench/rows.py": name in NOT_MEASURED or used(name, rows),
            "a line in a table of tests/test_gpu.py": f'"{name}": ' in gpu,
            "a line in METHODS of tests/test_greedy.py": with_layers or f'"{name}": ' in greedy,
            "a line in book/cheat_sheet.md": CALLED.get(name, name.replace("_", " "))
            in sheet.lower().replace("-", " "),
        }
        missing += [f"{name}: {place}" for place, there in places.items() if not there]
    assert not missing, "missing:\n" + "\n".join(missing)


def test_a_parameter_of_one_name_has_one_default_wherever_it_may_be_left_out():
    found = defaultdict(lambda: defaultdict(set))
    specimens = {specimen.name: specimen.mistaken for specimen in zoo.EVERY}
    for name, function in ({name: FRONT_DOOR[name] for name in RETURNED} | specimens).items():
        for parameter in inspect.signature(function).parameters.values():
            if name not in specimens or parameter.name in OF_ALL_METHODS:
                found[parameter.name][repr(parameter.default)].add(name)
    for name in NEEDED_SOMEWHERE:
        del found[name][repr(inspect.Parameter.empty)]
    # A tree's tokens are guesses, and a chain's are drawn: each kind of draft has a rule of its own.
    del found["rule"][repr(tutorlib.exact)]
    assert {name: dict(defaults) for name, defaults in found.items() if len(defaults) > 1} == {}
    assert found["gamma"].keys() == {"4"} and found["length_penalty"].keys() == {"1.0"}
    assert found["rng"].keys() == found["rngs"].keys() == {"None"}


@pytest.mark.parametrize("name", METHODS)
def test_the_model_comes_first_then_its_helper_then_the_prompt_and_all_else_by_name(name):
    parameters = inspect.signature(METHODS[name]).parameters
    by_place = [one.name for one in parameters.values() if one.kind is not one.KEYWORD_ONLY]
    assert by_place[0] in ("lm", "target", "expert") and by_place[-1] in ("prompt", "prompts")
    assert by_place[1:-1] in ([], ["draft"], ["amateur"], ["heads"], ["head"])


@pytest.mark.parametrize("name", PUBLIC)
def test_the_front_door_says_the_type_of_all_that_goes_in_and_comes_out(name):
    signature = inspect.signature(PUBLIC[name])
    untyped = [one.name for one in signature.parameters.values() if one.annotation is one.empty]
    assert set(untyped) <= {"self", "cls"}, "give these a type, which is what a caller may pass"
    assert name.endswith("__init__") or signature.return_annotation is not signature.empty
    # A module may import these for type checkers alone.
    kinds = (BlockSession, DraftSession, ModulesSession, ParallelSession, tutorlib.LM, Player, PreTrainedModel)
    here = {kind.__name__: kind for kind in kinds}
    assert typing.get_type_hints(inspect.unwrap(PUBLIC[name]), localns=here) is not None


def test_a_method_returns_steps_and_says_so():
    assert RETURNED["greedy"] == "Steps" and RETURNED["sample_batch"] == "BatchSteps"
    lm = TableLM.random(3, 1, 0)
    assert isinstance(tutorlib.greedy(lm, "a"), Steps) and isinstance(tutorlib.sample_batch(lm, ["a"]), BatchSteps)


def test_a_search_is_told_its_budget_once():
    lm = TableLM.random(4, 1, 0)
    for method in (tutorlib.beam_search, tutorlib.best_first_beam_search):
        steps = method(lm, "a", beams=2, max_new_tokens=5)
        assert steps.max_new_tokens == 5
        assert run(steps).to_dict() == run(method(lm, "a", beams=2, max_new_tokens=5), 5).to_dict()
    assert len(run(tutorlib.beam_search(lm, "a", beams=2, max_new_tokens=5), 3).tokens) == 3, "a smaller one cuts"


def test_methods_without_a_budget_of_their_own_need_one():
    @decoder
    def endless(lm, prompt):
        while True:
            yield Step([0])

    with pytest.raises(ValueError, match=r"endless goes on without an end: .* run\(steps, max_new_tokens=40\)"):
        run(endless(TableLM.random(3, 1, 0), "a"))
    with pytest.raises(ValueError, match="give the number of tokens"):
        run(iter([Step([0])]))
