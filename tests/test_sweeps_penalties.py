"""The sweep of penalties does what its rows' names say, and the committed file holds what chapter 5 says of it."""

import torch

from tutorlib.sweeps import penalties, results


def test_the_names_say_whether_the_prompt_counts():
    history = [[1, 2, 3]]
    logits = torch.full((1, 5), 2.0)
    for name, (_, make) in penalties.SETTINGS.items():
        (out,) = [warp(logits, history) for warp in make(3)] or [logits]
        counted = not torch.equal(out, logits)
        assert counted == ("penalty" in name and "new only" not in name and "no penalty" not in name), name


def test_the_committed_results_have_every_row_in_order_and_in_this_setting():
    found = results("penalties")
    assert found["setting"] == penalties.SETTING
    assert list(found["rows"]) == list(penalties.SETTINGS)


def test_what_the_chapter_says_of_the_results_is_so():
    rows = results("penalties")["rows"]

    def true_share(name):
        return rows[name]["readable"] * rows[name]["consistent"]

    plain = true_share("greedy, no penalty")
    mild = ["repetition_penalty 1.2", "repetition_penalty 1.1, new only"]
    mild += ["frequency_penalty 0.5, new only", "presence_penalty 1, new only"]
    for name in mild:
        assert rows[f"greedy, {name}"]["repetition_4"] < 0.05 < rows["greedy, no penalty"]["repetition_4"]
        assert true_share(f"greedy, {name}") > plain - 0.01
    bans = [name for name in rows if name.startswith("greedy, no_repeat")]
    assert all(true_share(name) < 0.8 for name in bans) and true_share("greedy, no_repeat_ngram 4") < plain / 2
    assert rows["sample, no penalty"]["repetition_4"] < 0.03
    assert true_share("sample, no_repeat_ngram 4") < 0.85 * true_share("sample, no penalty")
