"""Figure: a metric's moving average over the range of its raw values, with axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan
from operator import itemgetter

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.axis import marks
from hud_tui.rl.curves import Bucket
from hud_tui.rl.run import Run
from hud_tui.rl.scale import Scale
from hud_tui.tui.widgets import braille
from hud_tui.tui.widgets.lens import Lens
from hud_tui.tui.widgets.plot import Signal, Tick, area, label_width, plot
from hud_tui.tui.widgets.sight import Sight, beyond, y_scale

TICK_ROWS = (3, 2, 4)
"""Rows from one tick of the y axis to the next; whichever leaves the least empty."""
AXIS_ROWS = 2
"""Rows of a figure below its curves."""
TICK_CELLS = 16
"""Cells between two ticks of the x axis, about."""


@dataclass(frozen=True)
class Figure:
    """A chart drawn by plotext, without crosshair and flags."""

    lines: Sequence[Strip]
    left: int
    """Cells of the y axis and its labels."""
    cells: int
    """Cells of the curves."""
    off: int
    """Columns with a value that the scale leaves out."""


EMPTY = Figure((), 0, 0, 0)


@dataclass(frozen=True)
class Curves:
    """What a figure is of."""

    tone: Callable[[str], Style]
    run: Run
    key: str
    """The metric."""
    sight: Sight
    lens: Lens

    def figure(self, width: int, height: int) -> Figure:
        """The curves and their axes; the scale is found first, for its labels take room."""
        raw, others = self._buckets(area(width, []))
        rows = max(2, height - 3)  # from the lowest row of the plot to its highest
        scales = [
            y_scale([*raw, *others], self.lens, max(1.0, rows / every)) for every in TICK_ROWS
        ]
        scale = min(scales, key=lambda scale: (scale.high - scale.low, -len(scale.ticks)))
        labels = scale.labels
        cells = area(width, labels)
        if cells != area(width, []):
            raw, others = self._buckets(cells)
        y_ticks = list(zip(map(scale.share, scale.ticks), labels, strict=True))
        averages = self._averages(raw, others, scale)
        lines = plot(averages, self._x_ticks(cells), y_ticks, width, height, self.tone("dim"))
        left = label_width(labels) + 1
        strips = [Strip(parts) for parts in lines]
        behind = self._ranges(raw, others, scale, cells, len(strips) - AXIS_ROWS)
        strips[: len(behind)] = [
            _under(strip, left, runs) for strip, runs in zip(strips, behind, strict=False)
        ]
        off = beyond(raw, scale) if self.lens.clip else 0
        return Figure(strips, left, cells, off)

    def _buckets(self, cells: int) -> tuple[list[Bucket], list[Bucket]]:
        run, lens, sight = self.run, self.lens, self.sight
        return sight.buckets(run, self.key, lens, cells), sight.others(run, self.key, lens, cells)

    def _averages(
        self, raw: Sequence[Bucket], others: Sequence[Bucket], scale: Scale
    ) -> list[Signal]:
        """The moving averages, the run's own on top.

        Where nothing is smoothed, one point of the curve, without which there are no axes.
        """
        if not self.lens.weight:
            first = [(2.0 * b.column, scale.share(b.low)) for b in raw[:1]]
            return [Signal([x], [y], self.tone("accent")) for x, y in first]
        found = [
            Signal(*_average(others, scale), self.tone("plain")),
            Signal(*_average(raw, scale), self.tone("accent")),
        ]
        return [signal for signal in found if signal.xs]

    def _ranges(
        self,
        raw: Sequence[Bucket],
        others: Sequence[Bucket],
        scale: Scale,
        cells: int,
        rows: int,
    ) -> list[list[tuple[str, Style | None]]]:
        """The ranges of the raw values, row by row: each a text and its style, None where blank.

        A noisy curve is a solid block of dots, which plotext would take long to fill.
        """
        if not self.lens.ranged:
            return []
        columns = 2 * cells
        wide = [bucket._replace(column=2 * bucket.column) for bucket in raw]
        beside = [] if self.lens.weight else [b._replace(column=2 * b.column) for b in others]
        drawing = braille.draw(wide, scale, columns, 4 * rows, smoothed=False, others=beside)
        tones = {
            "line": self.tone("faint" if self.lens.weight else "accent"),
            "other": self.tone("plain"),
        }
        return [
            [(run.text, tones.get(run.kind)) for run in row] for row in braille.rows(drawing, rows)
        ]

    def _x_ticks(self, cells: int) -> list[Tick]:
        low, high = self.sight.reach(self.run, self.lens)
        dots = (2 * cells - 1) / (high - low)
        found = marks(self.sight.axis(self.run, self.lens), low, high, max(1, cells // TICK_CELLS))
        return [((value - low) * dots, label) for value, label in found]


def _under(strip: Strip, left: int, behind: Sequence[tuple[str, Style | None]]) -> Strip:
    """The line with others behind it, seen where it is blank."""
    if all(style is None for _, style in behind):
        return strip
    front = [(char, segment.style) for segment in strip for char in segment.text]
    place = left
    for text, style in behind:
        if style is not None:
            for at, char in enumerate(text, start=place):
                if front[at][0] == " ":
                    front[at] = char, style
        place += len(text)
    return Strip(
        Segment("".join(char for char, _ in alike), style)
        for style, alike in groupby(front, key=itemgetter(1))
    )


def _average(buckets: Sequence[Bucket], scale: Scale) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for bucket in buckets:
        if not bucket.joined:
            xs.append(2 * bucket.column)
            ys.append(nan)
        xs.append(2 * bucket.column)
        ys.append(scale.share(bucket.smooth))
    return xs, ys
