"""Files of a machine, copied here: streamed into a draft, bounded in size, compared with the file
there by size and SHA-256, and only then renamed.

A draft is named by the digest of its file, so a copy whose connection broke goes on where it was,
in this program or in the next one.
"""

import hashlib
import os
import re
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from time import monotonic

from hud_tui.errors import HudMalformed, HudUsage
from hud_tui.remote.ssh import LineLost, Report, Ssh, patient, quote
from hud_tui.rl.text import one_line, size
from hud_tui.storage import check_regular, open_or_make

ATTEMPTS = 3
"""Copies of one file until a difference from the file there counts as an error."""
TELL_S = 1.0
"""Seconds between two reports of one file's progress."""
_SUM = """\
sum() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum
  elif command -v shasum >/dev/null 2>&1; then shasum -a 256
  else openssl dgst -sha256 -r; fi < "$1" | head -c 64
}
"""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FarFile:
    path: str
    bytes: int
    sha256: str


async def list_files(
    run: Callable[[str], Awaitable[str]], folder: str, names: Sequence[str]
) -> dict[str, FarFile]:
    """Those of the names that are files of a folder there. `run`: runs a script there, and returns
    its output. Raises HudMalformed: the machine cannot compute digests, or answers otherwise."""
    script = _SUM
    for name in names:
        file = quote(f"{folder}/{name}")
        script += f'[ -f {file} ] && echo "$(($(wc -c < {file}))) $(sum {file}) {name}"\n'
    files = {}
    for line in (await run(f"{script}:\n")).splitlines():
        count, _, rest = line.partition(" ")
        digest, _, name = rest.partition(" ")
        number = count.isascii() and count.isdigit() and len(count) < 18
        if not number or not _DIGEST.fullmatch(digest) or name not in names:
            what = f"the files of {one_line(folder, 200)} cannot be listed: {one_line(line, 200)}"
            raise HudMalformed(what, "it needs wc, and sha256sum, shasum or openssl")
        files[name] = FarFile(f"{folder}/{name}", int(count), digest)
    return files


async def copy_file(
    ssh: Ssh, file: FarFile, target: Path, report: Report, patience_s: float
) -> None:
    """Copy a file here; one that is here already, and equal, stays. `report` gets its progress, and
    what breaks; `patience_s`: how long the machine may be unreachable at a time, seconds.

    Raises:
        HudMalformed: What arrives differs from the file there, each time.
        HudUsage: It cannot be written here.
        HudError: As `Ssh.stream`.
    """
    with _writable(target):
        if await to_thread(_equals, target, file):
            return
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = target.with_name(f".{target.name}.{file.sha256[:16]}.part")
        for other in target.parent.glob(f".{target.name}.*.part"):
            if other != draft:
                other.unlink()
        for _ in range(ATTEMPTS):
            await _fill(ssh, file, draft, report, patience_s)
            if await to_thread(_equals, draft, file):
                draft.replace(target)
                return
            draft.unlink()
            report(f"{target.name} arrived otherwise than it is there: copied again")
    raise HudMalformed(
        f"{one_line(file.path, 300)} does not arrive as it is there: its SHA-256 differs",
        "does something write it now? the same command tries again",
    )


async def _fill(ssh: Ssh, file: FarFile, draft: Path, report: Report, patience_s: float) -> None:
    """Append to a draft what it lacks."""
    told = monotonic()
    with _appended(draft, file.bytes) as out:

        def write(piece: bytes) -> None:
            nonlocal told
            out.write(piece)
            if monotonic() - told >= TELL_S:
                told = monotonic()
                report(f"{Path(file.path).name}: {size(out.tell())} of {size(file.bytes)}")

        async def some() -> None:
            before = out.tell()
            script = f"exec tail -c +{before + 1} {quote(file.path)}"
            try:
                await ssh.stream(script, file.bytes - before, write)
            except LineLost:
                if out.tell() == before:
                    raise

        while out.tell() < file.bytes:  # each call that brings something has its own patience
            await patient(some, report, patience_s)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def _appended(draft: Path, most: int) -> Iterator[BufferedWriter]:
    """A draft to append to; emptied if it is longer than its file."""
    with open(open_or_make(draft, os.O_APPEND), "ab") as out:
        if out.tell() > most:
            out.seek(0)
            out.truncate()
        yield out


def _equals(here: Path, file: FarFile) -> bool:
    """Whether a file here is that of the machine."""
    try:
        check_regular(here)
        with here.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size != file.bytes:
                return False
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except FileNotFoundError:
        return False


def are_equal(folder: Path, names: Sequence[str], files: Mapping[str, FarFile]) -> bool:
    """Whether those of the names that are files there, and no others, are equal in a folder here.
    Raises HudUsage: one here cannot be read."""
    with _writable(folder):
        if any(os.path.lexists(folder / name) for name in names if name not in files):
            return False
        return all(_equals(folder / name, file) for name, file in files.items())


@contextmanager
def _writable(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{one_line(error.filename or target, 300)}: {one_line(error.strerror or error)}"
        raise HudUsage(what, "make room for it, or remove what is in its way") from error
