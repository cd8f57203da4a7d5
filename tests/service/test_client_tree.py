"""Reading a tree again and again, and what a change of it means."""

import asyncio
import gc
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.client.client import TreeReader
from hud_tui.client.feed import changes
from hud_tui.client.transport import adapter
from hud_tui.errors import HudMalformed
from hud_tui.events import CheckpointAdded, HeadMoved, StepTaken, TreeRead
from hud_tui.wire import Checkpoint, Evaluation

TREE = adapter(list[Checkpoint])


def row(number: int, head: bool = False, **more: Any) -> dict[str, Any]:
    parent = f"c{number - 1}" if number > 1 else None
    return {
        "id": f"c{number}",
        "name": f"step-{number:06d}",
        "prev_model_checkpoint_id": parent,
        "is_active": head,
        "metrics": {"kl": 0.1 * number, 'q"},[': 1.0},
        "unknown": {"kept": [1, "]"]},
        **more,
    }


def tree(size: int, head: int) -> list[dict[str, Any]]:
    return [row(number, number == head) for number in range(1, size + 1)]


def checkpoints(size: int, head: int) -> list[Checkpoint]:
    return [Checkpoint.model_validate(one) for one in tree(size, head)]


def dumped(rows: Sequence[dict[str, Any]], indent: int | None = None) -> bytes:
    return json.dumps(rows, indent=indent, ensure_ascii=False).encode()


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6), st.booleans())
def test_every_reading_is_what_the_body_says(sizes: list[tuple[int, int]], wide: bool) -> None:
    async def read() -> None:
        reader = TreeReader()
        for size, head in sizes:
            body = dumped(tree(size, head), indent=1 if wide else None)
            assert list(await reader.read(body)) == TREE.validate_json(body)

    asyncio.run(read())


async def test_an_equal_body_is_the_same_tuple_and_old_rows_the_same_objects() -> None:
    reader = TreeReader()
    first = await reader.read(dumped(tree(5, 5)))
    assert await reader.read(dumped(tree(5, 5))) is first
    second = await reader.read(dumped(tree(7, 7)))
    assert all(new is old for new, old in zip(second, first[:4], strict=False))
    assert second[4] is not first[4]  # it was the head


async def test_only_the_rows_between_which_a_head_moved_are_read_anew() -> None:
    reader = TreeReader()
    first = await reader.read(dumped(tree(9, 3)))
    second = await reader.read(dumped(tree(11, 7)))
    fresh = [
        place
        for place, (new, old) in enumerate(zip(second, first, strict=False), 1)
        if new is not old
    ]
    assert fresh == [3, 7]
    assert list(second) == TREE.validate_json(dumped(tree(11, 7)))


@pytest.mark.parametrize(
    "rows",
    [
        [row(1), row(2, metrics={"x": float("nan"), "y": float("inf")}), row(3)],
        [row(1), row(2, unknown='},{"id":"no row"}'), row(3)],
        [row(1), row(2, unknown=[{"a": 1}, {"id": "no row"}, {"id": 5}]), row(3)],
        [row(1), row(2, name='},{"id":'), row(3, name="\\"), row(4, name='"}')],
        [row(1), {"name": "in another order", "id": "x"}, row(3)],
        [row(1), row(2, name="é和😀"), row(3), row(4, unknown="x" * 300_000), row(5)],
    ],
    ids=["NaN", "a text like a row", "rows in a row", "quotes", "order", "long"],
)
@pytest.mark.parametrize("indent", [None, 2])
async def test_what_looks_like_the_next_row_is_not_taken_for_it(
    rows: list[dict[str, Any]], indent: int | None
) -> None:
    reader = TreeReader()
    body = dumped(rows, indent)
    wanted = TREE.validate_json(body)
    assert str(list(await reader.read(body))) == str(wanted)
    longer = dumped([*rows, row(9)], indent)
    assert str(list(await reader.read(longer))) == str([*wanted, Checkpoint.model_validate(row(9))])


