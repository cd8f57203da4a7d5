"""GroupGrid: each task's rewards of the step under way, and how it fared before."""

from collections.abc import Sequence

from rich.segment import Segment
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.group_rows import GroupRow, GroupRows, Order, group_rows
from hud_tui.rl.groups import GroupStats, histogram
from hud_tui.rl.history import GroupHistory, Mark
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.lines import LinesView, fit_text, line
from hud_tui.tui.widgets.palette import eighth, reward_style

BINS = 10
VERDICT = 10
NUMBERS = 17
"""Cells of ``mean ± spread`` and the space after it."""
NAMES_FROM = 8
"""Rows of the pane from which there is room for the columns' names."""
NARROW = 58
"""Cells across below which there is no room for the verdict."""
STRIP_FROM = 100
"""Cells across from which there is room for the strip."""


class GroupGrid(LinesView):
    """One row a task. In the strip, colour is the mean and height the spread."""

    run: reactive[Run] = reactive(Run, repaint=False)
    order: reactive[Order] = reactive(Order.TASK, repaint=False)
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None for the step under way."""

    def __init__(self) -> None:
        super().__init__()
        self.history = GroupHistory()
        self.groups = GroupRows()

    def watch_run(self, before: Run, run: Run) -> None:
        same = run.rollouts is before.rollouts and run.head is before.head
        if not same or run.job is not before.job:
            self._follow()

    def watch_order(self) -> None:
        self._follow()

    def watch_cursor(self) -> None:
        self._follow()

    def _follow(self) -> None:
        self.history.follow(self.run)
        row, series = self.cursor, self.run.series
        held = row is not None and row < series.length
        at = self.run.tree.find(series.id_at(row or 0)) if held else None
        self.groups = group_rows(self.run, self.history, self.order, at)
        self.redraw()

    def title(self, width: int) -> str:
        if not self.groups.rows:
            return "groups"
        words = [one_line(self.groups.name, 40), self.groups.summary, str(self.order)]
        if len(" · ".join(words)) > width:
            words.pop()
        return " · ".join(words)

    @property
    def count(self) -> int:
        """The groups, and a line with the columns' names where there is room for it."""
        return len(self.groups.rows) + (not self.groups.rows or self.body_rows >= NAMES_FROM)

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not self.groups.rows:
            coming = "Rewards appear here, task by task, as rollouts arrive."
            text = coming if self.run.training else "This step came without groups."
            return [line((f" {text}", self.tone("dim")))]
        named = self.count - len(self.groups.rows)
        body = [self._row(self.groups.rows[row - named], width) for row in rows if row >= named]
        return [self._names(width), *body] if len(body) < len(rows) else body

    def _names(self, width: int) -> Strip:
        scale = f"{short(self.groups.low)}{short(self.groups.high):>{BINS - 1}}"
        text = f" {'task':<{_slug_width(width)}} {'mean':>6} ± {'spread':<8}{scale}"
        past = "until now: colour is the mean, height the spread"
        room = width - len(text)
        return line((text + (past.rjust(room - 1) if room > len(past) else ""), self.tone("faint")))

    def _row(self, row: GroupRow, width: int) -> Strip:
        slug = _slug_width(width)
        parts = [
            Segment(f" {fit_text(one_line(row.task_slug, 60), slug)} ", self.tone("plain")),
            *self._numbers(row.stats),
            *self._bars(row),
            Segment("  "),
            Segment(fit_text(verdict(row), VERDICT), self.tone("dim")),
        ]
        used = slug + 2 + NUMBERS + BINS + 2 + VERDICT
        if width >= STRIP_FROM:
            parts += strip(self.history.of(row.task_slug), width - used - 3, self.groups)
        return Strip(parts)

    def _numbers(self, stats: GroupStats | None) -> list[Segment]:
        if stats is None:
            return [Segment(" " * NUMBERS, self.tone("plain"))]
        return [
            Segment(f"{short(stats.mean):>6}", self.tone("plain")),
            Segment(f" ± {short(stats.spread):<6}  ", self.tone("dim")),
        ]

    def _bars(self, row: GroupRow) -> list[Segment]:
        """The histogram: one bar a bin, the fullest as high as the row."""
        low, high = self.groups.low, self.groups.high
        counts = histogram(row.rewards, BINS, low, high)
        bars = []
        for place, count in enumerate(counts):
            if count:
                middle = low + (high - low) * place / (BINS - 1)
                bars.append(Segment(eighth(count / max(counts)), reward_style(middle, low, high)))
            else:
                bars.append(Segment("·", self.tone("faint")))
        return bars


def _slug_width(width: int) -> int:
    """Cells of a task's name; where it is narrow, what the numbers and bars leave."""
    if width < NARROW:
        return max(6, width - NUMBERS - BINS - 2)
    return 24 if width >= 140 else 20 if width >= STRIP_FROM else 16


def verdict(row: GroupRow) -> str:
    """What a group teaches, in few words; nothing where it teaches."""
    if row.stats is None:
        return "waiting"
    if not row.whole:
        return f"{len(row.rewards)} of {row.size}"
    return "═ all good" if row.stats.all_good else "═ all bad" if row.stats.all_bad else ""


def strip(marks: Sequence[Mark], width: int, groups: GroupRows) -> list[Segment]:
    """A task's history, newest at the right, in `width` cells and a space."""
    newest = list(marks)[-width:] if width > 0 else []
    middle = (groups.high - groups.low) / 2  # no group in [low, high] can spread further
    cells = [
        Segment(
            eighth(max(0.01, mark.spread / middle)),
            reward_style(mark.mean, groups.low, groups.high),
        )
        for mark in newest
    ]
    return [Segment(" " * (width - len(newest) + 1)), *cells]
