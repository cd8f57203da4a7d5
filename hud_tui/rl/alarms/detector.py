"""Detector: reads rows, judges each, and keeps what its gate let through."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import ClassVar, Generic, TypeVar

from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level, Skipped
from hud_tui.rl.alarms.statistics import (
    HELDOUT,
    REWARD,
    REWARD_MAX,
    REWARD_STD,
    Ema,
    Role,
    Row,
    Window,
)
from hud_tui.rl.alarms.thresholds import Limits, Tuning
from hud_tui.rl.metrics import of_weights

# Context: how the run itself is doing, which tells a bad sign from a good one.
#
# Entropy falls while a policy learns; it is a collapse when it falls and nothing is learnt.


LAG, MOST_LAG = 30, 300
"""Steps over which a trend is judged: a fifth of the run, within these bounds."""
CLIMB, CLIMB_SIGMAS = 0.05, 0.5
"""A rise of this share of all that the curve has ever moved is a climb; or one of so many
robust standard deviations of its noise."""
SOLVED = 0.9
"""Of the greatest reward there is: no more to be learnt, and no harm in entropy near 0."""


class Trend:
    """Where a metric is going."""

    def __init__(self, weight: float, every: int = 1) -> None:
        """`every` is how many steps lie between two of its values, about."""
        self.ema, self._every = Ema(weight), every
        self._past, self._noise = array("d"), Window(64)
        self._low = self._high = nan

    @property
    def value(self) -> float:
        return self.ema.value

    @property
    def known(self) -> bool:
        return self.ema.seen > 0

    @property
    def before(self) -> float:
        """What it was where the trend is judged from; NaN while that is too short ago."""
        n = len(self._past)
        lag = max(LAG // self._every, min(MOST_LAG // self._every, n // 5))
        return self._past[n - 1 - lag] if n > lag else nan

    @property
    def climbing(self) -> bool:
        """Whether it has risen lately; False where there is too little to tell."""
        gain, moved = self.value - self.before, self._high - self._low
        noise = CLIMB_SIGMAS * self._noise.sigma
        return gain > 1e-9 * abs(self.value) and (gain > noise or gain > CLIMB * moved)

    def push(self, value: float) -> None:
        if self.ema.seen:
            self._noise.push(value - self.ema.value)
        smooth = self.ema.push(value)
        self._past.append(smooth)
        self._low = smooth if not self._low < smooth else self._low
        self._high = smooth if not self._high > smooth else self._high


@dataclass
class Context:
    """Read before the detectors, row by row."""

    steps: int | None = None
    """How many the run will have; None where unknown."""
    reward: Trend = field(default_factory=lambda: Trend(0.9))
    heldout: Trend = field(default_factory=lambda: Trend(0.7, every=5))
    ceiling: float = nan
    """The greatest reward of any rollout so far; 1 at least where all rewards are in 0…1."""
    place: int = -1

    def read(self, row: Row) -> None:
        self.place = row.place
        reward, heldout = REWARD.read(row), HELDOUT.read(row)
        if reward is not None:
            self.reward.push(reward)
            self._raise_ceiling(row, reward)
        if heldout is not None:
            self.heldout.push(heldout)

    @property
    def solved(self) -> bool:
        """Whether the reward is near the greatest there is."""
        value = self.reward.value
        return value > 0 and value >= SOLVED * self.ceiling

    def remaining(self, otherwise: int) -> int:
        """Steps that the run still has."""
        return otherwise if self.steps is None else max(0, self.steps - self.place - 1)

    def _raise_ceiling(self, row: Row, reward: float) -> None:
        greatest, spread = REWARD_MAX.read(row), REWARD_STD.read(row)
        if greatest is None:  # two deviations above the mean, as far as rewards go
            greatest = max(1.0 if 0 <= reward <= 1 else reward, reward + 2 * (spread or 0.0))
        self.ceiling = greatest if not self.ceiling > greatest else self.ceiling


# Gate: when a stream of severities is an alarm, and when it is over.
#
# A severity is a number on one scale for all detectors: 1 is the limit of info, 2 that of
# warn, 3 that of critical, and between them it is in proportion. The gate lets nothing
# through while a detector warms up, wants a level to hold for some steps, keeps an alarm
# until it has been clearly below its limit for some steps (hysteresis), and after its end
# keeps quiet for a while (cool-down) unless it gets worse than it was.


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


T = TypeVar("T", bound=Tuning)
BELOW_CRITICAL = 2.8
"""The severity of what is bad enough to warn of and is not critical, whatever its size."""
BELOW_WARN = 1.8
"""The severity of what is not to be warned of, in a detector without a level of info."""


class Detector(ABC, Generic[T]):
    """One kind of alarm. It is pure: what it says follows from its thresholds and its rows."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    NEEDS: ClassVar[str]
    """The metric without which it says nothing, under HUD's name."""
    READS: ClassVar[Role]
    """The metric that it judges by. Where that is of rollouts, what it shows was done by the
    update before (`hud_tui.rl.metrics.of_weights`)."""
    MEANING: ClassVar[str]
    ADVICE: ClassVar[str]

    def __init__(self, tuning: T) -> None:
        self.tuning = tuning
        self.gate = Gate(tuning, self._levels())

    def _levels(self) -> tuple[Level, ...]:
        has_info = isinstance(self.tuning, Limits) and self.tuning.info is not None
        return (*([Level.INFO] if has_info else []), Level.WARN, Level.CRITICAL)

    @abstractmethod
    def judge(self, row: Row, context: Context) -> float | None:
        """The row's severity (see `hud_tui.rl.alarms.detector`); None where it tells nothing."""

    @abstractmethod
    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        """The numbers that the last row was judged by."""

    def onset(self, episode: Episode) -> int:
        """The row that showed it first; by default where its level was first reached."""
        return episode.onset

    def meaning(self) -> str:
        return self.MEANING

    def advice(self) -> str:
        return self.ADVICE

    def read(self, row: Row, context: Context) -> None:
        """Take in the next row."""
        severity = self.judge(row, context)
        if severity is not None and self.gate.push(row.place, severity):
            episode = self.gate.episodes[-1]
            episode.evidence = self._told(context)
            episode.onset = min(episode.onset, self.onset(episode))

    def alarms(self, context: Context, row_at: Callable[[int], Row]) -> list[Alarm]:
        """Its episodes as alarms.

        Args:
            context: As of the last row.
            row_at: The row at a place, for step numbers and checkpoints.
        """
        return [self._alarm(episode, context, row_at) for episode in self.gate.episodes]

    def skipped(self) -> Skipped | None:
        """Why it has said nothing, where it could not."""
        return None if self.gate.seen else Skipped(self.NAME, self.NEEDS)

    def _alarm(self, episode: Episode, context: Context, row_at: Callable[[int], Row]) -> Alarm:
        place = max(0, episode.onset - of_weights(self.READS.key))
        onset, shown = row_at(place), row_at(episode.onset)
        return Alarm(
            name=self.NAME,
            title=self.TITLE,
            level=episode.level,
            active=episode.ended is None,
            row=place,
            onset=onset.step,
            checkpoint_id=onset.checkpoint_id,
            before_id=row_at(place - 1).checkpoint_id if place else None,
            shown=shown.step,
            shown_id=shown.checkpoint_id,
            raised=row_at(episode.raised).step,
            ended=None if episode.ended is None else row_at(episode.ended).step,
            evidence=(episode.ended is None and self._told(context)) or episode.evidence,
            meaning=self.meaning(),
            advice=self.advice(),
        )

    def _told(self, context: Context) -> tuple[Evidence, ...]:
        return tuple(e for e in self.evidence(context) if isfinite(e.value))
