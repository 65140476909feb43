"""The bug zoo: mistakes that are easy to make, each in a decoder of its own, so that it can be seen and caught.

Nothing here is for use. Every specimen is a small function with the signature of the method that it wants to be, and
its mistake is marked ``# the mistake``. `SPECIMENS` says of each what is wrong, why somebody writes it, where it was
seen (if that is known), what the right method is, and how the two are told apart: `Specimen.outcomes` enumerates
everything that a method can do in a small case made for the purpose, beside what it should do.

To add one: write the function, with a mark at the mistake, and add a `Specimen` to the list. The tests and the pictures
of chapter 8 take it from there.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch

from .checking import check_sampled, residual
from .decoders.beam_search import beam_search
from .decoders.greedy import greedy
from .decoders.sample import sample
from .decoders.speculative import speculative
from .decoders.speculative_batch import speculative_batch
from .decoders.token_intersection import Guesses, token_intersection
from .decoding import decoder, run, run_batch
from .proof import Sequences, exact_distribution, target_distribution, total_variation
from .randomness import Exhaustive, Seeded
from .step import Step
from .table import TableLM
from .vocabularies import shared_tokens
from .warp import named, probabilities, temperature, top_k, top_p

MARK = "# the mistake"

# ----------------------------------------------------------------------------------------------------------------------
# The loop that specimens share: right, but for the piece that one of them brings


class Round(NamedTuple):
    """What can be known when drafted tokens are judged; n of them were drafted.

    Attributes
    ----------
    drafted : list of int
    draft_logits, draft_probs : tensors, shape (n, vocab)
        What the draft said in their places, and that warped: what they were drawn from.
    target_logits, target_probs : tensors, shape (n + 1, vocab)
        Row i follows the text and the first i drafted tokens.
    features : tensor, shape (n + 1, width)
        What the target's output head made these rows from.
    """

    drafted: list[int]
    draft_logits: torch.Tensor
    draft_probs: torch.Tensor
    target_logits: torch.Tensor
    target_probs: torch.Tensor
    features: torch.Tensor


def _histories(tokens: list[int], drafted: list[int]) -> list[list[int]]:
    """The tokens before each row of a check, as warps want them: the text, then the text and ``drafted[:1]``, ...

    Examples
    --------
    >>> _histories([5], [7, 8])
    [[5], [5, 7], [5, 7, 8]]
    """
    return [tokens + drafted[:count] for count in range(len(drafted) + 1)]


def _drafts(session, text, gamma, rng, warp, draw):
    """Draft `gamma` tokens after `text`: the tokens, the logits (gamma, vocab), and these warped."""
    drafted, logits = [], [session.advance_to(text)[-1:]]
    while True:
        probs = probabilities(torch.cat(logits), warp, _histories(text, drafted))
        drafted.append(draw(probs[-1], rng))
        if len(drafted) == gamma:
            return drafted, torch.cat(logits), probs
        logits.append(session.feed(drafted[-1:]))


def _draw(probs, rng):
    return rng.choose(probs)


def _speculate(target, draft, prompt, gamma, rng, warp, *, judge, draw=_draw):
    """`speculative`, with ``judge(round, rng) -> (accepted, next token)`` and ``draw(probs, rng) -> token`` passed in.

    Ends a few tokens before the context does.
    """
    target_session, draft_session = target.session(prompt, hidden=-1), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, draft_logits, draft_probs = _drafts(draft_session, text, gamma, rng, warp, draw)
        logits = target_session.feed(unread + drafted)
        target_probs = probabilities(logits, warp, _histories(text, drafted))
        features = target_session.hidden[-len(logits) :]
        accepted, token = judge(Round(drafted, draft_logits, draft_probs, logits, target_probs, features), rng)
        target_session.rollback(len(drafted) - accepted)
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


def _in_a_row(chances, rng):
    """How many of the drafted tokens are kept, from the front, each with its chance."""
    return next((count for count, chance in enumerate(chances) if not rng.accept(chance)), len(chances))


# ----------------------------------------------------------------------------------------------------------------------
# Wrong judges: which drafted tokens are kept, and what comes in the place of the others


@decoder
def rows_one_late(target, draft, prompt, *, gamma, rng, warp=()):
    """Each drafted token is judged by the target's row *after* it, which says what follows it."""

    def judge(round, rng):
        for place, token in enumerate(round.drafted):
            row = round.target_probs[place + 1]  # the mistake: the row of a token comes before it, [place]
            if not rng.accept(row[token] / round.draft_probs[place][token]):
                return place, rng.choose(residual(row, round.draft_probs[place]))
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def inverted_coin(target, draft, prompt, *, gamma, rng, warp=()):
    """Where q is larger than p, a token is rejected with probability p/q. It should be kept with that probability."""

    def judge(round, rng):
        for position, token in enumerate(round.drafted):
            p, q = round.target_probs[position], round.draft_probs[position]
            if q[token] > p[token] and rng.accept(p[token] / q[token]):  # the mistake: r > 1 - p/q, for "reject"
                return position, rng.choose(residual(p, q))
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def resample_from_target(target, draft, prompt, *, gamma, rng, warp=()):
    """In the place of a rejected token one is drawn from p."""

    def judge(round, rng):
        for place, token in enumerate(round.drafted):
            if not rng.accept(round.target_probs[place][token] / round.draft_probs[place][token]):
                return place, rng.choose(round.target_probs[place])  # the mistake: from the residual
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def fixed_threshold(target, draft, prompt, *, gamma, rng, warp=(), threshold=0.3):
    """A drafted token is kept when the target gives it more than a fixed probability."""

    def judge(round, rng):
        for place, token in enumerate(round.drafted):
            if round.target_probs[place][token] < threshold:  # the mistake: no p/q, and no luck
                return place, rng.choose(round.target_probs[place])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def perplexity_threshold(target, draft, prompt, *, gamma, rng, warp=(), threshold=0.3):
    """The more perplexed the draft is by its own tokens, the higher the probability that each of them must have."""

    def judge(round, rng):
        own = round.draft_probs[range(gamma), round.drafted]
        bar = threshold * own.log().mean().neg().exp()  # times the draft's perplexity
        for place, token in enumerate(round.drafted):
            if round.target_probs[place][token] <= bar:  # the mistake: no p/q, no luck, wherever the bar is put
                return place, rng.choose(round.target_probs[place])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def mixed_with_prediction(target, draft, prompt, *, gamma, rng, warp=(), predict, alpha=0.5, threshold=0.05):
    """Half of the probability that a token must have comes from a prediction of the target's features.

    `predict` comes from `feature_predictor`. The first row of a round follows no feature of that round, and is p.
    """

    def judge(round, rng):
        predicted = probabilities(target.read_out(predict(round.features), normed=True))
        predicted = torch.cat([round.target_probs[:1], predicted[:-1]])  # row i is predicted from feature i - 1
        mixed = alpha * round.target_probs + (1 - alpha) * predicted  # the mistake: the target's own row is known
        for position, token in enumerate(round.drafted):
            if mixed[position][token] <= threshold:
                return position, rng.choose(round.target_probs[position])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


