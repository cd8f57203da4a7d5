"""LaunchScreen: a taskset is chosen and checked, the run is set up, and submitted.

Nothing is spent before the checks pass. The line above the button says what the run will
do; a dialog asks once more, except on a first start, where that line is the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from hud_tui.client.preflight import load_source, preflight
from hud_tui.errors import HudError
from hud_tui.rl.preflight import Finding, verdict
from hud_tui.rl.progress import step_seconds
from hud_tui.rl.run import Run
from hud_tui.rl.run_form import Cost, Value, cost, defaults
from hud_tui.rl.tasks import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.file_suggester import FileSuggester
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.submitting import about, job_of, submit, what_is_sent
from hud_tui.tui.task_rows import TASK_COLUMNS, TASKSET_COLUMNS, task_rows, taskset_rows
from hud_tui.tui.widgets.findings import Findings, worst
from hud_tui.tui.widgets.form import RunForm
from hud_tui.tui.widgets.row_list import RowList
from hud_tui.wire import Taskset

FIRST_TASKSET = "mixed"
"""The taskset that a first start begins with, where the service has it."""
LEADS = {
    "choose": "Enter checks the taskset under the cursor; / takes a file.",
    "checked": "Enter submits the run below; e edits it; esc takes another taskset.",
    "first": "Step 2 of 3: Enter checks these tasks against the service.",
    "first checked": "Step 3 of 3: Enter submits the run below. e edits it first.",
}


class LaunchScreen(HudScreen):
    VIEW = "launch"
    BINDINGS: ClassVar[list[BindingType]] = bindings("launch")

    def __init__(self) -> None:
        super().__init__()
        self.tasksets: list[Taskset] = []
        self.source: str | None = None
        self.tasks: list[Task] = []
        self.findings: tuple[Finding, ...] = ()
        self.checking = self.waiting = self.sending = False
        self._checked_for: str | None = None
        self._filled_for: str | None = None
        self._edited = False

    def body(self) -> Iterable[Widget]:
        yield Static(id="lead", markup=False)
        with Horizontal(id="source"):
            with Vertical(id="choice"):
                yield RowList(TASKSET_COLUMNS, id="tasksets")
                yield Input(
                    placeholder="/ file: .json, .jsonl",
                    id="path",
                    suggester=FileSuggester(),
                    compact=True,
                )
            yield Findings(id="findings")
        yield RowList(TASK_COLUMNS, id="tasks")
        yield RunForm(id="form")
        with Horizontal(id="send"):
            yield Static(id="summary", markup=False)
            yield Button("Submit", id="submit", compact=True)

    @property
    def sources(self) -> RowList:
        return self.query_one("#tasksets", RowList)

    @property
    def form(self) -> RunForm:
        return self.query_one(RunForm)

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
        model = self.run.model.id if self.run.model is not None else None
        if self.source is not None and model != self._checked_for:
            self.check(self.source)
        self.show_state()

    def watch_run(self, before: Run, run: Run) -> None:
        if run.model is not before.model or run.training is not before.training:
            self.show_state()

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
        self.sources.show(taskset_rows(self.tasksets, self.source))

    @work(exclusive=True, group="form")
    async def _fill_form(self) -> None:
        """The form begins with the model's own defaults, and what the command line gave."""
        model = self.run.model
        if model is None or (model.id == self._filled_for and self._edited):
            return
        self._filled_for, self._edited = model.id, False
        values = defaults(model)
        given = self.hud.start.parameters if self.hud.start.command == "run" else {}
        values |= {key: value for key, value in given.items() if key in values}
        self.form.fill(values)
        losses = await self.attempt(self.client.losses(model.id))
        with self.prevent(RunForm.Changed):
            self.form.fill(values, losses or ())
        self.show_state()

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

    @on(Input.Submitted, ".number")
    def _number_typed(self) -> None:
        self.button.focus()

    def _take(self, source: str) -> None:
        self.check(source)
        self.button.focus()

    def check(self, source: str) -> None:
        """Read a taskset and check it: rows, slugs, model, environments, scenarios, args."""
        model = self.run.model
        self.source, self.tasks, self.findings = source, [], ()
        self.checking, self.waiting = True, False
        self._checked_for = model.id if model is not None else None
        self.button.disabled = False
        self.show_tasks()
        self._check(source, self._checked_for)

    @work(exclusive=True, group="check")
    async def _check(self, source: str, model_id: str | None) -> None:
        try:
            self.tasks, _ = await load_source(self.client, source)
            self.show_tasks()
            async for finding in preflight(self.client, self.tasks, model_id):
                self.findings = (*self.findings, finding)
                self.show_state()
        except HudError as error:
            failed = Finding("rows", "failure", error.message, fix=error.hint)
            self.findings = (*self.findings, failed)
        self.checking, waited, self.waiting = False, self.waiting, False
        self.show_state()
        if waited and not self.blocked:
            self.ask_and_send()

    def show_tasks(self) -> None:
        self._list_sources()
        self.query_one("#tasks", RowList).show(task_rows(self.tasks))
        self.show_state()

    @property
    def blocked(self) -> str:
        """Why the run cannot be submitted, in one line; empty when it can."""
        if self.run.model is None:
            return "no model is chosen: 1 shows them"
        if self.source is None:
            return "choose a taskset: Enter checks it"
        if self.checking:
            return "checking …"
        if verdict(self.findings) == "failure":
            problem = worst(self.findings)
            return f"not submitted: {problem.message if problem is not None else ''}"
        if self.form.read() is None:
            return f"correct {', '.join(self.form.faults)}"
        return ""

    def cost_of(self, values: dict[str, Value] | None) -> Cost | None:
        """What the run costs, at the pace of the model's last steps."""
        if values is None:
            return None
        pace, head = step_seconds(self.run), self.run.head
        traces = head.num_traces if head is not None else None
        return cost(values, self.tasks, pace / traces if pace and traces else None)

    def show_state(self) -> None:
        """Draw findings, summary and button as they are now."""
        if not self.is_attached:  # an answer that came while the app ends
            return
        shown = self.query_one(Findings)
        shown.findings, shown.checking = self.findings, self.checking
        blocked = self.blocked
        self.button.disabled = bool(blocked) and not self.checking and self.source is not None
        self.button.set_class(bool(blocked), "blocked")
        self.query_one("#summary", Static).update(self._summary(blocked))
        self.query_one("#lead", Static).update(self._lead())

    def _lead(self) -> str:
        ready = self.source is not None and verdict(self.findings) != "failure"
        if self.first:
            return LEADS["first checked" if ready else "first"]
        return LEADS["checked" if ready else "choose"]

    def _summary(self, blocked: str) -> Content:
        if self.waiting:
            return Content.styled("submits as soon as the checks pass · esc withdraws", "$accent")
        if blocked:
            return Content.styled(one_line(blocked, 300), "$warning" if self.source else "")
        values = self.form.read()
        size = self.cost_of(values)
        if size is None:
            return Content(f"{len(self.tasks)} tasks · HUD decides how many rollouts")
        count = f"{size.rollouts:,}".replace(",", " ")
        held = sum(task.heldout for task in self.tasks)
        apart = f" · {held} tasks held out" if held else ""
        busy = "a run trains this model already · " if self.run.training else ""
        rest = Content.styled(f"{about(size)}{apart}", "$text-muted")
        return Content.assemble((busy, "$warning"), (f"{count} rollouts", "bold"), rest)

    @on(RunForm.Changed)
    def _form_changed(self) -> None:
        self._edited = True
        self.show_state()

    @on(Button.Pressed, "#submit")
    def _pressed(self) -> None:
        self.action_submit()

    def action_submit(self) -> None:
        """Submit; while the checks run, as soon as they pass; else say why not."""
        if self.checking:
            self.waiting = True
            self.show_state()
        elif self.blocked:
            self.notify(one_line(self.blocked, 300), severity="warning", markup=False)
            self.form.focus_fault()
        else:
            self.ask_and_send()

    @work(exclusive=True, group="send")
    async def ask_and_send(self) -> None:
        """Ask, unless the line on the screen was the question; send once; go to Live."""
        model, values = self.run.model, self.form.read()
        if model is None or values is None or self.source is None or self.sending:
            return
        warnings = [one for one in self.findings if one.level == "warning"]
        if warnings or not self.first:
            size = self.cost_of(values)
            lines = what_is_sent(model, self.source, self.tasks, values, size, warnings)
            dialog = ConfirmDialog("Submit this run", lines, "Submit")
            if not await self.app.push_screen_wait(dialog):
                return
        self.sending = True
        try:
            sent = await self.attempt(submit(self.client, job_of(model, self.tasks, values)))
        finally:
            self.sending = False
        if sent is not None:
            self.hud.first_fork = None
            await self.hud.action_view("live")

    def action_path(self) -> None:
        self.query_one("#path", Input).focus()

    def action_form(self) -> None:
        self.form.focus_first()

    def action_field(self, by: int) -> None:
        """Up and down go through the fields, and on to the button."""
        if by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_refresh(self) -> None:
        if self.source is None:
            self.read()
        else:
            self.check(self.source)

    def action_copy(self) -> None:
        """Copy the slug of the task under the cursor."""
        key = self.query_one("#tasks", RowList).key
        if key is not None and key.isdigit():
            self.copy(self.tasks[int(key)].slug)

    def action_leave(self) -> None:
        """Esc: withdraw a submission that waits; else back to the tasksets."""
        if self.waiting:
            self.waiting = False
            self.show_state()
        else:
            self.sources.focus()
