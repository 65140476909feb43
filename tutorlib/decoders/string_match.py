"""A draft with another tokenizer, whose text is converted into the target's tokens (SLEM)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..drafting.checking import check_tree
from ..model.lm import LM
from ..model.tree import TokenTree
from ..model.vocabularies import Translation, check_pair, roles, room_to_draft, spellings, tokens_of, whole_characters
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


@decoder(check=check_pair)
def string_match(
    target: LM, draft: LM, prompt: Prompt, *, gamma: int = 4, rng: Randomness | None = None, warp: Sequence[Warp] = ()
) -> Generator[Step, None, str | None]:
    """Let a draft with another tokenizer write some text, and keep the part that the target would write too.

    The draft writes a text greedily, and this text, converted into the target's tokens, is the guess. Each of its
    tokens is compared with a token drawn from the target, and the step ends at the first difference.

    *Lossless* by construction: every token is drawn from the target's warped distribution. The guess is tokenised as a
    continuation of the text, and the target's own tokens are never tokenised again. A guess is kept with the
    probability that the target gives it, so the most likely guess is the best one; drafting is therefore greedy and
    needs no random draws. The same seed gives the same text as `sample` and, with ``rng=None``, the text is that of
    `greedy` (apart from rounding).

    Cost: one call of `target` and up to `gamma` calls of `draft` for one or more tokens. The models need no common
    tokens, and words that they split differently can be guessed. If they split words in the same way and the text is
    sampled, `token_intersection` keeps more guesses. If both models have the same tokenizer this works too, but
    `speculative` is cheaper.

    Source: Timor et al. (2025), "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
    Heterogeneous Vocabularies", section 3 (string-level exact match).

    Parameters
    ----------
    target : LM
        The model whose text is written.
    draft : LM
        A faster model on the same device. Both models need their tokenizers.
    prompt : str or list of int
        Token ids are the target's.
    gamma : int
        How many tokens the draft writes in a round, at least 1. Converted into the target's tokens, there may be more
        or fewer. The draft writes fewer if one of the contexts is nearly full, and after an end-of-text token.
    rng : Randomness or None
    warp : sequence of functions
        Applied to the target's logits only.

    Yields
    ------
    Step
        One step per round: the drafted tokens, how many were accepted, and the token that the target adds. The method
        ends when the target's context is full. If only the draft's context is full, it continues without drafts.

    Raises
    ------
    ValueError
        When called with a bad argument.
    """
    session, author = target.session(prompt), Author(target, draft)
    text = session.tokens
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < target.context:
        drafted = author.write(text, gamma)
        checked = check_tree(session, text, TokenTree.chain(drafted), rng, warp)
        text += checked.tokens
        yield checked.step()
    return "context"


class Author:
    """Writes what the draft would write next, in the target's tokens.

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
        """The draft's greedy continuation of `text` by up to `count` tokens, converted into the target's tokens.

        There are fewer tokens if there is less room. An incomplete character at the end is cut off, and a text that the
        target's tokenizer cannot read gives no guess. An end-of-text token becomes the target's own.
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
