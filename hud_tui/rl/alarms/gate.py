"""Gate: when a stream of severities is an alarm, and when it is over.

A severity is a number on one scale for all detectors: 1 is the limit of info, 2 that of
warn, 3 that of critical, and between them it is in proportion. The gate lets nothing
through while a detector warms up, wants a level to hold for some steps, keeps an alarm
until it has been clearly below its limit for some steps (hysteresis), and after its end
keeps quiet for a while (cool-down) unless it gets worse than it was.
"""

from dataclasses import dataclass, field

from hud_tui.rl.alarms.alarm import Evidence, Level
from hud_tui.rl.alarms.tuning import Tuning

SLACK = 0.15
"""How far below its limit a severity must be to count as over."""
MOST = 100
"""Episodes kept of one detector, the newest."""


@dataclass
class Episode:
    """From an alarm's onset to its end; rows of the lineage."""

    level: Level
    onset: int
    raised: int
    ended: int | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass
class _Streak:
    """Steps in a row at a level; those in the slack below it neither count nor break it."""

    began: int = 0
    count: int = 0


@dataclass
class Gate:
    tuning: Tuning
    levels: tuple[Level, ...]
    """Those that the detector has, the least first."""
    episodes: list[Episode] = field(default_factory=list)
    seen: int = 0
    _streaks: dict[Level, _Streak] = field(default_factory=dict)
    _calm: int = 0
    """Steps in a row below the least level, while an alarm holds."""

    @property
    def active(self) -> Episode | None:
        """The episode that holds now."""
        last = self.episodes[-1] if self.episodes else None
        return last if last is not None and last.ended is None else None

    def push(self, row: int, severity: float) -> bool:
        """Take in one step's severity; whether an alarm was raised by it, or got worse."""
        self.seen += 1
        if self.seen <= self.tuning.warmup:
            return False
        if not severity >= self.levels[0].rank - SLACK:  # NaN is calm too
            self._streaks.clear()
            self._relax(row)
            return False
        self._calm = 0
        reached = [level for level in self.levels if self._holds(level, row, severity)]
        return bool(reached) and self._raise(reached[-1], row)

    def _holds(self, level: Level, row: int, severity: float) -> bool:
        """Whether a level has been reached for long enough."""
        if not severity >= level.rank - SLACK:
            self._streaks.pop(level, None)
            return False
        if severity >= level.rank:
            streak = self._streaks.setdefault(level, _Streak(row))
            streak.count += 1
        held = self._streaks.get(level)
        return held is not None and held.count >= self.tuning.hold

    def _raise(self, level: Level, row: int) -> bool:
        active = self.active
        if active is not None:
            worse = level.rank > active.level.rank
            active.level = level if worse else active.level
            return worse
        if self._cooling(level, row):
            return False
        onset = min(streak.began for streak in self._streaks.values())
        self.episodes = [*self.episodes[1 - MOST :], Episode(level, onset, row)]
        return True

    def _relax(self, row: int) -> None:
        active = self.active
        if active is not None:
            self._calm += 1
            if self._calm >= self.tuning.release:
                active.ended, self._calm = row, 0

    def _cooling(self, level: Level, row: int) -> bool:
        last = self.episodes[-1] if self.episodes else None
        if last is None or last.ended is None or level.rank > last.level.rank:
            return False
        return row - last.ended < self.tuning.cooldown
