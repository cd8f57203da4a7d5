"""Writers of a state directory, each in a process of its own that is forked from one that has
imported all this.
"""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace

from hud_tui import storage
from hud_tui.client.guard import Protection
from hud_tui.notebook import Notebook
from hud_tui.storage import JsonStore, locked, write_atomic

NOTES = 50
LONG = 2_000_000
"""Characters of a file that takes a while to write."""


def take_notes(file: Path, name: str) -> None:
    book = Notebook(file)
    for number in range(NOTES):
        book.write(f"{name}-{number}", f"note {number} of {name}")


def protect(file: Path, name: str) -> None:
    Protection(lambda: file.parent).protect(name, f"model {name}", True)


def choose(file: Path, name: str) -> None:
    store = JsonStore(lambda: file.parent)
    for number in range(NOTES):
        store.write(file.stem, {f"{name}-{number}": number})


def rewrite(file: Path, names: str, told: Connection) -> None:
    """Until it is killed; tells of each time that it has written."""
    for letter in names * 10_000:
        write_atomic(file, (letter * 1000 for _ in range(LONG // 1000)))
        told.send(letter)


def unsupported(*_: object) -> None:
    """In place of flock, on a file system that has no such locks."""
    raise OSError(errno.EBADF, "Bad file descriptor")


def _files_alone(lock: int, how: int) -> None:
    if stat.S_ISDIR(os.fstat(lock).st_mode):
        unsupported()
    fcntl.flock(lock, how)


NFS = SimpleNamespace(**{**vars(fcntl), "flock": _files_alone})
"""In place of fcntl, on a file system that locks no directories."""


def hold(directory: Path, told: Connection) -> None:
    """Hold a directory's lock until it is killed; tells that it does."""
    vars(storage)["fcntl"] = NFS
    with locked(directory):
        told.send("held")
        signal.pause()


def writer(what: Callable[..., None], *given: object) -> ForkServerProcess:
    forks = get_context("forkserver")
    forks.set_forkserver_preload(["tests.rollouts.drive", __name__])  # there is one server for all
    process = forks.Process(target=what, args=given)
    process.start()
    return process