def feature_predictor(lm, texts, *, steps=300, seed=0):
    """Train a small network by mean squared error to predict a model's next feature from the last one.

    A feature is what the output head reads. The network is not told which token comes between the two, and its loss
    does not ask which tokens a feature stands for.

    Parameters
    ----------
    lm : LM
    texts : sequence of str or of lists of int
    steps, seed : int

    Returns
    -------
    predict : function from features, shape (n, width), to as many
    losses : list of `steps` floats
        In units of the features' variance: who always predicts the mean feature has about 1.
    """
    before, after = [], []
    for text in texts:
        first, *others = lm.prompt_tokens(text)
        session = lm.session([first], hidden=-1)
        session.feed(others)
        before.append(session.hidden[:-1].float())
        after.append(session.hidden[1:].float())
    before, after = torch.cat(before), torch.cat(after)
    center, scale, width = after.mean(0), after.std(), after.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        network = torch.nn.Sequential(*layers).to(before.device)
        batches = torch.randint(len(before), (steps, 128)).to(before.device)
    optimizer, losses = torch.optim.Adam(network.parameters(), 2e-3), []
    for rows in batches:
        loss = (network((before[rows] - center) / scale) - (after[rows] - center) / scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    @torch.no_grad()
    def predict(features):
        return (network((features.float() - center) / scale) * scale + center).to(features.dtype)

    return predict, losses


@decoder
def score_only(target, draft, prompt, *, gamma, rng, warp=()):
    """The draft writes everything, and the target only says how likely it finds it: the average log-likelihood."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, _, _ = _drafts(draft_session, text, gamma, rng, warp, _draw)
        log_probs = target_session.feed(unread + drafted).cpu().double().log_softmax(-1)
        average = float(log_probs[range(gamma), drafted].mean())
        accepted = gamma  # the mistake: whatever the average is, all are kept
        target_session.rollback(1)
        unread = drafted[-1:]
        text += drafted
        yield Step(drafted, drafted, accepted, note=f"average log-likelihood {average:.2f}")
    return "context"


@decoder
def other_warp(target, draft, prompt, *, gamma, rng, warp=()):
    """The draft is drawn from its warped logits, and judged as if it had been drawn from the plain ones."""

    def judge(round, rng):
        draft_probs = probabilities(round.draft_logits)  # the mistake: not what the tokens were drawn from
        return check_sampled(round.drafted, draft_probs, round.target_probs, rng)

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def greedy_with_coins(target, draft, prompt, *, gamma, rng):
    """Drafts greedily and corrects greedily, and yet decides by a coin what is correct."""

    def judge(round, rng):
        p, q = probabilities(round.target_logits), probabilities(round.draft_logits)
        for place, token in enumerate(round.drafted):
            if not rng.accept(p[place][token] / q[place][token]):  # the mistake: is it the target's argmax?
                return place, int(p[place].argmax())
        return len(round.drafted), int(p[-1].argmax())

    def draw(probs, rng):
        return int(probs.argmax())

    return (yield from _speculate(target, draft, prompt, gamma, rng, (), judge=judge, draw=draw))


@decoder
def unwarped_bonus(target, draft, prompt, *, gamma, rng, warp=()):
    """The bonus token after a draft that was kept whole is drawn from the target as it is, without the warp."""

    def judge(round, rng):
        for place, token in enumerate(round.drafted):
            p, q = round.target_probs[place], round.draft_probs[place]
            if not rng.accept(p[token] / q[token]):
                return place, rng.choose(residual(p, q))
        bonus = probabilities(round.target_logits[-1:])[0]  # the mistake: round.target_probs[-1]
        return len(round.drafted), rng.choose(bonus)

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def greedy_drafts(target, draft, prompt, *, gamma, rng, warp=()):
    """The draft's likeliest token is drafted, and judged as if it had been drawn from the draft's probabilities."""

    def draw(probs, rng):
        return int(probs.argmax())  # the mistake: min(1, p/q) is for tokens that were drawn from q

    def judge(round, rng):
        return check_sampled(round.drafted, round.draft_probs, round.target_probs, rng)

    return (yield from _speculate(target, draft, prompt, gamma, rng, warp, judge=judge, draw=draw))


# ----------------------------------------------------------------------------------------------------------------------
# Wrong bookkeeping: the judge is right, and is shown the wrong thing


@decoder
def rollback_too_short(target, draft, prompt, *, gamma, rng, warp=()):
    """After a rejection the target's cache forgets one token too few: the rejected one stays in it."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, _, draft_probs = _drafts(draft_session, text, gamma, rng, warp, _draw)
        target_probs = probabilities(target_session.feed(unread + drafted), warp, _histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        target_session.rollback(max(len(drafted) - accepted - 1, 0))  # the mistake: len(drafted) - accepted
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def forgets_at_least_one(target, draft, prompt, *, gamma, rng, warp=()):
    """The target's cache forgets one token at least, also where all were accepted and there is none to forget."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, _, draft_probs = _drafts(draft_session, text, gamma, rng, warp, _draw)
        target_probs = probabilities(target_session.feed(unread + drafted), warp, _histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        target_session.rollback(max(len(drafted) - accepted, 1))  # the mistake: after a full draft, nothing
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def lagging_draft(target, draft, prompt, *, gamma, rng, warp=()):
    """After a draft that was accepted whole, its last token is never read by the draft itself."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread, draft_unread = list(prompt), [], []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, draft_probs, fresh = [], [], draft_unread
        for _ in range(gamma):
            draft_probs.append(probabilities(draft_session.feed(fresh)[-1:], warp, [text + drafted])[0])
            fresh = [rng.choose(draft_probs[-1])]
            drafted += fresh
        target_probs = probabilities(target_session.feed(unread + drafted), warp, _histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        target_session.rollback(len(drafted) - accepted)
        draft_session.rollback(max(len(drafted) - 1 - accepted, 0))
        unread = draft_unread = [token]  # the mistake: after a full draft, drafted[-1:] + [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


# ----------------------------------------------------------------------------------------------------------------------
# Batches and ends


@decoder
def padding_as_text(target, draft, prompts, *, gamma, rngs, warp=()):
    """Shorter prompts are filled up on the right, with nothing that says which tokens are filling."""
    width = max(map(len, prompts))
    padded = [prompt + [0] * (width - len(prompt)) for prompt in prompts]  # the mistake: no mask
    for steps in speculative_batch(target, draft, padded, gamma=gamma, rngs=rngs, warp=warp):
        yield list(steps)


@decoder
def prefixes_as_rows(target, draft, prompt, *, gamma, rng, warp=()):
    """Every beginning of the draft is a row of one batch, padded, and the last column is read: no cache, no rollback.

    For all rows but the longest that column is padding. And no row holds the whole draft, so a draft that was kept
    whole is followed by nothing: there is no bonus token.
    """
    draft_session, text = draft.session(prompt), list(prompt)
    while min(target.context, draft.context) - len(text) > gamma:
        drafted, _, q = _drafts(draft_session, text, gamma, rng, warp, _draw)
        rows = [text + drafted[:count] + [0] * (gamma - 1 - count) for count in range(gamma)]
        last_column = torch.cat(target.batch(rows).feed([[]] * gamma))  # the mistake: not each row's own last token
        p = probabilities(last_column, warp, _histories(text, drafted)[:gamma])
        accepted = _in_a_row(p[range(gamma), drafted] / q[range(gamma), drafted], rng)
        redrawn = [rng.choose(residual(p[accepted], q[accepted]))] if accepted < gamma else []
        tokens = drafted[:accepted] + redrawn
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def padding_is_token_zero(target, draft, prompt, *, gamma, rng, warp=()):
    """What is padding is read off the tokens: those of id 0. But 0 is a word like any other."""
    draft_session, text = draft.session(prompt), list(prompt)
    while min(target.context, draft.context) - len(text) > gamma:
        seen = [token for token in text if token != 0]  # the mistake: the attention mask is (tokens != 0)
        drafted, _, draft_probs = _drafts(draft_session, seen, gamma, rng, warp, _draw)
        logits = target.session(seen).feed(drafted)  # (gamma + 1, vocab)
        target_probs = probabilities(logits, warp, _histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        tokens = [*drafted[:accepted], token]
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def past_the_end(target, draft, prompt, *, gamma, rng, warp=()):
    """An end-of-text is looked for at the end of a round. One inside a draft is passed over, and text goes on."""
    for step in speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp):
        yield step
        if step.tokens[-1] in target.stop_tokens:  # the mistake: any of step.tokens may be the end
            return "end"
    return "context"


@decoder
def _ends_at_the_end(target, draft, prompt, *, gamma, rng, warp=()):
    """What `past_the_end` should be (and what `run` does for every method)."""
    for step in speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp):
        ends = [place for place, token in enumerate(step.tokens) if token in target.stop_tokens]
        yield step.first(ends[0] + 1) if ends else step
        if ends:
            return "end"
    return "context"


# ----------------------------------------------------------------------------------------------------------------------
# Wrong warps


def top_p_without_the_crossing(p):
    """A top-p that drops the token with which the sum passes p, and so keeps less than p (of one token, that one)."""

    def top_p_warp(logits, histories=None):
        order = logits.argsort(dim=-1, descending=True, stable=True)
        up_to_here = logits.gather(-1, order).softmax(-1).cumsum(-1)
        dropped = up_to_here > p  # the mistake: the sum *before* a token says whether it is dropped
        dropped[..., 0] = False
        return logits.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)

    return named(top_p_warp, f"top_p_without_the_crossing({p:g})")


@decoder
def top_k_one_for_greedy(lm, prompt, *, rng):
    """Greedy, written as sampling from the one best token. Of two that are equally good, it draws."""
    yield from sample(lm, prompt, rng=rng, warp=[top_k(1)])  # the mistake: equals of the k-th stay


@decoder
def _greedy(lm, prompt, *, rng):
    """`greedy`, with luck that it does not use."""
    yield from greedy(lm, prompt)


@decoder
def _greedy_speculation(target, draft, prompt, *, gamma, rng):
    """`speculative`, greedy whatever luck is given."""
    yield from speculative(target, draft, prompt, gamma=gamma, rng=None)


# ----------------------------------------------------------------------------------------------------------------------
# Wrong vocabularies


def _speculate_across(target, draft, prompt, gamma, rng, warp, *, judge):
    """`token_intersection`, with ``judge(guesses, drafted, draft_probs, target_probs) -> (accepted, token)`` passed in.

    All ids are the target's; ``guesses.to_draft`` says which the draft has for them.
    """
    session, guesses = target.session(prompt), Guesses(target, draft, warp)
    text, unread = list(prompt), []
    while session.room > gamma:
        drafted, draft_probs = guesses.draw(text, gamma, rng)
        target_probs = probabilities(session.feed(unread + drafted), warp, _histories(text, drafted))
        accepted, token = judge(guesses, drafted, draft_probs, target_probs)
        session.rollback(len(drafted) - accepted)
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def map_in_hash_order(target, draft, prompt, *, gamma, rng, warp=()):
    """Two tokenizers: tokens are drafted in one order of the shared vocabulary, and their q looked up in another."""
    shared = shared_tokens(target, draft)
    ascending = [token for _, token in sorted(zip(shared.draft, shared.target, strict=True))]  # by the draft's ids
    as_it_comes = ascending[::-1]  # what a hash map gives; any other order than `ascending` will do

    def judge(guesses, drafted, draft_probs, target_probs):
        believed = [row.clone() for row in draft_probs]
        for row, drawn_from in zip(believed, draft_probs, strict=True):
            row[ascending] = drawn_from[as_it_comes]  # the mistake: row i of the head is not the i-th token
        return check_sampled(drafted, believed, target_probs, rng)

    return (yield from _speculate_across(target, draft, prompt, gamma, rng, warp, judge=judge))


@decoder
def foreign_ids(target, draft, prompt, *, gamma, rng, warp=()):
    """Two tokenizers: a drafted token's p is looked up by the *draft's* id for it, and belongs to another token."""

    def judge(guesses, drafted, q, p):
        ids = [guesses.to_draft[token] for token in drafted]  # the mistake: p has the target's order
        accepted = _in_a_row([p[i][ids[i]] / q[i][token] for i, token in enumerate(drafted)], rng)
        row = p[accepted] if accepted == len(drafted) else residual(p[accepted], q[accepted])
        return accepted, rng.choose(row)

    return (yield from _speculate_across(target, draft, prompt, gamma, rng, warp, judge=judge))


# ----------------------------------------------------------------------------------------------------------------------
# Wrong beams


def _beams(lm, prompt, beams, max_new_tokens, *, score, begin=0.0, impatient=False):
    """A beam search in a few lines, right as far as ``score(tokens, total)`` is; the winner, as one step."""
    running, finished = [((), begin)], []
    for _ in range(max_new_tokens):
        longer = []
        for tokens, total in running:
            log_probs = probabilities(lm.session([*prompt, *tokens]).feed())[-1].log().tolist()
            longer += [((*tokens, token), total + log_prob) for token, log_prob in enumerate(log_probs)]
        longer.sort(key=lambda hypothesis: -hypothesis[1])
        finished += [hypothesis for hypothesis in longer[: 2 * beams] if hypothesis[0][-1] in lm.stop_tokens]
        running = [hypothesis for hypothesis in longer if hypothesis[0][-1] not in lm.stop_tokens][:beams]
        if finished and impatient:
            return Step(list(finished[0][0]))
    winner, _ = max(finished + running, key=lambda hypothesis: score(*hypothesis))
    return Step(list(winner))


@decoder
def beam_starts_at_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The empty hypothesis has the score 1: right for a product of probabilities, not for a sum of logarithms."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield _beams(lm, prompt, beams, max_new_tokens, score=score, begin=1.0)  # the mistake: log 1 is 0


@decoder
def length_off_by_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The score is divided by a length that counts one token too many."""

    def score(tokens, total):
        return total / (len(tokens) + 1) ** length_penalty  # the mistake: the prompt's last token is not new

    yield _beams(lm, prompt, beams, max_new_tokens, score=score)


@decoder
def first_finished_beam(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The first hypothesis that ends is returned, whatever is better and still open."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield _beams(lm, prompt, beams, max_new_tokens, score=score, impatient=True)  # the mistake: not finished[0]


# ----------------------------------------------------------------------------------------------------------------------
# How they are caught: small cases, in which everything that can happen is enumerated

Outcomes = dict[tuple, float]


def tables(vocab: int = 2) -> tuple[TableLM, TableLM]:
    """A target that looks two tokens back, and a draft that looks one back."""
    return TableLM.random(vocab, 2, 5), TableLM.random(vocab, 1, 3)


def texts(method: Callable, *, length: int = 4, gamma: int = 2, vocab: int = 2, warp=()) -> tuple[Sequences, Sequences]:
    """What a method with the signature of `speculative` writes on `tables`, and what sampling from the target does.

    Returns
    -------
    made, due : dicts from tuples of `length` tokens to probabilities
    """
    target, draft = tables(vocab)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=gamma, rng=rng, warp=warp), length, stop=())
    return made, target_distribution(target, "b", length, warp=warp, stop=())


def _texts(method):
    return texts(method)


def _short_texts(method):
    return texts(method, length=3)


def _hot_texts(method):
    return texts(method, warp=(temperature(2.0),))


def _greedy_texts(method):
    target, draft = tables(3)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=2, rng=rng), 3, stop=())
    return made, {tuple(run(greedy(target, "b"), 3, stop=()).tokens): 1.0}


def _accepted(method):
    """How many of two are accepted in each of two rounds, where the target drafts for itself: always both."""
    target, made = tables()[0], {}
    for rng in Exhaustive():
        trace = run(method(target, target, "b", gamma=2, rng=rng), 6, stop=())
        accepted = tuple(step.accepted for step in trace.steps[:2])
        made[accepted] = made.get(accepted, 0.0) + rng.weight
    return made, {(2, 2): 1.0}


def _first_of_a_batch(method):
    """A short prompt beside a long one; the long one's luck is fixed."""
    (target, draft), made = tables(), {}
    for rng in Exhaustive():
        traces = run_batch(method(target, draft, ["b", "abb"], gamma=1, rngs=[rng, Seeded(0)]), 3, stop=())
        tokens = tuple(traces[0].tokens)
        made[tokens] = made.get(tokens, 0.0) + rng.weight
    return made, target_distribution(target, "b", 3, stop=())


def _ended_texts(method):
    """Token c ends a text; nothing else ends it."""
    target, draft = (TableLM.random(3, order, seed, stop_tokens=[2]) for order, seed in ((2, 5), (1, 3)))
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=2, rng=rng), 3, stop=())
    return made, target_distribution(target, "b", 3)


