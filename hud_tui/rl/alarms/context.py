"""Context: how the run itself is doing, which tells a bad sign from a good one.

Entropy falls while a policy learns; it is a collapse when it falls and nothing is learnt.
"""

from array import array
from dataclasses import dataclass, field
from math import nan

from hud_tui.rl.alarms.rows import HELDOUT, REWARD, REWARD_MAX, REWARD_STD, Row
from hud_tui.rl.alarms.statistics import Ema, Window

LAG, MOST_LAG = 30, 300
"""Steps over which a trend is judged: a fifth of the run, within these bounds."""
CLIMB, CLIMB_SIGMAS = 0.05, 0.5
"""A rise of this share of all that the curve has ever moved is a climb; or one of so many
robust standard deviations of its noise."""
SOLVED = 0.9
"""Of the greatest reward there is: no more to be learnt, and no harm in entropy near 0."""


class Trend:
    """Where a metric is going."""

    def __init__(self, weight: float, every: int = 1) -> None:
        """`every` is how many steps lie between two of its values, about."""
        self.ema, self._every = Ema(weight), every
        self._past, self._noise = array("d"), Window(64)
        self._low = self._high = nan

    @property
    def value(self) -> float:
        return self.ema.value

    @property
    def known(self) -> bool:
        return self.ema.seen > 0

    @property
    def before(self) -> float:
        """What it was where the trend is judged from; NaN while that is too short ago."""
        n = len(self._past)
        lag = max(LAG // self._every, min(MOST_LAG // self._every, n // 5))
        return self._past[n - 1 - lag] if n > lag else nan

    @property
    def climbing(self) -> bool:
        """Whether it has risen lately; False where there is too little to tell."""
        gain, moved = self.value - self.before, self._high - self._low
        noise = CLIMB_SIGMAS * self._noise.sigma
        return gain > 1e-9 * abs(self.value) and (gain > noise or gain > CLIMB * moved)

    def push(self, value: float) -> None:
        if self.ema.seen:
            self._noise.push(value - self.ema.value)
        smooth = self.ema.push(value)
        self._past.append(smooth)
        self._low = smooth if not self._low < smooth else self._low
        self._high = smooth if not self._high > smooth else self._high


@dataclass
class Context:
    """Read before the detectors, row by row."""

    steps: int | None = None
    """How many the run will have; None where unknown."""
    reward: Trend = field(default_factory=lambda: Trend(0.9))
    heldout: Trend = field(default_factory=lambda: Trend(0.7, every=5))
    ceiling: float = nan
    """The greatest reward of any rollout so far; 1 at least where all rewards are in 0…1."""
    place: int = -1

    def read(self, row: Row) -> None:
        self.place = row.place
        reward, heldout = REWARD.read(row), HELDOUT.read(row)
        if reward is not None:
            self.reward.push(reward)
            self._raise_ceiling(row, reward)
        if heldout is not None:
            self.heldout.push(heldout)

    @property
    def solved(self) -> bool:
        """Whether the reward is near the greatest there is."""
        value = self.reward.value
        return value > 0 and value >= SOLVED * self.ceiling

    def remaining(self, otherwise: int) -> int:
        """Steps that the run still has."""
        return otherwise if self.steps is None else max(0, self.steps - self.place - 1)

    def _raise_ceiling(self, row: Row, reward: float) -> None:
        greatest, spread = REWARD_MAX.read(row), REWARD_STD.read(row)
        if greatest is None:  # two deviations above the mean, as far as rewards go
            greatest = max(1.0 if 0 <= reward <= 1 else reward, reward + 2 * (spread or 0.0))
        self.ceiling = greatest if not self.ceiling > greatest else self.ceiling
