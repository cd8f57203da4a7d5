"""What the rewards of one group say."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hud_tui.rl.advantage import has_signal, spread

MIDDLE = 0.5
"""A group without spread is all good from this mean up: the middle of a 0…1 reward."""


@dataclass(frozen=True)
class GroupStats:
    """One group's rewards, summed up."""

    size: int
    mean: float
    spread: float
    """Standard deviation within the group."""
    teaches: bool
    """Whether the group has spread, so that it moves the policy."""

    @property
    def all_good(self) -> bool:
        """No spread, and at least the middle of a 0…1 reward: too easy."""
        return not self.teaches and self.mean >= MIDDLE

    @property
    def all_bad(self) -> bool:
        """No spread, and below the middle: too hard."""
        return not self.teaches and self.mean < MIDDLE


def group_stats(rewards: Sequence[float]) -> GroupStats:
    """Sum up one group, shape (G,), G ≥ 1."""
    return GroupStats(len(rewards), fmean(rewards), spread(rewards), has_signal(rewards))


def histogram(rewards: Sequence[float], bins: int, low: float, high: float) -> list[int]:
    """Counts of rewards in equal bins over [low, high], shape (bins,); values beyond go outermost.

    Raises:
        ValueError: No bins, or an empty range.
    """
    if bins < 1 or not high > low:
        raise ValueError("a histogram needs at least one bin and high above low")
    counts = [0] * bins
    for reward in rewards:
        if reward == reward:
            place = int((reward - low) / (high - low) * bins)
            counts[min(bins - 1, max(0, place))] += 1
    return counts
