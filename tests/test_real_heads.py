"""What comes with SmolLM2: small files, a card that says how they were made, and heads that change no token of it."""

import importlib.util
import json
from pathlib import Path

import pytest

import tutorlib
from tutorlib import Seeded, dynamic_tree, eagle, medusa, models, run, sample
from tutorlib.lab.bench import chat_prompts
from tutorlib.lab.experiments import real_heads as sweep
from tutorlib.lab.experiments import results, rounded
from tutorlib.loading import wheel

WEIGHTS = Path(tutorlib.__file__).parent / "weights"
REAL = WEIGHTS / "smollm2"
HEADS = ("medusa", "eagle3")


def size(*folders):
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def test_the_files_are_small():
    assert size(*(REAL / name for name in HEADS)) <= 14e6
    assert size(REAL / "draft") <= 3e6
    assert size(WEIGHTS) <= 45e6


@pytest.mark.parametrize("name", HEADS)
def test_log_and_card_say_how_they_were_made(name):
    log, card = json.loads((REAL / name / "training_log.json").read_text()), (REAL / "MODEL_CARD.md").read_text()
    assert log["borrow"] and log["tokens"] == 8000
    hours, loss = log["log"][-1]["seconds"] / 3600, log["log"][-1]["loss"]
    (row,) = [line for line in card.splitlines() if line.startswith(f"| `{name}`")]
    for figure in (f"{log['own_tokens']:,}", f"{hours:.1f} hours", f"{loss:.2f}"):
        assert figure in row, figure


@pytest.fixture(scope="module")
def family():
    if importlib.util.find_spec(wheel.PACKAGE) is None:
        pytest.skip(f"the wheel is not installed: {wheel.INSTALL}")
    return models.load("smollm2", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "sampling"])
def test_their_trees_give_the_targets_own_tokens(family, way):
    """Twenty prompts in float32: those of the bench, an opening, and a question whose answer ends."""
    prompts = [prompt for some in chat_prompts(family, 3).values() for prompt in some]
    prompts += [family.target.prompt_tokens("Once upon a time"), family.chat("What is the capital of France?")]
    made = {
        "plain": lambda prompt, rng: sample(family.target, prompt, rng=rng),
        "medusa": lambda prompt, rng: medusa(family.target, family.medusa, prompt, rng=rng),
        "eagle3": lambda prompt, rng: eagle(family.target, family.eagle3, prompt, shape=dynamic_tree(8, 3, 3), rng=rng),
    }
    calls = dict.fromkeys(made, 0)
    for number, prompt in enumerate(prompts):
        traces = {
            name: run(steps_of(prompt, None if way == "greedy" else Seeded(number)), 10)
            for name, steps_of in made.items()
        }
        for name, trace in traces.items():
            assert trace.tokens == traces["plain"].tokens, (number, name)
            calls[name] += trace.target_calls
    assert len(prompts) == 20
    assert calls["medusa"] < 0.9 * calls["plain"] and calls["eagle3"] < 0.9 * calls["plain"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynamic tree, greedy, 4 nodes", "Medusa, greedy, 4 nodes"])
def test_what_they_yield_on_code_is_what_the_file_says(name, family):
    computed = rounded(sweep.row(family, name, kinds=["code"]))
    assert computed["kinds"]["code"] == results("real_heads")["rows"][name]["kinds"]["code"]
