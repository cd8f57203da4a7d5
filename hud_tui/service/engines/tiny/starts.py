"""Starts: when a process may be started beside the engine's first one, after others failed.

Where memory is short, the system may kill each one that is started, at once or with its first
request. Each attempt costs time, and one request is done again for it: so there are ever fewer.
"""

from math import inf

from hud_tui.patience import backoff

LONGEST_S = 300.0
"""Longest time between two attempts, seconds."""


class Starts:
    """The failures in a row. `now` is in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = -inf
        self._next_at = -inf

    @property
    def are_failing(self) -> bool:
        """Whether a process failed, and none that was started later has answered yet."""
        return self._failures > 0

    def pause_s(self, now: float) -> float:
        """Seconds until one may be started; 0 if it may be now."""
        return max(0.0, self._next_at - now)

    def began(self, now: float) -> None:
        """Record that one is started: while they fail, the next one waits for what becomes of
        it."""
        if self._failures:
            self._next_at = now + backoff(self._failures, LONGEST_S)

    def failed(self, began_at: float, now: float) -> None:
        """Record that one could not be started, or ended unasked. Several that were started
        together count as one."""
        if began_at >= self._failed_at:
            self._failures += 1
            self._failed_at = now
            self._next_at = now + backoff(self._failures, LONGEST_S)

    def succeeded(self) -> None:
        """Record that one has answered its first request."""
        self._failures = 0
        self._next_at = -inf
