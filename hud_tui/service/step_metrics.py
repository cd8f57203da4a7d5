"""The metrics of one optimizer step, out of what its passes and its rollouts were.

Pure arithmetic over plain lists; the engine's own figures (losses, ratios, entropy) come
in as it gave them, once a pass.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from statistics import fmean, pstdev

from hud_tui.rl.advantage import has_signal
from hud_tui.service.batches import Batch, Trajectory
from hud_tui.service.engines.figures import KNOWN, fold

GOOD = 0.5
"""A group without spread is all good from this mean reward up, and all bad below."""
LEFT_OUT = "traces_without_samples"


def merge_passes(passes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One pass's figures out of several that accumulated into the same gradient.

    Keys beyond those that every engine reports come from the last pass that has them.
    """
    merged: dict[str, float] = {}
    for one in passes:
        merged.update(one)
    for key in KNOWN:
        having = [one for one in passes if key in one]
        if having:
            merged[key] = fold(key, having)
    if LEFT_OUT in merged:
        merged[LEFT_OUT] = sum(one.get(LEFT_OUT, 0.0) for one in passes)
    return finite(merged)


def of_rewards(batches: Sequence[Batch]) -> dict[str, float]:
    """Reward and group figures of a step's batches."""
    rewards = [t.reward for batch in batches for t in batch.trajectories]
    groups = [group.rewards for batch in batches for group in batch.groups()]
    flat = [fmean(group) for group in groups if not has_signal(group)]
    good = sum(mean >= GOOD for mean in flat)
    return {
        "reward_mean": fmean(rewards),
        "reward_std": pstdev(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "frac_groups_zero_spread": len(flat) / len(groups),
        "frac_groups_all_good": good / len(groups),
        "frac_groups_all_bad": (len(flat) - good) / len(groups),
        **_of_endings(batches),
    }


def _of_endings(batches: Sequence[Batch]) -> dict[str, float]:
    """The share of a client's rollouts that errored, and were graded and trained all the same."""
    ended = [t.errored for batch in batches if batch.reported for t in batch.trajectories]
    return {"errored_share": fmean(ended)} if ended else {}


def left_out(batch: Batch) -> dict[str, float]:
    """How many traces a pass went without, where it did."""
    return {LEFT_OUT: float(batch.without_samples)} if batch.without_samples else {}


def of_completions(batches: Sequence[Batch]) -> dict[str, float]:
    """Length and logprob figures of a step's batches; lengths are per trajectory."""
    trajectories = [t for batch in batches for t in batch.trajectories]
    lengths = [_length(trajectory) for trajectory in trajectories]
    logprobs = list(chain.from_iterable(turn.logprobs for t in trajectories for turn in t.turns))
    metrics = {
        "completion_length_mean": fmean(lengths),
        "completion_length_max": float(max(lengths)),
    }
    return metrics | ({"sampling_logprob_mean": fmean(logprobs)} if logprobs else {})


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without what JSON has no number for: the wire's metrics are numbers only."""
    return {key: float(value) for key, value in metrics.items() if isfinite(value)}


def _length(trajectory: Trajectory) -> int:
    return sum(len(turn.output) for turn in trajectory.turns)


def of_step(
    batches: Sequence[Batch],
    passes: Sequence[Mapping[str, float]],
    learning_rate: float,
    extra: Mapping[str, float],
) -> dict[str, float]:
    """All metrics of a step.

    Args:
        batches: What was passed forward and backward.
        passes: The engine's figures, one dict a pass.
        learning_rate: Of the optimizer step.
        extra: What the optimizer and the runner add, e.g. grad_norm and rollout_s.
    """
    return finite(
        {
            **merge_passes(passes),
            **of_completions(batches),
            **of_rewards(batches),
            "learning_rate": learning_rate,
            **extra,
        }
    )
