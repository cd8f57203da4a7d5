"""``watch`` and ``run --follow``: print events and alarms until a goal is reached."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from hud_tui.cli.alarms import alarm_document, report_documents, thresholds
from hud_tui.cli.models import checkpoint_document
from hud_tui.cli.output import emit, print_notice
from hud_tui.cli.which_model import named
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Feed
from hud_tui.errors import HudAlarm, HudError, HudUnreachable, HudUsage
from hud_tui.events import Event, StepTaken, TreeRead, WorkChanged
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.alarms.throughput import STALL
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.metrics import chosen_text, estimate_text, short
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import SUCCEEDED, has_ended, is_active
from hud_tui.wire import Estimate, Model, WorkState

if TYPE_CHECKING:
    from hud_tui.client.submit import Submission

# Listener: events of a feed, with connection problems on stderr and a timeout.


WATCH_S = 1.0
"""Seconds between checks of the feed while no event arrives."""
PATIENCE_S = 300.0
"""Silence of the service after which the command fails, seconds."""


class Listener:
    """Waits for the events of one feed."""

    def __init__(self, feed: Feed, idle: Callable[[], object], listed: str) -> None:
        """
        Args:
            idle: Called about every WATCH_S while nothing arrives.
            listed: The command that lists the jobs, for an error's hint.
        """
        self._feed, self._idle, self._listed = feed, idle, listed
        self._trouble = ""
        self._heard_at: float | None = None
        self._silent_s = 0.0
        """Seconds of checks since the service was heard; none pass while this process is halted."""

    async def next(self, events: AsyncGenerator[Event, None]) -> Event:
        """The next event. Raises HudUnreachable: the service does not answer; the run may
        continue."""
        waiting = asyncio.ensure_future(anext(events))
        try:
            while not waiting.done():
                done, _ = await asyncio.wait([waiting], timeout=WATCH_S)
                if not done:
                    self._silent_s += WATCH_S
                self._watch()
                if not done:
                    self._idle()
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    def _watch(self) -> None:
        """Report on stderr that the feed is reconnecting, or connected again."""
        feed = self._feed
        if feed.trouble != self._trouble:
            self._trouble = feed.trouble
            print_notice(f"reconnecting: {feed.trouble}" if feed.trouble else "connected again")
        if feed.heard_at != self._heard_at:
            self._heard_at, self._silent_s = feed.heard_at, 0.0
        if feed.heard_at is not None and self._silent_s > PATIENCE_S:
            raise HudUnreachable(
                f"no answer from the service for {PATIENCE_S:.0f} s: {feed.trouble}",
                f"the run may still be active: {self._listed}",
            )


def _jobs(client: HudClient) -> str:
    return client.settings.command("--headless", "jobs")


# Events and results as documents, or as text for `run -y --follow` without ``--headless``.


Show = Callable[[str, Any], None]
"""Prints one result: its kind and its data, as of `emit`; of an alarm, the `Alarm`."""


def emit_event(kind: str, data: Any) -> None:
    """Print one result as a document."""
    emit(kind, alarm_document(data) if isinstance(data, Alarm) else data)


def print_event(kind: str, data: Any) -> None:
    """Print a step, an alarm or a run's end as a line of text; other events are left out."""
    if isinstance(data, StepTaken):
        reward = data.metrics.get("reward_mean")
        line = f"step {data.step}" + ("" if reward is None else f": reward {short(reward)}")
    elif isinstance(data, Alarm):
        line = f"{data.headline}: {data.summary}"
    elif kind == "job":
        line = f"job {data['job_id']} {data['status'].status}"
        if text := result_text(data["result"]):
            line += f"; {data['result']['checkpoint']}: {text}"
    else:
        return
    print(one_line(line, 400), flush=True)


# AlarmPrinter: evaluates a run's events and prints its alarms.


def alarm_level(args: argparse.Namespace) -> str | None:
    """The lowest level of alarms at which ``--fail-on`` ends a command; None: at none."""
    return next((level for level in ("warn", "critical") if level in args.fail_on), None)


