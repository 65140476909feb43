"""The trace player: what it says of each token, that hostile text stays text, that it works in a real browser."""

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from two_tokenizers import byte_tokenizer

from tutorlib import Step, TableLM, TokenTree, Trace
from tutorlib.viz.kinds import added_kinds, drafted_kinds, tree_kinds
from tutorlib.viz.labels import Labels, flowing, visible
from tutorlib.viz.palette import KINDS
from tutorlib.viz.player import _CLASSES, MOST_STEPS, Player

HOSTILE = [
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "]]>", "' onclick='x", "&lt;b&gt;",
    "\u2028", "\u202e", "\x00\x1b", "</style>", "$x$", "\ud800", "`**x**|[a](javascript:alert(1))`", "👩\u200d💻 שלום",
    "=--s:0% onclick=alert(1)",
]  # fmt: skip


def make_trace(steps, vocab, calls=None, **other):
    """A trace as if read from a file: no model, texts by id."""
    tokens = [token for step in steps for token in step.tokens]
    given = {"prompt": [0], "text": "", "seconds": 12.345, "stopped": "budget", "method": "speculative", **other}
    pieces = dict(enumerate(vocab))
    return Trace(
        tokens=tokens, steps=steps, target_calls=len(steps) if calls is None else calls, _pieces=pieces, **given
    )


VOCAB = ["Once", " there", " was", " a", " kite", ".", "\n", " red", " ball"]


def speculative_trace():
    steps = [
        Step([1, 2, 3], drafted=[1, 2], accepted=2, note="all of the draft is right"),
        Step([7, 4], drafted=[7, 8, 5], accepted=1, candidates=[[(7, 0.5), (8, 0.25)], [(4, 0.75), (8, 0.001)]]),
        Step([5, 6], drafted=[5, 6], accepted=2, cut=1),
    ]
    return make_trace(steps, VOCAB)


