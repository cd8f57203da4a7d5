"""Which of many tasks differ by more than chance.

Sources: Fisher 1935, "The Design of Experiments", section 21 (the permutation test); Benjamini and
Hochberg 1995 (the correction for looking at many).
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb, erfc, fsum, sqrt

FALSE = 0.05
"""Expected share of chance among the tasks that are called different."""
ENUMERATED = 1000
"""Number of permutations up to which all are tried."""
RESIDUE = 1e-6
"""Tolerance for rewards that were rounded to 32 bits."""


def differing(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[int]:
    """Positions of the tasks whose mean rewards differ by more than chance.

    Args:
        pairs: Rewards of each task before and after, shape (N,).
    """
    ps = [p_value(before, after) for before, after in pairs]
    order = sorted(range(len(ps)), key=lambda position: ps[position])
    ranks = range(1, len(ps) + 1)
    passing = [rank for rank in ranks if ps[order[rank - 1]] * len(ps) <= FALSE * rank]
    return sorted(order[: max(passing, default=0)])


def p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """Probability that rewards which do not depend on before and after have means that differ as
    much: the two-sided permutation test. Exact for two values, or few permutations; else normal."""
    values, size, total = [*before, *after], len(before), len(before) + len(after)
    if not before or not after or max(values) - min(values) <= RESIDUE:
        return 1.0
    least, most = min(values), max(values)
    if max(min(value - least, most - value) for value in values) <= RESIDUE:
        high, high_of_all = (
            sum(value > (least + most) / 2 for value in part) for part in (before, values)
        )
        return _hypergeometric(high, high_of_all, size, total)
    mean = fsum(values) / total
    off = abs(fsum(before) - size * mean)
    if comb(total, size) <= ENUMERATED:
        sums = [abs(fsum(chosen) - size * mean) for chosen in combinations(values, size)]
        return sum(each >= off - RESIDUE for each in sums) / len(sums)
    variance = fsum((value - mean) ** 2 for value in values) / (total - 1)
    return erfc(off / sqrt(2 * variance * size * len(after) / total))


def _hypergeometric(high: int, high_of_all: int, size: int, total: int) -> float:
    """Fisher's exact test, two-sided: all tables whose means are as far apart.

    Args:
        high: Number of high rewards among the first `size` of `total`.
    """
    expected = high_of_all * size / total
    least, most = max(0, size - (total - high_of_all)), min(size, high_of_all)
    ways = (
        comb(high_of_all, k) * comb(total - high_of_all, size - k)
        for k in range(least, most + 1)
        if abs(k - expected) >= abs(high - expected) - RESIDUE
    )
    return sum(ways) / comb(total, size)
