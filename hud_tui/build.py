"""Which hud-tui this is: its version, and a digest of its files, which an upgrade changes."""

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b

from hud_tui import __version__

PACKAGE = os.path.dirname(os.path.abspath(__file__))  # pathlib takes half of `--version` to load
CHUNK = 1 << 17
"""Bytes that are read at once."""
ENDINGS = (".py", ".safetensors", ".json")  # a service reads no styles


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(ENDINGS):
                yield entry


@cache
def digest() -> str:
    """Digest of the package's files as they are now, 12 hex digits. Takes some 15 ms once."""
    paths = sorted(entry.path for entry in _files(PACKAGE))
    room = memoryview(bytearray(CHUNK))
    return digest_of((path.removeprefix(PACKAGE), _content(path, room)) for path in paths)


def _content(path: str, room: memoryview) -> Iterator[memoryview]:
    """What is in a file, piece by piece in the same memory: fresh memory takes longer to get than
    the file to read."""
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(room):
            yield room[:count]


def digest_of(files: Iterable[tuple[str, Iterable[bytes | memoryview]]]) -> str:
    """Digest of such files, from their paths below the package and contents, sorted by path."""
    total = blake2b(digest_size=6)
    for path, content in files:
        total.update(path.encode())
        for piece in content:
            total.update(piece)
    return total.hexdigest()


def label() -> str:
    """What a bug report quotes: version, build, Python and system."""
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    where = f"Python {python}, {system.sysname} {system.machine}"
    return f"hud-tui {__version__}, build {digest()}, {where}"


def unchanged_since(stamp: float) -> bool:
    """Whether no file of the package was written after this time, Unix seconds."""
    return all(entry.stat().st_mtime < stamp for entry in _files(PACKAGE))


def is_other(version: str, build: str, package: str, began: float) -> bool:
    """Whether a service is another hud-tui than this.

    Args:
        version: Its version; empty if it does not say, as before this module.
        build: Its `digest` when it started.
        began: When it started, Unix seconds.
    """
    if version != __version__:
        return True
    if package == PACKAGE and unchanged_since(began):
        return False  # the digest need not be computed
    return build != digest()
