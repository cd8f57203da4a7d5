"""Notifying: the bell, the desktop and the webhook, for somebody who does not look."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from hud_tui.rl.alarms.notify import Cooldown, Notify, alarm_said
from hud_tui.rl.text import one_line

if TYPE_CHECKING:
    from hud_tui.rl.alarms.alarm import Alarm
    from hud_tui.wire import JobStatus


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
        """Tell of an alarm; the document for the webhook, None where nothing is to be sent."""
        rank = alarm.level.rank
        if rank < self.notify.level.rank:
            return None
        if not self._cooldown.passes(f"{model} {alarm.name}", rank, self._clock()):
            return None
        said = alarm_said(alarm, model)
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
