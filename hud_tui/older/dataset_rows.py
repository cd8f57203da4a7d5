"""Tasks as rows of a Hugging Face data set, whose every column is text, and back.

Objects and lists stand there as JSON text, as data sets of HUD tasks have them: Arrow has no
column whose rows differ in shape.

Source: ``hud hf`` of hud 0.4: id, prompt, mcp_config, setup_tool, evaluate_tool, metadata.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hud_tui.rl.strict_json import parse
from hud_tui.rl.tasks import Task

Row = dict[str, str | None]
V4 = ("id", "prompt", "mcp_config", "setup_tool", "evaluate_tool", "metadata")
"""Columns that a data set of v4 tasks has in any case; the trainers of then wanted them."""
CALLS = ("setup_tool", "evaluate_tool", "integration_test_tool")
TEXTS = frozenset({"id", "prompt", "slug", "name", "scenario", "task_id", "system_prompt"})
"""Columns that are text and never JSON."""
EITHER = frozenset({"env", "gym", "description"})
"""Columns that are a name, or JSON of an object."""


def to_rows(tasks: Sequence[Task]) -> tuple[list[str], list[Row]]:
    """
    Args:
        tasks: Of one form, which has been checked.

    Returns:
        Column names, and for each task its texts; None where it says nothing.
    """
    rows = [_row(task) for task in tasks]
    v4 = bool(tasks) and tasks[0].form == "v4"
    columns = dict.fromkeys(V4 if v4 else ())
    columns |= dict.fromkeys(name for row in rows for name in row)
    return list(columns), [{name: _text(row.get(name)) for name in columns} for row in rows]


def from_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Task rows from those of a data set; nulls are left out, JSON text is read.

    Text that is not JSON where JSON should be stays, for the reader of rows to name.
    """
    return [
        {name: _value(name, value) for name, value in row.items() if value is not None}
        for row in rows
    ]


def _row(task: Task) -> dict[str, Any]:
    row = task.row()
    if task.is_older:
        row["id"] = task.slug
        row.setdefault("metadata", {})
    for key in CALLS:
        calls = row.get(key)
        if isinstance(calls, list) and len(calls) == 1:
            row[key] = calls[0]
    return row


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str) or name in TEXTS:
        return value
    if name in EITHER and not value.lstrip().startswith("{"):
        return value
    parsed = parse(value)
    return value if parsed.fault else parsed.value
