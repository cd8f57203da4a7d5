"""Pyramid: the least and the greatest of any stretch of a growing column, without reading it.

A chart of a hundred thousand steps has a few hundred columns. Each level of the pyramid
holds the extremes of FAN entries of the level below, so a stretch is a few slices of
each level: O(FAN · log n), whatever its length. A new row costs a constant on average.

Source: the pre-aggregation of Jugel et al. 2014 (M4, PVLDB 7(10), section 3), of which
the extremes alone are kept: they are all that a column one pixel wide can show.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite, nan

FAN = 16
"""Entries of one level under one entry of the next."""


class Pyramid:
    """The extremes of a column's rows; rows that are not finite are left out."""

    def __init__(self) -> None:
        self.length = 0
        """Rows seen."""
        self.finite = 0
        """Rows seen that hold a number."""
        self.first: int | None = None
        """The first row that holds one."""
        self._levels: list[tuple[array[float], array[float]]] = []
        """Least and greatest of each whole block of FAN ** (level + 1) rows; inf, −inf if none."""

    def extend(self, column: Sequence[float], length: int) -> None:
        """See the column's rows up to `length`; those seen before are as they were."""
        for row in range(self.length, length):
            if isfinite(column[row]):
                self.finite += 1
                self.first = row if self.first is None else self.first
        for start in range(self.length // FAN * FAN, length - FAN + 1, FAN):
            self._append(0, *_extremes(column[start : start + FAN]))
        self.length = max(self.length, length)

    def span(self, column: Sequence[float], low: int, high: int) -> tuple[float, float]:
        """Least and greatest of rows [low, high); NaN twice where none is a number.

        `column` is the one it was extended by; 0 ≤ low ≤ high ≤ length.
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
