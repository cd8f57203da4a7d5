"""Task files: decoding, splitting into rows, detecting the form of a row, and reading it.

Source: the ``hud`` SDK 0.6.21 (v6 rows, upload and export forms), 0.5 (v5 rows); for older ones,
`hud_tui.rl.tasks.legacy`.
"""

import codecs
import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hud_tui.errors import Problem
from hud_tui.rl.json_tree import Parsed, Parser
from hud_tui.rl.tasks.legacy import HINT_V3, HINT_V4, read_v3, read_v4
from hud_tui.rl.tasks.task import HINT, Fields, Form, Task, default_slug, kind_of, refuse
from hud_tui.rl.text import one_line

CARRIED = ("validation", "agent_config", "runtime_config", "verifier")
"""Fields that are sent unchanged."""
COMMON = frozenset({"env", "args", "slug", "name", "columns", *CARRIED})
PLATFORM = frozenset({"id", "external_id", "metadata", "description", "system_prompt"})
KNOWN: dict[Form, frozenset[str]] = {
    "v6": COMMON | {"id"},
    "v5": COMMON | PLATFORM | {"scenario"},
    "upload": COMMON | PLATFORM | {"task_id", "scenario", "scenario_id", "registry_id"},
    "export": COMMON | PLATFORM | {"scenario", "task_version_id"},
}
V4_ONLY = ("mcp_config", "setup_tool", "evaluate_tool", "integration_test_tool", "agent_tools")
SCENARIO: dict[Form, str] = {"v6": "id", "v5": "scenario", "upload": "task_id"}
MAX_VALUES = 100_000
"""Maximum values in one row, including nested ones; usual rows have some hundred."""
MOST_PROBLEMS = 1000
"""Number of problems after which reading a file stops."""


def detect(row: dict[str, Any]) -> Form | None:
    """The form of a row, judged by its fields; None if unknown."""
    has = {key for key in _MARKER_FIELDS if row.get(key) not in (None, "")}
    if {"mcp_config", "prompt"} <= has:
        return "v4"
    if {"env", "scenario"} <= has:
        return "export" if "name" in has and not has & {"slug", "id"} else "v5"
    if {"env", "task_id"} <= has:
        return "upload"
    if {"env", "id"} <= has:
        return "v6"
    return "v3" if "gym" in has else None


_MARKER_FIELDS = ("mcp_config", "prompt", "env", "scenario", "name", "slug", "id", "task_id", "gym")


def read_row(row: object, where: str = "row") -> Task:
    """Read one row of any form.

    Raises:
        HudBadTasks: Invalid row; the message names the place and every invalid field.
    """
    [task] = _read_all([(where, row)])
    return task


def read_rows(rows: Iterable[object], name: str = "row") -> list[Task]:
    """Read rows; messages name them ``row 3``, counted from 1.

    Raises:
        HudBadTasks: Invalid rows; all are named.
    """
    return _read_all((f"{name} {number}", row) for number, row in enumerate(rows, 1))


def try_row(row: object, where: str, problems: list[Problem], check: bool = True) -> Task | None:
    """Read a row; None if it is invalid, with its errors appended to `problems`."""
    if not isinstance(row, dict):
        problems.append(Problem(where, "", f"expected a task object, found {kind_of(row)}"))
        return None
    if _has_too_many(row):
        problems.append(Problem(where, "", f"more than {MAX_VALUES} values in one row"))
        return None
    before = len(problems)
    fields = Fields(row, where, problems)
    if check:
        fields.check_text()
    form = detect(row)
    if form == "v4":
        task = read_v4(fields)
    elif form == "v3":
        task = read_v3(fields)
    elif form is None:
        _report_missing(fields)
    else:
        task = _read(fields, form)
    return task if len(problems) == before else None


def _has_too_many(row: dict[str, Any]) -> bool:
    """Whether it has more than MAX_VALUES values; counting stops there."""
    waiting: list[Any] = [row]
    held = 0
    while waiting:
        node = waiting.pop()
        held += len(node)
        if held > MAX_VALUES:
            return True
        parts = node.values() if isinstance(node, dict) else node
        waiting += [part for part in parts if isinstance(part, (dict, list))]
    return False


def hint_for(row: object) -> str:
    """An example of a row of the same form."""
    if not isinstance(row, dict):
        return HINT
    if row.get("gym") and detect(row) == "v3":
        return HINT_V3
    return HINT_V4 if row.get("mcp_config") or row.get("prompt") else HINT


