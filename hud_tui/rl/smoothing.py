"""The reward of every checkpoint of a tree, from noisy means of some of them.

Neighbours in a lineage inform each other, because weights change little from step to step. Level
and slope of the reward follow an integrated random walk along the tree, so that the posterior mean
is a cubic smoothing spline; after a branch point each branch continues by itself. A pass from the
leaves to the root and one back give the posterior of every node in linear time. How much the curve
bends and how noisy the means are is weighed by the marginal likelihood.

Sources: Wahba 1978, "Improper priors, spline smoothing and the problem of guarding against model
errors in regression" (the spline as an integrated random walk); Weiss and Freeman 2001,
"Correctness of belief propagation in Gaussian graphical models of arbitrary topology" (a tree needs
two passes); Gelman et al. 2013, "Bayesian Data Analysis", section 3.2 (the noise).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from typing import NamedTuple

BENDS = (0.2, 0.6, 2.0, 6.0, 20.0, 200.0, 2000.0)
"""How far bending alone may carry the reward over the depth of the tree: candidates for that
variance, in units of the variance of one rollout. Largest for a sudden collapse in a long run."""
FLAT = 1000.0
"""Prior variance of the root's level and of the steady rise over the depth, in that unit: next to
any reward."""
VARIANCE = 0.8
"""Expected variance of a rollout's reward within its task, as a share of m(1 − m), which it has
where all tasks are equally hard."""
BELIEF = 10.0
"""Weight of that expectation, in observed means."""
LEAST = 0.02
"""Least m(1 − m) that is expected: all solved, or none, says little of the next rollouts."""
NEGLIGIBLE = 0.01
"""Share of the likelihood below which a candidate is left out."""


class Node(NamedTuple):
    parent: int
    """Position of its parent, which is lower than its own; any for the root, which is first."""
    gap: float
    """Optimizer steps from its parent; positive but for the root."""
    mean: float | None = None
    """Mean reward of rollouts of its weights; None if there are none."""
    rollouts: int = 1
    """Their number; 1 if it is unknown."""


Pair = tuple[float, float]
"""A vector over level and slope."""
Symmetric = tuple[float, float, float]
"""A symmetric matrix over level and slope: its first row, then its last entry."""
Square = tuple[float, float, float, float]
"""A matrix over level and slope, row by row."""


class Conditional(NamedTuple):
    """The state of a node, given its parent's and all rollouts at and below it: normal with the
    mean `gain` · parent + `offset` and the covariance `spread`, in units of the noise."""

    gain: Square
    offset: Pair
    spread: Symmetric


class Fit(NamedTuple):
    """The posterior for one of BENDS."""

    share: float
    """Its share of the likelihood."""
    noise: float
    """Posterior mean of the variance of a mean of as many rollouts as the average one has."""
    levels: Sequence[float]
    covariances: Sequence[Symmetric]
    """Of level and slope at each node, in units of `noise`."""
    gains: Sequence[Square]

    def covariance(self, path: Sequence[int], other: Sequence[int], ancestor: int) -> float:
        """Covariance of the levels of two nodes.

        Args:
            path, other: The nodes below their common ancestor, down to each of them.
        """
        level, both, slope = self.covariances[ancestor]
        matrix = (level, both, both, slope)
        for node in path:
            matrix = _times(self.gains[node], matrix)
        for node in other:
            gain = self.gains[node]
            matrix = _times(matrix, (gain[0], gain[2], gain[1], gain[3]))
        return self.noise * matrix[0]


@dataclass(frozen=True)
class Smoothed:
    """The reward of each node."""

    nodes: Sequence[Node]
    fits: Sequence[Fit]

    @cached_property
    def means(self) -> Sequence[float]:
        return [
            sum(fit.share * fit.levels[node] for fit in self.fits)
            for node in range(len(self.nodes))
        ]

    def deviation(self, node: int) -> float:
        """Posterior standard deviation."""
        mean = self.means[node]
        parts = (
            fit.share * (fit.noise * fit.covariances[node][0] + (fit.levels[node] - mean) ** 2)
            for fit in self.fits
        )
        return sqrt(max(0.0, sum(parts)))

    def difference(self, node: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of the reward of a node minus that of another."""
        ways = self._lineage(node), self._lineage(other)
        shared = sum(1 for pair in zip(*ways, strict=False) if pair[0] == pair[1])
        path, others = (way[shared:] for way in ways)
        delta = self.means[node] - self.means[other]
        variance = 0.0
        for fit in self.fits:
            together = fit.covariance(path, others, ways[0][shared - 1])
            alone = fit.noise * (fit.covariances[node][0] + fit.covariances[other][0])
            apart = fit.levels[node] - fit.levels[other] - delta
            variance += fit.share * (alone - 2 * together + apart * apart)
        return delta, sqrt(max(0.0, variance))

    def _lineage(self, node: int) -> list[int]:
        lineage = [node]
        while lineage[-1]:
            lineage.append(self.nodes[lineage[-1]].parent)
        return lineage[::-1]


