"""Wrong maps between two vocabularies."""

from ...drafting.checking import check_sampled, residual
from ...model.vocabularies import shared_tokens
from ...running.decoder import decoder
from .loops import in_a_row, speculate_across


@decoder
def map_in_hash_order(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The map between two vocabularies is stored in the order of a hash table, but read in the order of the ids."""
    shared = shared_tokens(target, draft)
    ascending = [token for _, token in sorted(zip(shared.draft, shared.target, strict=True))]  # by the draft's ids
    as_it_comes = ascending[::-1]  # like a hash map's order; any order other than `ascending` will do

    def rule(guesses, drafted, draft_probs, target_probs):
        believed = [row.clone() for row in draft_probs]
        for row, drawn_from in zip(believed, draft_probs, strict=True):
            row[ascending] = drawn_from[as_it_comes]  # the mistake: the two lists differ in their order
        return check_sampled(drafted, believed, target_probs, rng)

    return (yield from speculate_across(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def foreign_ids(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The target's probability p of a drafted token is looked up with the *draft's* id for it."""

    def rule(guesses, drafted, q, p):
        ids = [guesses.to_draft[token] for token in drafted]  # the mistake: p is in the order of the target's ids
        accepted = in_a_row([p[i][ids[i]] / q[i][token] for i, token in enumerate(drafted)], rng)
        row = p[accepted] if accepted == len(drafted) else residual(p[accepted], q[accepted])
        return accepted, rng.choose(row)

    return (yield from speculate_across(target, draft, prompt, gamma, rng, warp, rule=rule))
