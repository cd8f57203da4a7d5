"""The signal of a taskset: the expected share of groups with a gradient, estimated from a few
rollouts per task.

A group whose rewards are all equal has no gradient. With a reward that is 0 or 1 and is 1 with
probability p, the probability of that in a group of G rollouts is p^G + (1−p)^G; with graded
rewards, Σ p(r)^G over the values r. p(r) is estimated from the sampled rollouts, so it is rough for
few of them: 0 of 8 solved is compatible with a pass rate of 1 in 20.

Source: Shao et al. 2024 (DeepSeekMath, arXiv:2402.03300), section 4.1 (group-relative advantages);
Yu et al. 2025 (DAPO, arXiv:2503.14476), section 3.2 (groups that are all right or all wrong have
zero gradient, and are sampled again).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, fsum
from statistics import fmean, pstdev
from typing import Any, Literal

from hud_tui.rl.evaluation import is_solved
from hud_tui.rl.findings import Finding, Severity
from hud_tui.rl.text import command_line, counted, names_text, one_line, percent

SIZES = (4, 8, 16)
"""The group sizes that are compared."""
EASY, HARD = 0.95, 0.05
"""Mean rewards beyond which a task without signal is too easy or too hard."""
DEAD = 0.9
"""P(no signal) from which a task counts as having no signal."""
ENOUGH = 0.8
"""Share of the reachable groups with gradient that a recommended group size must reach."""
DIGITS = 9
"""Decimals that are compared; rewards that differ beyond them differ by rounding."""
Label = Literal["signal", "too easy", "too hard", "no signal", "failed"]


@dataclass(frozen=True)
class Outcome:
    """One rollout, as reported by the service."""

    reward: float
    tokens: int | None = None
    """Generated tokens over all turns."""
    seconds: float | None = None
    truncated: bool = False


@dataclass(frozen=True)
class TaskSignal:
    """The rollouts of one task, and what they imply for its groups."""

    slug: str
    outcomes: tuple[Outcome, ...]
    where: str = ""
    errors: int = 0
    """Number of rollouts that ended without a reward; they are not in `outcomes`."""
    basis: Literal["sampled", "cached", "recorded"] = "sampled"
    at: str = ""
    """Time of the rollouts, ISO 8601 in UTC."""
    title: str = ""
    """What the task is called for people; empty: by its slug."""

    @cached_property
    def rewards(self) -> list[float]:
        return [outcome.reward for outcome in self.outcomes]

    @property
    def mean(self) -> float | None:
        return _mean(self.rewards)

    @property
    def pass_rate(self) -> float | None:
        """Share of rollouts that solved the task, by the rule of evaluations."""
        return _mean(map(is_solved, self.rewards))

    @property
    def std(self) -> float | None:
        """Standard deviation of the rewards, in their unit."""
        return pstdev(self.rewards) if self.rewards else None

    def zero_gradient(self, size: int) -> float | None:
        """P(no signal): probability that a group of `size` has no gradient, in [0, 1]."""
        return zero_gradient(self.rewards, size) if self.rewards else None

    @property
    def truncated(self) -> float | None:
        """Share of rollouts that reached the token limit."""
        return _mean(outcome.truncated for outcome in self.outcomes)

    @property
    def tokens(self) -> float | None:
        """Mean tokens per rollout."""
        return _mean(outcome.tokens for outcome in self.outcomes)

    @property
    def seconds(self) -> float | None:
        """Mean seconds per rollout."""
        return _mean(outcome.seconds for outcome in self.outcomes)

    def label(self, size: int) -> Label:
        """Verdict for groups of `size`."""
        share, mean = self.zero_gradient(size), self.mean
        if share is None or mean is None:
            return "failed"
        if share < DEAD:
            return "signal"
        return "too easy" if mean >= EASY else "too hard" if mean <= HARD else "no signal"


def zero_gradient(rewards: Sequence[float], size: int) -> float:
    """Expected share of groups whose rewards are all equal.

    Args:
        rewards: Of one task's rollouts, shape (N,), N ≥ 1.
        size: Rollouts per group, at least 1.

    Returns:
        Σ (n_r / N)^size over the distinct rewards r; in [0, 1].

    Raises:
        ValueError: There are no rewards, or the size is below 1.
    """
    if not rewards or size < 1:
        raise ValueError("expected at least one reward, and a size of at least 1")
    counts = Counter(round(reward, DIGITS) for reward in rewards)
    return min(1.0, fsum((count / len(rewards)) ** size for count in counts.values()))


def with_signal(tasks: Iterable[TaskSignal], size: int) -> list[TaskSignal]:
    """The tasks with signal in groups of `size`."""
    return [task for task in tasks if task.label(size) == "signal"]


def expected_share(tasks: Sequence[TaskSignal], size: int) -> float:
    """Expected share of groups with gradient if tasks are sampled uniformly; 0 without tasks."""
    shares = [share for task in tasks if (share := task.zero_gradient(size)) is not None]
    return 1 - fmean(shares) if shares else 0.0


def recommended_size(tasks: Sequence[TaskSignal]) -> int | None:
    """The smallest of SIZES with enough groups with gradient; None if no task has any.

    The reachable share of groups with gradient is the share of tasks whose rewards differ, the
    limit for large groups. A size that reaches ENOUGH of it is recommended: further rollouts are
    better spent on more tasks.
    """
    sampled = [task for task in tasks if task.rewards]
    able = sum(len({round(reward, DIGITS) for reward in task.rewards}) > 1 for task in sampled)
    if not able:
        return None
    reached = (
        size for size in SIZES if expected_share(sampled, size) >= ENOUGH * able / len(sampled)
    )
    return next(reached, SIZES[-1])


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


# The taskset as a whole: verdict, recommended group size, and cost of a run.


GOOD, POOR = 0.5, 0.2
"""Expected shares of groups with gradient: at least the first is ok, below the second is a
failure."""


@dataclass(frozen=True)
class Size:
    """Size of a run, as far as known."""

    group_size: int
    tasks_per_step: int | None
    """None for all tasks."""
    steps: int | None
    train_tasks: int
    substeps: int = 1
    """Steps on each batch."""


@dataclass(frozen=True)
class Pace:
    rollouts: int
    seconds: float
    at: str = ""
    """When it was measured, ISO 8601; empty for just now."""


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a run; None where unknown."""

    rollouts: int
    tokens: int | None
    seconds: float | None
    basis: str


