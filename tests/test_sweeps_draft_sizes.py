"""The sweep of chapter 21: drafts of several sizes, and the committed file holds what the chapter says."""

from tutorlib.lab.experiments import draft_sizes as sweep
from tutorlib.lab.experiments import results
from tutorlib.lab.training.train_village import RECIPES, build


def rows():
    return results("draft_sizes")["rows"]


def test_the_bundled_draft_is_one_of_the_sizes_and_was_trained_as_the_others_of_one_layer():
    bundled = [name for name, (_, _, what) in sweep.SETTINGS.items() if what == "bundled"]
    assert [sweep.recipe(name) for name in bundled] == [RECIPES["draft"]]
    for name, (layers, width, _) in sweep.SETTINGS.items():
        assert sweep.recipe(name).stages[-1].layers == layers and sweep.recipe(name).width == width, name


def test_a_draft_has_as_many_parameters_as_its_shape_says():
    for name, row in rows().items():
        model = build(sweep.recipe(name), row["layers"])
        assert row["parameters"] == sum(weight.numel() for weight in model.parameters()), name


def test_the_bundled_drafts_acceptance_is_that_of_chapter_8():
    found = results("speculative")["rows"]
    assert rows()["1 × 128"]["acceptance"] == found["temperature 1"]["acceptance"]
    assert rows()["1 × 128"]["acceptance_greedy"] == found["greedy"]["acceptance"]
    assert rows()["12 × 192"]["acceptance"] == rows()["12 × 192"]["share"] == 1
