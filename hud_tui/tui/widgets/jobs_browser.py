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

from hud_tui.keys import keyed
from hud_tui.rl.jobs import is_active
from hud_tui.rl.text import LIMIT, one_line
from hud_tui.tui.job_reader import Part
from hud_tui.tui.job_rows import JOBS, SIBLINGS, TRACES, job_rows, sibling_rows, trace_rows
from hud_tui.tui.job_titles import jobs_title, part_title, rollout_title
from hud_tui.tui.widgets.filter_field import FilterField
from hud_tui.tui.widgets.rollout import RolloutPane
from hud_tui.tui.widgets.rollout_text import Reading, unsafe
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Job, Trace, TraceEvents


class Level(IntEnum):
    """How far in the view is."""

    JOBS = 0
    TRACES = 1
    ROLLOUT = 2


FILTER = "filter by any text of the rows"
SEARCH = "search the rollout; then n and N"
NO_JOBS = "No jobs yet. Press {app.view.launch} to launch a run."
REPLAYED = "A replay lists no jobs. {app.view.live} shows its run."
NAME_LEAST = 24
"""Cells that a job's name wants at least."""


class JobsBrowser(Vertical):
    """Draws what the screen has read. It reads nothing itself."""

    level: reactive[Level] = reactive(Level.JOBS, init=False)

    class Filtered(Message):
        """The filter's text has changed."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.field = FilterField(FILTER, "jobs-filter")
        """Where the filter is typed."""
        self.jobs_text = ""
        """What the jobs are filtered by, while one of them is looked at too."""
        self.pane = RolloutPane(id="rollout-pane")
        self._title_line = Static("", id="jobs-title", markup=False)
        self._reason = Static("", id="jobs-reason", markup=False)
        self._empty = Static("reading the jobs …", id="jobs-empty", markup=False)
        self._lists = {
            Level.JOBS: RowList(JOBS, id="jobs", least=NAME_LEAST),
            Level.TRACES: RowList(TRACES, id="traces"),
            Level.ROLLOUT: RowList(SIBLINGS, id="siblings"),
        }

    def compose(self) -> Iterator[Widget]:
        yield self._title_line
        yield self.field
        yield self._lists[Level.JOBS]
        yield self._lists[Level.TRACES]
        with Container(id="rollout"):
            yield self.pane
            yield self._lists[Level.ROLLOUT]
        yield self._empty
        yield self._reason

    def on_mount(self) -> None:
        self.watch_level()

    @property
    def list(self) -> RowList:
        """The list that has the cursor at this level."""
        return self.list_of(self.level)

    def list_of(self, level: Level) -> RowList:
        return self._lists[level]

    def watch_level(self) -> None:
        """Show that level, with the cursor in it and without the other's filter."""
        rollout = self.level is Level.ROLLOUT
        self.field.placeholder = SEARCH if rollout else FILTER
        for one in Level:
            self.set_class(one is self.level, f"-{one.name.lower()}")
        self.field.value = self.jobs_text if self.level is Level.JOBS else ""
        self.field.display = bool(self.field.value)
        self.list.focus()

    def filter_jobs(self, text: str) -> None:
        """List only the jobs with this text."""
        self.jobs_text = text
        if self.level is Level.JOBS:
            self.field.value, self.field.display = text, bool(text)

    def show_jobs(self, jobs: Sequence[Job] | None, now: float, replayed: bool) -> None:
        """The jobs; None while they are being read. A replay has none to list."""
        rows = job_rows(jobs or (), self.field.value, now)
        self.list_of(Level.JOBS).show(rows)
        empty = keyed("No job has this text. {^jobs.leave} shows all.")
        if jobs is None:
            empty = "reading the jobs …"
        elif not jobs:
            empty = keyed(REPLAYED if replayed else NO_JOBS)
        self._title(jobs_title(jobs, len(rows)), "" if rows else empty)

    def show_part(self, part: Part | None, job: Job, following: bool) -> None:
        """Some of a job's rollouts; None while they are being read."""
        rows = trace_rows(part.groups if part is not None else (), self.field.value)
        self.list_of(Level.TRACES).show(rows)
        empty = keyed("No rollout has this text. {^jobs.leave} shows all.")
        if part is None:
            empty = "reading the rollouts …"
        elif not part.groups:
            empty = keyed("No rollouts were sampled. {^jobs.leave} goes back.")
            if is_active(job):
                empty = keyed(
                    "No rollouts yet: they appear as they are graded. {^jobs.leave} goes back."
                )
        title = part_title(part, job, following, self.size.width - 2)
        self._title(title, "" if rows else empty)

    def show_rollout(
        self, part: Part, trace: Trace, turns: TraceEvents | None, reading: Reading
    ) -> None:
        """One rollout beside its siblings; the turns are None while they are being read."""
        group = part.group_of(trace)
        siblings = self.list_of(Level.ROLLOUT)
        siblings.show(sibling_rows(group, trace.id))
        siblings.select(trace.id)
        self.pane.show_rollout(trace, turns, reading)
        self.pane.find(self.field.value)
        removed = 0 if turns is None else unsafe(turns)
        found = (self.pane.hit + 1, len(self.pane.hits)) if self.field.value else None
        self._title(rollout_title(group, trace, self.size.width - 2, removed, found), "")

    @on(RolloutPane.Resized)
    def _lay_out(self) -> None:
        self.pane.lay_out()

    def say_reason(self, why: str) -> None:
        """Why the job ended as it did, in as many lines as it takes; nothing where empty."""
        self._reason.display = bool(why)
        self._reason.update(one_line(why, LIMIT))

    def begin_filter(self) -> None:
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
        if self.level is Level.JOBS:
            self.jobs_text = self.field.value
        self.post_message(self.Filtered())

    @on(Input.Submitted, "#jobs-filter")
    def _submitted(self) -> None:
        self.end_filter()

    def _title(self, title: Content, empty: str) -> None:
        self._title_line.update(title)
        self.set_class(bool(empty), "-empty")
        self._empty.update(empty)
        if not empty and self.screen.focused is None:  # out of sight, it could not have it
            self.call_after_refresh(self.list.focus)
