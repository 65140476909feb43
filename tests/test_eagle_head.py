"""EAGLE's networks: the arithmetic of the papers; sessions whose caches and trees give what a fresh start would."""

import pytest
import torch
from conftest import CONTEXT, VOCAB, random_model
from draft_networks import NETWORKS, eagle1, eagle3, features_of, law, reduced, sizes
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from tutorlib import LM, Eagle3Head, EagleHead, NaNLogits, TableLM
from tutorlib.drafting.draft_session import check_target
from tutorlib.drafting.eagle_head import DraftNetwork, usual_layers
from tutorlib.model.tree import ROOT

every_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
# The same ones at each run; making them smaller where one fails would take minutes.
few_examples = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def close(made, expected, tolerance=1e-4):
    """Equal numbers, measured against the largest, as far as angles in float32 let them be; -inf in the same places."""
    made, expected = made.double(), expected.double()
    largest = float(expected[expected > -torch.inf].abs().max())
    return torch.allclose(made, expected, rtol=0.0, atol=tolerance * largest)


@pytest.fixture(scope="module")
def target():
    return LM(random_model("llama", torch.float64))


def fed(head, target, text):
    """A session that was fed a text, and what it said."""
    session = head.session(target)
    return session, session.feed(text[1:], features_of(target, text, head.feature_layers)[:-1])


# ----------------------------------------------------------------------------------------------------------------------
# The arithmetic


CHANGES = [
    {}, {"num_key_value_heads": 2}, {"num_attention_heads": 4, "num_key_value_heads": 2},
    {"attention_bias": True, "mlp_bias": True}, {"qkv_bias": True}, {"rms_norm_eps": 0.3},
]  # fmt: skip


ARITHMETIC = [(make, changes) for make in (eagle1, eagle3) for changes in CHANGES]
ARITHMETIC += [(reduced, {}), (eagle1, {"bias": False})]
ARITHMETIC += [(eagle3, {"layers": layers}) for layers in ((0,), (-1,), (1, 2), (0, 1, 2, 3), (2, 2, 1))]


