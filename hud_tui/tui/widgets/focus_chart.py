"""FocusChart: the metric that is looked at, large, with its axes."""

from math import nan

from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.axis import Axis, marks
from hud_tui.rl.curves import DELTA_STEPS, Bucket, Curve
from hud_tui.rl.metrics import metric, short, signed
from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.rl.scale import Scale
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.widgets.lens import y_scale
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.plot import Signal, Tick, area, plot
from hud_tui.tui.widgets.run_chart import RunChart

LEAST_ROWS, LEAST_CELLS = 3, 20
"""Room that a figure needs."""
TICK_ROWS = (3, 2, 4)
"""Rows from one tick of the y axis to the next; whichever leaves the least empty."""
TICK_CELLS = 16
"""Cells between two ticks of the x axis, about."""


class FocusChart(RunChart, can_focus=False):
    """The moving average over the range of the raw values, drawn by plotext."""

    key: reactive[str] = reactive("", repaint=False)
    """The metric."""

    def watch_key(self) -> None:
        self.redraw()

    @property
    def count(self) -> int:
        return self.body_rows

    def heading(self, width: int) -> Strip:
        if self.key not in self.run.series.keys:
            return self._nothing(width)
        return self._readout(self.sight.curve(self.run, self.key, self.lens), width)

    def draw(self, width: int, rows: range) -> list[Strip]:
        drawn = self.key in self.run.series.keys and len(rows) >= LEAST_ROWS
        return self._figure(width, len(rows)) if drawn and width >= LEAST_CELLS else []

    def _figure(self, width: int, height: int) -> list[Strip]:
        """The curve and its axes; the scale is found first, for its labels take room."""
        run, lens = self.run, self.lens
        raw = self.sight.buckets(run, self.key, lens, area(width, []))
        rows = max(2, height - 3)  # from the lowest row of the plot to its highest
        scales = [y_scale(raw, lens.log, max(1.0, rows / every)) for every in TICK_ROWS]
        scale = min(scales, key=lambda scale: (scale.high - scale.low, -len(scale.ticks)))
        labels = scale.labels
        cells = area(width, labels)
        if cells != area(width, []):
            raw = self.sight.buckets(run, self.key, lens, cells)
        signals = [Signal(*_range(raw, scale), self.tone("faint" if lens.weight else "accent"))]
        if lens.weight:
            signals.append(Signal(*_average(raw, scale), self.tone("accent")))
        y_ticks = list(zip(map(scale.share, scale.ticks), labels, strict=True))
        x_ticks = self._x_ticks(cells)
        drawn = [signal for signal in signals if signal.xs]
        lines = plot(drawn, x_ticks, y_ticks, width, height, self.tone("dim"))
        return [Strip(segments) for segments in lines]

    def _x_ticks(self, cells: int) -> list[Tick]:
        low, high = self.sight.reach(self.run, self.lens)
        dots = (2 * cells - 1) / (high - low)
        found = marks(self.sight.axis(self.run, self.lens), low, high, max(1, cells // TICK_CELLS))
        return [((value - low) * dots, label) for value, label in found]

    def _readout(self, curve: Curve, width: int) -> Strip:
        readout = curve.readout(self.run.series.length)
        known = metric(self.key)
        numbers = [("raw", short(readout.raw)), (f"Δ{DELTA_STEPS}", signed(readout.delta))]
        if self.lens.weight:
            numbers.insert(0, (f"ema {self.lens.weight:g}", short(readout.smooth)))
        parts = [(f" {one_line(known.title, 40)} ", self.tone("strong"))]
        for name, text in (number for number in numbers if number[1]):
            parts += [(f"  {name} ", self.tone("dim")), (text.ljust(6), self.tone("plain"))]
        left = line(*parts)
        words = [word for word in self._modes(curve) if word]
        while words and left.cell_length + len(" · ".join(words)) + 3 > width:
            words.pop()
        right = " · ".join(words) + " "
        room = max(0, width - left.cell_length - len(right))
        meaning = f"  {known.meaning}" if len(known.meaning) + 4 <= room else ""
        middle = fit_text(meaning, room)
        return line(*parts, (middle, self.tone("dim")), (right, self.tone("dim"))).crop(0, width)

    def _modes(self, curve: Curve) -> list[str]:
        missing = curve.missing
        return [
            f"⚠ {missing} missing" if missing else "",
            "log" if self.lens.log else "",
            self._axis_said(),
            steps_said(self.run),
        ]

    def _axis_said(self) -> str:
        wanted = self.lens.axis
        if wanted is Axis.STEP:
            return ""
        known = self.sight.axis(self.run, self.lens) is wanted
        return f"by {wanted}" if known else f"by step: no {wanted} known"

    def _nothing(self, width: int) -> Strip:
        text = fit_text(f" {one_line(awaiting(self.run), 500)}", width)
        return line((text, self.tone("dim")))


def steps_said(run: Run) -> str:
    """How many steps the curves are long; their last one by name where it has another number."""
    length, head = run.series.length, run.head
    if head is None or head.step in (None, length):
        return f"step {length}"
    return f"{length} steps up to {one_line(label(head), 24)}"


def _range(buckets: list[Bucket], scale: Scale) -> tuple[list[float], list[float]]:
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


def _average(buckets: list[Bucket], scale: Scale) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for bucket in buckets:
        if not bucket.joined:
            xs.append(2 * bucket.column)
            ys.append(nan)
        xs.append(2 * bucket.column)
        ys.append(scale.share(bucket.smooth))
    return xs, ys
