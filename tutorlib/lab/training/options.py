"""The options of ``python -m tutorlib train``, for each thing that it makes.

What this file does not do: check what was given, or make anything (`__main__`).
"""

import argparse
from pathlib import Path

from tutorlib.drafting.head_parts import TREE
from tutorlib.lab.training import (
    text_files,
    train_dflash,
    train_eagle,
    train_joints,
    train_medusa,
    train_mtp,
    train_ngram,
    train_parallel,
    train_pruned,
    train_village,
)
from tutorlib.lab.training.labels import LOSSES

# What the target may do in half precision. The heads are trained in float32.
HALF = "let the target {} in bfloat16, which is faster on processors and GPUs that have it"


def command_line(description) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the whole command, and those of what it can make, by name."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib train", description=description)
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    village = what.add_parser("storyworld", help="the bundled language models", description=train_village.__doc__)
    village.add_argument(
        "--only", action="append", choices=list(train_village.RECIPES), help="train only this model; may be repeated"
    )
    village.add_argument("--out", type=Path, default=Path("weights"), help="where the models go (default: weights)")
    village.add_argument("--compile", action="store_true", help="compile the step: faster, needs a C++ compiler")
    heads = what.add_parser("medusa", help="Medusa heads for a target", description=train_medusa.__doc__)
    heads.add_argument("--heads", type=int, default=4, help="number of heads (default: 4)")
    heads.add_argument("--layers", type=int, default=1, help="residual blocks in each head (default: 1)")
    heads.add_argument(
        "--nodes", type=int, default=train_medusa.NODES, help="nodes in their tree (default: %(default)s)"
    )
    heads.add_argument("--hard", action="store_true", help="train on the tokens and not on the target's probabilities")
    heads.add_argument(
        "--vocabulary", type=int, metavar="N", help="number of tokens that the heads know (default: all)"
    )
    heads.add_argument("--joint", action="store_true", help="train the target too (Medusa-2), and write a family")
    _add_learning(heads, steps=3000, rate=1e-3)
    first = what.add_parser("eagle", help="an EAGLE-1 network for a target", description=train_eagle.__doc__)
    first.add_argument("--noise", type=float, default=0.2, help="width of the noise on features (default: 0.2)")
    first.add_argument(
        "--no-bias", action="store_true", help="no bias where token and feature are joined, as vLLM needs it"
    )
    _add_learning(first, steps=4000, rate=3e-3)
    third = what.add_parser("eagle3", help="an EAGLE-3 network for a target", description=train_eagle.__doc__)
    third.add_argument("--depth", type=int, default=7, help="number of its own steps to train on (default: 7)")
    third.add_argument(
        "--from-last-layer", action="store_true",
        help="start as a copy of the target's last layer, which helps when there is little time",
    )  # fmt: skip
    _add_learning(third, steps=2500, rate=3e-3)
    third.add_argument(
        "--normed", action="store_true",
        help="norm each feature before they are joined, and continue from the normed state (EAGLE-3.1)",
    )  # fmt: skip
    blocks = what.add_parser("dflash", help="a DFlash network for a target", description=train_dflash.__doc__)
    blocks.add_argument(
        "--block", type=int, default=train_dflash.BLOCK,
        help="tokens in a block, the known one included (default: %(default)s)",
    )  # fmt: skip
    _add_learning(blocks, steps=2000, rate=2e-3)
    modules = what.add_parser(
        "mtp", help="modules of multi-token prediction for a target", description=train_mtp.__doc__
    )
    modules.add_argument("--modules", type=int, default=1, help="modules, one for each token (default: 1, used again)")
    modules.add_argument("--depth", type=int, default=7, help="steps to train one module on (default: 7)")
    _add_learning(modules, steps=2000, rate=2e-3)
    masked = what.add_parser("parallel", help="a parallel draft for a target", description=train_parallel.__doc__)
    masked.add_argument(
        "--masks", type=int, default=train_parallel.MASKS, help="masks after the text (default: %(default)s)"
    )
    _add_learning(masked, steps=2000, rate=3e-3)
    joints = [
        what.add_parser(name, help=f"{title}'s joint for a DFlash network", description=train_joints.__doc__)
        for name, title in (("dspark", "DSpark"), ("dflash2", "DFlash2"))
    ]
    for joint in joints:
        joint.add_argument(
            "--network", type=Path, metavar="FOLDER", help="the DFlash network (default: that of the target's family)"
        )
        joint.add_argument(
            "--rank", type=int, default=train_joints.RANK, help="width of its two matrices (default: %(default)s)"
        )
        _add_learning(joint, steps=600, rate=5e-3)
    few = what.add_parser("pruned", help="a draft made of some layers of a target", description=train_pruned.__doc__)
    few.add_argument(
        "--layers", type=int, nargs="+", metavar="N",
        help="the target's layers of which it is made, from 0 (default: the first two and the last two)",
    )  # fmt: skip
    few.add_argument(
        "--vocabulary", type=int, metavar="N",
        help="compare the probabilities of this number of frequent tokens, which is faster (default: all)",
    )  # fmt: skip
    few.add_argument(
        "--eight-bits", action="store_true", help="store its matrices in eight bits: files of half the size"
    )
    _add_learning(few, steps=2500, rate=5e-4)
    for command in (heads, third, few, blocks, *joints, modules, masked):
        command.add_argument(
            "--loss", choices=list(LOSSES), default="ce",
            help="cross-entropy, or the acceptance itself where it has a useful gradient (default: ce)",
        )  # fmt: skip
    for command in (third, modules, masked):
        command.add_argument(
            "--thin", type=int, default=1, metavar="N",
            help="train the steps after the first at every N-th position, which takes less time (default: 1, all)",
        )  # fmt: skip
    for command in (third, masked):
        command.add_argument(
            "--vocabulary", type=int, metavar="N",
            help=f"how many of the most frequent tokens it knows (default: {100 * train_eagle.KNOWN:g} %% of all)",
        )  # fmt: skip
    for command in (third, blocks, masked):
        command.add_argument(
            "--layers",
            type=int,
            nargs="+",
            metavar="N",
            help="layers whose hidden states it reads (default: low, middle, high)",
        )
    for command in (heads, third):
        command.add_argument(
            "--borrow", action="store_true",
            help="use the target's output head and leave it out of the files, which become much smaller",
        )  # fmt: skip
    for command in (first, third, blocks, *joints, modules, masked):
        command.add_argument(
            "--tree", type=int, nargs=3, metavar=("NODES", "DEPTH", "TOP_K"), default=list(TREE.values()),
            help="sizes of its dynamic tree (default: {nodes} {depth} {top_k})".format_map(TREE),
        )  # fmt: skip
        command.add_argument("--confidence", type=float, default=0.0, help="confidence of that tree (default: 0)")
        command.add_argument(
            "--greedy-temperature", type=float, default=1.0, help="greedy temperature of that tree (default: 1)"
        )
    texts = what.add_parser(
        "texts", help="only the texts that a target writes, in one file", description=text_files.__doc__
    )
    counted = what.add_parser("ngram", help="an n-gram draft for a target", description=train_ngram.__doc__)
    counted.add_argument(
        "--order", type=int, default=3, help="number of earlier tokens that it uses (default: %(default)s)"
    )
    counted.add_argument(
        "--megabytes", type=float, default=train_ngram.MEGABYTES, help="largest size of its file (default: %(default)s)"
    )
    _add_texts(counted)
    _add_texts(texts)
    texts.add_argument("--half", action="store_true", help=HALF.format("write"))
    for command in (village, heads, first, third, few, blocks, *joints, modules, masked, counted, texts):
        command.add_argument(
            "--runs", type=Path, default=Path("runs"), help="folder for checkpoints and logs (default: runs)"
        )
        command.add_argument("--device", help="cpu or cuda (default: a GPU if there is one)")
        command.add_argument("--threads", type=int, help="threads on a CPU (default: torch's own choice)")
        command.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser, what.choices


