"""Every lossless method in one table, and what their tests share: small models, warps, the distance from sampling.

A method is one line of `SAME_TEXT` or of `SAME_DISTRIBUTION`: a function (lm, draft, prompt, gamma, *, rng, warp) that
returns its steps. `draft` is a second model. Where a method has heads or a network instead, they know what the draft
knows if the models are tables, and are random if the models have layers. `tests/test_lossless.py` holds what all of
them promise, `tests/test_fuzz.py` tries them on tables with zeros and on warps that fail.
"""

import contextlib
import copy
import functools
import math

import pytest
import torch
from conftest import CONTEXT, VOCAB, exactly, random_model
from draft_networks import (
    dflash_head,
    eagle1,
    eagle3,
    joint_head,
    knowing_block,
    knowing_joint,
    knowing_masks,
    mtp_head,
    parallel_head,
    perfect_network,
    reduced,
)
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
)
from two_tokenizers import renumbered

from tutorlib.decoders import (
    greedy,
    jump_ahead,
    lookahead,
    prompt_lookup,
    sample_batch,
    speculative,
    speculative_batch,
    string_match,
    suffix_lookup,
    token_intersection,
)
from tutorlib.decoders.dflash import dflash
from tutorlib.decoders.dspark import dspark
from tutorlib.decoders.eagle import eagle
from tutorlib.decoders.early_exit import early_exit
from tutorlib.decoders.medusa import medusa
from tutorlib.decoders.mtp import mtp
from tutorlib.decoders.parallel_draft import parallel_draft
from tutorlib.drafting.dflash2_head import DFlash2Head
from tutorlib.drafting.draft_trees import chain_draft, drawn_chain, drawn_tree, dynamic_tree, static_tree
from tutorlib.drafting.dspark_head import DSparkHead
from tutorlib.drafting.lookup_draft import with_lookup
from tutorlib.drafting.medusa_heads import MedusaHeads
from tutorlib.drafting.mtp_head import MtpHead
from tutorlib.drafting.rules import block, match, match_drawn
from tutorlib.drafting.survival import confident_chain
from tutorlib.measures.proof import exact_distribution, target_distribution, total_variation
from tutorlib.model.batch import Batch
from tutorlib.model.lm import LM
from tutorlib.model.own_cache import OwnCache
from tutorlib.model.session import NaNLogits, Session
from tutorlib.model.table import TableLM, TableTokenizer
from tutorlib.running.decoding import run
from tutorlib.sampling.budgets import stop_when_unsure, thinking_budget
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import (
    dry,
    dynamic_temperature,
    eta_cutoff,
    exactly_k,
    frequency_penalty,
    green_list,
    logit_bias,
    min_p,
    no_repeat_ngram,
    presence_penalty,
    repetition_penalty,
    synthid,
    temperature,
    top_h,
    top_k,
    top_n_sigma,
    top_p,
    xtc,
)

EXACT = 1e-9
LETTERS = TableTokenizer([chr(ord("a") + token) for token in range(VOCAB)])
# Nothing; one of each kind; three pairs. None of their thresholds lies on a sum of probabilities of the models below.
WARPS = {
    "no warp": [],
    "temperature": [temperature(1.7)],
    "top-k": [top_k(2)],
    "top-p": [top_p(0.71)],
    "min-p": [min_p(0.37)],
    "penalty": [repetition_penalty(1.6)],
    "temperature and top-p": [temperature(0.6), top_p(0.83)],
    "penalty and temperature": [frequency_penalty(0.4), temperature(1.3)],
    "penalty and top-k": [no_repeat_ngram(4), top_k(2)],
    # The prompts end in a thought, which begins after each "a" and ends with "cb".
    "thinking": [thinking_budget([0], [2, 1], at_most=4, at_least=3, wait=0)],
    "unsure and temperature": [stop_when_unsure(1, below=1.0, best=2), temperature(1.3)],
    "bias, window and exactly k": [logit_bias({1: 0.7}), presence_penalty(0.6, last=2), exactly_k(2)],
    "n-sigma and dynamic temperature": [top_n_sigma(1.13), dynamic_temperature(1.2, 0.7)],
    "top-h and eta": [top_h(0.87), eta_cutoff(0.31)],
    "DRY and XTC": [dry(0.9, allowed_length=1), xtc(0.6, 0.21, [temperature(1.4)])],
    "green list": [green_list(5, 1.5)],
    "SynthID": [synthid([1, 2], width=2)],
}
SIZES = {"vocab_size": 3, "bos_token_id": None, "eos_token_id": None}
LAYERS = {
    **SIZES, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "initializer_range": 0.8,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**LAYERS),
    "mistral, window 3": MistralConfig(**LAYERS, sliding_window=3),
    "gpt2": GPT2Config(**SIZES, n_embd=8, n_layer=2, n_head=2, n_positions=16, initializer_range=0.8),
}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]}
# A constant scaling of rotary angles; one that ends the context at half of its positions; and two with caches of their
# own, of keys and values, and of states besides.
ODD_CONFIGS = {
    "llama, yarn": LlamaConfig(**LAYERS, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4}),
    "phi3, longrope": Phi3Config(
        **LAYERS, pad_token_id=None, original_max_position_embeddings=8, rope_parameters=LONGROPE),
    "gpt_neo, window 3": GPTNeoConfig(
        **SIZES, hidden_size=8, num_layers=2, num_heads=2, max_position_embeddings=16, initializer_range=0.8,
        attention_types=[[["global", "local"], 1]], window_size=3),
    "lfm2, with states": Lfm2Config(**LAYERS, pad_token_id=None, layer_types=["conv", "full_attention"]),
}  # fmt: skip

