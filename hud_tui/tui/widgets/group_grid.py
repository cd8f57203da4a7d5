"""GroupGrid: the groups of one step, of many steps, or the rollouts without gradient: one pane,
three views."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.keys import keyed
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.compare import ChartView
from hud_tui.rl.groups import (
    GroupHistory,
    GroupRow,
    GroupRows,
    GroupStats,
    Order,
    StepMarks,
    TaskWaste,
    Total,
    Waste,
    bins,
    first_shown,
    group_rows,
    histogram,
)
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line, percent
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.theme import ALL_FAILED, ALL_SOLVED, eighth, mark_glyph, reward_style
from hud_tui.tui.widgets.lines import Cell, LinesView, Toned, fit_text, joined, line, revealed

# The groups of one step: one row per task, with its rewards and its history.


BINS = 10
VERDICT = 12
NUMBERS = 17
"""Width of ``mean ± std`` and the space after it, cells."""
NARROW = 58
"""Width below which there is no room for the verdict, cells."""
LEAST_STRIP = 10
"""Least width of a history, cells."""


@dataclass(frozen=True)
class RewardFace:
    """Draws the rewards of one step."""

    tone: Toned
    groups: GroupRows
    history: GroupHistory

    def names(self, width: int) -> Strip:
        scale = f"{short(self.groups.low)}{short(self.groups.high):>{BINS - 1}}"
        text = f" {'task':<{_slug_width(width)}} {'mean':>6} ± {'std':<8}{scale}"
        room = _strip_room(width)
        forms = (*LEGENDS, "steps so far" if room >= LEAST_STRIP else "")
        past = next((form for form in forms if len(form) <= room), "")
        return line((text + past.rjust(max(0, width - len(text) - 1)), self.tone("faint")))

    def row(self, index: int, width: int, picked: bool) -> Strip:
        row, slug = self.groups.rows[index], _slug_width(width)
        name = f" {fit_text(one_line(row.task_slug, 60), slug)} "
        empty = Segment("·", self.tone("faint"))
        parts = [
            Segment(name, self.tone("cursor" if picked else "plain")),
            *self._numbers(row.stats),
            *bars(row.rewards, self.groups.low, self.groups.high, empty),
            Segment("  "),
            Segment(fit_text(no_signal_text(row), VERDICT), self.tone("dim")),
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
            Segment(f" ± {short(stats.std):<6}  ", self.tone("dim")),
        ]


def bars(rewards: Sequence[float], low: float, high: float, empty: Segment) -> list[Segment]:
    """A histogram in BINS cells: one bar per bin, the fullest as high as the row."""
    counts, drawn = histogram(rewards, BINS, low, high), [empty] * BINS
    fullest = max(counts)
    for bin_index, count in enumerate(counts):
        if count:
            middle = low + (high - low) * bin_index / (BINS - 1)
            drawn[bin_index] = Segment(eighth(count / fullest), reward_style(middle, low, high))
    return drawn


def no_signal_text(row: GroupRow) -> str:
    """Why a group has no signal, in few words; empty if it has."""
    if row.stats is None:
        return "waiting"
    if not row.whole:
        return f"{len(row.rewards)} of {row.size}"
    if row.stats.all_solved:
        return f"{ALL_SOLVED} all solved"
    return f"{ALL_FAILED} all failed" if row.stats.all_failed else ""


def strip(marks: Sequence[GroupStats], width: int, groups: GroupRows) -> list[Segment]:
    """A task's history, newest last, in `width` cells after a space."""
    cells = [mark_cell(mark, groups.low, groups.high) for mark in marks[-width:]]
    return [Segment(" "), *joined(cells), Segment(" " * (width - len(cells)))]


@lru_cache(4096)
def mark_cell(mark: GroupStats, low: float, high: float) -> Cell:
    """One group of one step. A full cell is the largest std that is possible in [low, high].

    Cells are cached, since the same groups are drawn repeatedly.
    """
    glyph = mark_glyph(mark.std, mark.has_signal, mark.all_solved, (high - low) / 2)
    return glyph, reward_style(mark.mean, low, high)


def _slug_width(width: int) -> int:
    """Width of a task's name; on narrow panes, what the numbers and bars leave."""
    if width < NARROW:
        return max(6, width - NUMBERS - BINS - 2)
    return 24 if width >= 140 else 20 if width >= 100 else 16


def _strip_room(width: int) -> int:
    return width - (_slug_width(width) + 2 + NUMBERS + BINS + 2 + VERDICT) - 3


# The groups of many steps: a column per step, its groups from best to worst.


MARGIN = 1
"""Margin on both sides, cells."""
LEGENDS = (
    f"colour: mean · height: std · {ALL_SOLVED} all solved · {ALL_FAILED} all failed",
    f"colour: mean · height: std · {ALL_SOLVED} {ALL_FAILED} no signal",
)
"""Legends of the cells; the longest that fits is used."""


