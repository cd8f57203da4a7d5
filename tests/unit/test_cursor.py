"""The cursor stays on its checkpoint, whatever arrives."""

from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.tree_layout import Kind, TreeCursor
from tests.unit.trees import parents, tree_of


@given(parents(most=50), st.data())
def test_it_stays_on_its_checkpoint_while_the_tree_grows(
    chosen: list[int], data: st.DataObject
) -> None:
    cursor, tree = TreeCursor(), Tree()
    cursor.show(tree, follow=False)
    chosen_id: str | None = None
    for node in tree_of(chosen):
        tree = tree.add(node).with_head(data.draw(st.sampled_from([node.id, "c0"])))
        cursor.show(tree, follow=False)
        at = cursor.position
        assert (None if at == ROOT else tree[at].id) == chosen_id
        number = data.draw(st.integers(-2, len(cursor.rows) + 2))
        cursor.step_to(number, data.draw(st.sampled_from([1, -1])))
        if data.draw(st.booleans()):
            _ = cursor.unfold() or cursor.fold()
        assert cursor.row.kind is not Kind.JOINT
        chosen_id = None if cursor.position == ROOT else tree[cursor.position].id
        if cursor.row.kind is Kind.NODE:
            assert cursor.row.newest == cursor.position


@given(parents(most=50))
def test_it_follows_the_head(chosen: list[int]) -> None:
    cursor, tree = TreeCursor(), Tree()
    for node in tree_of(chosen):
        tree = tree.add(node).with_head(node.id)
        cursor.show(tree, follow=True)
        assert tree[cursor.position] is tree.served


def test_it_finds_its_checkpoint_in_a_tree_read_anew_and_the_pinned_and_noted_ones() -> None:
    cursor = TreeCursor()
    cursor.show(tree_of([-1, 0, 1, 2], head=3), follow=False)
    cursor.go(1)
    cursor.show(tree_of([-1, 0, 0, 2], head=3), follow=False)
    assert cursor.position == 1
    cursor.show(tree_of([-1], head=0), follow=False)
    assert cursor.position == ROOT

    cursor = TreeCursor()
    tree = tree_of(list(range(-1, 99)), head=99)
    cursor.show(tree.add(tree[40].model_copy(update={"pinned": True})), follow=False)
    cursor.keep(["c60", "unknown"])
    listed = {cursor.rows.row(n).newest for n in range(len(cursor.rows))}
    assert {40, 60} <= listed


def test_a_filter_keeps_the_cursor_and_gives_it_back() -> None:
    cursor = TreeCursor()
    cursor.show(tree_of(range(-1, 39), head=39), follow=False)
    cursor.go(20)
    cursor.filter(lambda tree, position: tree[position].id in ("c20", "c30"))
    assert (len(cursor.rows), cursor.position, cursor.number) == (2, 20, 1)
    assert not cursor.unfold()
    assert not cursor.fold()
    cursor.show(tree_of(range(-1, 40), head=40), follow=False)
    assert len(cursor.rows) == 2
    cursor.filter(None)
    assert cursor.position == 20
    assert cursor.row.kind is Kind.NODE
    cursor.filter(lambda tree, position: False)
    assert len(cursor.rows) == 0
    cursor.step_to(3, 1)
    assert cursor.row.newest == ROOT
    cursor.filter(None)
    assert cursor.position == 20


def test_folding_puts_the_cursor_on_the_fold_and_unfolding_back_on_its_anchor() -> None:
    cursor = TreeCursor()
    cursor.show(tree_of(range(-1, 39), head=39), follow=False)
    cursor.step_to(cursor.lanes.row_of(20), 1)
    assert cursor.row.kind is Kind.FOLD
    anchor = cursor.position
    assert cursor.unfold()
    assert (cursor.row.kind, cursor.position) == (Kind.NODE, anchor)
    assert cursor.fold()
    assert (cursor.row.kind, cursor.position) == (Kind.FOLD, anchor)
