"""The drawn tree, on random trees and on the ones people have; and the cursor in it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.tree_cursor import TreeCursor
from hud_tui.rl.tree_layout import FOLD_MIN, NEAR, Kind, Lanes, Row, cut_pieces
from tests.unit.trees import parents, tree_of


def drawn(tree: Tree, unfolded: bool = False) -> Lanes:
    lanes = Lanes()
    lanes.show(tree)
    if unfolded:
        lanes.unfold_all()
    return lanes


def rows(lanes: Lanes) -> list[Row]:
    return [lanes.row(number) for number in range(len(lanes))]


def picture(lanes: Lanes) -> list[str]:
    """The rows as a person sees them, with each node's number."""
    names = {Kind.JOINT: lambda _: "", Kind.BASE: lambda _: " base"}
    return [row.lanes + names.get(row.kind, lambda r: f" {r.oldest}")(row) for row in rows(lanes)]


@given(parents(), st.data())
def test_every_node_is_drawn_exactly_once_when_unfolded(
    chosen: list[int], data: st.DataObject
) -> None:
    head = data.draw(st.none() | st.integers(0, len(chosen) - 1)) if chosen else None
    lanes = drawn(tree_of(chosen, head), unfolded=True)
    nodes = [row.newest for row in rows(lanes) if row.kind is Kind.NODE]
    assert sorted(nodes) == list(range(len(chosen)))
    assert rows(lanes)[-1].kind is Kind.BASE


@given(parents(), st.integers(0, 80))
def test_what_there_is_room_for_is_unfolded_until_the_user_folds(
    chosen: list[int], room: int
) -> None:
    folded, lanes = drawn(tree_of(chosen)), drawn(tree_of(chosen))
    lanes.fit(room)
    whole = len(drawn(tree_of(chosen), unfolded=True))
    assert len(lanes) == whole if whole <= room else len(lanes) <= max(room, len(folded))
    for row in rows(lanes):
        if row.kind is Kind.FOLD:
            assert len(lanes) + row.newest - row.oldest > room or len(lanes.segments) > room
    for position in range(len(chosen)):
        assert lanes.row_of(position) < len(lanes)
    lanes.fold_all()
    assert rows(lanes) == rows(folded)


def test_a_tree_that_grows_beyond_its_room_folds_what_is_oldest() -> None:
    lanes = Lanes()
    lanes.fit(26)
    for steps in range(1, 40):
        lanes.show(tree_of(list(range(-1, steps - 1)), steps - 1))
        assert len(lanes) == steps + 1 if steps <= 25 else len(lanes) in (25, 26)
    assert len(lanes) == 26
    assert [(row.oldest, row.newest) for row in rows(lanes) if row.kind is Kind.FOLD] == [(0, 14)]
    assert lanes.unfold(24)
    assert (len(lanes), lanes.unfolded.runs) == (40, [(0, 39 - 1 - NEAR - 1)])
    lanes.unfold_only(None)
    assert len(lanes) == 26
    assert lanes.fold(20)
    assert len(lanes) == 1 + NEAR + 1 + 1
    lanes.unfold_only(None)
    lanes.fit(60)
    assert len(lanes) == 40


def test_the_newest_fold_that_does_not_fit_has_the_room_that_is_left() -> None:
    lanes = drawn(tree_of([-1, *range(9), -1, *range(10, 69)], head=69))
    cases = (40, 40, [(10, 42)]), (65, 65, [(1, 8)]), (71, 70, [(1, 3)]), (72, 72, [])
    for room, shown, folded in cases:
        lanes.fit(room)
        folds = [(row.oldest, row.newest) for row in rows(lanes) if row.kind is Kind.FOLD]
        assert (len(lanes), folds) == (shown, folded)


@given(parents())
def test_a_branch_is_joined_by_unbroken_lines_to_its_parent_which_is_below_it(
    chosen: list[int],
) -> None:
    lanes = drawn(tree_of(chosen), unfolded=True)
    seen = rows(lanes)
    for position, parent in enumerate(chosen):
        top, bottom = lanes.row_of(position), lanes.row_of(parent)
        lane, goal = len(seen[top].lanes) - 1, len(seen[bottom].lanes) - 1
        for row in seen[top + 1 : bottom]:
            under = row.lanes[lane : lane + 1]
            if under == "╯":
                lane -= 2
                under = row.lanes[lane]
                assert under == "├"
            assert under in ("│", "├")
        assert lane == goal
        assert bottom > top


