"""Storage: files that are written whole or not at all.

Files of this program's own (`write_atomic`, `change_atomic`) are replaced by one writer at a
time, are on disk before they take the old one's place, and are their owner's alone to read.

Files for the user (`write_numbered`, `write_named`, `write_folder`) are new, never over what
exists: a name that is taken gets a number: ``run.csv``, ``run-2.csv``, ``run-3.csv``.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from time import monotonic, sleep, time

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600
"""Mode of every file of this program's own; their directories have 0700."""
LOCK_S = 5.0
"""Longest wait for another writer, which holds the lock for some milliseconds."""
LOOK_S = 0.005
STALE_S = 30.0
"""A lock file that is older was left by a program that ended while it wrote."""
Content = str | bytes | Iterable[str]


def write_atomic(file: Path, content: Content) -> None:
    """Replace a file of this program's own; a crash leaves the old file or the new, whole.

    Args:
        file: Where; its directory is made where it is missing.
        content: Text is written as UTF-8.

    Raises:
        OSError: It cannot be written; the old one stays.
    """
    change_atomic(file, lambda: content)


def change_atomic(file: Path, change: Callable[[], Content | None]) -> None:
    """Read a file of this program's own, and replace it, with no other writer in between.

    Args:
        file: Where; its directory is made where it is missing.
        change: Reads what there is, and gives what is to be there; None leaves it as it is.

    Raises:
        OSError: It cannot be written, or another writer does not end; the old one stays.
    """
    with locked(file.parent):
        content = change()
        if content is not None:
            _replace(file, content)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory's files, over all threads and programs of this machine.

    It is not to be taken again inside.

    Raises:
        OSError: The directory cannot be made or opened, or the lock is not let go.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if fcntl is None:
        with _lock_file(directory):
            yield
        return
    held = os.open(directory, os.O_RDONLY)  # the kernel lets go of it when this program ends
    try:
        if _flock(held):
            yield
        else:
            with _lock_file(directory):
                yield
    finally:
        os.close(held)


def _flock(held: int) -> bool:
    """Lock an open directory; False where this disk has no such locks."""
    until = monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            _wait(until)


@contextmanager
def _lock_file(directory: Path) -> Iterator[None]:
    """A lock where the system has none for directories: a file that only one can make."""
    lock, until = directory / ".lock", monotonic() + LOCK_S
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time() - lock.stat().st_mtime > STALE_S:
                    lock.unlink()
            _wait(until)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _wait(until: float) -> None:
    if monotonic() > until:
        raise TimeoutError(errno.ETIMEDOUT, "another program is writing here and does not end")
    sleep(LOOK_S)


def _replace(file: Path, content: Content) -> None:
    """Under the lock: so drafts of this file that lie here were left by programs that ended."""
    for left in file.parent.glob(f".{escape(file.name)}.*.tmp"):
        left.unlink(missing_ok=True)
    draft = file.with_name(f".{file.name}.{os.urandom(6).hex()}.tmp")
    try:
        _write(draft, content, PRIVATE)
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    _sync(file.parent)


def _sync(directory: Path) -> None:
    """Have the names in a directory on disk, where the system can."""
    with suppress(OSError):
        opened = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def write_numbered(directory: Path, stem: str, suffix: str, pieces: Iterable[str]) -> Path:
    """Write a file under the first name that is free; returns where it is.

    Raises:
        HudUsage: The directory cannot be written to.
    """
    with _usable(directory), _draft(directory, suffix) as draft:
        _write(draft, pieces)
        for number in count(1):
            file = directory / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
            with suppress(FileExistsError):
                _claim(draft, file)
                return file
    raise AssertionError("numbers do not end")


def write_named(file: Path, pieces: Iterable[str]) -> Path:
    """Write a file under this name.

    Raises:
        HudUsage: It exists, or cannot be written.
    """
    with _usable(file.parent), _draft(file.parent, file.suffix) as draft:
        _write(draft, pieces)
        try:
            _claim(draft, file)
        except FileExistsError:
            raise _exists(file) from None
    return file


def check_new(file: Path) -> None:
    """Refuse early what `write_named` would; a directory is all right.

    Raises:
        HudUsage: The file exists.
    """
    if file.exists() and not file.is_dir():
        raise _exists(file)


def write_folder(directory: Path, stem: str, files: Mapping[str, str]) -> Path:
    """Write a folder of text files under the first name that is free; returns where it is.

    Raises:
        HudUsage: The directory cannot be written to.
    """
    draft = directory / f".{stem}.{os.urandom(6).hex()}"
    with _usable(directory):
        try:
            draft.mkdir(parents=True)
            for name, text in files.items():
                _write(draft / name, [text])
            for number in count(1):
                folder = directory / f"{stem}{'' if number == 1 else f'-{number}'}"
                with suppress(FileExistsError):
                    folder.mkdir()  # it is ours now, and empty: what is whole takes its place
                    return draft.replace(folder)
        finally:
            _remove(draft)
    raise AssertionError("numbers do not end")


def _exists(file: Path) -> HudUsage:
    return HudUsage(f"{one_line(file, 400)} exists", "name another file, or a directory")


@contextmanager
def _draft(directory: Path, suffix: str) -> Iterator[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".{os.urandom(6).hex()}{suffix}"
    try:
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _write(file: Path, content: Content, mode: int = 0o666) -> None:
    """Make a file and have it on disk."""
    pieces = [content] if isinstance(content, (str, bytes)) else content
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        for piece in pieces:
            out.write(piece if isinstance(piece, bytes) else piece.encode())
        out.flush()
        os.fsync(out.fileno())


def _claim(draft: Path, file: Path) -> None:
    """Give what was written its name, unless that is taken."""
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        file.touch(exist_ok=False)
        draft.replace(file)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Say of a place that cannot be written to why not."""
    try:
        yield
    except OSError as error:
        message = f"{one_line(directory, 400)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "choose a directory that can be written to") from error
