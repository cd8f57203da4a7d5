"""Lag: how far what is heard of a service is behind what happens there.

A line may carry less than a run says. What comes over it then is old, though it comes all the
time. By the service's own clock: an event says when it happened, and the ``Date`` of an answer
what the time was there when the stream was opened.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import inf
from time import monotonic

FRESH_S = 2.0
"""So long after an event its age says how far behind it came; a line that was late is not
silent between two of them."""


class Lag:
    def __init__(self) -> None:
        self._ahead: float | None = None
        """The service's Unix seconds at 0 of `monotonic`; None where it did not say."""
        self._heard, self._behind = -inf, 0.0

    def opened(self, headers: Mapping[str, str]) -> None:
        """Take the service's time from an answer that has just come."""
        try:
            there = parsedate_to_datetime(headers.get("date", "")).timestamp()
        except (ValueError, OverflowError):
            return
        self._ahead = there - monotonic()

    def hear(self, at: float) -> None:
        """Note an event that happened at these Unix seconds there; 0 where that is unknown."""
        if at and self._ahead is not None:
            self._heard = monotonic()
            self._behind = max(0.0, self._heard + self._ahead - at)

    @property
    def behind_s(self) -> float:
        """Seconds from what was heard last to now, while more of it comes; else 0."""
        return self._behind if monotonic() - self._heard < FRESH_S else 0.0
