"""A tree read again: one that only grew keeps what was made of it, any other is built anew."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.events import TreeRead
from hud_tui.rl.checkpoint_tree import MOST, Tree, reread
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, Evaluation
from tests.unit.trees import checkpoint, parents, tree_of


def read(run: Run, nodes: list[Checkpoint]) -> Run:
    return run.fold(TreeRead(checkpoints=tuple(nodes)))


def nodes_of(chosen: list[int], head: int | None) -> list[Checkpoint]:
    """As they arrive: other objects each time."""
    tree = tree_of(chosen)
    active = {position: position == head for position in range(len(tree))}
    return [node.model_copy(update={"is_active": active[at]}) for at, node in enumerate(tree)]


def shape(run: Run) -> tuple[object, ...]:
    tree, series = run.tree, run.series
    rows = [series.id_at(row) for row in range(series.length)]
    told = [(node.id, node.state, node.pinned, node.evaluations) for node in tree]
    values = str(list(series.values("reward_mean")))
    return told, tree.head, tree.best, tree.peak, tree.pinned, rows, values


@given(parents(), st.data())
def test_reading_again_is_reading_anew(chosen: list[int], data: st.DataObject) -> None:
    if not chosen:
        return
    heads = st.none() | st.integers(0, len(chosen) - 1)
    size = data.draw(st.integers(1, len(chosen)))
    first = nodes_of(chosen[:size], data.draw(heads.filter(lambda at: at is None or at < size)))
    second = nodes_of(chosen, data.draw(heads))
    scored = Evaluation(mean_reward=0.5, num_tasks=2, num_traces=2)
    anew = {"state": "expired", "pinned": True, "evaluations": [scored]}
    for at in data.draw(st.sets(st.integers(0, len(chosen) - 1))):
        second[at] = second[at].model_copy(update=anew)
    again = read(read(Run(), first), second)
    assert shape(again) == shape(read(Run(), second))


def test_what_was_made_of_the_steps_is_kept_but_not_of_a_shorter_or_another_tree() -> None:
    before = read(Run(), nodes_of([-1, 0, 1], 2))
    after = read(before, nodes_of([-1, 0, 1, 2], 3))
    assert after.series.same_rows(before.series)
    assert after.tree.extends(before.tree)
    assert (len(before.tree), before.series.length) == (3, 3)

    nodes = [checkpoint(position, position - 1) for position in range(MOST + 1)]
    tree = Tree.of(nodes)
    assert reread(tree, nodes) is not None
    assert reread(tree, nodes[:-1]) is None
    assert reread(tree, [node.model_copy() for node in nodes]) is None


@pytest.mark.parametrize(
    "other",
    [{"metrics": {"kl": 0.5}}, {"id": "other"}, {"mean_reward": 0.75}],
    ids=lambda change: next(iter(change)),
)
def test_another_tree_is_built_anew(other: dict[str, Any]) -> None:
    nodes = nodes_of([-1, 0, 1], 2)
    before = read(Run(), nodes)
    changed = [nodes[0], nodes[1].model_copy(update=other), nodes[2]]
    after = read(before, changed)
    assert shape(after) == shape(read(Run(), changed))
    assert not after.series.same_rows(before.series)
