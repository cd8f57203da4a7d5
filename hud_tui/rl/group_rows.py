"""The groups of the step under way, one row a task, in an order that holds still."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from hud_tui.rl.groups import GroupStats, group_stats
from hud_tui.rl.history import GroupHistory
from hud_tui.rl.run import Run
from hud_tui.rl.tree import ROOT, label
from hud_tui.wire import Checkpoint, Group

Rewards = tuple[float, ...]
_stats = lru_cache(4096)(group_stats)


class Order(StrEnum):
    """How the rows are sorted."""

    TASK = "by task"
    TEACHES = "teaching first"


@dataclass(frozen=True)
class GroupRow:
    """One task's rollouts of the step."""

    task_slug: str
    rewards: Rewards
    """Those that have come, shape (≤ size,)."""
    size: int
    """How many there will be."""
    trace_ids: tuple[str, ...] = ()
    """Of the rollouts whose rewards have come, where the step is still sampled."""

    @property
    def stats(self) -> GroupStats | None:
        """None while no rollout has come."""
        return _stats(self.rewards) if self.rewards else None

    def group(self, node: Checkpoint | None) -> Group:
        """The row as its step's checkpoint has it; without one, the rewards alone."""
        own = (group for group in (node.groups if node is not None else ()) if group.rewards)
        found = [group for group in own if group.task_slug == self.task_slug]
        return (
            found[0]
            if len(found) == 1
            else Group(
                task_slug=self.task_slug,
                rewards=list(self.rewards),
                trace_ids=list(self.trace_ids),
            )
        )

    @property
    def whole(self) -> bool:
        """Whether all rollouts have come."""
        return len(self.rewards) >= self.size


@dataclass(frozen=True)
class GroupRows:
    """What the pane of groups shows."""

    rows: Sequence[GroupRow] = ()
    name: str = ""
    """The step they are of: ``step 214`` while it is sampled, ``step-000213`` when taken."""
    node: Checkpoint | None = None
    """The step's checkpoint; None while it is sampled."""
    step: int | None = None
    """The step's number; None where the service does not say."""
    low: float = 0.0
    """The foot of the reward scale: 0, or the least reward where that is below."""
    high: float = 1.0
    """Its top: 1, or the greatest reward where that is above."""
    sampler: str = ""
    """The checkpoint whose rollouts they are: the one before the step (`hud_tui.rl.own`)."""

    @property
    def summary(self) -> str:
        """Counts, e.g. ``12 groups × 8 · 2 all good · 1 all bad · 9 teach``."""
        whole = [row.stats for row in self.rows if row.whole and row.stats is not None]
        counts = [
            f"{len(self.rows)} groups × {max((row.size for row in self.rows), default=0)}",
            f"{sum(stats.all_good for stats in whole)} all good",
            f"{sum(stats.all_bad for stats in whole)} all bad",
            f"{sum(stats.teaches for stats in whole)} teach",
        ]
        waiting = len(self.rows) - len(whole)
        return " · ".join([*counts, f"{waiting} to come"] if waiting else counts)


def group_rows(run: Run, history: GroupHistory, order: Order, at: int | None = None) -> GroupRows:
    """The groups of the checkpoint at a position, else those being sampled, else the newest.

    Tasks that the step before sampled too have their row from the start, so that rows do
    not jump as rollouts arrive.
    """
    sampling = at is None and _sampling(run)
    node = run.head if at is None else run.tree[at]
    newest = _rewards(node)
    if sampling:
        rewards = dict(run.rollouts)
        size = _group_size(run, rewards)
        slugs = newest.keys() | rewards.keys() if rewards.keys() <= newest.keys() else rewards
    else:
        rewards = newest if newest or at is not None else dict(run.rollouts)
        slugs, size = rewards, 0
    ids = run.rollout_ids if rewards == run.rollouts else {}
    rows = [GroupRow(s, rewards.get(s, ()), size or len(rewards[s]), ids.get(s, ())) for s in slugs]
    known = [reward for row in rows for reward in row.rewards if reward == reward]
    return GroupRows(
        sorted(rows, key=lambda row: _place(row, history, order)),
        f"step {run.rollouts_step}" if sampling else label(node),
        None if sampling else node,
        run.rollouts_step if sampling else None if node is None else node.step,
        min(known, default=0.0) if min(known, default=0.0) < 0 else 0.0,
        max(1.0, *known) if known else 1.0,
        _sampler(run, None if sampling or node is None else run.tree.find(node.id)),
    )


def _sampler(run: Run, step: int | None) -> str:
    """What sampled a step's rollouts; without one, what is sampled now: the head."""
    tree = run.tree
    source = tree.head if step is None else tree.source(step)
    return label(None if source is None or source == ROOT else tree[source])


def _sampling(run: Run) -> bool:
    """Whether rollouts of a step not yet taken have come."""
    if not run.training or run.job is None or run.rollouts_step is None:
        return False
    newest = run.tree[len(run.tree) - 1].step if len(run.tree) else None
    return bool(run.rollouts) and (newest or 0) < run.rollouts_step


def _rewards(node: Checkpoint | None) -> dict[str, Rewards]:
    rewards: dict[str, Rewards] = {}
    for group in node.groups if node is not None else ():
        rewards[group.task_slug] = (*rewards.get(group.task_slug, ()), *group.rewards)
    return {slug: found for slug, found in rewards.items() if found}


def _group_size(run: Run, rewards: Mapping[str, Rewards]) -> int:
    asked = (run.job.parameters or {}).get("group_size") if run.job is not None else None
    most = max((len(found) for found in rewards.values()), default=1)
    return max(asked, most) if isinstance(asked, int) else most


def _place(row: GroupRow, history: GroupHistory, order: Order) -> tuple[bool, str]:
    if order is Order.TASK:
        return (False, row.task_slug)
    marks = history.of(row.task_slug)
    if row.whole and row.stats is not None:
        return (not row.stats.teaches, row.task_slug)
    return (bool(marks) and not marks[-1].teaches, row.task_slug)
