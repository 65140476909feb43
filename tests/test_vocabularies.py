"""Tokens are compared by their bytes or their role, and a text is told in either model's own tokens."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from two_tokenizers import letters_tokenizer

from tutorlib import models as bundled
from tutorlib import storyworld
from tutorlib.decoders.token_intersection import token_intersection
from tutorlib.model.table import TableLM, TableTokenizer
from tutorlib.model.vocabularies import (
    LONGEST_WORD,
    Translation,
    check_pair,
    roles,
    shared_tokens,
    special_tokens,
    spellings,
    token_bytes,
    tokens_of,
    whole_characters,
)


class Speller:
    """As much of an LM as a vocabulary needs."""

    def __init__(self, tokenizer, stop_tokens=(), vocab_size=None):
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size or len(tokenizer)
        end = getattr(tokenizer, "eos_token_id", None)
        self.stop_tokens = tuple(stop_tokens) or (() if end is None else (end,))

    def encode(self, text):
        return list(self.tokenizer(text)["input_ids"])


class Shuffled(TableTokenizer):
    """Lists its vocabulary in another order, as tokenizers do that keep it in a hash table."""

    def get_vocab(self):
        return dict(sorted(super().get_vocab().items(), key=lambda item: hash(item[0][::-1] + "salt")))


TEXT = "Mia had a red kite. Tom’s kite was lost — où? Ben found it, and Mia had it again."


def byte_level(size=320, specials=("<s>", "</s>")):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    return Speller(PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=specials[0], eos_token=specials[1]))


def sentencepiece():
    """Spaces are ▁, one goes before the first word, and bytes are spelled <0x41>."""
    pieces = ["</s>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "e", "r", "d", "▁r", "ed", "▁red", "A"]
    merges = [("▁", "r"), ("e", "d"), ("▁r", "ed")]
    tokenizer = Tokenizer(
        models.BPE({piece: token for token, piece in enumerate(pieces)}, merges, byte_fallback=True, fuse_unk=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Speller(PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"))


def wordpiece():
    pieces = ["[UNK]", "red", "##ed", "r", "a", "##s"]
    tokenizer = Tokenizer(models.WordPiece({piece: token for token, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return Speller(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]"))


def piece(lm, text):
    return lm.tokenizer.convert_tokens_to_ids(text)


# ----------------------------------------------------------------------------------------------------------------------
# Tokens


def test_a_token_stands_for_the_same_bytes_however_it_is_spelled():
    gpt, llama, bert = byte_level(), sentencepiece(), wordpiece()
    assert spellings(gpt)[piece(gpt, "Ġred")] == b" red"
    assert spellings(llama)[piece(llama, "▁red")] == b" red"
    assert spellings(bert)[piece(bert, "red")] == b" red"
    assert spellings(bert)[piece(bert, "##ed")] == spellings(llama)[piece(llama, "ed")] == b"ed"
    assert spellings(llama)[piece(llama, "<0xE2>")] == b"\xe2" == spellings(gpt)[piece(gpt, "â")]


def test_shared_tokens_are_paired_across_kinds_of_tokenizers():
    gpt, llama = byte_level(), sentencepiece()
    shared = dict(zip(shared_tokens(gpt, llama).target, shared_tokens(gpt, llama).draft, strict=True))
    assert shared[piece(gpt, "Ġred")] == piece(llama, "▁red")
    assert shared[piece(gpt, "Ġ")] == piece(llama, "▁")
    assert shared[piece(gpt, "â")] == piece(llama, "<0xE2>")
    # A spelled byte counts only where there is no other token for it: A is not <0x41>, which has a lower id.
    assert shared[piece(gpt, "A")] == piece(llama, "A") and shared[piece(gpt, "B")] == piece(llama, "<0x42>")
    assert len(shared) == len(set(shared.values()))


def test_special_tokens_are_paired_by_role_and_never_with_text():
    """The one's mark for the end is spelled as the other's mark for the beginning, and as a third's ordinary token."""
    one, other = byte_level(specials=("<s>", "</s>")), byte_level(specials=("</s>", "<s>"))
    pairs = set(zip(shared_tokens(one, other).target, shared_tokens(one, other).draft, strict=True))
    assert {(one.tokenizer.eos_token_id, other.tokenizer.eos_token_id), (0, 0)} <= pairs
    assert piece(one, "</s>") == 1 and piece(other, "</s>") == 0 and (1, 0) not in pairs
    plain = TableLM({"": [0.5, 0.5]}, ["</s>", "a"])
    assert shared_tokens(one, plain).draft == (1,)
    assert shared_tokens(one, plain).ordinary == 1
    assert len(shared_tokens(one, other).target) == shared_tokens(one, other).ordinary + 2


def test_one_mark_for_begin_and_end_is_an_end():
    both = byte_level(specials=("<|endoftext|>", "<|endoftext|>"))
    assert roles(both) == {"end": piece(both, "<|endoftext|>")}
    assert special_tokens(both) == {piece(both, "<|endoftext|>")}


def test_a_familys_own_marks_are_special_and_ids_beyond_the_model_are_none():
    lm = byte_level()
    lm.tokenizer.add_special_tokens({"additional_special_tokens": ["<tool>"]})
    assert piece(lm, "<tool>") in special_tokens(lm) and piece(lm, "<tool>") not in spellings(lm)
    short = Speller(lm.tokenizer, vocab_size=300)
    assert max(spellings(short)) == 299


