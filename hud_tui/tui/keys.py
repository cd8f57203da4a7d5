"""Bindings, to which Textual applies a keymap by their ids; clickable key hints; type-ahead."""

from __future__ import annotations

import re
from asyncio import get_running_loop, sleep
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar

from textual._queue import Queue
from textual.actions import parse
from textual.app import App
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.events import Click, Event, InputEvent, Key, MouseDown, MouseUp, Paste
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker, get_current_worker

from hud_tui.config import Keymap
from hud_tui.keys import (
    ACTIONS,
    BY_ID,
    NAMED,
    VIEWS,
    WRITES,
    Action,
    key,
    keyed,
    of_view,
    remap,
)


def bindings(view: str) -> list[BindingType]:
    """The bindings of a view, of the app, or of a common widget."""
    return [
        Binding(
            action.keys,
            action.name,
            action.label,
            show=action.footer,
            priority=action.priority,
            id=action.id,
        )
        for action in ACTIONS
        if action.view == view
    ]


def use_keymap(app: App[None], keymap: Keymap) -> None:
    """Use these keys in bindings and in every text. Call it before the app runs."""
    remap(keymap)
    app.set_keymap(keymap)


# Key hints that can be clicked: a click does what the key does.


_PARTS = re.compile(r"( {2,}|\n)")


def click(action: Action) -> Style:
    """Style of text that runs the action when clicked."""
    return does(f"{'app' if action.view == 'app' else 'screen'}.{action.name}")


def does(action: str) -> Style:
    """Style of text that runs an action, e.g. ``app.view('live')``, when clicked."""
    return Style.from_meta({"@click": action})


def clicked(text: Content | str, id_: str) -> Content:
    """Text that runs the action with this id when clicked."""
    content = Content(text) if isinstance(text, str) else text
    return content.stylize(click(BY_ID[id_]))


def pressed(id_: str) -> Content:
    """The key in use of an action, clickable, for a sentence that asks to press it."""
    return clicked(Content.styled(key(id_), "bold $accent"), id_)


def shows_view(action: Action) -> bool:
    return action.name.startswith("view(") or action.name in (*VIEWS, "machines")


def foot(text: str) -> Content:
    """Clickable key hints from a text such as ``{group.copy} copy  {group.leave} back``.

    Two spaces separate the hints; if several keys share a label, only the keys are clickable.
    """
    return Content.assemble(*(part for each in _PARTS.split(text) for part in _keys(each)))


def _keys(part: str) -> Iterator[Content]:
    named = list(NAMED.finditer(part))
    if len(named) == 1:
        yield clicked(keyed(part), named[0][2])
        return
    end = 0
    for match in named:
        yield Content(part[end : match.start()])
        yield clicked(keyed(match[0]), match[2])
        end = match.end()
    yield Content(part[end:])


# The actions that are possible now, for the last line, the help and the palette.


V = TypeVar("V")


@dataclass(frozen=True)
class Need(Generic[V]):
    """What a key of a view needs to do something."""

    is_met: Callable[[V], object]
    reason: str | Callable[[V], str] = ""
    """What is said when the key is pressed all the same, a text as `keyed` takes it; empty if the
    screen shows it."""

    def reason_for(self, view: V) -> str:
        return keyed(self.reason) if isinstance(self.reason, str) else self.reason(view)


@dataclass(frozen=True)
class Doable:
    """An action, and the node that has its method."""

    action: Action
    where: DOMNode


def doable(screen: Screen[object]) -> list[Doable]:
    """The possible actions of a screen, and of the app unless the screen is modal."""
    app = screen.app
    actions = [Doable(action, screen) for action in of_view(getattr(screen, "VIEW", ""))]
    if (focused := screen.focused) is not None:
        ids = {binding.id for _, binding in focused._bindings}
        actions += [Doable(action, focused) for action in of_view("list") if action.id in ids]
    if not screen.is_modal:  # the app's keys do not work in a modal screen
        actions += [Doable(action, app) for action in of_view("app")]
    return [each for each in actions if each.where.check_action(*parse(each.action.name)[1:])]


# Clickable text, and the last line of panels and views.


class ClickableText(Static):
    """Clickable text without link colours."""

    def __init__(self, content: VisualType = "", id: str | None = None) -> None:
        super().__init__(content, id=id, markup=False)
        self.auto_links = False


class FootLine(ClickableText):
    """The key hints of a panel, clickable."""

    ALLOW_SELECT = False

    def __init__(self, text: str, id: str) -> None:
        super().__init__(foot(text), id=id)

    def show_text(self, text: str) -> None:
        self.update(foot(text))


GAP = Content("  ")
QUIET = "does"
"""Style metadata key for a click action, for text that keeps its muted style."""


