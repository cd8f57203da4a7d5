"""What moved nothing: counted as the run grows, exactly as counting it all at once would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.events import CheckpointAdded, HeadMoved
from hud_tui.rl.groups import (
    RESIDUE,
    SMALLEST,
    StepMarks,
    Waste,
    has_signal,
    reward_std,
    rollouts_of,
)
from hud_tui.rl.imported import ImportedRun
from hud_tui.rl.metrics import canonical
from hud_tui.rl.runs import run_of_job
from hud_tui.tui.widgets.group_grid import waste_text
from hud_tui.wire import Checkpoint, Job
from tests.tui import runs
from tests.unit.trees import grown, sampled

FLAT, MIXED, SOLVED = [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]


def test_tasks_without_gradient_come_first_and_a_step_s_groups_best_first() -> None:
    waste = Waste()
    run = grown(
        sampled(1, None, 5, a=MIXED, b=FLAT, c=SOLVED),
        sampled(2, 1, 7, a=MIXED, b=FLAT),
        sampled(3, 2, 1, c=[1.0, 1.0, 1.0]),
    )
    assert waste.follow(run)
    assert [task.task_slug for task in waste.tasks()] == ["c", "b", "a"]
    [c, b, a] = waste.tasks()
    assert (c.groups, c.all_solved, c.all_failed, c.rollouts, c.idle) == (2, 2, 0, 5, 5)
    assert (b.all_solved, b.all_failed, b.share, b.idle_tokens) == (0, 2, 1.0, 24)
    assert (a.idle, a.share) == (0, 0.0)
    assert waste.exact

    marks = StepMarks().of(sampled(1, None, a=FLAT, b=SOLVED, c=MIXED, d=[]))
    assert [(mark.mean, mark.has_signal, mark.all_solved) for mark in marks] == [
        (1.0, False, True),
        (0.5, True, False),
        (0.0, False, False),
    ]


def test_sums_are_known_up_to_every_step_and_tokens_that_are_not_said_shared_out() -> None:
    waste = Waste()
    waste.follow(grown(sampled(1, None, 5, a=MIXED, b=FLAT), sampled(2, 1, 5, a=FLAT)))
    assert waste.total(0).share == 0
    assert waste.total(1).share == pytest.approx(0.5)
    assert (waste.total().rollouts, waste.total().idle) == (6, 4)
    assert waste.total().token_share == pytest.approx(4 / 6)

    waste = Waste()
    waste.follow(grown(sampled(1, None, None, a=MIXED, b=FLAT)))
    assert not waste.exact
    assert waste.total().tokens == pytest.approx(100)
    assert waste.total().idle_tokens == pytest.approx(50)


def test_the_loss_decides_what_has_no_gradient_and_discarded_batches_count() -> None:
    by_reward = sampled(1, None, 5, a=MIXED, b=SOLVED).model_copy(
        update={"loss_fn": "cross_entropy"}
    )
    bare = Checkpoint(
        id="c2",
        prev_model_checkpoint_id="c1",
        is_active=True,
        num_traces=8,
        num_discarded=4,
        metrics={"frac_reward_zero_std": 0.5},
    )
    waste = Waste()
    waste.follow(grown(by_reward, bare))
    assert (waste.total(1).rollouts, waste.total(1).idle, waste.total(1).idle_tokens) == (4, 1, 5)
    total = waste.total()
    assert (total.rollouts, total.idle, total.discarded) == (4 + 8 + 4, 1 + 4 + 4, 4)
    assert [(task.task_slug, task.idle, task.all_solved) for task in waste.tasks()] == [
        ("a", 1, 0),
        ("b", 0, 1),
    ]
    assert "4 of them discarded" in waste_text(total, exact=True)


def test_a_share_that_is_none_counts_no_more_rollouts_than_there_are() -> None:
    for share, idle in ((1e308, 8), (-1.0, 0), (float("nan"), 0)):
        step = Checkpoint(id="c1", num_traces=8, metrics={"frac_reward_zero_std": share})
        assert rollouts_of(step, []) == (8, idle)


@pytest.mark.parametrize(
    "metrics",
    [
        {"frac_reward_zero_std": 0.5, "frac_groups_mixed": 0.9},
        {"env/all/by_group/frac_all_good": 0.125, "env/all/by_group/frac_all_bad": 0.375},
        {"is_trainable/mean": 0.5},
    ],
)
def test_other_trainers_metrics_say_how_many_rollouts_have_no_gradient(
    metrics: dict[str, float],
) -> None:
    step = Checkpoint(id="c1", num_traces=8, metrics=metrics)
    assert rollouts_of(step, []) == (8, 4)
    assert run_of_job(Job(id="j"), None, None, [step]).no_gradient == 0.5
    columns = {canonical(key): [value] for key, value in metrics.items()}
    assert (
        ImportedRun(id="i", name="i", numbers=[1], at=[None], metrics=columns).work.no_gradient
        == 0.5
    )


def test_a_branch_that_was_left_does_not_count() -> None:
    waste = Waste()
    run = grown(sampled(1, None, 5, a=FLAT), sampled(2, 1, 5, a=FLAT), sampled(3, 2, 5, b=FLAT))
    waste.follow(run)
    back = run.fold(HeadMoved(checkpoint_id="c1", cause="set"))
    waste.follow(back)
    assert [(task.task_slug, task.idle) for task in waste.tasks()] == [("a", 2)]
    waste.follow(back.fold(CheckpointAdded(checkpoint=sampled(4, 1, 5, a=MIXED))))
    assert waste.total().share == pytest.approx(0.5)


def test_a_long_run_is_counted_a_part_at_a_time() -> None:
    run, slow, whole = runs.run_of(50), Waste(), Waste()
    whole.follow(run)
    parts = 1
    while not slow.follow(run, most=7 * 12):
        parts += 1
        assert slow.length == 7 * (parts - 1)
    assert parts == 8
    assert slow.total() == whole.total()
    assert slow.tasks() == whole.tasks()
    assert whole.total().rollouts == 50 * 12 * 8


@given(
    st.lists(st.sampled_from([0.0, 0.1, 1 / 3, 1.0, 1e-9, 1 + 1e-7, 1 + 3e-6, -2.0]), max_size=9)
)
def test_a_quick_look_at_rewards_finds_what_the_deviation_says(rewards: list[float]) -> None:
    largest = max(map(abs, rewards), default=0.0)
    assert has_signal(rewards) == (reward_std(rewards) > RESIDUE * max(SMALLEST, largest))
