"""The one command: measure methods, train models, export for an engine, repeat an experiment, grade notebooks."""

import argparse
import sys
from importlib import import_module

COMMANDS = {
    "bench": ("lab.bench.__main__", "measure the methods on this machine"),
    "train": ("lab.training.__main__", "train the village's models, draft models, Medusa heads and EAGLE networks"),
    "export": ("lab.export_command", "export heads, a draft model or a lookup for an engine"),
    "grade": ("course.grade", "show which exercises are passed in a folder of students' notebooks"),
    "experiment": ("lab.experiments.__main__", "repeat an experiment whose results a chapter draws"),
}


def main(arguments=None) -> None:
    """Run one of the commands with the arguments that follow its name."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m tutorlib",
        description=__doc__,
        epilog="`python -m tutorlib COMMAND --help` explains the arguments of a command.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, what) in COMMANDS.items():
        commands.add_parser(name, help=what, add_help=False)
    command = parser.parse_args(given[:1]).command
    sys.exit(import_module(f".{COMMANDS[command][0]}", __package__).main(given[1:]))


if __name__ == "__main__":
    main()
