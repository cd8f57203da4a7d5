"""The cursor in a growing checkpoint tree: it stays on its checkpoint, whatever arrives.

It is kept by the checkpoint's id, so it survives steps, forks, folding, filters, and a tree
that is read anew. On a folded run it is on the fold, and a checkpoint of it is its anchor.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.filter import Predicate
from hud_tui.rl.tree_layout import Kind, Lanes, Row

# Matches: what a filter leaves of a tree, as rows.


class Matches:
    """The checkpoints that a filter lets through, as rows without lanes, newest first.

    It answers as `hud_tui.rl.tree_layout.Lanes` does. A step that is added is tested once, and
    so is the checkpoint that it tells of.
    """

    def __init__(self, keep: Predicate) -> None:
        self.tree = Tree()
        self.keep = keep
        self._served: set[int] = set()
        self._found: list[int] = []

    def show(self, tree: Tree) -> None:
        """Follow the tree to a later version; it must extend the one shown."""
        if tree.retells(self.tree):  # a node that did not match may do so now
            self._found, self.tree = [], Tree()
        fresh = range(len(self.tree), len(tree))
        for position in sorted({tree.source(p) for p in fresh} - {ROOT, *fresh}):
            self._test(tree, position)
        for position in fresh:
            self._test(tree, position)
        if tree.head is not None and tree.parent(tree.head) == self.tree.head:
            self._served.add(tree.head)
        elif tree.head != self.tree.head:
            self._served = set(tree.lineage(tree.head))
        self.tree = tree

    def _test(self, tree: Tree, position: int) -> None:
        """List a checkpoint, or no longer."""
        place = bisect_left(self._found, position)
        there, kept = self._found[place : place + 1] == [position], self.keep(tree, position)
        if kept and not there:
            self._found.insert(place, position)
        elif there and not kept:
            del self._found[place]

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
        """The row of a checkpoint; of one that does not match, the next older one's, or 0."""
        rank = max(0, bisect_right(self._found, position) - 1)
        return max(0, len(self) - 1 - rank)

    def select(self, position: int | None) -> None:
        """Every row is shown already."""

    def unfold(self, number: int) -> bool:
        """There is nothing to unfold."""
        return False

    def fold(self, position: int) -> bool:
        """There is nothing to fold."""
        return False

    def unfold_all(self) -> None:
        """There is nothing to unfold."""

    def fold_all(self) -> None:
        """There is nothing to fold."""


NOTHING = Row(Kind.BASE, "", (), ROOT, ROOT)
"""What is under the cursor where no row is listed."""


class TreeCursor:
    """What is listed of a tree, and where the cursor is in it."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.matches: Matches | None = None
        """The rows that a filter left, or None while every row is there."""
        self._anchor: str | None = None
        """Id of the checkpoint that the cursor is on; None for the base weights."""
        self._on_fold = False
        self._kept: frozenset[str] = frozenset()

    @property
    def tree(self) -> Tree:
        return self.lanes.tree

    @property
    def rows(self) -> Lanes | Matches:
        """What is listed: the whole tree, or what the filter left of it."""
        return self.lanes if self.matches is None else self.matches

    @property
    def position(self) -> int:
        """The checkpoint under the cursor, or ROOT."""
        found = self.tree.find(self._anchor)
        return ROOT if found is None else found

    @property
    def number(self) -> int:
        """The cursor's row."""
        return self.rows.row_of(self.position)

    @property
    def row(self) -> Row:
        """What is under the cursor."""
        return self.rows.row(self.number) if len(self.rows) else NOTHING

    def show(self, tree: Tree, follow: bool) -> None:
        """List another version of the tree, or another tree.

        Args:
            follow: Whether the cursor goes to the head; else it stays on its checkpoint,
                and on the base weights where that is gone.
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
        """Never fold these; nor those that are pinned."""
        self._kept = frozenset(checkpoint_ids)
        self._keep()
        self.go(self.position, self._on_fold)

    def _keep(self) -> None:
        found = (self.tree.find(checkpoint_id) for checkpoint_id in self._kept)
        self.lanes.keep(self.tree.pinned | {p for p in found if p is not None})

    def filter(self, keep: Predicate | None) -> None:
        """List only what `keep` lets through; None lists all again."""
        self.matches = None if keep is None else Matches(keep)
        if self.matches is not None:
            self.matches.show(self.tree)
        if len(self.rows):
            row = self.row
            self.go(row.newest, row.kind is Kind.FOLD)

    def go(self, position: int, fold: bool = False) -> None:
        """Put the cursor on a checkpoint, which stays visible, or on the fold it is in."""
        if position >= len(self.tree):
            position = ROOT
        self._anchor = None if position == ROOT else self.tree[position].id
        self.rows.select(None if fold or position == ROOT else position)
        self._on_fold = fold and self.row.kind is Kind.FOLD

    def go_to_head(self) -> None:
        """Put the cursor on what is served."""
        self.go(ROOT if self.tree.head is None else self.tree.head)

    def step_to(self, number: int, way: int) -> None:
        """Put the cursor on a row, or on the next one that way that is no joint."""
        if not len(self.rows):
            return
        number = min(max(number, 0), len(self.rows) - 1)
        while self.rows.row(number).kind is Kind.JOINT:
            number += way
        row = self.rows.row(number)
        self.go(row.newest, row.kind is Kind.FOLD)

    def unfold(self) -> bool:
        """Show every step of the folded run under the cursor; False where there is none."""
        if not len(self.rows) or not self.rows.unfold(self.number):
            return False
        self.go(self.position)
        return True

    @property
    def unfolded(self) -> list[tuple[str, str]]:
        """Ids of the oldest and the newest checkpoint of each run that was unfolded."""
        return [(self.tree[old].id, self.tree[new].id) for old, new in self.lanes.unfolded]

    def unfold_only(self, runs: Iterable[tuple[str, str]]) -> None:
        """Show the steps of these runs alone; those that the tree has no more are left out."""
        found = ((self.tree.find(old), self.tree.find(new)) for old, new in runs)
        self.lanes.unfold_only([(o, n) for o, n in found if o is not None and n is not None])
        self.go(self.position, self._on_fold)

    def fold(self) -> bool:
        """Fold the unfolded run under the cursor; False where there is none."""
        if not self.rows.fold(self.position):
            return False
        self.go(self.position, fold=True)
        return True
