"""Grammars: masks that are right in every state, methods that stay exact under them, and languages that are refused."""

import importlib.util
import itertools
import json
import re

import pytest
import torch
from conftest import VOCAB, random_model
from lossless import METHODS, distance, on

from tutorlib import (
    LM,
    Seeded,
    TableLM,
    beam_search,
    context_contrast,
    jump_ahead,
    prompt_lookup,
    run,
    run_batch,
    sample,
    sample_batch,
    speculative_batch,
    temperature,
    top_k,
)
from tutorlib.arguments import Prompted
from tutorlib.constraints.automaton import DEAD, Automaton, Vocabulary, Words
from tutorlib.constraints.grammar import grammar, vocabulary
from tutorlib.drafting.checking import without_refused
from tutorlib.measures.proof import target_distribution
from tutorlib.model.table import TableTokenizer
from tutorlib.model.tree import ROOT, TokenTree
from tutorlib.running.step import Candidates
from tutorlib.sampling.known_text import History

HAS_ENGINE = importlib.util.find_spec("llguidance") is not None
EXPRESSIONS = [
    "ab|abc", "(ab)*", r"[0-9]+(\.[0-9]+)?", "[a-z]{3}|[a-z]{5}", "(a|b)*abb", "a*", "", "é+a?", "[^a]b", "red car(t)?",
    "twelve|twenty", r"\d{2,}", "a{0,2}b{2}", "(?:a|)(b|c)+", r"[\w-]+@b\.c", "[^é-ü]*", "^abc$", ".b", r"\s?a\x62c",
    "(a?b?){2}c", "[]a]+", "[^]b]", "é|è|日本", "x(y(z|)|)*", r"\{\}|\[\]",
]  # fmt: skip
# Whole letters, longer pieces, and halves of characters.
PIECES = [
    *(bytes([byte]) for byte in range(0x20, 0x7F)), b"ab", b"bc", b"abc", b"re", b"d ", b"car", b"12", b".5",
    b"tw", b"el", b"\xc3", b"\xa9", "é".encode(), b"a\xc3", b"\xa9a", b"\xc3\xa8", b"\xe6", b"\x97", b"\x9c",
    b"\xe6\x97", b"\xa5", b"\xe6\x9c", b"\xac", b"\n", b"\t", b"\n\n",
]  # fmt: skip
WORDS = Vocabulary(dict(enumerate(PIECES)), len(PIECES))


def states(words):
    """Every state that tokens reach."""
    reached = [words.start]
    for state in reached:
        reached += [one for one in sorted(set(words.after_each(state).tolist())) if one not in (DEAD, *reached)]
    return reached


def texts(alphabet, most):
    return ("".join(letters) for length in range(most + 1) for letters in itertools.product(alphabet, repeat=length))


@pytest.mark.parametrize("pattern", EXPRESSIONS)
def test_the_automaton_matches_what_pythons_expressions_match(pattern):
    automaton, known = Automaton(pattern), re.compile(pattern, re.ASCII)
    letters = sorted({*re.sub(r"\\[dwsx]|[\\(){}^$*+?|]", "", pattern)[:5], "a", "b", "é", "1"})
    tried = [
        *texts(letters, 4),
        "twelve",
        "twenty",
        "twent",
        "red car",
        "red cart",
        "a@b.c",
        "ab-@b.c",
        "日本",
        "12.50",
    ]
    assert [text for text in tried if automaton.matches(text) != bool(known.fullmatch(text))] == []


def test_a_mask_holds_the_tokens_after_which_a_text_can_be_completed():
    """By trying: all sequences of up to three further tokens."""
    pieces = [b"a", b"ab", b"b", b"bb", b"\xc3", b"\xa9", b"c"]
    words = Words(Automaton("(a|b)*abb|é+a?|ac?b"), Vocabulary(dict(enumerate(pieces)), 9))
    right = {
        tokens
        for length in range(7)
        for tokens in itertools.product(range(7), repeat=length)
        if re.fullmatch(b"(a|b)*abb|(\xc3\xa9)+a?|ac?b", b"".join(pieces[token] for token in tokens))
    }
    begun = {tokens[:length] for tokens in right for length in range(len(tokens) + 1)}
    for tokens in sorted(begun, key=len)[:200]:
        if len(tokens) < 4:
            state = words.start
            for token in tokens:
                state = words.step(state, token)
            assert words.allowed(state).nonzero()[0].tolist() == [t for t in range(7) if (*tokens, t) in begun]
            assert words.ends(state) == (tokens in right)


