"""AlarmBook: which alarms of a model the user has acknowledged or snoozed, kept on the shelf."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hud_tui.rl.alarms.alarm import Alarm, Report
    from hud_tui.tui.shelf import Shelf

SNOOZE = 100
"""Steps of the run for which a snoozed detector keeps quiet."""
MOST = 500
"""Acknowledged alarms that are remembered, the newest."""
EXPECTED = {list: "a list of alarms' ids", dict: "an object, {…}"}


class AlarmBook:
    """What was said of one model's alarms."""

    def __init__(self, shelf: Shelf, model_id: str) -> None:
        self._shelf = shelf
        self._name = f"alarms-{sha256(model_id.encode()).hexdigest()[:16]}"
        kept = shelf.read(self._name)
        seen, snoozed = kept.get("acknowledged"), kept.get("snoozed")
        for name, kind in (("acknowledged", list), ("snoozed", dict)):
            if not isinstance(kept.get(name, kind()), kind):
                shelf.leave(self._name, f"{name}: expected {EXPECTED[kind]}")
        ids = seen if isinstance(seen, list) else []
        steps = snoozed if isinstance(snoozed, dict) else {}
        self._seen = dict.fromkeys(id_ for id_ in ids[-MOST:] if isinstance(id_, str))
        self._until = {name: n for name, n in steps.items() if type(n) is int}

    def quiet(self, report: Report) -> frozenset[str]:
        """Ids of the report's alarms that are acknowledged or snoozed now."""
        return frozenset(
            alarm.id
            for alarm in report.alarms
            if alarm.id in self._seen or self.snoozed_until(alarm.name) > report.steps
        )

    def is_acknowledged(self, alarm: Alarm) -> bool:
        return alarm.id in self._seen

    def snoozed_until(self, name: str) -> int:
        """The number of steps at which a detector speaks again; 0 where it was not snoozed."""
        return self._until.get(name, 0)

    def acknowledge(self, alarm: Alarm) -> bool:
        """Acknowledge an alarm, or take that back; whether it is acknowledged now."""
        if alarm.id in self._seen:
            del self._seen[alarm.id]
        else:
            self._seen[alarm.id] = None
        self._keep()
        return alarm.id in self._seen

    def snooze(self, alarm: Alarm, steps: int) -> int:
        """Snooze an alarm's detector after so many steps, or wake it; until when, 0 for awake."""
        if self.snoozed_until(alarm.name) > steps:
            del self._until[alarm.name]
        else:
            self._until[alarm.name] = steps + SNOOZE
        self._keep()
        return self.snoozed_until(alarm.name)

    def _keep(self) -> None:
        values = {"acknowledged": list(self._seen)[-MOST:], "snoozed": self._until}
        self._shelf.write(self._name, values)
