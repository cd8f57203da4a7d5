"""Detectors grade each step by severity; a gate turns severities into alarm episodes."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any, ClassVar, Generic, Self, TypeVar

from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level, Skipped
from hud_tui.rl.alarms.statistics import Ema, Row, Window
from hud_tui.rl.alarms.thresholds import Limits, Tuning
from hud_tui.rl.metrics import finite, of_weights

# The state of the run, which detectors need to distinguish learning from failure: entropy falls
# while a policy learns, and that is a collapse only if the reward does not rise.


LAG, MOST_LAG = 30, 300
"""Bounds of the window of a trend, in steps: a fifth of the run, at least LAG, at most MOST_LAG."""
CLIMB, CLIMB_SIGMAS = 0.05, 0.5
"""A rise counts as climbing if it is at least this share of the curve's range, or this many robust
standard deviations of its noise."""
SOLVED = 0.9
"""Share of the maximum reward from which the taskset counts as solved: low entropy is harmless."""


class Trend:
    """A metric's moving average, and whether it rises."""

    def __init__(self, weight: float, every: int = 1) -> None:
        """`every`: approximate number of steps between two values of the metric."""
        self.ema, self._every = Ema(weight), every
        self._past, self._noise = array("d"), Window(64)
        self._low = self._high = nan

    @property
    def value(self) -> float:
        return self.ema.value

    @property
    def before(self) -> float:
        """Smoothed value at the start of the trend's window; NaN if there are too few steps."""
        n = len(self._past)
        lag = max(LAG // self._every, min(MOST_LAG // self._every, n // 5))
        return self._past[n - 1 - lag] if n > lag else nan

    @property
    def climbing(self) -> bool:
        """Whether it rose within the window; False if there are too few steps."""
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
    """State of the run as of the newest row; updated before the detectors run."""

    steps: int | None = None
    """Total steps of the run; None if unknown."""
    reward: Trend = field(default_factory=lambda: Trend(0.9))
    heldout: Trend = field(default_factory=lambda: Trend(0.7, every=5))
    ceiling: float = nan
    """Highest reward of any rollout so far; at least 1 if all rewards are in [0, 1]."""
    index: int = -1

    def begin_tasks(self) -> None:
        """Forget the rewards, because those of other tasks have another scale."""
        fresh = Context()
        self.reward, self.heldout, self.ceiling = fresh.reward, fresh.heldout, fresh.ceiling

    def read(self, row: Row) -> None:
        self.index = row.index
        reward, heldout = row.read("reward_mean"), row.read("heldout_reward")
        if reward is not None:
            self.reward.push(reward)
            greatest, std = row.read("reward_max"), row.read("reward_std")
            if greatest is None:  # estimate: two standard deviations above the mean
                greatest = max(1.0 if 0 <= reward <= 1 else reward, reward + 2 * (std or 0.0))
            self.ceiling = greatest if not self.ceiling > greatest else self.ceiling
        if heldout is not None:
            self.heldout.push(heldout)

    @property
    def solved(self) -> bool:
        """Whether the mean reward is near the maximum."""
        value = self.reward.value
        return value > 0 and value >= SOLVED * self.ceiling

    def remaining(self, otherwise: int) -> int:
        """Number of steps left in the run; `otherwise` if the total is unknown."""
        return otherwise if self.steps is None else max(0, self.steps - self.index - 1)


# The gate: when a stream of severities raises an alarm, and when the alarm ends.
#
# A severity is a number on one scale for all detectors: 1 is the limit of info, 2 of warn,
# 3 of critical, linear in between. The gate raises nothing during warm-up, requires a level
# to hold for some steps, ends an alarm after some steps clearly below its limit
# (hysteresis), and raises it again only after a cool-down, unless it is more severe.


SLACK = 0.15
"""How far below a level's limit the severity must be to count towards the end of an alarm."""
MOST = 100
"""Maximum number of episodes kept per detector; the newest are."""


@dataclass
class Episode:
    """One alarm from onset to end, in rows of the lineage."""

    level: Level
    onset: int
    raised: int
    ended: int | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass
class _Streak:
    """Consecutive steps at a level; steps less than SLACK below it neither count nor reset it."""

    began: int = 0
    count: int = 0


@dataclass
class Gate:
    tuning: Tuning
    levels: tuple[Level, ...]
    """Levels that the detector uses, lowest first."""
    episodes: list[Episode] = field(default_factory=list)
    seen: int = 0
    _since: int = 0
    """Steps seen before the present tasks: each set of tasks has a warm-up of its own."""
    _streaks: dict[Level, _Streak] = field(default_factory=dict)
    calm: int = 0
    """Consecutive steps below the lowest level while an alarm holds."""

    @property
    def active(self) -> Episode | None:
        """The current episode, if an alarm holds."""
        return next((last for last in self.episodes[-1:] if last.ended is None), None)

    def push(self, row: int, severity: float) -> bool:
        """Add one step's severity; return whether it raised an alarm or its level."""
        self.seen += 1
        if self.seen - self._since <= self.tuning.warmup:
            return False
        if not severity >= self.levels[0].rank - SLACK:  # also NaN
            self._streaks.clear()
            active = self.active
            if active is not None:
                self.calm += 1
                if self.calm >= self.tuning.release:
                    active.ended, self.calm = row, 0
            return False
        self.calm = 0
        reached = [level for level in self.levels if self._holds(level, row, severity)]
        return bool(reached) and self._raise(reached[-1], row)

    def begin_tasks(self, row: int) -> None:
        """End the active alarm, and warm up again."""
        if self.active is not None:
            self.active.ended = row
        self._since, self.calm = self.seen, 0
        self._streaks.clear()

    def _holds(self, level: Level, row: int, severity: float) -> bool:
        """Whether a level has held for `tuning.hold` steps."""
        if not severity >= level.rank - SLACK:
            self._streaks.pop(level, None)
            return False
        if severity >= level.rank:
            streak = self._streaks.setdefault(level, _Streak(row))
            streak.count += 1
        held = self._streaks.get(level)
        return held is not None and held.count >= self.tuning.hold

    def _raise(self, level: Level, row: int) -> bool:
        last = self.episodes[-1] if self.episodes else None
        if last is not None and level.rank <= last.level.rank:
            if last.ended is None or row - last.ended < self.tuning.cooldown:
                return False
        elif last is not None and last.ended is None:
            last.level = level
            return True
        onset = min(streak.began for streak in self._streaks.values())
        self.episodes = [*self.episodes[1 - MOST :], Episode(level, onset, row)]
        return True


T = TypeVar("T", bound=Tuning)
BELOW_CRITICAL = 2.8
"""Maximum severity of what deserves a warning but is never critical."""
BELOW_WARN = 1.8
"""Maximum severity of what does not deserve a warning, for a detector without an info level."""


DETECTORS: "dict[str, type[Detector[Any]]]" = {}
"""All detectors that evaluate rows, by name."""


class Detector(ABC, Generic[T]):
    """One kind of alarm. Its result depends only on the thresholds and the rows."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    READS: ClassVar[str]
    """Canonical key of the metric that it evaluates. A metric of rollouts shows the effect of the
    previous update (see `hud_tui.rl.metrics.of_weights`)."""
    NEEDS: ClassVar[str] = ""
    """What it requires, where that is not this metric alone."""
    USUAL: ClassVar[Tuning]
    """Its thresholds where the config file sets none."""
    MEANING: ClassVar[str]
    ADVICE: ClassVar[str]
    BY_TASKS: ClassVar[bool] = False
    """Whether it compares a metric whose scale depends on the tasks with earlier steps; it then
    starts over when a run trains on other tasks."""
    HAS_LIMIT: ClassVar[bool] = True
    """Whether its warn limit is on the metric that it reads, not e.g. on a slope."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "NAME" in vars(cls):
            DETECTORS[cls.NAME] = cls

    def __init__(self, tuning: T) -> None:
        self.tuning = tuning
        self.gate = Gate(tuning, self._levels())

    def _levels(self) -> tuple[Level, ...]:
        has_info = isinstance(self.tuning, Limits) and self.tuning.info is not None
        return (*([Level.INFO] if has_info else []), Level.WARN, Level.CRITICAL)

    def value(self, row: Row) -> float | None:
        """What it evaluates of the next row; called once for each. None skips the row."""
        return row.read(self.READS)

    @abstractmethod
    def evaluate(self, value: float, row: Row, context: Context) -> float | None:
        """The row's severity (1 info, 2 warn, 3 critical), given its `value`; None skips it."""

    @abstractmethod
    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        """The numbers behind the last row's severity."""

    def limit(self, context: Context) -> float | None:
        """The warn limit of the metric that it reads, in that metric's unit."""
        return self.evidence(context)[0].limit if self.HAS_LIMIT else None

    def onset(self, episode: Episode) -> int:
        """The row that first showed the alarm; by default the first row at its level."""
        return episode.onset

    def advice(self) -> str:
        return self.ADVICE

    def read(self, row: Row, context: Context) -> None:
        value = self.value(row)
        severity = None if value is None else self.evaluate(value, row, context)
        if severity is not None and self.gate.push(row.index, severity):
            episode = self.gate.episodes[-1]
            episode.evidence = self._finite_evidence(context)
            episode.onset = min(episode.onset, self.onset(episode))

    def on_other_tasks(self, row: Row) -> Self:
        """A fresh detector that keeps only the episodes; called at the first row on other tasks."""
        fresh = type(self)(self.tuning)
        self.gate.begin_tasks(row.index)
        fresh.gate = self.gate
        return fresh

    def alarms(self, context: Context, row_at: Callable[[int], Row]) -> list[Alarm]:
        """The episodes as alarms.

        Args:
            context: As of the last row.
            row_at: The row at an index, for step numbers and checkpoint ids.
        """
        return [self._alarm(episode, context, row_at) for episode in self.gate.episodes]

    def skipped(self) -> Skipped | None:
        """The metric that it lacks if it never received it; else None."""
        return None if self.gate.seen else Skipped(self.NAME, self.TITLE, self.NEEDS or self.READS)

    def _alarm(self, episode: Episode, context: Context, row_at: Callable[[int], Row]) -> Alarm:
        shown = row_at(episode.onset)
        start = max(0, episode.onset - self._updates_since(shown))
        onset, active = row_at(start), episode.ended is None
        return Alarm(
            name=self.NAME,
            title=self.TITLE,
            level=episode.level,
            active=active,
            row=start,
            onset=onset.step,
            checkpoint_id=onset.checkpoint_id,
            before_id=row_at(start - 1).checkpoint_id if start else None,
            shown=shown.step,
            shown_id=shown.checkpoint_id,
            raised=row_at(episode.raised).step,
            ended=None if episode.ended is None else row_at(episode.ended).step,
            evidence=(active and self._finite_evidence(context)) or episode.evidence,
            meaning=self.MEANING,
            advice=self.advice(),
            metric=self.READS,
            limit=finite(self.limit(context)) if active else None,
            calm=self.gate.calm if active else 0,
            release=self.tuning.release,
        )

    def _updates_since(self, row: Row) -> int:
        """How many updates before a row's own the one is that its metric shows: its rollouts were
        sampled after the previous one, or as many steps before as they are stale."""
        if not of_weights(self.READS):
            return 0
        return 1 + round(row.read("staleness_mean") or 0.0)

    def _finite_evidence(self, context: Context) -> tuple[Evidence, ...]:
        return tuple(e for e in self.evidence(context) if isfinite(e.value))
