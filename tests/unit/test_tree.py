"""The checkpoint tree: versions share their nodes, none changes; and one that is read again."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from hud_tui.events import TreeRead
from hud_tui.rl.checkpoint_tree import MOST, ROOT, Tree, label, reread
from hud_tui.rl.run import Run
from hud_tui.rl.tree_layout import Segments
from hud_tui.tui.widgets.checkpoint_tree import DELTA, cell
from hud_tui.wire import Checkpoint, Evaluation, Group
from tests.unit.trees import checkpoint, parents, tree_of


def ancestry(chosen: list[int], position: int | None) -> list[int]:
    """The lineage, worked out from the parents alone."""
    line = []
    while position is not None and position != ROOT:
        line.append(position)
        position = chosen[position]
    return line


@given(parents(least=1), st.data())
def test_lineages_depths_and_meetings_agree_with_the_parents(
    chosen: list[int], data: st.DataObject
) -> None:
    tree = tree_of(chosen)
    some = st.none() | st.integers(0, len(chosen) - 1)
    one, other = data.draw(some), data.draw(some)
    lines = ancestry(chosen, one), ancestry(chosen, other)
    assert list(tree.lineage(one)) == lines[0]
    assert tree.path(one) == lines[0][::-1]
    assert tree.common_ancestor(one, other) == max(set(lines[0]) & set(lines[1]), default=ROOT)
    for node in range(len(chosen)):
        assert tree.depth(node) == len(ancestry(chosen, node))
        assert tree.is_ancestor(node, one) == (node in lines[0])


@given(parents(least=1), st.data())
def test_segments_find_ancestors_by_depth(chosen: list[int], data: st.DataObject) -> None:
    segments = Segments()
    for parent in chosen:
        segments.add(parent)
    node = data.draw(st.integers(0, len(chosen) - 1))
    line = ancestry(chosen, node)[::-1]
    depths = sorted(data.draw(st.lists(st.integers(1, len(line)))))
    assert segments.ancestors(node, depths) == [line[depth - 1] for depth in depths]
    assert sorted(p for nodes in segments.nodes for p in nodes) == list(range(len(chosen)))


@given(parents(), st.data())
def test_an_older_version_stays_what_it_was_however_others_grow(
    chosen: list[int], data: st.DataObject
) -> None:
    versions = [Tree()]
    for position, parent in enumerate(chosen):
        base = data.draw(st.sampled_from(versions)) if position % 3 == 2 else versions[-1]
        known = [node.id for node in base]
        above = f"c{parent}" if f"c{parent}" in known else None
        node = Checkpoint(id=f"c{position}", prev_model_checkpoint_id=above, mean_reward=0.5)
        grown = base.add(node)
        assert [each.id for each in base] == known
        assert [each.id for each in grown] == [*known, node.id]
        assert base.find(node.id) is None
        assert grown.find(node.id) == len(known)
        versions.append(grown)


@given(parents(), st.data())
def test_read_at_once_is_what_grew_step_by_step(chosen: list[int], data: st.DataObject) -> None:
    active = data.draw(st.none() | st.integers(0, len(chosen) - 1)) if chosen else None
    nodes = [
        node.model_copy(update={"is_active": position == active})
        for position, node in enumerate(tree_of(chosen))
    ]
    grown = Tree()
    for node in nodes:
        grown = grown.add(node)
    read = Tree.of(nodes)
    assert list(read) == list(grown)
    assert (read.head, read.best, read.peak) == (grown.head, grown.best, grown.peak)
    assert read.extends(grown)
    assert grown.extends(read)


@given(parents())
def test_a_tree_extends_what_it_grew_from_and_not_the_other_way_round(chosen: list[int]) -> None:
    tree, half = tree_of(chosen), tree_of(chosen[: len(chosen) // 2])
    assert tree.extends(half)
    assert half.extends(tree) == (len(half) == len(tree))
    if len(chosen) > 1:
        assert not tree.extends(tree_of([*chosen[:-1], ROOT if chosen[-1] != ROOT else 0]))


def chain_of(*rewards: float | None, heldout: Sequence[float | None] = ()) -> Tree:
    """Checkpoints whose own rewards these are: each is what the step after it reports."""
    held = [None, *heldout, *[None] * (len(rewards) - len(heldout))]
    return Tree.of(
        Checkpoint(
            id=str(number),
            prev_model_checkpoint_id=str(number - 1),
            mean_reward=reward,
            metrics={} if held[number] is None else {"heldout_reward": held[number]},
        )
        for number, reward in enumerate([None, *rewards])
    )


def test_what_is_compared_is_the_held_out_reward_before_any_other() -> None:
    assert chain_of(float("nan"), None).choice is None
    deltas = chain_of(0.5, 0.75, None)
    assert [deltas.delta(p) for p in range(4)] == [None, 0.25, None, None], "both are needed"

    tree = chain_of(0.5, 0.9, 0.6, 0.8, 1.0, heldout=[0.4, None, 0.7, 0.7, float("nan")])
    assert tree.choice is not None
    assert (tree.choice.by, [*tree.choice.rewards]) == ("heldout_reward", [0, 2, 3])
    assert tree.peak == 1.0
    trained = chain_of(0.9).choice
    assert trained is not None
    assert (trained.position, trained.by) == (0, "reward_mean")


def test_a_checkpoint_told_twice_is_there_once_and_one_of_another_version_not() -> None:
    node = checkpoint(0, ROOT)
    tree = Tree().add(node)
    assert tree.add(node) is tree
    assert tree.add(node.model_copy(update={"is_active": True})) is tree
    assert len(Tree.of([node, node])) == 1
    grown = tree.add(checkpoint(1, 0)).with_head("c1")
    with pytest.raises(IndexError):
        tree[1]
    assert grown.with_head("c9") is grown.with_head("c1") is grown
    assert grown.with_head("c0").served is grown[0]
    assert grown.with_head(None).served is None
    orphan = Tree.of([Checkpoint(id="a", prev_model_checkpoint_id="gone")])
    assert (orphan.parent(0), orphan.depth(0)) == (ROOT, 1), "it counts as the base weights"
    assert [label(one) for one in (None, Checkpoint(id="0123456789"), node)] == [
        "base", "01234567", "step-000001",
    ]  # fmt: skip


def test_what_is_said_anew_of_a_checkpoint_is_shown_and_moves_no_head() -> None:
    tree = tree_of([-1, 0, 1], head=2)
    thinned = tree[0].model_copy(update={"state": "expired", "is_active": True})
    told = tree.add(thinned)
    assert (told[0].state, told.head, len(told)) == ("expired", 2, 3)
    assert told is not tree
    assert told.edition > tree.edition
    assert told.extends(tree)
    assert told.add(thinned) is told
    grown = told.add(checkpoint(3, 2))
    assert grown[0].state == "expired"


def on(tasks: str, position: int, job: str, says: bool) -> Checkpoint:
    """A step of a run on some tasks, which the service names or does not."""
    return checkpoint(position, position - 1, 0.9 if tasks == "long" else 0.5).model_copy(
        update={
            "job_id": job,
            "tasks_digest": tasks if says else None,
            "groups": [Group(task_slug=f"{tasks} {i}", rewards=[0, 1]) for i in range(3)],
        }
    )


@pytest.mark.parametrize("says", [True, False])
def test_rewards_on_other_tasks_have_no_delta(says: bool) -> None:
    runs = [("long", "a"), ("long", "a"), ("long", "b"), ("mixed", "c"), ("mixed", "c")]
    tree = Tree.of(on(tasks, at, job, says) for at, (tasks, job) in enumerate(runs))
    assert [tree.delta(p) for p in range(5)] == [0, 0, None, 0, None]
    assert [tree.on_same_tasks(p - 1, p) for p in range(1, 5)] == [True, False, True, True]
    cells = [cell(DELTA, tree, p, 0.0, 1.0, Style())[0].text.strip() for p in range(5)]
    assert cells == ["=0", "=0", "–", "=0", ""]


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


@given(parents(least=1), st.data())
def test_reading_again_is_reading_anew(chosen: list[int], data: st.DataObject) -> None:
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