def test_a_byte_that_no_token_holds_leads_nowhere():
    words = Words(Automaton("a(b|c)|bb"), Vocabulary({0: b"a", 1: b"b"}, 2))
    assert words.allowed(words.start).tolist() == [True, True] and words.forced(words.step(words.start, 0)) == b"b"
    # The byte b has a token only together with c: a state from which no token goes on is not entered.
    words = Words(Automaton("ab?|cb(cb)*d"), Vocabulary({0: b"a", 1: b"cb", 2: b"c", 3: b"bd"}, 4))
    assert words.allowed(words.start).tolist() == [True, True, True, False]
    assert words.allowed(words.step(words.start, 0)).tolist() == [False] * 4
    assert words.allowed(words.step(words.start, 1)).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "pattern, forced",
    [("red car(t)?", b"red car"), ("ab|abc", b"ab"), ("a|b", b""), ("twelve|twenty", b"twe"), ("a*", b"")],
)
def test_what_is_forced_is_what_all_texts_have_next(pattern, forced):
    assert Words(Automaton(pattern), WORDS).forced(Automaton.start) == forced


# ----------------------------------------------------------------------------------------------------------------------
# As a warp


def pair():
    target = TableLM.random(["a", "b", "ab", "."], 1, 5, stop_tokens=["."])
    return target, TableLM.random(["a", "b", "ab", "."], 1, 3, stop_tokens=["."])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("pattern, gamma", [("(a|b)*ba?", 1), ("aa?b?(ab)?", 2)])
def test_every_lossless_method_stays_lossless_under_a_grammar(name, pattern, gamma):
    """The batches hold prompts of different lengths. Drafts, and trees of them, may leave the language."""
    target, draft = (TableLM.random(["a", "ab", "."], 1, seed, stop_tokens=["."]) for seed in (5, 3))
    method = on(lambda lm, draft, prompt, **how: METHODS[name](lm, draft, prompt, gamma, **how), draft)
    assert distance(method, target, [0, 2, 0, 1], 3, [grammar(pattern, target)], stop=None) < 1e-9


def test_in_a_batch_the_form_is_asked_of_each_new_text_whatever_the_length_of_its_prompt():
    target, draft = (TableLM.random(["a", "b", "."], 1, seed, stop_tokens=["."]) for seed in (5, 3))
    prompts, warp = ["b", "abaab", "bb"], [grammar("ab{1,3}a?", target)]
    rngs = [Seeded(number) for number in range(3)]
    made = run_batch(sample_batch(target, prompts, rngs=rngs, warp=warp), 9)
    for number, prompt in enumerate(prompts):
        assert made[number].tokens == run(sample(target, prompt, rng=Seeded(number), warp=warp), 9).tokens
    for seed in range(10):
        rngs = [Seeded(10 * seed + number) for number in range(3)]
        for trace in run_batch(speculative_batch(target, draft, prompts, rngs=rngs, warp=warp), 9):
            assert re.fullmatch("ab{1,3}a?", trace.text)


def test_only_texts_of_the_language_are_written_whatever_the_prompt_holds():
    lm, _ = pair()
    written = target_distribution(lm, "bbab", 5, warp=[grammar("(ab){1,2}b?", lm)])
    texts = {lm.decode(tokens) for tokens in written}
    assert texts == {"ab", "abb", "abab", "ababb"}
    assert all(len(tokens) == 5 or tokens[-1] == 3 for tokens in written)


def test_the_mask_depends_on_the_new_tokens_alone_and_on_no_call_before():
    lm, _ = pair()
    warm, logits = grammar("(a|b)*ab", lm), torch.zeros(1, 4, dtype=torch.float64)
    for tokens in itertools.product(range(4), repeat=4):
        for length in range(5):
            found = []
            for one in (warm, grammar("(a|b)*ab", lm)):
                try:
                    found.append(one(logits, [Prompted([0, *tokens[:length]], 1)]).tolist())
                except ValueError as error:
                    found.append(str(error))
            assert found[0] == found[1]


def test_after_the_end_only_the_end_may_follow():
    lm, _ = pair()
    warp = [grammar("ab", lm)]
    assert run(sample(lm, "a", rng=Seeded(0), warp=warp), 6, stop=()).tokens[-3:] == [3, 3, 3]


