"""Where tasks come from: a file, a directory of files, or a taskset of the service."""

import asyncio
import os
from collections.abc import Iterator
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hud_tui.errors import HudBadTasks, HudNotFound, HudUsage, Problem
from hud_tui.older.dataset_rows import from_rows
from hud_tui.older.lock_file import find_lock
from hud_tui.older.lock_rows import Completion
from hud_tui.older.parquet import parquet_files, read_parquet
from hud_tui.regular_file import open_regular
from hud_tui.rl.formats import read_rows
from hud_tui.rl.names import close_names
from hud_tui.rl.task_files import MAX_BYTES, try_file
from hud_tui.rl.tasks import Task, form_of
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

SUFFIXES = (".json", ".jsonl")
MOST_FILES = 10_000
"""Task files of one directory."""


async def load_source(client: "HudClient", source: str) -> tuple[list[Task], dict[str, Any]]:
    """A taskset's tasks, from files or from the service.

    Args:
        client: Asked where the source is not a path.
        source: A file (JSON or Parquet) or directory that exists, or a path that ends in
            .json or .jsonl; else a taskset's name or id.

    Returns:
        The tasks, and where they are from: ``source`` as given, ``name``, ``loaded_from``
        (file, directory or taskset), ``format``, the form of the rows, ``taskset_id`` of a
        taskset, and ``lock``, the hud.lock.yaml beside them or here, where there is one.

    Raises:
        HudBadTasks: Rows that cannot be read, with all that is wrong with them.
        HudUsage: No such file or taskset.
    """
    path = path_of(source)
    if path is not None and source == path.name and path.is_dir():
        path = await _prefer_taskset(client, path)
    if path is not None:
        return await asyncio.to_thread(load_path, source, path)
    tasks, name, taskset_id = await _taskset(client, source)
    origin = _origin(source, name, "taskset", tasks, find_lock(Path()))
    return tasks, origin | {"taskset_id": taskset_id}


def load_path(source: str, path: Path) -> tuple[list[Task], dict[str, Any]]:
    """`load_source` of a file or directory, as `path_of` gives it."""
    lock = find_lock(path if path.is_dir() else path.parent, Path())
    complete = Completion(lock)
    if path.is_dir():
        tasks, name, kind = _directory(path, complete), path.resolve().name, "directory"
    else:
        tasks, name, kind = _file(path, complete), path.stem or path.name, "file"
    return tasks, _origin(source, name, kind, tasks, lock)


def _origin(
    source: str, name: str, loaded_from: str, tasks: list[Task], lock: Path | None
) -> dict[str, Any]:
    origin = {"source": source, "name": name, "loaded_from": loaded_from}
    beside = {"lock": str(lock)} if lock else {}
    return origin | {"format": form_of(tasks)} | beside


def path_of(source: str) -> Path | None:
    """The file or directory that is meant; None where it is a name.

    Raises:
        HudUsage: Python, which is not run here; or no path at all.
    """
    try:
        path = Path(expanduser(source))
        suffix = path.suffix.lower()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(source, error) from error
    if suffix == ".py" and exists:
        hint = 'write its tasks to a file: Taskset.from_file(…).to_file("tasks.jsonl")'
        raise HudUsage(f"{one_line(source)} is Python, which is not run here", hint)
    return path if exists or suffix in SUFFIXES else None


def _file(path: Path, complete: Completion) -> list[Task]:
    if path.suffix.lower() == ".parquet":
        rows = from_rows(read_parquet(path))
        return read_rows(map(complete, rows), f"{one_line(path.name, 120)} row")
    found = try_file(path.stem + path.suffix.lower(), _bytes(path), complete)
    if found.problems:
        raise HudBadTasks(found.problems, found.hint)
    return found.tasks


def _bytes(path: Path) -> bytes:
    """A file's bytes, at most one more than can be read."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from error


def _directory(folder: Path, complete: Completion) -> list[Task]:
    """The tasks of every task file in it and below, hidden ones left out; or of the Parquet
    files of a data set."""
    tasks: list[Task] = []
    problems: list[Problem] = []
    size, count, hint = 0, 0, ""
    for path in _task_files(folder):
        body, count = _bytes(path), count + 1
        size += len(body)
        if size > MAX_BYTES or count > MOST_FILES:
            most = f"{MAX_BYTES // 2**20} MB or {MOST_FILES} files"
            raise HudUsage(f"{one_line(folder)}: more than {most} of tasks", "split the directory")
        found = try_file(str(path.relative_to(folder)), body, complete)
        tasks += found.tasks
        problems += found.problems
        hint = hint or (found.hint if found.problems else "")
    if problems:
        raise HudBadTasks(problems, hint)
    parquet = [] if count else parquet_files(folder)
    if not count and not parquet:
        raise HudUsage(f"{one_line(folder)}: no .json or .jsonl file in it", "check the path")
    tasks += [task for file in parquet for task in _file(file, complete)]
    return tasks


def _task_files(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise _unreadable(str(error.filename or folder), error) from error

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if path.suffix.lower() in SUFFIXES and name[0] != ".":
                yield path


async def _prefer_taskset(client: "HudClient", path: Path) -> Path | None:
    """None where the service has a taskset of a directory's bare name: ``./NAME`` says which."""
    try:
        await client.taskset(path.name)
    except HudNotFound:
        return path
    return None


async def _taskset(client: "HudClient", source: str) -> tuple[list[Task], str, str | None]:
    try:
        export = await client.taskset(source)
    except HudNotFound as error:
        known = [taskset.name for taskset in await client.tasksets()]
        hint = close_names(source, known) if known else "or give a .json or .jsonl file"
        if "/" in source:  # as data sets of the Hub are called
            fetch = f"hf download {one_line(source)} --repo-type dataset --local-dir DIR"
            hint += f"; a data set of the Hugging Face Hub: {fetch}, then give DIR"
        raise HudUsage(f"no file or taskset is called {one_line(source)}", hint) from error
    rows = await asyncio.to_thread(read_rows, export.tasks, f"{one_line(export.name)} row")
    return rows, export.name, export.taskset_id


def _unreadable(source: str, error: Exception) -> HudUsage:
    reason = error.strerror if isinstance(error, OSError) else error
    return HudUsage(f"{one_line(source)}: {one_line(reason)}", "check the path, or name a taskset")
