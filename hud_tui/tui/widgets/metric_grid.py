"""MetricGrid: a small chart of every metric that arrives, as many side by side as fit."""

from dataclasses import dataclass

from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.metrics import ranked
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.chart import BrailleChart
from hud_tui.tui.widgets.lens import Sight
from hud_tui.tui.widgets.lines import line
from hud_tui.tui.widgets.run_chart import RunChart

LEAST = 24
"""Cells of the narrowest chart."""
GAP = 2
ROOMY = 50
"""Rows of a screen on which a curve has three rows instead of two."""
TONES = ("plain", "strong", "dim", "faint", "accent")


class MetricGrid(RunChart):
    """The cursor stays on its metric, whatever others arrive."""

    focus_key: reactive[str] = reactive("", repaint=False)
    """The metric of the focus chart."""
    cursor: reactive[str] = reactive("", repaint=False)
    """The metric under the cursor; the first one where it is not among the run's."""

    @dataclass
    class Chosen(Message):
        """The user wants this metric in the focus chart."""

        key: str

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._keys: list[str] = []

    @property
    def index(self) -> int:
        """Where the cursor is among the metrics."""
        return self._keys.index(self.cursor) if self.cursor in self._keys else 0

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
        return -(-len(self._keys) // self.per_row)

    @property
    def per_row(self) -> int:
        """Charts side by side."""
        return max(1, (self.width + GAP) // (LEAST + GAP))

    def watch_run(self, before: Run, run: Run) -> None:
        if len(run.series.keys) != len(self._keys) or not run.series.same_rows(before.series):
            self._keys = ranked(run.series.keys)
            self.refresh(layout=True)
        super().watch_run(before, run)

    def watch_focus_key(self) -> None:
        self.redraw()

    def watch_cursor(self) -> None:
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, self.grid_rows) * self.tall + 1

    def title(self, width: int) -> str:
        below = self.grid_rows - (self.scroll_offset.y + self.body_rows) // self.tall
        more = f" · {below} more rows below" if below > 0 else ""
        return f"metrics · {len(self._keys)}{more}"

    @property
    def count(self) -> int:
        return self.grid_rows * self.tall

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not rows:
            return []
        first, last = rows.start // self.tall, (rows.stop - 1) // self.tall
        strips = [strip for row in range(first, last + 1) for strip in self._row(row, width)]
        above = rows.start - first * self.tall
        return strips[above : above + len(rows)]

    def _row(self, row: int, width: int) -> list[Strip]:
        cell = (width + GAP) // self.per_row - GAP
        tones = {name: self.tone(name) for name in TONES}
        tones["cursor"] = self.tone("cursor" if self.has_focus else "cursor-blurred")
        keys = self._keys[row * self.per_row : (row + 1) * self.per_row]
        cursor = self._keys[self.index]
        charts = [
            BrailleChart(key, key == self.focus_key, key == cursor).strips(
                self.run, self.sight, self.lens, tones, cell, self.curve_rows
            )
            for key in keys
        ]
        gap = line((" " * GAP, tones["plain"]))
        return [
            Strip.join([part for strip in strips for part in (strip, gap)][:-1])
            for strips in zip(*charts, strict=True)
        ]

    def move(self, columns: int, rows: int) -> None:
        """Move the cursor, and bring it into sight."""
        if not self._keys:
            return
        target = self.index + columns + rows * self.per_row
        if 0 <= target < len(self._keys):
            self.cursor = self._keys[target]
            self._show_cursor()

    def move_page(self, pages: int) -> None:
        """Move the cursor by as many rows as are in sight, or as far as it goes."""
        rows = max(1, self.body_rows // self.tall)
        ways = range(rows, 0, -1)
        steps = (pages * way * self.per_row for way in ways)
        step = next((s for s in steps if 0 <= self.index + s < len(self._keys)), 0)
        self.move(step, 0)

    def choose(self) -> None:
        """Ask for the metric under the cursor as the focus chart."""
        if self._keys:
            self.post_message(self.Chosen(self._keys[self.index]))

    def _show_cursor(self) -> None:
        row = self.index // self.per_row * self.tall
        low, high = row + self.tall - self.body_rows, row
        self.scroll_to(y=min(high, max(low, self.scroll_offset.y)), animate=False)

    def on_click(self, event: Click) -> None:
        cell = (self.width + GAP) // self.per_row
        column = min(self.per_row - 1, event.x // cell)
        place = (event.y - 1 + self.scroll_offset.y) // self.tall * self.per_row + column
        if 0 <= place < len(self._keys):
            self.cursor = self._keys[place]
            self.choose()
