"""Export a head, a draft model or a lookup for an engine; or print what a server of such an export should report."""

import argparse
import shlex

from ..loading.export import KINDS, READ_IN, export
from ..loading.export.expected import expected, served
from .bench import chat_prompts, story_prompts


def main(arguments=None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib export", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="what drafts")
    parser.add_argument("--engine", choices=READ_IN)
    parser.add_argument("--out", help="the folder to write, as the engine will find it")
    parser.add_argument("--target", help="a family, a hub name or a folder (default: what the head's folder says)")
    parser.add_argument("--head", help="the folder of the heads")
    parser.add_argument("--draft", help="a draft model (default: the family's own)")
    parser.add_argument("--tokens", type=int, help="drafted in a row (default: as deep as the head's tree)")
    parser.add_argument("--dtype", help="in which the target is read (default: float32)")
    parser.add_argument("--check", metavar="FOLDER", help="an export: print what its server should report")
    chosen = vars(parser.parse_args(arguments))
    folder, dtype = chosen.pop("check"), chosen["dtype"]
    try:
        if folder is not None:
            if others := [name for name, value in chosen.items() if value is not None and name != "dtype"]:
                raise ValueError(f"--check reads everything from the folder: leave out {', '.join(others)}")
            print(_expectation(folder, dtype))
            return
        if missing := [name for name in ("kind", "engine", "out") if chosen[name] is None]:
            raise ValueError(f"missing: {', '.join(missing)}. To export, name all three; to check an export, --check")
        command = export(chosen.pop("kind"), chosen.pop("engine"), chosen.pop("out"), **chosen)
    except (ValueError, OSError, ImportError, AttributeError) as error:
        parser.error(str(error))
    print(shlex.join(command))


def _expectation(folder, dtype) -> str:
    """What a server should report after the bench's prompts, in words."""
    family, method = served(folder, dtype=dtype)
    if family.tokenizer is not None and family.tokenizer.chat_template:
        prompts = [prompt for kind in chat_prompts(family, 1).values() for prompt in kind]
    else:
        prompts = story_prompts(family.target, 6)
    return expected(method, family.target, prompts, 48).in_words()
