"""Ema: a noisy metric's trend, one row at a time.

It is computed over every step, before a chart picks columns, so zooming and resizing
never change it. The bias correction makes the first steps an average of what is known
and not a climb from zero.

Source: Kingma and Ba 2015 (Adam, arXiv:1412.6980), section 3, for the correction.
"""

from array import array
from collections.abc import Sequence
from math import isfinite, nan

WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""How much of the past each step keeps: none to about a hundred steps."""


class Ema:
    """The exponential moving average of a growing column, as a column of its own."""

    def __init__(self, weight: float) -> None:
        """`weight` in [0, 1): the share of the past in each step; 0 is the raw column."""
        self.weight = weight
        self.values = array("d")
        """One a row; where a row holds no number, the average before it."""
        self._sum, self._mass = 0.0, 0.0

    def extend(self, column: Sequence[float], length: int) -> None:
        """Follow the column's rows up to `length`."""
        fresh = 1.0 - self.weight
        for row in range(len(self.values), length):
            value = column[row]
            if isfinite(value):
                self._sum = self.weight * self._sum + fresh * value
                self._mass = self.weight * self._mass + fresh
            self.values.append(self._sum / self._mass if self._mass else nan)