def smoothed(nodes: Sequence[Node]) -> Smoothed:
    """The reward of each node of a tree.

    Args:
        nodes: Shape (N,), the root first, each after its parent; at least one has a mean. Means on
            the same tasks have less noise than their number of rollouts says; it is estimated.
    """
    observed = [(node.mean, node.rollouts) for node in nodes if node.mean is not None]
    total = sum(rollouts for _, rollouts in observed)
    center = sum(mean * rollouts for mean, rollouts in observed) / total
    average = total / len(observed)
    is_share = all(0 <= mean <= 1 for mean, _ in observed)
    belief = BELIEF if is_share and average > 1 else 0.0
    expected = VARIANCE * max(center * (1 - center), LEAST) / average
    depth = max(1.0, *_depths(nodes))
    freedom = belief + len(observed)
    scored = []
    for bend in BENDS:
        # The walk's level gains the variance rate · depth³ / 3.
        rate, flat = 3 * average * bend / depth**3, average * FLAT
        determinant, square, conditionals = _up(nodes, center, average, rate, flat, flat / depth**2)
        squares = max(belief * expected + square, 1e-12)
        scored.append((-(determinant + freedom * log(squares)) / 2, squares, conditionals))
    top = max(score for score, _, _ in scored)
    shares = [exp(score - top) for score, _, _ in scored]
    least = NEGLIGIBLE * sum(shares)
    whole = sum(share for share in shares if share > least)
    fits = [
        _down(nodes, center, shares[index] / whole, squares / max(freedom - 2, 1), conditionals)
        for index, (_, squares, conditionals) in enumerate(scored)
        if shares[index] > least
    ]
    return Smoothed(nodes, fits)


def _depths(nodes: Sequence[Node]) -> Iterator[float]:
    depths: list[float] = []
    for node in nodes:
        depths.append(depths[node.parent] + node.gap if depths else 0.0)
    return iter(depths)


def _up(
    nodes: Sequence[Node], center: float, average: float, rate: float, level: float, slope: float
) -> tuple[float, float, list[Conditional]]:
    """The pass from the leaves to the root, in units of the noise.

    Each node collects the precision matrix and the precision-weighted mean of all that is at and
    below it, and passes them on to its parent through one stretch of the walk: its state is F times
    the parent's plus w, with F = [[1, gap], [0, 1]] and cov(w) = Q = rate · [[gap³/3, gap²/2],
    [gap²/2, gap]].

    Args:
        rate: Variance that the slope gains per step.
        level, slope: Prior variances at the root.

    Returns:
        Of the density of all means: the logarithm of its determinant and its quadratic form; and
        each node's state given its parent's.
    """
    precision = [[0.0, 0.0, 0.0] for _ in nodes]
    weighted = [[0.0, 0.0] for _ in nodes]
    determinant = square = 0.0
    conditionals = list[Conditional]()
    for index, node in enumerate(nodes):
        if node.mean is not None:
            weight, mean = node.rollouts / average, node.mean - center
            precision[index][0] = weight
            weighted[index][0] = weight * mean
            square += weight * mean * mean
            determinant -= log(weight)
    for index in range(len(nodes) - 1, -1, -1):
        (a, b, c), (u, v), gap = precision[index], weighted[index], nodes[index].gap
        if index:
            q11, q12, q22 = rate * gap**3 / 3, rate * gap**2 / 2, rate * gap
        else:
            q11, q12, q22, gap = level, 0.0, slope, 0.0
        # The inverse of I + Q · precision
        s11, s12 = 1 + q11 * a + q12 * b, q11 * b + q12 * c
        s21, s22 = q12 * a + q22 * b, 1 + q12 * b + q22 * c
        scale = s11 * s22 - s12 * s21
        determinant += log(scale)
        i11, i12, i21, i22 = s22 / scale, -s12 / scale, -s21 / scale, s11 / scale
        g, h = i11 * u + i21 * v, i12 * u + i22 * v
        square -= u * (q11 * g + q12 * h) + v * (q12 * g + q22 * h)
        v11, v12 = i11 * q11 + i12 * q12, i11 * q12 + i12 * q22
        v22 = i21 * q12 + i22 * q22
        conditionals.append(
            Conditional(
                gain=(i11, i11 * gap + i12, i21, i21 * gap + i22),
                offset=(v11 * u + v12 * v, v12 * u + v22 * v),
                spread=(v11, v12, v22),
            )
        )
        if index:
            above, means = precision[nodes[index].parent], weighted[nodes[index].parent]
            j11, j12, j22 = a * i11 + b * i21, a * i12 + b * i22, b * i12 + c * i22
            above[0] += j11
            above[1] += j11 * gap + j12
            above[2] += j11 * gap * gap + 2 * j12 * gap + j22
            means[0] += g
            means[1] += g * gap + h
    return determinant, square, conditionals[::-1]


def _down(
    nodes: Sequence[Node],
    center: float,
    share: float,
    noise: float,
    conditionals: Sequence[Conditional],
) -> Fit:
    """The pass from the root to the leaves: each node's posterior from its parent's."""
    states, covariances = list[Pair](), list[Symmetric]()
    for index, given in enumerate(conditionals):
        if not index:
            states.append(given.offset)
            covariances.append(given.spread)
            continue
        g11, g12, g21, g22 = given.gain
        level, slope = states[nodes[index].parent]
        p11, p12, p22 = covariances[nodes[index].parent]
        states.append(
            (
                g11 * level + g12 * slope + given.offset[0],
                g21 * level + g22 * slope + given.offset[1],
            )
        )
        a11, a12, a21, a22 = _times(given.gain, (p11, p12, p12, p22))
        covariances.append(
            (
                a11 * g11 + a12 * g12 + given.spread[0],
                a11 * g21 + a12 * g22 + given.spread[1],
                a21 * g21 + a22 * g22 + given.spread[2],
            )
        )
    levels = [center + level for level, _ in states]
    return Fit(share, noise, levels, covariances, [given.gain for given in conditionals])


def _times(a: Square, b: Square) -> Square:
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    )
