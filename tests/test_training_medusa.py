"""Training of Medusa heads: the published loss, the same weights however stopped or shared, files to decode with."""

import copy
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import random_model
from training_runs import started, two_processes, weights, write_family

import tutorlib
from tutorlib import greedy, models, run
from tutorlib.decoders.medusa import medusa
from tutorlib.heads.choices import grow
from tutorlib.heads.formats import load_medusa
from tutorlib.heads.medusa import MedusaHeads
from tutorlib.lm import LM
from tutorlib.training import card, devices, loop
from tutorlib.training import medusa as training
from tutorlib.training.__main__ import main
from tutorlib.training.devices import ALONE, Devices
from tutorlib.training.own_text import Batches, Telling, Text, own_texts

WEIGHTS = Path(tutorlib.__file__).parent / "weights" / "storyworld"
COLD = 0.1


@pytest.fixture(scope="module")
def target():
    """A model with habits: random, but sure enough of itself that its next words can be guessed."""
    return LM(random_model("llama"))


@pytest.fixture(scope="module")
def texts(target, tmp_path_factory):
    telling = Telling(length=24, rows=48, temperature=COLD)
    return own_texts(target, 48, tmp_path_factory.mktemp("own"), telling, prompts=[[3], [4, 5]], progress=False)


def fit(target, texts, folder, **settings):
    settings = {"heads": 2, "steps": 8, "rows": 8, "rate": 0.01, "progress": False, **settings}
    return training.fit(target, texts[:36], texts[36:], folder, cold_temperature=COLD, **settings)


# -- the loss --


def by_hand(heads, target, texts, *, hard=False):
    """The loss written out place by place: head i at t guesses token t + 2 + i, judged by the law it was drawn from."""
    total = 0.0
    for i, head in enumerate(heads):
        terms = []
        for text in texts:
            session = target.session(text.tokens[:1], hidden=-1)
            logits, hidden = [session.feed()], [session.hidden]
            logits, hidden = logits + [session.feed(text.tokens[1:])], hidden + [session.hidden]
            logits, hidden = torch.cat(logits), torch.cat(hidden)
            for t in range(text.own - 1, len(text.tokens) - 2 - i):
                guess, token = head(hidden[t]).log_softmax(-1), t + 2 + i
                law = (logits[token - 1] / (COLD if token >= text.cold else 1.0)).softmax(-1)
                terms.append(-guess[text.tokens[token]] if hard else -(law * guess).sum())
        total = total + 0.8**i * torch.stack(terms).mean()
    return total


@pytest.fixture
def heads(target):
    torch.manual_seed(1)
    return MedusaHeads(target.width, target.vocab_size, heads=3, layers=1)


ODD = [Text([3, 1, 4, 1, 5, 9, 2], 1, 4), Text([6, 5, 3, 5], 3, 4), Text([2, 7, 1, 8, 2], 2, 2)]


@pytest.mark.parametrize("hard", [False, True])
def test_the_loss_is_the_published_one(target, heads, hard):
    batches = Batches(target, ODD, rows=3)
    loss = training._loss(heads, batches, label(target, hard), ALONE)
    assert loss(0).item() == pytest.approx(by_hand(heads, target, ODD, hard=hard).item(), rel=1e-4)


def label(target, hard=False):
    return lambda batch: training._labels(target, batch, cold_temperature=COLD, hard=hard)


def test_the_shares_of_two_processes_average_to_the_loss_and_gradient_of_the_batch(target, heads):
    def computed(devices):
        heads.zero_grad()
        value = training._loss(heads, Batches(target, ODD, 3, devices=devices), label(target), devices)(0)
        value.backward()
        return value.detach(), torch.cat([weight.grad.flatten() for weight in heads.parameters()])

    whole = computed(ALONE)
    parts = [computed(Devices(rank=rank, processes=2)) for rank in (0, 1)]
    for together, one, two in zip(whole, *parts):
        assert torch.allclose(together, (one + two) / 2, atol=1e-6)


def test_large_logits_are_computed_twice_with_the_same_gradient(target, heads, monkeypatch):
    gradients = []
    for large in (training.LARGE, 0):
        monkeypatch.setattr(training, "LARGE", large)
        heads.zero_grad()
        training._loss(heads, Batches(target, ODD, 3), label(target), ALONE)(0).backward()
        gradients.append([weight.grad.clone() for weight in heads.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*gradients))


# -- training --


