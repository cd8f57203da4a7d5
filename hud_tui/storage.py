"""Files: atomic writes, new files that never overwrite, bounded reads of regular files, and JSON
stores.

This program's own files (`write_atomic`, `change_atomic`) are replaced under a lock, are synced to
disk before they replace the old file, and are readable by their owner only.

Files for the user (`write_numbered`, `write_named`, `write_folder`) never overwrite: if a name is
taken, a number is added: ``run.csv``, ``run-2.csv``, ``run-3.csv``.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from glob import escape
from io import BufferedReader
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line

PRIVATE = 0o600
"""Mode of all files of this program; their directories have 0700."""
LOCK_S = 5.0
"""Maximum wait for the lock, seconds; writers hold it for milliseconds."""
LOOK_S = 0.005
LOCK = ".lock"
"""File that is locked where directories cannot be."""
Content = str | bytes | Iterable[str]


def write_atomic(file: Path, content: Content) -> None:
    """Replace one of this program's files, or make it with its directories; a crash leaves the old
    file or the new one. Text is UTF-8. Raises OSError: it cannot be written; the old one is
    kept."""
    change_atomic(file, lambda: content)


def change_atomic(file: Path, change: Callable[[], Content | None]) -> None:
    """Read and replace one of this program's files under the lock. `change` reads the old content
    and returns the new; None: no change. Raises OSError: it cannot be written, or the lock is not
    released; the old file is kept."""
    with locked(file.parent):
        content = change()
        if content is not None:
            _replace(file, content)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory's files, across threads and processes. Not reentrant. Raises
    OSError: the directory cannot be created or opened, the lock is not released in time, or the
    file system has no locks."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = _lock(directory)  # the kernel releases it when this program ends, and not before
    try:
        yield
    finally:
        os.close(lock)


def _lock(directory: Path) -> int:
    """Open and lock a directory; or a file in it, as NFS locks files alone."""
    try:
        return _taken(os.open(directory, os.O_RDONLY))
    except TimeoutError:
        raise
    except OSError:
        return _taken(open_or_make(directory / LOCK))


def _taken(lock: int) -> int:
    """Lock what is open, or close it. Raises TimeoutError: another program holds it for `LOCK_S`;
    OSError: the file system has no locks."""
    until = monotonic() + LOCK_S
    try:
        while not _takes(lock):
            if monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "another program holds the lock")
            sleep(LOOK_S)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _replace(file: Path, content: Content) -> None:
    """Replace a file; called under the lock, so existing drafts were left by programs that
    crashed."""
    for left in file.parent.glob(f".{escape(file.name)}.*.tmp"):
        left.unlink(missing_ok=True)
    draft = file.with_name(f".{file.name}.{os.urandom(6).hex()}.tmp")
    try:
        _write(draft, content, PRIVATE)
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    with suppress(OSError):
        opened = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def write_numbered(directory: Path, stem: str, suffix: str, pieces: Iterable[str]) -> Path:
    """Write a file under the first free name; return its path. Raises HudUsage: the directory is
    not writable."""
    with _usable(directory), _draft(directory, suffix) as draft:
        _write(draft, pieces)
        for name in _numbered(stem):
            with suppress(FileExistsError):
                return _claim(draft, directory / f"{name}{suffix}")
    raise AssertionError("numbers do not end")


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}-{number}" for number in count(2))


def write_named(file: Path, pieces: Iterable[str]) -> Path:
    """Write a file under this name. Raises HudUsage: it exists, or cannot be written."""
    with _usable(file.parent), _draft(file.parent, file.suffix) as draft:
        _write(draft, pieces)
        try:
            _claim(draft, file)
        except FileExistsError:
            raise _exists(file) from None
    return file


def check_new(file: Path) -> None:
    """Raise early what `write_named` would raise; a directory is fine. Raises HudUsage: the file
    exists."""
    if file.exists() and not file.is_dir():
        raise _exists(file)


def write_folder(directory: Path, stem: str, files: Mapping[str, str]) -> Path:
    """Write a folder of text files under the first free name; return its path. Raises HudUsage: the
    directory is not writable."""
    draft = directory / f".{stem}.{os.urandom(6).hex()}"
    with _usable(directory):
        try:
            draft.mkdir()
            for name, text in files.items():
                _write(draft / name, [text])
            for name in _numbered(stem):
                folder = directory / name
                with suppress(FileExistsError):
                    folder.mkdir()  # this reserves the name; an empty folder can be replaced
                    return draft.replace(folder)
        finally:
            if draft.is_dir():
                for file in draft.iterdir():
                    file.unlink()
                draft.rmdir()
    raise AssertionError("numbers do not end")


def _exists(file: Path) -> HudUsage:
    return HudUsage(f"{one_line(file, 400)} exists", "choose another file name, or a directory")


@contextmanager
def _draft(directory: Path, suffix: str) -> Iterator[Path]:
    draft = directory / f".{os.urandom(6).hex()}{suffix}"
    try:
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _write(file: Path, content: Content, mode: int = 0o666) -> None:
    """Create a file and flush it to disk."""
    pieces = [content] if isinstance(content, (str, bytes)) else content
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        for piece in pieces:
            out.write(piece if isinstance(piece, bytes) else piece.encode())
        out.flush()
        os.fsync(out.fileno())


def _claim(draft: Path, file: Path) -> Path:
    """Rename a draft to its final name, which is returned. Raises FileExistsError: it is taken."""
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        file.touch(exist_ok=False)
        draft.replace(file)
    return file


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """The directory for the block. If that fails, directories that were made for it are removed
    again, and an OSError becomes HudUsage with the reason."""
    missing = [each for each in (directory, *directory.parents) if not os.path.exists(each)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as error:
        for made in missing:
            with suppress(OSError):  # it has something in it
                made.rmdir()
        if not isinstance(error, OSError):
            raise
        message = f"{one_line(directory, 400)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "choose a writable directory") from error


@contextmanager
def stored_in(file: Path) -> Iterator[None]:
    """Convert an OSError of writing one of this program's files into HudUsage."""
    try:
        yield
    except OSError as error:
        what = f"{one_line(file, 300)} cannot be written: {one_line(error, 200)}"
        hint = "check disk space and permissions, or use another --state-dir"
        raise HudUsage(what, hint) from error


