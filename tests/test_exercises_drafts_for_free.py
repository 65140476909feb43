"""The exercises of chapter 9: right answers pass, and every usual mistake is told which one it is."""

import math

import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import TableLM
from tutorlib.decoders.lookahead import Pool
from tutorlib.decoders.prompt_lookup import NGrams
from tutorlib.decoders.token_intersection import Guesses
from tutorlib.exercises import drafts_for_free as exercises
from tutorlib.exercises.drafts_for_free import (
    check_alpha,
    check_continuation,
    check_draft,
    check_law,
    check_padding,
    check_pays,
    check_pool,
)

FUNCTIONS = [check_continuation, check_pool, check_law, check_padding, check_alpha]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", FUNCTIONS)
def test_what_is_of_another_form_is_said_to_be(check):
    assert "Expected" in found(check, lambda *_: "abc")
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


# Looking up.


def lookup(*, stop=lambda tokens, n: len(tokens) - n, order=reversed, lengths=None, piece=lambda start, n: start + n):
    def my_continuation(tokens, longest, count):
        for n in (lengths or (lambda most: range(most, 0, -1)))(longest):
            for start in order(range(max(stop(tokens, n), 0))):
                if n <= len(tokens) and tokens[start : start + n] == tokens[-n:]:
                    return tokens[piece(start, n) :][:count]
        return []

    return my_continuation


def by_the_package(tokens, longest, count):
    text = NGrams(longest)
    text.extend(tokens)
    return text.continuation(count)


def by_full_drafts(tokens, longest, count):
    "Passes over occurrences near the end, as the first published code did."
    for n in range(longest, 0, -1):
        for start in range(len(tokens) - n - count, -1, -1):
            if n <= len(tokens) and tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + count]
    return []


@pytest.mark.parametrize("answer", [lookup(), by_the_package])
def test_right_lookups(answer):
    assert "of its occurrences the latest" in is_right(check_continuation, answer)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lookup(stop=lambda tokens, n: len(tokens) - n + 1), "found *itself*"),
        (lookup(order=iter), "*first* occurrence. Asked"),
        (lookup(order=iter, stop=lambda tokens, n: len(tokens) - n + 1), "finds itself, so that no shorter one"),
        (lookup(lengths=lambda most: range(1, most + 1)), "shortest n-gram"),
        (lookup(lengths=lambda most: [most]), "largest length alone"),
        (lookup(lengths=lambda most: range(most, 1, -1)), "a single token may"),
        (lookup(piece=lambda start, n: start), "begins with the n-gram itself"),
        (lookup(stop=lambda tokens, n: len(tokens) - 2 * n + 1), "overlap with the end"),
        (lambda t, n, c: lookup()(t, n, 99), "at most 3 are asked"),
        (lambda t, n, c: (lookup()(t, n, c) + [0] * c)[:c] if lookup()(t, n, c) else [], "after [4] the text ends"),
        (lambda t, n, c: lookup(piece=lambda start, n: start + n)(t, n, c) or None, "an empty list, if there is no"),
        (lambda t, n, c: by_full_drafts(t, n, c), "fewer than `count` tokens follow"),
        (lambda t, n, c: [7], "expected [9, 5, 2]"),
        (lambda t, n, c: 7, "Expected a list"),
    ],
)
def test_wrong_lookups_are_told_why(mistake, complaint):
    assert complaint in found(check_continuation, mistake)


def test_every_mistake_in_looking_up_leaves_a_trail_of_its_own():
    ways = [exercises._continuation, *(mistake for mistake, _ in exercises.LOOKUP_MISTAKES)]
    trails = {str([way(*case) for case in exercises.TEXTS]) for way in ways}
    assert len(trails) == len(ways)


WORDS = "the cat saw the dog jump and the dog ran away and the dog"


def test_a_draft_by_hand():
    assert check_draft.judge(None, WORDS, 3, 3).ok is None
    is_right(check_draft, "ran away and", WORDS, 3, 3)
    is_right(check_draft, ["ran", "away", "and"], WORDS.split(), 3, 3)