async def test_the_collector_goes_on_after_a_reading_however_it_ended() -> None:
    assert gc.isenabled()
    await TreeReader().read(dumped(tree(3, 3)))
    with pytest.raises(HudMalformed):
        await TreeReader().read(dumped(tree(3, 3))[:-5])
    assert gc.isenabled()


async def test_ten_thousand_rows_leave_the_loop_its_turns() -> None:
    reading = asyncio.create_task(TreeReader().read(dumped(tree(10_000, 1))))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(await reading) == 10_000
    assert turns > 10


async def test_a_body_that_is_no_tree_is_malformed_and_the_last_one_stays() -> None:
    for body in (
        b"",
        b"{}",
        b"null",
        b"[",
        b"[1]",
        b'[{"id": "a"}',
        b'[{"id": "a"},]',
        b'[{"id": "a"} {"id": "b"}]',
        b'[{"id": "a"}] x',
        b'[{"id": 1.5}]',
        b'[{"id": "a", "is_active": "perhaps"}]',
        b"\xff",
        b"[" * 100_000,
    ):
        reader = TreeReader()
        good = await reader.read(dumped(tree(3, 3)))
        with pytest.raises(HudMalformed):
            await reader.read(body)
        assert await reader.read(dumped(tree(3, 3))) is good


def test_a_step_is_a_checkpoint_then_the_head_then_the_step() -> None:
    added, moved, step = changes(checkpoints(2, 2), checkpoints(3, 3))
    assert isinstance(added, CheckpointAdded)
    assert added.checkpoint.id == "c3"
    assert moved == HeadMoved(checkpoint_id="c3", previous="c2", cause="step")
    assert isinstance(step, StepTaken)
    assert (step.step, step.checkpoint_id, step.metrics["kl"]) == (3, "c3", pytest.approx(0.3))
    unnumbered = Checkpoint(id="x", mean_reward=0.5, metrics={})
    [_, step] = changes(checkpoints(2, 2), [*checkpoints(2, 2), unnumbered])
    assert isinstance(step, StepTaken)
    assert (step.step, step.metrics) == (3, {"reward_mean": 0.5}), "counted by its place"


def test_a_head_that_somebody_set_also_back_behind_steps() -> None:
    assert changes(checkpoints(3, 3), checkpoints(3, 3)) == []
    moved = HeadMoved(checkpoint_id="c1", previous="c3", cause="set")
    assert changes(checkpoints(3, 3), checkpoints(3, 1)) == [moved]
    events = changes(checkpoints(1, 1), checkpoints(3, 0))
    assert [event.type for event in events] == ["checkpoint", "step", "checkpoint", "step", "head"]
    assert events[-1] == HeadMoved(checkpoint_id=None, previous="c1", cause="set")


def test_anything_else_is_the_whole_tree() -> None:
    for old, new in (
        (checkpoints(3, 3), checkpoints(2, 2)),
        (checkpoints(2, 2), [Checkpoint(id="other"), *checkpoints(2, 2)[1:]]),
        (
            checkpoints(2, 2),
            [checkpoints(2, 2)[0], Checkpoint.model_validate(row(2, True, mean_reward=1))],
        ),
    ):
        assert changes(old, new) == [TreeRead(checkpoints=tuple(new))]


def test_what_is_said_anew_of_a_checkpoint_is_no_other_step() -> None:
    old, new = checkpoints(2, 2), checkpoints(3, 3)
    scored = Evaluation(mean_reward=0.5, num_tasks=2, num_traces=2)
    new[1] = new[1].model_copy(update={"evaluations": [scored]})
    anew, added, moved, step = changes(old, new)
    assert anew == CheckpointAdded(checkpoint=new[1])
    assert [event.type for event in (added, moved, step)] == ["checkpoint", "head", "step"]
    assert isinstance(step, StepTaken)
    assert step.step == 3
