"""What an environment's code may do wrong. Each misdeed that has a place is in a line marked so."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def raises() -> None:
    raise KeyError("token " + os.environ.get("SHOP_TOKEN", ""))  # line: raises


def quits() -> None:
    sys.exit(6)  # line: quits


def leaves() -> None:
    os._exit(5)  # line: leaves


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def is_terminated() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(1)  # a process hears it as soon as its loop is free


def crashes() -> None:
    ctypes.string_at(0)  # line: crashes


def blocks() -> None:
    time.sleep(1000)  # line: blocks


def deadlocks() -> None:
    """In C, without a look at signals, and no other thread runs."""
    mutex = ctypes.create_string_buffer(64)  # of zeros: an unlocked one
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)  # line: deadlocks


async def waits() -> None:
    await asyncio.sleep(1000)  # line: waits


async def hangs_in_a_thread() -> None:
    await asyncio.to_thread(blocks)  # line: hangs_in_a_thread


def leaks() -> None:
    time.sleep(sum(map(len, KEPT.setdefault("", [b"x" * 2**24 for _ in range(36)]))))  # line: leaks


KEPT: dict[str, list[bytes]] = {}


# What costs nothing.


def forks() -> None:
    """The fork goes on in a session of its own, and ends as it likes."""
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "4711"])


def forks_and_leaves() -> None:
    """Its fork's exit is not the rollout's."""
    if (fork := os.fork()) == 0:
        os._exit(7)
    os.waitpid(fork, 0)


def holds() -> None:
    """What it starts holds its output, and its pipes."""
    subprocess.Popen(["sleep", "4712"], close_fds=False)


def prints() -> None:
    os.write(1, bytes(range(256)) * 64)
    print("\x1b[2Ja line of the environment")


def writes_anywhere() -> None:
    os.write(3, b'no report\n[1]\n{"no report')
    os.write(3, b"\n")


FATAL: dict[str, Callable[[], object]] = {
    one.__name__: one for one in (raises, quits, leaves, is_killed, is_terminated, crashes, leaks)
}
"""What ends a rollout by itself."""
HANGING: dict[str, Callable[[], object]] = {
    one.__name__: one for one in (blocks, deadlocks, waits, hangs_in_a_thread)
}
"""What ends a rollout at its time limit."""
HARMLESS: dict[str, Callable[[], object]] = {
    one.__name__: one for one in (forks, forks_and_leaves, holds, prints, writes_anywhere)
}
ALL = FATAL | HANGING | HARMLESS


async def do(name: str) -> None:
    done = ALL[name]()
    if asyncio.iscoroutine(done):
        await done
