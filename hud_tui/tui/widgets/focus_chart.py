"""FocusChart: the metric that is looked at, large, with its axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan
from operator import itemgetter

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.axis import marks
from hud_tui.rl.curves import Bucket
from hud_tui.rl.progress import awaiting
from hud_tui.rl.scale import Scale
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets import braille
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.plot import Signal, Tick, area, label_width, plot
from hud_tui.tui.widgets.readout import focus_heading
from hud_tui.tui.widgets.run_chart import RunChart
from hud_tui.tui.widgets.sight import beyond, y_scale

LEAST_ROWS, LEAST_CELLS = 3, 20
"""Room that a figure needs."""
TICK_ROWS = (3, 2, 4)
"""Rows from one tick of the y axis to the next; whichever leaves the least empty."""
AXIS_ROWS = 2
"""Rows of a figure below its curves."""
TICK_CELLS = 16
"""Cells between two ticks of the x axis, about."""


@dataclass(frozen=True)
class Figure:
    """A drawn chart without its crosshair."""

    lines: Sequence[Strip]
    left: int
    """Cells of the y axis and its labels."""
    cells: int
    """Cells of the curves."""
    off: int
    """Columns with a value that the scale leaves out."""


EMPTY = Figure((), 0, 0, 0)


class FocusChart(RunChart, can_focus=False):
    """The moving average over the range of the raw values, drawn by plotext.

    The figure is kept, so that moving the crosshair draws no curve anew.
    """

    key: reactive[str] = reactive("", repaint=False)
    """The metric."""

    @dataclass
    class Pointed(Message):
        """The user wants the crosshair at this step."""

        row: int

    _stamp: object = None
    _figure = EMPTY

    def watch_key(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        self._stamp = None
        super().notify_style_update()

    @property
    def count(self) -> int:
        return self.body_rows

    @property
    def drawable(self) -> bool:
        """Whether there is something to draw, and room for it."""
        room = self.body_rows >= LEAST_ROWS and self.width >= LEAST_CELLS
        return room and self.key in self.run.series.keys

    def heading(self, width: int) -> Strip:
        if self.key not in self.run.series.keys:
            text = fit_text(f" {one_line(awaiting(self.run), 500)}", width)
            return line((text, self.tone("dim")))
        off = self._kept(width, self.body_rows).off if self.drawable else 0
        tones = {name: self.tone(name) for name in ("strong", "dim", "plain", "warm")}
        return focus_heading(self.key, self.run, self.sight, self.lens, self.pointed, off).strip(
            tones, width
        )

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        if not self.drawable:
            return []
        figure = self._kept(width, len(rows))
        lines = self._flagged(figure)
        cursor = self.pointed
        column = (
            None
            if cursor is None
            else self.sight.column(self.run, self.lens, cursor, 2 * figure.cells)
        )
        if column is None:
            return lines
        cell = figure.left + column // 2
        *plotted, below = [self._crossed(strip, cell) for strip in lines[:-1]]
        foot = Segment("▲", self.tone("strong"))
        return [*plotted, _put(below, cell, foot), lines[-1]]

    def _flagged(self, figure: Figure) -> Sequence[Strip]:
        """The figure with a flag on its x axis where each alarm began."""
        run, axis = self.run, figure.lines[-2]
        columns = {
            self.sight.column(run, self.lens, alarm.row, 2 * figure.cells)
            for alarm in run.alarms.alarms
            if alarm.row < run.series.length
        }
        for column in columns - {None}:
            axis = _put(axis, figure.left + (column or 0) // 2, Segment("⚑", self.tone("warm")))
        return [*figure.lines[:-2], axis, figure.lines[-1]]

    def _crossed(self, strip: Strip, cell: int) -> Strip:
        free = strip.crop(cell, cell + 1).text == " "
        return _put(strip, cell, Segment("┊", self.tone("dim"))) if free else strip

    def _kept(self, width: int, height: int) -> Figure:
        reach = self.sight.reach(self.run, self.lens)
        stamp = (self.run.series, reach, self.lens, self.key, width, height)
        if stamp != self._stamp:
            self._figure, self._stamp = self._drawn(width, height), stamp
        return self._figure

    def _drawn(self, width: int, height: int) -> Figure:
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

    def on_click(self, event: Click) -> None:
        figure = self._figure
        place = 2 * (event.x - figure.left)
        if self.drawable and 0 <= place < 2 * figure.cells:
            row = self.sight.row(self.run, self.lens, place, 2 * figure.cells)
            if row is not None:
                self.post_message(self.Pointed(row))


def _put(strip: Strip, cell: int, segment: Segment) -> Strip:
    """The line with one cell replaced."""
    return Strip.join([strip.crop(0, cell), Strip([segment]), strip.crop(cell + 1)])


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
