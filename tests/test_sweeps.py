"""Long sweeps: nothing is lost to a kill, nothing is computed twice, and every file is what its module would make."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tutorlib import metrics
from tutorlib.decoders import sample
from tutorlib.lab import experiments
from tutorlib.lab.experiments import Experiment, named, rounded
from tutorlib.lab.experiments import __main__ as command
from tutorlib.lab.experiments.contrast import cd_name
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Seeded
from tutorlib.storyworld import check

SETTING = {"tokens": 5, "seed": 7, "prompts": ("a", "b")}
ROWS = ["one", "two", "three"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in the place of the results, and no models."""
    monkeypatch.setattr(experiments, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(experiments, "bundled", lambda family: f"the family {family}")
    return tmp_path / "results"


class Maker:
    """Makes rows, remembers which, and is killed when it comes to one of them."""

    def __init__(self, killed_at=None, factor=1):
        self.made, self.killed_at, self.factor = [], killed_at, factor

    def __call__(self, row):
        if row == self.killed_at:
            raise KeyboardInterrupt
        self.made.append(row)
        return {"letters": len(row) * self.factor, "third": len(row) * self.factor / 3}


def swept(maker, setting=SETTING, rows=ROWS, **options):
    made = Experiment("letters", setting, dict.fromkeys(rows), lambda family, row: maker(row))
    return made.run(progress=False, **options)


def written(rows, setting=SETTING):
    return experiments.write(experiments.RESULTS / "letters.json", setting, rows)


# The files.


def test_what_was_written_is_read_back_rounded(folder):
    """To significant digits; what is no float stays as it is."""
    written({"one": {"a": 123456.7, "b": [0.000123456, math.nan], "c": 12345, "d": (1, True, "x"), "e": math.inf}})
    read = experiments.results("letters")
    assert read["setting"] == {**SETTING, "prompts": ["a", "b"]}
    assert read["rows"] == {"one": {"a": 123500.0, "b": [0.0001235, None], "c": 12345, "d": [1, True, "x"], "e": None}}
    assert [path.name for path in folder.iterdir()] == ["letters.json"]


def test_a_kill_while_writing_leaves_the_old_file(folder, monkeypatch):
    path = written({"one": {"a": 1}})
    old = path.read_text()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        written({"one": {"a": 2}})
    assert path.read_text() == old


def test_a_row_is_a_line_so_that_a_change_shows_as_one(folder):
    lines = written({"one": {"a": 1}, "two": {"a": 2}}).read_text().splitlines()
    assert '  "two": {"a": 2}' in lines


def test_unknown_results_are_an_error_that_names_the_known_and_the_command(folder):
    with pytest.raises(
        ValueError, match="no results of a sweep 'x'; there are: none yet. `python -m tutorlib experiment NA"
    ):
        experiments.results("x")
    written({}, setting={})
    for name in ("x", "../results/letters", "", "a\0b", None):
        with pytest.raises(ValueError, match="there are: letters"):
            experiments.results(name)
    for content in ("{", "[]", "{}", "[" * 100_000):
        (folder / "letters.json").write_text(content)
        with pytest.raises(ValueError, match="letters.json (is|must)"):
            experiments.results("letters")


# Computing.


def test_all_rows_are_computed_in_order_the_partial_file_goes_and_a_sweep_that_is_done_is_computed_anew(folder):
    maker = Maker()
    assert swept(maker) == folder / "letters.json"
    assert maker.made == list(experiments.results("letters")["rows"]) == ROWS
    assert experiments.results("letters")["rows"]["three"] == {"letters": 5, "third": 1.667}
    assert [path.name for path in folder.iterdir()] == ["letters.json"]
    swept(maker)
    assert maker.made == 2 * ROWS


def test_a_killed_sweep_goes_on_with_the_rows_that_are_missing(folder):
    swept(Maker(factor=100))  # an old file
    with pytest.raises(KeyboardInterrupt):
        swept(Maker(killed_at="three"))
    assert experiments.results("letters")["rows"]["one"]["letters"] == 300  # which the kill leaves alone
    again = Maker()
    swept(again)
    assert again.made == ["three"]
    assert [row["letters"] for row in experiments.results("letters")["rows"].values()] == [3, 3, 5]
    assert not (folder / "letters.partial").exists()


def test_rows_of_another_setting_are_not_taken_over(folder):
    with pytest.raises(KeyboardInterrupt):
        swept(Maker(killed_at="three"))
    maker = Maker()
    swept(maker, setting={**SETTING, "seed": 8})
    assert maker.made == ROWS


def test_one_row_is_computed_anew_and_the_others_stay(folder):
    swept(Maker())
    maker = Maker(factor=10)
    assert swept(maker, only=["two"]) == folder / "letters.json"
    assert maker.made == ["two"]
    assert [row["letters"] for row in experiments.results("letters")["rows"].values()] == [3, 30, 5]


def test_one_row_without_a_file_waits_for_the_others(folder):
    assert swept(Maker(), only=["two"]) == folder / "letters.partial"
    with pytest.raises(ValueError, match="no results"):
        experiments.results("letters")
    maker = Maker()
    swept(maker)
    assert maker.made == ["one", "three"]
    assert list(experiments.results("letters")["rows"]) == ROWS


def test_a_row_that_is_new_joins_the_file_and_one_that_is_gone_leaves_it(folder):
    swept(Maker())
    swept(Maker(), rows=["zero", "one", "two"], only=["zero"])
    assert list(experiments.results("letters")["rows"]) == ["zero", "one", "two"]


def test_one_row_of_another_setting_is_refused(folder):
    swept(Maker())
    with pytest.raises(ValueError, match="another setting"):
        swept(Maker(), setting={}, only=["two"])
    with pytest.raises(ValueError, match="no row 'four'; its rows are 'one', 'two', 'three'"):
        swept(Maker(), only=["four"])


def test_a_file_that_lacks_rows_is_not_taken_for_whole(folder):
    swept(Maker(), rows=["one"])
    with pytest.raises(ValueError, match="lacks 'three'"):
        swept(Maker(), only=["two"])


# The command.


@pytest.fixture
def known(folder, monkeypatch):
    """What the command finds under a name; at first an experiment as if it lay beside the others."""
    experiment = Experiment("letters", SETTING, {"one": 1, "two": 2}, lambda family, row: {"of": family, "row": row})
    known = {"letters": experiment}
    monkeypatch.setattr(command, "names", lambda: list(known))
    monkeypatch.setattr(command, "named", known.get)
    return known


def test_the_command_computes_an_experiment_by_name_with_the_family_that_it_names(known, folder, capsys):
    assert command.main(["letters", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "letters.json")
    assert experiments.results("letters")["rows"]["two"] == {"of": "the family storyworld", "row": "two"}
    known["letters"] = replace(known["letters"], family="smollm2")
    assert command.main(["letters", "--quiet", "--only", "two"]) == 0
    families = [row["of"] for row in experiments.results("letters")["rows"].values()]
    assert families == ["the family storyworld", "the family smollm2"]


def test_the_command_names_the_experiments_it_knows_and_says_that_a_stop_loses_nothing(known, capsys):
    with pytest.raises(SystemExit):
        command.main(["nonsense"])
    assert "letters" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="tutorlib experiment: error: .*'three'"):
        command.main(["letters", "--only", "three"])
    known["letters"] = replace(known["letters"], figures=lambda family, row: Maker(killed_at=row)(row))
    assert command.main(["letters"]) == 130
    assert "same command continues" in capsys.readouterr().err


# What is committed.


def parts(rows):
    """All objects inside an object, and itself."""
    yield rows
    for part in rows.values():
        yield from parts(part) if isinstance(part, dict) else ()


@pytest.mark.parametrize("name", experiments.names())
def test_every_experiment_has_a_file_with_its_setting_and_its_rows(name):
    experiment, found = named(name), experiments.results(name)
    assert experiment.name == name
    assert found["setting"] == json.loads(json.dumps(experiment.setting))
    assert list(found["rows"]) == list(experiment.rows)
    assert rounded(found["rows"]) == found["rows"]
    for part in parts(found["rows"]):
        for key, value in part.items():
            low, high = part.get(f"{key}_interval", (-math.inf, math.inf))
            assert value is None or not isinstance(value, float) or low <= value <= high, (key, value)


# An experiment, one of its rows, and how far its numbers may be from those of the file: 0 where no processor is known
# to give others. If names of figures follow, only these are compared, because the others depend on the last bits of the
# logits. Rows of the others take many minutes or another program: their own tests compute a part of one.
AGAIN = [
    ("beams", "2 beams, length_penalty 0", 0.005, set()),
    ("contrast", cd_name(0.1), 0.01, {"readable", "consistent", "ngram_entropy_2", "distinct_2_within"}),
    ("draft_sizes", "1 × 128", 0, set()),
    ("drafts", "prompt_lookup, gamma 6", 0.05, {"per_call"}),
    ("drafts", "suffix_lookup, gamma 8", 0.05, {"per_call"}),
    ("drafts", "token_intersection, gamma 4", 0.05, {"per_call"}),
    ("drafts", "string_match, gamma 4", 0.05, {"per_call"}),
    ("eagle", "EAGLE-2, sampling, 16 nodes", 0, set()),
    ("eagle", "EAGLE-3, sampling, 4 nodes", 0, set()),
    ("lossy", "above(0.03)", 0.03, {"per_call", "readable", "consistent"}),
    ("medusa", "greedy, 16 nodes", 0, set()),
    ("min_p", "top-p, temperature 1, 0.6", 0.02, {"true", "readable", "consistent"}),
    ("penalties", "greedy, no_repeat_ngram 4", 0.02, {"repetition_4", "readable", "consistent"}),
    ("rules", "block, γ = 8", 0.03, {"per_call"}),
    ("blocks", "DFlash, chain, greedy", 0.03, {"per_call"}),
    ("joints", "DSpark, chain, greedy", 0.03, {"per_call"}),
    ("sampling", "top-p 0.7", 0.005, set()),
    ("specimens", "draft alone", 0.02, {"readable", "consistent"}),
    ("speculative", "temperature 1", 0.002, {"acceptance", "hard"}),
]
AGAIN = [pytest.param(*case, marks=[] if "EAGLE-3" in case[1] else pytest.mark.slow, id=case[0]) for case in AGAIN]


def numbers(value, key="", at=()):
    """All numbers inside a row: (where it is, the last name on the way there) -> the number."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inside = (numbers(item, name if isinstance(name, str) else key, (*at, name)) for name, item in items)
        return {place: number for found in inside for place, number in found.items()}
    return {} if isinstance(value, str) else {(at, key): value}


@pytest.mark.parametrize(("name", "row", "within", "keys"), AGAIN)
def test_a_row_computed_again_is_the_one_in_the_file(name, row, within, keys):
    again, stored = rounded(named(name).row(row)), experiments.results(name)["rows"][row]
    assert {place for place, _ in numbers(again)} == {
        place for place, _ in numbers(stored)
    } and again.keys() == stored.keys()
    for (place, key), value in numbers(again).items():
        if not keys or key in keys:
            assert value == pytest.approx(numbers(stored)[place, key], abs=within, rel=within), place


# What the sweeps share.


def test_the_prompts_are_consistent_beginnings_all_different_and_always_the_same():
    prompts = experiments.village_prompts(12)
    assert len(set(prompts)) == 12 and prompts[:5] == experiments.village_prompts(5)
    assert all(one.verdict == "consistent" for prompt in prompts for one in check(prompt))


VOCAB = [" Tom", " was", " with", " The", " kite", ".", " Zoe", "<end>"]
LM = TableLM.random(VOCAB, 1, seed=3, stop_tokens=["<end>"])


# Figures.


def test_the_figures_are_those_of_the_metrics():
    prompts = [" The kite was with Tom.", " The kite was with Zoe."]
    traces = [run(sample(LM, prompt, rng=Seeded(seed)), 25) for seed, prompt in enumerate(prompts)]
    figures = experiments.figures(LM, prompts, traces)
    texts = [[token for token in trace.tokens if token != 7] for trace in traces]
    assert any(len(text) < len(trace.tokens) for text, trace in zip(texts, traces))  # a stop token was left out
    assert figures["distinct_2"] == metrics.distinct_n(texts, 2)
    assert figures["entropy_1"] == pytest.approx(sum(metrics.ngram_entropy(text, 1) for text in texts) / 2)
    assert figures["length"] == sum(map(len, texts)) / 2
    assert figures["self_bleu"] == metrics.self_bleu(texts)
    counts = [metrics.consistency(prompt, trace.text) for prompt, trace in zip(prompts, traces)]
    assert figures["sentences"] == sum(counts).sentences > 0
    assert figures["readable"] == sum(counts).share_readable
    # Over all tokens together, each counting the same, and the stop token among them.
    lengths = [len(trace.tokens) for trace in traces]
    logs = [math.log(metrics.perplexity(LM, p, trace.tokens)) for p, trace in zip(prompts, traces)]
    mean = sum(length * log for length, log in zip(lengths, logs)) / sum(lengths)
    assert figures["perplexity"] == round(math.exp(mean), 2)


def test_figures_of_texts_with_nothing_in_them_are_nan_and_no_error():
    only_end = TableLM({"": {"<end>": 1.0}}, vocab=VOCAB, stop_tokens=["<end>"])
    traces = [run(sample(only_end, " Tom", rng=Seeded(0)), 5)]
    figures = experiments.figures(only_end, [" Tom"], traces)
    assert figures["length"] == figures["sentences"] == 0 and figures["perplexity"] == 1
    assert all(
        math.isnan(figures[name]) for name in ("distinct_1", "entropy_1", "repetition_4", "self_bleu", "readable")
    )


def test_a_text_too_short_for_a_figure_is_left_out_of_its_mean():
    written = [[0, 1, 2, 0, 1, 2, 0], [3, 4]]  # 4-grams: 4 of which 1 is old, and none
    traces = [SimpleNamespace(tokens=tokens, text=LM.decode(tokens)) for tokens in written]
    figures = experiments.figures(LM, [" kite", " The"], traces)
    assert figures["repetition_4"] == 0.25
    assert figures["length"] == 4.5


def test_every_trace_needs_its_prompt():
    with pytest.raises(ValueError, match="2 prompts and 0 traces"):
        experiments.figures(LM, [" Tom", " Zoe"], [])
