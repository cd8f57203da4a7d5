"""MetricGrid: a small chart of every metric that arrives, as many side by side as fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter

from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.tui.widgets.chart import NUMBERS, BrailleChart, ChartData, Look, RunChart
from hud_tui.tui.widgets.lines import line

LEAST = 24
"""Cells of the narrowest chart."""
GAP = 2
PATIENCE_S = 0.006
"""Of a frame, for drawing charts anew; the rest of them follow in the next ones."""
ROOMY = 50
"""Rows of a screen on which a curve has three rows instead of two."""
TONES = ("plain", "strong", "dim", "faint", "accent", "warm")


class MetricGrid(RunChart):
    """The chosen metric stays chosen, whatever others arrive."""

    keys: reactive[Sequence[str]] = reactive[Sequence[str]]((), repaint=False)
    """The metrics to show, in this order."""
    hidden: reactive[int] = reactive(0, repaint=False)
    """How many metrics are not among them."""
    chosen: reactive[str] = reactive("", repaint=False)
    """The metric of the focus chart, under the cursor here."""

    @dataclass
    class Chosen(Message):
        """The user chose this metric."""

        key: str

    @dataclass
    class Pointed(Message):
        """The user wants the crosshair at this row."""

        row: int

    @dataclass
    class Opened(Message):
        """The user wants what enter does on the chosen metric."""

    def __init__(self, sight: ChartData) -> None:
        super().__init__(sight)
        self._charts: dict[str, BrailleChart] = {}
        self._until = inf
        self._late = False
        """Whether a chart is still to be drawn anew."""

    @property
    def index(self) -> int:
        """Where the chosen metric is; the first place where it is not among those shown."""
        return self.keys.index(self.chosen) if self.chosen in self.keys else 0

    @property
    def curve_rows(self) -> int:
        """Rows of a chart's curve, below its title."""
        return 3 if self.app.size.height >= ROOMY else 2

    @property
    def tall(self) -> int:
        """Rows of a chart."""
        return self.curve_rows + 1

    @property
    def grid_rows(self) -> int:
        """Charts one below another."""
        return -(-len(self.keys) // self.per_row)

    @property
    def per_row(self) -> int:
        """Charts side by side."""
        return max(1, (self.width + GAP) // (LEAST + GAP))

    def watch_keys(self) -> None:
        self._charts = {key: self._charts.get(key) or BrailleChart(key) for key in self.keys}
        self.refresh(layout=True)
        self.redraw()

    def watch_hidden(self) -> None:
        self.redraw()

    def watch_chosen(self) -> None:
        self._show_chosen()
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, self.grid_rows) * self.tall + 1

    def title(self, width: int) -> str:
        below = self.grid_rows - (self.scroll_offset.y + self.body_rows) // self.tall
        more = f" · {below} more rows below" if below > 0 else ""
        hidden = f" · {self.hidden} hidden" if self.hidden else ""
        return f"metrics · {len(self.keys)}{hidden}{more}"

    @property
    def count(self) -> int:
        return self.grid_rows * self.tall

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not rows:
            return []
        self._until, self._late = perf_counter() + PATIENCE_S, False
        first, last = rows.start // self.tall, (rows.stop - 1) // self.tall
        strips = [strip for row in range(first, last + 1) for strip in self._row(row, width)]
        if self._late:
            self.call_after_refresh(self.redraw)
        above = rows.start - first * self.tall
        return strips[above : above + len(rows)]

    def _row(self, row: int, width: int) -> list[Strip]:
        cell = (width + GAP) // self.per_row - GAP
        tones = {name: self.tone(name) for name in TONES}
        tones["cursor"] = self.tone("cursor" if self.has_focus else "cursor-blurred")
        keys = self.keys[row * self.per_row : (row + 1) * self.per_row]
        chosen = self.keys[self.index]
        size = cell, self.curve_rows
        look = Look(self.run, self.sight, self.lens, tones, self.pointed, *size)
        charts = [self._chart(key, look, key == chosen) for key in keys]
        gap = line((" " * GAP, tones["plain"]))
        return [
            Strip.join([part for strip in strips for part in (strip, gap)][:-1])
            for strips in zip(*charts, strict=True)
        ]

    def _chart(self, key: str, look: Look, chosen: bool) -> Sequence[Strip]:
        """A chart as it is; as it was, where the others have taken long already."""
        chart = self._charts[key]
        if perf_counter() < self._until or not chart.drawn(look):
            return chart.strips(look, chosen)
        self._late = True
        return chart.last

    def move(self, columns: int, rows: int) -> None:
        """Choose the metric so many places away."""
        target = self.index + columns + rows * self.per_row
        if 0 <= target < len(self.keys):
            self.post_message(self.Chosen(self.keys[target]))

    def move_page(self, pages: int) -> None:
        """Choose one as many rows away as are in sight, or as far as there are any."""
        rows = max(1, self.body_rows // self.tall)
        ways = range(rows, 0, -1)
        steps = (pages * way * self.per_row for way in ways)
        step = next((s for s in steps if 0 <= self.index + s < len(self.keys)), 0)
        if step:
            self.move(step, 0)

    def _show_chosen(self) -> None:
        """Bring the chosen metric into sight."""
        row = self.index // self.per_row * self.tall
        low, high = row + self.tall - self.body_rows, row
        self.scroll_to(y=min(high, max(low, self.scroll_offset.y)), animate=False)

    def on_click(self, event: Click) -> None:
        """Choose a metric; in the curve of the chosen one, point at a step; twice, open that."""
        cell = (self.width + GAP) // self.per_row
        column, line_ = min(self.per_row - 1, event.x // cell), event.y - 1 + self.scroll_offset.y
        place = line_ // self.tall * self.per_row + column
        if not event.y or place >= len(self.keys):
            return
        if event.chain == 2:
            self.post_message(self.Opened())
        elif self.keys[place] != self.chosen or not line_ % self.tall:
            self.post_message(self.Chosen(self.keys[place]))
        elif (row := self._row_at(event.x - column * cell, cell - GAP - NUMBERS)) is not None:
            self.post_message(self.Pointed(row))

    def _row_at(self, place: int, cells: int) -> int | None:
        """The step nearest to a cell of a curve; None beside it."""
        inside = 0 <= place < cells
        return self.sight.row(self.run, self.lens, 2 * place, 2 * cells) if inside else None
