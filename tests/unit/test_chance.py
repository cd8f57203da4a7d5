"""Which of many tasks differ by more than chance."""

from itertools import combinations
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.chance import ENUMERATED, FALSE, differing, p_value

REWARDS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=4)


@given(REWARDS, REWARDS)
def test_it_is_the_share_of_the_permutations_whose_means_are_as_far_apart(
    before: list[float], after: list[float]
) -> None:
    values = [*before, *after]
    apart = abs(fmean(before) - fmean(after))
    gaps = []
    for chosen in combinations(range(len(values)), len(before)):
        rest = [value for place, value in enumerate(values) if place not in chosen]
        gaps.append(abs(fmean(values[place] for place in chosen) - fmean(rest)))
    expected = sum(gap >= apart - 1e-9 for gap in gaps) / len(gaps)
    assert p_value(before, after) == pytest.approx(expected)
    assert p_value(after, before) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Fisher 1935, the lady tasting tea, two-sided: 2 / 70.
        ([0.0] * 4, [1.0] * 4, 2 / 70),
        # Agresti 1992, table 1: 3 of 4 against 1 of 4.
        ([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], 0.4857),
        ([1.0] * 9, [1.0] * 4, 1.0),
        ([], [1.0], 1.0),
    ],
)
def test_known_tables(before: list[float], after: list[float], expected: float) -> None:
    assert p_value(before, after) == pytest.approx(expected, abs=5e-5)


def test_many_rollouts_of_many_values_are_judged_by_the_normal_distribution() -> None:
    """The enumeration is of 924 permutations, the normal one of 3432: they nearly agree."""
    draw = Random(7)
    before, after = ([draw.gauss(mean, 1) for _ in range(7)] for mean in (0.0, 1.0))
    assert p_value(before, after) == pytest.approx(p_value(before[:6], after[:6]), abs=0.1)
    assert p_value([*before] * 20, [*after] * 20) < 1e-3
    assert ENUMERATED < 3432


def test_of_many_tasks_that_are_alike_few_are_called_different() -> None:
    draw = Random(3)

    def rewards(chance: float, count: int) -> list[float]:
        return [float(draw.random() < chance) for _ in range(count)]

    runs = 200
    alike = sum(
        bool(differing([(rewards(0.5, 16), rewards(0.5, 16)) for _ in range(24)]))
        for _ in range(runs)
    )
    assert alike <= 2 * FALSE * runs
    tasks = [(rewards(0.1, 32), rewards(0.9, 32)) for _ in range(6)]
    tasks += [(rewards(0.5, 32), rewards(0.5, 32)) for _ in range(18)]
    assert set(range(6)) <= set(differing(tasks))
    assert differing([([0.0] * 4, [1.0] * 4)] * 20) == list(range(20))
    assert differing([([0.0] * 4, [1.0] * 4), *[([0.0, 1.0], [0.0, 1.0])] * 19]) == []
