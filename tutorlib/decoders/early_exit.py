"""Early exit: the target's own first layers draft some tokens, and all of its layers check them in one call."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..arguments import check_whole_number
from ..drafting.checking import check_tree
from ..drafting.rules import ChainRule, check_chain_rule, draft_token, ratio
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, draft_probabilities


def check(target, layers, gamma, rule):
    """Raise ValueError if an argument of `early_exit` is wrong."""
    check_whole_number(gamma, 1, "gamma is how many tokens are drafted in a round")
    check_chain_rule(rule)
    target.first_layers(layers)  # raises for what is no number of layers, or for a model of another kind


@decoder(check=check)
def early_exit(
    target: LM,
    prompt: Prompt,
    *,
    layers: int,
    gamma: int = 4,
    rule: ChainRule = ratio,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let the target draft γ tokens with its first layers alone, and check them all in one call of the whole target.

    *Lossless*: the text has the distribution of ``sample(target, prompt, rng=..., warp=warp)``. How fast it goes
    depends on how much of the target's last word its first layers know. LayerSkip's models are trained for that; an
    ordinary model's first layers were never asked to predict a token.

    The draft needs no weights and no cache of its own: it reads the keys and values that the target has computed for
    the text, and adds its own after them. The target then computes the drafted tokens from the first layer on, although
    the draft has already been through some: to continue from there saves less than a draft call in each round, and
    takes a model that can be called from its middle.

    Cost: each round takes one call of `target` with γ + 1 tokens and γ calls of its first `layers` layers, and gives
    from 1 to γ + 1 tokens. The first call, which reads the prompt, gives one token.

    Source: Elhoushi et al. (2024), "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding", section
    4.3; Zhang et al. (2024), "Draft & Verify", leaves out layers in the middle instead.

    Parameters
    ----------
    target : LM
        A model built like Llama (Llama, Mistral, Qwen2, Qwen3).
    prompt : str or list of int
    layers : int
        After how many layers the draft ends, less than the target has. The target's final norm and output head follow.
    gamma : int
        How many tokens to draft in a round.
    rule : function
        As in `speculative`: `ratio`, `block`, `match` or `match_drawn`.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits of both, the whole target and its first layers.

    Yields
    ------
    Step
        One step per round: the drafted tokens, how many were accepted, and the token that the target adds.

    Raises
    ------
    ValueError
        When called with a bad argument, for example with a model that is not built like Llama; while running, for
        logits that are NaN or +inf.
    """
    early = target.first_layers(layers)
    session = target.session(prompt)
    text = session.tokens
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < target.context:
        drafted, draft_probs = [], []
        # Before the first call there is nothing yet that the draft could read.
        room = min(gamma, target.context - len(text) - 1) if session.calls else 0
        drafts = session.first_layers(early) if room else session
        for _ in range(room):
            logits = drafts.feed((drafted or text)[-1:])
            (row,) = draft_probabilities(logits[-1:], warp, [History(text, drafted)])
            if row is None:
                break
            draft_probs.append(row)
            drafted.append(draft_token(rule, row, rng))
        checked = check_tree(session, text, TokenTree.chain(drafted), rng, warp, rule(draft_probs))
        text += checked.tokens
        yield checked.step()
    return "context"