def test_searches_and_candidates_know_where_the_prompt_ends():
    lm, _ = pair()
    warp = [grammar("abb|bab", lm), temperature(0.7), top_k(2)]
    assert run(beam_search(lm, "abab", beams=3, max_new_tokens=6, warp=warp)).text in ("abb", "bab")
    trace = run(sample(lm, "abab", rng=Seeded(1), warp=warp), 6)
    assert [token for token, _ in trace.steps[-1].candidates[0]] == [3]
    steps = context_contrast(lm, "abab", without="b", weight=0.5, rng=Seeded(1), warp=warp)
    assert {token for token, _ in run(steps, 6).steps[0].candidates[0]} <= {0, 1, 2}
    alone = Candidates(torch.zeros(1, 4), warp=warp[:1], histories=[History(Prompted([0, 1, 2], 2))])
    assert {token for token, _ in alone[0]} == {1}


def test_a_history_that_does_not_know_where_its_prompt_ends_is_refused():
    lm, _ = pair()
    with pytest.raises(
        ValueError, match=r"grammar\('ab'\) needs to know where the prompt ends.*Prompted\(tokens, prom"
    ):
        grammar("ab", lm)(torch.zeros(1, 4), [[0, 1]])


def test_a_text_outside_the_language_is_named():
    lm, _ = pair()
    for tokens, text in (([1], "b"), ([0, 0], "aa"), ([3], ""), ([2, 3, 0], "aba")):
        with pytest.raises(ValueError, match=f"the new text '{text}' is outside the language"):
            grammar("ab", lm)(torch.zeros(1, 4), [Prompted([0, *tokens], 1)])


def test_ids_beyond_the_tokenizer_and_special_tokens_are_never_allowed():
    lm = LM(random_model("llama"), TableTokenizer("abc"))  # with more logits than tokens
    lm.stop_tokens, lm.tokenizer.special = (2,), frozenset([2])
    rows = grammar(".*", lm)(torch.zeros(2, VOCAB + 3), [Prompted([], 0), Prompted([0, 1, 0], 1)])
    assert (rows == 0).nonzero().tolist() == [[row, token] for row in range(2) for token in range(3)]
    with pytest.raises(ValueError, match=f"made for a vocabulary of {VOCAB} tokens and got logits for {VOCAB - 1}"):
        grammar(".*", lm)(torch.zeros(1, VOCAB - 1), [Prompted([], 0)])
    lm.stop_tokens = ()
    with pytest.raises(ValueError, match="no token that ends a text"):
        grammar(".*", lm)


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    "pattern, says",
    [
        ("a(?=b)", "a look-around.* at position 2"),
        ("(?<!a)b", "a look-around"),
        ("a^b", r"an anchor \^ inside"),
        ("a$b", r"an anchor \$ inside"),
        (r"a\b", r"\\b, which is unknown"),
        (r"(a)\1", r"\\1, which is unknown"),
        ("(?i)a", "a group with an option"),
        ("a+?", "two repeats in a row"),
        ("*a", r"a \* with nothing to repeat"),
        ("a{2", "begins no repeat"),
        ("a{x}", "begins no repeat"),
        ("a{3,2}", "a repeat from 3 to 2"),
        ("a{2000}", "the most is 1000"),
        ("(a", r"a \( without its \)"),
        ("a)", r"a \) without its \("),
        ("[a", r"no end of its \["),
        ("[b-a]", "a range of characters"),
        (r"\xzz", "no hexadecimal number"),
        ("a\\", "no end of its"),
        (r"[^\x00-\uffff\W\w]", "no text matches"),
        (7, "must be a str, got 7"),
    ],
)
def test_an_expression_that_is_wrong_or_unknown_is_named_with_its_place(pattern, says):
    with pytest.raises(ValueError, match=says):
        Automaton(pattern)


def test_an_expression_of_too_many_states_is_refused(monkeypatch):
    monkeypatch.setattr("tutorlib.constraints.automaton.MOST_STATES", 100)
    with pytest.raises(ValueError, match="needs more than 100 states"):
        Automaton("(a|b)*a(a|b){9}")


def test_a_language_that_no_token_can_write_is_refused_at_the_call():
    lm, _ = pair()
    with pytest.raises(ValueError, match="the tokens of this vocabulary cannot write any text of the language"):
        grammar("abc", lm)
    with pytest.raises(ValueError, match=r"a regular expression \(str\) or a JSON schema \(dict\), got 3"):
        grammar(3, lm)
    with pytest.raises(ValueError, match="needs a model with a tokenizer"):
        grammar("a", LM(random_model("llama")))


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema, says",
    [
        ({"type": "array", "uniqueItems": True}, "the schema has the keyword 'uniqueItems', which is not supported"),
        ({"properties": {"a": {"typ": "string"}}}, "the schema, properties 'a' has the keyword 'typ'"),
        ({"items": {"anyOf": [{}, {"not": {}}]}}, "the schema, items, anyOf 1 has the keyword 'not'"),
        ({"$defs": {"x": {"if": {}}}}, r"the schema, \$defs 'x' has the keyword 'if'"),
        ({"type": "string", "contentEncoding": "base64"}, "'contentEncoding'"),
        ({"items": 3}, "the schema, items must be a dict"),
    ],
)
def test_keywords_that_would_be_dropped_in_silence_are_refused_by_name(schema, says):
    with pytest.raises(ValueError, match=says):
        grammar(schema, pair()[0])


