"""Lanes: the checkpoint tree as ``git log --graph`` draws it, row by row, newest first.

The branch that grew last stays in the left lane from its tip to the base weights; every
other branch stands one lane to the right of the one that it left, above its fork point.
So a chain never indents, lanes never cross, and a lane's line always means "older":

    ●  step-006          the newest tip
    ●  step-005
    │ ●  step-004        a branch that was left
    │ ⋮  2 steps         a straight run, folded
    ├─╯
    ●  step-001
    ◇  base

Rows are worked out by segment and asked for one at a time, so the cost of drawing does
not depend on the size of the tree. A step that extends the newest branch costs O(1); one
that opens, or goes on with, another branch costs O(branches).
"""

from bisect import bisect_right
from itertools import accumulate

from hud_tui.rl.rows import NEAR, Kind, Piece, Row, cut_pieces
from hud_tui.rl.segments import ROOT, Segments
from hud_tui.rl.strands import Strand, strands
from hud_tui.rl.tree import Tree
from hud_tui.rl.unfolded import Unfolded


class Lanes:
    """The rows of a growing tree, and which of its straight runs are folded."""

    def __init__(self) -> None:
        self.segments = Segments()
        self.tree = Tree()
        self._selected: int | None = None
        self._kept: frozenset[int] = frozenset()
        """Positions that never fold: pinned, noted or marked."""
        self._unfolded = Unfolded(self.segments)
        self._strands: list[Strand] = []
        """From the base weights up."""
        self._place: dict[int, int] = {}
        """Where a segment's strand is in `_strands`."""
        self._pieces: list[list[Piece]] = []
        self._starts: list[int] = [1]
        """Rows below each strand, counted from the bottom; the last entry is their sum."""
        self._edition = 0
        self.drawing = 0
        """Grows with every change of what is folded: two drawings may have as many rows."""
        self.lanes = 1
        """Lanes that the drawing is wide."""
        self.branches = 0
        """Tips of the tree."""

    def show(self, tree: Tree) -> None:
        """Follow the tree to a later version; it must extend (`Tree.extends`) the one shown."""
        before, self.tree = self.tree, tree
        moved = {self.segments.add(tree.parent(p)) for p in range(len(self.segments), len(tree))}
        if self._reordered(before.head, moved):
            self._order()
        else:
            marks = {before.head, tree.head, before.best, tree.best} - {None}
            self._refold(moved | {self.segments.of(p) for p in marks if p is not None})

    def __len__(self) -> int:
        """The number of rows; the base weights are always one."""
        return self._starts[-1]

    def row(self, number: int) -> Row:
        """One row, numbered from 0 at the top.

        Raises:
            IndexError: There is no such row.
        """
        height = len(self) - 1 - number
        if not 0 <= height < len(self):
            raise IndexError(number)
        if height == 0:
            return Row(Kind.BASE, "◇", (True,), ROOT, ROOT)
        place = bisect_right(self._starts, height) - 1
        strand, up = self._strands[place], height - self._starts[place]
        if strand.joint and up == 0:
            return strand.joint_row(self.segments.nodes[strand.segment][0])
        return self._node_row(strand, self._pieces[place], up - strand.joint)

    def row_of(self, position: int) -> int:
        """The row that shows a node, or the folded run that it is in; ROOT is the base's."""
        if position == ROOT:
            return len(self) - 1
        index = self.segments.index(position)
        place = self._place[self.segments.of(position)]
        height = self._starts[place] + self._strands[place].joint
        for piece in self._pieces[place]:
            if index <= piece.high:
                height += 0 if piece.folded else index - piece.low
                break
            height += piece.rows
        return len(self) - 1 - height

    def served(self, position: int) -> bool:
        """Whether the head descends from a node, or is it."""
        segment = self.segments.of(position)
        return self._served(self._strands[self._place[segment]], self.segments.index(position))

    def select(self, position: int | None) -> None:
        """Keep this node visible, and no longer the one before."""
        marks = {p for p in (self._selected, position) if p is not None and p != ROOT}
        self._selected = position
        self._refold({self.segments.of(p) for p in marks})

    def keep(self, positions: frozenset[int]) -> None:
        """Never fold these nodes."""
        changed, self._kept = self._kept ^ positions, positions
        if changed:
            self._refold({self.segments.of(p) for p in changed})

    def unfold(self, number: int) -> bool:
        """Show every step of a folded row; False where the row is none."""
        row = self.row(number)
        if row.kind is not Kind.FOLD:
            return False
        self._refold(self._unfolded.add(row.oldest, row.newest))
        return True

    def fold(self, position: int) -> bool:
        """Fold the unfolded run that a node is in; False where it is in none."""
        changed = None if position == ROOT else self._unfolded.fold(position)
        self._refold(changed or set())
        return changed is not None

    @property
    def unfolded(self) -> list[tuple[int, int]]:
        """The oldest and the newest node of each run that was unfolded."""
        return self._unfolded.runs

    @property
    def edition(self) -> int:
        """Grows with every change of what is unfolded."""
        return self._unfolded.edition

    def unfold_only(self, runs: list[tuple[int, int]]) -> None:
        """Show the steps of these runs, and fold all others."""
        self._refold(self._unfolded.only(runs))

    @property
    def all_open(self) -> bool:
        """Whether no straight run is folded."""
        return not any(piece.folded for pieces in self._pieces for piece in pieces)

    def hold(self) -> None:
        """Keep the head's neighbours of this moment visible when the head moves on."""
        self._refold(self._unfolded.hold(self.tree.head))

    def release(self) -> None:
        """Hold nothing more."""
        self._refold(self._unfolded.release())

    def unfold_all(self) -> None:
        """Show every step of the tree as it is now."""
        self._refold(self._unfolded.all())

    def fold_all(self) -> None:
        """Fold every straight run."""
        self._refold(self._unfolded.none())

    def _reordered(self, head: int | None, moved: set[int]) -> bool:
        """Whether branches, their order, or which of them are served, have changed."""
        if self._edition != self.segments.edition:
            return True
        before, now = (p if p is None else self.segments.of(p) for p in (head, self.tree.head))
        return before != now or any(self._place[s] < len(self._strands) - 1 for s in moved)

    def _order(self) -> None:
        self._edition = self.segments.edition
        self._strands = strands(self.segments, self.tree.head)
        self._place = {strand.segment: place for place, strand in enumerate(self._strands)}
        self.lanes = 1 + max((strand.lane for strand in self._strands), default=0)
        self.branches = sum(strand.joint for strand in self._strands) + bool(self._strands)
        self._unfolded.recut()
        self._pieces = [self._cut(strand) for strand in self._strands]
        self._count(0)

    def _refold(self, segments: set[int]) -> None:
        """Work out anew what these segments fold, and the rows above the lowest of them."""
        changed = len(self._strands)
        for place in (self._place[segment] for segment in segments):
            pieces = self._cut(self._strands[place])
            if pieces != self._pieces[place]:
                self._pieces[place] = pieces
                changed = min(changed, place)
        self._count(changed)

    def _count(self, first: int) -> None:
        self.drawing += first < len(self._strands)
        heights = (
            strand.joint + sum(piece.rows for piece in pieces)
            for strand, pieces in zip(self._strands[first:], self._pieces[first:], strict=True)
        )
        self._starts[first:] = accumulate(heights, initial=self._starts[first])

    def _cut(self, strand: Strand) -> list[Piece]:
        """Fold a segment, but for its ends, its marked nodes and what was unfolded."""
        segment = strand.segment
        last = len(self.segments.nodes[segment]) - 1
        shown = [(last, last), *self._unfolded.parts(segment)]
        if strand.joint:
            shown.append((0, 0))
        kept = [(position, 0) for position in self._kept]
        marks = (self.tree.head, NEAR), (self.tree.best, 0), (self._selected, 0)
        for mark, near in (*marks, *kept):
            if mark is not None and mark != ROOT and self.segments.of(mark) == segment:
                index = self.segments.index(mark)
                shown.append((index - near, index + near))
        return cut_pieces(last + 1, shown)

    def _served(self, strand: Strand, index: int) -> bool:
        head = self.tree.head
        if head is None or not strand.served:
            return False
        return self.segments.of(head) != strand.segment or index <= self.segments.index(head)

    def _node_row(self, strand: Strand, pieces: list[Piece], up: int) -> Row:
        nodes = self.segments.nodes[strand.segment]
        for piece in pieces:
            if up < piece.rows:
                low = piece.low if piece.folded else piece.low + up
                high = piece.high if piece.folded else low
                kind, glyph = (Kind.FOLD, "⋮") if piece.folded else (Kind.NODE, "●")
                served = (*strand.rails, self._served(strand, high))
                return Row(kind, "│ " * strand.lane + glyph, served, nodes[high], nodes[low])
            up -= piece.rows
        raise IndexError(up)
