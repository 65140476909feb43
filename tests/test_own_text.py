"""Own texts: told by the target's own law, the same however often the telling was stopped, never half a file."""

import json
from pathlib import Path

import pytest
import torch
from conftest import random_model

from tutorlib.lab.training import own_text
from tutorlib.lab.training.devices import Devices
from tutorlib.lab.training.own_text import Batches, OwnText, Telling, hidden_states, own_texts
from tutorlib.model.lm import LM

QUICK = Telling(length=12, rows=4, temperature=0.2)


@pytest.fixture
def told(llama, tmp_path):
    """`told(count, telling, ...)`: texts of a small Llama that begin with token 3."""

    def tell(count, telling=QUICK, folder=tmp_path / "texts", **rest):
        return own_texts(llama, count, folder, telling, progress=False, **{"prompts": [[3]], **rest})

    return tell


# -- telling --


def test_a_text_is_its_prompt_and_what_the_model_made_of_it(told):
    texts = told(6, prompts=[[3], [4, 5, 6], [7, 8]])
    assert [text.tokens[: text.own] for text in texts] == [[3], [4, 5, 6], [7, 8]] * 2
    assert all(len(text.tokens) == 12 and text.own <= text.cold <= 12 for text in texts)


def test_texts_end_where_the_model_ends_them_and_the_others_go_on(llama, told, monkeypatch):
    monkeypatch.setattr(llama, "stop_tokens", (11,))
    texts = told(24)
    ended = [text for text in texts if text.tokens[-1] == 11]
    assert 0 < len(ended) < 24 and len({len(text.tokens) for text in texts}) > 3
    assert not any(11 in text.tokens[:-1] for text in texts)
    assert all(len(text.tokens) == 12 for text in texts if text not in ended)


def test_every_token_is_drawn_from_the_law_of_its_place(llama, tmp_path):
    """What follows a prompt, over 4,000 texts, against the probabilities that the model itself gives."""
    for degree, cold in ((1.0, 0.0), (0.3, 1.0)):
        telling = Telling(length=8, rows=4000, cold=cold, temperature=degree)
        prompt = [3, 1, 4, 1, 5, 9, 2]  # one token to go: no text has an opening, each is cold at once or never
        texts = own_texts(llama, 4000, tmp_path / str(degree), telling, prompts=[prompt], progress=False)
        counts = torch.bincount(torch.tensor([text.tokens[-1] for text in texts]), minlength=llama.vocab_size)
        law = (llama.session(prompt).feed()[-1].double() / degree).softmax(-1)
        assert (counts / 4000 - law).abs().sum() / 2 < 0.03


def test_a_text_is_as_if_it_were_told_alone(llama, told):
    """Whoever leaves the batch early takes nothing along: each greedy tail is that of a session of its own."""
    for text in told(8, Telling(length=16, rows=8, cold=1.0, temperature=1e-4)):
        session = llama.session(text.tokens[: text.cold])
        token = int(session.feed()[-1].argmax())
        for expected in text.tokens[text.cold :]:
            assert token == expected
            token = int(session.feed([token])[-1].argmax())


def test_the_first_texts_do_not_depend_on_how_many_there_are(told, tmp_path):
    assert told(3) == told(11, folder=tmp_path / "more")[:3]
    assert told(6, Telling(length=12, rows=4, seed="other"), folder=tmp_path / "other") != told(6)


def test_half_of_them_become_cold(told, tmp_path):
    texts = told(64, Telling(length=12, rows=64))
    assert 20 < sum(text.cold < len(text.tokens) for text in texts) < 44
    assert not any(
        text.cold < len(text.tokens) for text in told(8, Telling(length=12, cold=0), folder=tmp_path / "warm")
    )


def test_the_start_token_is_the_tokenizers_then_the_models(llama, monkeypatch):
    with pytest.raises(ValueError, match="no start token .* give prompts"):
        own_text.start_token(llama)
    monkeypatch.setattr(llama.model.config, "bos_token_id", 4)
    assert own_text.start_token(llama) == 4


# -- stopped and gone on --


