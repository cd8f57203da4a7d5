"""The rows of a task file's text, each with its place.

A ``.json`` file has one row, a list, or an export ``{"name", "tasks"}``; a ``.jsonl`` file
has a row or a list a line. What is in the file decides where its name says otherwise:
people save the one under the name of the other.
"""

import re
from collections.abc import Iterator

from hud_tui.errors import Problem
from hud_tui.rl.fields import kind_of
from hud_tui.rl.formats import detect
from hud_tui.rl.strict_json import Parsed, Parser

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
