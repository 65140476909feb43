"""How language models choose their words: decoding methods in code that reads like the papers.

The names that the book uses most can be imported from here. Everything else is in the modules; for example, the
drawings are in `tutorlib.viz`, the only module that loads matplotlib.
"""

import sys

from . import measures as metrics
from . import storyworld
from .constraints.grammar import grammar
from .decoders import (
    adaptive_gamma,
    beam_search,
    best_first_beam_search,
    context_contrast,
    contrastive_beam_search,
    contrastive_decoding,
    contrastive_sampling,
    contrastive_search,
    dflash,
    dola,
    dspark,
    eagle,
    early_exit,
    greedy,
    jump_ahead,
    lookahead,
    lower_layers,
    medusa,
    mtp,
    parallel_draft,
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
from .drafting import checking
from .drafting.checking import exact, walk
from .drafting.dflash2_head import DFlash2Head
from .drafting.dflash_head import DFlashHead
from .drafting.draft_trees import chain_draft, drawn_chain, drawn_tree, dynamic_tree, static_tree
from .drafting.dspark_head import DSparkHead
from .drafting.eagle_head import Eagle3Head, EagleHead
from .drafting.lookup_draft import with_lookup
from .drafting.lossy_rules import typical_acceptance
from .drafting.medusa_heads import MedusaHeads
from .drafting.mtp_head import MtpHead
from .drafting.parallel_head import ParallelHead
from .drafting.rules import block, match, match_drawn, ratio
from .hugging_face.generate import custom_generate
from .loading import models
from .measures import proof
from .measures.choosing import best_of_n, minimum_bayes_risk, self_consistency
from .model.eight_bits import EightBits
from .model.lm import LM
from .model.session import NaNLogits
from .model.table import TableLM
from .model.tree import TokenTree
from .moved import Moved
from .running.decoder import decoder
from .running.decoding import run, run_batch
from .running.step import Step
from .running.trace import Trace
from .sampling.budgets import stop_when_unsure, thinking_budget
from .sampling.engines import as_in
from .sampling.filters import (
    epsilon_cutoff,
    eta_cutoff,
    exactly_k,
    min_p,
    top_h,
    top_k,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)
from .sampling.mirostat import mirostat
from .sampling.penalties import dry, frequency_penalty, no_repeat_ngram, presence_penalty, repetition_penalty
from .sampling.randomness import Exhaustive, Greedy, Seeded
from .sampling.temperatures import dynamic_temperature, logit_bias, temperature
from .sampling.watermarks import green_list, synthid

__version__ = "0.1.0"

# The names of the release before.
adaptive, chain, dynamic, static = adaptive_gamma, chain_draft, dynamic_tree, static_tree

sys.meta_path.insert(0, Moved())

__all__ = [
    "DFlash2Head",
    "DFlashHead",
    "DSparkHead",
    "Eagle3Head",
    "EagleHead",
    "EightBits",
    "Exhaustive",
    "Greedy",
    "LM",
    "MedusaHeads",
    "MtpHead",
    "NaNLogits",
    "ParallelHead",
    "Seeded",
    "Step",
    "TableLM",
    "TokenTree",
    "Trace",
    "adaptive_gamma",
    "as_in",
    "beam_search",
    "best_first_beam_search",
    "best_of_n",
    "block",
    "chain_draft",
    "checking",
    "context_contrast",
    "contrastive_beam_search",
    "contrastive_decoding",
    "contrastive_sampling",
    "contrastive_search",
    "custom_generate",
    "decoder",
    "dflash",
    "dola",
    "dspark",
    "drawn_chain",
    "drawn_tree",
    "dry",
    "dynamic_temperature",
    "dynamic_tree",
    "eagle",
    "early_exit",
    "epsilon_cutoff",
    "eta_cutoff",
    "exact",
    "exactly_k",
    "frequency_penalty",
    "grammar",
    "greedy",
    "green_list",
    "logit_bias",
    "jump_ahead",
    "lookahead",
    "lower_layers",
    "match",
    "match_drawn",
    "medusa",
    "metrics",
    "min_p",
    "minimum_bayes_risk",
    "mirostat",
    "models",
    "mtp",
    "no_repeat_ngram",
    "parallel_draft",
    "presence_penalty",
    "prompt_lookup",
    "proof",
    "ratio",
    "repetition_penalty",
    "run",
    "run_batch",
    "sample",
    "sample_batch",
    "self_consistency",
    "speculative",
    "speculative_batch",
    "static_tree",
    "stop_when_unsure",
    "storyworld",
    "string_match",
    "suffix_lookup",
    "synthid",
    "temperature",
    "thinking_budget",
    "token_intersection",
    "top_h",
    "top_k",
    "top_n_sigma",
    "top_p",
    "typical",
    "typical_acceptance",
    "upper_layers",
    "walk",
    "with_lookup",
    "xtc",
]
