"""The groups of one step: a row a task with its rewards, and how the task fared before."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.segment import Segment
from textual.strip import Strip

from hud_tui.rl.group_rows import GroupRow, GroupRows
from hud_tui.rl.groups import GroupStats, histogram
from hud_tui.rl.history import GroupHistory, Mark, first_shown
from hud_tui.rl.metrics import short
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.lines import Toned, fit_text, joined, line
from hud_tui.tui.widgets.palette import ALL_BAD, ALL_GOOD, eighth, mark_glyph, reward_style

BINS = 10
VERDICT = 10
NUMBERS = 17
"""Cells of ``mean ± spread`` and the space after it."""
NARROW = 58
"""Cells across below which there is no room for the verdict."""
LEAST_STRIP = 10
"""Cells that a history is worth drawing in."""


@dataclass(frozen=True)
class RewardFace:
    """Draws rows with a pane's tones."""

    tone: Toned
    groups: GroupRows
    history: GroupHistory

    def names(self, width: int) -> Strip:
        """What the columns are."""
        scale = f"{short(self.groups.low)}{short(self.groups.high):>{BINS - 1}}"
        text = f" {'task':<{_slug_width(width)}} {'mean':>6} ± {'spread':<8}{scale}"
        past = f"until now: colour mean, height spread, {ALL_GOOD} {ALL_BAD} none"
        room = _strip_room(width)
        past = past if len(past) <= room else "until now" if room >= LEAST_STRIP else ""
        return line((text + past.rjust(max(0, width - len(text) - 1)), self.tone("faint")))

    def row(self, row: GroupRow, width: int, picked: bool) -> Strip:
        slug = _slug_width(width)
        name = f" {fit_text(one_line(row.task_slug, 60), slug)} "
        parts = [
            Segment(name, self.tone("cursor" if picked else "plain")),
            *self._numbers(row.stats),
            *self._bars(row),
            Segment("  "),
            Segment(fit_text(verdict(row), VERDICT), self.tone("dim")),
        ]
        if (room := _strip_room(width)) >= LEAST_STRIP:
            marks = list(self.history.of(row.task_slug))
            first = first_shown(self.history.seen(row.task_slug), room)
            newest = marks[max(0, len(marks) - self.history.seen(row.task_slug) + first) :]
            parts += strip(newest, room, self.groups)
        return Strip(parts)

    def _numbers(self, stats: GroupStats | None) -> list[Segment]:
        if stats is None:
            return [Segment(" " * NUMBERS, self.tone("plain"))]
        return [
            Segment(f"{short(stats.mean):>6}", self.tone("plain")),
            Segment(f" ± {short(stats.spread):<6}  ", self.tone("dim")),
        ]

    def _bars(self, row: GroupRow) -> list[Segment]:
        low, high = self.groups.low, self.groups.high
        return bars(row.rewards, low, high, Segment("·", self.tone("faint")))


def bars(rewards: Sequence[float], low: float, high: float, empty: Segment) -> list[Segment]:
    """A histogram in BINS cells: one bar a bin, the fullest as high as the row."""
    counts = histogram(rewards, BINS, low, high)
    drawn = []
    for place, count in enumerate(counts):
        middle = low + (high - low) * place / (BINS - 1)
        bar = Segment(eighth(count / max(1, *counts)), reward_style(middle, low, high))
        drawn.append(bar if count else empty)
    return drawn


def verdict(row: GroupRow) -> str:
    """What a group teaches, in few words; nothing where it teaches."""
    if row.stats is None:
        return "waiting"
    if not row.whole:
        return f"{len(row.rewards)} of {row.size}"
    if row.stats.all_good:
        return f"{ALL_GOOD} all good"
    return f"{ALL_BAD} all bad" if row.stats.all_bad else ""


def strip(marks: Sequence[Mark], width: int, groups: GroupRows) -> list[Segment]:
    """A task's history, newest last, in `width` cells after a space."""
    cells = [mark_cell(mark, groups.low, groups.high) for mark in marks[-width:]]
    return [Segment(" "), *joined(cells), Segment(" " * (width - len(cells)))]


@lru_cache(1 << 14)
def mark_cell(mark: Mark, low: float, high: float) -> Segment:
    """One group of one step; no group in [low, high] can spread further than a full cell.

    The same groups are drawn again and again, so their cells are kept.
    """
    glyph = mark_glyph(mark.spread, mark.teaches, mark.all_good, (high - low) / 2)
    return Segment(glyph, reward_style(mark.mean, low, high))


def _slug_width(width: int) -> int:
    """Cells of a task's name; where it is narrow, what the numbers and bars leave."""
    if width < NARROW:
        return max(6, width - NUMBERS - BINS - 2)
    return 24 if width >= 140 else 20 if width >= 100 else 16


def _strip_room(width: int) -> int:
    return width - (_slug_width(width) + 2 + NUMBERS + BINS + 2 + VERDICT) - 3
