"""JobsScreen: jobs, the rollouts of one, and one rollout with its siblings.

Enter goes one level in, Esc one level out. What runs is read again while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from enum import IntEnum
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError
from hud_tui.rl.run import Run
from hud_tui.tui.job_reader import JobReader, Part
from hud_tui.tui.job_rows import (
    JOBS,
    SIBLINGS,
    TRACES,
    is_active,
    job_rows,
    sibling_rows,
    trace_rows,
)
from hud_tui.tui.job_titles import jobs_title, part_title, rollout_title
from hud_tui.tui.jobs_acting import ask_cancel, ask_resume, can_resume
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.widgets.rollout import completion_of, rollout_text
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.tui.widgets.scroll_pane import ScrollPane
from hud_tui.wire import Job, Trace, TraceEvents

AGAIN_S = 2.0
"""Seconds between two readings of what runs."""
WIDE = 110
"""Columns of a screen that has room for the siblings beside the rollout."""


class Level(IntEnum):
    """How far in the view is."""

    JOBS = 0
    TRACES = 1
    ROLLOUT = 2


class JobsScreen(HudScreen):
    VIEW = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = bindings("jobs")

    level: reactive[Level] = reactive(Level.JOBS, init=False)
    jobs: reactive[tuple[Job, ...] | None] = reactive(None, init=False)
    """The newest jobs; None until they were read."""
    part: reactive[Part | None] = reactive(None, init=False)
    """The rollouts that are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
        self.reader: JobReader | None = None
        self.trace: Trace | None = None
        """The rollout that is shown."""
        self.turns = TraceEvents(events=[])
        self._opened = False
        self._wanted: int | None = None
        """The step or page that is looked at; None follows the newest."""

    def body(self) -> Iterable[Widget]:
        yield Static("", id="jobs-title", markup=False)
        yield Input(placeholder="filter", id="jobs-filter", compact=True)
        yield RowList(JOBS, id="jobs")
        yield RowList(TRACES, id="traces")
        with Container(id="rollout"):
            with ScrollPane(id="rollout-pane"):
                yield Static("", id="rollout-text", markup=False)
            yield RowList(SIBLINGS, id="siblings")
        yield Static("reading the jobs …", id="jobs-empty", markup=False)

    def on_mount(self) -> None:
        self.add_class("-jobs")
        self.list_of(Level.JOBS).focus()
        self.set_interval(AGAIN_S, self._again)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.read()

    def list_of(self, level: Level) -> RowList:
        """The list that has the cursor at a level."""
        name = {Level.JOBS: "#jobs", Level.TRACES: "#traces", Level.ROLLOUT: "#siblings"}[level]
        return self.query_one(name, RowList)

    @property
    def filter_field(self) -> Input:
        return self.query_one("#jobs-filter", Input)

    @property
    def job(self) -> Job | None:
        """The job that was opened, else the one under the cursor."""
        if self.level is not Level.JOBS and self.reader is not None:
            return self.reader.job
        key = self.list_of(Level.JOBS).key
        return next((job for job in self.jobs or () if job.id == key), None)

    def watch_run(self, before: Run, run: Run) -> None:
        """The followed model's job has changed: so has its row."""
        if self.is_mounted and run.job is not before.job and self.is_current:
            self._again(any_job=True)

    def _again(self, any_job: bool = False) -> None:
        """Read what runs once more; what is over stays as it was read."""
        if not self.is_current:
            return
        runs = any_job or any(is_active(job) for job in self.jobs or ())
        grows = self.part is not None and not self.part.final
        if {Level.JOBS: runs, Level.TRACES: grows}.get(self.level, False):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read what this level shows."""
        if self.level is Level.JOBS:
            await self._read_jobs()
        elif self.level is Level.TRACES and self.reader is not None:
            self.part = await self.attempt(self.reader.read(self._wanted)) or self.part
        elif self.level is Level.ROLLOUT and self.trace is not None:
            await self._read_turns(self.trace)

    async def _read_jobs(self) -> None:
        jobs = await self.attempt(self.client.jobs())
        if jobs is None:
            return
        self.jobs = tuple(jobs)
        ref = self.hud.start.ref if self.hud.start.command in ("jobs", "traces") else None
        if ref and not self._opened:
            self._opened = True
            await self._open_named(ref)

    async def _open_named(self, ref: str) -> None:
        """The command line's job, by its id or how it begins."""
        found = next((job for job in self.jobs or () if job.id.startswith(ref)), None)
        job = found or await self.attempt(self.client.job(ref))
        if job is not None:
            self.open_job(job)

    async def _read_turns(self, trace: Trace) -> None:
        turns = await self.attempt(self.client.trace_events(trace.id))
        if turns is not None and trace is self.trace:
            self.turns = turns
            self._show_rollout()

    def open_job(self, job: Job) -> None:
        """Go on to a job's rollouts, the newest first."""
        self.reader, self.part, self._wanted = JobReader(self.client, job), None, None
        self.filter_field.value = ""
        self.level = Level.TRACES
        self.read()

    def open_trace(self, trace_id: str) -> None:
        """Go on to one rollout."""
        traces = self.part.traces if self.part is not None else []
        self.trace = next((trace for trace in traces if trace.id == trace_id), None)
        if self.trace is None:
            return
        self.turns = TraceEvents(events=[])
        self.level = Level.ROLLOUT
        self._show_rollout()
        self.read()

    def watch_level(self, before: Level, level: Level) -> None:
        """Show that level's pane, and put the cursor in it."""
        for one in Level:
            self.set_class(one is level, f"-{one.name.lower()}")
        self.list_of(level).focus()
        self._show()
        self.refresh_bindings()

    def watch_jobs(self) -> None:
        self._show()

    def watch_part(self) -> None:
        self._show()

    def _show(self) -> None:
        """Draw this level as it is known."""
        if self.level is Level.JOBS:
            rows = job_rows(self.jobs or (), self.filter_field.value, self.hud.clock())
            self.list_of(Level.JOBS).show(rows)
            self._title(jobs_title(self.jobs), self._no_jobs() if not rows else "")
        elif self.level is Level.TRACES:
            groups = self.part.groups if self.part is not None else ()
            rows = trace_rows(groups, self.filter_field.value)
            self.list_of(Level.TRACES).show(rows)
            title = part_title(self.part, self.job, following=self._wanted is None)
            self._title(title, self._no_traces() if not rows else "")
        else:
            self._show_rollout()

    def _show_rollout(self) -> None:
        if self.trace is None or self.part is None:
            return
        group = next(g for g in self.part.groups if self.trace in [r.trace for r in g.rollouts])
        siblings = self.list_of(Level.ROLLOUT)
        siblings.show(sibling_rows(group, self.trace.id))
        siblings.select(self.trace.id)
        self._title(rollout_title(self.part, group, self.trace), "")
        pane = self.query_one("#rollout-pane", ScrollPane)
        text = rollout_text(self.trace, self.turns, max(20, pane.size.width - 2))
        self.query_one("#rollout-text", Static).update(text)

    def _title(self, title: Content, empty: str) -> None:
        self.query_one("#jobs-title", Static).update(title)
        self.set_class(bool(empty), "-empty")
        self.query_one("#jobs-empty", Static).update(empty)

    def _no_jobs(self) -> str:
        if self.jobs is None:
            return "reading the jobs …"
        if self.jobs:
            return "No job has this text. Esc shows all."
        return "No jobs yet. Press 2 to launch a run."

    def _no_traces(self) -> str:
        if self.part is None:
            return "reading the rollouts …"
        if self.part.groups:
            return "No rollout has this text. Esc shows all."
        return "No rollouts yet: they appear as they are graded. Esc goes back."

    @on(RowList.Opened)
    def _clicked_twice(self) -> None:
        self.action_open()

    @on(RowList.Moved)
    def _cursor_moved(self, moved: RowList.Moved) -> None:
        """Among siblings the cursor opens; among jobs it changes what can be done."""
        self.refresh_bindings()
        sibling = moved.row_list is self.list_of(Level.ROLLOUT) and self.level is Level.ROLLOUT
        if sibling and moved.key and self.trace is not None and moved.key != self.trace.id:
            self.open_trace(moved.key)

    def action_open(self) -> None:
        """Enter: one level in."""
        key = self.list_of(self.level).key
        if self.level is Level.JOBS and self.job is not None:
            self.open_job(self.job)
        elif self.level is Level.TRACES and key is not None:
            self.open_trace(key)

    def action_leave(self) -> None:
        """Esc: out of the filter's field, then the filter, then one level out."""
        if self.focused is self.filter_field:
            self.list_of(self.level).focus()
        elif self.filter_field.value:
            self.filter_field.value = ""
        elif self.level > Level.JOBS:
            shown = self.trace
            self.level = Level(self.level - 1)
            if shown is not None and self.level is Level.TRACES:
                self.list_of(Level.TRACES).select(shown.id)
            self.read()
        self.filter_field.display = bool(self.filter_field.value)

    def action_rollout(self, way: int) -> None:
        """The next or the previous rollout of those that are listed."""
        if self.trace is None:
            return
        keys = [row.key for row in self.list_of(Level.TRACES).rows if not row.heading]
        at = keys.index(self.trace.id) + way if self.trace.id in keys else 0
        if 0 <= at < len(keys):
            self.open_trace(keys[at])

    def action_step(self, way: int) -> None:
        """An older or a newer step; the newest is followed."""
        if self.part is None or self.level is not Level.TRACES:
            return
        number = self.part.number + way
        if 1 <= number <= self.part.newest:
            self._wanted = None if number == self.part.newest else number
            self.read()

    def action_filter(self) -> None:
        self.filter_field.display = True
        self.filter_field.focus()

    @on(Input.Changed, "#jobs-filter")
    def _filtering(self) -> None:
        self._show()

    @on(Input.Submitted, "#jobs-filter")
    def _filtered(self) -> None:
        self.list_of(self.level).focus()
        self.filter_field.display = bool(self.filter_field.value)

    def action_refresh(self) -> None:
        self.read()

    def action_copy(self) -> None:
        """The answer of the rollout that is shown; else the id under the cursor."""
        if self.level is Level.ROLLOUT and self.trace is not None:
            self.copy(completion_of(self.trace, self.turns))
        elif (key := self.list_of(self.level).key) is not None:
            self.copy(key)

    @work(group="act")
    async def action_cancel_job(self) -> None:
        if (job := self.job) is not None:
            await self._act(ask_cancel(self, job))

    @work(group="act")
    async def action_resume_job(self) -> None:
        if (job := self.job) is not None:
            await self._act(ask_resume(self, job))

    async def _act(self, asked: Awaitable[str | None]) -> None:
        """Ask and act; then read, and say what the service says."""
        try:
            said = await asked
        except HudError as error:
            self.tell(error)
        else:
            if said is not None:
                self.notify(said, markup=False)
        self.read()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done at this level, to this job."""
        if not self.is_mounted:
            return True
        if action == "cancel_job":
            return self.job is not None and is_active(self.job)
        if action == "resume_job":
            return self.job is not None and can_resume(self.job)
        if action == "open":
            return self.level is not Level.ROLLOUT
        levels = {"step": Level.TRACES, "rollout": Level.ROLLOUT}
        return action not in levels or self.level is levels[action]