def test_who_is_stopped_goes_on_after_the_last_file(told, tmp_path, monkeypatch):
    whole = told(12, folder=tmp_path / "whole")
    tell, begun = own_text._tell, []

    def dies_in_the_third(*args):
        begun.append(args[-1])
        if len(begun) == 3:
            raise KeyboardInterrupt
        return tell(*args)

    monkeypatch.setattr(own_text, "_tell", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        told(12)
    assert told(12) == whole
    assert begun == ["train 0", "train 1", "train 2", "train 2"]


def test_a_kill_while_writing_leaves_no_half_file(told, tmp_path, monkeypatch):
    whole, write = told(8, folder=tmp_path / "whole"), Path.write_bytes

    def dies_halfway(path, content):
        if path.name.startswith("00001"):
            write(path, content[: len(content) // 2])
            raise KeyboardInterrupt
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", dies_halfway)
    with pytest.raises(KeyboardInterrupt):
        told(8)
    monkeypatch.setattr(Path, "write_bytes", write)
    assert not (tmp_path / "texts" / "00001.json").exists()
    assert told(8) == whole


def test_texts_that_are_there_are_not_told_again(told, monkeypatch):
    first = told(8)
    monkeypatch.setattr(own_text, "_tell", None)
    assert told(8) == first and told(5) == first[:5]


def test_several_processes_tell_the_same_texts(told, tmp_path, monkeypatch):
    whole = told(16, folder=tmp_path / "whole")
    monkeypatch.setattr(Devices, "wait", lambda self: None)
    read = own_text._read
    monkeypatch.setattr(own_text, "_read", lambda file: read(file) if file.exists() else [])
    for rank in (1, 0):
        files = {path.name for path in (tmp_path / "texts").glob("0*.json")}
        assert files == (set() if rank else {"00001.json", "00003.json"})
        (tmp_path / "texts").mkdir(exist_ok=True)
        own_text.claim(tmp_path / "texts", json.loads((tmp_path / "whole" / "setting.json").read_text()))
        texts = told(16, devices=Devices(rank=rank, processes=2))
    assert texts == whole


# -- bad input --


@pytest.mark.parametrize(
    "wrong", [{"length": 7}, {"rows": 0}, {"cold": 1.1}, {"cold": -0.1}, {"temperature": 0}, {"temperature": 2}]
)
def test_a_telling_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Telling(**wrong)


def test_a_folder_with_other_texts_is_refused(told):
    told(2)
    with pytest.raises(ValueError, match=r"begun with length 12 instead of 14.*delete this one"):
        told(2, Telling(length=14, rows=4, temperature=0.2))
    with pytest.raises(ValueError, match=r"begun with prompts "):
        told(2, prompts=[[4]])


def test_texts_of_another_model_are_refused(tmp_path):
    one, other = (LM(random_model("llama", seed=seed)) for seed in (0, 1))
    own_texts(one, 2, tmp_path, QUICK, prompts=[[3]], progress=False)
    with pytest.raises(ValueError, match="begun with model "):
        own_texts(other, 2, tmp_path, QUICK, prompts=[[3]], progress=False)


def test_a_prompt_that_leaves_no_room_is_refused(told):
    with pytest.raises(ValueError, match="a prompt has 12 tokens, which leaves no room in texts of 12"):
        told(2, prompts=[[3], [4] * 12])


def test_a_damaged_file_is_named(told, tmp_path):
    told(2)
    for content in ("[[[3, ", "3", "[3]", "[[[3], 1, 1, 1]]", "[" * 100_000):
        (tmp_path / "texts" / "00000.json").write_text(content)
        with pytest.raises(ValueError, match=r"00000.json .*delete it"):
            told(2)


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
        states = hidden_states(lm.model, own_text.padded([tokens, tokens[:3]], lm.device), (0, 2, -1))
    for layer in (0, 2, -1):
        seen = torch.cat([row[layer] for row in rows])
        assert torch.allclose(states[layer][0], seen, atol=1e-4)
        assert torch.allclose(states[layer][1, :3], seen[:3], atol=1e-4)


TEXTS = [OwnText([3] * length, 1, length) for length in (9, 4, 7, 5, 8, 6, 4)]


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
    compute = own_text.hidden_states
    monkeypatch.setattr(own_text, "hidden_states", lambda *args: calls.append(1) or compute(*args))
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