def test_heads_learn_what_the_target_will_say(target, texts, tmp_path):
    fitted = fit(target, texts, tmp_path, steps=60, rate=0.03)
    first = fit(target, texts, tmp_path / "first", steps=1)
    for kind in ("cold", "sampled"):
        assert fitted.accuracies[kind][0][0] > first.accuracies[kind][0][0]
    assert fitted.log[-1]["loss"] < 0.9 * first.log[-1]["loss"]
    assert fitted.log[-1]["cold 0"] == fitted.accuracies["cold"][0][0]
    assert fitted.heads.choices == grow(fitted.accuracies["cold"], 16) and fitted.target is target
    assert len(fitted.accuracies["cold"][0]) == training.RANKS


def test_the_target_stays_frozen(target, texts, tmp_path):
    before = weights(target.model).clone()
    fit(target, texts, tmp_path)
    assert torch.equal(weights(target.model), before)


def test_accuracies_are_counted_as_by_hand(target, heads):
    texts = [*ODD, Text([8, 8, 1, 0, 3, 4], 1, 6), Text([4, 5, 6, 7, 8], 1, 1)]
    measured = training.accuracies(heads, target, Batches(target, texts, 2), ranks=3)
    for kind in ("cold", "sampled"):
        for i, head in enumerate(heads):
            right = [0, 0, 0]
            places = 0
            for text in texts:
                for t in range(text.own - 1, len(text.tokens) - 2 - i):
                    if not (t + 1 >= text.cold if kind == "cold" else t + 2 + i < text.cold):
                        continue
                    session = target.session(text.tokens[: t + 1], hidden=-1)
                    session.feed()
                    order = head(session.hidden[-1]).argsort(descending=True).tolist()
                    rank, places = order.index(text.tokens[t + 2 + i]), places + 1
                    if rank < 3:
                        right[rank] += 1
            assert measured[kind][i] == pytest.approx([count / places for count in right], abs=1e-4)


def test_heads_can_learn_from_the_tokens_alone(target, texts, tmp_path):
    first, hard = (fit(target, texts, tmp_path / f"{steps}", steps=steps, rate=0.03, hard=True) for steps in (1, 30))
    soft = fit(target, texts, tmp_path / "soft", steps=30, rate=0.03)
    assert hard.log[-1]["loss"] < 0.95 * first.log[-1]["loss"]
    assert not torch.equal(weights(hard.heads), weights(soft.heads))


# -- joint training --


def test_joint_training_moves_the_target_a_little_and_its_heads_more(target, texts, tmp_path):
    before = weights(target.model).clone()
    joint = fit(target, texts, tmp_path, steps=40, joint=True, rate=0.01)
    assert torch.equal(weights(target.model), before)
    assert joint.target is not target
    assert 0 < (weights(joint.target.model) - before).abs().max() < 0.01 / training.HEADS_RATE * 40


def test_in_joint_training_the_heads_begin_alone_and_then_both_learn(target, texts, tmp_path, monkeypatch):
    seen = []
    train = training.train

    def watching(model, loss, optimizers, **rest):
        def watched(step):
            value = loss(step)
            value.backward(retain_graph=True)
            learns = any(weight.grad is not None for weight in model["target"].parameters())
            model.zero_grad(set_to_none=True)
            seen.append((learns, model.training))
            return value

        assert [group["lr"] for group in optimizers[0].param_groups] == [0.01, 0.0025]
        return train(model, watched, optimizers, **rest)

    monkeypatch.setattr(training, "train", watching)
    fit(target, texts, tmp_path, joint=True)
    assert seen == [(False, False)] * 2 + [(True, False)] * 6  # never with dropout


def test_self_distillation_starts_at_nothing_and_pulls_back(target, heads):
    """The divergence from the frozen copy: 0 for the copy itself; for another model, computed by hand."""
    batches = Batches(target, ODD, 3)
    heads_part = training._loss(heads, batches, label(target), ALONE)(0)
    joint = training._joint_loss(heads, copy.deepcopy(target.model), batches, label(target), 4, ALONE)
    assert joint(3).item() == pytest.approx(training.HEADS_WEIGHT * heads_part.item(), rel=1e-4)
    other = random_model("llama", seed=5)
    losses = training._joint_loss(heads, other, batches, label(target), 4, ALONE)
    divergence, places = 0.0, 0
    for text in ODD:
        tokens = torch.tensor([text.tokens])
        with torch.no_grad():
            old, new = (model(tokens).logits[0, :-1].log_softmax(-1) for model in (target.model, other))
        divergence, places = divergence + (old.exp() * (old - new)).sum(), places + len(text.tokens) - 1
    with torch.no_grad():
        hidden = other(batches[0].tokens, output_hidden_states=True).hidden_states[-1]
        parts = training.head_losses(heads, hidden, label(target)(batches[0]), batches[0].texts, batches[0].everybody)
    expected = divergence / places + training.HEADS_WEIGHT * sum(0.8**i * part for i, part in enumerate(parts))
    assert losses(3).item() == pytest.approx(float(expected), rel=1e-4) and divergence / places > 0.1


