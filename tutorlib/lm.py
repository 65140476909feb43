"""A causal language model, and sequences over it that can be taken back.

`LM` wraps any transformers causal LM. `LM.session(prompt)` is one sequence with a key-value cache and an undo;
`LM.batch(prompts)` is several in one call. Decoding methods are written with these verbs alone: they never touch a
cache, an attention mask or a position id. What this file does not do: choose tokens (methods do), warp logits
(`warp.py`), count a budget or look for stop tokens (`decoding.py`).
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Iterable, Mapping, Sequence, Set

import torch

from . import probe
from .arguments import concrete
from .cache import TREE_SLOTS, KeyValues, forward_parameters, kinds_of_attention
from .tree import TokenTree, ints
from .uncached import TokenCache

# What families call the modules between the last layer and the output head, in the order in which they are applied.
_AFTER_LAYERS = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "project_out")
# One thread counts, or finds something out about a model, at a time.
_COUNTING, _FINDING = threading.Lock(), threading.RLock()


def _found_once(find):
    """A property that is found out once for an `LM` and all its copies, whoever asks first."""

    @functools.wraps(find)
    def found(lm):
        with _FINDING:
            if find.__name__ not in lm._found:
                lm._found[find.__name__] = find(lm)
            return lm._found[find.__name__]

    return property(found)


class NaNLogits(ValueError):
    """The model returned logits that are not numbers."""


class LM:
    """A causal language model and, where there is one, its tokenizer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Any decoder-only model with `sdpa` or `eager` attention. It is put in evaluation mode. A model wrapped
        by `torch.compile` works; give its sessions `cache="static"`, so that shapes stay the same.
    tokenizer : transformers tokenizer, optional
        Needed only where text is given or wanted.
    context : int, optional
        The longest sequence, prompt included, 1 or more; by default the number of positions in the configuration.

    Attributes
    ----------
    vocab_size : int
    context : int
    limit : int or None
        The longest context that the model itself has.
    windows : list of int
        Lengths beyond which its tokens attend to some of those before them only.
    layers : int
        How many layers the model has: its hidden states are numbered from 0, the embeddings, to this.
    width : int
        Numbers in a hidden state of the last layer: what the output head reads.
    device, dtype : of the model's weights
    stop_tokens : tuple of int
        End-of-text tokens of the tokenizer and of the model's generation settings; empty where there is none.
    calls : int
        Forward calls made by all sessions and batches of this object, and of those that `counted` has made of it.

    Raises
    ------
    ValueError
        If the model is an encoder with a decoder, or its attention takes no mask; for what is no loaded model with an
        output head, no tokenizer, or no context.

    Notes
    -----
    The first session of a class and configuration tries the model on a short text, with a cache and without one: in
    pieces, as a tree, after a rollback, and in a batch of uneven rows. That takes about as long as 20 calls of one
    token, which are not counted. A window of more than 64 tokens is tried when a sequence first gets longer than it.
    Where the logits differ, `LM` warns once and computes every sequence in full, without a cache (`in_full`); where
    that does not give the logits of a causal language model either, the session raises ValueError.

    With rotary scaling that depends on a sequence's length ("longrope", "dynamic"), one call would change the logits
    of earlier tokens. The context then ends where the scaling switches, and a longer one is refused.
    """

    _counts_for: LM | None = None  # whose calls these are too

    def __init__(self, model, tokenizer=None, *, context: int | None = None):
        _check_parts(model, tokenizer)
        if context is not None:
            (context,) = ints([context], "context must be how many tokens fit, a whole number of at least 1")
            if context < 1:
                raise ValueError(f"context must be how many tokens fit, a whole number of at least 1, got {context}")
        self.model = model.eval() if model.training else model
        self.tokenizer = tokenizer
        self.calls = 0
        self._found: dict = {}  # what `_found_once` remembers
        config = model.config.get_text_config(decoder=True)
        self._masks = kinds_of_attention(model, config)
        self.kind = probe.kind(model)
        self.windows = probe.windows(config)
        self.layers = config.num_hidden_layers
        # OPT-350m, for instance, projects its states to another width before the output head.
        self.width = getattr(model.get_output_embeddings(), "in_features", config.hidden_size)
        self._keeps_logits = "logits_to_keep" in forward_parameters(model)
        self.vocab_size = config.vocab_size
        self.limit, self._limited_by = probe.longest_sequence(model, config)
        if context and self._limited_by and context > self.limit:
            raise ValueError(f"context={context} is too long ({self._limited_by})")
        self.context = context or self.limit or 1_000_000_000
        settings = getattr(model, "generation_config", None)
        ends = [getattr(tokenizer, "eos_token_id", None)]
        configured = getattr(settings, "eos_token_id", None)
        ends += configured if isinstance(configured, (list, tuple)) else [configured]
        self.stop_tokens = tuple(sorted({end for end in ends if end is not None and 0 <= end < self.vocab_size}))

    def __repr__(self) -> str:
        return f"LM({type(self.model).__name__}, vocab_size={self.vocab_size}, context={self.context})"

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the special tokens that the tokenizer itself adds."""
        if not isinstance(text, str):
            raise ValueError(f"encode needs one text (a str), got {text!r}")
        return list(self._tokenizer("encode text")(text)["input_ids"])

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens, special tokens left out."""
        tokens = self._check(tokens, "what is decoded")
        # The clean-up would eat spaces before punctuation, so that decoding is not the reverse of encoding.
        return self._tokenizer("decode tokens").decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def counted(self) -> LM:
        """The same model with a count of its own, which begins at 0; its calls count here too.

        Each run counts in this way what its own sessions do, whoever else uses the model meanwhile.
        """
        other = copy.copy(self)
        other.calls, other._counts_for = 0, self
        return other

    @property
    def original(self) -> LM:
        """The `LM` that `counted` made this of; itself if it was made of none."""
        return self if self._counts_for is None else self._counts_for.original

    def _count_call(self) -> None:
        with _COUNTING:
            lm = self
            while lm is not None:
                lm.calls += 1
                lm = lm._counts_for

    def session(self, prompt: str | Sequence[int], hidden=None, cache: str = "dynamic") -> Session:
        """One sequence that begins with `prompt`; see `Session`. The prompt is computed at its first feed."""
        return Session(self, prompt, hidden=hidden, cache=cache)

    def batch(self, prompts: Sequence[str | Sequence[int]]) -> Batch:
        """Several sequences computed together, one for each prompt; see `Batch`."""
        return Batch(self, prompts)

    def read_out(self, hidden: torch.Tensor, normed: bool = False) -> torch.Tensor:
        """The logits that the output head makes of hidden states: what the model would say if it stopped there.

        The final norm comes first, then the head, then whatever the family does to its logits (Gemma 2 caps them). The
        first use computes a few tokens, in a call that is not counted, to see that the model's own logits come out.

        Parameters
        ----------
        hidden : (..., width) tensor
            As `Session.hidden` holds them.
        normed : bool
            Whether they have passed the final norm already, as those of the last layer have.

        Returns
        -------
        (..., vocab) tensor, in the model's dtype and on the device of `hidden`, without gradient

        Raises
        ------
        ValueError
            If that does not give this model's own logits: `LM` does not know what lies between its layers and them.
        """
        after_layers, device = self._after_layers, hidden.device
        with torch.no_grad():
            for module in () if normed else after_layers:
                hidden = module(hidden)
            return self._head(hidden).to(device)

    @_found_once
    def _after_layers(self) -> list[torch.nn.Module]:
        """The modules between the last layer and the output head, tried on a short text."""
        model = getattr(self.model, "_orig_mod", self.model)
        decoder = model.get_decoder()
        found = [getattr(decoder, name) for name in _AFTER_LAYERS if getattr(decoder, name, None) is not None]
        taken = []  # what the first of them was given
        thread = threading.get_ident()  # other threads may be computing with the same modules

        def take(_, inputs):
            if threading.get_ident() == thread:
                taken.append(inputs[0])

        hooks = [module.register_forward_pre_hook(take) for module in found[:1]]
        try:
            with torch.no_grad():
                # Several tokens: one of them may be padding, whose embedding is 0 and shows nothing.
                text = torch.arange(4, device=self.device)[None] % self.vocab_size
                output = model(input_ids=text, use_cache=False, output_hidden_states=True)
                state, normed = (taken[0] if taken else None), (output.hidden_states or [None])[-1]
                for module in found if taken else ():
                    state = module(state)
                # Both ways must end at the model's own logits: from what is normed now, and from what was before.
                right = all(
                    state is not None
                    and state.shape[:2] == text.shape
                    and bool((self._head(state) - output.logits).abs().max() <= 0.01 * output.logits.abs().max())
                    for state in (state, normed)
                )
        finally:
            for hook in hooks:
                hook.remove()
        if not right:
            raise ValueError(
                f"{type(model).__name__} does something else between its layers and its logits than the modules "
                f"{', '.join(_AFTER_LAYERS)} and its output head: LM cannot read out its hidden states"
            )
        return found

    def _head(self, states: torch.Tensor) -> torch.Tensor:
        """The output head, and the scaling or capping that some families have after it."""
        scale, cap = self._after_head
        logits = self.model.get_output_embeddings()(states)
        logits = logits if scale == 1 else logits * scale
        return logits if cap is None else (logits / cap).tanh() * cap

    @_found_once
    def _after_head(self) -> tuple[float, float | None]:
        """What logits are multiplied by, and what they are capped at."""
        config = self.model.config.get_text_config()
        scale = getattr(config, "logit_scale", None) or 1  # Cohere
        scale /= getattr(config, "logits_scaling", None) or 1  # Granite
        return scale, getattr(config, "final_logit_softcapping", None)  # Gemma

    def prompt_tokens(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt, text or tokens, checked.

        Raises
        ------
        ValueError
            If the prompt is empty or longer than the context, is neither text nor a sequence of whole numbers, holds
            ids outside the vocabulary, or is text while there is no tokenizer.
        """
        if isinstance(prompt, str):
            tokens = self.encode(prompt)
            if not tokens:
                raise ValueError(f"the prompt {prompt!r} has no tokens: give at least one")
        else:
            tokens = prompt
        tokens = self._check(tokens, "the prompt")
        if not tokens:
            raise ValueError(f"the prompt is empty ({prompt!r}): give at least one token")
        if len(tokens) > self.context:
            raise ValueError(
                f"the prompt has {len(tokens)} tokens, more than the context of {self.context}: shorten it"
                + f" ({self._limited_by})" * bool(self._limited_by)
            )
        return tokens

    def _open_cache(self, rows: int, static: bool = False):
        """An empty cache: what sessions and batches compute through. Models of another kind bring their own."""
        if self._may_cache(static):
            return KeyValues(self, static)
        return TokenCache(self, [[] for _ in range(rows)])

    def _may_cache(self, static: bool, length: int = 0) -> bool:
        slots = self.context + TREE_SLOTS if static else None
        return probe.may_cache(self, lambda lm, rows: KeyValues(lm, static and rows == 1), (slots,), length)

    def _reach(self, cache, rows: list[list[int]], length: int):
        """A cache for sequences that get `length` tokens long: this one, if the model may cache so far.

        `rows` are the tokens that it holds.
        """
        if length <= cache.reach:
            return cache
        if not self._may_cache(bool(cache.slots.fixed), length):
            return TokenCache(self, rows)
        cache.reach = probe.next_window(self.windows, length)
        return cache

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The last `rows` rows of logits, and of hidden states by layer, of one pass over `tokens` without a cache."""
        given = forward_parameters(self.model)
        options = {"use_cache": False} if "use_cache" in given else {}
        options |= {"logits_to_keep": rows} if self._keeps_logits else {}
        options |= {"output_hidden_states": True} if hidden else {}
        with torch.inference_mode():
            output = self.model(input_ids=torch.tensor([tokens], device=self.device), **options)
        states = self._states(output, hidden, 1, len(tokens))
        return output.logits[0, -rows:].to(self.device).clone(), {k: v[0, -rows:] for k, v in states.items()}

    def _states(self, output, layers: Sequence[int], rows: int, width: int) -> dict[int, torch.Tensor]:
        """Hidden states of a call by layer, (rows, width, features), as ordinary tensors."""
        # Those made in inference mode could not be changed in place outside of it.
        name = type(self.model).__name__
        if layers and output.hidden_states is None:
            raise ValueError(f"{name} gives no hidden states: this method needs them")
        states = {layer: output.hidden_states[layer].to(self.device).clone() for layer in layers}
        for layer, state in states.items():
            if state.ndim != 3 or state.shape[:2] != (rows, width):
                raise ValueError(
                    f"the hidden states of {name} are no vector for each token: layer {layer} has the shape "
                    f"{tuple(state.shape)} for {rows} rows of {width} tokens. This method cannot use them"
                )
        return states

    def _tokenizer(self, purpose: str):
        if self.tokenizer is None:
            raise ValueError(
                f"this LM has no tokenizer to {purpose} with: give token ids, or make LM(model, tokenizer)"
            )
        return self.tokenizer

    def _check(self, tokens: Iterable[int], name: str) -> list[int]:
        """`tokens` as a list of ints inside the vocabulary; a ValueError that says what is wrong otherwise."""
        tokens = ints(tokens, f"{name} must be a sequence of token ids (ints)")
        if tokens and (min(tokens) < 0 or max(tokens) >= self.vocab_size):
            wrong = [token for token in tokens if not 0 <= token < self.vocab_size]
            raise ValueError(f"{name} holds {wrong[:5]}, outside the vocabulary of {self.vocab_size} tokens")
        return tokens


class Session:
    """One sequence over a model: its tokens, their cache, and verbs to go on, back, or several ways at once.

    Made by `LM.session(prompt)`. The prompt is computed at the first feed.

    Parameters
    ----------
    lm : LM
    prompt : str or sequence of int
    hidden : int or sequence of int, optional
        Layers whose hidden states are wanted after each call, counted as transformers counts them: 0 is the embeddings,
        i is what layer i puts out and layer i + 1 takes in, and the last one (also -1) has passed the final norm: it is
        what the output head reads.
    cache : {"dynamic", "static"}
        "dynamic" grows as needed. "static" allocates the whole context at once and keeps every shape the same from one
        call to the next, as `torch.compile` wants; slower without it.

    Attributes
    ----------
    prompt_length : int
    calls : int
        Forward calls so far, the prompt's included (the prompt's is the first feed's: they are one call).
    hidden : (rows, width) tensor, or a dict of them by layer, or None
        Hidden states of the last call, row for row with the logits it returned; a dict if several layers were asked
        for.
    prompt_hidden : like `hidden`, with prompt_length rows
        Hidden states of the prompt's tokens; None until it is computed.

    Examples
    --------
    >>> session = lm.session([3, 1, 4])                      # doctest: +SKIP
    >>> logits = session.feed()                              # (1, vocab): what follows the prompt
    >>> logits = session.feed([1, 5])                        # (2, vocab): what follows 1, and what follows 5
    >>> session.rollback(1)                                  # the 5 is forgotten
    """

    def __init__(self, lm: LM, prompt, hidden=None, cache: str = "dynamic"):
        if cache not in ("dynamic", "static"):
            raise ValueError(f'cache={cache!r} is not a kind of cache: use "dynamic" or "static"')
        self.lm = lm
        self.calls = 0
        self.hidden = None
        self.prompt_hidden = None
        self._tokens = lm.prompt_tokens(prompt)
        self.prompt_length = len(self._tokens)
        self._single = hasattr(hidden, "__index__")  # hidden states of one layer: a tensor, not a dict
        self._layers = _hidden_layers(hidden, lm.layers)
        self._cache = lm._open_cache(rows=1, static=cache == "static")
        self._computed = 0  # how many of the tokens are in the cache; the rest is a prompt not yet computed
        self._tree: TokenTree | None = None

    def __repr__(self) -> str:
        return f"Session({len(self._tokens)} tokens, room for {self.room}, {self.calls} calls)"

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, the prompt's included (a copy). Tokens of a tree count once they are kept."""
        return list(self._tokens)

    @property
    def room(self) -> int:
        """How many more tokens fit into the context."""
        return self.lm.context - len(self._tokens)

    def feed(self, tokens: Iterable[int] = ()) -> torch.Tensor:
        """Add tokens, and get the logits of what follows each of them.

        Parameters
        ----------
        tokens : iterable of int
            May be empty at the first feed, which computes the prompt.

        Returns
        -------
        (rows, vocab) tensor, in the model's dtype and on its device
            One row for each token given. At the first feed the prompt's last row comes before them; the prompt's
            other rows are not computed.

        Raises
        ------
        ValueError
            If there is nothing to compute, more tokens than `room`, an id outside the vocabulary, or a tree of which
            no branch has been kept; `NaNLogits` if the model returns what is not a number. The session is unchanged.
        """
        tokens = self.lm._check(tokens, "tokens")
        self._refuse_open_tree("feed")
        pending = self._tokens[self._computed :]
        if not tokens and not pending:
            raise ValueError("feed() without tokens, but everything so far is computed: give at least one token")
        if len(tokens) > self.room:
            raise ValueError(
                f"{len(tokens)} tokens to feed, but room for {self.room} in the context of {self.lm.context}: "
                "cut them to session.room"
            )
        logits = self._call(pending, tokens, len(tokens) + bool(pending))
        self._tokens += tokens
        self._computed = len(self._tokens)
        return logits

    def rollback(self, n: int) -> None:
        """Forget the last n tokens, of the prompt too if n reaches that far. Costs nothing."""
        (n,) = ints([n], "rollback needs how many tokens to forget, a whole number")
        self._refuse_open_tree("rollback")
        if not 0 <= n <= len(self._tokens):
            raise ValueError(f"rollback({n}): expected 0 to {len(self._tokens)}, the number of tokens so far")
        if n:
            del self._tokens[-n:]
            self._computed = min(self._computed, len(self._tokens))

    def advance_to(self, tokens: Sequence[int]) -> torch.Tensor:
        """Go to another sequence: back to what both begin with, then feed the rest.

        Parameters
        ----------
        tokens : sequence of int
            The whole sequence wanted, prompt included. Its last token is always fed, even if it is there already.

        Returns
        -------
        (rows, vocab) tensor
            As `feed` returns them; the last row tells what follows the sequence.
        """
        tokens = self.lm._check(tokens, "tokens")
        if not tokens:
            raise ValueError("advance_to needs the whole sequence wanted, prompt included, but got no tokens")
        self._refuse_open_tree("advance_to")
        if len(tokens) > self.lm.context:
            raise ValueError(f"a sequence of {len(tokens)} tokens does not fit the context of {self.lm.context}")
        common = min(len(self._tokens), len(tokens) - 1)
        if self._tokens[:common] != tokens[:common]:
            common = next(i for i in range(common) if self._tokens[i] != tokens[i])
        self.rollback(len(self._tokens) - common)
        return self.feed(tokens[common:])

    def feed_tree(self, tree: TokenTree) -> torch.Tensor:
        """Score every node of a tree in one call; `keep` must follow.

        Returns
        -------
        (nodes, vocab) tensor
            One row a node, in the tree's order: what follows the node's token, given the tokens so far and the node's
            ancestors, and nothing else of the tree.

        Raises
        ------
        ValueError
            If the tree is empty or deeper than `room`, holds ids outside the vocabulary, or another tree is open.
        """
        self._refuse_open_tree("feed_tree")
        tokens = self.lm._check(tree.tokens, "the tree")
        if not tokens:
            raise ValueError("the tree is empty: give at least one node")
        deepest = max(tree.depths) + 1
        if deepest > self.room:
            raise ValueError(
                f"the tree is {deepest} tokens deep, but there is room for {self.room} in the context of "
                f"{self.lm.context}: cut it to session.room"
            )
        logits = self._call(self._tokens[self._computed :], tokens, len(tokens), None if tree.is_chain else tree)
        self._computed = len(self._tokens)
        self._tree = tree
        return logits

    def keep(self, path: Sequence[int]) -> None:
        """Keep one branch of the tree just fed, and forget the rest of it.

        Parameters
        ----------
        path : sequence of int
            Nodes from the top of the tree downwards, each the child of the one before; empty keeps nothing.
        """
        if self._tree is None:
            raise ValueError("keep: there is no tree; call feed_tree first, and keep once after each")
        path = ints(path, "keep needs a path of nodes (ints)")
        parent = -1
        for node in path:
            if not 0 <= node < len(self._tree) or self._tree.parents[node] != parent:
                raise ValueError(
                    f"{path} is not a path down the tree: node {node} is not a child of {parent} "
                    f"(parents: {self._tree.parents})"
                )
            parent = node
        self._cache.move(self._computed, path)
        self._tokens += [self._tree.tokens[node] for node in path]
        self._computed = len(self._tokens)
        self._tree = None

    def _refuse_open_tree(self, verb: str) -> None:
        if self._tree is not None:
            raise ValueError(f"{verb}: a tree has been fed; keep a branch of it first, or keep(()) to forget it")

    def _call(self, pending: list[int], tokens: list[int], rows: int, tree: TokenTree | None = None) -> torch.Tensor:
        """Compute `pending` (a chain) and then `tokens` (a chain, or the tree's nodes); the last `rows` rows."""
        length = self._computed + len(pending) + len(tokens)
        self._cache = self.lm._reach(self._cache, [self._tokens[: self._computed]], length)
        self.calls += 1
        logits, states = self._cache.call([pending + tokens], [self._computed], rows, tree=tree, hidden=self._layers)
        logits = logits[0]
        _refuse_nan(logits)
        if self._layers:
            last = {layer: state[0, -rows:] for layer, state in states.items()}
            self.hidden = last[self._layers[0]] if self._single else last
            if self.prompt_hidden is None:
                prompt = {layer: state[0, : len(pending)] for layer, state in states.items()}
                self.prompt_hidden = prompt[self._layers[0]] if self._single else prompt
        return logits


