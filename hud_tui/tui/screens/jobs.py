"""JobsScreen: jobs, and the rollouts of one.

Enter goes one level in, at last to the reader of a rollout, Esc one level out. Active jobs are
refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from operator import attrgetter
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.evaluation import job_result
from hud_tui.rl.export import Sheet, jobs_sheet, rollouts_sheet
from hud_tui.rl.progress import Liveness
from hud_tui.rl.rollout_search import Keep, parse_row_filter
from hud_tui.rl.run import Run
from hud_tui.rl.text import LIMIT, one_line
from hud_tui.rl.work import Work, is_active
from hud_tui.tui.job_actions import Ask, act, ask_cancel, ask_resume, why_no_resume
from hud_tui.tui.keys import OPENS, Need
from hud_tui.tui.rollout_reader import (
    JOBS,
    NAME,
    TRACES,
    JobReader,
    Part,
    job_rows,
    jobs_title,
    part_title,
    trace_columns,
    trace_rows,
)
from hud_tui.tui.screens.base import HudScreen, ViewContext, unread
from hud_tui.tui.screens.dialogs import PlayRollout
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.screens.rollout_search import RolloutSearch
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.table import RowList, grown
from hud_tui.wire import Job


class Level(IntEnum):
    JOBS = 0
    TRACES = 1


NO_JOBS = "No jobs yet. Press {app.view.launch} to launch a run."
REPLAYED = "A replay has no jobs. {app.view.live} shows its run."
NAME_LEAST, NAME_MOST = 34, 60
"""Cells of a job's name: at least; and up to which columns of less weight give way for it."""


AGAIN_S, POLLED_S = 2.0, 10.0
"""Seconds between two refreshes of a running job, and of a list in which none runs: jobs are
started elsewhere, and grow older."""


AT_LEVEL = {"step": Level.TRACES, "follow": Level.TRACES, "play": Level.TRACES}


