"""JsonScreen: a document of the service as JSON, to fold, search and copy from."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, Static

from hud_tui.rl.json_tree import MOST_FOUND, Path, path_text, value_text
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.base import make_way
from hud_tui.tui.screens.over import Leavable
from hud_tui.tui.widgets.json_view import JsonView
from hud_tui.tui.widgets.key_line import KeyLine


class JsonScreen(Leavable[None]):
    VIEW = "json"
    BINDINGS: ClassVar[list[BindingType]] = bindings("json")

    def __init__(self, title: str, document: Any) -> None:
        """`title` says what the document is, in clean text."""
        super().__init__()
        self._title, self._document = title, document
        self._found: list[Path] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Static(id="json-title", markup=False)
        yield JsonView(self._document, id="json")
        yield Static(id="json-path", markup=False)
        yield Input(placeholder="search keys and values", id="json-search", compact=True)
        yield KeyLine(self.VIEW)

    def watch_focused(self) -> None:
        self.call_after_refresh(make_way, self)

    @property
    def shown(self) -> JsonView:
        return self.query_one(JsonView)

    def on_mount(self) -> None:
        self.shown.focus()
        self._say()

    @on(JsonView.Moved)
    def _say(self) -> None:
        """Draw the title with what the search found, and the path under the cursor."""
        found = ""
        if self._found:
            more = "+" if len(self._found) == MOST_FOUND else ""
            found = f"  {self._at + 1} of {len(self._found)}{more} matches"
        title = Content.assemble((f" {self._title}", "bold"), (found, "$accent"))
        self.query_one("#json-title", Static).update(title)
        line = self.shown.line
        path = one_line(path_text(line.path), 400) if line is not None else "empty"
        self.query_one("#json-path", Static).update(Content.styled(f" {path}", "$text-muted"))

    @on(JsonView.Opened)
    def action_fold(self) -> None:
        """Fold or unfold the line under the cursor."""
        line = self.shown.line
        if line is not None and line.folds and not self.shown.fold(self.shown.cursor):
            self.notify("too long to unfold: search it instead", severity="warning")

    def action_unfold(self) -> None:
        line = self.shown.line
        if line is not None and not line.is_open:
            self.shown.fold(self.shown.cursor)

    def action_close_fold(self) -> None:
        self.shown.to_parent()

    def action_unfold_all(self) -> None:
        if not self.shown.unfold_all():
            self.notify("too long to unfold at once", severity="warning")

    def action_search(self) -> None:
        self.query_one("#json-search", Input).focus()

    @on(Input.Submitted, "#json-search")
    def _searched(self, event: Input.Submitted) -> None:
        self._found, self._at = self.shown.tree_of.search(event.value.strip()), 0
        self.shown.focus()
        if self._found:
            self.shown.find(self._found[0])
        elif event.value.strip():
            self.notify(f"nothing has {one_line(event.value, 60)!r}", markup=False)
        self._say()

    def action_next_match(self, by: int) -> None:
        """The next match, or the one before; from the last on to the first."""
        if self._found:
            self._at = (self._at + by) % len(self._found)
            self.shown.find(self._found[self._at])

    def action_copy_path(self) -> None:
        line = self.shown.line
        if line is not None:
            self.app.copy_to_clipboard(path_text(line.path))

    def action_copy_value(self) -> None:
        line = self.shown.line
        if line is not None:
            text = line.value if isinstance(line.value, str) else value_text(line.value)
            self.app.copy_to_clipboard(text)

    def action_leave(self) -> None:
        """Out of the search; then back to the view."""
        if self.query_one("#json-search", Input).has_focus:
            self.shown.focus()
        else:
            self.dismiss()