class Page(HTMLParser):
    """Reads a page as a browser does: the elements there are, and the text that a reader sees."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open, self.depth_errors = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.depth_errors.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


# What became of each token


def test_after_a_whole_draft_comes_a_bonus_and_a_replacement_is_resampled():
    assert added_kinds(Step([1, 2, 3], drafted=[1, 2], accepted=2)) == ["accepted", "accepted", "bonus"]
    assert added_kinds(Step([1, 4], drafted=[1, 2], accepted=1)) == ["accepted", "resampled"]
    assert added_kinds(Step([4])) == ["target"]
    assert added_kinds(Step()) == []


def test_of_a_chain_only_the_first_wrong_token_is_rejected_and_the_rest_is_unchecked():
    assert drafted_kinds(Step([1, 4], drafted=[1, 2, 3], accepted=1)) == ["accepted", "rejected", "neutral"]
    assert drafted_kinds(Step([9], drafted=[1, 2], accepted=0)) == ["rejected", "neutral"]
    assert drafted_kinds(Step([1, 2, 9], drafted=[1, 2], accepted=2)) == ["accepted", "accepted"]


def test_a_step_that_was_cut_rejects_nothing():
    step = Step([1, 2, 9], drafted=[1, 2, 3], accepted=2)
    step.tokens = step.tokens[:2]
    assert drafted_kinds(step) == ["accepted", "accepted", "neutral"]
    assert added_kinds(step) == ["accepted", "accepted"]


def test_in_a_tree_the_kept_path_is_accepted_and_its_siblings_rejected():
    #         0 ── 2 ── 4        kept: 0, 2; then 9 was drawn, which is not node 4
    #         │    └─── 5
    #         1 ── 3
    tree = TokenTree([1, 2, 3, 4, 5, 6], [-1, -1, 0, 1, 2, 2])
    step = Step([1, 3, 9], drafted=tree.tokens, accepted=2, tree=tree, path=(0, 2))
    assert tree_kinds(step) == ["accepted", "rejected", "accepted", "neutral", "rejected", "rejected"]
    assert added_kinds(step) == ["accepted", "accepted", "resampled"]
    at_a_leaf = Step([1, 3, 5, 9], drafted=tree.tokens, accepted=3, tree=tree, path=(0, 2, 4))
    assert added_kinds(at_a_leaf) == ["accepted"] * 3 + ["bonus"]
    cut = at_a_leaf.first(2)
    assert tree_kinds(cut) == ["accepted", "rejected", "accepted", "neutral", "neutral", "neutral"]


def test_a_tree_that_is_a_chain_is_shown_as_one():
    chain = Step([1, 9], drafted=[1, 2, 3], accepted=1)
    tree = Step([1, 9], drafted=[1, 2, 3], accepted=1, tree=TokenTree.chain([1, 2, 3]), path=(0,))
    assert tree_kinds(tree) == drafted_kinds(chain)
    assert Player(make_trace([tree], VOCAB))._repr_html_() == Player(make_trace([chain], VOCAB))._repr_html_()


# Text of tokens


def test_whitespace_control_characters_and_direction_marks_are_made_visible():
    assert visible(" a\n\t") == "␣a↵⇥"
    assert visible("\u202e\u2028\x00\xa0") == "⟨U+202E⟩⟨U+2028⟩⟨U+0000⟩⟨U+00A0⟩"
    assert visible("") == "∅"
    assert visible("\u0301") == "◌\u0301"
    assert flowing(" a\n b") == " a↵\n b"


def test_byte_level_tokens_show_their_bytes_alone_and_their_letter_together():
    tokenizer = byte_tokenizer()
    tokens = tokenizer("é €\n")["input_ids"]
    labels = Labels(tokenizer)
    assert [labels.visible(token) for token in tokens] == ["⟨C3⟩", "⟨A9⟩", "␣", "⟨E2⟩", "⟨82⟩", "⟨AC⟩", "↵"]
    assert labels.flowing(tokens) == ["", "é", " ", "", "", "€", "↵\n"]
    assert "".join(labels.flowing(tokens[:1])) == "⟨C3⟩"  # a text that ends in mid-letter says so


def test_sentencepiece_tokens_keep_the_space_that_decoding_alone_drops():
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    vocab = {"<unk>": 0, "▁the": 1, "the": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "</s>": 6}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [], byte_fallback=True, unk_token="<unk>"))
    decoders = tokenizers.decoders
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    labels = Labels(tokenizer)
    shown = [labels.visible(token) for token in range(7)]
    assert shown == ["<unk>", "␣the", "the", "⟨C3⟩", "⟨A9⟩", "␣", "</s>"]
    assert labels.flowing([1, 3, 4]) == [" the", "", "é"]


def test_a_token_that_nobody_knows_is_shown_as_its_number():
    for source in (None, ["a"], {0: "a"}, TableLM({"": [0.5, 0.5]})):
        assert Labels(source).visible(7) == "<7>"


# The page


def test_the_same_trace_gives_the_same_bytes_and_no_element_has_an_id():
    first, second = (speculative_trace().show()._repr_html_() for _ in range(2))
    assert first == second
    assert not [attributes for _, attributes in Page(first).attributes if "id" in attributes]
    trace = speculative_trace()
    trace.seconds = 99.0
    assert trace.show()._repr_html_() == first  # clock times are not shown


def test_hostile_text_appears_as_text_and_makes_no_element():
    tree = TokenTree(list(range(len(HOSTILE))), [-1] * len(HOSTILE))
    every = list(range(len(HOSTILE)))
    steps = [
        Step(
            every,
            drafted=every,
            accepted=3,
            note=HOSTILE[0] + HOSTILE[1],
            candidates=[[(token, 0.5)] for token in every],
        ),
        Step([0], drafted=every, tree=tree, hypotheses=[[every, -1.0]]),
    ]
    harmless = make_trace(
        [Step(**{**vars(step), "note": step.note and "note"}) for step in steps], ["x"] * len(HOSTILE)
    )
    nasty = make_trace(steps, HOSTILE, method=HOSTILE[1])
    page, expected = Page(Player(nasty)._repr_html_()), Page(Player(harmless, title="t")._repr_html_())
    assert page.tags == expected.tags
    assert [sorted(attributes) for _, attributes in page.attributes] == [
        sorted(attributes) for _, attributes in expected.attributes
    ]
    assert not page.depth_errors and not page.open
    shown = "".join(page.texts)
    for text in HOSTILE[:6]:
        assert text in shown
    raw = Player(nasty)._repr_html_()
    assert not re.search("[\u2028\u202e\x00\x1b\ud800]", raw)
    raw.encode("utf-8")


def test_the_escape_test_can_fail(monkeypatch):
    monkeypatch.setattr("tutorlib.viz.player._text", str)
    with pytest.raises(AssertionError):
        test_hostile_text_appears_as_text_and_makes_no_element()


def test_every_step_can_be_read_without_style_and_script():
    page = Player(speculative_trace())._repr_html_()
    bare = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", "", bare)).split())
    assert "Once there was a red kite.↵" in text
    for part in ("Step 1", "Step 3", "all of the draft is right", "✗␣ball", "↻␣kite", "▸ ␣kite 0.75", "<0.01"):
        assert part in text
    assert "3 target calls so far" in text


def test_the_page_needs_nothing_from_outside():
    page = Player(speculative_trace())._repr_html_()
    assert not re.search(r"https?:|//|@import|url\(|src=|href=", page.replace("image/svg+xml", ""))
    assert page.count("</script") == 1 and page.count("</style") == 1


def test_a_tree_shows_every_node_and_where_it_hangs():
    tree = TokenTree([1, 2, 3, 4], [-1, 0, 0, -1])
    page = Player(
        make_trace([Step([1, 2], drafted=tree.tokens, accepted=1, tree=tree, path=(0,))], VOCAB)
    )._repr_html_()
    nested = re.search(r'<div class="tl-tree">(.*?)</div>', page, re.DOTALL)[1]
    plain = re.sub(r"<(/?)(ul|li)[^>]*>", r"<\1\2>", re.sub(r"</?[bi]\b[^>]*>", "", nested))
    assert plain == ("<ul><li>✓␣there<ul><li>✗␣was</li><li>✗␣a</li></ul></li><li>✗␣kite</li></ul>")


def test_a_deep_tree_and_a_long_trace_are_no_trouble():
    deep = TokenTree([1] * 3000, [-1, -1, *range(1, 2999)])
    assert Player(make_trace([Step([2], drafted=deep.tokens, tree=deep)], VOCAB))._repr_html_().count("<li") == 3000
    steps = [Step([1, 2]) for _ in range(MOST_STEPS + 5)]
    page = Player(make_trace(steps, VOCAB))._repr_html_()
    assert page.count('class="tl-step"') == page.count("<span><u ") == MOST_STEPS
    assert "The 5 steps after these are left out" in page
    assert len(page) < 1.5e6
    text = str(Player(make_trace(steps, VOCAB)))
    assert len(text.splitlines()) == 2 + 30 + 1 + 5 and f"… {MOST_STEPS + 5 - 35} more steps …" in text


def test_searches_show_their_hypotheses_and_scores():
    steps = [
        Step(hypotheses=[[[1, 2], -0.25], [[3], float("-inf")]]),
        Step([1, 2], hypotheses=[[[1, 2], -0.25]], score=-0.25),
    ]
    player = Player(make_trace(steps, VOCAB, calls=5))
    page = "".join(Page(player._repr_html_()).texts)
    assert "no token yet" in page and "−0.25" in page and "−∞" in page
    assert "so far" not in page  # two steps, five calls: which made which is not known
    assert str(player).splitlines()[2] == "step 1 · no token · 2 hypotheses, first −0.25: ␣there ␣was"


def test_hypotheses_are_a_tree_in_which_each_beginning_stands_once():
    steps = [
        Step(hypotheses=[[[1], -1.0], [[4], -2.0]]),
        Step(hypotheses=[[[1, 2, 3], -3.0], [[1, 2, 4], -4.0]]),
        Step([1, 2, 4], hypotheses=[[[1, 2, 4], -4.0], [[1, 2], -5.0]]),
    ]
    page = Player(make_trace(steps, VOCAB))._repr_html_()
    drawn = [
        re.sub(r"</?(?:b|span)\b[^>]*>", "", tree) for tree in re.findall(r'<div class="tl-tree">(.*?)</div>', page)
    ]
    there, was, a, kite = (Labels(VOCAB).flowing([token])[0] for token in (1, 2, 3, 4))
    assert drawn == [
        f"<ul><li>{there} −1.00</li><li>{kite} −2.00</li></ul>",
        f"<ul><li>{there}{was}<ul><li>{a} −3.00</li><li>{kite} −4.00</li></ul></li><li>{kite}</li></ul>",
        f"<ul><li class=tl-k>{there}{was} −5.00<ul><li class=tl-k>{kite} −4.00</li><li>{a}</li></ul></li></ul>",
    ]
    boxes = re.findall(r"<b class=(tl-.)>([^<]*)</b>", page)
    assert [text for kind, text in boxes if kind == "tl-n"] == [kite, a]  # no longer kept


def test_target_calls_are_those_that_run_counted():
    player = Player(make_trace([Step([1], calls=2), Step([2], calls=4)], VOCAB, calls=4))
    assert "2 target calls so far" in player._repr_html_() and "4 target calls so far" in player._repr_html_()
    assert "step 2 · call 4" in str(player)


def test_the_plain_text_says_what_the_page_says():
    assert str(Player(speculative_trace())) == (
        "speculative · 7 new tokens · 3 target calls · 2.33 tokens per call · stopped: budget\n"
        "prompt: Once\n"
        "step 1 · call 1 · ✓␣there ✓␣was ★␣a · all of the draft is right\n"
        "step 2 · call 2 · ✓␣red ↻␣kite · not kept: ✗␣ball ○.\n"
        "step 3 · call 3 · ✓. ✓↵"
    )


def test_every_kind_has_a_box_an_underline_and_a_mark_of_its_own_in_the_style():
    css = files("tutorlib.viz").joinpath("player.css").read_text(encoding="utf-8")
    added = ("target", "accepted", "resampled", "bonus")  # what a step can add to the text
    for element, kinds in (("b", (*KINDS, "neutral")), ("u", added)):
        looks = []
        for kind in kinds:
            name = _CLASSES[kind]
            assert f".{name} {{ --c: var(--tl-{kind}); --f: " in css  # the colour of its mark, its box, its underline
            looks.append("".join(re.findall(rf"(?m)^\.tl-player {element}\.{name} {{([^}}]*)}}", css)))
        # Without colours they still differ. An accepted token's box is as the target's: the target's is never drafted.
        assert len(set(looks)) == len(looks) - (element == "b"), element


def test_without_script_and_style_a_long_trace_is_folded_after_its_first_step():
    steps = [Step([1, 2], note=f"note {i}") for i in range(40)]
    page = Player(make_trace(steps, VOCAB))._repr_html_()
    before, folded = re.sub(r"(?s)<(style|script)>.*?</\1>", "", page).split("<details>")
    folded, after = folded.split("</details>")
    assert "note 0" in before and "note 1<" not in before and "note 39" in folded and "tl-step" not in after
    assert folded.startswith("<summary>Steps 2 to 40 are folded up. Open them here; or run this cell")
    assert "<details" not in Player(make_trace(steps[:2], VOCAB))._repr_html_()


def test_a_long_trace_of_trees_with_candidates_takes_few_bytes():
    tree = TokenTree(list(range(1, 9)) * 3, [-1, 0, 0, -1, 1, 1, 2, 3] + [4] * 16)
    step = Step([1, 2, 3], drafted=tree.tokens, accepted=2, tree=tree, path=(0, 1))
    step.candidates = [[(token, 0.1) for token in range(1, 9)]] * 3
    assert len(Player(make_trace([step] * 10, VOCAB))._repr_html_()) < 60_000


def test_jupyter_gets_both_forms():
    player = speculative_trace().show()
    assert player._repr_mimebundle_() == {"text/plain": str(player), "text/html": player._repr_html_()}
    assert repr(player) == str(player)
    assert speculative_trace()._repr_html_() == player._repr_html_()


def test_an_empty_trace_is_shown_too():
    trace = make_trace([], VOCAB, stopped="context")
    assert "stopped: context" in str(trace.show())
    assert not Page(trace.show()._repr_html_()).depth_errors


def test_a_saved_page_stands_alone(tmp_path):
    speculative_trace().show(title="A <title>").save(tmp_path / "trace.html")
    text = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "<title>A &lt;title&gt;</title>" in text
    assert not re.search(r"(?:src|href)\s*=|@import|url\(", text), "it asks nothing of the network"


# In a browser

CHECKS = """
const players = [...document.querySelectorAll('.tl-player')], seen = [];
let bubbled = 0;
document.addEventListener('keydown', () => bubbled++);
const press = (player, key) => player.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
const at = player => [...player.querySelectorAll('.tl-step')].filter(s => getComputedStyle(s).display !== 'none')
    .map(s => s.querySelector('.tl-number').textContent).join() + ' ' + player.querySelector('.tl-count').textContent;
