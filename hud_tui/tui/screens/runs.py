"""RunsScreen: all runs of all models in one table: sort, filter, group, mark, cancel and resume."""

from __future__ import annotations

from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.client.changed import sides_of_runs
from hud_tui.client.selection import Entry
from hud_tui.client.works import WorkClient
from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.export import Sheet
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.progress import Liveness
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import (
    COLUMNS,
    column,
    columns,
    meaning_of,
    offered,
    parse_filter,
    value_text,
)
from hud_tui.rl.run_groups import DIFFERS
from hud_tui.rl.settings import setting_label
from hud_tui.rl.ship import FEWEST, MOST
from hud_tui.rl.sweep import Sweep
from hud_tui.rl.text import clean, counted, one_line, spaced
from hud_tui.rl.work import Work, trouble
from hud_tui.rollouts.control import driven_here
from hud_tui.rollouts.run_files import RunFolder
from hud_tui.rollouts.watched import failure_text
from hud_tui.storage import tail
from hud_tui.tui.job_actions import Ask, act, ask_cancel, ask_resume, why_no_resume
from hud_tui.tui.keys import OPENS, Need
from hud_tui.tui.layout import read_choices
from hud_tui.tui.screens.base import HudScreen, TextPanel, ViewContext, unread
from hud_tui.tui.screens.chart_settings import ColumnList
from hud_tui.tui.screens.compare import show_changed
from hud_tui.tui.screens.compared_runs import RunComparison
from hud_tui.tui.screens.dialogs import ChoiceDialog, Dialog
from hud_tui.tui.screens.ship import ShipPanel
from hud_tui.tui.sweep_actions import AskSweep, ask_cancel_sweep, ask_resume_sweep
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.run_curves import Compared, RunPreview
from hud_tui.tui.widgets.run_table import Arrangement, RunTable
from hud_tui.wire import WorkState

# Dialogs about one run: its name and note, and its details.


class EditDialog(Dialog[tuple[str, str] | None]):
    """A run's name and its note; None if the user leaves."""

    def __init__(self, row: Work, named: bool) -> None:
        """`named`: whether its name can be changed."""
        lines = ["The name is the job's, for everybody; the note stays on this machine."]
        if not named:
            lines = ["The note stays on this machine. A loop without a job has its model's name."]
        super().__init__(f"Run {row.id[:8]}", lines, [("confirm", "Save  (enter)")])
        self.row, self.named = row, named

    def fields(self) -> Iterable[Widget]:
        if self.named:
            yield Static("name", classes="dialog-line")
            yield Input(self.row.name, id="edit-name", max_length=200, compact=True)
        yield Static("note", classes="dialog-line")
        yield Input(self.row.note, id="edit-note", max_length=400, compact=True)

    def on_mount(self) -> None:
        self.query(Input).first().focus()

    def action_confirm(self) -> None:
        texts = [field.value.strip() for field in self.query(Input)]
        self.dismiss((texts[0] if self.named else self.row.name, texts[-1]))


FAILURES = 20
LOG_BYTES, LOG_LINES = 100_000, 500
"""Most bytes and lines of a log that are shown."""


