"""History: how each task's group fared, each time it was sampled."""

from collections import deque
from dataclasses import dataclass

from hud_tui.rl.groups import group_stats
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint

RECENT = 100
"""Steps looked back over."""


@dataclass(frozen=True)
class Mark:
    """One group of one step."""

    mean: float
    spread: float
    teaches: bool


class GroupHistory:
    """Of the head's lineage: by task, its groups of the last RECENT steps, oldest first.

    It grows with the run. Where the head went to another branch it is made anew.
    """

    def __init__(self) -> None:
        self._tip: str | None = None
        self._marks: dict[str, deque[Mark]] = {}

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
                self._marks = {}
                break
        else:
            self._marks = {}
        self._tip = tip
        for checkpoint in reversed(fresh):
            self._add(checkpoint)

    def _add(self, checkpoint: Checkpoint) -> None:
        for group in checkpoint.groups:
            if group.rewards:
                stats = group_stats(group.rewards)
                marks = self._marks.setdefault(group.task_slug, deque(maxlen=RECENT))
                marks.append(Mark(stats.mean, stats.spread, stats.teaches))
