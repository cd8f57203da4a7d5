"""What a detector says: alarms with their evidence, and detectors that lack their data."""

from dataclasses import dataclass
from enum import StrEnum

from hud_tui.rl.metrics import short


class Level(StrEnum):
    """How bad it is."""

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
    """One number that a detector judged by."""

    name: str
    value: float
    limit: float | None = None
    """What it is held against; None where it is only told."""

    def __str__(self) -> str:
        held = "" if self.limit is None else f" (limit {short(self.limit)})"
        return f"{self.name} {short(self.value)}{held}"


@dataclass(frozen=True)
class Alarm:
    """One time that a detector went off."""

    name: str
    """The detector's, as in the config file: ``entropy_collapse``."""
    title: str
    level: Level
    """The worst it reached."""
    active: bool
    """Whether it holds at the newest step."""
    row: int
    """The update it began with: the row of the head's lineage, from 0. Where the numbers are
    of rollouts, that is the update before the step that first showed it: its weights
    sampled them."""
    onset: int
    """That update's step, as its checkpoint counts."""
    checkpoint_id: str | None
    """What that update made."""
    before_id: str | None
    """The last checkpoint before that update whose own numbers were good (see
    `hud_tui.rl.alarms.monitor`); None where there is none."""
    shown: int
    """The step whose numbers showed it first."""
    shown_id: str | None
    """That step's checkpoint."""
    raised: int
    """The step at which it had held long enough to be said."""
    ended: int | None
    """The step at which it was over; None while it holds."""
    evidence: tuple[Evidence, ...]
    meaning: str
    advice: str

    @property
    def id(self) -> str:
        """The same for as long as the alarm lasts, whatever is read anew."""
        return f"{self.name}@{self.checkpoint_id or self.onset}"

    @property
    def said(self) -> str:
        """Its numbers in a line."""
        return " · ".join(map(str, self.evidence))


@dataclass(frozen=True)
class Skipped:
    """A detector that has nothing to judge by."""

    name: str
    needs: str
    """The metric it lacks, or why what there is says nothing."""

    @property
    def said(self) -> str:
        return f"skipped: needs {self.needs}"


@dataclass(frozen=True)
class Report:
    """What all detectors say of one lineage."""

    alarms: tuple[Alarm, ...] = ()
    """Active ones first, the worst of them first; then those that ended, newest first."""
    skipped: tuple[Skipped, ...] = ()
    steps: int = 0
    """How many steps of the lineage were judged."""
    left: tuple[Alarm, ...] = ()
    """Alarms of steps that the head has left for another lineage."""
    waiting: int = 0
    """How many steps are still to be judged."""
    quiet: frozenset[str] = frozenset()
    """Ids of alarms that somebody has acknowledged or snoozed."""

    @property
    def active(self) -> tuple[Alarm, ...]:
        return tuple(alarm for alarm in self.alarms if alarm.active)

    @property
    def loud(self) -> tuple[Alarm, ...]:
        """Active ones that nobody has acknowledged or snoozed, the worst first."""
        return tuple(alarm for alarm in self.active if alarm.id not in self.quiet)

    @property
    def onsets(self) -> frozenset[str]:
        """Ids of what the first bad updates made, of alarms that are over and left too."""
        known = (alarm.checkpoint_id for alarm in (*self.alarms, *self.left))
        return frozenset(id_ for id_ in known if id_ is not None)


def ordered(alarms: list[Alarm]) -> tuple[Alarm, ...]:
    """Alarms in the order in which they are listed."""
    return tuple(sorted(alarms, key=lambda a: (not a.active, -a.level.rank * a.active, -a.row)))
