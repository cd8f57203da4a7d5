"""GroupGrid: the groups of a step, of many steps, or what they wasted: one pane, three faces."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.keys import keyed
from hud_tui.rl.group_rows import GroupRows, Order, group_rows
from hud_tui.rl.history import GroupHistory, StepMarks
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.rl.waste import TaskWaste, Waste
from hud_tui.tui.group_reader import StepGroups
from hud_tui.tui.widgets.lens import Lens
from hud_tui.tui.widgets.lines import LinesView, line
from hud_tui.tui.widgets.reward_face import RewardFace
from hud_tui.tui.widgets.strip_face import MARGIN, StripFace
from hud_tui.tui.widgets.waste_face import WasteFace, said

NAMES_FROM = 8
"""Rows of the pane from which there is room for the columns' names."""


class Face(StrEnum):
    """What the pane shows."""

    REWARDS = "rewards"
    STRIP = "step by step"
    WASTE = "waste"

    @property
    def following(self) -> Face:
        faces = list(Face)
        return faces[(faces.index(self) + 1) % len(faces)]


class GroupGrid(LinesView):
    """A cursor goes through the tasks, and stays on its task whatever arrives."""

    run: reactive[Run] = reactive(Run, repaint=False)
    order: reactive[Order] = reactive(Order.TASK, repaint=False)
    face: reactive[Face] = reactive(Face.REWARDS, repaint=False)
    lens: reactive[Lens] = reactive(Lens, repaint=False)
    """What of it the charts show; the strip shows the same steps."""
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row of the lineage under the crosshair; None for the step under way."""
    picked: reactive[str] = reactive("", repaint=False)
    """The task under the cursor; the first where it is not among those shown."""
    pinned: reactive[int | str | None] = reactive[int | str | None](None, repaint=False)
    """The number of the step that is shown whatever is taken after it, or where it has none its
    checkpoint's id: a cursor that was moved stays in the step it was moved in. None follows."""

    @dataclass
    class Opened(Message):
        """The user wants to read a group of this step."""

        found: StepGroups

    @dataclass
    class Pointed(Message):
        """The user wants the crosshair at this row of the lineage."""

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

    def watch_order(self) -> None:
        self._follow()

    def watch_cursor(self) -> None:
        self.pinned = None
        self._follow()

    def watch_pinned(self) -> None:
        self._follow()

    def watch_lens(self, before: Lens, lens: Lens) -> None:
        if self.face is Face.STRIP and (before.span, before.end) != (lens.span, lens.end):
            self.redraw()

    def watch_face(self) -> None:
        self.scroll_to(y=0, animate=False)
        self._follow()

    def watch_picked(self) -> None:
        self.redraw()

    @property
    def pointed(self) -> int | None:
        """The row under the crosshair, as far as there is such a row."""
        row = self.cursor
        return row if row is not None and row < self.run.series.length else None

    @property
    def position(self) -> int | None:
        """The checkpoint under the crosshair, in the tree, else the one of the pinned step; None
        without either, and while the pinned step is sampled."""
        row, tree = self.pointed, self.run.tree
        if row is not None:
            return tree.find(self.run.series.id_at(row))
        return tree.of_step(self.pinned) if isinstance(self.pinned, int) else tree.find(self.pinned)

    def pin(self) -> None:
        """Stay with the step that is shown."""
        if self.cursor is None and self.pinned is None and self.groups.rows:
            node = self.groups.node
            self.pinned = self.groups.step or (None if node is None else node.id)

    def _follow(self) -> None:
        self.history.follow(self.run)
        self._count()
        self.groups = group_rows(self.run, self.history, self.order, self.position)
        node = self.groups.node
        if self.pinned not in (None, self.groups.step, node and node.id):
            self.pinned = None  # it was given up while it was sampled
        self.redraw()

    def _count(self) -> bool:
        """Count the waste; of a long run some steps now, the rest between two frames."""
        done = self.waste.follow(self.run)
        if not done and self.is_attached:
            self.call_later(self._count_on)
        self._wasted = self.waste.tasks() if self.face is Face.WASTE else ()
        return done

    async def _count_on(self) -> None:
        await sleep(0)  # a key that waits goes first
        if self._count() or self.face is Face.WASTE:
            self.redraw()

    # What is drawn

    def title(self, width: int) -> str:
        words = self._words()
        while len(words) > 1 and len(" · ".join(words)) > width:
            words.pop()
        return " · ".join(words)

    def _words(self) -> list[str]:
        row = self.pointed
        total = self.waste.total(None if row is None else row + 1)
        wasted = said(total, self.waste.exact)
        idle = [f"{total.share:.0%} of rollouts wasted so far"] if total.rollouts else []
        if self.face is Face.WASTE:
            short_of = self.run.series.length - self.waste.length
            return ["waste", wasted, f"{short_of} steps to count" if short_of else "worst first"]
        if self.face is Face.STRIP:
            binned = self._strip.said(self.width)
            return ["groups step by step", *([binned] if binned else []), *idle]
        if not self.groups.rows:
            return ["groups"]
        name = one_line(self.groups.name, 40)
        held = [keyed("pinned, {live.leave} follows")] if self.pinned is not None else []
        by = f"sampled by {one_line(self.groups.sampler, 24)}"
        return [name, *held, self.groups.summary, *idle, str(self.order), by]

    @property
    def slugs(self) -> list[str]:
        """The tasks that the cursor goes through."""
        if self.face is Face.WASTE:
            return [task.task_slug for task in self._wasted]
        return [row.task_slug for row in self.groups.rows] if self.face is Face.REWARDS else []

    @property
    def index(self) -> int:
        """Where the cursor is among them."""
        slugs = self.slugs
        return slugs.index(self.picked) if self.picked in slugs else 0

    @property
    def named(self) -> int:
        """1 where there is room for a line with the columns' names."""
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
            return [line((f" {self._nothing()}", self.tone("dim")))]
        index = self.index if self.has_focus else -1
        return [self._line(row - self.named, width, row - self.named == index) for row in rows]

    @property
    def _strip(self) -> StripFace:
        span = self.lens.rows(self.run.series.length)
        return StripFace(self.tone, self.run, self.marks, span, self.pointed)

    def _line(self, at: int, width: int, picked: bool) -> Strip:
        """A task's row; the columns' names where `at` is below 0."""
        if self.face is Face.WASTE:
            waste = WasteFace(self.tone, self.waste.exact)
            return waste.names(width) if at < 0 else waste.row(self._wasted[at], width, picked)
        rewards = RewardFace(self.tone, self.groups, self.history)
        return rewards.names(width) if at < 0 else rewards.row(self.groups.rows[at], width, picked)

    def _nothing(self) -> str:
        if self.run.training and self.cursor is None:
            return "Rewards appear here, task by task, as rollouts arrive."
        return "This step came without groups."

    # The cursor

    def move(self, rows: int) -> None:
        """Put the cursor so many tasks further, as far as there are any, and show it."""
        slugs = self.slugs
        if slugs:
            at = max(0, min(len(slugs) - 1, self.index + rows))
            self.pick(slugs[at])
            low = at + self.named + 1 - self.body_rows
            self.scroll_to(y=min(at, max(low, self.scroll_offset.y)), animate=False)

    def pick(self, task_slug: str) -> None:
        """Put the cursor on a task, and stay with the step whose task it is."""
        self.picked = task_slug
        if self.face is Face.REWARDS:
            self.pin()

    def open(self) -> None:
        """Ask for the group under the cursor; from the strip, first for the step's rewards."""
        if self.face is Face.STRIP:
            self.face = Face.REWARDS
        elif self.slugs:
            self.pick(self.slugs[self.index])
            found = self.groups_of(self.picked) or self.last_of(self.picked)
            if found is not None:
                self.post_message(self.Opened(found))

    def groups_of(self, task_slug: str) -> StepGroups | None:
        """The groups of the step that is shown, with the place of a task's; None where the task
        is not among its tasks."""
        shown = self.groups
        rows = [row for row in shown.rows if row.rewards or shown.node is None]
        slugs = [row.task_slug for row in rows]
        if task_slug not in slugs:
            return None
        own, place = [row.group(shown.node) for row in rows], slugs.index(task_slug)
        return StepGroups(shown.name, own, place, self._model_id, shown.node, shown.step)

    def last_of(self, task_slug: str) -> StepGroups | None:
        """The groups of the last step that sampled a task; None where no step has."""
        for position in self.run.tree.lineage(self.run.tree.head):
            node = self.run.tree[position]
            own = [group for group in node.groups if group.rewards]
            slugs = [group.task_slug for group in own]
            if task_slug in slugs:
                place = slugs.index(task_slug)
                return StepGroups(label(node), own, place, self._model_id, node, node.step)
        return None

    @property
    def _model_id(self) -> str | None:
        return None if self.run.model is None else self.run.model.id

    def on_click(self, event: Click) -> None:
        at = event.y - 1 + self.scroll_offset.y - self.named
        if self.face is Face.STRIP:
            rows = self._strip.rows(max(1, self.width - 2 * MARGIN))
            if event.y and 0 <= event.x - MARGIN < len(rows):
                self.post_message(self.Pointed(rows[event.x - MARGIN]))
                if event.chain == 2:
                    self.open()
        elif event.y and 0 <= at < len(self.slugs):
            self.pick(self.slugs[at])
            if event.chain == 2:
                self.open()
