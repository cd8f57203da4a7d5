"""LaunchTrial: tasks are tried before they are paid for, and those that teach nothing left out."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text
from textual import on, work
from textual.worker import Worker

from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.run_form import parameters
from hud_tui.rl.signal_progress import Asked
from hud_tui.rl.text import one_line
from hud_tui.tui.draft import Draft
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.task_rows import task_columns, task_rows
from hud_tui.tui.trial import Trial
from hud_tui.tui.widgets.form import RunForm
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import JobParameters, Model

if TYPE_CHECKING:
    from hud_tui.client.signal_cache import SignalCache

MOST_GROUPS = 48
"""Tasks that are tried where the command line does not say how many."""


class LaunchTrial(HudScreen):
    def __init__(self) -> None:
        super().__init__()
        self.draft = Draft()
        self._trial: Worker[None] | None = None

    def show_tasks(self) -> None:
        """Draw the tasks, as the trial orders and marks them."""
        self.tasks.lay(task_columns(self.draft.trial))
        self.tasks.show(task_rows(self.draft.tasks, self.draft.trial))

    @property
    def form(self) -> RunForm:
        return self.query_one(RunForm)

    @property
    def tasks(self) -> RowList:
        return self.query_one("#tasks", RowList)

    def action_measure(self) -> None:
        """Roll out groups with the model, to see which tasks teach; or stop that."""
        if self.draft.trial.running:
            self.stop_trial()
            return
        model, values = self.run.model, self.form.read()
        if model is None or values is None or not self.draft.tasks or self.draft.checking:
            self.notify("choose a model and a taskset first", severity="warning", markup=False)
        elif self.draft.failed and not self.draft.trial.signals:
            self.notify(self.draft.blocked(self.run, []), severity="warning", markup=False)
        else:
            self.try_tasks(model, parameters(values))

    def try_tasks(self, model: Model, asked: JobParameters, groups: int | None = None) -> None:
        """Begin, unless the user says no."""
        train = sum(not task.heldout for task in self.draft.tasks)
        self._trial = self._try(model, asked, groups or min(MOST_GROUPS, max(1, train)))

    def stop_trial(self) -> None:
        """Stop it; what has come stays."""
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None

    @work(exclusive=True, group="trial")
    async def _try(self, model: Model, parameters: JobParameters, groups: int) -> None:
        from hud_tui.client.measuring import ask_of, measure, size_of  # after the first frame

        try:
            asked = await ask_of(self.client, model, parameters, groups)
            if not (self.client.settings.local or await self._agreed(asked)):
                return
            tasks = self.draft.tasks
            size = size_of(model, parameters, asked, tasks)
            self._show(replace(self.draft.trial, signals={}, size=size, running=True))
            measured = measure(
                self.client, tasks, model, asked, self._cache(), self.draft.taskset_id
            )
            async with aclosing(measured):
                async for progress in measured:
                    self._show(self.draft.trial.heard(progress))
            if progress.trouble:
                said = f"a rollout failed: {one_line(progress.trouble, 300)}"
                self.notify(said, severity="warning", markup=False)
        except HudError as error:
            self.tell(error)
        finally:
            trial = replace(self.draft.trial, running=False)
            self._show(replace(trial, by_spread=bool(trial.signals)))
            if self.is_built:
                self.tasks.action_first()

    async def _agreed(self, asked: Asked) -> bool:
        """Elsewhere than on this machine, rollouts may cost something."""
        count = asked.groups * asked.group_size
        said = [
            Text(f"{asked.groups} groups of {asked.group_size}: {count} rollouts by the service"),
            Text(f"of {one_line(asked.model, 60)}, at its head as it is now"),
            Text("What is on record for this taskset, or known from before, is not made again."),
        ]
        agreed: bool = await self.app.push_screen_wait(ConfirmDialog("Try the tasks", said, "Try"))
        return agreed

    def _cache(self) -> SignalCache | None:
        from hud_tui.client.signal_cache import SignalCache

        directory = self.hud.shelf.directory
        return SignalCache(directory / "signal") if directory is not None else None

    def _show(self, trial: Trial) -> None:
        self.draft = replace(self.draft, trial=trial)
        self.show_tasks()

    def action_leave_out(self) -> None:
        """Leave out the task under the cursor, or take it in again."""
        place = self.place
        if place is not None:
            slugs = frozenset({self.draft.tasks[place].slug})
            self._show(self.draft.trial.toggled(slugs))

    def action_leave_dead(self) -> None:
        """Leave out all tasks that teach nothing, or take them in again."""
        dead = self.draft.trial.dead(self.draft.tasks)
        if dead:
            self._show(self.draft.trial.toggled(dead))
        else:
            said = keyed("no task is known to teach nothing: {launch.measure} tries them")
            self.notify(said, severity="warning", markup=False)

    @on(RowList.Titled, "#tasks")
    def action_sort(self) -> None:
        """As in the file, or the tasks with most spread first."""
        self._show(replace(self.draft.trial, by_spread=not self.draft.trial.by_spread))
        self.tasks.action_first()

    @property
    def place(self) -> int | None:
        """The place in the taskset of the task under the cursor."""
        key = self.tasks.key
        return int(key) if key is not None and key.isdigit() else None
