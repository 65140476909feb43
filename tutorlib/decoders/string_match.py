"""A draft with another tokenizer, whose text is read in the target's tokens (SLEM)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..checking import check_tree
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..tree import TokenTree
from ..vocabularies import Translation, check_pair, roles, room_to_draft, spellings, tokens_of, whole_characters
from ..warp import Warp


@decoder(check=check_pair)
def string_match(
    target: LM, draft: LM, prompt: Prompt, *, gamma: int = 4, rng: Randomness | None = None, warp: Sequence[Warp] = ()
) -> Iterator[Step]:
    """Let a draft with another tokenizer write some text, and keep of it what the target writes too.

    The draft writes its likeliest text, and this text in the target's tokens is the guess: each token of it is compared
    with one drawn from the target, and the first that differs ends the step.

    *Lossless* by construction: every token is drawn from the target, warped. The guess is tokenised as a continuation,
    and the target's own tokens are never tokenised again. Drafting is greedy and takes nothing from `rng`: a guess is
    kept with the probability that the target gives it, and the likeliest one is kept most often. So the same seed gives
    the text that `sample` draws with it and, with ``rng=None``, that of `greedy` (rounding aside).

    Cost: one call of `target` and up to `gamma` of `draft` for one token or more. No common tokens are needed, and
    words that the two models divide differently can be guessed; `token_intersection` keeps more guesses where they
    divide words alike and the choices are random. With one tokenizer for both it works, but `speculative` is cheaper.

    Source: Timor et al. (2025), "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
    Heterogeneous Vocabularies", section 3 (string-level exact match).

    Parameters
    ----------
    target : LM
        The model whose text is written.
    draft : LM
        A faster one, on the same device. Both need their tokenizers.
    prompt : str or list of int
        Token ids are the target's.
    gamma : int
        How many tokens the draft writes in a round, at least 1; in the target's tokens they may be more or fewer. Fewer
        are written near the end of either context and after an end-of-text.
    rng : Randomness or None
    warp : sequence of functions
        Applied to the target's logits alone.

    Yields
    ------
    Step
        One a round: the drafted tokens, those accepted, and the one that the target adds. Ends where the target's
        context does. Where only the draft's is full, it goes on without drafts.

    Raises
    ------
    ValueError
        At the call for a bad argument.
    """
    text, session, author = list(prompt), target.session(prompt), Author(target, draft)
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < target.context:
        drafted = author.write(text, gamma)
        path, tokens, weighed, _ = check_tree(session, text, TokenTree.chain(drafted), rng, warp)
        text += tokens
        yield Step(tokens, drafted, len(path), candidates=weighed)
    return "context"


class Author:
    """What a draft would write next, in the target's tokens.

    Parameters
    ----------
    target, draft : LM
    """

    def __init__(self, target, draft):
        self.target, self.draft = target, draft
        self.translation = Translation(target, draft)
        self.spelling = spellings(draft)
        self.end = [token for role, token in roles(target).items() if role == "end"]
        self.session = None

    def write(self, text: list[int], count: int) -> list[int]:
        """The likeliest `count` tokens of the draft after `text`, in the target's tokens, as many as there is room for.

        What ends in the midst of a character is cut to whole ones, and text that the target's tokenizer cannot read is
        no guess. An end-of-text becomes the target's own.
        """
        context = self.translation(text)
        count = min(count, room_to_draft(self.target, text, self.draft, context))
        if not context or count < 1:
            return []
        self.session = self.session or self.draft.session(context)
        logits = self.session.advance_to(context)
        written = []
        while (token := int(logits[-1].argmax())) in self.spelling:
            written.append(self.spelling[token])
            if len(written) == count:
                break
            logits = self.session.feed([token])
        guess = tokens_of(self.target, whole_characters(b"".join(written))) or []
        if len(written) < count and token in self.draft.stop_tokens:
            guess += self.end
        return guess[: self.target.context - len(text) - 1]
