"""JobsScreen: jobs, the rollouts of one, and one rollout with its siblings.

Enter goes one level in, Esc one level out. What runs is read again while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.widget import Widget

from hud_tui.errors import HudError
from hud_tui.tui.bindings import bindings
from hud_tui.tui.job_reader import JobReader
from hud_tui.tui.jobs_acting import ask_cancel, ask_resume, why_no_cancel, why_no_resume
from hud_tui.tui.screens.rollout_reading import RolloutReading
from hud_tui.tui.widgets.jobs_browser import JobsBrowser, Level
from hud_tui.tui.widgets.rollout_text import completion_of
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Job

AT_LEVEL = {
    "open": {Level.JOBS, Level.TRACES},
    "step": {Level.TRACES},
    "follow": {Level.TRACES},
    "rollout": {Level.ROLLOUT},
    "shade": {Level.ROLLOUT},
    "match": {Level.ROLLOUT},
    "copy_as": {Level.ROLLOUT},
}
"""Actions that some levels only have."""


class JobsScreen(RolloutReading):
    VIEW = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = bindings("jobs")
    AUTO_FOCUS: ClassVar[str | None] = "RowList"
    """Never the filter's field, which is there without being asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = False
        self._left: tuple[str | None, str | None] | None = None
        """The model and its job when the view was left."""

    def body(self) -> Iterable[Widget]:
        yield self.browser

    def on_screen_resume(self) -> None:
        """After a new run was begun, it is what one wants to see: back to the jobs."""
        super().on_screen_resume()
        if self._left is not None and self._left != self._followed and self.level is not Level.JOBS:
            self.browser.filter_jobs("")  # it may hide the new run
            self._go_to(Level.JOBS)
            self.browser.list.select(self._followed[1] or "")
        else:
            self.read()

    def on_screen_suspend(self) -> None:
        self._left = self._followed

    @property
    def _followed(self) -> tuple[str | None, str | None]:
        model, job = self.hud.run_now.model, self.hud.run_now.job
        return None if model is None else model.id, None if job is None else job.id

    async def read_jobs(self) -> None:
        await super().read_jobs()
        ref = self.hud.start.ref if self.hud.start.command in ("jobs", "traces") else None
        if ref and self.jobs is not None and not self._opened:
            self._opened = True
            await self._open_named(ref)

    async def _open_named(self, ref: str) -> None:
        """The command line's job, by its id or how it begins."""
        found = next((job for job in self.jobs or () if job.id.startswith(ref)), None)
        job = found or await self.attempt(self.client.job(ref))
        if job is not None:
            self.open_job(job)

    def open_job(self, job: Job) -> None:
        """Go on to a job's rollouts, the newest first."""
        self.reader, self.part = JobReader(job), None
        self.wanted, self.following = None, False
        self._go_to(Level.TRACES)

    def open_trace(self, trace_id: str) -> None:
        """Go on to one rollout of those that are listed."""
        traces = self.part.traces if self.part is not None else []
        found = next((trace for trace in traces if trace.id == trace_id), None)
        if found is not None:
            self.trace, self.whole, self.turns = found, None, None
            self._go_to(Level.ROLLOUT)
            self.read_ratios()

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

    def watch_turns(self) -> None:
        self.show()

    def lay_out(self) -> None:
        super().lay_out()
        self.browser.filter_jobs(self.hud.layout.jobs_filter)

    @on(JobsBrowser.Filtered)
    def _filtered(self) -> None:
        self.hud.arrange(jobs_filter=self.browser.jobs_text)
        self.show()

    def show(self) -> None:
        """Draw this level as it is known."""
        job = self.job
        if self.level is Level.JOBS:
            self.browser.show_jobs(self.jobs, self.hud.clock(), self.hud.replays)
        elif self.level is Level.TRACES and job is not None:
            self.browser.show_part(self.part, job, self.following)
        else:
            self.redraw()
        self.show_reason()

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
        self.show_reason()

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
            else:
                self.hud.say(f"That is the {'last' if way > 0 else 'first'} rollout of the list.")

    def action_step(self, way: int) -> None:
        """An older or a newer step."""
        if self.part is not None:
            self.following, self.wanted = False, max(1, self.part.number + way)
            self.read()

    def action_follow(self) -> None:
        """Look at the newest step, whichever that is; or stay at this one."""
        self.following = not self.following
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

    def action_cancel_job(self) -> None:
        if (job := self.job) is not None and self._may(why_no_cancel(job)):
            self._act(ask_cancel(self, job))

    def action_resume_job(self) -> None:
        if (job := self.job) is not None and self._may(why_no_resume(job)):
            self._act(ask_resume(self, job))

    def _may(self, why_not: str) -> bool:
        """Whether nothing stands against it; else say what."""
        if why_not:
            self.notify(why_not, severity="warning", markup=False)
        return not why_not

    @work(exclusive=True, group="act")
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
        """Only what can be done at this level."""
        return action not in AT_LEVEL or self.level in AT_LEVEL[action]
