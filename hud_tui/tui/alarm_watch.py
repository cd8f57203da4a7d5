"""AlarmWatch: the detectors beside a followed run, in slices between two keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.lookout import Lookout

if TYPE_CHECKING:
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.rl.run import Run
    from hud_tui.tui.alarm_book import AlarmBook

SLICE = 100
"""Steps judged at a time: about 5 ms."""


class AlarmWatch:
    """What the detectors say of one model's run, and what the user has said to that."""

    def __init__(self, thresholds: Thresholds | None, book: AlarmBook) -> None:
        self.book = book
        self.report = Report()
        self._lookout = Lookout(thresholds)
        self._silent_s: float | None = None
        self._loaded = False
        self._told: dict[str, Level] | None = None
        """What was told of; None until the run was read for the first time."""

    @property
    def behind(self) -> bool:
        """Whether there are steps left to be judged."""
        return self._lookout.behind > 0

    def look(self, run: Run, silent_s: float | None) -> Report:
        """Judge the next slice; the same report where nothing is new.

        Args:
            run: As it is now.
            silent_s: Whole seconds since its last event; None where it does not train.
        """
        self._loaded = run.loaded
        fresh = self._lookout.follow(run.tree, run.job, SLICE)
        if fresh or silent_s != self._silent_s:
            self._silent_s = silent_s
            self.renew()
        return self.report

    def renew(self) -> None:
        """Report anew: a step was judged, or the user has said something."""
        report = self._lookout.report(self._silent_s)
        report = replace(report, quiet=self.book.quiet(report))
        if report != self.report:
            self.report = report

    def news(self) -> list[Alarm]:
        """Alarms raised or worse since the last call; those of the first reading are none."""
        if self.behind or not self._loaded:
            return []
        found = [alarm for alarm in self.report.loud if alarm.level is not Level.INFO]
        told, self._told = self._told, {alarm.id: alarm.level for alarm in found}
        if told is None:
            return []
        return [
            alarm
            for alarm in found
            if alarm.id not in told or alarm.level.rank > told[alarm.id].rank
        ]
