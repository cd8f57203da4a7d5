"""Hub: wakes whoever follows a model's events. The events themselves are in the store."""

import asyncio


class Hub:
    """Readers ask for the signal first, read the store, and then wait: nothing is missed."""

    def __init__(self) -> None:
        self._signals: dict[str, asyncio.Event] = {}
        self.closed = False

    def signal(self, model_id: str) -> asyncio.Event:
        """Set when the model's events grow, or the service stops."""
        signal = self._signals.setdefault(model_id, asyncio.Event())
        if self.closed:
            signal.set()
        return signal

    def wake(self, model_ids: set[str]) -> None:
        """The events of these models grew."""
        for model_id in model_ids:
            signal = self._signals.pop(model_id, None)
            if signal is not None:
                signal.set()

    def close(self) -> None:
        """No more events will come: every stream ends."""
        self.closed = True
        self.wake(set(self._signals))
