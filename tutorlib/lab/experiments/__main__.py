"""`python -m tutorlib experiment NAME`: computes a sweep on the CPU, with its own model or the bundled target."""

import argparse
import sys
from importlib import import_module

from ...arguments import USER_ERRORS
from ...loading import models
from . import names, sweep


def main(arguments=None) -> int:
    """The command line; returns the exit code, or raises SystemExit with a message."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib experiment", description=__doc__)
    parser.add_argument("name", choices=names(), metavar="NAME", help=f"one of: {', '.join(names()) or 'none yet'}")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="one row; may be repeated")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    chosen = parser.parse_args(arguments)
    module = import_module(f"{__package__}.{chosen.name}")
    # The same on every machine, because the chapters compute rows in this way and compare them with the results.
    family = getattr(module, "FAMILY", "storyworld")
    try:
        lm = models.load(family, device="cpu", dtype="float32").target
        path = sweep(
            chosen.name,
            module.SETTING,
            module.SETTINGS,
            lambda row: module.row(lm, row),
            only=chosen.only,
            progress=not chosen.quiet,
        )
    except KeyboardInterrupt:
        print("\nstopped; the same command continues after the rows that are done", file=sys.stderr)
        return 130
    except USER_ERRORS as error:
        raise SystemExit(f"{parser.prog}: error: {error}") from error
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
