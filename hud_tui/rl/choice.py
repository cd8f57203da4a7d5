"""Which checkpoint is the best, and how sure that is.

Of many checkpoints with noisy means the one with the highest mean is the luckiest. Therefore each
is judged by its posterior given all others (`hud_tui.rl.smoothing`), which is also what is shown of
it, and the base weights take part. The best one gets a star only if it stands out from the newest
checkpoint and from the base; hollow until rollouts that were made after the choice have confirmed
it.

`tests/bench/bench_choice.py` measures how much is lost against the truly best one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from hud_tui.rl.metrics import estimate_text, gain_text
from hud_tui.rl.own_numbers import HELDOUT, NOBODY, Observed, Z
from hud_tui.rl.smoothing import Node, Smoothed, smoothed
from hud_tui.rl.text import counted
from hud_tui.wire import Estimate

KNOTS = 64
"""Observed checkpoints above which neighbours in a lineage are taken together."""
TIE = 0.005
"""Difference of rewards up to which the one with more rollouts is chosen."""
STAR, CANDIDATE = "★", "☆"


@dataclass(frozen=True)
class Choice:
    """The most likely best of the weights whose reward is known."""

    position: int
    """Of its checkpoint; NOBODY for the base weights."""
    by: str
    """Key of the metric: the held-out reward if any is known, else the reward of training
    rollouts."""
    value: Estimate
    """Its reward, shrunk to what it is worth, with the 95 % interval."""
    compared: int
    """Number of checkpoints that were compared; the base is none."""
    rollouts: int
    """Number of rollouts of it."""
    fresh: int
    """Number of those that had no part in the choice."""
    apart: int = 0
    """Number of checkpoints whose held-out reward is on other tasks, or was sampled otherwise."""
    over: Mapping[int, Estimate] = field(default_factory=dict)
    """How much more it earns than the newest of them, and than the base, or where nothing is known
    of that the oldest of them; by position, without itself."""
    rewards: Mapping[int, float] = field(default_factory=dict)
    """What each of them is worth, by position."""

    @property
    def is_confirmed(self) -> bool:
        """Whether at least as many rollouts were made after the choice as before."""
        return 2 * self.fresh >= self.rollouts > 0

    @property
    def star(self) -> int | None:
        """Position of the checkpoint with a star; None if none stands out."""
        lows = [gain.low or 0.0 for gain in self.over.values()]
        stands_out = bool(lows) and min(lows) > 0
        return self.position if stands_out and self.position != NOBODY else None

    @property
    def glyph(self) -> str:
        return STAR if self.is_confirmed else CANDIDATE

    def sentences(self, name_of: Callable[[int], str]) -> list[str]:
        """The choice and its reasons; `name_of` gives a checkpoint's name by position."""
        name = name_of(self.position)
        metric = "held-out" if self.by == HELDOUT else "reward"
        value = f"{metric} {estimate_text(self.value)}"
        of = f"of {counted(self.compared, 'checkpoint')}"
        gains = [f"{gain_text(gain)} over {name_of(other)}" for other, gain in self.over.items()]
        if len(self.rewards) < 2:
            known = "held-out reward" if self.by == HELDOUT else "reward"
            head = f"nothing is compared yet: only {name} has a known {known}"
        elif self.position == NOBODY:
            head = f"the base is more likely better than each {of}: {value}"
        elif self.star is None:
            head = f"no checkpoint stands out; {name} is most likely the best {of}: {value}"
        elif self.is_confirmed:
            fresh = counted(self.fresh, "fresh rollout")
            head = f"{STAR} {name} is the best {of}: {value}, confirmed by {fresh}"
        else:
            head = f"{CANDIDATE} {name} is the candidate {of}: {value}, not yet confirmed"
        texts = [", ".join([head, *gains])]
        if self.apart:
            texts.append(f"{self.apart} on other tasks, or sampled otherwise, are not compared")
        return texts


