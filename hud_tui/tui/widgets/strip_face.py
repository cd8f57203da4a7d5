"""The groups of many steps: a column a step, its groups one above another, best at the top."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.history import Mark, StepMarks, bins
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.widgets.lines import Toned, fit_text, joined, line
from hud_tui.tui.widgets.palette import ALL_BAD, ALL_GOOD
from hud_tui.tui.widgets.reward_face import mark_cell

MARGIN = 1
"""Cells at either side."""
LEGENDS = (
    f"colour mean · height spread · {ALL_GOOD} all good · {ALL_BAD} all bad",
    f"colour mean, height spread, {ALL_GOOD} {ALL_BAD} none",
)
"""What the field's cells mean; the longest that has room."""


@dataclass(frozen=True)
class StripFace:
    """Draws the columns in sight with a pane's tones.

    Where there are more steps than cells, a column is a bin of steps: it shows the last of
    them, or the one under the crosshair.
    """

    tone: Toned
    run: Run
    marks: StepMarks
    span: tuple[int, int]
    """The rows of the lineage in sight: first, and one past the last."""
    cursor: int | None
    """The row of the lineage under the crosshair."""

    def lines(self, width: int, height: int) -> list[Strip]:
        """`height` lines: where the crosshair is, the groups, and what they are."""
        cells = max(1, width - 2 * MARGIN)
        rows = self.rows(cells)
        steps = [self._step(row) for row in rows]
        most = max((len(step) for step in steps), default=0)
        tall = max(0, min(height - 2, most))
        low = min((mark.mean for step in steps for mark in step), default=0.0)
        high = max((mark.mean for step in steps for mark in step), default=1.0)
        scale = min(0.0, low), max(1.0, high)
        here = None if self.cursor not in rows else rows.index(self.cursor)
        body = [self._line(steps, row, tall, most, scale, here) for row in range(tall)]
        return [self._above(here, cells), *body, self._below(width)][:height]

    def rows(self, cells: int) -> Sequence[int]:
        """The row of the lineage that each column shows."""
        found = bins(*self.span, cells)
        return [self._shown(max(first, self.span[0]), first + found.step) for first in found]

    def said(self, width: int) -> str:
        """How many steps a column is; empty where it is one."""
        every = bins(*self.span, max(1, width - 2 * MARGIN)).step
        return f"a column is {every} steps, the last drawn" if every > 1 else ""

    def _shown(self, first: int, stop: int) -> int:
        here = self.cursor
        return here if here is not None and first <= here < stop else min(stop, self.span[1]) - 1

    def _step(self, row: int) -> Sequence[Mark]:
        position = self.run.tree.find(self.run.series.id_at(row))
        return () if position is None else self.marks.of(self.run.tree[position])

    def _line(
        self,
        steps: Sequence[Sequence[Mark]],
        row: int,
        tall: int,
        most: int,
        scale: tuple[float, float],
        here: int | None,
    ) -> Strip:
        """One row of the field; where there are more groups than rows, every n-th of a step.

        The best and the worst are among them.
        """
        cells = [Segment(" " * MARGIN)]
        under = self.tone("cursor-blurred")
        place = round(row * (most - 1) / (tall - 1)) if tall > 1 else most // 2
        for column, step in enumerate(steps):
            cell = mark_cell(step[place], *scale) if place < len(step) else Segment(" ")
            if column == here:
                cell = Segment(cell.text, _on(cell.style, under))
            cells.append(cell)
        return Strip(joined(cells))

    def _above(self, here: int | None, cells: int) -> Strip:
        if here is None or self.cursor is None:
            return line((" " * (MARGIN + cells), self.tone("strong")))
        name = self._name(self.cursor)
        beside = here + len(name) + 2 > cells
        place = f"{name} ▼".rjust(here + 1) if beside else f"{' ' * here}▼ {name}"
        return line((" " * MARGIN + fit_text(place, cells), self.tone("strong")))

    def _below(self, width: int) -> Strip:
        start, stop = self.span
        if start == stop:
            return line((" No steps yet.", self.tone("dim")))
        left = f" {self._name(start)} … {self._name(stop - 1)}"
        room = width - len(left) - 1
        right = next((text for text in LEGENDS if len(text) < room), "")
        return line((left + right.rjust(room), self.tone("faint")))

    def _name(self, row: int) -> str:
        position = self.run.tree.find(self.run.series.id_at(row))
        return short(row + 1) if position is None else one_line(label(self.run.tree[position]), 24)


def _on(style: Style | None, under: Style) -> Style:
    """A style on another's background."""
    return (style or Style()) + Style(bgcolor=under.bgcolor)
