"""JsonScreen: a model and its run as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudUsage
from hud_tui.keys import Action
from hud_tui.rl.json_tree import MOST_FOUND, JsonTree, Line, Path, path_text, shown, value_text
from hud_tui.rl.names import find_model
from hud_tui.rl.run import job_document
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import KeyLine, bindings
from hud_tui.tui.screens.dialogs import Leavable, make_way
from hud_tui.wire import Model


async def read_document(
    client: HudClient, model: Model, ref: str | None
) -> tuple[str, dict[str, Any]]:
    """The title, and the document.

    Args:
        client: The service.
        model: The selected one.
        ref: Named on the command line: this model, or a job of it; None for the model.

    Raises:
        HudError: The service does not answer.
    """
    job = await _job(client, model, ref)
    title = f"{one_line(model.model_name, 60)}{f' · job {one_line(job, 40)}' if job else ''}"
    return title, await raw_status(client, model.id, job)


async def _job(client: HudClient, model: Model, ref: str | None) -> str | None:
    if ref is None:
        return None
    try:
        find_model(ref, [model])
    except HudUsage:
        return await find_job(client, ref)
    return None


LONGEST = 1000
"""Most characters of a value in a line."""
STYLES = {str: "$success", bool: "$warning", type(None): "$warning"}
NUMBER, BRACKET = "$accent", "$text-muted"


class JsonView(ScrollView, can_focus=True):
    """Enter folds and unfolds. Its screen handles copying and searching."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"json--cursor"}

    class Moved(Message):
        """The cursor is on another line, or that line has changed."""

    class Opened(Message):
        """The user pressed enter on the line under the cursor."""

    ALLOW_SELECT = False

    def __init__(self, document: Any, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tree_of = JsonTree(document)
        self.cursor = 0

    @property
    def line(self) -> Line | None:
        """The line under the cursor; None in an empty document."""
        lines = self.tree_of.lines
        return lines[self.cursor] if self.cursor < len(lines) else None

    def on_mount(self) -> None:
        self._changed()

    def go(self, at: int) -> None:
        """Move the cursor to a line and scroll to it."""
        last = len(self.tree_of.lines) - 1
        self.cursor = max(0, min(at, last))
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self.cursor < top + height:
            self.scroll_to(y=max(0, self.cursor - height // 2), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def find(self, path: Path) -> None:
        """Unfold whatever hides this path, and go there."""
        at = self.tree_of.reveal(path)
        self._changed()
        self.go(at)

    def fold(self, at: int) -> bool:
        """Fold or unfold a line; returns False if it cannot be."""
        if at >= len(self.tree_of.lines) or not self.tree_of.toggle(at):
            return False
        self._changed()
        return True

    def unfold_all(self) -> bool:
        """Unfold everything below the cursor; returns False if that is too much."""
        done = self.line is not None and self.tree_of.unfold_all(self.cursor)
        self._changed()
        return done

    def to_parent(self) -> None:
        """Fold the line under the cursor, or go to its parent."""
        line = self.line
        if line is not None and line.is_open:
            self.fold(self.cursor)
        elif line is not None:
            self.go(self.tree_of.parent(self.cursor))

    def _changed(self) -> None:
        self.virtual_size = Size(0, len(self.tree_of.lines))
        self.refresh()
        self.post_message(self.Moved())

    def action_move(self, lines: int) -> None:
        self.go(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        self.go(self.cursor + pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self.go(0)

    def action_last(self) -> None:
        self.go(len(self.tree_of.lines) - 1)

    def on_click(self, event: events.Click) -> None:
        """Select the line; its mark folds it, and so does a second click."""
        at = event.y + self.scroll_offset.y
        if at < len(self.tree_of.lines):
            self.go(at)
            mark = 1 + 2 * self.tree_of.lines[at].depth
            if event.chain == 2 or event.x in range(mark, mark + 2):
                self.post_message(self.Opened())

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.size.width
        if at >= len(self.tree_of.lines):
            return Strip.blank(width, self.rich_style)
        style = self.visual_style
        if at == self.cursor:
            style = self.get_visual_style("json--cursor")
        text = content_of(self.tree_of.lines[at]).truncate(max(1, width), ellipsis=True)
        [strip] = Visual.to_strips(self, text, width, 1, style, pad=True)
        return strip.adjust_cell_length(width, style.rich_style)


def content_of(line: Line) -> Content:
    """A line as displayed: indented by its depth, folded or not."""
    mark = ("▾ " if line.is_open else "▸ ") if line.folds else "  "
    key = line.path[-1]
    name = f"[{key}]" if isinstance(key, int) else one_line(key, 120)
    if isinstance(line.value, (dict, list)):
        style = BRACKET
    else:
        style = STYLES.get(type(line.value), NUMBER)
    value = one_line(shown(_cut(line.value)), LONGEST)
    return Content.assemble(
        f" {'  ' * line.depth}", (mark, BRACKET), (name, "bold"), "  ", (value, style)
    )


def _cut(value: Any) -> Any:
    """Cut a long text before it is escaped."""
    return value[: LONGEST + 1] if isinstance(value, str) else value


class JsonScreen(Leavable[None]):
    """A document of the service as JSON, to fold, search and copy."""

    VIEW = "json"
    BINDINGS: ClassVar[list[BindingType]] = bindings("json")

    def __init__(self, title: str, document: Any) -> None:
        """`title`: of the document, in cleaned text."""
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

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The actions among these that can be done now: see `HudScreen.hints`."""
        line = self.shown.line
        idle = set() if line is not None and line.folds else {"fold", "fold_all"}
        idle |= set() if self._found else {"match(1)", "match(-1)"}
        idle |= set() if line is not None else {"copy", "copy_as", "search"}
        return [action for action in actions if action.name not in idle]

    @property
    def shown(self) -> JsonView:
        return self.query_one(JsonView)

    def on_mount(self) -> None:
        self.shown.focus()
        self._show_message()

    @on(JsonView.Moved)
    def _show_message(self) -> None:
        """Draw the title with the search's result, and the path under the cursor."""
        found = ""
        if self._found:
            more = "+" if len(self._found) == MOST_FOUND else ""
            found = f"  {self._at + 1} of {len(self._found)}{more} matches"
        title = Content.assemble((f" {self._title}", "bold"), (found, "$accent"))
        self.query_one("#json-title", Static).update(title)
        line = self.shown.line
        path = one_line(path_text(line.path), 400) if line is not None else "empty"
        self.query_one("#json-path", Static).update(Content.styled(f" {path}", "$text-muted"))
        self.query_one(KeyLine).renew()

    @on(JsonView.Opened)
    def action_fold(self) -> None:
        line = self.shown.line
        if line is not None and line.folds and not self.shown.fold(self.shown.cursor):
            self.notify("too large to unfold: search it instead", severity="warning")

    def action_unfold(self) -> None:
        line = self.shown.line
        if line is not None and not line.is_open:
            self.shown.fold(self.shown.cursor)

    def action_close_fold(self) -> None:
        self.shown.to_parent()

    def action_fold_all(self) -> None:
        if not self.shown.unfold_all():
            self.notify("too large to unfold at once", severity="warning")

    def action_search(self) -> None:
        self.query_one("#json-search", Input).focus()

    @on(Input.Submitted, "#json-search")
    def _searched(self, event: Input.Submitted) -> None:
        self._found, self._at = self.shown.tree_of.search(event.value.strip()), 0
        self.shown.focus()
        if self._found:
            self.shown.find(self._found[0])
        elif event.value.strip():
            self.notify(f"no match for {one_line(event.value, 60)!r}", markup=False)
        self._show_message()

    def action_match(self, by: int) -> None:
        """Go to the next or previous match, wrapping around."""
        if self._found:
            self._at = (self._at + by) % len(self._found)
            self.shown.find(self._found[self._at])

    def action_copy(self) -> None:
        line = self.shown.line
        if line is not None:
            self.app.copy_to_clipboard(path_text(line.path))

    def action_copy_as(self) -> None:
        line = self.shown.line
        if line is not None:
            text = line.value if isinstance(line.value, str) else value_text(line.value)
            self.app.copy_to_clipboard(text)

    def action_leave(self) -> None:
        if self.query_one("#json-search", Input).has_focus:
            self.shown.focus()
        else:
            self.dismiss()


async def raw_status(client: HudClient, model: str, job: str | None = None) -> dict[str, Any]:
    """The job's raw status, the model's row of the catalog, and its whole tree.

    Args:
        client: The service.
        model: Any name of the model.
        job: A job's id; None for the model's current or last.

    Raises:
        HudError: The service does not answer, or has no such model.
    """
    row = await client.model(model)
    status, tree = await asyncio.gather(client.known_job(job or row.id), client.checkpoints(row.id))
    return {
        "job": None if status is None else job_document(status),
        "model": row.model_dump(mode="json"),
        "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in tree],
    }