def check_signal(tasks: Sequence[TaskSignal], size: Size, program: str = "") -> Finding:
    """The verdict on the whole taskset, at the run's group size. `program`: how commands for this
    service begin, for a hint with one."""
    seen = [task for task in tasks if task.rewards]
    if not seen:
        message = f"none of {counted(sum(task.errors for task in tasks), 'rollout')} got a reward"
        command = command_line(program, "--headless", "traces", "JOB") if program else ""
        fix = f"read the errors in Jobs: {command}".removesuffix(": ")
        return Finding("signal", "failure", message, fix=fix)
    group, able = size.group_size, with_signal(seen, size.group_size)
    share = expected_share(seen, group)
    low, good = ("", " with signal") if share >= GOOD else ("low signal: ", "")
    message = (
        f"{low}{len(able)} of {counted(len(seen), 'task')}{good} at group size {group};"
        f" {percent(share)} of groups expected to have a gradient"
    )
    dead = names_text([task.title or task.slug for task in seen if task not in able])
    level: Severity = "ok" if share >= GOOD else "warning" if share >= POOR and able else "failure"
    if level == "ok":
        return Finding("signal", level, message, dead)
    message = f"{message}; {_solved(seen, group)}"
    return Finding("signal", level, message, dead, _advice(seen, able, group))


def _solved(tasks: Sequence[TaskSignal], group: int) -> str:
    """Why tasks have no signal, e.g. ``7 too easy, 0 too hard; pass rate 98% of 64 rollouts``."""
    labels = Counter(task.label(group) for task in tasks)
    rewards = [reward for task in tasks for reward in task.rewards]
    rate = fmean(map(is_solved, rewards))
    apart = f"{labels['too easy']} too easy, {labels['too hard']} too hard"
    return f"{apart}; pass rate {percent(rate)} of {counted(len(rewards), 'rollout')}"


