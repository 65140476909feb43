"""Check, with numbers, whether the output of a method has the distribution that it should have.

`exact_distribution` enumerates all random draws of a method and returns its output distribution, exactly and not as an
estimate. `target_distribution` computes what the distribution should be, and `total_variation` is the distance between
the two. `check_own_draft` finds most mistakes of methods with a draft: the target drafts for itself. For decoders that
do not draw from a `Randomness` of this package, `empirical_check` takes samples and tests them, and `samples_needed`
says how many are enough. None of this depends on any particular method.
"""

from .enumeration import Sequences, exact_distribution, target_distribution, token_distribution, total_variation
from .own_draft import OwnDraftCheck, check_own_draft
from .sampled_check import Check, empirical_check, samples_needed

__all__ = [
    "Check",
    "OwnDraftCheck",
    "Sequences",
    "check_own_draft",
    "empirical_check",
    "exact_distribution",
    "samples_needed",
    "target_distribution",
    "token_distribution",
    "total_variation",
]
