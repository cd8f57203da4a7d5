"""TypeAhead: what is typed and clicked waits until what came before it has been done.

Textual hands a key on as soon as it comes, to what has the focus at that moment, while the key
before it may still travel from widget to widget, and while the dialog or the field that it opens
is not there yet. Quick keys would then be given to the wrong screen, or to one that is not
composed. So keys, pastes and clicks are handed on one at a time, in order.

Source: Textual 8.2.8, message_pump.py (``_process_messages_loop``), _queue.py, app.py
(``App.on_event``), screen.py (``Screen._callbacks``: what is to be called after a refresh).
"""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

from textual._queue import Queue
from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, InputEvent, Key, MouseDown, MouseUp, Paste
from textual.message import Message
from textual.screen import Screen

OPENS = "opens"
"""The group of workers that read something, then open it: what is typed meanwhile is for that."""
AT_ONCE, AGAIN_S = 10, 0.001
"""Looks at whether all is done, one after the other; then seconds between two of them."""
PATIENCE_S = 1.0
"""Seconds after which a key is handed on although a widget is busy; a screen is always awaited."""
TURNS = 10
"""Of the event loop: a worker that is given a dialog's answer opens the next one within these."""


class TypeAhead:
    def __init__(self, app: App[None], hand_on: Callable[[Event], Awaitable[None]]) -> None:
        """
        Args:
            app: Its screens and widgets are looked at.
            hand_on: Takes an event as Textual would have at once. Awaited by the app itself.
        """
        self._app, self._hand_on = app, hand_on
        self._waiting: deque[Event] = deque()
        self._since = 0.0
        """When the first of them began to wait."""
        self._looks_again = False
        self._looks = 0
        """At whether it is the next one's turn."""
        self._screen: Screen[object] | None = None
        """The one that had the last of them."""

    async def take(self, event: Event) -> None:
        """An event that has just come: hand it on when its turn is."""
        if not self._waiting:
            self._since = monotonic()
        self._waiting.append(event)
        if not self._looks_again:
            await self._next()

    async def _next(self) -> None:
        """Hand on what can be; look again soon if there is more."""
        self._looks_again = False
        while self._waiting and await self._is_turn_of(self._waiting[0]):
            self._since, self._screen, self._looks = monotonic(), self._app.screen, 0
            await self._hand_on(self._waiting.popleft())
        if self._waiting:
            self._looks_again = True
            self._looks += 1
            if self._looks < AT_ONCE:
                self._app.call_later(self._next)
            else:
                # Not Textual's timer: one this short is dropped where its task begins late.
                get_running_loop().call_later(AGAIN_S, self._app.call_later, self._next)

    async def _is_turn_of(self, event: Event) -> bool:
        if not isinstance(event, (Key, Paste, MouseDown, MouseUp)):
            return True  # a move of the mouse, or its wheel: in order, but nothing waits for it
        if not await self._is_at_rest():
            return self._app.screen.is_mounted and monotonic() - self._since > PATIENCE_S
        return True

    async def _is_at_rest(self) -> bool:
        """Whether nothing that came before can have an effect any more."""
        if self._is_busy():
            return False
        for _ in range(TURNS):
            await sleep(0)
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Whether a screen comes or goes, or a widget of the one on top has something to do."""
        app, screen = self._app, self._app.screen
        stacked = {one for stack in app._screen_stacks.values() for one in stack}
        if any(one not in stacked for one in app._nodes):
            return True
        if not app._message_queue.empty() or app._pending_message is not None:
            return True
        if app._next_callbacks or (screen._callbacks and screen is not self._screen):
            return True  # what comes into sight is drawn once first
        if any(one.group == OPENS and one.is_running for one in app.workers):
            return True
        return any(map(_is_at_work, screen.walk_children(with_self=True)))


def is_typed(event: Event) -> bool:
    """Whether it comes from the keyboard or the mouse, and nobody has had it yet."""
    return isinstance(event, (InputEvent, Paste)) and not event.is_forwarded


def _is_at_work(node: DOMNode) -> bool:
    """Whether a widget is anywhere but waiting for its next message."""
    if node._closing or node._closed or node._pruning:
        return False  # what it has not read yet, it never will
    queue: Queue[Message | None] = node._message_queue
    return not (node._is_mounted and queue.empty() and queue.ready_event._waiters)
