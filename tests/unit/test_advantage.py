"""Group-relative advantages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.groups import group_advantages, group_stats, has_signal, histogram, reward_std

REWARDS = st.lists(st.floats(-100, 100), min_size=1, max_size=16)


def test_rewards_are_centred_on_their_group_s_mean_and_grpo_s_have_a_deviation_of_one() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]
    assert group_advantages([3.0, 1.0, 1.0, 3.0], norm_by_std=True) == [1.0, -1.0, -1.0, 1.0]
    assert group_advantages([1.0] * 4, norm_by_std=True) == [0.0] * 4
    with pytest.raises(ValueError, match="at least one"):
        group_advantages([])


@given(REWARDS)
def test_advantages_sum_to_zero_and_dividing_by_the_deviation_changes_no_sign(
    rewards: list[float],
) -> None:
    plain, normed = group_advantages(rewards), group_advantages(rewards, norm_by_std=True)
    unit = reward_std(rewards)
    assert all(n * unit == pytest.approx(a) for a, n in zip(plain, normed, strict=True))
    assert sum(group_advantages(rewards)) == pytest.approx(0.0, abs=1e-9)


NO_VARIANCE = (
    *([0.3], [1.0] * 8, [0.1 + 0.2, 0.3], [0.1 + 0.2 - 0.3, 0.0], [1e5, 1e5 + 1e-3]),
    *([1.0] * 15 + [1.0 + 1.5e-6], [-2.0] * 31 + [-2.0 + 3e-6]),  # by the group's deviation
)


@pytest.mark.parametrize("rewards", [*NO_VARIANCE, [1.0, 1.0 + 4e-6], [0.0, 3e-9]])
def test_a_zero_variance_group_has_no_advantage_and_what_is_beyond_residue_is_signal(
    rewards: list[float],
) -> None:
    assert has_signal(rewards) is (rewards not in NO_VARIANCE)
    assert any(group_advantages(rewards)) is has_signal(rewards)


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1.0, 1e6])
def test_small_rewards_have_signal_as_large_ones_do(scale: float) -> None:
    assert has_signal([0.0, scale])
    assert group_advantages([0.0, scale]) == [-scale / 2, scale / 2]


@given(REWARDS, st.floats(-50, 50))
def test_a_shift_of_all_rewards_changes_nothing(rewards: list[float], shift: float) -> None:
    moved = [reward + shift for reward in rewards]
    if not 1e-10 < reward_std(rewards) < 1e-3:
        assert group_advantages(moved) == pytest.approx(group_advantages(rewards), abs=1e-9)


@given(st.permutations([0.0, 0.2, 0.2, 1.0]))
def test_the_order_of_rollouts_does_not_matter(rewards: list[float]) -> None:
    advantages = dict(zip(rewards, group_advantages(rewards), strict=True))
    wanted = dict(zip((0.0, 0.2, 1.0), (-0.35, -0.15, 0.65), strict=True))
    assert advantages == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("rewards", "good", "bad"),
    [
        ([1.0, 1.0], True, False),
        ([0.5, 0.5], True, False),
        ([0.49, 0.49], False, True),
        ([0.0, 0.0], False, True),
        ([0.0, 1.0], False, False),
    ],
)
def test_zero_variance_groups_are_solved_or_failed(
    rewards: list[float], good: bool, bad: bool
) -> None:
    stats = group_stats(rewards)
    assert (stats.all_solved, stats.all_failed) == (good, bad)


def test_rewards_beyond_the_ends_fall_into_the_outermost_bins() -> None:
    assert histogram([0, 0.1, 0.5, 0.99, 1.0, 2.0, -1], 4, 0.0, 1.0) == [3, 0, 1, 3]
