"""Training of EAGLE networks: the published losses, steps that are those of drafting, the same weights however stopped
or shared, files to decode with."""

import copy
import hashlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from conftest import random_model
from training_runs import started, two_processes, weights, write_family

import tutorlib
from tutorlib import greedy, models, run
from tutorlib.decoders.draft_trees import dynamic
from tutorlib.decoders.eagle import eagle
from tutorlib.heads.eagle import TREE
from tutorlib.heads.formats import load_eagle
from tutorlib.lm import LM
from tutorlib.training import card, loop
from tutorlib.training import eagle as training
from tutorlib.training.__main__ import main
from tutorlib.training.devices import ALONE, Devices
from tutorlib.training.own_text import Batches, Telling, Text, own_texts

WEIGHTS = Path(tutorlib.__file__).parent / "weights" / "storyworld"
KINDS = ("eagle", "eagle3")
ODD = [Text([3, 1, 4, 1, 5, 9, 2, 6], 1, 4), Text([6, 5, 3, 5], 3, 4), Text([2, 7, 1, 8, 2], 2, 2)]


@pytest.fixture(scope="module")
def target():
    """A model with habits: random, but sure enough of itself that its next words can be guessed."""
    return LM(random_model("llama"))


@pytest.fixture(scope="module")
def texts(target, tmp_path_factory):
    telling = Telling(length=24, rows=48, temperature=0.1)
    return own_texts(target, 48, tmp_path_factory.mktemp("own"), telling, prompts=[[3], [4, 5]], progress=False)


def new(kind, target, texts=ODD, **settings):
    if kind == "eagle":
        return training.new_eagle(target)
    return training.new_eagle3(target, texts, **{"feature_layers": (0, 1, 3), "vocabulary": 12, **settings})


def fit(kind, target, texts, folder, **settings):
    settings = {"steps": 8, "rows": 8, "rate": 0.01, "depth": 3, "progress": False, **settings}
    return training.fit(target, new(kind, target, texts), texts[:36], texts[36:], folder, **settings)


def features(head, target, text):
    """What a network reads of each token of a text: (length, width * layers), from the target's own session."""
    session = target.session(text.tokens[:1], hidden=head.feature_layers)
    parts = [(session.feed(), session.hidden)[1], (session.feed(text.tokens[1:]), session.hidden)[1]]
    return torch.cat([torch.cat([part[layer] for part in parts]) for layer in head.feature_layers], dim=-1)


def laws(target, text):
    """What the target says after each token of a text: (length, vocab) logits, from its own forward call."""
    with torch.no_grad():
        return target.model(torch.tensor([text.tokens])).logits[0].float()


def drafted(head, target, text, place, steps):
    """Logits (steps, vocab) of a draft after a text's first tokens, with the text's own tokens as its guesses."""
    session = head.session(target)
    rows = [session.feed(text.tokens[1 : place + 2], features(head, target, text)[: place + 1])]
    for step in range(1, steps):
        rows.append(session.grow([text.tokens[place + 1 + step]], [step - 2]))
    return torch.cat(rows)


# -- steps on whole texts --


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_whole_texts_is_a_step_of_drafting(kind):
    """At every place and in every step: the target's features up to there, its own since, the text's tokens."""
    target = LM(random_model("llama", dtype=torch.float64))
    head = new(kind, target).double()
    batch = Batches(target, ODD, rows=3, layers=head.feature_layers)[0]
    with torch.no_grad():
        steps = list(training.unroll(head, batch.tokens, training.joined(head, batch), 4))
        checked = 0
        for row, text in enumerate(batch.texts):
            for place in range(len(text.tokens) - 1):
                here = min(4, len(text.tokens) - 1 - place)
                rows = torch.stack([head.read_out(step[row, place], target) for step in steps[:here]])
                assert torch.allclose(rows, drafted(head, target, text, place, here), atol=1e-12)
                checked += here
    assert checked == 22 + 6 + 10


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_go_through_earlier_steps_at_a_place_and_to_no_other(kind, target):
    head = new(kind, target)
    batch = Batches(target, ODD, rows=3, layers=head.feature_layers)[0]
    steps = list(training.unroll(head, batch.tokens, training.joined(head, batch), 3))
    for earlier in steps[:2]:
        (gradient,) = torch.autograd.grad(steps[2][0, 1].sum(), earlier, retain_graph=True)
        assert gradient[0, 1].abs().max() > 1e-4
        gradient[0, 1] = 0
        assert not gradient.any()


