"""What is measured of growth: memory is linear, and what grows too much is named. Times are for the bench."""

import pytest

from tutorlib.lab.bench import growth


def made_up(*numbers, is_time=False):
    sizes = tuple(2**place for place in range(len(numbers)))
    return growth.Growth("made up", "B", sizes, dict(zip(sizes, numbers, strict=True)).__getitem__, is_time)


@pytest.mark.slow
@pytest.mark.parametrize("one", [one for one in growth.growths() if not one.is_time], ids=lambda one: one.name)
def test_memory_at_most_doubles_where_tokens_or_texts_do(one):
    smaller = one._replace(sizes=tuple(size // 8 for size in one.sizes))
    assert max(growth.ratios(growth.measured(smaller))) <= growth.MOST


def test_what_grows_too_much_is_named_and_the_command_fails(monkeypatch, capsys):
    monkeypatch.setattr(growth, "growths", lambda: [made_up(1, 2, 4)])
    growth.main([])
    assert "ratios 2.00, 2.00" in capsys.readouterr().out
    monkeypatch.setattr(growth, "growths", lambda: [made_up(1, 2, 4), made_up(1, 2, 8)])
    with pytest.raises(SystemExit, match=r"made up \(B: 4.00 times as much at twice the size\)"):
        growth.main([])


def test_a_time_is_the_least_of_rounds_and_is_taken_again_only_while_it_looks_too_long():
    times = iter([9, 1, 5, 2, 2])  # the first of them is not measured; then two rounds
    one = growth.Growth("made up", "s", (1, 2), lambda size: next(times), True)
    assert growth.measured(one, rounds=7) == [1, 2]
