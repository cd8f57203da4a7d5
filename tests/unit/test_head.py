"""What setting the head would do, and what became of it: said before, judged after."""

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.cli.models import _outcome
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.events import Act, Actor, HeadMoved
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.head import (
    HeadMove,
    Relation,
    head_change,
    moved_note,
    named,
    only_trained,
    outcome,
    to_known,
    to_parent,
    to_redo,
    to_selected,
    to_undo,
    undo_note,
)
from hud_tui.rl.history import History
from hud_tui.rl.run import Run
from hud_tui.tui.screens.set_head import preview
from hud_tui.wire import BASE, Checkpoint, Evaluation, Model, WorkState
from tests.unit.trees import parents, tree_of

FORKED = [-1, 0, 1, 2, 1, 4, -1]
"""c0 c1, then c2 c3 on one branch and c4 c5 on another; and c6, beside them all."""


def run_of(chosen: list[int], head: int | None, job: WorkState | None = None) -> Run:
    return Run(tree=tree_of(chosen, head), job=job)


@pytest.mark.parametrize(
    ("head", "target", "relation", "leaving", "joining", "parted"),
    [
        (3, 3, Relation.SAME, 0, 0, "c3"),
        (3, 1, Relation.ANCESTOR, 2, 0, "c1"),
        (1, 5, Relation.DESCENDANT, 0, 2, "c1"),
        (3, 5, Relation.BRANCH, 2, 2, "c1"),
        (None, 5, Relation.DESCENDANT, 0, 4, None),
        (6, 5, Relation.BRANCH, 1, 4, None),
    ],
)
def test_relations(
    head: int | None, target: int, relation: Relation, leaving: int, joining: int, parted: str
) -> None:
    change = head_change(run_of(FORKED, head), f"c{target}")
    assert (change.relation, change.leaving, change.joining) == (relation, leaving, joining)
    assert (change.common.id if change.common else None) == parted
    assert change.then.id == f"c{target}"
    assert (change.now.id if change.now else None) == (None if head is None else f"c{head}")


@given(parents(least=1), st.data())
def test_leaving_and_joining_count_the_steps_that_differ(
    chosen: list[int], data: st.DataObject
) -> None:
    node = st.integers(0, len(chosen) - 1)
    head, target = data.draw(node), data.draw(node)
    run = run_of(chosen, head)
    change = head_change(run, f"c{target}")
    served, then = set(run.tree.lineage(head)), set(run.tree.lineage(target))
    assert change.leaving == len(served - then)
    assert change.joining == len(then - served)


def test_deltas_are_then_minus_now_where_both_have_the_metric() -> None:
    nodes = [
        Checkpoint(id="a", is_active=True),
        Checkpoint(id="b"),
        Checkpoint(
            id="of a",
            prev_model_checkpoint_id="a",
            mean_reward=0.8,
            metrics={"entropy": 0.1, "turns_mean": 1.0},
        ),
        Checkpoint(
            id="of b", prev_model_checkpoint_id="b", mean_reward=0.5, metrics={"entropy": 0.3}
        ),
    ]
    change = head_change(Run(tree=Tree.of(nodes)), "b")
    assert change.deltas == pytest.approx({"entropy": 0.2, "reward_mean": -0.3})


@pytest.mark.parametrize(("tasks", "size"), [(1, "1×4"), (36, "36×4")])
def test_an_evaluation_has_its_sample_in_short(tasks: int, size: str) -> None:
    evaluation = Evaluation(mean_reward=0.5, num_tasks=tasks, num_traces=4 * tasks)
    change = replace(head_change(run_of(FORKED, 3), "c1"), evaluated_then=evaluation)
    assert f".500, {size} " in preview(change, "", 0.0, False, 6, ()).plain


