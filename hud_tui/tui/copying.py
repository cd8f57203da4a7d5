"""CopyingApp: what is copied goes to the terminal's clipboard by OSC 52, whole or not at all.

A terminal never says whether it took it: what is too large for most of them is written to a
file instead, and where one is known not to take any, that is said.

Source: 100 000 bytes for the whole sequence are hterm's limit (its osc52.sh), and the least of
the usual terminals'; tmux drops what is above 1 MiB (INPUT_BUF_DEFAULT_SIZE), kitty 8 MiB.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable

from textual import work
from textual.events import Event, Key
from textual.widgets import Input

from hud_tui.keys import VIEWS, keyed, of_view
from hud_tui.rl.text import WHOLE, clean, one_line
from hud_tui.storage import write_atomic
from hud_tui.tui.theming import ThemingApp

MOST_BYTES = 74_994
"""Of UTF-8: in base64, with the 8 bytes around it, a sequence of 100 000."""
FILE = "copied.txt"
"""In the state directory: the last text that was too large."""
SHOWN = 48
"""Characters of a text that the notice repeats."""


class CopyingApp(ThemingApp):
    def __init__(self) -> None:
        super().__init__()
        self.copy_advice: Callable[[], str] = _advice
        """What to do for this terminal to take copies; empty where it may take them."""
        self._advised: str | None = None

    @property
    def selected(self) -> str:
        """The text that is selected on the screen, or in the field that has the focus."""
        typed = self.focused.selected_text if isinstance(self.focused, Input) else ""
        return typed or self.screen.get_selected_text() or ""

    async def on_event(self, event: Event) -> None:
        """Any key but one that copies takes the selection away: what is shown may change."""
        typed = set(event.aliases) if isinstance(event, Key) else set()
        if typed and self.screen_stack and self.screen.selections and not typed & copying_keys():
            self.screen.clear_selection()
        await super().on_event(event)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text, made safe to paste into a terminal, and say how much of it.

        All that is copied comes here, what Textual's own fields copy too.
        """
        text = clean(text, WHOLE)
        count = len(text.encode())
        if count > MOST_BYTES:
            self._keep(text, count)
        elif text:
            super().copy_to_clipboard(text)
            self._say_copied(text, count)

    @work(group="copied")
    async def _say_copied(self, text: str, count: int) -> None:
        from hud_tui.rl.disk import size  # brings the wire, after the first frame

        if self._advised is None:
            self._advised = await to_thread(self.copy_advice)
        began = one_line(text, SHOWN) if len(text) <= SHOWN else f"{one_line(text[:SHOWN])}…"
        if self._advised:
            said = f"sent {size(count)} that may not be copied: {began}\n→ {self._advised}"
            self.notify(said, severity="warning", markup=False, timeout=8)
        else:
            self.notify(f"copied {size(count)}: {began}", markup=False, timeout=2)

    @work(group="copied")
    async def _keep(self, text: str, count: int) -> None:
        """Write what no clipboard may take to a file, and name that."""
        from hud_tui.rl.disk import size

        said = f"Nothing was copied: {size(count)} are more than a terminal takes for sure "
        said += f"({size(MOST_BYTES)})."
        directory = self.shelf.directory
        file = None if directory is None else directory / FILE
        try:
            if file is not None:
                await to_thread(write_atomic, file, text)
        except OSError as error:
            said += f" Nor could it be written: {one_line(error, 200)}"
        else:
            where = f"All of it is in {one_line(file, 400)}"
            said += f"\n{where if file else keyed('{models.export} exports to a file')}"
        self.notify(said, severity="warning", markup=False, timeout=15)


def copying_keys() -> set[str]:
    """The keys in use that copy, in any view."""
    used = (action for view in (*VIEWS, "app", "group") for action in of_view(view))
    copying = (one.keys.split(",") for one in used if one.name.startswith(("copy", "interrupt")))
    return {key for keys in copying for key in keys}


def _advice() -> str:
    from hud_tui.doctor.terminal import copy_advice, this_terminal  # asks tmux, if at all

    return copy_advice(this_terminal())
