"""Draft: a run before it is submitted: its tasks, trial and parameters, and their display."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Static

from hud_tui.change import TaskSource
from hud_tui.client.preflight import place_of
from hud_tui.errors import HudBadTasks, HudError
from hud_tui.keys import key, keyed
from hud_tui.rl.cost import EVALUATES, UNPRICED, Cost, Prices, cost, evaluation_facts, run_size
from hud_tui.rl.disk import check_room, where_stored
from hud_tui.rl.findings import Finding, verdict
from hud_tui.rl.groups import histogram
from hud_tui.rl.progress import comparable_step_seconds
from hud_tui.rl.run import Run
from hud_tui.rl.settings import (
    FOLDED,
    Value,
    parameters,
    setting_label,
    settings,
    write,
)
from hud_tui.rl.sweep import (
    Sweep,
    SweepSize,
    members_of,
    paced_like,
    run_costs,
    size_of_runs,
    sweep_facts,
)
from hud_tui.rl.tasks.checks import check_group_size
from hud_tui.rl.tasks.signal import Pace, Progress, Size, TaskSignal, check_signal
from hud_tui.rl.tasks.task import Task, rows_digest, split_text
from hud_tui.rl.text import counted, duration, one_line, percent, spaced
from hud_tui.rl.work import Work
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.dialogs import HINTS, ConfirmDialog
from hud_tui.tui.theme import bar_cells, eighth
from hud_tui.tui.widgets.form import worst
from hud_tui.tui.widgets.table import DIM, Column, Row, item_row
from hud_tui.wire import Model
from hud_tui.wire_runs import JobParameters
from hud_tui.wire_tasks import Taskset

# What a submission sends, as a request and in words.


LABEL = 18


@dataclass(frozen=True)
class RunRequest:
    """What the submission of a run sends and starts, besides the form's values."""

    model: Model
    source: str
    """Name of the chosen taskset."""
    tasks: Sequence[Task]
    price: Cost | None
    """None if the service decides."""
    warnings: Sequence[Finding]
    start: str = ""
    """The checkpoint that it starts from; empty if unknown."""
    options: Mapping[str, object] | None = None
    """Options of rollouts by their flags; None if the service makes the rollouts."""
    like: Work | None = None
    """A run whose pace is used for the estimate."""
    prices: Prices = UNPRICED

    def lines(self, values: Mapping[str, Value]) -> list[Text]:
        """Everything that is sent, for the dialog; `values` by their wire names."""
        model, tasks = self.model, self.tasks
        steps = values.get("steps")
        count = steps if isinstance(steps, int) else None
        own = None if self.options is None else run_size(model, values, tasks)
        stored = where_stored(model, count, own)
        room = check_room(model, count)  # for the form's steps, which preflight does not know
        warnings = [finding for finding in self.warnings if not room or finding.check != "disk"]
        return [
            *_warned(warnings, room),
            _line("model", one_line(model.model_name, 60)),
            *([_line("starts from", one_line(self.start, 60))] if self.start else []),
            _line("taskset", f"{one_line(self.source, 60)}: {split_text(tasks)}"),
            *_evaluations(model, tasks, values),
            *self._costs(values),
            *(
                _line(setting_label(key), write(value))
                for key, value in values.items()
                if _has_line(key, value)
            ),
            *_others(model, values, managed=self.options is None),
            *_options(self.options or {}),
            *(_line(*fact) for fact in stored),
        ]

    def _costs(self, values: Mapping[str, Value]) -> Iterator[Text]:
        """Rollouts; of a managed run also tokens and time, by its own tasks' pace if measured."""
        price = self.price
        if price is None:
            return
        if self.options is not None:
            yield _line("rollouts", spaced(price.rollouts) + about(price))
            return
        sent = parameters(values).model_dump(exclude_none=True)
        size = size_of_runs([sent], 1, self.model, self.tasks, self.like, self.prices)
        for label, text in run_costs(size):
            is_measured = label == "time" and price.seconds is not None and not price.basis
            yield _line(label, about(price).removeprefix(" · ") if is_measured else text)


def _warned(warnings: Iterable[Finding], room: Iterable[Finding]) -> Iterator[Text]:
    for finding in (*warnings, *(finding for finding in room if finding.level != "ok")):
        yield Text(f"⚠ {finding.message}", style="bold")


