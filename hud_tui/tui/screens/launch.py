"""LaunchScreen: choose and check a taskset, set the run's parameters, and submit it.

Nothing is spent before the checks pass. The line above the button says what the run will do; a
dialog asks for confirmation, except on a first start, where that line suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import on, work
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from hud_tui.client.preflight import load_source, preflight, readiness
from hud_tui.client.signal import SampleRequest, SignalCache, ask_of, measure, size_of
from hud_tui.client.starting import StartingPoint, read_start
from hud_tui.client.submit import job_of, plan_sweep, submit
from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import Action, keyed, of_view
from hud_tui.parameters import RUNS_AT_ONCE
from hud_tui.rl.findings import Finding
from hud_tui.rl.run import Run
from hud_tui.rl.settings import Value, form_values, parameters, without_field
from hud_tui.rl.sweep import SweepSize, size_of_runs
from hud_tui.rl.tasks.checks import check_parameters
from hud_tui.rl.text import one_line
from hud_tui.rollouts import trial as own
from hud_tui.rollouts.control import begin, order_of
from hud_tui.rollouts.environment import Loaded, environment_at
from hud_tui.rollouts.run_files import Options
from hud_tui.tui.games import game_of_start, game_on_task
from hud_tui.tui.keys import Need
from hud_tui.tui.run_draft import (
    LEADS,
    TASK_COLUMNS,
    TASKSET_COLUMNS,
    Draft,
    RunRequest,
    SubmitDialog,
    Trial,
    drafted_sweep,
    sweep_lines,
    task_columns,
    task_rows,
    taskset_rows,
    with_baseline,
)
from hud_tui.tui.screens.base import WIDTHS, HudScreen, TextPanel, ViewContext
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.sweep_actions import start_sweep
from hud_tui.tui.widgets.form import (
    FileSuggester,
    FilterField,
    Findings,
    FoldRow,
    Picker,
    RunForm,
    whole_lines,
)
from hud_tui.tui.widgets.table import RowList, fold
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters
from hud_tui.wire_tasks import Taskset

ROOMY = 30
"""Lines from which the tasks stay in sight above the whole form."""
LEAST_ABOUT = 30
"""Least width of the tasksets' descriptions in their list, cells."""


MOST_GROUPS = 48
"""Tasks sampled by default."""
OUTDATED = "rollout options have changed: submitting checks them first"
FIRST_TASKSET = "mixed"
"""Taskset of a first start, if the service has it."""


