"""What the signal of a taskset comes to: a verdict, a group size, and what a run will cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.rl.preflight import Finding, Level, count, names
from hud_tui.rl.signal import (
    SIZES,
    TaskSignal,
    expected_share,
    recommended_size,
    teaching,
)
from hud_tui.rl.text import one_line

GOOD, POOR = 0.5, 0.2
"""Expected shares of groups with gradient: from the one on it is well, below the other hardly
anything is learned."""


@dataclass(frozen=True)
class Size:
    """A run's size, as far as it is known."""

    group_size: int
    tasks_per_step: int | None
    """None: every task."""
    steps: int | None
    train_tasks: int


@dataclass(frozen=True)
class Pace:
    """How fast the rollouts were made."""

    rollouts: int
    seconds: float
    at: str = ""
    """When, in ISO 8601; empty for just now."""


@dataclass(frozen=True)
class Estimate:
    """What the run will take, and what that is based on. None where nothing says."""

    rollouts: int
    tokens: int | None
    seconds: float | None
    basis: str


def judge(tasks: Sequence[TaskSignal], size: Size) -> Finding:
    """The verdict for the whole set, at the run's group size."""
    seen = [task for task in tasks if task.rewards]
    if not seen:
        message = f"none of {count(sum(task.errors for task in tasks), 'rollout')} has a reward"
        fix = "see why in Jobs: hud-tui --headless traces JOB"
        return Finding("signal", "failure", message, fix=fix)
    group, able = size.group_size, teaching(seen, size.group_size)
    share = expected_share(seen, group)
    message = (
        f"{len(able)} of {len(seen)} sampled tasks teach at group size {group}:"
        f" {share:.0%} of the groups should have gradient"
    )
    dead = names([task.slug for task in seen if task not in able])
    if not able:
        fix = "take easier or harder tasks, or reward partial success"
        return Finding("signal", "failure", message, dead, fix)
    level: Level = "ok" if share >= GOOD else "warning" if share >= POOR else "failure"
    return Finding("signal", level, message, dead, _advice(seen, group) if level != "ok" else "")


def _advice(tasks: Sequence[TaskSignal], group: int) -> str:
    better = recommended_size(tasks)
    leave = "leave out the tasks that teach nothing"
    return f"{leave}; group size {better} suits the rest" if better != group else leave


def estimate(tasks: Sequence[TaskSignal], size: Size, pace: Pace | None) -> Estimate:
    """What a run of this size takes, if its rollouts are as those seen.

    Args:
        tasks: Of the taskset.
        size: Of the run; without steps, one step is estimated.
        pace: Of the rollouts that were made now or, where none were, before; None where
            that is not known.
    """
    per_step = min(size.tasks_per_step or size.train_tasks, size.train_tasks)
    rollouts = (size.steps or 1) * per_step * size.group_size
    seen = [outcome for task in tasks for outcome in task.outcomes]
    known = [outcome.tokens for outcome in seen if outcome.tokens is not None]
    tokens = round(rollouts * sum(known) / len(known)) if known else None
    seconds = rollouts * pace.seconds / pace.rollouts if pace and pace.rollouts else None
    return Estimate(rollouts, tokens, seconds, _basis(size, per_step, len(known), pace))


def _basis(size: Size, per_step: int, counted: int, pace: Pace | None) -> str:
    steps = count(size.steps, "step") if size.steps else "one step (its number is not known)"
    parts = [f"{steps} of {per_step} tasks × {size.group_size} rollouts"]
    if counted:
        parts.append(f"tokens as in {count(counted, 'rollout')} seen")
    if pace and pace.rollouts:
        when = f"on {one_line(pace.at, 40)}" if pace.at else "just now"
        made = f"{count(pace.rollouts, 'rollout')} in {pace.seconds:.1f} s {when}"
        parts.append(f"time as {made}, without the optimizer's")
    return "; ".join(parts)


def document(
    tasks: Sequence[TaskSignal], size: Size, pace: Pace | None, more: dict[str, Any]
) -> dict[str, Any]:
    """The signal as ``data.signal`` of a preflight document; tasks with most spread first."""
    by_spread = sorted(tasks, key=lambda task: -(task.spread or 0.0))
    return {
        **more,
        "group_size": size.group_size,
        "sampled": len(tasks),
        "train_tasks": size.train_tasks,
        "rollouts": sum(len(task.outcomes) for task in tasks),
        "errors": sum(task.errors for task in tasks),
        "teaches": {str(group): len(teaching(tasks, group)) for group in SIZES},
        "expected_share": {str(group): expected_share(tasks, group) for group in SIZES},
        "recommended_group_size": recommended_size(tasks),
        "estimate": estimate(tasks, size, pace),
        "tasks": [_row(task, size.group_size) for task in by_spread],
    }


def _row(task: TaskSignal, group_size: int) -> dict[str, Any]:
    return {
        "slug": task.slug,
        "where": task.where,
        "verdict": task.label(group_size),
        "rollouts": len(task.outcomes),
        "errors": task.errors,
        "rewards": task.rewards,
        "mean": task.mean,
        "pass_rate": task.pass_rate,
        "spread": task.spread,
        "zero_gradient": {str(size): task.zero_gradient(size) for size in SIZES},
        "truncated": task.truncated,
        "tokens": task.tokens,
        "seconds": task.seconds,
        "basis": task.basis,
        "at": task.at,
    }
