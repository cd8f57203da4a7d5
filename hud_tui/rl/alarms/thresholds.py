"""Thresholds of the detectors, checked where they are set: in the config file or in code.

Each detector states its usual ones, taken from tools that have tried such limits (named at each).
They are starting points: none holds for every model and every taskset.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from hud_tui.errors import TABLE, BadTuning

# Settings of one detector. They are plain dataclasses, because building pydantic models would delay
# every headless command; pydantic checks those that the config file sets.


MOST_STEPS = 1_000_000
Steps = Annotated[int, Ge(1), Le(MOST_STEPS)]
Maybe = Annotated[int, Ge(0), Le(MOST_STEPS)]
"""Steps, or none."""
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Gt(0), Le(1)]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Settings that every detector has. Steps are those that report its metric."""

    __pydantic_config__ = TABLE

    enabled: bool = True
    warmup: Maybe = 10
    """Warm-up: steps before it can raise an alarm."""
    hold: Steps = 5
    """Consecutive steps at a level before the alarm is raised."""
    release: Steps = 5
    """Consecutive steps clearly below the limit before it ends."""
    cooldown: Maybe = 20
    """Steps after its end in which it is not raised again, unless it is more severe."""


@dataclass(frozen=True, kw_only=True)
class Limits(Tuning):
    """Settings of a detector of one number that is bad if it is high."""

    info: Positive | None = None
    warn: Positive
    critical: Positive

    def __post_init__(self) -> None:
        if not (self.info or 0) < self.warn < self.critical:
            raise BadTuning("", "expected info < warn < critical")


@dataclass(frozen=True, kw_only=True)
class Collapse(Tuning):
    sigmas: Positive = 2.0
    """Robust standard deviations below the peak."""
    least: Share = 0.05
    """Minimum fall, as a share of the peak."""


@dataclass(frozen=True, kw_only=True)
class Plateau(Tuning):
    share: Share = 0.35
    """Share of the run, from its end, whose slope is tested."""
    gain: Share = 0.02
    """A slope below this share of the mean reward counts as flat."""
    moving: Positive = 0.25
    """Relative change of entropy or KL in the same part from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Entropy(Tuning):
    floor: Share = 0.1
    """Share of the initial entropy below which it counts as collapsed."""
    horizon: Steps = 200
    """Steps to project ahead if the run's length is unknown."""


@dataclass(frozen=True, kw_only=True)
class SamplerKl(Limits):
    growing: Steps = 10
    """Consecutive steps of growth above the warn limit from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class ReferenceKl(Limits):
    ratio: Positive = 8.0
    """Warn at this multiple of the early median, while rising."""


@dataclass(frozen=True, kw_only=True)
class GradNorm(Tuning):
    sigmas: Positive = 8.0
    """Robust standard deviations above the median."""
    ratio: Positive = 3.0
    """And at least this multiple of the median."""
    explosion: Positive = 100.0
    """Multiple of the median from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Length(Tuning):
    growth: Positive = 0.5
    """Relative growth since the start."""
    correlation: Share = 0.6
    """Minimum correlation of length with reward."""
    truncated: Share = 0.15
    """Share of truncated rollouts from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Staleness(Limits):
    dropped: Share = 0.1
    """Share of rollouts dropped as stale from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Limits):
    least_s: Positive = 0.5
    """Steps that take less are left alone, seconds."""


@dataclass(frozen=True, kw_only=True)
class Stall(Limits):
    """Multiples of the median step time that may pass without an event."""

    floor_s: Positive = 10.0
    """Minimum silence, seconds."""
    critical_s: Positive = 900.0
    """Silence that is always critical, seconds."""


@dataclass(frozen=True)
class Thresholds:
    """One table ``[alarms.NAME]`` of the config file for each detector.

    `hud_tui.rl.alarms.monitor.usual_thresholds` adds a field for each detector of rows.
    """

    __pydantic_config__ = TABLE
    NOUN: ClassVar = "detector"
    """What one of its tables is for, in error messages."""

    stall: Stall = Stall(warn=3.0, critical=6.0)

    def of(self, name: str) -> Tuning:
        """The settings of a detector, by its `NAME`."""
        tuning: Tuning = getattr(self, name)
        return tuning
