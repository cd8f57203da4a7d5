"""Which step of a lineage did the damage: bisection with noisy evaluations.

The reward along the lineage is one level before the damage and another one after it, with a slope
of some width between them: one step, or a slow decline. Each measurement updates the posterior of
where and how wide it is, whatever the two levels are; the next one is made where it tells the most.
The weights wander from step to step, so that more rollouts of the same checkpoint tell less and
less.

Sources: Waeber, Frazier and Henderson 2013, "Bisection search with noisy responses" (measure where
the posterior is halved); Gelman et al. 2013, "Bayesian Data Analysis", chapter 14 (the likelihood
with the levels integrated out).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import exp, log
from statistics import fmean, variance

from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label
from hud_tui.rl.evaluation import Difference, Scores, difference
from hud_tui.rl.metrics import estimate_text, gain_text
from hud_tui.rl.own_numbers import Own, ends_of
from hud_tui.rl.text import percent
from hud_tui.wire import Estimate

WANDER = 0.02
"""Standard deviation of a checkpoint's reward from that of its neighbours."""
SURE, LIKELIER = 0.95, 0.5
"""Posterior probability from which no more rollouts are needed; from which it is said at the end of
the budget."""
SLOW = 1 / 8
"""Share of the lineage from which a slope is called a slow decline."""
LEAST_DROP = 2 * WANDER
"""Smaller differences are no damage: neighbours differ as much."""
NARROW = 2
"""Most steps that are called one."""
STEP_SHARE = 0.5
"""Prior probability that it was one step."""
LIKELY = 300
"""Number of the likeliest slopes by which the next position is chosen."""
LEAST_NOISE = 0.02
"""Least variance of a rollout's reward that is assumed: all solved, or none, says little."""


@dataclass(frozen=True)
class Measured:
    """The rollouts of one checkpoint."""

    mean: float
    rollouts: int


@dataclass(frozen=True)
class Slope:
    """The reward falls from `first`, the last good position, to `last`."""

    first: int
    last: int

    def share(self, position: int) -> float:
        """How much of the fall has happened at a position, from 0 to 1."""
        return min(1.0, max(0.0, (position - self.first) / (self.last - self.first)))


