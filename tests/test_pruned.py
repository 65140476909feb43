"""A draft of some of a target's layers: what it computes, what it shares, its loss, its files, and a family's."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from conftest import random_model
from safetensors.torch import load_file, save_file
from test_llama import tiny
from training_runs import ODD, arguments, habits, loss_of, new, weights, write_family

from tutorlib import greedy, models, run, speculative
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.labels import in_pieces, lk
from tutorlib.loading.formats import load_pruned, save_pruned
from tutorlib.model import llama
from tutorlib.model.eight_bits import EightBits
from tutorlib.model.lm import LM
from tutorlib.model.pruned import first_and_last_layers, own_weights, pruned

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


def logits(lm, text=TEXT):
    with torch.no_grad():
        return lm.model(torch.tensor([text])).logits[0]


# -- what it computes --


@pytest.mark.parametrize("family", FAMILIES)
def test_it_computes_what_the_target_computes_without_the_other_layers(family):
    target = LM(random_model(family))
    cut = copy.deepcopy(target.model)
    cut.model.layers = torch.nn.ModuleList(cut.model.layers[layer] for layer in (0, 2))
    cut.config.num_hidden_layers = 2
    with torch.no_grad():
        expected = cut(torch.tensor([TEXT]), use_cache=False).logits[0]
    torch.testing.assert_close(logits(pruned(target, [0, 2])), expected)
    torch.testing.assert_close(logits(pruned(target, range(target.layers))), logits(target))


def test_it_shares_embeddings_and_output_head_and_nothing_else():
    target = habits()
    draft, before = pruned(target, [0, 2]), weights(target.model).clone()
    assert draft.model.get_input_embeddings() is target.model.get_input_embeddings()
    assert draft.model.get_output_embeddings() is target.model.get_output_embeddings()
    for weight in own_weights(draft.model).parameters():
        weight.data.zero_()
    assert torch.equal(weights(target.model), before) and target.model.config.num_hidden_layers == 3
    assert (draft.layers, draft.context, draft.stop_tokens) == (2, target.context, target.stop_tokens)


def test_it_drafts_in_the_loops_and_the_text_stays_the_targets():
    target = LM(tiny())
    draft = pruned(target, [0, target.layers - 1])
    draft.session(TEXT).feed()
    assert llama.loops() is None or isinstance(draft.open_cache(1), llama.LoopCache)
    plain = run(greedy(target, TEXT), 16, stop=())
    assert run(speculative(target, draft, TEXT, gamma=3), 16, stop=()).tokens == plain.tokens


def test_by_default_a_draft_is_made_of_the_first_and_the_last_layers():
    assert first_and_last_layers(habits()) == [0, 2]
    assert first_and_last_layers(SimpleNamespace(layers=30)) == [0, 1, 28, 29]


@pytest.mark.parametrize("layers", [[], [0, 3], [-1], [2, 0], [1, 1]])
def test_layers_that_the_target_does_not_have_are_refused(layers):
    with pytest.raises(ValueError, match="of the target's 3 layers, from 0 to 2, ascending and each once, got"):
        pruned(habits(), layers)


def test_a_target_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not built like Llama .* train heads for it"):
        pruned(LM(random_model("gpt2")), [0])


def test_a_target_with_other_weights_than_its_class_has_is_refused():
    target = LM(random_model("llama"))
    layer = target.model.model.layers[0].mlp
    layer.up_proj = torch.nn.Sequential(layer.up_proj)  # as an adapter does
    with pytest.raises(
        ValueError, match="as if it were quantized or had an adapter: make the draft of the plain model"
    ):
        pruned(target, [0, 2])


# -- the loss --


def by_hand(one, compare):
    """Text by text: the draft's probabilities of each of the target's own tokens, compared with the target's."""
    terms = []
    for text in ODD:
        said, guessed = (lm.model(torch.tensor([text.tokens])).logits[0] for lm in (one.target, one.draft))
        for t in range(text.own - 1, len(text.tokens) - 1):
            terms.append(compare(guessed[t : t + 1], said[t : t + 1].detach().softmax(-1)))
    return torch.stack(terms).mean()


@pytest.mark.parametrize("compare", [torch.nn.functional.cross_entropy, lk])
def test_the_loss_and_its_gradient_are_those_of_the_targets_probabilities(compare):
    one = new("pruned", **({"compare": lk} if compare is lk else {}))
    gradients, values = [], []
    for value in (loss_of(one), by_hand(one, compare)):
        one.head.zero_grad()
        value.backward()
        values.append(value.item())
        gradients.append(torch.cat([weight.grad.flatten() for weight in one.head.parameters()]))
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert torch.allclose(*gradients, atol=1e-5) and gradients[0].abs().max() > 1e-3


def test_a_loss_in_pieces_has_the_value_and_the_gradient_of_the_whole(monkeypatch):
    monkeypatch.setattr("tutorlib.lab.training.labels.PIECE", 3)
    states, right = torch.randn(8, 5, requires_grad=True), torch.randn(8, 5)

    def compared(states, right):
        return (states * right).tanh().square().sum()

    found = []
    for value in (compared(states, right), 2 * in_pieces(compared, states, right) / 2):
        (gradient,) = torch.autograd.grad(value, states)
        found.append((value.detach(), gradient))
    for whole, pieces in zip(*found, strict=True):
        torch.testing.assert_close(whole, pieces)
    assert in_pieces(compared, states[:0], right[:0]) == 0


