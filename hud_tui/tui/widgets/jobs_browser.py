"""JobsBrowser: jobs, the rollouts of one, one rollout; one level of the three is seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from textual import on
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.tui.job_reader import Part
from hud_tui.tui.job_rows import JOBS, SIBLINGS, TRACES, job_rows, sibling_rows, trace_rows
from hud_tui.tui.job_titles import jobs_title, part_title, rollout_title
from hud_tui.tui.widgets.rollout import RolloutPane
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Job, Trace, TraceEvents


class Level(IntEnum):
    """How far in the view is."""

    JOBS = 0
    TRACES = 1
    ROLLOUT = 2


NAME_LEAST = 24
"""Cells that a job's name wants at least."""
LISTS = {Level.JOBS: "#jobs", Level.TRACES: "#traces", Level.ROLLOUT: "#siblings"}


class JobsBrowser(Vertical):
    """Draws what the screen has read. It reads nothing itself."""

    level: reactive[Level] = reactive(Level.JOBS, init=False)

    class Filtered(Message):
        """The filter's text has changed."""

    def compose(self) -> Iterator[Widget]:
        yield Static("", id="jobs-title", markup=False)
        yield Input(placeholder="filter by any text of the rows", id="jobs-filter", compact=True)
        yield RowList(JOBS, id="jobs", least=NAME_LEAST)
        yield RowList(TRACES, id="traces")
        with Container(id="rollout"):
            yield RolloutPane(id="rollout-pane")
            yield RowList(SIBLINGS, id="siblings")
        yield Static("reading the jobs …", id="jobs-empty", markup=False)

    def on_mount(self) -> None:
        self.watch_level()

    @property
    def list(self) -> RowList:
        """The list that has the cursor at this level."""
        return self.list_of(self.level)

    def list_of(self, level: Level) -> RowList:
        return self.query_one(LISTS[level], RowList)

    @property
    def field(self) -> Input:
        """Where the filter is typed."""
        return self.query_one("#jobs-filter", Input)

    def watch_level(self) -> None:
        """Show that level, with the cursor in it and without the other's filter."""
        for one in Level:
            self.set_class(one is self.level, f"-{one.name.lower()}")
        self.field.value = ""
        self.field.display = False
        self.list.focus()

    def show_jobs(self, jobs: Sequence[Job] | None, now: float) -> None:
        """The jobs; None while they are being read."""
        rows = job_rows(jobs or (), self.field.value, now)
        self.list_of(Level.JOBS).show(rows)
        empty = "No job has this text. Esc shows all."
        if jobs is None:
            empty = "reading the jobs …"
        elif not jobs:
            empty = "No jobs yet. Press 2 to launch a run."
        self._title(jobs_title(jobs), "" if rows else empty)

    def show_part(self, part: Part | None, job: Job, following: bool) -> None:
        """Some of a job's rollouts; None while they are being read."""
        rows = trace_rows(part.groups if part is not None else (), self.field.value)
        self.list_of(Level.TRACES).show(rows)
        empty = "No rollout has this text. Esc shows all."
        if part is None:
            empty = "reading the rollouts …"
        elif not part.groups:
            empty = "No rollouts yet: they appear as they are graded. Esc goes back."
        title = part_title(part, job, following, self.size.width - 2)
        self._title(title, "" if rows else empty)

    def show_rollout(self, part: Part, trace: Trace, turns: TraceEvents | None) -> None:
        """One rollout beside its siblings; the turns are None while they are being read."""
        group = part.group_of(trace)
        siblings = self.list_of(Level.ROLLOUT)
        siblings.show(sibling_rows(group, trace.id))
        siblings.select(trace.id)
        self._title(rollout_title(group, trace, self.size.width - 2), "")
        self.query_one(RolloutPane).show(trace, turns)

    def begin_filter(self) -> None:
        self.field.display = True
        self.field.focus()

    def end_filter(self) -> bool:
        """Esc: out of the field; then clear it. False where there was nothing to leave."""
        typing, text = self.field.has_focus, self.field.value
        if not typing:
            self.field.value = ""
        self.field.display = bool(self.field.value)
        self.list.focus()
        return typing or bool(text)

    @on(Input.Changed, "#jobs-filter")
    def _typed(self) -> None:
        self.post_message(self.Filtered())

    @on(Input.Submitted, "#jobs-filter")
    def _submitted(self) -> None:
        self.end_filter()

    def _title(self, title: Content, empty: str) -> None:
        self.query_one("#jobs-title", Static).update(title)
        self.set_class(bool(empty), "-empty")
        self.query_one("#jobs-empty", Static).update(empty)