@dataclass(frozen=True)
class StripFace:
    """Draws the visible columns.

    If there are more steps than cells, a column is a bin of steps: it shows the last of them, or
    the one under the crosshair.
    """

    tone: Toned
    run: Run
    marks: StepMarks
    span: tuple[int, int]
    """The visible rows of the lineage: first, and last + 1."""
    cursor: int | None
    """The row of the lineage under the crosshair."""

    def lines(self, width: int, height: int) -> list[Strip]:
        """`height` lines: the position of the crosshair, the groups, and the legend."""
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
        """The row of the lineage in each column."""
        (start, stop), here, steps = self.span, self.cursor, bins(*self.span, cells)
        rows = []
        for first in steps:
            last = min(first + steps.step, stop) - 1
            is_here = here is not None and max(first, start) <= here < first + steps.step
            rows.append(here if is_here and here is not None else last)
        return rows

    def said(self, width: int) -> str:
        """Number of steps per column; empty if it is one."""
        every = bins(*self.span, max(1, width - 2 * MARGIN)).step
        return f"a column is {every} steps, of which the last is drawn" if every > 1 else ""

    def _step(self, row: int) -> Sequence[GroupStats]:
        position = self.run.tree.find(self.run.series.id_at(row))
        return () if position is None else self.marks.of(self.run.tree[position])

    def _line(
        self,
        steps: Sequence[Sequence[GroupStats]],
        row: int,
        tall: int,
        most: int,
        scale: tuple[float, float],
        here: int | None,
    ) -> Strip:
        """One row of groups. If there are more groups than rows, every n-th is shown.

        The best and the worst are always among them.
        """
        cells: list[Cell] = [(" " * MARGIN, None)]
        under = self.tone("cursor-blurred")
        rank = round(row * (most - 1) / (tall - 1)) if tall > 1 else most // 2
        for column, step in enumerate(steps):
            text, style = mark_cell(step[rank], *scale) if rank < len(step) else (" ", None)
            if column == here:
                style = (style or Style()) + Style(bgcolor=under.bgcolor)
            cells.append((text, style))
        return Strip(joined(cells))

    def _above(self, here: int | None, cells: int) -> Strip:
        if here is None or self.cursor is None:
            return line((" " * (MARGIN + cells), self.tone("strong")))
        name = self._name(self.cursor)
        beside = here + len(name) + 2 > cells
        title = f"{name} ▼".rjust(here + 1) if beside else f"{' ' * here}▼ {name}"
        return line((" " * MARGIN + fit_text(title, cells), self.tone("strong")))

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
        return (
            str(self.run.series.step_at(row))
            if position is None
            else one_line(label(self.run.tree[position]), 24)
        )


# Rollouts and tokens without gradient, by task, worst first.


BAR = 10
NARROW_WASTE = 78
"""Width below which only the shares are shown, cells."""


@dataclass(frozen=True)
class WasteFace:
    """Draws the waste per task."""

    tone: Toned
    tasks: Sequence[TaskWaste]
    exact: bool
    """Whether the tokens were counted, instead of distributed evenly."""

    def names(self, width: int) -> Strip:
        slug = _waste_slug_width(width)
        text = f" {'task':<{slug}} {'no gradient':<{BAR + 6}}"
        if width >= NARROW_WASTE:
            text += f" {'rollouts':>13}  {'tokens':>6}  {ALL_SOLVED} solved  {ALL_FAILED} failed"
        return line((text, self.tone("faint")))

    def row(self, index: int, width: int, picked: bool) -> Strip:
        task = self.tasks[index]
        full = round(task.share * BAR)
        name = f" {fit_text(one_line(task.task_slug, 60), _waste_slug_width(width))} "
        parts = [
            (name, self.tone("cursor" if picked else "plain")),
            ("━" * full, self.tone("warm")),
            ("─" * (BAR - full), self.tone("faint")),
            (f" {percent(task.share):>5}", self.tone("plain")),
        ]
        if width >= NARROW_WASTE:
            rollouts = f"{short(task.idle)} of {short(task.rollouts)}"
            tokens = f"{'' if self.exact else '≈'}{short(round(task.idle_tokens))}"
            counts = f"  {short(task.all_solved):>8}  {short(task.all_failed):>8}"
            parts.append((f" {rollouts:>13}  {tokens:>6}{counts}", self.tone("dim")))
        return line(*parts)


def waste_text(total: Total, exact: bool) -> str:
    """The sums in one line, e.g. ``12 % of 18k rollouts and 14 % of tokens had no gradient``."""
    if not total.rollouts:
        return ""
    about = "" if exact else "≈ "
    of_tokens = f"{about}{percent(total.token_share)} of {short(total.tokens)} tokens"
    rollouts = f"{percent(total.share)} of {short(total.rollouts)} rollouts"
    parts = [
        f"no gradient from {rollouts}",
        f"{short(total.discarded)} of them discarded" if total.discarded else "",
        of_tokens if total.tokens else "",
    ]
    return ", ".join(part for part in parts if part)


