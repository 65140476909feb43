"""What is EAGLE's own in training: the published losses, steps that are those of drafting, targets of any family."""

import itertools
import json

import pytest
import torch
from conftest import random_model
from safetensors.torch import load_file
from training_runs import ODD, arguments, drafted, features, fit, habits, loss_of, new, weights, write_family

from tutorlib import LM, dynamic_tree, eagle, greedy, run
from tutorlib.lab.training import last_layer
from tutorlib.lab.training import train_eagle as training
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.labels import readable
from tutorlib.lab.training.sampled_texts import SampledText, frequent
from tutorlib.loading.formats import load_eagle

KINDS = ("eagle", "eagle3")


@pytest.fixture
def target():
    return habits()


def says(target, text):
    """What the target says after each token of a text: (length, vocab) logits, from its own forward call."""
    with torch.no_grad():
        return target.model(torch.tensor([text.tokens])).logits[0].float()


# -- steps on whole texts --


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_whole_texts_is_a_step_of_drafting(kind):
    """At every place and in every step: the target's features up to there, its own since, the text's tokens."""
    target = LM(random_model("llama", dtype=torch.float64))
    head = new(kind, target).head.double()
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
    head = new(kind, target).head
    batch = Batches(target, ODD, rows=3, layers=head.feature_layers)[0]
    steps = list(training.unroll(head, batch.tokens, training.joined(head, batch), 3))
    for earlier in steps[:2]:
        (gradient,) = torch.autograd.grad(steps[2][0, 1].sum(), earlier, retain_graph=True)
        assert gradient[0, 1].abs().max() > 1e-4
        gradient[0, 1] = 0
        assert not gradient.any()


def test_a_batch_of_texts_reads_nothing_of_what_fills_it_up(target):
    head = new("eagle", target).head
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
        rows, at = training.EagleLearner.index(step, batch.texts, "cpu")
        assert torch.equal(*(hidden[rows, at] for hidden in pair)) and len(rows)


# -- the losses --


def eagles_loss_by_hand(head, target, texts, given=None):
    """EAGLE-1's loss place by place: each text alone, each place from all before it. `given` may stand for features."""
    terms = []
    for row, text in enumerate(texts):
        right, said = features(head, target, text), says(target, text)
        read = right if given is None else given[row]
        for t in range(max(0, text.own - 2), len(text.tokens) - 2):
            positions = head.rotation(torch.arange(t + 1)[None])
            guess = head(torch.tensor([text.tokens[1 : t + 2]]), read[None, : t + 1], positions)[0, -1]
            far = (guess - right[t + 1]).abs()
            far = torch.where(far < 1, far**2 / 2, far - 0.5).mean()
            read_out = (target.model.lm_head.weight.detach() @ guess).log_softmax(-1)
            terms.append(far - 0.1 * (said[t + 1].softmax(-1) * read_out).sum())
    return torch.stack(terms).mean()


def test_eagles_loss_and_its_gradient_are_the_published_ones(target):
    one, gradients = new("eagle", target, noise=0), []
    values = loss_of(one), eagles_loss_by_hand(one.head, target, ODD)
    for value in values:
        one.head.zero_grad()
        value.backward()
        gradients.append(torch.cat([w.grad.flatten() for w in one.head.parameters() if w.grad is not None]))
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-5)
    assert torch.allclose(*gradients, atol=1e-5)


