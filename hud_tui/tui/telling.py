"""TellingApp: what failed is told, on any terminal, and a crash leaks nothing."""

from __future__ import annotations

import sys

from textual.app import App
from textual.await_remove import AwaitRemove
from textual.dom import DOMNode
from textual.filter import Monochrome
from textual.notifications import Notification, Notify
from textual.widget import Widget
from textual.worker import WorkerFailed

from hud_tui.errors import START_AGAIN, HudError
from hud_tui.keys import keyed
from hud_tui.rl.text import clean
from hud_tui.tui.plain import PlainFilter
from hud_tui.tui.widgets.palette import ascii_filter

ALARM = "⚑"
"""How the notice of an alarm begins."""
MOST_NOTICES = 3
"""Seen at once: more would lie over what they are about."""


class TellingApp(App[None]):
    """Failures become notices; what nobody expected is kept in `crash`, and ends the app."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: Exception | None = None
        """What ended the app, where nobody expected it."""
        if self.no_color:  # Textual's own filter for it sends greys
            self._filters = [one for one in self._filters if not isinstance(one, Monochrome)]
            self._filters.append(PlainFilter())
        self._filters.append(ascii_filter(sys.__stdout__.encoding if sys.__stdout__ else None))

    def tell(self, error: HudError) -> None:
        """Show a failure with what to do next."""
        message, hint = error.message, error.hint
        if hint == START_AGAIN:  # the app can do that itself
            message, hint = "The service does not answer.", keyed("{app.reconnect} starts it")
        text = clean(f"{message}\n{hint}".strip(), 600)
        self.notify(text, severity="error", markup=False, timeout=10)

    def say(self, text: str) -> None:
        """Show a line for a few seconds."""
        self.notify(clean(text, 200), markup=False)

    def on_notify(self, event: Notify) -> None:
        """Make room for a notice: what tells of the same goes, then the oldest of too many.

        Alarms go before the others, which answer a key, and stay in their own view.
        """
        subject, shown = _subject(event.notification), list(self._notifications)
        alike = [one for one in shown if _subject(one) == subject]
        others = sorted(
            (one for one in shown if one not in alike),
            key=lambda one: not one.message.startswith(ALARM),
        )
        for old in (*alike, *others[: max(0, len(others) + 1 - MOST_NOTICES)]):
            self._unnotify(old, refresh=False)

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        """Remove widgets from the screen. What they still read for themselves ends first: Textual
        cancels a worker once its widget is gone, which is after that widget's children are."""
        for node in nodes:
            for one in node.walk_children(with_self=True):
                self.workers.cancel_node(one)
        return super()._prune(*nodes, parent=parent)

    def _handle_exception(self, error: Exception) -> None:
        """A worker's `HudError` is told, and the app goes on; anything else ends it."""
        failure = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(failure, HudError) and self.is_running:
            self.tell(failure)
            return
        if self.crash is None and isinstance(failure, Exception):
            self.crash = failure
        super()._handle_exception(error)
        self._exit_renderables.clear()  # `crash` is reported once the terminal is restored

    def _fatal_error(self) -> None:
        """End. Textual would print the variables of every frame, and a key may be among them."""
        self._close_messages_no_wait()


def _subject(notice: Notification) -> tuple[str, str]:
    """What a notice is about: its first line, without the figures that follow."""
    return notice.title, notice.message.partition("\n")[0]
