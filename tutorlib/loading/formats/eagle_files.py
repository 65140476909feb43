"""Files of EAGLE networks: in the layout of their authors, and in that of the package `speculators`.

Parameters have the same names as here, except that `speculators` calls EAGLE-3's layer `layers.0` instead of
`midlayer`, and does not support EAGLE-1. What stands in the configurations, and what of it cannot be done here, is in
`eagle_configs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from ...drafting.draft_session import check_target
from ...drafting.eagle_head import DraftNetwork, Eagle3Head, EagleHead
from ...drafting.head_parts import TREE
from ...drafting.parallel_head import ParallelHead
from .eagle_configs import (
    check_known,
    check_one_layer,
    check_speculators,
    checked_tree,
    eagle3_network,
    eagle_layout,
    flag,
    inner_config,
    is_eagles,
    published_config,
    read_layer_config,
    speculators_config,
)
from .files import (
    CONFIG,
    OURS,
    check_layout,
    check_sizes,
    fitting,
    layout_names,
    our_entry,
    output_weight,
    read_config,
    read_folder,
    weight_of,
    without_weights,
    write_folder,
)

LAYOUTS = ("eagle", "speculators")
# What an EAGLE-3 network may share with its target.
BORROWED = ("embed_tokens.weight", "lm_head.weight")


# Writing.


def save_eagle(
    head: DraftNetwork,
    folder,
    layout: str = "eagle",
    *,
    base: str = "",
    borrowed: Iterable[str] = (),
    pickled: bool = False,
) -> Path:
    """Write an EAGLE-1 or EAGLE-3 network to a folder.

    Like `save_medusa`, it replaces the tensors first and the configuration last.

    Parameters
    ----------
    head : EagleHead or Eagle3Head
    folder : path
        Created if it is missing.
    layout : {"eagle", "speculators"}
        The layout of the authors, or that of the package `speculators` and vLLM, which is for EAGLE-3 only.
    base : str
        The target's hub name, which is stored.
    borrowed : iterable of {"embed_tokens.weight", "lm_head.weight"}
        Weights of an EAGLE-3 network that are the target's own. They are left out of the file, and `load_eagle` takes
        the target's. Many published files leave out the embeddings; only `tutorlib` leaves out the output head.
    pickled : bool
        Whether to write a pickle, `pytorch_model.bin`, in place of safetensors.

    Returns
    -------
    path of the file with the tensors

    Raises
    ------
    ValueError
        If the layout is unknown or does not support the network; if the folder contains something else, such as a
        model; if the network could not be read again, because its `tree` is wrong, or because its vocabulary consists
        of the target's first tokens (the map would be all zeros, like one that was never filled).
    """
    check_layout(layout, LAYOUTS)
    third, place, tensors = isinstance(head, Eagle3Head), Path(folder) / CONFIG, head.state_dict()
    for name in borrowed:
        if not third or name not in BORROWED:
            raise ValueError(f"borrowed may name {', '.join(BORROWED)} of an EAGLE-3 network, got {name!r}")
        del tensors[name]
    if layout == "speculators":
        check_speculators(head)
    if place.exists() and not is_eagles(read_config(folder)):
        raise ValueError(f"{place} is not that of an EAGLE network: give a folder of its own")
    if third:
        check_maps(tensors["d2t"], tensors["t2d"], folder)
    if layout == "speculators" and isinstance(head, Eagle3Head):  # as `check_speculators` has found
        if len(head.d2t) == head.vocab_size:  # where no map is needed, there is none
            del tensors["d2t"], tensors["t2d"]
        config = speculators_config(head, base)
    else:
        config = published_config(head, base)
    config[OURS] = {"tree": checked_tree(head.tree)}
    if third:
        config[OURS]["feature_layers"] = list(head.feature_layers)
    if isinstance(head, ParallelHead):
        config[OURS]["masks"] = head.masks
    return write_folder(folder, layout, config, tensors, pickled)


# Reading.


def load_eagle(folder, target=None, *, dtype: torch.dtype | None = None) -> EagleHead | Eagle3Head:
    """Read an EAGLE network from a folder. Its kind and its layout are found from the files.

    It is an EAGLE-3 network if `config.json` has `draft_vocab_size` or is in the layout of `speculators`, or if there
    is a tensor of a `midlayer`; otherwise it is an EAGLE-1 network.

    Parameters
    ----------
    folder : path
    target : LM, optional
        The network is checked to fit it, and put on its device. A target is required if the file lacks one of the
        following. Without `embed_tokens.weight`, as in some published files, the target's embeddings are used. For
        EAGLE-3, without the numbers of the layers whose features are read, `usual_layers` are used; without
        `lm_head.weight`, rows of the target's output head.
    dtype : torch.dtype, optional
        By default the dtype of the file.

    Returns
    -------
    EagleHead or Eagle3Head
        In evaluation mode, with the numbers of the file.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape or dtype (the message names the file, the
        tensor or key, and what was expected); if a pickle contains anything but tensors (nothing in it is executed); if
        there is more than one layer, in the configuration or in the file, or one that sees only a window; if the maps
        `d2t` and `t2d` point outside the vocabulary, are not filled or contradict each other; if the vocabulary, width
        or number of layers does not fit the target; if the network does something that `drafting.eagle_head` does
        not support.

    Notes
    -----
    The layers that EAGLE-3 reads are taken from the first of these that is there: `feature_layers` in our own entry;
    the key `eagle_aux_hidden_state_layer_ids` of `speculators` and vLLM, which numbers hidden states as in transformers
    (0 is the embeddings); the same key in `eagle_config`, as read by SGLang, which numbers the layers whose outputs
    they are, so each number is smaller by one.

    If `norm_before_residual` is missing it is false, except in the layout of `speculators`, where it is true. vLLM
    reads these files in the same way. (That package always writes the key.)
    """
    layout, config, tensors, place, path = read_folder(folder, eagle_layout)
    said, where = inner_config(config, place) if layout == "speculators" else (config, place)
    third = layout == "speculators" or "draft_vocab_size" in config or any(n.startswith("midlayer.") for n in tensors)
    check_one_layer(said, tensors, where, path)
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim")
    check_sizes(said, keys, tensors, where, path)
    sizes = read_layer_config(said, where)
    check_known(config, said, where)
    try:
        tree = checked_tree(our_entry(config, place).get("tree", TREE))
    except ValueError as error:
        raise ValueError(f'{place}: "{OURS}": {error}') from None
    if third:
        head = eagle3_network(config, sizes, target, layout, place)
    else:
        head = without_weights(EagleHead, sizes, bias=flag(config, "bias", True, place))
    if target is not None:
        try:
            check_target(target, head)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    names, lent = layout_names(head.state_dict(), layout), {}
    if "embed_tokens.weight" not in tensors:
        lent["embed_tokens.weight"] = _embeddings(target, tuple(head.embed_tokens.weight.shape), path)
    if third and len(head.d2t) == head.vocab_size and not {"d2t", "t2d"} & tensors.keys():
        lent |= {"d2t": head.d2t, "t2d": head.t2d}  # where every token is known, no map is needed
    # To be filled when the map of tokens has been checked.
    if third and "lm_head.weight" not in tensors:
        lent["lm_head.weight"] = head.lm_head.weight
    if third and "d2t" in tensors and "t2d" not in tensors:
        lent["t2d"] = head.t2d
    names = {name: there for name, there in names.items() if name not in lent}
    found = fitting(head, tensors, names, path) | lent
    if third:
        known = known_tokens(found["d2t"], head.vocab_size, path)
        if "t2d" in lent:
            found["t2d"] = known
        check_maps(found["d2t"], found["t2d"], path)
        if "lm_head.weight" in lent:
            found["lm_head.weight"] = _output_rows(target, found["d2t"], path)
    dtype = found["fc.weight"].dtype if dtype is None else dtype
    found = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in found.items()}
    head.load_state_dict(found, assign=True)
    head.tree = tree
    return head.eval() if target is None else head.eval().to(target.device)


def check_maps(d2t: torch.Tensor, t2d: torch.Tensor, path) -> None:
    """Raise ValueError that names the map when an EAGLE-3 network's tokens are not tokens of the target's, ascending.

    Parameters
    ----------
    d2t : int64 tensor of shape (known,)
        What to add to a token of the network's to have the target's.
    t2d : bool tensor of shape (vocab_size,)
        Which of the target's tokens are known.
    """
    t2d = t2d.cpu()
    differing = (known_tokens(d2t, len(t2d), path) != t2d).nonzero().flatten().tolist()
    if differing:
        token = differing[0]
        which, other = ("t2d", "d2t") if t2d[token] else ("d2t", "t2d")
        raise ValueError(f"{path}: {which} has the target's token {token}, {other} has not: they contradict each other")


def known_tokens(d2t: torch.Tensor, vocab_size: int, path) -> torch.Tensor:
    """Which of the target's tokens a map `d2t` has, as `t2d` says it: bool, (vocab_size,). Errors as `check_maps`."""
    d2t = d2t.cpu()
    known = len(d2t)
    if known < vocab_size and not d2t.any():
        raise ValueError(
            f"{path}: d2t is all zeros, as a map that was never filled: expected what to add to the network's "
            f"{known} tokens to have {known} of the target's {vocab_size}"
        )
    tokens = torch.arange(known) + d2t
    outside = ((tokens < 0) | (tokens >= vocab_size)).nonzero().flatten().tolist()
    if outside:
        first = outside[0]
        raise ValueError(
            f"{path}: d2t makes token {first} the target's {int(tokens[first])}, expected one of 0 to {vocab_size - 1}"
        )
    falling = (tokens.diff() <= 0).nonzero().flatten().tolist()
    if falling:
        first, second = tokens[falling[0] : falling[0] + 2].tolist()
        raise ValueError(f"{path}: d2t goes from the target's token {first} to {second}: expected ascending, each once")
    return torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, tokens, True)


def _embeddings(target, shape: tuple[int, ...], path) -> torch.Tensor:
    """A copy of the target's embeddings, (vocab, width), for a file that has none."""
    if target is None:
        raise ValueError(
            f"{path}: embed_tokens.weight is missing, so that the target's are used: load_eagle(folder, target)"
        )
    module = target.model.get_input_embeddings() if target.model is not None else None
    weight = weight_of(module)
    if weight is None or tuple(weight.shape) != shape or not weight.is_floating_point():
        raise ValueError(
            f"{path}: embed_tokens.weight is missing, and {target!r} has no embeddings of shape {shape} to be used"
        )
    return weight.detach().to("cpu", copy=True)


def _output_rows(target, d2t: torch.Tensor, path) -> torch.Tensor:
    """A copy of the rows of the target's output head, (known, width), for a file that has none."""
    if target is None:
        raise ValueError(f"{path}: lm_head.weight is missing, so that the target's is used: load_eagle(folder, target)")
    try:
        whole = output_weight(target)
    except ValueError as error:
        raise ValueError(f"{path}: lm_head.weight is missing, and {error}") from error
    return whole.to("cpu")[torch.arange(len(d2t)) + d2t.cpu()]