def _read(fields: Fields, form: Form) -> Task:
    row = fields.row
    env, more = _environment(fields)
    scenario = fields.text(SCENARIO.get(form, "scenario"), "the scenario's name")
    args, columns = fields.mapping("args"), fields.mapping("columns")
    slug = fields.maybe_text("slug") or fields.maybe_text("external_id")
    if not slug and form != "v6":
        slug = fields.maybe_text("name")
    if form == "v5":
        for key in V4_ONLY:
            if row.get(key) is not None:
                fields.wrong(key, "unexpected field: it belongs to v4, which has no scenario")
    fields.sequence("validation")
    fields.mapping("agent_config")
    fields.mapping("runtime_config")
    _check_verifier(fields)
    more |= {key: row[key] for key in CARRIED if row.get(key) is not None}
    if scenario == f"{env}:":
        fields.wrong(SCENARIO.get(form, "scenario"), "expected the scenario's name after env:")
    scenario = scenario.removeprefix(f"{env}:")
    unknown = tuple(sorted(row.keys() - KNOWN[form]))
    slug = slug or default_slug(scenario, args)
    return Task(env, scenario, args, slug, columns, fields.where, form, more, unknown)


def _environment(fields: Fields) -> tuple[str, dict[str, Any]]:
    """Name of the environment; and ``env`` itself if it is an object that selects tools."""
    env = fields.row.get("env")
    if not isinstance(env, dict):
        return fields.text("env", "the environment's name"), {}
    name = env.get("name")
    if not isinstance(name, str) or not name.strip():
        fields.wrong("env.name", f"expected the environment's name, found {kind_of(name)}")
        return "", {}
    chosen = {key: env[key] for key in ("include", "exclude") if env.get(key)}
    return name, {"env": {"name": name, **chosen}} if chosen else {}


def _check_verifier(fields: Fields) -> None:
    """A verifier is a task row without a verifier."""
    verifier = fields.mapping("verifier")
    if not verifier:
        return
    if verifier.get("verifier"):
        fields.wrong("verifier.verifier", "expected no verifier of a verifier")
    inner: list[Problem] = []
    try_row({key: verifier[key] for key in verifier if key != "verifier"}, "", inner, check=False)
    for problem in inner:
        fields.wrong(f"verifier.{problem.field}".rstrip("."), problem.message)


def _report_missing(fields: Fields) -> None:
    """Report the fields that are missing for the most similar form."""
    row = fields.row
    if row.get("mcp_config") or row.get("evaluate_tool") or row.get("setup_tool"):
        for key, expected in (("prompt", "the instruction"), ("mcp_config", "the MCP servers")):
            if not row.get(key):
                fields.wrong(key, f"expected {expected}, found {kind_of(row.get(key))}")
    elif row.get("prompt"):
        expected = "expected mcp_config (v4) or gym (v1 to v3) beside prompt, found neither"
        fields.wrong("mcp_config", expected)
    else:
        _read(fields, "upload" if row.get("task_id") else "v5" if row.get("scenario") else "v6")


# The rows of a task file's text, each with its place.
#
# A ``.json`` file has one row, a list, or an export ``{"name", "tasks"}``; a ``.jsonl`` file
# has a row or a list on each line. People confuse the two, so a ``.jsonl`` file that is one
# document over several lines is read as that, and a ``.json`` file of rows by its lines.


LINE = re.compile(r"[^\r\n]+")
Placed = tuple[str, object]
"""Place of a row, and the row or a Problem."""


def rows_of(name: str, text: str) -> Iterator[Placed]:
    """Rows of a file, read lazily: those before a syntax error are still returned.

    Args:
        name: The file's cleaned name; its extension is a hint for the format.
        text: Its text; empty for no tasks.
    """
    parser = Parser(text)
    start = parser.skip(0)
    if start == len(text):
        return iter(())
    is_list, named = text[start] == "[", name.lower().endswith(".jsonl")
    if is_list and not named:
        return _list(name, parser, start)
    line, value = LINE.search(text, start), parser.value(start)
    is_document = value.end > 0 and parser.skip(value.end) == len(text)
    is_in_a_line = line is None or 0 < value.end <= line.end()
    if (named and not is_document) or (is_in_a_line and (named or not is_document)):
        return _lines(name, text)
    return _list(name, parser, start) if is_list else _document(name, parser, value)


def _lines(name: str, text: str) -> Iterator[Placed]:
    number, end, parser = 1, 0, Parser("")
    for line in LINE.finditer(text):
        breaks, end = text[end : line.start()], line.end()
        number += len(breaks) - breaks.count("\r\n")  # which is one
        if not line[0].strip():
            continue
        where = f"{name} line {number}"
        parser.text = line[0]
        value = parser.value(parser.skip(0))
        rest = parser.skip(value.end) if value.end else 0
        if value.fault or rest < len(line[0]):
            column = (value.offset if value.fault else rest) + 1
            fault = value.fault or "extra data after the row"
            yield "", Problem(f"{where} column {column}", "", _not_json(fault))
        else:
            yield from _items(where, value.value)


def _items(where: str, value: object) -> Iterator[Placed]:
    """The rows of a line: a single one, a list, or an export."""
    if isinstance(value, dict) and "tasks" in value and not detect(value):
        yield from _wrapped(where, value["tasks"], "item")
    elif isinstance(value, list):
        yield from _wrapped(where, value, "item")
    else:
        yield where, value


