"""The tasks of a batch or an evaluation: split, missing rollouts, parts."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.rl.plan import TaskSplit, in_parts, missing_of, tasks_of_iteration


@dataclass(frozen=True)
class Named:
    slug: str
    heldout: bool = False


A, B, C = Named("a"), Named("b", True), Named("c")


def test_without_a_name_the_held_out_tasks_are_chosen_else_all() -> None:
    split = TaskSplit.of([A, B, C])
    assert split.chosen() == ([B], "heldout")
    assert split.chosen("train") == ([A, C], "train")
    assert split.chosen("all") == ([A, B, C], "all")
    assert TaskSplit.of([A, C]).chosen() == ([A, C], "all")


def test_a_split_without_tasks_is_refused() -> None:
    for tasks, name in (([A, C], "heldout"), ([B], "train")):
        with pytest.raises(HudUsage, match=f"none of the {len(tasks)} tasks is in {name}"):
            TaskSplit.of(tasks).chosen(name)


COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@given(COUNTS, st.integers(1, 4))
def test_what_is_missing_and_what_is_made_are_all_and_nothing_twice(
    made: list[int], samples: int
) -> None:
    tasks = [Named(str(number)) for number in range(len(made))]
    known = {task.slug: count for task, count in zip(tasks, made, strict=True)}
    missing = missing_of(tasks, samples, known)
    for one in missing:
        assert list(one.indices) == list(range(known[one.task.slug], samples))
    whole = {task.slug for task in tasks if known[task.slug] >= samples}
    assert whole == {task.slug for task in tasks} - {one.task.slug for one in missing}


@given(COUNTS, st.integers(1, 12))
def test_parts_hold_everything_in_order_and_are_no_larger_than_asked(
    made: list[int], most: int
) -> None:
    tasks = [Named(str(number)) for number in range(len(made))]
    missing = missing_of(tasks, 6, {t.slug: n for t, n in zip(tasks, made, strict=True)})
    parts = in_parts(missing, most)
    assert [one for part in parts for one in part] == missing
    for part in parts:
        assert len(part) == 1 or sum(one.count for one in part) <= most
    for part, after in pairwise(parts):
        assert sum(one.count for one in part) + after[0].count > most, "no part could be larger"


@given(st.integers(1, 20), st.integers(1, 8), st.integers(0, 3))
def test_an_epoch_deals_no_task_out_twice(count: int, per_step: int, seed: int) -> None:
    tasks, size = list(range(count)), min(per_step, count)
    epoch = [tasks_of_iteration(tasks, per_step, seed, i) for i in range(count // size)]
    assert {len(batch) for batch in epoch} == {size}
    assert max(Counter(task for batch in epoch for task in batch).values()) == 1
    another = [tasks_of_iteration(tasks, per_step, seed, i) for i in range(count // size)]
    assert epoch == another
