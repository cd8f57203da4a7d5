"""The alarm monitor: runs the detectors over the lineage of a model's head.

New steps are evaluated as the run grows. When the head moves to another branch, its lineage is
evaluated from the start, and the alarms of the steps left behind are kept separately.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import make_dataclass, replace
from functools import cache
from itertools import chain, islice
from math import nan

from hud_tui.rl.alarms import policy as of_policy
from hud_tui.rl.alarms import reward as of_reward
from hud_tui.rl.alarms import throughput as of_throughput
from hud_tui.rl.alarms.alarm import Alarm, Report, ordered
from hud_tui.rl.alarms.detector import DETECTORS, Context
from hud_tui.rl.alarms.statistics import Row, Window, row_of, usable
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.alarms.throughput import stall
from hud_tui.rl.checkpoint_tree import Tree, is_servable
from hud_tui.rl.own_numbers import Own
from hud_tui.rl.progress import RECENT
from hud_tui.wire import Checkpoint, WorkState

# All detectors over one lineage, step by step. The result depends only on the thresholds and the
# lineage, so a finished run and one that is followed live have the same alarms.


FAMILIES = (of_reward, of_policy, of_throughput)
"""Modules of detectors; each detector in them registers itself in `DETECTORS`."""


@cache
def usual_thresholds() -> Thresholds:
    """The thresholds where the config file sets none."""
    made = make_dataclass(
        "Thresholds",
        [(name, type(kind.USUAL), kind.USUAL) for name, kind in DETECTORS.items()],
        bases=(Thresholds,),
        frozen=True,
    )
    usual: Thresholds = made()
    return usual


class _TrainedOn:
    """Detects where a run trains on other tasks than the one before.

    If the service reports `Row.tasks_digest`, that decides. Else two runs are on different tasks if
    no task of the later run's first step was seen before.
    """

    def __init__(self) -> None:
        self._job_id: str | None = None
        self._digest: str | None = None
        self._slugs = set[str]()

    def changes(self, row: Row) -> bool:
        """Read the next row; return whether its run trains on other tasks than the previous one."""
        changed = row.job_id != self._job_id and self._are_others(row)
        if changed:
            self._slugs.clear()
        self._slugs |= row.slugs
        self._job_id, self._digest = row.job_id, row.tasks_digest
        return changed

    def _are_others(self, row: Row) -> bool:
        if row.tasks_digest is not None and self._digest is not None:
            return row.tasks_digest != self._digest
        return bool(self._slugs and row.slugs) and self._slugs.isdisjoint(row.slugs)


class DetectorSet:
    """All enabled detectors; reads rows in order."""

    def __init__(self, thresholds: Thresholds | None = None, steps: int | None = None) -> None:
        """`steps`: total steps of the run, if known."""
        self.thresholds = thresholds or usual_thresholds()
        self.context = Context(steps)
        tunings = {name: self.thresholds.of(name) for name in DETECTORS}
        self._detectors = [
            DETECTORS[name](tuning) for name, tuning in tunings.items() if tuning.enabled
        ]
        self._steps, self._ids = array("q"), list[str | None]()
        self._stale = array("f")
        """Step number, checkpoint id and staleness of each row; other metrics are not kept."""
        self._pace, self._at = Window(RECENT), nan
        self._tasks, self._begun = _TrainedOn(), [0]
        """`_begun`: first row on each set of tasks."""

    def __len__(self) -> int:
        return len(self._steps)

    def read(self, row: Row) -> None:
        """Evaluate the next row; its index is the number of rows before it."""
        self._steps.append(row.step)
        self._ids.append(row.checkpoint_id)
        self._stale.append(max(0.0, row.read("staleness_mean") or 0.0))
        if self._tasks.changes(row):
            self._begun.append(row.index)
            self.context.begin_tasks()
            self._detectors = [
                detector.on_other_tasks(row) if detector.BY_TASKS else detector
                for detector in self._detectors
            ]
        self.context.read(row)
        self._time(row)
        for detector in self._detectors:
            detector.read(row, self.context)

    def began(self, index: int) -> int:
        """First row on the same tasks as row `index`."""
        return self._begun[bisect_right(self._begun, index) - 1]

    @property
    def pace(self) -> float | None:
        """Median seconds between the last RECENT steps; None before two."""
        return self._pace.median if len(self._pace) else None

    @property
    def last(self) -> Row | None:
        """The newest row, of its metrics only its staleness."""
        return self._row_at(len(self) - 1) if len(self) else None

    def report(self, *more: Alarm) -> Report:
        """The result of all detectors as of the last row, together with the given alarms."""
        of_each = (detector.alarms(self.context, self._row_at) for detector in self._detectors)
        skipped = (detector.skipped() for detector in self._detectors)
        alarms = ordered([*more, *chain.from_iterable(of_each)])
        return Report(alarms, tuple(s for s in skipped if s), len(self))

    def _time(self, row: Row) -> None:
        stamp = usable(row.at)
        if stamp is not None:
            if stamp > self._at:
                self._pace.push(stamp - self._at)
            self._at = stamp

    def _row_at(self, index: int) -> Row:
        stale = {"staleness_mean": self._stale[index]}
        return Row(index, stale, self._steps[index], self._ids[index])


# The checkpoint to roll back to after an update that damaged the policy.
#
# The last checkpoint before the update is not always good: the onset of an alarm may be
# detected a step or two late. So checkpoints are tested newest first, and the first whose own
# rewards are near the level before the update is chosen.


LEVEL = 20
"""Number of checkpoints before the update whose own rewards define the level."""
MOST = 60
"""Maximum number of checkpoints tested."""
SIGMAS, LEAST = 2.0, 0.05
"""A reward is near the level if it is at most this many robust standard deviations, or this share
of the level, below it."""


def last_good_checkpoint(tree: Tree, update: int, most: int = MOST) -> int | None:
    """The last checkpoint before an update whose own rewards were healthy.

    Args:
        most: Number of checkpoints before it whose own rewards are on the same tasks.

    Returns:
        Its position. If none is known to be healthy, the newest that can still be served;
        None if the update was the first of the lineage.
    """
    line = list(islice(tree.lineage(tree.parent(update)), min(most, MOST)))
    owns = [tree.own(position) for position in line]
    floors = _floor([own.reward for own in owns]), _floor([own.heldout for own in owns])
    servable = [(p, own) for p, own in zip(line, owns, strict=True) if is_servable(tree[p])]
    good = (position for position, own in servable if _is_good(own, *floors))
    usual = servable[0][0] if servable else next(iter(line), None)
    return next(good, usual)


def _is_good(own: Own, reward: float, heldout: float) -> bool:
    """Whether every known reward of a checkpoint is at least its floor, and one is known."""
    pairs = ((own.reward, reward), (own.heldout, heldout))
    return own.known and not any(value is not None and value < floor for value, floor in pairs)


def _floor(values: Sequence[float | None]) -> float:
    """Lowest reward that counts as near the level of the newest values; NaN without values."""
    window = Window(LEVEL)
    for value in islice((v for v in values if v is not None), LEVEL):
        window.push(value)
    if not len(window):
        return nan
    return window.median - max(SIGMAS * window.sigma, LEAST * abs(window.median))


ALL = 1_000_000_000
"""More rows than any run has."""
MOST_LEFT = 100
"""Maximum number of alarms kept of steps that left the head's lineage; the newest are."""


