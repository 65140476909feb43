"""The decoding methods, one in each file. Each is a generator of steps: see `tutorlib.running.decoding`."""

from .beam_search import beam_search
from .best_first_beam_search import best_first_beam_search
from .context_contrast import context_contrast
from .contrastive_decoding import contrastive_beam_search, contrastive_decoding, contrastive_sampling
from .contrastive_search import contrastive_search
from .dflash import dflash
from .dola import dola, lower_layers, upper_layers
from .dspark import dspark
from .eagle import eagle
from .early_exit import early_exit
from .greedy import greedy
from .jump_ahead import jump_ahead
from .lookahead import lookahead
from .medusa import medusa
from .mtp import mtp
from .parallel_draft import parallel_draft
from .prompt_lookup import prompt_lookup
from .sample import sample
from .sample_batch import sample_batch
from .speculative import adaptive_gamma, speculative
from .speculative_batch import speculative_batch
from .string_match import string_match
from .suffix_lookup import suffix_lookup
from .token_intersection import token_intersection