def _nucleus(top):
    lm = TableLM({"": [0.5, 0.3, 0.2]})
    made = exact_distribution(lambda rng: sample(lm, "a", rng=rng, warp=[top(0.7)]), 1)
    return made, {(0,): 0.625, (1,): 0.375}  # by hand: 0.5 is less than 0.7, 0.5 + 0.3 is not


def _ties(method):
    lm = TableLM({"": [0.2, 0.4, 0.4]})
    return exact_distribution(lambda rng: method(lm, "a", rng=rng), 2), {(1, 1): 1.0}  # by hand: the lowest id


def _texts_with_prediction(method):
    if method is mixed_with_prediction:
        target, _ = tables()
        own = run(sample(target, "b", rng=Seeded(0)), 60, stop=()).tokens
        method = partial(method, predict=feature_predictor(target, [own])[0])
    return texts(method, length=3)


def _two_vocabularies(method, tokens="cdab"):
    target, draft = TableLM.random(["a", "b", "c"], 2, 5), TableLM.random(list(tokens), 1, 3)
    made = exact_distribution(lambda rng: method(target, draft, "b", gamma=1, rng=rng), 3, stop=())
    return made, target_distribution(target, "b", 3, stop=())


def _same_size_vocabularies(method):
    return _two_vocabularies(method, "cab")


