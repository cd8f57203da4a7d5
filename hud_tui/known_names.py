"""Names of models and jobs as they were last read, one a line, for shells to complete.

A shell reads the file itself: starting an interpreter for each press of tab would take too long.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hud_tui.errors import HudUsage
from hud_tui.storage import change_atomic, read_private

MOST = 300
"""Most names of a kind."""
MOST_BYTES = 100_000
SAFE = re.compile(r"[\w./@:+-]{1,120}", re.ASCII)
"""A word that means nothing to a shell; other names are not completed."""


def file_of(state: Path, kind: str) -> Path:
    """Where the ``models`` or ``jobs`` are."""
    return state / "names" / kind


def keep(state: Path, kind: str, names: Iterable[str]) -> None:
    """Replace the names of a kind; without any, and if they cannot be written, they stay."""
    safe = [name for name in dict.fromkeys(names) if SAFE.fullmatch(name)][:MOST]
    if not safe:
        return
    file, text = file_of(state, kind), "".join(f"{name}\n" for name in safe)

    def change() -> str | None:
        with suppress(FileNotFoundError):
            if read_private(file, MOST_BYTES) == text.encode():
                return None
        return text

    with suppress(OSError, HudUsage):
        change_atomic(file, change)
