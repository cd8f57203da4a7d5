"""Clipboard: what is copied goes to the terminal by OSC 52, whole or not at all.

A terminal never says whether it took it: what is too large for most of them is written to a
file instead, and where one is known not to take any, that is said.

Source: 100 000 bytes for the whole sequence are hterm's limit (its osc52.sh), and the least of
the usual terminals'; tmux drops what is above 1 MiB (INPUT_BUF_DEFAULT_SIZE), kitty 8 MiB.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hud_tui.keys import VIEWS, keyed, of_view
from hud_tui.rl.text import one_line, size
from hud_tui.storage import JsonStore, write_atomic
from hud_tui.terminal import copy_advice, this_terminal

MOST_BYTES = 74_994
"""Of UTF-8: in base64, with the 8 bytes around it, a sequence of 100 000."""
COPIED_FILE = "copied.txt"
"""In the state directory: the last text that was too large."""
SHOWN = 48
"""Characters of a text that the notice repeats."""


@dataclass(frozen=True)
class Copied:
    """The notice for a copy."""

    text: str
    timeout: float
    """Seconds the notice is shown."""
    severity: Literal["information", "warning"] = "information"


class Clipboard:
    """Copies text, and reports whether that worked."""

    def __init__(self, store: JsonStore, advice: Callable[[], str] | None = None) -> None:
        """
        Args:
            store: In its directory, what is too large is written to a file.
            advice: What to do for this terminal to take copies, empty where it may take them;
                None asks the environment, and tmux where that runs.
        """
        self._store, self._advice = store, advice or _advice
        self._advised: str | None = None

    def fits(self, text: str) -> bool:
        """Whether every common terminal accepts this much."""
        return len(text.encode()) <= MOST_BYTES

    async def said_of(self, text: str) -> Copied:
        """The notice for a text that was sent to the terminal."""
        if self._advised is None:
            self._advised = await to_thread(self._advice)
        began = one_line(text, SHOWN) if len(text) <= SHOWN else f"{one_line(text[:SHOWN])}…"
        count = size(len(text.encode()))
        if self._advised:
            said = f"copied {count} (OSC 52; the terminal may block it): {began}\n→ {self._advised}"
            return Copied(said, 8, "warning")
        return Copied(f"copied {count}: {began}", 2)

    async def write_to_file(self, text: str) -> Copied:
        """Write a text too large for OSC 52 to a file; returns the notice."""
        said = f"Not copied: {size(len(text.encode()))} is over the {size(MOST_BYTES)} "
        said += "that every terminal takes."
        directory = self._store.directory
        file = None if directory is None else directory / COPIED_FILE
        try:
            if file is not None:
                await to_thread(write_atomic, file, text)
        except OSError as error:
            said += f" Writing it to a file failed: {one_line(error, 200)}"
        else:
            where = f"The whole text is in {one_line(file, 400)}"
            said += f"\n{where if file else keyed('{models.export} exports to a file')}"
        return Copied(said, 15, "warning")


def copying_keys() -> set[str]:
    """The keys in use that copy, in any view."""
    used = (action for view in (*VIEWS, "app", "group") for action in of_view(view))
    copying = (one.keys.split(",") for one in used if one.name.startswith(("copy", "interrupt")))
    return {key for keys in copying for key in keys}


def _advice() -> str:
    return copy_advice(this_terminal())