class AlarmPrinter:
    """Prints an ``alarm`` for each new alarm; may fail on a level."""

    def __init__(
        self,
        limits: Thresholds,
        fail_on: str | None,
        job: WorkState | None = None,
        show: Show = emit_event,
    ) -> None:
        """
        Args:
            fail_on: Lowest level that fails; None: no alarm fails.
            job: The model's run, if known before the first event.
        """
        self.show = show
        self.report = Report()
        self.run = Run(job=job)
        self._fail_on = None if fail_on is None else Level(fail_on)
        self._monitor = AlarmMonitor(limits)
        self._job_id, self._before = "", 0
        """The run that is followed, and how many checkpoints there were before it."""
        self._levels: dict[str, Level] = {}
        self._heard_at = monotonic()

    def begin(self, event: Event, news: bool) -> None:
        """Process the first event, the current tree.

        Args:
            event: First event of a feed.
            news: Whether existing alarms are printed, and may fail.
        """
        self._take(event)
        if not news:
            self._levels = {alarm.id: alarm.level for alarm in self.report.alarms}
        self._print_new()

    def follow(self, job_id: str) -> None:
        """From now on only alarms that began in this run fail."""
        self._job_id, self._before = job_id, len(self.run.tree)

    def process(self, event: Event) -> None:
        """Process an event; print alarms that it raised or whose level it raised. Raises HudAlarm:
        an alarm of level `fail_on` or higher, of the run that is followed."""
        self._heard_at = monotonic()
        self._take(event)
        self._print_new()

    def wait(self) -> None:
        """Check for a stall while no event arrives. Raises as `process`."""
        self._evaluate()
        self._print_new()

    @property
    def silent_s(self) -> float | None:
        """Seconds since the last event of the active run; None if none is active."""
        return monotonic() - self._heard_at if self.run.training else None

    def _take(self, event: Event) -> None:
        before, self.run = self.run, self.run.fold(event)
        if (self.run.tree, self.run.job) != (before.tree, before.job):
            self._evaluate()

    def _evaluate(self) -> None:
        self._monitor.follow(self.run.tree, self.run.job)
        self.report = self._monitor.report(self.silent_s)

    def _print_new(self) -> None:
        """Print new and more severe alarms, then fail on `fail_on`."""
        ranks = {id_: level.rank for id_, level in self._levels.items()}
        news = [alarm for alarm in self.report.alarms if alarm.level.rank > ranks.get(alarm.id, 0)]
        for alarm in news:
            self._levels[alarm.id] = alarm.level
            self.show("alarm", alarm)
        for alarm in news:
            if self._fails(alarm):
                what = f"{alarm.headline}: {alarm.summary}"
                raise HudAlarm(what, f"{alarm.advice} The run continues until it is cancelled.")

    def _fails(self, alarm: Alarm) -> bool:
        if self._fail_on is None or alarm.level.rank < self._fail_on.rank:
            return False
        position = self.run.tree.find(alarm.shown_id)
        if not self._job_id or position is None or alarm.name == STALL:
            return True
        return self._is_ours(self.run.tree, position)

    def _is_ours(self, tree: Tree, position: int) -> bool:
        """Whether the run that is followed made a checkpoint; HUD does not name the run."""
        job_id = tree[position].job_id
        return position >= self._before if job_id is None else job_id == self._job_id

    def last_step(self, tree: Tree) -> int | None:
        """Position of the last checkpoint that the run that is followed made."""
        return next((n for n in reversed(range(len(tree))) if self._is_ours(tree, n)), None)


# ``run --follow``: events of a run, one document per line, then its result.