# ----------------------------------------------------------------------------------------------------------------------
# Models


@functools.cache
def unlike(family, seed):
    """A random model in float64 whose text does not repeat itself: with an output head of its own."""
    model = random_model(family, torch.float64, seed)
    head = model.get_output_embeddings()
    weights = 0.5 * torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(seed))
    head.weight = torch.nn.Parameter(weights.double())
    return LM(model, LETTERS, context=CONTEXT)


def table(vocab=3):
    """Every token is possible after every context of two."""
    return TableLM.random(vocab, 2, seed=3)


def tables(vocab, **options):
    """A target that looks two tokens back, and a draft that looks one back."""
    return TableLM.random(vocab, 2, 5, **options), TableLM.random(vocab, 1, 3, **options)


def with_zeros(vocab):
    """The same target, and a draft that is certain where it can be: there are fewer ways to draw then."""
    rows = {"": [0.3, 0.3, 0.4], "a": [0.6, 0.0, 0.4], "b": [0.0, 1.0, 0.0], "c": [0.0, 0.3, 0.7]}
    return tables(vocab)[0], TableLM(rows if vocab == 3 else {"": [0.3, 0.7], "b": [1.0, 0.0]})


def ring(size, context=64):
    """Sure of everything: after each token comes the next, and after the last the first."""
    return TableLM(
        {(token,): [float(other == (token + 1) % size) for other in range(size)] for token in range(size)},
        context=context,
    )