def test_without_the_engine_a_schema_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(ImportError, match="needs the package llguidance: pip install llguidance"):
        grammar(PERSON, pair()[0])


# What engines read otherwise: their \d and \w take any script, and xgrammar's dot a line break; and so on.
SPELLED_OUT = {
    r"\d": "[0-9]", r"[\w-]": "[-0-9A-Z_a-z]", r"\x62": "b", r"\s": r"[ \t\n\r\f\v]", ".b": r"[^\n]b",
    "[]a]": r"[\]a]", "[^]b]": r"[^\]b]",
}  # fmt: skip


def spelled_out(pattern):
    for ours, theirs in SPELLED_OUT.items():
        pattern = pattern.replace(ours, theirs)
    return pattern.strip("^$")


def states_of_both(pattern, start, step):
    """Every state of the automaton that tokens reach, with an engine's state after the same tokens."""
    words = Words(Automaton(pattern), WORDS)
    seen, queue = {words.start}, [(words.start, start)]
    for state, other in queue:  # it grows meanwhile
        yield words, state, other
        for token in words.allowed(state).nonzero()[0].tolist():
            after = words.step(state, token)
            if after not in seen:
                seen.add(after)
                queue.append((after, step(other, token)))


if importlib.util.find_spec("xgrammar") is not None:  # not needed by any method: tests/engine_requirements.txt has it
    import xgrammar

    @pytest.mark.parametrize("pattern", EXPRESSIONS)
    def test_the_masks_of_xgrammar_are_those_of_the_automaton_in_every_state(pattern):
        end = len(PIECES)
        compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([*PIECES, b"<end>"], stop_token_ids=[end]))

        def after(matcher, token):
            fork = matcher.fork()
            assert fork.accept_token(token)
            return fork

        matcher = xgrammar.GrammarMatcher(compiler.compile_regex(spelled_out(pattern)))
        for words, state, other in states_of_both(pattern, matcher, after):
            bits = xgrammar.allocate_token_bitmask(1, end + 1)
            other.fill_next_token_bitmask(bits)
            shift = torch.arange(32, dtype=torch.int32)
            allowed = (bits[0, :, None] >> shift & 1).flatten()[: end + 1].bool().tolist()
            assert allowed == [*words.allowed(state).tolist(), words.ends(state)]


if HAS_ENGINE:  # an optional package: `make` installs it
    from tutorlib.constraints.json_schema import Engine

    @pytest.mark.parametrize("pattern", EXPRESSIONS)
    def test_the_engines_masks_are_those_of_the_automaton_in_every_state(pattern):
        engine = Engine(f"start: /{spelled_out(pattern)}/" if pattern else 'start: ""', WORDS)

        for words, state, other in states_of_both(pattern, engine.start, engine.step):
            assert words.allowed(state).tolist() == engine.allowed(other).tolist()
            assert words.ends(state) == engine.ends(other)

    def test_a_schema_is_written_as_json_dumps_writes_it_and_forks_are_fresh_states():
        engine = grammar(PERSON, lm := TableLM({}, [chr(c) for c in range(32, 127)] + ["." * 2], stop_tokens=[".."]))
        text = json.dumps({"name": 'A "b"', "age": 30})
        tokens = tuple(lm.encode(text))
        backwards = [engine.allowed(tokens[:length]).tolist() for length in reversed(range(len(tokens) + 1))]
        fresh = [grammar(PERSON, lm).allowed(tokens[:length]).tolist() for length in range(len(tokens) + 1)]
        assert backwards[::-1] == fresh
        assert all(row[token] for row, token in zip(fresh, tokens)) and fresh[-1][-1] and not fresh[-2][-1]
        assert lm.decode(engine.forced_tokens(Prompted([0], 1))) == '{"name": "'
        assert engine.forced_tokens(Prompted([0, *tokens], 1)) == list(lm.stop_tokens)
        for wrong in ('{"age"', '{ "', '{"name": "x", "age": 131', '{"name": "x"}'):
            with pytest.raises(ValueError, match=r"grammar\(schema\): the new text .* is outside the language"):
                engine.state(tuple(lm.encode(wrong)))

    def test_methods_are_lossless_under_a_schema():
        tables = [TableLM.random(["[", "1", ", ", "]", "."], 1, seed, stop_tokens=["."]) for seed in (5, 3)]
        warp = [grammar({"type": "array", "items": {"const": 1}, "minItems": 1}, tables[0])]
        for name in ("speculative", "suffix_lookup", "eagle, dynamic", "eagle, drawn tree"):
            method = on(
                lambda lm, draft, prompt, name=name, **how: METHODS[name](lm, draft, prompt, 2, **how), tables[1]
            )
            assert distance(method, tables[0], [0, 1, 2, 1], 4, warp, stop=None) < 1e-9

    @pytest.mark.parametrize(
        "schema, says",
        [
            ({"enum": []}, "cannot be followed: Unsatisfiable"),
            ({"$ref": "#/nope"}, "Pointer '/nope' does not exist"),
            ({"type": "string", "format": "foo"}, "Unknown format: foo"),
            ({"type": "string", "pattern": "(?=a)b"}, "regex parse error"),
        ],
    )
    def test_a_schema_that_cannot_be_followed_is_refused_with_the_reason(schema, says):
        with pytest.raises(ValueError, match=says):
            grammar(schema, TableLM({}, [chr(c) for c in range(32, 127)] + [".."], stop_tokens=[".."]))

    def test_a_vocabulary_without_the_first_character_of_a_schema_is_refused():
        with pytest.raises(ValueError, match="the tokens of this vocabulary cannot write any JSON"):
            grammar({"type": "object"}, pair()[0])


