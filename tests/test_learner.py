"""What learning from own texts promises for Medusa heads and EAGLE networks alike: the same weights however stopped or
shared, accuracies counted right, files to decode with."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from conftest import random_model
from safetensors.torch import load_file
from training_runs import (
    KINDS,
    ODD,
    TINY_VILLAGE,
    arguments,
    drafted,
    fit,
    habits,
    loss_of,
    losses_by_step,
    new,
    sampled,
    started,
    two_processes,
    weights,
    write_family,
)

import tutorlib
from tutorlib import dflash, dynamic_tree, eagle, greedy, medusa, models, run, speculative
from tutorlib.disk import locked
from tutorlib.lab.training import accuracy, card, devices, learner, loop, train_village
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.devices import ALONE, Devices
from tutorlib.lab.training.sampled_texts import SampledText
from tutorlib.lab.training.texts import read_prompts
from tutorlib.lab.training.tokenizers import learn
from tutorlib.lab.training.train_pruned import PrunedLearner

WEIGHTS = Path(tutorlib.__file__).parent / "weights" / "storyworld"
BUNDLED = ("medusa", "eagle", "eagle3")
each_kind = pytest.mark.parametrize("kind", KINDS)


# -- the loss --


@each_kind
def test_the_shares_of_two_processes_average_to_the_loss_and_gradient_of_the_batch(kind):
    one = new(kind, **({"noise": 0.5} if kind == "eagle" else {}))

    def computed(devices):
        one.trained.zero_grad()
        value = loss_of(one, devices=devices)
        value.backward()
        return value.detach(), torch.cat([w.grad.flatten() for w in one.trained.parameters() if w.grad is not None])

    whole = computed(ALONE)
    parts = [computed(Devices(rank=rank, processes=2)) for rank in (0, 1)]
    for together, first, second in zip(whole, *parts):
        assert torch.allclose(together, (first + second) / 2, atol=1e-6)


# -- training --


@pytest.mark.parametrize(
    "kind, rate, share, gain",
    [
        ("medusa", 0.03, 0.9, 0), ("eagle", 0.01, 0.8, 0.2), ("eagle3", 0.01, 0.8, 0.2), ("pruned", 0.003, 0.95, 0),
        ("dflash", 0.01, 0.8, 0), ("mtp", 0.01, 0.8, 0), ("mtp three", 0.01, 0.8, 0), ("parallel", 0.01, 0.8, 0),
    ],
)  # fmt: skip
def test_heads_learn_what_the_target_will_say(kind, rate, share, gain, tmp_path):
    train, held_out = sampled()
    untrained, trained = new(kind, texts=train), new(kind, texts=train)
    fitted = fit(trained, tmp_path, steps=60, every=30, rate=rate)
    losses = [loss_of(one, held_out).item() for one in (untrained, trained)]
    assert losses[1] < share * losses[0]
    checked = Batches(habits(), held_out, 8, layers=trained.layers)
    before, after = (learner.accuracies(one, checked) for one in (untrained, trained))
    assert after["cold"][0] > before["cold"][0] + gain and after["sampled"][0] > before["sampled"][0]
    assert {kind: len(shares) for kind, shares in fitted.accuracies.items()} == dict.fromkeys(after, trained.depth)
    first, last = fitted.log
    assert last["loss"] < first["loss"] and (first["step"], last["step"]) == (30, 60)
    for name, shares in after.items():
        assert [last[f"{name} {step}"] for step in range(trained.depth)] == shares
    assert not trained.head.training and not any(weight.requires_grad for weight in trained.head.parameters())


@each_kind
def test_the_target_and_its_embeddings_stay_as_they_are(kind, tmp_path):
    before, fresh, trained = weights(habits().model).clone(), new(kind), new(kind)
    fit(trained, tmp_path)
    assert torch.equal(weights(habits().model), before)
    for (name, old), now in zip(fresh.head.named_parameters(), trained.head.parameters()):
        assert torch.equal(old, now) == name.startswith("embed_tokens")


def guesses_by_hand(one, text):
    """What a learner's head guesses in a text: position, step, how many tokens it knows there, logits."""
    length = len(text.tokens)
    if isinstance(one.head, torch.nn.ModuleList):
        for t in range(text.own - 1, length - 2):
            session = getattr(one, "student", one.target).session(text.tokens[: t + 1], hidden=-1)
            session.feed()
            yield from (
                (t, i, t + 1, head(session.hidden[-1])) for i, head in enumerate(one.head) if t + 2 + i < length
            )
    elif isinstance(one, PrunedLearner):  # a draft reads one token more than it knows features of
        for t in range(text.own - 2, length - 2):
            yield t, 0, t + 2, one.draft.session(text.tokens[: t + 2]).feed()[-1]
    else:
        for t in range(0, length - 2, getattr(one, "stride", 1)):
            rows = drafted(one.head, one.target, text, t, min(one.depth, length - 2 - t))
            yield from ((t, j, t + 2, row) for j, row in enumerate(rows) if t + 2 + j >= text.own)


