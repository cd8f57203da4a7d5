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
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from statistics import fmean, pstdev
from typing import Literal

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
