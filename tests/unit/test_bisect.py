"""Bisection of a lineage: what is evaluated next, and the verdict."""

from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.rl.bisect import (
    FIRST,
    LOOKS,
    SURE,
    WANDER,
    Ask,
    Bisection,
    Measured,
    Search,
    Slope,
    before_damage,
    path_between,
    slopes,
    why_nothing,
)
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.evaluation import Scores
from hud_tui.wire import Evaluation, Group
from tests.bench.bench_bisect import outcome
from tests.unit.trees import chain, tree_of

TASKS = 24


def scores(solved: int, samples: int) -> Scores:
    """Rewards of 0 and 1: so many of each task's samples solve it."""
    rewards = [1.0] * solved + [0.0] * (samples - solved)
    return Scores.of([Group(task_slug=f"{n:02}", rewards=rewards) for n in range(TASKS)])


def named(position: int) -> str:
    return f"step-{position}"


@given(st.integers(2, 300))
def test_every_single_step_is_a_slope_and_the_prior_sums_to_one(size: int) -> None:
    prior = slopes(size)
    assert sum(prior.values()) == pytest.approx(1)
    assert all(0 <= slope.first < slope.last < size for slope in prior)
    single = [slope.last for slope in prior if slope.last - slope.first == 1]
    assert single == list(range(1, size))


def test_a_slope_falls_from_its_first_position_to_its_last() -> None:
    assert [Slope(2, 6).share(position) for position in (0, 2, 4, 6, 9)] == [0, 0, 0.5, 1, 1]


def test_both_ends_come_first_and_again_while_it_is_open() -> None:
    assert Bisection(9, {}).asks(2000) == [Ask(0, FIRST), Ask(8, FIRST)]
    half = Bisection(9, {0: scores(3, 4)})
    assert half.asks(2000) == [Ask(8, FIRST)]
    assert Bisection(9, {8: scores(3, 4)}).asks(2000) == [Ask(0, FIRST)]
    assert half.kind == "open"
    assert half.sentences(named) == ["Nothing was sampled for this yet"]
    alike = Bisection(9, {0: scores(3, 4), 8: scores(3, 4)})
    assert alike.asks(2000) == [Ask(0, FIRST), Ask(8, FIRST)]
    cut_short = Bisection(9, {0: scores(6, 8), 8: scores(3, 4)})
    assert cut_short.asks(2000) == [Ask(8, FIRST)]
    assert alike.rollouts == 192
    assert alike.asks(384) == alike.asks(2000)
    assert alike.asks(383) == []  # which the budget does not allow
    assert alike.kind == "open"


def test_an_end_that_is_not_worse_ends_it() -> None:
    samples = FIRST * LOOKS
    bisection = Bisection(9, {0: scores(5, samples), 8: scores(5, samples)})
    assert bisection.asks(2000) == []
    assert bisection.kind == "none"
    assert bisection.sentences(named)[0] == "step-8 is not worse than step-0 beyond chance"


def test_a_difference_as_between_neighbours_is_no_damage() -> None:
    slight = [
        Group(task_slug=f"{n:02}", rewards=[1.0] * (48 + n % 3) + [0.0] * (16 - n % 3))
        for n in range(TASKS)
    ]
    bisection = Bisection(9, {0: Scores.of(slight), 8: scores(48, 64)})
    assert bisection.drop is not None
    assert bisection.drop.is_worse
    assert bisection.kind == "none"
    assert bisection.asks(20_000) == []
    assert bisection.sentences(named)[0].endswith("by no more than neighbouring checkpoints differ")


def test_a_clear_fall_is_found_by_halving() -> None:
    """Where every evaluation is clear, it takes no more of them than halving does."""
    fell, size = 37, 65
    measured = {0: scores(15, 16), size - 1: scores(4, 16)}
    asked = []
    while asks := Bisection(size, measured).asks(20_000):
        [ask] = asks
        assert ask.samples == 1
        asked.append(ask.position)
        measured[ask.position] = scores(15, 16) if ask.position < fell else scores(4, 16)
    bisection = Bisection(size, measured)
    assert bisection.kind == "step"
    assert bisection.search is not None
    assert bisection.search.step == fell
    assert len(set(asked)) == len(asked) <= 8
    assert {fell - 1, fell} <= set(asked)
    first, last_good, drop = bisection.sentences(named)
    assert first.startswith(("step-37 did the damage (9", "step-37 did the damage (100"))
    assert last_good == "the last good checkpoint is step-36"
    assert drop.startswith("step-64 − step-0: mean reward -.6")
    low, high = bisection.search.range
    assert low <= fell <= high
    assert bisection.search.done(0) < 0.01
    assert bisection.search.done(size - 1) > 0.99


def test_two_neighbours_need_no_search() -> None:
    bisection = Bisection(2, {0: scores(15, 16), 1: scores(4, 16)})
    assert bisection.asks(20_000) == []
    assert bisection.sentences(named)[0] == "step-1 did the damage (100 % sure, ± 1 step)"


