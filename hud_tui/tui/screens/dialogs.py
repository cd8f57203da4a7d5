"""Dialogs over a view, and notices at its foot.

A key never changes the service by itself: it opens a dialog that says what will happen. Cancel is
the default of a dialog that changes something; Esc or a click beside the box leaves it. Lines may
hold text from a server, so they are never parsed as markup.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult, RenderResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.notifications import Notification, SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, Input, Static
from textual.worker import NoActiveWorker, get_current_worker

from hud_tui.errors import BY_ITSELF, START_AGAIN, HudConflict, HudError
from hud_tui.keys import Action, keyed
from hud_tui.rl.text import clean, one_line
from hud_tui.tui.keys import Doable, FootLine, bindings, doable, shows_view
from hud_tui.tui.widgets.table import DIM, GAP, Column, Row, RowList, item_row

T = TypeVar("T")
Line = str | Text | Content
HINTS = "tab next · {dialog.cancel} cancel"
WIDTHS = [(0, "-slim"), (60, "-roomy")]
HEIGHTS = [(0, "-short"), (20, "-tall")]


class Viewed(Screen[T]):
    """A screen with a name, by which the table of keys has its keys."""

    VIEW: ClassVar[str]

    def __init_subclass__(cls, **inherits: bool) -> None:
        if "VIEW" in vars(cls):
            cls.BINDINGS = bindings(cls.VIEW)
        super().__init_subclass__(**inherits)


class Leavable(Viewed[T]):
    """A screen that is dismissed only once, however often `dismiss` is called.

    Textual's own `dismiss` pops whatever screen is on top, and fails the second time.
    """

    _asked = False
    _covered: list[T | None] | None = None
    """The result, until this screen is on top again."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close with this result: at once, or when it is on top again. Later calls do nothing.

        The screen's workers are cancelled.
        """
        if not self._asked:
            self._asked = True
            try:
                own = get_current_worker()
            except NoActiveWorker:
                own = None
            for worker in self.app.workers:
                if worker is not own and self in worker.node.ancestors_with_self:
                    worker.cancel()
            if self.is_active:
                return super().dismiss(result)
            self._covered = [result]
        return AwaitComplete()

    @property
    def asks_to_leave(self) -> bool:
        """Whether something ends with it that `may_leave` asks about, by quitting too."""
        return False

    async def may_leave(self) -> bool:
        """Ask, if it `asks_to_leave`. Call it from a worker."""
        return True

    def on_screen_resume(self) -> None:
        if self._covered is not None and self.is_active:
            [result], self._covered = self._covered, None
            super().dismiss(result)


class Over(ModalScreen[T], Leavable[T]):
    """A box over the view; a click beside it leaves it, as Esc does."""

    LEAVE: ClassVar[str] = "leave"
    """The action of the key that leaves it."""

    async def on_click(self, event: Click) -> None:
        if event.widget is self:
            await self.run_action(self.LEAVE)

    def action_leave(self) -> None:
        self.dismiss(None)

    async def action_help(self) -> None:
        await self.app.run_action("app.help")


_LABEL = re.compile(r"\S.{0,20}?  +(?=\S)")
"""A label of a line, with the blanks up to its value."""


class DialogLine(Static):
    """A line of a dialog; a value that does not fit goes on below itself, not below its label."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        lines = self._hanging(width)
        return len(lines) if lines else super().get_content_height(container, viewport, width)

    def render(self) -> RenderResult:
        lines = self._hanging(self.size.width)
        return Content("\n").join(lines) if lines else super().render()

    def _hanging(self, width: int) -> list[Content]:
        """The wrapped line, if it has a label and does not fit; else none."""
        line = Content(self.content) if isinstance(self.content, str) else self.content
        label = _LABEL.match(line.plain) if isinstance(line, Content) else None
        if label is None or not isinstance(line, Content) or "\n" in line.plain:
            return []
        name, value = line[: label.end()], line[label.end() :]
        room = width - name.cell_length
        if line.cell_length <= width or room < width // 2:
            return []
        first, *others = value.wrap(room)
        return [name + first, *(Content(" " * name.cell_length) + other for other in others)]


