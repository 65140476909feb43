"""The sweep of chapter 4: the committed file is complete, and its figures fit together."""

from tutorlib import sweeps
from tutorlib.sweeps import sampling


def test_the_committed_file_holds_every_row_of_this_sweep():
    found = sweeps.results("sampling")
    assert found["setting"] == sampling.SETTING
    assert list(found["rows"]) == list(sampling.SETTINGS)
    for name, row in found["rows"].items():
        for key in ("readable", "consistent", "distinct_2_within"):
            low, high = row[f"{key}_interval"]
            assert 0 <= low <= row[key] <= high <= 1, (name, key)
        shares = list(row["commonest_kinds"].values())
        assert shares == sorted(shares, reverse=True) and sum(shares) < 1.001 and row["kinds"] >= len(shares) == 3


def test_top_k_1_is_greedy_where_nothing_ties():
    # Two rows by different code: float32 logits of the bundled target hardly ever tie.
    rows = sweeps.results("sampling")["rows"]
    assert rows["top-k 1"] == rows["greedy"]
