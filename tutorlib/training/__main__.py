"""Makes the bundled models anew, from nothing but this code, and heads for them or for any other target.

Several processes share the work when they are started by ``torchrun`` or ``accelerate launch``, see `devices`.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

import torch

from tutorlib.training import devices, medusa, storyworld
from tutorlib.training.card import write_card, write_heads_card


def main(arguments=None):
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib.training", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    village = what.add_parser("storyworld", help="the bundled language models", description=storyworld.__doc__)
    village.add_argument(
        "--only", action="append", choices=list(storyworld.RECIPES), help="one of them; may be repeated"
    )
    village.add_argument("--out", type=Path, default=Path("weights"), help="where the models go (default: weights)")
    village.add_argument("--compile", action="store_true", help="compile the step: quicker, needs a C++ compiler")
    heads = what.add_parser("medusa", help="Medusa heads for a target", description=medusa.__doc__)
    _add_own_text(heads)
    heads.add_argument("--heads", type=int, default=4, help="how many (default: 4)")
    heads.add_argument("--layers", type=int, default=1, help="residual blocks in each (default: 1)")
    heads.add_argument("--nodes", type=int, default=medusa.NODES, help="of their tree (default: %(default)s)")
    heads.add_argument("--steps", type=int, default=3000, help="training steps (default: 3000)")
    heads.add_argument("--rows", type=int, default=16, help="texts in each step (default: 16)")
    heads.add_argument("--rate", type=float, default=1e-3, help="learning rate (default: 0.001)")
    heads.add_argument("--hard", action="store_true", help="learn from the tokens, not from the target's probabilities")
    heads.add_argument("--joint", action="store_true", help="train the target too (Medusa-2); a family is written")
    for command in (village, heads):
        command.add_argument("--runs", type=Path, default=Path("runs"), help="checkpoints and logs (default: runs)")
        command.add_argument("--device", help="cpu or cuda (default: a GPU if there is one)")
        command.add_argument("--threads", type=int, help="threads on a CPU (default: torch's own choice)")
        command.add_argument("--quiet", action="store_true", help="no progress bar")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    command = ["python", "-m", "tutorlib.training", *(sys.argv[1:] if arguments is None else arguments)]
    try:
        {"storyworld": _storyworld, "medusa": _medusa}[chosen.what](chosen, command)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from what is in {chosen.runs}", file=sys.stderr)
        return 130
    return 0


def _add_own_text(parser):
    """What every training on a target's own texts is told."""
    parser.add_argument("--target", default="storyworld", help="a family, a hub name or a folder (default: storyworld)")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--texts", type=int, default=4096, help="texts that the target tells (default: 4096)")
    parser.add_argument("--held-out", type=int, default=256, help="more of them, to measure with (default: 256)")
    parser.add_argument("--length", type=int, default=256, help="tokens in a text at most (default: 256)")
    parser.add_argument("--cold", type=float, default=0.5, help="share that becomes nearly greedy (default: 0.5)")
    parser.add_argument("--temperature", type=float, default=0.1, help="at which that share goes on (default: 0.1)")
    parser.add_argument("--prompts", type=Path, help="a file with one on each line (default: the start token)")


def _storyworld(chosen, command):
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("the village's models are trained by one process: start one")
    storyworld.make(
        chosen.runs,
        chosen.out,
        only=chosen.only,
        device=chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        compiled=chosen.compile,
        progress=not chosen.quiet,
    )
    write_card(chosen.out, command=shlex.join(command))


def _medusa(chosen, command):
    here = devices.find(chosen.device)
    given = ("texts", "held_out", "length", "cold", "temperature", "prompts")
    given += ("heads", "layers", "nodes", "steps", "rows", "rate", "hard", "joint")
    folder = medusa.make(
        chosen.target,
        chosen.out,
        chosen.runs,
        **{name: getattr(chosen, name) for name in given},
        devices=here,
        command=command,
        progress=not chosen.quiet,
    )
    if here.first:
        print(folder)
        if (folder.parent / "MODEL_CARD.md").exists():
            write_heads_card(folder.parent)
    here.leave()


if __name__ == "__main__":
    sys.exit(main())
