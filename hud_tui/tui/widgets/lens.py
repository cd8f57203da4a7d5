"""Lens: how the Live view looks at a run, as the user chose it."""

from dataclasses import dataclass, replace

from hud_tui.rl.axis import Axis
from hud_tui.rl.overlay import Overlay
from hud_tui.rl.smoothing import WEIGHTS

LEAST = 10
"""Steps in sight at the closest."""


@dataclass(frozen=True)
class Lens:
    """Smoothing, scales, the stretch of steps in sight, and what is compared."""

    smoothing: int = 2
    """Index into WEIGHTS."""
    log: bool = False
    axis: Axis = Axis.STEP
    clip: bool = False
    """Whether outliers may leave the chart, so that the rest fills it."""
    envelope: bool = True
    """Whether the range of the raw values lies behind the average."""
    span: int | None = None
    """Steps in sight; None for all."""
    end: int | None = None
    """One past the last step in sight; None follows the newest."""
    overlay: Overlay | None = None

    @property
    def weight(self) -> float:
        """The moving average's share of the past; 0 where nothing is smoothed."""
        return WEIGHTS[self.smoothing]

    @property
    def ranged(self) -> bool:
        """Whether the raw values are drawn."""
        return self.envelope or not self.weight

    def rows(self, length: int) -> tuple[int, int]:
        """The rows in sight of a series of `length`: first, and one past the last."""
        if self.span is None:
            return 0, length
        end = length if self.end is None else min(self.end, length)
        return max(0, min(end - self.span, length - self.span)), end

    def zoomed(self, times: int, length: int, around: int | None) -> "Lens":
        """Twice as close for each of `times`, or as far where it is below 0.

        Args:
            times: How often.
            length: Steps of the run.
            around: The row to keep in sight; None keeps the newest.
        """
        start, end = self.rows(length)
        wanted = (end - start) // 2**times if times > 0 else (end - start) * 2**-times
        if wanted >= length:
            return replace(self, span=None, end=None)
        span = max(min(LEAST, length), wanted)
        if around is None:
            return replace(self, span=span, end=self.end)
        return replace(self, span=span, end=_end(around + span // 2 + 1, span, length))

    def scaled(self, factor: float, length: int, row: int, share: float) -> "Lens":
        """`factor` times as many steps in sight, with `row` where it is.

        Args:
            factor: Above 0; below 1 it is closer.
            length: Steps of the run.
            row: One that is in sight.
            share: How far along the chart it is, in [0, 1].
        """
        start, end = self.rows(length)
        near = min(end - start - 1, int((end - start) * factor))
        wanted = near if factor < 1 else max(end - start + 1, int((end - start) * factor))
        if wanted >= length:
            return replace(self, span=None, end=None)
        span = max(min(LEAST, length), wanted)
        first = round(row - share * (span - 1))
        return replace(self, span=span, end=_end(first + span, span, length))

    def spanning(self, first: int, last: int, length: int) -> "Lens":
        """From one row to another, both in sight; of fewer than can be seen, their middle."""
        span = max(min(LEAST, length), last - first + 1)
        if span >= length:
            return replace(self, span=None, end=None)
        return replace(self, span=span, end=_end((first + last + 1 + span) // 2, span, length))

    def panned(self, halves: int, length: int) -> "Lens":
        """Moved by so many halves of what is in sight, as far as there are steps."""
        if self.span is None:
            return self
        _, end = self.rows(length)
        return replace(self, end=_end(end + halves * max(1, self.span // 2), self.span, length))

    def showing(self, row: int, length: int) -> "Lens":
        """Moved no further than brings a row into sight."""
        start, end = self.rows(length)
        if self.span is None or start <= row < end:
            return self
        wanted = row + self.span if row < start else row + 1
        return replace(self, end=_end(wanted, self.span, length))


def _end(wanted: int, span: int, length: int) -> int | None:
    """One past the last step in sight; None from the newest on."""
    return None if wanted >= length else max(min(span, length), wanted)