@settings(max_examples=15)  # each draws a tree at every step
@given(parents(), st.data())
def test_a_tree_grown_step_by_step_is_drawn_like_one_read_at_once(
    chosen: list[int], data: st.DataObject
) -> None:
    tree, grown = Tree(), Lanes()
    for position, node in enumerate(tree_of(chosen)):
        tree = tree.add(node)
        if data.draw(st.booleans()):
            tree = tree.with_head(f"c{data.draw(st.integers(0, position))}")
        grown.show(tree)
        at_once = drawn(tree)
        assert rows(grown) == rows(at_once)
        grown.select(position)
        at_once.select(position)
        assert rows(grown) == rows(at_once)
        grown.select(None)


@settings(max_examples=15)  # each draws a tree at every step
@given(parents(), st.data())
def test_what_is_open_stays_open_while_the_tree_grows_and_forks(
    chosen: list[int], data: st.DataObject
) -> None:
    half = len(chosen) // 2
    tree = tree_of(chosen)
    lanes = drawn(tree_of(chosen[:half]), unfolded=True)
    start = tree_of(chosen[:half])
    for node in list(tree)[half:]:
        start = start.add(node)
        lanes.show(start) if start.extends(lanes.tree) else pytest.fail("not the same tree")
    shown = {row.newest for row in rows(lanes) if row.kind is Kind.NODE}
    assert shown >= set(range(half))
    lanes.fold_all()
    assert rows(lanes) == rows(drawn(tree))


@given(parents(most=60, least=1), st.data())
def test_marked_nodes_forks_and_tips_stay_visible_on_one_unbroken_served_line(
    chosen: list[int], data: st.DataObject
) -> None:
    any_node = st.integers(0, len(chosen) - 1)
    head, selected = data.draw(any_node), data.draw(any_node)
    tree = tree_of(chosen, head)
    lanes = drawn(tree)
    lanes.select(selected)
    shown = {row.newest for row in rows(lanes) if row.kind is Kind.NODE}
    forks = {p for p in chosen if p != ROOT and chosen.count(p) > 1}
    tips = set(range(len(chosen))) - set(chosen)
    best = set() if tree.best is None else {tree.best}
    assert shown >= {head, selected, *best} | forks | tips
    unfolded = drawn(tree, unfolded=True)
    start = unfolded.row_of(head)
    assert [any(row.served) for row in rows(unfolded)] == [
        number >= start for number in range(len(unfolded))
    ]


@given(parents(most=60), st.data())
def test_a_row_knows_its_nodes_and_they_know_their_row(
    chosen: list[int], data: st.DataObject
) -> None:
    head = data.draw(st.integers(0, len(chosen) - 1)) if chosen else None
    tree = tree_of(chosen, head)
    lanes = drawn(tree)
    served = set(tree.lineage(head))
    counted = 0
    for number, row in enumerate(rows(lanes)):
        if row.kind in (Kind.NODE, Kind.FOLD):
            inside = [p for p in tree.lineage(row.newest) if p >= row.oldest]
            counted += len(inside)
            assert all(lanes.row_of(p) == number for p in inside)
            assert row.served[-1] == (row.newest in served)
            assert row.kind is Kind.NODE or len(inside) >= FOLD_MIN
        assert len(row.served) == len(row.lanes) // 2 + 1
    assert counted == len(chosen)


