"""The plan of the package: three wings, rooms on floors, and old paths that name the new ones."""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import tutorlib
from tutorlib import MedusaHeads, medusa, moved, run, typical_acceptance
from tutorlib.__main__ import main

ROOT = Path(__file__).parents[1] / "tutorlib"
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
WINGS = ("course", "lab")


@cache
def imported(name: str) -> set[str]:
    """The modules of the package that a module imports, also inside functions, as paths after "tutorlib."."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("tutorlib")):
            above = name.split(".")[: -node.level] if node.level else []
            within = (node.module or "").removeprefix("tutorlib").split(".")
            base = ".".join(part for part in (*above, *within) if part)
            found |= {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
    return {one for one in found if one}


def room(name: str) -> str:
    """The folder or file below the package in which a module is; a wing is divided into its rooms."""
    parts = name.split(".")
    return ".".join(parts[:2] if parts[0] in WINGS else parts[:1])


def arrows() -> dict[str, set[str]]:
    rooms = {room(name) for name in MODULES if name not in ("__init__", "__main__")}
    drawn = {one: set() for one in rooms}
    for name in MODULES:
        if room(name) in rooms:
            drawn[room(name)] |= {room(other) for other in imported(name)} & rooms - {room(name)}
    return drawn


def test_no_method_imports_the_course_or_the_laboratory():
    upward = {name: sorted(one for one in imported(name) if one.split(".")[0] in WINGS) for name in MODULES}
    assert [(name, to) for name, to in upward.items() if to and name.split(".")[0] not in WINGS] == []
    of_the_course = {one.split(".")[0] for name in MODULES if name.startswith("course") for one in imported(name)}
    assert "lab" not in of_the_course


def test_rooms_stand_on_at_most_twelve_floors_without_a_circle():
    drawn = arrows()
    rooms = [one for one in drawn if "." not in one or (ROOT / one.replace(".", "/")).is_dir()]  # also those in wings
    assert len(rooms) <= 20
    floors: dict[str, int] = {}
    for one in TopologicalSorter(drawn).static_order():  # raises CycleError for a circle
        floors[one] = 1 + max((floors[below] for below in drawn[one]), default=0)
    assert max(floors.values()) + 2 <= 12, floors  # the front door and the command stand above


def file_of(name: str) -> str | None:
    """The file in which something imported by this path stands; None for the front door itself."""
    parts = name.split(".")
    tried = [".".join(parts[:end]) + more for end in range(len(parts), 0, -1) for more in ("", ".__init__")]
    return next((one for one in tried if one in MODULES), None)


def test_no_file_imports_one_that_imports_it_in_turn():
    drawn = {name: {file_of(other) for other in imported(name)} - {None, name} for name in MODULES}
    TopologicalSorter(drawn).prepare()  # raises CycleError for a circle


def test_private_names_stay_in_their_file():
    taken = {(name, one) for name in MODULES for one in imported(name) - MODULES.keys()}
    assert [(name, one) for name, one in taken if re.match("_[^_]", one.rpartition(".")[2])] == []


# Names of different things, with the reason why each still stands. What means one thing leaves the list.
HOMONYMS = {
    "Labels": "of training positions, the field's word; of tokens in figures, which every chapter imports",
    "Verdict": "of an exercise; of a sentence of the village (`storyworld.Verdict`)",
    "answer_in": "a rule of the village; what is read from a text, in the experiment on choosing",
    "check": "of a method's arguments, which `@decoder` calls; of a story (`storyworld.check`)",
    "check_rows": "the checker of chapter 1's exercise; a drawing of chapter 10",
    "counted": "a count in the compiled loops; in the script that other engines run, which imports nothing",
    "curves": "the figure (`series.curves`); what is drawn with it, in the experiment on choosing",
    "expected_tokens": "of a chain, from α; of a tree, from its accuracies: chapters import both",
    "llama_cpp": "the program's name, in the benchmark's row and in the script that other engines run",
    "load": "`models.load` is a promise; the processor's instruction, in the compiled loops",
    "measured": "in two files of the benchmark, each of which measures",
    "named": "a specimen or an experiment by its name, as chapters write it; a warp given its name",
    "opening": "a rule of the village; the beginning of a story, which chapters import",
    "questions": "of the village's stories; to other engines",
    "texts": "the distribution of a method's texts (`zoo.texts`); the tasks of two experiments",
    "timed": "one call; a method's seconds per token (`drafts.timed`)",
}


def thing(module: str, name: str) -> str:
    """What a public name of a module is. Names that play one role in every file of a room are one thing."""
    if name == "main":
        return "a command"
    if name == "row" and module.startswith("lab.experiments."):
        return "the function of an experiment that computes a row"
    if name == "check" and module.startswith("decoders."):
        return "a method's check of its arguments"
    if name.startswith("check_") and module.startswith("course.exercises."):
        return "a chapter's checker of an exercise"
    return module


def test_no_two_modules_define_different_things_of_one_name():
    meanings = defaultdict(set)
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                meanings[node.name].add(thing(module, node.name))
    several = {name: sorted(found) for name, found in meanings.items() if len(found) > 1}
    new = {name: found for name, found in several.items() if name not in HOMONYMS}
    assert not new, f"rename one of each, or make it private if only its own file uses it: {new}"
    assert HOMONYMS.keys() == several.keys(), "these mean one thing now: take them from the list"


@pytest.mark.parametrize("old", [*moved.RENAMED, *(name for names in moved.ROOMS.values() for name in names.split())])
def test_an_old_path_is_an_error_that_names_the_new_one(old):
    new = moved.new_name(old)
    first = old.split(".")[0]  # a module in a folder that has moved is not even looked for
    says = rf"tutorlib\.({old}|{first}) is now tutorlib\.({new}|{moved.new_name(first)}):"
    with pytest.raises(ImportError, match=says):
        import_module(f"tutorlib.{old}")
    import_module(f"tutorlib.{new}")


def test_the_names_of_the_release_before_still_work(llama):
    assert (tutorlib.dynamic, tutorlib.static) == (tutorlib.dynamic_tree, tutorlib.static_tree)
    assert (tutorlib.chain, tutorlib.adaptive) == (tutorlib.chain_draft, tutorlib.adaptive_gamma)
    heads, shape, rule = MedusaHeads(llama.width, llama.vocab_size, heads=2), [(0,), (0, 1)], typical_acceptance()
    old, new = (
        run(medusa(llama, heads, [1, 2], **how), 12)
        for how in ({"tree": shape, "accept": rule}, {"shape": shape, "rule": rule})
    )
    assert [step.to_dict() for step in old.steps] == [step.to_dict() for step in new.steps]
    with pytest.raises(TypeError, match="unexpected keyword argument 'tree'"):
        medusa(llama, heads, [1, 2], tree=shape, shape=shape)


def test_what_has_left_the_front_door_says_where_it_is():
    with pytest.raises(ImportError, match="tutorlib.zoo is now tutorlib.course.zoo"):
        from tutorlib import zoo  # noqa: F401


@pytest.mark.parametrize("command", ["bench", "train", "export", "experiment", "grade"])
def test_the_one_command_explains_each_of_its_parts(command, capsys):
    for asked, usage in (([], ""), ([command], f" {command}")):
        with pytest.raises(SystemExit) as end:
            main([*asked, "--help"])
        assert end.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m tutorlib{usage} [-h]")


def test_a_command_that_is_none_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["measure"])
    assert "invalid choice: 'measure'" in capsys.readouterr().err
