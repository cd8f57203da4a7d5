"""Rows: one training step each, its metrics under the vocabulary's keys.

A metric that is missing and one that is NaN are two things: a step without a held-out
reward is as it should be, one whose loss is NaN is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from hud_tui.rl.ages import seconds
from hud_tui.rl.alarms.statistics import bounded
from hud_tui.rl.groups import group_stats
from hud_tui.rl.series import metrics_of
from hud_tui.wire import Checkpoint


@dataclass(frozen=True)
class Row:
    """One step of a lineage."""

    place: int
    """In the lineage, from 0."""
    metrics: Mapping[str, float]
    step: int
    checkpoint_id: str | None = None
    at: float | None = None
    """When it was taken, Unix seconds."""


@dataclass(frozen=True)
class Role:
    """A metric that detectors read, by the vocabulary's key."""

    key: str

    def raw(self, row: Row) -> float | None:
        """The value as it came, NaN and infinities included; None where it is missing."""
        return row.metrics.get(self.key)

    def read(self, row: Row) -> float | None:
        """The value where it is a number."""
        return bounded(row.metrics.get(self.key))


REWARD, REWARD_STD, REWARD_MAX = Role("reward_mean"), Role("reward_std"), Role("reward_max")
HELDOUT = Role("heldout_reward")
LOSS, GRAD_NORM, LEARNING_RATE = Role("loss:sum"), Role("grad_norm"), Role("learning_rate")
ZERO_SPREAD, MIXED = Role("frac_groups_zero_spread"), Role("frac_groups_mixed")
ALL_GOOD, ALL_BAD = Role("frac_groups_all_good"), Role("frac_groups_all_bad")
ENTROPY = Role("entropy")
KL_SAMPLER, KL_REFERENCE = Role("kl_sample_train"), Role("kl_reference")
CLIP = Role("clip_fraction")
CLIP_LOW, CLIP_HIGH = Role("clip_fraction_low"), Role("clip_fraction_high")
LENGTH, TRUNCATED = Role("completion_length_mean"), Role("truncated_share")
STALENESS, DROPPED = Role("staleness_mean"), Role("off_policy/dropped")
ERRORED, LEFT_OUT = Role("errored_share"), Role("traces_without_samples")
TRACES = Role("num_traces")
STEP_S, ROLLOUT_S, TRAIN_S = Role("step_s"), Role("rollout_s"), Role("train_s")
UPDATES = (GRAD_NORM, LEARNING_RATE, ENTROPY, TRACES)
"""One of these is a number in every row that an optimizer step made."""


def took_update(row: Row) -> bool:
    """Whether an optimizer step made this row; one of an evaluation alone has no loss."""
    return any(role.read(row) is not None for role in UPDATES)


def row_of(place: int, checkpoint: Checkpoint) -> Row:
    """A checkpoint as the row at this place of its lineage."""
    metrics = metrics_of(checkpoint)
    if checkpoint.groups and ZERO_SPREAD.key not in metrics:
        metrics = {**metrics, **_of_groups(checkpoint)}
    at = seconds(checkpoint.created_at)
    return Row(place, metrics, checkpoint.step or place + 1, checkpoint.id, at)


def _of_groups(checkpoint: Checkpoint) -> dict[str, float]:
    """The shares of groups without spread, where only the rewards themselves are given."""
    known = [[r for r in group.rewards if isfinite(r)] for group in checkpoint.groups]
    stats = [group_stats(rewards) for rewards in known if rewards]
    if not stats:
        return {}
    shares = {
        ZERO_SPREAD: sum(not one.teaches for one in stats),
        ALL_GOOD: sum(one.all_good for one in stats),
        ALL_BAD: sum(one.all_bad for one in stats),
    }
    return {role.key: count / len(stats) for role, count in shares.items()}