@each_kind
def test_accuracies_are_counted_as_by_hand(kind):
    one, texts = (
        new(kind),
        [*ODD, SampledText([8, 8, 1, 0, 3, 4, 2, 9, 1], 1, 9), SampledText([4, 5, 6, 7, 8, 9, 1, 3], 1, 1)],
    )
    if kind == "medusa joint":  # what the target has become is what the heads read
        one.student.model.load_state_dict(random_model("llama", seed=5).state_dict())
    ranks = {}
    for text in texts:
        for t, step, known, logits in guesses_by_hand(one, text):
            rank = logits.argsort(descending=True).tolist().index(text.tokens[t + 2 + step])
            for kind, counts in (("cold", known >= text.low_from), ("sampled", t + 2 + step < text.low_from)):
                ranks.setdefault((kind, step), []).extend([rank] if counts else [])
    measured = learner.accuracies(one, Batches(habits(), texts, 2, layers=one.layers), ranks=3)
    assert {kind: len(steps) for kind, steps in measured.items()} == {"cold": one.depth, "sampled": one.depth}
    for (kind, step), found in ranks.items():
        assert measured[kind][step] == pytest.approx([found.count(r) / len(found) for r in range(3)], abs=1e-4)


# -- stopped and gone on --


def trained(kind, folder):
    """What a training gives: all weights, accuracies, log."""
    if kind == "language model":
        recipe = replace(TINY_VILLAGE, stages=(replace(TINY_VILLAGE.stages[0], steps=8, rows=1),))
        model, _, log = train_village.fit_recipe(recipe, folder, progress=False)
        return weights(model), {}, log
    one = new(kind)
    fitted = fit(one, folder)
    return weights(one.trained), *fitted


@pytest.mark.parametrize("kind", [pytest.param("language model", marks=pytest.mark.village), *KINDS])
def test_a_killed_run_goes_on_where_it_was(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "answer_shares", lambda *_: {})
    monkeypatch.setattr(train_village, "learn", cache(partial(learn, stories=30)))
    whole, accuracies, _ = trained(kind, tmp_path / "whole")
    monkeypatch.setattr(loop, "SAVE_EVERY", 3)
    write, killed = loop._write, []

    def killed_after_writing(path, model, optimizers, step, *rest):
        write(path, model, optimizers, step, *rest)
        killed.append(step)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_write", killed_after_writing)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            trained(kind, tmp_path / "killed")
    monkeypatch.setattr(loop, "_write", write)
    resumed, again, log = trained(kind, tmp_path / "killed")
    assert torch.equal(whole, resumed) and accuracies == again and killed == [3, 6] and log[-1]["step"] == 8


# -- bad input --


OTHER = {
    "medusa": ("medusa", {"heads": 3}, "heads 2 instead of 3:"),
    "medusa joint": ("medusa", {}, "joint True instead of False:"),
    "eagle": ("eagle", {"noise": 0.1}, "noise 0.2 instead of 0.1:"),
    "eagle3": ("eagle", {}, "noise None instead of 0.2, tokens 12 instead of 19:"),
    "dflash": ("dflash", {"feature_layers": (0, 1, 2)}, r"layers \[0, 1, 3\] instead of \[0, 1, 2\]:"),
    "mtp": ("mtp three", {}, "modules 1 instead of 3:"),
    "mtp three": ("mtp", {"depth": 3}, "modules 3 instead of 1:"),
    "parallel": ("parallel", {"feature_layers": (0, 1, 2)}, r"layers \[0, 1, 3\] instead of \[0, 1, 2\]:"),
    "pruned": ("pruned", {"layers": (0, 1)}, r"layers \[0, 2\] instead of \[0, 1\]:"),
}