def test_a_vocabulary_is_read_once_for_each_model():
    lm, _ = pair()
    assert vocabulary(lm) is vocabulary(lm) is vocabulary(lm.counted())


# ----------------------------------------------------------------------------------------------------------------------
# Drafts that no text of the language has


def test_candidates_that_a_grammar_refuses_are_not_fed():
    lm, _ = pair()
    warp = [grammar("(ab)*a?", lm), temperature(0.7)]
    tree = TokenTree.from_paths([[0, 2, 0], [1, 0], [2, 2], [3]])  # a + ab + a, b + a, ab + ab, the end
    kept = without_refused(tree, Prompted([1, 1], 2), warp)
    assert (kept.tokens, kept.parents) == ([0, 2, 2, 3], [ROOT, ROOT, 1, ROOT])
    assert without_refused(tree, [1, 1], warp[1:]) is tree
    looked_up = prompt_lookup(lm, [1, 1, 0, 1], warp=[grammar("b+", lm)], rng=Seeded(1))
    assert run(looked_up, 1).steps[0].drafted == []  # and without the grammar, a and b


# ----------------------------------------------------------------------------------------------------------------------
# Jumping ahead


def test_jump_ahead_drafts_what_must_follow_and_the_end_if_only_that_is_left():
    lm, _ = pair()
    trace = run(jump_ahead(lm, "b", grammar=grammar("abab(a|b)ab", lm), rng=Seeded(3)), 9)
    assert trace.steps[0].drafted == [2, 2] and trace.text in ("ababaab", "ababbab") and trace.tokens[-1] == 3
    assert any(step.drafted == [2, 3] for step in trace.steps)


def test_jump_ahead_keeps_the_distribution_where_a_forced_text_has_several_tokens():
    lm = TableLM.random(["a", "b", "ab", "."], 1, 5, stop_tokens=["."])
    forced = grammar("aba?bab?", lm)

    def written(lm, prompt, rng=None, warp=()):
        return jump_ahead(lm, prompt, grammar=forced, rng=rng, warp=warp[1:])

    assert distance(written, lm, [1], 5, [forced, temperature(0.7)], stop=None) < 1e-9


def test_jump_ahead_writes_the_text_of_sample_with_fewer_calls():
    lm = TableLM.random([*"abcdefgh, ."], 1, 4, stop_tokens=["."])
    forced = grammar("(abcdef(g|h), ){3}", lm)
    plain = run(sample(lm, "a", rng=Seeded(6), warp=[forced]), 40)
    jumped = run(jump_ahead(lm, "a", grammar=forced, rng=Seeded(6)), 40)
    assert jumped.tokens == plain.tokens and len(plain.tokens) > 8
    assert jumped.target_calls <= plain.target_calls / 3
    with pytest.raises(ValueError, match=r"needs a grammar, as grammar\('\[0-9\]\+', lm\) makes it, got 3"):
        jump_ahead(lm, "a", grammar=3)
