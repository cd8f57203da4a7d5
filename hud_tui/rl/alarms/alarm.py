"""Alarms with their evidence, detectors that could not run, and the report of both."""

from dataclasses import dataclass
from enum import StrEnum

from hud_tui.rl.metrics import short


class Level(StrEnum):
    """Severity of an alarm."""

    INFO = "info"
    WARN = "warn"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """1 for info, 2 for warn, 3 for critical."""
        return RANKS[self]


RANKS = {Level.INFO: 1, Level.WARN: 2, Level.CRITICAL: 3}


@dataclass(frozen=True)
class Evidence:
    """One number behind an alarm."""

    name: str
    value: float
    limit: float | None = None
    """The threshold it is compared with; None if it is context only."""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (limit {short(self.limit)})"
        return f"{self.name} {short(self.value)}{limit}"


@dataclass(frozen=True)
class Alarm:
    """One episode of one detector."""

    name: str
    """The detector's name, as in the config file: ``entropy_collapse``."""
    title: str
    level: Level
    """Highest level reached."""
    active: bool
    """Whether it still holds at the newest step."""
    row: int
    """Row of the update it began with, in the head's lineage, from 0. For metrics of rollouts
    this is the update before the step that first showed it, because its weights sampled
    those rollouts."""
    onset: int
    """Step number of that update."""
    checkpoint_id: str | None
    """Checkpoint made by that update."""
    before_id: str | None
    """The last checkpoint before that update whose own metrics were healthy (see
    `hud_tui.rl.alarms.monitor.last_good_checkpoint`); None if there is none."""
    shown: int
    """The step whose metrics showed it first."""
    shown_id: str | None
    """That step's checkpoint."""
    raised: int
    """The step at which it had held long enough to be raised."""
    ended: int | None
    """The step at which it ended; None while it holds."""
    evidence: tuple[Evidence, ...]
    meaning: str
    advice: str

    @property
    def id(self) -> str:
        """Stable for as long as the alarm lasts, also when the tree is read again."""
        return f"{self.name}@{self.checkpoint_id or self.onset}"

    @property
    def summary(self) -> str:
        """The evidence in one line."""
        return " · ".join(map(str, self.evidence))


@dataclass(frozen=True)
class Skipped:
    """A detector without its data."""

    name: str
    title: str
    needs: str
    """The metric that is not reported."""

    @property
    def summary(self) -> str:
        return f"not evaluated: metric {self.needs} not reported"


@dataclass(frozen=True)
class Report:
    """Result of all detectors on one lineage."""

    alarms: tuple[Alarm, ...] = ()
    """Active alarms, most severe first; then ended ones, newest first."""
    skipped: tuple[Skipped, ...] = ()
    steps: int = 0
    """Steps of the lineage that were evaluated."""
    left: tuple[Alarm, ...] = ()
    """Alarms on steps that are no longer in the head's lineage."""
    waiting: int = 0
    """Steps not evaluated yet."""
    quiet: frozenset[str] = frozenset()
    """Ids of acknowledged and snoozed alarms."""

    @property
    def active(self) -> tuple[Alarm, ...]:
        return tuple(alarm for alarm in self.alarms if alarm.active)

    @property
    def loud(self) -> tuple[Alarm, ...]:
        """Active alarms that are neither acknowledged nor snoozed, most severe first."""
        return tuple(alarm for alarm in self.active if alarm.id not in self.quiet)

    @property
    def onsets(self) -> frozenset[str]:
        """Ids of the checkpoints at which alarms began, including ended and left ones."""
        known = (alarm.checkpoint_id for alarm in (*self.alarms, *self.left))
        return frozenset(id_ for id_ in known if id_ is not None)


def ordered(alarms: list[Alarm]) -> tuple[Alarm, ...]:
    """Alarms in display order."""
    return tuple(sorted(alarms, key=lambda a: (not a.active, -a.level.rank * a.active, -a.row)))