@each_kind
def test_a_folder_begun_with_other_settings_is_refused(kind, tmp_path):
    fit(new(kind), tmp_path, steps=1)
    other, settings, said = OTHER[kind]
    with pytest.raises(ValueError, match=f"begun with steps 1 instead of 2, {said} use another"):
        fit(new(other, **settings), tmp_path, steps=2)


SHORT = [SampledText([3, 1], 1, 2)] * 8


@pytest.mark.parametrize(
    "kind, settings, said",
    [
        ("medusa", {"steps": 0}, "needs steps, a whole number of 1 or more, got 0"),
        ("medusa", {"rows": 0}, "needs rows, a whole number of 1 or more, got 0"),
        ("medusa", {"rate": 0.0}, "a rate above 0, got 0.0"),
        ("medusa", {"rate": float("nan")}, "a rate above 0, got nan"),
        ("medusa", {"texts": SHORT}, "the texts are too short to learn from: .* 3 tokens or more after"),
        ("eagle", {"texts": SHORT}, "the texts are too short to learn from: .* 2 tokens or more after"),
        ("medusa", {"held_out": [SampledText([3, 1, 4, 1, 5], 3, 5)] * 8}, "the held-out texts are too short to learn"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, kind, settings, said):
    with pytest.raises(ValueError, match=said):
        fit(new(kind), tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


# -- devices --


def test_one_process_needs_no_accelerate(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)  # importing it fails
    here = devices.find_devices("cpu")
    assert (here.device.type, here.rank, here.processes, here.first) == ("cpu", 0, 1, True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes were started .* `pip install accelerate`"):
        devices.find_devices("cpu")


def test_a_share_is_every_so_many_th():
    shares = [Devices(rank=rank, processes=3).share(list(range(8))) for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5]]


# -- files and commands --


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


@pytest.fixture(scope="module")
def family(family_folder):
    return models.load(family_folder)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@each_kind
def test_the_command_writes_heads_that_decode_and_again_the_same(kind, family_folder, tmp_path, capsys):
    assert main(arguments(kind, family_folder, tmp_path)) == 0
    out, role, joint = tmp_path / "out", kind.split()[0], kind.endswith("joint")
    folder = out / "medusa" if joint else out
    assert capsys.readouterr().out.strip() == str(folder)
    names = {path.name for path in folder.iterdir()}
    (tensors,) = names - {"config.json", "training_log.json"}
    assert {part.dtype for name, part in load_file(folder / tensors).items() if name not in ("d2t", "t2d")} == {
        torch.float16
    }
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.iterdir())
    log = json.loads((folder / "training_log.json").read_text())
    assert log["command"].startswith(f"python -m tutorlib train {role} --target") and log["log"][-1]["step"] == 4
    assert log["texts"] == 12 and log["steps"] == log["rows"] == 4 and set(log["accuracies"]) <= {"cold", "sampled"}
    old = models.load(family_folder)
    family = models.load(out) if joint else models.load(family_folder / "target", **{role: out})
    assert torch.equal(weights(old.target.model), weights(family.target.model)) != joint
    head, plain = getattr(family, role), run(greedy(family.target, "Mia was"), 20, stop=())
    module = head.model if role == "pruned" else head
    assert next(module.parameters()).dtype == torch.float32 and not module.training
    tree = {"shape": dynamic_tree(6, 3, 2)} if role.startswith(("eagle", "dflash", "mtp", "parallel")) else {}
    method = {"medusa": medusa, "pruned": speculative, "dflash": dflash}.get(role, eagle)
    assert run(method(family.target, head, "Mia was", **tree), 20, stop=()).tokens == plain.tokens
    before = contents(out)
    assert main(arguments(kind, family_folder, tmp_path)) == 0 and contents(out) == before


@pytest.mark.parametrize(
    "kind, options, said",
    [
        ("medusa", ["--heads", "0"], "need heads of at least 1, got 0"),
        ("medusa", ["--heads", "0", "--vocabulary", "40"], "need heads of at least 1, got 0"),
        (
            "medusa joint",
            ["--borrow", "--vocabulary", "40"],
            "cannot borrow the output head of a target that is trained",
        ),
        ("medusa", ["--vocabulary", "301"], "from 1 to 300 tokens, the target's, got 301"),
        ("medusa", ["--steps", "0"], "needs steps, a whole number of 1 or more, got 0"),
        ("pruned", ["--layers", "0", "2"], r"layers, from 0 to 1, ascending and each once, got \[0, 2\]"),
        ("pruned", ["--vocabulary", "301"], "from 1 to 300 tokens, the target's, got 301"),
        ("dflash", ["--block", "1"], "block is how many tokens a block has, .* 2 or more, got 1"),
        ("mtp", ["--modules", "0"], "modules is how many there are, a whole number of 1 or more, got 0"),
        ("mtp", ["--modules", "2", "--thin", "2"], "several modules read each other's outputs at all positions"),
        ("parallel", ["--masks", "0"], "--masks is how many follow the text, a whole number of 1 or more, got 0"),
        ("eagle3", ["--layers", "0", "1", "3"], "the hidden states 0 to 2, none of number 3"),
        ("eagle3", ["--vocabulary", "0"], "from 1 to 300 tokens, the target's, got 0"),
        ("eagle3", ["--vocabulary", "301"], "from 1 to 300 tokens, the target's, got 301"),
        ("eagle", ["--noise", "-1"], "noise of 0 or more, got -1"),
        ("eagle", ["--tree", "9", "0", "3"], "depth is how many levels the tree has, .* got 0"),
        ("eagle", ["--confidence", "1.5"], "confidence must be a probability .* got 1.5"),
        ("eagle", ["--length", "4"], "texts need length >= 8"),
        ("eagle", ["--threads", "0"], "--threads needs how many to use, a whole number of 1 or more, got 0"),
        ("eagle", ["--prompts", "nowhere.txt"], "No such file or directory: 'nowhere.txt'"),
        ("eagle", ["--target", "nobody/nothing"], "nobody/nothing"),
    ],
)
def test_what_cannot_be_is_said_before_texts_are_told(kind, options, said, family_folder, tmp_path):
    with pytest.raises(SystemExit, match=said):
        main(arguments(kind, family_folder, tmp_path, *options))
    assert not (tmp_path / "runs").exists() and not (tmp_path / "out").exists()


def test_a_gpu_that_is_not_there_is_said(family_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="device='cuda', but this machine .* has none"):
        main([*arguments("eagle", family_folder, tmp_path), "--device", "cuda"])


def test_prompts_are_lines_of_a_file(family_folder, tmp_path):
    prompts = tmp_path / "prompts"
    prompts.write_text("\n\n")
    with pytest.raises(SystemExit, match="prompts holds no prompt: write one on each line"):
        main(arguments("eagle", family_folder, tmp_path, "--prompts", str(prompts)))
    prompts.write_text("Mia was\n\nBen had\n")
    options = ["--prompts", str(prompts), "--vocabulary", "40", "--borrow"]
    assert main(arguments("medusa", family_folder, tmp_path, *options)) == 0
    first = json.loads(next(tmp_path.glob("runs/*/train texts/00000.json")).read_text())
    lm = models.load(family_folder).target
    assert [tokens[:own] for tokens, own, _ in first[:2]] == [lm.encode("Mia was"), lm.encode("Ben had")]


def test_prompts_may_be_chats_and_openings_as_lines_of_json(family_folder, tmp_path):
    prompts, family = tmp_path / "prompts.jsonl", models.load(family_folder)
    family.tokenizer.chat_template = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    chat = [{"role": "user", "content": "Who is it?"}, {"role": "assistant", "content": "Mia."}]
    lines = [{"messages": chat}, {"prompt": "Mia was"}]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    asked = [family.chat(chat), family.target.prompt_tokens("Mia was")]
    assert read_prompts(prompts, family) == asked
    for line in ('{"messages": "no list"}', '{"text": "Mia"}', '"Mia"', "{", '{"messages": [{"role": "user"}]}'):
        prompts.write_text('{"prompt": "Mia was"}\n' + line)
        with pytest.raises(ValueError, match="prompts.jsonl, prompt 2: "):
            read_prompts(prompts, family)


SEPARATED = "Mia is in\u2028the\u2029mill\u0085now."  # three characters that `splitlines` takes for the end of a line


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("name", ["p.jsonl", "p.JSONL", "p.ndjson", "p.txt", "p"])
def test_a_line_ends_with_a_line_feed_alone_and_a_byte_order_mark_is_no_part_of_it(name, end, mark, family, tmp_path):
    texts = [SEPARATED, "Ben is here."]
    as_json = name not in ("p", "p.txt")
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) if as_json else text for text in texts]
    (tmp_path / name).write_bytes((mark + end.join([*lines, ""])).encode())
    assert read_prompts(tmp_path / name, family) == [family.target.encode(text) for text in texts]


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("p.json", b'[{"prompt": "Mia was"}]', "p.json holds JSON, and would be read as plain text: write one object"),
        ("p.txt", b'{"prompt": "Mia was"}\n', "p.txt holds JSON, .* end in .jsonl or .ndjson"),
        ("p.txt", "Mia".encode("utf-16"), "p.txt is no text in UTF-8"),
        ("p.jsonl", b'{"prompt": "\\ud800"}', "p.jsonl, prompt 1: 'utf-8' codec can't encode"),
        ("p.jsonl", b"[" * 99999, "p.jsonl, prompt 1: "),
        ("p.ndjson", b"\n \n", "p.ndjson holds no prompt"),
    ],
)
def test_a_file_of_prompts_that_would_be_read_as_something_else_is_refused(name, content, says, family, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_prompts(tmp_path / name, family)


def test_an_interrupt_says_that_the_same_command_goes_on(family_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(learner, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(arguments("medusa", family_folder, tmp_path)) == 130
    assert "run the same command to continue" in capsys.readouterr().err


# -- the card --


TREES = {"eagle": ["--tree", "5", "4", "3"], "eagle3": ["--tree", "6", "3", "2", "--confidence", "0.2"]}


def test_heads_of_a_family_come_into_its_card_once_and_leave_the_rest(family_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "OPENINGS", 1)
    monkeypatch.setattr(card, "opening", lambda seed: "Mia was")
    family = shutil.copytree(family_folder, tmp_path / "family")
    (family / "figures.json").write_text('{"target": {"who has it, right": 1.0}}')
    (family / "MODEL_CARD.md").write_text("# Models\n\nA table.\n\n## More\n\nMore.\n")

    def made(kind):
        command = [*arguments(kind, family, tmp_path, *TREES.get(kind, [])), "--out", str(family / kind)]
        assert main(command) == 0
        return (family / "MODEL_CARD.md").read_text()

    assert "| | EAGLE-1 |\n|---|---|\n" in made("eagle")
    texts = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*texts/0*.json")}
    for kind in ("medusa", "eagle3", "medusa"):
        text = made(kind)
    assert len(texts) == 2 and all(
        path.stat().st_mtime_ns == written for path, written in texts.items()
    )  # sampled once
    assert text.startswith("# Models\n\nA table.\n\n## More\n\nMore.\n\n## EAGLE networks\n")
    assert text.count("## Medusa heads") == text.count("## EAGLE networks") == 1
    assert "2 heads for the target, 1 residual block each" in text
    assert "| | EAGLE-1 | EAGLE-3 |\n|---|---|---|\n" in text
    assert "| hidden states | -1 | 0, 1, 2 |" in text and "| tokens known | 300 | 90 |" in text
    assert "| 5 nodes, 4 levels, 3 guesses a node | 6 nodes, 3 levels, 2 guesses a node, confidence 0.2 |" in text
    assert "rate 0.003, noise 0.2 on features | 4 steps of 4 texts, learning rate 0.003, 2 of its own steps |" in text
    assert all(f"`python -m tutorlib train {kind} --target" in text for kind in BUNDLED)
    figures = json.loads((family / "figures.json").read_text())
    assert figures["target"] == {"who has it, right": 1.0}
    assert all(f"| {name} | {figure} |" in text for name, figure in figures["medusa"].items())
    sums = json.loads((family / "checksums.json").read_text())
    for kind in BUNDLED:
        log = json.loads((family / kind / "training_log.json").read_text())
        if kind != "medusa":
            assert figures[kind]["step 0, right, cold"] == log["accuracies"]["cold"][0]
        assert 1 <= figures[kind]["tokens per call"] <= 9
        assert all(str(figure) in text for figure in figures[kind].values())
        (file,) = (family / kind).glob("*.safetensors")
        assert sums[f"{kind}/{file.name}"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    loaded = models.load(family)
    assert loaded.eagle.tree["nodes"] == 5 and loaded.eagle3.tree["confidence"] == 0.2 and len(loaded.medusa) == 2


def test_a_network_beside_a_card_that_does_not_know_its_folder_leaves_the_card_alone(family_folder, tmp_path):
    (tmp_path / "MODEL_CARD.md").write_text("# Mine\n")
    assert main(arguments("eagle", family_folder, tmp_path)) == 0
    assert (tmp_path / "MODEL_CARD.md").read_text() == "# Mine\n"


# -- really killed, really shared --


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing(family_folder, tmp_path):
    """Killed while texts are sampled, before the first step and while it trains: no text is sampled twice, and
    what comes out is what an unbroken run gives."""
    kind, more = "eagle3", ["--texts", "256", "--steps", "350"]
    assert main(arguments(kind, family_folder, tmp_path / "whole", *more)) == 0
    broken, runs, seen = arguments(kind, family_folder, tmp_path / "broken", *more), tmp_path / "broken" / "runs", {}
    for moment in ("train texts/00001.json", f"{kind}/setting.json", f"{kind}/checkpoint.pt"):
        process = started(broken)
        while process.poll() is None and not list(runs.glob(f"*/{moment}")):
            time.sleep(0.005)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "broken" / "out").exists()
        files = {path: (path.read_text(), path.stat().st_mtime_ns) for path in runs.glob("*/*/0*.json")}
        assert len(files) >= 2 and seen.items() <= files.items()
        seen = files
    assert main(broken) == 0
    whole, resumed = (contents(tmp_path / name / "out") for name in ("whole", "broken"))
    assert whole.keys() == resumed.keys() and len(whole) == 3
    assert all(data == resumed[path] for path, data in whole.items() if path.name != "training_log.json")


@pytest.mark.slow
def test_two_processes_have_the_loss_of_one_at_every_step_and_give_what_one_gives(family_folder, tmp_path):
    """Through torchrun and accelerate, on the processor: each takes every second text of a batch, and out come the same
    texts, and the same head up to rounding. In EAGLE-1 the noise on a feature depends on its text and position."""
    pytest.importorskip("accelerate")
    assert main(arguments("eagle", family_folder, tmp_path / "one")) == 0
    assert two_processes(tmp_path / "losses.json", arguments("eagle", family_folder, tmp_path / "two")) is None
    shared = json.loads((tmp_path / "losses.json").read_text())
    for kind in KINDS:
        alone = losses_by_step(kind)
        assert shared[kind] == pytest.approx(alone, abs=1e-5) and alone[-1] < alone[0]
    files = [next((tmp_path / name / "out").glob("*.safetensors")) for name in ("one", "two")]
    for one, two in zip(*(load_file(file).values() for file in files), strict=True):
        assert torch.allclose(one.float(), two.float(), atol=2e-3)
    texts = [sorted(path.read_text() for path in tmp_path.glob(f"{name}/runs/*/*/0*.json")) for name in ("one", "two")]
    assert texts[0] == texts[1] and len(texts[0]) == 2


def test_an_eagle_1_network_may_have_no_bias(family_folder, tmp_path):
    assert main(arguments("eagle", family_folder, tmp_path, "--no-bias")) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["bias"] is False
    with pytest.raises(SystemExit, match="was begun with|is a checkpoint of something else"):
        main(arguments("eagle", family_folder, tmp_path))


# -- one place, two trainings --


def test_two_trainings_in_one_place_are_refused_and_the_first_is_named(family_folder, tmp_path):
    """Texts, checkpoints and what comes of them are each locked; texts that are there may be read by anybody."""
    given = arguments("eagle3", family_folder, tmp_path)
    runs = tmp_path / "runs" / family_folder.name
    for place in (tmp_path / "out", runs / "train texts", runs / "held out texts", runs / "eagle3"):
        with (
            locked(place),
            pytest.raises(SystemExit, match=f"{place} is in use: process {os.getpid()} on .* writes to"),
        ):
            main(given)
    with locked(runs / "train texts"):
        assert main(given) == 0
    with locked(tmp_path / "ngram"), pytest.raises(SystemExit, match="ngram is in use"):
        # The option by its name of the release before.
        main(f"ngram --cold 0.5 --target {family_folder} --out {tmp_path / 'ngram'} --runs {tmp_path}".split())
    assert not list(tmp_path.rglob("*.lock"))


# -- the bundled ones --


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_heads_are_what_their_card_says(name):
    figures = json.loads((WEIGHTS / "figures.json").read_text())[name]
    assert card.measure_head(WEIGHTS, name) == pytest.approx(figures, abs=0.02)
