"""EAGLE for tests: random networks, one that knows a ring, and its arithmetic written out a second time.

`law` and `best_tree` share nothing with the library: no cache, no mask, no pruning, each path from its beginning.
"""

import functools
import math

import torch
from transformers import LlamaConfig

from tutorlib.drafting.dflash_head import DFlashHead
from tutorlib.drafting.dspark_head import DSparkHead
from tutorlib.drafting.eagle_head import DraftNetwork, Eagle3Head, EagleHead
from tutorlib.drafting.mtp_head import MtpHead
from tutorlib.drafting.parallel_head import ParallelHead
from tutorlib.model.tree import TokenTree

BASE = 10000.0  # of the rotary angles


def sizes(lm, **changes):
    """The configuration of a small network for a target; its heads, where there are several, share keys and values."""
    heads = next(heads for heads in (2, 3, 5, 1) if lm.width % heads == 0)
    return LlamaConfig(
        **{
            "vocab_size": lm.vocab_size,
            "hidden_size": lm.width,
            "intermediate_size": 7,
            "num_hidden_layers": 1,
            "num_attention_heads": heads,
            "num_key_value_heads": 1,
            "head_dim": 4,
            "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": BASE},
            **changes,
        }
    )


def randomised(head, dtype, seed=0):
    """`head` with random weights, in `dtype`: its guesses, and what its places read, depend on all that goes in."""
    for number, (name, weight) in enumerate(sorted(head.named_parameters())):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        weight.data = torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 2
        if weight.dim() == 1:
            weight.data += "norm" in name
        elif "embed" not in name:
            weight.data *= 3 / math.sqrt(weight.shape[1])
    return head.to(dtype).eval()


def eagle1(lm, seed=0, make=EagleHead, bias=True, **changes):
    return randomised(make(sizes(lm, **changes), bias=bias), lm.dtype, seed)


