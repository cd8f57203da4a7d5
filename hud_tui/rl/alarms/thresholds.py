"""Thresholds: what each detector goes by, checked where it is set: in the config file or in code.

The defaults are from tools that have tried such limits (named at each) and are
starting points: no number here holds for every model and every taskset.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from math import inf
from sys import float_info
from typing import Any, TypeVar

from hud_tui.errors import BadTuning

# Tuning: typed numbers of a detector, checked where they are made and where they are read.
#
# Plain dataclasses: a command that asks once need not wait for pydantic to build models.


T = TypeVar("T", bound="Tuning")
MOST_STEPS = 1_000_000
LARGEST = float_info.max


def count(default: int, least: int = 1) -> Any:
    """A dataclass field of whole steps."""
    return field(default=default, metadata={"least": least, "most": MOST_STEPS})


def positive(default: Any = MISSING, most: float = inf) -> Any:
    """A dataclass field of a finite number above 0."""
    return field(default=default, metadata={"above": 0.0, "most": most})


def share(default: float) -> Any:
    """A dataclass field of a number above 0, at most 1."""
    return positive(default, 1.0)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Settings of every detector. Steps are those that report its metric."""

    enabled: bool = True
    warmup: int = count(10, least=0)
    """Warm-up: steps before it can raise an alarm."""
    hold: int = count(5)
    """Consecutive steps at a level before the alarm is raised."""
    release: int = count(5)
    """Consecutive steps clearly below the limit before it ends."""
    cooldown: int = count(20, least=0)
    """Steps after its end in which it is not raised again, unless more severe."""

    def __post_init__(self) -> None:
        for one in fields(self):
            why = misfit(one, getattr(self, one.name))
            if why:
                raise BadTuning(one.name, why)


def changed(tuning: T, given: Mapping[str, object]) -> T:
    """The settings updated with the given values, by field name.

    Raises:
        BadTuning: Unknown name or invalid value.
    """
    known = {one.name for one in fields(tuning)}
    for name in given:
        if name not in known:
            raise BadTuning(name, f"unknown setting; expected one of {', '.join(sorted(known))}")
    return replace(tuning, **given)  # type: ignore[arg-type]  # __post_init__ checks them


def misfit(one: "Field[Any]", value: object) -> str:
    """What is wrong with a field's value; empty if nothing is."""
    if not one.metadata:
        return "" if isinstance(value, bool) else "expected true or false"
    if value is None and one.default is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "expected a number"
    if "least" in one.metadata and not isinstance(value, int):
        return "expected a whole number"
    return _out_of_bounds(one.metadata, value)


def _out_of_bounds(bounds: Mapping[str, Any], value: float) -> str:
    if not abs(value) <= LARGEST:  # NaN neither; isfinite() raises for an int of 400 digits
        return "expected a finite number"
    if "above" in bounds and not value > bounds["above"]:
        return f"expected more than {bounds['above']:g}"
    if value < bounds.get("least", -inf):
        return f"expected {bounds['least']} or more"
    return f"expected at most {bounds['most']:g}" if value > bounds["most"] else ""


@dataclass(frozen=True, kw_only=True)
class Limits(Tuning):
    """A detector of one number that is bad when it is high."""

    info: float | None = positive(None)
    warn: float = positive()
    critical: float = positive()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.info or 0) < self.warn < self.critical:
            raise BadTuning("", "expected info < warn < critical")


@dataclass(frozen=True, kw_only=True)
class Finite(Tuning):
    """No limits: a value is finite or not."""


@dataclass(frozen=True, kw_only=True)
class Collapse(Tuning):
    sigmas: float = positive(2.0)
    """Robust standard deviations below the peak."""
    least: float = share(0.05)
    """Minimum fall, as a share of the peak."""


@dataclass(frozen=True, kw_only=True)
class Plateau(Tuning):
    share: float = share(0.35)
    """Share of the run, from its end, whose slope is tested."""
    gain: float = positive(0.02, most=1.0)
    """A slope below this share of the mean reward counts as flat."""
    moving: float = positive(0.25)
    """Relative change of entropy or KL in the same part from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Entropy(Tuning):
    floor: float = share(0.1)
    """Share of the initial entropy below which it counts as collapsed."""
    horizon: int = count(200)
    """Steps to project ahead if the run's length is unknown."""