def test_a_run_that_trains_is_named_and_a_checkpoint_that_is_not_there() -> None:
    for status, trains in (("running", True), ("succeeded", False)):
        change = head_change(run_of([-1, 0], 1, WorkState(status=status, id="j")), "c0")
        assert (change.training is not None) == trains
    with pytest.raises(KeyError):
        head_change(Run(), "c0")

    run = run_of([-1], 0)
    assert [named(run, each) for each in ("c0", "0123456789\x1b", None)] == [
        "step-000001", "01234567", "base",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "answered", "done", "text"),
    [
        (3, 1, True, True, "head is step-000002 · verified"),
        (3, 1, False, True, "no answer, but head is step-000002 · verified"),
        (3, 3, True, False, "the service says the head is step-000004"),
        (3, 3, False, False, "no answer: the service says the head is still step-000004"),
        (3, None, True, False, "the service says the head is base"),
    ],
)
def test_outcomes(before: int, after: int | None, answered: bool, done: bool, text: str) -> None:
    chosen = [-1, 0, 1, 2]
    became = outcome(run_of(chosen, before), run_of(chosen, after), "c1", answered)
    assert (became.done, became.text) == (done, text)


@pytest.mark.parametrize(("parent", "done"), [(0, True), (2, False)])
def test_a_step_proves_that_the_head_it_grew_from_was_set(parent: int, done: bool) -> None:
    became = outcome(run_of([-1, 0, 1], 2), run_of([-1, 0, 1, parent], 3), "c0", False)
    assert became.done is done
    said = "head is step-000004, trained on from step-000001 · verified"
    assert became.text.endswith(said) is done


def test_the_command_line_says_which_head_is_verified() -> None:
    """Training may have continued from the one that was set."""
    before, after = tree_of([-1, 0, 1], 2), tree_of([-1, 0, 1, 0], 3)
    model, client = Model(id="m", model_name="m"), cast(HudClient, None)
    set_now = before.with_head("c0")
    for tree, served in (
        (set_now, "step-000001"),
        (after, "step-000004, trained on from step-000001,"),
    ):
        data, text = _outcome(client, model, before, before[0], tree, "c2")
        assert text == f"m serves {served} instead of step-000003; verified"
        assert data["head"]["name"] == served.partition(",")[0]


@pytest.mark.parametrize(
    ("before", "head", "now", "then", "trained"),
    [
        ([-1, 0, 1], 2, [-1, 0, 1], 2, True),  # nothing moved
        ([-1, 0, 1], 2, [-1, 0, 1, 2, 3], 4, True),  # two steps on from the head that was seen
        ([-1, 0, 1], 2, [-1, 0, 1], 1, False),  # rolled back
        ([-1, 0, 1], 2, [-1, 0, 1, 0], 3, False),  # rolled back, then a step on
        ([-1, 0, 1], 2, [-1, 0, 1], None, False),
        ([], None, [-1, 0], 1, True),  # the first steps from the base
        ([-1, 0], None, [-1, 0], 1, False),
    ],
)
def test_only_training_moved_the_head(
    before: list[int], head: int | None, now: list[int], then: int | None, trained: bool
) -> None:
    assert only_trained(run_of(before, head), run_of(now, then)) is trained


def moved(
    previous: str | None, checkpoint_id: str, act: Act = Act.SET, by: Actor | None = None
) -> HeadMoved:
    return HeadMoved(checkpoint_id=checkpoint_id, previous=previous, cause="set", act=act, by=by)


def with_moves(run: Run, *moves: HeadMoved) -> Run:
    """A run with these moves, one per second."""
    dated = [move.model_copy(update={"at": float(at)}) for at, move in enumerate(moves, 1)]
    return replace(run, history=History(tuple(dated), 0.0))


