"""Curves of runs that go well, and the noise on them: the same numbers every time."""

from collections.abc import Mapping
from math import exp, sin

STEP_S = 2.0
"""Seconds of a usual step."""


def noise(seed: int) -> float:
    """A number in [−1, 1] that looks random and never changes."""
    mixed = (seed * 2_654_435_761 + 1_013_904_223) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_246_822_519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3_266_489_917) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) / 0x7FFFFFFF - 1


def after(step: int, onset: int, steps: float) -> float:
    """How far something has come that begins at `onset`: from 0 towards 1 in about `steps`."""
    return 0.0 if step < onset else 1 - exp(-(step - onset + 1) / steps)


def learnt(step: int) -> float:
    """A mean reward that rises from .3 towards .8."""
    return 0.8 - 0.5 * exp(-step / 90)


def healthy(step: int) -> dict[str, float]:
    """The metrics of a step of a run that learns as it should, from step 1.

    A held-out reward comes with every fifth step, and no metric is without noise.
    """
    reward = learnt(step) + 0.03 * noise(step)
    found = {
        "reward_mean": reward,
        "reward_std": 0.36 + 0.03 * noise(step + 11),
        "reward_min": 0.0,
        "reward_max": 1.0,
        "loss:sum": 3 * noise(step + 13),
        "kl_sample_train": 0.002 + 0.001 * noise(step + 17),
        "kl_reference": 0.02 + 0.06 * after(step, 0, 150) + 0.005 * noise(step + 19),
        "ratio_max": 1.3 + 0.2 * noise(step + 23),
        "clip_fraction": 0.08 + 0.03 * noise(step + 29),
        "entropy": 0.5 + 0.7 * exp(-step / 120) + 0.04 * noise(step + 31),
        "grad_norm": 0.8 + 0.25 * noise(step + 37),
        "learning_rate": 3e-4,
        "frac_groups_zero_spread": 0.15 + 0.06 * noise(step + 41),
        "frac_groups_all_good": 0.09 + 0.03 * noise(step + 43),
        "completion_length_mean": 60 + 6 * sin(step / 30) + 4 * noise(step + 47),
        "truncated_share": 0.01 + 0.01 * noise(step + 53),
        "staleness_mean": 1 + 0.5 * noise(step + 59),
        "errored_share": 0.01 + 0.01 * noise(step + 61),
        "reward/correct": 0.9 * reward + 0.05 * noise(step + 67),
        "reward/format": 0.1 + 0.004 * noise(step + 71),
        "rollout_s": 0.7 * STEP_S * (1 + 0.1 * noise(step + 73)),
        "train_s": 0.3 * STEP_S * (1 + 0.1 * noise(step + 79)),
        "num_traces": 96.0,
        "num_tokens": 5800.0,
    }
    found["frac_groups_all_bad"] = found["frac_groups_zero_spread"] - found["frac_groups_all_good"]
    if step % 5 == 0:
        found["heldout_reward"] = learnt(step) - 0.04 + 0.02 * noise(step + 83)
    return found


def with_heldout(step: int, heldout: float, others: Mapping[str, float]) -> dict[str, float]:
    """Other metrics, and a held-out reward where the step has one."""
    return {**others, "heldout_reward": heldout} if step % 5 == 0 else dict(others)