# Bounded reads of regular files; this program reads no others.
#
# Opening a FIFO blocks, and in a thread not even Ctrl-C ends that; a device may be endless or
# have side effects. So the type is checked before opening, and again afterwards, in case the
# file was replaced in between.


KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


class NotRegular(OSError):
    """Not a regular file; ``strerror`` names the type."""


class NotPrivate(OSError):
    """Accessible by others than its owner; ``strerror`` gives details."""


def check_regular(file: Path) -> None:
    """Allow only regular files; links are followed.

    Raises:
        NotRegular: A FIFO, a socket or a device.
        IsADirectoryError: A directory.
        OSError: It does not exist, or is inaccessible.
        ValueError: Not a path: it contains a NUL.
    """
    _check(os.stat(file).st_mode, file)


def open_regular(file: Path, flags: int = 0) -> BufferedReader:
    """Open a regular file for reading; never blocks.

    Args:
        file: Links are followed.
        flags: More flags of `os.open`, e.g. ``os.O_NOFOLLOW``.

    Raises:
        OSError: As `check_regular`.
        ValueError: Not a path: it contains a NUL.
    """
    check_regular(file)
    reading = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(file, reading | flags)
    try:
        _check(os.fstat(descriptor).st_mode, file)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(file: Path, most: int) -> bytes:
    """The content of a regular file.

    Args:
        file: Links are followed.
        most: Maximum bytes.

    Raises:
        OSError: As `check_regular`; EFBIG if it is larger.
        ValueError: Not a path: it contains a NUL.
    """
    with open_regular(file) as opened:
        return _bounded(opened, most, file)


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object that another program wrote; empty if it is missing or invalid."""
    with suppress(OSError, ValueError, RecursionError):
        document = json.loads(read_regular(file, MOST))
        return document if isinstance(document, dict) else {}
    return {}


def _bounded(opened: BufferedReader, most: int, file: Path) -> bytes:
    body = opened.read(most + 1)
    if len(body) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(file))
    return body


def read_private(file: Path, most: int) -> bytes:
    """The content of a file with a secret, which only its owner may be able to access.

    Args:
        file: A link is an error, because it may lead to another user's file.
        most: Maximum bytes.

    Raises:
        NotPrivate: Others can read or write it, or it belongs to another user.
        OSError: As `read_regular`.
    """
    if file.is_symlink():
        raise NotPrivate(errno.ELOOP, "a link, not a file", str(file))
    with open_regular(file, os.O_NOFOLLOW) as opened:
        status = os.fstat(opened.fileno())
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            raise NotPrivate(errno.EPERM, "it belongs to another user", str(file))
        if wider := stat.S_IMODE(status.st_mode) & ~0o600:
            mode = stat.S_IMODE(status.st_mode)
            who = "others can access it" if wider & 0o077 else "not a plain file"
            raise NotPrivate(errno.EPERM, f"{who} (mode {mode:04o}, not 0600)", str(file))
        return _bounded(opened, most, file)


MOST_LOG = 1 << 20
"""Maximum bytes read from the end of a log."""


def tail(file: Path, most: int = MOST_LOG) -> str:
    """The end of a log; empty if there is none."""
    try:
        with open_regular(file) as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - most))
            return opened.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def open_or_make(file: Path, flags: int = 0) -> int:
    """Open a file for locking or writing, created if it does not exist; return the descriptor.
    Links are followed. `flags`: more of `os.open`, e.g. ``os.O_APPEND``. Raises OSError: as
    `check_regular`, or it cannot be created."""
    ours = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(file, ours | flags, 0o600)
    try:
        _check(os.fstat(descriptor).st_mode, file)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def held(file: Path) -> Iterator[int | None]:
    """Try to hold a lock file, which ends with this program at the latest; yields its descriptor,
    None if another program holds it. Raises OSError: as `open_or_make`, or locks do not work."""
    lock = open_or_make(file)
    try:
        yield lock if _takes_soon(lock) else None
    finally:
        os.close(lock)


@contextmanager
def lock_of(file: Path, of: str) -> Iterator[bool]:
    """`held`, for what the user asked for; yields whether it is held here. `of`: whose lock it is,
    in words. Raises HudUsage: it cannot be taken, e.g. on a file system without locks."""
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = stack.enter_context(held(file))
        except OSError as error:
            what = f"the lock of {of} cannot be taken: {one_line(error, 200)}"
            raise HudUsage(what, "use another --state-dir") from error
        yield lock is not None


def is_held(file: Path) -> bool:
    """Whether another program holds a lock file; nobody holds one that cannot be opened. Raises
    OSError: the file system cannot say, e.g. one of a network without its lock service."""
    try:
        lock = open_or_make(file) if file.exists() else None
    except OSError:
        lock = None
    if lock is None:
        return False
    try:
        return not _takes(lock, fcntl.LOCK_SH)  # so that two who look see the same
    finally:
        os.close(lock)


def _takes(lock: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file; False if another program holds it. Raises OSError: locks do not work."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _takes_soon(lock: int) -> bool:
    """As `_takes`, but not refused by a program that only looks whether it is held."""
    for _ in range(3):
        if _takes(lock):
            return True
        if not _takes(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        sleep(LOOK_S)
    return _takes(lock)


def _check(mode: int, file: Path) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file", str(file))
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "a special file")
    raise NotRegular(errno.EINVAL, f"{kind}, not a regular file", str(file))


# Small JSON files with the user's choices, stored between sessions.
#
# Each has a ``version``. A file that is unreadable or from a newer hud-tui is not changed, because
# it may be worth fixing: defaults apply, and a message says what to do.


VERSION = 1
MOST = 4_000_000
"""Maximum size of the file, bytes."""


class JsonStore:
    """JSON files in one directory, opened on first use; without a directory nothing is stored.

    Write errors are ignored.
    """

    def __init__(
        self,
        find: Callable[[], Path] | None = None,
        later: Callable[[], object] | None = None,
        noticed: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            find: Returns the directory.
            later: Schedules a call of `flush`; None: every write is done at once.
            noticed: Called when `problems` has something new.
        """
        self._find, self._later, self._noticed = find, later, noticed
        self._waiting: dict[str, dict[str, Any]] = {}
        self._left: dict[str, str] = {}
        """Errors of files that are not used, by name."""
        self._untold: list[str] = []
        self._reported: set[str] = set()

    @cached_property
    def directory(self) -> Path | None:
        return None if self._find is None else self._find()

    def problems(self) -> list[str]:
        """A message for each unused file; each is returned once."""
        untold, self._untold = self._untold, []
        return untold

    def read(self, name: str) -> dict[str, Any]:
        """The values last written under this name."""
        return {**self._load(name), **self._waiting.get(name, {})}

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Write these values; other values in the file are kept."""
        if self.directory is None:
            return
        idle = not self._waiting
        as_read = json.loads(json.dumps(values))  # as they would be read back, without tuples
        self._waiting[name] = {**self._waiting.get(name, {}), **as_read}
        if self._later is None:
            self.flush()
        elif idle:
            self._later()

    def flush(self) -> None:
        """Write pending values; a crash leaves each file old or new, never partial."""
        waiting, self._waiting = self._waiting, {}
        for name, values in waiting.items():
            if self.directory is not None:
                with suppress(OSError):
                    change_atomic(self._file(name), partial(self._changed, name, values))

    def leave(self, name: str, what: str, cure: str = "fix it, or remove it") -> None:
        """Stop using a file, and report the error. `what`: the error and its place, e.g. ``theme:
        expected one of …``; `cure`: how to fix it."""
        if name not in self._left:
            file = one_line(self._file(name), 300)
            self.warn(f"{file}: {what}. The file is ignored and not changed: {cure}.")
        self._left[name] = what

    def warn(self, line: str) -> None:
        """Report a line, once per session."""
        if line not in self._reported:
            self._reported.add(line)
            self._untold.append(line)
            self._noticed()

    def _file(self, name: str) -> Path:
        return (self.directory or Path()) / f"{name}.json"

    def _load(self, name: str) -> dict[str, Any]:
        """A file's values without its version; empty if it is not used."""
        if self.directory is None:
            return {}
        try:
            document = json.loads(read_regular(self._file(name), MOST))
        except (FileNotFoundError, NotADirectoryError):
            self._left.pop(name, None)
        except json.JSONDecodeError as error:
            self.leave(name, f"line {error.lineno}, column {error.colno}: {error.msg}")
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            self.leave(name, one_line(why or "not JSON", 100))
        else:
            if not isinstance(document, dict):
                self.leave(name, "expected an object, {…}")
            elif (version := document.pop("version", VERSION)) == VERSION:
                return document
            elif type(version) is int and version > VERSION:
                what = f"version: {version}, and this hud-tui knows {VERSION} only"
                self.leave(name, what, "update hud-tui, or remove it")
            else:
                self.leave(name, f"version: expected {VERSION}")
        return {}

    def _changed(self, name: str, values: dict[str, Any]) -> str | None:
        """The new content of the file; None if unchanged or unused."""
        document = self._load(name)
        if name in self._left or {**document, **values} == document:
            return None
        return json.dumps({"version": VERSION, **document, **values})