def test_the_order_in_which_a_vocabulary_is_listed_makes_no_difference():
    texts = [chr(ord("a") + token) for token in range(20)]
    target = Speller(TableTokenizer(texts[:15]))
    drafts = [Speller(kind(texts[:4:-1])) for kind in (TableTokenizer, Shuffled)]
    assert list(drafts[0].tokenizer.get_vocab()) != list(drafts[1].tokenizer.get_vocab())
    listed, shuffled = (shared_tokens(target, draft) for draft in drafts)
    assert listed == shuffled
    assert [texts[token] for token in listed.target] == [drafts[0].tokenizer.vocab[token] for token in listed.draft]
    assert listed.target == tuple(range(5, 15))  # ascending, whatever the order of the other side


def test_of_several_tokens_with_the_same_bytes_one_is_shared():
    class Twice(TableTokenizer):
        def decode(self, tokens, **options):
            return super().decode(tokens, **options).upper()

    one, other = Speller(Twice(["a", "b", "A"])), Speller(TableTokenizer(["B", "A"]))
    assert shared_tokens(one, other).target == (0, 1)
    assert shared_tokens(one, other).draft == (1, 0)


def test_the_bundled_drafts_tokens_are_all_the_targets_too():
    family = bundled.load("storyworld")
    shared = shared_tokens(family.target, family.other_draft)
    assert len(shared.target) == 512 and shared.ordinary == 510
    texts = [family.target.tokenizer.convert_ids_to_tokens(list(shared.target))]
    texts += [family.other_draft.tokenizer.convert_ids_to_tokens(list(shared.draft))]
    assert texts[0] == texts[1]
    assert shared.target != shared.draft


def test_what_cannot_be_said_is_a_number():
    assert token_bytes(None, 7) == b"<7>" == token_bytes(["a"], 7)
    assert token_bytes(["a", "b"], 1) == token_bytes({1: "b"}, 1) == token_bytes("ab".__getitem__, 1) == b"b"


# ----------------------------------------------------------------------------------------------------------------------
# Texts


def test_a_text_in_the_midst_of_another_gets_no_space_in_front():
    llama = sentencepiece()
    assert [spellings(llama)[token] for token in tokens_of(llama, "ed")] == [b"ed"]
    assert [spellings(llama)[token] for token in tokens_of(llama, " red")] == [b" red"]
    assert tokens_of(llama, "") == tokens_of(byte_level(), "") == []


def test_no_text_becomes_a_special_token():
    lm = byte_level()
    assert not set(tokens_of(lm, "red</s>red")) & special_tokens(lm)


def test_a_text_that_cannot_be_read_is_none():
    assert tokens_of(Speller(TableTokenizer(["a"])), "ab") is None
    assert tokens_of(Speller(letters_tokenizer("ab")), "abx") is None
    assert tokens_of(Speller(letters_tokenizer("ab")), "ba") == [1, 0]


def test_half_a_character_is_left_out():
    assert whole_characters("aé—".encode()[:-1]) == "aé"


@pytest.mark.parametrize("source", [byte_level(400), byte_level(260), sentencepiece()], ids=["long", "bytes", "spm"])
def test_a_translation_is_the_text_as_the_other_tokenizer_writes_it(source):
    """At every place where a word has ended; and what is before the last word stays."""
    other = byte_level(340)
    tokens = tokens_of(source, TEXT)
    translation = Translation(source, other)
    before: list[int] = []
    for count in range(1, len(tokens) + 1):
        told = translation(tokens[:count])
        text = b"".join(spellings(source)[token] for token in tokens[:count])
        assert b"".join(spellings(other)[token] for token in told) == whole_characters(text).encode()
        kept = len(before) - len(other.encode(whole_characters(text).rpartition(" ")[2])) - 2
        assert told[: max(kept, 0)] == before[: max(kept, 0)]
        before = told
        if count == len(tokens) or spellings(source)[tokens[count]].startswith(b" "):
            assert told == other.encode(whole_characters(text))


def test_a_translation_begins_as_the_others_texts_do_and_knows_the_marks():
    family = bundled.load("storyworld")
    target, draft = family.target, family.other_draft
    story = storyworld.story("translation")[:300]
    assert Translation(target, draft)(target.encode(story)) == draft.encode(story)
    assert Translation(target, draft)(target.encode(story)[1:]) == draft.encode(story)
    (end,) = target.stop_tokens
    told = Translation(target, draft)([*target.encode("Mia"), end, *target.encode("Tom")])
    assert told == [*draft.encode("Mia"), *draft.stop_tokens, *draft.encode("Tom")]


def test_a_translation_leaves_out_what_the_other_cannot_read():
    source, other = Speller(TableTokenizer(["a", "x", "b"])), Speller(TableTokenizer(["b", "a"]))
    assert Translation(source, other)([0, 1, 2, 2]) == [1, 0, 0]
    assert Translation(source, other)([1]) == []


def test_a_text_without_spaces_is_not_written_anew_for_ever():
    source, other = Speller(TableTokenizer(["a", "b"])), Speller(TableTokenizer(["b", "a"]))
    translation, text = Translation(source, other), []
    for token in [0, 1, 1] * 50:
        text.append(token)
        assert translation(text) == [1 - token for token in text]
        assert len(text) - translation._read <= LONGEST_WORD


def test_what_can_be_wrong_with_a_pair_is_said():
    lm = TableLM({"": [0.5, 0.5]})
    with pytest.raises(ValueError, match="draft must be an LM, got NoneType"):
        check_pair(lm, None, 1)
    with pytest.raises(ValueError, match="gamma"):
        check_pair(lm, lm, -1)
    check_pair(lm, lm, 1)
    assert next(token_intersection(lm, lm, "a")).tokens
