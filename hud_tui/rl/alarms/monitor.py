"""Lookout: the detectors over the lineage of a model's head, wherever the head goes.

A run that grows is read on; when the head is set elsewhere, its lineage is read anew, and
the alarms of the steps that were left are kept apart.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import nan
from typing import Any

from hud_tui.rl.alarms.alarm import Alarm, Report, ordered
from hud_tui.rl.alarms.detector import Context, Detector
from hud_tui.rl.alarms.policy import (
    ClipFraction,
    EntropyCollapse,
    GradientNorm,
    NonFinite,
    ReferenceDrift,
    SamplerDrift,
    StaleRollouts,
    ZeroGradient,
)
from hud_tui.rl.alarms.reward import (
    ComponentDominance,
    ErroredRollouts,
    HeldoutCollapse,
    HeldoutGap,
    RewardCollapse,
    RewardPlateau,
    Truncation,
    ZeroSpread,
)
from hud_tui.rl.alarms.statistics import Row, Window, bounded, row_of
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.alarms.throughput import LengthBlowUp, Throughput, stall
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.head import refusal
from hud_tui.rl.own_numbers import Own
from hud_tui.wire import Checkpoint, JobStatus

# Watch: every detector over one lineage, step by step as it grows.
#
# What it says follows from the thresholds and the lineage alone, so a run that is read at
# once and one that is followed live have the same alarms.


DETECTORS: tuple[type[Detector[Any]], ...] = (
    *(ZeroSpread, RewardCollapse, RewardPlateau, EntropyCollapse, SamplerDrift, ReferenceDrift),
    *(ClipFraction, GradientNorm, ZeroGradient, NonFinite, LengthBlowUp, Truncation),
    *(StaleRollouts, ErroredRollouts, ComponentDominance, HeldoutGap, HeldoutCollapse, Throughput),
)
"""All that judge rows; `hud_tui.rl.alarms.throughput` judges by the clock."""
MOST_STEP = 2**62
"""Beyond this a step's number is a mistake of the service's, and is taken for this."""
RECENT = 20
"""Steps whose pace is the run's pace."""


class Watch:
    """The detectors, fed with rows in order."""

    def __init__(self, thresholds: Thresholds | None = None, steps: int | None = None) -> None:
        """`steps` is how many the run will have, where that is known."""
        self.thresholds = thresholds or Thresholds()
        self.context = Context(steps)
        tunings = {kind: getattr(self.thresholds, kind.NAME) for kind in DETECTORS}
        self._detectors = [kind(tuning) for kind, tuning in tunings.items() if tuning.enabled]
        self._steps, self._ids = array("q"), list[str | None]()
        """Step and checkpoint of each row; its metrics are not kept."""
        self._pace, self._at = Window(RECENT), nan

    def __len__(self) -> int:
        return len(self._steps)

    def read(self, row: Row) -> None:
        """Take in the next row; its place is the number of rows before it."""
        self._steps.append(max(-MOST_STEP, min(row.step, MOST_STEP)))
        self._ids.append(row.checkpoint_id)
        self.context.read(row)
        self._time(row)
        for detector in self._detectors:
            detector.read(row, self.context)

    @property
    def pace(self) -> float | None:
        """Median seconds between the last RECENT steps; None before two."""
        return self._pace.median if len(self._pace) else None

    @property
    def last(self) -> Row | None:
        """The newest row, without its metrics."""
        return self._row_at(len(self) - 1) if len(self) else None

    def report(self, *more: Alarm) -> Report:
        """What all detectors say, as of the last row; with alarms that are no detector's."""
        alarms = list(more)
        for detector in self._detectors:
            alarms += detector.alarms(self.context, self._row_at)
        skipped = (detector.skipped() for detector in self._detectors)
        return Report(ordered(alarms), tuple(s for s in skipped if s), len(self))

    def _time(self, row: Row) -> None:
        at = bounded(row.at)
        if at is not None:
            if at > self._at:
                self._pace.push(at - self._at)
            self._at = at

    def _row_at(self, place: int) -> Row:
        return Row(place, {}, self._steps[place], self._ids[place])


# Rescue: what to serve once an update has spoilt a policy.
#
# The last checkpoint before the update is not always good: an alarm may be raised late, and
# its onset be found a step or two late. So each is asked for its own numbers, newest first,
# and taken where they are near the level that the run had before.


LEVEL = 20
"""Checkpoints before the update whose own numbers are the run's level."""
MOST = 60
"""Checkpoints that are looked at."""
SIGMAS, LEAST = 2.0, 0.05
"""Near the level is no further below it than so many robust standard deviations, or than
this share of it."""


def rescue(tree: Tree, update: int) -> int | None:
    """The last checkpoint before an update whose own numbers were good.

    Args:
        tree: Holds the update's checkpoint.
        update: Its position.

    Returns:
        Its position. Where none is known to be good, the newest that can still be served;
        None where the update was the lineage's first.
    """
    line = list(islice(tree.lineage(tree.parent(update)), MOST))
    owns = [tree.own(position) for position in line]
    floors = _floor([own.reward for own in owns]), _floor([own.heldout for own in owns])
    kept = [(p, own) for p, own in zip(line, owns, strict=True) if not refusal(tree[p])]
    good = (position for position, own in kept if _is_good(own, *floors))
    usual = kept[0][0] if kept else next(iter(line), None)
    return next(good, usual)


def _is_good(own: Own, reward: float, heldout: float) -> bool:
    """Whether all that is known of it is at its floor or above."""
    told = ((own.reward, reward), (own.heldout, heldout))
    return own.known and not any(value is not None and value < floor for value, floor in told)


def _floor(values: Sequence[float | None]) -> float:
    """The least that is near the level of the newest values; NaN where none is known."""
    window = Window(LEVEL)
    for value in islice((v for v in values if v is not None), LEVEL):
        window.push(value)
    if not len(window):
        return nan
    return window.median - max(SIGMAS * window.sigma, LEAST * abs(window.median))


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
