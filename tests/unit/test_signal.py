"""What a few rollouts say of a task, and of a taskset."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.tasks.signal import (
    SIZES,
    Outcome,
    Pace,
    Size,
    TaskSignal,
    check_signal,
    document,
    estimate,
    expected_share,
    recommended_size,
    with_signal,
    zero_gradient,
)

REWARDS = st.lists(st.sampled_from([0.0, 0.15, 0.2, 0.5, 1.0]), min_size=1, max_size=12)


def task(*rewards: float, slug: str = "t", **more: object) -> TaskSignal:
    return TaskSignal(slug, tuple(Outcome(reward) for reward in rewards), **more)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=4), st.integers(1, 4))
def test_it_is_the_share_of_all_groups_that_could_be_drawn(rewards: list[float], size: int) -> None:
    groups = list(product(rewards, repeat=size))
    flat = sum(len(set(group)) == 1 for group in groups) / len(groups)
    assert zero_gradient(rewards, size) == pytest.approx(flat)


@given(REWARDS, st.integers(1, 30))
def test_larger_groups_have_no_more_zero_variance(rewards: list[float], size: int) -> None:
    share, larger = zero_gradient(rewards, size), zero_gradient(rewards, size + 1)
    assert 0 <= larger <= share + 1e-12 <= 1 + 1e-12
    assert (share > 1 - 1e-9) == (size == 1 or len(set(rewards)) == 1)


@given(REWARDS, st.integers(2, 16))
def test_neither_order_nor_rounding_matters(rewards: list[float], size: int) -> None:
    turned = [reward + 1e-13 for reward in reversed(rewards)]
    assert zero_gradient(turned, size) == pytest.approx(zero_gradient(rewards, size))


@pytest.mark.parametrize(("rewards", "size"), [([], 4), ([1.0], 0)])
def test_nothing_has_no_share(rewards: list[float], size: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        zero_gradient(rewards, size)


@pytest.mark.parametrize(
    ("rewards", "label"),
    [
        ([0, 1, 0, 1], "signal"),
        ([0.1, 0.2], "signal"),
        ([1, 1, 1, 1], "too easy"),
        ([0, 0, 0, 0], "too hard"),
        ([0.2, 0.2, 0.2], "no signal"),
        ([1] * 99 + [0], "too easy"),
        ([], "failed"),
    ],
)
def test_a_task_in_a_word(rewards: list[float], label: str) -> None:
    assert task(*rewards).label(8) == label


@given(REWARDS)
def test_a_task_s_figures_are_within_their_bounds(rewards: list[float]) -> None:
    one = task(*rewards)
    assert one.mean is not None
    assert min(rewards) - 1e-9 <= one.mean <= max(rewards) + 1e-9
    assert one.std is not None
    assert 0 <= one.std <= (max(rewards) - min(rewards)) / 2 + 1e-9
    assert (one.std < 1e-12) == (len(set(rewards)) == 1)


def test_means_are_of_what_is_known() -> None:
    one = TaskSignal("t", (Outcome(1, 4, 0.5), Outcome(0, None, None, True), Outcome(0, 8, 1.5)))
    assert (one.tokens, one.seconds) == (6, 1.0)
    assert one.truncated == pytest.approx(1 / 3)
    empty = task()
    assert [empty.mean, empty.pass_rate, empty.std, empty.tokens, empty.truncated] == [None] * 5
    assert empty.zero_gradient(8) is None
    assert task(1.0 - 1e-7, 0.999).pass_rate == 0.5, "rewards may be rounded to 32 bits"


@given(st.lists(REWARDS, min_size=1, max_size=8))
def test_the_recommended_size_gets_most_of_what_there_is(all_rewards: list[list[float]]) -> None:
    tasks = [task(*rewards) for rewards in all_rewards]
    able = sum(len(set(rewards)) > 1 for rewards in all_rewards)
    size = recommended_size(tasks)
    assert (size is None) == (able == 0)
    if size is not None:
        most = size == SIZES[-1] or expected_share(tasks, size) >= 0.8 * able / len(tasks)
        assert most
        smaller = [one for one in SIZES if one < size]
        assert all(expected_share(tasks, one) < 0.8 * able / len(tasks) for one in smaller)


SIZE = Size(8, 12, 60, 96)
EVEN, DEAD, SOLVED = task(0, 1, 0, 1, slug="even"), task(0, 0, 0, slug="dead"), task(1, 1, slug="s")


@pytest.mark.parametrize(
    ("tasks", "level"),
    [
        ([EVEN], "ok"),
        ([EVEN, DEAD], "warning"),
        ([EVEN] * 2 + [DEAD], "ok"),
        ([EVEN] + [DEAD] * 3, "warning"),
        ([EVEN] + [SOLVED] * 9, "failure"),
        ([DEAD, SOLVED], "failure"),
        ([task(errors=8)], "failure"),
    ],
)
def test_the_verdict_is_of_the_groups_with_gradient(tasks: list[TaskSignal], level: str) -> None:
    finding = check_signal(tasks, SIZE)
    assert (finding.check, finding.level) == ("signal", level)
    assert finding.message
    assert bool(finding.fix) == (level != "ok")


def test_solved_tasks_and_failed_ones_are_told_apart_and_named() -> None:
    solved = [task(*[1.0] * 8) for _ in range(7)]
    finding = check_signal([*solved, task(*[1.0] * 7, 0.0)], SIZE)
    assert finding.level == "failure"
    assert finding.message.endswith("7 too easy, 0 too hard; pass rate 98 % of 64 rollouts")
    assert finding.fix.startswith("use harder tasks, or exclude the tasks without signal")
    assert check_signal(solved, SIZE).fix == "use harder tasks"
    failed = [task(*[0.0] * 8) for _ in range(3)]
    assert check_signal(failed, SIZE).fix == "use easier tasks, or reward partial success"
    both = check_signal([*solved, *failed], SIZE)
    assert "7 too easy, 3 too hard; pass rate 70 % of 80 rollouts" in both.message
    assert both.fix == "use easier or harder tasks, or reward partial success"

    finding = check_signal([EVEN, DEAD, SOLVED, EVEN, EVEN], SIZE)
    assert finding.where == "dead, s"
    assert finding.message.startswith("3 of 5 tasks with signal at group size 8; 60 % of groups")
    assert [one.slug for one in with_signal([EVEN, DEAD], 8)] == ["even"]


def test_a_run_costs_as_its_rollouts_did() -> None:
    tasks = [TaskSignal("t", (Outcome(1, 10), Outcome(0, 20)))]
    found = estimate(tasks, SIZE, Pace(16, 2.0))
    assert (found.rollouts, found.tokens, found.seconds) == (5760, 86400, 720.0)
    assert found.basis.startswith("60 steps of 12 tasks × 8 rollouts; tokens as in 2 sampled")
    assert "16 rollouts in 2.0 s just now" in found.basis
    before = estimate(tasks, SIZE, Pace(16, 2.0, "2026-11-21T10:00:00+00:00"))
    assert (before.seconds, "in 2.0 s on 2026-11-21" in before.basis) == (720.0, True)
    twice = estimate(tasks, replace(SIZE, substeps=2), Pace(16, 2.0))
    assert (twice.rollouts, twice.tokens, twice.seconds) == (2880, 43200, 360.0)
    assert twice.basis.startswith("60 steps, 2 per batch, of 12 tasks × 8 rollouts; ")
    assert estimate(tasks, replace(SIZE, substeps=7), None).rollouts == 9 * 12 * 8, "the last, too"
    one = estimate([task(1)], Size(4, None, None, 10), None)
    assert (one.rollouts, one.tokens, one.seconds) == (40, None, None)
    assert one.basis.startswith("one step")


def test_the_document_has_every_task_the_highest_std_first() -> None:
    found = document([DEAD, EVEN], SIZE, None, {"model": "m"})
    assert [row["slug"] for row in found["tasks"]] == ["even", "dead"]
    assert found["with_signal"] == {"4": 1, "8": 1, "16": 1}
    assert found["tasks"][0]["zero_gradient"]["4"] == 0.125
    assert found["recommended_group_size"] == 4
