"""Put faults into a copy of the package, one at a time, and see whether a test fails.

usage: python -m tests.faults [--count N] [--named TEXT] [--workers N] [--minutes M] [MODULE ...]

MODULE is a name of `MODULES`, or ``edits`` for the faults that are written down; all without any.
A fault is tried with the tests that reach its line, the fastest first, until one fails or hangs.
Prints the faults that no test saw, and exits 1 if more than a tenth was not seen. The checkout
stays as it is.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from time import monotonic
from typing import Literal

from tests.faults.edits import EDITS
from tests.faults.faults import Fault, drawn, lines_of
from tests.faults.left import EQUIVALENT
from tests.faults.reach import Reached

ROOT = Path(__file__).parents[2]
COPIED = ("hud_tui", "tests", "styles", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
MODULES = {
    "rl/own_numbers": (
        "tests/unit/test_own.py",
        "tests/unit/test_run_table.py",
        "tests/unit/test_compare.py",
        "tests/unit/test_run.py",
        "tests/unit/test_evaluation.py",
    ),
    "rl/evaluation": (
        "tests/unit/test_evaluation.py",
        "tests/unit/test_reward_intervals.py",
        "tests/unit/test_ship.py",
    ),
    "rl/changed": ("tests/unit/test_changed.py", "tests/unit/test_compare.py"),
    "rl/sides": ("tests/unit/test_changed.py",),
    "rl/ship": ("tests/unit/test_ship.py",),
    "rl/bisect": ("tests/unit/test_bisect.py",),
    "rl/runs": ("tests/unit/test_run_table.py",),
    "rl/loop": ("tests/unit/test_loop.py",),
    "client/feed": ("tests/service/test_client_feed.py",),
    "rollouts/driver": ("tests/rollouts/test_driver.py",),
    "remote/budget": ("tests/remote/test_money.py",),
    "remote/pods": (
        "tests/remote/test_money.py",
        "tests/remote/test_renting.py",
        "tests/remote/test_pods.py",
    ),
}
"""Modules, and the tests that hold their rules."""
COUNT = 200
HANG_S = 30.0
"""Seconds after which a test has hung, beyond ten times what it takes without a fault."""
PLUGINS = ("xdist", "pytest_asyncio.plugin", "syrupy", "pytest_textual_snapshot")
"""Those of pytest that the tests need: loading all takes as long as a test."""
Outcome = Literal["passed", "failed", "hung"]


class Copy:
    """A copy of the checkout, which faults are put into."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in COPIED:
            source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__", "live")
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, directory)

    def _run(self, arguments: Sequence[str], limit_s: float, compiles: bool) -> Outcome:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += ["--basetemp", str(self._directory / "tmp"), *arguments]
        command += [word for plugin in PLUGINS for word in ("-p", plugin)]
        environ = os.environ | {"PYTHONPATH": str(self._directory)}
        environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        if not compiles:
            environ |= {"PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, cwd=self._directory, env=environ, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return "failed" if process.wait(limit_s) else "passed"
        except subprocess.TimeoutExpired:
            return "hung"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def reached(self, file: str, tests: Sequence[str]) -> Reached:
        """What each test reaches of a file below hud_tui. Raises SystemExit: a test fails."""
        to = self._directory / "reached.json"
        watch = ["-p", "tests.faults.reach", "--reach", str(self._directory / "hud_tui" / file)]
        if self._run([*watch, "--reach-to", str(to), *tests], 3600, compiles=True) != "passed":
            raise SystemExit(f"a test fails without any fault: {' '.join(tests)}")
        return dict(json.loads(to.read_text()))

    def outcome(self, fault: Fault, tests: Sequence[str], limit_s: float) -> Outcome:
        """How tests end with a fault, which is taken out again."""
        file = self._directory / "hud_tui" / fault.file
        text = file.read_text()
        file.write_text(fault.applied(text))
        try:
            return self._run(tests, limit_s, compiles=False)
        finally:
            file.write_text(text)


class Attempts:
    """Tries faults, several at a time, each in a copy of the checkout."""

    def __init__(self, directory: Path, workers: int, until: float) -> None:
        """`until`: no fault is begun after this, seconds as `monotonic`."""
        self.pool = ThreadPoolExecutor(workers)
        self._until = until
        self._copies = Queue[Copy]()
        for number in range(workers):
            self._copies.put(Copy(directory / str(number)))
        self._reached: dict[tuple[str, tuple[str, ...]], Future[Reached]] = {}

    def begin(self, fault: Fault) -> "Future[Outcome | None]":
        """How its tests end; None if time is over. Raises SystemExit: a test fails without it."""
        scope = fault.file, scope_of(fault)
        if scope not in self._reached:
            self._reached[scope] = self.pool.submit(self._reach, *scope)
        return self.pool.submit(self._attempt, fault, self._reached[scope])

    @contextmanager
    def _copy(self) -> Iterator[Copy]:
        copy = self._copies.get()
        try:
            yield copy
        finally:
            self._copies.put(copy)

    def _reach(self, file: str, tests: Sequence[str]) -> Reached:
        with self._copy() as copy:
            return copy.reached(file, tests)

    def _attempt(self, fault: Fault, begun: "Future[Reached]") -> Outcome | None:
        reached = begun.result()
        if monotonic() > self._until:
            return None
        tests = reaching(fault, reached)
        limit_s = HANG_S + 10 * sum(reached[test][0] for test in tests)
        with self._copy() as copy:
            return copy.outcome(fault, tests, limit_s)


def plan(names: Sequence[str], count: int = COUNT) -> list[Fault]:
    """The faults of modules, out of so many of all, and those that are written down."""
    faults = drawn([f"{module}.py" for module in MODULES], count, tuple(EQUIVALENT))
    faults = [fault for fault in faults if fault.file.removesuffix(".py") in names]
    return [*(edit.fault() for edit in EDITS if "edits" in names), *faults]


def scope_of(fault: Fault) -> tuple[str, ...]:
    """The files with the tests that must see a fault."""
    return fault.tests or MODULES[fault.file.removesuffix(".py")]


def reaching(fault: Fault, reached: Reached) -> list[str]:
    """The tests that reach a fault, the fastest first. All, if none reaches it in this process."""
    lines = set(lines_of(fault))
    hit = [test for test, (_, seen) in reached.items() if seen and not lines.isdisjoint(seen)]
    if fault.lines is None:
        hit = [test for test, (_, seen) in reached.items() if seen]
    return sorted(hit or reached, key=lambda test: reached[test][0])


def told(fault: Fault) -> str:
    """The fault, and the line of today."""
    text = (ROOT / "hud_tui" / fault.file).read_text()
    return f"{fault.file}:{text.count(chr(10), 0, fault.start) + 1}  {fault.name}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--count", type=int, default=COUNT, help="generated faults of all modules")
    parser.add_argument("--named", default="", help="only faults whose name has this text")
    parser.add_argument("--workers", type=int, default=1, help="faults at a time, each in a copy")
    parser.add_argument("--minutes", type=float, default=120.0, help="then stop (default 120)")
    args = parser.parse_args()
    if unknown := set(args.modules) - {*MODULES, "edits"}:
        parser.error(f"no such module: {', '.join(sorted(unknown))}")
    faults = plan(args.modules or ["edits", *MODULES], args.count)
    faults = [fault for fault in faults if args.named in fault.name]
    seen, left = 0, list[str]()
    with tempfile.TemporaryDirectory() as directory:
        attempts = Attempts(Path(directory), args.workers, monotonic() + 60 * args.minutes)
        try:
            begun = [(fault, attempts.begin(fault)) for fault in faults]
            for number, (fault, outcome) in enumerate(begun, 1):
                if ended := outcome.result():
                    print(f"{number}/{len(faults)} {ended:6} {told(fault)}", flush=True)
                    seen += ended != "passed"
                    left += [told(fault)] * (ended == "passed")
        finally:
            attempts.pool.shutdown(cancel_futures=True)
    tried = seen + len(left)
    print(f"\n{seen} of {tried} faults were seen; not seen:", *left, sep="\n")
    return int(len(left) > tried / 10)


if __name__ == "__main__":
    sys.exit(main())