class JobsScreen(HudScreen):
    """It creates its widgets in `__init__`, so that late results find them while it closes."""

    level: reactive[Level] = reactive(Level.JOBS, init=False)
    jobs: reactive[tuple[Job, ...] | None] = reactive(None, init=False)
    """The newest jobs; None until they were read."""
    part: reactive[Part | None] = reactive(None, init=False)
    """The listed rollouts; None until they were read."""
    VIEW = "jobs"
    AUTO_FOCUS: ClassVar[str | None] = "RowList"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self._title_line = Static("", id="jobs-title", markup=False)
        self._reason = Static("", id="jobs-reason", markup=False)
        self._empty = Static("reading the jobs …", id="jobs-empty", markup=False)
        self._jobs = RowList(JOBS, id="jobs", least=NAME_LEAST)
        self._traces = RowList(TRACES, id="traces")
        self.filter_field = FilterField("filter rows by text", "jobs-filter", self._jobs)
        self.jobs_text = ""
        """The filter of the jobs, kept while one of them is open."""
        self._good: Keep = parse_row_filter("")
        """The last filter of the rollouts that is valid and keeps any."""
        self._wrong = ""
        """What is wrong with the filter of the rollouts; empty if nothing is."""
        self.reader: JobReader | None = None
        self.following = False
        """Whether the newest step is shown, whichever that is."""
        self.number: int | None = None
        """The displayed step or page; None until the newest was read."""
        self.runs: Mapping[str, Work] = {}
        """Rows of the jobs that are runs, by id."""
        self.reasons: dict[str, str] = {}
        """Why jobs ended, by id, if the list of jobs does not say."""
        self._asked: set[tuple[str, str | None]] = set()
        self._opened = False
        self._read_at = 0.0
        """When the list was read, Unix seconds."""
        self._left: tuple[str | None, str | None] | None = None
        """The model and its job when the view was left."""

    # Reading, and when it is repeated.

    @property
    def list(self) -> RowList:
        return self._jobs if self.level is Level.JOBS else self._traces

    @property
    def job(self) -> Job | None:
        """The open job, else the one under the cursor."""
        if self.level is not Level.JOBS and self.reader is not None:
            return self.reader.job
        key = self.list.key
        return next((job for job in self.jobs or () if job.id == key), None)

    def on_mount(self) -> None:
        self.watch_level()
        self.set_interval(AGAIN_S, self._again)

    def watch_run(self, before: Run, run: Run) -> None:
        """The selected model's job has changed, and so has its row."""
        if self.is_mounted and run.job is not before.job:
            opened = None if self.level is Level.JOBS else self.job
            is_other = opened is not None and run.job is not None and run.job.id != opened.id
            self._again(changed=not is_other)

    def watch_freshness(self, before: Liveness, now: Liveness) -> None:
        if self.jobs is None and before.offline != now.offline:
            self.show()  # they are no longer being read

    def _again(self, changed: bool = False) -> None:
        """Refresh what still runs, and now and then the list of jobs."""
        if not self.is_current:
            return
        if self.level is Level.JOBS:
            if changed or self._is_due or any(is_active(job.status) for job in self.jobs or ()):
                self.read()
            return
        job = self.job
        if self.following or (self.part is not None and not self.part.final):
            self.read()
        elif job is not None and (changed or is_active(job.status)):
            self._read_job(job)

    @property
    def _is_due(self) -> bool:
        """Whether the list of jobs is to be read again although none of them runs."""
        if self.jobs is None or self.session.freshness.offline:
            return False
        return self.context.clock() - self._read_at >= POLLED_S

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        if self.level is Level.JOBS:
            await self.read_jobs()
        elif self.reader is not None:
            await self._read_part(self.reader)
        await self._read_reason()

    def sheet(self) -> Sheet:
        """The jobs, or the displayed rollouts of the open job, that the filter leaves."""
        sheet = rollouts_sheet(() if self.part is None else self.part.groups)
        if self.level is Level.JOBS:
            sheet = jobs_sheet(self.jobs or ())
        if not self.filter_field.value:
            return sheet
        return sheet.only({row.key for row in self.list.rows if not row.heading})

    @work(exclusive=True, group="job")
    async def _read_job(self, job: Job) -> None:
        with suppress(HudError):  # it is read again soon; the top line says if nothing is answered
            await self._renewed(job)
            await self._read_reason()

    async def _renewed(self, job: Job) -> Job:
        """The job in its present state, in which it is shown if it is open. Raises HudError."""
        now = await self.client.job(job.id)
        if self.reader is not None and self.reader.job.id == job.id:
            before, self.reader.job = self.reader.job, now
            if self.level is not Level.TRACES:
                self.renew_hints()
            elif before.status != now.status:
                self.read()
            else:
                self.show()
        return now

    async def _read_part(self, reader: JobReader) -> None:
        part = await self.attempt(reader.read(self.client, None if self.following else self.number))
        if part is None or reader is not self.reader:
            return
        other = self.part is None or self.part.number != part.number
        self.number, self.part = part.number, part
        if other:
            self._traces.action_first()

    async def _read_reason(self) -> None:
        """Read why the job ended, if its row does not say."""
        job = self.job
        if job is None or not Work.of(job).is_untold or (job.id, job.status) in self._asked:
            return
        self._asked.add((job.id, job.status))
        status = await self.attempt(self.session.works.state(job.id))
        if status is not None:
            self.reasons[job.id] = Work.of(status).why
            self.show_reason()

    def show_reason(self) -> None:
        job, own, why = self.job, self.run.job, self._wrong
        if job is None or why:
            pass
        elif own is not None and own.id == job.id and is_active(job.status):
            why = own.note or ""
        else:
            why = job_result(job) or Work.of(job).why or self.reasons.get(job.id, "")
        self._reason.display = bool(why)
        self._reason.update(one_line(why, LIMIT))

    # The view: what it holds, and what its keys do.

    def body(self) -> Iterable[Widget]:
        yield self._title_line
        yield self.filter_field
        yield self._jobs
        yield self._traces
        yield self._empty
        yield self._reason

    def watch_level(self) -> None:
        """Show the level, with the cursor in its list, and without the other level's filter."""
        self.filter_field.rows = self.list
        for level in Level:
            self.set_class(level is self.level, f"-{level.name.lower()}")
        self.filter_field.fill(self.jobs_text if self.level is Level.JOBS else "")
        self.list.focus()

    def filter_jobs(self, text: str) -> None:
        self.jobs_text = text
        if self.level is Level.JOBS:
            self.filter_field.fill(text)

    def resume(self) -> None:
        """Go back to the list of jobs after a new run was started elsewhere."""
        if self._left is not None and self._left != self._followed and self.level is not Level.JOBS:
            self.filter_jobs("")  # it may hide the new run
            self._go_to(Level.JOBS)
            self.list.select(self._followed[1] or "")
        else:
            self.read()

    def on_screen_suspend(self) -> None:
        self._left = self._followed

    @property
    def _followed(self) -> tuple[str | None, str | None]:
        run = self.session.run
        return run.model_id, None if run.job is None else run.job.id

    async def read_jobs(self) -> None:
        self._read_at = self.context.clock()
        jobs = await self.attempt(self.session.works.jobs())
        if jobs is not None and tuple(jobs) != self.jobs:
            self.jobs = tuple(jobs)
        else:
            self.show()
        runs = await self.session.runs()
        if runs != self.runs and self.is_built:
            self.runs = runs
            self.show()
        start = self.context.start
        ref = start.ref if start.command in ("jobs", "traces") else None
        if ref and self.jobs is not None and not self._opened:
            self._opened = True
            await self._open_named(ref)
        if self._requested is not None and self.jobs is not None:
            await self._find(self._requested)
            self._requested = None

    def go_to(self, name: str) -> None:
        self._requested = name
        self._go_to(Level.JOBS)

    async def _find(self, job_id: str) -> None:
        """Move the cursor to a job; open it if it is older than the listed ones."""
        if any(job.id == job_id for job in self.jobs or ()):
            self.filter_jobs("")
            self.show()
            self.list.select(job_id)
        else:
            await self._open_named(job_id)

    async def _open_named(self, ref: str) -> None:
        """Find the command line's job, by its id or a prefix."""
        listed = next((job for job in self.jobs or () if job.id.startswith(ref)), None)
        job = listed or await self.attempt(self.client.job(ref))
        if job is not None:
            self.open_job(job)

    def open_job(self, job: Job) -> None:
        self.reader, self.part = JobReader(job), None
        self.number, self.following = None, False
        self._go_to(Level.TRACES)

    def open_trace(self, trace_id: str) -> None:
        """Open the reader; the cursor will be on the rollout that it showed last."""
        if self.part is None:
            return
        listed = {row.key for row in self.list.rows if not row.heading}
        model_id = None if self.job is None else Work.of(self.job).model_id
        reader = RolloutScreen(
            self.client,
            self.part.groups,
            trace_id,
            model_id or self.run.model_id,
            self.context.aside,
            listed=listed,
        )
        self.app.push_screen(reader, lambda shown: self.list.select(shown or trace_id))

    def _go_to(self, level: Level) -> None:
        self.level = level
        self.show()
        self.refresh_bindings()
        self.read()

    def watch_jobs(self) -> None:
        self.show()
        self.refresh_bindings()

    def lay_out(self) -> None:
        self.filter_jobs(self.context.layout.now.jobs_filter)

    @on(Input.Changed, "#jobs-filter")
    def _filtered(self) -> None:
        if self.level is Level.JOBS:
            self.jobs_text = self.filter_field.value
        self.context.layout.arrange(jobs_filter=self.jobs_text)
        self.show()

    def show(self) -> None:
        job = self.job
        if self.level is Level.JOBS:
            self._show_jobs()
        elif job is not None:
            self._show_part(job)
        self.show_reason()
        self.renew_hints()

    def _show_jobs(self) -> None:
        runs = {id_: self.session.at_newest(run) for id_, run in self.runs.items()}
        rows = job_rows(self.jobs or (), self.filter_field.value, self.context.clock(), runs)
        columns, shown = grown(JOBS, rows)
        longest = max((row.cells[NAME].cell_length for row in rows), default=0)
        self._jobs.lay(columns, min(longest, NAME_MOST))
        self._jobs.show(shown)
        empty = "No job matches. {^jobs.leave} shows all." if self.jobs else self._instead
        self._show_title(jobs_title(self.jobs, len(rows)), "" if rows else empty)

    def _show_part(self, job: Job) -> None:
        part, keep, self._wrong = self.part, self._good, ""
        groups = () if part is None else part.groups
        try:
            keep = parse_row_filter(self.filter_field.value)
        except HudUsage as error:  # while the filter is incomplete, the rows stay
            self._wrong = f"{error.message}: {error.hint}"
        rows = trace_rows(groups, keep)
        self._good = keep if rows else self._good
        self._traces.lay(trace_columns(groups))
        self._traces.show(rows)
        empty = "No rollout matches. {^jobs.leave} shows all."
        if part is None:
            empty = "reading the rollouts …"
        elif not groups and is_active(job.status):
            empty = "No rollouts yet: each appears once it is graded. {^jobs.leave} goes back."
        elif not groups:
            empty = "No rollouts were sampled. {^jobs.leave} goes back."
        title = part_title(part, job, self.following, self.size.width - 2)
        self._show_title(title, "" if rows else empty)

    def _show_title(self, title: Content, empty: str) -> None:
        """`empty` is shown in place of the list."""
        self._title_line.update(title)
        self.set_class(bool(empty), "-empty")
        self._empty.update(keyed(empty))
        if not empty and self.focused is None:  # a hidden widget cannot have the focus
            self.call_after_refresh(self.list.focus)

    watch_part = show

    @property
    def _instead(self) -> str:
        """Why no jobs are listed."""
        if self.jobs is not None:
            return REPLAYED if self.session.replays else NO_JOBS
        return unread("jobs", self.session.freshness)

    @on(RowList.Moved)
    def _cursor_moved(self) -> None:
        self.refresh_bindings()
        self.show_reason()

    @on(RowList.Opened)
    def action_open(self) -> None:
        key, job = self.list.key, self.job
        if self.level is Level.JOBS and job is not None:
            self.open_job(job)
        elif key is not None:
            self.open_trace(key)

    def action_leave(self) -> None:
        if self.filter_field.leave() or self.level is Level.JOBS:
            return
        opened = "" if self.job is None else self.job.id
        self._go_to(Level.JOBS)
        self.list.select(opened)

    def action_search(self) -> None:
        """Search in all rollouts of the shown step, or of the job."""
        if self.job is None:
            return
        part = self.part if self.level is Level.TRACES else None
        step = part.number if part is not None and part.by_step else None
        text = self.filter_field.value if self.level is Level.TRACES else ""
        search = RolloutSearch(
            self.client, RolloutScreen, self.job.id, step, text, self.context.aside
        )
        self.app.push_screen(search)

    def action_step(self, way: int) -> None:
        if self.part is not None:
            self.following, self.number = False, max(1, self.part.number + way)
            self.read()

    def action_follow(self) -> None:
        self.following = not self.following
        self.show()
        self.read()

    def action_refresh(self) -> None:
        self.read()

    def action_copy(self) -> None:
        if (key := self.list.key) is not None:
            self.copy(key)

    def action_play(self) -> None:
        if (key := self.list.key) is not None:
            self.post_message(PlayRollout(key))

    def action_cancel_job(self) -> None:
        self._act(ask_cancel, attrgetter("why_no_cancel"))

    def action_resume_job(self) -> None:
        self._act(ask_resume, why_no_resume)

    def _work(self, job: Job) -> Work:
        """A job's state; the service does not know that of an evaluation that this app samples."""
        return Work.of(self.run.evaluations.get(job.id, job))

    def _act(self, ask: Ask, objection: Callable[[Work], str]) -> None:
        """Cancel or resume the job, or show the objection, which leaves what is under way alone."""
        if self.job is not None and not self._refuses(objection, self.job):
            self._renew_and_act(ask, objection, self.job)

    def _refuses(self, objection: Callable[[Work], str], job: Job) -> bool:
        if why_not := objection(self._work(job)):
            self.notice(why_not, "warning")
        return bool(why_not)

    @work(exclusive=True, group=OPENS)
    async def _renew_and_act(self, ask: Ask, objection: Callable[[Work], str], shown: Job) -> None:
        job = await self.attempt(self._renewed(shown))
        if job is not None and self.is_current:
            if self._refuses(objection, job):
                self._again(changed=True)
            else:
                self._cancel_or_resume(ask, job)

    @work(exclusive=True, group="act")
    async def _cancel_or_resume(self, ask: Ask, job: Job) -> None:
        await act(self, ask, self._work(job))
        self._again(changed=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in AT_LEVEL or self.level is AT_LEVEL[action]

    NEEDS: ClassVar[Mapping[str, Need[JobsScreen]]] = {
        **dict.fromkeys(("open", "copy", "search"), Need(lambda view: view.list.key)),
        "filter": Need(lambda view: view.level is not Level.JOBS or view.jobs),
        "leave": Need(lambda view: view.level is not Level.JOBS or view.filter_field.value),
        "cancel_job": Need(
            lambda view: (job := view.job) and not view._work(job).why_no_cancel,
        ),
        "resume_job": Need(
            lambda view: (job := view.job) and not view._work(job).why_no_resume,
        ),
    }