@settings(max_examples=15)  # each draws a tree at every step
@given(parents(most=60, least=1), st.data())
def test_what_is_held_stays_visible_when_the_head_moves_on(
    chosen: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(chosen)))
    head = data.draw(st.integers(0, cut - 1))
    tree = tree_of(chosen[:cut], head)
    lanes = drawn(tree)
    lanes.hold()
    segments = lanes.segments
    beside = [p for p in range(cut) if segments.of(p) == segments.of(head)]
    near = {p for p in beside if abs(segments.index(p) - segments.index(head)) <= NEAR}
    for node in list(tree_of(chosen))[cut:]:
        tree = tree.add(node).with_head(node.id)
        lanes.show(tree)
    assert {row.newest for row in rows(lanes) if row.kind is Kind.NODE} >= near
    lanes.release()
    assert rows(lanes) == rows(drawn(tree))


@given(parents())
def test_folding_and_unfolding_one_run_is_undone_by_the_other(chosen: list[int]) -> None:
    lanes = drawn(tree_of(chosen))
    before = rows(lanes)
    for number, row in enumerate(before):
        assert lanes.unfold(number) == (row.kind is Kind.FOLD)
        if row.kind is Kind.FOLD:
            assert lanes.row(lanes.row_of(row.oldest)).kind is Kind.NODE
            assert lanes.fold(row.oldest)
        assert rows(lanes) == before


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(-5, 35), st.integers(-5, 35))))
def test_pieces_cover_a_segment_once_and_show_what_is_asked(
    length: int, ranges: list[tuple[int, int]]
) -> None:
    ranges = [(min(pair), max(pair)) for pair in ranges]
    pieces = cut_pieces(length, ranges)
    assert [i for p in pieces for i in range(p.low, p.high + 1)] == list(range(length))
    hidden = {i for p in pieces if p.folded for i in range(p.low, p.high + 1)}
    assert all(not hidden & set(range(low, high + 1)) for low, high in ranges)
    assert all(p.high - p.low + 1 >= FOLD_MIN for p in pieces if p.folded)
    assert all(a.folded != b.folded for a, b in pairwise(pieces))


def test_the_head_of_a_long_chain_shows_its_neighbours_and_folds_the_rest() -> None:
    lanes = drawn(tree_of(range(-1, 399), head=399))
    kinds = [row.kind for row in rows(lanes)]
    assert kinds[: NEAR + 1] == [Kind.NODE] * (NEAR + 1)
    assert len(lanes) < 2 * NEAR
    unfolded = drawn(tree_of(range(-1, 399), head=399), unfolded=True)
    assert {row.lanes for row in rows(unfolded)} == {"●", "◇"}, "a chain uses one lane"
    with pytest.raises(IndexError):
        Lanes().row(1)


def test_the_branch_that_grew_last_is_left_and_the_older_one_stands_above_the_fork() -> None:
    lanes = drawn(tree_of([-1, 0, 1, 0, 3], head=4))
    assert picture(lanes) == ["● 4", "● 3", "│ ● 2", "│ ● 1", "├─╯", "● 0", "◇ base"]
    assert [row.served for row in rows(lanes)] == [
        (True,), (True,), (True, False), (True, False), (True, False), (True,), (True,),
    ]  # fmt: skip


def test_nested_branches_indent_one_lane_each() -> None:
    lanes = drawn(tree_of([-1, 0, 1, 1, 0, 0], head=2))
    assert picture(lanes) == [
        *("● 5", "│ ● 4", "├─╯", "│ ● 3", "│ │ ● 2", "│ ├─╯"),
        *("│ ● 1", "├─╯", "● 0", "◇ base"),
    ]
    assert rows(lanes)[5].served == (False, True, True)
    assert rows(lanes)[7].served == (True, True)
    assert picture(drawn(tree_of([-1, -1]))) == ["● 1", "│ ● 0", "├─╯", "◇ base"]


def test_what_is_kept_never_folds_and_folds_again_when_it_is_not() -> None:
    lanes = drawn(tree_of(range(-1, 99), head=99))
    folded = len(lanes)
    lanes.keep(frozenset({50}))
    assert [row.kind for row in rows(lanes) if row.newest == 50] == [Kind.NODE]
    lanes.show(tree_of(range(-1, 100), head=100))
    assert any(row.newest == 50 for row in rows(lanes))
    lanes.keep(frozenset())
    assert len(lanes) == folded


@settings(max_examples=15)
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


@settings(max_examples=15)  # each draws a tree at every step
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
