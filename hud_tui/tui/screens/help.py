"""HelpScreen: every key that works here, searchable; Enter does what the key does."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from hud_tui.tui.clickable import shows_view
from hud_tui.tui.commands import Doable, doable
from hud_tui.tui.screens.over import Over

KEYS, LABEL = 13, 15
"""Cells of the columns of keys and of labels."""
PADDING = 2
"""Cells around a line of the list."""
LEAST = 16
"""Cells that what an action does is told in."""


class HelpScreen(Over[Doable | None]):
    """Closes with the action that was chosen."""

    LEAVE: ClassVar[str] = "dismiss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("up", "move(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("home", "edge(-1)", "first", show=False, priority=True),
        Binding("end", "edge(1)", "last", show=False, priority=True),
    ]

    def __init__(self, below: Screen[object]) -> None:
        """`below` is the screen whose keys are listed."""
        super().__init__()
        self.all = doable(below)
        self.found = self.all
        self.heading = f"keys of {getattr(below, 'VIEW', 'app')}"

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = self.heading
            yield Input(placeholder="search", id="help-search", compact=True)
            box.border_subtitle = "↑ ↓ choose · enter does it · esc back"
            yield OptionList(id="help-list", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self._list("")

    def on_resize(self) -> None:
        """Tell what the actions do in the width that there is."""
        self.call_after_refresh(self._lay_out)

    def _lay_out(self) -> None:
        at = self.query_one(OptionList).highlighted
        self._list(self.query_one(Input).value)
        self.query_one(OptionList).highlighted = at

    def on_input_changed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, text: str) -> None:
        wanted = text.casefold().split()
        self.found = [one for one in self.all if _matches(one, wanted)]
        options = self.query_one(OptionList)
        width = options.scrollable_content_region.width - options.scrollbar_size_vertical
        options.set_options(Option(_row(one, width - PADDING)) for one in self.found)
        options.highlighted = 0 if self.found else None

    def action_move(self, rows: int) -> None:
        options = self.query_one(OptionList)
        if self.found:
            options.highlighted = ((options.highlighted or 0) + rows) % len(self.found)

    def action_page(self, pages: int) -> None:
        self.query_one(OptionList)._move_page(1 if pages > 0 else -1)

    def action_edge(self, edge: int) -> None:
        """To the first or the last."""
        if self.found:
            self.query_one(OptionList).highlighted = 0 if edge < 0 else len(self.found) - 1

    def on_input_submitted(self) -> None:
        highlighted = self.query_one(OptionList).highlighted
        self.dismiss(None if highlighted is None else self.found[highlighted])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.found[event.option_index])


class ViewList(HelpScreen):
    """The views alone."""

    def __init__(self, below: Screen[object]) -> None:
        super().__init__(below)
        self.all = self.found = [one for one in self.all if shows_view(one.action)]
        self.heading = "views"


def _matches(one: Doable, wanted: list[str]) -> bool:
    action = one.action
    text = f"{action.all_shown} {action.label} {action.help}".casefold()
    return all(word in text for word in wanted)


def _row(one: Doable, width: int) -> Content:
    """What an action's keys are, and what it does, in lines of their own below one another."""
    keys, action = one.action.all_shown, one.action
    indent = " " * (KEYS + LABEL)
    told = wrap(action.help, max(LEAST, width - len(indent)))
    return Content.assemble(
        (f"{keys:<{KEYS}}", "bold $accent"),
        f"{action.label:<{LABEL}}",
        (f"\n{indent}".join(told), "$text-muted"),
    )
