"""Frames: the newest events as they are sent, made once for all who follow a model."""

import asyncio
from collections import OrderedDict

from hud_tui.service.store import Db, Store, events
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
