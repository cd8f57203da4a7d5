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
from hud_tui.tui.widgets.lens import Lens, Sight
from hud_tui.tui.widgets.lines import LinesView, line

LEAST = 24
"""Cells of the narrowest chart."""
GAP = 2
ROOMY = 50
"""Rows of a screen on which a curve has three rows instead of two."""
TONES = ("plain", "strong", "dim", "faint", "accent")


class MetricGrid(LinesView):
    """The cursor stays on its metric, whatever others arrive."""

    run: reactive[Run] = reactive(Run, repaint=False)
    lens: reactive[Lens] = reactive(Lens, repaint=False)
    focus_key: reactive[str] = reactive("", repaint=False)
    """The metric of the focus chart."""
    cursor: reactive[str] = reactive("", repaint=False)
    """The metric under the cursor; the first one where it is not among the run's."""

    @dataclass
    class Chosen(Message):
        """The user wants this metric in the focus chart."""

        key: str

    def __init__(self, sight: Sight) -> None:
        super().__init__()
        self.sight = sight
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
        return max(1, (self.scrollable_content_region.width + GAP) // (LEAST + GAP))

    def watch_run(self, before: Run, run: Run) -> None:
        if len(run.series.keys) != len(self._keys) or not run.series.same_rows(before.series):
            self._keys = ranked(run.series.keys)
            self.refresh(layout=True)
        if run.series is not before.series or run.training != before.training:
            self.redraw()

    def watch_lens(self) -> None:
        self.redraw()

    def watch_focus_key(self) -> None:
        self.redraw()

    def watch_cursor(self) -> None:
        self.redraw()

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.redraw()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, self.grid_rows) * self.tall

    def title(self, width: int) -> str:
        below = self.grid_rows - (self.scroll_offset.y + self.size.height) // self.tall
        more = f" · {below} more rows below" if below > 0 else ""
        return f"metrics · {len(self._keys)}{more}"

    def draw(self, width: int) -> list[Strip]:
        """The charts in sight; those that are not are blank until they are."""
        top = self.scroll_offset.y // self.tall
        bottom = -(-(self.scroll_offset.y + self.size.height) // self.tall)
        strips: list[Strip] = []
        for row in range(self.grid_rows):
            seen = top <= row < bottom
            strips.extend(self._row(row, width) if seen else [Strip([])] * self.tall)
        return strips

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
        rows = max(1, self.size.height // self.tall)
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
        low, high = row + self.tall - self.size.height, row
        self.scroll_to(y=min(high, max(low, self.scroll_offset.y)), animate=False)

    def on_click(self, event: Click) -> None:
        cell = (self._width + GAP) // self.per_row
        column = min(self.per_row - 1, event.x // cell)
        place = (event.y + self.scroll_offset.y) // self.tall * self.per_row + column
        if place < len(self._keys):
            self.cursor = self._keys[place]
            self.choose()