def eagle3(lm, seed=0, make=Eagle3Head, layers=None, tokens=None, norms=(), **changes):
    layers = (0, lm.layers // 2, -1) if layers is None else layers
    head = make(sizes(lm, **changes), layers, tokens, **dict.fromkeys(norms, True))
    return randomised(head, lm.dtype, seed)


def mtp_head(lm, seed=0, make=MtpHead, modules=1, **changes):
    return randomised(make(sizes(lm, **changes), modules), lm.dtype, seed)


def parallel_head(lm, seed=0, masks=3, layers=None, tokens=None, **changes):
    """A random parallel draft; its masks have the target's last token."""
    layers = (0, lm.layers // 2, -1) if layers is None else layers
    head = ParallelHead(sizes(lm, **changes), layers, tokens, mask=lm.vocab_size - 1, masks=masks)
    return randomised(head, lm.dtype, seed)


def reduced(lm, seed=0, make=Eagle3Head):
    """EAGLE-3 that does not know the target's first token, nor one in its middle."""
    unknown = {0, lm.vocab_size // 2 + 1}
    return eagle3(lm, seed, make, tokens=[token for token in range(lm.vocab_size) if token not in unknown])


NETWORKS = {"EAGLE-1": eagle1, "EAGLE-3": eagle3, "EAGLE-3, fewer tokens": reduced}


def ring_network(lm, base=DraftNetwork):
    """Knows that on a ring each token is followed by the next; and guesses so where its inputs belong together.

    A feature of the ring says which token comes. So the token that goes in beside it must be that one: where it is
    another, the network says the same token once more, which is wrong.
    """

    class RingNetwork(base):
        feature_layers = (-1,)

        def __init__(self):
            super().__init__(sizes(lm))
            self.fc = torch.nn.Linear(1, 1)

        def start(self, features):
            return torch.nn.functional.one_hot(features.argmax(-1), lm.vocab_size).to(self.fc.weight.dtype)

        def forward(self, tokens, hidden, rotation, mix=None):
            belongs = hidden.argmax(-1) == tokens
            return 5 * torch.nn.functional.one_hot((tokens + belongs) % lm.vocab_size, lm.vocab_size).to(hidden.dtype)

        def read_out(self, hidden, target=None):
            return hidden

    return RingNetwork()


def perfect_network(lm, base=DraftNetwork):
    """Says what a table says that looks one token back, so that what is drawn from it is always accepted."""

    class PerfectNetwork(base):
        feature_layers = (-1,)

        def __init__(self):
            super().__init__(sizes(lm))
            self.fc = torch.nn.Linear(1, 1, dtype=lm.dtype)

        def start(self, features):
            return features

        def forward(self, tokens, hidden, rotation, mix=None):
            return torch.stack([torch.stack([lm.log_probs([token]) for token in row]) for row in tokens.tolist()])

        def read_out(self, hidden, target=None):
            return hidden

    return PerfectNetwork().to(lm.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# The networks a second time, as the papers and the published files have them, in float64


def features_of(lm, text, layers):
    """The target's features of each token of a text, (tokens, width * layers), without a session."""
    if lm.model is None:  # a table
        states = torch.stack([lm.log_probs(text[: place + 1]) for place in range(len(text))])
        return torch.cat([states] * len(layers), dim=-1)
    with torch.no_grad():
        states = lm.model(torch.tensor([text]), output_hidden_states=True).hidden_states
    return torch.cat([states[layer][0] for layer in layers], dim=-1)


def law(head, lm, text, path=(), features=None):
    """Logits (vocab) of what follows a text and then a path of guesses, everything computed anew.

    `features` are of all tokens of the text but the last.
    """
    weights = _weights(head)
    features = features_of(lm, list(text), head.feature_layers)[: len(text) - 1] if features is None else features
    step, given = _module if "layers.0.enorm.weight" in weights else _step1, features.double()
    if "midlayer.hidden_norm.weight" in weights:
        step, given = _step3, _joined(weights, head, given) @ weights["fc.weight"].T
    tokens = list(text[1:])
    made = step(weights, head, tokens, given)
    for token in path:  # a guess is read beside what the network itself made of the place before it
        tokens, given = [*tokens, token], torch.cat([given, made[-1:]])
        made = step(weights, head, tokens, given)
    return _read_out(weights, head, lm, made[-1])


def law_of_modules(head, lm, text, path=()):
    """The same for several modules: each reads what the one before it made of the whole text, one token further on."""
    weights, given, tokens = _weights(head), features_of(lm, list(text), (-1,))[:-1].double(), [*text, *path]
    for number in range(len(path) + 1):
        given = _module(weights, head, tokens[1 + number :][: len(given)], given, f"layers.{number}.")
    return _read_out(weights, head, lm, given[-1])


def law_of_masks(head, lm, text, path=()):
    """The same for a parallel draft: behind the text there are masks, and what the path is makes no difference."""
    weights, given = _weights(head), features_of(lm, list(text), head.feature_layers)[:-1].double()
    given = torch.cat([given, *[weights["mask_hidden"]] * head.masks]) @ weights["fc.weight"].T
    made = _step3(weights, head, [*text[1:], *[head.mask] * head.masks], given)
    return _read_out(weights, head, lm, made[len(text) - 2 + len(path)])


def _weights(head):
    weights = {name: value.detach() for name, value in head.state_dict().items()}
    return {name: value.double() if value.is_floating_point() else value for name, value in weights.items()}


def _module(weights, head, tokens, given, prefix="layers.0."):
    embedded = _normed(weights["embed_tokens.weight"][tokens], weights[f"{prefix}enorm.weight"], head)
    pair = torch.cat([embedded, _normed(given, weights[f"{prefix}hnorm.weight"], head)], dim=-1)
    x = pair @ weights[f"{prefix}eh_proj.weight"].T
    made = _layer(weights, head, prefix, x, _normed(x, weights[f"{prefix}input_layernorm.weight"], head))
    return _normed(made, weights[f"{prefix}norm.weight"], head)


def _step1(weights, head, tokens, given):
    bias = weights.get("fc.bias", 0.0)
    x = torch.cat([weights["embed_tokens.weight"][tokens], given], dim=-1) @ weights["fc.weight"].T + bias
    return _layer(weights, head, "layers.0.", x, x)


def _joined(weights, head, given):
    """What EAGLE-3 makes of the features before it reads them: some norm all of them at once, some each layer's."""
    if "input_norm.weight" in weights:
        return _normed(given, weights["input_norm.weight"], head)
    if "fc_norm.0.weight" not in weights:
        return given
    parts = given.split(head.width, dim=-1)
    return torch.cat([_normed(part, weights[f"fc_norm.{i}.weight"], head) for i, part in enumerate(parts)], dim=-1)


def _step3(weights, head, tokens, given):
    embedded = _normed(weights["embed_tokens.weight"][tokens], weights["midlayer.input_layernorm.weight"], head)
    normed = _normed(given, weights["midlayer.hidden_norm.weight"], head)
    residual = normed if head.norm_before_residual else given
    made = _layer(weights, head, "midlayer.", residual, torch.cat([embedded, normed], dim=-1))
    return _normed(made, weights["norm.weight"], head) if head.norm_output else made


def _layer(weights, head, prefix, residual, x):
    count, size = head.config.num_attention_heads, head.config.head_dim
    shared = count // head.config.num_key_value_heads
    queries, keys, values = (
        _linear(weights, f"{prefix}self_attn.{name}_proj", x).unflatten(-1, (-1, size)) for name in "qkv"
    )
    queries, keys = _turned(queries), _turned(keys)
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    mixed = []
    for number in range(count):
        scores = queries[:, number] @ keys[:, number // shared].T / math.sqrt(size)
        mixed.append(scores.masked_fill(later, -math.inf).softmax(-1) @ values[:, number // shared])
    mixed = torch.cat(mixed, dim=-1)
    x = residual + _linear(weights, f"{prefix}self_attn.o_proj", mixed)
    normed = _normed(x, weights[f"{prefix}post_attention_layernorm.weight"], head)
    gate, up = (_linear(weights, f"{prefix}mlp.{name}_proj", normed) for name in ("gate", "up"))
    return x + _linear(weights, f"{prefix}mlp.down_proj", gate / (1 + torch.exp(-gate)) * up)


def _linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def _turned(states):
    """Of states (places, heads, size): number j of the first half is turned against number j of the second half.

    By the angle place * base^(-2j / size).
    """
    half = states.shape[-1] // 2
    speeds = torch.tensor([BASE ** (-j / half) for j in range(half)], dtype=torch.float64)
    angles = torch.arange(len(states), dtype=torch.float64)[:, None, None] * speeds
    one, other = states[..., :half], states[..., half:]
    return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], dim=-1)


def _normed(x, weight, head):
    return x / (x.pow(2).mean(-1, keepdim=True) + head.config.rms_norm_eps).sqrt() * weight


def _read_out(weights, head, lm, state):
    if "lm_head.weight" in weights:
        normed = state if head.norm_output else _normed(state, weights["norm.weight"], head)
        known = normed @ weights["lm_head.weight"].T
        logits = torch.full((lm.vocab_size,), -math.inf, dtype=torch.float64)
        for row, offset in enumerate(weights["d2t"].tolist()):
            logits[row + offset] = known[row]
        return logits
    return state if lm.model is None else state @ lm.model.get_output_embeddings().weight.detach().double().T


# ----------------------------------------------------------------------------------------------------------------------
# The trees a second time. `guess(path)` gives the log-probabilities (vocab) after a path of tokens


def ranked(guess, path, count):
    """The likeliest tokens after a path, with their log-probabilities; none that is impossible."""
    best = sorted(enumerate(guess(path)), key=lambda pair: -pair[1])[:count]
    return [(token, log_prob) for token, log_prob in best if log_prob > -math.inf]


def best_tree(guess, nodes, depth, top_k, confidence=0.0):
    """EAGLE-2 as its section 4 says it: all paths of the tree, and how many guesses the network reads.

    Expand the `top_k` best paths of each level by `top_k` guesses each; then keep the best of all.
    """
    value = {(): 0.0}
    level, reads = [()], []
    for deep in range(depth):
        if deep:
            level = [path for path in level if value[path] >= math.log(confidence)] if confidence else level
            level = sorted(level, key=lambda path: -value[path])[:top_k]
            reads.append(len(level))
        children = {}
        for path in level:
            for token, log_prob in ranked(guess, path, top_k):
                children[(*path, token)] = value[path] + log_prob
        value |= children
        level = list(children)
    del value[()]
    return set(sorted(value, key=lambda path: -value[path])[:nodes]), reads


def tree_of_ranks(guess, paths, depth):
    """The paths of tokens that some paths of ranks stand for."""
    tree = set()
    for ranks in paths:
        path = ()
        for rank in ranks[:depth]:
            tokens = [token for token, _ in ranked(guess, path, rank + 1)]
            if rank >= len(tokens):
                break
            path += (tokens[rank],)
            tree.add(path)
    return tree


def paths_in(tree):
    """All paths of tokens in a `TokenTree`; fails where one comes twice."""
    paths = [tuple(tree.tokens[above] for above in tree.path(node)) for node in range(len(tree))]
    assert len(set(paths)) == len(paths)
    return set(paths)


def drafted_anew(lm, head, expected, trace, warp=(), law=law):
    """Fails where a step's tree is not what the network, asked anew about the whole text, would have it.

    `expected(guess, room)` makes the paths of a tree.
    """
    text, drafted = list(trace.prompt), 0
    for number, step in enumerate(trace.steps):
        room = lm.context - len(text) - 1
        if number == 0 or room == 0:
            assert step.tree is None, "the first step has no features to draft from"
        else:

            def guess(path, text=text):
                logits = law(head, lm, text, path)[None]
                for function in warp:
                    logits = function(logits, [[*text, *path]])
                return logits.log_softmax(-1)[0].tolist()

            paths = expected(functools.cache(guess), room)
            tree = step.tree or TokenTree([], [])
            assert paths_in(tree) == paths
            assert step.drafted == tree.tokens
            drafted += len(paths)
        assert [step.tree.tokens[node] for node in step.path] == step.tokens[: step.accepted]
        text += step.tokens
    assert drafted > 10


# ----------------------------------------------------------------------------------------------------------------------
# Blocks


def knowing_masks(draft, masks=3):
    """A parallel draft that guesses what a table that looks one token back writes after a token, and after that."""

    class KnowingMasks(ParallelHead):
        def start(self, features):
            return features

        def forward(self, tokens, hidden, rotation, mix=None):
            rows, known = [], tokens.shape[1] - self.masks
            for place, token in enumerate(tokens[0].tolist()):
                rows.append(draft.log_probs([token if place < known else int(rows[-1].argmax())]))
            return torch.stack(rows)[None]

        def read_out(self, hidden, target=None):
            return hidden

    return KnowingMasks(sizes(draft), (-1,), masks=masks).to(draft.dtype)


def dflash_head(lm, seed=0, block=4, layers=None, deep=2, make=DFlashHead, **changes):
    """A random DFlash network for a target, of two layers; its masks have the target's last token."""
    layers = (0, lm.layers // 2, lm.layers) if layers is None else layers
    config = sizes(lm, num_hidden_layers=deep, **changes)
    return randomised(make(config, layers, block, lm.vocab_size - 1), lm.dtype, seed)


def knowing_block(draft, block=4):
    """Guesses what a table that looks one token back writes after a token, and after that, and so on."""

    class KnowingBlock(DFlashHead):
        def context(self, features, rotation):
            config, length = self.config, features.shape[1]
            states = torch.zeros(1, config.num_key_value_heads, length, config.head_dim)
            return [(states, states)] * config.num_hidden_layers

        def begun_with(self, token, target):
            return torch.tensor([[token]])

        def forward(self, embedded, rotation, context, mask=None):
            rows, token = [torch.zeros(draft.vocab_size)], int(embedded)
            for _ in range(self.block - 1):
                rows.append(draft.log_probs([token]))
                token = int(rows[-1].argmax())
            return torch.stack(rows)[None]

        def read_out(self, states, target):
            return states

    return KnowingBlock(sizes(draft), (-1,), block, 0).to(draft.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Joints


def joint_head(lm, block=4, rank=3, make=DSparkHead):
    """A random joint for a random DFlash network."""
    return randomised(make(dflash_head(lm, block=block), rank), lm.dtype, 1)


def knowing_joint(draft, block=4, make=DSparkHead):
    """A network that knows nothing, and a joint that knows what a table writes after each token, if it looks one back.

    What DSpark's joint predicts of acceptance depends on the token before. DFlash2's gate is open.
    """
    network, size = dflash_head(draft, block=block, make=BlindBlock), draft.vocab_size
    head = make(network, size).to(draft.dtype).eval()
    table = torch.stack([draft.log_probs([token]) for token in range(size)])
    known = {
        "before.weight": torch.eye(size),
        "after.weight": table.T.clamp(min=-1e4),  # 0 times -inf is no number
        "confidence.weight": torch.cat([torch.zeros(network.width), torch.arange(size) - 1.0])[None],
        "confidence.bias": torch.zeros(1),
        "gate.weight": torch.zeros(size, network.width),
        "gate.bias": torch.ones(size),
    }
    head.load_state_dict({name: known[name] for name in head.joint}, strict=False)
    return head


class BlindBlock(DFlashHead):
    """Guesses every token with the same probability, and reads nothing."""

    def begun_with(self, token, target):
        return self.fc.weight.new_zeros(1, self.block, self.width)

    def forward(self, embedded, rotation, context, mask=None):
        return embedded

    def read_out(self, states, target):
        return states.new_zeros(*states.shape[:-1], self.vocab_size)
