"""Faults: what differs from a healthy run, step by step, in each way to go wrong."""

from collections.abc import Mapping
from math import exp, inf, nan

from hud_tui.rl.alarms.curves import STEP_S, after, learnt, noise, with_heldout


def entropy_collapse(step: int) -> Mapping[str, float]:
    if step < 150:
        return {}
    found = {"reward_mean": 0.66 + 0.03 * noise(step), "entropy": 0.7 * exp(-(step - 150) / 25)}
    return with_heldout(step, 0.62 + 0.02 * noise(step), found)


def zero_spread(step: int) -> Mapping[str, float]:
    bad = 0.06 + 0.86 * after(step, 120, 20) + 0.02 * noise(step)
    return {"frac_groups_zero_spread": bad + 0.05, "frac_groups_all_bad": bad}


def saturation(step: int) -> Mapping[str, float]:
    good = 0.09 + 0.85 * after(step, 100, 30) + 0.02 * noise(step)
    reward = min(1.0, learnt(step) + 0.22 * after(step, 100, 30))
    found = {
        "reward_mean": reward,
        "frac_groups_zero_spread": good + 0.03,
        "frac_groups_all_good": good,
        "frac_groups_all_bad": 0.03,
    }
    return with_heldout(step, reward - 0.04, found)


def kl_blow_up(step: int) -> Mapping[str, float]:
    return {"kl_reference": 0.08 * exp(0.045 * max(0, step - 140)) + 0.005 * noise(step)}


def off_policy(step: int) -> Mapping[str, float]:
    drift = after(step, 130, 30)
    return {
        "kl_sample_train": 0.002 + 0.09 * drift + 0.001 * noise(step),
        "ratio_max": 1.3 + 40 * drift,
        "clip_fraction": 0.08 + 0.4 * drift + 0.02 * noise(step),
        "staleness_mean": 1 + 10 * drift + 0.5 * noise(step),
    }


def length_hack(step: int) -> Mapping[str, float]:
    paid = after(step, 110, 60)
    found = {
        "completion_length_mean": 60 + 240 * paid + 4 * noise(step),
        "truncated_share": 0.01 + 0.3 * after(step, 160, 40),
        "reward_mean": learnt(min(step, 110)) + 0.2 * paid + 0.01 * noise(step),
    }
    return with_heldout(step, learnt(min(step, 110)) - 0.04, found)


def reward_hacking(step: int) -> Mapping[str, float]:
    found = {"reward_mean": learnt(step) + 0.15 * after(step, 130, 40) + 0.02 * noise(step)}
    return with_heldout(step, learnt(step) - 0.04 - 0.45 * after(step, 130, 50), found)


def gradient_explosion(step: int) -> Mapping[str, float]:
    if step < 170:
        return {}
    size = 0.8 * exp(0.5 * min(40, step - 169))
    return {"grad_norm": size, "reward_mean": max(0.0, learnt(170) - 0.02 * (step - 170))}


def nan_loss(step: int) -> Mapping[str, float]:
    if step < 180:
        return {"grad_norm": inf} if step == 179 else {}
    return {"loss:sum": nan, "grad_norm": nan, "entropy": nan, "kl_sample_train": nan}


def dead_reward(step: int) -> Mapping[str, float]:
    if step < 100:
        return {}
    found = {"reward_mean": 0.0, "reward_std": 0.0, "reward_max": 0.0, "grad_norm": 0.0}
    groups = {"frac_groups_zero_spread": 1.0, "frac_groups_all_bad": 1.0}
    return with_heldout(step, 0.0, found | groups | {"frac_groups_all_good": 0.0})


def forgetting(step: int) -> Mapping[str, float]:
    return with_heldout(step, learnt(step) - 0.04 - 0.5 * after(step, 150, 40), {})


def reward_collapse(step: int) -> Mapping[str, float]:
    reward = learnt(step) - 0.55 * after(step, 180, 25)
    found = {"reward_mean": reward + 0.03 * noise(step)}
    return with_heldout(step, reward - 0.04, found)


def format_dominates(step: int) -> Mapping[str, float]:
    return {
        "reward/correct": 0.4 + 0.01 * noise(step),
        "reward/format": 0.3 + 0.2 * noise(step + 1),
    }


def broken_environment(step: int) -> Mapping[str, float]:
    return {"errored_share": 0.01 + 0.4 * after(step, 140, 15)}


def plateau(step: int) -> Mapping[str, float]:
    found = {
        "reward_mean": 0.5 - 0.2 * exp(-step / 20) + 0.02 * noise(step),
        "entropy": 1.2 - 0.0022 * step,
    }
    return with_heldout(step, 0.46 - 0.2 * exp(-step / 20), found)


def slow_steps(step: int) -> Mapping[str, float]:
    slower = 1 + 2.2 * after(step, 150, 20)
    return {"rollout_s": 0.7 * STEP_S * slower, "train_s": 0.3 * STEP_S}
