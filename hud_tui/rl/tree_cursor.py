"""The rows of a checkpoint tree that a user walks through: the whole tree or what a filter leaves,
with a cursor that stays on its checkpoint as the tree grows."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.filter import Predicate
from hud_tui.rl.tree_layout import Kind, Lanes, Row


class Matches:
    """The checkpoints that match a filter, as rows without lanes, newest first; nothing is folded.

    A new step is tested once, together with the checkpoint that sampled it and the former head.
    """

    def __init__(self, keep: Predicate) -> None:
        self.tree = Tree()
        self.keep = keep
        self._served: set[int] = set()
        self._found: list[int] = []

    def show(self, tree: Tree) -> None:
        """Show a later version of the tree, which must extend the present one."""
        if tree.updates(self.tree):  # an updated node may match now, or no longer
            self._found, self.tree = [], Tree()
        fresh = range(len(self.tree), len(tree))
        heads = (position for position in (self.tree.head, tree.head) if position is not None)
        again = {*heads, *map(tree.source, fresh)} - {ROOT, *fresh}
        for position in (*sorted(again), *fresh):
            index = bisect_left(self._found, position)
            there, matches = self.has(position), self.keep(tree, position)
            if matches and not there:
                self._found.insert(index, position)
            elif there and not matches:
                del self._found[index]
        if tree.head is not None and tree.parent(tree.head) == self.tree.head:
            self._served.add(tree.head)
        elif tree.head != self.tree.head:
            self._served = set(tree.lineage(tree.head))
        self.tree = tree

    def has(self, position: int) -> bool:
        """Whether a checkpoint matches."""
        index = bisect_left(self._found, position)
        return self._found[index : index + 1] == [position]

    def __len__(self) -> int:
        return len(self._found)

    def row(self, number: int) -> Row:
        """One row, numbered from 0 at the top.

        Raises:
            IndexError: There is no such row.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        position = self._found[-1 - number]
        return Row(Kind.NODE, "●", (position in self._served,), position, position)

    def row_of(self, position: int) -> int:
        """The row of a checkpoint; if it does not match, of the next older match, else 0."""
        rank = max(0, bisect_right(self._found, position) - 1)
        return max(0, len(self) - 1 - rank)


NOTHING = Row(Kind.BASE, "", (), ROOT, ROOT)
"""The row under the cursor of an empty list."""


class TreeCursor:
    """The rows of a tree and a cursor that stays on its checkpoint as the tree grows.

    The cursor is stored as a checkpoint id, so it survives steps, forks, folding, filters, and a
    tree that is read again. On a fold, the id is that of a checkpoint in it.
    """

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.matches: Matches | None = None
        """The filtered rows; None without a filter."""
        self._anchor: str | None = None
        """Id of the checkpoint that the cursor is on; None for the base weights."""
        self._on_fold = False
        self._kept: frozenset[str] = frozenset()

    @property
    def tree(self) -> Tree:
        return self.lanes.tree

    @property
    def rows(self) -> Lanes | Matches:
        """The whole tree, or the filtered rows."""
        return self.lanes if self.matches is None else self.matches

    @property
    def position(self) -> int:
        """The checkpoint under the cursor, or ROOT."""
        anchored = self.tree.find(self._anchor)
        return ROOT if anchored is None else anchored

    @property
    def number(self) -> int:
        """Number of the cursor's row."""
        return self.rows.row_of(self.position)

    @property
    def row(self) -> Row:
        """The row under the cursor."""
        return self.rows.row(self.number) if len(self.rows) else NOTHING

    def show(self, tree: Tree, follow: bool) -> None:
        """Show another version of the tree, or another tree.

        Args:
            follow: Whether the cursor goes to the head; else it stays on its checkpoint,
                or goes to the base weights if that no longer exists.
        """
        if not tree.extends(self.tree):
            self.lanes = Lanes()
            if self.matches is not None:
                self.matches = Matches(self.matches.keep)
        self.lanes.show(tree)
        self._keep()
        if self.matches is not None:
            self.matches.show(tree)
        if follow:
            self.go_to_head()
        else:
            self.go(self.position, self._on_fold)

    def keep(self, checkpoint_ids: Iterable[str]) -> None:
        """Never fold these checkpoints, nor pinned ones."""
        self._kept = frozenset(checkpoint_ids)
        self._keep()
        self.go(self.position, self._on_fold)

    def _keep(self) -> None:
        positions = (self.tree.find(checkpoint_id) for checkpoint_id in self._kept)
        self.lanes.keep(self.tree.pinned | {p for p in positions if p is not None})

    def filter(self, keep: Predicate | None) -> None:
        """Show only checkpoints for which `keep` is true; None shows all."""
        self.matches = None if keep is None else Matches(keep)
        if self.matches is not None:
            self.matches.show(self.tree)
        if len(self.rows):
            row = self.row
            self.go(row.newest, row.kind is Kind.FOLD)

    def go(self, position: int, fold: bool = False) -> None:
        """Move the cursor to a checkpoint, which becomes visible; with `fold`, to the fold that
        contains it."""
        if position >= len(self.tree):
            position = ROOT
        self._anchor = None if position == ROOT else self.tree[position].id
        if self.matches is None:
            self.lanes.select(None if fold or position == ROOT else position)
        self._on_fold = fold and self.row.kind is Kind.FOLD

    def go_to_head(self) -> None:
        """Move the cursor to the head, or to the base weights while they are served."""
        self.go(ROOT if self.tree.head is None else self.tree.head)

    def step_to(self, number: int, way: int) -> None:
        """Move the cursor to a row; if that is a joint, to the next other row in direction
        `way`."""
        if not len(self.rows):
            return
        number = min(max(number, 0), len(self.rows) - 1)
        while self.rows.row(number).kind is Kind.JOINT:
            number += way
        row = self.rows.row(number)
        self.go(row.newest, row.kind is Kind.FOLD)

    def unfold(self) -> bool:
        """Unfold the fold under the cursor; False if there is none."""
        if self.matches is not None or not self.lanes.unfold(self.number):
            return False
        self.go(self.position)
        return True

    @property
    def unfolded(self) -> list[tuple[str, str]]:
        """Ids of the oldest and newest checkpoint of each run that the user unfolded."""
        return [(self.tree[old].id, self.tree[new].id) for old, new in self.lanes.unfolded.runs]

    def unfold_only(self, runs: Iterable[tuple[str, str]] | None) -> None:
        """Unfold these runs and fold all others, unknown ids are ignored; None: as there is
        room."""
        known = None
        if runs is not None:
            ends = ((self.tree.find(old), self.tree.find(new)) for old, new in runs)
            known = [(o, n) for o, n in ends if o is not None and n is not None]
        self.lanes.unfold_only(known)
        self.go(self.position, self._on_fold)

    def fold(self) -> bool:
        """Fold the unfolded run under the cursor; False if there is none."""
        if self.matches is not None or not self.lanes.fold(self.position):
            return False
        self.go(self.position, fold=True)
        return True

    def fold_all(self) -> None:
        """Unfold every run; fold them all if none is folded."""
        if self.matches is None:
            fold = self.lanes.fold_all if self.lanes.all_open else self.lanes.unfold_all
            fold()
