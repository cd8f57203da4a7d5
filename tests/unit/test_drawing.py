"""Which tasks a batch is made of: weights, draws, and what is remembered of tasks."""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.drawing import BEFORE, FLOOR, SIGNAL, UNSEEN, Drawing, draw, expected_signal
from hud_tui.rl.metrics import TASK_COUNTS
from hud_tui.rl.plan import tasks_of_iteration

LOSS = "importance_sampling"
SIZE = 4


@dataclass(frozen=True)
class Named:
    slug: str
    heldout: bool = False


def named(count: int) -> list[Named]:
    return [Named(f"t{number}") for number in range(count)]


def drawing(**parameters: Any) -> Drawing:
    usual = {"tasks_per_step": 3, "group_size": SIZE, "seed": 7, "loss_fn": LOSS, "draw": SIGNAL}
    return Drawing(usual | parameters)


def slugs(tasks: list[Named]) -> list[str]:
    return [task.slug for task in tasks]


GROUP = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=SIZE, max_size=SIZE)
BATCHES = st.lists(st.dictionaries(st.sampled_from(slugs(named(8))), GROUP), max_size=6)


@given(st.lists(st.floats(FLOOR, 1.0), min_size=1, max_size=20), st.integers(1, 25), st.integers())
def test_a_draw_has_no_duplicates_and_as_many_as_there_are(
    weights: list[float], count: int, seed: int
) -> None:
    tasks = named(len(weights))
    drawn = draw(tasks, weights, count, Random(seed))
    assert len(set(drawn)) == len(drawn) == min(count, len(tasks))


def test_tasks_are_drawn_in_proportion_to_their_weights() -> None:
    tasks, weights = named(4), [0.05, 0.15, 0.3, 0.5]
    firsts = [draw(tasks, weights, 1, Random(seed))[0] for seed in range(4000)]
    for task, weight in zip(tasks, weights, strict=True):
        assert firsts.count(task) / 4000 == pytest.approx(weight, abs=0.03)


@pytest.mark.parametrize("rewards", [[0.0] * SIZE, [1.0] * SIZE, [0.7] * SIZE])
def test_a_task_without_signal_keeps_the_floor(rewards: list[float]) -> None:
    known = drawing()
    known.saw(0, [("t0", rewards)])
    assert known.weight("t0") == FLOOR
    assert known.weight("t1") == UNSEEN == 1.0


def test_the_weight_is_the_expected_share_of_groups_with_a_gradient() -> None:
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert expected_signal(rewards, 4, LOSS) == pytest.approx(1 - (7 / 8) ** 4 - (1 / 8) ** 4)
    assert expected_signal(rewards, 4, "cross_entropy") == pytest.approx(1 - (7 / 8) ** 4)
    assert expected_signal([1.0] * 4, 4, "cross_entropy") == 1.0
    assert expected_signal([0.0] * 4, 4, "cross_entropy") == 0.0


def test_only_the_last_groups_of_a_task_count() -> None:
    known = drawing()
    known.saw(0, [("t0", [0.0, 1.0, 0.0, 1.0])])
    known.saw(1, [("t0", [1.0] * SIZE)])
    assert known.weight("t0") > FLOOR
    assert known.counts(named(1))["tasks_learnable"] == 1.0
    known.saw(2, [("t0", [1.0] * SIZE)])
    assert known.weight("t0") == FLOOR
    assert known.counts(named(1))["tasks_solved"] == 1.0
    known.tasks_of(named(1), 2)
    assert known.weight("t0") > FLOOR


@given(st.integers(0, 40), st.integers(1, 10), st.integers(0, 5), BATCHES)
def test_the_uniform_draw_is_the_order_of_epochs_whatever_was_seen(
    iteration: int, per_step: int, seed: int, batches: list[dict[str, list[float]]]
) -> None:
    known = drawing(draw="uniform", tasks_per_step=per_step, seed=seed)
    for number, batch in enumerate(batches):
        known.saw(number, batch.items())
    expected = tasks_of_iteration(named(8), per_step, seed, iteration)
    assert known.tasks_of(named(8), iteration) == expected
    assert known.by is None


@given(BATCHES, st.integers(0, 3), st.integers(0, 3))
def test_a_resumed_run_draws_the_same_although_later_batches_were_sampled(
    batches: list[dict[str, list[float]]], ahead: int, again: int
) -> None:
    went_on, resumed = drawing(max_staleness=ahead), drawing(max_staleness=ahead)
    iteration = max(0, len(batches) - min(ahead, len(batches)))
    for number, batch in enumerate(batches):
        went_on.saw(number, batch.items())
        if number < iteration:
            resumed.saw(number, batch.items())
    tasks = named(8)
    for _ in range(again + 1):
        assert went_on.tasks_of(tasks, iteration) == resumed.tasks_of(tasks, iteration)


def test_each_iteration_and_each_seed_draws_others() -> None:
    tasks = named(40)
    draws = [slugs(drawing(seed=seed).tasks_of(tasks, i)) for seed in (1, 2) for i in (0, 1)]
    assert len({tuple(drawn) for drawn in draws}) == 4


def test_what_teaches_is_drawn_more_often_and_nothing_is_forgotten() -> None:
    tasks, known = named(20), drawing(tasks_per_step=4)
    mixed, flat = [0.0, 1.0, 0.0, 1.0], [0.0] * SIZE
    known.saw(BEFORE, [(task.slug, mixed if task in tasks[:4] else flat) for task in tasks])
    drawn = [task for i in range(300) for task in known.tasks_of(tasks, i)]
    taught = sum(task in tasks[:4] for task in drawn) / len(drawn)
    assert taught > 0.6
    assert set(drawn) == set(tasks)


def test_tasks_are_counted_by_their_last_groups() -> None:
    known = drawing()
    batch = {"t0": [1.0] * SIZE, "t1": [0.0] * SIZE, "t2": [0.0, 1.0, 1.0, 1.0], "t3": []}
    known.saw(0, batch.items())
    assert known.counts(named(6)) == dict(zip(TASK_COUNTS, (1.0, 1.0, 1.0, 3.0), strict=True))
