"""Files of a joint, DSpark's or DFlash2's, without the DFlash network to which it belongs.

The names are tutorlib's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ...drafting.dflash2_head import DFlash2Head
from ...drafting.dflash_head import DFlashHead
from ...drafting.dspark_head import DSparkHead
from ...drafting.head_parts import TREE
from ...drafting.joint_head import JointHead
from .eagle_configs import checked_tree
from .files import OURS, check_sizes, fitting, our_entry, read_folder, whole_number, without_weights, write_folder

Joint = TypeVar("Joint", bound=JointHead)
# Kind of head → its layout, `architectures` in config.json, and the name of its rank there.
KINDS: dict[type[JointHead], tuple[str, str, str]] = {
    DSparkHead: ("dspark", "DSparkJoint", "markov_rank"),
    DFlash2Head: ("dflash2", "DFlash2Joint", "selector_rank"),
}


def save_dspark(head: DSparkHead, folder, *, base: str = "") -> Path:
    """Write the joint of a DSpark head to a folder: ``config.json`` and ``model.safetensors``.

    Parameters
    ----------
    head : DSparkHead
        Its network is not written, see `save_dflash`.
    folder : path
        Created if it is missing.
    base : str
        The target's name, which is stored.

    Returns
    -------
    path of the file with the tensors
    """
    return _save(head, folder, base)


def load_dspark(folder, network: DFlashHead) -> DSparkHead:
    """Read a joint for a DFlash network.

    Parameters
    ----------
    folder : path
    network : DFlashHead
        The one with which it was trained. The head uses it, and is put on its device, with its dtype.

    Returns
    -------
    DSparkHead
        In evaluation mode.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape (the message names the file, and the tensor
        or key), or if the sizes are not those of the network.
    """
    return _load(DSparkHead, folder, network)


def save_dflash2(head: DFlash2Head, folder, *, base: str = "") -> Path:
    """Write the joint of a DFlash2 head, as `save_dspark` does."""
    return _save(head, folder, base)


def load_dflash2(folder, network: DFlashHead) -> DFlash2Head:
    """Read a joint of DFlash2 for a DFlash network, as `load_dspark` does."""
    return _load(DFlash2Head, folder, network)


def _save(head: JointHead, folder, base: str) -> Path:
    layout, kind, rank = KINDS[type(head)]
    config = {
        "architectures": [kind],
        rank: head.rank,
        "vocab_size": head.vocab_size,
        "hidden_size": head.width,
        "base_model_name_or_path": base,
        OURS: {"tree": checked_tree(head.tree)},
    }
    return write_folder(folder, layout, config, head.joint, pickled=False)


def _load(made: type[Joint], folder, network: DFlashHead) -> Joint:
    layout, kind, rank = KINDS[made]

    def layout_of(config: dict, place: Path) -> str:
        if config.get("architectures") != [kind]:
            raise ValueError(f"{place} is not of a {made.title}: its architectures are {config.get('architectures')!r}")
        return layout

    _, config, tensors, place, path = read_folder(folder, layout_of)
    check_sizes(config, (rank, "vocab_size", "hidden_size"), tensors, place, path)
    for key, size in (("vocab_size", network.vocab_size), ("hidden_size", network.width)):
        if whole_number(config, key, 1, place) != size:
            raise ValueError(
                f"{place}: the joint has {key} {config[key]}, the DFlash network {size}: load the network with which "
                "it was trained"
            )
    try:
        tree = checked_tree(our_entry(config, place).get("tree", TREE))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    head = without_weights(made, network, whole_number(config, rank, 1, place))
    found = fitting(head, tensors, {name: name for name in head.joint}, path)
    head.load_state_dict(found, assign=True, strict=False)
    head.tree = tree
    like = network.fc.weight
    return head.to(like.device, like.dtype).eval().requires_grad_(False)
