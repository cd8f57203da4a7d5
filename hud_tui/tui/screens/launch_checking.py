"""LaunchChecking: a taskset is chosen, or a file, and checked before anything is spent."""

from __future__ import annotations

from dataclasses import replace

from textual import on, work
from textual.widgets import Input

from hud_tui.client.preflight import load_source, preflight
from hud_tui.errors import HudError
from hud_tui.tui.draft import Draft
from hud_tui.tui.screens.findings_panel import FindingsPanel
from hud_tui.tui.screens.launch_trial import LaunchTrial
from hud_tui.tui.task_rows import taskset_rows
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Taskset

FIRST_TASKSET = "mixed"
"""The taskset that a first start begins with, where the service has it."""


class LaunchChecking(LaunchTrial):
    def __init__(self) -> None:
        super().__init__()
        self.tasksets: list[Taskset] = []
        self._checked_for: str | None = None
        """Id of the model that the taskset was checked for."""

    @property
    def sources(self) -> RowList:
        return self.query_one("#tasksets", RowList)

    def show_state(self) -> None:
        """Called when the draft changed."""

    def checked(self) -> None:
        """Called when all checks have answered, or the taskset could not be read."""

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read which tasksets there are; check the one the command line named."""
        tasksets = await self.attempt(self.client.tasksets())
        self.tasksets = tasksets or []
        self._list_sources()
        names = [one.name for one in self.tasksets]
        if FIRST_TASKSET in names:
            self.sources.select(FIRST_TASKSET)
        if self.hud.start.source and self.hud.start.command in ("preflight", "run"):
            self._take(self.hud.start.source)

    def _list_sources(self) -> None:
        self.sources.show(taskset_rows(self.tasksets, self.draft.source))

    def action_choose(self) -> None:
        """Enter on a taskset: check it, and go to the button."""
        if self.sources.has_focus and self.sources.key is not None:
            self._take(self.sources.key)

    @on(RowList.Opened, "#tasksets")
    def _opened(self, event: RowList.Opened) -> None:
        self._take(event.key)

    @on(Input.Submitted, "#path")
    def _path_typed(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._take(event.value.strip())

    def _take(self, source: str) -> None:
        self.check(source)
        self.query_one("#submit").focus()

    def check(self, source: str) -> None:
        """Read a taskset and check it: rows, slugs, model, environments, scenarios, args."""
        model = self.run.model
        self.stop_trial()
        self.draft = Draft(source, checking=True)
        self._checked_for = model.id if model is not None else None
        self.show_tasks()
        self._check(source, self._checked_for)

    @work(exclusive=True, group="check")
    async def _check(self, source: str, model_id: str | None) -> None:
        try:
            tasks, origin = await load_source(self.client, source)
            taskset_id = origin.get("taskset_id")
            self.draft = replace(self.draft, tasks=tuple(tasks), taskset_id=taskset_id)
            self.show_tasks()
            async for finding in preflight(self.client, tasks, model_id, lock=origin.get("lock")):
                self.draft = self.draft.found(finding)
                self.show_state()
        except HudError as error:
            self.draft = self.draft.unread(error)
        self.draft = replace(self.draft, checking=False)
        self.checked()

    def check_again(self) -> None:
        """Check once more where the checks were broken off, or were for another model."""
        model = self.run.model.id if self.run.model is not None else None
        if self.draft.source is not None and (self._broken_off or model != self._checked_for):
            self.check(self.draft.source)

    @property
    def _broken_off(self) -> bool:
        """Whether a check was ended before its end, as when the client is renewed."""
        checks = (one for one in self.workers if one.node is self and one.group == "check")
        return self.draft.checking and all(one.is_finished for one in checks)

    def show_tasks(self) -> None:
        if not self.is_built:
            return
        self._list_sources()
        super().show_tasks()
        self.show_state()

    def action_findings(self) -> None:
        """All that the checks found, which the pane beside the tasksets may have no room for."""
        title = f"What the checks found in {self.draft.source or 'no taskset yet'}"
        self.app.push_screen(FindingsPanel(title, self.draft.found_in_all))

    def action_path(self) -> None:
        self.query_one("#path", Input).focus()

    def action_refresh(self) -> None:
        if self.draft.source is None:
            self.read()
        else:
            self.check(self.draft.source)