class AlarmMonitor:
    """Evaluates the head's lineage incrementally, a bounded number of rows per call."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or usual_thresholds()
        self._set = DetectorSet(self.thresholds)
        self._pending = deque[Checkpoint]()
        """Checkpoints not evaluated yet, oldest first."""
        self._target: str | None = None
        """Id of the head that `_pending` leads to."""
        self._left: dict[str, Alarm] = {}
        self._tree = Tree()
        self._last_good: dict[tuple[str, int], str | None] = {}
        """Cache of `last_good_checkpoint` by the alarm's checkpoint id and the tree's edition."""

    def follow(self, tree: Tree, job: WorkState | None = None, most: int = ALL) -> bool:
        """Evaluate new steps of the head's lineage; return whether the report changed.

        Args:
            job: The run that trains it; its length bounds the projection of entropy.
            most: Maximum number of rows; call again for the rest.
        """
        restarted = self._queue_new(tree)
        self._tree = tree
        self._set.context.steps = _length(tree, job)
        count = min(most, len(self._pending))
        for _ in range(count):
            self._set.read(row_of(len(self._set), self._pending.popleft()))
        return restarted or count > 0

    @property
    def behind(self) -> int:
        """Rows not evaluated yet."""
        return len(self._pending)

    def report(self, silent_s: float | None = None) -> Report:
        """Alarms, skipped detectors, and progress.

        Args:
            silent_s: Seconds since the last event of an active run; None if none is active.
        """
        late = None
        if silent_s is not None:
            watch = self._set
            late = stall(watch.last, silent_s, watch.pace, self.thresholds.stall)
        report = self._set.report(*([late] if late else []))
        alarms = tuple(self._with_last_good(alarm) for alarm in report.alarms)
        again = {alarm.id for alarm in alarms}
        left = tuple(alarm for id_, alarm in self._left.items() if id_ not in again)
        return replace(report, alarms=alarms, left=left, waiting=self.behind)

    def _with_last_good(self, alarm: Alarm) -> Alarm:
        """The alarm with the checkpoint to roll back to."""
        position = self._tree.find(alarm.checkpoint_id)
        if position is None or alarm.checkpoint_id is None or alarm.before_id is None:
            return alarm
        if alarm.before_id == alarm.checkpoint_id:  # a stalled run has no update to roll back
            return alarm
        key = alarm.checkpoint_id, self._tree.edition
        if key not in self._last_good:
            same_tasks = alarm.row - self._set.began(alarm.row) + 1  # with the first row's parent
            checkpoint = last_good_checkpoint(self._tree, position, same_tasks)
            self._last_good[key] = None if checkpoint is None else self._tree[checkpoint].id
        return replace(alarm, before_id=self._last_good[key])

    def _queue_new(self, tree: Tree) -> bool:
        """Queue the new rows; return whether the head moved to another lineage."""
        head = None if tree.head is None else tree[tree.head].id
        if head == self._target:
            return False
        fresh, common = self._walk(tree)
        self._target = head
        if common:
            self._pending.extend(fresh)
            return False
        self._leave(tree)
        self._set, self._pending = DetectorSet(self.thresholds), fresh
        self._last_good.clear()
        return True

    def _walk(self, tree: Tree) -> tuple[deque[Checkpoint], bool]:
        """New rows, oldest first, and whether the lineage extends the known one."""
        target = len(self._set) + len(self._pending)
        fresh = deque[Checkpoint]()
        for position in tree.lineage(tree.head):
            if target and tree.depth(position) == target and tree[position].id == self._target:
                return fresh, True
            fresh.appendleft(tree[position])
        return fresh, not target

    def _leave(self, tree: Tree) -> None:
        """Keep the alarms of steps that are not in the new lineage."""
        stays = {tree[position].id for position in tree.lineage(tree.head)}
        for alarm in self.report().alarms:
            if alarm.shown_id not in stays:
                self._left[alarm.id] = replace(alarm, active=False)
        for id_ in list(self._left)[:-MOST_LEFT]:
            del self._left[id_]


def _length(tree: Tree, job: WorkState | None) -> int | None:
    """Length of the head's lineage at the end of the run that trains it."""
    if job is None or job.step is None or job.steps is None or tree.head is None:
        return None
    return max(0, tree.depth(tree.head) - job.step) + job.steps