def test_noise_is_uniform_goes_to_what_is_read_and_not_to_what_is_right(target):
    one, seen = new("eagle", target, noise=0.5), []
    hook = one.head.register_forward_pre_hook(lambda _, given: seen.append(given[1].detach()))
    values = [loss_of(one, step=step) for step in (0, 1, 0)]
    hook.remove()
    assert values[0] == values[2] != values[1] and torch.equal(seen[0], seen[2])
    ordered = sorted(ODD, key=lambda text: len(text.tokens))
    assert values[1].item() == pytest.approx(eagles_loss_by_hand(one.head, target, ordered, seen[1]).item(), rel=1e-5)
    clean = [features(one.head, target, text) for text in ordered]
    noise = torch.cat([(seen[1][row, : len(each)] - each).flatten() for row, each in enumerate(clean)])
    assert noise.abs().max() <= 0.2501 and noise.min() < -0.2 and noise.max() > 0.2
    assert abs(noise.mean()) < 0.03 and noise.std() == pytest.approx(0.5 / 12**0.5, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_at_some_positions_are_those_at_all_positions(kind, target):
    head = new(kind, target).head
    batch = Batches(target, ODD, rows=3, layers=head.feature_layers)[0]
    given = training.joined(head, batch)
    for further in (slice(1, None, 2), slice(0, None, 3), slice(2, None)):
        pairs = zip(
            *(training.unroll(head, batch.tokens, given, 4, some) for some in (slice(None), further)), strict=True
        )
        for step, (whole, some) in enumerate(pairs):
            torch.testing.assert_close(some, whole[:, further] if step else whole)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_thinned_loss_counts_every_so_many_th_position_of_later_steps(target, step):
    one, expected, counted = new("eagle3", target, thin=3, vocabulary=None), 0.0, []
    start = step % 3  # the first position that counts is 0, in any text
    for j in range(3):
        terms = []
        for text in ODD:
            said = says(target, text)
            for t in range(max(0, text.own - 2 - j), len(text.tokens) - 2 - j):
                if j == 0 or t % 3 == start:
                    guess = drafted(one.head, target, text, t, j + 1)[j].log_softmax(-1)
                    terms.append(float(-(said[t + 1 + j].softmax(-1) * guess).sum()))
        expected += 0.8**j * sum(terms) / max(1, len(terms))
        counted.append(len(terms))
    assert loss_of(one, step=step).item() == pytest.approx(expected, rel=1e-5)
    assert counted[0] > 2 * counted[1] and one.settings["thin"] == 3


@pytest.mark.parametrize("normed", [False, True])
def test_eagle3s_loss_is_the_published_one(target, normed):
    """0.8^j for step j; the target's probabilities of the known tokens; nothing where its best token is unknown."""
    one, depth, unknown, expected = new("eagle3", target, normed=normed), 3, 0, 0.0
    head, known = one.head, one.head.tokens.tolist()
    assert len(known) == 12
    for j in range(depth):
        terms = []
        for text in ODD:
            said = says(target, text)
            for t in range(max(0, text.own - 2 - j), len(text.tokens) - 2 - j):
                right = said[t + 1 + j]
                if int(right.argmax()) in known:
                    guess = drafted(head, target, text, t, j + 1)[j, known].log_softmax(-1)
                    terms.append(float(-(right[known].softmax(-1) * guess).sum()))
                else:
                    unknown += 1
                    terms.append(0.0)
        expected += 0.8**j * sum(terms) / len(terms)
    assert loss_of(one).item() == pytest.approx(expected, rel=1e-5)
    assert 0 < unknown < 10


def test_a_network_that_borrows_the_targets_weights_trains_and_is_written_without_them(tmp_path):
    one = new("eagle3", borrow=True)
    assert torch.equal(one.head.norm.weight, habits().model.model.norm.weight)
    before = weights(one.head.lm_head).clone()
    fit(one, tmp_path / "run")
    assert torch.equal(weights(one.head.lm_head), before)
    path = one.write(one.head, tmp_path / "head", "base")
    assert not {"embed_tokens.weight", "lm_head.weight"} & load_file(path).keys()
    assert torch.equal(weights(load_eagle(tmp_path / "head", habits())), weights(one.head))
    with pytest.raises(
        ValueError, match=r"is missing, so that the target's (is|are) used: load_eagle\(folder, target\)"
    ):
        load_eagle(tmp_path / "head")


def test_a_network_with_the_norms_of_eagle_3_1_learns_them_and_is_written_with_them(tmp_path):
    one, untrained = (new("eagle3", normed=True) for _ in range(2))
    assert one.head.norm_output and len(one.head.fc_norm) == 3 and one.settings["fc_norm"] is True
    fit(one, tmp_path / "run")
    before, after = (dict(each.head.named_parameters()) for each in (untrained, one))
    assert all(not torch.equal(before[name], after[name]) for name in before if "norm" in name)
    one.write(one.head, tmp_path / "head", "base")
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["fc_norm"] is config["norm_output"] is True
    loaded = load_eagle(tmp_path / "head", habits())
    assert loaded.norm_output and torch.equal(weights(loaded), weights(one.head))
    plain = run(greedy(habits(), [3, 1, 4]), 12, stop=())
    assert run(eagle(habits(), loaded, [3, 1, 4], shape=dynamic_tree(6, 3, 2)), 12, stop=()).tokens == plain.tokens


def test_a_folder_begun_without_norms_is_no_start_for_a_network_with_them(tmp_path):
    fit(new("eagle3"), tmp_path, steps=1)
    with pytest.raises(ValueError, match="begun with fc_norm None instead of True, norm_output None instead of True"):
        fit(new("eagle3", normed=True), tmp_path, steps=1)


def test_a_network_that_starts_from_the_last_layer_computes_what_that_layer_computes(monkeypatch, target):
    """Without its random weights, it says what the target says of every token."""
    monkeypatch.setattr(last_layer, "SMALL", 0.0)
    settings = {"feature_layers": (0, 1, target.layers - 1), "vocabulary": None, "borrow": True}
    head = new("eagle3", target, from_last_layer=True, **settings).head
    batch = Batches(target, ODD[:1], rows=1, layers=head.feature_layers)[0]
    with torch.no_grad():
        (made,) = training.unroll(head, batch.tokens, training.joined(head, batch), 1)
    torch.testing.assert_close(head.read_out(made[0]), says(target, ODD[0]), rtol=1e-4, atol=1e-4)


def test_norms_of_features_start_with_their_usual_size(target):
    """So a network with them that starts from the last layer reads about what it would read without them."""
    one, other = (new("eagle3", from_last_layer=True, normed=normed).head for normed in (True, False))
    given = torch.cat([features(one, target, text) for text in ODD])
    with torch.no_grad():
        ratio = one.start(given).norm(dim=-1) / other.start(given).norm(dim=-1)
    assert ratio.min() > 0.5 and ratio.max() < 2
    sizes = [part.square().mean(-1).sqrt().median() for part in given.split(target.width, dim=-1)]
    assert [norm.weight[0].item() for norm in one.fc_norm] == pytest.approx([float(size) for size in sizes], rel=0.3)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_a_last_layer_of_another_kind_is_no_start(family):
    with pytest.raises(ValueError, match="not built like Llama's.* train without from_last_layer"):
        new("eagle3", LM(random_model(family)), feature_layers=(0, 1, 2), from_last_layer=True)


def test_the_tokens_known_are_the_most_frequent_and_never_just_the_first():
    texts = [SampledText([4, 4, 4, 7, 7, 2], 1, 6)]
    assert frequent(texts, 2, 9) == [4, 7]
    assert frequent(texts, 4, 9) == [0, 2, 4, 7]  # too few: filled up from the front
    # A map of the vocabulary's first tokens could not be told from one that was never filled.
    assert frequent([SampledText([0, 1, 1, 2, 2], 1, 5)], 3, 9) == [1, 2, 3]
    assert frequent([SampledText([0, 1, 1], 1, 5)], 3, 3) == [0, 1, 2]


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
    logits = readable(target)(states)
    assert torch.allclose(logits, target.read_out(states, normed=True), atol=1e-5)
    assert not torch.allclose(logits, target.model.get_output_embeddings()(states), atol=0.1)
    logits.log_softmax(-1)[:, 0].sum().backward()
    assert states.grad.any() and all(weight.grad is None for weight in target.model.parameters())


OTHERS = ("gpt2", "opt", "gemma2", "gpt_neox", "gemma3", "mistral", "qwen2", "qwen3")
QUICK = (("eagle", "gpt2"), ("eagle3", "opt"), ("eagle", "gemma2"))  # the others ask nothing more


@pytest.mark.parametrize(
    ("kind", "family"),
    [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in itertools.product(KINDS, OTHERS)],
)
def test_targets_of_any_family_get_networks_that_draft(kind, family, tmp_path):
    target = LM(random_model(family))
    texts = [SampledText(torch.randint(19, (n,)).tolist(), 1, n // 2) for n in (9, 10, 11, 12)]
    untrained, one = (new(kind, target, texts, **({} if kind == "eagle" else {"depth": 2})) for _ in range(2))
    fit(one, tmp_path, texts, texts, steps=12, rows=4)
    assert loss_of(one, texts) < loss_of(untrained, texts)
    plain = run(greedy(target, [3, 1, 4]), 12, stop=())
    assert run(eagle(target, one.head, [3, 1, 4], shape=dynamic_tree(6, 3, 2)), 12, stop=()).tokens == plain.tokens


def test_a_target_in_half_precision_trains_a_network_in_float32(tmp_path):
    target = LM(random_model("llama", dtype=torch.bfloat16))
    for kind in (*KINDS, "pruned"):
        one = new(kind, target)
        fit(one, tmp_path / kind, steps=3)
        assert {weight.dtype for weight in one.trained.parameters()} == {torch.float32}


# -- bad input --


@pytest.mark.parametrize("kind, settings, said", [
    ("eagle", {"noise": -0.1}, "needs noise of 0 or more, got -0.1"),
    ("eagle3", {"depth": 0}, "needs depth, a whole number of 1 or more, got 0"),
    ("eagle3", {"thin": 0}, "needs thin, a whole number of 1 or more, got 0"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(kind, settings, said):
    with pytest.raises(ValueError, match=said):
        new(kind, **settings)


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
    one = new("eagle", target)
    fit(one, tmp_path, ODD, ODD, steps=2, rows=3)
    plain = run(greedy(target, [3, 1, 4]), 12, stop=())
    assert run(eagle(target, one.head, [3, 1, 4], shape=dynamic_tree(6, 3, 2)), 12, stop=()).tokens == plain.tokens
    with pytest.raises(ValueError, match="hidden states of width 16, what its output head reads has 8.* EAGLE-1"):
        new("eagle3", target)
    monkeypatch.setattr(target.model, "get_input_embeddings", lambda: torch.nn.Embedding(19, 16))
    with pytest.raises(ValueError, match=r"embeddings have shape \(19, 16\), where its features have width 8"):
        new("eagle", target)


# -- files and commands --


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


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
