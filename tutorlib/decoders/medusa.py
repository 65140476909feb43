"""Medusa: additional heads on the same model guess several tokens ahead, and one call checks a tree of their
guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch

from ..drafting.checking import Rule, check_rule, check_tree, exact
from ..drafting.choices import Choices, checked_choices
from ..drafting.head_loops import looped_heads
from ..drafting.medusa_heads import MedusaHeads, check_depth, check_heads_fit
from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


def ranked_tree(guesses: torch.Tensor | None, choices: list[tuple[int, ...]], depth: int) -> TokenTree:
    """The heads' guesses as a tree of tokens.

    Parameters
    ----------
    guesses : tensor of shape (heads, vocab), or None
        Logits of each head, at one position. None if there are none yet; then the tree is empty.
    choices : list of tuples of int
        Paths of ranks, parents before children.
    depth : int
        The largest number of tokens in a path; deeper nodes are left out.
    """
    choices = [path for path in choices if len(path) <= depth]
    if guesses is None or not choices:
        return TokenTree([], [])
    most = 1 + max(max(path) for path in choices)
    ranked = guesses.topk(most, dim=-1).indices.tolist()  # the tokens of each head, most likely first
    node = {(): ROOT} | {path: number for number, path in enumerate(choices)}
    return TokenTree([ranked[len(path) - 1][path[-1]] for path in choices], [node[path[:-1]] for path in choices])


def check(target, heads, shape, rule):
    """Raise ValueError if an argument of `medusa` is wrong."""
    if not all(hasattr(heads, name) for name in ("vocab_size", "width", "choices")):
        raise ValueError(f"heads must be MedusaHeads, got {type(heads).__name__}: family.medusa, for instance")
    check_heads_fit(target, heads.vocab_size, heads.width)
    device = next(heads.parameters()).device
    if device != target.device:
        raise ValueError(f"the heads are on {device}, the target on {target.device}: heads.to(target.device)")
    check_rule(rule)
    choices = heads.choices if shape is None else checked_choices(shape)
    check_depth(choices, len(heads))
    highest = max(max(path) for path in choices)
    if highest >= target.vocab_size:
        raise ValueError(f"the tree asks for rank {highest} of a vocabulary of {target.vocab_size} tokens")


@decoder(check=check, renamed={"tree": "shape", "accept": "rule"})
def medusa(
    target: LM,
    heads: MedusaHeads,
    prompt: Prompt,
    *,
    shape: Choices | None = None,
    rule: Rule = exact,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Let heads on the target guess the tokens after the next one, and check a tree of their guesses in one call.

    With ``rule=exact`` it is *lossless* by construction: every token is drawn from the target's warped distribution,
    and the tree only decides how many tokens one call gives. With the same seed it gives exactly the text of `sample`.
    With a rule such as ``typical_acceptance(0.09, 0.3)`` it is *lossy*: see `tutorlib.drafting.checking`.

    Cost: one call of `target`, with one token more than the tree has, and one call of the heads, for one or more new
    tokens. The first call, which reads the prompt, gives one token.

    Source: Cai et al. (2024), "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads". In
    the paper the root of each tree is the target's most likely token; here it is drawn, as the last token of the
    previous step.

    Parameters
    ----------
    target : LM
    heads : MedusaHeads
        Heads trained on this target, see ``python -m tutorlib train medusa``.
    prompt : str or list of int
    shape : sequence of tuples of int, optional
        The guesses that are tried, as paths of ranks, one rank for each head: see `tutorlib.drafting.choices`. By
        default the tree that is stored with the heads.
    rule : function
        `exact`, or a lossy rule.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more, the tree, and the path accepted in it.

    Raises
    ------
    ValueError
        When called with a bad argument, for example with heads that belong to another model.
    """
    choices = heads.choices if shape is None else checked_choices(shape)
    session, guess = target.session(prompt, hidden=-1), guesses(heads, max(map(len, choices)))
    text, hidden = session.tokens, None
    session.rollback(1)  # the last token is fed with the tree
    while len(text) < target.context:
        # The heads read the state at the last accepted node: the first step has none, and drafts nothing.
        guessed = None if hidden is None else guess(hidden)
        drafted = ranked_tree(guessed, choices, depth=target.context - len(text) - 1)
        checked = check_tree(session, text, drafted, rng, warp, rule)
        hidden = session.hidden[checked.rows[-1]]
        text += checked.tokens
        yield checked.step(tree=True)
    return "context"


def guesses(heads, count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from one hidden state (width,) to the logits (count, vocab) of the first heads, in their own type."""
    loops = looped_heads(heads, count)

    def guess(hidden):
        with torch.inference_mode():
            hidden = hidden.to(heads.dtype)
            return heads(hidden)[:count] if loops is None else loops.guess(hidden)

    return guess