# -- stopped and gone on --


@pytest.mark.parametrize("joint", [False, True])
def test_a_killed_run_goes_on_where_it_was(target, texts, tmp_path, monkeypatch, joint):
    whole = fit(target, texts, tmp_path / "whole", joint=joint)
    write, train = loop._write, loop.train
    monkeypatch.setattr(training, "train", lambda *args, **rest: train(*args, **rest, save_every=3))

    def killed_after_writing(*args):
        write(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_write", killed_after_writing)
    for _ in range(2):  # at step 3, and at step 6
        with pytest.raises(KeyboardInterrupt):
            fit(target, texts, tmp_path / "killed", joint=joint)
    monkeypatch.setattr(loop, "_write", write)
    resumed = fit(target, texts, tmp_path / "killed", joint=joint)
    assert torch.equal(weights(whole.heads), weights(resumed.heads))
    assert torch.equal(weights(whole.target.model), weights(resumed.target.model))
    assert whole.accuracies == resumed.accuracies and resumed.log[-1]["step"] == 8


def test_a_folder_begun_with_other_settings_is_refused(target, texts, tmp_path):
    fit(target, texts, tmp_path, steps=1)
    with pytest.raises(ValueError, match="begun with heads 2 instead of 3, steps 1 instead of 2"):
        fit(target, texts, tmp_path, heads=3, steps=2)


def test_texts_too_short_for_the_heads_are_refused(target, tmp_path):
    short = [Text([3, 1, 4], 1, 3)] * 8
    with pytest.raises(ValueError, match="too short for 4 heads"):
        training.fit(target, short, short, tmp_path, cold_temperature=1.0, heads=4, progress=False)


def test_joint_training_in_float16_is_refused(tmp_path, texts):
    half = LM(random_model("llama", dtype=torch.float16))
    with pytest.raises(ValueError, match="float16 cannot be trained"):
        fit(half, texts, tmp_path, joint=True)


# -- devices --


def test_one_process_needs_no_accelerate(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)  # importing it fails
    here = devices.find("cpu")
    assert (here.device.type, here.rank, here.processes, here.first) == ("cpu", 0, 1, True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes were started .* `pip install accelerate`"):
        devices.find("cpu")


def test_a_share_is_every_so_many_th():
    assert [Devices(rank=rank, processes=3).share(list(range(8))) for rank in range(3)] == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5],
    ]


# -- files and commands --


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


def arguments(family_folder, tmp_path, *more):
    sizes = ["--texts", "12", "--held-out", "6", "--length", "16", "--steps", "4", "--rows", "4", "--heads", "2"]
    places = ["--target", str(family_folder), "--runs", str(tmp_path / "runs"), "--out"]
    return ["medusa", *places, str(tmp_path / "out"), *sizes, "--device", "cpu", "--quiet", *more]


def test_the_command_writes_heads_that_decode(family_folder, tmp_path, capsys):
    assert main(arguments(family_folder, tmp_path)) == 0
    out = tmp_path / "out"
    assert capsys.readouterr().out.strip() == str(out)
    assert {path.name for path in out.iterdir()} == {"config.json", "medusa_lm_head.safetensors", "training_log.json"}
    family = models.load(family_folder / "target", medusa=out)
    heads = family.medusa
    assert next(heads.parameters()).dtype == torch.float32 and not heads.training
    assert load_medusa(out).choices == heads.choices and len(heads.accuracies) == len(heads) == 2
    plain = run(greedy(family.target, "Mia was"), 20, stop=())
    assert run(medusa(family.target, heads, "Mia was"), 20, stop=()).tokens == plain.tokens
    log = json.loads((out / "training_log.json").read_text())
    assert log["command"].startswith("python -m tutorlib.training medusa --target") and log["log"][-1]["step"] == 4


def test_the_command_can_be_repeated_and_changes_nothing(family_folder, tmp_path):
    main(arguments(family_folder, tmp_path))
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert main(arguments(family_folder, tmp_path)) == 0
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_joint_training_writes_a_family(family_folder, tmp_path):
    assert main(arguments(family_folder, tmp_path, "--joint")) == 0
    old, new = models.load(family_folder), models.load(tmp_path / "out")
    assert not torch.equal(weights(old.target.model), weights(new.target.model))
    plain = run(greedy(new.target, "Mia was"), 20, stop=())
    assert run(medusa(new.target, new.medusa, "Mia was"), 20, stop=()).tokens == plain.tokens