@functools.cache
def small(family, seed=1):
    """A random model with three tokens, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config({**CONFIGS, **ODD_CONFIGS}[family]).to(torch.float64)
    lm = LM(model, TableTokenizer("abc"))
    assert isinstance(lm.session([0])._cache, OwnCache) == (family in ("gpt_neo, window 3", "lfm2, with states"))
    return lm


class FailingSession(Session):
    """A static session in which a longer call has failed, with NaN, before each one that does not."""

    def _fail(self):
        if self.room:
            with nan_weights(self.lm), pytest.raises(NaNLogits):
                super().feed([0, 1, 0, 1][: self.room])

    def feed(self, tokens=()):
        self._fail()
        return super().feed(tokens)

    def feed_tree(self, tree):
        self._fail()
        return super().feed_tree(tree)


class FailingBatch(Batch):
    def feed(self, lists):
        longer = [[0, 1, 0, 1][: min(row + 2, room)] for row, room in enumerate(self.room)]
        if any(longer):
            with nan_weights(self.lm), pytest.raises(NaNLogits):
                super().feed(longer)
        return super().feed(lists)


class FailingLM(LM):
    """The same model, whose sessions are static, and whose calls fail as often as they do not."""

    def session(self, prompt, hidden=None, cache="dynamic"):
        return FailingSession(self, prompt, hidden=hidden, cache="static")

    def batch(self, prompts):
        return FailingBatch(self, prompts)


@contextlib.contextmanager
def nan_weights(lm):
    """The first weights of a model, its embeddings, are NaN for a while."""
    weights = lm.model.get_input_embeddings().weight.data
    before = weights.clone()
    weights.fill_(math.nan)
    try:
        yield
    finally:
        weights.copy_(before)


@functools.cache
def failing(family):
    return FailingLM(small(family).model, TableTokenizer("abc"))


class KnowingHeads(MedusaHeads):
    """Heads for tables: each guesses what a draft would write in its place, after the likeliest next token."""

    def __init__(self, draft, heads):
        super().__init__(draft.vocab_size, draft.vocab_size, heads, 0)
        self.draft = draft

    def forward(self, hidden):
        rows, token = [], int(hidden.argmax())
        for _ in range(len(self)):
            rows.append(self.draft.log_probs([token]))
            token = int(rows[-1].argmax())
        return torch.stack(rows)


def random_heads(lm, heads=2, seed=0):
    """Heads that guess anything: often wrong, often right with so few tokens."""
    made = MedusaHeads(lm.width, lm.vocab_size, heads, 1).to(lm.dtype)
    for number, parameter in enumerate(made.parameters()):
        generator = torch.Generator().manual_seed(100 * seed + number)
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=lm.dtype)
    return made


@functools.cache
def heads_of(lm, draft, heads):
    return KnowingHeads(draft, heads) if lm.model is None else random_heads(lm, heads)


class Forcing:
    """As a grammar that allows everything, and says that what a draft would write has to follow."""

    def __init__(self, draft, gamma):
        self.draft, self.gamma = draft, gamma

    def __call__(self, logits, histories=None):
        return logits

    def forced_tokens(self, history):
        return run(greedy(self.draft, history[-self.draft.context + 1 :]), self.gamma, stop=()).tokens


def looking_up(draft):
    """The draft with a lookup of its own, if it is a model at all: some tests pass others, which are refused."""
    return with_lookup(draft, ahead=2, ngrams=(2, 1)) if isinstance(draft, LM) else draft


@functools.cache
def network_of(make, lm, draft):
    return perfect_network(draft) if lm.model is None else make(lm)


@functools.cache
def block_of(lm, draft, gamma):
    return knowing_block(draft, gamma + 1) if lm.model is None else dflash_head(lm, block=gamma + 1)


@functools.cache
def modules_of(lm, draft, modules):
    return perfect_network(draft, MtpHead) if lm.model is None else mtp_head(lm, modules=modules)


@functools.cache
def masks_of(lm, draft, gamma):
    return knowing_masks(draft, gamma - 1) if lm.model is None else parallel_head(lm, masks=gamma - 1)


@functools.cache
def joint_of(lm, draft, gamma, make=DSparkHead):
    if lm.model is None:
        return knowing_joint(draft, gamma + 1, make)
    return joint_head(lm, block=gamma + 1, make=make)


@functools.cache
def ending_early(lm, draft):
    """The model itself if it ends after its first layer as a draft; any other with a draft in place of that."""
    if type(getattr(lm, "model", None)).__name__ in ("LlamaForCausalLM", "MistralForCausalLM"):
        return lm
    other, early = copy.copy(lm), copy.copy(draft)
    early.context = lm.context  # as the model's own layers have it
    other.first_layers = lambda layers: early
    return other


@functools.cache
def other_tokenizer(draft):
    """The draft with its tokens in another order, which a tokenizer of its own knows."""
    return renumbered(draft) if isinstance(getattr(draft, "tokenizer", None), TableTokenizer) else draft


# ----------------------------------------------------------------------------------------------------------------------
# Methods


class Row:
    """The middle one of three rows of a batch, as if it were a single text; the others are shorter, and seeded."""

    def __init__(self, method, lm, *draft, prompt, rng=None, alone=False, **how):
        prompts = [prompt] if alone else [prompt[-1:], prompt, prompt[1:] or prompt]
        self.row = len(prompts) // 2
        rngs = [Seeded(row) for row in range(len(prompts))]
        rngs[self.row] = rng
        self.steps = method(lm, *draft, prompts, rngs=None if rng is None else rngs, **how)
        self.prompt, self.left = prompt, lm.context - len(prompt)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration("context")
        step = next(self.steps)[self.row]
        self.left -= len(step.tokens)
        return step

    def __getattr__(self, name):
        return getattr(self.steps, name)


def _eagle(make, tree):
    """EAGLE as a line of the table; `tree(gamma)` makes a shape."""
    return lambda lm, draft, prompt, gamma, **how: eagle(
        lm, network_of(make, lm, draft), prompt, shape=tree(gamma), **how
    )


def _early_exit(lm, draft, prompt, gamma, **how):
    return early_exit(ending_early(lm, draft), prompt, layers=1, gamma=gamma, **how)


def _dflash(shape):
    """DFlash as a line of the table; `shape(gamma)` makes a shape."""
    return lambda lm, draft, prompt, gamma, **how: dflash(
        lm, block_of(lm, draft, gamma), prompt, shape=shape(gamma), **how
    )


def _mtp(modules, shape):
    """Multi-token prediction as a line of the table, with so many modules."""
    return lambda lm, draft, prompt, gamma, **how: mtp(
        lm, modules_of(lm, draft, modules), prompt, shape=shape(gamma), **how
    )


def _parallel(shape):
    """Parallel drafts as a line of the table."""
    return lambda lm, draft, prompt, gamma, **how: parallel_draft(
        lm, masks_of(lm, draft, max(2, gamma)), prompt, shape=shape(gamma), **how
    )


def _dspark(shape):
    """The same for DSpark."""
    return lambda lm, draft, prompt, gamma, **how: dspark(
        lm, joint_of(lm, draft, gamma), prompt, shape=shape(gamma), **how
    )


def _dflash2(shape):
    """The same for DFlash with DFlash2's joint."""
    return lambda lm, draft, prompt, gamma, **how: dflash(
        lm, joint_of(lm, draft, gamma, DFlash2Head), prompt, shape=shape(gamma), **how
    )


