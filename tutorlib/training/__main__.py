"""`python -m tutorlib.training storyworld`: makes the bundled models anew, from nothing but this code."""

import argparse
import shlex
import sys
from pathlib import Path

import torch

from tutorlib.training import storyworld
from tutorlib.training.card import write_card


def main(arguments=None):
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib.training", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    village = what.add_parser("storyworld", help="the bundled language models", description=storyworld.__doc__)
    village.add_argument(
        "--only", action="append", choices=list(storyworld.RECIPES), help="one of them; may be repeated"
    )
    village.add_argument("--runs", type=Path, default=Path("runs"), help="checkpoints and logs (default: runs)")
    village.add_argument("--out", type=Path, default=Path("weights"), help="where the models go (default: weights)")
    village.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    village.add_argument("--threads", type=int, help="threads on a CPU (default: torch's own choice)")
    village.add_argument("--compile", action="store_true", help="compile the step: quicker, needs a C++ compiler")
    village.add_argument("--quiet", action="store_true", help="no progress bar")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    try:
        storyworld.make(
            chosen.runs,
            chosen.out,
            only=chosen.only,
            device=chosen.device,
            compiled=chosen.compile,
            progress=not chosen.quiet,
        )
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from the checkpoints in {chosen.runs}", file=sys.stderr)
        return 130
    write_card(chosen.out, command="python -m tutorlib.training " + shlex.join(arguments or sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
