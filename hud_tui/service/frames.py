"""Frames: the newest events as they are sent, made once for all who follow a model."""

import asyncio
from collections import OrderedDict

from hud_tui.service.store import Store, events
from hud_tui.service.store.events import Logged

KEPT = 64
"""Answers kept; readers that keep up ask for the same ones at the same time."""

Answer = tuple[int, bytes]


class Frames:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Answer] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def after(self, store: Store, model_id: str, last: int) -> Answer:
        """The id of the model's newest event after one id, as far as they are sent, and they.

        Events never change, so whoever asks after the same id gets the same answer; only
        that there were none yet is not kept.
        """
        async with self._locks.setdefault(model_id, asyncio.Lock()):
            kept = self._kept.get((model_id, last))
            if kept is not None:
                return kept
            logged = await store.read(events.after, model_id, last)
            if not logged:
                return last, b""
            answer = logged[-1].id, b"".join(map(_frame, logged))
            self._kept[model_id, last] = answer
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return answer


def _frame(event: Logged) -> bytes:
    """JSON has no bare newline, so one data line holds it."""
    return f"id: {event.id}\nevent: {event.type}\ndata: {event.body}\n\n".encode()