class LaunchScreen(HudScreen):
    VIEW = "launch"
    HORIZONTAL_BREAKPOINTS = [*WIDTHS, (160, "-widest")]  # noqa: RUF012

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.draft = Draft()
        self.sources = RowList(TASKSET_COLUMNS, id="tasksets", least=LEAST_ABOUT)
        self.tasks = RowList(TASK_COLUMNS, id="tasks", least=22)
        words = "filter the tasks by slug, scenario or args"
        self.filter_field = FilterField(words, "task-filter", self.tasks)
        self.tasksets: list[Taskset] | None = None
        """Those that the service lists; None before it has answered."""
        self._checked_for: str | None = None
        """Id of the model that the taskset was checked for."""
        self._checked_options: dict[str, Any] = {}
        """Options of an environment's rollouts when it was checked."""
        self._sending = self._is_played = False
        self._filled_for: str | None = None
        self._edited = False

    @property
    def form(self) -> RunForm:
        return self.query_one(RunForm)

    def action_try(self) -> None:
        """Sample groups with the model, to see which tasks give signal; or stop sampling."""
        if self.draft.trial.running:
            self.stop_trial()
            return
        model, values = self.run.model, self.form.read()
        if self.draft.environment is not None:
            self.notice("its checks roll tasks out already")
        elif model is None or values is None or not self.draft.tasks or self.draft.checking:
            self.notice("select a model and a taskset first", "warning")
        elif self.draft.failed and not self.draft.trial.signals:
            self.notice(self.draft.blocked(self.run, []), "warning")
        else:
            self.try_tasks(model, parameters(values))

    def stop_trial(self) -> None:
        self.workers.cancel_group(self, "trial")

    @work(exclusive=True, group="trial")
    async def try_tasks(self, model: Model, parameters: JobParameters, groups: int = 0) -> None:
        """Sample so many groups, or the usual number, unless the user declines."""
        tasks = self.draft.tasks
        train = sum(not task.heldout for task in tasks)
        try:
            most = groups or min(MOST_GROUPS, max(1, train))
            request = await ask_of(self.client, model, parameters, most)
            if not (self.client.settings.embedded or await self._agreed(request)):
                return
            size = size_of(model, parameters, request, tasks)
            self._show(replace(self.draft.trial, signals={}, size=size, running=True))
            directory, taskset_id = self.session.store.directory, self.draft.taskset_id
            cache = None if directory is None else SignalCache(directory / "signal")
            measured = measure(self.client, tasks, model, request, cache, taskset_id)
            async with aclosing(measured):
                async for progress in measured:
                    self._show(self.draft.trial.observe(progress))
            if progress.trouble:
                self.notice(f"a rollout failed: {one_line(progress.trouble, 300)}", "warning")
        except HudError as error:
            self.show_error(error)
        finally:
            trial = replace(self.draft.trial, running=False)
            self._show(replace(trial, by_std=bool(trial.signals)))
            if self.is_built:
                self.tasks.action_first()

    async def _agreed(self, request: SampleRequest) -> bool:
        """Ask if rollouts may cost money, which is everywhere but on this machine."""
        count = request.groups * request.group_size
        lines = [
            f"{request.groups} groups of {request.group_size}: {count} rollouts by the service",
            f"of {one_line(request.model, 60)}, at its current head",
            "Results on record for this taskset are reused.",
        ]
        agreed: bool = await self.app.push_screen_wait(ConfirmDialog("Try the tasks", lines, "Try"))
        return agreed

    def _show(self, trial: Trial) -> None:
        self.draft = replace(self.draft, trial=trial)
        self.show_tasks()

    def action_play(self) -> None:
        """Play the task under the cursor, else the first one."""
        source, tasks = self.draft.environment, self.draft.tasks
        if not tasks:
            self.notice("select a taskset or an environment first", "warning")
            return
        task, options = tasks[self.task_index or 0], {**self.form.options, **self._sampled}
        model, state = self.run.model, self.session.store.directory
        if source is not None and state is None:
            self.notice("this session keeps no files: see --state-dir", "warning")
            return
        game = game_on_task(lambda: self.client, task, source, state or Path(), model, options)
        self.app.push_screen(game)

    @property
    def _sampled(self) -> dict[str, Any]:
        """How the policy is sampled, as typed in the form."""
        values = self.form.read() or {}
        return {key: values[key] for key in ("max_tokens", "temperature") if key in values}

    def _play_from_start(self) -> None:
        """Play what the command line asks for, once."""
        start, self._is_played = self.context.start, True
        try:
            game = game_of_start(lambda: self.client, start, self.run.model, self._state)
        except HudError as error:
            self.show_error(error)
        else:
            self.app.push_screen(game)

    def action_leave_out(self) -> None:
        task_index = self.task_index
        if task_index is not None:
            slugs = frozenset({self.draft.tasks[task_index].slug})
            self._show(self.draft.trial.toggled(slugs))

    def action_drop(self) -> None:
        dead = self.draft.trial.dead(self.draft.tasks)
        if dead:
            self._show(self.draft.trial.toggled(dead))
        else:
            self.notice(
                keyed("no task without signal is known yet: {launch.try} samples tasks"), "warning"
            )

    @on(RowList.Titled, "#tasks")
    def action_order(self) -> None:
        self._show(replace(self.draft.trial, by_std=not self.draft.trial.by_std))
        self.tasks.action_first()

    @property
    def task_index(self) -> int | None:
        key = self.tasks.key
        return int(key) if key is not None and key.isdigit() else None

    # Choosing and checking a taskset or file, before anything is spent.

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        listed = self.sources.key is not None
        tasksets = await self.attempt(self.client.tasks.tasksets())
        if tasksets is not None:
            self.tasksets = tasksets
        self._list_sources()
        self.show_state()
        if not listed:
            self.sources.select(self.draft.source or FIRST_TASKSET)
        if self.context.start.source and self.context.start.command in ("preflight", "run"):
            self._take(self.context.start.source)
        elif self.context.start.command == "play" and not self._is_played:
            self._play_from_start()

    def _list_sources(self) -> None:
        self.sources.show(taskset_rows(self.tasksets or (), self.draft.source))

    @on(RowList.Opened, "#tasksets")
    def action_choose(self) -> None:
        """Enter on a taskset: check it, and go to the button; on a button: press it."""
        if isinstance(self.focused, Button):
            self.focused.press()
        elif self.sources.has_focus and self.sources.key is not None:
            self._take(self.sources.key)

    @on(RowList.Moved)
    def _cursor_moved(self) -> None:
        self._show_about()
        self.renew_hints()

    def on_descendant_focus(self) -> None:
        self._show_about()
        if self.is_built and self.form.faults:  # told is what the field with the cursor takes
            self.show_state()

    def on_resize(self) -> None:
        self.set_class(self.size.height >= ROOMY, "-roomy")
        self.call_after_refresh(self._show_about)

    def _show_about(self) -> None:
        """Show what the taskset under the cursor is about, if the list has no room for it."""
        if not self.is_built:
            return
        chosen = next(
            (taskset for taskset in self.tasksets or () if taskset.name == self.sources.key), None
        )
        text = one_line(chosen.description or "", 1000) if chosen is not None else ""
        shown = fold(TASKSET_COLUMNS, self.sources.width, LEAST_ABOUT)
        room = next((width for column, width, _ in shown if not column.width), 0)
        about = self.query_one("#taskset-about", Static)
        about.display = self.sources.has_focus and cell_len(text) > room
        name = one_line(chosen.name, 60) if chosen is not None else ""
        about.update(Content.assemble((name, "bold"), (f"  {text}", "$text-muted")))

    @on(Input.Submitted, "#path")
    def _path_typed(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._take(event.value.strip())

    def _take(self, source: str) -> None:
        self.check(source)
        self.query_one("#submit").focus()

    def take(self, source: str, slug: str | None = None) -> None:
        """Check a taskset, unless it is checked already; and move the cursor to a task of it."""
        self._requested = slug
        self.sources.select(source)
        if self.draft.source != source:
            self._take(source)
        elif slug is None:
            self.sources.focus()
        else:
            self.go_to_requested()

    def reach(self, name: str) -> bool:
        """A filter that hides the task is cleared, and where more tasks are than are listed it is
        the filter."""
        slugs = [task.slug for task in self.draft.tasks]
        if name not in slugs:
            return False
        key = str(slugs.index(name))
        for text in ("", name):
            if self.tasks.line_of(key) is None:
                self.filter_field.fill(text)
                self._list_tasks()
        self.tasks.select(key)
        self.tasks.focus()
        return True

    def check(self, source: str) -> None:
        """Read a taskset and check it: rows, slugs, model, environments, scenarios, args."""
        self.stop_trial()
        self.draft = Draft(source, checking=True, environment=environment_at(source))
        self.form.offer_options(self.draft.environment is not None)
        self._checked_for = self.run.model_id
        self.show_tasks()
        self._check(source, self._checked_for)

    @work(exclusive=True, group="check")
    async def _check(self, source: str, model_id: str | None) -> None:
        try:
            if self.draft.environment is not None:
                await self._check_environment(self.draft.environment)
            else:
                await self._check_tasks(source, model_id)
        except HudError as error:
            self.draft = self.draft.unread(error)
        self.draft = replace(self.draft, checking=False)
        self.checked()

    async def _check_environment(self, source: Path) -> None:
        """Import an environment, check its tasks, start it, and roll it out once with the model."""
        model, values = self.run.model, self.form.read()
        if model is None:
            raise HudUsage("no model selected", keyed("{app.view.models} lists them"))
        typed = parameters(values or {}).model_dump(exclude_none=True)
        self._checked_options = dict(self.form.options)
        order = order_of(self.client, model, source, typed, **self.form.options)
        async with aclosing(own.prepare(self.client, order, model, self._state)) as prepared:
            async for report in prepared:
                if isinstance(report, Loaded):
                    self.draft = replace(self.draft, tasks=tuple(report.tasks))
                    self.show_tasks()
                elif isinstance(report, Finding):
                    fix = report.fix.replace(own.ANYWAY, "Submit asks, and trains anyway")
                    self.draft = self.draft.found(replace(report, fix=fix))
                    self.show_state()
                else:
                    signals = {signal.slug: signal for signal in report.signals}
                    size = own.size_of(order, self.draft.tasks)
                    trial = Trial(signals, size, report.pace, by_std=True)
                    self._show(trial)

    @property
    def _state(self) -> Path:
        """State directory of runs on environments. Raises HudUsage: there is none."""
        if self.session.store.directory is None:
            raise HudUsage("this session keeps no files, which the run needs", "see --state-dir")
        return self.session.store.directory

    async def _check_tasks(self, source: str, model_id: str | None) -> None:
        tasks, origin = await load_source(self.client, source)
        self.draft = replace(self.draft, tasks=tuple(tasks), taskset_id=origin.get("taskset_id"))
        self.show_tasks()
        async for finding in preflight(self.client, tasks, model_id, lock=origin.get("lock")):
            self.draft = self.draft.found(finding)
            self.show_state()
        await self._read_past()

    async def _read_past(self) -> None:
        """Read the runs that the estimate of time goes by; HUD has no list of all runs."""
        if self.client.settings.embedded:
            rows = await self.attempt(self.session.works.runs.read())
            self.draft = replace(self.draft, past=tuple(rows or ()))
            self.show_state()

    @work(exclusive=True, group="past")
    async def _renew_past(self) -> None:
        """Read them again, since runs may have ended while another view was shown."""
        if self.draft.tasks and not self.draft.checking:
            await self._read_past()

    @property
    def _broken_off(self) -> bool:
        """Whether a check was interrupted, e.g. by a reconnect."""
        checks = (
            worker for worker in self.workers if worker.node is self and worker.group == "check"
        )
        return self.draft.checking and all(worker.is_finished for worker in checks)

    def show_tasks(self) -> None:
        if not self.is_built:
            return
        self._list_sources()
        self._list_tasks()
        self.go_to_requested()
        self.show_state()

    def _list_tasks(self) -> None:
        self.set_class(bool(self.draft.tasks), "-checked")
        self.tasks.lay(task_columns(self.draft.trial))
        self.tasks.show(task_rows(self.draft.tasks, self.draft.trial, self.filter_field.value))

    def action_details(self) -> None:
        title = f"Findings of the checks: {self.draft.source or 'no taskset yet'}"
        findings = self.draft.found_in_all
        lead = self.draft.lead(False, self.tasksets != [])
        none = Content("checking …" if self.draft.checking else lead)
        self.app.push_screen(
            TextPanel(title, lambda width: [*whole_lines(findings, width)] or [none])
        )

    @on(Input.Changed, "#task-filter")
    def _filter(self) -> None:
        self.show_tasks()

    def action_file(self) -> None:
        self.query_one("#path", Input).focus()

    def action_refresh(self) -> None:
        if self.draft.source is None:
            self.read()
        else:
            self.check(self.draft.source)

    # The view: widgets and keys.

    def body(self) -> Iterable[Widget]:
        yield Static(id="lead", markup=False)
        with Container(id="lists"):
            with Horizontal(id="source"):
                with Vertical(id="choice"):
                    yield self.sources
                    yield Input(
                        placeholder=keyed("{launch.file} file, or taskset"),
                        id="path",
                        suggester=FileSuggester(),
                        compact=True,
                    )
                yield Findings(id="findings")
            with Vertical(id="tasks-pane"):
                yield Static(id="taskset-about", markup=False)
                yield self.filter_field
                yield self.tasks
        yield RunForm(id="form")
        with Horizontal(id="send"):
            yield Static(id="summary", markup=False)
            yield Button("Submit", id="submit", compact=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave_out":
            return self.tasks.has_focus
        return super().check_action(action, parameters)

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """On a button, Enter comes first."""
        able = super().hints(actions)
        presses = "submit" if self.focused is self.button else ""
        if presses and all(action.name != presses for action in able):
            return able
        if isinstance(self.focused, FoldRow):
            presses = "fold" if self.form.unfolded else "unfold"
        enter = [action for action in of_view("launch") if action.name == "choose" and presses]
        others = (action for action in able if action.name != presses)
        return [*(replace(action, label=presses) for action in enter), *others]

    def _has_to_try(self) -> bool:
        """Whether a prompt of its tasks can be sampled."""
        draft = self.draft
        is_known = bool(draft.tasks) and not draft.checking and self.run.model is not None
        return is_known and draft.environment is None

    NEEDS: ClassVar[Mapping[str, Need[LaunchScreen]]] = {
        **dict.fromkeys(("play", "filter"), Need(lambda view: view.draft.tasks)),
        **dict.fromkeys(("leave_out", "copy"), Need(lambda view: view.task_index is not None)),
        "choose": Need(lambda view: view.sources.has_focus and view.sources.key),
        "submit": Need(lambda view: not view.blocked or view.draft.checking),
        "try": Need(_has_to_try),
        "drop": Need(lambda view: view.draft.trial.dead(view.draft.tasks)),
        "order": Need(lambda view: view.draft.trial.signals),
        "details": Need(lambda view: view.draft.found_in_all),
    }

    @property
    def button(self) -> Button:
        return self.query_one("#submit", Button)

    @property
    def first(self) -> bool:
        """Whether this is the first start's run."""
        return self.run.model is not None and self.run.model.id == self.session.first_fork

    def on_mount(self) -> None:
        self.sources.focus()

    def resume(self) -> None:
        if self.tasksets is None:
            self.read()
        if isinstance(self.focused, Input | Picker):  # a field would take the next key
            (self.button if self.draft.source is not None else self.sources).focus()
        self._fill_form()
        model = self.run.model_id
        if self.draft.source is not None and (self._broken_off or model != self._checked_for):
            self.check(self.draft.source)
        self._renew_past()
        self.show_state()

    def watch_run(self, before: Run, run: Run) -> None:
        if _matters(run) != _matters(before):
            self.show_state()
        if run.training != before.training:
            self._check_ready()

    @work(exclusive=True, group="ready")
    async def _check_ready(self) -> None:
        """Check again whether the model can be trained, since a run of it began or ended."""
        checked = self._checked_for
        if checked is None or self.draft.checking:
            return
        try:
            findings = await readiness(self.client, await self.client.model(checked))
        except HudError:
            return  # the top line shows the connection
        if checked == self._checked_for and not self.draft.checking and self.draft.tasks:
            self.draft = self.draft.found_ready(findings)
            self.show_state()

    @work(exclusive=True, group="form")
    async def _fill_form(self) -> None:
        """Fill the form with the model's defaults, and the command line's values."""
        model = self.run.model
        if model is None or (model.id == self._filled_for and self._edited):
            return
        self._filled_for, self._edited = model.id, False
        values, start = form_values(model), self.context.start
        from_start = start.parameters if start.command in ("run", "preflight") else {}
        values |= {key: value for key, value in from_start.items() if key in values}
        several = {key: them for key, them in start.swept.items() if key in values}
        at_once = start.at_once or RUNS_AT_ONCE.usual
        self.form.fill(values, several, at_once)
        listed = await self.attempt(self.client.training.losses(model.id))
        if listed is not None and listed.losses:
            with self.prevent(RunForm.Changed):
                self.form.offer_losses(listed.losses)
        self.show_state()

    @on(Input.Submitted, ".number")
    def _number_typed(self) -> None:
        self.button.focus()

    def checked(self) -> None:
        """After the checks: submit if that was requested, or sample as the command line asked."""
        start, waited = self.context.start, self.draft.waiting
        self.draft = replace(self.draft, waiting=False)
        self.show_state()
        if waited and not self.blocked:
            self.ask_and_send()
        elif start.sample and self.draft.source == start.source and not self.draft.failed:
            model, values = self.run.model, self.form.read()
            if model is not None and values is not None:
                self.try_tasks(model, parameters(values), start.sample)

    @property
    def blocked(self) -> str:
        """Why the run cannot be submitted, in one line; empty if it can."""
        if self.session.replays:
            return "hud-tui --local starts a service to launch a run in"
        values, model = self.form.read(), self.run.model
        if self.form.swept and self.draft.environment is not None:
            return "no sweeps on an environment of your own: one value each"
        if values is not None and model is not None and self.form.swept:
            try:
                drafted_sweep(model, values, self.form.swept, self.form.at_once)
            except HudUsage as error:
                return one_line(f"not submitted: {error.message}: {error.hint}", 300)
        if self._is_outdated:
            return ""
        return self.draft.blocked(self.run, [] if values else self.form.faults)

    @property
    def _is_outdated(self) -> bool:
        """Whether the options of rollouts have changed since the check."""
        is_known = self.draft.environment is not None and not self.draft.checking
        is_known = is_known and self.run.model is not None and self.form.read() is not None
        return is_known and self.form.options != self._checked_options

    @property
    def _several(self) -> SweepSize | None:
        """The cost of the form's sweep; None for a single run."""
        values, model, swept = self.form.read(), self.run.model, self.form.swept
        if values is None or model is None or not swept:
            return None
        sweep = drafted_sweep(model, values, swept, self.form.at_once)
        return size_of_runs(sweep.runs, sweep.at_once, model, self.draft.chosen)

    def show_state(self) -> None:
        if not self.is_built:  # an answer may arrive while the app ends
            return
        values = self.form.read()
        if values is not None:
            self.draft = self.draft.asking(values, self.form.swept)
        draft, blocked = self.draft, self.blocked
        shown = self.query_one(Findings)
        shown.source = one_line(PurePath(draft.source or "").name, 40)
        shown.findings, shown.checking = draft.found_in_all, draft.checking
        chosen = draft.source is not None and not draft.checking
        self.button.disabled = bool(blocked) and chosen
        self.button.set_class(bool(blocked), "blocked")
        several = None if blocked else self._several
        summary = draft.summary(self.run, values, blocked, several)
        if not blocked and self._is_outdated:
            summary = Content.styled(OUTDATED, "$accent")
        self.query_one("#summary", Static).update(summary)
        lead = draft.lead(self.first, self.tasksets != [], blocked)
        if self.session.replays:
            lead = keyed(LEADS["replay"])
        self.query_one("#lead", Static).update(lead)
        self.renew_hints()

    @on(RunForm.Changed)
    def _form_changed(self) -> None:
        self._edited = True
        self.show_state()

    @on(Button.Pressed, "#submit")
    def _pressed(self) -> None:
        if self.context.writes.may_change():
            self.action_submit()

    def action_submit(self) -> None:
        """Submit; while checks run, as soon as they pass; else show why not."""
        if self._is_outdated:
            self.check(self.draft.source or "")
        if self.draft.checking:
            self.draft = replace(self.draft, waiting=True)
            self.show_state()
        elif self.blocked:
            self.notice(self.blocked, "warning")
            self.form.focus_fault()
        else:
            self.ask_and_send()

    @work(exclusive=True, group="send")
    async def ask_and_send(self) -> None:
        """Ask for confirmation except on a first start; submit once; go to Live."""
        draft, model, values = self.draft, self.run.model, self.form.read()
        if model is None or values is None or draft.source is None or self._sending:
            return
        if self.context.start.command == "run":
            values |= without_field(model, self.context.start.parameters)
        if self.client.settings.embedded:  # for the disk's state, which every step changes
            model = await self.attempt(self.client.model(model.id))
            if model is None:
                return
        if self.form.swept:
            await self._send_sweep(model, values, dict(self.form.swept))
            return
        start = await self.attempt(read_start(self.client, model))
        if start is None:
            return
        warnings = [*draft.warnings, *check_parameters(model, parameters(values))]
        if warnings or not self.first:
            confirmed = await self._confirm(model, values, start, warnings)
            if confirmed is None:
                return
            values = confirmed
        if not await self.context.writes.confirm_name(model.id, "train it"):
            return
        self._sending = True
        try:
            sent = await self.attempt(self._send(model, values, start))
        finally:
            self._sending = False
        if sent is not None:
            self.session.first_fork = self.session.checkpoint_id = None
            await self.app.switch_mode("live")

    async def _confirm(
        self,
        model: Model,
        values: Mapping[str, Value],
        start: StartingPoint,
        warnings: Sequence[Finding],
    ) -> dict[str, Value] | None:
        """The values as they are confirmed in the dialog; None if the run is not."""
        await self._read_past()
        draft = self.draft
        flags = None if draft.environment is None else Options(**self.form.options).flags
        size, like = draft.cost(self.run, values), draft.like(model)
        source, tasks = draft.source or "", draft.chosen
        prices = own.prices_of(self.client, model, self.session.store.directory)
        request = RunRequest(model, source, tasks, size, warnings, start.name, flags, like, prices)
        dialog = SubmitDialog(values, request.lines)
        return dict(dialog.values) if await self.app.push_screen_wait(dialog) else None

    async def _send(
        self, model: Model, values: Mapping[str, Value], start: StartingPoint
    ) -> object:
        draft = self.draft
        if draft.environment is None:
            body = job_of(model, draft.chosen, parameters(values), start)
            return await submit(self.client, body, draft.task_source)
        typed = parameters(values).model_dump(exclude_none=True)
        out = sorted(draft.trial.left_out)
        options = self.form.options
        options = {**options, "left_out": out, "start": start.ref}
        order = order_of(self.client, model, draft.environment, typed, **options)
        return await begin(self.client, order, self._state)

    async def _send_sweep(
        self, model: Model, values: Mapping[str, Value], swept: Mapping[str, Sequence[Value]]
    ) -> None:
        """Show what a sweep forks, submits and costs; then begin it, and show its runs."""
        if self.session.store.directory is None:
            self.notice("a sweep is kept on disk: there is no state directory", "warning")
            return
        draft, works = self.draft, self.session.works
        fixed = parameters({key: value for key, value in values.items() if key not in swept})
        tasks, out = draft.chosen, tuple(sorted(draft.trial.left_out))
        typed, source = fixed.model_dump(exclude_none=True), (draft.task_source.origin, tasks)
        at_once = self.form.at_once
        planned = plan_sweep(works, model, source, typed, swept, at_once, out)
        sweep = await self.attempt(planned)
        if sweep is None:
            return
        await self._read_past()
        like = self.draft.like(model)
        warnings = [*draft.warnings, *check_parameters(model, parameters(values))]
        prices = own.prices_of(self.client, model, self.session.store.directory)
        lines_of = partial(sweep_lines, sweep, model, tasks, like, warnings, prices)
        shared = {key: value for key, value in values.items() if key not in swept}
        dialog = SubmitDialog(shared, lines_of, "sweep", f"Submit {len(sweep.members)} runs")
        if not await self.app.push_screen_wait(dialog):
            return
        sweep = with_baseline(sweep, dialog.values) if "baseline" in shared else sweep
        works.sweeps.keep(sweep, cancelled=False)
        start_sweep(self.app, self.session, sweep, tasks)
        await self.app.switch_mode("runs")

    def action_edit(self) -> None:
        self.form.focus_first()

    def action_field(self, by: int) -> None:
        if by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_copy(self) -> None:
        if self.task_index is not None:
            self.copy(self.draft.tasks[self.task_index].slug)

    def action_leave(self) -> None:
        """Stop the trial, withdraw a submission, clear the filter, or go to the tasksets."""
        if self.filter_field.has_focus:
            self.filter_field.leave()
        elif self.draft.trial.running:
            self.stop_trial()
        elif self.draft.waiting:
            self.draft = replace(self.draft, waiting=False)
            self.show_state()
        elif self.filter_field.value:
            self.filter_field.fill("")
        else:
            self.sources.focus()


def _matters(run: Run) -> tuple[str | None, bool, bool]:
    """The parts of a run that this view shows; not its steps."""
    return run.model_id, run.training, run.loaded
