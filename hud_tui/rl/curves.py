"""Curves: a metric reduced to chart columns, fast for any number of steps.

A curve keeps a min/max pyramid and a moving average of a series' column and grows with it,
so that a repaint reads a few rows per chart column.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, islice, pairwise, repeat
from math import inf, isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.evaluation import sample_size, student_t
from hud_tui.rl.metrics import Series, are_equal, change
from hud_tui.rl.own_numbers import HELDOUT, HELDOUT_TRACES, count_rollouts, is_of_run
from hud_tui.rl.run import Run
from hud_tui.rl.text import counted
from hud_tui.wire import Checkpoint, Evaluation

# Pyramid: minimum and maximum of any range of a growing column.
#
# A chart of a hundred thousand steps has a few hundred columns. Each level of the pyramid
# holds the extremes of FAN entries of the level below, so a range query reads a few slices
# of each level: O(FAN · log n). A new row costs O(1) amortised.
#
# Source: the pre-aggregation of Jugel et al. 2014 (M4, PVLDB 7(10), section 3), of which
# the extremes alone are kept: they are all that a column one pixel wide can show.


FAN = 16
"""Entries of one level per entry of the next."""


class Pyramid:
    """Minimum and maximum over any range of a growing column; non-finite rows are ignored."""

    def __init__(self) -> None:
        self.length = 0
        """Rows read."""
        self.finite = 0
        """Finite rows read."""
        self.first: int | None = None
        """Index of the first finite row; None if there is none."""
        self._levels: list[tuple[array[float], array[float]]] = []
        """Extremes of each complete block of FAN ** (level + 1) rows; inf, −inf if empty."""

    def extend(self, column: Sequence[float], length: int) -> None:
        """Read the column's rows up to `length`; rows read before must be unchanged."""
        for row in range(self.length, length):
            if isfinite(column[row]):
                self.finite += 1
                self.first = row if self.first is None else self.first
        for start in range(self.length // FAN * FAN, length - FAN + 1, FAN):
            self._append(0, *_extremes(column[start : start + FAN]))
        self.length = max(self.length, length)

    def span(self, column: Sequence[float], low: int, high: int) -> tuple[float, float]:
        """Minimum and maximum of rows [low, high); NaN twice if none is finite.

        `column` is the one passed to `extend`; 0 ≤ low ≤ high ≤ length.
        """
        block_low, block_high = -(-low // FAN), high // FAN
        if block_low >= block_high:
            least, greatest = _extremes(column[low:high])
        else:
            before, after = column[low : block_low * FAN], column[block_high * FAN : high]
            least, greatest = _extremes((*before, *after))
            for leasts, greatests, start, stop in self._slices(block_low, block_high):
                least = min(least, *leasts[start:stop])
                greatest = max(greatest, *greatests[start:stop])
        return (least, greatest) if least <= greatest else (nan, nan)

    def _slices(
        self, low: int, high: int
    ) -> Iterator[tuple["array[float]", "array[float]", int, int]]:
        """The fewest slices of the levels that cover the lowest level's blocks [low, high)."""
        for leasts, greatests in self._levels:
            up_low, up_high = -(-low // FAN), high // FAN
            if up_low >= up_high:
                yield leasts, greatests, low, high
                return
            if low < up_low * FAN:
                yield leasts, greatests, low, up_low * FAN
            if up_high * FAN < high:
                yield leasts, greatests, up_high * FAN, high
            low, high = up_low, up_high

    def _append(self, level: int, least: float, greatest: float) -> None:
        if level == len(self._levels):
            self._levels.append((array("d"), array("d")))
        leasts, greatests = self._levels[level]
        leasts.append(least)
        greatests.append(greatest)
        if len(leasts) % FAN == 0:
            self._append(level + 1, min(leasts[-FAN:]), max(greatests[-FAN:]))


def _extremes(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if isfinite(value)]
    return (min(finite), max(finite)) if finite else (inf, -inf)


# Exponential moving average of a metric, row by row.
#
# Computed over every step, before the reduction to chart columns, so zooming and resizing do
# not change it. Bias correction makes the first values averages instead of a rise from 0.
#
# Source: Kingma and Ba 2015 (Adam, arXiv:1412.6980), section 3, for the correction.


WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Smoothing weights that the user can select."""

SETTLED = 4096
"""Rows after which the bias correction is 1 in double precision: .99 ** 4096 < 2 ** -53."""
STRETCH = 2 * SETTLED
"""Number of rows from which `Ema.extend` uses the fast path."""
EVERY = 16
"""Rows per stored state: storing every state would double the memory of the metric."""


class Ema:
    """The exponential moving average of a growing column."""

    def __init__(self, weight: float) -> None:
        """`weight` in [0, 1): share of the previous average in the next one; 0 is the raw
        column."""
        self.weight = weight
        self.length = 0
        """Rows read."""
        self._columns = array("d"), array("d")
        """Weighted sum, and the weight in it, after every EVERY rows."""
        self._now = 0.0, 0.0

    def average(self, column: Sequence[float], row: int) -> float:
        """The average after a row; a row without a number leaves it unchanged. NaN before the first
        number.

        Args:
            column: The column passed to `extend`.
            row: Below `length`.
        """
        block = (row + 1) // EVERY
        if row == self.length - 1:
            total, mass = self._now
        else:
            sums, masses = self._columns
            state = (sums[block - 1], masses[block - 1]) if block else (0.0, 0.0)
            total, mass = self._passed(state, column[block * EVERY : row + 1])
        return total / mass if mass else nan

    def extend(self, column: Sequence[float], length: int, whole: bool = False) -> None:
        """Read the column's rows up to `length`.

        Args:
            length: Number of rows to have read afterwards.
            whole: Whether all rows up to `length` are finite; then many rows are read fast.
        """
        if whole and length - self.length >= STRETCH:
            self._extend(column, -(-(self.length + SETTLED) // EVERY) * EVERY)
            self._leap(column, length // EVERY * EVERY)
        self._extend(column, length)

    def _extend(self, column: Sequence[float], length: int) -> None:
        while self.length < length:
            stop = min(length, (self.length // EVERY + 1) * EVERY)
            self._now = self._passed(self._now, column[self.length : stop])
            self.length = stop
            if stop % EVERY == 0:
                for stored, value in zip(self._columns, self._now, strict=True):
                    stored.append(value)

    def _leap(self, column: Sequence[float], length: int) -> None:
        """Read rows that are all finite, once the bias correction is 1."""
        past, fresh = self.weight, 1.0 - self.weight
        sums, masses = self._columns
        each = accumulate(
            column[self.length : length],
            lambda total, x: past * total + fresh * x,
            initial=self._now[0],
        )
        sums.extend(islice(each, EVERY, None, EVERY))
        masses.extend(repeat(1.0, len(sums) - len(masses)))
        self._now, self.length = (sums[-1], 1.0), length

    def _passed(self, state: tuple[float, float], values: Sequence[float]) -> tuple[float, float]:
        """The state (weighted sum, weight in it) after more rows."""
        past, fresh = self.weight, 1.0 - self.weight
        total, mass = state
        for value in values:
            if isfinite(value):
                total = past * total + fresh * value
                mass = past * mass + fresh
        return total, mass


DELTA_STEPS = 10
"""Number of steps that a chart's Δ looks back."""
COARSE = 8 * FAN
"""From this many steps per chart column, column edges are rounded to whole blocks of the pyramid.
Steps move by less than an eighth of a column, and no single rows are read."""


class Bucket(NamedTuple):
    """The steps that share one chart column."""

    column: int
    low: float
    high: float
    smooth: float
    """The moving average after its last step."""
    joined: bool
    """Whether a line connects it to the previous bucket; False after a gap."""
    last: int = 0
    """Row of its last step."""


@dataclass(frozen=True)
class Readout:
    """A metric's newest numbers; NaN where there is none."""

    raw: float
    smooth: float
    delta: float
    """Change of the smoothed value over the last DELTA_STEPS steps; 0 if both values print
    alike."""


class Curve:
    """One metric of one lineage, ready to be drawn at any width."""

    def __init__(self, column: "array[float]", weight: float, key: str = "") -> None:
        """`key`: the metric, which decides what counts as a change."""
        self.column, self.key = column, key
        self.pyramid = Pyramid()
        self.ema = Ema(weight)

    def follow(self, length: int, weight: float) -> None:
        """Read the column's rows up to `length`; `weight` is that of the moving average."""
        if self.ema.weight != weight:
            self.ema = Ema(weight)
        self.pyramid.extend(self.column, length)
        self.ema.extend(self.column, length, self.pyramid.finite == length)

    def buckets(
        self,
        xs: Sequence[float],
        low: float,
        high: float,
        columns: int,
        rows: tuple[int, int] | None = None,
        before: Sequence[Bucket] = (),
    ) -> list[Bucket]:
        """Distribute the steps over a chart's columns; O(columns · log n).

        Args:
            xs: The x of each step, shape (≥ n,), non-decreasing.
            low: The x of the first column.
            high: The x of the last column; greater than `low` if there are several columns.
            columns: Number of columns, at least 1.
            rows: The visible steps: first, and one past the last; None for all.
            before: The buckets of a part of the visible steps with the same `bridge` and all else
                equal, to go on from; O(new columns · log n).

        Returns:
            A bucket for each column that has a finite value, left to right.
        """
        start, stop = rows or (0, len(xs))
        if stop - start >= COARSE * columns:
            before = ()
        first = before[-1].column if before else 0
        edges = column_edges(xs, low, high, columns, start, stop, first)
        if stop - start >= COARSE * columns:
            edges[1:-1] = [max(start, edge // FAN * FAN) for edge in edges[1:-1]]
        buckets = list(before[:-1])
        bridge, missing = self.bridge, 0
        for column, (start, stop) in enumerate(pairwise(edges), start=first):
            if start == stop:
                continue
            least, greatest = self.pyramid.span(self.column, start, stop)
            if least != least:
                missing += stop - start
                continue
            smooth, joined = self.ema.average(self.column, stop - 1), missing <= bridge
            if before and column == first:
                joined = before[-1].joined
            buckets.append(Bucket(column, least, greatest, smooth, joined, stop - 1))
            missing = 0
        return buckets

    def readout(self, length: int, exact: bool = False) -> Readout:
        """The numbers beside the chart, as of row `length` − 1.

        `raw` is the newest finite value up to that row; if `exact`, the value of that row itself.
        """
        rows = range(length - 1, max(-1, length - 2) if exact else -1, -1)
        raw = next((self.column[row] for row in rows if isfinite(self.column[row])), nan)
        smooth = self.ema.average(self.column, length - 1) if length else nan
        then = length - 1 - DELTA_STEPS
        before = self.ema.average(self.column, then) if then >= 0 else nan
        return Readout(raw, smooth, change(before, smooth, self.key))

    @property
    def is_constant(self) -> bool:
        """Whether the metric never changed, in at least two steps."""
        low, high = self.pyramid.span(self.column, 0, self.pyramid.length)
        return self.pyramid.finite > 1 and are_equal(self.key, low, high)

    @property
    def missing(self) -> int:
        """Number of steps without a value since the first one; 0 for a metric that is reported only
        every few steps."""
        first, pyramid = self.pyramid.first, self.pyramid
        return 0 if first is None or self._spacing > 1 else pyramid.length - first - pyramid.finite

    @property
    def _spacing(self) -> int:
        """Typical number of steps from one value to the next."""
        first, pyramid = self.pyramid.first, self.pyramid
        return 1 if first is None else round((pyramid.length - first) / pyramid.finite)

    @property
    def bridge(self) -> int:
        """Number of missing rows that a line may cross: 0 for a metric reported at every step.

        A metric of every fifth step (a held-out reward) is drawn as a line; a NaN in a metric of
        every step is drawn as a gap.
        """
        return 2 * self._spacing if self._spacing > 1 else 0


class Curves:
    """The curves of one series, by metric; rebuilt if the series changed other than by growing."""

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}

    def of(self, series: Series, key: str, weight: float) -> Curve:
        """The metric's curve, extended to the series' length. O(new rows)."""
        column = series.column(key)
        curve = self._curves.get(key)
        if curve is None or curve.column is not column:
            curve = self._curves[key] = Curve(column, weight, key)
        curve.follow(min(series.length, len(column)), weight)
        return curve


def column_edges(
    xs: Sequence[float],
    low: float,
    high: float,
    columns: int,
    start: int,
    stop: int,
    first: int = 0,
) -> list[int]:
    """First step of each chart column from `first` on, and one past the last step, shape
    (columns − first + 1,).

    Each step of [start, stop) belongs to the column whose x is nearest.
    """
    width = (high - low) / max(1, columns - 1)
    inner = [
        bisect_left(xs, low + (column - 0.5) * width, start, stop)
        for column in range(max(1, first), columns)
    ]
    return [*inner, stop] if first else [start, *inner, stop]


# Uncertainty of the training reward's curve, and the held-out rewards drawn with it.


LEAST_GROUPS = 4
"""Fewest groups (or rollouts) for an interval; with fewer, Student's t makes it uselessly wide."""
STD = "reward_std"
KEPT = 1500
"""Steps whose uncertainty is kept, several times what a chart shows."""
NEAR = 4
"""Number of steps whose interval widths are averaged for a smoothed curve."""


class Spread(NamedTuple):
    """Uncertainty of a step's mean reward."""

    half: float = nan
    """Half the width of its 95 % interval, in the reward's unit; NaN if unknown."""
    over: str = ""
    """The sample, e.g. ``12 groups``."""


def reward_spread(checkpoint: Checkpoint, std: float = nan) -> Spread:
    """The 95 % interval of the mean reward of a step's rollouts.

    Student's t times the standard error over the means of the groups: rollouts of one task are
    correlated, so the group is the unit. If the step reports no rewards by group, the standard
    error is `std` / √rollouts, as if rollouts were independent.
    """
    means = [sum(g.rewards) / len(g.rewards) for g in checkpoint.groups if g.rewards]
    count = len(means)
    if count >= LEAST_GROUPS and isfinite(sum(means)):
        half = student_t(count - 1) * stdev(means) / sqrt(count)
        return Spread(half, f"{count} groups")
    rollouts = count_rollouts(checkpoint)
    if rollouts >= LEAST_GROUPS and isfinite(std):
        return Spread(student_t(rollouts - 1) * std / sqrt(rollouts), f"{rollouts} rollouts")
    return Spread()


def average_error(weight: float, count: int) -> float:
    """Standard error of a moving average, relative to that of one value; in (0, 1].

    Args:
        weight: The moving average's weight of the past, in [0, 1).
        count: Number of values averaged, at least 1; independent, with equal standard errors.
    """
    past = weight**count
    return sqrt((1 - weight) * (1 + past) / ((1 + weight) * (1 - past)))


class Spreads:
    """The uncertainty of a run's steps, each computed when it is first needed."""

    def __init__(self) -> None:
        self._series, self._tree = Series(), Tree()
        self._spreads: dict[int, Spread] = {}
        self._halves: dict[tuple[int, float], float] = {}

    def _follow(self, run: Run) -> None:
        """Forget what is known of other steps, or may have changed: groups may be reported after
        the step."""
        changed = not run.series.same_rows(self._series) or run.tree.updates(self._tree)
        if changed or len(self._spreads) >= KEPT:
            self._spreads, self._halves = {}, {}
        self._series, self._tree = run.series, run.tree

    def spread_at(self, run: Run, row: int) -> Spread:
        """The uncertainty of the step in a row."""
        self._follow(run)
        if row not in self._spreads:
            position = run.tree.find(run.series.id_at(row))
            if position is None:
                return Spread()
            std = run.series.column(STD)
            self._spreads[row] = reward_spread(
                run.tree[position], std[row] if row < len(std) else nan
            )
        return self._spreads[row]

    def halves(self, run: Run, rows: Sequence[int], weight: float) -> list[float]:
        """Half the 95 % interval of the moving average after each row; NaN if unknown."""
        self._follow(run)
        halves = []
        for row in rows:
            if (row, weight) not in self._halves:
                self._halves[row, weight] = self._averaged(run, row, weight)
            halves.append(self._halves[row, weight])
        return halves

    def _averaged(self, run: Run, row: int, weight: float) -> float:
        rows = range(max(0, row + 1 - NEAR) if weight else row, row + 1)
        halves = [half for half, _ in (self.spread_at(run, near) for near in rows) if half == half]
        if not halves:
            return nan
        return sqrt(fmean(half * half for half in halves)) * average_error(weight, row + 1)


class Score(NamedTuple):
    """A checkpoint's held-out reward."""

    value: float
    low: float | None = None
    """Lower end of the 95 % interval; None if there is no interval."""
    high: float | None = None
    over: str = ""
    """The sample, e.g. ``48 tasks × 4`` or ``36 rollouts``; empty if unknown."""
    joins: bool = True
    """Whether it is on the same tasks as the others, so that a line may connect them."""


def evaluation_score(evaluation: Evaluation, joins: bool = True) -> Score:
    mean, over = evaluation.estimate, sample_size(evaluation)
    return Score(evaluation.mean_reward, mean.low, mean.high, over, joins)


def reported_score(value: float, rollouts: float | None) -> Score:
    """The score of a held-out reward that a step reports.

    Args:
        rollouts: Number of its rollouts as reported; None if it is not.
    """
    has_count = rollouts is not None and 1 <= rollouts < inf
    return Score(value, over=counted(int(rollouts or 0), "rollout") if has_count else "")


class HeldOut:
    """The held-out rewards of a run, each at the checkpoint that was sampled.

    A checkpoint's evaluation, with its interval, wins over what a step trained from it reports,
    which has none. Evaluations that a run makes of its own checkpoints are on the tasks that its
    steps report; other evaluations may be on any tasks.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Rows of the head's lineage that have a score, ascending."""
        self.scores: dict[int, Score] = {}
        self._passes: dict[int, Score] = {}
        self._reports: dict[int, int] = {}
        """The row of the step that reported a checkpoint's pass, by the checkpoint's row."""
        self._series = Series()
        self._seen: object = None

    def follow(self, run: Run) -> None:
        """Read what is new in the run; O(new steps + scores)."""
        seen = run.series, run.tree, run.tree.edition
        if seen == self._seen:
            return
        self._seen, series = seen, run.series
        if not series.same_rows(self._series) or series.length < self._series.length:
            self._series, self._passes, self._reports = Series(), {}, {}
        column = series.column(HELDOUT)
        for row in range(self._series.length, series.length):
            if isfinite(column[row]):
                step = run.tree.find(series.id_at(row))
                source = ROOT if step is None else run.tree.source(step)
                rollouts = None if step is None else run.tree[step].metrics.get(HELDOUT_TRACES)
                sampler = run.tree.depth(source) - 1  # −1 for the base weights
                self._passes[sampler] = reported_score(column[row], rollouts)
                self._reports[sampler] = row
        self._series = series
        self.scores = self._passes | dict(self._evaluated(run, alone=bool(self._passes)))
        self.rows = sorted(row for row in self.scores if row >= 0)

    def score_at(self, row: int) -> tuple[int, Score] | None:
        """The newest score up to a row, with the row it belongs to; None before the first."""
        index = bisect_right(self.rows, row)
        return (self.rows[index - 1], self.scores[self.rows[index - 1]]) if index else None

    def report(self, row: int) -> int:
        """The row of the step that reported the newest pass of a checkpoint up to a row; that row
        itself before the first."""
        steps = (step for sampler, step in self._reports.items() if sampler <= row)
        return max(steps, default=row)

    @staticmethod
    def _evaluated(run: Run, alone: bool) -> Iterator[tuple[int, Score]]:
        for position, evaluation in run.tree.evaluations():
            node = run.tree.node(position)
            row = None if node is None else run.row_of(node.id)
            if row is not None:
                yield row, evaluation_score(evaluation, is_of_run(evaluation) or not alone)


# Signs on the x axis: alarms, moves of the head, branches.


class Sign(StrEnum):
    """A sign at one step; if several apply, the first in this order is drawn."""

    MARK = "A"
    ALARM = "⚑"
    HEAD = "▷"
    BRANCH = "╥"

    @property
    def meaning(self) -> str:
        """Its entry in a legend."""
        meanings = {Sign.MARK: "marked", Sign.ALARM: "alarm", Sign.HEAD: "head set"}
        return meanings.get(self, "branch")


def signs(run: Run, marked: str | None = None) -> dict[int, Sign]:
    """The marked step, where alarms began, where the head was set, and where another branch leaves,
    by row of the head's lineage.

    Args:
        marked: Id of the marked checkpoint.
    """
    forks = (run.row_of(run.tree[position].id) for position in run.tree.forks)
    moves = (run.row_of(move.checkpoint_id) for move in run.history.moves)
    began = (alarm.row for alarm in run.alarms.warnings)
    signs: dict[int, Sign] = {}
    marks = (run.row_of(marked),)
    kinds = (Sign.MARK, marks), (Sign.ALARM, began), (Sign.HEAD, moves), (Sign.BRANCH, forks)
    for sign, rows in kinds:
        for row in rows:
            if row is not None and row < run.series.length:
                signs.setdefault(row, sign)
    return signs
