"""What setting the head would do, and what became of it: said before, judged after."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.events import HeadMoved
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.head import (
    Act,
    HeadMove,
    Journal,
    Move,
    Relation,
    head_change,
    named,
    only_trained,
    outcome,
    to_parent,
    to_redo,
    to_selected,
    to_undo,
    undo_note,
)
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, WorkState
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


@given(parents(), st.data())
def test_leaving_and_joining_count_the_steps_that_differ(
    chosen: list[int], data: st.DataObject
) -> None:
    if not chosen:
        return
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
    checkpoint_id: str | None, previous: str | None, cause: str = "set", at: float = 1.0
) -> HeadMoved:
    return HeadMoved.model_validate(
        {"checkpoint_id": checkpoint_id, "previous": previous, "cause": cause, "at": at}
    )


def test_the_journal_takes_down_foreign_moves_and_no_steps() -> None:
    journal = Journal()
    assert journal.observe(moved("b", "a", "step")) is None
    assert journal.observe(moved("b", "b")) is None
    assert journal.observe(moved(None, "b")) is None
    assert journal.observe(moved("c", "b")) == Move("b", "c", ours=False, at=1.0)
    assert journal.done == [Move("b", "c", ours=False, at=1.0)]


def test_our_own_move_is_expected_once_and_for_a_while() -> None:
    now = 0.0
    journal = Journal(lambda: now)
    journal.expect("b")
    assert journal.observe(moved("b", "a")) is None
    assert journal.observe(moved("b", "a")) is not None
    journal.expect("c")
    now = 61.0
    assert journal.observe(moved("c", "b")) is not None


def test_the_service_says_what_our_move_left_whichever_comes_first() -> None:
    """Training takes a step between our last reading and the move."""
    journal = Journal()
    journal.expect("b")
    journal.observe(moved("b", "a2"))
    journal.moved("a1", "b")
    assert journal.done == [Move("a2", "b")]
    journal.expect("c")
    journal.moved("b", "c")
    journal.observe(moved("c", "b2"))
    assert journal.done == [Move("a2", "b"), Move("b2", "c")]
    journal.expect("d")
    journal.moved("c", "d")
    journal.observe(moved("d", "b2", at=0.0))  # what a poll saw last is older than what we read
    assert journal.done[-1] == Move("c", "d")


def test_undo_takes_back_the_last_move_then_the_one_before_until_a_new_one_is_made() -> None:
    journal, run = Journal(), run_of(FORKED, 5)
    for before, after in (("c1", "c2"), ("c2", "c3"), ("c3", "c5")):
        journal.moved(before, after)
    journal.expect("c3", new=False)
    undo = to_undo(run, journal)
    assert (undo.target, undo.act) == ("c3", Act.UNDO)
    journal.mark_undone()
    assert to_redo(journal) == HeadMove("c5", Act.REDO)
    assert journal.observe(moved("c3", "c5")) is None, "the service tells of what was undone"
    assert (len(journal.done), journal.undone) == (2, [Move("c3", "c5")])
    for target in ("c2", "c1"):
        assert to_undo(run, journal).target == target
        journal.mark_undone()
    assert journal.done == []
    for target in ("c2", "c3", "c5"):
        assert to_redo(journal).target == target
        journal.mark_redone()
    journal.mark_undone()
    journal.moved("c3", "c4")
    assert journal.undone == []


def test_a_move_that_is_wanted_and_why_one_cannot_be() -> None:
    chain, journal = [-1, 0, 1], Journal()
    assert to_selected(run_of(chain, 2), 1, folded=False) == HeadMove("c1")
    assert to_parent(run_of(chain, 2)) == HeadMove("c1")
    for wish, why in (
        (lambda: to_selected(run_of(chain, 2), 1, folded=True), "folds"),
        (lambda: to_selected(run_of(chain, 2), ROOT, folded=False), "base weights"),
        (lambda: to_parent(run_of(chain, 0)), "no parent"),
        (lambda: to_parent(run_of(chain, None)), "nothing to roll back"),
        (lambda: to_undo(run_of(chain, 2), journal), "Nothing to undo"),
        (lambda: to_redo(journal), "Nothing to redo"),
    ):
        with pytest.raises(HudUsage, match=why):
            wish()
    journal.done.append(Move(None, "c0"))
    with pytest.raises(HudUsage, match="base weights"):
        to_undo(run_of(chain, 0), journal)


@pytest.mark.parametrize(
    ("head", "move", "note"),
    [
        (0, Move("c2", "c0"), ""),
        (2, Move(None, "c0"), "has continued since: step-000003 descends from step-000001"),
        (0, Move("c1", "c2"), "it was set to step-000003 and is now step-000001"),
        (0, Move("c2", "c0", ours=False), "Another window or program"),
    ],
)
def test_undo_says_who_moved_the_head_and_what_came_since(head: int, move: Move, note: str) -> None:
    said = undo_note(run_of([-1, 0, 1], head), move)
    assert note in said
    assert bool(said) == bool(note)
