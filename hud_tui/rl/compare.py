"""Overlays of branches and other models, and of several runs; the view of the Live charts."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import inf, isfinite, nan
from typing import TypeVar

from hud_tui.rl.axes import Axis, Positions
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.rl.curves import (
    WEIGHTS,
    Bucket,
    Curve,
    Score,
    column_edges,
    evaluation_score,
    reported_score,
)
from hud_tui.rl.metrics import SIZES, Series, canonical, metric, metrics_of, short
from hud_tui.rl.own_numbers import HELDOUT, HELDOUT_TRACES, Evaluated
from hud_tui.rl.run import Run
from hud_tui.rl.text import seconds
from hud_tui.rl.work import Work
from hud_tui.wire import Checkpoint, Evaluation, Model

T = TypeVar("T")

# Another branch or model drawn over the run, aligned at the point where they diverged.


@dataclass(frozen=True, eq=False)
class Overlay:
    """A lineage drawn over the run's own."""

    name: str
    run: Run
    """The other lineage; its newest checkpoint is the head."""
    shift: int = 0
    """Offset in steps: its step n is drawn at the run's step n + shift."""
    positions: Positions = field(default_factory=Positions, repr=False)

    def offset(self, own: Positions, run: Run, axis: Axis) -> float:
        """What to add to its x so that both lineages have the same x where they diverged."""
        if axis is Axis.STEP or not self.shift:
            return self.shift
        mine, theirs = own.of(run, axis), self.positions.of(self.run, axis)
        return _after(mine, self.shift) - _after(theirs, -self.shift)


@dataclass(frozen=True)
class Branch:
    """A branch of the run's tree that does not contain the head."""

    tip: int
    """Position of its newest checkpoint."""
    name: str
    steps: int
    """Steps since it diverged."""
    common: str
    """Name of the newest common checkpoint."""
    reward: str
    """Own mean reward of the newest checkpoint on the branch that has one, as text."""


def branches(run: Run) -> list[Branch]:
    """The branches that do not contain the head, newest first; O(size of the tree)."""
    tree = run.tree
    parents = {tree.parent(position) for position in range(len(tree))}
    tips = (position for position in range(len(tree) - 1, -1, -1) if position not in parents)
    own = set(tree.lineage(tree.head))
    return [_branch(tree, tip) for tip in tips if tip not in own]


def _branch(tree: Tree, tip: int) -> Branch:
    meet = tree.common_ancestor(tree.head, tip)
    steps = tree.depth(tip) - tree.depth(meet)
    left = islice(tree.lineage(tip), steps)
    reward = next((r for r in map(tree.reward, left) if r is not None), None)
    return Branch(tip, label(tree[tip]), steps, label(tree.node(meet)), short(reward))


def branch_overlay(run: Run, tip: int) -> Overlay:
    """A branch of the run's own tree; both count steps from the same base, so the shift is 0."""
    return Overlay(label(run.tree[tip]), _at_tip(run.tree, tip))


def model_overlay(run: Run, model: Model, tree: Tree) -> Overlay:
    """Another model's head lineage, aligned where one model was forked from the other."""
    own = run.model
    shift = 0
    if own is not None:
        shift = _depth(run.tree, _source(model, own)) - _depth(tree, _source(own, model))
    return Overlay(model.model_name, _at_tip(tree, tree.head), shift)


def _source(fork: Model, origin: Model) -> str:
    """Name of the checkpoint of `origin` that a model was forked from; empty if it was not."""
    slug, _, name = (fork.forked_from or "").rpartition("@")
    return name if slug == origin.model_name else ""


def _depth(tree: Tree, name: str) -> int:
    """Steps up to a checkpoint of the head's lineage; 0 if the name is unknown."""
    lineage = tree.lineage(tree.head) if name else ()
    return next((tree.depth(position) for position in lineage if tree[position].name == name), 0)


def _at_tip(tree: Tree, tip: int | None) -> Run:
    tree = tree.with_head(None if tip is None else tree[tip].id)
    return Run(tree=tree, series=Series.of(tree[p] for p in tree.path(tip)), loaded=True)


def _after(xs: Sequence[float], steps: int) -> float:
    """The x after `steps` steps; 0 before the first."""
    return float(xs[min(steps, len(xs)) - 1]) if steps > 0 and len(xs) else 0.0


# Several runs in one chart, each from its own beginning: by step, time or tokens.


