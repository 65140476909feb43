"""Know which committed outputs are up to date, so that they can be shown without executing anything.

Beside the notebooks, `outputs.json` holds a hash for each: of its code, its outputs, the whole package and the pinned
versions. It is written when a notebook has been executed, or when all of them have been executed anew and compared.
"""

import hashlib
import json
from pathlib import Path

import nbformat

HASHES = Path("notebooks") / "outputs.json"


def package_hash(root: Path) -> str:
    """A hash of what every output depends on besides its notebook: package, weights, pinned versions."""
    digest = hashlib.sha256()
    for path in [root / "constraints.txt", *sorted((root / "tutorlib").rglob("*"))]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def outputs_hash(path: Path, package: str) -> str:
    """A hash of a notebook's code and outputs, made with a package of this hash."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    shown = [(cell.source, cell.metadata.get("tags", []), cell.outputs) for cell in cells]
    return hashlib.sha256(json.dumps([package, shown], sort_keys=True).encode()).hexdigest()


def noted(root: Path) -> dict[str, str]:
    """The hashes beside the notebooks, by the names of the notebooks."""
    path = root / HASHES
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def note(root: Path, notebooks) -> None:
    """Write down that the committed outputs of these notebooks are up to date."""
    package = package_hash(root)
    hashes = noted(root) | {path.stem: outputs_hash(path, package) for path in notebooks}
    (root / HASHES).write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def up_to_date(root: Path, notebooks) -> list[Path]:
    """Those of the notebooks whose committed outputs are known to be up to date."""
    hashes, package = noted(root), package_hash(root)
    return [path for path in notebooks if hashes.get(path.stem) == outputs_hash(path, package)]
