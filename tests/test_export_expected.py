"""What a server of an export should report: its texts are the target's, and its drafts are counted as vLLM does."""

from types import SimpleNamespace

import pytest

from tutorlib import MedusaHeads, Step, TableLM, greedy, run
from tutorlib.lab.export_command import main
from tutorlib.lab.training import train_eagle
from tutorlib.loading.export import export
from tutorlib.loading.export.expected import Counts, _lookup, expected, first_continuation, served
from tutorlib.loading.formats import save_eagle, save_medusa
from tutorlib.loading.models import load


@pytest.mark.parametrize(
    ("text", "drafted"),
    [
        ([7, 1, 2, 3, 1, 2, 4, 1, 2], [3, 1]),  # what followed first, not last
        ([1, 2, 3, 5, 2, 3, 1, 2, 3], [5, 2]),  # the longest n-gram, though a shorter one occurred too
        ([9, 2, 5, 2], [5, 2]),
        ([4, 4], [4]),  # near the end there are fewer
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_vllm_looks_up_the_first_occurrence_of_the_longest_n_gram(text, drafted):
    assert first_continuation(text, 2, 3) == drafted


def test_a_lookup_is_cut_into_the_steps_that_its_drafts_make():
    cycle = TableLM({"a": [0, 1, 0], "b": [0, 0, 1], "c": [1, 0, 0]}, ["a", "b", "c"])
    steps = _lookup(cycle, [0], 2, 3)
    # A first token without a draft; nothing occurs twice until the cycle closes; then two guesses are right each time.
    made = [(step.tokens, list(step.drafted), step.accepted) for step, _ in zip(steps, range(5))]
    assert made == [([1], [], 0), ([2], [], 0), ([0], [], 0), ([1, 2, 0], [1, 2], 2), ([1, 2, 0], [1, 2], 2)]


def test_drafts_are_counted_whole_though_a_text_ends_within_one():
    full = [Step([5]), Step([6, 7, 8], [6, 7], 2), Step([9], [3, 3], 0)]  # longer than the three tokens asked for
    ended = [Step([5]), Step([0, 1, 2], [0, 1], 2)]  # token 0 is a stop token
    target = SimpleNamespace(stop_tokens=(0,))
    counts = expected(lambda prompt: iter(full if prompt == [1] else ended), target, [[1], [2]], tokens=3)
    assert counts == Counts([[5, 6, 7], [5, 0]], calls=4, drafts=2, drafted=4, accepted=4, by_position=[2, 2])
    assert counts.tokens_per_call == 5 / 4 and counts.acceptance_length == 3


@pytest.fixture
def head(weights, tmp_path):
    """A folder with untrained heads of a kind for the tiny family's target."""

    def make(kind):
        lm = load(weights).target
        if kind == "medusa":
            return save_medusa(MedusaHeads(lm.model.config.hidden_size, lm.vocab_size, 3), tmp_path / kind).parent
        eagle = kind == "eagle"
        network = train_eagle.new_eagle(lm, False) if eagle else train_eagle.new_eagle3(lm, [], feature_layers=(1,))
        return save_eagle(network, tmp_path / kind).parent

    return make


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3", "draft", "other", "lookup"])
def test_the_texts_are_the_targets_and_every_token_is_counted(kind, head, weights, tmp_path):
    arguments = {"head": head(kind)} if kind in ("medusa", "eagle", "eagle3") else {}
    arguments |= {"draft": weights / "other_draft"} if kind == "other" else {}
    export("draft" if kind == "other" else kind, "vllm", tmp_path / "out", target=weights, **arguments)
    family, method = served((tmp_path / "out").rename(tmp_path / "moved"))
    prompts = [family.target.encode(text) for text in ("The red kite was", "Tom gave Zoe the")]
    counts = expected(method, family.target, prompts, 20)
    assert counts.texts == [run(greedy(family.target, prompt), 20).tokens for prompt in prompts]
    # A call gives the guesses that it accepted, and one token more.
    assert 0 <= counts.calls + counts.accepted - sum(map(len, counts.texts)) <= 2 * 4
    assert counts.drafts <= counts.calls - 2 and counts.accepted == sum(counts.by_position)


def test_the_command_prints_what_to_expect(weights, tmp_path, capsys):
    export("draft", "sglang", tmp_path / "out", target=weights)
    main(["--check", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "6 greedy texts" in said and "mean acceptance length" in said
    for arguments, says in [
        (["--check", str(tmp_path)], "is no export"),
        (["lookup", "--check", str(tmp_path / "out")], "leave out kind"),
        (["lookup", "--engine", "vllm"], "missing: out"),
    ]:
        with pytest.raises(SystemExit):
            main(arguments)
        assert says in capsys.readouterr().err
