"""Pauses: the SDK waits in silence while a queue stands still; here is heard what for."""

import logging
import re
from collections.abc import Callable, Hashable
from typing import Any

Hold = Callable[[Hashable, str | None], object]
"""Told who waits, and for what, in plain words; None when that one moves."""
WORDS = {
    "paused_capacity": "paused: the server is short of capacity",
    "paused_rate_limit": "paused: too many training runs at once",
}
ANSWERS = {
    402: "paused: the server asks for payment (402)",
    429: "paused: the server takes no more requests for now (429)",
}
"""What the SDK asks again after, for minutes or an hour."""
BILLING = "paused due to billing"
"""In what the SDK logs while it meets 402, before the answer's body as Python shows it."""
DETAIL = re.compile(r"""['"](?:detail|message)['"]: (['"])(.{1,200}?)\1""")


class Pauses:
    """What requests wait for now, by who waits."""

    def __init__(self, tell: Callable[[str | None], object]) -> None:
        """`tell`: told the newest of the pauses, None when there is none."""
        self._tell = tell
        self._held: dict[Hashable, str] = {}

    def hold(self, who: Hashable, why: str | None) -> None:
        """One waits for something; None: no longer."""
        self._held.pop(who, None)
        if why is not None:
            self._held[who] = why
        self._tell(next(reversed(self._held.values()), None))

    def clear(self) -> None:
        """No request is under way, so none waits."""
        self._held.clear()
        self._tell(None)


def listen(hold: Hold) -> None:
    """Tell of pauses, and of their end, from the SDK's own threads."""
    ears = _Ears(hold)
    logging.getLogger("tinker").addHandler(ears)
    requests = logging.getLogger("httpx")
    requests.addHandler(ears)
    requests.setLevel(logging.INFO)
    requests.propagate = False
    try:
        from tinker.lib.public_interfaces.sampling_client import SamplingClient
        from tinker.lib.queue_state_logger import QueueStateLogger
    except ImportError:  # another version's rooms: what it logs is all that is known then
        return

    def observe(self: Any, state: Any, reason: str | None = None) -> None:
        hold(id(self), _words(str(getattr(state, "value", state)), reason))

    for kind in (QueueStateLogger, SamplingClient):
        if hasattr(kind, "on_queue_state_change"):
            setattr(kind, "on_queue_state_change", observe)  # noqa: B010 - mypy knows it as a method


class _Ears(logging.Handler):
    """Hears answers that the SDK asks again after, and what a server that wants payment says."""

    def __init__(self, hold: Hold) -> None:
        super().__init__(logging.INFO)
        self._hold = hold
        self._words = dict(ANSWERS)
        self._refused: dict[str, int] = {}
        """The last status of each URL, where it is one of those."""

    def emit(self, record: logging.LogRecord) -> None:
        # httpx logs method, URL, version, status and phrase of every answer
        if record.name == "httpx" and isinstance(record.args, tuple) and len(record.args) == 5:
            self._answered(str(record.args[1]), record.args[3])
        elif BILLING in (said := record.getMessage()):
            detail = DETAIL.search(said)
            self._words[402] = ANSWERS[402] + (f": {detail[2]}" if detail else "")
            self._hold(402, self._words[402])

    def _answered(self, url: str, status: object) -> None:
        if isinstance(status, int) and status in ANSWERS:
            self._refused[url] = status
            self._hold(status, self._words[status])
        elif (before := self._refused.pop(url, None)) and before not in self._refused.values():
            self._hold(before, None)


def _words(state: str, reason: str | None) -> str | None:
    """Why the queue stands still; None while it moves."""
    if state not in WORDS:
        return None
    return f"{WORDS[state]} ({reason})" if reason else WORDS[state]
