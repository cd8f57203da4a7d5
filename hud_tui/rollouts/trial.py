"""The trial before a run on an environment of the user's own: a few rollouts with the head.

They say whether groups of the run will have a gradient, whether tools are called as they are
offered, what fails, and what a step takes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from hud_tui.client.client import HudClient
from hud_tui.client.preflight import check_update
from hud_tui.client.signal import choose
from hud_tui.errors import HudUsage
from hud_tui.rl.cost import UNPRICED, Prices, run_size
from hud_tui.rl.findings import Finding, Severity, verdict
from hud_tui.rl.metrics import short
from hud_tui.rl.tasks.signal import (
    Estimate,
    Outcome,
    Pace,
    Size,
    TaskSignal,
    check_signal,
    document,
    estimate,
)
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import counted, dollars, duration, names_text, one_line
from hud_tui.rl.timeline import OVERFLOW, why_failed
from hud_tui.rl.work import TRIAL
from hud_tui.rollouts.environment import (
    CALLS_TOOLS,
    TAUGHT_TOOLS,
    Loaded,
    check,
    load,
    rollout_of,
    started,
)
from hud_tui.rollouts.process import EnvironmentFailed, WorkerProcess
from hud_tui.rollouts.run_files import Order, keep_order
from hud_tui.rollouts.watched import UNGRADED, error_text
from hud_tui.service_file import Rental, machine_in, read_rentals
from hud_tui.wire import Model, TokenPrices
from hud_tui.wire_rollouts import JobEnter

TASKS, ROLLOUTS = 4, 4
"""Tasks of a trial, and rollouts of each."""
CUT, FIT = 0.25, 0.5
"""Share of answers cut off from which it is a warning, and of right calls below which it is."""
ANYWAY = "--anyway begins all the same"
LONGER = "more --max-tokens, or a shorter prompt"
Report = Mapping[str, Any]
"""A worker's report of a rollout: reward, subscores, info, turns, calls, tokens, seconds, error,
failure."""


@dataclass(frozen=True)
class Calls:
    made: int = 0
    known: int = 0
    """Those that name a tool there is."""
    fit: int = 0
    """Those of them whose arguments fit its schema."""
    unknown: Sequence[str] = ()
    """Names of tools that there are not, the most called first."""


@dataclass(frozen=True)
class Trial:
    job_id: str
    runs: Sequence[tuple[str, Report]]
    """Slug of the task and report of each."""
    seconds: float
    """That they took together."""
    capabilities: Sequence[str] = ()
    """What the environment offers beside its prompt."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """What tasks are called for people, by their slugs."""

    @property
    def first(self) -> dict[str, Any]:
        """The first rollout, as a document."""
        task, run = self.runs[0]
        told = {"task": task, "title": self._title(task), "job_id": self.job_id}
        return {**told, "run": run, "capabilities": self.capabilities}

    def _title(self, slug: str) -> str:
        return one_line(self.titles.get(slug, slug))

    @property
    def failure(self) -> Report | None:
        """Where the first rollout that failed did, in the user's code."""
        return next((run["failure"] for _, run in self.runs if run.get("failure")), None)

    @property
    def graded(self) -> list[Report]:
        """Those that have a reward."""
        return [run for _, run in self.runs if run["error"] is None]

    @property
    def signals(self) -> list[TaskSignal]:
        slugs = dict.fromkeys(slug for slug, _ in self.runs)
        return [self._signal(slug) for slug in slugs]

    def _signal(self, task: str) -> TaskSignal:
        runs = [run for slug, run in self.runs if slug == task]
        outcomes = tuple(
            Outcome(run["reward"], run["tokens"], run["seconds"], run["stop_reason"] == "length")
            for run in runs
            if run["error"] is None
        )
        errors, title = len(runs) - len(outcomes), self._title(task)
        return TaskSignal(task, outcomes, errors=errors, title=title)

    @property
    def pace(self) -> Pace:
        return Pace(len(self.runs), self.seconds)

    @property
    def calls(self) -> Calls:
        each = [run["calls"] for run in self.graded]
        unknown = Counter(name for calls in each for name in calls["unknown"])
        made, known, fit = (sum(calls[n] for calls in each) for n in ("made", "known", "fit"))
        return Calls(made, known, fit, [name for name, _ in unknown.most_common()])

    def findings(
        self, model: Model, size: Size, log: Path, program: str, play: str
    ) -> list[Finding]:
        """What they say of a run. `log`: what the environment printed; `program`: how commands for
        this service begin; `play`: the command that lets a person play a task."""
        if not self.graded:
            return list(self._failed(log))
        findings = [*self._failed(log), *self._ungraded()]
        if any(run["turns"] == 0 for run in self.graded):
            message = "a rollout has no turn of the model: nothing would be trained"
            findings.append(Finding("rollout", "failure", message))
        findings += [self._summary(), *self._cut(), *self._called(model)]
        return [*findings, self._signal_of(model, size, program, play)]

    def _failed(self, log: Path) -> Iterator[Finding]:
        failed = [(slug, run) for slug, run in self.runs if run["error"] is not None]
        if not failed:
            return
        slug, first = failed[0]
        count = f"{len(failed)} of {counted(len(self.runs), 'rollout')} failed"
        level: Severity = "failure" if len(failed) == len(self.runs) else "warning"
        fix = f"correct it; what it printed is in {log}"
        if why_failed("error", first.get("stop_reason"), first["error"]) == OVERFLOW:
            fix = "shorten the prompt, or train a model with a longer context"
        message = f"{count}: {one_line(error_text(first))}"
        yield Finding("rollout", level, message, self._title(slug), fix)

    def _ungraded(self) -> Iterator[Finding]:
        for slug, run in self.runs:
            if run["error"] is None and (template := (run.get("info") or {}).get(UNGRADED)):
                end = "the template ended without a grade, which counts 0"
                message = f"{one_line(template, 300)}: {end}"
                fix = "yield the reward after the prompt"
                yield Finding("rollout", "warning", message, self._title(slug), fix)
                return

    def _summary(self) -> Finding:
        runs = self.graded
        made = f"{counted(len(runs), 'rollout')} of {counted(len(self.signals), 'task')}"
        mean = sum(run["reward"] for run in runs) / len(runs)
        said = f"{made}: mean reward {short(mean)}"
        if all(run["turns"] is not None for run in runs):
            for name, thing in COUNTED.items():
                figure = sum(run[name] for run in runs) / len(runs)
                said += f", {figure:.3g} {thing}{'s' * (figure != 1)}"
            said += " each"
        else:
            said += ", made by the service"
        return Finding("rollout", "ok", f"{said}; {self.seconds:.1f} s")

    def _cut(self) -> Iterator[Finding]:
        runs = self.graded
        cut = sum(run["stop_reason"] == "length" for run in runs)
        if cut >= CUT * len(runs):
            message = f"{cut} of {counted(len(runs), 'rollout')} ended in an answer cut off"
            yield Finding("rollout", "warning", message, fix=LONGER)

    def _called(self, model: Model) -> Iterator[Finding]:
        """Whether tools are called as they are offered."""
        calls = self.calls
        if not self._has_turns or not self.capabilities:
            return
        if not calls.made:
            message = f"the environment has tools, and {_none_called(self.graded)}"
            if any(run["reward"] for run in self.graded):  # else it is why there is no signal
                yield Finding("rollout", "warning", message, fix=self._teaches(model))
            return
        share = calls.fit / calls.made
        message = (
            f"{calls.fit} of {counted(calls.made, 'tool call')} name a tool there is, and fit it"
        )
        apart = []
        if calls.unknown:
            names = [f"“{one_line(name, 20)}”" for name in calls.unknown]
            apart.append(f"there is no {names_text(names, 3)}")
        if calls.known > calls.fit:
            apart.append(f"{calls.known - calls.fit} with arguments that do not fit")
        message = "; ".join([message, *apart])
        yield Finding("rollout", "ok" if share >= FIT else "warning", message)

    @property
    def _has_turns(self) -> bool:
        """Whether it is known what the model said."""
        return any(run["turns"] for run in self.graded)

    def _teaches(self, model: Model) -> str:
        base = one_line(model.base_model or "", 60)
        if base.startswith("tiny/") and base not in TAUGHT_TOOLS:
            return f"its base {base} was not taught tools: fork {CALLS_TOOLS}, and train the fork"
        return "its prompt must name the tools, and the model must have been taught to call them"

    def _signal_of(self, model: Model, size: Size, program: str, play: str) -> Finding:
        """Whether groups will have a gradient; if all rewards are equal, the likeliest reason."""
        signals = self.signals
        finding = check_signal(signals, size, program)
        if len({reward for signal in signals for reward in signal.rewards}) > 1:
            return replace(finding, level="warning") if finding.level == "failure" else finding
        for reason, fix in self._reasons(model):
            message, fix = f"no group would have a gradient: {reason}", f"{fix}; see why: {play}"
            return Finding("signal", "failure", message, finding.where, f"{fix}; {ANYWAY}")
        return finding

    def _reasons(self, model: Model) -> Iterator[tuple[str, str]]:
        """Why rewards do not differ, and what to do; the likeliest reason first."""
        runs, calls = self.graded, self.calls
        made = counted(len(runs), "rollout")
        if any(run["reward"] for run in runs):
            return
        if self.capabilities and self._has_turns and not calls.made:
            yield _none_called(runs), self._teaches(model)
        if calls.made and not calls.fit:
            wrong = f"none of {counted(calls.made, 'tool call')} fits a tool there is"
            yield wrong, "say in the prompt which tools there are and what they take"
        if all(run["stop_reason"] == "length" for run in runs):
            yield f"every answer of {made} was cut off", LONGER
        yield f"every reward of {made} is 0", "give partial credit, or use easier tasks"

    def document(self, size: Size) -> dict[str, Any]:
        """As ``signal`` of a document."""
        calls, failed = self.calls, [run for _, run in self.runs if run["error"] is not None]
        reasons = [why_failed("error", run.get("stop_reason"), run["error"]) for run in failed]
        more = {"job_id": self.job_id, "seconds": self.seconds, "calls": vars(calls)}
        more["overflows"] = reasons.count(OVERFLOW)
        return document(self.signals, size, self.pace, more)

    def estimate(self, size: Size, prices: Prices = UNPRICED, evaluated: int = 0) -> str:
        """What a step and the run take, in words. `evaluated`: rollouts of its evaluations."""
        taken = [estimate(self.signals, each, self.pace) for each in (replace(size, steps=1), size)]
        step, run = (self._taken(each, prices.tokens) for each in taken)
        parts = [f"a step {step}", f"the run {run}, without its optimizer steps"]
        seconds = taken[1].seconds
        if evaluated:
            once = Size(group_size=evaluated, tasks_per_step=1, steps=1, train_tasks=1)
            apart = estimate(self.signals, once, self.pace)
            parts.append(f"its evaluations {self._taken(apart, prices.tokens, trains=False)}")
            seconds = None if seconds is None else seconds + (apart.seconds or 0.0)
        machine = "" if seconds is None else prices.machine_text(seconds)
        return "; ".join([*parts, f"the rented machine {machine}"] if machine else parts)

    def _taken(self, estimate: Estimate, prices: TokenPrices | None, trains: bool = True) -> str:
        """E.g. ``64 rollouts, 2 600 tokens, 12 s, about $0.40``. `trains`: on each once."""
        parts = [counted(estimate.rollouts, "rollout")]
        if estimate.tokens is not None:
            parts.append(counted(estimate.tokens, "token"))
        if estimate.seconds is not None:
            parts.append(duration(estimate.seconds))
        if prices is not None and estimate.tokens:
            prompt = sum(run["prompt_tokens"] for run in self.graded) / len(self.graded)
            charged = prices.cost if trains else prices.sampling
            amount = charged(prompt * estimate.rollouts, estimate.tokens)
            parts.append(f"about {dollars(amount)}")
        return ", ".join(parts)


