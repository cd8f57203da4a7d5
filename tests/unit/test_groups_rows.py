"""Which groups the Live view shows, in which order, and how each fared before."""

from hypothesis import given
from hypothesis import strategies as st

from hud_tui.events import CheckpointAdded, HeadMoved, RolloutDone, WorkChanged
from hud_tui.rl.groups import RECENT, GroupHistory, GroupRows, Order, bins, first_shown, group_rows
from hud_tui.rl.run import Run
from tests.tui import runs
from tests.unit.trees import grown, sampled


def means(history: GroupHistory, slug: str) -> list[float]:
    return [mark.mean for mark in history.of(slug)]


def test_history_grows_with_the_lineage_and_forgets_a_branch_that_was_left() -> None:
    history = GroupHistory()
    first = grown(sampled(1, None, a=[0.0, 1.0]), sampled(2, 1, b=[1.0, 1.0]))
    history.follow(first)
    history.follow(first.fold(CheckpointAdded(checkpoint=sampled(3, 2, a=[1.0, 1.0]))))
    assert means(history, "a") == [0.5, 1.0]
    assert [mark.std for mark in history.of("a")] == [0.5, 0.0]
    assert means(history, "b") == [1.0]
    assert means(history, "unknown") == []

    history = GroupHistory()
    run = grown(sampled(1, None, a=[0.0]), sampled(2, 1, a=[0.5]), sampled(3, 2, a=[1.0]))
    history.follow(run)
    back = run.fold(HeadMoved(checkpoint_id="c1", cause="set"))
    history.follow(back)
    assert means(history, "a") == [0.0]
    history.follow(back.fold(CheckpointAdded(checkpoint=sampled(4, 1, a=[0.25]))))
    assert means(history, "a") == [0.0, 0.25]


def test_history_reads_the_recent_steps_of_a_long_run_and_counts_what_it_has_seen() -> None:
    history = GroupHistory()
    run = grown(*(sampled(n, n - 1 if n else None, a=[float(n)]) for n in range(3 * RECENT)))
    history.follow(run)
    assert means(history, "a") == [float(n) for n in range(2 * RECENT, 3 * RECENT)]
    assert history.seen("a") == RECENT
    history.follow(run.fold(CheckpointAdded(checkpoint=sampled(900, 3 * RECENT - 1, a=[0.0]))))
    assert history.seen("a") == RECENT + 1
    assert len(history.of("a")) == RECENT


def rows_of(run: Run, order: Order = Order.TASK) -> GroupRows:
    history = GroupHistory()
    history.follow(run)
    return group_rows(run, history, order)


def test_a_taken_step_shows_its_groups_those_with_signal_first_where_asked() -> None:
    shown = rows_of(grown(sampled(1, None, b=[0.0, 1.0], a=[1.0, 1.0], c=[0.0, 0.0])))
    assert [row.task_slug for row in shown.rows] == ["a", "b", "c"]
    assert shown.summary == "3 groups × 2 · 1 all solved · 1 all failed · 1 with signal"
    assert shown.sampler == "base"
    run = grown(sampled(1, None, a=[1.0, 1.0], b=[0.0, 1.0], c=[0.0, 0.0], d=[0.0, 1.0]))
    shown = rows_of(run, Order.SIGNAL)
    assert [row.task_slug for row in shown.rows] == ["b", "d", "c", "a"], "then failed, then solved"


def test_a_step_being_sampled_shows_what_has_come_and_waits_for_no_other_batch() -> None:
    shown = rows_of(runs.sampling(runs.run_of(5), 13))
    assert (shown.name, shown.sampler) == ("step 6", "step-000005")
    assert len(shown.rows) == 12, "the step before sampled the same tasks: each has its row"
    came = {row.task_slug: len(row.rewards) for row in shown.rows if row.rewards}
    assert came == {runs.slug(0): 8, runs.slug(1): 5}
    assert shown.summary.endswith("11 pending")
    run = runs.run_of(5)
    event = RolloutDone(trace_id="t", step=6, task_slug="new", rollout=0, reward=0.5)
    assert [row.task_slug for row in rows_of(run.fold(event)).rows] == ["new"]


def test_rows_hold_still_while_rollouts_arrive() -> None:
    run = runs.run_of(5)
    for order in Order:
        orders = {
            tuple(row.task_slug for row in rows_of(runs.sampling(run, n), order).rows)
            for n in range(1, 64, 7)
        }
        assert len(orders) == 1


def test_when_the_step_is_taken_its_own_groups_are_shown_in_a_second_run_too() -> None:
    run = runs.sampling(runs.run_of(5), 96)
    six = runs.checkpoints(6)[-1]
    run = run.fold(CheckpointAdded(checkpoint=six)).fold(WorkChanged(work=runs.job(6, 400)))
    shown = rows_of(run)
    assert (shown.name, shown.sampler) == ("step-000006", "step-000005")
    assert [row.rewards for row in shown.rows] == [
        tuple(g.rewards) for g in sorted(six.groups, key=lambda g: g.task_slug)
    ]

    run = runs.run_of(60).fold(WorkChanged(work=runs.job(0, 400)))
    event = RolloutDone(trace_id="t", step=61, task_slug="new", rollout=0, reward=0.5)
    run = run.fold(event)
    assert rows_of(run).name == "step 61"
    run = run.fold(CheckpointAdded(checkpoint=runs.checkpoints(61)[-1]))
    assert rows_of(run.fold(WorkChanged(work=runs.job(1, 400)))).name == "step-000061"


def test_the_scale_holds_rewards_beyond_the_unit_and_a_strip_scrolls_by_quarters() -> None:
    shown = rows_of(grown(sampled(1, None, a=[-2.0, 3.0])))
    assert (shown.low, shown.high) == (-2.0, 3.0)
    assert (rows_of(Run()).low, rows_of(Run()).high) == (0.0, 1.0)
    assert [first_shown(count, 8) for count in (0, 8, 9, 10, 11, 12, 13)] == [0, 0, 2, 2, 4, 4, 6]
    assert all(0 < count - first_shown(count, 5) <= 5 for count in range(1, 99))


@given(st.integers(0, 10_000), st.integers(1, 200_000), st.integers(1, 300))
def test_bins_hold_every_row_and_stay_where_they_are(start: int, more: int, room: int) -> None:
    stop = start + more
    found = bins(start, stop, room)
    assert 1 <= len(found) <= room
    assert found.start <= start < stop <= found.stop + found.step
    assert all(first % found.step == 0 for first in found)
    longer = bins(start, stop + 1, room)
    assert longer.step >= found.step
    if longer.step == found.step:
        assert list(longer)[: len(found)] == list(found)


def test_a_bin_is_a_round_number_of_rows() -> None:
    sizes = [bins(0, stop, room).step for stop, room in ((100, 100), (101, 100), (10_000, 118))]
    assert sizes == [1, 2, 100]
    assert list(bins(9767, 9922, 118)) == list(range(9766, 9922, 2))
