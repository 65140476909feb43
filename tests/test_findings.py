"""Claims about the scripts in findings/, which `make findings` runs, outside these tests: each stands alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))


def test_the_list_of_findings_names_every_script():
    listed = re.findall(r"\]\((\w+\.sh)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [script.name for script in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_finding_stands_alone_and_pins_what_it_installs(script):
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert "tutorlib" not in text
    assert "set -eu\ndir=$(mktemp -d)\ntrap 'rm -rf \"$dir\"' EXIT\n" in text
    for line in re.findall(r" install -q (.*?) \|\| exit 2", text):
        assert all("==" in word for word in line.split() if not word.startswith("-"))
    for part in ("# One would expect:", "# What happens:", "# Why it matters:", "# Seen ("):
        assert part in text


def test_the_runner_says_which_findings_have_changed(tmp_path):
    for name, code in (("same", 0), ("new", 1), ("absent", 2)):
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/sh\necho it is so\nexit {code}\n", encoding="utf-8")
        (tmp_path / f"{name}.sh").chmod(0o755)
    (tmp_path / "run.py").write_bytes((FOLDER / "run.py").read_bytes())
    ran = subprocess.run([sys.executable, tmp_path / "run.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert [line for line in ran.stdout.splitlines() if not line.startswith(" ")] == [
        "absent: NOT RUN: its packages could not be installed",
        "new: CHANGED",
        "same: as described",
    ]