# With one seed these write the very text that `sample` writes.
SAME_TEXT = {
    "sample_batch": lambda lm, draft, prompt, gamma, **how: Row(sample_batch, lm, prompt=prompt, **how),
    "prompt_lookup": lambda lm, draft, prompt, gamma, **how: prompt_lookup(lm, prompt, gamma=gamma, **how),
    "suffix_lookup": lambda lm, draft, prompt, gamma, **how: suffix_lookup(lm, prompt, gamma=gamma, least=0.0, **how),
    "jump_ahead": lambda lm, draft, prompt, gamma, **how: jump_ahead(lm, prompt, grammar=Forcing(draft, gamma), **how),
    "lookahead": lambda lm, draft, prompt, gamma, **how: lookahead(lm, prompt, window=gamma, guesses=2, **how),
    "string_match": lambda lm, draft, prompt, gamma, **how: string_match(
        lm, other_tokenizer(draft), prompt, gamma=gamma, **how
    ),
    "speculative, match": lambda lm, draft, prompt, gamma, **how: speculative(
        lm, draft, prompt, gamma=gamma, rule=match, **how
    ),
    "medusa": lambda lm, draft, prompt, gamma, **how: medusa(
        lm, heads_of(lm, draft, gamma), prompt, shape=[(0,) * gamma, (1,) * gamma], **how
    ),
    "eagle, chain": _eagle(eagle1, chain_draft),
    "eagle, static": _eagle(eagle3, lambda gamma: static_tree([(0,) * gamma, (1,) * gamma])),
    "eagle, dynamic": _eagle(reduced, lambda gamma: dynamic_tree(2 * gamma, gamma, 2)),
    "early_exit, match": lambda lm, draft, prompt, gamma, **how: _early_exit(
        lm, draft, prompt, gamma, rule=match, **how
    ),
    "dflash, dynamic": _dflash(lambda gamma: dynamic_tree(2 * gamma, gamma, 2 * gamma)),
    "mtp, dynamic": _mtp(1, lambda gamma: dynamic_tree(2 * gamma, gamma, 2)),
    "parallel_draft, dynamic": _parallel(lambda gamma: dynamic_tree(2 * gamma, gamma, 2 * gamma)),
    "dspark, dynamic": _dspark(lambda gamma: dynamic_tree(2 * gamma, gamma, 2)),
    "dflash2, dynamic": _dflash2(lambda gamma: dynamic_tree(2 * gamma, gamma, 2)),
}
# These take draws of their own: the same distribution, but another text.
SAME_DISTRIBUTION = {
    "speculative": lambda lm, draft, prompt, gamma, **how: speculative(lm, draft, prompt, gamma=gamma, **how),
    "speculative, with lookup": lambda lm, draft, prompt, gamma, **how: speculative(
        lm, looking_up(draft), prompt, gamma=gamma, **how
    ),
    "speculative_batch": lambda lm, draft, prompt, gamma, **how: Row(
        speculative_batch, lm, draft, prompt=prompt, gamma=gamma, **how
    ),
    **{
        f"speculative, {rule.__name__}": lambda lm, draft, prompt, gamma, rule=rule, **how: speculative(
            lm, draft, prompt, gamma=gamma, rule=rule, **how
        )
        for rule in (block, match_drawn)
    },
    "speculative_batch, block": lambda lm, draft, prompt, gamma, **how: Row(
        speculative_batch, lm, draft, prompt=prompt, gamma=gamma, rule=block, **how
    ),
    "token_intersection, block": lambda lm, draft, prompt, gamma, **how: token_intersection(
        lm, other_tokenizer(draft), prompt, gamma=gamma, rule=block, **how
    ),
    "token_intersection": lambda lm, draft, prompt, gamma, **how: token_intersection(
        lm, other_tokenizer(draft), prompt, gamma=gamma, **how
    ),
    "eagle, drawn chain": _eagle(eagle1, drawn_chain),
    "eagle, drawn chain, block": _eagle(eagle1, lambda gamma: drawn_chain(gamma, block)),
    "early_exit": _early_exit,
    "dflash, drawn chain": _dflash(drawn_chain),
    "mtp, drawn chain": _mtp(2, drawn_chain),
    "parallel_draft, drawn chain": _parallel(drawn_chain),
    "dspark, drawn chain": _dspark(drawn_chain),
    "dflash2, drawn chain": _dflash2(drawn_chain),
    "dspark, confident chain": _dspark(
        lambda gamma: confident_chain([2 + 0.5 * drafted for drafted in range(gamma + 1)])
    ),
    "eagle, drawn tree": _eagle(reduced, lambda gamma: drawn_tree([(0,) * gamma, (1,) + (0,) * (gamma - 1)])),
}
METHODS = SAME_TEXT | SAME_DISTRIBUTION
# What the contract has to know of a method besides.
WITHOUT_A_COUNT = (
    "sample_batch",
    "jump_ahead",
    "medusa",
    "eagle, static",
    "eagle, dynamic",
    "eagle, drawn tree",
    "dflash, dynamic",
    "dflash, drawn chain",
    "mtp, dynamic",
    "parallel_draft, dynamic",
    "parallel_draft, drawn chain",
    "dspark, dynamic",
    "dspark, drawn chain",
    "dspark, confident chain",
    "dflash2, dynamic",
    "dflash2, drawn chain",
)  # no gamma to refuse
WRONG_ON_A_RING = ("sample_batch",)  # no drafts, or drafts that are wrong on a text that repeats one cycle
# What is drawn has not the distribution p even if the draft is the target: a drawn token must be the target's own, or
# the guesses of a block do not know each other. (A confident chain has it, but ends where it is not confident.)
NOT_P = [
    name
    for name in SAME_DISTRIBUTION
    if name.endswith(("match_drawn", "confident chain")) or name.startswith(("dflash,", "parallel_draft"))
]
AFTER_ONE = [
    name
    for name in METHODS
    if name.startswith(("medusa", "eagle", "early_exit", "dflash", "dspark", "mtp", "parallel_draft"))
]  # their first step drafts nothing
TWO_MODELS = [name for name in METHODS if name.startswith(("speculative", "token_intersection", "string_match"))]


def on(method, draft):
    """A method with a draft, heads or a network as one of the target alone, which is what `distance` takes."""
    return lambda lm, prompt, **how: method(lm, draft, prompt, **how)


def distance(method, lm, prompt, length, warp=(), stop=(), **settings):
    """Total variation between what a method writes and what plain sampling from its model does."""
    with exactly(torch.float64):
        written = exact_distribution(lambda rng: method(lm, prompt, rng=rng, warp=warp, **settings), length, stop=stop)
        return total_variation(written, target_distribution(lm, prompt, length, warp=warp, stop=stop))
