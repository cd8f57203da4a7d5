"""Trial: what a few rollouts of each task said, and which tasks are left out for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hud_tui.keys import key
from hud_tui.rl.preflight import Finding
from hud_tui.rl.signal import TaskSignal
from hud_tui.rl.signal_progress import Progress
from hud_tui.rl.signal_report import Pace, Size, judge
from hud_tui.rl.tasks import Task

BAR = 20
"""Cells of the bar."""


@dataclass(frozen=True)
class Trial:
    """The signals that are known, and what the user made of them."""

    signals: Mapping[str, TaskSignal] = field(default_factory=dict)
    """By slug; empty before any task was tried."""
    size: Size | None = None
    """Of the run that they were measured for."""
    pace: Pace | None = None
    done: int = 0
    total: int = 0
    running: bool = False
    left_out: frozenset[str] = frozenset()
    """Slugs of tasks that are not to be submitted."""
    by_spread: bool = False
    """Whether the tasks with most spread come first."""

    def heard(self, progress: Progress) -> Trial:
        """With what has come since."""
        return replace(
            self,
            signals={signal.slug: signal for signal in progress.signals},
            pace=progress.pace,
            done=progress.done,
            total=progress.total,
        )

    @property
    def group_size(self) -> int:
        return self.size.group_size if self.size is not None else 8

    def label(self, slug: str) -> str:
        """The task's verdict in a word; empty where it was not tried."""
        signal = self.signals.get(slug)
        return signal.label(self.group_size) if signal is not None else ""

    def dead(self, tasks: Iterable[Task]) -> frozenset[str]:
        """Slugs of the tasks that were tried and teach nothing; one that failed is not judged."""
        words = ("too easy", "too hard", "flat")
        return frozenset(task.slug for task in tasks if self.label(task.slug) in words)

    def toggled(self, slugs: frozenset[str]) -> Trial:
        """With these left out; or taken in again, where all of them were out."""
        out = self.left_out - slugs if slugs <= self.left_out else self.left_out | slugs
        return replace(self, left_out=out)

    def chosen(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The tasks that are submitted."""
        return tuple(task for task in tasks if task.slug not in self.left_out)

    def findings(self) -> list[Finding]:
        """The verdict of what is left in; empty before the trial has ended."""
        kept = [signal for slug, signal in self.signals.items() if slug not in self.left_out]
        if self.running or self.size is None or not kept:
            return []
        return [judge(kept, self.size)]

    def order(self, tasks: Sequence[Task]) -> list[int]:
        """Places in the taskset, as the list shows them."""
        places = list(range(len(tasks)))
        if self.by_spread:
            places.sort(key=lambda place: -self._spread(tasks[place].slug))
        return places

    def _spread(self, slug: str) -> float:
        """Tasks that were not tried come last."""
        signal = self.signals.get(slug)
        return -1.0 if signal is None or signal.spread is None else signal.spread

    @property
    def bar(self) -> str:
        """How far it is, in a line."""
        filled = round(BAR * self.done / self.total) if self.total else 0
        cells = "█" * filled + "░" * (BAR - filled)
        stop = f"{key('launch.leave')} stops"
        return f"trying the tasks  {cells}  {self.done} of {self.total} rollouts · {stop}"