def _waste_slug_width(width: int) -> int:
    return max(6, width - BAR - 9) if width < 45 else 24 if width >= 100 else 16


NAMES_FROM = 8
"""Rows of the pane from which it has column titles."""


class Face(StrEnum):
    """The pane's view."""

    REWARDS = "rewards"
    STRIP = "by step"
    WASTE = "waste"

    @property
    def following(self) -> Face:
        faces = list(Face)
        return faces[(faces.index(self) + 1) % len(faces)]


class GroupGrid(LinesView):
    """A cursor moves through the tasks, and stays on its task when steps arrive."""

    run: reactive[Run] = reactive(Run, repaint=False)
    order: reactive[Order] = reactive(Order.SIGNAL, repaint=False)
    face: reactive[Face] = reactive(Face.REWARDS, repaint=False)
    chart_view: reactive[ChartView] = reactive(ChartView, repaint=False)
    """Range and axis of the charts; the strip shows the same steps."""
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row of the lineage under the crosshair; None for the step in progress."""
    picked: reactive[str] = reactive("", repaint=False)
    """The task under the cursor; the first one if it is not shown."""
    pinned: reactive[int | str | None] = reactive[int | str | None](None, repaint=False)
    """The number of the step that stays shown when others arrive, or its checkpoint's id if it has
    no number: moving the cursor pins its step. None follows the newest."""

    @dataclass
    class Opened(Message):
        """The user opened a group of this step."""

        found: StepGroups

    @dataclass
    class Pointed(Message):
        """The user moved the crosshair to this row of the lineage."""

        row: int

    def __init__(self) -> None:
        super().__init__()
        self.history, self.marks, self.waste = GroupHistory(), StepMarks(), Waste()
        self.groups = GroupRows()
        self._wasted: Sequence[TaskWaste] = ()

    def watch_run(self, before: Run, run: Run) -> None:
        if (run.model and run.model.id) != (before.model and before.model.id):
            self.pinned = None
        same = run.rollouts is before.rollouts and run.head is before.head
        if not same or run.job is not before.job:
            self._follow()

    def watch_cursor(self) -> None:
        self.pinned = None
        self._follow()

    def watch_chart_view(self, before: ChartView, chart_view: ChartView) -> None:
        if self.face is Face.STRIP and (before.span, before.end) != (
            chart_view.span,
            chart_view.end,
        ):
            self.redraw()

    def watch_face(self) -> None:
        self.scroll_to(y=0, animate=False)
        self._follow()

    watch_picked = LinesView.redraw

    @property
    def pointed(self) -> int | None:
        row = self.cursor
        return row if row is not None and row < self.run.series.length else None

    @property
    def position(self) -> int | None:
        """Position in the tree of the checkpoint under the crosshair, else of the pinned step's;
        None without either, and while the pinned step is sampled."""
        row, tree = self.pointed, self.run.tree
        if row is not None:
            return tree.find(self.run.series.id_at(row))
        return tree.of_step(self.pinned) if isinstance(self.pinned, int) else tree.find(self.pinned)

    def pin(self) -> None:
        if self.cursor is None and self.pinned is None and self.groups.rows:
            node = self.groups.node
            self.pinned = self.groups.step or (None if node is None else node.id)

    def _follow(self) -> None:
        self.history.follow(self.run)
        self._count()
        self.groups = group_rows(self.run, self.history, self.order, self.position)
        node = self.groups.node
        if self.pinned not in (None, self.groups.step, node and node.id):
            self.pinned = None  # its batch was discarded while it was sampled
        self.redraw()

    watch_order = watch_pinned = _follow

    def _count(self) -> bool:
        """Count rollouts without gradient: the rest of a long run in the next frames."""
        done = self.waste.follow(self.run)
        if not done and self.is_attached:
            self.call_later(self._count_on)
        self._wasted = self.waste.tasks() if self.face is Face.WASTE else ()
        return done

    async def _count_on(self) -> None:
        await sleep(0)  # let a waiting key go first
        if self._count() or self.face is Face.WASTE:
            self.redraw()

    # Drawing

    def title(self, width: int) -> str:
        words = self._words()
        while len(words) > 1 and len(" · ".join(words)) > width:
            words.pop()
        return " · ".join(words)

    def _words(self) -> list[str]:
        row = self.pointed
        total = self.waste.total(None if row is None else row + 1)
        wasted = waste_text(total, self.waste.exact)
        idle = [f"{percent(total.share)} no gradient (cumulative)"] if total.rollouts else []
        if self.face is Face.WASTE:
            short_of = self.run.series.length - self.waste.length
            left = f"{counted(short_of, 'step')} to count"
            return ["waste", wasted, left if short_of else "worst first"]
        if self.face is Face.STRIP:
            binned = self._strip.said(self.width)
            return ["groups by step", *([binned] if binned else []), *idle]
        if not self.groups.rows:
            return ["groups"]
        name = one_line(self.groups.name, 40)
        held = [keyed("pinned, {live.leave} unpins")] if self.pinned is not None else []
        by = f"sampled by {one_line(self.groups.sampler, 24)}"
        return [name, *held, self.groups.summary, str(self.order), *idle, by]

    @property
    def slugs(self) -> list[str]:
        if self.face is Face.WASTE:
            return [task.task_slug for task in self._wasted]
        return [row.task_slug for row in self.groups.rows] if self.face is Face.REWARDS else []

    @property
    def index(self) -> int:
        slugs = self.slugs
        return slugs.index(self.picked) if self.picked in slugs else 0

    @property
    def named(self) -> int:
        """1 if there is room for a header line."""
        least = NAMES_FROM if self.face is Face.REWARDS else 3
        return int(bool(self.slugs) and self.body_rows >= least)

    @property
    def count(self) -> int:
        if self.face is Face.STRIP:
            return self.body_rows
        return len(self.slugs) + self.named or 1

    def draw(self, width: int, rows: range) -> list[Strip]:
        if self.face is Face.STRIP:
            return self._strip.lines(width, len(rows))
        if not self.slugs:
            nothing = "This step has no groups."
            if self.run.training and self.cursor is None:
                nothing = "Rewards appear here, task by task, as rollouts are graded."
            return [line((f" {nothing}", self.tone("dim")))]
        face: WasteFace | RewardFace = RewardFace(self.tone, self.groups, self.history)
        if self.face is Face.WASTE:
            face = WasteFace(self.tone, self._wasted, self.waste.exact)
        chosen = self.index if self.has_focus else -1
        return [
            face.row(index, width, index == chosen) if index >= 0 else face.names(width)
            for index in (row - self.named for row in rows)
        ]

    @property
    def _strip(self) -> StripFace:
        span = self.chart_view.rows(self.run.series.length)
        return StripFace(self.tone, self.run, self.marks, span, self.pointed)

    # The cursor

    def move(self, rows: int) -> None:
        """Move the cursor by this many tasks, and scroll to it."""
        slugs = self.slugs
        if slugs:
            index = max(0, min(len(slugs) - 1, self.index + rows))
            self.pick(slugs[index])
            top = revealed(index + self.named, self.scroll_offset.y, self.body_rows)
            self.scroll_to(y=top, animate=False)

    def pick(self, task_slug: str) -> None:
        self.picked = task_slug
        if self.face is Face.REWARDS:
            self.pin()

    def open(self) -> None:
        """Open the group under the cursor; from the strip, first the step's rewards."""
        if self.face is Face.STRIP:
            self.face = Face.REWARDS
        elif self.slugs:
            self.pick(self.slugs[self.index])
            step = self.groups_of(self.picked) or self.last_of(self.picked)
            if step is not None:
                self.post_message(self.Opened(step))

    def groups_of(self, task_slug: str) -> StepGroups | None:
        """The displayed step's groups, with the index of a task's; None without the task."""
        shown = self.groups
        rows = [row for row in shown.rows if row.rewards or shown.node is None]
        slugs = [row.task_slug for row in rows]
        if task_slug not in slugs:
            return None
        own, index = [row.group(shown.node) for row in rows], slugs.index(task_slug)
        return StepGroups(shown.name, own, index, self._model_id, shown.node, shown.step)

    def last_of(self, task_slug: str) -> StepGroups | None:
        """The groups of the last step that sampled a task; None if no step has."""
        for position in self.run.tree.lineage(self.run.tree.head):
            node = self.run.tree[position]
            own = [group for group in node.groups if group.rewards]
            slugs = [group.task_slug for group in own]
            if task_slug in slugs:
                index = slugs.index(task_slug)
                return StepGroups(label(node), own, index, self._model_id, node, node.step)
        return None

    @property
    def _model_id(self) -> str | None:
        return None if self.run.model is None else self.run.model.id

    def on_click(self, event: Click) -> None:
        clicked = event.y - 1 + self.scroll_offset.y - self.named
        if self.face is Face.STRIP:
            rows = self._strip.rows(max(1, self.width - 2 * MARGIN))
            if event.y and 0 <= event.x - MARGIN < len(rows):
                self.post_message(self.Pointed(rows[event.x - MARGIN]))
                if event.chain == 2:
                    self.open()
        elif event.y and 0 <= clicked < len(self.slugs):
            self.pick(self.slugs[clicked])
            if event.chain == 2:
                self.open()
