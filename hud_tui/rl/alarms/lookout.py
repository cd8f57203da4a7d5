"""Lookout: the detectors over the lineage of a model's head, wherever the head goes.

A run that grows is read on; when the head is set elsewhere, its lineage is read anew, and
the alarms of the steps that were left are kept apart.
"""

from collections import deque
from dataclasses import replace

from hud_tui.rl.alarms.alarm import Alarm, Report
from hud_tui.rl.alarms.rescue import rescue
from hud_tui.rl.alarms.rows import row_of
from hud_tui.rl.alarms.stall import stall
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.alarms.watch import Watch
from hud_tui.rl.tree import Tree
from hud_tui.wire import Checkpoint, JobStatus

ALL = 1_000_000_000
"""More rows than any run has: read them all at once."""
MOST_LEFT = 100
"""Alarms of left lineages that are kept, the newest."""


class Lookout:
    """Reads what is new of the head's lineage, as much at a time as it is told to."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self._watch = Watch(self.thresholds)
        self._waiting = deque[Checkpoint]()
        """What is still to be read, oldest first."""
        self._aim: str | None = None
        """The checkpoint that reading ends with."""
        self._left: dict[str, Alarm] = {}
        self._tree = Tree()
        self._rescues: dict[tuple[str, int], str | None] = {}
        """What to serve, by the update that an alarm began with and the tree's edition."""

    def follow(self, tree: Tree, job: JobStatus | None = None, most: int = ALL) -> bool:
        """Read on towards the tree's head; whether there is something new to report.

        Args:
            tree: Whose head's lineage to judge.
            job: The run that trains it; its length is what entropy is projected to.
            most: Rows to read at most; call again for the others.
        """
        restarted = self._aim_at(tree)
        self._tree = tree
        self._watch.context.steps = _length(tree, job)
        count = min(most, len(self._waiting))
        for _ in range(count):
            self._watch.read(row_of(len(self._watch), self._waiting.popleft()))
        return restarted or count > 0

    @property
    def behind(self) -> int:
        """Rows that are still to be read."""
        return len(self._waiting)

    def report(self, silent_s: float | None = None) -> Report:
        """What the detectors say.

        Args:
            silent_s: Seconds since the last event of a run that trains; None where none does.
        """
        late = None
        if silent_s is not None:
            watch = self._watch
            late = stall(watch.last, silent_s, watch.pace, self.thresholds.stall)
        report = self._watch.report(*([late] if late else []))
        alarms = tuple(self._with_rescue(alarm) for alarm in report.alarms)
        again = {alarm.id for alarm in alarms}
        left = tuple(alarm for id_, alarm in self._left.items() if id_ not in again)
        return replace(report, alarms=alarms, left=left, waiting=self.behind)

    def _with_rescue(self, alarm: Alarm) -> Alarm:
        """The alarm with the last checkpoint before it whose own numbers were good."""
        position = self._tree.find(alarm.checkpoint_id)
        if position is None or alarm.checkpoint_id is None or alarm.before_id is None:
            return alarm
        if alarm.before_id == alarm.checkpoint_id:  # nothing was done: the run is silent
            return alarm
        key = alarm.checkpoint_id, self._tree.edition
        if key not in self._rescues:
            found = rescue(self._tree, position)
            self._rescues[key] = None if found is None else self._tree[found].id
        return replace(alarm, before_id=self._rescues[key])

    def _aim_at(self, tree: Tree) -> bool:
        """Find what is to be read; whether the lineage is another one than before."""
        head = None if tree.head is None else tree[tree.head].id
        if head == self._aim:
            return False
        fresh, known = self._walk(tree)
        self._aim = head
        if known:
            self._waiting.extend(fresh)
            return False
        self._leave(tree)
        self._watch, self._waiting = Watch(self.thresholds), fresh
        self._rescues.clear()
        return True

    def _walk(self, tree: Tree) -> tuple[deque[Checkpoint], bool]:
        """What follows what was read or waits, oldest first; all, and False, if nothing does."""
        target = len(self._watch) + len(self._waiting)
        fresh = deque[Checkpoint]()
        for position in tree.lineage(tree.head):
            if target and tree.depth(position) == target and tree[position].id == self._aim:
                return fresh, True
            fresh.appendleft(tree[position])
        return fresh, not target

    def _leave(self, tree: Tree) -> None:
        """Keep the alarms that steps showed which are not on the new lineage."""
        stays = {tree[position].id for position in tree.lineage(tree.head)}
        for alarm in self.report().alarms:
            if alarm.shown_id not in stays:
                self._left[alarm.id] = replace(alarm, active=False)
        for gone in list(self._left)[:-MOST_LEFT]:
            del self._left[gone]


def _length(tree: Tree, job: JobStatus | None) -> int | None:
    """Steps that the head's lineage will have when the run that trains it is done."""
    if job is None or job.step is None or job.steps is None or tree.head is None:
        return None
    return max(0, tree.depth(tree.head) - job.step) + job.steps