def test_a_draft_that_is_compared_on_frequent_tokens_learns_where_the_best_is_one_of_them(tmp_path):
    known = [token for token in range(19) if token % 3]
    one = new("pruned", tokens=known)
    batch, total = Batches(habits(), ODD, 3, layers=(-1,), best=True)[0], 0.0
    for text in batch.texts:
        said, guessed = (logits(lm, text.tokens) for lm in (habits(), one.draft))
        for t in range(text.own - 1, len(text.tokens) - 1):
            if int(said[t].argmax()) in known:
                total += float(-(said[t, known].softmax(-1) * guessed[t, known].log_softmax(-1)).sum())
    assert loss_of(one).item() == pytest.approx(total / one.count(0, ODD), rel=1e-4)


# -- files --


@pytest.fixture
def folder(tmp_path):
    one = new("pruned")
    save_pruned(copy.deepcopy(one.head).half(), tmp_path / "draft", habits(), [0, 2], base="habits")
    return tmp_path / "draft"


def test_files_hold_what_is_not_shared_and_are_read_to_the_bit(folder):
    tensors = load_file(folder / "model.safetensors")
    assert not [name for name in tensors if "embed" in name or "lm_head" in name]
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    draft = load_pruned(folder, habits())
    assert draft.dtype == torch.float32 and draft.layers == 2 and not draft.model.training
    for name, weight in own_weights(draft.model).state_dict().items():
        assert torch.equal(weight, tensors[name].float())


def test_files_in_eight_bits_have_half_the_size_and_nearly_the_same_numbers(tmp_path):
    target = LM(tiny())
    own = own_weights(pruned(target, [0, 1]).model)
    paths = [
        save_pruned(copy.deepcopy(own).half(), tmp_path / name, target, [0, 1], eight_bits=eight)
        for name, eight in (("half", False), ("eight", True))
    ]
    sizes = [sum(tensor.nbytes for tensor in load_file(path).values()) for path in paths]
    assert 0.5 < sizes[1] / sizes[0] < 0.56
    draft = load_pruned(tmp_path / "eight", target)
    for name, weight in own_weights(draft.model).state_dict().items():
        right = own.state_dict()[name]
        step = right.abs().amax(-1, keepdim=True) / 127
        assert weight.dtype == torch.float32 and ((weight - right).abs() <= 0.6 * step + 1e-3 * right.abs()).all()
    plain = run(greedy(target, TEXT), 16, stop=())
    assert run(speculative(target, draft, TEXT, gamma=3), 16, stop=()).tokens == plain.tokens
    tensors = load_file(paths[1])
    name = next(name for name in tensors if name.endswith(".scale"))
    save_file({**tensors, name: tensors[name][:-1].clone()}, paths[1])
    with pytest.raises(ValueError, match=f"{name} must have a factor for each row of"):
        load_pruned(tmp_path / "eight", target)


def changed(folder, **config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


@pytest.mark.parametrize(
    "config, said",
    [
        ({"hidden_size": 17}, "made of layers of habits: hidden_size is 17, but the target's is 16"),
        ({"target_layers": 30}, "target_layers is 30, but the target's is 3. Make one of this target's"),
        ({"layers": [0, 3]}, "from 0 to 2, ascending and each once, got"),
        ({"layers": "0"}, "layers must be a list of numbers of the target's layers, got '0'"),
        ({"layers": [0, 1, 2]}, r"layers.2.\w+.* missing, by what .*config.json says"),
        ({"model_type": "medusa"}, "is not of a pruned draft: its model_type is 'medusa'"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(folder, config, said):
    changed(folder, **config)
    with pytest.raises(ValueError, match=said):
        load_pruned(folder, habits())


def test_damaged_tensors_are_named(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "norm.weight": tensors["norm.weight"] * float("nan")}, path)
    with pytest.raises(ValueError, match="norm.weight has numbers that are not finite"):
        load_pruned(folder, habits())
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="model.safetensors is half-written or broken"):
        load_pruned(folder, habits())


# -- a family's --


def test_a_family_has_a_pruned_draft_or_says_how_to_make_one(tmp_path):
    family = write_family(tmp_path / "family")
    with pytest.raises(AttributeError, match=r"no pruned draft yet: .*train pruned`, and load\(…, pruned="):
        _ = models.load(family).pruned
    main(arguments("pruned", family, tmp_path, "--loss", "lk", "--features", "0.1", "--eight-bits"))
    (tmp_path / "out").rename(family / "pruned")
    loaded = models.load(family)
    assert loaded.pruned.layers == 1 and loaded.pruned is loaded.pruned
    assert isinstance(loaded.pruned, EightBits) == (llama.of(loaded.target.model) is not None)
    plain = run(greedy(loaded.target, "Mia was"), 20, stop=())
    assert run(speculative(loaded.target, loaded.pruned, "Mia was", gamma=3), 20, stop=()).tokens == plain.tokens
