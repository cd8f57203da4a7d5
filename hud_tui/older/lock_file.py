"""Lock files on disk: found beside the tasks or here, read, and changed in one place only."""

import os
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.older.lock import NAME, Lock
from hud_tui.older.lock_reader import read_lock
from hud_tui.older.lock_text import with_dataset
from hud_tui.older.yaml_text import MAX_BYTES
from hud_tui.regular_file import check_regular, open_regular
from hud_tui.rl.text import one_line


def find_lock(*directories: Path) -> Path | None:
    """The first lock file of these directories; what is no file is found too, to be refused."""
    files = (directory / NAME for directory in directories)
    return next((file for file in files if file.exists() and not file.is_dir()), None)


def load_lock(file: Path) -> Lock:
    """Read a lock file.

    Raises:
        HudUsage: It cannot be read, or is none.
    """
    return read_lock(str(file), read_bounded(file))


def primary_source(directory: Path) -> str:
    """Where the tasks are that a directory's lock file calls its primary data set: the folder
    that it names, where that is still there, else the data set's name.

    Raises:
        HudUsage: No lock file, or it names none.
    """
    file = find_lock(directory)
    if file is None:
        raise HudUsage("give SOURCE: a file, a directory or a taskset", f"there is no {NAME} here")
    dataset = load_lock(file).dataset
    if dataset is None:
        hint = "hud-tui convert makes a data set, and notes it there"
        raise HudUsage(f"give SOURCE: {one_line(file)} names no primary_dataset", hint)
    folder = file.parent / dataset.path
    return str(folder) if dataset.path and folder.exists() else dataset.name


def read_bounded(file: Path, most: int = MAX_BYTES) -> bytes:
    """A file's bytes, at most one more than `most`.

    Raises:
        HudUsage: It cannot be read, or is no file.
    """
    try:
        with open_regular(file) as opened:
            return opened.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HudUsage(f"{one_line(file)}: {one_line(reason)}", "check the path") from error


def write_dataset(file: Path, name: str, task_count: int, updated_at: str, folder: Path) -> None:
    """Note a data set as the primary one; everything else in the file stays as it is.

    Args:
        file: The lock file.
        name: The data set's, on Hugging Face.
        task_count: Its rows.
        updated_at: When it was made, as ISO 8601.
        folder: Where it lies on this machine; noted as it is seen from the lock file.

    Raises:
        HudUsage: The file cannot be read or written, or is no lock file.
    """
    body = read_bounded(file)
    read_lock(str(file), body)
    text = body.decode("utf-8")
    entry: dict[str, str | int] = {"name": name, "task_count": task_count}
    entry |= {"updated_at": updated_at, "path": os.path.relpath(folder, file.parent)}
    replace_file(file, with_dataset(str(file), text, entry).encode())


def replace_file(file: Path, body: bytes) -> None:
    """Write a file whole or not at all; a link keeps pointing where it did.

    Raises:
        HudUsage: It cannot be written, or something else than a file has its place.
    """
    target = file.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        mode = _mode(target)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        message = f"{one_line(file)}: {one_line(error.strerror or error)}"
        raise HudUsage(message, "choose a place that can be written to") from error


def _mode(target: Path) -> int:
    """The mode of the file that is replaced; that of a new one where there is none."""
    if not target.exists():
        return 0o644
    check_regular(target)
    return target.stat().st_mode & 0o777