@pytest.mark.parametrize(
    ("prediction", "complaint"),
    [
        ("and the dog", "the end of the text itself"),
        ("jump and the", "a longer end of the text was said before"),
        ("cat saw the", "Take the last 3 words"),
        ("saw the dog", "Take the last 3 words"),
        ("ran away", "Right as far as it goes"),
        ("ran away and the", "At most 3 words"),
        ("", "It has to begin before the end"),
        (7, "Expected some words"),
    ],
)
def test_a_wrong_draft_by_hand_is_told_why_and_not_what(prediction, complaint):
    message = found(check_draft, prediction, WORDS, 3, 3)
    assert complaint in message
    assert "ran away and" not in message


def test_a_draft_from_the_first_occurrence():
    assert "the latest counts" in found(check_draft, "b a", "a b a c a", 1, 2)


# The pool.


def add(
    *,
    place=lambda known, rest: known.insert(0, rest),
    again=lambda known, rest: known.remove(rest),
    cut=lambda known, size: known.pop() if len(known) > size else None,
    key=lambda ngram: (ngram[0], ngram[1:]),
):
    def my_add(pool, ngram, size):
        first, rest = key(ngram)
        known = pool.setdefault(first, [])
        if rest in known and again(known, rest) == "stop":
            return pool
        place(known, rest)
        cut(known, size)
        return pool

    return my_add


def by_the_packages_pool(pool, ngram, size):
    known = Pool(size)
    for first, rests in pool.items():
        for rest in reversed(rests):
            known.add([first, *rest])
    known.add(ngram)
    return {first: known[first] for first in {*pool, ngram[0]}}


@pytest.mark.parametrize("answer", [add(), by_the_packages_pool])
def test_right_pools(answer):
    assert "oldest makes room" in is_right(check_pool, answer)


def nothing(*_):
    return None


def append(known, rest):
    known.append(rest)


def cut_front(known, size):
    if len(known) > size:
        del known[0]


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (add(place=append, cut=cut_front), "oldest n-gram comes first"),
        (add(again=lambda known, rest: "stop"), "stays where it was. It is the most recent"),
        (add(again=nothing), "in the list twice"),
        (add(cut=lambda known, size: known.pop(0) if len(known) > size else None), "takes nothing new in"),
        (add(cut=nothing), "grow without end"),
        (add(key=lambda ngram: (ngram[-1], ngram[:-1])), "*last* token"),
        (add(key=lambda ngram: (ngram[0], ngram)), "keep the rest"),
        (add(place=append, cut=cut_front, again=lambda known, rest: "stop"), "Oldest first, and what is seen again"),
        (add(place=append, cut=nothing), "Oldest first, and no list is ever cut"),
        (add(again=nothing, cut=nothing), "Nothing is ever taken out"),
        (lambda pool, ngram, size: add()(pool, [ngram.pop(0), *ngram], size), "changed the n-gram"),
        (lambda pool, ngram, size: nothing(add()(pool, ngram, size)), "`return pool`"),
        (lambda pool, ngram, size: {**pool, ngram[0]: 5}, "Expected lists of rests"),
        (lambda pool, ngram, size: {ngram[0]: [ngram[1:]]}, "your pool is"),
    ],
)
def test_wrong_pools_are_told_why(mistake, complaint):
    assert complaint in found(check_pool, mistake)


def test_every_mistake_in_pooling_leaves_a_trail_of_its_own():
    options = [{}, *(one for one, _ in exercises.POOL_MISTAKES)]
    assert len({str(exercises._trail(**one)) for one in options}) == len(options)


def test_one_limit_for_the_whole_pool_is_told():
    def my_add(pool, ngram, size):
        add()(pool, ngram, size)
        if sum(map(len, pool.values())) > size:
            del pool[next(iter(pool))]
        return pool

    assert "for *each* first token" in found(check_pool, my_add)