class RunDetails(TextPanel):
    """Every column and parameter of a run; for one driven from here also errors in the user's code,
    and the end of the environment's output."""

    def __init__(
        self,
        row: Work,
        now: float,
        state: Path | None,
        ask: Callable[[], Awaitable[WorkState | None]] | None,
    ) -> None:
        """`state` has the files of a run that is driven from here; `ask` reads its status, which
        says why it ended; None for a loop, which has none."""
        super().__init__(f"run {row.title}", self._text)
        self.row, self.now, self._ask = row, now, ask
        self._why: list[Content] = []
        """Why it ended, and what to press."""
        self.driven = driven_here(state, row.id)

    def on_mount(self) -> None:
        if self.driven is not None:
            self.set_interval(AGAIN_S, self.lay_out)
        if self._ask is not None:
            self._read_why(self._ask)

    @work(exclusive=True, group="read")
    async def _read_why(self, ask: Callable[[], Awaitable[WorkState | None]]) -> None:
        try:
            status = await ask()
        except HudError as error:
            self._why = [Content.styled(f"its status cannot be read: {error.message}", "$warning")]
        else:
            self._why = list(_why_ended(self.row, status))
        self.lay_out()

    def _text(self, room: int) -> list[Content]:
        width = max(LEAST_TOLD + LABELLED, room)
        lines = [*self._why, *([Content()] if self._why else [])]
        for detail in COLUMNS.values():
            if not detail.is_detail:
                continue
            lines += _labelled(detail.title, text := detail.text(self.row, self.now), width)
            if text != "–" and (meaning := meaning_of(detail, self.row)):
                lines += _labelled("", meaning, width, "$text-muted")
        if self.row.alarm_title:
            lines += _labelled("worst alarm", self.row.alarm_title, width)
        lines += [Content(), Content.styled("parameters", "bold")]
        for key, value in sorted(self.row.parameters.items()):
            lines += _labelled(setting_label(key), value_text(value), width)
        if self.driven is not None:
            lines += _failures(self.driven)
            lines += _log("environment's log", self.driven.environment_log)
            lines += _log("driver's log", self.driven.driver_log)
        return [part for line in lines for part in (line.wrap(max(20, room)) or [line])]


def _why_ended(row: Work, status: WorkState | None) -> Iterator[Content]:
    """Why a run failed, or ended before its last step, and which key goes on."""
    why = "" if status is None else one_line(Work.of(status).why, 2000)
    if why:
        style = "$error" if status is not None and trouble(status) else ""
        yield Content.styled(f"{row.status}: {why}", style)
    if not row.why_no_resume:
        where = f"step {row.step + 1}" if row.step else "the start"
        yield Content.styled(
            keyed("{runs.resume_run} in Runs resumes it, ") + f"from {where} on.", "$text-muted"
        )


def _failures(folder: RunFolder) -> list[Content]:
    """Errors in the user's code, equal ones once, newest first, with their traceback."""
    by_text: dict[str, list[dict[str, Any]]] = {}
    for failure in reversed(folder.failures()):
        by_text.setdefault(failure_text(failure), []).append(failure)
    lines = [Content(), Content.styled("failed rollouts", "bold")] if by_text else []
    for text, alike in list(by_text.items())[:FAILURES]:
        lost = sum(failure.get("groups_lost", 0) for failure in alike)
        times = f"{counted(len(alike), 'rollout')}, {counted(lost, 'group')} lost, task "
        lines.append(Content.styled(one_line(text, 500), "$error"))
        lines.append(Content.styled(times + one_line(alike[0].get("task"), 100), "$text-muted"))
        trace = clean(str(alike[0].get("traceback") or ""), 8000).splitlines()
        lines += [Content(f"  {line}") for line in trace]
    return lines


def _log(title: str, file: Path) -> list[Content]:
    text = clean(tail(file, LOG_BYTES), LOG_BYTES)
    if not text.strip():
        return []
    heading = Content.assemble(
        Content.styled(title, "bold"), "  ", Content.styled(one_line(file, 200), "$text-muted")
    )
    return [Content(), heading, *map(Content, text.splitlines()[-LOG_LINES:])]


LABELLED = 32
"""Cells of a label, with the gap behind it."""
LEAST_TOLD = 20
"""Least width of what is beside it."""


def _labelled(title: str, text: str, width: int, style: str = "") -> Iterator[Content]:
    """A label, and a text that stays beside it where it takes several lines."""
    label = one_line(title, LABELLED - 2)
    for part in Content.styled(one_line(text, 500), style).wrap(width - LABELLED) or [Content()]:
        yield labelled(LABELLED, label, part)
        label = ""


# The view: reading, and its keys.


