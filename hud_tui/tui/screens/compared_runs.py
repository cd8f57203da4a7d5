"""RunComparison: runs laid over each other in one chart, and beside it what they differ in."""

from __future__ import annotations

from asyncio import Semaphore, gather
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from hud_tui.client.runs import RunList
from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.compare import RunSeries
from hud_tui.rl.curves import WEIGHTS
from hud_tui.rl.metrics import TABLE, metric
from hud_tui.rl.metrics import title as metric_title
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import Work
from hud_tui.tui.keys import FootLine
from hud_tui.tui.screens.chart_settings import ListBox
from hud_tui.tui.screens.dialogs import Over
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.run_curves import Compared, RunCurves, RunLegend
from hud_tui.tui.widgets.table import Column, RowList, item_row

METRICS_TOLD: Sequence[Column[str]] = (
    Column("metric", 22, metric_title),
    Column("what it means", 0, lambda key: metric(key).meaning, "$text-muted"),
)


class MetricList(ListBox[str | None]):
    """Closes with the chosen metric."""

    VIEW = "overlays"
    HEADING = "metric"
    COLUMNS = METRICS_TOLD
    FOOT = "{overlays.choose} show  {overlays.leave} back"

    def __init__(self, keys: Sequence[str], chosen: str) -> None:
        super().__init__()
        self.keys, self.chosen = keys, chosen

    def on_mount(self) -> None:
        self.rows.show([item_row(METRICS_TOLD, key, key) for key in self.keys])
        self.rows.select(self.chosen)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        self.dismiss(self.rows.key)


AT_ONCE = 4
"""Runs that are read at the same time."""
AGAIN_S, POLLED_S = 1.0, 10.0
"""Seconds between two reads of active runs; on a service that is polled."""
METRICS = tuple(definition.key for definition in TABLE)
COMPARED_FOOT = (
    "{compared.cursor.-1} {compared.cursor.1} step  {compared.move.-1} {compared.move.1} run  "
    "{compared.next_view} metric  {compared.charts} all metrics  {compared.axis} axis  "
    "{compared.smooth.1} {compared.smooth.-1} smooth  {compared.show_or_hide} hide  "
    "{compared.open} Live  {compared.jump} tree  {compared.help} help  {compared.leave} back"
)


Destination = tuple[Work, str, str | None]
"""Where to go after the comparison: a run, a view, and the id of the step under the crosshair."""