class Follower:
    """Opens the feed, submits, prints until the run ends."""

    def __init__(
        self,
        client: HudClient,
        model: Model,
        printer: AlarmPrinter,
        about: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`about` has further fields of the last document."""
        self._client, self._model, self._printer = client, model, printer
        self._about = about
        self._feed = client.feed(model.id)
        self._listener = Listener(self._feed, printer.wait, _jobs(client))

    async def run(self, begin: Callable[[], Awaitable[Submission]]) -> int:
        """Follow the run that `begin` begins; returns 0 if it succeeded, else 1.

        Raises:
            HudUnreachable: The service does not answer; the run may continue.
            HudAlarm: An alarm of level ``--fail-on``; the run continues.
        """
        async with aclosing(aiter(self._feed)) as events:
            first = await self._listener.next(events)  # from here on no event is missed
            self._printer.begin(first, news=False)
            submission = await begin()
            self._printer.follow(submission.job_id)
            print_notice(
                f"job {submission.job_id} submitted; it continues if this command is interrupted"
            )
            try:
                return await self._follow(events, submission)
            except HudError as error:
                error.outcome = "done"
                error.hint = f"{error.hint}; job {submission.job_id} is submitted".lstrip("; ")
                raise

    async def _follow(self, events: AsyncGenerator[Event, None], submission: Submission) -> int:
        while True:
            event = await self._listener.next(events)
            job = event.run if isinstance(event, WorkChanged) else None
            # HUD does not name the run
            is_ours = job is None or (
                job.id == submission.job_id if job.id else not submission.is_before(job)
            )
            if is_ours:  # the feed begins with the model's latest run, which may be an older one
                _show(event, self._printer.show)
            self._printer.process(event)
            if job is not None and is_ours and has_ended(job.status):
                return await self._finish(submission, job)

    async def _finish(self, submission: Submission, job: WorkState) -> int:
        result = await self._result()
        fields = {"job_id": submission.job_id, "model": self._model.model_name, "status": job}
        self._printer.show("job", {**fields, "result": result, **self._about()})
        return 0 if job.status in SUCCEEDED else 1

    async def _result(self) -> dict[str, Any] | None:
        """What the run's last step came to; None if it took none, or if it cannot be read now."""
        try:
            tree = Tree.of(await self._client.checkpoints(self._model.id))
        except HudError as error:
            print_notice(f"the result cannot be read: {error.message}")
            return None
        return result_at(tree, self._printer.last_step(tree))


def result_at(tree: Tree, position: int | None) -> dict[str, Any] | None:
    """Rewards of a step: the mean of its batch, and the held-out reward of the weights that it
    made, with what it is a mean of and, of an evaluation, the 95 % interval over its tasks; None
    without a position."""
    if position is None:
        return None
    node, own = tree[position], tree.own(position)
    evaluation = tree.evaluation(position)
    over_tasks = (
        None if evaluation is None or evaluation.mean_reward != own.heldout else evaluation.mean
    )
    return {
        "checkpoint": node.name,
        "reward": node.mean_reward,
        "rollouts": node.num_traces,
        "draw": node.draw,
        "heldout_reward": own.heldout,
        "low": over_tasks and over_tasks.low,
        "high": over_tasks and over_tasks.high,
        "heldout_tasks": own.heldout_tasks,
        "heldout_rollouts": own.heldout_rollouts,
        "over": own.over,
    }


def result_text(result: Mapping[str, Any] | None) -> str:
    """E.g. ``reward .844 (32 rollouts), held-out .750 [.468, .911] (12 tasks × 1)``."""
    parts = []
    if result and result["reward"] is not None:
        over = f" ({counted(result['rollouts'], 'rollout')})" if result["rollouts"] else ""
        chosen = chosen_text(result.get("draw"))
        parts.append(f"reward {short(result['reward'])}{over}{chosen}")
    if result and result["heldout_reward"] is not None:
        low, high = result["low"], result["high"]
        mean = estimate_text(Estimate(value=result["heldout_reward"], low=low, high=high))
        over = f" ({result['over']})" if result["over"] else ""
        parts.append(f"held-out {mean}{over}")
    return ", ".join(parts)


_STEP = re.compile(r"step=(\d{1,12})")


@dataclass(frozen=True)
class Goal:
    """Goal of ``watch``."""

    name: str
    """``done``, ``step`` or ``alarm``."""
    reached: Callable[[AlarmPrinter], bool]


async def watch(client: HudClient, args: argparse.Namespace) -> int:
    """Print events and alarms until the goal is reached, or the run ends before it.

    Returns:
        0 if the goal was reached, and for ``done`` if the run succeeded. Else 1.

    Raises:
        HudAlarm: An alarm of level ``--fail-on``.
    """
    goal = goal_of(args.until)
    limits, model = thresholds(), await named(client, args.ref)
    job = await client.known_job(model.id)  # before the tree, which then has all its steps
    printer = AlarmPrinter(limits, args.fail_on, job)
    if printer.run.job is None:
        start = client.settings.command("--headless", "run", "SOURCE", "-m", model.model_name)
        hint = f"submit one: {start}"
        raise HudUsage(f"{one_line(model.model_name)} has no run to wait for", hint)
    feed = client.feed(model.id)
    listener = Listener(feed, printer.wait, _jobs(client))
    async with aclosing(aiter(feed)) as events:
        printer.begin(await listener.next(events), news=True)
        while (reason := _reason(printer, goal)) is None:
            event = await listener.next(events)
            _show(event, emit)
            printer.process(event)
    return _finish(printer, model, goal, reason)


def goal_of(text: str) -> Goal:
    """Parse ``--until``. Raises HudUsage: not ``done``, ``step=N`` or ``alarm``."""
    if text == "done":
        return Goal("done", lambda printer: False)
    if text == "alarm":
        return Goal("alarm", _has_alarm)
    match = _STEP.fullmatch(text)
    if match is None:
        raise HudUsage(f"--until {one_line(text, 40)}: expected done, step=N or alarm")
    step = int(match[1])
    return Goal("step", lambda printer: _step(printer) >= step)


def _has_alarm(printer: AlarmPrinter) -> bool:
    return any(alarm.level.rank >= Level.WARN.rank for alarm in printer.report.active)


def _step(printer: AlarmPrinter) -> int:
    """The head's step."""
    tree = printer.run.tree
    head = tree.served
    return 0 if head is None or tree.head is None else head.step or tree.depth(tree.head)


def _reason(printer: AlarmPrinter, goal: Goal) -> str | None:
    """Why watching ended; None while it continues."""
    if goal.reached(printer):
        return goal.name
    job = printer.run.job
    return "done" if job is not None and has_ended(job.status) else None


def _show(event: Event, show: Show) -> None:
    if not isinstance(event, TreeRead):
        show("event", event)


def _finish(printer: AlarmPrinter, model: Model, goal: Goal, reason: str) -> int:
    job = printer.run.job
    succeeded = job is not None and (job.status in SUCCEEDED or is_active(job.status))
    reached = reason == goal.name and (goal.name != "done" or succeeded)
    emit(
        "watch",
        {
            "model": model.model_name,
            "until": goal.name,
            "reason": reason,
            "reached": reached,
            "step": _step(printer),
            "head": checkpoint_document(printer.run.tree, printer.run.tree.head),
            "job": job,
            **report_documents(printer.report),
        },
    )
    return 0 if reached else 1
