"""How many cores there are for the processes of the tiny engine, and why."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath

from hud_tui.errors import HudUsage

MOST_CORES = 8
"""Processes that the tiny engine computes in by default on a machine with more cores: its batches
have hardly more parts."""
ROOT = Path("/")


@dataclass(frozen=True)
class Cores:
    count: int
    """Processes that the engine computes in."""
    why: str
    """What that follows from, to be shown."""
    is_chosen: bool = False
    """Whether somebody said so."""


def read_cores(
    flag: str | None = None, environ: Mapping[str, str] = os.environ, root: Path = ROOT
) -> Cores:
    """Flag, else HUD_TUI_CORES, else as many as there are cores for this process, at most
    `MOST_CORES`. `root`: where the system's files are.

    Raises:
        HudUsage: Not a number from 1 to 64.
    """
    text = (flag or environ.get("HUD_TUI_CORES") or "").strip()
    if not text:
        return _usable(_affinity(), quota(root))
    name = "--cores" if flag else "HUD_TUI_CORES"
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 64):
        raise HudUsage(f"{name} is not a number from 1 to 64: {text[:40]!r}", "e.g. 2")
    return Cores(int(text), name, is_chosen=True)


def _usable(affinity: int, limit: float | None) -> Cores:
    """From the cores that this process may run on, and the processor time that it may take."""
    if limit is not None and ceil(limit) < min(affinity, MOST_CORES):
        return Cores(max(1, ceil(limit)), f"a quota of {limit:g} cores of processor time")
    total = os.cpu_count() or affinity
    if affinity > MOST_CORES:
        return Cores(MOST_CORES, f"at most {MOST_CORES}, of {affinity} cores")
    if affinity < total:
        return Cores(affinity, f"this process may run on {affinity} of {total} cores")
    return Cores(affinity, "as many as there are cores")


def _affinity() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota(root: Path = ROOT) -> float | None:
    """Processor time that the control groups of this process leave it, e.g. in a container, in
    cores: the least of all groups that it is in. None without a limit, and where the system has no
    such groups.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max) and
    https://docs.kernel.org/scheduler/sched-bwc.html (cpu.cfs_quota_us, of version 1).
    """
    found = list[float]()
    for folder in _groups(root):
        for read in (_version_2, _version_1):
            with suppress(OSError, ValueError):
                used, period = read(folder)
                if used > 0 and period > 0:
                    found.append(used / period)
    return min(found, default=None)


def _version_2(folder: Path) -> tuple[int, int]:
    """Microseconds of processor time in a period of so many. Raises ValueError: no limit."""
    used, period = (folder / "cpu.max").read_text().split()
    return int(used), int(period)


def _version_1(folder: Path) -> tuple[int, int]:
    """As `_version_2`; −1 is no limit."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    used, period = ((folder / name).read_text() for name in names)
    return int(used), int(period)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups of this process, and of those around them, that may have a limit. A
    container sees its own group where others see all, whatever it is called outside."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = [".", "unified"] if not controllers else []
        if "cpu" in controllers.split(","):
            names = [controllers, "cpu"]
        group = PurePosixPath(path)
        for name in names:
            for around in (group, *group.parents):
                yield mounts / name / around.relative_to("/")
