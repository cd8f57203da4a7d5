"""Notify: the bell, the desktop and the webhook, for somebody who does not look at the screen.

The table ``[notify]`` of the config says which, and how often an alarm is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from time import monotonic
from urllib.parse import urlsplit

from hud_tui.errors import BadTuning
from hud_tui.rl.alarms.alarm import Alarm, Level
from hud_tui.rl.text import one_line
from hud_tui.wire import JobStatus

LEVELS = (Level.WARN, Level.CRITICAL)
MOST_S = 7 * 86_400.0


@dataclass(frozen=True)
class Notify:
    """Where alarms and the end of a run are sent."""

    bell: bool = True
    """Ring the terminal's bell."""
    osc9: bool = True
    """Send a desktop notification through the terminal (OSC 9); others ignore it."""
    webhook: str = ""
    """URL to POST a JSON document to; empty for none."""
    level: Level = Level.WARN
    """Lowest level that is sent."""
    cooldown_s: float = 300.0
    """Seconds before the same detector is sent again, unless it is more severe."""


def read_notify(given: object) -> Notify:
    """The table as typed values; missing settings get their defaults.

    Raises:
        BadTuning: Names the invalid setting.
    """
    if not isinstance(given, Mapping):
        raise BadTuning("", "expected a table")
    known = {one.name for one in fields(Notify)}
    for name in given:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise BadTuning(str(name), f"unknown setting; expected one of {expected}")
    for name in ("bell", "osc9"):
        if not isinstance(given.get(name, True), bool):
            raise BadTuning(name, "expected true or false")
    values = dict(given)
    values["webhook"] = _url(given.get("webhook", ""))
    values["level"] = _level(given.get("level", Level.WARN))
    values["cooldown_s"] = _seconds(given.get("cooldown_s", Notify.cooldown_s))
    return Notify(**values)


def _url(value: object) -> str:
    try:
        parts = urlsplit(value if isinstance(value, str) else "x:")
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    printable = isinstance(value, str) and value.isascii() and value.isprintable()
    if value == "" or (usable and printable and " " not in str(value)):
        return str(value)
    raise BadTuning("webhook", "expected an http or https URL")


def _level(value: object) -> Level:
    if value not in LEVELS:
        raise BadTuning("level", "expected warn or critical")
    return Level(str(value))


def _seconds(value: object) -> float:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0
    if not 0 <= number <= MOST_S:
        raise BadTuning("cooldown_s", f"expected seconds, at most {MOST_S:g}")
    return float(number)


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