def _add_texts(parser):
    """The options of everything that is made of texts sampled from a target."""
    parser.add_argument("--target", default="storyworld", help="a family, a hub name or a folder (default: storyworld)")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write (for texts: the file)")
    parser.add_argument(
        "--texts", type=int, default=4096, help="number of texts that the target writes (default: 4096)"
    )
    parser.add_argument("--held-out", type=int, default=256, help="further texts, for measuring (default: 256)")
    parser.add_argument("--length", type=int, default=256, help="largest number of tokens in a text (default: 256)")
    parser.add_argument(
        "--low-share",
        "--cold",
        type=float,
        default=0.5,
        help="share of texts that end at a low temperature (default: 0.5); --cold is its old name",
    )
    parser.add_argument(
        "--temperature", type=float, default=0.1, help="temperature of these texts from there on (default: 0.1)"
    )
    parser.add_argument(
        "--prompts", type=Path, help="prompts, one on each line: text, .jsonl or .ndjson (default: the start token)"
    )


def _add_learning(parser, steps, rate):
    """The further options of everything that learns from them by steps."""
    _add_texts(parser)
    parser.add_argument(
        "--written", type=Path, metavar="FILE", help="learn from the texts of this file, which `train texts` has made"
    )
    parser.add_argument("--half", action="store_true", help=HALF.format("write, and compute what --features stores,"))
    parser.add_argument("--steps", type=int, default=steps, help="training steps (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=16, help="texts in each step (default: 16)")
    parser.add_argument("--rate", type=float, default=rate, help="learning rate (default: %(default)s)")
    parser.add_argument("--name", help="its folder in the folder of runs (default: what is trained)")
    parser.add_argument("--memory", type=float, default=2, help="GB for keeping hidden states (default: 2)")
    parser.add_argument(
        "--features", type=float, default=0, metavar="GB",
        help="store hidden states once on the disk, in half precision, and use at most so many GB; training that needs "
        "more does not begin (default: 0, none are stored)",
    )  # fmt: skip
