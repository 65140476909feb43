"""Sampled texts: they have the target's distribution, are the same however often it was stopped, never half a file."""

import json
from pathlib import Path

import pytest
import torch
from conftest import random_model

from tutorlib.lab.training import batches as batches_module
from tutorlib.lab.training import sampled_texts as module
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.devices import Devices
from tutorlib.lab.training.sampled_texts import SampledText, TextSettings, hidden_states, sampled_texts
from tutorlib.model.lm import LM

QUICK = TextSettings(length=12, rows=4, temperature=0.2)


@pytest.fixture
def sampled(llama, tmp_path):
    """`sampled(count, settings, ...)`: texts of a small Llama that begin with token 3."""

    def sample(count, settings=QUICK, folder=tmp_path / "texts", **rest):
        return sampled_texts(llama, count, folder, settings, progress=False, **{"prompts": [[3]], **rest})

    return sample


# -- sampling --


def test_a_text_is_its_prompt_and_what_the_model_made_of_it(sampled):
    texts = sampled(6, prompts=[[3], [4, 5, 6], [7, 8]])
    assert [text.tokens[: text.own] for text in texts] == [[3], [4, 5, 6], [7, 8]] * 2
    assert all(len(text.tokens) == 12 and text.own <= text.low_from <= 12 for text in texts)


def test_texts_end_where_the_model_ends_them_and_the_others_go_on(llama, sampled, monkeypatch):
    monkeypatch.setattr(llama, "stop_tokens", (11,))
    texts = sampled(24)
    ended = [text for text in texts if text.tokens[-1] == 11]
    assert 0 < len(ended) < 24 and len({len(text.tokens) for text in texts}) > 3
    assert not any(11 in text.tokens[:-1] for text in texts)
    assert all(len(text.tokens) == 12 for text in texts if text not in ended)


def test_every_token_is_drawn_from_the_law_of_its_place(llama, tmp_path):
    """What follows a prompt, over 4,000 texts, against the probabilities that the model itself gives."""
    for degree, low_share in ((1.0, 0.0), (0.3, 1.0)):
        settings = TextSettings(length=8, rows=4000, low_share=low_share, temperature=degree)
        prompt = [3, 1, 4, 1, 5, 9, 2]  # one token to go: no text has an opening, each is cold at once or never
        texts = sampled_texts(llama, 4000, tmp_path / str(degree), settings, prompts=[prompt], progress=False)
        counts = torch.bincount(torch.tensor([text.tokens[-1] for text in texts]), minlength=llama.vocab_size)
        law = (llama.session(prompt).feed()[-1].double() / degree).softmax(-1)
        assert (counts / 4000 - law).abs().sum() / 2 < 0.03


def test_a_text_is_as_if_it_were_sampled_alone(llama, sampled):
    """Whoever leaves the batch early takes nothing along: each greedy tail is that of a session of its own."""
    for text in sampled(8, TextSettings(length=16, rows=8, low_share=1.0, temperature=1e-4)):
        session = llama.session(text.tokens[: text.low_from])
        token = int(session.feed()[-1].argmax())
        for expected in text.tokens[text.low_from :]:
            assert token == expected
            token = int(session.feed([token])[-1].argmax())


def test_the_first_texts_do_not_depend_on_how_many_there_are(sampled, tmp_path):
    assert sampled(3) == sampled(11, folder=tmp_path / "more")[:3]
    assert sampled(6, TextSettings(length=12, rows=4, seed="other"), folder=tmp_path / "other") != sampled(6)


def test_the_schedule_of_half_of_them_ends_low(sampled, tmp_path):
    texts = sampled(64, TextSettings(length=12, rows=64))
    assert 20 < sum(text.low_from < len(text.tokens) for text in texts) < 44
    assert not any(
        text.low_from < len(text.tokens)
        for text in sampled(8, TextSettings(length=12, low_share=0), folder=tmp_path / "warm")
    )


def test_the_start_token_is_the_tokenizers_then_the_models(llama, monkeypatch):
    with pytest.raises(ValueError, match="no start token .* give prompts"):
        module.start_token(llama)
    monkeypatch.setattr(llama.model.config, "bos_token_id", 4)
    assert module.start_token(llama) == 4


# -- stopped and gone on --


