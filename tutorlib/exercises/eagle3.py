"""The exercises of the EAGLE-3 chapter: the norm, the map d2t, what a training step reads, which tree pays."""

import math

import numpy as np
import torch

from .judge import Exercise

# ----------------------------------------------------------------------------------------------------------------------
# What is normalised

WIDTH, VOCAB = 8, 61


class Network:
    """A random draft network that goes by the rules of EAGLE-1 or of EAGLE-3."""

    def __init__(self, eagle: int):
        # Found by trying: with this seed no two mistakes give the same draft.
        generator = torch.Generator().manual_seed(16)
        self._embedding, self._joining, self._output = (
            torch.randn(shape, generator=generator, dtype=torch.float64)
            for shape in ((VOCAB, WIDTH), (WIDTH, 2 * WIDTH), (VOCAB, WIDTH))
        )
        self._weight = 0.1 + 2.9 * torch.rand(WIDTH, generator=generator, dtype=torch.float64)
        self.eagle = eagle

    def __repr__(self):
        return f"<EAGLE-{self.eagle} network>"

    def layer(self, token, state):
        read = torch.cat([self._embedding[int(token)], state / (1e-6 + state.square().mean().sqrt())])
        return state + 2 * torch.tanh(self._joining @ read)

    def norm(self, state):
        return self._weight * state / (1e-6 + state.square().mean().sqrt())

    def head(self, state):
        return self._output @ state


def draft(network, token, feature, count, *, on="made", read=None, frozen=False, same_token=False):
    """A draft by the rules, or with a mistake: what goes `on`, what the head has `read`, and what never changes."""
    state, tokens = feature, []
    for _ in range(count):
        made = network.layer(token, state)
        states = {"made": made, "normed": network.norm(made), "entered": state}
        guess = int(network.head(states[read or ("normed" if network.eagle == 3 else "made")]).argmax())
        tokens.append(guess)
        token, state = token if same_token else guess, feature if frozen else states[on]
    return tokens


def a_feature(token):
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(500 + token), dtype=torch.float64)


