"""Scale: a chart's y axis, from any values, with round numbers beside it.

Source: the 1–2–5 steps of Heckbert 1990 ("Nice numbers for graph labels", Graphics Gems I).
"""

from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from hud_tui.rl.metrics import short

FLAT = 1e-9
"""A range this small beside its values is one value."""
HUGE = 1e300
TINY = 1e-300
"""Beyond these the arithmetic of a range leaves the doubles; values are held inside."""


@dataclass(frozen=True)
class Scale:
    """A y axis. `share` says how high a value stands."""

    low: float
    high: float
    """Above `low`; both above 0 on a log scale."""
    log: bool = False
    ticks: tuple[float, ...] = ()
    """Values to be labelled, rising, all within [low, high]."""

    def share(self, value: float) -> float:
        """Where a value stands, from 0 at `low` to 1 at `high`; held to that range.

        To nine digits, so that values which differ by rounding alone share a row.
        """
        return round(self._share(min(self.high, max(self.low, value))), 9)

    def _share(self, value: float) -> float:
        if self.log:
            bottom, top = log10(self.low), log10(self.high)
            return min(1.0, max(0.0, (log10(value) - bottom) / (top - bottom)))
        return (value - self.low) / (self.high - self.low)

    @property
    def labels(self) -> list[str]:
        """The ticks as text, as short as keeps them apart."""
        for spell in (short, "{:.4g}".format, "{:.7g}".format):
            texts = [spell(tick) for tick in self.ticks]
            if len(set(texts)) == len(texts):
                return texts
        return [repr(tick) for tick in self.ticks]


def fit(low: float, high: float, log: bool = False, intervals: float = 0) -> Scale:
    """A scale that holds [low, high].

    Args:
        low: The least value; NaN where there is none.
        high: The greatest.
        log: Ask for a log scale; one that starts at or below 0 cannot be had, and is linear.
        intervals: How many steps of a round size the axis is long, at least 1; it starts on
            a round value and need not end on one, so that labels stand evenly on a
            terminal's rows. 0: the axis is just [low, high], without ticks.
    """
    if not (isfinite(low) and isfinite(high)):
        return Scale(0.0, 1.0, ticks=(0.0, 1.0) if intervals else ())
    if log and low > 0:
        wanted = max(3, ceil(intervals)) if intervals else 0
        return _log(min(HUGE, max(TINY, low)), min(HUGE, max(TINY, high)), wanted)
    low, high = _widen(min(HUGE, max(-HUGE, low)), min(HUGE, max(-HUGE, high)))
    if not intervals:
        return Scale(low, high)
    step = round_step((high - low) / intervals, halves=True)
    while (first := floor(low / step + FLAT)) * step + intervals * step < high - FLAT * step:
        step = round_step(1.2 * step, halves=True)
    ticks = [(first + n) * step for n in range(floor(intervals) + 1)]
    return Scale(ticks[0], max(ticks[0] + intervals * step, high), ticks=tuple(ticks))


def _widen(low: float, high: float) -> tuple[float, float]:
    """A constant stands in the middle of twice itself, and 0 at the foot of 1."""
    size = max(abs(low), abs(high))
    if size < TINY:
        return 0.0, 1.0
    if high - low > FLAT * size:
        return low, high
    return (0.0, 2 * high) if high > 0 else (2 * low, 0.0)


def round_step(least: float, halves: bool = False) -> float:
    """The smallest of 1, 2, 5 (and 2.5, with `halves`) times a power of ten from `least` on."""
    power = 10.0 ** floor(log10(least))
    sizes = (1, 2, 2.5, 5, 10) if halves else (1, 2, 5, 10)
    return next(m * power for m in sizes if m * power >= least * (1 - FLAT))


def _log(low: float, high: float, ticks: int) -> Scale:
    if not high > low * (1 + FLAT):
        low, high = low / 2, high * 2
    if not ticks:
        return Scale(low, high, log=True)
    marks = _log_marks(low, high, ticks)
    if len(marks) < 3:  # within a decade, linear values are the rounder ones
        marks = tuple(mark for mark in fit(low, high, intervals=ticks).ticks if low <= mark <= high)
    return Scale(low, high, log=True, ticks=marks if len(marks) > 1 else (low, high))


def _log_marks(low: float, high: float, ticks: int) -> tuple[float, ...]:
    """Powers of ten within [low, high], thinned; with values between them where they are few."""
    first, last = ceil(log10(low)), floor(log10(high))
    if last - first >= 2:
        apart = ceil((last - first) / ticks)
        powers = [10.0**exponent for exponent in range(first, last + 1, apart)]
        return tuple(power for power in powers if low <= power <= high)
    powers = [10.0**exponent for exponent in range(first - 1, last + 1)]
    for parts in ((1, 2, 5), (1, 3)):
        marks = [m * power for power in powers for m in parts if low <= m * power <= high]
        if len(marks) <= 2 * ticks:
            break
    return tuple(marks)
