"""Documents: one JSON object a line on stdout, and nothing else there.

Everything but ASCII is escaped, so text from a server or a model cannot act on a terminal.
"""

import json
import math
import sys
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from hud_tui.errors import HudBadTasks, HudError
from hud_tui.rl.text import one_line

SCHEMA = "hud-tui/1"


def emit(kind: str, data: object) -> None:
    """Print one document.

    Args:
        kind: What `data` is, e.g. ``models``.
        data: Wire models, dataclasses and plain values, nested as they come.
    """
    _print({"schema": SCHEMA, "kind": kind, "data": plain(data)})


def emit_error(error: HudError, document: bool = True) -> int:
    """Say what failed, on stdout as a document and on stderr in a line; returns the exit code."""
    if document:
        failure: dict[str, Any] = {
            "type": error.kind,
            "message": one_line(error.message, 2000),
            "hint": error.hint,
            "status": error.status,
            "outcome": error.outcome,
        }
        if isinstance(error, HudBadTasks):
            failure["problems"] = plain(error.problems)
        _print({"schema": SCHEMA, "kind": "error", "error": failure})
    tell(error.message + (f" ({error.hint})" if error.hint else ""))
    return error.exit_code


def tell(text: str) -> None:
    """Print one line for people, on stderr; whatever text it has, nothing in it acts."""
    print(f"hud-tui: {one_line(text, 3000)}", file=sys.stderr, flush=True)


def plain(value: object) -> Any:
    """A value as JSON has it. Numbers that JSON lacks, NaN and infinities, become null."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="python"))
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _print(document: dict[str, Any]) -> None:
    print(json.dumps(document, allow_nan=False), flush=True)