class Dialog(Over[T]):
    """A titled box over the view: lines, fields, buttons."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")
    LEAVE: ClassVar[str] = "cancel"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    hints = HINTS

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        choices: Sequence[tuple[str, str]],
        danger: bool = False,
        keep: str = "Cancel",
    ) -> None:
        """`lines` say what it will do; text from a server must be cleaned. `choices`: (id, label)
        of each button after the first, which is labelled `keep` and changes nothing. `danger`:
        whether it cannot be undone."""
        super().__init__()
        self.heading, self.lines, self.choices, self.danger = title, lines, choices, danger
        self.keep = keep
        self.problem = Static("", id="dialog-problem", markup=False)
        """What is wrong with a field, of a dialog that has any."""

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="danger" if self.danger else "") as box:
            box.border_title = Content(one_line(self.heading, 100)).markup
            box.border_subtitle = keyed(self.hints)
            with VerticalScroll(id="dialog-lines", can_focus=False):
                for line in self.lines:
                    yield DialogLine(line, markup=False, classes="dialog-line")
            yield from self.fields()
            with Horizontal(id="dialog-buttons"):
                yield Button(Content(self.keep), id="cancel", compact=True)
                for name, label in self.choices:
                    yield Button(Content(label), id=name, compact=True, classes="action")

    def fields(self) -> Iterable[Widget]:
        return ()

    def complain(self, problem: str) -> None:
        self.problem.update(problem)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "confirm" or not isinstance(self.focused, Input)  # where y is text

    def on_input_submitted(self) -> None:
        self.action_confirm()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "cancel":
            self.action_cancel()
        else:
            self.choose(event.button.id or "")

    def choose(self, id_: str) -> None:
        """Do what the button with this id says."""
        self.action_confirm()

    @abstractmethod
    def action_confirm(self) -> None:
        """Do what the key y means, as do the buttons that `choose` does not tell apart."""

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_next(self) -> None:
        self.focus_next()

    def action_previous(self) -> None:
        self.focus_previous()

    def action_scroll_lines(self, pages: int) -> None:
        lines = self.query_one("#dialog-lines", VerticalScroll)
        lines.scroll_relative(y=pages * max(1, lines.size.height - 1), animate=False)


class ConfirmDialog(Dialog[bool]):
    """Ask before one change: True to make it, False to leave everything as it is."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        action_label: str,
        danger: bool = False,
        keep: str = "Cancel",
    ) -> None:
        """`action_label`: of the button that acts."""
        super().__init__(title, lines, [("confirm", f"{action_label}  (y)")], danger, keep)

    def action_confirm(self) -> None:
        self.dismiss(True)

    def action_cancel(self) -> None:
        self.dismiss(False)


class ChoiceDialog(Dialog[str | None]):
    """Ask for one of several choices: its id, or None if the user leaves."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        choices: Sequence[tuple[str, str]],
        yes: str,
        keep: str = "Cancel",
        safe: bool = False,
    ) -> None:
        """`yes`: id of the choice that the key y selects; `safe`: whether no choice changes
        anything: then Enter selects it too."""
        marked = [(id_, f"{label}  (y)" if id_ == yes else label) for id_, label in choices]
        super().__init__(title, lines, marked, keep=keep)
        self.yes, self.safe = yes, safe

    def on_mount(self) -> None:
        if self.safe:
            self.query_one(f"#{self.yes}").focus()

    def choose(self, id_: str) -> None:
        self.dismiss(id_)

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
        """`check` returns what is wrong with a text, in one line, and `accept` the same after
        acting on the text, while the dialog waits; `foresee` returns the effect of a valid text."""
        super().__init__(title, lines, [("confirm", f"{action_label}  (enter)")])
        self.value, self.check, self.accept = value, check, accept
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
        yield self.problem

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        text = event.value.strip()
        problem = self.check(text) if text else ""
        self.complain(problem)
        if text and not problem:
            self.problem.update(Content.styled(self.foresee(text), "$text-muted"))

    def action_confirm(self) -> None:
        self.submit(self.query_one(Input).value.strip())

    @work(exclusive=True)
    async def submit(self, text: str) -> None:
        """Close with the text, or show what is wrong with it."""
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


class SearchList(Over[T]):
    """A list in a box, below a search field that keeps the focus; a click chooses a row."""

    LEAVE: ClassVar[str] = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("up", "move(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
    ]

    def __init__(self, field: Input, rows: RowList) -> None:
        super().__init__()
        self.field, self.list = field, rows
        rows.can_focus = False

    @abstractmethod
    def choose(self) -> None:
        """Close with the row under the cursor."""

    def action_move(self, rows: int) -> None:
        self.list.action_move(rows)

    def action_page(self, pages: int) -> None:
        self.list.action_page(pages)

    async def on_click(self, event: Click) -> None:
        if event.widget is self.list and event.y >= self.list.headed:
            self.choose()


KEYS, LABEL, LEAST = 11, 14, 16
"""Widths of the columns of keys and of labels, and the least of what an action does, cells."""


@dataclass(frozen=True)
class HelpLine:
    """A line of the list: an action in its first one, and a part of what it does."""

    action: Action | None
    part: str


HELP: Sequence[Column[HelpLine]] = (
    Column("", KEYS, lambda line: line.action.all_shown if line.action else "", "bold $accent"),
    Column("", LABEL, lambda line: line.action.label if line.action else ""),
    Column("", 0, lambda line: line.part, DIM),
)
BESIDE = KEYS + LABEL + 2 * GAP
PLACES = {
    "compared": "the comparison",
    "group": "the group",
    "json": "the JSON document",
    "log": "the command log",
    "play": "the game",
    "rollout": "the rollout",
    "search": "the search",
}
"""What the help calls what is no view of its own."""


class HelpScreen(SearchList[Doable | None]):
    """The keys of a screen, with a search; closes with the chosen action."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "first", "first", show=False, priority=True),
        Binding("end", "last", "last", show=False, priority=True),
    ]

    def __init__(self, below: Screen[object]) -> None:
        """`below` is the screen whose keys are listed."""
        field = Input(placeholder="search", id="help-search", compact=True)
        super().__init__(field, RowList(HELP, id="help-list", least=LEAST, headed=False))
        self.all = {each.action.id: each for each in reached(doable(below))}
        view = getattr(below, "VIEW", "the app")
        self.heading = f"keys of {PLACES.get(view, view)}"

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = self.heading
            yield self.field
            box.border_subtitle = "↑ ↓ choose · enter run · esc back"
            yield self.list

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def on_input_changed(self) -> None:
        self._show()
        self.list.action_first()

    def _show(self) -> None:
        words, room = self.field.value.casefold().split(), self.list.width - 2 - BESIDE
        rows: list[Row] = []
        for action in (each.action for each in self.all.values()):
            text = f"{action.all_shown} {action.label} {action.help}".casefold()
            if all(word in text for word in words):
                rows += _rows(action, max(LEAST, room))
        self.list.show(rows)

    def action_first(self) -> None:
        self.list.action_first()

    def action_last(self) -> None:
        self.list.action_last()

    def choose(self) -> None:
        self.dismiss(self.all.get(self.list.key or ""))

    def on_input_submitted(self) -> None:
        self.choose()


