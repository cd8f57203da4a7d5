"""Run a bench, e.g. ``python -m tests.bench tree``, or without a name every one.

Each is a module ``bench_NAME.py`` of this folder with a ``main() -> int`` that prints its
name, figure and goal. Each of several runs in a process of its own, one at a time. Exits 1 on a
miss.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    if sys.argv[1:]:
        sys.argv = sys.argv[1:]
        return int(import_module(f"tests.bench.bench_{sys.argv[0]}").main())
    missed = []
    for path in sorted(FOLDER.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if subprocess.run([sys.executable, "-m", "tests.bench", name], check=False).returncode:
            missed.append(name)
    if missed:
        print("missed:", ", ".join(missed), file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