COUNTED = {"turns": "turn", "tool_calls": "tool call", "tokens": "token"}


def _none_called(runs: Sequence[Report]) -> str:
    return f"0 of {counted(len(runs), 'rollout')} called a tool"


def prices_of(client: HudClient, model: Model, state: Path | None) -> Prices:
    """What a run of a model is charged: by the server of its weights, and for the machine that the
    service trains on, if it is among the rented ones of the state directory."""
    tokens = None if model.engine is None else model.engine.prices
    machine, rentals = machine_in(Path(client.settings.data_dir)), list[Rental]()
    with suppress(HudUsage):  # that the file is unreadable is said elsewhere
        rentals = [] if state is None or not machine else read_rentals(state)
    hourly = sum(each.price_hr for each in rentals if each.name == machine and each.runs)
    return Prices(tokens, hourly)


def evaluated_by(order: Order, model: Model, tasks: Sequence[Task]) -> int:
    """Rollouts of the evaluations of the run that is ordered."""
    size = run_size(model, order.parameters, tasks)
    return 0 if size is None else size.evaluated


def size_of(order: Order, tasks: Sequence[Task]) -> Size:
    sizes = order.parameters
    return Size(
        group_size=sizes["group_size"],
        tasks_per_step=sizes.get("tasks_per_step"),
        steps=sizes.get("steps"),
        train_tasks=sum(not task.heldout for task in tasks),
        substeps=sizes.get("substeps") or 1,
    )