def _has_line(key: str, value: Value) -> bool:
    """Whether a parameter has a line of its own: not those left to the engine."""
    if key in EVALUATES:
        return False
    return not (key in FOLDED and value in (None, False))


def drafted_sweep(
    model: Model, values: Mapping[str, Value], swept: Mapping[str, Sequence[Value]], at_once: int
) -> Sweep:
    """A sweep without a name, for display. Raises HudUsage, as `members_of`."""
    fixed = parameters({key: value for key, value in values.items() if key not in swept})
    return Sweep(
        id="",
        name="",
        service="",
        model_id=model.id,
        model=model.model_name,
        source="",
        digest="",
        parameters=fixed.model_dump(exclude_none=True),
        at_once=at_once,
        members=members_of(f"{model.model_name[:40]}-sweep", swept),
    )


def sweep_lines(
    sweep: Sweep,
    model: Model,
    tasks: Sequence[Task],
    like: Work | None,
    warnings: Sequence[Finding],
    prices: Prices,
    values: Mapping[str, Value],
) -> list[Text]:
    """Everything that a sweep forks and submits, as `RunRequest.lines`."""
    sweep = with_baseline(sweep, values)
    size = size_of_runs(sweep.runs, sweep.at_once, model, tasks, like, prices)
    warnings = [finding for finding in warnings if finding.check != "disk"]
    facts = sweep_facts(sweep, size, model, tasks)
    return [*_warned(warnings, check_room(model, size.steps)), *(_line(*fact) for fact in facts)]


def with_baseline(sweep: Sweep, values: Mapping[str, Value]) -> Sweep:
    """The sweep with or without a baseline of each run, as chosen in the dialog."""
    fixed = {key: value for key, value in sweep.parameters.items() if key != "baseline"}
    fixed |= {"baseline": True} if values.get("baseline") else {}
    return sweep.model_copy(update={"parameters": fixed})


def _others(model: Model, values: Mapping[str, Value], managed: bool) -> list[Text]:
    """The parameters without a field in the form, with the embedded service's values."""
    sent = settings(model, values, managed) if model.training_defaults is not None else []
    listed = (key for key, value in values.items() if key in EVALUATES or _has_line(key, value))
    shown = {setting_label(key) for key in listed}
    rest = [
        f"{setting.label} {setting.text}"
        for setting in sent
        if setting.label not in shown and setting.text != "–"
    ]
    return [Text.assemble((f"{'defaults':<{LABEL}}{' · '.join(rest)}", "dim"))] if rest else []


def _options(options: Mapping[str, object]) -> Iterator[Text]:
    """How rollouts are made: where, and within which limits."""
    for name, value in options.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        text = f"{text:g}" if isinstance(text, float) else str(text)
        yield _line(setting_label(name), one_line(text, 200))


def _evaluations(
    model: Model, tasks: Sequence[Task], values: Mapping[str, Value]
) -> Iterator[Text]:
    """The run's evaluations besides that of its last checkpoint; empty without held-out tasks."""
    whole = run_size(model, values, tasks)
    if whole is None or "eval_every" not in values:
        return
    for label, text in evaluation_facts(whole, values, sum(task.heldout for task in tasks)):
        if label == "baseline" and "baseline" not in values:
            continue
        hint = " · {submit.baseline} adds one" if label == "baseline" and text == "no" else ""
        yield _line(label, text + keyed(hint))


def about(size: Cost) -> str:
    """Its duration, if known; begins with a separator."""
    if size.seconds is None:
        return " · time unknown"
    return f" · about {duration(size.seconds)}" + (" for sampling alone" if size.sampling else "")


def _line(label: str, value: str) -> Text:
    return Text.assemble((f"{label:<{LABEL}}", "dim"), value)


