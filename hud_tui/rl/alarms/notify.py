"""Notify: the bell, the desktop and the webhook, for somebody who does not look at the screen.

The table ``[notify]`` of the config says which, and how often an alarm is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Annotated
from urllib.parse import urlsplit

from annotated_types import Ge, Le

from hud_tui.errors import TABLE, BadTuning
from hud_tui.rl.alarms.alarm import Alarm, Level
from hud_tui.rl.text import one_line
from hud_tui.wire import JobStatus

LEVELS = (Level.WARN, Level.CRITICAL)
MOST_S = 7 * 86_400.0


@dataclass(frozen=True)
class Notify:
    """Where alarms and the end of a run are sent."""

    __pydantic_config__ = TABLE

    bell: bool = True
    """Ring the terminal's bell."""
    osc9: bool = True
    """Send a desktop notification through the terminal (OSC 9); others ignore it."""
    webhook: str = ""
    """URL to POST a JSON document to; empty for none."""
    level: Level = Level.WARN
    """Lowest level that is sent."""
    cooldown_s: Annotated[float, Ge(0), Le(MOST_S)] = 300.0
    """Seconds before the same detector is sent again, unless it is more severe."""

    def __post_init__(self) -> None:
        if self.webhook and not _is_url(self.webhook):
            raise BadTuning("webhook", "expected an http or https URL")
        if self.level not in LEVELS:
            raise BadTuning("level", "expected warn or critical")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(usable) and text.isascii() and text.isprintable() and " " not in text


class Cooldown:
    """Limits how often a name passes; a higher rank passes at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told: dict[str, tuple[float, int]] = {}

    def passes(self, name: str, rank: int, now: float) -> bool:
        """Whether a name may be sent at `now`, seconds; if so, starts its cooldown."""
        at, before = self._told.get(name, (-MOST_S, 0))
        if now - at < self._seconds and rank <= before:
            return False
        self._told[name] = (now, rank)
        return True


def alarm_line(alarm: Alarm, model: str) -> str:
    """An alarm in one line."""
    said = f"{alarm.level}: {alarm.title} since step {alarm.onset} of {model}: {alarm.summary}"
    return one_line(said, 300)


# Notifying: the bell, the desktop and the webhook, for somebody who does not look.


TOLD = 200
"""Characters of a desktop notification."""


class Notifier:
    """Decides what is told, and rings; the caller sends what `to_send` collects."""

    def __init__(
        self,
        notify: Notify | None,
        ring: Callable[[], None],
        write: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            notify: What the config file says; None for the usual.
            ring: Rings the terminal's bell.
            write: Writes to the terminal.
            clock: Seconds that only grow.
        """
        self.notify = notify or Notify()
        self._ring, self._write, self._clock = ring, write, clock
        self._cooldown = Cooldown(self.notify.cooldown_s)
        self._failed = False

    def alarm(self, alarm: Alarm, model: str) -> dict[str, object] | None:
        """Tell of an alarm; the document for the webhook, None if nothing is to be sent."""
        rank = alarm.level.rank
        if rank < self.notify.level.rank:
            return None
        if not self._cooldown.passes(f"{model} {alarm.name}", rank, self._clock()):
            return None
        said = alarm_line(alarm, model)
        facts = {"name": alarm.name, "level": alarm.level, "onset": alarm.onset, "id": alarm.id}
        return self._tell(said, {"kind": "alarm", "model": model, **facts, "advice": alarm.advice})

    def ended(self, job: JobStatus, model: str) -> dict[str, object] | None:
        """Tell that a run has ended."""
        said = one_line(f"{model}: the run is {job.status} after {job.step or 0} steps", 300)
        facts = {"job": job.id, "status": job.status, "step": job.step}
        return self._tell(said, {"kind": "ended", "model": model, **facts})

    def failed(self, why: str) -> str:
        """What to say of a webhook that failed: the first time only."""
        told, self._failed = self._failed, True
        return "" if told else f"The webhook failed: {why}. It is tried again with the next alarm."

    def _tell(self, said: str, facts: dict[str, object]) -> dict[str, object] | None:
        if self.notify.bell:
            self._ring()
        if self.notify.osc9:
            self._write(f"\x1b]9;{one_line(said, TOLD)}\x1b\\")
        return {"text": said, **facts} if self.notify.webhook else None
