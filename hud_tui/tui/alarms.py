"""Alarms of the selected model: its detectors, and which alarms are acknowledged or snoozed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore

SNOOZE = 100
"""Steps for which a snoozed detector raises no alarm."""
MOST_ACKNOWLEDGED = 500
"""Maximum acknowledged alarms stored per model; the oldest are dropped."""
EXPECTED = {list: "a list of alarms' ids", dict: "an object, {…}"}


class AlarmBook:
    """Acknowledged alarms and snoozed detectors of one model, in a JSON file."""

    def __init__(self, store: JsonStore, model_id: str) -> None:
        self._store = store
        self._name = f"alarms-{sha256(model_id.encode()).hexdigest()[:16]}"
        stored = store.read(self._name)
        seen, snoozed = stored.get("acknowledged"), stored.get("snoozed")
        for name, kind in (("acknowledged", list), ("snoozed", dict)):
            if not isinstance(stored.get(name, kind()), kind):
                store.leave(self._name, f"{name}: expected {EXPECTED[kind]}")
        ids = seen if isinstance(seen, list) else []
        steps = snoozed if isinstance(snoozed, dict) else {}
        self._seen = dict.fromkeys(id_ for id_ in ids[-MOST_ACKNOWLEDGED:] if isinstance(id_, str))
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
        """The step at which a detector raises alarms again; 0 if it is not snoozed."""
        return self._until.get(name, 0)

    def acknowledge(self, alarm: Alarm) -> bool:
        """Acknowledge an alarm, or undo that; return whether it is acknowledged now."""
        if alarm.id in self._seen:
            del self._seen[alarm.id]
        else:
            self._seen[alarm.id] = None
        self._keep()
        return alarm.id in self._seen

    def snooze(self, alarm: Alarm, steps: int) -> int:
        """Snooze an alarm's detector at the run's present number of steps, or end that; return the
        step at which it raises alarms again, 0 for at once."""
        if self.snoozed_until(alarm.name) > steps:
            del self._until[alarm.name]
        else:
            self._until[alarm.name] = steps + SNOOZE
        self._keep()
        return self.snoozed_until(alarm.name)

    def _keep(self) -> None:
        values = {"acknowledged": list(self._seen)[-MOST_ACKNOWLEDGED:], "snoozed": self._until}
        self._store.write(self._name, values)


SLICE = 100
"""Maximum number of steps that the detectors read per call: about 5 ms."""


class AlarmWatch:
    """The detectors of one model's run, with acknowledged alarms and snoozed detectors."""

    def __init__(self, thresholds: Thresholds | None, book: AlarmBook) -> None:
        self.book = book
        self.report = Report()
        self._monitor = AlarmMonitor(thresholds)
        self._silent_s: float | None = None
        self._loaded = False
        self._reported: dict[str, Level] | None = None
        """The highest levels of the alarms announced so far, by id, also of those that are over;
        None until the run was read once."""

    @property
    def behind(self) -> bool:
        """Whether the detectors have steps left to read."""
        return self._monitor.behind > 0

    def detect(self, run: Run, silent_s: float | None) -> Report:
        """Let the detectors read the next steps; return the report, the same object if nothing
        changed. `silent_s`: whole seconds since the run's last event; None if it is not
        training."""
        self._loaded = run.loaded
        fresh = self._monitor.follow(run.tree, run.job, SLICE)
        if fresh or silent_s != self._silent_s:
            self._silent_s = silent_s
            self.renew()
        return self.report

    def renew(self) -> None:
        """Update the report after new steps, an acknowledgement or a snooze."""
        report = self._monitor.report(self._silent_s)
        report = replace(report, quiet=self.book.quiet(report))
        if report != self.report:
            self.report = report

    def news(self) -> list[Alarm]:
        """Alarms raised or escalated since the last call; none in the first call."""
        if self.behind or not self._loaded:
            return []
        loud = [alarm for alarm in self.report.loud if alarm.level is not Level.INFO]
        quiet, reported = self.report.quiet, self._reported or {}
        before = {id_: level for id_, level in reported.items() if id_ not in quiet}
        news = [
            alarm
            for alarm in loud
            if alarm.id not in before or alarm.level.rank > before[alarm.id].rank
        ]
        is_first = self._reported is None
        self._reported = {**before, **{alarm.id: alarm.level for alarm in news}}
        return [] if is_first else news
