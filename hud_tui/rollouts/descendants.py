"""The processes that a rollout started, also those that left its process group or lost their
parent.

The host adopts orphans (Linux): a process whose parent ended becomes a child of the host. So
everything that a rollout started is below the rollout's process or below the host, and the other
processes of the machine need not be looked at. The standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Collection, Iterator

MARK = "HUD_TUI_ROLLOUT"
"""Environment variable of a rollout's processes: the id of its first one."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HAS_PROC = os.path.exists("/proc/self/statm")
HAS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether the kernel lists the children of a process, proc(5)."""


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process, prctl(2); False where that cannot be."""
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    return False


class Descendants:
    """What rollouts of this process started."""

    def __init__(self) -> None:
        self._adopts = HAS_CHILDREN and prctl(PR_SET_CHILD_SUBREAPER, 1)

    def of(self, pid: int, rollouts: Collection[int]) -> list[int]:
        """The living processes that a rollout started, except its first one, `pid`, which may have
        ended. `rollouts`: the first processes of all rollouts."""
        if not HAS_PROC:
            return []
        if not self._adopts:
            everybody = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
            return [other for other in everybody if other != pid and _is_of(other, pid)]
        below = set(_below(pid))
        adopted = [orphan for orphan in children(os.getpid()) if orphan not in rollouts]
        strays = {*adopted, *(process for orphan in adopted for process in _below(orphan))}
        return [*below, *(stray for stray in strays - below if _is_of(stray, pid))]


def _below(pid: int) -> Iterator[int]:
    """Children of a process, their children, and so on."""
    for child in children(pid):
        yield child
        yield from _below(child)


def children(pid: int) -> list[int]:
    """Of all threads of a process; none if it has ended, or the system does not say."""
    children = list[int]()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _is_of(process: int, pid: int) -> bool:
    """Whether a process is in a rollout's group, or was started with its mark."""
    with contextlib.suppress(OSError):
        mark = f"{MARK}={pid}".encode()
        return os.getpgid(process) == pid or mark in _read(f"/proc/{process}/environ").split(b"\0")
    return False


def resident(pid: int) -> int:
    """Resident memory of the process itself, bytes; 0 if it has ended."""
    with contextlib.suppress(OSError):
        fields = _read(f"/proc/{pid}/statm").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
