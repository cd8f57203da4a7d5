"""Dialogs over a view, each dismissed once with a result, and notices.

A click beside the box of an `Over` leaves it, as Esc does.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.events import Click
from textual.notifications import Notification
from textual.screen import ModalScreen, Screen
from textual.worker import NoActiveWorker, get_current_worker

from hud_tui.errors import START_AGAIN, HudError
from hud_tui.keys import keyed
from hud_tui.rl.text import clean

T = TypeVar("T")


class Leavable(Screen[T]):
    """A screen that is dismissed only once, however often `dismiss` is called.

    Textual's own `dismiss` takes off whatever screen is on top, and fails the second time.
    """

    _asked = False
    """Whether it has been dismissed."""
    _covered: list[T | None] | None = None
    """The result, while another screen lies on this one."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close with this result: at once, or when it is on top again. Later results are nothing.

        What it still reads is cancelled: there is nobody left to show it to.
        """
        if not self._asked:
            self._asked = True
            self._end_workers()
            if self.is_active:
                return super().dismiss(result)
            self._covered = [result]
        return AwaitComplete()

    def on_screen_resume(self) -> None:
        if self._covered is not None and self.is_active:
            [result], self._covered = self._covered, None
            super().dismiss(result)

    def _end_workers(self) -> None:
        try:
            own = get_current_worker()
        except NoActiveWorker:
            own = None
        for worker in self.app.workers:
            if worker is not own and self in worker.node.ancestors_with_self:
                worker.cancel()


class Over(ModalScreen[T], Leavable[T]):
    LEAVE: ClassVar[str] = "leave"
    """The action of the key that leaves it."""

    async def on_click(self, event: Click) -> None:
        if event.widget is self:
            await self.run_action(self.LEAVE)


# Notices: shown at the bottom of any view for a few seconds.


ALARM = "⚑"
"""First character of an alarm's notice."""
LOW, LOW_S, LOW_ERROR_S = 30, 5.0, 7.0
"""A screen of fewer lines, and the seconds that a notice stays on it: a failure is read longer."""
MOST_NOTICES = 3
"""Notices shown at once: more would cover the view."""


def tell(app: App[None], error: HudError) -> None:
    """Show a failure with what to do next."""
    message, hint = error.message, error.hint
    if hint == START_AGAIN:  # the app can do that itself
        message, hint = "The service does not answer.", keyed("{app.reconnect} starts it")
    text = clean(f"{message}\n{hint}".strip(), 600)
    app.notify(text, severity="error", markup=False, timeout=10)


def say(app: App[None], text: str) -> None:
    """Show a line for a few seconds."""
    app.notify(clean(text, 200), markup=False)


def superseded(notice: Notification, shown: list[Notification]) -> list[Notification]:
    """The notices that make room for a new one: what tells of the same, then the oldest of too
    many. Alarms go before the others, which answer a key, and stay in their own view."""
    alike = [one for one in shown if _subject(one) == _subject(notice)]
    others = sorted(
        (one for one in shown if one not in alike),
        key=lambda one: not one.message.startswith(ALARM),
    )
    return [*alike, *others[: max(0, len(others) + 1 - MOST_NOTICES)]]


def _subject(notice: Notification) -> tuple[str, str]:
    """Subject of a notice: its title and first line."""
    return notice.title, notice.message.partition("\n")[0]
