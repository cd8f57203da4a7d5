"""Put faults into a copy of the package, one at a time, and see whether a test fails.

usage: python -m tests.faults [--most N] [--minutes M] [MODULE ...]

MODULE is a name of `MODULES`, or ``edits`` for those written down; all without any. Prints the
faults that no test saw, and exits 1 if more than a tenth was not seen. The checkout stays as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from tests.faults.edits import EDITS
from tests.faults.faults import Fault, generated, spread

ROOT = Path(__file__).parents[2]
COPIED = ("hud_tui", "tests", "styles", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
MODULES = {
    "rl/own_numbers": ("tests/unit/test_own.py", "tests/unit/test_run_table.py"),
    "rl/evaluation": ("tests/unit/test_evaluation.py", "tests/unit/test_reward_intervals.py"),
    "rl/runs": ("tests/unit/test_run_table.py",),
    "rl/loop": ("tests/unit/test_loop.py",),
    "client/feed": ("tests/service/test_client_feed.py",),
    "rollouts/driver": ("tests/rollouts/test_driver.py",),
    "remote/budget": ("tests/remote/test_money.py",),
}
"""The tests of each module: few, so that a fault takes seconds."""
HUNG_S = 120
"""Seconds after which a test counts as failed."""


class Copy:
    """The copy of the checkout that faults are put into."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in COPIED:
            source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__", "live")
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, directory)

    def passes(self, tests: Sequence[str], is_faulty: bool = False) -> bool:
        """Whether tests pass in it. What is compiled of a faulty one is not kept."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += ["--hung-after", str(HUNG_S), *tests]
        environ = os.environ | {"PYTHONPATH": str(self._directory)}
        if is_faulty:
            environ |= {"PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=self._directory, env=environ, capture_output=True)
        return done.returncode == 0

    def is_seen(self, fault: Fault, tests: Sequence[str]) -> bool:
        """Whether a test fails with a fault, which is taken out again."""
        file = self._directory / "hud_tui" / fault.file
        text = file.read_text()
        file.write_text(fault.applied(text))
        try:
            return not self.passes(tests, is_faulty=True)
        finally:
            file.write_text(text)


def plan(names: Sequence[str], most: int) -> list[Fault]:
    """The faults of modules, or those that are written down."""
    faults = [edit.fault() for edit in EDITS] if "edits" in names else []
    for name in names:
        if name in MODULES:
            faults += spread(generated(f"{name}.py"), most)
    return faults


def scope_of(fault: Fault) -> tuple[str, ...]:
    """The tests that must see a fault."""
    return fault.tests or MODULES[fault.file.removesuffix(".py")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--most", type=int, default=28, help="faults of a module (default 28)")
    parser.add_argument("--minutes", type=float, default=60.0, help="then stop (default 60)")
    args = parser.parse_args()
    if unknown := set(args.modules) - {*MODULES, "edits"}:
        parser.error(f"no such module: {', '.join(sorted(unknown))}")
    faults = plan(args.modules or ["edits", *MODULES], args.most)
    until, seen, left = monotonic() + 60 * args.minutes, 0, list[str]()
    with tempfile.TemporaryDirectory() as directory:
        copy, passed = Copy(Path(directory)), set[tuple[str, ...]]()
        for number, fault in enumerate(faults, 1):
            if monotonic() > until:
                print(f"stopped after {args.minutes:g} min, before {fault.file}")
                break
            tests = scope_of(fault)
            if tests not in passed and not copy.passes(tests):
                raise SystemExit(f"{' '.join(tests)} fails without any fault")
            passed.add(tests)
            told = fault.told((ROOT / "hud_tui" / fault.file).read_text())
            if copy.is_seen(fault, tests):
                seen += 1
                print(f"{number}/{len(faults)} seen     {told}", flush=True)
            else:
                left.append(told)
                print(f"{number}/{len(faults)} NOT SEEN {told}", flush=True)
    tried = seen + len(left)
    print(f"\n{seen} of {tried} faults were seen; not seen:", *left, sep="\n")
    return int(len(left) > tried / 10)


if __name__ == "__main__":
    sys.exit(main())