@pytest.mark.parametrize(("make", "changes"), ARITHMETIC, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_network_is_the_arithmetic_of_its_paper(target, make, changes):
    """Whatever its configuration, the tokens that it knows and the layers that it joins, in their order."""
    head = make(target, **changes)
    _, logits = fed(head, target, TEXT)
    assert close(logits[0], law(head, target, TEXT))
    assert changes != {"bias": False} or head.fc.bias is None


def test_biases_are_there_where_the_configuration_says_so(target):
    def biases(**changes):
        names = [name.removesuffix(".bias").split(".")[-1] for name in eagle3(target, **changes).state_dict()
                 if name.endswith(".bias")]  # fmt: skip
        return sorted(names)

    attention, inside = ["k_proj", "o_proj", "q_proj", "v_proj"], ["down_proj", "gate_proj", "up_proj"]
    assert biases() == []
    assert biases(qkv_bias=True) == ["k_proj", "q_proj", "v_proj"]
    assert biases(attention_bias=True) == attention
    assert biases(mlp_bias=True) == inside


@pytest.mark.parametrize("norm", ["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"])
def test_eagle_3_may_norm_what_its_authors_do_not(target, norm):
    """As networks made with `speculators` do, EAGLE-3.1 among them."""
    usual, other = eagle3(target), eagle3(target, norms=[norm])
    other.load_state_dict(usual.state_dict(), strict=False)
    said = []
    for head in (usual, other):
        session, logits = fed(head, target, TEXT)
        assert close(logits[0], law(head, target, TEXT))
        said.append(session.grow([7], [ROOT])[0])
        assert close(said[-1], law(head, target, TEXT, [7]))
    assert not close(*said)


def test_the_features_are_normed_in_one_way(target):
    with pytest.raises(ValueError, match="norm_before_fc and fc_norm are two ways to norm the features: choose one"):
        eagle3(target, norms=["norm_before_fc", "fc_norm"])


def test_the_layer_of_eagle_1_is_that_of_transformers_without_its_first_norm(target):
    head = eagle1(target, num_attention_heads=4, num_key_value_heads=2)
    head.config._attn_implementation = "eager"
    theirs = LlamaDecoderLayer(head.config, 0).double()
    theirs.input_layernorm = torch.nn.Identity()
    theirs.load_state_dict(head.layers[0].state_dict())
    states = torch.randn(2, 7, target.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    positions = torch.arange(7)[None]
    later = torch.full((7, 7), -1e30, dtype=torch.float64).triu(1)[None, None]
    angles = LlamaRotaryEmbedding(head.config)(states, positions)
    with torch.no_grad():
        expected = theirs(states, attention_mask=later, position_embeddings=angles, position_ids=positions)
        expected = expected[0] if isinstance(expected, tuple) else expected
        tokens, hidden = torch.zeros(2, 7, dtype=torch.int64), states
        head.fc = torch.nn.Linear(2 * target.width, target.width, dtype=torch.float64)  # nothing of the token
        head.fc.weight.data = torch.eye(target.width, dtype=torch.float64).repeat(1, 2)
        head.embed_tokens.weight.data.zero_()
        head.fc.bias.data.zero_()
        assert close(head(tokens, hidden, head.rotation(positions)), expected, 1e-6)


def test_every_guessed_feature_is_read_by_the_targets_own_head(models, family):
    """What the target puts out itself, read by EAGLE-1, gives the target's own logits (Gemma 2's are capped)."""
    lm = LM(models(family))
    session = lm.session([1, 2, 3], hidden=-1)
    logits = session.feed([4, 5])
    assert torch.allclose(EagleHead(sizes(lm)).read_out(session.hidden, lm), logits, atol=1e-5)


def test_what_is_known_is_kept_as_in_the_published_files(target):
    head = Eagle3Head(sizes(target), (0, 1, 2), [1, 5, 6, 18])
    assert head.d2t.tolist() == [1, 4, 4, 15] and head.d2t.dtype == torch.int64
    assert head.t2d.nonzero()[:, 0].tolist() == [1, 5, 6, 18] and head.t2d.dtype == torch.bool
    assert len(head.t2d) == VOCAB and head.tokens.tolist() == [1, 5, 6, 18]
    whole = Eagle3Head(sizes(target), (0, 1, 2))
    assert not whole.d2t.any() and whole.t2d.all() and whole.lm_head.weight.shape == (VOCAB, target.width)


def test_the_usual_layers_are_what_layers_2_half_and_the_last_but_two_take_in():
    assert usual_layers(32) == (2, 16, 29)
    assert [usual_layers(layers) for layers in (7, 8, 12)] == [(2, 3, 4), (2, 4, 5), (2, 6, 9)]
    for layers in range(7):
        with pytest.raises(
            ValueError, match=f"in a target of {layers} layers the usual three would be .*: choose three"
        ):
            usual_layers(layers)


# ----------------------------------------------------------------------------------------------------------------------
# Sessions


@every_network
@few_examples
@given(pieces=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_fed_in_pieces_it_says_what_it_says_of_the_whole(target, make, pieces):
    head = make(target)
    text = (TEXT * 2)[: sum(pieces) + 1]
    features, session = features_of(target, text, head.feature_layers), head.session(target)
    for piece in pieces:
        start = session.length
        logits = session.feed(text[start + 1 : start + 1 + piece], features[start : start + piece])
        assert session.length == start + piece
    assert close(logits, fed(head, target, text)[1], 1e-6)
    assert session.calls == len(pieces)


@every_network
@few_examples
@given(data=st.data())
def test_a_node_of_any_tree_is_what_its_path_would_be_alone(target, make, data):
    """Grown level by level, as hypothesis likes; the second time after a text that has gone on from the first tree."""
    head = make(target)
    features = features_of(target, TEXT, head.feature_layers)
    session, length = head.session(target), 4
    for new in (length, 3):
        start = session.length
        session.feed(TEXT[start + 1 : start + 1 + new], features[start : start + new])
        text, paths, level = TEXT[: start + 1 + new], [], [ROOT]
        for _ in range(data.draw(st.integers(1, 3))):
            parents = data.draw(st.lists(st.sampled_from(level), min_size=1, max_size=4))
            tokens = [data.draw(st.integers(0, VOCAB - 1)) for _ in parents]
            logits = session.grow(tokens, parents)
            assert logits.shape == (len(tokens), VOCAB)
            level = range(len(paths), len(paths) + len(tokens))
            paths += [(*(paths[parent] if parent != ROOT else ()), token) for token, parent in zip(tokens, parents)]
            for row, path in zip(logits, paths[-len(tokens) :], strict=True):
                assert close(row, law(head, target, text, path))
        assert session.length == len(text) - 1, "guesses are no text"


@every_network
def test_nodes_do_not_see_each_other_nor_does_the_text_see_them(target, make):
    head = make(target)
    alone, _ = fed(head, target, TEXT[:6])
    among, _ = fed(head, target, TEXT[:6])
    expected = alone.grow([7], [ROOT])
    assert close(among.grow([11, 7, 12], [ROOT] * 3)[1], expected[0], 1e-6)
    assert close(among.grow([3, 8, 3], [0, 1, 2])[1], alone.grow([8], [0])[0], 1e-6)
    features = features_of(target, TEXT, head.feature_layers)[5:10]
    said = [session.feed(TEXT[6:11], features) for session in (alone, among)]
    assert close(*said, 1e-6) and close(said[0][0], law(head, target, TEXT))
    # The tree is forgotten: node 0 is a new one.
    assert close(among.grow([2], [ROOT])[0], law(head, target, TEXT, [2]))
    assert close(among.grow([4], [0])[0], law(head, target, TEXT, [2, 4]))


def test_nodes_may_be_added_to_a_level_later(target):
    for make in NETWORKS.values():
        head = make(target)
        session, _ = fed(head, target, TEXT[:5])
        session.grow([1], [ROOT])
        session.grow([2, 3], [0, 0])
        assert close(session.grow([4], [ROOT])[0], law(head, target, TEXT[:5], [4]))
        assert close(session.grow([6, 7], [3, 0])[0], law(head, target, TEXT[:5], [4, 6]))


@every_network
def test_a_cache_that_has_to_grow_forgets_nothing(target, make):
    """Past every size that it may have had to spare, in the middle of the text and in the middle of a tree."""
    target = LM(target.model, context=1000)
    head, text = make(target), [(7 * place * place + place) % VOCAB for place in range(150)]
    features = torch.randn(150, len(head.feature_layers) * 16, generator=torch.Generator().manual_seed(0)).double()
    pieces, whole = head.session(target), head.session(target)
    for start in range(0, 148, 4):
        said = pieces.feed(text[start + 1 : start + 5], features[start : start + 4])
        levels = [pieces.grow([8, 9, 10, 11, 12], [ROOT] * 5), pieces.grow([1, 2, 3] * 5, [*range(5)] * 3)]
    assert close(said, whole.feed(text[1:149], features[:148]), 1e-6)
    assert close(levels[0][2], whole.grow([10], [ROOT])[0], 1e-6)
    assert close(levels[1][2], whole.grow([3], [0])[0], 1e-6)
    for _ in range(12):  # a tree that outgrows what there was to spare
        level = pieces.grow([3] * 12, [2] * 12)
    assert close(level[-1], whole.grow([3], [0])[0], 1e-6)


@every_network
def test_over_a_table_the_features_are_its_log_probabilities(make):
    lm = TableLM.random(5, 2, 3)
    head = make(lm)
    session, said = fed(head, lm, [0, 3, 4, 1])
    assert said.dtype == torch.float64
    assert close(said[0], law(head, lm, [0, 3, 4, 1]))
    assert close(session.grow([2, 4], [ROOT, ROOT])[1], law(head, lm, [0, 3, 4, 1], [4]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@every_network
def test_a_network_may_be_of_another_type_than_the_target(target, make, dtype):
    head = make(target)
    expected = law(head, target, TEXT, [1, 2])
    session, _ = fed(head.to(dtype), target, TEXT)
    session.grow([1], [ROOT])
    tolerance = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.2}[dtype]
    assert close(session.grow([2], [0])[0], expected, tolerance)


def test_a_call_of_the_network_is_counted_and_the_target_is_not_called(target):
    head, before = eagle3(target), target.calls
    features = features_of(target, TEXT, head.feature_layers)
    session = head.session(target)
    session.feed(TEXT[1:5], features[:4])
    session.grow([1, 2], [ROOT, ROOT])
    session.grow([1, 2], [0, 0])
    session.feed(TEXT[5:6], features[4:5])
    assert (session.calls, session.length, target.calls) == (4, 5, before)


@every_network
def test_a_session_that_met_what_is_no_number_is_as_before(target, make):
    head = make(target)
    features = features_of(target, TEXT, head.feature_layers)
    session, twin = head.session(target), head.session(target)
    for one in (session, twin):
        one.feed(TEXT[1:4], features[:3])
        one.grow([1, 2], [ROOT, ROOT])
    # A few tokens, and so many that the cache has to grow.
    for count in (2, 200):
        with pytest.raises(NaNLogits, match="draft network returned logits that are NaN"):
            session.feed([3] * count, torch.full((count, features.shape[1]), torch.nan))
    with pytest.raises(NaNLogits, match="draft network returned logits that are NaN"):
        weights, head.embed_tokens.weight.data[7] = head.embed_tokens.weight.data[7].clone(), torch.nan
        session.grow([7], [0])
    head.embed_tokens.weight.data[7] = weights
    assert session.length == twin.length == 3
    assert torch.equal(session.grow([4, 5], [1, 0]), twin.grow([4, 5], [1, 0]))
    assert torch.equal(session.feed(TEXT[4:6], features[3:5]), twin.feed(TEXT[4:6], features[3:5]))


@every_network
@pytest.mark.parametrize(
    ("tokens", "features", "says"),
    [
        ([1, VOCAB], 2, r"\[1, 19\] are not all tokens of a vocabulary of 19"),
        ([-1], 1, r"\[-1\] are not all tokens of a vocabulary of 19"),
        (
            [],
            0,
            r"0 tokens and features of shape \(0, .*\), expected .*: each token needs the feature of the token before",
        ),
        ([1], 2, r"1 tokens and features of shape \(2, .*\), expected \(1, "),
        ([1, 2], 1, r"2 tokens and features of shape \(1, .*\), expected \(2, "),
    ],
    ids=str,
)
def test_each_token_needs_its_feature(target, make, tokens, features, says):
    head = make(target)
    session, _ = fed(head, target, TEXT[:3])
    with pytest.raises(ValueError, match=says):
        session.feed(tokens, torch.zeros(features, 16 * len(head.feature_layers)))
    with pytest.raises(ValueError, match=r"1 tokens and features of shape \(1, 15\), expected \(1, (16|48)\)"):
        session.feed([1], torch.zeros(1, 15))


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [([], []), ([1], [2]), ([1], [-2]), ([1, 2], [0]), ([1], [0, 0]), ([1, 2], [0, 2])],
    ids=str,
)
def test_each_node_needs_a_parent_that_is_there(target, tokens, parents):
    session, _ = fed(eagle1(target), target, TEXT[:3])
    session.grow([5, 6], [ROOT, ROOT])
    with pytest.raises(ValueError, match="each token needs a parent from -1 to 1"):
        session.grow(tokens, parents)
    with pytest.raises(ValueError, match="are not all tokens of a vocabulary of 19"):
        session.grow([VOCAB], [0])
    session.grow([7, 8], [1, 0])
    with pytest.raises(ValueError, match=r"\[1, 2\] are parents of several levels: add the nodes of one level at a"):
        session.grow([7, 8], [1, 2])
    assert session.grow([7], [3]).shape == (1, VOCAB), "nothing was added by what was refused"
    with pytest.raises(ValueError, match="each token needs a parent from -1 to 4"):
        session.grow([7], [5])


# ----------------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (lambda lm: eagle1(lm, hidden_size=12), "reads features of width 12, the target's have 16: it does not fit"),
        (lambda lm: eagle1(lm, vocab_size=20), "the draft network knows 20 tokens, the target 19: it does not fit"),
        (lambda lm: eagle3(lm, layers=(0, 4)), "features of layer 4, but the target has hidden states 0 to 3"),
        (lambda lm: eagle3(lm, layers=(-5,)), "features of layer -5, but the target has hidden states 0 to 3"),
    ],
    ids=["width", "vocabulary", "layers", "layers from the end"],
)
def test_a_network_of_another_target_is_refused(llama, head, says):
    head = head(llama)
    with pytest.raises(ValueError, match=says):
        check_target(llama, head)
    with pytest.raises(ValueError, match=says):
        head.session(llama)


@pytest.mark.parametrize("tokens", [[], [3, 2], [1, 1], [-1, 2], [2, 19]], ids=str)
def test_a_vocabulary_that_is_none_is_refused(llama, tokens):
    with pytest.raises(ValueError, match="tokens must be ids of a vocabulary of 19, each once and ascending, got"):
        Eagle3Head(sizes(llama), (0,), tokens)


def test_eagle_3_needs_layers(llama):
    with pytest.raises(ValueError, match="an EAGLE-3 network needs feature_layers: numbers of the target's layers"):
        Eagle3Head(sizes(llama), ())


def test_both_are_draft_networks_and_bring_the_published_tree(llama):
    for make in NETWORKS.values():
        head = make(llama)
        assert isinstance(head, DraftNetwork)
        assert (head.width, head.vocab_size) == (16, VOCAB)
        assert head.tree["nodes"] == 59 and head.tree["top_k"] == 10
    assert eagle1(llama).feature_layers == (-1,)
    head.tree["nodes"] = 7
    assert eagle1(llama).tree["nodes"] == 59, "each has its own"
    assert llama.context == CONTEXT
