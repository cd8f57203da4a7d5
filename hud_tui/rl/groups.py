"""Groups of rollouts: advantages, statistics, history by task, and rollouts without gradient."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import isfinite, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from hud_tui.rl.checkpoint_tree import ROOT, label
from hud_tui.rl.metrics import Series, idle_share, metrics_of
from hud_tui.wire import Checkpoint, Group

if TYPE_CHECKING:
    from hud_tui.rl.run import Run

# Group-relative advantages: each rollout's reward minus the mean of its group.
#
# A group is the rollouts of one task by one policy. The policy gradient weights each
# rollout by its advantage, so a group whose rewards are all equal (zero variance) has no
# gradient.
#
# Source: Shao et al. 2024 (DeepSeekMath, arXiv:2402.03300), section 4.1, without the
# division by the group's standard deviation, as in Liu et al. 2025 (Dr. GRPO,
# arXiv:2503.20783): it overweights tasks nearly always solved or failed.


RESIDUE = 1e-6
"""Standard deviations up to this share of the largest reward are rounding error, not signal
(NVIDIA-NeMo/RL#4161); rewards are often rounded to 32 bits."""
SMALLEST = 1e-3
"""Lower bound of the largest reward in that comparison: smaller rewards may differ by rounding
alone."""


def group_advantages(rewards: Sequence[float], norm_by_std: bool = False) -> list[float]:
    """Subtract the group's mean from its rewards.

    Args:
        rewards: One reward per rollout, shape (G,).
        norm_by_std: Divide by their standard deviation too (Shao et al. 2024, arXiv:2402.03300,
            section 4.1.2).

    Returns:
        Advantages, shape (G,), in the rewards' unit, or with standard deviation 1; they sum to 0,
        and are exactly 0 in a zero-variance group.

    Raises:
        ValueError: The group is empty.
    """
    if not rewards:
        raise ValueError("a group needs at least one rollout")
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean, unit = fmean(rewards), reward_std(rewards) if norm_by_std else 1.0
    return [(reward - mean) / unit for reward in rewards]


@dataclass(frozen=True)
class Advantages:
    """How a run computes advantages from a group's rewards."""

    norm_by_std: bool = False
    """Whether to divide by the standard deviation of the group's rewards."""
    scale: float = 1.0
    """Factor, the run's `reward_scale`."""

    @classmethod
    def of_run(cls, parameters: Mapping[str, Any] | None) -> Advantages:
        """From a run's parameters by wire name; defaults where they are missing."""
        values = parameters or {}
        scale = values.get("reward_scale")
        if not (isinstance(scale, int | float) and isfinite(scale)):
            scale = 1.0
        return cls(values.get("norm_adv_by_std") is True, float(scale))

    def of(self, rewards: Sequence[float]) -> list[float]:
        """Advantages of one group, shape (G,), G ≥ 1."""
        return [self.scale * advantage for advantage in group_advantages(rewards, self.norm_by_std)]

    @property
    def formula_end(self) -> str:
        """What follows ``reward − mean`` in the formula, e.g. `` ÷ std × 2``; empty by default."""
        scale = "" if self.scale == 1.0 else f" × {self.scale:g}"
        return (" ÷ std" if self.norm_by_std else "") + scale


PLAIN = Advantages()


def reward_std(rewards: Sequence[float]) -> float:
    """Population standard deviation of one group's rewards, shape (G,); 0 if G < 2."""
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return 0.0
    mean = fmean(rewards)
    squares = sum((reward - mean) * (reward - mean) for reward in rewards)
    return sqrt(squares / len(rewards))  # 20 times as fast as statistics.pstdev


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether this group has a gradient: its rewards differ by more than rounding error."""
    largest = max(map(abs, rewards), default=0.0)
    residue = RESIDUE * max(SMALLEST, largest)
    if isfinite(sum(rewards)) and len(rewards) > 1:  # width / (2·G) ≤ std ≤ width decides most
        width = max(rewards) - min(rewards)
        if width <= residue:
            return False
        if width > residue * 2 * len(rewards):
            return True
    return reward_std(rewards) > residue


CROSS_ENTROPY = "cross_entropy"
"""The loss that weights tokens with the reward itself, not with an advantage."""


def idle_rollouts(rewards: Sequence[float], loss_fn: str | None) -> Sequence[int]:
    """Indices of a group's rollouts that have no gradient under a loss."""
    if loss_fn == CROSS_ENTROPY:
        return [index for index, reward in enumerate(rewards) if not reward]
    return () if has_signal(rewards) else range(len(rewards))


def has_gradient(rewards: Sequence[float], loss_fn: str | None) -> bool:
    """Whether a group's rollouts have a gradient under a loss."""
    return len(idle_rollouts(rewards, loss_fn)) < len(rewards)


def rollouts_of(step: Checkpoint, groups: Sequence[Group]) -> tuple[float, float]:
    """The rollouts of a step, and how many of them had no gradient.

    Those of the batches that were discarded before it count as both. A step without groups is
    counted by its share of zero-variance groups.
    """
    rollouts: float
    idle: float
    if groups:
        rollouts = sum(len(group.rewards) for group in groups)
        idle = sum(len(idle_rollouts(group.rewards, step.loss_fn)) for group in groups)
    else:
        rollouts = step.num_traces or 0
        idle = rollouts * idle_share(metrics_of(step))
    discarded = step.num_discarded or 0
    return rollouts + discarded, idle + discarded


MIDDLE = 0.5
"""Mean reward from which a zero-variance group counts as solved: the middle of 0…1."""


def task_groups(rewards: Iterable[tuple[str, float]]) -> list[Group]:
    """The groups of rollouts, given by task and reward; tasks in the order in which they come
    first."""
    by_task: dict[str, list[float]] = {}
    for slug, reward in rewards:
        by_task.setdefault(slug, []).append(reward)
    return [Group(task_slug=slug, rewards=row) for slug, row in by_task.items()]


class GroupStats(NamedTuple):
    size: int
    mean: float
    std: float
    """Standard deviation within the group."""
    has_signal: bool
    """Whether the rewards differ, so that the group has a gradient."""

    @property
    def all_solved(self) -> bool:
        """Whether it has zero variance and a mean of at least MIDDLE: too easy."""
        return not self.has_signal and self.mean >= MIDDLE

    @property
    def all_failed(self) -> bool:
        """Whether it has zero variance and a mean below MIDDLE: too hard."""
        return not self.has_signal and self.mean < MIDDLE


def group_stats(rewards: Sequence[float]) -> GroupStats:
    """Statistics of one group, shape (G,), G ≥ 1."""
    return GroupStats(len(rewards), fmean(rewards), reward_std(rewards), has_signal(rewards))


def group_shares(groups: Iterable[Sequence[float]]) -> dict[str, float]:
    """The shares of a step's groups without variance, as metrics; empty without any group.

    Args:
        groups: Rewards of each group, shape (G,); empty ones are left out.
    """
    stats = [group_stats(rewards) for rewards in groups if rewards]
    counts = {
        "frac_reward_zero_std": sum(not group.has_signal for group in stats),
        "frac_groups_all_solved": sum(group.all_solved for group in stats),
        "frac_groups_all_failed": sum(group.all_failed for group in stats),
    }
    return {key: count / len(stats) for key, count in counts.items()} if stats else {}


def histogram(rewards: Sequence[float], bins: int, low: float, high: float) -> list[int]:
    """Counts of rewards in equal bins over [low, high], shape (bins,).

    Rewards outside the range count in the first or last bin; NaN is ignored.

    Raises:
        ValueError: No bins, or an empty range.
    """
    if bins < 1 or not high > low:
        raise ValueError("a histogram needs at least one bin and high above low")
    counts = [0] * bins
    for reward in rewards:
        if reward == reward:
            bin_index = int((reward - low) / (high - low) * bins)
            counts[min(bins - 1, max(0, bin_index))] += 1
    return counts


# History: mean and standard deviation of each task's group, step by step.


RECENT = 100
"""Number of newest steps that a history covers."""
LOOKED_AT = 2000
"""Maximum number of steps whose groups are cached."""


class GroupHistory:
    """The groups of each task in the last RECENT steps of the head's lineage, oldest first.

    It grows with the run, and starts over when the head moves to another branch.
    """

    def __init__(self) -> None:
        self._tip: str | None = None
        self._marks: dict[str, deque[GroupStats]] = {}
        self._seen: dict[str, int] = {}

    def seen(self, task_slug: str) -> int:
        """Number of the task's groups read so far, including those older than RECENT steps."""
        return self._seen.get(task_slug, 0)

    def of(self, task_slug: str) -> deque[GroupStats]:
        """The task's groups, newest last; empty for a task that was never sampled."""
        return self._marks.get(task_slug, deque())

    def follow(self, run: Run) -> None:
        """Add the steps since the last call, at most RECENT."""
        tip = None if run.head is None else run.head.id
        if tip == self._tip:
            return
        fresh: list[Checkpoint] = []
        for position in run.tree.lineage(run.tree.head):
            checkpoint = run.tree[position]
            if checkpoint.id == self._tip:
                break
            fresh.append(checkpoint)
            if len(fresh) == RECENT:
                self._marks, self._seen = {}, {}
                break
        else:
            self._marks, self._seen = {}, {}
        self._tip = tip
        for checkpoint in reversed(fresh):
            self._add(checkpoint)

    def _add(self, checkpoint: Checkpoint) -> None:
        for group in checkpoint.groups:
            if group.rewards:
                marks = self._marks.setdefault(group.task_slug, deque(maxlen=RECENT))
                marks.append(group_stats(group.rewards))
                self._seen[group.task_slug] = self._seen.get(group.task_slug, 0) + 1


def first_shown(count: int, room: int) -> int:
    """Index of the first of `count` entries that a strip of `room` cells shows.

    The strip scrolls by a quarter of its width at a time: scrolling with every step would redraw
    all of it every time.
    """
    leap = max(1, room // 4)
    return max(0, -(-(count - room) // leap) * leap) if count > room else 0


def bins(start: int, stop: int, room: int) -> range:
    """First row of each bin for rows [start, stop), at most `room` bins.

    A bin holds a round number of rows and begins at a multiple of it, so that one more row usually
    changes the last bin only.
    """
    size = next(
        size
        for power in range(20)
        for size in (10**power * part for part in (1, 2, 3, 4, 5, 6, 8))
        if -(-stop // size) - start // size <= max(1, room)
    )
    return range(start // size * size, stop, size)


class StepMarks:
    """Groups of single steps, highest mean first; caches the last steps read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[GroupStats, ...]] = {}

    def of(self, checkpoint: Checkpoint) -> tuple[GroupStats, ...]:
        """The groups of a step, shape (groups,)."""
        cached = self._known.get(checkpoint.id)
        if cached is None:
            if len(self._known) >= LOOKED_AT:
                self._known.clear()
            stats = (group_stats(group.rewards) for group in checkpoint.groups if group.rewards)
            cached = tuple(sorted(stats, key=lambda stat: -stat.mean))
            self._known[checkpoint.id] = cached
        return cached


# The groups of the step in progress, one row per task, in a stable order.


Rewards = tuple[float, ...]
_stats = lru_cache(512)(group_stats)
"""A few times the groups of a step, which are asked for again and again while it is shown."""


class Order(StrEnum):
    TASK = "by task"
    SIGNAL = "signal first"


@dataclass(frozen=True)
class GroupRow:
    """One task's rollouts in a step."""

    task_slug: str
    rewards: Rewards
    """Rewards received so far, shape (≤ size,)."""
    size: int
    """Number of rollouts of the complete group."""
    trace_ids: tuple[str, ...] = ()
    """Ids of the rollouts received so far, while the step is being sampled."""

    @property
    def stats(self) -> GroupStats | None:
        """None before the first reward."""
        return _stats(self.rewards) if self.rewards else None

    def group(self, node: Checkpoint | None) -> Group:
        """The group as the step's checkpoint records it; without a checkpoint, rewards and trace
        ids only."""
        own = (group for group in (node.groups if node is not None else ()) if group.rewards)
        of_task = [group for group in own if group.task_slug == self.task_slug]
        if len(of_task) == 1:
            return of_task[0]
        rewards, trace_ids = list(self.rewards), list(self.trace_ids)
        return Group(task_slug=self.task_slug, rewards=rewards, trace_ids=trace_ids)

    @property
    def whole(self) -> bool:
        """Whether all rollouts have arrived."""
        return len(self.rewards) >= self.size


@dataclass(frozen=True)
class GroupRows:
    """Content of the groups pane."""

    rows: Sequence[GroupRow] = ()
    name: str = ""
    """Title of the step: ``step 214`` while it is sampled, ``step-000213`` afterwards."""
    node: Checkpoint | None = None
    """The step's checkpoint; None while the step is sampled."""
    step: int | None = None
    """The step's number; None if the service does not report it."""
    low: float = 0.0
    """Lower end of the reward scale: 0, or the lowest reward if that is negative."""
    high: float = 1.0
    """Upper end: 1, or the highest reward if that is above 1."""
    sampler: str = ""
    """Name of the checkpoint that sampled the rollouts, which is the one before the step; see
    `hud_tui.rl.own_numbers`."""

    @property
    def summary(self) -> str:
        """Counts, e.g. ``12 groups × 8 · 2 all solved · 1 all failed · 9 with signal``."""
        whole = [row.stats for row in self.rows if row.whole and row.stats is not None]
        counts = [
            f"{len(self.rows)} groups × {max((row.size for row in self.rows), default=0)}",
            f"{sum(stats.all_solved for stats in whole)} all solved",
            f"{sum(stats.all_failed for stats in whole)} all failed",
            f"{sum(stats.has_signal for stats in whole)} with signal",
        ]
        waiting = len(self.rows) - len(whole)
        return " · ".join([*counts, f"{waiting} pending"] if waiting else counts)


def group_rows(
    run: Run, history: GroupHistory, order: Order, position: int | None = None
) -> GroupRows:
    """The groups of the checkpoint at a position; else those being sampled, else the newest.

    Tasks of the previous step have a row from the start, so that rows do not move while rollouts
    arrive.
    """
    sampling = position is None and _sampling(run)
    node = run.head if position is None else run.tree[position]
    newest = _rewards(node)
    if sampling:
        rewards = dict(run.rollouts)
        size = _group_size(run, rewards)
        slugs = newest.keys() | rewards.keys() if rewards.keys() <= newest.keys() else rewards
    else:
        rewards = newest if newest or position is not None else dict(run.rollouts)
        slugs, size = rewards, 0
    ids = run.rollout_ids if rewards == run.rollouts else {}
    rows = [GroupRow(s, rewards.get(s, ()), size or len(rewards[s]), ids.get(s, ())) for s in slugs]
    rows.sort(key=lambda row: _place(row, history, order))
    low, high = _range(rows)
    if sampling:
        step = run.rollouts_step
        return GroupRows(rows, f"step {step}", None, step, low, high, _sampler(run, None))
    position = None if node is None else run.tree.find(node.id)
    step = None if node is None else node.step
    return GroupRows(rows, label(node), node, step, low, high, _sampler(run, position))


def _range(rows: Iterable[GroupRow]) -> tuple[float, float]:
    """The rewards' range, at least [0, 1]."""
    finite = [reward for row in rows for reward in row.rewards if reward == reward]
    return min([0.0, *finite]), max([1.0, *finite])


def _sampler(run: Run, step: int | None) -> str:
    """Label of the checkpoint that sampled a step; the head for the step in progress."""
    tree = run.tree
    source = tree.head if step is None else tree.source(step)
    return label(None if source is None or source == ROOT else tree[source])


def _sampling(run: Run) -> bool:
    """Whether rollouts of a step in progress have arrived."""
    if not run.training or run.job is None or run.rollouts_step is None:
        return False
    newest = run.tree[len(run.tree) - 1].step if len(run.tree) else None
    return bool(run.rollouts) and (newest or 0) < run.rollouts_step


def _rewards(node: Checkpoint | None) -> dict[str, Rewards]:
    rewards: dict[str, Rewards] = {}
    for group in node.groups if node is not None else ():
        rewards[group.task_slug] = (*rewards.get(group.task_slug, ()), *group.rewards)
    return {slug: task_rewards for slug, task_rewards in rewards.items() if task_rewards}


def _group_size(run: Run, rewards: Mapping[str, Rewards]) -> int:
    asked = (run.job.parameters or {}).get("group_size") if run.job is not None else None
    most = max((len(task_rewards) for task_rewards in rewards.values()), default=1)
    return max(asked, most) if isinstance(asked, int) else most


def _place(row: GroupRow, history: GroupHistory, order: Order) -> tuple[int, str]:
    """Sort key: groups with signal first, then all failed, then all solved.

    A group that is still being sampled keeps the rank that its task had last, so that no row jumps.
    """
    if order is Order.TASK:
        return (0, row.task_slug)
    if row.whole and row.stats is not None:
        return (_rank(row.stats), row.task_slug)
    marks = history.of(row.task_slug)
    return (_rank(marks[-1]) if marks else 0, row.task_slug)


def _rank(group: GroupStats) -> int:
    return 0 if group.has_signal else 1 if group.mean < MIDDLE else 2


# Rollouts and tokens that were spent without a gradient.
#
# Counted along the head's lineage, a bounded number of steps at a time, so that opening a
# long run does not block the screen.


AT_ONCE = 1500
"""Maximum groups (and steps) counted per call: about 5 ms."""


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Total:
    """Sums over the first steps of a lineage."""

    rollouts: float = 0.0
    idle: float = 0.0
    """Rollouts without gradient, as `rollouts_of` counts them."""
    tokens: float = 0.0
    idle_tokens: float = 0.0
    discarded: float = 0.0
    """Rollouts of discarded batches, which are among `idle`; their tokens are not counted."""

    @property
    def share(self) -> float:
        """Share of rollouts without gradient, from 0 to 1."""
        return _share(self.idle, self.rollouts)

    @property
    def token_share(self) -> float:
        """Share of tokens without gradient, from 0 to 1."""
        return _share(self.idle_tokens, self.tokens)


@dataclass
class TaskWaste:
    """One task's sums over the whole lineage."""

    task_slug: str
    groups: int = 0
    all_solved: int = 0
    all_failed: int = 0
    rollouts: int = 0
    idle: int = 0
    idle_tokens: float = 0.0

    @property
    def share(self) -> float:
        """Share of rollouts without gradient, from 0 to 1."""
        return _share(self.idle, self.rollouts)


class Waste:
    """Running sums of rollouts without gradient; starts over when the head moves to another
    branch."""

    def __init__(self) -> None:
        self._series = Series()
        self._begin()

    def _begin(self) -> None:
        self.exact = True
        """Whether every rollout's token count is known; if not, tokens are split evenly."""
        self._tasks: dict[str, TaskWaste] = {}
        self._sums = tuple(array("d") for _ in range(5))

    @property
    def length(self) -> int:
        """Steps counted."""
        return len(self._sums[0])

    def follow(self, run: Run, most: int = AT_ONCE) -> bool:
        """Count more steps, up to `most` groups; return whether all steps are counted."""
        series = run.series
        if not series.same_rows(self._series) or series.length < self.length:
            self._begin()
        self._series = series
        while self.length < series.length and most > 0:
            node = run.tree.node(run.tree.find(series.id_at(self.length)))
            self._add(node)
            most -= 1 if node is None else max(1, len(node.groups))
        return self.length == series.length

    def total(self, length: int | None = None) -> Total:
        """Sums over the first `length` steps; None: over all counted so far."""
        last = min(self.length, self.length if length is None else length) - 1
        return Total(*(sums[last] for sums in self._sums)) if last >= 0 else Total()

    def tasks(self) -> list[TaskWaste]:
        """Every sampled task; most rollouts without gradient first."""
        return sorted(self._tasks.values(), key=lambda task: (-task.idle, task.task_slug))

    def _add(self, node: Checkpoint | None) -> None:
        added = Total() if node is None else self._total(node)
        more = added.rollouts, added.idle, added.tokens, added.idle_tokens, added.discarded
        for sums, addend in zip(self._sums, more, strict=True):
            sums.append((sums[-1] if sums else 0.0) + addend)

    def _total(self, node: Checkpoint) -> Total:
        """One step's sums; its groups are added to those of their tasks."""
        groups = [group for group in node.groups if group.rewards]
        trained = sum(len(group.rewards) for group in groups)
        average = (node.num_tokens or 0) / trained if trained else 0.0
        tokens = idle_tokens = 0.0
        for group in groups:
            counts = self._tokens(group, average)
            idle = idle_rollouts(group.rewards, node.loss_fn)
            idle_of_group = sum(counts[index] for index in idle)
            tokens += sum(counts)
            idle_tokens += idle_of_group
            self._count(group, len(idle), idle_of_group)
        rollouts, idle_all = rollouts_of(node, groups)
        return Total(rollouts, idle_all, tokens, idle_tokens, node.num_discarded or 0)

    def _tokens(self, group: Group, average: float) -> Sequence[float]:
        """Tokens of each rollout, shape (G,)."""
        if len(group.num_tokens) == len(group.rewards):
            return group.num_tokens
        self.exact = False
        return [average] * len(group.rewards)

    def _count(self, group: Group, idle: int, idle_tokens: float) -> None:
        task = self._tasks.setdefault(group.task_slug, TaskWaste(group.task_slug))
        task.groups += 1
        task.rollouts += len(group.rewards)
        task.idle += idle
        task.idle_tokens += idle_tokens
        if not has_signal(group.rewards):
            good = fmean(group.rewards) >= MIDDLE
            task.all_solved += good
            task.all_failed += not good