async def make_trial(
    worker: WorkerProcess,
    client: HudClient,
    order: Order,
    loaded: Loaded,
    model: Model,
    rollouts: int = ROLLOUTS,
) -> tuple[Trial | None, list[Finding]]:
    """Start the environment, and roll out some of its tasks with the model's head: the result, None
    if it did not start, or in read-only mode; and findings. `rollouts`: of each task."""
    tasks = list({id(task): task for task in choose(loaded.tasks, TASKS)}.values())
    tasks = tasks or list(loaded.tasks[:1])
    capabilities, findings = await _start(worker, order, tasks[0])
    if capabilities is None:
        return None, findings
    if why := client.wire.guard.shut:
        message = f"no rollout was tried: {why.why}"
        return None, [*findings, Finding("rollout", "warning", message, fix=why.cure)]
    job_id = str(uuid4())
    entered = JobEnter(name=f"{TRIAL}{order.name}"[:200], group=rollouts)
    await client.rollouts.enter_job(job_id.replace("-", ""), entered)
    began = monotonic()
    asked = {"is_trial": True}  # then calls are compared with the tools there are
    requests = (rollout_of(order, job_id, task, rollouts) | asked for task in tasks)
    results = await asyncio.gather(*(worker.call("roll_out", **each) for each in requests))
    runs = [
        (task.slug, {key: value for key, value in run.items() if key != "samples"})
        for task, result in zip(tasks, results, strict=True)
        for run in result["runs"]
    ]
    titles = {task.slug: task.title for task in tasks}
    trial = Trial(job_id, runs, monotonic() - began, capabilities, titles)
    size, log, settings = size_of(order, loaded.tasks), worker.setting.log, client.settings
    named = ("--python", order.python) if order.python else ()
    play = settings.command("play", order.source, *named)
    return trial, [*findings, *trial.findings(model, size, log, settings.program, play)]