def test_heads_of_a_family_come_into_its_card_once_and_leave_the_rest(family_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "OPENINGS", 2)
    monkeypatch.setattr(card, "opening", lambda seed: "Mia was")
    family = shutil.copytree(family_folder, tmp_path / "family")
    (family / "MODEL_CARD.md").write_text("# Models\n\nA table.\n")
    (family / "figures.json").write_text('{"target": {"who has it, right": 1.0}}')
    for _ in range(2):
        assert main([*arguments(family, tmp_path), "--out", str(family / "medusa")]) == 0
        text = (family / "MODEL_CARD.md").read_text()
        assert text.startswith("# Models\n\nA table.\n\n## Medusa heads\n") and text.count("## Medusa heads") == 1
        (family / "MODEL_CARD.md").write_text(text + "\n## EAGLE\n\nMore.\n" if "EAGLE" not in text else text)
    assert text.endswith("\n## EAGLE\n\nMore.\n") and "2 heads for the target, 1 residual block each" in text
    figures = json.loads((family / "figures.json").read_text())
    assert figures["target"] and 1 <= figures["medusa"]["tokens per call"] <= 3
    assert all(f"| {name} | {figure} |" in text for name, figure in figures["medusa"].items())
    assert len(models.load(family).medusa) == 2  # its checksums are those of the new files


def test_prompts_are_lines_of_a_file(family_folder, tmp_path):
    (tmp_path / "prompts").write_text("Mia was\n\nBen had\n")
    assert main(arguments(family_folder, tmp_path, "--prompts", str(tmp_path / "prompts"))) == 0
    first = json.loads(next(tmp_path.glob("runs/*/train texts/00000.json")).read_text())
    lm = models.load(family_folder).target
    assert [tokens[:own] for tokens, own, _ in first[:2]] == [lm.encode("Mia was"), lm.encode("Ben had")]


def test_an_interrupt_says_that_the_same_command_goes_on(family_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(arguments(family_folder, tmp_path)) == 130
    assert "the same command goes on" in capsys.readouterr().err


# -- really killed, really shared --


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing(family_folder, tmp_path):
    """Killed while texts are told, before the first step and while it trains: no text is told twice, and what comes out
    is what an unbroken run gives."""
    (tmp_path / "whole").mkdir()
    whole = arguments(family_folder, tmp_path / "whole", "--texts", "256", "--steps", "600")
    assert main(whole) == 0
    kills, told = 0, {}
    broken = arguments(family_folder, tmp_path / "broken", "--texts", "256", "--steps", "600")
    runs = tmp_path / "broken" / "runs"
    for moment in ("train texts/00001.json", "medusa/setting.json", "medusa/checkpoint.pt"):
        process = started(broken)
        while process.poll() is None and not list(runs.glob(f"*/{moment}")):
            time.sleep(0.005)
        kills += process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        files = {path: (path.read_text(), path.stat().st_mtime_ns) for path in runs.glob("*/*/0*.json")}
        assert len(told | files) >= 2 and told.items() <= files.items()
        told = files
    assert kills == 3
    process = started(broken)
    assert process.wait() == 0, process.stderr.read()
    one, two = (load_medusa(tmp_path / name / "out") for name in ("whole", "broken"))
    assert torch.equal(weights(one), weights(two)) and one.accuracies == two.accuracies


@pytest.mark.slow
def test_two_processes_give_what_one_gives(family_folder, tmp_path):
    """Through torchrun and accelerate, on the processor: the same texts, and the same heads up to rounding."""
    pytest.importorskip("accelerate")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert main(arguments(family_folder, tmp_path / "one")) == 0
    assert two_processes(arguments(family_folder, tmp_path / "two")) is None
    one, two = (load_medusa(tmp_path / name / "out") for name in ("one", "two"))
    assert torch.allclose(weights(one), weights(two), atol=2e-3)
    texts = [sorted(path.read_text() for path in tmp_path.glob(f"{name}/runs/*/*/0*.json")) for name in ("one", "two")]
    assert texts[0] == texts[1] and len(texts[0]) == 2


# -- the bundled heads --


def test_the_bundled_heads_give_more_than_two_tokens_a_call():
    figures = json.loads((WEIGHTS / "figures.json").read_text())["medusa"]
    assert figures["tokens per call"] >= 2.4 and 8 <= figures["nodes"] <= 16


@pytest.mark.slow
def test_the_bundled_heads_are_what_their_card_says():
    figures = json.loads((WEIGHTS / "figures.json").read_text())["medusa"]
    assert card.measure_heads(WEIGHTS) == pytest.approx(figures, abs=0.02)