def test_undo_takes_back_the_last_move_then_the_one_before_until_a_new_one_is_made() -> None:
    run = run_of(FORKED, 5)
    moves = [moved("c1", "c2"), moved("c2", "c3"), moved("c3", "c5")]
    for target in ("c3", "c2", "c1"):
        undo = to_undo(with_moves(run, *moves))
        assert (undo.target, undo.act) == (target, Act.UNDO)
        moves.append(moved("c5", target, undo.act))
    with pytest.raises(HudUsage, match=r"Nothing to undo. The head's history: complete\."):
        to_undo(with_moves(run, *moves))
    for target in ("c2", "c3", "c5"):
        redo = to_redo(with_moves(run, *moves))
        assert redo == HeadMove(target, Act.REDO)
        moves.append(moved("c1", target, redo.act))
    moves += [moved("c5", "c3", Act.UNDO), moved("c3", "c4")]
    assert to_undo(with_moves(run, *moves)).target == "c3"
    with pytest.raises(HudUsage, match="Nothing to redo"):
        to_redo(with_moves(run, *moves))


def test_an_undo_of_another_move_than_the_last_is_a_move_of_its_own() -> None:
    """Two apps undo at once, or an older one undoes what it saw last."""
    run = with_moves(run_of(FORKED, 5), moved("c1", "c2"), moved("c2", "c5", Act.UNDO))
    assert to_undo(run).target == "c2"
    run = with_moves(run_of(FORKED, 5), moved("c1", "c2"), moved("c2", "c5", Act.REDO))
    assert to_undo(run).target == "c2"


def test_a_move_that_is_wanted_and_why_one_cannot_be() -> None:
    chain = [-1, 0, 1]
    assert to_selected(run_of(chain, 2), 1, folded=False) == HeadMove("c1")
    assert to_known(run_of(chain, 2), "c1") == HeadMove("c1")
    assert to_parent(run_of(chain, 2)) == HeadMove("c1")
    for wish, why in (
        (lambda: to_selected(run_of(chain, 2), 1, folded=True), "folds"),
        (lambda: to_selected(run_of(chain, 2), ROOT, folded=False), "base weights"),
        (lambda: to_known(run_of(chain, 2), BASE), "base weights"),
        (lambda: to_known(run_of(chain, 2), "gone"), "no longer in the tree"),
        (lambda: to_parent(run_of(chain, 0)), "no parent"),
        (lambda: to_parent(run_of(chain, None)), "nothing to roll back"),
        (lambda: to_undo(run_of(chain, 2)), "Nothing to undo"),
        (lambda: to_redo(run_of(chain, 2)), "Nothing to redo"),
        (lambda: to_undo(with_moves(run_of(chain, 0), moved(None, "c0"))), "base weights"),
    ):
        with pytest.raises(HudUsage, match=why):
            wish()


COLLEAGUE = Actor(program="headless", host="tower")


@pytest.mark.parametrize(
    ("head", "move", "note"),
    [
        (0, moved("c2", "c0"), "Undoes step-000003 → step-000001."),
        (2, moved(None, "c0"), "has continued since: step-000003 descends from step-000001."),
        (0, moved("c1", "c2"), "The head has moved since: it is now step-000001."),
        (0, moved("c2", "c0", by=COLLEAGUE), "→ step-000001, by command line on tower."),
    ],
)
def test_undo_says_which_move_it_undoes_and_what_came_since(
    head: int, move: HeadMoved, note: str
) -> None:
    assert undo_note(run_of([-1, 0, 1], head), move).endswith(note)


def test_a_head_that_moved_is_told_with_who_moved_it_and_when() -> None:
    seen, run = run_of([-1, 0, 1], 2), run_of([-1, 0, 1], 0)
    assert moved_note(seen, run, 9.0) == (
        "The head is now step-000001; it was step-000003 when you last saw it."
    )
    told = with_moves(run, moved("c2", "c0", by=COLLEAGUE))
    said = "The head moved 8 s ago: step-000003 → step-000001, by command line on tower."
    assert moved_note(seen, told, 9.0) == said
    grown = replace(run_of([-1, 0, 1, 0], 3), history=told.history)
    assert moved_note(seen, grown, 9.0) == f"{said} Training has continued to step-000004."
