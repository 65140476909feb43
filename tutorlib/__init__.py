"""How language models choose their words: decoding methods in code that reads like the papers.

The names that the book uses most can be imported from here. Everything else is in the modules; for example, the
drawings are in `tutorlib.viz`, the only module that loads matplotlib.
"""

from . import checking, metrics, models, proof, storyworld, sweeps, zoo
from .checking import exact, typical_acceptance, walk
from .decoders import (
    adaptive,
    beam_search,
    best_first_beam_search,
    context_contrast,
    contrastive_beam_search,
    contrastive_decoding,
    contrastive_sampling,
    contrastive_search,
    dola,
    eagle,
    greedy,
    lookahead,
    lower_layers,
    medusa,
    prompt_lookup,
    sample,
    sample_batch,
    speculative,
    speculative_batch,
    string_match,
    suffix_lookup,
    token_intersection,
    upper_layers,
)
from .decoding import decoder, run, run_batch
from .drafting.draft_trees import chain, drawn_chain, drawn_tree, dynamic, static
from .heads.eagle_head import Eagle3Head, EagleHead
from .heads.medusa_heads import MedusaHeads
from .hugging_face import custom_generate
from .lm import LM
from .randomness import Exhaustive, Greedy, Seeded
from .session import NaNLogits
from .step import Step
from .table import TableLM
from .trace import Trace
from .tree import TokenTree
from .warp import (
    frequency_penalty,
    min_p,
    no_repeat_ngram,
    presence_penalty,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
    typical,
)

__version__ = "0.1.0"

__all__ = [
    "Eagle3Head",
    "EagleHead",
    "Exhaustive",
    "Greedy",
    "LM",
    "MedusaHeads",
    "NaNLogits",
    "Seeded",
    "Step",
    "TableLM",
    "TokenTree",
    "Trace",
    "adaptive",
    "beam_search",
    "best_first_beam_search",
    "chain",
    "checking",
    "context_contrast",
    "contrastive_beam_search",
    "contrastive_decoding",
    "contrastive_sampling",
    "contrastive_search",
    "custom_generate",
    "decoder",
    "dola",
    "drawn_chain",
    "drawn_tree",
    "dynamic",
    "eagle",
    "exact",
    "frequency_penalty",
    "greedy",
    "lookahead",
    "lower_layers",
    "medusa",
    "metrics",
    "min_p",
    "models",
    "no_repeat_ngram",
    "presence_penalty",
    "prompt_lookup",
    "proof",
    "repetition_penalty",
    "run",
    "run_batch",
    "sample",
    "sample_batch",
    "speculative",
    "speculative_batch",
    "static",
    "storyworld",
    "string_match",
    "suffix_lookup",
    "sweeps",
    "temperature",
    "token_intersection",
    "top_k",
    "top_p",
    "typical",
    "typical_acceptance",
    "upper_layers",
    "walk",
    "zoo",
]
