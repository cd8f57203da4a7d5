"""What lies over a view, and is left again: with an answer, once.

A click beside the box of an `Over` leaves it, as Esc does.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.await_complete import AwaitComplete
from textual.events import Click
from textual.screen import ModalScreen, Screen
from textual.worker import NoActiveWorker, get_current_worker

T = TypeVar("T")


class Leavable(Screen[T]):
    """A screen that is dismissed once, however often it is asked to be.

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
