"""FocusChart: the metric that is looked at, large, with its axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.axis import marks
from hud_tui.rl.curves import Bucket
from hud_tui.rl.progress import awaiting
from hud_tui.rl.scale import Scale
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.plot import Signal, Tick, area, label_width, plot
from hud_tui.tui.widgets.readout import focus_heading
from hud_tui.tui.widgets.run_chart import RunChart
from hud_tui.tui.widgets.sight import beyond, y_scale

LEAST_ROWS, LEAST_CELLS = 3, 20
"""Room that a figure needs."""
TICK_ROWS = (3, 2, 4)
"""Rows from one tick of the y axis to the next; whichever leaves the least empty."""
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
        signals = self._signals(raw, others, scale)
        lines = plot(signals, self._x_ticks(cells), y_ticks, width, height, self.tone("dim"))
        off = beyond(raw, scale) if self.lens.clip else 0
        return Figure([Strip(parts) for parts in lines], label_width(labels) + 1, cells, off)

    def _buckets(self, cells: int) -> tuple[list[Bucket], list[Bucket]]:
        run, lens, sight = self.run, self.lens, self.sight
        return sight.buckets(run, self.key, lens, cells), sight.others(run, self.key, lens, cells)

    def _signals(
        self, raw: Sequence[Bucket], others: Sequence[Bucket], scale: Scale
    ) -> list[Signal]:
        """The curves from the lowest layer to the highest."""
        smoothed = self.lens.weight > 0
        curve = _average if smoothed else _range
        found = [
            Signal(*_range(raw, scale), self.tone("faint"))
            if smoothed and self.lens.ranged
            else None,
            Signal(*curve(others, scale), self.tone("plain")),
            Signal(*curve(raw, scale), self.tone("accent")),
        ]
        return [signal for signal in found if signal is not None and signal.xs]

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


def _range(buckets: Sequence[Bucket], scale: Scale) -> tuple[list[float], list[float]]:
    """Least and greatest of each cell, one after the other: at most two points a column."""
    xs: list[float] = []
    ys: list[float] = []
    for bucket in buckets:
        if not bucket.joined:
            xs.append(2 * bucket.column)
            ys.append(nan)
        low, high = scale.share(bucket.low), scale.share(bucket.high)
        xs += [2 * bucket.column] if low == high else [2 * bucket.column] * 2
        ys += [low] if low == high else [low, high]
    return xs, ys


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
