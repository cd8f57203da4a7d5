"""Texts of a server, as names of files and inside Markdown, where none of them acts."""

import re

from hud_tui.rl.text import one_line

_ODD = re.compile(r"[^0-9A-Za-z._-]+")
_TICKS = re.compile("`+")
_MARKS = re.compile(r"([\\`*_\[\]<>|~$#&]|(?<=[a-z]):(?=//)|(?<=www)\.|!(?=\[))")
LONGEST = 60
"""Characters of a file's name that is made from a server's text."""


def plain_name(text: str) -> str:
    """A name for a file, made from any text: no path, no hidden file, no flag."""
    kept = _ODD.sub("-", text[: 4 * LONGEST]).strip("-.")[:LONGEST].rstrip("-.")
    return kept or "unnamed"


def code(text: object, limit: int = 200) -> str:
    """A text as a code span, in which Markdown reads nothing; a dash where there is none.

    A table's cell ends at a bar even there, so that is escaped.
    """
    safe = one_line("" if text is None else text, limit).strip()
    if not safe:
        return "–"
    longest = max((len(ticks) for ticks in _TICKS.findall(safe)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{safe}{space}{fence}".replace("|", "\\|")


def escaped(text: object, limit: int = 600) -> str:
    """A text as plain words: no links, pictures, HTML, emphasis or cells."""
    return _MARKS.sub(r"\\\1", one_line(text, limit))
