"""LiveScreen: watch the run, and stop it or take it up again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.rl.export.sheet import Sheet
from hud_tui.rl.export.sheets import groups_sheet, metrics_sheet
from hud_tui.rl.run import Run
from hud_tui.tui.bindings import bindings
from hud_tui.tui.clickable import pressed
from hud_tui.tui.screens.live_panes import LivePanes
from hud_tui.tui.stopping import RESUMABLE, cancel, resume
from hud_tui.tui.widgets.clickable_text import ClickableText
from hud_tui.tui.widgets.event_log import EventLog
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.metric_grid import MetricGrid
from hud_tui.tui.widgets.reason import Reason
from hud_tui.tui.widgets.run_status import RunStatus

WIDTHS = [(0, "-narrow"), (160, "-wide")]
HEIGHTS = [(0, "-tiny"), (18, "-short"), (32, "-tall"), (50, "-taller")]
"""From which size on the screen has which class."""
VIEW_ACTIONS = frozenset(
    {
        *(
            "full",
            "leave",
            "open",
            "cursor",
            "first",
            "last",
            "smooth",
            "axis",
            "log",
            "clip",
            "envelope",
        ),
        *(
            "charts",
            "overlay",
            "zoom",
            "pan",
            "freeze",
            "groups",
            "face",
            "order",
            "pane",
            "move",
            "page",
        ),
    }
)
"""What changes the view of a run alone."""


class LiveScreen(LivePanes):
    """The charts, groups and events of `shown`: the run, or what it was when frozen."""

    VIEW = "live"
    BINDINGS: ClassVar[list[BindingType]] = bindings("live")
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    frozen: reactive[bool] = reactive(False, repaint=False)

    def body(self) -> Iterable[Widget]:
        here = LiveScreen
        charts = {"run": here.shown, "lens": here.lens, "cursor": here.cursor}
        yield RunStatus().data_bind(run=here.run, freshness=here.freshness)
        yield Reason().data_bind(run=here.run, freshness=here.freshness)
        yield ClickableText(id="nothing")
        with Vertical(id="panes"):
            yield FocusChart(self.sight).data_bind(key=here.focus_key, **charts)
            yield MetricGrid(self.sight).data_bind(
                keys=here.keys, hidden=here.hidden, chosen=here.focus_key, **charts
            )
            with Container(id="foot"):
                yield GroupGrid().data_bind(**charts)
                yield EventLog().data_bind(run=here.shown)

    def watch_run(self, before: Run, run: Run) -> None:
        if _id(run) != _id(before):
            self.frozen = False
            self.compare(None)
        if not self.frozen:
            self.shown = run
        if run.training is not before.training or run.job is not before.job:
            self.refresh_bindings()

    def watch_shown(self, run: Run) -> None:
        super().watch_shown(run)
        nothing = nothing_yet(run)
        if self.has_class("-nothing") != (nothing is not None):
            self.set_class(nothing is not None, "-nothing")
            self.refresh_bindings()
        if nothing is not None and (told := self.query_one_optional("#nothing", Static)):
            told.update(nothing)

    def watch_frozen(self, frozen: bool) -> None:
        if status := self.query_one_optional(RunStatus):
            status.frozen = self.shown if frozen else None
        if not frozen:
            self.shown = self.run

    def sheet(self) -> Sheet:
        """The groups where they are looked at; else every metric, in the charts' order."""
        if self.pane == "groups":
            return groups_sheet(self.shown)
        return metrics_sheet(self.shown, self.keys)

    def action_freeze(self) -> None:
        self.frozen = not self.frozen

    # The job

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is one only where there is something that it acts on."""
        job = self.run.job
        if self.has_class("-nothing") and action in VIEW_ACTIONS:
            return False
        if action == "cancel_run":
            return job is not None and job.id is not None and self.run.training
        if action == "resume_run":
            return job is not None and job.id is not None and job.status in RESUMABLE
        if action == "copy":
            return job is not None and job.id is not None
        return super().check_action(action, parameters)

    def action_copy(self) -> None:
        if (job := self.run.job) is not None and job.id is not None:
            self.copy(job.id)

    @work(exclusive=True, group="act")
    async def action_cancel_run(self) -> None:
        if (job := self.run.job) is not None:
            await cancel(self, job)

    @work(exclusive=True, group="act")
    async def action_resume_run(self) -> None:
        if (job := self.run.job) is not None:
            await resume(self, job)


def _id(run: Run) -> str | None:
    return None if run.model is None else run.model.id


def nothing_yet(run: Run) -> Content | None:
    """What to press where there is nothing to watch; None where there is."""
    if run.model is None:
        return Content.assemble(
            "No model yet. Press ", pressed("app.view.models"), " to choose one."
        )
    if not run.loaded:
        return Content("Reading the checkpoint tree …")
    if run.job is None and not len(run.series.keys):
        return Content.assemble("No run yet. Press ", pressed("app.view.launch"), " to launch one.")
    return None
