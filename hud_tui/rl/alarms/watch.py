"""Watch: every detector over one lineage, step by step as it grows.

What it says follows from the thresholds and the lineage alone, so a run that is read at
once and one that is followed live have the same alarms.
"""

from array import array
from math import nan
from typing import Any

from hud_tui.rl.alarms.alarm import Alarm, Report, ordered
from hud_tui.rl.alarms.components import ComponentDominance
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.detector import Detector
from hud_tui.rl.alarms.gradients import GradientNorm, NonFinite, ZeroGradient
from hud_tui.rl.alarms.lengths import LengthBlowUp, Throughput
from hud_tui.rl.alarms.off_policy import ClipFraction, SamplerDrift, StaleRollouts
from hud_tui.rl.alarms.policy import EntropyCollapse, ReferenceDrift
from hud_tui.rl.alarms.rewards import HeldoutCollapse, HeldoutGap, RewardCollapse, RewardPlateau
from hud_tui.rl.alarms.rows import Row
from hud_tui.rl.alarms.spread import ErroredRollouts, Truncation, ZeroSpread
from hud_tui.rl.alarms.statistics import Window, bounded
from hud_tui.rl.alarms.thresholds import Thresholds

DETECTORS: tuple[type[Detector[Any]], ...] = (
    *(ZeroSpread, RewardCollapse, RewardPlateau, EntropyCollapse, SamplerDrift, ReferenceDrift),
    *(ClipFraction, GradientNorm, ZeroGradient, NonFinite, LengthBlowUp, Truncation),
    *(StaleRollouts, ErroredRollouts, ComponentDominance, HeldoutGap, HeldoutCollapse, Throughput),
)
"""All that judge rows; `hud_tui.rl.alarms.stall` judges by the clock."""
MOST_STEP = 2**62
"""Beyond this a step's number is a mistake of the service's, and is taken for this."""
RECENT = 20
"""Steps whose pace is the run's pace."""


class Watch:
    """The detectors, fed with rows in order."""

    def __init__(self, thresholds: Thresholds | None = None, steps: int | None = None) -> None:
        """`steps` is how many the run will have, where that is known."""
        self.thresholds = thresholds or Thresholds()
        self.context = Context(steps)
        tunings = {kind: getattr(self.thresholds, kind.NAME) for kind in DETECTORS}
        self._detectors = [kind(tuning) for kind, tuning in tunings.items() if tuning.enabled]
        self._steps, self._ids = array("q"), list[str | None]()
        """Step and checkpoint of each row; its metrics are not kept."""
        self._pace, self._at = Window(RECENT), nan

    def __len__(self) -> int:
        return len(self._steps)

    def read(self, row: Row) -> None:
        """Take in the next row; its place is the number of rows before it."""
        self._steps.append(max(-MOST_STEP, min(row.step, MOST_STEP)))
        self._ids.append(row.checkpoint_id)
        self.context.read(row)
        self._time(row)
        for detector in self._detectors:
            detector.read(row, self.context)

    @property
    def pace(self) -> float | None:
        """Median seconds between the last RECENT steps; None before two."""
        return self._pace.median if len(self._pace) else None

    @property
    def last(self) -> Row | None:
        """The newest row, without its metrics."""
        return self._row_at(len(self) - 1) if len(self) else None

    def report(self, *more: Alarm) -> Report:
        """What all detectors say, as of the last row; with alarms that are no detector's."""
        alarms = list(more)
        for detector in self._detectors:
            alarms += detector.alarms(self.context, self._row_at)
        skipped = (detector.skipped() for detector in self._detectors)
        return Report(ordered(alarms), tuple(s for s in skipped if s), len(self))

    def _time(self, row: Row) -> None:
        at = bounded(row.at)
        if at is not None:
            if at > self._at:
                self._pace.push(at - self._at)
            self._at = at

    def _row_at(self, place: int) -> Row:
        return Row(place, {}, self._steps[place], self._ids[place])
