"""LogScreen: what was changed from this machine, and how to do it again."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, Static

from hud_tui.command_log import CommandLog
from hud_tui.keys import keyed
from hud_tui.rl.counts import counted
from hud_tui.rl.retold import as_curl, as_hud, as_python, document
from hud_tui.rl.text import one_line
from hud_tui.rl.written import Written, matching
from hud_tui.tui.bindings import bindings
from hud_tui.tui.log_rows import COLUMNS, entry_text, folded, log_rows
from hud_tui.tui.screens.json_screen import JsonScreen
from hud_tui.tui.screens.over import Leavable
from hud_tui.tui.widgets.filter_field import FilterField
from hud_tui.tui.widgets.key_line import KeyLine
from hud_tui.tui.widgets.row_list import RowList

EMPTY = (
    "Nothing was changed from this machine yet. What is forked, submitted, set, stopped or "
    "pinned here is written down; what is only read is not."
)
NOWHERE = "There is no state directory, so nothing is written down."
NOT_KEPT = "what it sent is not kept: {log.copy_curl} has curl's"
ON_ENTRY = frozenset({"open", "copy_hud", "copy_curl", "copy_python"})
"""Actions that need an entry under the cursor."""


class LogScreen(Leavable[None]):
    VIEW = "log"
    BINDINGS: ClassVar[list[BindingType]] = bindings("log")
    AUTO_FOCUS: ClassVar[str | None] = "RowList"
    """Never the filter's field, out of sight as it is: the first key would be typed there."""

    def __init__(self, state: Path | None, now: float) -> None:
        """`state` is the directory that has the log, `now` Unix seconds for its ages."""
        super().__init__()
        self._log = None if state is None else CommandLog(state)
        self._now, self._bad = now, 0
        self._all: list[Written] | None = None
        self._shown: list[tuple[Written, int]] = []
        self.list = RowList(COLUMNS, id="log", least=16)

    def compose(self) -> ComposeResult:
        yield Static(id="log-title", markup=False)
        yield FilterField("a verb, model, id, outcome", "log-filter")
        yield self.list
        yield Static(id="log-text", markup=False)
        yield KeyLine(self.VIEW)

    def on_mount(self) -> None:
        self.filter_field.display = False
        self.list.focus()
        self.read()

    @property
    def filter_field(self) -> FilterField:
        return self.query_one("#log-filter", FilterField)

    @property
    def entry(self) -> Written | None:
        """The one under the cursor."""
        key = self.list.key
        place = len(self._shown) - 1 - int(key) if key is not None else -1
        return self._shown[place][0] if 0 <= place < len(self._shown) else None

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        self._all, self._bad = ([], 0) if self._log is None else await to_thread(self._log.read)
        self.show()

    def show(self) -> None:
        """Draw the entries that the filter leaves."""
        found = matching(self._all or [], self.filter_field.value)
        self._shown = folded(found)
        self.list.show(log_rows(self._shown, self._now))
        bad = f" · {counted(self._bad, 'line')} cannot be read" if self._bad else ""
        title = (" What was changed from here", "bold")
        self.query_one("#log-title", Static).update(
            Content.assemble(title, (f"  {counted(len(found), 'request')}{bad}", "$text-muted"))
        )
        self._show_text()

    @on(RowList.Moved)
    def _show_text(self) -> None:
        one = self.entry
        text = Content.styled(self._calm(), "$text-muted")
        if one is not None:
            text = Content("\n").join(entry_text(one))
        self.query_one("#log-text", Static).update(text)
        self.refresh_bindings()

    def _calm(self) -> str:
        """Why there is nothing to show."""
        if self._log is None:
            return NOWHERE
        if self._all is None:
            return "reading the log …"
        return keyed("No entry has this text · {log.leave} shows all") if self._all else EMPTY

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action not in ON_ENTRY or self.entry is not None

    @on(RowList.Opened)
    def action_open(self) -> None:
        """All of it, as JSON to fold and to copy from."""
        one = self.entry
        if one is not None:
            self.app.push_screen(JsonScreen(f"{one_line(one.verb, 20)}: all of it", document(one)))

    def action_copy_hud(self) -> None:
        one = self.entry
        self._copy("" if one is None else as_hud(one), "neither hud nor hud-tui has a command")

    def action_copy_curl(self) -> None:
        one = self.entry
        self._copy("" if one is None else as_curl(one), "")

    def action_copy_python(self) -> None:
        one = self.entry
        self._copy("" if one is None else as_python(one), keyed(NOT_KEPT))

    def _copy(self, text: str, why_not: str) -> None:
        if not text:
            self.notify(f"{why_not}.", severity="warning", markup=False)
            return
        self.app.copy_to_clipboard(text)

    def action_filter(self) -> None:
        self.filter_field.focus()

    @on(Input.Changed, "#log-filter")
    def _filtering(self) -> None:
        self.show()

    @on(Input.Submitted, "#log-filter")
    def _filtered(self) -> None:
        self.list.focus()

    def action_refresh(self) -> None:
        self.read()

    def action_leave(self) -> None:
        """Out of the filter; then clear it; then back to the view."""
        if self.filter_field.has_focus:
            self.list.focus()
        elif self.filter_field.value:
            self.filter_field.value = ""
        else:
            self.dismiss()
        self.filter_field.display = bool(self.filter_field.value)
