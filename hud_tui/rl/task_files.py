"""Task files: their bytes as text, their text as rows, their rows as tasks."""

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hud_tui.errors import Problem
from hud_tui.rl.fields import HINT
from hud_tui.rl.file_rows import Placed, rows_of
from hud_tui.rl.file_text import decode
from hud_tui.rl.formats import MOST_PROBLEMS, hint_for, try_row
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line

MAX_BYTES = 64 * 1024 * 1024
"""A larger task file is refused, and a directory that has more."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Complete = Callable[[object], object]


@dataclass(frozen=True)
class Read:
    """What a file has: tasks, or what is wrong with it."""

    tasks: list[Task]
    problems: list[Problem]
    hint: str = HINT


def _as_it_is(row: object) -> object:
    return row


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would look at every row again and again: half of
    the time of a large file. Rows have no cycles to collect."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def try_file(name: str, body: bytes, complete: Complete = _as_it_is) -> Read:
    """The file's tasks and its problems, in its own order.

    Args:
        name: The file's, for messages.
        body: Its bytes; where the caller keeps none, they are let go before rows are read.
        complete: Given each row before it is read; what it returns is read instead.
    """
    name = one_line(name, 120)
    if len(body) > MAX_BYTES:
        message = f"larger than {MAX_BYTES // 2**20} MB"
        return Read([], [Problem(name, "", message)], "split the file")
    text, message = decode(body)
    del body
    if message:
        return Read([], [Problem(name, "", message)], "save it as JSON text in UTF-8")
    with _uncollected():
        return _read(rows_of(name, text), complete, SURROGATE.search(text) is not None)


def _read(rows: Iterator[Placed], complete: Complete, check: bool) -> Read:
    problems: list[Problem] = []
    tasks, hint = [], ""
    for where, row in rows:
        if isinstance(row, Problem):
            problems.append(row)
        else:
            task = try_row(complete(row), where, problems, check)
            if task is not None:
                tasks.append(task)
        if problems and not hint:
            hint = "fix that place and try again" if isinstance(row, Problem) else hint_for(row)
        if len(problems) > MOST_PROBLEMS:
            break
    return Read(tasks, problems, hint)
