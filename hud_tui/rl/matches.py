"""Matches: what a filter leaves of a tree, as rows."""

from bisect import bisect_left, bisect_right

from hud_tui.rl.filter import Predicate
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.tree import ROOT, Tree


class Matches:
    """The checkpoints that a filter lets through, as rows without lanes, newest first.

    It answers as `hud_tui.rl.lanes.Lanes` does. A step that is added is tested once, and so is
    the checkpoint that it tells of.
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
