"""Variables in the MCP servers of v4 rows: which are asked for, which of them are missing.

``${VAR}``, ``${VAR:default}`` and ``$VAR`` are filled in; ``$$`` is a dollar sign. Values never
leave this module but in a filled row: a variable mostly holds a key.

Source: the ``hud`` SDK 0.4 fills them from the environment when it reads a row; its first
releases did so by Python's `string.Template`, and their documentation writes ``$VAR``.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line

VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<braced>[^}:]+)(?::(?P<default>[^}]*))?\}"
    r"|(?P<plain>[_a-zA-Z][_a-zA-Z0-9]*))"
)
SECRET = re.compile(r"authorization|api.?key|token|secret|passw", re.IGNORECASE)
ASSIGNED = re.compile(
    r"[\w-]*(?:authorization|api.?key|token|secret|passw)[\w-]*[\"']?\s*[=:]\s*(?P<value>[^&]+)",
    re.IGNORECASE,
)
"""A secret by name within a text: of a URL's query, or an argument such as ``-e API_KEY=…``."""
SCHEME = re.compile(r"^\s*(?:bearer|basic|token)\b", re.IGNORECASE)
SHORTEST_KEY = 8
"""Characters; a shorter value under such a name is no key."""


@dataclass(frozen=True)
class Variable:
    """A variable that rows ask for."""

    name: str
    missing: bool
    """Whether it is not set here, and some row gives no default."""
    default: bool
    """Whether some row gives one."""
    tasks: int


def find_variables(tasks: Iterable[Task], known: Collection[str]) -> list[Variable]:
    """What rows ask for, by name.

    Args:
        tasks: Of any form; only v4 rows have variables.
        known: Names that are set here.
    """
    found: dict[str, list[bool]] = {}
    for task in tasks:
        asked: dict[str, bool] = {}
        for _, text in _texts(task.more.get("mcp_config") if task.form == "v4" else None):
            for match in VARIABLE.finditer(text):
                if name := _name(match):
                    asked[name] = asked.get(name, True) and match["default"] is not None
        for name, default in asked.items():
            found.setdefault(name, []).append(default)
    return [
        Variable(name, name not in known and not all(defaults), any(defaults), len(defaults))
        for name, defaults in sorted(found.items())
    ]


def bare_keys(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Places in MCP servers where what looks like a key stands in the clear, with the tasks."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        for place, text in _texts(task.more.get("mcp_config") if task.form == "v4" else None):
            named = SECRET.search(place.rpartition(".")[2]) is not None
            values = [text] if named else [match["value"] for match in ASSIGNED.finditer(text)]
            if any(map(_is_key, values)):
                found.setdefault(one_line(f"mcp_config{place}", 120), []).append(task)
    return found


def has_variable(text: str) -> bool:
    """Whether something is filled into a text."""
    return any(_name(match) for match in VARIABLE.finditer(text))


def _is_key(value: str) -> bool:
    """Whether what stands under a secret's name is more than variables: a default counts."""
    written = VARIABLE.sub(lambda match: match["default"] or match["dollar"] or "", value)
    written = SCHEME.sub("", written).strip()
    return len(written) >= SHORTEST_KEY and not written.isdecimal()


def _name(match: re.Match[str]) -> str:
    """Which variable is meant; empty where it is a dollar sign."""
    return (match["braced"] or match["plain"] or "").strip()


def fill_rows(rows: Sequence[dict[str, Any]], values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows with the variables of their MCP servers filled in, as they are sent.

    A variable that is neither set nor has a default stays as it is written.
    """
    return [
        {**row, "mcp_config": _filled(row["mcp_config"], values)} if "mcp_config" in row else row
        for row in rows
    ]


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: _value(match, values), value)
    if isinstance(value, dict):
        return {key: _filled(part, values) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    return value


def _value(match: re.Match[str], values: Mapping[str, str]) -> str:
    if match["dollar"]:
        return "$"
    default = match[0] if match["default"] is None else match["default"]
    return values.get(_name(match)) or default


def _texts(value: Any, place: str = "") -> Iterable[tuple[str, str]]:
    """Every text within, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, f"{place}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, place)
