"""The sweep of chapter 10: every token is of the right kind, and the committed file holds what the chapter says."""

import pytest
import torch

from tutorlib import TableLM
from tutorlib.lab.experiments import results
from tutorlib.lab.experiments import speculative as sweep
from tutorlib.lab.experiments.speculative import BEGINNING, COUNT, INSIDE, LINK, MARK, OTHER, THING, VERB, WHERE, WHO
from tutorlib.storyworld.narrate import told


def rows():
    return results("speculative")["rows"]


def kinds(pieces, *sentences):
    return list(sweep.kinds_of_tokens(pieces, sentences))


def test_kinds_by_hand():
    sentences = [
        ("Tom was at the mill.", "be_at", {"who": "Tom", "place": "the mill"}),
        ("The red kite went from Tom to Mia.", "give", {"who": "Tom", "to": "Mia", "thing": "kite"}),
        ("Mia lost one egg and now had one eggs.", "spend", {"who": "Mia", "item": "egg", "n": 1, "items": "eggs"}),
    ]
    pieces = ["Tom", " was", " at", " the", " mill", "."]
    pieces += [" The", " red", " kite", " went", " from", " Tom", " to", " Mia", "."]
    pieces += [" Mia", " l", "ost", " one", " egg", " and", " now", " had", " one", " eggs", "."]
    assert kinds(pieces, *sentences) == [
        *[None] * 6,
        *[BEGINNING, OTHER, THING, VERB, LINK, WHO, LINK, OTHER, MARK],
        *[BEGINNING, VERB, INSIDE, OTHER, OTHER, LINK, LINK, VERB, COUNT, OTHER, MARK],
    ]


def test_an_answer_has_its_fact_and_repeats_the_questions_thing():
    slots = {"thing": "kite", "box": "the chest", "speaker": "Ben"}
    pieces = [' "', "The", " red", " kite", " is", " in", " the", " ch", "est", ',"', " said", " Ben", "."]
    found = kinds(
        ["A"] + pieces, ("A", "scenery", {}), ('"The red kite is in the chest," said Ben.', "answer_in", slots)
    )
    assert found[1:] == [BEGINNING, LINK, OTHER, OTHER, VERB, LINK, LINK, WHERE, INSIDE, MARK, VERB, OTHER, MARK]


def test_pieces_that_are_not_the_story_are_refused():
    with pytest.raises(ValueError, match="make up the story"):
        kinds(["A"], ("A dog barked.", "scenery", {}))


def test_in_many_stories_facts_are_of_the_right_sort_and_as_many_as_were_told():
    from tutorlib.storyworld import words

    said = {
        WHO: set(words.NAMES),
        THING: set(words.THINGS),
        COUNT: set(words.NUMBERS),
        WHERE: {place.removeprefix("the ") for place in (*words.PLACES, *words.CONTAINERS)},
        sweep.FEELING: set(words.FEELINGS),
    }
    for number in range(60):
        sentences = told(f"kinds {number}")
        text = " ".join(sentence for sentence, _, _ in sentences)
        pieces = [piece for word in text.split(" ") for piece in (" " + word[:3], word[3:]) if piece]
        pieces[0] = pieces[0][1:]
        places, found = 0, list(sweep.kinds_of_tokens(pieces, sentences))
        for piece, kind in zip(pieces, found, strict=True):
            if kind in said:
                assert any(word.startswith(piece.strip(' .,?"')) for word in said[kind]), (piece, kind)
            places += len(piece)
        due = sum(len(list(sweep.facts_of(*sentence))) for sentence in sentences)
        assert sum(kind in said for kind in found) == due


class Letters:
    """A tokenizer whose tokens are the characters of a story, after one special token that has no text."""

    def __init__(self, text):
        self.letters = sorted(set(text))

    def encode(self, text):
        return [0] + [1 + self.letters.index(letter) for letter in text]

    def decode(self, tokens):
        return "".join(self.letters[token - 1] for token in tokens if token)


def test_acceptance_at_a_place_is_the_overlap_of_the_two_warped_distributions():
    story = " ".join(sentence for sentence, _, _ in told("a place"))
    letters = Letters(story)
    pair = []
    for seed in (1, 2):
        lm = TableLM.random(len(letters.letters) + 1, 1, seed=seed, context=2000)
        lm.encode, lm.decode = letters.encode, letters.decode
        pair.append(lm)
    warp = sweep.SETTINGS["temperature 0.5"]
    found = list(sweep.places(*pair, warp, "a place"))
    tokens = letters.encode(story)
    at = len(tokens) - len(found)  # the introduction comes first and is left out
    probs = [(2 * lm.log_probs(tokens[:at])).softmax(-1) for lm in pair]
    assert found[0][1] == pytest.approx(float(torch.minimum(*probs).sum()))
    assert found[0][2] == pytest.approx(float(probs[0].max()))
    greedy = list(sweep.places(*pair, sweep.SETTINGS["greedy"], "a place"))
    assert {accepted for _, accepted, _ in greedy} == {0.0, 1.0}


def test_shares_by_hand():
    kinds = {"fact: who": {"places": 10, "acceptance": 0.5}, "other": {"places": 30, "acceptance": 0.9}}
    assert sweep.shares(kinds, "fact") == pytest.approx((10 / 40, 5 / 8))


def test_a_row_is_the_mean_of_its_kinds():
    for row in rows().values():
        assert list(row["kinds"]) == list(sweep.KINDS)
        assert sum(kind["places"] for kind in row["kinds"].values()) == row["places"]
        mean = sum(kind["places"] * kind["acceptance"] for kind in row["kinds"].values()) / row["places"]
        assert mean == pytest.approx(row["acceptance"], abs=1e-3)


def test_what_the_chapter_says_of_the_results_is_so():
    drawn, likeliest = rows()["temperature 1"], rows()["greedy"]
    facts = [kind for kind in sweep.KINDS if kind.startswith("fact")]
    for kind, figures in drawn["kinds"].items():
        assert (figures["acceptance"] < 0.55) == (kind in facts), kind
        assert kind in facts or figures["acceptance"] > 0.95
    for kind in facts:
        assert drawn["kinds"][kind]["sure"] > 0.99 and likeliest["kinds"][kind]["acceptance"] < 0.65
    # Open choices: the target is unsure; that costs nothing when sampling, and a lot when greedy.
    free = OTHER
    assert drawn["kinds"][free]["sure"] < 0.6 < 0.95 < drawn["kinds"][free]["acceptance"]
    assert likeliest["kinds"][free]["acceptance"] < 0.65
    # Two thirds of the rejections come from one token in eleven.
    positions, rejections = sweep.shares(drawn["kinds"], "fact")
    assert 1 / positions == pytest.approx(11, abs=0.5) and rejections == pytest.approx(2 / 3, abs=0.02)
    assert sweep.shares(likeliest["kinds"], "fact")[1] < 0.5
    # Over the temperature: it falls at both ends, and the intervals do not touch.
    middle = rows()["temperature 1"]["acceptance_interval"]
    for end in ("greedy", "temperature 0.25", "temperature 2", "temperature 3"):
        assert rows()[end]["acceptance_interval"][1] < middle[0]
