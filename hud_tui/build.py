"""Which hud-tui this is: its version, and a digest of its files, which an upgrade changes."""

import os
import sys
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b, sha256

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
    """Digest of the package's files as they are now, 12 hex digits.

    An installed wheel has their hashes on record: only what was edited since is read. An edit shows
    by its size, or by its time.
    """
    (recorded, installed_ns), room = _recorded(), memoryview(bytearray(CHUNK))
    hashes = []
    for entry in _files(PACKAGE):
        path, status = entry.path.removeprefix(PACKAGE), entry.stat()
        content, size = recorded.get(path, ("", -1))
        if status.st_size != size or status.st_mtime_ns > installed_ns:
            content = hash_of(_content(entry.path, room))
        hashes.append((path, content))
    return digest_of(hashes)


def digest_of(hashes: Iterable[tuple[str, str]]) -> str:
    """Digest of such files, from their paths below the package and the hashes of their contents."""
    total = blake2b(digest_size=6)
    for path, content in sorted(hashes):
        total.update(f"{path} {content}\n".encode())
    return total.hexdigest()


def hash_of(content: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a file's content as a wheel's RECORD has it: base64 for URLs, without padding."""
    total = sha256()
    for piece in content:
        total.update(piece)
    return b2a_base64(total.digest(), newline=False).decode().translate(_FOR_URLS).rstrip("=")


_FOR_URLS = str.maketrans("+/", "-_")


def _content(path: str, room: memoryview) -> Iterator[memoryview]:
    """What is in a file, piece by piece in the same memory: fresh memory takes longer to get than
    the file to read."""
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(room):
            yield room[:count]


def _recorded() -> tuple[dict[str, tuple[str, int]], int]:
    """What the installer of a wheel wrote down beside the package, if it is one.

    Returns:
        The hash and the size of each file by its path below the package; and when this was written,
        last of all that it installed, Unix nanoseconds.
    """
    folder, name = os.path.split(PACKAGE)
    files = {}
    try:
        with open(f"{folder}/hud_tui-{__version__}.dist-info/RECORD", encoding="utf-8") as file:
            for row in file:  # PATH,sha256=HASH,SIZE; no path of the package has a comma
                path, _, facts = row.rstrip().partition(",sha256=")
                known, _, size = facts.partition(",")
                if path.startswith(f"{name}/") and size.isdecimal():
                    files[path.removeprefix(name)] = known, int(size)
            return files, os.fstat(file.fileno()).st_mtime_ns
    except (OSError, UnicodeDecodeError):
        return {}, 0


def label() -> str:
    """What a bug report quotes: version, build, Python and system."""
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    where = f"Python {python}, {system.sysname} {system.machine}"
    return f"hud-tui {__version__}, build {digest()}, {where}"


def is_other(version: str, build: str, package: str, began: float) -> bool:
    """Whether a service is another hud-tui than this.

    Args:
        version: Its version; empty if it does not say, as before this module.
        build: Its `digest` when it started.
        began: When it started, Unix seconds.
    """
    if version != __version__:
        return True
    if package == PACKAGE and all(entry.stat().st_mtime < began for entry in _files(PACKAGE)):
        return False  # nothing was written since: the digest need not be computed
    return build != digest()
