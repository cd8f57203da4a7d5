"""New files and folders: written whole or not at all, and never over what exists.

A name that is taken gets a number: ``run.csv``, ``run-2.csv``, ``run-3.csv``.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from secrets import token_hex

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line


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
    draft = directory / f".{stem}.{token_hex(6)}"
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
    draft = directory / f".{token_hex(6)}{suffix}"
    try:
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _write(file: Path, pieces: Iterable[str]) -> None:
    with file.open("x", encoding="utf-8", newline="") as out:
        for piece in pieces:
            out.write(piece)
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
