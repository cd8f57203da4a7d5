"""Regular files, read within bounds: the only files that this program reads.

A FIFO blocks whoever opens it, even beyond Ctrl-C in a thread; a device need not end, and may
do something when it is opened. So what a path leads to is looked at first, and again when it
is open, for it may have been replaced in between.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


class NotRegular(OSError):
    """It is there, but no regular file; ``strerror`` says what it is."""


class NotPrivate(OSError):
    """It is to be its owner's alone, and is not; ``strerror`` says why."""


def check_regular(file: Path) -> None:
    """Refuse what is no regular file; links are followed.

    Raises:
        NotRegular: A FIFO, a socket or a device.
        IsADirectoryError: A directory.
        OSError: There is none, or it cannot be looked at.
        ValueError: No path: it has a NUL.
    """
    _check(os.stat(file).st_mode, file)


def open_regular(file: Path, flags: int = 0) -> BufferedReader:
    """Open a regular file for reading, without waiting for anything.

    Args:
        file: Links are followed.
        flags: More flags of `os.open`, e.g. ``os.O_NOFOLLOW``.

    Raises:
        OSError: As `check_regular`.
        ValueError: No path: it has a NUL.
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


def read_regular(file: Path, most: int, flags: int = 0) -> bytes:
    """All of a regular file.

    Args:
        file: Links are followed.
        most: Bytes of the largest file that is read.
        flags: More flags of `os.open`.

    Raises:
        OSError: As `check_regular`; EFBIG where it is larger.
        ValueError: No path: it has a NUL.
    """
    with open_regular(file, flags) as opened:
        body = opened.read(most + 1)
    if len(body) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(file))
    return body


def read_private(file: Path, most: int) -> bytes:
    """All of a file that holds a secret: nobody else may have read or written it.

    Args:
        file: A link is refused: it may lead to another's file.
        most: Bytes of the largest file that is read.

    Raises:
        NotPrivate: Others can read or write it, or it is another user's.
        OSError: As `read_regular`.
    """
    if file.is_symlink():
        raise NotPrivate(errno.ELOOP, "a link, not a file", str(file))
    with open_regular(file, os.O_NOFOLLOW) as opened:
        found = os.fstat(opened.fileno())
        if found.st_uid != os.geteuid() and os.geteuid() != 0:
            raise NotPrivate(errno.EPERM, "it belongs to another user", str(file))
        if wider := stat.S_IMODE(found.st_mode) & ~0o600:
            mode = stat.S_IMODE(found.st_mode)
            who = "others can use it" if wider & 0o077 else "it is no plain file"
            raise NotPrivate(errno.EPERM, f"{who} (mode {mode:04o}, not 0600)", str(file))
        body = opened.read(most + 1)
    if len(body) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(file))
    return body


def open_or_make(file: Path, flags: int = 0) -> int:
    """The descriptor of a file to lock or to write to, made where there is none.

    Args:
        file: Links are followed.
        flags: More flags of `os.open`, e.g. ``os.O_APPEND``.

    Raises:
        OSError: As `check_regular`, or it cannot be made.
    """
    ours = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(file, ours | flags, 0o600)
    try:
        _check(os.fstat(descriptor).st_mode, file)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(mode: int, file: Path) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file", str(file))
    kind = next((name for is_kind, name in KINDS if is_kind(mode)), "a special file")
    raise NotRegular(errno.EINVAL, f"{kind}, not a regular file", str(file))