@dataclass(frozen=True, kw_only=True)
class SamplerKl(Limits):
    growing: int = count(10)
    """Consecutive steps of growth above the warn limit from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class ReferenceKl(Limits):
    ratio: float = positive(8.0)
    """Warn at this multiple of the early median, while rising."""


@dataclass(frozen=True, kw_only=True)
class GradNorm(Tuning):
    sigmas: float = positive(8.0)
    """Robust standard deviations above the median."""
    ratio: float = positive(3.0)
    """And at least this multiple of the median."""
    explosion: float = positive(100.0)
    """Multiple of the median from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Length(Tuning):
    growth: float = positive(0.5)
    """Relative growth since the start."""
    correlation: float = share(0.6)
    """Minimum correlation of length with reward."""
    truncated: float = share(0.15)
    """Share of truncated rollouts from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Staleness(Limits):
    dropped: float = share(0.1)
    """Share of rollouts dropped as stale from which it is critical."""


@dataclass(frozen=True, kw_only=True)
class Stall(Limits):
    """Multiples of the median step time without an event."""

    floor_s: float = positive(10.0)
    """Minimum silence, seconds."""
    critical_s: float = positive(900.0)
    """Silence that is always critical, seconds."""


@dataclass(frozen=True)
class Thresholds:
    """One table ``[alarms.NAME]`` of the config file for each detector."""

    zero_variance: Limits = Limits(info=0.3, warn=0.5, critical=0.75)  # rl-doctor
    reward_collapse: Collapse = Collapse(hold=10)
    reward_plateau: Plateau = Plateau(warmup=6, hold=2, release=2)  # in looks, not steps
    entropy_collapse: Entropy = Entropy(warmup=40)  # rl-doctor
    kl_sampler: SamplerKl = SamplerKl(warn=0.01, critical=0.05, hold=3)  # tinker-cookbook
    kl_reference: ReferenceKl = ReferenceKl(warn=0.5, critical=2.0)  # rl-doctor, rlprobe
    clip_fraction: Limits = Limits(warn=0.2, critical=0.4)  # rl-doctor, rlprobe
    grad_norm: GradNorm = GradNorm(warmup=20, hold=1)  # rl-doctor
    zero_gradient: Limits = Limits(info=0.2, warn=0.4, critical=0.7, warmup=20, hold=1)
    non_finite: Finite = Finite(warmup=0, hold=1)
    length_blow_up: Length = Length(warmup=30)  # rl-doctor
    truncation: Limits = Limits(warn=0.05, critical=0.15, warmup=20)  # rl-doctor
    staleness: Staleness = Staleness(warn=4.0, critical=8.0, hold=3)  # prime-rl
    errored_rollouts: Limits = Limits(warn=0.05, critical=0.2, warmup=3, hold=3)  # prime-rl
    component_dominance: Limits = Limits(warn=0.7, critical=0.9, warmup=150)  # rl-doctor
    heldout_gap: Limits = Limits(warn=0.15, critical=0.3, warmup=3, hold=3, release=3)
    heldout_collapse: Collapse = Collapse(warmup=5, hold=3, release=3)
    throughput: Limits = Limits(warn=1.4, critical=2.5, warmup=30)  # rlprobe
    stall: Stall = Stall(warn=3.0, critical=6.0)


def read_thresholds(given: object) -> Thresholds:
    """The default thresholds updated with the given tables.

    Raises:
        BadTuning: Names the invalid setting by its path, e.g. ``zero_variance.warn``.
    """
    usual = Thresholds()
    known = {one.name: getattr(usual, one.name) for one in fields(usual)}
    new: dict[str, Any] = {}
    for name, table in _table("", given).items():
        if name not in known:
            raise BadTuning(name, f"unknown detector; expected one of {', '.join(known)}")
        try:
            new[name] = changed(known[name], _table("", table))
        except BadTuning as error:
            raise BadTuning(f"{name}.{error.name}".rstrip("."), error.why) from error
    return replace(usual, **new)


def _table(name: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise BadTuning(name, "expected a table")
    return given