def test_a_batch_of_texts_reads_nothing_of_what_fills_it_up(target):
    head = new("eagle", target)
    batch = Batches(target, ODD, rows=3)[0]
    given = training.joined(head, batch)
    other = given.clone()
    tokens = batch.tokens.clone()
    for row, text in enumerate(batch.texts):
        other[row, len(text.tokens) :] = 9.0
        tokens[row, len(text.tokens) :] = 7
    for step, pair in enumerate(
        zip(training.unroll(head, batch.tokens, given, 3), training.unroll(head, tokens, other, 3))
    ):
        rows, at = training.index(step, batch.texts, "cpu")
        assert torch.equal(*(hidden[rows, at] for hidden in pair)) and len(rows)


# -- the losses --


def eagles_loss_by_hand(head, target, texts, given=None):
    """EAGLE-1's loss place by place: each text alone, each place from all before it. `given` may stand for features."""
    terms = []
    for row, text in enumerate(texts):
        right, said = features(head, target, text), laws(target, text)
        read = right if given is None else given[row]
        for t in range(max(0, text.own - 2), len(text.tokens) - 2):
            positions = head.rotation(torch.arange(t + 1)[None])
            guess = head(torch.tensor([text.tokens[1 : t + 2]]), read[None, : t + 1], positions)[0, -1]
            far = (guess - right[t + 1]).abs()
            far = torch.where(far < 1, far**2 / 2, far - 0.5).mean()
            read_out = (target.model.lm_head.weight.detach() @ guess).log_softmax(-1)
            terms.append(far - 0.1 * (said[t + 1].softmax(-1) * read_out).sum())
    return torch.stack(terms).mean()


def loss_of(kind, head, target, texts, devices=ALONE, *, noise=0.0, depth=3):
    layers = dict.fromkeys((*head.feature_layers, -1))
    batches = Batches(target, texts, rows=len(texts), layers=layers, devices=devices)
    if kind == "eagle":
        return training._loss1(head, target, batches, noise, devices)
    return training._loss3(head, target, batches, depth, devices)


def gradient(head):
    return torch.cat([weight.grad.flatten() for weight in head.parameters() if weight.grad is not None])


def test_eagles_loss_and_its_gradient_are_the_published_ones(target):
    head = new("eagle", target)
    value = loss_of("eagle", head, target, ODD)(0)
    value.backward()
    found = gradient(head)
    head.zero_grad()
    by_hand = eagles_loss_by_hand(head, target, ODD)
    by_hand.backward()
    assert value.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert torch.allclose(found, gradient(head), atol=1e-5)


def test_noise_is_uniform_goes_to_what_is_read_and_not_to_what_is_right(target):
    head = new("eagle", target)
    seen = []
    hook = head.register_forward_pre_hook(lambda _, given: seen.append(given[1].detach()))
    loss = loss_of("eagle", head, target, ODD, noise=0.5)
    values = [loss(step) for step in (0, 1, 0)]
    hook.remove()
    assert values[0] == values[2] != values[1] and torch.equal(seen[0], seen[2])
    ordered = sorted(ODD, key=lambda text: len(text.tokens))
    assert values[1].item() == pytest.approx(eagles_loss_by_hand(head, target, ordered, seen[1]).item(), rel=1e-5)
    clean = [features(head, target, text) for text in ordered]
    noise = torch.cat([(seen[1][row, : len(each)] - each).flatten() for row, each in enumerate(clean)])
    assert noise.abs().max() <= 0.2501 and noise.min() < -0.2 and noise.max() > 0.2
    assert abs(noise.mean()) < 0.03 and noise.std() == pytest.approx(0.5 / 12**0.5, rel=0.1)


