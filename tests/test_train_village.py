"""The village's own training: the same data for the same step, and hints that point at the truth.

The bundled models are trained, and this training is not developed further. So its tests run on a schedule and after a
change of it (`make village`), not in every suite. The loop that all trainings share is tested in `test_loop.py`.
"""

import json
from functools import cache, partial

import pytest
import torch
from training_runs import TINY_VILLAGE as TINY

from tutorlib.lab.training import accuracy, hints, train_village
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.corpus import IGNORED, Stories
from tutorlib.lab.training.tokenizers import learn
from tutorlib.storyworld import story, told

pytestmark = pytest.mark.village

LEARN_ONCE = cache(partial(learn, stories=200))


@pytest.fixture(autouse=True)
def few_questions_and_stories(monkeypatch):
    """Reports are asked a few questions only, and tokenizers learnt from few stories, so that tests stay quick."""
    answers = accuracy.answer_shares
    monkeypatch.setattr(accuracy, "answer_shares", lambda *models: answers(*models, seeds=range(12), most=4))
    monkeypatch.setattr(train_village, "learn", LEARN_ONCE)


@pytest.fixture(scope="module")
def tokenizer():
    return learn(640, seed="tokenizer", stories=1500)


# -- tokenizers --


def test_any_text_survives_the_round_trip(tokenizer):
    for text in ("Mia was at the mill.", "  two  spaces ", "naïve 東京 🙂\n\ttabs", story(1)):
        tokens = tokenizer(text)["input_ids"]
        assert tokens[0] == tokenizer.bos_token_id
        assert tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_names_are_one_token_and_long_rare_words_are_split(tokenizer):
    assert all(len(tokenizer.tokenize(f" {name}")) == 1 for name in ("Mia", "Ben", "kite", "mill", "four"))
    assert all(len(tokenizer.tokenize(f" {word}")) > 1 for word in ("wonderfully", "afternoon", "butterflies"))


def test_stories_are_80_to_200_tokens(tokenizer):
    lengths = [len(tokenizer(story(seed))["input_ids"]) - 1 for seed in range(300)]
    assert min(lengths) >= 80 and max(lengths) <= 200, (min(lengths), max(lengths))


# -- corpus and hints --


def test_a_batch_depends_on_its_number_alone(tokenizer):
    first = Stories(tokenizer, 3).batch(11)
    again = Stories(tokenizer, 3)
    again.batch(0)
    assert torch.equal(first.tokens, again.batch(11).tokens)
    assert not torch.equal(first.tokens[:, :20], again.batch(12).tokens[:, :20])


def test_every_row_is_one_whole_story_and_its_end(tokenizer):
    batch = Stories(tokenizer, 4).batch(0)
    for tokens, targets in zip(batch.tokens, batch.targets):
        length = int((targets != IGNORED).sum())
        assert torch.equal(tokens[:length], targets[:length])
        assert tokens[0] == tokenizer.bos_token_id and tokens[length - 1] == tokenizer.eos_token_id
        assert tokenizer.decode(tokens[:length], skip_special_tokens=True).endswith(".")


def test_hints_stop_when_the_recipe_says_so(tokenizer):
    stories = Stories(tokenizer, 2, hinted=8)
    assert stories.batch(7).hints is not None and stories.batch(8).hints is None


TALE = [
    ("The red kite was with Mia.", "thing_with", {"thing": "kite", "colour": "red", "who": "Mia"}),
    ("The kite went from Mia to Ben.", "give", {"thing": "kite", "colour": "red", "who": "Mia", "to": "Ben"}),
    ("The red kite stayed with Ben.", "still_with", {"thing": "kite", "colour": "red", "who": "Ben"}),
]


