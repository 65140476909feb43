"""Medusa heads: the shapes and the arithmetic of the paper, a start as the target's own head, and arguments refused."""

import pytest
import torch
from conftest import VOCAB

from tutorlib.drafting.choices import grow, usual_accuracies
from tutorlib.drafting.medusa_heads import MedusaHeads, ResidualBlock


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def random_heads(**settings):
    heads = MedusaHeads(6, 11, 3, 2, **settings)
    for seed, parameter in enumerate(heads.parameters()):
        parameter.data = numbers(*parameter.shape, seed=seed)
    return heads


def test_logits_have_the_shape_heads_batch_length_vocabulary():
    heads = MedusaHeads(6, 11, heads=4)
    assert heads(numbers(2, 5, 6)).shape == (4, 2, 5, 11)
    assert heads(numbers(6)).shape == (4, 11)


def test_each_head_is_its_residual_blocks_and_its_output_layer():
    heads = random_heads()
    values = {name: parameter.double() for name, parameter in heads.named_parameters()}
    hidden = numbers(5, 6, seed=9)
    for i, logits in enumerate(heads(hidden)):
        x = hidden.double()
        for j in range(2):
            z = x @ values[f"{i}.{j}.linear.weight"].T + values[f"{i}.{j}.linear.bias"]
            x = x + z / (1 + torch.exp(-z))
        assert torch.allclose(logits.double(), x @ values[f"{i}.2.weight"].T, rtol=1e-4, atol=1e-4)


def test_a_block_starts_as_the_identity():
    hidden = numbers(3, 6)
    assert torch.equal(ResidualBlock(6)(hidden), hidden)


def test_heads_start_as_the_targets_own_head(lm):
    heads = MedusaHeads(lm.width, VOCAB, heads=3, layers=2, output=lm.model.get_output_embeddings().weight)
    session = lm.session([1, 2, 3], hidden=-1)
    with torch.no_grad():
        logits = session.feed()
        for guessed in heads(session.hidden):
            assert torch.equal(guessed.argmax(-1), logits.argmax(-1))  # Gemma caps its logits, which keeps their order


def test_starting_does_not_change_the_target(llama):
    before = llama.model.lm_head.weight.clone()
    heads = MedusaHeads(llama.width, VOCAB, output=llama.model.lm_head.weight)
    for parameter in heads.parameters():
        parameter.data.zero_()
    assert torch.equal(llama.model.lm_head.weight, before)


def test_tokens_that_are_not_in_the_map_are_never_guessed():
    part, whole = random_heads(token_map=[9, 2, 5]), random_heads()
    for few, all_of_them in zip(part, whole, strict=True):
        all_of_them.load_state_dict(few.state_dict() | {"2.weight": torch.zeros(11, 6)})
        all_of_them[-1].weight.data[[9, 2, 5]] = few[-1].weight.data
    hidden = numbers(4, 6, seed=3)
    assert torch.allclose(part(hidden)[..., [9, 2, 5]], whole(hidden)[..., [9, 2, 5]])
    assert int((part(hidden) == -torch.inf).sum()) == 3 * 4 * 8


def test_the_map_is_no_parameter_and_follows_the_heads():
    heads = random_heads(token_map=torch.tensor([9, 2, 5]))
    assert "token_map" not in heads.state_dict()
    assert heads.to(torch.float64).token_map.dtype == torch.int64
    assert heads.to("meta").token_map.device.type == "meta"


def test_without_a_tree_they_bring_one_grown_from_their_accuracies():
    assert MedusaHeads(6, 11, heads=3).choices == grow(usual_accuracies(3, 11), 16)
    assert MedusaHeads(6, 11, heads=2, accuracies=[[0.9, 0.1], [0.5, 0.2]]).choices == [
        (0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1),
    ]  # fmt: skip
    assert MedusaHeads(6, 11, heads=2, choices=[(1, 1)]).choices == [(1,), (1, 1)]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"width": 0}, "width of at least 1, got 0"),
        ({"vocab_size": 0}, "vocab_size of at least 1, got 0"),
        ({"heads": 0}, "heads of at least 1, got 0"),
        ({"layers": -1}, "residual blocks of each, of 0 or more, got -1"),
        ({"output": torch.zeros(11, 7)}, r"output must have shape \(11, 6\), got \(11, 7\)"),
        ({"output": torch.zeros(11, 6), "token_map": [1, 2]}, r"output must have shape \(2, 6\)"),
        ({"choices": []}, "the tree is empty"),
        ({"choices": [(0, 0, 0)]}, "the tree is 3 tokens deep, but there are 2 heads"),
        ({"accuracies": [[0.5]]}, "accuracies are of 1 heads, but there are 2"),
        ({"accuracies": [[0.5], [1.5]]}, "shares from 0 to 1"),
        ({"token_map": []}, "got none"),
        ({"token_map": [1, 11]}, r"vocabulary of 11, got \[11\] among them"),
        ({"token_map": [1, 1]}, "some of them twice"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        MedusaHeads(**{"width": 6, "vocab_size": 11, "heads": 2, **settings})
