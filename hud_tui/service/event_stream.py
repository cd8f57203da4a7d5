"""Frames: the newest events as they are sent, made once for all who follow a model."""

import asyncio
from collections import OrderedDict

from hud_tui.service.store import events
from hud_tui.service.store.db import Db, Store
from hud_tui.service.store.events import Logged

KEPT = 64
"""Answers kept; readers that keep up ask for the same ones at the same time."""

RESET = b"event: reset\ndata: {}\n\n"
"""Some of what the reader lacks is not in the log: read the tree, and go on from here."""

Answer = tuple[int, bytes]


class Frames:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Answer] = OrderedDict()
        self._none: dict[str, tuple[int, asyncio.Event]] = {}
        """After which id there was nothing, and the signal that says there is."""
        self._locks: dict[str, asyncio.Lock] = {}

    async def after(self, store: Store, model_id: str, last: int, signal: asyncio.Event) -> Answer:
        """The id of the model's newest event after one id, as far as they are sent, and they;
        or `RESET`.

        Events never change, so whoever asks after the same id gets the same answer; that there
        were none yet holds until the signal is set.

        Args:
            store: Where the events are.
            model_id: Whose.
            last: The id after which.
            signal: The model's, as the hub gave it before this was called.
        """
        async with self._locks.setdefault(model_id, asyncio.Lock()):
            kept = self._kept.get((model_id, last))
            if kept is not None:
                return kept
            if self._none.get(model_id) == (last, signal) and not signal.is_set():
                return last, b""
            logged = await store.read(_after, model_id, last)
            if isinstance(logged, int):
                return logged, RESET
            if not logged:
                self._none[model_id] = last, signal
                return last, b""
            answer = logged[-1].id, b"".join(map(_frame, logged))
            self._kept[model_id, last] = answer
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return answer


def _after(db: Db, model_id: str, last: int) -> list[Logged] | int:
    """The events after an id; where some of them are no longer kept, the newest id instead."""
    if not events.can_resume(db, model_id, last):
        return events.newest(db)
    return events.after(db, model_id, last)


def _frame(event: Logged) -> bytes:
    """JSON has no bare newline, so one data line holds it."""
    return f"id: {event.id}\nevent: {event.type}\ndata: {event.body}\n\n".encode()


# Hub: wakes whoever follows a model's events. The events themselves are in the store.


PAUSE_S = 0.02
"""From an event to its readers: training, which logged it, goes on first, and what it logs
meanwhile is sent along."""


class Hub:
    """Readers ask for the signal first, read the store, and then wait: nothing is missed."""

    def __init__(self) -> None:
        self._signals: dict[str, asyncio.Event] = {}
        self._grown: set[str] = set()
        """Ids of models whose readers are to be woken."""
        self.closed = False

    def signal(self, model_id: str) -> asyncio.Event:
        """Set once the model's events have grown, or the service stops."""
        signal = self._signals.setdefault(model_id, asyncio.Event())
        if self.closed:
            signal.set()
        return signal

    def grew(self, model_ids: set[str]) -> None:
        """The events of these models grew: their readers are woken soon."""
        if not self._grown:
            asyncio.get_running_loop().call_later(PAUSE_S, self._wake)
        self._grown |= model_ids

    def close(self) -> None:
        """No more events will come: every stream ends."""
        self.closed = True
        self._grown = set(self._signals)
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, set()
        for model_id in grown:
            signal = self._signals.pop(model_id, None)
            if signal is not None:
                signal.set()
