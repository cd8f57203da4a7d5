"""JsonScreen: a model and its run as JSON."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.events import Click
from textual.strip import Strip
from textual.visual import Visual
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudUsage
from hud_tui.keys import Action
from hud_tui.rl.json_tree import MOST_FOUND, JsonTree, Line, Path, path_text, shown, value_text
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import Aside, PageTitle
from hud_tui.tui.screens.dialogs import Leavable, make_way, show_notice
from hud_tui.tui.widgets.table import Table
from hud_tui.wire import Model


async def read_document(
    client: HudClient, model: Model, ref: str | None
) -> tuple[str, dict[str, Any]]:
    """The title, and the document: the raw status of a job, the model's row of the catalog, and its
    whole tree. `ref` is named on the command line: a job of the model; this model, or None, for its
    current or last one. Raises HudError."""
    job = None
    if ref is not None:
        try:
            find_model(ref, [model])
        except HudUsage:
            job = await find_job(client, ref)
    title = f"{one_line(model.model_name, 60)}{f' · job {one_line(job, 40)}' if job else ''}"
    row = await client.model(model.id)
    status, tree = await gather(client.known_job(job or row.id), client.checkpoints(row.id))
    return title, {
        "job": None if status is None else status.model_dump(mode="json"),
        "model": row.model_dump(mode="json"),
        "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in tree],
    }


LONGEST = 1000
"""Most characters of a value in a line."""
STYLES = {str: "$success", bool: "$warning", type(None): "$warning"}
NUMBER, BRACKET = "$accent", "$text-muted"


class JsonView(Table):
    """Enter folds and unfolds. Its screen handles copying and searching."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"json--cursor"}

    def __init__(self, document: Any, id: str | None = None) -> None:
        super().__init__(id=id)
        self.headed = False
        self.tree_of = JsonTree(document)
        self.cursor = 0

    @property
    def count(self) -> int:
        return len(self.tree_of.lines)

    def row_key(self, line: int) -> str:
        return str(line)

    def line_of(self, key: str) -> int | None:
        return int(key) if int(key) < self.count else None

    @property
    def line(self) -> Line | None:
        return self.tree_of.lines[self.cursor] if self.key is not None else None

    def find(self, path: Path) -> None:
        """Unfold whatever hides this path, and go there."""
        with self.changing():
            line = self.tree_of.reveal(path)
        if not 0 <= line - self.scroll_offset.y < self.body_rows:  # what is around it is seen, too
            self.scroll_to(y=max(0, line - self.body_rows // 2), animate=False)
        self.select(str(line))

    def fold(self) -> bool:
        with self.changing():
            done = self.line is not None and self.tree_of.toggle(self.cursor)
        self.post_message(self.Moved(self, self.key))
        return done

    def unfold_all(self) -> bool:
        with self.changing():
            done = self.line is not None and self.tree_of.unfold_all(self.cursor)
        self.post_message(self.Moved(self, self.key))
        return done

    def to_parent(self) -> None:
        """Fold the line under the cursor, or go to its parent."""
        line = self.line
        if line is not None and line.is_open:
            self.fold()
        elif line is not None:
            self.select(str(self.tree_of.parent(self.cursor)))

    def opens(self, click: Click) -> bool:
        """A click on the mark folds, and so does a second click."""
        mark = 1 + 2 * self.tree_of.lines[self.cursor].depth
        return click.chain == 2 or click.x in range(mark, mark + 2)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        return [self._line(line, width) for line in rows]

    def _line(self, number: int, width: int) -> Strip:
        style = self.visual_style
        if number == self.cursor:
            style = self.get_visual_style("json--cursor")
        text = content_of(self.tree_of.lines[number]).truncate(max(1, width), ellipsis=True)
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
    cut = line.value[: LONGEST + 1] if isinstance(line.value, str) else line.value
    value = one_line(shown(cut), LONGEST)
    return Content.assemble(
        f" {'  ' * line.depth}", (mark, BRACKET), (name, "bold"), "  ", (value, style)
    )


class JsonScreen(Leavable[None]):
    """A document of the service as JSON, to fold, search and copy."""

    VIEW = "json"

    def __init__(self, title: str, document: Any, aside: Callable[[], Aside]) -> None:
        """`title`: of the document, in cleaned text; `aside`: what costs money."""
        super().__init__()
        self._aside = aside
        self._title, self._document = title, document
        self._found: list[Path] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        yield PageTitle(self._aside, "json-title")
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
        matches = ""
        if self._found:
            more = "+" if len(self._found) == MOST_FOUND else ""
            matches = f"  {self._at + 1} of {len(self._found)}{more} matches"
        title = Content.assemble((f" {self._title}", "bold"), (matches, "$accent"))
        self.query_one(PageTitle).title = title
        line = self.shown.line
        path = one_line(path_text(line.path), 400) if line is not None else "empty"
        self.query_one("#json-path", Static).update(Content.styled(f" {path}", "$text-muted"))
        self.query_one(KeyLine).renew()

    @on(JsonView.Opened)
    def action_fold(self) -> None:
        line = self.shown.line
        if line is not None and line.folds and not self.shown.fold():
            show_notice(self.app, "too large to unfold: search it instead", "warning")

    def action_unfold(self) -> None:
        line = self.shown.line
        if line is not None and not line.is_open:
            self.shown.fold()

    def action_close_fold(self) -> None:
        self.shown.to_parent()

    def action_fold_all(self) -> None:
        if not self.shown.unfold_all():
            show_notice(self.app, "too large to unfold at once", "warning")

    def action_search(self) -> None:
        self.query_one("#json-search", Input).focus()

    @on(Input.Submitted, "#json-search")
    def _searched(self, event: Input.Submitted) -> None:
        self._found, self._at = self.shown.tree_of.search(event.value.strip()), 0
        self.shown.focus()
        if self._found:
            self.shown.find(self._found[0])
        elif event.value.strip():
            show_notice(self.app, f"no match for {one_line(event.value, 60)!r}")
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