def test_a_slow_decline_is_called_that() -> None:
    size = 33
    levels = {position: scores(15 - position // 3, 16) for position in (0, 8, 16, 24, 32)}
    levels |= {position: scores(15 - position // 3, 16) for position in (4, 12, 20, 28)}
    bisection = Bisection(size, levels)
    assert bisection.kind == "slow"
    assert bisection.search is not None
    assert bisection.search.slow > SURE
    assert bisection.sentences(named)[0].startswith("a slow decline between step-")
    assert bisection.asks(20_000) == []


def test_a_decline_over_three_steps_is_slow() -> None:
    ends = {0: Measured(0.9, 200), 3: Measured(0.4, 200)}
    assert Search(4, ends, 50, 0.1).slow == pytest.approx(0.25, abs=0.05)
    assert Search(3, ends | {2: ends[3]}, 50, 0.1).slow == 0


def test_what_is_open_at_the_end_of_the_budget_is_a_range() -> None:
    bisection = Bisection(129, {0: scores(15, 16), 128: scores(10, 16)})
    spent = bisection.rollouts
    assert bisection.asks(spent + TASKS - 1) == []
    assert len(bisection.asks(spent + TASKS)) == 1
    assert (bisection.kind, bisection.step) == ("open", None)
    assert bisection.sentences(named)[0].startswith("the damage was done between step-")


def test_the_next_one_is_in_the_middle_of_what_is_open() -> None:
    ends = {0: Measured(0.9, 200), 64: Measured(0.4, 200)}
    assert 24 <= Search(65, ends, 50, 0.1).next_position <= 40
    half = ends | {32: Measured(0.88, 50)}
    assert 40 <= Search(65, half, 50, 0.1).next_position <= 56


def test_the_same_checkpoint_again_tells_less_and_less() -> None:
    ends = {0: Measured(0.9, 400), 8: Measured(0.4, 400)}
    gains = [
        Search(9, ends | {4: Measured(0.65, count)}, 50, 0.2)._gain(4)
        for count in (50, 100, 400, 1600)
    ]
    assert all(more > less for more, less in pairwise(gains))


def test_simulated_damage_is_found_and_none_is_not_invented() -> None:
    assert outcome("step", 0).is_near
    assert outcome("none", 0).kind == "none"


def log_density(search: Search, slope: Slope) -> float:
    """Of the means, with both levels of a wide normal prior, up to a constant; by NumPy."""
    positions = sorted(search.measured)
    rollouts = np.array([search.measured[position].rollouts for position in positions])
    means = np.array([search.measured[position].mean for position in positions])
    fallen = np.array([slope.share(position) for position in positions])
    design, wide = np.stack([1 - fallen, fallen], axis=1), 1e4
    noise = np.diag(search.variance / rollouts + WANDER**2)
    covariance = noise + wide * design @ design.T
    square = means @ np.linalg.solve(covariance, means)
    return float(-(square + np.linalg.slogdet(covariance)[1]) / 2)


def test_the_posterior_is_that_of_two_levels_under_a_wide_prior() -> None:
    means = {0: (0.9, 200), 3: (0.8, 50), 5: (0.55, 100), 6: (0.4, 50), 12: (0.45, 200)}
    measured = {position: Measured(*each) for position, each in means.items()}
    search, prior = Search(13, measured, 50, 0.15), slopes(13)
    scores = {slope: log_density(search, slope) + log(share) for slope, share in prior.items()}
    top = max(scores.values())
    total = sum(exp(score - top) for score in scores.values())
    for slope, score in scores.items():
        assert search.posterior[slope] == pytest.approx(exp(score - top) / total, rel=1e-3)
    narrow = {s: p for s, p in search.posterior.items() if s.last - s.first <= 2}
    assert search.near(5) == pytest.approx(sum(p for s, p in narrow.items() if 4 <= s.last <= 6))
    wide = [p for s, p in search.posterior.items() if s.last - s.first >= 3]
    assert search.slow == pytest.approx(sum(wide))


@pytest.mark.parametrize(("fine", "bad", "rollouts"), [(12, 20, 100), (4, 28, 800)])
def test_the_range_leaves_less_than_a_tail_out_at_either_end(
    fine: int, bad: int, rollouts: int
) -> None:
    means = {0: 0.9, fine: 0.88, bad: 0.42, 32: 0.4}
    measured = {position: Measured(mean, rollouts) for position, mean in means.items()}
    search = Search(33, measured, 50, 0.2)
    (low, high), shares = search.range, search.posterior.items()
    before = [sum(share for s, share in shares if s.first < end) for end in (low, low + 1)]
    after = [sum(share for s, share in shares if s.last > end) for end in (high, high - 1)]
    for left_out, one_more in (before, after):
        assert left_out <= (1 - SURE) / 2 < one_more


# Which lineage.


def test_the_path_leads_from_the_good_one_to_the_bad_one() -> None:
    tree = tree_of([ROOT, 0, 1, 1, 3])
    assert path_between(tree, 0, 4) == [0, 1, 3, 4]
    assert path_between(tree, ROOT, 2) == [ROOT, 0, 1, 2]
    for good, bad in ((2, 4), (4, 0), (3, 3)):
        with pytest.raises(HudUsage, match="does not come after"):
            path_between(tree, good, bad)


def test_the_best_one_before_is_taken_for_good_else_the_base() -> None:
    assert before_damage(Tree.of(chain({}, {}, {})), 2) == ROOT
    best = {"evaluations": [_evaluation(0.9)]}
    tree = Tree.of(chain({}, best, {"evaluations": [_evaluation(0.2)]}, {}))
    assert before_damage(tree, 3) == 1
    assert before_damage(tree, 1) == ROOT


def test_a_lineage_whose_end_is_better_beyond_chance_has_no_damage() -> None:
    def why(*means: float) -> str:
        return why_nothing(
            Tree.of(chain(*({"evaluations": [_evaluation(mean)]} for mean in means))), 0, 1
        )

    assert why(0.3, 0.9) == (
        "Nothing to bisect: c1 (held-out .900 [.844, .938], n 160) is better than"
        " c0 (held-out .300 [.234, .375], n 160)."
    )
    assert why(0.3, 0.35) == "", "it may be chance"
    assert why(0.9, 0.3) == ""
    assert why_nothing(Tree.of(chain({}, {})), 0, 1) == "", "nothing is known"


def _evaluation(mean: float) -> Evaluation:
    return Evaluation(
        mean_reward=mean, num_tasks=40, num_traces=160, tasks_digest="d", id=str(mean)
    )