AGAIN_S = 1.0
"""Seconds between two reads of a list that reports its changes."""
RESTS_S = 0.2
"""Seconds after which the cursor rests on a run."""
POLLED_S = 10.0
"""The same if rows are computed within a budget of requests."""
NO_RUNS = (
    "No runs yet. Press {app.view.launch} to launch one; a loop of your own is listed\n"
    "once it has taken a step."
)
RUN, SWEEP = "run", "sweep"
LEAST_COMPARED = 2
"""Least number of runs in a comparison."""
TO_SHIP = "Mark two runs that have checkpoints ({runs.mark}), or go to a run of a sweep."
NONE_MARKED = "Mark the runs to compare first: {runs.mark} marks one."
MARK_TWO = (
    "Mark two runs to see what changed: {runs.mark} marks one, {runs.unmark} removes the marks."
)
ONE_MARKED = "Only this run is marked: go to the run to compare it with, then press {runs.compare}."


@dataclass(frozen=True)
class Asks:
    """What a key asks of a run, or of its sweep."""

    question: str
    of_run: Ask
    of_sweep: AskSweep


CANCEL = Asks("Cancel the run or the sweep", ask_cancel, ask_cancel_sweep)
RESUME = Asks("Resume the run or the sweep", ask_resume, ask_resume_sweep)


