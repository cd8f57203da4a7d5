"""Signal: whether a task's groups will have spread, seen in a few rollouts of the model.

A group whose rewards are all equal has no gradient. With a reward that is 0 or 1 and is 1
with probability p, that happens to a group of G in p^G + (1−p)^G of all cases; with graded
rewards, in Σ p(r)^G over the values r. The shares p(r) are those of the rollouts seen, so a
task with few rollouts is judged roughly: none of 8 solved may be a task that 1 of 20 solves.

Source: Shao et al. 2024 (DeepSeekMath, arXiv:2402.03300), section 4.1 (group-relative
advantages); Yu et al. 2025 (DAPO, arXiv:2503.14476), section 3.2 (groups that are all right
or all wrong have zero gradient, and are sampled anew).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum
from random import Random
from statistics import fmean, pstdev
from typing import Any, Literal

from hud_tui.rl.tasks.checks import Finding, Level, count, names
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line

SIZES = (4, 8, 16)
"""Group sizes that are compared."""
PASS = 1.0
"""The reward of a rollout that passes."""
EASY, HARD = 0.95, 0.05
"""Mean rewards beyond which a task without spread is too easy or too hard."""
DEAD = 0.9
"""Share of groups without gradient from which a task teaches nothing worth its rollouts."""
ENOUGH = 0.8
"""Of what the tasks can teach at all, the share that a recommended group size reaches."""
DIGITS = 9
"""Rewards that differ beyond this many digits differ by rounding."""
Label = Literal["teaches", "too easy", "too hard", "flat", "failed"]


@dataclass(frozen=True)
class Outcome:
    """One rollout, as far as the service says."""

    reward: float
    tokens: int | None = None
    """Generated, all turns."""
    seconds: float | None = None
    truncated: bool = False


@dataclass(frozen=True)
class TaskSignal:
    """What a task's rollouts say of it."""

    slug: str
    outcomes: tuple[Outcome, ...]
    where: str = ""
    errors: int = 0
    """Rollouts that ended without a reward; they count for nothing."""
    basis: Literal["sampled", "cached", "recorded"] = "sampled"
    at: str = ""
    """When, ISO 8601 in UTC."""

    @cached_property
    def rewards(self) -> list[float]:
        return [outcome.reward for outcome in self.outcomes]

    @property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @property
    def pass_rate(self) -> float | None:
        """Share of rollouts with the full reward."""
        rewards = self.rewards
        return sum(reward >= PASS for reward in rewards) / len(rewards) if rewards else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the rewards, in their unit."""
        return pstdev(self.rewards) if self.rewards else None

    def zero_gradient(self, size: int) -> float | None:
        """Expected share of groups of `size` without gradient, in [0, 1]."""
        return zero_gradient(self.rewards, size) if self.rewards else None

    @property
    def truncated(self) -> float | None:
        """Share of rollouts that ran into the token limit."""
        cut = [outcome.truncated for outcome in self.outcomes]
        return sum(cut) / len(cut) if cut else None

    @property
    def tokens(self) -> float | None:
        """Mean a rollout."""
        return _mean(outcome.tokens for outcome in self.outcomes)

    @property
    def seconds(self) -> float | None:
        """Mean a rollout."""
        return _mean(outcome.seconds for outcome in self.outcomes)

    def label(self, size: int) -> Label:
        """In a word, for groups of `size`."""
        share, mean = self.zero_gradient(size), self.mean
        if share is None or mean is None:
            return "failed"
        if share < DEAD:
            return "teaches"
        return "too easy" if mean >= EASY else "too hard" if mean <= HARD else "flat"


def zero_gradient(rewards: Sequence[float], size: int) -> float:
    """Expected share of groups whose rewards are all equal.

    Args:
        rewards: Of one task's rollouts, shape (N,), N ≥ 1.
        size: Rollouts in a group, at least 1.

    Returns:
        Σ (n_r / N)^size over the distinct rewards r; in [0, 1].

    Raises:
        ValueError: There are no rewards, or the size is below 1.
    """
    if not rewards or size < 1:
        raise ValueError("expected at least one reward, and a size of at least 1")
    counts = Counter(round(reward, DIGITS) for reward in rewards)
    return min(1.0, fsum((count / len(rewards)) ** size for count in counts.values()))


def teaching(tasks: Iterable[TaskSignal], size: int) -> list[TaskSignal]:
    """The tasks that teach in groups of `size`."""
    return [task for task in tasks if task.label(size) == "teaches"]


def expected_share(tasks: Sequence[TaskSignal], size: int) -> float:
    """Expected share of groups with gradient, each task as often as any other; 0 for no task."""
    known = [share for task in tasks if (share := task.zero_gradient(size)) is not None]
    return 1 - fmean(known) if known else 0.0


def recommended_size(tasks: Sequence[TaskSignal]) -> int | None:
    """The smallest group size that gets most of what these tasks can teach; None for nothing.

    What they can teach at all is the share of tasks whose rewards differ: in groups that are
    large enough, each of them has gradient. Rollouts beyond that are better spent on tasks.
    """
    known = [task for task in tasks if task.rewards]
    able = sum(len({round(reward, DIGITS) for reward in task.rewards}) > 1 for task in known)
    if not able:
        return None
    reached = (size for size in SIZES if expected_share(known, size) >= ENOUGH * able / len(known))
    return next(reached, SIZES[-1])


def histogram(rewards: Sequence[float], bins: int, low: float, high: float) -> list[int]:
    """How many rewards lie in each of `bins` equal parts of [low, high], shape (bins,).

    Rewards beyond the ends are counted in the last part on their side.
    """
    counts = [0] * bins
    width = (high - low) / bins
    for reward in rewards:
        place = int((reward - low) / width) if width > 0 else 0
        counts[max(0, min(place, bins - 1))] += 1
    return counts


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


# What the signal of a taskset comes to: a verdict, a group size, and what a run will cost.


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


# What is rolled out for the signal of a taskset, and how far that is.


@dataclass(frozen=True)
class Asked:
    """What is rolled out."""

    model_id: str
    model: str
    """Its slug."""
    checkpoint: str | None
    """The head; None for the base weights."""
    group_size: int
    groups: int
    """Of different tasks as long as there are any; then again from the first."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """completion_kwargs, e.g. max_tokens and temperature."""


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int
    total: int
    signals: tuple[TaskSignal, ...]
    """Of the tasks that have ended rollouts, so far."""
    pace: Pace
    trouble: str = ""
    """Why the last rollout failed that did."""


def choose(tasks: Sequence[Task], groups: int) -> list[Task]:
    """The tasks that are rolled out, one group each: the same again for the same taskset.

    Args:
        tasks: Those held out and those up to v4 are left out.
        groups: How many; more than there are tasks begin again from the first.
    """
    able = [task for task in tasks if not task.heldout and not task.is_older]
    Random(0).shuffle(able)
    return [able[number % len(able)] for number in range(groups)] if able else []