def test_eagle3s_loss_is_the_published_one(target):
    """0.8^j for step j; the target's law among the known tokens; nothing where its best token is none of them."""
    head, depth, unknown, expected = new("eagle3", target), 3, 0, 0.0
    known = head.tokens.tolist()
    assert len(known) == 12
    for j in range(depth):
        terms = []
        for text in ODD:
            said = laws(target, text)
            for t in range(max(0, text.own - 2 - j), len(text.tokens) - 2 - j):
                law = said[t + 1 + j]
                if int(law.argmax()) in known:
                    guess = drafted(head, target, text, t, j + 1)[j, known].log_softmax(-1)
                    terms.append(float(-(law[known].softmax(-1) * guess).sum()))
                else:
                    unknown += 1
                    terms.append(0.0)
        expected += 0.8**j * sum(terms) / len(terms)
    assert loss_of("eagle3", head, target, ODD, depth=depth)(0).item() == pytest.approx(expected, rel=1e-5)
    assert 0 < unknown < 10


@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_two_processes_average_to_the_loss_and_gradient_of_the_batch(kind, target):
    head = new(kind, target)

    def computed(devices):
        head.zero_grad()
        value = loss_of(kind, head, target, ODD, devices, noise=0.5)(3)
        value.backward()
        return value.detach(), gradient(head)

    whole = computed(ALONE)
    parts = [computed(Devices(rank=rank, processes=2)) for rank in (0, 1)]
    for together, one, two in zip(whole, *parts):
        assert torch.allclose(together, (one + two) / 2, atol=1e-6)


def test_the_tokens_known_are_the_most_frequent_and_never_just_the_first():
    texts = [Text([4, 4, 4, 7, 7, 2], 1, 6)]
    assert training.frequent(texts, 2, 9) == [4, 7]
    assert training.frequent(texts, 4, 9) == [0, 2, 4, 7]  # too few: filled up from the front
    # A map of the vocabulary's first tokens could not be told from one that was never filled.
    assert training.frequent([Text([0, 1, 1, 2, 2], 1, 5)], 3, 9) == [1, 2, 3]
    assert training.frequent([Text([0, 1, 1], 1, 5)], 3, 3) == [0, 1, 2]


# -- training --


