"""Ema: a noisy metric's trend, one row at a time.

It is computed over every step, before a chart picks columns, so zooming and resizing
never change it. The bias correction makes the first steps an average of what is known
and not a climb from zero.

Source: Kingma and Ba 2015 (Adam, arXiv:1412.6980), section 3, for the correction.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate, islice, repeat
from math import isfinite, nan

WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""How much of the past each step keeps: none to about a hundred steps."""

SETTLED = 4096
"""Rows after which the bias correction is 1 to all digits: .99 ** 4096 < 2 ** -53."""
STRETCH = 2 * SETTLED
"""From so many rows at once the quick way is worth it."""
EVERY = 16
"""Rows from one sum that is kept to the next: a column of all of them would take as much
memory as the metric."""


class Ema:
    """The exponential moving average of a growing column."""

    def __init__(self, weight: float) -> None:
        """`weight` in [0, 1): the share of the past in each step; 0 is the raw column."""
        self.weight = weight
        self.length = 0
        """Rows followed."""
        self._kept = array("d"), array("d")
        """Weighted sum, and the weight in it, after every EVERY rows."""
        self._now = 0.0, 0.0

    def at(self, column: Sequence[float], row: int) -> float:
        """The average as of a row; where it holds no number, the one before it.

        Args:
            column: The metric that it followed.
            row: Of those followed.
        """
        block = (row + 1) // EVERY
        if row == self.length - 1:
            total, mass = self._now
        else:
            sums, masses = self._kept
            state = (sums[block - 1], masses[block - 1]) if block else (0.0, 0.0)
            total, mass = self._passed(state, column[block * EVERY : row + 1])
        return total / mass if mass else nan

    def extend(self, column: Sequence[float], length: int, whole: bool = False) -> None:
        """Follow the column's rows up to `length`.

        Args:
            column: The metric.
            length: Rows to follow.
            whole: Whether every one of these rows holds a number; then a long stretch is quick.
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
                for kept, value in zip(self._kept, self._now, strict=True):
                    kept.append(value)

    def _leap(self, column: Sequence[float], length: int) -> None:
        """Rows that all hold numbers, once the correction is 1."""
        past, fresh = self.weight, 1.0 - self.weight
        sums, masses = self._kept
        each = accumulate(
            column[self.length : length],
            lambda total, x: past * total + fresh * x,
            initial=self._now[0],
        )
        sums.extend(islice(each, EVERY, None, EVERY))
        masses.extend(repeat(1.0, len(sums) - len(masses)))
        self._now, self.length = (sums[-1], 1.0), length

    def _passed(self, state: tuple[float, float], values: Sequence[float]) -> tuple[float, float]:
        """The state after some more rows."""
        past, fresh = self.weight, 1.0 - self.weight
        total, mass = state
        for value in values:
            if isfinite(value):
                total = past * total + fresh * value
                mass = past * mass + fresh
        return total, mass
