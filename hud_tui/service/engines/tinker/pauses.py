"""Pauses: the SDK waits in silence while a queue stands still; here is heard what for."""

import logging
from collections.abc import Callable
from typing import Any

Waits = Callable[[str | None], object]
WORDS = {
    "paused_capacity": "paused: the server is short of capacity",
    "paused_rate_limit": "paused: too many training runs at once",
}
BILLING = "paused due to billing"
"""In what the SDK logs while it meets 402."""


def listen(waits: Waits) -> None:
    """Tell of pauses, and of their end, from the SDK's own threads.

    Args:
        waits: Told why requests stand still, in plain words; None when they move.
    """
    logging.getLogger("tinker").addHandler(_Billing(waits))
    try:
        from tinker.lib.public_interfaces.sampling_client import SamplingClient
        from tinker.lib.queue_state_logger import QueueStateLogger
    except ImportError:  # another version's rooms: what it logs is all that is known then
        return

    def observe(self: Any, state: Any, reason: str | None = None) -> None:
        waits(_words(str(getattr(state, "value", state)), reason))

    for kind in (QueueStateLogger, SamplingClient):
        if hasattr(kind, "on_queue_state_change"):
            setattr(kind, "on_queue_state_change", observe)  # noqa: B010 - mypy knows it as a method


class _Billing(logging.Handler):
    """Hears that the server asks for payment."""

    def __init__(self, waits: Waits) -> None:
        super().__init__(logging.WARNING)
        self._waits = waits

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if BILLING in said:
            detail = said.partition("Error: ")[2]
            self._waits(f"paused: the server asks for payment (402) {detail}".strip())


def _words(state: str, reason: str | None) -> str | None:
    """Why the queue stands still; None while it moves."""
    if state not in WORDS:
        return None
    return f"{WORDS[state]} ({reason})" if reason else WORDS[state]
