"""Run every bench: ``python -m tests.bench``.

Each is a module ``bench_*.py`` of this folder with a ``main() -> int`` that prints its
name, figure and goal. It runs in a process of its own, one at a time. Exits 1 on a miss.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    missed = []
    for path in sorted(FOLDER.glob("bench_*.py")):
        done = subprocess.run([sys.executable, "-m", f"tests.bench.{path.stem}"], check=False)
        if done.returncode:
            missed.append(path.stem)
    if missed:
        print("missed:", ", ".join(missed), file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