def test_a_hint_points_at_where_the_fact_was_told_as_it_is():
    text = " ".join(sentence for sentence, _, _ in TALE)

    def word(end):
        return text[: end + 1].split()[-1]

    found = [
        (word(cue), word(value), [word(source) for source in there]) for _, cue, value, there in hints.mentions(TALE)
    ]
    assert found == [
        ("red", "kite", []),
        ("kite", "Mia", []),  # told for the first time
        ("kite", "Mia", ["Mia"]),
        ("kite", "Ben", ["Mia", "Mia"]),  # the holder so far, who cannot be the next
        ("red", "kite", ["kite"]),
        ("kite", "Ben", ["Ben"]),
    ]


def test_a_hinted_position_looks_at_the_cue_the_source_and_what_there_is(tokenizer):
    text = " ".join(sentence for sentence, _, _ in TALE)
    encoding = tokenizer([text]).encodings[0]
    to_cue, to_source, to_told = hints.masks([encoding], [TALE])
    names = [tokenizer.decode([token]).strip() for token in encoding.ids]
    last = len(names) - 3  # "with", before the last "Ben" and the full stop
    looks = {"cue": to_cue, "source": to_source, "told": to_told}
    seen = {what: [names[i] for i in mask[0, last].nonzero().flatten()] for what, mask in looks.items()}
    assert names[last] == "with" and seen == {"cue": ["kite"], "source": ["Ben"], "told": []}
    second = [i for i, name in enumerate(names) if name == "The"][1]  # before "kite", told without its colour
    assert [names[i] for i in to_told[0, second].nonzero().flatten()] == ["kite"]


def test_what_a_hint_points_at_tells_the_value(tokenizer):
    """Over many stories: where a fact is repeated, the hinted sources hold the very token that is to be predicted.

    (Which thing is blue may change without a word of it being wrong: two may be painted alike.)
    """
    repeated = {"still_at", "still_with", "still_in", "still_have", "still_feel"}
    pointed = 0
    for seed in range(60):
        tale = told(seed)
        text = " ".join(sentence for sentence, _, _ in tale)
        encoding = tokenizer([text]).encodings[0]
        start = 0
        for sentence, kind, _ in tale:
            end, start = start + len(sentence), start + len(sentence) + 1
            for mention in hints.mentions(tale):
                if mention.topic != "name" and kind in repeated and start - len(sentence) - 1 <= mention.value < end:
                    value = encoding.ids[encoding.char_to_token(mention.value)]
                    assert all(encoding.ids[encoding.char_to_token(source)] == value for source in mention.sources)
                    pointed += len(mention.sources) > 0
    assert pointed > 100


def test_the_hint_is_zero_when_all_attention_goes_there():
    allowed = torch.zeros(1, 3, 3, dtype=torch.bool)
    allowed[0, 2, 0] = allowed[0, 2, 1] = True
    attention = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.75, 0]]])
    assert float(hints.loss(attention, allowed)) == pytest.approx(0.0, abs=1e-6)
    half = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]])
    assert float(hints.loss(half, allowed)) == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=1e-6)


def test_a_deepened_model_is_the_same_function():
    shallow = train_village.build(TINY, 2)
    deep = train_village.deepen(shallow, TINY, 6)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    assert len(deep.model.layers) == 6
    assert torch.equal(shallow(tokens).logits, deep(tokens).logits)


# -- training --


def test_the_log_says_what_was_learnt(tmp_path):
    _, _, log = train_village.fit_recipe(TINY, tmp_path, progress=False)
    assert log[-1]["step"] == 6 and set(log[-1]) >= {"loss", "who has it", "where is it", "how many", "seconds"}


def test_the_command_writes_models_a_card_and_checksums(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_village, "RECIPES", {"target": TINY, "draft": TINY})
    monkeypatch.setattr("tutorlib.lab.training.card.RECIPES", train_village.RECIPES)
    monkeypatch.setattr("tutorlib.lab.training.card.PROMPTS", 2)
    assert main(["storyworld", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert "target:" in capsys.readouterr().out
    sums = json.loads((tmp_path / "out" / "checksums.json").read_text())
    assert "target/model.safetensors" in sums and "draft/tokenizer.json" in sums
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "| acceptance | – |" in card and "2 layers, 6 steps × 2 stories, the first 4 drills, 4 hinted" in card
