"""Which process does a job: known by the lock that it holds, never by an id alone.

The kernel releases a lock when its process ends, however that ends; an id may be another program's
by then. A lock file contains the id and the start of the process that holds it, or held it last.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hud_tui.storage import held, is_held, read_regular


def boot_s() -> float:
    """Seconds since this machine was started, the same for all processes. No wall clock moves it;
    where the system can, the time counts in which the machine slept."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@lru_cache
def boot_id() -> str:
    """What differs with each boot of this machine; empty if the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, capture_output=True, timeout=5, text=True).stdout.strip()
    return ""


@dataclass(frozen=True)
class Process:
    """A process, which no later one with its id is taken for."""

    pid: int
    start: str
    """When it was started, as the system says it; empty if it does not."""

    @property
    def runs(self) -> bool:
        """Whether it runs; a zombie does not."""
        return alive(self.pid) and self.start == _start(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.runs:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def __str__(self) -> str:
        return f"{self.pid} {self.start}"


def this_process() -> str:
    """Machine and id of this process, e.g. ``laptop:4711``."""
    return f"{socket.gethostname()}:{os.getpid()}"


def process(pid: int) -> Process:
    """The process that has this id now."""
    return Process(pid, _start(pid))


def read_process(text: object) -> Process | None:
    """A process from its ``str``; None if it is not that of one. In a container a service is 1."""
    number, _, start = str(text).strip().partition(" ")
    is_number = number.isascii() and number.isdigit() and 0 < int(number[:10]) < 2**31
    return Process(int(number[:10]), start) if is_number else None


@contextmanager
def holding(lock: Path) -> Iterator[bool]:
    """Hold a lock file, which then names this process; yields False if another process holds it.

    Raises:
        OSError: As `held`.
    """
    with held(lock) as descriptor:
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{process(os.getpid())}\n".encode(), 0)
        yield descriptor is not None


def last_holder(lock: Path) -> Process | None:
    """The process that holds a lock file, or held it last; None if there was none."""
    try:
        return read_process(read_regular(lock, 256).decode("ascii", "replace"))
    except (OSError, ValueError):
        return None


def holder(lock: Path) -> Process | None:
    """The process that holds a lock file; None if nobody does, or the file system cannot say."""
    try:
        return last_holder(lock) if is_held(lock) else None
    except OSError:
        return None


def alive(pid: int) -> bool:
    """Whether some process has this id, perhaps another than is meant; a zombie does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    fields = _stat(pid)
    return not fields or fields[0] != "Z"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty where there is none (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _start(pid: int) -> str:
    """When the process with this id was started; empty if the system does not say."""
    fields = _stat(pid)
    if len(fields) > 19:
        return fields[19]  # field 22: ticks since boot
    if Path("/proc/self/stat").exists():
        return ""
    try:
        listing = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return " ".join(listing.stdout.decode("ascii", "replace").split())