seen.push(at(players[0]));
press(players[0], 'ArrowRight'); press(players[0], 'ArrowRight'); seen.push(at(players[0]), at(players[1]));
press(players[0], 'ArrowLeft'); seen.push(at(players[0]), players[0].querySelector('[aria-live]').textContent);
press(players[0], 'End'); press(players[0], 'ArrowRight'); seen.push(at(players[0]));
press(players[0], 'Home'); seen.push(at(players[0]));
players[1].querySelector('.tl-last').click(); seen.push(at(players[1]));
const slider = players[1].querySelector('input');
slider.value = 2; slider.dispatchEvent(new Event('input')); seen.push(at(players[1]));
seen.push([...players[1].querySelectorAll('u')].filter(t => getComputedStyle(t).visibility !== 'hidden').length);
document.querySelectorAll('.tl-player script').forEach(old => {
  const again = document.createElement('script'); again.textContent = old.textContent; old.replaceWith(again); });
seen.push(document.querySelectorAll('.tl-controls').length, at(players[1]), bubbled);
seen.push([...document.querySelectorAll('button')].every(b => b.getAttribute('aria-label')));
seen.push(document.querySelectorAll('details').length, document.querySelector('.tl-a > i').getAttribute('aria-label'));
document.body.setAttribute('data-seen', JSON.stringify(seen));
"""


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome here to press the buttons in")
def test_in_a_browser_keys_buttons_and_slider_move_one_player_and_scripts_may_run_twice(tmp_path):
    players = "".join(speculative_trace().show()._repr_html_() for _ in range(2))
    (tmp_path / "page.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body>{players}<script>{CHECKS}</script></body>', encoding="utf-8"
    )
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    command += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}"]
    command += ["--dump-dom", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    seen = html.unescape(re.search(r'data-seen="([^"]*)"', done.stdout)[1])
    assert seen == (
        '["Step 1 1 / 3","Step 3 3 / 3","Step 1 1 / 3","Step 2 2 / 3",'
        '"Step 2 of 3: adds ␣red accepted, ␣kite resampled. 2 target calls so far.",'
        '"Step 3 3 / 3","Step 1 1 / 3","Step 3 3 / 3","Step 2 2 / 3",5,2,"Step 2 2 / 3",0,true,0,"accepted"]'
    )
