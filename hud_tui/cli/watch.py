"""``watch``: a model's training as it happens, until what is waited for."""

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic

from hud_tui.cli.models import checkpoint_document, named
from hud_tui.cli.output import alarm_document, emit, report_documents, tell, thresholds
from hud_tui.client.client import HudClient
from hud_tui.client.feed import Feed
from hud_tui.client.submit import Submission, submit
from hud_tui.errors import HudAlarm, HudError, HudUnreachable, HudUsage
from hud_tui.events import CheckpointAdded, Event, HeadMoved, JobChanged, TreeRead
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.run import SUCCEEDED, has_ended, is_active
from hud_tui.rl.text import one_line
from hud_tui.wire import JobStatus, Model, SubmitJob

# Listener: a feed's events one by one, its troubles told on stderr, and given up in the end.


WATCH_S = 1.0
"""Seconds between two looks at how the feed is doing while no event comes."""
PATIENCE_S = 300.0
"""A service that has not been heard for so long is given up."""


class Listener:
    """Waits for the events of one feed."""

    def __init__(self, feed: Feed, idle: Callable[[], object]) -> None:
        """`idle` is called while nothing comes, about once in WATCH_S."""
        self._feed, self._idle = feed, idle
        self._told = ""

    async def next(self, events: AsyncGenerator[Event, None]) -> Event:
        """The next event.

        Raises:
            HudUnreachable: The service is gone; the run may go on.
        """
        waiting = asyncio.ensure_future(anext(events))
        try:
            while not waiting.done():
                done, _ = await asyncio.wait([waiting], timeout=WATCH_S)
                self._watch()
                if not done:
                    self._idle()
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    def _watch(self) -> None:
        """Say on stderr that the feed is cut, and that it is back."""
        feed = self._feed
        if feed.trouble != self._told:
            self._told = feed.trouble
            tell(f"reconnecting: {feed.trouble}" if feed.trouble else "connected again")
        if feed.heard_at is not None and monotonic() - feed.heard_at > PATIENCE_S:
            raise HudUnreachable(
                f"nothing heard from the service for {PATIENCE_S:.0f} s: {feed.trouble}",
                "the run may go on: hud-tui --headless jobs",
            )


# Sentry: hears a run's events, says its alarms as they come, and may fail on them.


class AlarmPrinter:
    """Hears a run's events, prints an ``alarm`` document for each new alarm, and may fail."""

    def __init__(self, limits: Thresholds, fail_on: str | None) -> None:
        """`fail_on` is the level from which on an alarm is a failure; None for no level."""
        self.report = Report()
        self.tree = Tree()
        self.job: JobStatus | None = None
        self._fail_on = None if fail_on is None else Level(fail_on)
        self._monitor = AlarmMonitor(limits)
        self._told: dict[str, Level] = {}
        self._heard_at = monotonic()

    def begin(self, event: Event, news: bool) -> None:
        """Take in the first event, the tree as it is.

        Args:
            event: A feed's first.
            news: Whether what is wrong already is to be printed, and failed on.
        """
        self._take(event)
        if not news:
            self._told = {alarm.id: alarm.level for alarm in self.report.alarms}
        self._tell()

    def hear(self, event: Event) -> None:
        """Take in an event, and print what alarms it raised or made worse.

        Raises:
            HudAlarm: One of them is as bad as the command is to fail on.
        """
        self._heard_at = monotonic()
        self._take(event)
        self._tell()

    def wait(self) -> None:
        """Nothing came for a while: the run may be stalled. Raises as `hear` does."""
        self._judge()
        self._tell()

    @property
    def silent_s(self) -> float | None:
        """Seconds since the last event of a run under way; None if none is."""
        running = self.job is not None and is_active(self.job.status)
        return monotonic() - self._heard_at if running else None

    def _take(self, event: Event) -> None:
        match event:
            case TreeRead():
                self.tree = Tree.of(event.checkpoints)
            case CheckpointAdded():
                self.tree = self.tree.add(event.checkpoint)
            case HeadMoved():
                self.tree = self.tree.with_head(event.checkpoint_id)
            case JobChanged():
                self.job = event.job
            case _:
                return
        self._judge()

    def _judge(self) -> None:
        self._monitor.follow(self.tree, self.job)
        self.report = self._monitor.report(self.silent_s)

    def _tell(self) -> None:
        """Print what is new or worse, then fail if it must."""
        news = [alarm for alarm in self.report.alarms if self._is_news(alarm)]
        for alarm in news:
            self._told[alarm.id] = alarm.level
            emit("alarm", alarm_document(alarm))
        for alarm in news:
            if self._fail_on is not None and alarm.level.rank >= self._fail_on.rank:
                what = f"{alarm.level}: {alarm.title} since step {alarm.onset}: {alarm.summary}"
                raise HudAlarm(what, f"{alarm.advice} A run goes on until it is cancelled.")

    def _is_news(self, alarm: Alarm) -> bool:
        told = self._told.get(alarm.id)
        return told is None or alarm.level.rank > told.rank


# ``run --follow``: a run's events as they happen, one document a line, then its result.


