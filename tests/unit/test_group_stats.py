"""A group's rewards summed up: too easy and too hard, as the service counts them."""

import pytest

from hud_tui.rl.groups import group_stats
from hud_tui.service import batches


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
def test_groups_without_spread_are_good_or_bad(rewards: list[float], good: bool, bad: bool) -> None:
    stats = group_stats(rewards)
    assert (stats.all_solved, stats.all_failed) == (good, bad)


def test_the_middle_is_where_the_service_has_it() -> None:
    at = batches.GOOD
    assert group_stats([at, at]).all_solved