class RunComparison(Over[Destination | None]):
    """Runs in one chart, aligned at their beginnings; active ones are updated."""

    VIEW = "compared"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        rows: Callable[[], Sequence[Work]],
        source: RunList,
        session: RunSession,
        first: Compared,
        names: Mapping[str, str],
    ) -> None:
        """`source` reads the steps of the runs, `session` has the crosshair of all views, `first`
        is the initial display, and `names` are those of the runs, by id."""
        super().__init__()
        self.rows_now, self.source, self.session = rows, source, session
        self.compared, self.names = first, names
        self.curves = RunCurves()
        self.legend = RunLegend(self.curves)
        self._unread = ""
        """Why a run could not be read."""

    def compose(self) -> ComposeResult:
        with Vertical(id="compared") as box:
            box.border_title = f"compare {counted(len(self.rows_now()), 'run')}"
            with Horizontal(id="compared-panes"):
                yield self.curves
                yield self.legend
            yield Static("reading the runs …", id="compared-note", markup=False)
            yield FootLine(COMPARED_FOOT, id="compared-foot")

    def on_mount(self) -> None:
        self.legend.focus()
        self.read(point=True)
        again = POLLED_S if self.source.polls else AGAIN_S
        self.set_interval(again, self._again)

    def _again(self) -> None:
        if any(run.is_active for run in self.rows_now()):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self, point: bool = False) -> None:
        turn, rows, key = Semaphore(AT_ONCE), self.rows_now(), self.compared.key
        series_of: dict[str, RunSeries] = {}

        async def read_run(row: Work) -> None:
            async with turn:
                try:
                    series_of[row.id] = await self.source.series(row.id, (key,))
                except HudError as error:
                    self._unread = f"{row.title}: {one_line(error.message, 200)}"
            done = len(series_of)
            if done < len(rows) and done % AT_ONCE == 0 and not self.compared.runs:
                self.show_note(f"reading the runs … {done} of {len(rows)}")

        await gather(*map(read_run, rows))
        runs = tuple((row, series_of[row.id]) for row in rows if row.id in series_of)
        steps = tuple(len(series) for _, series in runs)
        self.change(runs=runs, steps=steps)
        if point:
            self._find()

    def change(self, **changes: object) -> None:
        chosen, before = self.legend.chosen, self.compared
        self.compared = now = replace(before, **changes)  # type: ignore[arg-type]
        rows = now.ranked
        order = [row.id for row, _ in rows]
        if chosen not in order:
            chosen = order[0] if order else ""
        self.curves.show(now, [row.id for row, _ in now.runs], chosen)
        self.legend.show(rows, self.names)
        none = (
            f"No run reports {metric_title(now.key)}: {{compared.next_view}} shows the next metric."
        )
        self.show_note(self._unread or ("" if now.is_reported or not rows else none))

    def show_note(self, text: str) -> None:
        note = self.query_one("#compared-note", Static)
        note.update(keyed(text))
        note.display = bool(text)

    def _find(self) -> None:
        """Move the crosshair to that of the other views, if one of the runs made that step."""
        checkpoint_id = self.session.checkpoint_id
        for row, _ in self.legend.rows:
            series = self.compared.series(row.id)
            if checkpoint_id is not None and checkpoint_id in series.ids:
                self.legend.select(row.id)
                self.change(crosshair=series.x(self.compared.axis)[series.ids.index(checkpoint_id)])

    @property
    def chosen(self) -> RunSeries:
        return self.compared.series(self.legend.chosen)

    @property
    def crosshair_step(self) -> int | None:
        """Index of that run's step under the crosshair; None without one."""
        x, xs = self.compared.crosshair, self.chosen.x(self.compared.axis)
        if x is None or not len(self.chosen):
            return None
        return max(0, bisect_right(xs, x) - 1)

    @property
    def checkpoint_id(self) -> str | None:
        step = self.crosshair_step
        return None if step is None else self.chosen.ids[step]

    def point(self, step: int | None) -> None:
        """Move the crosshair to a step of the run under the cursor, in every view."""
        series = self.chosen
        if step is None or not len(series):
            self.change(crosshair=None)
            self.session.checkpoint_id = None
            return
        step = max(0, min(len(series) - 1, step))
        self.change(crosshair=series.x(self.compared.axis)[step])
        self.session.checkpoint_id = series.ids[step]

    # What the keys do.

    def action_cursor(self, steps: int) -> None:
        """Move the crosshair by steps; past the newest it disappears."""
        here = len(self.chosen) if self.crosshair_step is None else self.crosshair_step
        there = here + steps
        self.point(None if there >= len(self.chosen) else there)

    def action_first(self) -> None:
        self.point(0)

    def action_last(self) -> None:
        self.point(None)

    def action_move(self, by: int) -> None:
        self.legend.action_move(by)

    @on(RunLegend.Moved)
    def _moved(self) -> None:
        self.change()
        if self.compared.crosshair is not None and (id_ := self.checkpoint_id):
            self.session.checkpoint_id = id_

    def action_axis(self) -> None:
        """Use the next x axis; the crosshair stays on its step."""
        step = self.crosshair_step
        self.change(axis=self.compared.axis.following, crosshair=None)
        if step is not None:
            self.change(crosshair=self.chosen.x(self.compared.axis)[step])

    def action_smooth(self, step: int) -> None:
        self.change(smoothing=min(len(WEIGHTS) - 1, max(0, self.compared.smoothing + step)))

    def action_log(self) -> None:
        self.change(log=not self.compared.log)

    def action_show_or_hide(self) -> None:
        self.change(hidden=self.compared.hidden ^ {self.legend.chosen})

    def action_next_view(self) -> None:
        keys = self.metrics
        self.choose(keys[(keys.index(self.compared.key) + 1) % len(keys)])

    @property
    def metrics(self) -> list[str]:
        own = (key for _, series in self.compared.runs for key in series.keys)
        return list(dict.fromkeys([*METRICS, *own]))

    def choose(self, key: str) -> None:
        self.change(key=key)
        self.read()

    @work(exclusive=True, group="choose")
    async def action_charts(self) -> None:
        key = await self.app.push_screen_wait(MetricList(self.metrics, self.compared.key))
        if key is not None:
            self.choose(key)

    def _leave_for(self, view: str) -> None:
        row = next((row for row, _ in self.legend.rows if row.id == self.legend.chosen), None)
        if row is not None:
            self.dismiss((row, view, self.checkpoint_id))

    @on(RunLegend.Opened)
    def action_open(self) -> None:
        self._leave_for("live")

    def action_jump(self) -> None:
        self._leave_for("checkpoints")

    def action_leave(self) -> None:
        if self.compared.crosshair is not None:
            self.point(None)
        else:
            self.dismiss(None)
