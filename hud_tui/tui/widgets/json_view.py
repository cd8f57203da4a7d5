"""JsonView: a JSON document that folds, drawn a visible line at a time."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from hud_tui.rl.json_tree import JsonTree, Line, Path, shown
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings

LONGEST = 1000
"""Characters of a value that a line has."""
STYLES = {str: "$success", bool: "$warning", type(None): "$warning"}
NUMBER, BRACKET = "$accent", "$text-muted"


class JsonView(ScrollView, can_focus=True):
    """Enter folds and unfolds. What is copied and searched is its screen's business."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"json--cursor"}

    class Moved(Message):
        """The cursor is on another line, or that line has changed."""

    class Opened(Message):
        """The user wants what enter does on the line under the cursor."""

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
        """Put the cursor on a line and bring it into view."""
        last = len(self.tree_of.lines) - 1
        self.cursor = max(0, min(at, last))
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self.cursor < top + height:
            self.scroll_to(y=max(0, self.cursor - height // 2), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def find(self, path: Path) -> None:
        """Unfold what is needed to show this path, and go there."""
        at = self.tree_of.reveal(path)
        self._changed()
        self.go(at)

    def fold(self, at: int) -> bool:
        """Fold or unfold a line; False where that cannot be."""
        if at >= len(self.tree_of.lines) or not self.tree_of.toggle(at):
            return False
        self._changed()
        return True

    def unfold_all(self) -> bool:
        """Unfold everything below the cursor; False where that is too much."""
        done = self.line is not None and self.tree_of.unfold_all(self.cursor)
        self._changed()
        return done

    def to_parent(self) -> None:
        """Fold the line under the cursor, or go to what it is part of."""
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
    """A line as it is drawn: indented by its depth, folded or not."""
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
    """A long text is not made longer first."""
    return value[: LONGEST + 1] if isinstance(value, str) else value
