"""History: how each task's group fared, each time it was sampled."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from hud_tui.rl.groups import MIDDLE, group_stats
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint

RECENT = 100
"""Steps looked back over."""
LOOKED_AT = 2000
"""Steps whose marks are kept."""


class Mark(NamedTuple):
    """One group of one step."""

    mean: float
    spread: float
    teaches: bool

    @property
    def all_good(self) -> bool:
        """No spread, and at least the middle of a 0…1 reward."""
        return not self.teaches and self.mean >= MIDDLE


class GroupHistory:
    """Of the head's lineage: by task, its groups of the last RECENT steps, oldest first.

    It grows with the run. Where the head went to another branch it is made anew.
    """

    def __init__(self) -> None:
        self._tip: str | None = None
        self._marks: dict[str, deque[Mark]] = {}
        self._seen: dict[str, int] = {}

    def seen(self, task_slug: str) -> int:
        """Groups of the task that were taken in, those before the last RECENT included."""
        return self._seen.get(task_slug, 0)

    def of(self, task_slug: str) -> "deque[Mark]":
        """The task's marks, newest last; empty for a task never sampled."""
        return self._marks.get(task_slug, deque())

    def follow(self, run: Run) -> None:
        """Take in the steps since the last time; at most RECENT."""
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
                marks.append(mark(group.rewards))
                self._seen[group.task_slug] = self._seen.get(group.task_slug, 0) + 1


def first_shown(count: int, room: int) -> int:
    """The first of `count` entries that a strip of `room` cells shows.

    It makes room a quarter at a time, so that one more entry moves no other: a strip that
    scrolled with every step would be sent to the terminal whole, again and again.
    """
    leap = max(1, room // 4)
    return max(0, -(-(count - room) // leap) * leap) if count > room else 0


def bins(start: int, stop: int, room: int) -> range:
    """The first rows of the bins that rows [start, stop) are put into, `room` bins at most.

    A bin is a round number of rows, and begins at a multiple of it: one more row changes the
    last bin alone, but for now and then.
    """
    size = next(
        size
        for power in range(20)
        for size in (10**power * part for part in (1, 2, 3, 4, 5, 6, 8))
        if -(-stop // size) - start // size <= max(1, room)
    )
    return range(start // size * size, stop, size)


def mark(rewards: Sequence[float]) -> Mark:
    """One group's rewards, shape (G,), G ≥ 1, as its mark."""
    stats = group_stats(rewards)
    return Mark(stats.mean, stats.spread, stats.teaches)


class StepMarks:
    """The groups of single steps, best mean first; of the steps looked at last."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mark, ...]] = {}

    def of(self, checkpoint: Checkpoint) -> tuple[Mark, ...]:
        """The marks of a step's groups, shape (groups,)."""
        found = self._known.get(checkpoint.id)
        if found is None:
            if len(self._known) >= LOOKED_AT:
                self._known.clear()
            marks = (mark(group.rewards) for group in checkpoint.groups if group.rewards)
            found = tuple(sorted(marks, key=lambda one: -one.mean))
            self._known[checkpoint.id] = found
        return found
