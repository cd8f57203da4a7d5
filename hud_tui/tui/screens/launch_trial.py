"""LaunchTrial: tasks are tried before they are paid for, and those that teach nothing left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text
from textual import on, work
from textual.content import Content
from textual.worker import Worker

from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.progress import parameters
from hud_tui.rl.tasks.signal import Asked, TaskSignal, histogram
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.tui.run_draft import Draft, Trial
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.theme import eighth
from hud_tui.tui.widgets.form import RunForm
from hud_tui.tui.widgets.row_list import Column, Row, RowList
from hud_tui.wire import JobParameters, Model, Taskset

if TYPE_CHECKING:
    from hud_tui.client.signal import SignalCache


# Rows of tasks that were tried: their rewards, how far they spread, and what that means.


BINS = 8
COLUMNS = (
    Column("task", 22),
    Column("rewards", BINS),
    Column("mean", 5, right=True, rank=1),
    Column("spread", 6, right=True),
    Column("flat", 5, right=True, rank=2),
    Column("cut", 5, right=True, rank=4),
    Column("tokens", 6, right=True, rank=5),
    Column("verdict", 9),
    Column("args", rank=3),
)
"""``flat`` is the expected share of groups without gradient, ``cut`` of truncated rollouts."""
STYLES = {"teaches": "$success", "failed": "$error", "": "$text-disabled"}


def trial_row(number: int, task: Task, trial: Trial) -> Row:
    """A task's row; `number` is its place in the taskset."""
    signal, label = trial.signals.get(task.slug), trial.label(task.slug)
    out = task.slug in trial.left_out
    name = Content.styled(
        f"{'✘ ' if out else ''}{one_line(task.slug, 120)}", "$text-disabled" if out else ""
    )
    word = "left out" if out else "held out" if task.heldout and not label else label
    args = json.dumps(task.args, ensure_ascii=False) if task.args else ""
    figures = [Content("")] * 6 if signal is None else _figures(signal, trial.group_size)
    said = Content.styled(word, "$text-disabled" if out else STYLES.get(label, "$warning"))
    return Row(str(number), (name, *figures, said, Content(one_line(args, 400))))


def _figures(signal: TaskSignal, group_size: int) -> list[Content]:
    flat = signal.zero_gradient(group_size)
    return [
        bars(signal.rewards),
        Content(_decimal(signal.mean)),
        Content(_decimal(signal.spread)),
        Content("" if flat is None else f"{flat:.0%}"),
        Content("" if signal.truncated is None else f"{signal.truncated:.0%}"),
        Content("" if signal.tokens is None else f"{signal.tokens:.0f}"),
    ]


def bars(rewards: list[float]) -> Content:
    """Rewards from 0, or the least, to 1, or the largest, as BINS bars."""
    if not rewards:
        return Content("")
    counts = histogram(rewards, BINS, min(0.0, *rewards), max(1.0, *rewards))
    return Content("".join(eighth(count / max(counts)) for count in counts))


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("0.", ".", 1)


# Rows of tasksets and of their tasks.


MOST = 1000
"""Tasks that are listed; the others are counted."""
TASKSET_COLUMNS = (
    Column("taskset", 14),
    Column("tasks", 6, right=True),
    Column("about", rank=1),
)
TASK_COLUMNS = (
    Column("slug", 24),
    Column("scenario", 18, rank=2),
    Column("split", 7, rank=3),
    Column("args"),
)


def taskset_rows(tasksets: Iterable[Taskset], chosen: str | None) -> list[Row]:
    """A row a taskset; `chosen` is the name of the one that is checked."""
    return [
        Row(
            one.name,
            (
                Content.styled(one_line(one.name, 60), "bold" if one.name == chosen else ""),
                Content("" if one.task_count is None else f"{one.task_count}"),
                Content.styled(one_line(one.description or "", 200), "$text-muted"),
            ),
        )
        for one in tasksets
    ]


def task_rows(tasks: Sequence[Task], trial: Trial) -> list[Row]:
    """The first rows of a taskset as the trial orders them, and how many more there are."""
    make = trial_row if trial.signals or trial.left_out else _task_row
    rows = [make(place, tasks[place], trial) for place in trial.order(tasks)[:MOST]]
    if len(tasks) > MOST:
        more = Content.styled(f"… and {len(tasks) - MOST} more", "$text-muted")
        rows.append(Row("more", (more,), heading=True))
    return rows


def task_columns(trial: Trial) -> Sequence[Column]:
    """The columns of those rows."""
    return COLUMNS if trial.signals or trial.left_out else TASK_COLUMNS


def _task_row(number: int, task: Task, trial: Trial) -> Row:
    args = json.dumps(task.args, ensure_ascii=False) if task.args else task.more.get("prompt", "")
    return Row(
        str(number),
        (
            Content(one_line(task.slug, 120)),
            Content.styled(
                f"{one_line(task.env, 40)}:{one_line(task.scenario, 40)}", "$text-muted"
            ),
            Content.styled(one_line(task.columns.get("split", ""), 20), "$text-muted"),
            Content(one_line(args, 400)),
        ),
    )


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
        from hud_tui.client.signal import ask_of, measure, size_of  # after the first frame

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
        from hud_tui.client.signal import SignalCache

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