def _advice(tasks: Sequence[TaskSignal], able: Sequence[TaskSignal], group: int) -> str:
    """What to do about a taskset in which few tasks, or none, have signal."""
    labels = Counter(task.label(group) for task in tasks)
    easy, hard = labels["too easy"], labels["too hard"]
    partial = "reward partial success"
    other = "use harder tasks" if easy else partial
    if hard:
        other = f"use easier{' or harder' if easy else ''} tasks, or {partial}"
    if not able:
        return other
    better = recommended_size(tasks)
    exclude = "exclude the tasks without signal"
    rest = f"{exclude}; use group size {better} for the rest" if better != group else exclude
    return f"use harder tasks, or {rest}" if 2 * easy > len(tasks) else rest


def estimate(tasks: Sequence[TaskSignal], size: Size, pace: Pace | None) -> Estimate:
    """Cost of a run of this size, extrapolated from the sampled rollouts.

    Args:
        size: Of the run; if the number of steps is unknown, one step is estimated.
        pace: Speed of the rollouts made now or, without any, earlier; None if unknown.
    """
    per_step = min(size.tasks_per_step or size.train_tasks, size.train_tasks)
    batches = ceil((size.steps or 1) / size.substeps)
    rollouts = batches * per_step * size.group_size
    seen = [outcome for task in tasks for outcome in task.outcomes]
    counts = [outcome.tokens for outcome in seen if outcome.tokens is not None]
    tokens = round(rollouts * sum(counts) / len(counts)) if counts else None
    seconds = rollouts * pace.seconds / pace.rollouts if pace and pace.rollouts else None
    return Estimate(rollouts, tokens, seconds, _basis(size, per_step, len(counts), pace))


def _basis(size: Size, per_step: int, sampled_rollouts: int, pace: Pace | None) -> str:
    steps = counted(size.steps, "step") if size.steps else "one step (number of steps unknown)"
    steps += f", {size.substeps} per batch," if size.substeps > 1 else ""
    parts = [f"{steps} of {per_step} tasks × {size.group_size} rollouts"]
    if sampled_rollouts:
        parts.append(f"tokens as in {counted(sampled_rollouts, 'sampled rollout')}")
    if pace and pace.rollouts:
        when = f"on {one_line(pace.at, 40)}" if pace.at else "just now"
        made = f"{counted(pace.rollouts, 'rollout')} in {pace.seconds:.1f} s {when}"
        parts.append(f"time as in {made}, without optimizer steps")
    return "; ".join(parts)


def document(
    tasks: Sequence[TaskSignal], size: Size, pace: Pace | None, more: dict[str, Any]
) -> dict[str, Any]:
    """The signal as ``data.signal`` of a preflight document; tasks with the highest std first."""
    by_std = sorted(tasks, key=lambda task: -(task.std or 0.0))
    return {
        **more,
        "group_size": size.group_size,
        "sampled": len(tasks),
        "train_tasks": size.train_tasks,
        "rollouts": sum(len(task.outcomes) for task in tasks),
        "errors": sum(task.errors for task in tasks),
        "with_signal": {str(group): len(with_signal(tasks, group)) for group in SIZES},
        "expected_share": {str(group): expected_share(tasks, group) for group in SIZES},
        "recommended_group_size": recommended_size(tasks),
        "estimate": estimate(tasks, size, pace),
        "tasks": [_row(task, size.group_size) for task in by_std],
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
        "std": task.std,
        "zero_gradient": {str(size): task.zero_gradient(size) for size in SIZES},
        "truncated": task.truncated,
        "tokens": task.tokens,
        "seconds": task.seconds,
        "basis": task.basis,
        "at": task.at,
    }


@dataclass(frozen=True)
class Progress:
    """Progress of the rollouts that are sampled to measure the signal."""

    done: int
    total: int
    signals: tuple[TaskSignal, ...]
    """Of the tasks that have finished rollouts."""
    pace: Pace
    trouble: str = ""
    """Error of the last rollout that failed."""
