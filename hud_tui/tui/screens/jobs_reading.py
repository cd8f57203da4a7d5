"""JobsReading: what the jobs view has read, and when it reads again."""

from __future__ import annotations

from asyncio import gather

from textual import work
from textual.reactive import reactive

from hud_tui.errors import HudError
from hud_tui.rl.export.sheet import Sheet
from hud_tui.rl.export.sheets import jobs_sheet, rollouts_sheet
from hud_tui.rl.jobs import is_active, job_reason, may_have_reason
from hud_tui.rl.run import Run, reason
from hud_tui.tui.job_reader import JobReader, Part
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.widgets.jobs_browser import JobsBrowser, Level
from hud_tui.wire import Job, Trace, TraceEvents

AGAIN_S = 2.0
"""Seconds between two readings of what runs."""


class JobsReading(HudScreen):
    """It holds its widgets itself, so that late news finds them whatever becomes of the view."""

    jobs: reactive[tuple[Job, ...] | None] = reactive(None, init=False)
    """The newest jobs; None until they were read."""
    part: reactive[Part | None] = reactive(None, init=False)
    """The rollouts that are listed; None until they were read."""
    turns: reactive[TraceEvents | None] = reactive(None, init=False, always_update=True)
    """The conversation of the rollout that is shown; None until it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.browser = JobsBrowser(id="browser")
        self.reader: JobReader | None = None
        """Of the job that was opened."""
        self.trace: Trace | None = None
        """The rollout that is shown."""
        self.whole: Trace | None = None
        """The same with how it was graded; None until it was read."""
        self.following = False
        """Whether the newest step is looked at, whichever that is."""
        self.wanted: int | None = None
        """The step or page that is looked at; None until the newest was read."""
        self.reasons: dict[str, str] = {}
        """Why jobs ended, by id, where the list of jobs does not say."""
        self._asked: set[tuple[str, str | None]] = set()

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

    def watch_run(self, before: Run, run: Run) -> None:
        """The followed model's job has changed: so has its row."""
        if self.is_mounted and run.job is not before.job:
            self._again(changed=True)

    def _again(self, changed: bool = False) -> None:
        """Read what runs once more; what is over stays as it was read."""
        if not self.is_current:
            return
        runs = changed or any(is_active(job) for job in self.jobs or ())
        grows = self.following or (self.part is not None and not self.part.final)
        if {Level.JOBS: runs, Level.TRACES: grows}.get(self.level, False):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read what this level shows."""
        if self.level is Level.JOBS:
            await self.read_jobs()
        elif self.level is Level.TRACES and self.reader is not None:
            await self._read_part(self.reader)
        elif self.level is Level.ROLLOUT and self.trace is not None:
            await self._read_turns(self.trace)
        await self._read_reason()

    def sheet(self) -> Sheet:
        """The jobs; of one that was opened, the rollouts of the step or page that is shown."""
        if self.level is Level.JOBS:
            return jobs_sheet(self.jobs or ())
        return rollouts_sheet(() if self.part is None else self.part.groups)

    async def read_jobs(self) -> None:
        jobs = await self.attempt(self.client.jobs())
        if jobs is not None:
            self.jobs = tuple(jobs)

    async def _read_part(self, reader: JobReader) -> None:
        part = await self.attempt(reader.read(self.client, None if self.following else self.wanted))
        if part is None or reader is not self.reader:
            return
        other = self.part is None or self.part.number != part.number
        self.wanted, self.part = part.number, part
        if other:
            self.browser.list_of(Level.TRACES).action_first()

    async def _read_turns(self, trace: Trace) -> None:
        read = gather(self.client.trace_events(trace.id), self._graded(trace))
        found = await self.attempt(read)
        if found is not None and trace is self.trace:
            turns, self.whole = found
            self.turns = turns

    async def _graded(self, trace: Trace) -> Trace | None:
        """The rollout with its evaluation; that it cannot be had is no trouble."""
        try:
            return await self.client.trace(trace.id)
        except HudError:
            return None

    async def _read_reason(self) -> None:
        """Why the job ended, where its row does not say and there may be something to say."""
        job = self.job
        if job is None or not may_have_reason(job) or (job.id, job.status) in self._asked:
            return
        self._asked.add((job.id, job.status))
        status = await self.attempt(self.client.known_job(job.id))
        if status is not None:
            self.reasons[job.id] = reason(status)
            self.show_reason()

    def show_reason(self) -> None:
        """Say why the job under the cursor, or the one that was opened, ended as it did."""
        job, own = self.job, self.run.job
        if job is None or self.level is Level.ROLLOUT:
            self.browser.say_reason("")
        elif own is not None and own.id == job.id and is_active(job):
            self.browser.say_reason(own.note or "")
        else:
            self.browser.say_reason(job_reason(job) or self.reasons.get(job.id, ""))