class RunsScreen(HudScreen):
    """Reads the table while it is shown."""

    VIEW = "runs"
    AUTO_FOCUS: ClassVar[str | None] = "RunTable"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.table = RunTable(context.clock, id="runs")
        words = "words, or lr:3e-4 reward>.8 state:running"
        self.filter_field = FilterField(words, "runs-filter", self.table)
        self.preview = RunPreview()
        self.rows: Sequence[Work] | None = None
        """The rows; None until they were read."""
        self._titles: Counter[str] = Counter()
        """Number of runs with each name."""
        self._wrong = ""
        self._good: Callable[[Work], bool] | None = None
        """The last filter that left a row; None shows all."""
        self._shown_error = ""
        """The last error, so that it is shown only once."""
        self._read_at = 0.0
        self._sweeps: list[str] = []
        """Progress of the sweeps in the title."""

    def body(self) -> Iterable[Widget]:
        yield Static("", id="runs-title", markup=False)
        yield self.filter_field
        yield self.table
        yield self.preview
        yield Static("reading the runs …", id="runs-empty", markup=False)

    # Reading, and when it is repeated.

    @property
    def works(self) -> WorkClient:
        """Of the present client."""
        return self.session.works

    def on_mount(self) -> None:
        self.set_interval(AGAIN_S, self._again)

    def resume(self) -> None:
        self.read()

    def _again(self) -> None:
        polls = self.works.runs.polls
        due = self.context.clock() - self._read_at >= POLLED_S - AGAIN_S
        if self.is_current and not self.session.freshness.offline and (due or not polls):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the rows, or their changes; marked ones first."""
        if self.session.replays:
            self.show()
            return
        self._read_at = self.context.clock()
        try:
            rows = await self.works.runs.read(self.table.marked)
        except HudError as error:
            if error.message != self._shown_error:
                self._shown_error = error.message
                self.show_error(error)
            return
        self._shown_error = ""
        sweeps = [sweep.progress_text for sweep in self._unfinished(rows)]
        if sweeps != self._sweeps:
            self._sweeps = sweeps
            if self.rows is not None:
                self._show_title()
        if rows is not self.rows and self.is_built:
            first = self.rows is None
            self.rows, self._titles = rows, Counter(row.title for row in rows)
            self.show()
            if first:
                self._find()
            self.go_to_requested()

    def _find(self) -> None:
        """Go to the run of the step under the crosshair, else the model's newest."""
        tree, model = self.run.tree, self.run.model
        position = tree.find(self.session.checkpoint_id)
        made = None if position is None else tree[position].job_id
        newest = (row.id for row in self.rows or () if model and row.model_id == model.id)
        self.table.select(made or next(newest, ""))

    def reach(self, name: str) -> bool:
        if not any(run.id == name for run in self.rows or ()):
            return False
        if self.table.line_of(name) is None:
            self.filter_field.fill("")
            self.show()
        self.table.select(name)
        return True

    def watch_run(self, before: Run, run: Run) -> None:
        followed = run.model_id or ""
        if followed != self.table.followed:
            self.table.followed = followed
            row = self.table.row
            if self.rows is not None and (row is None or row.model_id != followed):
                self._find()  # it was selected in another view
            self.table.redraw()
        if run.job is not before.job and self.rows is not None:
            self.show()

    def watch_freshness(self, before: Liveness, now: Liveness) -> None:
        if self.rows is None and before.offline != now.offline:
            self.show()  # they are no longer being read

    # Drawing.

    def lay_out(self) -> None:
        layout = self.context.layout.now
        self.filter_field.fill(layout.runs_filter)
        self.table.lay(Arrangement.of(layout.runs_columns, layout.runs_sort, layout.runs_group))
        self.show()

    def rearrange(
        self, shown: Sequence[str] | None = None, sort: str | None = None, group: str | None = None
    ) -> None:
        """Change columns (empty for the defaults), order or groups, and store that."""
        now = self.table.arrangement
        keys = [column.key for column in now.columns] if shown is None else shown
        made = Arrangement.of(
            ",".join(keys),
            now.sort if sort is None else sort,
            now.group if group is None else group,
        )
        usual = made.columns == tuple(columns(""))
        text = "" if usual else ",".join(column.key for column in made.columns)
        self.context.layout.arrange(runs_columns=text, runs_sort=made.sort, runs_group=made.group)
        self.table.lay(made)
        self.show()

    @property
    def offered(self) -> list[str]:
        return offered(self.rows or ())

    def show(self) -> None:
        """Draw the rows that match the filter."""
        if not self.is_attached:
            return
        text, self._wrong, now = self.filter_field.value, "", self.context.clock()
        try:
            keep = parse_filter(text, now) if text else None
        except HudUsage as error:  # while the filter is incomplete, the rows stay
            self._wrong, keep = f"{error.message}; {error.hint}", self._good
        rows = [self.session.at_newest(run) for run in self.rows or ()]
        rows = [run for run in rows if keep is None or keep(run)]
        if rows or keep is None:
            self._good = keep
        self.table.show(self.table.arrangement.lines(rows, now), self._titles)
        empty = "" if rows else self._empty()
        self.set_class(bool(empty), "-empty")
        self.query_one("#runs-empty", Static).update(empty)
        self._show_title()
        self._preview()
        self.renew_hints()
        if not empty and self.focused is None:  # a hidden widget cannot have the focus
            self.call_after_refresh(self.table.focus)

    def _empty(self) -> str:
        if self.session.replays:
            return keyed("A replay has no list of runs. {app.view.live} shows its run.")
        if self.rows is None:
            return unread("runs", self.session.freshness)
        return keyed("No run matches. {^runs.leave} shows all." if self.rows else NO_RUNS)

    def _show_title(self) -> None:
        title = self.query_one("#runs-title", Static)
        title.set_class(bool(self._wrong), "-wrong")
        if self._wrong:
            title.update(Content.styled(f" {one_line(self._wrong, 300)}", "$warning"))
            return
        total, made = len(self.rows or ()), self.table.arrangement
        shown = sum(isinstance(line, Work) for line in self.table.lines)
        count = counted(total, "run") if shown == total else f"{shown} of {spaced(total)}"
        parts = [] if self.rows is None else [count]
        if self.table.marked:
            parts.append(f"{len(self.table.marked)} marked")
        if made.group:
            by = "what differs" if made.group == DIFFERS else column(made.group).title
            parts.append(f"grouped by {by}")
        parts += self._sweeps
        if self.works.runs.polls:
            parts.append(self.works.runs.source_text)
        title.update(Content.assemble((" Runs", "bold"), (f"  {' · '.join(parts)}", "$text-muted")))

    def sheet(self) -> Sheet:
        keys, now = self.offered, self.context.clock()
        rows = [line for line in self.table.lines if isinstance(line, Work)]
        values = [[column(key).value(row, now) for key in keys] for row in rows]
        shown = len(rows) if self.filter_field.value else None
        return Sheet("runs", keys, values, shown=shown)

    # Keys.

    @on(RunTable.Moved)
    def _moved(self) -> None:
        self._preview()
        self.renew_hints()

    def on_resize(self) -> None:
        self._preview()

    def _preview(self) -> None:
        row = self.table.row
        if self.preview.show(row, self.context.clock(), self.size) and row is not None:
            self._draw(row)

    @work(exclusive=True, group="preview")
    async def _draw(self, row: Work) -> None:
        await sleep(RESTS_S)
        if not self.works.runs.polls:
            with suppress(HudError):
                series = await self.works.runs.series(row.id, (REWARD,))
                self.preview.draw(row, series)

    @on(RunTable.Titled)
    def _titled(self, message: RunTable.Titled) -> None:
        column = self.table.column_at(message.cell)
        if column is not None:
            self.rearrange(sort=self.table.arrangement.sorting(column))

    @on(RunTable.Opened)
    def action_open(self) -> None:
        if (row := self.table.row) is not None:
            self.show_run(row, "live")

    def action_jump(self) -> None:
        if (row := self.table.row) is not None:
            self.show_run(row, "checkpoints")

    @work(exclusive=True, group="act")
    async def show_run(self, row: Work, view: str, checkpoint_id: str | None = None) -> None:
        """Select a run's model and show a view of it, at a checkpoint. Without one: the newest step
        of an active run, the last step of an ended one. Of an imported one there is no model: its
        details are shown."""
        if row.is_imported:
            self._show_details(row)
            return
        models = [model for model in self.session.catalog if model.id == row.model_id]
        model = models[0] if models else await self.attempt(self.client.model(row.model_id or ""))
        if model is None:
            return
        if checkpoint_id is None and not row.is_active and row.step:
            series = await self.attempt(self.works.runs.series(row.id, ("reward_mean",)))
            checkpoint_id = series.ids[-1] if series is not None and series.ids else None
        if self.run.model is None or self.run.model.id != model.id:
            self.session.choose(model)
        self.session.checkpoint_id = checkpoint_id
        await self.app.switch_mode(view)

    def action_mark(self) -> None:
        if (row := self.table.row) is not None:
            marked = self.table.marked
            if row.id in marked:
                del marked[row.id]
            else:
                marked[row.id] = None
            self.table.action_move(1)
            self._marks_changed()

    @property
    def _to_compare(self) -> dict[str, None]:
        """The marked runs; with fewer than two, also the run under the cursor."""
        ids = dict(self.table.marked)
        if len(ids) < LEAST_COMPARED and self.table.row is not None:
            ids[self.table.row.id] = None
        return ids

    @work(exclusive=True, group="compare")
    async def action_compare(self) -> None:
        ids = self._to_compare
        choices = read_choices(self.session.store)
        first = Compared(axis=choices.axis, smoothing=choices.smoothing, log=choices.log)
        names = {row.id: self.table.name_of(row) for row in self._of(ids)}
        destination = await self.app.push_screen_wait(
            RunComparison(lambda: self._of(ids), self.works.runs, self.session, first, names)
        )
        if destination is not None:
            self.show_run(*destination)

    @work(exclusive=True, group=OPENS)
    async def action_before_after(self) -> None:
        """What changed from one run's last checkpoint to the other's."""
        rows = self._of(self._to_compare)
        sides = await self.attempt(sides_of_runs(self.client, self.works.runs, (rows[0], rows[1])))
        if sides is not None:
            await show_changed(self.app, self.session, *sides, runs=rows)

    @work(exclusive=True, group="ship")
    async def action_ship(self) -> None:
        """Show which of the runs' newest checkpoints to ship: of the marked ones, or of a sweep."""
        rows = self._to_ship
        if len(rows) > MOST:
            self.notice(
                keyed(f"{len(rows)} runs: mark up to {MOST} with {{runs.mark}}."), "warning"
            )
            return
        entries = await self.attempt(self._candidates(rows))
        if entries is None:
            return
        if len(entries) < FEWEST:
            self.notice(keyed(TO_SHIP), "warning")
            return
        model = await self.attempt(self.client.model(entries[0].model_id))
        if model is None:
            return
        panel = ShipPanel(self.session, self.context.writes, model, entries)
        chosen = await self.app.push_screen_wait(panel)
        row = next((row for row in rows if chosen and row.model_id == chosen.model_id), None)
        if chosen is not None and row is not None:
            self.show_run(row, "checkpoints", chosen.checkpoint_id)
            self.notice(keyed("{checkpoints.set_head} sets the head to it; asks first."))

    @property
    def _to_ship(self) -> list[Work]:
        """The marked runs; with fewer than two, those of the sweep under the cursor."""
        marked, row = self._of(self.table.marked), self.table.row
        if len(marked) >= LEAST_COMPARED or row is None or not row.sweep:
            return marked
        return [each for each in self.rows or () if each.sweep == row.sweep]

    async def _candidates(self, rows: Sequence[Work]) -> list[Entry]:
        """The newest checkpoint of each run, and the base. Raises HudError."""
        entries: list[Entry] = []
        several = len({row.model_id for row in rows}) > 1
        for row in rows:
            if row.why_no_checkpoint:
                raise HudUsage(row.why_no_checkpoint)
            series = await self.works.runs.series(row.id, (REWARD,))
            model = await self.client.model(row.model_id or "")
            tree = Tree.of(await self.client.checkpoints(model.id))
            position = tree.find(series.ids[-1]) if series.ids else None
            if position is not None:
                entries.append(Entry.of(model, tree[position], several))
                base = Entry.of(model, None)
        return [*entries, base] if 0 < len(entries) < MOST else entries

    def _of(self, ids: Iterable[str]) -> list[Work]:
        by_id = {row.id: row for row in self.rows or ()}
        return [by_id[id_] for id_ in ids if id_ in by_id]

    def action_unmark(self) -> None:
        self.table.marked.clear()
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.table.redraw()
        self._show_title()
        self.renew_hints()

    def action_columns(self, by: int) -> None:
        self.table.shift(by)

    def action_arrange(self) -> None:
        self.app.push_screen(ColumnList(self))

    def action_next_view(self) -> None:
        """Group by the parameters that differ except the seed, then by sweep, then not at all."""
        following = {"": DIFFERS, DIFFERS: "sweep"}
        self.rearrange(group=following.get(self.table.arrangement.group, ""))

    def action_details(self) -> None:
        if (row := self.table.row) is not None:
            self._show_details(row)

    def _show_details(self, row: Work) -> None:
        state = self.session.store.directory
        asks = not (row.is_loop or row.is_imported or self.session.replays)
        ask = partial(self.session.works.state, row.id) if asks else None
        self.app.push_screen(RunDetails(row, self.context.clock(), state, ask))

    @work(exclusive=True, group="act")
    async def action_edit(self) -> None:
        if (row := self.table.row) is None:
            return
        dialog = EditDialog(row, named=row.id != row.model_id and not row.is_imported)
        texts = await self.app.push_screen_wait(dialog)
        if texts is None:
            return
        name, note = texts
        if note != row.note and (unkept := self.works.notes.keep(row.id, note)):
            self.notice(unkept, "warning")
        if name and name != row.name and self.context.writes.may_change():
            await self.attempt(self.client.rename_job(row.id, name))
        self.read()

    def action_cancel_run(self) -> None:
        if (row := self.table.row) is not None:
            sweep = self._sweep_of(row)
            may = sweep is not None and sweep.may_cancel
            self._act(CANCEL, row, row.why_no_cancel, sweep if may else None)

    def action_resume_run(self) -> None:
        if (row := self.table.row) is not None:
            sweep, driven = self._sweep_of(row), {s.name for s in self.session.sweeps.values()}
            may = sweep is not None and sweep.may_resume and sweep.name not in driven
            self._act(RESUME, row, why_no_resume(row), sweep if may else None)

    def _act(self, asks: Asks, row: Work, why_not: str, sweep: Sweep | None) -> None:
        """Cancel or resume a run, or its sweep if there is one to act on; else show the objection,
        which leaves what is under way alone."""
        if sweep is None and why_not:
            self.notice(why_not, "warning")
        else:
            self._cancel_or_resume(asks, row, why_not, sweep)

    def _sweep_of(self, row: Work) -> Sweep | None:
        """The sweep of a run, if it was begun on this machine, with the table's statuses: its file
        has those of when a program last drove it."""
        sweeps = self.works.sweeps.all() if row.sweep else ()
        own = next((sweep for sweep in sweeps if sweep.name == row.sweep), None)
        return None if own is None else own.with_statuses(_statuses(self.rows or ()))

    def _unfinished(self, rows: Sequence[Work]) -> list[Sweep]:
        """The sweeps driven from here, and those of these runs that have runs waiting."""
        driven, now = self.session.sweeps, _statuses(rows)
        sweeps = self.works.sweeps.all() if any(row.sweep for row in rows) else ()
        others = (sweep.with_statuses(now) for sweep in sweeps if sweep.id not in driven)
        is_here = (sweep for sweep in others if any(m.job_id in now for m in sweep.members))
        return [
            *driven.values(),
            *(sweep for sweep in is_here if sweep.waiting and not sweep.cancelled),
        ]

    @work(exclusive=True, group="act")
    async def _cancel_or_resume(
        self, asks: Asks, row: Work, why_not: str, sweep: Sweep | None
    ) -> None:
        """Ask, act, show the new status, then read again."""
        chosen: str | None = RUN
        if sweep is not None:
            lines = [f"The run is one of a sweep. {sweep.progress_text}."]
            choices = [(RUN, "This run"), (SWEEP, "The sweep")]
            dialog = ChoiceDialog(asks.question, lines, choices, RUN, "Neither")
            chosen = SWEEP if why_not else await self.app.push_screen_wait(dialog)
        if chosen == RUN:
            await act(self, asks.of_run, row)
        elif chosen == SWEEP:
            assert sweep is not None
            status = await self.attempt(asks.of_sweep(self.app, self.session, sweep))
            if status is not None:
                self.notice(status)
        self.read()

    @on(Input.Changed, "#runs-filter")
    def _filter(self) -> None:
        self.context.layout.arrange(runs_filter=self.filter_field.value)
        self.show()

    def action_copy(self) -> None:
        if (row := self.table.row) is not None:
            self.copy(row.id)

    def action_refresh(self) -> None:
        self.read()

    def _are_two(self) -> bool:
        rows = self._of(self._to_compare)
        return len(rows) == 2 and not _is_any_imported(rows)

    def _are_candidates(self) -> bool:
        rows = self._to_ship
        return len(rows) >= LEAST_COMPARED and not _is_any_imported(rows)

    def _why_not_two(self) -> str:
        rows = self._of(self._to_compare)
        imported = (row.why_no_checkpoint for row in rows if row.is_imported)
        return next(imported, keyed(MARK_TWO)) if len(rows) == 2 else keyed(MARK_TWO)

    NEEDS: ClassVar[Mapping[str, Need[RunsScreen]]] = {
        **dict.fromkeys(
            ("open", "mark", "edit", "details", "copy"), Need(lambda view: view.table.row)
        ),
        **dict.fromkeys(("arrange", "filter", "next_view"), Need(lambda view: view.rows)),
        "unmark": Need(lambda view: view.table.marked),
        "leave": Need(lambda view: view.filter_field.value),
        "jump": Need(lambda view: (row := view.table.row) and not row.is_imported),
        "compare": Need(
            lambda view: len(view._to_compare) >= LEAST_COMPARED,
            lambda view: keyed(ONE_MARKED if view.table.marked else NONE_MARKED),
        ),
        "before_after": Need(_are_two, _why_not_two),
        "ship": Need(_are_candidates),
        "cancel_run": Need(lambda view: (row := view.table.row) and not row.why_no_cancel),
        "resume_run": Need(lambda view: (row := view.table.row) and not why_no_resume(row)),
    }


def _is_any_imported(rows: Iterable[Work]) -> bool:
    return any(row.is_imported for row in rows)


def _statuses(rows: Iterable[Work]) -> dict[str, str]:
    return {run.id: run.status for run in rows}
