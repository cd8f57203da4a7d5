"""A run's plan, batches and metrics: the pure parts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.batches import (
    Batch,
    Trajectory,
    Turn,
    finite,
    make_batch,
    merge_passes,
    of_rewards,
)
from hud_tui.service.environments import TASKSETS
from hud_tui.service.http import Refused
from hud_tui.service.managed_run import Plan, fill, make_plan
from hud_tui.wire import JobParameters
from tests.toy_engine import TOY, ToyEngine


def plan(tasks_per_step: int = 12, seed: int = 0, **more: Any) -> Plan:
    given_ = JobParameters(tasks_per_step=tasks_per_step, seed=seed, **more)
    rows = list(TASKSETS["arith"].tasks)
    return make_plan(fill(given_, TOY), rows, TOY, ToyEngine().tokens)


def test_an_epoch_deals_every_task_once_in_the_order_of_a_seed() -> None:
    for tasks_per_step in (1, 5, 12, 96, 1000):
        made = plan(tasks_per_step)
        count = min(tasks_per_step, len(made.train))
        steps = len(made.train) // count
        for epoch in range(3):
            dealt = [
                task.task.slug
                for iteration in range(epoch * steps, (epoch + 1) * steps)
                for task in made.tasks_of(iteration)
            ]
            assert len(dealt) == len(set(dealt)) == steps * count
            assert len(made.train) - len(dealt) < count
    slugs = [[task.task.slug for task in plan(seed=seed).tasks_of(7)] for seed in (1, 1, 2)]
    assert slugs[0] == slugs[1] != slugs[2]


def test_heldout_comes_first_last_and_in_between() -> None:
    made = plan(heldout_every=4)
    due = [i for i in range(10) if made.heldout_of(i, last=i == 9)]
    assert due == [0, 4, 8, 9]
    assert made.heldout
    assert all(not task.task.heldout for i in range(20) for task in made.tasks_of(i))


def test_effort_sets_max_tokens() -> None:
    for effort, max_tokens, wanted in (
        ("low", None, 12),
        ("medium", None, 20),
        ("high", None, 40),
        (None, None, 20),
        ("low", 33, 33),
        (None, 5000, 127),
    ):
        given_ = JobParameters(reasoning_effort=effort, max_tokens=max_tokens)
        assert fill(given_, TOY)["max_tokens"] == wanted


def trajectories(rewards: list[float]) -> list[Trajectory]:
    return [Trajectory([Turn([1], [2, 3], [-1.0, -0.5])], reward) for reward in rewards]


REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=24)


@given(rewards=REWARDS, size=st.integers(1, 8))
def test_advantages_sum_to_zero_in_every_group(rewards: list[float], size: int) -> None:
    rewards = rewards * size
    batch = make_batch(trajectories(rewards), size, "ppo", reward_scale=2.0)
    for start in range(0, len(rewards), size):
        assert sum(batch.weights[start : start + size]) == pytest.approx(0, abs=1e-9)
    assert len(batch.datums()) <= len(batch.all_datums()) == len(rewards)


@pytest.mark.parametrize("scale", [3.0, -3.0, 0.5])
@pytest.mark.parametrize("loss_fn", ["importance_sampling", "cross_entropy"])
def test_reward_scale_keeps_its_sign(loss_fn: str, scale: float) -> None:
    plain = make_batch(trajectories([1.0, 0.25]), 2, loss_fn)
    scaled = make_batch(trajectories([1.0, 0.25]), 2, loss_fn, reward_scale=scale)
    assert scaled.weights == [scale * weight for weight in plain.weights]
    assert [datum.advantage for datum in scaled.datums()] == scaled.weights


@given(rewards=REWARDS, size=st.integers(2, 25))
def test_a_count_that_does_not_divide_is_refused(rewards: list[float], size: int) -> None:
    if len(rewards) % size:
        with pytest.raises(Refused):
            make_batch(trajectories(rewards), size, "ppo")


def test_zero_variance_groups_are_split_in_solved_and_failed() -> None:
    def batch(rewards: list[float]) -> Batch:
        return make_batch(trajectories(rewards), 2, "ppo")

    metrics = of_rewards([batch([1.0, 1.0, 0.0, 0.0]), batch([1.0, 0.0, 0.2, 0.2])])
    assert metrics["frac_reward_zero_std"] == 0.75
    assert metrics["frac_groups_all_solved"] == 0.25
    assert metrics["frac_groups_all_failed"] == 0.5


def test_passes_merge_by_what_they_are() -> None:
    one = {"loss:sum": 1.0, "tokens": 10.0, "num_tokens": 30.0, "entropy": 2.0, "own": 1.0}
    two = {"loss:sum": 2.0, "tokens": 30.0, "num_tokens": 30.0, "entropy": 4.0, "own": 3.0}
    one |= {"ratio_max": 1.1, "trained/entropy": 2.0, "traces_without_samples": 1.0}
    two |= {"ratio_max": 1.0, "trained/entropy": 4.0}
    assert merge_passes([one, two]) == {
        "loss:sum": 3.0,
        "tokens": 40.0,
        "num_tokens": 60.0,
        "entropy": 3.0,
        "trained/entropy": 3.5,
        "ratio_max": 1.1,
        "traces_without_samples": 1.0,
        "own": 3.0,
    }
    assert merge_passes([]) == {}
    assert finite({"a": 1, "b": float("nan"), "c": float("-inf")}) == {"a": 1.0}, "as JSON has none"
