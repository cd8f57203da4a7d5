"""JobsScreen: jobs, the rollouts of one, and one rollout with its siblings.

Enter goes one level in, Esc one level out. What runs is read again while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.errors import HudError
from hud_tui.rl.run import Run
from hud_tui.tui.job_reader import JobReader, Part
from hud_tui.tui.job_rows import is_active
from hud_tui.tui.jobs_acting import ask_cancel, ask_resume, can_resume
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.widgets.jobs_browser import JobsBrowser, Level
from hud_tui.tui.widgets.rollout import completion_of
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Job, Trace, TraceEvents

AGAIN_S = 2.0
"""Seconds between two readings of what runs."""
AT_LEVEL = {
    "open": {Level.JOBS, Level.TRACES},
    "step": {Level.TRACES},
    "follow": {Level.TRACES},
    "filter": {Level.JOBS, Level.TRACES},
    "rollout": {Level.ROLLOUT},
}
"""Actions that some levels only have."""


class JobsScreen(HudScreen):
    VIEW = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = bindings("jobs")

    jobs: reactive[tuple[Job, ...] | None] = reactive(None, init=False)
    """The newest jobs; None until they were read."""
    part: reactive[Part | None] = reactive(None, init=False)
    """The rollouts that are listed; None until they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: JobReader | None = None
        """Of the job that was opened."""
        self.trace: Trace | None = None
        """The rollout that is shown."""
        self.turns: TraceEvents | None = None
        """Its conversation; None until it was read."""
        self._opened = False
        self._wanted: int | None = None
        """The step or page that is looked at; None until the newest was read."""
        self._follow = False
        """Whether the newest step is looked at, whichever that is."""

    def body(self) -> Iterable[Widget]:
        yield JobsBrowser(id="browser")

    @property
    def browser(self) -> JobsBrowser:
        return self.query_one(JobsBrowser)

    @property
    def level(self) -> Level:
        return self.browser.level

    @property
    def job(self) -> Job | None:
        """The job that was opened, else the one under the cursor."""
        if self.level is not Level.JOBS and self.reader is not None:
            return self.reader.job
        key = self.browser.list.key
        return next((job for job in self.jobs or () if job.id == key), None)

    def on_mount(self) -> None:
        self.set_interval(AGAIN_S, self._again)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.read()

    def watch_run(self, before: Run, run: Run) -> None:
        """The followed model's job has changed: so has its row."""
        if self.is_mounted and run.job is not before.job:
            self._again(changed=True)

    def _again(self, changed: bool = False) -> None:
        """Read what runs once more; what is over stays as it was read."""
        if not self.is_current:
            return
        runs = changed or any(is_active(job) for job in self.jobs or ())
        grows = self._follow or (self.part is not None and not self.part.final)
        if {Level.JOBS: runs, Level.TRACES: grows}.get(self.level, False):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read what this level shows."""
        if self.level is Level.JOBS:
            await self._read_jobs()
        elif self.level is Level.TRACES and self.reader is not None:
            await self._read_part(self.reader)
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

    async def _read_part(self, reader: JobReader) -> None:
        part = await self.attempt(reader.read(None if self._follow else self._wanted))
        if part is None or reader is not self.reader:
            return
        other = self.part is None or self.part.number != part.number
        self._wanted, self.part = part.number, part
        if other:
            self.browser.list_of(Level.TRACES).action_first()

    async def _read_turns(self, trace: Trace) -> None:
        turns = await self.attempt(self.client.trace_events(trace.id))
        if turns is not None and trace is self.trace:
            self.turns = turns
            self.show()

    def open_job(self, job: Job) -> None:
        """Go on to a job's rollouts, the newest first."""
        self.reader, self.part = JobReader(self.client, job), None
        self._wanted, self._follow = None, False
        self._go_to(Level.TRACES)

    def open_trace(self, trace_id: str) -> None:
        """Go on to one rollout of those that are listed."""
        traces = self.part.traces if self.part is not None else []
        found = next((trace for trace in traces if trace.id == trace_id), None)
        if found is not None:
            self.trace, self.turns = found, None
            self._go_to(Level.ROLLOUT)

    def _go_to(self, level: Level) -> None:
        self.browser.level = level
        self.show()
        self.refresh_bindings()
        self.read()

    def watch_jobs(self) -> None:
        self.show()
        self.refresh_bindings()

    def watch_part(self) -> None:
        self.show()

    @on(JobsBrowser.Filtered)
    def show(self) -> None:
        """Draw this level as it is known."""
        job = self.job
        if self.level is Level.JOBS:
            self.browser.show_jobs(self.jobs, self.hud.clock())
        elif self.level is Level.TRACES and job is not None:
            self.browser.show_part(self.part, job, self._follow)
        elif self.part is not None and self.trace is not None:
            self.browser.show_rollout(self.part, self.trace, self.turns)

    @on(RowList.Opened)
    def _clicked_twice(self) -> None:
        self.action_open()

    @on(RowList.Moved)
    def _cursor_moved(self) -> None:
        """Among siblings the cursor opens; among jobs it changes what can be done."""
        self.refresh_bindings()
        key = self.browser.list_of(Level.ROLLOUT).key
        shown = self.trace if self.level is Level.ROLLOUT else None
        if key is not None and shown is not None and key != shown.id:
            self.open_trace(key)

    def action_open(self) -> None:
        """Enter: one level in."""
        key, job = self.browser.list.key, self.job
        if self.level is Level.JOBS and job is not None:
            self.open_job(job)
        elif self.level is Level.TRACES and key is not None:
            self.open_trace(key)

    def action_leave(self) -> None:
        """Esc: out of the filter, else one level out."""
        if self.browser.end_filter() or self.level is Level.JOBS:
            return
        shown = self.trace.id if self.trace is not None else ""
        self._go_to(Level(self.level - 1))
        self.browser.list.select(shown)

    def action_rollout(self, way: int) -> None:
        """The next or the previous rollout of those that are listed."""
        rows = self.browser.list_of(Level.TRACES).rows
        keys = [row.key for row in rows if not row.heading]
        if self.trace is not None and self.trace.id in keys:
            at = keys.index(self.trace.id) + way
            if 0 <= at < len(keys):
                self.open_trace(keys[at])

    def action_step(self, way: int) -> None:
        """An older or a newer step."""
        if self.part is not None:
            self._follow, self._wanted = False, max(1, self.part.number + way)
            self.read()

    def action_follow(self) -> None:
        """Look at the newest step, whichever that is; or stay at this one."""
        self._follow = not self._follow
        self.show()
        self.read()

    def action_filter(self) -> None:
        self.browser.begin_filter()

    def action_refresh(self) -> None:
        self.read()

    def action_copy(self) -> None:
        """The answer of the rollout that is shown; else the id under the cursor."""
        if self.level is Level.ROLLOUT and self.trace is not None:
            self.copy(completion_of(self.trace, self.turns))
        elif (key := self.browser.list.key) is not None:
            self.copy(key)

    @work(exclusive=True, group="act")
    async def action_cancel_job(self) -> None:
        if (job := self.job) is not None:
            await self._act(ask_cancel(self, job))

    @work(exclusive=True, group="act")
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
        if not self.is_mounted or not self.query(JobsBrowser):
            return True
        if action == "cancel_job":
            return self.job is not None and is_active(self.job)
        if action == "resume_job":
            return self.job is not None and can_resume(self.job)
        return action not in AT_LEVEL or self.level in AT_LEVEL[action]