def slopes(size: int) -> dict[Slope, float]:
    """Every slope between the positions 0 and size − 1, and its prior probability: half on single
    steps, the rest equal for each doubling of the width."""
    widths = [1]
    while widths[-1] * 2 < size:
        widths.append(widths[-1] * 2)
    if widths[-1] < size - 1:
        widths.append(size - 1)
    prior = {}
    for width in widths:
        alone = len(widths) == 1
        share = 1.0 if alone else STEP_SHARE if width == 1 else (1 - STEP_SHARE) / (len(widths) - 1)
        firsts = range(0, size - width, max(1, width // 4))
        for first in firsts:
            prior[Slope(first, first + width)] = share / len(firsts)
    return prior


@dataclass(frozen=True)
class Search:
    """What is known of a lineage of `size` checkpoints, the good one at position 0 and the bad one
    last, from the rollouts of some."""

    size: int
    measured: Mapping[int, Measured]
    """By position; the first and the last are among them."""
    batch: int
    """Number of rollouts of one measurement."""
    variance: float
    """Variance of a rollout's reward within its task."""

    @cached_property
    def posterior(self) -> dict[Slope, float]:
        """Probability of each slope, given that there is one."""
        prior = slopes(self.size)
        scores = {slope: log(share) + self._likelihood(slope) for slope, share in prior.items()}
        top = max(scores.values())
        weights = {slope: exp(score - top) for slope, score in scores.items()}
        total = sum(weights.values())
        return {slope: weight / total for slope, weight in weights.items()}

    def _weight(self, rollouts: int) -> float:
        return 1 / (max(self.variance, LEAST_NOISE) / rollouts + WANDER**2)

    def _likelihood(self, slope: Slope) -> float:
        """Logarithm of the density of the means, both levels integrated out over a flat prior."""
        a = b = c = u = v = square = 0.0
        for position, measured in self.measured.items():
            weight, fallen = self._weight(measured.rollouts), slope.share(position)
            left, mean = 1 - fallen, measured.mean
            a += weight * left * left
            b += weight * left * fallen
            c += weight * fallen * fallen
            u += weight * left * mean
            v += weight * fallen * mean
            square += weight * mean * mean
        determinant = a * c - b * b
        explained = (c * u * u - 2 * b * u * v + a * v * v) / determinant
        return -(square - explained + log(determinant)) / 2

    def done(self, position: int) -> float:
        """Expected share of the damage that is done at a position, from 0 to 1."""
        return sum(share * slope.share(position) for slope, share in self.posterior.items())

    @cached_property
    def next_position(self) -> int:
        """Where one more rollout per task tells the most."""
        return max(range(1, self.size - 1), key=self._gain, default=0)

    def _gain(self, position: int) -> float:
        """Variance of the fall at a position over the posterior, times the precision that is added
        there."""
        mean = square = 0.0
        for slope, share in self._likely:
            fallen = slope.share(position)
            mean += share * fallen
            square += share * fallen * fallen
        before = self.measured.get(position)
        now = 0 if before is None else before.rollouts
        added = self._weight(now + self.batch) - (self._weight(now) if now else 0.0)
        return max(0.0, square - mean * mean) * added

    @cached_property
    def range(self) -> tuple[int, int]:
        """The positions between which the damage was done with 95 %."""
        from_first = sorted(self.posterior, key=lambda slope: slope.first)
        from_last = sorted(self.posterior, key=lambda slope: -slope.last)
        return self._beyond_tail(from_first).first, self._beyond_tail(from_last).last

    def _beyond_tail(self, slopes: Sequence[Slope]) -> Slope:
        """The first slope up to which they have more probability than one tail."""
        totals = accumulate(self.posterior[slope] for slope in slopes)
        tail = (1 - SURE) / 2
        return next(slope for slope, total in zip(slopes, totals, strict=True) if total > tail)

    def near(self, step: int) -> float:
        """Probability that the damage was done within one step of `step`, by one or two."""
        return sum(
            share
            for slope, share in self.posterior.items()
            if slope.last - slope.first <= NARROW and abs(slope.last - step) <= 1
        )

    @cached_property
    def step(self) -> int:
        """The most likely position of the first bad checkpoint."""
        narrow = [s for s in self.posterior if s.last - s.first == 1]
        return max(narrow, key=self.posterior.__getitem__).last

    @cached_property
    def slow(self) -> float:
        """Probability of a slow decline."""
        least = max(NARROW + 1, SLOW * self.size)
        return sum(p for slope, p in self.posterior.items() if slope.last - slope.first >= least)

    @cached_property
    def _likely(self) -> list[tuple[Slope, float]]:
        ranked = sorted(self.posterior.items(), key=lambda pair: -pair[1])
        return ranked[:LIKELY]


# What is evaluated next, and what it comes to.


FIRST, LOOKS = 4, 2
"""Rollouts per task of the good and the bad checkpoint at first; how often as many are added until
the bad one is worse beyond chance."""
USUAL_BUDGET = 2000
"""Most rollouts, unless another number is given."""


@dataclass(frozen=True)
class Ask:
    """Rollouts to be made."""

    position: int
    samples: int
    """Per task."""


@dataclass(frozen=True)
class Bisection:
    """A lineage of `size` checkpoints, the good one at position 0 and the bad one last, and the
    rewards of those that were evaluated, all on the same tasks."""

    size: int
    scores: Mapping[int, Scores]

    @cached_property
    def drop(self) -> Difference | None:
        """How the bad one differs from the good one; None before both are evaluated."""
        ends = [self.scores.get(position) for position in (0, self.size - 1)]
        if ends[0] is None or ends[1] is None:
            return None
        return difference(ends[0], ends[1], comparisons=LOOKS)

    @property
    def rollouts(self) -> int:
        return sum(scores.rollouts for scores in self.scores.values())

    @cached_property
    def search(self) -> Search | None:
        """The posterior of where the damage was done; None unless the bad one is worse."""
        if self.drop is None or not self.drop.is_worse:
            return None
        if self.drop.reward.value > -LEAST_DROP:
            return None
        rewards = [task.rewards for scores in self.scores.values() for task in scores.tasks]
        spread = [variance(each) for each in rewards if len(each) > 1]
        measured = {
            position: Measured(scores.mean_reward, scores.rollouts)
            for position, scores in self.scores.items()
        }
        return Search(self.size, measured, len(self.drop.changes), fmean(spread))

    @property
    def step(self) -> int | None:
        """Position of the step that did the damage; None while it is not known."""
        return self.search.step if self.search is not None and self.kind == "step" else None

    def asks(self, budget: int) -> list[Ask]:
        """What is to be evaluated next; empty if it is decided or would exceed the budget."""
        ends = (0, self.size - 1)
        if self.drop is None:
            return [Ask(end, FIRST) for end in ends if end not in self.scores]
        tasks = len(self.drop.changes)
        if self.search is None:
            wanted = FIRST * LOOKS
            few = [
                Ask(end, FIRST)
                for end, samples in zip(ends, self.drop.samples, strict=True)
                if samples < wanted
            ]
            fits = self.rollouts + len(few) * FIRST * tasks <= budget
            return few if fits else []
        if self.rollouts + tasks > budget or self.search.slow >= SURE:
            return []
        if self.search.near(self.search.step) < SURE:
            return [Ask(self.search.next_position, 1)]
        beside = (self.search.step - 1, self.search.step)  # which of three it was
        return [Ask(position, 1) for position in beside if position not in self.scores][:1]

    @property
    def kind(self) -> str:
        """``none``: the bad one is not worse beyond chance; ``step`` or ``slow``: what is more
        likely; ``open``: both are unlikely yet, or nothing is known."""
        search = self.search
        if search is None:
            whole = self.drop is not None and min(self.drop.samples) >= FIRST * LOOKS
            return "none" if whole else "open"
        near = search.near(search.step)
        if max(near, search.slow) < LIKELIER:
            return "open"
        return "step" if near >= search.slow else "slow"

    def sentences(self, name_of: Callable[[int], str]) -> list[str]:
        """The verdict; `name_of` gives a checkpoint's name by its position."""
        if self.drop is None:
            return ["Nothing was sampled for this yet"]
        good, bad = name_of(0), name_of(self.size - 1)
        if self.search is None:
            verdict = f"{bad} is not worse than {good} beyond chance"
            if self.drop.is_worse:
                verdict = (
                    f"{bad} is worse than {good} by no more than neighbouring checkpoints differ"
                )
            return [verdict, *self.drop.sentences(good, bad)]
        fall = f"{bad} − {good}: mean reward {gain_text(self.drop.reward)}"
        search, kind = self.search, self.kind
        if kind == "step":
            sure = percent(search.near(search.step))
            first = f"{name_of(search.step)} did the damage ({sure} sure, ± 1 step)"
            return [first, f"the last good checkpoint is {name_of(search.step - 1)}", fall]
        low, high = search.range
        where = f"between {name_of(low)} and {name_of(high)}"
        if kind == "slow":
            return [f"a slow decline {where} ({percent(search.slow)} sure)", fall]
        return [f"the damage was done {where}", fall]


# Which lineage.


def path_between(tree: Tree, good: int, bad: int) -> list[int]:
    """The positions from `good` to `bad`, both included; ROOT for the base. Raises HudUsage: the
    bad one does not descend from the good one."""
    path = [bad]
    while path[-1] not in (good, ROOT):
        path.append(tree.parent(path[-1]))
    if path[-1] != good or good == bad:
        names = label(tree.node(bad)), label(tree.node(good))
        raise HudUsage(f"{names[0]} does not come after {names[1]}", "name two of one lineage")
    return path[::-1]


def why_nothing(tree: Tree, good: int, bad: int) -> str:
    """Why there is nothing to find: the bad one's own reward is higher beyond chance; empty if it
    is not, or too little is known."""
    sides = [_known(tree.own(position)) for position in (good, bad)]
    for metric in ("held-out", "reward"):
        before, after = (side.get(metric) for side in sides)
        if before is not None and after is not None:
            if ends_of(*after)[0] <= ends_of(*before)[1]:
                return ""
            better, other = (
                f"{label(tree.node(position))} ({metric} {_mean_text(*value)})"
                for position, value in ((bad, after), (good, before))
            )
            return f"Nothing to bisect: {better} is better than {other}."
    return ""


def _mean_text(mean: float, rollouts: int) -> str:
    low, high = ends_of(mean, rollouts)
    return f"{estimate_text(Estimate(value=mean, low=low, high=high))}, n {rollouts}"


def _known(own: Own) -> dict[str, tuple[float, int]]:
    """Mean and number of rollouts of shares, by metric."""
    rewards = {"reward": (own.reward, own.sampled)}
    if not own.apart:
        rewards["held-out"] = (own.heldout, own.heldout_rollouts or 0)
    return {
        metric: (mean, rollouts)
        for metric, (mean, rollouts) in rewards.items()
        if mean is not None and rollouts and 0 <= mean <= 1
    }


def before_damage(tree: Tree, bad: int) -> int:
    """Position of what is taken for good unless another one is named: the most likely best
    checkpoint before the bad one in its lineage, else the base (ROOT)."""
    best = None if tree.choice is None else tree.choice.position
    is_before = best is not None and best != bad and tree.common_ancestor(best, bad) == best
    return best if best is not None and is_before else ROOT