async def _start(
    worker: WorkerProcess, order: Order, task: Task
) -> tuple[Sequence[str] | None, list[Finding]]:
    """Start a task's environment, if it runs on this machine: what it offers, None if it does not
    start; and findings."""
    if order.runtime not in ("subprocess", "local") and not order.runtime.startswith("tcp"):
        return [], []
    name = one_line(task.env)
    try:
        begun = await worker.call("start", task=task.row(), runtime=order.runtime)
    except EnvironmentFailed as error:
        message = f"{name} does not start: {one_line(error.message)}"
        return None, [Finding("environments", "failure", message, name)]
    offers = ", ".join(begun["capabilities"]) or "no capabilities"
    message = f"{name} starts in {begun['seconds']:.1f} s; it has {offers}"
    return begun["capabilities"], [Finding("environments", "ok", one_line(message), name)]


# All checks in order: what Launch and the command line show before a run.


async def prepare(
    client: HudClient, order: Order, model: Model, state: Path
) -> AsyncGenerator[Loaded | Finding | Trial]:
    """Import an environment, check its tasks, start it, and try some: yields its content, then
    findings, and the result of the trial. Its output goes to a log in the state directory. Raises
    HudError: it cannot be imported, or has nothing to train on."""
    async with started(client, order, state) as worker:
        loaded = await load(worker, client, order)
        yield loaded
        findings = check(loaded, model, order.parameters, client.settings.program)
        findings += await check_update(client, model.id, order.parameters)
        for finding in findings:
            yield finding
        if verdict(findings) != "failure":
            trial, tried = await make_trial(worker, client, order, loaded, model)
            for finding in tried:
                yield finding
            if trial is not None:
                await asyncio.to_thread(keep_order, state, trial.job_id, order)
                if trial.graded:
                    size, prices = size_of(order, loaded.tasks), prices_of(client, model, state)
                    evaluated = evaluated_by(order, model, loaded.tasks)
                    taken = trial.estimate(size, prices, evaluated)
                    yield Finding("estimate", "ok", taken)
                yield trial
