"""The sweep of chapter 23: the stored counts of a real engine are those of tutorlib, and can be counted again."""

import io
import tempfile
from pathlib import Path

import pytest

from tutorlib.lab.experiments import _server, engines, results

METRICS = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a/b"} 311.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a/b"} 1244.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a/b"} 685.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a/b",position="0"} 400.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a/b",position="1"} 285.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a/b",position="2"} 0.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="a/b"} 1.7e+09
"""


def test_the_engine_wrote_the_texts_of_tutorlib_and_counted_the_same():
    for name, row in results("engines")["rows"].items():
        assert row["same_texts"] == row["texts"] == engines.SETTING[engines.SETTINGS[name][0]]["prompts"]
        other = "another tokenizer" in name
        assert engines.agree(row["tutorlib"], row["engine"], engines.CLOSE if other else 0)
        assert other or {**row["tutorlib"], **row["engine"]} == row["tutorlib"]


@pytest.mark.slow
def test_what_is_expected_of_an_export_is_what_is_stored():
    name = "village, EAGLE-3"
    with tempfile.TemporaryDirectory() as folder:
        _, counts = engines.own(name, engines.exported(name, Path(folder)))
    assert counts == results("engines")["rows"][name]["tutorlib"]


def test_counts_that_differ_do_not_agree():
    ours = {"tokens": 40, "calls": 21, "drafts": 20, "drafted": 80, "accepted": 30, "by_position": [20, 10]}
    same = {key: ours[key] for key in ("drafts", "drafted", "accepted", "by_position")}
    assert engines.agree(ours, same)
    for key, value in {"drafts": 21, "accepted": 29, "by_position": [20, 9, 1]}.items():
        assert not engines.agree(ours, same | {key: value})
    assert engines.agree(ours, same | {"drafts": 21}, close=0.1)


def test_a_servers_metrics_are_read(monkeypatch):
    monkeypatch.setattr(_server.urllib.request, "urlopen", lambda *_, **__: io.BytesIO(METRICS.encode()))
    counts = {"drafts": 311, "drafted": 1244, "accepted": 685, "by_position": [400, 285]}
    assert _server.draft_counts("http://127.0.0.1:1") == counts


def test_a_server_that_stops_is_an_error_with_what_it_said(tmp_path):
    (tmp_path / "serve.sh").write_text("echo no such module: vllm; exit 3\n")
    with pytest.raises(RuntimeError, match="no such module: vllm"), _server.serving(tmp_path, 64):
        pass
