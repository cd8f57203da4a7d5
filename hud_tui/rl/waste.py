"""Waste: rollouts and tokens whose group had no spread, so that they moved nothing.

Counted along the head's lineage, a bounded number of steps at a time, so that opening a
long run never holds up the screen.
"""

from array import array
from dataclasses import dataclass
from statistics import fmean

from hud_tui.rl.advantage import has_signal
from hud_tui.rl.groups import MIDDLE
from hud_tui.rl.run import Run
from hud_tui.rl.series import Series
from hud_tui.wire import Checkpoint, Group

AT_ONCE = 1500
"""Groups counted at a time, and steps: about 5 ms."""


@dataclass(frozen=True)
class Total:
    """Sums over the steps up to one."""

    rollouts: float = 0.0
    idle: float = 0.0
    """Rollouts of groups without spread."""
    tokens: float = 0.0
    idle_tokens: float = 0.0

    @property
    def share(self) -> float:
        """Rollouts that moved nothing, from 0 to 1."""
        return self.idle / self.rollouts if self.rollouts else 0.0

    @property
    def token_share(self) -> float:
        """Tokens that moved nothing, from 0 to 1."""
        return self.idle_tokens / self.tokens if self.tokens else 0.0


@dataclass
class TaskWaste:
    """One task's sums over the whole lineage."""

    task_slug: str
    groups: int = 0
    all_good: int = 0
    all_bad: int = 0
    rollouts: int = 0
    idle: int = 0
    idle_tokens: float = 0.0

    @property
    def share(self) -> float:
        """Rollouts that moved nothing, from 0 to 1."""
        return self.idle / self.rollouts if self.rollouts else 0.0


class Waste:
    """Grows with the run; where the head went to another branch it begins anew."""

    def __init__(self) -> None:
        self._series = Series()
        self._begin()

    def _begin(self) -> None:
        self.exact = True
        """Whether the service said every rollout's tokens; else they are shared out evenly."""
        self._tasks: dict[str, TaskWaste] = {}
        self._sums = tuple(array("d") for _ in range(4))

    @property
    def length(self) -> int:
        """Steps counted."""
        return len(self._sums[0])

    def follow(self, run: Run, most: int = AT_ONCE) -> bool:
        """Count some steps more, until they have had so many groups; whether all are counted."""
        series = run.series
        if not series.same_rows(self._series) or series.length < self.length:
            self._begin()
        self._series = series
        while self.length < series.length and most > 0:
            position = run.tree.find(series.id_at(self.length))
            node = None if position is None else run.tree[position]
            self._add(node)
            most -= 1 if node is None else max(1, len(node.groups))
        return self.length == series.length

    def total(self, length: int | None = None) -> Total:
        """The sums over the first steps; over all that are counted where None."""
        last = min(self.length, self.length if length is None else length) - 1
        return Total(*(sums[last] for sums in self._sums)) if last >= 0 else Total()

    def tasks(self) -> list[TaskWaste]:
        """Every task that was sampled, the most wasted rollouts first."""
        return sorted(self._tasks.values(), key=lambda task: (-task.idle, task.task_slug))

    def _add(self, node: Checkpoint | None) -> None:
        groups = [] if node is None else [group for group in node.groups if group.rewards]
        rollouts = sum(len(group.rewards) for group in groups)
        average = 0.0 if node is None or not rollouts else (node.num_tokens or 0) / rollouts
        idle = tokens = idle_tokens = 0.0
        for group in groups:
            spent = self._tokens(group, average)
            tokens += spent
            if self._count(group, spent):
                idle += len(group.rewards)
                idle_tokens += spent
        for sums, more in zip(self._sums, (rollouts, idle, tokens, idle_tokens), strict=True):
            sums.append((sums[-1] if sums else 0.0) + more)

    def _tokens(self, group: Group, average: float) -> float:
        if len(group.num_tokens) == len(group.rewards):
            return sum(group.num_tokens)
        self.exact = False
        return average * len(group.rewards)

    def _count(self, group: Group, tokens: float) -> bool:
        """Add a group to its task; whether it moved nothing."""
        task = self._tasks.setdefault(group.task_slug, TaskWaste(group.task_slug))
        task.groups += 1
        task.rollouts += len(group.rewards)
        if has_signal(group.rewards):
            return False
        task.idle += len(group.rewards)
        task.idle_tokens += tokens
        good = fmean(group.rewards) >= MIDDLE
        task.all_good += good
        task.all_bad += not good
        return True
