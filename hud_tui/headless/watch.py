"""``watch``: a model's training as it happens, until what is waited for."""

import argparse
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.events import Event, TreeRead
from hud_tui.headless.alarms import report_documents, thresholds
from hud_tui.headless.checkpoints import checkpoint_document
from hud_tui.headless.listening import Listener
from hud_tui.headless.output import emit
from hud_tui.headless.sentry import Sentry
from hud_tui.headless.status import named
from hud_tui.rl.alarms.alarm import Level
from hud_tui.rl.job_words import SUCCEEDED, has_ended, is_active
from hud_tui.rl.text import one_line
from hud_tui.wire import Model

_STEP = re.compile(r"step=(\d{1,12})")


@dataclass(frozen=True)
class Goal:
    """What is waited for."""

    name: str
    """``done``, ``step`` or ``alarm``."""
    reached: Callable[[Sentry], bool]


async def watch(client: HudClient, args: argparse.Namespace) -> int:
    """Print events and alarms until the goal is reached, or the run has ended before it.

    Returns:
        0 where the goal was reached; for ``done``, where the run succeeded. Else 1.

    Raises:
        HudAlarm: An alarm is as bad as ``--fail-on`` says.
    """
    goal = goal_of(args.until)
    sentry = Sentry(thresholds(), args.fail_on)
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


def _has_alarm(sentry: Sentry) -> bool:
    return any(alarm.level.rank >= Level.WARN.rank for alarm in sentry.report.active)


def _step(sentry: Sentry) -> int:
    """The head's step."""
    tree = sentry.tree
    head = tree.served
    return 0 if head is None or tree.head is None else head.step or tree.depth(tree.head)


def _require_run(sentry: Sentry, model: Model) -> None:
    if sentry.job is None:
        hint = "submit one: hud-tui --headless run SOURCE -m MODEL"
        raise HudUsage(f"{one_line(model.model_name)} has had no run: nothing will end", hint)


def _reason(sentry: Sentry, goal: Goal) -> str | None:
    """Why watching is over; None while it is not."""
    if goal.reached(sentry):
        return goal.name
    job = sentry.job
    return "done" if job is not None and has_ended(job.status) else None


def _say(event: Event) -> None:
    if not isinstance(event, TreeRead):
        emit("event", event)


def _finish(sentry: Sentry, model: Model, goal: Goal, reason: str) -> int:
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
