"""The compiled loops: the models they take, those models' own logits, and the same bits in every call."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import LOOPED, VOCAB, random_model
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tutorlib import LM, EightBits, TokenTree, greedy, run, speculative
from tutorlib.measures.cost import weight_bytes
from tutorlib.measures.memory import predicted
from tutorlib.model import llama, loop_weights
from tutorlib.model.cache import KeyValues
from tutorlib.model.llama import LoopCache

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2]


def tiny(kind=LlamaForCausalLM, config=LlamaConfig, **settings):
    sizes = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config(**sizes | {"initializer_range": 0.4} | settings)).eval()


def cache_of(model):
    return type(LM(model).session(TEXT[:2])._cache)


def assert_own_logits(model, lm=None):
    """Every position of a text, in calls of 1, 2, 3, 4 and 5 tokens."""
    session = (lm or LM(model)).session(TEXT[:2])
    rows, done = [session.feed()], 2
    for count in (1, 2, 3, 4, 5):
        rows.append(session.feed(TEXT[done : done + count]))
        done += count
    with torch.no_grad():
        expected = model(torch.tensor([TEXT])).logits[0, 1:]
    torch.testing.assert_close(torch.cat(rows), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 7, 9, 16, 17])
@pytest.mark.parametrize("whole", [False, True])
def test_a_product_is_that_of_numpy_and_has_the_same_bits_in_every_call(tokens, whole):
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((17, 48), dtype=np.float32)
    weight = numbers.standard_normal((5, 48), dtype=np.float32)
    matrix = loop_weights.Matrix(weight, None, numbers.standard_normal(5, dtype=np.float32))
    if whole:
        matrix = llama.in_eight_bits(matrix)
        assert np.abs(matrix.weight * matrix.scale[:, None] - weight).max() <= matrix.scale.max() / 2 + 1e-6
        weight = matrix.weight.astype(np.float32) * matrix.scale[:, None]
    found, alone = np.empty((tokens, 5), np.float32), np.empty((1, 5), np.float32)
    llama.loops().product(x[:tokens], *matrix, found, llama.loops().alone())
    np.testing.assert_allclose(found, x[:tokens] @ weight.T + matrix.more, rtol=0, atol=1e-4)
    for row in range(tokens):
        llama.loops().product(x[row : row + 1], *matrix, alone, llama.loops().alone())
        assert (alone[0] == found[row]).all()


def test_the_exponential_of_sixteen_numbers_is_that_of_numpy():
    loops = llama.loops()

    @loops.numba.njit
    def of_all(x, y):
        for i in range(0, x.shape[1], loops.WIDE):
            loops.save(loops.exponential(loops.load(x, 0, i)), y, 0, i)

    numbers = np.concatenate([np.linspace(-87, 88, 1 << 16), np.linspace(-1, 1, 1 << 12)]).astype(np.float32)
    ends = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1000, -1000, *[0] * 9], np.float32)
    found = np.empty((1, len(numbers) + len(ends)), np.float32)
    of_all(np.concatenate([numbers, ends])[None], found)
    right = np.exp(numbers.astype(np.float64))
    assert (np.abs(found[0, : len(right)] - right) <= np.spacing(right.astype(np.float32))).all()
    zero, minus_zero, nan, *most = found[0, len(right) :][:7]
    assert zero == minus_zero == 1 and np.isnan(nan)
    np.testing.assert_allclose(most, np.exp([88, -87, 88, -87]), rtol=1e-6)


@pytest.mark.parametrize("family", LOOPED)
def test_the_logits_are_the_models_own(models, family):
    model = models(family)
    assert cache_of(model) is LoopCache
    assert_own_logits(model)


@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 2},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
            }
        },
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0}},
        {"attn_implementation": "eager"},
    ],
    ids=lambda settings: next(iter(settings)) + str(next(iter(settings.values())))[:24],
)  # fmt: skip
def test_settings_that_the_loops_take(settings):
    model = tiny(**settings)
    assert cache_of(model) is LoopCache
    assert_own_logits(model)


def with_hook():
    model = tiny()
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def with_another_linear():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = tiny()
    model.model.layers[0].mlp.up_proj.__class__ = Doubled
    return model


def with_fewer_features():
    model = tiny()
    mlp = model.model.layers[1].mlp
    mlp.gate_proj, mlp.up_proj, mlp.down_proj = (
        torch.nn.Linear(*sizes, bias=False) for sizes in ((32, 16), (32, 16), (16, 32))
    )
    return model


def with_another_layer():
    model = tiny()
    model.model.layers[0].forward = lambda x, **others: x
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny().double(),
        lambda: tiny().bfloat16(),
        lambda: tiny(hidden_act="gelu"),
        lambda: tiny(hidden_size=24, num_attention_heads=3, num_key_value_heads=3),
        lambda: tiny(intermediate_size=40),
        lambda: tiny(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}),
        lambda: tiny(MistralForCausalLM, MistralConfig, sliding_window=8),
        lambda: tiny(attention_bias=True),
        lambda: tiny(mlp_bias=True),
        lambda: random_model("gpt2"),
        with_hook,
        with_another_linear,
        with_another_layer,
        with_fewer_features,
    ],
    ids=["float64", "bfloat16", "gelu", "heads of 8", "40 features", "dynamic rope", "a window", "biases",
         "more biases", "gpt2", "a hook", "another linear", "another layer", "fewer features"],
)  # fmt: skip
def test_other_models_are_computed_as_ever(make):
    assert cache_of(make()) is not LoopCache


@pytest.mark.parametrize(("can_give_way", "kind"), [(True, LoopCache), (False, KeyValues)])
def test_where_threads_cannot_give_way_many_are_left_to_pytorch(monkeypatch, can_give_way, kind):
    monkeypatch.setattr(llama, "CAN_GIVE_WAY", can_give_way)
    model = tiny()
    assert cache_of(model) is LoopCache
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert cache_of(model) is kind
    assert EightBits(LM(model)).session(TEXT).feed().shape == (1, VOCAB)


def test_a_hook_that_comes_and_goes_is_noticed():
    model = tiny()
    assert cache_of(model) is LoopCache
    hook = model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: output * 2)
    assert cache_of(model) is KeyValues
    hook.remove()
    assert cache_of(model) is LoopCache


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.mul_(2),
        lambda weight: weight.data.mul_(2),
        lambda weight: setattr(weight, "data", weight.data * 2),
    ],
    ids=["in place", "in place, unnoticed", "other memory"],
)
def test_weights_that_change_are_those_of_the_next_session(change):
    model = tiny()
    assert_own_logits(model)
    with torch.no_grad():
        change(model.model.layers[1].mlp.down_proj.weight)
    assert_own_logits(model)


def test_a_layer_that_computes_something_else_is_found_out(monkeypatch):
    """The probe compares the logits before the loops are used."""
    model = tiny()
    made = llama.Llama(model)
    made.eps = np.float32(0.5)
    made.layers = [(*layer[:-1], made.eps) for layer in made.layers]
    monkeypatch.setattr(llama, "of", lambda model: made)
    assert cache_of(model) is KeyValues


def test_without_numba_everything_is_as_ever(monkeypatch):
    for broken in (ImportError, None):
        monkeypatch.undo()
        llama.loops.cache_clear()
        llama._known.clear()
        if broken is None:
            monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        else:
            monkeypatch.setitem(sys.modules, "tutorlib.model.loops", None)
            monkeypatch.delattr("tutorlib.model.loops", raising=False)
        model = tiny()
        assert cache_of(model) is KeyValues
        with pytest.raises(ValueError, match="no copy in eight bits: that needs numba"):
            EightBits(LM(model))
    monkeypatch.undo()
    llama.loops.cache_clear()
    llama._known.clear()


def test_rows_trees_and_pieces_have_the_same_bits_as_one_token_at_a_time():
    lm = LM(tiny())
    alone = lm.session(TEXT[:3])
    expected = torch.cat([alone.feed(), *(alone.feed([token]) for token in TEXT[3:])])
    pieces = lm.session(TEXT[:3])
    assert torch.cat([pieces.feed(TEXT[3:8]), pieces.feed(TEXT[8:])]).equal(expected)
    tree = lm.session(TEXT[:3])
    tree.feed()
    path = [1, 3, 4]
    rows = tree.feed_tree(TokenTree([7, TEXT[3], 8, TEXT[4], TEXT[5], 2], [-1, -1, 0, 1, 3, 3]))
    assert rows[path].equal(expected[1:4])
    tree.keep(path)
    assert tree.feed(TEXT[6:]).equal(expected[4:])
    batch = lm.batch([[9] * 20, TEXT[:3], [1]])
    first = batch.feed([[], [], []])[1]
    assert torch.cat([first, batch.feed([[1], TEXT[3:], [2, 2]])[1]]).equal(expected)


def test_the_beginning_of_a_long_prompt_is_a_matrix_product_and_everything_else_is_as_without(monkeypatch):
    model, rows = tiny(), []
    for many in (4, 1000):
        monkeypatch.setattr(llama, "MANY", many)
        session, batch = LM(model).session(TEXT[:12], hidden=(0, 1, -1)), LM(model).batch([TEXT[:12], TEXT[:3]])
        rows.append([session.feed([5]), *session.prompt_hidden.values(), *session.hidden.values()])
        rows[-1] += [session.feed([1]), *batch.feed([[1, 2], [3]])]
    for one, other in zip(*rows, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_rows_of_a_batch_change_places_without_another_layout():
    batch = LM(tiny()).batch([TEXT[:3], TEXT[:5], [1]])
    batch.feed([[], [], []])
    compiled = len(llama.loops().layer.signatures)
    batch.reorder([1, 1, 0, 2])
    rows = batch.feed([[1], [2], [3], [4]])
    assert len(llama.loops().layer.signatures) == compiled
    assert rows[2].equal(LM(tiny()).session(TEXT[:3]).feed([3])[-1:])


def test_a_static_session_has_room_for_its_context_and_a_tree():
    lm = LM(tiny(), context=20)
    session = lm.session(TEXT, cache="static")
    before = session._cache.keys.ctypes.data
    session.feed([1, 2])
    assert session._cache.keys.ctypes.data == before
    with pytest.raises(ValueError, match="needs 219 slots, but the static cache has 148"):
        session.feed_tree(TokenTree([1] * 200, [-1] * 200))


# ----------------------------------------------------------------------------------------------------------------------
# Eight bits


def test_a_copy_in_eight_bits_drafts_nearly_what_its_model_chooses_and_changes_nothing():
    target = LM(tiny(initializer_range=0.2))
    copy = EightBits(target)
    assert run(speculative(target, copy, TEXT[:4], gamma=4), 24).tokens == run(greedy(target, TEXT[:4]), 24).tokens
    rows = copy.session(TEXT).feed(TEXT[:3])
    assert rows.equal(copy.in_full(TEXT + TEXT[:3], 4)[0])
    hidden = copy.session(TEXT, hidden=(0, 2))
    logits = hidden.feed(TEXT[:3])
    assert copy.read_out(hidden.hidden[2], normed=True).equal(logits)
    assert copy.read_out(hidden.hidden[0][:1]).shape == (1, VOCAB)
    far = (copy.in_full(TEXT, 9)[0] - target.in_full(TEXT, 9)[0]).abs().max()
    assert 0 < far < 0.1 * target.in_full(TEXT, 9)[0].std()


@pytest.mark.parametrize("many", [4, 1000], ids=["by matrix products", "by loops"])
def test_a_copy_takes_over_the_prompt_of_its_model_whose_logits_keep_their_bits(monkeypatch, many):
    monkeypatch.setattr(llama, "MANY", many)
    target = LM(tiny(initializer_range=0.2))
    copy = EightBits(target)
    sessions = target.session(TEXT), copy.session(TEXT)
    sessions[0].rollback(1)
    sessions[0].share_prompt(sessions[1])
    rows = [session.feed(tokens) for session, tokens in zip(sessions, ([TEXT[-1], 7], [7]))]
    assert rows[0].equal(target.session(TEXT).feed([7]))
    own = copy.session(TEXT).feed([7])
    assert not rows[1].equal(own), "the copy has read the prompt itself"
    torch.testing.assert_close(rows[1], own, rtol=0, atol=0.1 * float(own.std()))
    assert [session.calls for session in sessions] == [1, 1] and target.calls == 2


def test_a_copy_alone_reads_its_prompt_itself_whatever_it_has_drafted_for():
    target = LM(tiny(initializer_range=0.2))
    copy = EightBits(target)
    before = copy.session(TEXT).feed()
    texts = [run(greedy(copy, TEXT), 12).tokens]
    run(speculative(target, copy, TEXT), 12)
    texts += [run(speculative(copy, draft, TEXT), 12).tokens for draft in (target, copy)]
    assert texts[0] == texts[1] == texts[2] and copy.session(TEXT).feed().equal(before)


def test_a_prompt_is_shared_with_a_copy_of_the_same_model_alone_and_only_while_it_is_unread():
    target, short = LM(tiny(initializer_range=0.2)), TEXT[:9]
    other = EightBits(LM(tiny(initializer_range=0.3)))
    asked = target.session(TEXT), other.session(TEXT)
    read = target.session(TEXT), EightBits(target).session(TEXT)
    read[1].feed()
    few = target.session(short), EightBits(target).session(short)
    others = target.session(TEXT), EightBits(target).session([1, *TEXT])
    broken = LM(tiny())
    damaged = broken.session(TEXT), EightBits(broken).session(TEXT)
    with torch.no_grad():
        broken.model.model.embed_tokens.weight.fill_(torch.nan)
    for session, draft in (asked, read, few, others, damaged):
        held = draft._computed
        session.share_prompt(draft)
        assert (session._computed, draft._computed) == (0, held)


def test_a_copy_takes_a_quarter_of_the_memory_of_its_matrices():
    target = LM(tiny())
    copy = EightBits(target)
    matrices, factors = 2 * 3 * 32 * (32 + 48) + VOCAB * 32, 2 * (32 + 16 + 16 + 32 + 48 + 48 + 32) + VOCAB
    angles = sum(buffer.nbytes for buffer in target.model.buffers())
    assert weight_bytes(target) - weight_bytes(copy) == 3 * matrices - 4 * factors + angles
    assert predicted(copy).weights == weight_bytes(copy)


def test_a_model_that_the_loops_do_not_compute_has_no_copy():
    with pytest.raises(ValueError, match="GPT2LMHeadModel in float32 on cpu has no copy in eight bits"):
        EightBits(LM(random_model("gpt2")))
    with pytest.raises(ValueError, match="LlamaForCausalLM in bfloat16 on cpu has no copy in eight bits"):
        EightBits(LM(tiny().bfloat16()))


@pytest.mark.slow
def test_what_was_compiled_is_kept_for_the_next_process():
    """What this process has used, another need not compile."""
    code = """
import warnings; warnings.simplefilter("error")
from test_llama import *
use_both()
stats = [llama.loops().layer.stats, llama.loops().product.stats]
assert not any(sum(one.cache_misses.values()) for one in stats), stats
"""
    use_both()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="tests", check=False)
    assert done.returncode == 0, done.stderr


def use_both():
    cache_of(tiny())
    EightBits(LM(tiny())).session(TEXT).feed()