class RunSeries:
    """A run's steps in columns, extended as the run grows. Steps, time and tokens count from its
    start."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """Checkpoint id of each step, shape (N,)."""
        self._xs: dict[Axis, array[float]] = {axis: array("d") for axis in Axis}
        self._columns: dict[str, array[float]] = {}
        self._curves: dict[str, Curve] = {}
        self._origin: float | None = None
        self._places: dict[str, int] = {}
        """Step index by checkpoint id."""
        self._reported: dict[int, Score] = {}
        """Held-out rewards that steps report, by the index (from 0) of the step that was
        sampled."""
        self._evaluations: Mapping[str, Sequence[Evaluation]] = {}
        self._scores: tuple[object, dict[int, Score]] = None, {}
        """Cache of `scores`: what it was computed from, and the result."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, steps: Iterable[Checkpoint]) -> "RunSeries":
        """From the checkpoints that a run made, oldest first."""
        series = cls()
        evaluated = {}
        for node in steps:
            series.add(node.id, seconds(node.created_at), node.num_tokens or 0, metrics_of(node))
            if node.evaluations:
                evaluated[node.id] = node.evaluations
        series.score(evaluated)
        return series

    def add(
        self,
        id_: str,
        stamp: float | None,
        tokens: int,
        metrics: Mapping[str, float | None],
        number: int | None = None,
    ) -> None:
        """Append a step.

        Args:
            stamp: When it was taken, Unix seconds.
            number: Its number in the run, ascending, where not every step is there; None: counted.
        """
        rows = len(self.ids)
        self._places[id_] = rows
        self.ids.append(id_)
        if stamp is not None and self._origin is None:
            self._origin = stamp
        times, counts = self._xs[Axis.TIME], self._xs[Axis.TOKENS]
        before = times[-1] if times else 0.0
        times.append(before if stamp is None else max(before, stamp - (self._origin or stamp)))
        counts.append((counts[-1] if counts else 0.0) + max(0, tokens))
        self._xs[Axis.STEP].append(rows + 1.0 if number is None else float(number))
        for key, value in metrics.items():
            column = self._columns.setdefault(key, array("d"))
            column.extend([nan] * (rows - len(column)))
            column.append(nan if value is None else value)
        held = metrics.get(HELDOUT)
        if held is not None and isfinite(held) and rows:  # it was sampled from the previous step
            self._reported[rows - 1] = reported_score(held, metrics.get(HELDOUT_TRACES))

    def score(self, evaluations: Mapping[str, Sequence[Evaluation]]) -> None:
        """Replace the evaluations of its checkpoints, by checkpoint id."""
        if evaluations:
            self._evaluations = evaluations

    @property
    def scores(self) -> dict[int, Score]:
        """Held-out rewards by index of the sampled step, from 0, ascending. An evaluation wins over
        what a step reports, which is of fewer rollouts and has no interval."""
        stamp = len(self), self._evaluations
        if self._scores[0] == stamp:
            return self._scores[1]
        evaluated = Evaluated()
        for id_, evaluations in self._evaluations.items():
            if id_ in self._places:
                evaluated.put(self._places[id_], evaluations)
        pairs = ((i, evaluated.best_known(i)) for i in evaluated.positions)
        made = {i: evaluation_score(best[0]) for i, best in pairs if best is not None}
        self._scores = stamp, dict(sorted({**self._reported, **made}.items()))
        return self._scores[1]

    def x(self, axis: Axis) -> Sequence[float]:
        """The x of each step, shape (N,), non-decreasing; seconds for time."""
        return self._xs[axis]

    def row_at(self, axis: Axis, x: float) -> int | None:
        """Index of the newest step at an x; None outside the run."""
        xs = self.x(axis)
        return bisect_right(xs, x) - 1 if len(self) and xs[0] <= x <= xs[-1] else None

    @property
    def keys(self) -> list[str]:
        """Metrics that at least one step has."""
        return list(self._columns)

    def curve(self, key: str, weight: float) -> Curve | None:
        """The metric's curve up to the newest step; None if no step has the metric."""
        column = self._columns.get(key)
        if column is None:
            return None
        column.extend([nan] * (len(self.ids) - len(column)))
        curve = self._curves.get(key)
        if curve is None:
            curve = self._curves[key] = Curve(column, weight, key)
        curve.follow(len(self.ids), weight)
        return curve


