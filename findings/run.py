"""Run all findings, or those whose names are given, and say which still hold.

Each script is run alone, as it stands: exit code 0 means that what it describes is still so, 1 that it has changed,
2 that its packages could not be installed.
"""

import subprocess
import sys
from pathlib import Path

SAYS = {0: "as described", 2: "NOT RUN: its packages could not be installed"}


def main(names):
    """Run the scripts one after another; the exit code is 1 if one of them has changed or did not run."""
    here, failed = Path(__file__).parent, False
    for script in [here / f"{name}.sh" for name in names] or sorted(here.glob("*.sh")):
        done = subprocess.run([script], capture_output=True, text=True, check=False)
        print(f"{script.stem}: {SAYS.get(done.returncode, 'CHANGED')}", flush=True)
        if done.returncode:
            failed = True
            print("  " + "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-6:]), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
