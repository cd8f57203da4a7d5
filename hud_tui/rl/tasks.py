"""Task rows: what a taskset is made of, read from any of the forms people have.

Source: the ``hud`` SDK 0.6.21 (v6 rows, upload and export forms) and 0.5 (v5 rows).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.text import has_surrogate, one_line

MAX_BYTES = 64 * 1024 * 1024
"""A larger taskset file is refused."""
HELD_OUT = "heldout"
"""A row whose ``columns.split`` is this is sampled to measure, never trained on."""


@dataclass(frozen=True)
class Task:
    """One task: a scenario of an environment with its args."""

    env: str
    scenario: str
    args: dict[str, Any] = field(default_factory=dict)
    slug: str = ""
    columns: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    """Where it was read, e.g. ``tasks.jsonl line 3``."""

    @property
    def heldout(self) -> bool:
        return self.columns.get("split") == HELD_OUT

    def row(self) -> dict[str, Any]:
        """As a v6 row, the form that is submitted."""
        row: dict[str, Any] = {
            "env": self.env,
            "id": self.scenario,
            "args": self.args,
            "slug": self.slug,
        }
        return row | ({"columns": self.columns} if self.columns else {})


def default_slug(scenario: str, args: dict[str, Any]) -> str:
    """The slug of a row that names none: the scenario, and with args 8 hex digits of them."""
    if not args:
        return scenario
    return f"{scenario}-{sha1(json.dumps(args, sort_keys=True).encode()).hexdigest()[:8]}"


def read_row(row: object, where: str = "row") -> Task:
    """Read one v6, v5, upload or export row.

    Raises:
        HudUsage: Not a task row; the message names the place and the field.
    """
    if not isinstance(row, dict):
        raise HudUsage(f"{where}: expected a task object, found {_kind(row)}", _FORM)
    env = row.get("env")
    if isinstance(env, dict):
        env = env.get("name")
    scenario = next((row[k] for k in ("scenario", "task_id", "id") if row.get(k)), None)
    if not isinstance(env, str) or not env:
        raise HudUsage(f"{where}: field env: expected the environment's name", _FORM)
    if not isinstance(scenario, str):
        raise HudUsage(f"{where}: field id: expected the scenario's name", _FORM)
    args = _object(row, "args", where)
    columns = _object(row, "columns", where)
    scenario = scenario.removeprefix(f"{env}:")
    slug = row.get("slug") or (row.get("name") if "id" not in row else None)
    if slug is not None and not isinstance(slug, str):
        raise HudUsage(f"{where}: field slug: expected text, found {_kind(slug)}")
    _check_text({"env": env, "id": scenario, "slug": slug, "args": args, "columns": columns}, where)
    return Task(env, scenario, args, slug or default_slug(scenario, args), columns, where)


def _check_text(row: dict[str, Any], where: str) -> None:
    """Refuse half of a surrogate pair anywhere: JSON can spell it, no request can carry it."""
    waiting: list[tuple[str, object]] = list(row.items())
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str) and has_surrogate(value):
            message = f"{where}: field {one_line(place)}: half of a surrogate pair"
            raise HudUsage(message, "it is not text: correct that row and try again")
        if isinstance(value, dict):
            waiting += [(f"{place}.{key}", part) for key, part in value.items()]
            waiting += [(place, key) for key in value]
        elif isinstance(value, list):
            waiting += [(f"{place}[{index}]", part) for index, part in enumerate(value)]


def read_rows(rows: Iterable[object], name: str = "row", first: int = 1) -> list[Task]:
    """Read rows numbered from `first`, e.g. ``row 3``."""
    return [read_row(row, f"{name} {number}") for number, row in enumerate(rows, first)]


def read_file(name: str, body: bytes) -> list[Task]:
    """Read a taskset file: ``.jsonl`` with a row a line, else one JSON list or object.

    An object may be one row, or an export ``{"name": …, "tasks": […]}``. An empty file
    has no tasks, which preflight reports.

    Raises:
        HudUsage: Too large, not UTF-8, not JSON at a line, or not a row.
    """
    if len(body) > MAX_BYTES:
        raise HudUsage(f"{name}: larger than {MAX_BYTES // 2**20} MB", "split the file")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HudUsage(f"{name}: byte {error.start}: not UTF-8", "save it as UTF-8") from error
    return _read_lines(name, text) if name.endswith(".jsonl") else _read_document(name, text)


def _read_document(name: str, text: str) -> list[Task]:
    if not text.strip():
        return []
    document = _json(text, name, 1)
    if isinstance(document, dict):
        document = document["tasks"] if isinstance(document.get("tasks"), list) else [document]
    if not isinstance(document, list):
        raise HudUsage(f"{name}: expected a list of tasks, found {_kind(document)}", _FORM)
    return read_rows(document, f"{name} row")


def _read_lines(name: str, text: str) -> list[Task]:
    tasks: list[Task] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        value = _json(line, name, number)
        rows: Sequence[object] = value if isinstance(value, list) else [value]
        tasks += [read_row(row, where) for row in rows]
    return tasks


def _json(text: str, name: str, line: int) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        at = f"{name}: line {line + error.lineno - 1} column {error.colno}"
        raise HudUsage(f"{at}: not JSON: {error.msg}", "fix that line and try again") from error
    except RecursionError as error:
        raise HudUsage(f"{name}: line {line}: not a task: nested too deeply") from error
    except ValueError as error:
        raise HudUsage(f"{name}: line {line}: {error}") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _object(row: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = row.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HudUsage(f"{where}: field {key}: expected an object, found {_kind(value)}", _FORM)
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


_FORM = 'a row is {"env": NAME, "id": SCENARIO, "args": {…}, "slug": NAME}'
