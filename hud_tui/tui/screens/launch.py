"""LaunchScreen: a taskset is chosen and checked, the run is set up, and submitted.

Nothing is spent before the checks pass. The line above the button says what the run will
do; a dialog asks once more, except on a first start, where that line is the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from hud_tui.keys import keyed
from hud_tui.rl.model_checks import check_parameters
from hud_tui.rl.run import Run
from hud_tui.rl.run_form import beyond, defaults, parameters
from hud_tui.rl.text import one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.draft import LEADS
from hud_tui.tui.file_suggester import FileSuggester
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.launch_checking import LaunchChecking
from hud_tui.tui.submitting import job_of, what_is_sent
from hud_tui.tui.task_rows import TASK_COLUMNS, TASKSET_COLUMNS
from hud_tui.tui.widgets.findings import Findings
from hud_tui.tui.widgets.form import RunForm
from hud_tui.tui.widgets.row_list import RowList


class LaunchScreen(LaunchChecking):
    VIEW = "launch"
    BINDINGS: ClassVar[list[BindingType]] = bindings("launch")

    def __init__(self) -> None:
        super().__init__()
        self._sending = False
        self._filled_for: str | None = None
        self._edited = False

    def body(self) -> Iterable[Widget]:
        yield Static(id="lead", markup=False)
        with Horizontal(id="source"):
            with Vertical(id="choice"):
                yield RowList(TASKSET_COLUMNS, id="tasksets")
                yield Input(
                    placeholder="/ file, or taskset",
                    id="path",
                    suggester=FileSuggester(),
                    compact=True,
                )
            yield Findings(id="findings")
        yield RowList(TASK_COLUMNS, id="tasks", least=22)
        yield RunForm(id="form")
        with Horizontal(id="send"):
            yield Static(id="summary", markup=False)
            yield Button("Submit", id="submit", compact=True)

    @property
    def button(self) -> Button:
        return self.query_one("#submit", Button)

    @property
    def first(self) -> bool:
        """Whether this is the first start's run."""
        return self.run.model is not None and self.run.model.id == self.hud.first_fork

    def on_mount(self) -> None:
        self.sources.focus()
        self.read()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._fill_form()
        self.check_again()
        self.show_state()

    def watch_run(self, before: Run, run: Run) -> None:
        if _matters(run) != _matters(before):
            self.show_state()

    @work(exclusive=True, group="form")
    async def _fill_form(self) -> None:
        """The form begins with the model's own defaults, and what the command line gave."""
        model = self.run.model
        if model is None or (model.id == self._filled_for and self._edited):
            return
        self._filled_for, self._edited = model.id, False
        values = defaults(model)
        start = self.hud.start
        given = start.parameters if start.command in ("run", "preflight") else {}
        values |= {key: value for key, value in given.items() if key in values}
        self.form.fill(values)
        losses = await self.attempt(self.client.losses(model.id))
        with self.prevent(RunForm.Changed):
            self.form.fill(values, losses or ())
        self.show_state()

    @on(Input.Submitted, ".number")
    def _number_typed(self) -> None:
        self.button.focus()

    def checked(self) -> None:
        """Submit where that waits for the checks; try the tasks where the command line said so."""
        start, waited = self.hud.start, self.draft.waiting
        self.draft = replace(self.draft, waiting=False)
        self.show_state()
        if waited and not self.blocked:
            self.ask_and_send()
        elif start.sample and self.draft.source == start.source and not self.draft.failed:
            self._try_as_asked()

    def _try_as_asked(self) -> None:
        """The trial that the command line asked for."""
        model, values = self.run.model, self.form.read()
        if model is not None and values is not None:
            self.try_tasks(model, parameters(values), self.hud.start.sample)

    @property
    def blocked(self) -> str:
        """Why the run cannot be submitted, in one line; empty when it can."""
        if self.hud.replays:
            return "hud-tui --local starts a service to launch a run in"
        return self.draft.blocked(self.run, [] if self.form.read() else self.form.faults)

    def show_state(self) -> None:
        """Draw findings, summary and button as they are now."""
        if not self.is_built:  # an answer that came while the app ends
            return
        draft, blocked = self.draft, self.blocked
        shown = self.query_one(Findings)
        shown.source = one_line(PurePath(draft.source or "").name, 40)
        shown.findings, shown.checking = draft.found_in_all, draft.checking
        chosen = draft.source is not None and not draft.checking
        self.button.disabled = bool(blocked) and chosen
        self.button.set_class(bool(blocked), "blocked")
        summary = draft.summary(self.run, self.form.read(), blocked)
        self.query_one("#summary", Static).update(summary)
        lead = draft.lead(self.first, bool(self.tasksets))
        if self.hud.replays:
            lead = keyed(LEADS["replay"])
        self.query_one("#lead", Static).update(lead)

    @on(RunForm.Changed)
    def _form_changed(self) -> None:
        self._edited = True
        self.show_state()

    @on(Button.Pressed, "#submit")
    def _pressed(self) -> None:
        if self.hud.may_change():
            self.action_submit()

    def action_submit(self) -> None:
        """Submit; while the checks run, as soon as they pass; else say why not."""
        if self.draft.checking:
            self.draft = replace(self.draft, waiting=True)
            self.show_state()
        elif self.blocked:
            self.notify(self.blocked, severity="warning", markup=False)
            self.form.focus_fault()
        else:
            self.ask_and_send()

    @work(exclusive=True, group="send")
    async def ask_and_send(self) -> None:
        """Ask, unless the line on the screen was the question; send once; go to Live."""
        draft, model, values = self.draft, self.run.model, self.form.read()
        if model is None or values is None or draft.source is None or self._sending:
            return
        if self.hud.start.command == "run":
            values |= beyond(model, self.hud.start.parameters)
        warnings = [*draft.warnings, *check_parameters(model, parameters(values))]
        if warnings or not self.first:
            size = draft.cost(self.run, values)
            said = what_is_sent(model, draft.source, draft.chosen, values, size, warnings)
            dialog = ConfirmDialog("Submit this run", said, "Submit")
            if not await self.app.push_screen_wait(dialog):
                return
        if not await self.hud.confirm_name(model.id, "train it"):
            return
        from hud_tui.client.submission import submit  # with the client, after the first frame

        self._sending = True
        try:
            sent = await self.attempt(submit(self.client, job_of(model, draft.chosen, values)))
        finally:
            self._sending = False
        if sent is not None:
            self.hud.first_fork = None
            await self.hud.action_view("live")

    def action_form(self) -> None:
        self.form.focus_first()

    def action_field(self, by: int) -> None:
        """Up and down go through the fields, and on to the button."""
        if by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_copy(self) -> None:
        """Copy the slug of the task under the cursor."""
        if self.place is not None:
            self.copy(self.draft.tasks[self.place].slug)

    def action_leave(self) -> None:
        """Esc: stop the trial; withdraw a submission that waits; else back to the tasksets."""
        if self.draft.trial.running:
            self.stop_trial()
        elif self.draft.waiting:
            self.draft = replace(self.draft, waiting=False)
            self.show_state()
        else:
            self.sources.focus()


def _matters(run: Run) -> tuple[str | None, bool, bool]:
    """What this view shows of a run; its steps are not in it."""
    model = run.model.id if run.model is not None else None
    return model, run.training, run.loaded