@dataclass(frozen=True)
class RunLine:
    row: Work
    buckets: Sequence[Bucket]
    """What is drawn: one bucket per chart column that has a value; for a smoothed line only the
    average."""
    last: float
    """Its smoothed value at its last step; NaN if there is none."""
    points: bool = False
    """Whether each bucket is an evaluation, with its interval as lowest and highest value."""


@dataclass(frozen=True)
class RunOverlay:
    key: str
    axis: Axis
    low: float
    high: float
    """Ends of the x axis."""
    lines: Sequence[RunLine]
    """Best first, by the last smoothed value of the metric; the legend has the same order."""

    @property
    def extent(self) -> tuple[float, float]:
        """Smallest and largest value drawn; NaN twice if nothing is drawn."""
        drawn = [bucket for line in self.lines for bucket in line.buckets]
        if not drawn:
            return nan, nan
        return min(bucket.low for bucket in drawn), max(bucket.high for bucket in drawn)


def overlay_runs(
    runs: Sequence[tuple[Work, RunSeries]],
    key: str,
    axis: Axis = Axis.STEP,
    width: int = 80,
    weight: float = 0.0,
) -> RunOverlay:
    """Draw several runs in one chart, each from its own beginning. O(runs · width · log steps).

    Args:
        key: Canonical key of the metric.
        width: Columns of the chart; in braille two per cell.
    """
    xs = [series.x(axis) for _, series in runs if len(series)]
    low = min((x[0] for x in xs), default=0.0)
    high = max(low + 1e-9, max((x[-1] for x in xs), default=1.0))
    lines = [_line(row, series, key, axis, (low, high, width), weight) for row, series in runs]
    ordered = best_first(((line, line.last) for line in lines), key)
    return RunOverlay(key, axis, low, high, ordered)


def _line(
    row: Work,
    series: RunSeries,
    key: str,
    axis: Axis,
    frame: tuple[float, float, int],
    weight: float,
) -> RunLine:
    low, high, width = frame
    if canonical(key) == HELDOUT:
        return _scored(row, series, axis, frame)
    xs, curve = series.x(axis), series.curve(key, weight)
    if curve is None or not len(series):
        return RunLine(row, (), nan)
    rows = (0, len(series))
    if weight:
        buckets = _trend(curve, xs, frame, rows)
    else:
        buckets = curve.buckets(xs, low, high, width, rows)
    return RunLine(row, buckets, curve.ema.average(curve.column, len(series) - 1))


def _scored(row: Work, series: RunSeries, axis: Axis, frame: tuple[float, float, int]) -> RunLine:
    """The line of evaluations. They are few and have intervals, so they are not averaged."""
    (low, high, width), xs = frame, series.x(axis)
    wide = (high - low) / max(1, width - 1)
    by_column = {}
    for index, score in series.scores.items():
        column = round((xs[index] - low) / wide)
        least, most = (score.value if end is None else end for end in (score.low, score.high))
        by_column[column] = Bucket(column, least, most, score.value, score.joins, index)
    buckets = list(by_column.values())  # if several share a column, the newest
    last = buckets[-1].smooth if buckets else nan
    return RunLine(row, buckets, last, points=True)


def _trend(
    curve: Curve, xs: Sequence[float], frame: tuple[float, float, int], rows: tuple[int, int]
) -> list[Bucket]:
    """Buckets of the moving average alone: with several lines in a chart, ranges would hide each
    other."""
    low, high, width = frame
    edges = column_edges(xs, low, high, width, *rows)
    first, column = curve.pyramid.first, curve.column
    if first is None:
        return []
    buckets = []
    for cell, (start, stop) in enumerate(pairwise(edges)):
        if start < stop and stop > first:
            smooth = curve.ema.average(column, stop - 1)
            buckets.append(Bucket(cell, smooth, smooth, smooth, True))
    return buckets


def best_first(valued: Iterable[tuple[T, float]], key: str) -> list[T]:
    """Items sorted by their value of a metric, best first; those without a value last. For a metric
    where neither direction is better, the largest value is first."""
    sign = -1 if metric(key).better >= 0 else 1
    ranked = sorted(valued, key=lambda item: sign * item[1] if isfinite(item[1]) else inf)
    return [thing for thing, _ in ranked]


def score_at(series: RunSeries, axis: Axis, x: float) -> Score | None:
    """A run's newest held-out reward at a crosshair; None outside the run, or before the first."""
    row = series.row_at(axis, x)
    scores = [] if row is None else [s for index, s in series.scores.items() if index <= row]
    return scores[-1] if scores else None


