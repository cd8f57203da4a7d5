"""Sheet: a table to be written as CSV or as JSON, a piece at a time.

CSV goes to spreadsheets, which run what looks like a formula: a text that begins like one
gets an apostrophe before it, and characters that act on a terminal become pictures. Numbers
are written so that they read back as the same double. JSON has every text as it came, with
all but ASCII escaped.

Source: RFC 4180 (CSV); OWASP, "CSV Injection", for what begins a formula.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from hud_tui.rl.text import one_line

Cell = str | int | float | bool | None
SCHEMA = "hud-tui/1"
MOST = 20_000
"""Characters of one text in CSV; JSON has all of it."""
FORMULA = (*"=+-@|%", *map(chr, (0xFF1D, 0xFF0B, 0xFF0D, 0xFF20)))
"""What a formula may begin with; the last, of full width, are read as the first."""


@dataclass(frozen=True)
class Sheet:
    """Rows of cells under names. It is written once: the rows may be made on the way."""

    name: str
    """What it has, in a word for a file's name: ``metrics``."""
    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    """Each as long as `columns`; None where there is nothing."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What holds for all of it, such as the model; for JSON."""


def csv_pieces(sheet: Sheet) -> Iterator[str]:
    """The file, line by line: the names, then the rows."""
    yield _line([csv_text(name) for name in sheet.columns])
    for row in sheet.rows:
        yield _line([csv_cell(cell) for cell in row])


def json_pieces(sheet: Sheet) -> Iterator[str]:
    """The file as one document, a row a line; NaN and infinities, which JSON lacks, are null."""
    head = {"schema": SCHEMA, "kind": "export", "what": sheet.name, **sheet.facts}
    yield json.dumps(head)[:-1] + f', "columns": {json.dumps(list(sheet.columns))}, "rows": ['
    between = "\n"
    for row in sheet.rows:
        named = {
            name: None if isinstance(cell, float) and not isfinite(cell) else cell
            for name, cell in zip(sheet.columns, row, strict=True)
        }
        yield between + json.dumps(named, allow_nan=False)
        between = ",\n"
    yield "\n]}\n"


def csv_cell(cell: Cell) -> str:
    """One cell; nothing at all for None."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return csv_text(cell)
    return repr(cell)


def csv_text(text: str) -> str:
    """A text in quotes, in one line, that no spreadsheet takes for a formula."""
    safe = one_line(text, MOST)
    if safe.lstrip().startswith(FORMULA):
        safe = "'" + safe
    return '"' + safe.replace('"', '""') + '"'


def _line(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\r\n"