# A law over the target's tokens.


def law(*, pair=None, missing=-math.inf, over="shared", scale=lambda logits: logits):
    def my_law(logits, target, draft):
        logits = scale(list(logits))
        pairs = pair(target, draft) if pair else [(i, draft.index(t)) for i, t in enumerate(target) if t in draft]
        row = torch.full((len(target),), missing, dtype=torch.float64)
        for mine, theirs in pairs:
            row[mine] = logits[theirs]
        if over == "all":
            return row.exp() / torch.tensor(logits, dtype=torch.float64).exp().sum()
        return row.softmax(-1)

    return my_law


def test_right_laws():
    assert "what is drawn from" in is_right(check_law, law())
    is_right(check_law, lambda *case: law()(*case).tolist())
    is_right(check_law, lambda *case: law()(*case).float())


def test_the_packages_law_is_a_right_answer():
    def my_law(logits, target, draft):
        guesses = Guesses(TableLM.random(target, 1, 0), TableLM.random(draft, 1, 0), ())
        return guesses.law(torch.tensor([logits]), [])

    is_right(check_law, my_law)


def ranks(target, draft):
    mine = [i for i, text in enumerate(target) if text in draft]
    return list(zip(mine, (i for i, text in enumerate(draft) if text in target)))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (law(over="all"), "does not sum to 1"),
        (law(pair=ranks), "pair the first shared token"),
        (law(pair=lambda target, draft: [(i, i) for i in range(min(len(target), len(draft)))]), "equal *ids*"),
        (law(missing=0.0), "got the logit 0"),
        (law(scale=lambda logits: [1.0] * len(logits)), "equally likely"),
        (lambda z, t, d: [z[d.index(x)] / sum(z[d.index(y)] for y in t if y in d) if x in d else 0 for x in t], "sum"),
        (lambda z, t, d: torch.tensor(z).softmax(-1), "(the draft's?)"),
        (law(missing=-10.0), "exactly 0"),
        (lambda z, t, d: law()(z, t, d).log(), "negative"),
        (lambda z, t, d: [0.5 if text in d else 0.0 for text in t], "expected"),
    ],
)
def test_wrong_laws_are_told_why(mistake, complaint):
    assert complaint in found(check_law, mistake)


# Padding.


def pad(*, left=True, mask=None, position=None):
    def my_pad(rows):
        width = max(map(len, rows))
        blanks = [[0] * (width - len(row)) for row in rows]
        ids = [blank + row if left else row + blank for blank, row in zip(blanks, rows)]
        seen = [blank + [1] * len(row) if left else [1] * len(row) + blank for blank, row in zip(blanks, rows)]
        places = [[max(0, i - len(blank) * left) for i in range(width)] for blank in blanks]
        return ids, mask(ids, seen) if mask else seen, position(seen, places) if position else places

    return my_pad


def test_right_paddings():
    assert "what it would be alone" in is_right(check_padding, pad())
    is_right(check_padding, lambda rows: tuple(map(torch.tensor, pad()(rows))))
    running = pad(position=lambda seen, _: (torch.tensor(seen).cumsum(-1) - 1).tolist())
    is_right(check_padding, running)
    is_right(check_padding, lambda rows: (pad()(rows)[0], torch.tensor(pad()(rows)[1]).bool(), pad()(rows)[2]))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (pad(left=False), "pad on the right"),
        (pad(mask=lambda ids, seen: [[1] * len(row) for row in ids]), "1 everywhere"),
        (pad(mask=lambda ids, seen: [[int(token != 0) for token in row] for row in ids]), "hides real tokens"),
        (pad(mask=lambda ids, seen: [[1 - value for value in row] for row in seen]), "wrong way round"),
        (pad(position=lambda seen, places: [list(range(len(row))) for row in seen]), "count the filler too"),
        (pad(position=lambda seen, places: torch.tensor(seen).cumsum(-1).tolist()), "begin at 1"),
        (pad(position=lambda seen, places: [[0] * len(row) for row in seen]), "expected [[0, 1, 2, 3]"),
        (pad(mask=lambda ids, seen: [[0] * len(row) for row in seen]), "Your mask is"),
        (lambda rows: (rows, rows, rows), "a tensor is a rectangle"),
        (lambda rows: pad()(rows)[:2], "three things"),
        (lambda rows: (pad()([[9] * len(row) for row in rows])[0], *pad()(rows)[1:]), "not where they should be"),
    ],
)
def test_wrong_paddings_are_told_why(mistake, complaint):
    assert complaint in found(check_padding, mistake)