def choose(
    parents: Sequence[int],
    depths: Sequence[int],
    by: str,
    observed: Sequence[Observed],
    gone: Collection[int] = (),
    apart: int = 0,
) -> Choice | None:
    """The most likely best of observed weights; None if nothing is observed.

    Args:
        parents, depths: Of all checkpoints, shape (N,), oldest first; NOBODY is the base's
            position.
        by: The metric of the means.
        observed: By position, ascending.
        gone: Positions of those whose weights cannot be served; they are not chosen.
        apart: As in `Choice`.
    """
    if not observed:
        return None
    knots = _knots(parents, observed)
    positions, curve = _smoothed(parents, depths, knots)
    nodes = {position: node for node, position in enumerate(positions)}
    rewards = {knot.position: curve.means[nodes[knot.position]] for knot in knots}
    best = _best([knot for knot in knots if knot.position not in gone] or knots, rewards)
    is_share = all(0 <= knot.mean <= 1 for knot in knots)
    (least, most), span = ((0.0, 1.0), (-1.0, 1.0)) if is_share else ((-inf, inf), (-inf, inf))
    node = nodes[best.position]
    others = [end.position for end in (knots[-1], knots[0]) if end.position != best.position]
    return Choice(
        best.position,
        by,
        _estimate(curve.means[node], curve.deviation(node), (least, most)),
        sum(knot.position != NOBODY for knot in observed),
        best.rollouts,
        best.fresh,
        apart,
        {other: _estimate(*curve.difference(node, nodes[other]), span) for other in others},
        rewards,
    )


def _best(candidates: Sequence[Observed], rewards: Mapping[int, float]) -> Observed:
    top = max(rewards[knot.position] for knot in candidates)
    equals = [knot for knot in candidates if rewards[knot.position] >= top - TIE]
    return max(equals, key=lambda knot: (knot.rollouts, rewards[knot.position]))


def _smoothed(
    parents: Sequence[int], depths: Sequence[int], knots: Sequence[Observed]
) -> tuple[list[int], Smoothed]:
    """The curve through the knots, and the positions of its nodes: the base, the knots, and the
    branch points between them."""
    below = dict.fromkeys((knot.position for knot in knots), 2)
    for position in range(max(below), NOBODY, -1):
        if below.get(position):
            parent = parents[position]
            below[parent] = below.get(parent, 0) + 1
    measured = {knot.position: (knot.mean, knot.rollouts) for knot in knots}
    nearest, positions, nodes = {NOBODY: 0}, [NOBODY], [Node(0, 0.0, *measured.get(NOBODY, ()))]
    for position in sorted(below.keys() - {NOBODY}):
        above = nearest[parents[position]]
        if below[position] < 2:  # on the way from one node to the next
            nearest[position] = above
            continue
        parent = positions[above]
        gap = depths[position] - (0 if parent == NOBODY else depths[parent])
        nearest[position] = len(nodes)
        positions.append(position)
        nodes.append(Node(above, float(gap), *measured.get(position, ())))
    return positions, smoothed(nodes)


def _estimate(value: float, deviation: float, within: tuple[float, float]) -> Estimate:
    low, high = within
    ends = value - Z * deviation, value, value + Z * deviation
    least, mean, most = (min(max(end, low), high) for end in ends)
    return Estimate(value=mean, low=least, high=most)


def _knots(parents: Sequence[int], observed: Sequence[Observed]) -> Sequence[Observed]:
    """What is observed, at most about KNOTS of it: runs of neighbours in a lineage are pooled, and
    stand at their newest."""
    length = ceil(len(observed) / KNOTS)
    if length == 1:
        return observed
    knots = [observed[0]]
    for following in observed[1:]:
        last = knots[-1]
        between = range(last.position + 1, following.position + 1)
        is_next = last.position != NOBODY and all(parents[step] == step - 1 for step in between)
        if is_next and last.count < length and not (last.fresh or following.fresh):
            knots[-1] = last.pooled(following)
        else:
            knots.append(following)
    return knots
