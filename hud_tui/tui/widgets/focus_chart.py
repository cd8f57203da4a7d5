"""FocusChart: the metric that is looked at, large, with its axes."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.progress import awaiting
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.chart_mouse import ChartMouse
from hud_tui.tui.widgets.figure import AXIS_ROWS, EMPTY, Curves, Figure
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.readout import focus_heading

LEAST_ROWS, LEAST_CELLS = 3, 20
"""Room that a figure needs."""


class FocusChart(ChartMouse, can_focus=False):
    """A figure, with the crosshair and the alarms' flags over it.

    The figure is kept, so that moving the crosshair draws no curve anew.
    """

    key: reactive[str] = reactive("", repaint=False)
    """The metric."""

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
        lines = self._banded(self._flagged(figure))
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

    def _banded(self, lines: Sequence[Strip]) -> Sequence[Strip]:
        """The figure with the span that is being drawn on another ground, between two lines."""
        if self.band is None:
            return lines
        first, last = self.band
        ground = Style(bgcolor=self.tone("cursor-blurred").bgcolor)

        def banded(strip: Strip) -> Strip:
            edged = self._crossed(self._crossed(strip, first), last)
            inside = edged.crop(first, last + 1).apply_style(ground)
            return Strip.join([edged.crop(0, first), inside, edged.crop(last + 1)])

        return [*map(banded, lines[:-AXIS_ROWS]), *lines[-AXIS_ROWS:]]

    def _crossed(self, strip: Strip, cell: int) -> Strip:
        free = strip.crop(cell, cell + 1).text == " "
        return _put(strip, cell, Segment("┊", self.tone("dim"))) if free else strip

    def _kept(self, width: int, height: int) -> Figure:
        reach = self.sight.reach(self.run, self.lens)
        stamp = (self.run.series, reach, self.lens, self.key, width, height)
        if stamp != self._stamp:
            curves = Curves(self.tone, self.run, self.key, self.sight, self.lens)
            self._figure, self._stamp = curves.figure(width, height), stamp
        return self._figure

    def row_at(self, cell: int, within: bool = True) -> int | None:
        figure, place = self._figure, cell - self._figure.left
        if not self.drawable or (within and not 0 <= place < figure.cells):
            return None
        place = max(0, min(figure.cells - 1, place))
        return self.sight.row(self.run, self.lens, 2 * place, 2 * figure.cells)

    def share_at(self, cell: int) -> float:
        figure = self._figure
        return max(0.0, min(1.0, (cell - figure.left) / max(1, figure.cells - 1)))


def _put(strip: Strip, cell: int, segment: Segment) -> Strip:
    """The line with one cell replaced."""
    return Strip.join([strip.crop(0, cell), Strip([segment]), strip.crop(cell + 1)])