def reached(actions: Sequence[Doable]) -> Iterator[Doable]:
    """The actions, those of the app by the keys that the screen below leaves to it."""
    taken: set[str] = set()
    for each in actions:
        action = each.action
        if action.view != "app":
            taken.update(action.keys.split(","))
            yield each
        elif keys := [key for key in action.keys.split(",") if action.priority or key not in taken]:
            yield replace(each, action=replace(action, keys=",".join(keys)))


class ViewList(HelpScreen):
    """The same with the views only."""

    def __init__(self, below: Screen[object]) -> None:
        super().__init__(below)
        self.all = {id_: each for id_, each in self.all.items() if shows_view(each.action)}
        self.heading = "views"


def _rows(action: Action, room: int) -> Iterator[Row]:
    """An action's keys, label and description, wrapped to so many cells."""
    first, *others = wrap(action.help, room)
    yield item_row(HELP, action.id, HelpLine(action, first))
    for part in others:
        yield replace(item_row(HELP, action.id, HelpLine(None, part)), continues=True)


class Panel(Over[T | None]):
    """A titled box with a key line at its foot; closes with a result, or None."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("panel")
    LEAVE: ClassVar[str] = "close"
    FOOT = "{panel.close} back"

    def __init__(self, title: str) -> None:
        super().__init__()
        self.heading = title

    def compose(self) -> ComposeResult:
        with Vertical(id="panel") as box:
            box.border_title = Content(one_line(self.heading, 100)).markup
            yield from self.body()
            yield FootLine(self.FOOT, id="panel-foot")

    def body(self) -> Iterable[Widget]:
        return ()

    def action_close(self) -> None:
        self.dismiss(None)


# Notices: one at a time, shown at the bottom of any view for a few seconds.


ALARM = "⚑"
LOW, LOW_S, LOW_ERROR_S = 30, 5.0, 7.0
"""On a screen of fewer than LOW lines, a notice stays LOW_S seconds, an error LOW_ERROR_S."""


def show_error(app: App[None], error: HudError) -> None:
    message, hint = error.message, error.hint
    if hint.startswith(START_AGAIN):  # the app can do that itself
        message, hint = "The service does not answer.", keyed("{app.reconnect} starts it")
    elif hint == BY_ITSELF:
        message = "The service on the machine in use does not answer."
    text = clean(f"{message}\n{hint}".strip(), 600)
    app.notify(text, severity="error", markup=False, timeout=10)


class PlayRollout(Message):
    """A game is asked for, from a policy's rollout."""

    def __init__(self, trace_id: str) -> None:
        super().__init__()
        self.trace_id = trace_id


class Unlogged(Message):
    """A change was made that the command log lacks."""

    def __init__(self, why: str) -> None:
        """`why`: what prevents that it is written."""
        super().__init__()
        self.why = why


def show_notice(
    app: App[Any], text: str, severity: SeverityLevel = "information", seconds: float | None = None
) -> None:
    app.notify(clean(text, 400), severity=severity, markup=False, timeout=seconds)


def limit_time(notice: Notification, lines: int) -> None:
    """On a screen of few lines, where a notice covers the view, it leaves sooner."""
    if lines < LOW:
        most = LOW_ERROR_S if notice.severity == "error" else LOW_S
        notice.timeout = min(notice.timeout, most)


def make_way(screen: Screen[Any]) -> None:
    """Move notices to the top while the focus, or the row under its cursor, is low."""
    focused, line = screen.focused, None
    if focused is not None:
        line = 0 if isinstance(focused, Input) else getattr(focused, "cursor_y", None)
    low = focused and line is not None and 2 * (focused.region.y + line) >= screen.size.height
    screen.set_class(bool(low), "-cursor-low")


def is_alarm(notice: Notification) -> bool:
    return notice.message.startswith(ALARM)


def objection(error: HudError) -> str:
    """An error in a dialog that stays open."""
    if isinstance(error, HudConflict):
        return one_line(error.detail)
    return one_line(f"{error.message} {error.hint}", 300)