class KeyLine(Widget):
    """The bottom line of a view: clickable key hints."""

    ALLOW_SELECT = False

    actions: reactive[tuple[Action, ...]] = reactive(())
    typing: reactive[bool] = reactive(False)
    """Whether an input field has the focus, where letters are text."""

    dim: reactive[frozenset[str]] = reactive(frozenset())
    """Ids of actions that the key's role does not include."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.view = view
        self._bound: Sequence[Action] = ()

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._bindings_changed(self.screen)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if screen is self.screen and screen.is_current:
            self.typing = isinstance(screen.focused, Input)
            active_ids = {active.binding.id for active in screen.active_bindings.values()}
            own = (action for action in of_view(self.view) if action.footer or self.typing)
            shut = getattr(self.app, "read_only", None) is not None
            can = (action for action in own if not (shut and action.id in WRITES))
            self._bound = [action for action in can if action.id in active_ids]
            beyond = getattr(self.app, "is_beyond_role", None)
            self.dim = frozenset(a.id for a in self._bound if beyond is not None and beyond(a.id))
            self.renew()

    def renew(self) -> None:
        hints = getattr(self.screen, "hints", None)
        hinted = self._bound
        if hints is not None:
            able = hints(self._bound)
            in_field = (
                action for action in self._bound if action in able or action.name == "leave"
            )
            hinted = list(in_field) if self.typing else able
        self.actions = tuple(hinted)

    async def on_click(self, event: Click) -> None:
        if action := event.style.meta.get(QUIET):
            await self.run_action(action)

    def render(self) -> Content:
        return key_line(self.actions, self.size.width, self.typing, self.dim)


def key_line(
    actions: Sequence[Action], width: int, typing: bool = False, dim: Container[str] = ()
) -> Content:
    """The view's keys, most used first, at the left and the app's at the right, in at most `width`
    cells. While `typing`, letters are text: only other keys are shown. `dim`: ids of what cannot be
    done, which says why when it is tried."""
    shown = [action for action in actions if not typing or len(action.shown) > 1]
    own = [_key(each).stylize("dim") if each.id in dim else _key(each) for each in shown]
    right = _typing_keys() if typing else _app_keys(width, GAP.join(own).cell_length + 4)
    while own and GAP.join(own).cell_length + 2 + right.cell_length > width:
        own.pop()
    left = GAP.join(own)
    room = max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, " " * room, right)


def _app_keys(width: int, taken: int) -> Content:
    """The keys of all views if there is space, else the range of their keys, else only the help."""
    app = of_view("app")
    help_ = GAP.join(_key(action) for action in app if action.name == "help")
    views = [action for action in app if shows_view(action)]
    folded = GAP.join([_hint(_range(views), "views", quietly("app.views")), help_])
    wide = GAP.join([*map(_key, views), help_])
    if wide.cell_length + taken <= width:
        return wide
    return folded if folded.cell_length <= width else help_


def _range(views: Sequence[Action]) -> str:
    keys = [action.shown for action in views]
    if "".join(keys) in "123456789":
        return f"{keys[0]}-{keys[-1]}"
    return "/".join(keys)


def _typing_keys() -> Content:
    written = next(action.all_shown.split() for action in of_view("app") if action.name == "help")
    in_fields = next((key for key in written if len(key) > 1), written[0])  # no letter: it is text
    return GAP.join(
        [
            _hint("tab", "next", quietly("app.focus_next")),
            _hint(in_fields, "help", quietly("app.help")),
        ]
    )


def _key(action: Action) -> Content:
    return _hint(action.shown, action.label, click(action))


def _hint(keys: str, label: str, when_clicked: Style) -> Content:
    return Content.assemble((keys, "bold"), (f" {label}", "$text-muted")).stylize(when_clicked)


def quietly(action: str) -> Style:
    """As `does`, for text that keeps its muted style."""
    return Style.from_meta({QUIET: action})


OPENS = "opens"
"""Group of workers that read something and then open it; input typed meanwhile is for what they
open, but while they wait for a dialog's answer it is for the dialog."""
GAMES = "games"
"""Group of workers that play; the app waits for them before it ends."""
AT_ONCE, AGAIN_S = 10, 0.001
"""Number of immediate checks whether all input is handled; then seconds between two checks."""
PATIENCE_S = 1.0
"""Seconds after which an event is passed on although a widget is busy; a new screen is always
awaited."""
TURNS = 10
"""Turns of the event loop within which a worker that got a dialog's answer opens its next
dialog."""


