"""Jump ahead: where a grammar leaves no choice, the text that must follow is the draft."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..constraints.grammar import Grammar
from ..drafting.checking import check_tree
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


def check(grammar):
    """Raise ValueError if an argument of `jump_ahead` is wrong."""
    if not hasattr(grammar, "forced_tokens"):
        raise ValueError(f"jump_ahead needs a grammar, as grammar('[0-9]+', lm) makes it, got {grammar!r}")


@decoder(check=check)
def jump_ahead(
    lm: LM, prompt: Prompt, *, grammar: Grammar, rng: Randomness | None = None, warp: Sequence[Warp] = ()
) -> Generator[Step, None, str | None]:
    """Write a text of a grammar, and draft whatever the grammar leaves no choice about.

    In JSON with given keys, ``", "age": `` must follow a name. One call of the model checks all tokens of it. They are
    checked and not just written, because a forced text is no forced token: ``abc`` may begin with the token ``a``,
    ``ab`` or ``abc``, and the model has a probability for each. If only the end may follow, it is drafted too.

    *Lossless* by construction: every token is drawn from the model's distribution under the grammar and the warps. With
    the same seed it gives exactly the text of ``sample(lm, prompt, warp=[grammar, *warp])``.

    Cost: one call of `lm` for one or more tokens.

    Source: the idea is SGLang's, Zheng et al. (2024), "SGLang: Efficient Execution of Structured Language Model
    Programs", section 3 (compressed finite state machines); there, forced texts are written without a check.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    grammar : Grammar
        As `grammar` makes it. It is applied before the warps.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more.

    Raises
    ------
    ValueError
        When called with a bad argument.
    """
    session, warp = lm.session(prompt), [grammar, *warp]
    text = session.tokens
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < lm.context:
        drafted = grammar.forced_tokens(text)[: lm.context - len(text) - 1]
        checked = check_tree(session, text, TokenTree.chain(drafted), rng, warp)
        text += checked.tokens
        yield checked.step()
    return "context"
