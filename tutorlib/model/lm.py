"""A causal language model, and how to begin a sequence over it.

`LM` wraps any transformers causal LM. `LM.session(prompt)` is one sequence with a key-value cache and an undo
(`session.py`); `LM.batch(prompts)` is several sequences in one call (`batch.py`). Decoding methods use only the
functions of these two: they never touch a cache, an attention mask or a position id. What this file does not do: call
the model (`forward.py`), choose tokens (the methods do), warp logits (`warp.py`), count a budget or look for stop
tokens (`decoding.py`).
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..arguments import check_whole_number, ints
from . import lengths, llama, probe, quantization
from .batch import Batch
from .cache import TREE_SLOTS, KeyValues
from .forward import Forward
from .own_cache import OwnCache
from .read_out import ReadOut
from .session import Session
from .some_layers import ending_after
from .uncached import TokenCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AnyCache: TypeAlias = "KeyValues | OwnCache | TokenCache | llama.LoopCache"
_COUNTING = threading.Lock()  # only one thread at a time counts calls


class LM:
    """A causal language model and, where there is one, its tokenizer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Any decoder-only model with `sdpa` or `eager` attention. It is put in evaluation mode. A model wrapped
        by `torch.compile` works; give its sessions `cache="static"`, so that shapes stay the same.
    tokenizer : transformers tokenizer, optional
        Needed only if prompts are given as text or the new text is wanted as text.
    context : int, optional
        The longest sequence, prompt included, 1 or more; by default the number of positions in the configuration.

    Attributes
    ----------
    vocab_size : int
    context : int
    limit : int or None
        The longest context that the model supports; None if there is no limit.
    forward : Forward
        The model as the caches call it.
    turns : list of int
        Lengths at which the computation could change, such as the size of a sliding window.
    layers : int
        How many layers the model has. Its hidden states are numbered from 0 (the embeddings) to this number.
    width : int
        The width of the hidden states of the last layer, which the output head reads.
    device, dtype : of the model's weights
        If the weights are on several devices, the device is that of the first module. Tokens go in and logits come out
        there.
    stop_tokens : tuple of int
        End-of-text tokens of the tokenizer and of the model's generation settings; may be empty.
    calls : int
        Forward calls made by all sessions and batches of this object, and of the copies that `counted` has made of it.

    Raises
    ------
    ValueError
        If the model has an encoder, or attention that takes no mask; if `model` is not a loaded model with an output
        head, `tokenizer` not a tokenizer, or `context` not a whole number of at least 1; if `context` exceeds the
        model's table of positions.

    Notes
    -----
    The first session over a model tests it on a short text, with and without a cache: in pieces, as a tree, after a
    rollback, and in a batch of rows with different lengths. The test takes about as long as 20 calls of one token, and
    its calls are not counted. It is repeated after the model has changed: its weights, dtype, hooks or adapters. The
    configuration may contain a length at which the computation changes, such as the size of a window; it is tested when
    a sequence first gets there. If the logits differ by more than rounding, as in hybrids and recurrent models, the
    model is tested and used with the cache that it makes itself, and with snapshots of it. If they differ then too,
    `LM` warns once and computes every sequence in full, without a cache (`in_full`). If the model does not behave like
    a causal language model even so, the session raises ValueError.

    A Llama-shaped model (Llama, Mistral, Qwen2, Qwen3) in float32 on a processor is computed by compiled loops instead
    of PyTorch's operators, several times faster, if numba is installed and the same test finds the same logits; see
    `loops.py`. Its weights are not copied. A large one is computed by as many threads as PyTorch has
    (`torch.set_num_threads`), and its logits have the same bits for any number of them.

    Every call is made in evaluation mode: if the model has been put into training mode, it is switched back.

    If the rotary scaling depends on the length of a sequence ("longrope", "dynamic"), a call could change the logits of
    earlier tokens. The context is then limited to the length at which the scaling changes, and a longer one is refused.
    """

    kind_of_session: Callable[..., Session] = Session  # another one has more to say: `drafting.lookup_draft`
    _counts_for: LM | None = None  # the LM that also counts these calls
    _limited_by = ""  # why the context can be no longer, if the configuration gives a higher number
    _warned_of_an_end = False
    first_of: LM | None = None  # the LM whose first layers these are, see `first_layers`

    def __init__(self, model: PreTrainedModel, tokenizer: Any = None, *, context: int | None = None):
        _check_parts(model, tokenizer)
        if context is not None:
            check_whole_number(context, 1, "context must be how many tokens fit")
            context = int(context)
        self.forward = Forward(model.eval() if model.training else model)
        self.tokenizer = tokenizer
        self.calls = 0
        self._reader = ReadOut(self.forward)
        config = self.forward.config
        if quantization.depends_on_the_call(model):
            warnings.warn(
                "in int8 with a threshold for outliers, a token's logits depend on the other tokens of its call. As a "
                "target this model gives other texts with drafts or in a batch than alone: load it with "
                "llm_int8_threshold=0.0 (models.load does). As a draft it can stay as it is",
                stacklevel=2,
            )
        self.kind = probe.kind(model)
        self.layers = config.num_hidden_layers
        # OPT-350m, for instance, projects its states to another width before the output head.
        self.width = getattr(model.get_output_embeddings(), "in_features", config.hidden_size)
        self.vocab_size = config.vocab_size
        self.limit, self._limited_by = lengths.longest_sequence(model, config)
        if context and self.limit and self._limited_by and context > self.limit:
            raise ValueError(f"context={context} is too long ({self._limited_by})")
        self.context = context or self.limit or 1_000_000_000
        self.turns = lengths.turns(config, probe.LENGTH, self.context)
        settings = getattr(model, "generation_config", None)
        ends = [getattr(tokenizer, "eos_token_id", None)]
        configured = getattr(settings, "eos_token_id", None)
        ends += configured if isinstance(configured, (list, tuple)) else [configured]
        self.stop_tokens = tuple(sorted({end for end in ends if end is not None and 0 <= end < self.vocab_size}))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.model).__name__}, vocab_size={self.vocab_size}, context={self.context})"
        )

    @property
    def model(self) -> PreTrainedModel:
        return self.forward.model

    @property
    def device(self) -> torch.device:
        return self.forward.device

    @property
    def dtype(self) -> torch.dtype:
        return self.forward.dtype

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with any special tokens that the tokenizer adds."""
        if not isinstance(text, str):
            raise ValueError(f"encode needs one text (a str), got {text!r}")
        tokens = list(self._tokenizer("encode text")(text)["input_ids"])
        self._warn_of_an_end(text, tokens)
        return tokens

    def _warn_of_an_end(self, text: str, tokens: list[int]) -> None:
        """Warn once if the tokenizer has added a stop token to the end of a text."""
        if len(tokens) < 2 or tokens[-1] not in self.stop_tokens or self.original._warned_of_an_end:
            return
        end = self.tokenizer.decode(tokens[-1:])
        if not text.endswith(end):
            self.original._warned_of_an_end = True
            warnings.warn(
                f"the tokenizer ends every text with token {tokens[-1]} ({end!r}), which is a stop token: after such a "
                "prompt, the model begins another text. Load the tokenizer with add_eos_token=False, or give token "
                "ids without the last one",
                stacklevel=3,
            )

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens, without special tokens."""
        tokens = self.check_tokens(tokens, "what is decoded")
        # The clean-up would remove spaces before punctuation, and decoding would not be the reverse of encoding.
        return self._tokenizer("decode tokens").decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def counted(self) -> LM:
        """The same model with a call counter of its own, which starts at 0. Its calls are counted here as well.

        In this way each run counts only the calls of its own sessions, even if others use the model at the same time.
        """
        other = copy.copy(self)
        other.calls, other._counts_for = 0, self
        return other

    @property
    def original(self) -> LM:
        """The `LM` that this one was copied from by `counted`, or this one if it is not a copy."""
        return self if self._counts_for is None else self._counts_for.original

    def count_call(self) -> None:
        """Count a call that is about to be made, here and in those that this one was copied from."""
        with _COUNTING:
            lm: LM | None = self
            while lm is not None:
                lm.calls += 1
                lm = lm._counts_for

    def session(
        self, prompt: str | Sequence[int], hidden: int | Sequence[int] | None = None, cache: str = "dynamic"
    ) -> Session:
        """One sequence that begins with `prompt`; see `Session`. The prompt is computed at the first feed."""
        return self.kind_of_session(self, prompt, hidden=hidden, cache=cache)

    def batch(self, prompts: Sequence[str | Sequence[int]]) -> Batch:
        """Several sequences computed together, one for each prompt; see `Batch`."""
        return Batch(self, prompts)

    def read_out(self, hidden: torch.Tensor, normed: bool = False) -> torch.Tensor:
        """The logits that the output head computes from hidden states, as if the model ended at that layer.

        First the final norm is applied, then the output head, then anything else that the model family does to its
        logits (Gemma 2 caps them). The first use computes a few tokens in a call that is not counted, to check that the
        result for the last layer agrees with the model's own logits.

        Parameters
        ----------
        hidden : (..., width) tensor
            In the form of `Session.hidden`.
        normed : bool
            Whether they have already passed the final norm, like those of the last layer.

        Returns
        -------
        (..., vocab) tensor, in the model's dtype and on the device of `hidden`, without gradient

        Raises
        ------
        ValueError
            If the result is not this model's own logits, because `LM` does not know what the model does after its
            layers.
        """
        return self._reader(hidden, normed)

    def first_layers(self, count: int) -> LM:
        """The model that ends after the first layers of this one, with its final norm and output head.

        Its weights are this model's own. The same number of layers gives the same object each time.

        Raises
        ------
        ValueError
            If the model is not built like Llama, is quantized, or has no more layers than `count`.
        """
        made: dict[int, LM] = vars(self.original).setdefault("_first_layers", {})
        if count not in made:
            made[count] = LM(ending_after(self.original, count), self.tokenizer, context=self.context)
            made[count].first_of = self.original
        return made[count]

    def prompt_tokens(self, prompt: str | Sequence[int]) -> list[int]:
        """Check a prompt, given as text or tokens, and return its tokens.

        Raises
        ------
        ValueError
            If the prompt is empty or longer than the context, is neither text nor a sequence of whole numbers, contains
            ids outside the vocabulary, or is text although there is no tokenizer.
        """
        if isinstance(prompt, str):
            prompt, text = self.encode(prompt), prompt
            if not prompt:
                raise ValueError(f"the prompt {text!r} has no tokens: give at least one")
        tokens = self.check_tokens(prompt, "the prompt")
        if not tokens:
            raise ValueError(f"the prompt is empty ({prompt!r}): give at least one token")
        if len(tokens) > self.context:
            raise ValueError(
                f"the prompt has {len(tokens)} tokens, more than the context of {self.context}: shorten it"
                + f" ({self._limited_by})" * bool(self._limited_by)
            )
        return tokens

    def open_cache(self, rows: int, static: bool = False) -> AnyCache:
        """An empty cache, through which sessions and batches compute. Other kinds of `LM` override this."""
        weights = llama.of(self.model) if llama.are_wanted() else None
        if weights is not None and self._may_loop(weights):
            return llama.LoopCache(self, weights, rows, static)
        if self._may_cache(static):
            return KeyValues(self, static)
        return self._without_masks([[] for _ in range(rows)])

    def _may_loop(self, weights: llama.Llama) -> bool:
        return probe.may_cache(self, lambda lm, rows: llama.LoopCache(lm, weights, rows), ("loops",), warn=False)

    def _may_cache(self, static: bool, length: int = 0) -> bool:
        slots = self.context + TREE_SLOTS if static else None
        return probe.may_cache(self, lambda lm, rows: KeyValues(lm, static and rows == 1), (slots,), length, warn=False)

    def _without_masks(self, texts: list[list[int]], length: int = 0) -> OwnCache | TokenCache:
        """A cache for a model that is called without masks, with the tokens that each row has."""
        positions = (False, True) if "position_ids" in self.forward.parameters else (False,)
        ways = [(pieces, told) for pieces in (True, False) for told in positions]
        for way in ways:
            if self._may_use_its_own(way, length, warn=way == ways[-1]):
                return OwnCache(self, texts, *way)
        return TokenCache(self, texts)

    def _may_use_its_own(self, way: tuple[bool, bool], length: int, warn: bool = False) -> bool:
        def open_cache(lm, rows):
            return OwnCache(lm, [[] for _ in range(rows)], *way)

        return probe.may_cache(self, open_cache, ("its own", *way), length, warn)

    def reach(self, cache: KeyValues | OwnCache, rows: list[list[int]], length: int) -> AnyCache:
        """A cache for sequences of `length` tokens, for which this one is too short; the same one if the model allows
        it.

        `rows` are the tokens that the cache holds.
        """
        if isinstance(cache, OwnCache):
            is_right = self._may_use_its_own((cache.pieces, cache.positions), length)
        else:
            is_right = self._may_cache(bool(cache.slots.fixed), length)
        found = cache if is_right else self._without_masks(rows, length)
        if type(found) is not TokenCache:  # which has no limit
            found.reach = lengths.next_turn(self.turns, length)
        return found

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The last `rows` rows of logits, and of hidden states by layer, of one pass over `tokens` without a cache."""
        return self.forward.in_full(tokens, rows, hidden)

    def _tokenizer(self, purpose: str):
        if self.tokenizer is None:
            raise ValueError(
                f"this LM has no tokenizer to {purpose} with: give token ids, or make LM(model, tokenizer)"
            )
        return self.tokenizer

    def check_tokens(self, tokens: Iterable[int], name: str) -> list[int]:
        """Return `tokens` as a list of ints; raise ValueError if one of them is outside the vocabulary."""
        tokens = ints(tokens, f"{name} must be a sequence of token ids (ints)")
        if tokens and (min(tokens) < 0 or max(tokens) >= self.vocab_size):
            wrong = [token for token in tokens if not 0 <= token < self.vocab_size]
            raise ValueError(f"{name} holds {wrong[:5]}, outside the vocabulary of {self.vocab_size} tokens")
        return tokens


def _check_parts(model, tokenizer) -> None:
    """Raise ValueError if `model` is not a loaded model with an output head, or `tokenizer` not a tokenizer."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        what = repr(model) if isinstance(model, str) else type(model).__name__
        raise ValueError(
            f"LM wraps a transformers model that has been loaded, got {what}: models.load(name) finds one by its name, "
            "as does LM(AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name))"
        )
    if not getattr(model, "can_generate", lambda: True)():
        raise ValueError(
            f"{type(model).__name__} makes no text, for it has no output head: load it with AutoModelForCausalLM"
        )
    if tokenizer is not None and not (callable(tokenizer) and hasattr(tokenizer, "decode")):
        raise ValueError(f"the tokenizer must be a loaded one, AutoTokenizer.from_pretrained(name), got {tokenizer!r}")
