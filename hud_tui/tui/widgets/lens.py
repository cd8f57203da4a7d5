"""Lens: how the Live view looks at a run; Sight: the curves that it sees."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hud_tui.rl.axis import Axis, Positions, room
from hud_tui.rl.curves import Bucket, Curve, Curves
from hud_tui.rl.run import Run
from hud_tui.rl.scale import Scale, fit
from hud_tui.rl.smoothing import WEIGHTS


@dataclass(frozen=True)
class Lens:
    """What the user chose about the charts."""

    smoothing: int = 2
    """Index into WEIGHTS."""
    log: bool = False
    axis: Axis = Axis.STEP

    @property
    def weight(self) -> float:
        """The moving average's share of the past; 0 where nothing is smoothed."""
        return WEIGHTS[self.smoothing]


@dataclass
class Sight:
    """The curves and positions of the run on the screen, shared by its charts."""

    _curves: Curves = field(default_factory=Curves)
    _positions: Positions = field(default_factory=Positions)

    def curve(self, run: Run, key: str, lens: Lens) -> Curve:
        """The metric's curve, up to date with the run."""
        return self._curves.of(run.series, key, lens.weight)

    def buckets(self, run: Run, key: str, lens: Lens, columns: int) -> list[Bucket]:
        """The metric spread over a chart's columns, on the lens' x axis."""
        at = self._positions.of(run, self.axis(run, lens))
        return self.curve(run, key, lens).buckets(at, *self.reach(run, lens), columns)

    def axis(self, run: Run, lens: Lens) -> Axis:
        """The lens' x axis; steps where the service gave no times or tokens to measure by."""
        at = self._positions.of(run, lens.axis)
        return lens.axis if len(at) < 2 or at[-1] > at[0] else Axis.STEP

    def reach(self, run: Run, lens: Lens) -> tuple[float, float]:
        """The x of a chart's two sides: steps, seconds or tokens."""
        axis = self.axis(run, lens)
        return _reach(run, self._positions.of(run, axis), axis)


def y_scale(buckets: Sequence[Bucket], log: bool, intervals: float = 0) -> Scale:
    """The y axis that holds all of a chart; see `hud_tui.rl.scale.fit`."""
    low = min((bucket.low for bucket in buckets), default=float("nan"))
    high = max((bucket.high for bucket in buckets), default=float("nan"))
    if log and low <= 0:  # zeros stand on the floor, which is the least value above them
        above = (value for b in buckets for value in (b.low, b.high) if value > 0)
        low = min(above, default=low)
    return fit(low, high, log, intervals)


def _reach(run: Run, at: Sequence[float], axis: Axis) -> tuple[float, float]:
    if not at:
        return 0.0, 1.0
    if axis is Axis.STEP:
        return 1, max(2, room(len(at), _last_step(run)))
    return at[0], max(at[-1], at[0] + 1)


def _last_step(run: Run) -> int | None:
    """How long the lineage will be when the job is done; None where none is under way."""
    if not run.training or run.job is None:
        return None
    length, job = run.series.length, run.job
    return length + max(0, job.steps - (job.step or 0)) if job.steps else 2 * length