@pytest.mark.parametrize("kind", KINDS)
def test_networks_learn_what_the_target_will_say(kind, target, texts, tmp_path):
    untrained, held_out = new(kind, target, texts), texts[36:]
    layers = dict.fromkeys((*untrained.feature_layers, -1))
    before = training.accuracies(untrained, target, Batches(target, held_out, 8, layers=layers))
    fitted = fit(kind, target, texts, tmp_path, steps=60, every=30, depth=2)
    losses = [loss_of(kind, head, target, held_out, depth=2)(0).item() for head in (untrained, fitted.head)]
    assert losses[1] < 0.8 * losses[0]
    assert fitted.accuracies["cold"][0] > before["cold"][0] + 0.2
    assert fitted.accuracies["sampled"][0] > before["sampled"][0]
    assert [len(shares) for shares in fitted.accuracies.values()] == [training.DEEP] * 2
    first, last = fitted.log
    assert last["loss"] < first["loss"] and last["cold 0"] == fitted.accuracies["cold"][0]
    assert not fitted.head.training and not any(weight.requires_grad for weight in fitted.head.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_and_its_embeddings_stay_as_they_are(kind, target, texts, tmp_path):
    before, fresh = weights(target.model).clone(), new(kind, target, texts)
    fitted = fit(kind, target, texts, tmp_path)
    assert torch.equal(weights(target.model), before)
    assert torch.equal(fitted.head.embed_tokens.weight, target.model.get_input_embeddings().weight)
    assert all(
        torch.equal(old, now) == name.startswith("embed_tokens")
        for (name, old), now in zip(fresh.named_parameters(), fitted.head.parameters())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_accuracies_are_counted_as_by_hand(kind, target):
    head = new(kind, target)
    texts = [*ODD, Text([8, 8, 1, 0, 3, 4, 2, 9], 1, 8), Text([4, 5, 6, 7, 8, 9, 1], 1, 1)]
    layers = dict.fromkeys((*head.feature_layers, -1))
    measured = training.accuracies(head, target, Batches(target, texts, 2, layers=layers), steps=3)
    for kind in ("cold", "sampled"):
        for j in range(3):
            hits = []
            for text in texts:
                for t in range(max(0, text.own - 2 - j), len(text.tokens) - 2 - j):
                    first, last = t + 2, t + 2 + j
                    if first >= text.cold if kind == "cold" else last < text.cold:
                        guess = drafted(head, target, text, t, j + 1)[j].argmax()
                        hits.append(int(guess) == text.tokens[last])
            assert measured[kind][j] == pytest.approx(sum(hits) / len(hits), abs=1e-4)


# -- stopped and gone on --


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_goes_on_where_it_was(kind, target, texts, tmp_path, monkeypatch):
    whole = fit(kind, target, texts, tmp_path / "whole")
    write, train = loop._write, loop.train
    monkeypatch.setattr(training, "train", lambda *args, **rest: train(*args, **rest, save_every=3))

    def killed_after_writing(*args):
        write(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_write", killed_after_writing)
    for _ in range(2):  # at step 3, and at step 6
        with pytest.raises(KeyboardInterrupt):
            fit(kind, target, texts, tmp_path / "killed")
    monkeypatch.setattr(loop, "_write", write)
    resumed = fit(kind, target, texts, tmp_path / "killed")
    assert torch.equal(weights(whole.head), weights(resumed.head))
    assert whole.accuracies == resumed.accuracies and resumed.log[-1]["step"] == 8


# -- other targets --


def capped(name, config):
    """A random model whose logits are scaled or capped."""
    import transformers

    sizes = {
        "vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 48, "initializer_range": 0.4, "pad_token_id": None,
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    torch.manual_seed(0)
    made = getattr(transformers, f"{name}Config")(**sizes, **config)
    return getattr(transformers, f"{name}ForCausalLM")(made).eval()


SCALED = {
    "Gemma2": {"head_dim": 4, "query_pre_attn_scalar": 4, "final_logit_softcapping": 1.5},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 3.0},
}


@pytest.mark.parametrize("name", SCALED)
def test_guessed_features_are_read_as_the_target_reads_its_own(name):
    """Whatever a family does to its logits, and with gradients, of which none goes to the target."""
    target = LM(capped(name, SCALED[name]))
    states = torch.randn(5, target.width, requires_grad=True)
    logits = training.readable(target)(states)
    assert torch.allclose(logits, target.read_out(states, normed=True), atol=1e-5)
    assert not torch.allclose(logits, target.model.get_output_embeddings()(states), atol=0.1)
    logits.log_softmax(-1)[:, 0].sum().backward()
    assert states.grad.any() and all(weight.grad is None for weight in target.model.parameters())


OTHERS = [
    *("gpt2", "opt", "gemma2", "qwen2"),
    *(pytest.param(family, marks=pytest.mark.slow) for family in ("gpt_neox", "gemma3", "mistral", "qwen3")),
]


@pytest.mark.parametrize("family", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_any_family_get_networks_that_draft(kind, family, tmp_path):
    target = LM(random_model(family))
    texts = [Text(torch.randint(19, (n,)).tolist(), 1, n // 2) for n in (9, 10, 11, 12)]
    untrained = new(kind, target, texts)
    fitted = training.fit(
        target, copy.deepcopy(untrained), texts, texts, tmp_path, steps=12, rows=4, rate=0.01, depth=2, progress=False
    )
    losses = [loss_of(kind, head, target, texts, depth=2)(0).item() for head in (untrained, fitted.head)]
    assert losses[1] < losses[0]
    plain = run(greedy(target, [3, 1, 4]), 12, stop=())
    trace = run(eagle(target, fitted.head, [3, 1, 4], tree=dynamic(6, 3, 2)), 12, stop=())
    assert trace.tokens == plain.tokens


def test_a_target_in_half_precision_trains_a_network_in_float32(texts, tmp_path):
    target = LM(random_model("llama", dtype=torch.bfloat16))
    for kind in KINDS:
        head = fit(kind, target, texts, tmp_path / kind, steps=3).head
        assert head.fc.weight.dtype == torch.float32


# -- bad input --


def test_a_folder_begun_with_other_settings_is_refused(target, texts, tmp_path):
    fit("eagle", target, texts, tmp_path, steps=1)
    with pytest.raises(ValueError, match="begun with steps 1 instead of 2, noise 0.2 instead of 0.1: use another"):
        fit("eagle", target, texts, tmp_path, steps=2, noise=0.1)
    with pytest.raises(ValueError, match="begun with steps 1 instead of 8.* depth None instead of 3"):
        fit("eagle3", target, texts, tmp_path)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"steps": 0}, "needs steps, a whole number of 1 or more, got 0"),
        ({"rows": 0}, "needs rows, a whole number of 1 or more, got 0"),
        ({"depth": 0}, "needs depth, a whole number of 1 or more, got 0"),
        ({"rate": 0.0}, "a rate above 0 and noise of 0 or more, got rate 0.0"),
        ({"rate": float("nan")}, "a rate above 0 and noise of 0 or more, got rate nan"),
        ({"noise": -0.1}, "a rate above 0 and noise of 0 or more, got rate 0.01 and noise -0.1"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_written(target, texts, tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        fit("eagle", target, texts, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_texts_too_short_are_refused(target, texts, tmp_path):
    short = [Text([3, 1], 1, 2)] * 8
    with pytest.raises(ValueError, match="the texts are too short to learn from: let them have 3 tokens or more"):
        training.fit(target, new("eagle", target), short, texts, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="the held-out texts are too short"):
        training.fit(target, new("eagle", target), texts, short, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_layers_and_tokens_that_the_target_does_not_have_are_refused(target):
    with pytest.raises(ValueError, match=r"3 layers, and so the hidden states 0 to 3, none of number 4"):
        new("eagle3", target, feature_layers=(0, 1, 4))
    with pytest.raises(ValueError, match="numbers of hidden states, a whole number of -4 or more, got -5"):
        new("eagle3", target, feature_layers=(-5,))
    with pytest.raises(ValueError, match="in a target of 3 layers the usual three would be"):
        new("eagle3", target, feature_layers=None)
    for count in (0, 20):
        with pytest.raises(ValueError, match=f"from 1 to 19 tokens, the target's, got {count}"):
            new("eagle3", target, vocabulary=count)


def test_a_target_of_several_widths_gets_what_can_be_made_for_it(tmp_path, monkeypatch):
    """OPT-350m's embeddings and last states are narrower than its layers."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=19, hidden_size=16, word_embed_proj_dim=8, ffn_dim=24, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=48, pad_token_id=1, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    target = LM(OPTForCausalLM(config))
    head = training.fit(target, new("eagle", target), ODD, ODD, tmp_path, steps=2, rows=3, progress=False).head
    plain = run(greedy(target, [3, 1, 4]), 12, stop=())
    assert run(eagle(target, head, [3, 1, 4], tree=dynamic(6, 3, 2)), 12, stop=()).tokens == plain.tokens
    with pytest.raises(ValueError, match="hidden states of width 16, what its output head reads has 8.* EAGLE-1"):
        new("eagle3", target)
    monkeypatch.setattr(target.model, "get_input_embeddings", lambda: torch.nn.Embedding(19, 16))
    with pytest.raises(ValueError, match=r"embeddings have shape \(19, 16\), where its features have width 8"):
        new("eagle", target)


# -- files and commands --


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


def arguments(kind, family_folder, tmp_path, *more):
    sizes = ["--texts", "12", "--held-out", "6", "--length", "16", "--steps", "4", "--rows", "4"]
    sizes += ["--layers", "0", "1", "2", "--depth", "2"] if kind == "eagle3" else []
    places = ["--target", str(family_folder), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    return [kind, *places, *sizes, "--device", "cpu", "--quiet", *more]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_writes_networks_that_decode_and_again_the_same(kind, family_folder, tmp_path, capsys):
    assert main(arguments(kind, family_folder, tmp_path)) == 0
    out = tmp_path / "out"
    assert capsys.readouterr().out.strip() == str(out)
    log = json.loads((out / "training_log.json").read_text())
    assert log["command"].startswith(f"python -m tutorlib.training {kind} --target") and log["log"][-1]["step"] == 4
    target = models.load(family_folder).target
    head = load_eagle(out, target, dtype=torch.float32)
    assert load_eagle(out).fc.weight.dtype == torch.float16 and head.tree == TREE == log["tree"]
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in out.iterdir())
    if kind == "eagle3":
        assert head.feature_layers == (0, 1, 2) == tuple(log["layers"]) and len(head.d2t) == 90 == log["tokens"]
    plain = run(greedy(target, "Mia was"), 20, stop=())
    assert run(eagle(target, head, "Mia was", tree=dynamic(6, 3, 2)), 20, stop=()).tokens == plain.tokens
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(arguments(kind, family_folder, tmp_path)) == 0
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


def test_the_same_command_trains_no_more_and_changes_the_tree_if_asked(family_folder, tmp_path):
    main(arguments("eagle", family_folder, tmp_path))
    out = tmp_path / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    checkpoint = next(tmp_path.glob("runs/*/eagle/checkpoint.pt"))
    trained = checkpoint.stat().st_mtime_ns
    asked = ["--tree", "9", "4", "3", "--confidence", "0.1", "--greedy-temperature", "0.5"]
    assert main(arguments("eagle", family_folder, tmp_path, *asked)) == 0
    changed = {path.name for path in out.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"config.json", "training_log.json"} and checkpoint.stat().st_mtime_ns == trained
    tree = {"nodes": 9, "depth": 4, "top_k": 3, "confidence": 0.1, "greedy_temperature": 0.5}
    assert load_eagle(out).tree == tree == json.loads((out / "training_log.json").read_text())["tree"]


@pytest.mark.parametrize(
    "kind, options, said",
    [
        ("eagle3", ["--layers", "0", "1", "3"], "the hidden states 0 to 2, none of number 3"),
        ("eagle3", ["--vocabulary", "0"], "from 1 to 300 tokens, the target's, got 0"),
        ("eagle3", ["--vocabulary", "301"], "from 1 to 300 tokens, the target's, got 301"),
        ("eagle", ["--tree", "9", "0", "3"], "depth is how many levels the tree has, .* got 0"),
        ("eagle", ["--confidence", "1.5"], "confidence must be a probability .* got 1.5"),
        ("eagle", ["--length", "4"], "texts need length >= 8"),
    ],
)
def test_what_cannot_be_is_said_before_texts_are_told(kind, options, said, family_folder, tmp_path):
    with pytest.raises(ValueError, match=said):
        main(arguments(kind, family_folder, tmp_path, *options))
    assert not (tmp_path / "runs").exists() and not (tmp_path / "out").exists()


def test_a_gpu_that_is_not_there_is_said(family_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device='cuda', but this machine .* has none"):
        main([*arguments("eagle", family_folder, tmp_path), "--device", "cuda"])


def test_a_file_without_prompts_is_said(family_folder, tmp_path):
    (tmp_path / "prompts").write_text("\n\n")
    with pytest.raises(ValueError, match="prompts holds no prompt: write one on each line"):
        main(arguments("eagle", family_folder, tmp_path, "--prompts", str(tmp_path / "prompts")))


def test_an_interrupt_says_that_the_same_command_goes_on(family_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(arguments("eagle", family_folder, tmp_path)) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_networks_of_a_family_come_into_its_card_once_and_leave_the_rest(family_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "OPENINGS", 1)
    monkeypatch.setattr(card, "opening", lambda seed: "Mia was")
    family = shutil.copytree(family_folder, tmp_path / "family")
    (family / "MODEL_CARD.md").write_text("# Models\n\nA table.\n\n## Medusa heads\n\nFour.\n")
    (family / "figures.json").write_text('{"medusa": {"nodes": 8}}')
    commands = {
        kind: [*arguments(kind, family, tmp_path, *more), "--out", str(family / kind)]
        for kind, more in (
            ("eagle", ["--tree", "5", "4", "3"]),
            ("eagle3", ["--tree", "6", "3", "2", "--confidence", "0.2"]),
        )
    }
    assert main(commands["eagle"]) == 0
    text = (family / "MODEL_CARD.md").read_text()
    assert text.startswith("# Models\n\nA table.\n\n## Medusa heads\n\nFour.\n\n## EAGLE networks\n")
    assert "| | EAGLE-1 |\n|---|---|\n" in text and "EAGLE-3" not in text
    (family / "MODEL_CARD.md").write_text(text + "\n## More\n\nMore.\n")
    told = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*texts/0*.json")}
    assert main(commands["eagle3"]) == 0 and len(told) == 2
    assert told == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*texts/0*.json")}  # told once
    text = (family / "MODEL_CARD.md").read_text()
    assert text.count("## EAGLE networks") == 1 and text.endswith("\n\n## More\n\nMore.\n")
    assert "| | EAGLE-1 | EAGLE-3 |\n|---|---|---|\n" in text
    assert "| hidden states | -1 | 0, 1, 2 |" in text and "| tokens known | 300 | 90 |" in text
    assert "| 5 nodes, 4 levels, 3 guesses a node | 6 nodes, 3 levels, 2 guesses a node, confidence 0.2 |" in text
    assert "rate 0.003, noise 0.2 on features | 4 steps of 4 texts, learning rate 0.003, 2 of its own steps |" in text
    assert all(f"`python -m tutorlib.training {kind} --target" in text for kind in KINDS)
    figures = json.loads((family / "figures.json").read_text())
    assert figures["medusa"] == {"nodes": 8}
    for name in KINDS:
        log = json.loads((family / name / "training_log.json").read_text())
        assert figures[name]["step 0, right, cold"] == log["accuracies"]["cold"][0]
        assert 1 <= figures[name]["tokens per call"] <= 9
        assert all(str(figure) in text for figure in figures[name].values())
    sums = json.loads((family / "checksums.json").read_text())
    for name in KINDS:
        file = f"{name}/model.safetensors"
        assert sums[file]["sha256"] == hashlib.sha256((family / file).read_bytes()).hexdigest()
    loaded = models.load(family)
    assert loaded.eagle.tree["nodes"] == 5 and loaded.eagle3.tree["confidence"] == 0.2


def test_a_network_beside_a_card_that_does_not_know_its_folder_leaves_the_card_alone(family_folder, tmp_path):
    (tmp_path / "MODEL_CARD.md").write_text("# Mine\n")
    assert main(arguments("eagle", family_folder, tmp_path)) == 0
    assert (tmp_path / "MODEL_CARD.md").read_text() == "# Mine\n"


# -- really killed, really shared --


@pytest.mark.slow
def test_a_process_killed_while_it_trains_loses_nothing(family_folder, tmp_path, kind="eagle3"):
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert main(arguments(kind, family_folder, tmp_path / "whole", "--steps", "300")) == 0
    broken = arguments(kind, family_folder, tmp_path / "broken", "--steps", "300")
    process = started(broken)
    while process.poll() is None and not list(tmp_path.glob(f"broken/runs/*/{kind}/checkpoint.pt")):
        time.sleep(0.005)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken" / "out").exists()
    process = started(broken)
    assert process.wait() == 0, process.stderr.read()
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name / "out").iterdir() if path.suffix != ".json"}
        for name in ("whole", "broken")
    ]
    assert files[0] == files[1] and len(files[0]) == 1


@pytest.mark.slow
def test_two_processes_give_what_one_gives(family_folder, tmp_path, kind="eagle"):
    """Through torchrun and accelerate, on the processor: the same network up to rounding, noise and all."""
    pytest.importorskip("accelerate")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert main(arguments(kind, family_folder, tmp_path / "one")) == 0
    assert two_processes(arguments(kind, family_folder, tmp_path / "two")) is None
    one, two = (load_eagle(tmp_path / name / "out") for name in ("one", "two"))
    assert torch.allclose(weights(one).float(), weights(two).float(), atol=2e-3)


# -- the bundled networks --


def test_the_bundled_network_gives_more_than_three_tokens_a_call():
    figures = json.loads((WEIGHTS / "figures.json").read_text())
    assert figures["eagle"]["tokens per call"] >= 3.2
    assert figures["eagle3"]["tokens per call"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_bundled_networks_are_what_their_card_says(name):
    figures = json.loads((WEIGHTS / "figures.json").read_text())[name]
    assert card.measure_eagle(WEIGHTS, name) == pytest.approx(figures, abs=0.02)
