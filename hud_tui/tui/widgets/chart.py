"""MetricGrid: one small chart for every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from time import thread_time

from rich.cells import cell_len
from rich.style import Style
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.alarms.alarm import Alarm, Level
from hud_tui.rl.chart import ENVELOPE, HELD, LIMIT, LINE, OTHER, Chart, ChartData, small_plot
from hud_tui.rl.compare import ChartView
from hud_tui.rl.curves import Sign
from hud_tui.rl.metrics import (
    ChartOrder,
    chosen_text,
    metric,
    outside,
    reading,
    short,
    signed,
    title,
)
from hud_tui.rl.own_numbers import HELDOUT, HELDOUT_TRACES, REWARD
from hud_tui.rl.plot import Sketch, Span, crossed, flagged
from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.widgets.figure import FIGURE_TONES
from hud_tui.tui.widgets.lines import LinesView, fit_text, line

NUMBERS = 10
"""Cells to the right of the curve, for the value and its change."""
TONES = {
    LINE: "accent",
    OTHER: "plain",
    HELD: "second",
    LIMIT: "warm",
    ENVELOPE: "faint",
    "mark": "strong",
    "alarm": "warm",
    "head": "accent",
    "branch": "plain",
    **FIGURE_TONES,
}
"""The tone of each part of a chart: layers, flags, axes."""


@dataclass(frozen=True)
class Look:
    """What all charts of a frame share."""

    chart: Chart
    tones: Mapping[str, Style]
    """Styles by name; ``cursor`` is that of a chosen title."""
    alarms: Mapping[str, Alarm]
    """The most severe alarm of each metric that has one."""
    cursor: int | None
    """The row under the crosshair; None reads the newest."""
    width: int
    height: int

    @property
    def cells(self) -> int:
        return max(1, self.width - NUMBERS)


@dataclass
class SmallChart:
    """A metric's small chart: a title above a curve, with two numbers beside it.

    What was drawn is kept until something in it changes.
    """

    key: str
    lines: Sequence[Strip] = ()
    """As last drawn."""
    _stamp: object = None
    _curve_stamp: object = None
    _rows: list[list[Span]] = field(default_factory=list)
    _sketch: Sketch = field(default_factory=Sketch)

    def is_current(self, look: Look, chosen: bool) -> bool:
        """Whether its last lines are what `draw` would draw."""
        return self._stamp == (self._state(look), chosen)

    def fits(self, look: Look) -> bool:
        return len(self.lines) == look.height + 1 and self.lines[0].cell_length == look.width

    def _state(self, look: Look) -> object:
        chart, alarm = look.chart, look.alarms.get(self.key)
        drawn = chart.run.series, chart.reach, chart.view, alarm, look.cursor
        return *drawn, look.width, look.height, look.tones

    def draw(self, look: Look, chosen: bool) -> None:
        """Draw its lines: a title and the curve. `chosen`: whether it is in the focus chart."""
        chart, tones, cursor = look.chart, look.tones, look.cursor
        column = chart.column(cursor, 2 * look.cells)
        readout = chart.readout(self.key, cursor)
        alarm = look.alarms.get(self.key)
        ill = outside(metric(self.key), readout.raw)
        tone = alarm_tone(alarm) or ("warm" if ill else "plain")
        numbers = [(reading(self.key, readout.raw), tone), (signed(readout.delta), "dim")]
        if alarm is not None and alarm.limit is not None:  # of two rows it takes the change's
            numbers[min(2, look.height - 1) :] = [(f"╌ {short(alarm.limit)}", "warm")]
        numbers += [("", "dim")] * look.height
        strips = [self._title(look, chosen, alarm)]
        kinds = TONES | {LINE: alarm_tone(alarm) or "accent"}
        began = {} if alarm is None else {alarm.row: Sign.ALARM}
        curve = flagged(self._curve(look, alarm), chart.flags(began, look.cells))
        for row, (text, tone) in zip(curve, numbers, strict=False):
            marked = crossed(row, None if column is None else column // 2)
            parts = [(span.text, tones[kinds[span.name]]) for span in marked]
            strips.append(line(*parts, (text.rjust(NUMBERS), tones[tone])))
        self.lines, self._stamp = strips, (self._state(look), chosen)

    def _curve(self, look: Look, alarm: Alarm | None) -> list[list[Span]]:
        chart, limit = look.chart, alarm.limit if alarm else None
        stamp = (chart.run.series, chart.reach, chart.view, look.cells, look.height, limit)
        if stamp != self._curve_stamp:
            self._curve_stamp = stamp
            plot = small_plot(chart, self.key, 2 * look.cells, limit)
            self._rows = self._sketch.cells(plot, look.height)
        return self._rows

    def _title(self, look: Look, chosen: bool, alarm: Alarm | None) -> Strip:
        """The longest form that fits: whose number it is gives way to the alarm."""
        sign = "●" if chosen else " "
        text = f"{sign} " if alarm is None else f"{sign} ⚑ "
        name, whole = one_line(title(self.key), 60), metric_title(self.key, look.chart.run)
        forms = [whole, name] if alarm is None else [f"{name}: {alarm.title}", whole, name]
        fits = (form for form in forms if cell_len(text + form) <= look.width)
        text += next(fits, name)
        tone = "cursor" if chosen else alarm_tone(alarm) or "dim"
        return line((fit_text(text, look.width), look.tones[tone]))


def metric_title(key: str, run: Run) -> str:
    """A metric's title; a held-out reward's says that it is of the run, not of an evaluation, and
    the mean of how many rollouts: ``held-out reward (of the run, n 48)``; a mean reward's, if the
    tasks were chosen."""
    name = one_line(title(key), 60)
    if key == REWARD and run.head is not None:
        return f"{name}{chosen_text(run.head.draw)}"
    if key != HELDOUT:
        return name
    rollouts = run.series.last(HELDOUT_TRACES)
    return f"{name} (of the run{f', n {rollouts:.0f}' if isfinite(rollouts) else ''})"


def alarm_tone(alarm: Alarm | None) -> str:
    """The tone of an active alarm; empty without one."""
    if alarm is None or not alarm.active:
        return ""
    return "hot" if alarm.level is Level.CRITICAL else "warm"


class RunChart(LinesView):
    """A pane of curves of the run; drawn again when a step arrives or the view changes."""

    run: reactive[Run] = reactive(Run, repaint=False)
    chart_view: reactive[ChartView] = reactive(ChartView, repaint=False)
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""

    @dataclass
    class Pointed(Message):
        """The user moved the crosshair to this row."""

        row: int

    def __init__(self, chart_data: ChartData) -> None:
        """`chart_data` is shared by all charts of a screen."""
        super().__init__()
        self.chart_data = chart_data
        self._reach = (0.0, 0.0)

    @property
    def chart(self) -> Chart:
        return Chart(self.chart_data, self.run, self.chart_view)

    @property
    def pointed(self) -> int | None:
        here = self.cursor
        return here if here is not None and here < self.run.series.length else None

    def watch_run(self, before: Run, run: Run) -> None:
        reach = self.chart.reach
        waits = awaiting(run) != awaiting(before)
        flags = run.alarms is not before.alarms or run.tree.edition != before.tree.edition
        if run.series is not before.series or reach != self._reach or waits or flags:
            self._reach = reach
            self.redraw()

    watch_chart_view = watch_cursor = LinesView.redraw


CELL_COLUMNS = 36
"""Cells of the narrowest readable chart: about 25 for the curve, and its numbers."""
GAP = 2
PATIENCE_S = 0.006
"""Seconds of processor per frame for redrawing charts; the others follow in the next frames. Time
on the clock would draw them in more frames, each of which costs, the busier the machine is."""
ROOMY = 32
"""Rows of a screen from which a curve has three rows instead of two."""
CELL_TONES = ("plain", "strong", "dim", "faint", "accent", "second", "warm", "hot")


class MetricGrid(RunChart):
    """The charts of all metrics. The chosen metric stays chosen when others arrive."""

    charts: reactive[ChartOrder] = reactive(ChartOrder, repaint=False)
    hidden: reactive[int] = reactive(0, repaint=False)
    """How many metrics the user has hidden."""
    chosen: reactive[str] = reactive("", repaint=False)
    """The metric of the focus chart, under the cursor here."""

    @dataclass
    class Chosen(Message):
        """The user chose this metric."""

        key: str

    @dataclass
    class Opened(Message):
        """The user pressed enter, or clicked twice, on the chosen metric."""

    def __init__(self, chart_data: ChartData) -> None:
        super().__init__(chart_data)
        self._charts: dict[str, SmallChart] = {}
        self._until = inf
        self._late = False
        """Whether a chart is still to be redrawn."""

    @property
    def index(self) -> int:
        return self.keys.index(self.chosen) if self.chosen in self.keys else 0

    @property
    def curve_rows(self) -> int:
        return 3 if self.app.size.height >= ROOMY else 2

    @property
    def tall(self) -> int:
        return self.curve_rows + 1

    @property
    def grid_rows(self) -> int:
        """Charts in a column."""
        return -(-len(self.keys) // self.per_row)

    @property
    def per_row(self) -> int:
        """Charts in a row."""
        return max(1, (self.width + GAP) // (CELL_COLUMNS + GAP))

    @property
    def keys(self) -> Sequence[str]:
        """The metrics that are drawn."""
        return self.charts.charted

    def watch_charts(self) -> None:
        self._charts = {key: self._charts.get(key) or SmallChart(key) for key in self.keys}
        self.refresh(layout=True)
        self.redraw()

    watch_hidden = LinesView.redraw

    def watch_chosen(self) -> None:
        row = self.index // self.per_row * self.tall
        low, high = row + self.tall - self.body_rows, row
        self.scroll_to(y=min(high, max(low, self.scroll_offset.y)), animate=False)
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, self.grid_rows) * self.tall + 1

    def title(self, width: int) -> str:
        below = self.grid_rows - (self.scroll_offset.y + self.body_rows) // self.tall
        more = f" · {counted(below, 'more row')} below" if below > 0 else ""
        still = len(self.charts.constant)
        constant = f" · {still} constant" if still else ""
        hidden = f" · {self.hidden} hidden" if self.hidden else ""
        return f"metrics · {len(self.keys)}{constant}{hidden}{more}"

    @property
    def count(self) -> int:
        return self.grid_rows * self.tall

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not rows:
            return []
        self._until, self._late = thread_time() + PATIENCE_S, False
        first, last = rows.start // self.tall, (rows.stop - 1) // self.tall
        look = self._look(width)
        strips = [strip for row in range(first, last + 1) for strip in self._row(row, look)]
        if self._late:
            self.call_after_refresh(self.redraw)
        above = rows.start - first * self.tall
        return strips[above : above + len(rows)]

    def _look(self, width: int) -> Look:
        cell = (width + GAP) // self.per_row - GAP
        tones = {name: self.tone(name) for name in CELL_TONES}
        tones["cursor"] = self.cursor_tone
        chart, alarms = self.chart, self.run.alarms.by_metric
        return Look(chart, tones, alarms, self.pointed, cell, self.curve_rows)

    def _row(self, row: int, look: Look) -> list[Strip]:
        keys = self.keys[row * self.per_row : (row + 1) * self.per_row]
        chosen = self.keys[self.index]
        charts = [self._chart(key, look, key == chosen) for key in keys]
        gap = line((" " * GAP, look.tones["plain"]))
        return [
            Strip.join([part for strip in strips for part in (strip, gap)][:-1])
            for strips in zip(*charts, strict=True)
        ]

    def _chart(self, key: str, look: Look, chosen: bool) -> Sequence[Strip]:
        """A chart's lines; the previous ones if this frame has no time left."""
        chart = self._charts[key]
        if chart.is_current(look, chosen):
            return chart.lines
        if thread_time() < self._until or not chart.fits(look):
            chart.draw(look, chosen)
        else:
            self._late = True
        return chart.lines

    def move(self, columns: int, rows: int) -> None:
        self.move_to(self.index + columns + rows * self.per_row)

    def move_to(self, index: int) -> None:
        if 0 <= index < len(self.keys):
            self.post_message(self.Chosen(self.keys[index]))

    def move_page(self, pages: int) -> None:
        """Move the choice by as many rows as are visible."""
        rows = max(1, self.body_rows // self.tall)
        ways = range(rows, 0, -1)
        steps = (pages * way * self.per_row for way in ways)
        step = next((s for s in steps if 0 <= self.index + s < len(self.keys)), 0)
        if step:
            self.move(step, 0)

    def on_click(self, event: Click) -> None:
        """Choose a metric, or move the crosshair in the chosen one; two clicks open it."""
        cell = (self.width + GAP) // self.per_row
        column, line_ = min(self.per_row - 1, event.x // cell), event.y - 1 + self.scroll_offset.y
        index = line_ // self.tall * self.per_row + column
        if not event.y or index >= len(self.keys):
            return
        if event.chain == 2:
            self.post_message(self.Opened())
        elif self.keys[index] != self.chosen or not line_ % self.tall:
            self.post_message(self.Chosen(self.keys[index]))
        elif 0 <= (x := event.x - column * cell) < (cells := cell - GAP - NUMBERS):
            row = self.chart.row(2 * x, 2 * cells)
            if row is not None:
                self.post_message(self.Pointed(row))