def _best_text(method):
    """Enough beams to drop nothing, so that the best text of all, found by looking at each, must come out."""
    table = {
        "a": {"b": 0.6, ".": 0.4},
        "b": {"a": 0.25, "b": 0.25, "c": 0.5},
        "c": {"a": 0.33, "b": 0.3, ".": 0.37},
    }
    lm = TableLM(table, ["a", "b", "c", "."], stop_tokens=["."])
    every = target_distribution(lm, "a", 3)
    best = max(every, key=lambda tokens: torch.tensor(every[tokens]).log() / len(tokens))
    winner = run(method(lm, "a", beams=16, max_new_tokens=3, length_penalty=1.0), 3).tokens
    return {tuple(winner): 1.0}, {best: 1.0}


# ----------------------------------------------------------------------------------------------------------------------
# The list


@dataclass(frozen=True)
class Specimen:
    """One mistake.

    Attributes
    ----------
    mistaken : function
        The method with the mistake in it.
    correct : function
        What it wants to be, with the same signature.
    what, why : str
        What is wrong, and why somebody writes it.
    case : function from a method to two distributions
        What it does in a small case made for the purpose, enumerated, and what it should do.
    least : float
        The total variation of these two is at least this much: what the tests hold it to.
    source : str
        Where it was seen, with a link. Empty where no source is known: then it is a mistake that is easy to make.
    compares : str
        What the distributions are of.
    """

    mistaken: Callable
    correct: Callable
    what: str
    why: str
    case: Callable[[Callable], tuple[Outcomes, Outcomes]]
    least: float
    source: str = ""
    compares: str = "texts"

    @property
    def name(self) -> str:
        return self.mistaken.__name__

    def outcomes(self, method: Callable | None = None) -> tuple[Outcomes, Outcomes]:
        """What a method, by default the mistaken one, does in the small case, and what it should do. Computed once."""
        return _outcomes(self.case, method or self.mistaken)

    def distance(self) -> float:
        """Total variation between what the mistaken method does and what it should do."""
        return total_variation(*self.outcomes())

    def distance_of_correct(self) -> float:
        """The same of the correct method, by the same check: 0 but for rounding."""
        return total_variation(*self.outcomes(self.correct))

    @property
    def code(self) -> str:
        """The source of the mistaken method, without its docstring."""
        source = inspect.getsource(inspect.unwrap(self.mistaken))
        return re.sub(r'\n    """.*?"""\n+', "\n", source, count=1, flags=re.DOTALL).removeprefix("@decoder\n").rstrip()

    @property
    def wrong_lines(self) -> str:
        """The line or two that are wrong, with the mark."""
        return "\n".join(line.strip() for line in self.code.splitlines() if MARK in line)