def test_who_is_stopped_goes_on_after_the_last_file(sampled, tmp_path, monkeypatch):
    whole = sampled(12, folder=tmp_path / "whole")
    sample, begun = module._sampled, []

    def dies_in_the_third(*args):
        begun.append(args[-1])
        if len(begun) == 3:
            raise KeyboardInterrupt
        return sample(*args)

    monkeypatch.setattr(module, "_sampled", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        sampled(12)
    assert sampled(12) == whole
    assert begun == ["train 0", "train 1", "train 2", "train 2"]


def test_a_kill_while_writing_leaves_no_half_file(sampled, tmp_path, monkeypatch):
    whole, write = sampled(8, folder=tmp_path / "whole"), Path.write_bytes

    def dies_halfway(path, content):
        if path.name.startswith("00001"):
            write(path, content[: len(content) // 2])
            raise KeyboardInterrupt
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", dies_halfway)
    with pytest.raises(KeyboardInterrupt):
        sampled(8)
    monkeypatch.setattr(Path, "write_bytes", write)
    assert not (tmp_path / "texts" / "00001.json").exists()
    assert sampled(8) == whole


def test_texts_that_are_there_are_not_sampled_again(sampled, monkeypatch):
    first = sampled(8)
    monkeypatch.setattr(module, "_sampled", None)
    assert sampled(8) == first and sampled(5) == first[:5]


def test_several_processes_sample_the_same_texts(sampled, tmp_path, monkeypatch):
    whole = sampled(16, folder=tmp_path / "whole")
    monkeypatch.setattr(Devices, "wait", lambda self: None)
    read = module._read
    monkeypatch.setattr(module, "_read", lambda file: read(file) if file.exists() else [])
    for rank in (1, 0):
        files = {path.name for path in (tmp_path / "texts").glob("0*.json")}
        assert files == (set() if rank else {"00001.json", "00003.json"})
        (tmp_path / "texts").mkdir(exist_ok=True)
        module.claim(tmp_path / "texts", json.loads((tmp_path / "whole" / "setting.json").read_text()))
        texts = sampled(16, devices=Devices(rank=rank, processes=2))
    assert texts == whole


# -- bad input --


@pytest.mark.parametrize(
    "wrong",
    [{"length": 7}, {"rows": 0}, {"low_share": 1.1}, {"low_share": -0.1}, {"temperature": 0}, {"temperature": 2}],
)
def test_settings_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        TextSettings(**wrong)


def test_a_folder_with_other_texts_is_refused(sampled, tmp_path):
    sampled(2)
    with pytest.raises(ValueError, match=r"begun with length 12 instead of 14.*delete this one"):
        sampled(2, TextSettings(length=14, rows=4, temperature=0.2))
    with pytest.raises(ValueError, match=r"begun with prompts "):
        sampled(2, prompts=[[4]])
    assert (
        json.loads((tmp_path / "texts" / "setting.json").read_text())["cold"] == 0.5
    )  # the key is older than `low_share`


def test_texts_of_another_model_are_refused(tmp_path):
    one, other = (LM(random_model("llama", seed=seed)) for seed in (0, 1))
    sampled_texts(one, 2, tmp_path, QUICK, prompts=[[3]], progress=False)
    with pytest.raises(ValueError, match="begun with model "):
        sampled_texts(other, 2, tmp_path, QUICK, prompts=[[3]], progress=False)


def test_a_prompt_that_leaves_no_room_is_refused(sampled):
    with pytest.raises(ValueError, match="a prompt has 12 tokens, which leaves no room in texts of 12"):
        sampled(2, prompts=[[3], [4] * 12])


def test_a_damaged_file_is_named(sampled, tmp_path):
    sampled(2)
    for content in ("[[[3, ", "3", "[3]", "[[[3], 1, 1, 1]]", "[" * 100_000):
        (tmp_path / "texts" / "00000.json").write_text(content)
        with pytest.raises(ValueError, match=r"00000.json .*delete it"):
            sampled(2)


# -- batches --


def test_hidden_states_are_those_that_a_session_sees(lm):
    """For each family: what heads are trained on is what they are given when they guess."""
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    session = lm.session(tokens[:1], hidden=(0, 2, -1))
    rows = []
    session.feed()
    rows.append(session.hidden)
    session.feed(tokens[1:])
    rows.append(session.hidden)
    with torch.no_grad():
        states = hidden_states(lm.model, module.padded([tokens, tokens[:3]], lm.device), (0, 2, -1))
    for layer in (0, 2, -1):
        seen = torch.cat([row[layer] for row in rows])
        assert torch.allclose(states[layer][0], seen, atol=1e-4)
        assert torch.allclose(states[layer][1, :3], seen[:3], atol=1e-4)


TEXTS = [SampledText([3] * length, 1, length) for length in (9, 4, 7, 5, 8, 6, 4)]


def test_each_round_sees_every_text_once_in_another_order(llama):
    batches = Batches(llama, TEXTS, rows=2)
    rounds = [[batches.step(turn * len(batches) + i).texts for i in range(len(batches))] for turn in range(3)]
    assert len(batches) == 3
    for seen in rounds:
        assert sorted(text for texts in seen for text in texts) == sorted(TEXTS)
        assert all(max(len(t.tokens) for t in texts) - min(len(t.tokens) for t in texts) <= 2 for texts in seen)
    assert rounds[0] != rounds[1] or rounds[1] != rounds[2]


def test_hidden_states_are_kept_as_far_as_memory_allows(llama, monkeypatch):
    calls = []
    compute = batches_module.hidden_states
    monkeypatch.setattr(batches_module, "hidden_states", lambda *args: calls.append(1) or compute(*args))
    for memory, computed in ((1e9, 3), (0, 6), (2 * 5 * 16 * 4, 5)):  # the last one: room for one of the batches
        calls.clear()
        batches = Batches(llama, TEXTS, rows=2, memory=memory)
        first = [batches[i].hidden[-1] for i in range(3)]
        again = [batches[i].hidden[-1] for i in range(3)]
        assert len(calls) == computed and all(torch.equal(a, b) for a, b in zip(first, again))


def test_processes_share_the_rows_of_a_batch(llama):
    shares = [Batches(llama, TEXTS, 4, devices=Devices(rank=rank, processes=2)) for rank in (0, 1)]
    one, two = (share.step(0) for share in shares)
    assert one.everybody == two.everybody and sorted(one.texts + two.texts) == sorted(one.everybody)
    with pytest.raises(ValueError, match="7 texts in batches of 1 do not give each of 2 processes one"):
        Batches(llama, TEXTS, 1, devices=Devices(rank=0, processes=2))