class TypeAhead:
    """Passes keys, pastes and clicks on one at a time, each after the previous one has been
    handled.

    Textual passes a key on as soon as it arrives, to the widget that has the focus at that moment,
    while the previous key may still travel from widget to widget, and before the dialog or field
    that it opens exists. Fast typing would then go to the wrong screen, or to one that is not
    composed.

    What is typed before the first view waits for it. It changes nothing: nobody has seen what it
    would change.

    Source: Textual 8.2.8, message_pump.py (``_process_messages_loop``), _queue.py, app.py
    (``App.on_event``), screen.py (``Screen._callbacks``: calls due after a refresh).
    """

    def __init__(self, app: App[None], hand_on: Callable[[Event], Awaitable[None]]) -> None:
        """`hand_on` handles an event as Textual would have done at once."""
        self._app, self._hand_on = app, hand_on
        self._waiting: deque[Event] = deque()
        self._since = 0.0
        """`monotonic` time since which the first event waits."""
        self._looks_again = False
        self._looks = 0
        self._screen: Screen[object] | None = None
        self.holds = False
        """Whether there is no view yet: what is typed for it is held."""
        self._held: list[Event] = []
        self._unseen = 0
        """How many of those that wait, the first ones, were held."""
        self._is_unseen = False
        """Whether the event that was passed on last was held."""
        self._asking: set[Worker[Any]] = set()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """For the block, the worker that it is in waits for a dialog's answer."""
        worker = get_current_worker()
        self._asking.add(worker)
        try:
            yield
        finally:
            self._asking.discard(worker)

    def release(self) -> None:
        """Pass on what was held: there is a view now."""
        self.holds, self._unseen = False, len(self._held)
        self._waiting.extendleft(reversed(self._held))
        self._held.clear()
        if self._waiting and not self._looks_again:
            self._since, self._looks_again = monotonic(), True
            self._app.call_later(self._next)

    def drop(self) -> None:
        """Forget what was held: there will be no view for it."""
        self.holds = False
        self._held.clear()

    def drop_unseen(self) -> bool:
        """Whether the key that is handled now was typed before there was a view; the others that
        were are then forgotten."""
        if self._is_unseen:
            for _ in range(self._unseen):
                self._waiting.popleft()
            self._unseen = 0
        return self._is_unseen

    async def take(self, event: Event) -> None:
        """Queue an event that has just arrived, and pass on what is due."""
        if self.holds and isinstance(event, (Key, Paste)):
            self._held.append(event)
            return
        if not self._waiting:
            self._since = monotonic()
        self._waiting.append(event)
        if not self._looks_again:
            await self._next()

    async def _next(self) -> None:
        """Pass on what is due; schedule another check if events remain."""
        self._looks_again = False
        while self._waiting and await self._is_turn_of(self._waiting[0]):
            self._since, self._screen, self._looks = monotonic(), self._app.screen, 0
            event = self._waiting.popleft()
            if _waits(event):
                self._is_unseen, self._unseen = self._unseen > 0, max(0, self._unseen - 1)
            await self._hand_on(event)
        if self._waiting:
            self._looks_again = True
            self._looks += 1
            if self._looks < AT_ONCE:
                self._app.call_later(self._next)
            else:
                # Not Textual's timer, which drops intervals this short if its task starts late.
                get_running_loop().call_later(AGAIN_S, self._app.call_later, self._next)

    async def _is_turn_of(self, event: Event) -> bool:
        if not _waits(event):
            return True
        if not self._is_busy():
            for _ in range(TURNS):
                await sleep(0)
            if not self._is_busy():
                return True
        return self._app.screen.is_mounted and monotonic() - self._since > PATIENCE_S

    def _is_busy(self) -> bool:
        """Whether a screen is opening or closing, or a widget of the top one has work to do."""
        app, screen = self._app, self._app.screen
        stacked = {shown for stack in app._screen_stacks.values() for shown in stack}
        if any(shown not in stacked for shown in app._nodes):
            return True
        if not app._message_queue.empty() or app._pending_message is not None:
            return True
        if app._next_callbacks or (screen._callbacks and screen is not self._screen):
            return True  # a new screen is drawn once before it gets input
        opening = (worker for worker in app.workers if worker.group == OPENS)
        if any(worker.is_running and worker not in self._asking for worker in opening):
            return True
        return any(map(_is_at_work, screen.walk_children(with_self=True)))


def _waits(event: Event) -> bool:
    """Whether it waits for its turn; moves of the mouse and its wheel only keep their order."""
    return isinstance(event, (Key, Paste, MouseDown, MouseUp))


def is_typed(event: Event) -> bool:
    """Whether it is an input event that has not been forwarded yet."""
    return isinstance(event, (InputEvent, Paste)) and not event.is_forwarded


def _is_at_work(node: DOMNode) -> bool:
    """Whether a widget is doing anything but waiting for its next message."""
    if node._closing or node._closed or node._pruning:
        return False  # it will not read its queue any more
    queue: Queue[Message | None] = node._message_queue
    return not (node._is_mounted and queue.empty() and queue.ready_event._waiters)