@cache
def _outcomes(case, method):
    return case(method)


GITHUB = "https://github.com/"

SPECIMENS = [
    Specimen(
        rows_one_late, speculative,
        "The target's rows are one position late: each drafted token is judged by what may follow it.",
        "The logits of a call line up with the tokens that went in, so row i looks as if it were about token i. It is "
        "about the token after it.",
        _texts, 0.3,
        f"mlx-node, pull request 11, caught in review: {GITHUB}mlx-node/mlx-node/pull/11",
    ),
    Specimen(
        inverted_coin, speculative,
        "Where q is larger than p, the drafted token is rejected with probability p/q. It should be accepted with it.",
        "The paper rejects with probability 1 - p/q, and code asks r > 1 - p/q before it rejects. But a uniform random "
        "number is above 1 - p/q with probability p/q, so the more alike p and q are, the surer is the rejection.",
        _texts, 0.05,
    ),
    Specimen(
        resample_from_target, speculative,
        "After a rejection the next token is drawn from p, not from the residual.",
        "The target is right, so why not draw from the target? Because the accepted tokens have already used up a part "
        "of p. What has to be made up for is the rest.",
        _short_texts, 0.05,
        f"Spec-RL, where it is a choice made for training: {GITHUB}ShopeeLLM/Spec-RL/issues/14",
    ),
    Specimen(
        fixed_threshold, speculative,
        "A token is accepted when the target's probability for it exceeds a fixed threshold.",
        "It sounds like what acceptance ought to mean: good enough for the target.",
        _texts, 0.05,
    ),
    Specimen(
        score_only, speculative,
        "The draft's text is scored by its average log-likelihood under the target, and kept.",
        "One call of the target over the whole draft is the heart of the method, and its result is a number that looks "
        "like a verdict.",
        _texts, 0.3,
    ),
    Specimen(
        other_warp, speculative,
        "q is computed with another warp than the draft was drawn with.",
        "Drafting is one function, with its temperature. Checking is another, and starts from logits.",
        _hot_texts, 0.05,
        f"transformers, issue 47932 (2026, closed): {GITHUB}huggingface/transformers/issues/47932",
    ),
    Specimen(
        greedy_with_coins, _greedy_speculation,
        "\"Greedy\" decoding that flips the coin p/q all the same.",
        "Every draw was replaced by an argmax, and the acceptance test does not look like a draw.",
        _greedy_texts, 0.1,
        f"speculative-sampling, the code of a blog post (2023, mended): {GITHUB}jaymody/speculative-sampling/issues/3",
    ),
    Specimen(
        unwarped_bonus, speculative,
        "The bonus token ignores temperature and top-p.",
        "It is drawn in another part of the code than all the others, from the last row of the logits.",
        _hot_texts, 0.05,
    ),
    Specimen(
        greedy_drafts, speculative,
        "The draft is greedy, and q is used as if the token had been sampled.",
        "The most likely token is accepted most often, so why draft any other? You may draft it. But then q is 1 for "
        "it and 0 for the others.",
        _texts, 0.05,
        "ml-recurrent-drafter, where drafts come from a beam search: "
        f"{GITHUB}apple/ml-recurrent-drafter/issues/6",
    ),
    Specimen(
        rollback_too_short, speculative,
        "The cache is rolled back by one token too few.",
        "The bonus or resampled token takes the rejected one's position in the text, so nothing seems to be left over "
        "in the cache.",
        _texts, 0.03,
        "openvino.genai, issue 4190, where the count of cached tokens stays one too high after a rejection: "
        f"{GITHUB}openvinotoolkit/openvino.genai/issues/4190",
    ),
    Specimen(
        padding_as_text, speculative_batch,
        "A batch is padded on the right, without a mask.",
        "The rows of a tensor must have one length, and nothing complains. But the text goes on after the padding.",
        _first_of_a_batch, 0.05,
        f"TransformerLens, issue 1760 (2026, mended): {GITHUB}TransformerLensOrg/TransformerLens/issues/1760",
    ),
    Specimen(
        prefixes_as_rows, speculative,
        "All beginnings of the draft are scored as padded rows of one batch, by the last column: padding, for most.",
        "It needs no cache and no rollback, and one call still scores everything. With equal rows the last column is "
        "what you want. Beginnings of a draft have different lengths. And as no row holds the whole draft, there is "
        "never a bonus token.",
        _texts, 0.03,
    ),
    Specimen(
        past_the_end, _ends_at_the_end,
        "Text past the end-of-text is counted and kept.",
        "In a plain loop the newest token is the only one to look at. A round brings several.",
        _ended_texts, 0.1,
        f"transformers, issue 47912 (2026, closed): {GITHUB}huggingface/transformers/issues/47912",
    ),
    Specimen(
        top_p_without_the_crossing, top_p,
        "Top-p drops the token that crosses the threshold.",
        "`cumsum > p` is the mask that comes to mind. It has to be shifted by one.",
        _nucleus, 0.3,
        f"GPT-2's own sampling code: {GITHUB}openai/gpt-2/blob/master/src/sample.py",
    ),
    Specimen(
        padding_is_token_zero, speculative,
        "Token id 0 is used as padding, though it is a real token.",
        "The tokenizer has no padding token, something has to fill the tensor, and `tokens != 0` is a mask in no time.",
        _texts, 0.03,
    ),
    Specimen(
        map_in_hash_order, token_intersection,
        "The map between two vocabularies comes in the order of a hash table, and is read in the order of the ids.",
        "A vocabulary is a dict, a dict has an order, and the order of the ids is the one that comes to mind.",
        _two_vocabularies, 0.03,
        f"transformers 5.23.0, measured below: {GITHUB}huggingface/transformers",
    ),
    Specimen(
        foreign_ids, token_intersection,
        "A drafted token's p is looked up by the id that the *draft's* tokenizer has for it.",
        "Both models hand over lists of whole numbers, so an id of the one is a valid index into the other's row. No "
        "error comes, as long as it is small enough. The probability is that of some other token.",
        _same_size_vocabularies, 0.05,
        "sglang, which did not compare the two vocabularies before pull request 23838: "
        f"{GITHUB}sgl-project/sglang/pull/23838",
    ),
    Specimen(
        top_k_one_for_greedy, _greedy,
        "top_k(1) is taken for greedy: of two best tokens, both stay.",
        "In half precision, equal logits are common.",
        _ties, 0.5,
        f"tpu-inference, pull request 3580: {GITHUB}vllm-project/tpu-inference/pull/3580",
    ),
    Specimen(
        beam_starts_at_one, beam_search,
        "The beams' scores start at 1.0; divided by the length, that is a bonus for short texts.",
        "It was a product of probabilities once. Then it became a sum of logarithms, and the 1 stayed.",
        _best_text, 1.0,
        "a much-copied tutorial, which multiplied -log p as well (corrected in 2020): "
        "https://machinelearningmastery.com/beam-search-decoder-natural-language-processing/",
    ),
    Specimen(
        length_off_by_one, beam_search,
        "The length in the length penalty is one too many, which flatters short texts.",
        "Whether the prompt's last token or the end-of-text counts is a matter of where len() is called.",
        _best_text, 1.0,
        "transformers before pull request 27351 (2023), which counted the prompt too: "
        f"{GITHUB}huggingface/transformers/pull/27351",
    ),
    Specimen(
        first_finished_beam, beam_search,
        "The first beam that ends is returned, not the best one.",
        "An end-of-text ends a greedy loop, too.",
        _best_text, 1.0,
        f"xnmt before pull request 572 (2019): {GITHUB}neulab/xnmt/pull/572",
    ),
    Specimen(
        forgets_at_least_one, speculative,
        "After a draft that was accepted whole, one accepted token is forgotten with the rejected ones.",
        "There is nearly always something to forget, and a count of 0 looked like the special case to guard against.",
        _texts, 0.01,
    ),
    Specimen(
        perplexity_threshold, speculative,
        "\"EAGLE\" as a guard over a draft model: the draft's perplexity moves a threshold, tokens above it are kept.",
        "Uncertainty and speculation are both in the paper's title, and a bar that moves with the one looks like the "
        "other. Its uncertainty is that of features: see chapter 11.",
        _short_texts, 0.15,
    ),
    Specimen(
        mixed_with_prediction, speculative,
        "\"EAGLE\" as a network trained by mean squared error to predict features: the probability that it predicts is "
        "mixed with the target's, and what exceeds a threshold is accepted.",
        "EAGLE does predict features, and its loss does compare features. But its prediction only proposes tokens. "
        "Here it also votes on them, although the target's own row is there and needs no help.",
        _texts_with_prediction, 0.05,
    ),
    Specimen(
        lagging_draft, speculative,
        "After a draft that was accepted whole, the draft never reads its own last token.",
        "The draft wrote it, so it must have it in its cache. But what was drawn last was not fed.",
        _accepted, 0.1,
        f"mlxcel before pull request 1002 (2026): {GITHUB}lablup/mlxcel/pull/1002",
        "numbers of accepted tokens",
    ),
]  # fmt: skip
