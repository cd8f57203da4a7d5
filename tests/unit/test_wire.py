"""What is kept of a checkpoint: the same as was sent, in few bytes."""

import tracemalloc
from math import isfinite, isnan, nan
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.groups import reward_std
from hud_tui.wire import HUGE, MOST_COUNT, Checkpoint, Group, PackedGroups, WorkState
from hud_tui.wire_rollouts import Trace
from tests.tui import runs

numbers = st.sampled_from((0.0, 0.5, 0.1, 1.0, -0.0, 1e99)) | st.floats(-HUGE, HUGE)
"""Rewards as JSON has them."""
tokens = st.integers(0, 300) | st.integers(-MOST_COUNT, MOST_COUNT)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    size = draw(st.integers(0, 4))

    def listed(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=size, max_size=size) | st.just([]))

    return Group(
        task_slug=draw(st.sampled_from(("add", "mul"))),
        rewards=draw(st.lists(numbers, min_size=size, max_size=size)),
        trace_ids=listed(st.text(max_size=3)),
        num_tokens=listed(tokens),
    )


@given(st.lists(groups(), max_size=4))
def test_packed_groups_are_the_groups(sent: list[Group]) -> None:
    row, plain = Checkpoint(id="c1", groups=sent), Checkpoint(id="c1")
    assert row.groups == sent
    assert list(row.groups) == sent
    assert row.groups[:2] == sent[:2]
    assert row.model_dump() == plain.model_dump() | {"groups": [one.model_dump() for one in sent]}
    without = {"groups": {"__all__": {"trace_ids"}}}
    assert row.model_dump(exclude=without)["groups"] == [
        group.model_dump(exclude={"trace_ids"}) for group in sent
    ]
    assert Checkpoint.model_validate_json(row.model_dump_json()) == row
    assert row == row.model_copy(update={"groups": sent})


@given(st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False)))
def test_packed_metrics_are_the_metrics(sent: dict[str, float]) -> None:
    row = Checkpoint(id="c1", metrics=sent)
    assert row.metrics == sent
    assert repr(row.metrics) == repr(sent)
    assert row.model_dump()["metrics"] == sent
    finite = {name: value for name, value in sent.items() if isfinite(value)}
    row = Checkpoint(id="c1", metrics=finite)
    assert Checkpoint.model_validate_json(row.model_dump_json()) == row


def test_groups_that_cannot_be_packed_are_kept_as_they_are() -> None:
    newer = [Group.model_validate({"task_slug": "a", "rewards": [1.0], "rubric": "strict"})]
    ragged = [Group(task_slug="a", rewards=[1.0, 0.0], num_tokens=[3])]
    for sent in (newer, ragged):
        row = Checkpoint(id="c1", groups=sent)
        assert not isinstance(row.groups, PackedGroups)
        assert row.groups == sent
    [group] = Checkpoint(id="c1", groups=[Group(task_slug="a", rewards=[nan])]).groups
    assert str(group.rewards) == "[nan]"
    with pytest.raises(IndexError):
        Checkpoint(id="c1", groups=[group]).groups[1]


def test_few_different_rewards_take_a_byte_each_and_stay_what_they_are() -> None:
    for rewards in ([0.25, 1.0, 0.25], [-0.0, 0.0], [n / 7 for n in range(20)], [1e99] * 3):
        [group] = Checkpoint(id="c1", groups=[Group(task_slug="a", rewards=rewards)]).groups
        assert repr(group.rewards) == repr(rewards)
    few, many = (
        Checkpoint(id="c1", groups=[Group(task_slug="a", rewards=rewards)]).groups
        for rewards in ([0.1, 0.3] * 100, [n / 7 for n in range(200)])
    )
    assert getsizeof(few._rewards) < 240 < getsizeof(many._rewards)


def test_a_row_is_kept_in_a_quarter_of_the_memory() -> None:
    """12 groups of 8 with their tokens, in a row of all fields: 16 kB as values of pydantic."""
    bodies = []
    for row in runs.checkpoints(100):
        bare = [group.model_copy(update={"trace_ids": []}) for group in row.groups]
        bodies.append(row.model_copy(update={"groups": bare}).model_dump_json())
    first, *_ = map(Checkpoint.model_validate_json, bodies)
    tracemalloc.start()
    kept = [Checkpoint.model_validate_json(body) for body in bodies]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(kept) < 2_000
    assert all(row.model_fields_set is first.model_fields_set for row in kept)


def test_names_of_fields_are_shared_by_rows_and_not_by_their_copies() -> None:
    row, other = Checkpoint(id="c1", step=1), Checkpoint(id="c2", step=2)
    row.model_copy(update={"pinned": True})
    assert other.model_fields_set == {"id", "step"}
    assert row.model_extra is other.model_extra
    assert row.model_copy(update={"newer": 1}).model_extra == {"newer": 1}
    assert other.model_extra == {}


def test_what_would_overflow_is_read_as_the_largest_number() -> None:
    body = '{"task_slug": "add", "rewards": [1, NaN, 1e400, 1e308, -1e308]}'
    first, *unknown, high, low = Group.model_validate_json(body).rewards
    assert (first, [*map(isnan, unknown)], high, low) == (1, [True, True], HUGE, -HUGE)
    assert isfinite(reward_std([high, low]))
    assert Trace.model_validate_json('{"id": "t1", "reward": 1e308}').reward == HUGE


def test_a_count_that_no_float_can_hold_is_read_as_one_that_can() -> None:
    large = "9" * 400
    body = f'{{"id": "c1", "step": {large}, "num_tokens": -{large}, "num_traces": 3}}'
    row = Checkpoint.model_validate_json(body)
    assert (row.step, row.num_tokens, row.num_traces) == (MOST_COUNT, -MOST_COUNT, 3)
    body = f'{{"task_slug": "add", "rewards": [1, 0], "num_tokens": [{large}, 7]}}'
    assert Group.model_validate_json(body).num_tokens == [MOST_COUNT, 7]


@pytest.mark.parametrize("at", ["1e300", "-1e400", "NaN", "9" * 400])
def test_a_moment_that_no_calendar_has_is_unknown(at: str) -> None:
    body = f'{{"status": "succeeded", "kind": "evaluation", "id": "e1", "created_at": {at}}}'
    work = WorkState.model_validate_json(body)
    assert work.created_at is None
    assert WorkState.model_validate_json(work.model_dump_json()) == work