check_draft = Exercise(
    """Judge ``my_draft(network, token, feature, count)``: a chain of `count` tokens, each the most likely one.""",
    [
        (Network(eagle), token, a_feature(token), count)
        for eagle in (3, 1)
        for token, count in ((5, 8), (12, 6), (40, 1))
    ],
    draft,
    {
        "You go on with the normalised state. The norm stands in front of EAGLE-3's head and nowhere else.": (
            {"on": "normed"},
            {"on": "normed", "read": "normed"},
        ),
        "The head reads the state as the layer made it. In EAGLE-3 the norm stands between the two.": {"read": "made"},
        "EAGLE-1's features come after the target's final norm, and the network predicts such features: do not "
        "normalise a second time for its head.": {"read": "normed"},
        "You give the layer the target's feature in every step. After the first step, give it the state that it "
        "made.": {"frozen": True},
        "You give the layer the first token in every step. After the first step, give it the token just guessed.": {
            "same_token": True
        },
    },
    why="The state goes on as the layer made it. Only EAGLE-3's head has a norm in front of it.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The map from the draft's tokens to the target's


def spread(logits, d2t, vocab_size, target=lambda own, offset: own + offset, filler=-math.inf):
    made = np.full((len(logits), vocab_size), filler)
    made[:, target(np.arange(len(d2t)), d2t.numpy())] = logits
    return made


def reduced(tokens, vocab_size):
    """(logits, d2t, vocab_size) of a network that knows these tokens. In the first row all logits are negative."""
    own = torch.arange(len(tokens))
    return torch.stack([-1 - own * 0.75, 2.5 - (own - 1.5).abs() * 1.25]), torch.tensor(tokens) - own, vocab_size


check_spread = Exercise(
    """Judge ``my_spread(logits, d2t, vocab_size)``: the draft network's logits over the target's vocabulary.""",
    [reduced((1, 2, 5, 6, 9), 20), reduced((0, 1, 2, 3), 5), reduced((3, 4, 5), 9), reduced((0, 1), 5)],
    spread,
    {
        "The known tokens are right. But unknown ones have the logit 0, and where all others are negative that is the "
        "largest. -inf makes them impossible.": {"filler": 0.0},
        "You took d2t for the target's numbers. It holds *offsets*, to be added: several tokens have the same offset, "
        "and overwrite each other.": {"target": lambda own, offset: offset},
        "You left the map out: the draft's token i is not the target's token i. Nothing raises an error, but guesses "
        "are rejected.": {"target": lambda own, offset: own},
        "You added the offset twice: the target's number is i + d2t[i].": {
            "target": lambda own, offset: own + 2 * offset
        },
        "You subtracted the offset: the target's number is i + d2t[i].": {"target": lambda own, offset: own - offset},
    },
    why="A token's own number plus its offset is the target's number. Tokens that the network lacks are impossible.",
)

# ----------------------------------------------------------------------------------------------------------------------
# What a training step reads


def reads(length, step, features=np.tri, own=np.eye):
    """The features that each position reads, and beside them what it reads of the states of each earlier step."""
    return np.hstack([features(length), *(own(length) for _ in range(step - 1))]).astype(bool)


def with_features_ahead(length, step):
    return reads(length, step, features=lambda length: np.tri(length, k=step - 1))


check_reads = Exercise(
    """Judge ``my_reads(length, step)``: what each position reads in a step of training on its own steps.""",
    [(4, 1), (4, 2), (5, 3), (3, 4)],
    reads,
    {
        "Your positions read features that come after their own. When the network drafts from a position, the target "
        "has not read those tokens yet: the network has its own states in their place.": (
            with_features_ahead,
            {"features": lambda length: np.ones((length, length))},
        ),
        "Your positions read states of other positions. Those belong to drafts that start elsewhere: of each step, a "
        "position reads the state that it gave itself.": {"own": np.tri},
        "Your positions leave out the text before them. In every step they read all features up to their own.": {
            "features": np.eye
        },
        "Your positions read no states of their own. From step 2 on, they read what each earlier step gave there.": {
            "own": lambda length: np.zeros((length, length))
        },
        "Your positions do not read their own feature. It is the newest thing that they know of the target.": {
            "features": lambda length: np.tri(length, k=-1)
        },
    },
    why="All features up to the position, and of each earlier step the position's own state: just as in drafting.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Which tree pays


def fastest(trees, call_ms, level_ms, step=None, gain=lambda tokens, call_ms, step_ms: tokens * call_ms(1) / step_ms):
    """The tree with the largest gain, and that gain, by the time of a step and by what is made of the two."""
    step = step or (lambda nodes, levels: call_ms(nodes + 1) + levels * level_ms)
    gains = {nodes: gain(tokens, call_ms, step(nodes, levels)) for nodes, levels, tokens in trees}
    best = max(gains, key=gains.get)
    return best, gains[best]


def largest(trees, call_ms, level_ms):
    most = max(trees, key=lambda tree: tree[2])
    return fastest([most], call_ms, level_ms)


def without_levels(trees, call_ms, level_ms):
    return fastest(trees, call_ms, 0.0)


def with_one_level(trees, call_ms, level_ms):
    return fastest([(nodes, 1, tokens) for nodes, _, tokens in trees], call_ms, level_ms)


def without_the_last_token(trees, call_ms, level_ms):
    return fastest(trees, call_ms, level_ms, lambda nodes, levels: call_ms(nodes) + levels * level_ms)


def tokens_a_narrow_call(trees, call_ms, level_ms):
    return fastest(trees, call_ms, level_ms, lambda nodes, levels: call_ms(1) + levels * level_ms)


def costs(first, each, level):
    """A call whose time grows evenly with its tokens, and the time of a level."""
    return (lambda tokens: first + each * tokens), level


GROWN = [(4, 4, 2.9), (16, 8, 4.5), (59, 8, 5.5)]


def what_trees_and_costs(trees, call_ms, level_ms):
    return f"{trees}, call_ms with call_ms(1) = {call_ms(1):g} and call_ms(60) = {call_ms(60):g}, {level_ms}"


check_tree_that_pays = Exercise(
    """Judge ``my_tree(trees, call_ms, level_ms)``: the fastest tree, and how many times as fast as the plain loop.""",
    [(GROWN, *costs(*each)) for each in ((20.0, 0.05, 0.5), (20.0, 0.7, 1.0), (20.0, 0.2, 6.0))],
    fastest,
    {
        "You took the tree that gives the most tokens. It is also the one whose calls cost most: divide by the time "
        "of a step.": largest,
        "You left out what the draft costs: each level of the tree is a call of the network.": without_levels,
        "You count one call of the network for each step. A tree takes one for each of its levels.": with_one_level,
        "Your call is one token too narrow, or as narrow as the plain loop's. The candidates go in together with the "
        "text's last token: call_ms(nodes + 1).": (without_the_last_token, tokens_a_narrow_call),
        "You gave the tokens for each ms. Compare with the plain loop, which takes call_ms(1) for a token.": {
            "gain": lambda tokens, call_ms, step_ms: tokens / step_ms
        },
    },
    show=what_trees_and_costs,
    why="Tokens for each step, over what the step costs in calls of the plain loop.",
    hint="The plain loop would take tokens * call_ms(1) for what a step gives.",
)
