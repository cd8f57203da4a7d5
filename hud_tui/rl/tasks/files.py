"""The rows of a task file's text, each with its place.

A ``.json`` file has one row, a list, or an export ``{"name", "tasks"}``; a ``.jsonl`` file
has a row or a list a line. What is in the file decides where its name says otherwise:
people save the one under the name of the other.
"""

import codecs
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hud_tui.errors import Problem
from hud_tui.rl.json_tree import Parsed, Parser
from hud_tui.rl.tasks.formats import MOST_PROBLEMS, detect, hint_for, try_row
from hud_tui.rl.tasks.task import HINT, Task, kind_of
from hud_tui.rl.text import one_line

LINE = re.compile(r"[^\r\n]+")
Placed = tuple[str, object]
"""Where a row is, and the row; or a Problem in its stead."""


def rows_of(name: str, text: str) -> Iterator[Placed]:
    """The rows of a file's text, one by one, so that those before a fault are still read.

    Args:
        name: The file's, clean; it says too whether a row or a list a line is to be expected.
        text: Its text; one without a row is a file without tasks.
    """
    parser = Parser(text)
    start = parser.skip(0)
    if start == len(text):
        return iter(())
    named, line = name.lower().endswith(".jsonl"), _line_at(text, start)
    if text[start] == "[":
        return _lines(name, text) if named and line.endswith("]") else _list(name, parser, start)
    value = parser.value(start)
    alone = value.end > 0 and parser.skip(value.end) == len(text)
    if named:
        is_lines = line != "{" and not (alone and value.end > start + len(line))
    else:
        is_lines = not alone and 0 < value.end <= start + len(line)
    return _lines(name, text) if is_lines else _document(name, parser, value)


def _line_at(text: str, start: int) -> str:
    line = LINE.search(text, start)
    return line[0].rstrip() if line else ""


def _lines(name: str, text: str) -> Iterator[Placed]:
    number, end, parser = 1, 0, Parser("")
    for line in LINE.finditer(text):
        number += _breaks(text, end, line.start())
        end = line.end()
        if not line[0].strip():
            continue
        where = f"{name} line {number}"
        parser.text = line[0]
        value = parser.value(parser.skip(0))
        rest = parser.skip(value.end) if value.end else 0
        if value.fault or rest < len(line[0]):
            column = (value.at if value.fault else rest) + 1
            fault = value.fault or "more follows the row"
            yield "", Problem(f"{where} column {column}", "", _not_json(fault))
        else:
            yield from _items(where, value.value)


def _items(where: str, value: object) -> Iterator[Placed]:
    """The rows of a line: one, a list of them, or an export."""
    if isinstance(value, dict) and "tasks" in value and not detect(value):
        yield from _wrapped(where, value["tasks"], "item")
    elif isinstance(value, list):
        yield from _wrapped(where, value, "item")
    else:
        yield where, value


def _breaks(text: str, start: int, end: int) -> int:
    """Line breaks between two lines; ``\\r\\n`` is one."""
    between = text[start:end]
    return len(between) - between.count("\r\n")


def _document(name: str, parser: Parser, value: Parsed) -> Iterator[Placed]:
    rest = parser.skip(value.end) if value.end else len(parser.text)
    if value.fault:
        yield "", _unparsed(name, parser, value.at, value.fault)
    elif rest < len(parser.text):
        yield "", _unparsed(name, parser, rest, "more follows the value")
    elif isinstance(value.value, dict) and "tasks" in value.value and not detect(value.value):
        yield from _wrapped(name, value.value["tasks"])
    elif isinstance(value.value, dict):
        yield f"{name} row 1", value.value
    else:
        message = f"expected a list of tasks, found {kind_of(value.value)}"
        yield "", Problem(name, "", message)


def _wrapped(name: str, tasks: object, unit: str = "row") -> Iterator[Placed]:
    """The rows of an export, or of an upload; before hud 0.6 an export had them by id."""
    rows = list(tasks.values()) if isinstance(tasks, dict) else tasks
    if not isinstance(rows, list):
        message = f"expected a list of tasks, found {kind_of(rows)}"
        yield "", Problem(name, "tasks", message)
        return
    for number, row in enumerate(rows, 1):
        yield f"{name} {unit} {number}", row


def _list(name: str, parser: Parser, start: int) -> Iterator[Placed]:
    """Rows one by one, so that those before a fault are still read."""
    text, at, number = parser.text, parser.skip(start + 1), 1
    while at < len(text) and not (text[at] == "]" and number == 1):
        value = parser.value(at)
        where = f"{name} row {number}"
        if value.fault:
            yield "", _unparsed(name, parser, value.at, value.fault, number)
            if not value.end:
                return
        else:
            yield from _items(where, value.value)
        at, number = parser.skip(value.end), number + 1
        if text[at : at + 1] != ",":
            break
        at = parser.skip(at + 1)
    if text[at : at + 1] != "]":
        yield "", _unparsed(name, parser, at, "expected , or ]", number)
    elif (rest := parser.skip(at + 1)) < len(text):
        yield "", _unparsed(name, parser, rest, "more follows the list")


def _unparsed(name: str, parser: Parser, at: int, fault: str, row: int | None = None) -> Problem:
    of_row = f" row {row}," if row is not None else ""
    return Problem(f"{name}{of_row} {parser.place(at)}", "", _not_json(fault))


def _not_json(fault: str) -> str:
    return fault if "too" in fault or "nested" in fault or "JSON" in fault else f"not JSON: {fault}"


# A file's bytes as text: UTF-8, or why it is not, by name and line.


MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"SQLite format 3", "a database"),
)
"""How files begin that are no JSON text."""


def decode(body: bytes) -> tuple[str, str]:
    """The text without its byte-order mark, and nothing; or nothing, and why it is none."""
    for mark, kind in MARKS:
        if body.startswith(mark):
            return "", f"expected UTF-8, found {kind}"
    if (null := body.find(b"\0")) >= 0:
        guess = "; it may be UTF-16" if body[:4].count(b"\0") in (1, 2, 3) else ""
        return "", f"line {_line(body, null)}: a NUL byte, which no JSON text has{guess}"
    try:
        return body.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = _line(body, error.start)
        return "", f"line {line}: byte {error.start}: not UTF-8 (0x{body[error.start]:02X})"


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1


# Task files: their bytes as text, their text as rows, their rows as tasks.


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