class SubmitDialog(ConfirmDialog):
    """Everything that a run sends, before it is submitted; one key adds an evaluation of the model
    before the first step."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("submit")

    @property
    def hints(self) -> str:  # type: ignore[override]
        """With the key, if there is something to evaluate."""
        return f"{{submit.baseline}} baseline · {HINTS}" if self._offers else HINTS

    def __init__(
        self,
        values: Mapping[str, Value],
        lines_of: Callable[[Mapping[str, Value]], Sequence[Text]],
        what: str = "run",
        action: str = "Submit",
    ) -> None:
        """`lines_of` returns the lines about what is sent; `what` is a run or a sweep."""
        self.values, self._lines_of = dict(values), lines_of
        self._offers = "baseline" in values
        super().__init__(f"Submit this {what}", lines_of(self.values), action)

    def action_baseline(self) -> None:
        self.values["baseline"] = not self.values["baseline"]
        lines = self._lines_of(self.values)
        for shown, line in zip(self.query(".dialog-line").results(Static), lines, strict=True):
            shown.update(line)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "baseline" or self._offers


BAR = 20


@dataclass(frozen=True)
class Trial:
    """Measured signals, and the tasks that the user left out."""

    signals: Mapping[str, TaskSignal] = field(default_factory=dict)
    """By slug; empty before any task was sampled."""
    size: Size | None = None
    """Size of the run they were measured for."""
    pace: Pace | None = None
    done: int = 0
    total: int = 0
    running: bool = False
    left_out: frozenset[str] = frozenset()
    """Slugs of tasks that will not be submitted."""
    by_std: bool = False
    """Whether the tasks with signal come first."""

    def observe(self, progress: Progress) -> Trial:
        return replace(
            self,
            signals={signal.slug: signal for signal in progress.signals},
            pace=progress.pace,
            done=progress.done,
            total=progress.total,
        )

    @property
    def group_size(self) -> int:
        return self.size.group_size if self.size is not None else 8

    def label(self, slug: str) -> str:
        signal = self.signals.get(slug)
        return signal.label(self.group_size) if signal is not None else ""

    def dead(self, tasks: Iterable[Task]) -> frozenset[str]:
        """Slugs of sampled tasks without signal; failed ones are not counted."""
        words = ("too easy", "too hard", "no signal")
        return frozenset(task.slug for task in tasks if self.label(task.slug) in words)

    def toggled(self, slugs: frozenset[str]) -> Trial:
        """With these tasks left out; or included again, if all of them were left out."""
        out = self.left_out - slugs if slugs <= self.left_out else self.left_out | slugs
        return replace(self, left_out=out)

    def chosen(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        return tuple(task for task in tasks if task.slug not in self.left_out)

    def findings(self) -> list[Finding]:
        kept = [signal for slug, signal in self.signals.items() if slug not in self.left_out]
        if self.running or self.size is None or not kept:
            return []
        return [check_signal(kept, self.size)]

    def order(self, tasks: Sequence[Task]) -> list[int]:

        def spread(index: int) -> float:  # tasks that were not sampled come last
            signal = self.signals.get(tasks[index].slug)
            return -1.0 if signal is None or signal.std is None else signal.std

        indexes = range(len(tasks))
        return sorted(indexes, key=spread, reverse=True) if self.by_std else list(indexes)

    @property
    def bar(self) -> str:
        cells = "".join(bar_cells(self.done / self.total if self.total else 0.0, BAR))
        stop = f"{key('launch.leave')} stops"
        return f"sampling tasks  {cells}  {self.done} of {self.total} rollouts · {stop}"


# Rows of the lists: tasks with their sampled rewards, tasks that were not sampled, tasksets.


BINS = 8
STYLES = {"signal": "$success", "failed": "$error", "": "$text-disabled"}


@dataclass(frozen=True)
class TaskLine:
    """A task in the list, and what the trial says of it."""

    task: Task
    trial: Trial

    @property
    def signal(self) -> TaskSignal | None:
        return self.trial.signals.get(self.task.slug)

    @property
    def is_left_out(self) -> bool:
        return self.task.slug in self.trial.left_out


def bars(rewards: list[float]) -> str:
    """Histogram of rewards in BINS bars, over [0, 1] or the wider range of the rewards."""
    if not rewards:
        return ""
    counts = histogram(rewards, BINS, min(0.0, *rewards), max(1.0, *rewards))
    return "".join(eighth(count / max(counts)) for count in counts)


def _decimal(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def _task_name(line: TaskLine) -> Content:
    name = f"{'✘ ' if line.is_left_out else ''}{one_line(line.task.slug, 120)}"
    return Content.styled(name, "$text-disabled" if line.is_left_out else "")


def _figure(
    of: Callable[[TaskSignal], float | None], write: Callable[[float], str] = percent
) -> Callable[[TaskLine], str]:
    """A cell with a number of a sampled task; empty without one."""

    def cell(line: TaskLine) -> str:
        value = None if line.signal is None else of(line.signal)
        return "" if value is None else write(value)

    return cell


def _no_signal(line: TaskLine) -> str:
    share = None if line.signal is None else line.signal.zero_gradient(line.trial.group_size)
    return "" if share is None else percent(share)


def _verdict(line: TaskLine) -> Content:
    if line.is_left_out:
        return Content.styled("left out", "$text-disabled")
    label = line.trial.label(line.task.slug)
    word = "held out" if line.task.heldout and not label else label
    return Content.styled(word, STYLES.get(label, "$warning"))


def _args(line: TaskLine) -> str:
    args = line.task.args
    return one_line(json.dumps(args, ensure_ascii=False) if args else "", 400)


COLUMNS: Sequence[Column[TaskLine]] = (
    Column("task", 22, _task_name),
    Column("rewards", BINS, lambda line: bars(line.signal.rewards if line.signal else [])),
    Column("mean", 5, _figure(lambda signal: signal.mean, _decimal), right=True, rank=1),
    Column("std", 6, _figure(lambda signal: signal.std, _decimal), right=True),
    Column("P(no signal)", 12, _no_signal, right=True, rank=2),
    Column("cut", 5, _figure(lambda signal: signal.truncated), right=True, rank=4),
    Column("tokens", 6, _figure(lambda signal: signal.tokens, "{:.0f}".format), right=True, rank=5),
    Column("verdict", 9, _verdict),
    Column("args", 0, _args, rank=3),
)
"""``P(no signal)`` is the expected share of zero-variance groups, ``cut`` of truncated rollouts."""


MOST_ROWS = 1000
"""Most tasks that are listed; the rest is counted."""


@dataclass(frozen=True)
class TasksetLine:
    """A taskset in the list."""

    taskset: Taskset
    is_chosen: bool


def _taskset_name(line: TasksetLine) -> Content:
    return Content.styled(one_line(line.taskset.name, 60), "bold" if line.is_chosen else "")


def _taskset_size(line: TasksetLine) -> str:
    return "" if line.taskset.task_count is None else str(line.taskset.task_count)


TASKSET_COLUMNS: Sequence[Column[TasksetLine]] = (
    Column("taskset", 14, _taskset_name),
    Column("tasks", 6, _taskset_size, right=True),
    Column("about", 0, lambda line: one_line(line.taskset.description or "", 200), DIM, rank=1),
)


def _scenario(line: TaskLine) -> str:
    return f"{one_line(line.task.env, 40)}:{one_line(line.task.scenario, 40)}"


TASK_COLUMNS: Sequence[Column[TaskLine]] = (
    Column("slug", 24, lambda line: one_line(line.task.slug, 120)),
    Column("scenario", 18, _scenario, DIM, rank=2),
    Column("split", 7, lambda line: one_line(line.task.columns.get("split", ""), 20), DIM, rank=3),
    Column("args", 0, lambda line: _args(line) or one_line(line.task.more.get("prompt", ""), 400)),
)


def taskset_rows(tasksets: Iterable[Taskset], chosen: str | None) -> list[Row]:
    """A row per taskset; `chosen` is the name of the checked one."""
    lines = (TasksetLine(taskset, taskset.name == chosen) for taskset in tasksets)
    return [item_row(TASKSET_COLUMNS, line.taskset.name, line) for line in lines]


def task_rows(tasks: Sequence[Task], trial: Trial, text: str = "") -> list[Row]:
    """Rows of a taskset's tasks in the trial's order, at most MOST_ROWS and the number of the rest;
    only of tasks with each word of `text` in slug, scenario, split or args."""
    columns = task_columns(trial)
    words = text.casefold().split()
    indexes = [index for index in trial.order(tasks) if _has(tasks[index], words)]
    lines = ((index, TaskLine(tasks[index], trial)) for index in indexes[:MOST_ROWS])
    rows = [item_row(columns, str(index), line) for index, line in lines]
    if len(indexes) > MOST_ROWS:
        more = Content.styled(f"… and {len(indexes) - MOST_ROWS} more", "$text-muted")
        rows.append(Row("more", (more,), heading=True))
    return rows


def _has(task: Task, words: Sequence[str]) -> bool:
    if not words:
        return True
    split, args = task.columns.get("split", ""), json.dumps(task.args, ensure_ascii=False)
    text = f"{task.slug} {task.env}:{task.scenario} {split} {args}".casefold()
    return all(word in text for word in words)


def task_columns(trial: Trial) -> Sequence[Column[TaskLine]]:
    return COLUMNS if trial.signals or trial.left_out else TASK_COLUMNS


WAITING = "submits once the checks pass · {launch.leave} cancel"
LEADS = {
    "choose": "{^launch.choose} checks the taskset under the cursor; {launch.file} opens a file.",
    "type": "This service lists no tasksets: {launch.file} opens one by name, or a file.",
    "checked": "{^launch.choose} submits the run; {launch.edit} edits it "
    "(1e-4, 3e-4 makes a sweep); {launch.leave} goes back.",
    "environment": "{^launch.choose} submits the run; {launch.edit} edits it; "
    "{launch.leave} goes back.",
    "replay": "A replay cannot check or launch anything. {app.view.live} shows its run.",
    "first": "Step 2 of 3: {^launch.choose} checks these tasks against the service.",
    "first checked": "Step 3 of 3: {^launch.choose} submits the run below. "
    "{launch.edit} edits it first.",
    "blocked": "Not ready yet: the line beside the button says why; {launch.edit} edits the run.",
}


UNDER_WAY = "wait until it ends, or cancel it: {app.view.live} Live, {live.cancel_run}"


@dataclass(frozen=True)
class Draft:
    """A taskset, preflight's findings so far, and whether it still runs."""

    source: str | None = None
    """Path of the chosen file, or name of the taskset; None before a choice."""
    tasks: tuple[Task, ...] = ()
    findings: tuple[Finding, ...] = ()
    checking: bool = False
    taskset_id: str | None = None
    """Id, for a taskset of the service."""
    trial: Trial = field(default_factory=Trial)
    environment: Path | None = None
    """The source, if it is an environment of the user's own."""
    waiting: bool = False
    """Whether it will be submitted as soon as the checks have passed."""
    past: tuple[Work, ...] = ()
    """The service's runs, whose pace an estimate of time goes by."""
    asked: JobParameters = field(default_factory=JobParameters)
    """Of the form."""

    def asking(self, values: Mapping[str, Value], swept: Mapping[str, Sequence[Value]]) -> Draft:
        """With the form's parameters; of a sweep's tasks per step, the most."""
        wide = [each for each in swept.get("tasks_per_step", ()) if isinstance(each, int)]
        most = {"tasks_per_step": max(wide)} if wide else {}
        return replace(self, asked=parameters({**values, **most}))

    def found(self, finding: Finding) -> Draft:
        """With one more finding; one on a run under way names the key that cancels it."""
        if finding.check == "ready" and finding.level == "warning":
            finding = replace(finding, fix=keyed(UNDER_WAY))
        return replace(self, findings=(*self.findings, finding))

    def found_ready(self, findings: Iterable[Finding]) -> Draft:
        """With these findings on whether the model can be trained now."""
        others = tuple(finding for finding in self.findings if finding.check != "ready")
        return reduce(Draft.found, findings, replace(self, findings=others))

    def unread(self, error: HudError) -> Draft:
        """With the reason why the source cannot be read: each problem of its rows is a finding."""
        problems = error.problems if isinstance(error, HudBadTasks) else ()
        messages = [str(problem) for problem in problems] or [error.message]
        findings = [Finding("rows", "failure", message) for message in messages]
        findings[-1] = replace(findings[-1], fix=error.hint)
        return replace(self, findings=(*self.findings, *findings))

    @property
    def chosen(self) -> tuple[Task, ...]:
        return self.trial.chosen(self.tasks)

    @property
    def task_source(self) -> TaskSource:
        """The submitted tasks as the command log names them."""
        kind = "taskset" if self.taskset_id else "file"
        origin = place_of({"source": self.source or "", "loaded_from": kind})
        out = tuple(task.slug for task in self.tasks if task.slug in self.trial.left_out)
        return TaskSource(origin, rows_digest([task.row() for task in self.chosen]), out)

    @property
    def found_in_all(self) -> tuple[Finding, ...]:
        """Findings of the checks and of the trial; on the batches, of what the form says now."""
        group_size = self.asked.group_size
        sized = check_group_size(self.chosen, group_size, self.asked.tasks_per_step)
        renewed = {"group_size": sized} if group_size is not None else {}
        checked = chain.from_iterable(
            renewed.get(finding.check, [finding]) for finding in self.findings
        )
        # of an environment, the check has said it, with the reason
        return (*checked, *(self.trial.findings() if self.environment is None else ()))

    @property
    def failed(self) -> bool:
        stopping = [each for each in self.found_in_all if not self._may_be_overruled(each)]
        return verdict(stopping) == "failure"

    def _may_be_overruled(self, finding: Finding) -> bool:
        """Whether it says that the trial of an environment had no signal, which may be chance."""
        return finding.check == "signal" and self.environment is not None

    @property
    def warnings(self) -> list[Finding]:
        """What the user is asked about before it is submitted."""
        overruled = [each for each in self.found_in_all if self._may_be_overruled(each)]
        failures = [finding for finding in overruled if finding.level == "failure"]
        return [*failures, *(each for each in self.found_in_all if each.level == "warning")]

    def blocked(self, run: Run, faults: Sequence[str]) -> str:
        """Why it cannot be submitted, in a line; empty if it can. `faults`: the invalid fields."""
        if run.model is None:
            return keyed("no model selected: {app.view.models} lists them")
        if self.source is None:
            return keyed("choose a taskset: {^launch.choose} checks it")
        if self.checking:
            return "checking …"
        if self.failed:
            problem = worst(self.found_in_all)
            return one_line(f"not submitted: {problem.message if problem else ''}", 300)
        if self.tasks and all(task.heldout for task in self.chosen):
            return keyed("every training task is left out: {launch.leave_out} takes one back in")
        return f"invalid: {'; '.join(faults)}" if faults else ""

    def lead(self, first: bool, listed: bool, blocked: str = "") -> str:
        """What Enter does. `first`: whether this is the first start's run; `listed`: whether there
        are tasksets to choose; `blocked`: why the run cannot be submitted."""
        if self.trial.running:
            return self.trial.bar
        ready = self.source is not None and not self.failed
        if ready and blocked and not self.checking:
            return keyed(LEADS["blocked"])
        if first:
            return keyed(LEADS["first checked" if ready else "first"])
        checked = "checked" if self.environment is None else "environment"
        return keyed(LEADS[checked if ready else "choose" if listed else "type"])

    def like(self, model: Model | None) -> Work | None:
        """The run that the estimate of a managed run's time goes by."""
        if model is None or self.environment is not None:
            return None
        return paced_like(self.past, model, self.source or "")

    def cost(self, run: Run, values: Mapping[str, Value]) -> Cost | None:
        """Estimated cost: at the pace of the model's last run if it is comparable, else of the
        trial, else of the run that a sweep's time is judged by."""
        train = {task.slug for task in self.tasks if not task.heldout}
        seen = self.trial.pace
        rollout_s = seen.seconds / seen.rollouts if seen is not None and seen.rollouts else None
        step_s = comparable_step_seconds(run, values, train)
        estimate = cost(values, self.chosen, step_s, rollout_s)
        like = self.like(run.model)
        if estimate is None or estimate.seconds is not None or like is None or run.model is None:
            return estimate
        sent = parameters(values).model_dump(exclude_none=True)
        size = size_of_runs([sent], 1, run.model, self.chosen, like)
        return replace(estimate, seconds=size.seconds, sampling=False, basis=size.basis)

    def summary(
        self,
        run: Run,
        values: Mapping[str, Value] | None,
        blocked: str,
        several: SweepSize | None = None,
    ) -> Content:
        """What the button will do, or why it cannot; `several` is a sweep's size."""
        if self.waiting:
            return Content.styled(keyed(WAITING), "$accent")
        if blocked or values is None:
            return Content.styled(blocked, "$warning" if self.source else "")
        if several is not None:
            runs = f"{several.runs} runs, {min(several.runs, several.at_once)} at once"
            count = f" · {spaced(several.rollouts)} rollouts" if several.rollouts else ""
            return Content.assemble((f"sweep: {runs}", "bold"), (count, "$text-muted"))
        busy = "already training · " if run.training else ""
        return Content.assemble((busy, "$warning"), *self._size(self.cost(run, values)))

    def _size(self, size: Cost | None) -> list[str | tuple[str, str]]:
        held, out = sum(task.heldout for task in self.chosen), len(self.tasks) - len(self.chosen)
        apart = f" · {out} left out" if out else ""
        apart += f" · {counted(held, 'task')} held out" if held else ""
        if size is None:
            return [f"{len(self.chosen)} tasks · HUD decides how many rollouts"]
        count = counted(size.rollouts, "rollout")
        return [(count, "bold"), (f"{about(size)}{apart}", "$text-muted")]
