"""What `generate` hands to a custom function, read for these methods: prompts without padding, budgets, stop tokens.

What a session cannot be given is refused here by name. What this file does not do: refuse options (`options`), or turn
logits processors into warps (`processors`).
"""

from collections.abc import Callable, Sequence

import torch
import transformers

from ..model.lm import LM

# What a cache is called; transformers 5.24 has one name for all.
_CACHES = {"cache", "cache_params", "past_key_values"}
# Arguments that `generate` prepares for the model, with those that are options too; sessions make their own.
_PREPARED = _CACHES | {
    "attention_mask", "cache_position", "input_ids", "logits_to_keep", "output_attentions", "output_hidden_states",
    "position_ids", "use_cache",
}  # fmt: skip


def refuse_model_kwargs(model_kwargs: dict, given: dict | None) -> None:
    """Raise ValueError for arguments that `generate` would pass to the model and sessions cannot.

    Parameters
    ----------
    model_kwargs : dict
        What `generate` has prepared. Some models' classes add to it what says nothing: an empty dict, a new cache.
    given : dict or None
        What of it the caller passed, as it was passed; None if this is not known.
    """
    given = model_kwargs if given is None else given
    for name in _CACHES & given.keys():
        if given[name] is not None and _holds_tokens(given[name]):
            raise ValueError(
                f"{name} already holds tokens: methods keep caches of their own, so leave it out and give the whole "
                "text as input_ids"
            )
    for name, value in (model_kwargs | given).items():
        if name not in _PREPARED and not _says_nothing(value):
            source = "was given" if name in given else "has prepared"
            raise ValueError(f"generate {source} {name}, which these methods cannot hand to the model: leave it out")


def _says_nothing(value) -> bool:
    empty = isinstance(value, (dict, list, tuple, str)) and not value
    return value is None or empty or (isinstance(value, torch.Tensor) and not value.numel())


def _holds_tokens(cache) -> bool:
    # Recurrent layers count no tokens.
    states = [getattr(layer, "has_previous_state", None) for layer in getattr(cache, "layers", ())]
    return bool(cache.get_seq_length()) or any(any(state.values()) for state in states if isinstance(state, dict))


def refuse_prepared_elsewhere(model) -> None:
    """Raise ValueError if something else prepares the model's inputs, which sessions would pass by.

    peft does so for a prompt that it has learned: it calls `generate` of the model inside.
    """
    prepare = getattr(model, "prepare_inputs_for_generation", None)
    if getattr(prepare, "__func__", None) is not getattr(type(model), "prepare_inputs_for_generation", None):
        owner = type(getattr(prepare, "__self__", prepare)).__name__
        raise ValueError(
            f"prepare_inputs_for_generation of this {type(model).__name__} was replaced (by {owner}), for instance to "
            "put a learned prompt before the text, which these methods would leave out. Give the whole model to LM, as "
            "in run(method(LM(peft_model), prompt), 40): it tests how such a model can be computed"
        )


def unpadded(
    input_ids: torch.Tensor, mask: torch.Tensor | None, pad: int | None, has_mask: bool = True
) -> tuple[list[list[int]], list[int]]:
    """The rows without their padding.

    Parameters
    ----------
    input_ids, mask : tensors, shape (rows, columns)
        0 in the mask means padding. Without a mask there is no padding.
    pad : int or None
        The token that pads.
    has_mask : bool
        Whether the mask was given. If not, `generate` has made it: wherever the token that pads is, it has a 0.

    Returns
    -------
    prompts : list of lists of int
    padding : list of int
        How many columns were removed at the left of each row.
    """
    rows = input_ids.tolist()
    if mask is None:
        mask = torch.ones_like(input_ids)
    if mask.shape != input_ids.shape:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, but input_ids {tuple(input_ids.shape)}")
    padding = [sum(value == 0 for value in row) for row in mask.tolist()]
    for row, (values, count) in enumerate(zip(mask.tolist(), padding, strict=True)):
        if any(values[:count]) or not all(values[count:]):
            source = "attention_mask" if has_mask else f"the attention_mask that generate has made of the tokens {pad}"
            raise ValueError(
                f"row {row}: {source} has a 0 after a 1; padding must be on the left (tokenizer.padding_side = "
                "'left'), and the text without a gap" + ". If they are no padding, pass attention_mask" * (not has_mask)
            )
        if count == len(values):
            raise ValueError(f"row {row} of input_ids is empty, or padding alone: give at least one token")
    fronts = [next((place for place, token in enumerate(row) if token != pad), len(row)) for row in rows]
    if not has_mask and not any(padding) and len(set(fronts)) > 1:
        raise ValueError(
            f"the rows begin with {', '.join(map(str, fronts))} tokens {pad}, which is pad_token_id, and no "
            "attention_mask says which of them are padding: pass the tokenizer's attention_mask"
        )
    return [row[count:] for row, count in zip(rows, padding, strict=True)], padding


def refuse_positions(position_ids: torch.Tensor | None, padding: list[int]) -> None:
    """Raise ValueError for positions other than 0, 1, 2, ... from the first token of each row."""
    if position_ids is None or position_ids.ndim != 2:
        return
    for row, count in zip(position_ids.expand(len(padding), -1).tolist(), padding, strict=True):
        if row[count:] != list(range(len(row) - count)):
            raise ValueError(f"position_ids={row}: these methods count positions from the first token; leave it out")


def read_criteria(criteria: Sequence[Callable], width: int, lm: LM) -> tuple[int, list[int], list[Callable]]:
    """Find in the criteria the largest number of new tokens and the stop tokens; return the other criteria
    unchanged.
    """
    budgets, stop, others = [], [], []
    for one in criteria:
        if isinstance(one, transformers.generation.MaxLengthCriteria):
            budgets.append(one.max_length - width)
        elif isinstance(one, transformers.generation.EosTokenCriteria):
            stop += [token for token in one.eos_token_id.tolist() if 0 <= token < lm.vocab_size]
        else:
            others.append(one)
    return min(budgets, default=lm.context), stop, others