def value_at(series: RunSeries, key: str, axis: Axis, x: float, weight: float = 0.0) -> float:
    """A run's smoothed value at a crosshair, or its newest held-out reward; NaN outside the run, or
    where it has no value."""
    if canonical(key) == HELDOUT:
        score = score_at(series, axis, x)
        return nan if score is None else score.value
    row, curve = series.row_at(axis, x), series.curve(key, weight)
    return nan if curve is None or row is None else curve.ema.average(curve.column, row)


# What the Live view's charts show of a run, as chosen by the user.


LEAST_STEPS = 10
"""Fewest visible steps when zoomed in."""


@dataclass(frozen=True)
class ChartView:
    """Smoothing, scales, the visible steps, and the overlay of charts."""

    smoothing: int = 2
    """Index into WEIGHTS."""
    log: bool = False
    axis: Axis = Axis.STEP
    clip: bool = False
    """Whether outliers may be cut off, so that the other values fill the chart."""
    envelope: bool = True
    """Whether the range of the raw values is drawn behind the average."""
    span: int | None = None
    """Number of visible steps; None for all."""
    end: int | None = None
    """One past the last visible step; None follows the newest."""
    overlay: Overlay | None = None

    @property
    def weight(self) -> float:
        """The moving average's weight of the past; 0 without smoothing."""
        return WEIGHTS[self.smoothing]

    def of(self, key: str) -> "ChartView":
        """The same for one metric: those of `SIZES` are not smoothed."""
        return replace(self, smoothing=0) if key in SIZES and self.smoothing else self

    @property
    def ranged(self) -> bool:
        """Whether the raw values are drawn."""
        return self.envelope or not self.weight

    def rows(self, length: int) -> tuple[int, int]:
        """The visible rows of a series of `length`: first, and one past the last."""
        if self.span is None:
            return 0, length
        end = length if self.end is None else min(self.end, length)
        return max(0, min(end - self.span, length - self.span)), end

    def zoomed(self, times: int, length: int, around: int | None) -> "ChartView":
        """Zoomed in by 2 ** `times`, or out if `times` is negative.

        Args:
            around: Row that stays visible; None for the newest.
        """
        start, end = self.rows(length)
        size = (end - start) // 2**times if times > 0 else (end - start) * 2**-times
        if around is None and size < length:
            return replace(self, span=max(min(LEAST_STEPS, length), size))
        return self._sized(size, length, lambda span: (around or 0) + span // 2 + 1)

    def _sized(self, size: int, length: int, end: Callable[[int], int]) -> "ChartView":
        """Showing `size` steps, at least LEAST_STEPS; `end`: span → one past the last of them."""
        if size >= length:
            return replace(self, span=None, end=None)
        span = max(min(LEAST_STEPS, length), size)
        return replace(self, span=span, end=_clamped_end(end(span), span, length))

    def scaled(self, factor: float, length: int, row: int, share: float) -> "ChartView":
        """With `factor` times as many visible steps, and `row` at the same place.

        Args:
            factor: Greater than 0; below 1 zooms in.
            share: Its place along the chart, in [0, 1].
        """
        start, end = self.rows(length)
        near = min(end - start - 1, int((end - start) * factor))
        size = near if factor < 1 else max(end - start + 1, int((end - start) * factor))
        return self._sized(size, length, lambda span: round(row - share * (span - 1)) + span)

    def spanning(self, first: int, last: int, length: int) -> "ChartView":
        """Showing rows `first` to `last`, or LEAST_STEPS around their middle if they are fewer."""
        size = max(min(LEAST_STEPS, length), last - first + 1)
        return self._sized(size, length, lambda span: (first + last + 1 + span) // 2)

    def panned(self, halves: int, length: int) -> "ChartView":
        """Moved by `halves` times half the visible steps, within the run."""
        if self.span is None:
            return self
        _, end = self.rows(length)
        end += halves * max(1, self.span // 2)
        return replace(self, end=_clamped_end(end, self.span, length))

    def showing(self, row: int, length: int) -> "ChartView":
        """Moved as little as makes a row visible."""
        start, end = self.rows(length)
        if self.span is None or start <= row < end:
            return self
        new_end = row + self.span if row < start else row + 1
        return replace(self, end=_clamped_end(new_end, self.span, length))


def _clamped_end(end: int, span: int, length: int) -> int | None:
    """One past the last visible step, within the run; None if that is the newest."""
    return None if end >= length else max(min(span, length), end)
