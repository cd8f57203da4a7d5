"""Dialogs: what is asked before anything changes. Cancel is the default where it does; Esc leaves.

Printable keys never change the service by themselves: they open one of these, which
says what will happen. Lines may hold text from a server: they are never parsed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from textwrap import wrap
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from hud_tui.keys import keyed
from hud_tui.rl.text import one_line
from hud_tui.tui.keys import Doable, FootLine, bindings, doable, shows_view
from hud_tui.tui.screens.over import Over

T = TypeVar("T")
Line = str | Text | Content
HINTS = "tab next · {dialog.cancel} cancel"
WIDTHS = [(0, "-slim"), (60, "-roomy")]
HEIGHTS = [(0, "-short"), (20, "-tall")]


class Dialog(Over[T]):
    """A titled box over the view: lines, fields, buttons."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")
    LEAVE: ClassVar[str] = "cancel"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    hints = HINTS
    """Which keys work, on the box's lower edge."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        choices: Sequence[tuple[str, str]],
        danger: bool = False,
        keep: str = "Cancel",
    ) -> None:
        """
        Args:
            title: What is about to happen, e.g. ``Set the head of arith-rl``.
            lines: What it will do, one line each; text from a server already cleaned.
            choices: (id, label) of each button after Cancel; an id is a CSS identifier.
            danger: Whether it cannot be undone.
            keep: Label of the first button, which changes nothing.
        """
        super().__init__()
        self.heading, self.lines, self.choices, self.danger = title, lines, choices, danger
        self.keep = keep

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="danger" if self.danger else "") as box:
            box.border_title = Content(one_line(self.heading, 100)).markup
            box.border_subtitle = keyed(self.hints)
            with VerticalScroll(id="dialog-lines", can_focus=False):
                for line in self.lines:
                    yield Static(line, markup=False, classes="dialog-line")
            yield from self.fields()
            with Horizontal(id="dialog-buttons"):
                yield Button(Content(self.keep), id="cancel", compact=True)
                for name, label in self.choices:
                    yield Button(Content(label), id=name, compact=True, classes="action")

    def fields(self) -> Iterable[Widget]:
        """What can be typed, between the lines and the buttons."""
        return ()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_next(self) -> None:
        self.focus_next()

    def action_previous(self) -> None:
        self.focus_previous()

    def action_scroll_lines(self, pages: int) -> None:
        """Where the lines are more than the screen has."""
        lines = self.query_one("#dialog-lines", VerticalScroll)
        lines.scroll_relative(y=pages * max(1, lines.size.height - 1), animate=False)


class ConfirmDialog(Dialog[bool]):
    """Ask before one act: True to do it, False to leave everything as it is."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        action_label: str,
        danger: bool = False,
        keep: str = "Cancel",
    ) -> None:
        """`action_label` is what the button does, `keep` what the other leaves as it is."""
        super().__init__(title, lines, [("confirm", f"{action_label}  (y)")], danger, keep)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "confirm")

    def action_confirm(self) -> None:
        self.dismiss(True)

    def action_cancel(self) -> None:
        self.dismiss(False)


class ChoiceDialog(Dialog[str | None]):
    """Ask which of several: the id of the choice, or None for none of them."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        choices: Sequence[tuple[str, str]],
        yes: str,
        keep: str = "Cancel",
        safe: bool = False,
    ) -> None:
        """
        Args:
            yes: Id of the choice that the key y takes.
            safe: Whether no choice changes what there is: then Enter takes that one too.
        """
        marked = [(id_, f"{label}  (y)" if id_ == yes else label) for id_, label in choices]
        super().__init__(title, lines, marked, keep=keep)
        self.yes, self.safe = yes, safe

    def on_mount(self) -> None:
        if self.safe:
            self.query_one(f"#{self.yes}").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(None if event.button.id == "cancel" else event.button.id)

    def action_confirm(self) -> None:
        self.dismiss(self.yes)


class InputDialog(Dialog[str | None]):
    """Ask for one line of text; None if the user leaves."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        action_label: str,
        value: str = "",
        check: Callable[[str], str] = lambda text: "",
        accept: Callable[[str], Awaitable[str]] | None = None,
        password: bool = False,
        placeholder: str = "",
        foresee: Callable[[str], str] = lambda text: "",
    ) -> None:
        """
        Args:
            value: The text to begin with.
            check: What is wrong with a text, in one line; empty when it is valid.
            accept: Acts on the text while the dialog waits; the same kind of answer.
            password: Whether to show dots in place of what is typed.
            foresee: The effect of a valid text, in one line.
        """
        super().__init__(title, lines, [("confirm", f"{action_label}  (enter)")])
        self.value, self.check, self.accept = value, check, accept
        self._said = Static("", id="dialog-problem", markup=False)
        self.password, self.placeholder, self.foresee = password, placeholder, foresee

    def fields(self) -> Iterable[Widget]:
        yield Input(
            self.value,
            id="dialog-input",
            password=self.password,
            placeholder=self.placeholder,
            max_length=400,
            compact=True,
        )
        yield self._said

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        text = event.value.strip()
        problem = self.check(text) if text else ""
        self.complain(problem)
        if text and not problem:
            self._said.update(Content.styled(self.foresee(text), "$text-muted"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.submit(event.value.strip())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.submit(self.query_one(Input).value.strip())

    @work(exclusive=True)
    async def submit(self, text: str) -> None:
        """Close with the text, or say what is wrong with it."""
        problem = self.check(text)
        if not problem and self.accept is not None:
            self.complain("…")
            problem = await self.accept(text)
            if not self.is_current:  # it was left meanwhile
                return
        if problem:
            self.complain(problem)
        else:
            self.dismiss(text)

    def complain(self, problem: str) -> None:
        self._said.update(problem)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "confirm"


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
            box.border_subtitle = "↑ ↓ choose · enter run · esc back"
            yield OptionList(id="help-list", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self._list("")

    def on_resize(self) -> None:
        """Wrap the descriptions to the current width."""
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


class Panel(Over[T | None]):
    """Closes with what was chosen, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("panel")
    LEAVE: ClassVar[str] = "close"
    FOOT = "{panel.close} back"
    """What the last line says of the keys."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.heading = title

    def compose(self) -> ComposeResult:
        with Vertical(id="panel") as box:
            box.border_title = Content(one_line(self.heading, 100)).markup
            yield from self.body()
            yield FootLine(self.FOOT, id="panel-foot")

    def body(self) -> Iterable[Widget]:
        """What is in the box."""
        return ()

    def action_close(self) -> None:
        self.dismiss(None)