class Follower:
    """Opens the feed, submits, and prints until the run has ended."""

    def __init__(self, client: HudClient, model: Model, sentry: AlarmPrinter) -> None:
        self._client, self._model, self._sentry = client, model, sentry
        self._feed = client.feed(model.id)
        self._listener = Listener(self._feed, sentry.wait)

    async def run(self, body: SubmitJob) -> int:
        """Returns 0 where the run succeeded, else 1.

        Raises:
            HudUnreachable: The service is gone; the run may go on.
            HudAlarm: The run is as bad as `sentry` fails on; it goes on.
        """
        async with aclosing(aiter(self._feed)) as events:
            first = await self._listener.next(events)  # from here on nothing is missed
            self._sentry.begin(first, news=False)
            submission = await submit(self._client, body)
            tell(f"job {submission.job_id} is submitted; it goes on if this is interrupted")
            try:
                return await self._follow(events, submission)
            except HudError as error:
                error.outcome = "done"
                error.hint = f"{error.hint}; job {submission.job_id} is submitted".lstrip("; ")
                raise

    async def _follow(self, events: AsyncGenerator[Event, None], submission: Submission) -> int:
        while True:
            event = await self._listener.next(events)
            if not isinstance(event, TreeRead):
                emit("event", event)
            self._sentry.hear(event)
            if isinstance(event, JobChanged) and _has_ended(event.job, submission):
                return self._finish(submission, event.job)

    def _finish(self, submission: Submission, job: JobStatus) -> int:
        job_id, model = submission.job_id, self._model.model_name
        emit("job", {"job_id": job_id, "model": model, "status": job})
        return 0 if job.status in SUCCEEDED else 1


def _has_ended(job: JobStatus, submission: Submission) -> bool:
    """Whether this is the submitted run, at its end; HUD does not say which run it is."""
    ours = job.id == submission.job_id if job.id else not submission.is_before(job)
    return ours and has_ended(job.status)


_STEP = re.compile(r"step=(\d{1,12})")


@dataclass(frozen=True)
class Goal:
    """What is waited for."""

    name: str
    """``done``, ``step`` or ``alarm``."""
    reached: Callable[[AlarmPrinter], bool]


async def watch(client: HudClient, args: argparse.Namespace) -> int:
    """Print events and alarms until the goal is reached, or the run has ended before it.

    Returns:
        0 where the goal was reached; for ``done``, where the run succeeded. Else 1.

    Raises:
        HudAlarm: An alarm is as bad as ``--fail-on`` says.
    """
    goal = goal_of(args.until)
    sentry = AlarmPrinter(thresholds(), args.fail_on)
    model = await named(client, args.ref)
    sentry.job = await client.known_job(model.id)  # before the tree, which then has all its steps
    _require_run(sentry, model)
    feed = client.feed(model.id)
    listener = Listener(feed, sentry.wait)
    async with aclosing(aiter(feed)) as events:
        sentry.begin(await listener.next(events), news=True)
        while (reason := _reason(sentry, goal)) is None:
            event = await listener.next(events)
            _say(event)
            sentry.hear(event)
    return _finish(sentry, model, goal, reason)


def goal_of(text: str) -> Goal:
    """What ``--until`` says.

    Raises:
        HudUsage: None of ``done``, ``step=N`` and ``alarm``.
    """
    if text == "done":
        return Goal("done", lambda sentry: False)
    if text == "alarm":
        return Goal("alarm", _has_alarm)
    found = _STEP.fullmatch(text)
    if found is None:
        raise HudUsage(f"--until {one_line(text, 40)}: expected done, step=N or alarm")
    wanted = int(found[1])
    return Goal("step", lambda sentry: _step(sentry) >= wanted)


def _has_alarm(sentry: AlarmPrinter) -> bool:
    return any(alarm.level.rank >= Level.WARN.rank for alarm in sentry.report.active)


def _step(sentry: AlarmPrinter) -> int:
    """The head's step."""
    tree = sentry.tree
    head = tree.served
    return 0 if head is None or tree.head is None else head.step or tree.depth(tree.head)


def _require_run(sentry: AlarmPrinter, model: Model) -> None:
    if sentry.job is None:
        hint = "submit one: hud-tui --headless run SOURCE -m MODEL"
        raise HudUsage(f"{one_line(model.model_name)} has had no run: nothing will end", hint)


def _reason(sentry: AlarmPrinter, goal: Goal) -> str | None:
    """Why watching is over; None while it is not."""
    if goal.reached(sentry):
        return goal.name
    job = sentry.job
    return "done" if job is not None and has_ended(job.status) else None


def _say(event: Event) -> None:
    if not isinstance(event, TreeRead):
        emit("event", event)


def _finish(sentry: AlarmPrinter, model: Model, goal: Goal, reason: str) -> int:
    job = sentry.job
    succeeded = job is not None and (job.status in SUCCEEDED or is_active(job.status))
    reached = reason == goal.name and (goal.name != "done" or succeeded)
    emit(
        "watch",
        {
            "model": model.model_name,
            "until": goal.name,
            "reason": reason,
            "reached": reached,
            "step": _step(sentry),
            "head": checkpoint_document(sentry.tree, sentry.tree.head),
            "job": job,
            **report_documents(sentry.report),
        },
    )
    return 0 if reached else 1