def _document(name: str, parser: Parser, value: Parsed) -> Iterator[Placed]:
    rest = parser.skip(value.end) if value.end else len(parser.text)
    if value.fault:
        yield "", _unparsed(name, parser, value.offset, value.fault)
    elif rest < len(parser.text):
        yield "", _unparsed(name, parser, rest, "extra data after the value")
    elif isinstance(value.value, dict) and "tasks" in value.value and not detect(value.value):
        yield from _wrapped(name, value.value["tasks"])
    elif isinstance(value.value, dict):
        yield f"{name} row 1", value.value
    else:
        message = f"expected a list of tasks, found {kind_of(value.value)}"
        yield "", Problem(name, "", message)


def _wrapped(name: str, tasks: object, unit: str = "row") -> Iterator[Placed]:
    """Rows of an export or upload; exports before hud 0.6 contain a mapping from id to row."""
    rows = list(tasks.values()) if isinstance(tasks, dict) else tasks
    if not isinstance(rows, list):
        message = f"expected a list of tasks, found {kind_of(rows)}"
        yield "", Problem(name, "tasks", message)
        return
    for number, row in enumerate(rows, 1):
        yield f"{name} {unit} {number}", row


def _list(name: str, parser: Parser, start: int) -> Iterator[Placed]:
    """Rows of a list, read lazily: those before a syntax error are still returned."""
    text, position, number = parser.text, parser.skip(start + 1), 1
    while position < len(text) and not (text[position] == "]" and number == 1):
        value = parser.value(position)
        where = f"{name} row {number}"
        if value.fault:
            yield "", _unparsed(name, parser, value.offset, value.fault, number)
            if not value.end:
                return
        else:
            yield from _items(where, value.value)
        position, number = parser.skip(value.end), number + 1
        if text[position : position + 1] != ",":
            break
        position = parser.skip(position + 1)
    if text[position : position + 1] != "]":
        yield "", _unparsed(name, parser, position, "expected , or ]", number)
    elif (rest := parser.skip(position + 1)) < len(text):
        yield "", _unparsed(name, parser, rest, "extra data after the list")


def _unparsed(
    name: str, parser: Parser, offset: int, fault: str, row: int | None = None
) -> Problem:
    of_row = f" row {row}," if row is not None else ""
    return Problem(f"{name}{of_row} {parser.line_column(offset)}", "", _not_json(fault))


def _not_json(fault: str) -> str:
    return fault if "too" in fault or "nested" in fault or "JSON" in fault else f"not JSON: {fault}"


# Decoding UTF-8, with errors by line.


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
"""Magic bytes of files that are not UTF-8 text."""


def decode(body: bytes) -> tuple[str, str]:
    """The text without byte-order mark, and an error; one of them is empty."""
    for mark, kind in MARKS:
        if body.startswith(mark):
            return "", f"expected UTF-8, found {kind}"
    if (null := body.find(b"\0")) >= 0:
        guess = "; it may be UTF-16" if body[:4].count(b"\0") in (1, 2, 3) else ""
        return "", f"line {_line(body, null)}: NUL byte, not JSON{guess}"
    try:
        return body.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = _line(body, error.start)
        return "", f"line {line}: byte {error.start}: not UTF-8 (0x{body[error.start]:02X})"


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1


# Reading a task file.


MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a task file, and of all task files in a directory."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Complete = Callable[[object], object]


@dataclass(frozen=True)
class Read:
    """The tasks of a file, and its problems."""

    tasks: list[Task]
    problems: list[Problem]
    hint: str = HINT


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection, which would take half the time of reading a large file; rows have
    no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def try_file(name: str, body: bytes, complete: Complete | None = None) -> Read:
    """Tasks and problems of a file, in file order.

    Args:
        body: Its bytes; freed before rows are read unless the caller keeps them.
        complete: Applied to each row before it is read; None for nothing.
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
        return _read_placed(rows_of(name, text), complete, SURROGATE.search(text) is not None)


def _read_placed(
    rows: Iterable[Placed], complete: Complete | None = None, check: bool = True
) -> Read:
    problems: list[Problem] = []
    tasks, hint = [], ""
    for where, row in rows:
        if isinstance(row, Problem):
            problems.append(row)
        else:
            task = try_row(complete(row) if complete else row, where, problems, check)
            if task is not None:
                tasks.append(task)
        if problems and not hint:
            hint = "fix that place and try again" if isinstance(row, Problem) else hint_for(row)
        if len(problems) > MOST_PROBLEMS:
            break
    return Read(tasks, problems, hint)


def _read_all(rows: Iterable[Placed]) -> list[Task]:
    rows_read = _read_placed(rows)
    if rows_read.problems:
        refuse(rows_read.problems, rows_read.hint)
    return rows_read.tasks
