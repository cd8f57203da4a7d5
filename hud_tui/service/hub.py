"""Hub: wakes whoever follows a model's events. The events themselves are in the store."""

import asyncio

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
