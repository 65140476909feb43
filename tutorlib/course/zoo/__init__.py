"""The bug zoo: mistakes that are easy to make, each in a decoder of its own, so that you can study and detect them.

Do not use these decoders. Every specimen is a small function with the signature of the correct method. Its docstring
says what is wrong, and its mistake is marked ``# the mistake``. `SPECIMENS` states for each of them why people write
it, where it was published (if a publication was found), what the correct method is, and how to distinguish the two:
`Specimen.outcomes` enumerates everything that a method can do in a small case made for this mistake, and compares it
with what it should do.

`ENGINE_SPECIMENS` has more of them: mistakes of programs that serve models, for the chapter on how to check a draft.
`SETTING_SPECIMENS` are mistakes in what settings mean, for the chapter on the same settings in other engines.
`GRAMMAR_SPECIMENS` has two mistakes with grammars, for the chapter on constraints. `EVERY` is all of them.

To add a specimen, write the function, mark the mistake, import the function here, and add a `Specimen` to one of the
lists. The tests and *Spot the bug* then include it, and the figure of chapter 11 includes what is in `SPECIMENS`.
"""

from .batches_and_ends import padding_as_text, padding_is_token_zero, past_the_end, prefixes_as_rows
from .beams import beam_starts_at_one, first_finished_beam, length_off_by_one
from .bookkeeping import forgets_at_least_one, lagging_draft, rollback_too_short
from .cases import tables, texts
from .engines import (
    drawn_in_half_precision,
    dropped_after_the_draw,
    penalty_of_before_the_draft,
    penalty_without_the_prompt,
    raw_logits_as_q,
    rejected_in_the_state,
    shared_noise,
    unwarped_check,
)
from .grammars import grammar_advanced_by_drafts, rollback_of_all_rejected
from .rules import (
    feature_predictor,
    fixed_threshold,
    greedy_drafts,
    greedy_with_coins,
    inverted_coin,
    mixed_with_prediction,
    other_warp,
    perplexity_threshold,
    resample_from_target,
    rows_one_late,
    score_only,
    unwarped_bonus,
)
from .setting_specimens import SETTING_SPECIMENS
from .settings import (
    one_stream_for_all_rows,
    penalty_from_the_shortest_prompt,
    penalty_that_rewards,
    prompt_in_the_length,
)
from .specimens import ENGINE_SPECIMENS, GRAMMAR_SPECIMENS, MARK, SPECIMENS, Specimen
from .vocabularies import foreign_ids, map_in_hash_order
from .warps import top_k_one_for_greedy, top_p_without_the_crossing

EVERY = SPECIMENS + ENGINE_SPECIMENS + GRAMMAR_SPECIMENS + SETTING_SPECIMENS


def named(*names: str) -> list[Specimen]:
    """The specimens with these names, in this order; a notebook displays each with its wrong line and its source."""
    known = {specimen.name: specimen for specimen in EVERY}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"the zoo has no {unknown[0]!r}; it has {', '.join(known)}")
    return [known[name] for name in names]
