"""`python -m tutorlib experiment NAME`: computes an experiment on the CPU, with its own models or the bundled ones."""

import argparse
import sys

from ...arguments import USER_ERRORS
from . import named, names


def main(arguments=None) -> int:
    """The command line; returns the exit code, or raises SystemExit with a message."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib experiment", description=__doc__)
    parser.add_argument("name", choices=names(), metavar="NAME", help=f"one of: {', '.join(names()) or 'none yet'}")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="one row; may be repeated")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    chosen = parser.parse_args(arguments)
    try:
        path = named(chosen.name).run(only=chosen.only, progress=not chosen.quiet)
    except KeyboardInterrupt:
        print("\nstopped; the same command continues after the rows that are done", file=sys.stderr)
        return 130
    except USER_ERRORS as error:
        raise SystemExit(f"{parser.prog}: error: {error}") from error
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
