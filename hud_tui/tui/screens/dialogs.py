"""Dialogs: what is asked before anything changes. Cancel is the default where it does; Esc leaves.

Printable keys never change the service by themselves: they open one of these, which
says what will happen. Lines may hold text from a server: they are never parsed.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from hud_tui.keys import keyed
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.screens.over import Over

T = TypeVar("T")
Line = str | Text | Content
HINTS = "tab chooses · {dialog.cancel} leaves"
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
            check: What is wrong with a text, in one line; empty when it will do.
            accept: Acts on the text while the dialog waits; the same kind of answer.
            password: Whether to show dots in place of what is typed.
            foresee: What comes of a text that will do, in one line.
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