def test_the_right_padding_gives_each_row_what_it_would_have_alone(llama):
    """Not only as numbers: a model that is fed so says of each row what it says of the row alone."""
    ids, mask, positions = map(torch.tensor, pad()([list(row) for row in exercises.ROWS]))
    with torch.no_grad():
        together = llama.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, -1]
        for row, logits in zip(exercises.ROWS, together):
            assert torch.allclose(llama.session(list(row)).feed()[-1], logits, atol=1e-4)


# Alpha.


def judged(rounds):
    return sum(min(kept + 1, drafted) for drafted, kept in rounds)


def kept(rounds):
    return sum(accepted for _, accepted in rounds)


def test_a_right_alpha():
    assert "Accepted over judged" in is_right(check_alpha, lambda rounds: kept(rounds) / judged(rounds))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda r: kept(r) / sum(d for d, _ in r), "after a rejection as rejected. Nobody"),
        (
            lambda r: kept([x for x in r if x[1] < x[0]]) / judged([x for x in r if x[1] < x[0]]),
            "You leave out the rounds",
        ),
        (lambda r: kept(r) / (kept(r) + len(r)), "one rejection in each round"),
        (lambda r: (kept(r) + len(r)) / (sum(d for d, _ in r) + len(r)), "own token as an accepted one"),
        (lambda r: (kept(r) + len(r)) / (judged(r) + len(r)), "own token as accepted"),
        (lambda r: sum(a / d for d, a in r) / len(r), "counts a round of two"),
        (lambda r: sum(a / min(a + 1, d) for d, a in r) / len(r), "You average the rounds'"),
        (lambda r: kept(r) / len(r), "mean number of accepted"),
        (lambda r: 1 - kept(r) / judged(r), "share that was rejected"),
        (lambda r: 0.123, "how many were judged?"),
    ],
)
def test_wrong_alphas_are_told_why(mistake, complaint):
    assert complaint in found(check_alpha, mistake)


# Does it pay?

METHODS = {"a lookup": (2.1, 7, 0), "a draft model": (4.0, 7, 6), "a wide window": (2.4, 41, 0)}
COSTS = ({7: 1.4, 41: 3.0}, 0.1)


def test_what_pays():
    assert check_pays.judge(dict.fromkeys(METHODS), METHODS, *COSTS).ok is None
    right = {"a lookup": 1.5, "a draft model": 2.0, "a wide window": 0.8}
    is_right(check_pays, right, METHODS, *COSTS)
    assert "Expected a dict" in found(check_pays, 1.5, METHODS, *COSTS)
    assert "Expected a number" in found(check_pays, {"a lookup": "x"}, METHODS, *COSTS)
    assert "missing: a wide window" in found(check_pays, {"a lookup": 1.5, "a draft model": 2.0}, METHODS, *COSTS)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (4.0, "every call cost the same"),
        (4 / 7, "divide by the width"),
        (4 / 1.6, "wider call costs more"),
        (4 / 1.4, "the draft's calls"),
        (0.5, "wrong way round"),
        (3 / 2, "token that the target adds"),
        (7.0, "too large"),
    ],
)
def test_wrong_factors_are_told_why(value, complaint):
    assert complaint in found(check_pays, {"a draft model": value}, METHODS, *COSTS)


# The chapter itself.

CHAPTER = "09_drafts_for_free"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch, "math": math}, capsys)