class Batch:
    """Several sequences computed together, each as if it were alone. Made by `LM.batch(prompts)`.

    Rows may differ in length from the start, and may be fed and rolled back by different amounts.

    Attributes
    ----------
    tokens : list of lists of int
        All tokens so far, row by row, prompts included (a copy).
    room : list of int
        How many more tokens fit into the context, row by row.
    calls : int
    """

    def __init__(self, lm: LM, prompts: Sequence[str | Sequence[int]]):
        prompts = concrete(prompts)
        if isinstance(prompts, str | bytes | Mapping | Set) or not len(prompts):
            raise ValueError(f"a batch needs a list of at least one prompt, got {prompts!r}")
        self.lm = lm
        self.calls = 0
        self._tokens = [lm.prompt_tokens(prompt) for prompt in prompts]
        self._computed = [0] * len(prompts)
        self._cache = lm._open_cache(rows=len(prompts))

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"Batch({len(self)} rows of {[len(row) for row in self._tokens]} tokens, {self.calls} calls)"

    @property
    def tokens(self) -> list[list[int]]:
        return [list(row) for row in self._tokens]

    @property
    def room(self) -> list[int]:
        return [self.lm.context - len(row) for row in self._tokens]

    def feed(self, lists: Sequence[Iterable[int]]) -> list[torch.Tensor]:
        """Add tokens to each row, in one call.

        Parameters
        ----------
        lists : one iterable of int for each row
            They may differ in length, and be empty for rows that have nothing to add (not for all of them, unless
            prompts are still to be computed).

        Returns
        -------
        list of (rows, vocab) tensors
            For each row of the batch what `Session.feed` would return; (0, vocab) where nothing was computed.
        """
        lists = concrete(lists)
        self._expect_one_each(lists, "feed")
        lists = [self.lm._check(tokens, f"row {row}") for row, tokens in enumerate(lists)]
        for row, (tokens, room) in enumerate(zip(lists, self.room, strict=True)):
            if len(tokens) > room:
                raise ValueError(f"row {row}: {len(tokens)} tokens to feed, room for {room}: cut them to batch.room")
        pending = [tokens[computed:] for tokens, computed in zip(self._tokens, self._computed, strict=True)]
        new = [old + tokens for old, tokens in zip(pending, lists, strict=True)]
        if not any(new):
            raise ValueError("feed: no row has anything to compute: give at least one of them a token")
        # Each row wants logits from its prompt's last token, or its first new one, to its end; nobody wants the others.
        firsts = [max(len(old) - 1, 0) for old in pending]
        spans = [range(first, len(tokens)) for first, tokens in zip(firsts, new, strict=True)]
        wanted = sorted(set().union(*spans))
        computed = [tokens[:count] for tokens, count in zip(self._tokens, self._computed, strict=True)]
        self._cache = self.lm._reach(self._cache, computed, max(self._computed) + max(map(len, new)))
        self.calls += 1
        logits, _ = self._cache.call(new, self._computed, wanted)
        rows = []
        for row, span in enumerate(spans):
            start = wanted.index(span[0]) if span else 0
            rows.append(logits[row, start : start + len(span)])
        _refuse_nan(*rows)
        for row, tokens in enumerate(lists):
            self._tokens[row] += tokens
        self._computed = [len(tokens) for tokens in self._tokens]
        return rows

    def rollback(self, counts: Sequence[int]) -> None:
        """Forget the last tokens of each row, as many as `counts` says for it."""
        counts = concrete(counts)
        self._expect_one_each(counts, "rollback")
        counts = ints(counts, "rollback needs how many tokens each row forgets (ints)")
        for row, (count, tokens) in enumerate(zip(counts, self._tokens, strict=True)):
            if not 0 <= count <= len(tokens):
                raise ValueError(f"rollback: row {row} has {len(tokens)} tokens, but {count} are to be forgotten")
        for row, count in enumerate(counts):
            del self._tokens[row][len(self._tokens[row]) - count :]
            self._computed[row] = min(self._computed[row], len(self._tokens[row]))

    def reorder(self, rows: Sequence[int]) -> None:
        """Let row i go on from what row `rows[i]` is now: what beam search does to its beams.

        Rows may be repeated or left out, and there may be more or fewer of them than before.
        """
        rows = ints(rows, "reorder needs row numbers (ints)")
        if not rows or min(rows) < 0 or max(rows) >= len(self):
            raise ValueError(f"reorder({rows}): expected at least one row number from 0 to {len(self) - 1}")
        if rows == list(range(len(self))):
            return
        self._cache.reorder(rows, max(self._computed))
        self._tokens = [list(self._tokens[row]) for row in rows]
        self._computed = [self._computed[row] for row in rows]

    def _expect_one_each(self, values, verb: str) -> None:
        if len(values) != len(self):
            raise ValueError(f"{verb}: the batch has {len(self)} rows, got {len(values)} entries: give one for each")


def _check_parts(model, tokenizer) -> None:
    """Raise ValueError for what is no loaded model with an output head, or no tokenizer."""
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


def _hidden_layers(hidden: int | Sequence[int] | None, n_layers: int) -> tuple[int, ...]:
    given = [] if hidden is None else [hidden] if hasattr(hidden, "__index__") else hidden
    layers = tuple(ints(given, f"hidden={hidden!r} must be the number of a layer, or several"))
    for layer in layers:
        if not -n_layers - 1 <= layer <= n_layers:
            raise ValueError(
                f"hidden={hidden!r}: there is no layer {layer}; the model has hidden states 0 (embeddings) "
                f"to {n_layers} (after the final norm)"
            )
    return layers


def _refuse_nan(*logits: torch.Tensor) -> None:
    # The largest of some numbers is NaN if any of them is.
    tops = [rows.max() for rows in logits if rows.numel()]
    top = float(tops[0] if len(tops) == 1 else torch.stack(tops).max())
    if top != top:
        raise NaNLogits(
            "the model returned logits that are NaN: its weights may be damaged, or its dtype too narrow "
            "(float16 overflows in models trained in bfloat16: load them in bfloat16 or float32)"
        )
