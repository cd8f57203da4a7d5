"""Layout of the checkpoint tree as ``git log --graph`` draws it, newest first.

The branch that grew last stays in the left lane from its tip to the base weights. Every other
branch is one lane to the right of the one that it left, above its fork point. So a chain never
indents, lanes never cross, and following a lane downwards always leads to older checkpoints:

    ●  step-006          the newest tip
    ●  step-005
    │ ●  step-004        a branch that was left
    │ ⋮  2 steps         a straight run, folded
    ├─╯
    ●  step-001
    ◇  base

Rows are computed by segment and requested one at a time, so the cost of drawing does not depend on
the size of the tree. A step on the newest branch costs O(rows in sight); one on another or a new
branch costs O(branches).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from hud_tui.rl.checkpoint_tree import ROOT, Tree

# Rows of the drawing, and the pieces of a segment that are shown or folded.

NEAR = 8
"""Number of steps shown on each side of the head."""
FOLD_MIN = 3
"""Minimum length of a fold: folding fewer steps would save no rows worth it."""


class Kind(StrEnum):
    """Kind of a row."""

    NODE = "node"
    FOLD = "fold"
    JOINT = "joint"
    """The point where a branch leaves the lane beside it; a row without a checkpoint."""
    BASE = "base"


@dataclass(frozen=True)
class Row:
    """A row of the drawing."""

    kind: Kind
    lanes: str
    """Glyphs of the lanes: two cells per lane, one for the last."""
    served: tuple[bool, ...]
    """For each lane, whether its glyph is on the head's lineage, shape (lanes,)."""
    newest: int
    """Position of the row's checkpoint; of a fold, its newest; of a joint, the branch's oldest."""
    oldest: int
    """Equal to `newest` except in a fold."""


@dataclass(frozen=True)
class Piece:
    """Consecutive nodes of a segment (by index in it) that are either all shown or one fold."""

    low: int
    high: int
    folded: bool

    @property
    def rows(self) -> int:
        return 1 if self.folded else self.high - self.low + 1


def cut_pieces(length: int, shown: Iterable[tuple[int, int]]) -> list[Piece]:
    """Divide indices 0 … length-1 into pieces, oldest first; whatever is in no range is folded.

    Args:
        length: Number of nodes in the segment, at least 1.
        shown: Ranges of indices to show, both ends included; they may overlap, be in any
            order, and reach beyond the segment.
    """
    inside = ((max(low, 0), min(high, length - 1)) for low, high in shown)
    ranges = sorted((low, high) for low, high in inside if low <= high)
    pieces: list[Piece] = []
    begin = free = 0  # where the piece being shown begins; the first index not yet placed
    for low, high in [*ranges, (length, length - 1)]:
        if low - free >= FOLD_MIN:
            if free > begin:
                pieces.append(Piece(begin, free - 1, False))
            pieces.append(Piece(free, low - 1, True))
            begin = low
        free = max(free, high + 1)
    if length > begin:
        pieces.append(Piece(begin, length - 1, False))
    return pieces


def open_from(piece: Piece, first: int | None) -> list[Piece]:
    """A fold that is open from an index on; as it is if that is None."""
    if first is None:
        return [piece]
    rest = [Piece(piece.low, first - 1, True)] if first > piece.low else []
    return [*rest, Piece(first, piece.high, False)]


# Segments: a checkpoint tree cut at its forks into chains without forks. Training produces long
# chains, so a tree of a hundred thousand checkpoints has a handful of segments.
#
# A fork in the middle of a segment cuts it in two. The shorter part gets the new number,
# so that a node changes its segment at most O(log N) times.


class Segments:
    """The segments of a growing tree. Nodes are identified by position, oldest first."""

    def __init__(self) -> None:
        self.nodes: list[list[int]] = []
        """Positions in each segment, oldest first; never empty."""
        self.below: list[int] = []
        """For each segment, the segment it grows from, or ROOT."""
        self.above: list[set[int]] = []
        """For each segment, those that grow from its newest node: none, or at least two."""
        self.roots: set[int] = set()
        """The segments that grow from the base weights."""
        self.edition = 0
        """Incremented with every new or divided segment, but not when one grows."""
        self._of: list[int] = []
        self._depths: list[int] = []

    def __len__(self) -> int:
        return len(self._of)

    def add(self, parent: int) -> int:
        """Append the next position under its parent (or ROOT); return its segment."""
        position = len(self._of)
        self._depths.append(1 if parent == ROOT else self._depths[parent] + 1)
        if parent == ROOT:
            return self._open(position, ROOT)
        segment = self._of[parent]
        if self.nodes[segment][-1] != parent:
            segment = self._cut(segment, self.index(parent))
        elif not self.above[segment]:
            self.nodes[segment].append(position)
            self._of.append(segment)
            return segment
        return self._open(position, segment)

    def of(self, position: int) -> int:
        """The segment of a node."""
        return self._of[position]

    def index(self, position: int) -> int:
        """A node's index in its segment, 0 the oldest."""
        return self._depths[position] - self._depths[self.nodes[self._of[position]][0]]

    def children(self, segment: int) -> set[int]:
        """The segments that grow from a segment, or from ROOT."""
        return self.roots if segment == ROOT else self.above[segment]

    def lineage(self, position: int | None) -> Iterator[tuple[int, int]]:
        """From a node down to the base weights: each segment, and the newest index in it that
        belongs to the lineage."""
        if position is None:
            return
        segment, index = self._of[position], self.index(position)
        while segment != ROOT:
            yield segment, index
            segment = self.below[segment]
            index = len(self.nodes[segment]) - 1 if segment != ROOT else 0

    def ancestors(self, position: int, depths: list[int]) -> list[int]:
        """A node's ancestors at the given depths, each from 1 to its own; ascending."""
        positions: list[int] = []
        targets = sorted(depths, reverse=True)
        for segment, _ in self.lineage(position):
            nodes = self.nodes[segment]
            first = self._depths[nodes[0]]
            while len(positions) < len(targets) and targets[len(positions)] >= first:
                positions.append(nodes[targets[len(positions)] - first])
        return positions[::-1]

    def newest(self) -> list[int]:
        """For each segment, the newest position in it and everything that grows from it.
        O(segments)."""
        newest = [nodes[-1] for nodes in self.nodes]
        for segment in sorted(range(len(newest)), key=lambda s: -self.nodes[s][0]):
            below = self.below[segment]
            if below != ROOT:
                newest[below] = max(newest[below], newest[segment])
        return newest

    def _open(self, position: int, below: int) -> int:
        """Start a segment with one node."""
        segment = self._number([position], below)
        self._of.append(segment)
        self.children(below).add(segment)
        return segment

    def _cut(self, segment: int, index: int) -> int:
        """Divide a segment after a node; return the lower part, which that node now ends."""
        nodes = self.nodes[segment]
        lower, upper = nodes[: index + 1], nodes[index + 1 :]
        if len(upper) <= len(lower):
            part = self._number(upper, segment)
            for above in self.above[segment]:
                self.below[above] = part
            self.above[part] = self.above[segment]
            self.above[segment] = {part}
            self.nodes[segment] = lower
            self._move(upper, part)
            return segment
        below = self.below[segment]
        part = self._number(lower, below)
        self.children(below).remove(segment)
        self.children(below).add(part)
        self.above[part] = {segment}
        self.below[segment] = part
        self.nodes[segment] = upper
        self._move(lower, part)
        return part

    def _number(self, nodes: list[int], below: int) -> int:
        self.nodes.append(nodes)
        self.below.append(below)
        self.above.append(set())
        self.edition += 1
        return len(self.nodes) - 1

    def _move(self, nodes: list[int], segment: int) -> None:
        for position in nodes:
            self._of[position] = segment


# Strands: the segments in the order of drawing, with their lanes.


@dataclass(frozen=True)
class Strand:
    """A segment with its lane in the drawing."""

    segment: int
    lane: int
    """0 at the left."""
    rails: tuple[bool, ...]
    """For each lane to the left, whether its line is on the head's lineage, shape (lane,)."""
    joint: bool
    """Whether it is a branch that joins the lane to its left below its oldest node."""
    served: bool
    """Whether the head's lineage goes through it."""


def strands(segments: Segments, head: int | None) -> list[Strand]:
    """All segments from the base weights up; the branch that grew last is topmost.

    At a fork the part with the newest step continues the lane, above the others. O(S log S) in the
    number of segments.
    """
    newest = segments.newest()
    lineage = {segment for segment, _ in segments.lineage(head)}

    def forks_of(below: int, lane: int, rails: tuple[bool, ...]) -> Iterator[Strand]:
        """The strands that grow from a segment, topmost first."""
        above = False  # whether the lane's line carries the lineage past this fork
        for rank, fork in enumerate(sorted(segments.children(below), key=lambda s: -newest[s])):
            side = (*rails, above) if rank else rails
            yield Strand(fork, lane + (rank > 0), side, rank > 0, fork in lineage)
            above = above or fork in lineage

    drawn: list[Strand] = []
    waiting = [*forks_of(ROOT, 0, ())]
    while waiting:
        strand = waiting.pop()
        drawn.append(strand)
        waiting += forks_of(strand.segment, strand.lane, strand.rails)
    return drawn


# The parts of segments that are unfolded.


Run = tuple[int, int]
"""Part of a lineage: oldest and newest position, both included."""
Part = tuple[int, int]
"""Part of a segment: first and last index, both included."""


class Unfolded:
    """The unfolded parts of the tree, as runs (by position) and by segment. Every method that
    changes them returns the affected segments."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._runs: list[Run] = []
        self._held: Run | None = None
        self._parts: dict[int, list[Part]] = {}
        self.edition = 0
        """Incremented with every change."""

    @property
    def runs(self) -> list[Run]:
        """Runs that the user unfolded, without the held one."""
        return [run for run in self._runs if run != self._held]

    def parts(self, segment: int) -> list[Part]:
        return self._parts.get(segment, [])

    def recut(self) -> None:
        """Recompute the parts after segments were divided."""
        self._parts = {}
        for run in self._runs:
            for segment, part in self._parts_of(run):
                self._parts.setdefault(segment, []).append(part)

    def add(self, oldest: int, newest: int) -> set[int]:
        """Unfold one more run."""
        return self._set([*self._runs, (oldest, newest)])

    def only(self, runs: list[Run]) -> set[int]:
        """Unfold only these runs and the held one."""
        return self._set([*runs, *([self._held] if self._held else [])])

    def all(self) -> set[int]:
        """Unfold everything."""
        return self._set([(nodes[0], nodes[-1]) for nodes in self._segments.nodes])

    def none(self) -> set[int]:
        """Fold everything."""
        return self._set([])

    def fold(self, position: int) -> set[int] | None:
        """Fold the runs that contain a node; None if no run does."""
        rest = [run for run in self._runs if not self._spans(run, position)]
        return self._set(rest) if len(rest) < len(self._runs) else None

    def hold(self, head: int | None) -> set[int]:
        """Keep the present neighbours of the head visible when the head moves on, and no others;
        None for none."""
        held, self._held = self._held, None
        changed = self._set([run for run in self._runs if run != held]) if held else set()
        if head is None:
            return changed
        nodes = self._segments.nodes[self._segments.of(head)]
        index = self._segments.index(head)
        self._held = nodes[max(0, index - NEAR)], nodes[min(index + NEAR, len(nodes) - 1)]
        return changed | self.add(*self._held)

    def _set(self, runs: list[Run]) -> set[int]:
        before, self._runs = self._parts, runs
        self.edition += 1
        self.recut()
        return {s for s in before.keys() | self._parts if before.get(s) != self._parts.get(s)}

    def _parts_of(self, run: Run) -> Iterator[tuple[int, Part]]:
        """Each segment that a run goes through, and the part of it that is the run's."""
        oldest, newest = run
        end = self._segments.of(oldest)
        for segment, high in self._segments.lineage(newest):
            yield segment, (self._segments.index(oldest) if segment == end else 0, high)
            if segment == end:
                return

    def _spans(self, run: Run, position: int) -> bool:
        """Whether a run contains this node."""
        segment, index = self._segments.of(position), self._segments.index(position)
        parts = self._parts_of(run)
        return any(part == segment and low <= index <= high for part, (low, high) in parts)


class Lanes:
    """The rows of a growing tree, some of them folded."""

    def __init__(self) -> None:
        self.segments = Segments()
        self.tree = Tree()
        self._selected: int | None = None
        self._kept: frozenset[int] = frozenset()
        """Positions that are never folded: pinned, noted or marked."""
        self.unfolded = Unfolded(self.segments)
        self._strands: list[Strand] = []
        """From the base weights up."""
        self._place: dict[int, int] = {}
        """Index in `_strands` by segment."""
        self._pieces: list[list[Piece]] = []
        self._starts: list[int] = [1]
        """Number of rows below each strand; the last entry is the total."""
        self._edition = 0
        self.drawing = 0
        """Incremented whenever folding changes."""
        self.lanes = 1
        """Width of the drawing in lanes."""
        self.branches = 0
        """Number of tips of the tree."""
        self._room = 0
        """Rows in sight: what fits is not folded, until the user folds something."""
        self._folded: list[list[Piece]] = []
        """The pieces if there were no room."""
        self.by_hand = False
        """Whether the user decides what is folded, whatever there is room for."""

    def show(self, tree: Tree) -> None:
        """Show a later version of the tree, which must extend the present one (`Tree.extends`)."""
        before, self.tree = self.tree, tree
        moved = {self.segments.add(tree.parent(p)) for p in range(len(self.segments), len(tree))}
        if self._reordered(before.head, moved):
            self._order()
        else:
            marks = {before.head, tree.head, before.best, tree.best} - {None}
            self._refold(moved | {self.segments.of(p) for p in marks if p is not None})

    def __len__(self) -> int:
        """Number of rows; the base weights are always one."""
        return self._starts[-1]

    def fit(self, room: int) -> None:
        """Unfold what fits in so many rows, the newest first, unless the user folded something."""
        self._room = room
        self._fill(len(self._strands))

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
        index = bisect_right(self._starts, height) - 1
        strand, up = self._strands[index], height - self._starts[index]
        if strand.joint and up == 0:
            oldest = self.segments.nodes[strand.segment][0]
            beside = strand.rails[-1] or strand.served
            served = (*strand.rails[:-1], beside, strand.served)
            return Row(Kind.JOINT, "│ " * (strand.lane - 1) + "├─╯", served, oldest, oldest)
        return self._node_row(strand, self._pieces[index], up - strand.joint)

    def row_of(self, position: int) -> int:
        """The row that shows a node or the fold that contains it; for ROOT the row of the base
        weights."""
        if position == ROOT:
            return len(self) - 1
        index = self.segments.index(position)
        number = self._place[self.segments.of(position)]
        height = self._starts[number] + self._strands[number].joint
        for piece in self._pieces[number]:
            if index <= piece.high:
                height += 0 if piece.folded else index - piece.low
                break
            height += piece.rows
        return len(self) - 1 - height

    def select(self, position: int | None) -> None:
        """Keep this node visible instead of the previously selected one."""
        marks = {p for p in (self._selected, position) if p is not None and p != ROOT}
        self._selected = position
        self._refold({self.segments.of(p) for p in marks})

    def keep(self, positions: frozenset[int]) -> None:
        """Never fold these nodes; replaces the previous set."""
        changed, self._kept = self._kept ^ positions, positions
        if changed:
            self._refold({self.segments.of(p) for p in changed})

    def unfold(self, number: int) -> bool:
        """Show every step of a fold, whatever part there is room for; False if the row is none."""
        row = self.row(number)
        if row.kind is not Kind.FOLD:
            return False
        segment = self.segments.of(row.newest)
        nodes, index = self.segments.nodes[segment], self.segments.index(row.newest)
        pieces = self._folded[self._place[segment]]
        whole = next(piece for piece in pieces if piece.low <= index <= piece.high)
        self._refold(self.unfolded.add(nodes[whole.low], nodes[whole.high]))
        return True

    def fold(self, position: int) -> bool:
        """Fold the unfolded run that contains a node; False if there is none."""
        if not self.by_hand and self._pieces is not self._folded:
            self.select(None)  # it divides a run
            opened = self._opened()
            self._fold_by_hand()
            self._refold(self.unfolded.only([*self.unfolded.runs, *opened]))
        changed = None if position == ROOT else self.unfolded.fold(position)
        self._refold(changed or set())
        return changed is not None

    def unfold_only(self, runs: list[tuple[int, int]] | None) -> None:
        """Unfold these runs and fold all others; None: as there is room."""
        self._refold(self.unfolded.only(runs or []))
        self.by_hand = runs is not None
        self.fit(self._room)

    @property
    def all_open(self) -> bool:
        """Whether nothing is folded."""
        return not any(piece.folded for pieces in self._pieces for piece in pieces)

    def hold(self) -> None:
        """Keep the present neighbours of the head visible when the head moves on."""
        self._refold(self.unfolded.hold(self.tree.head))

    def release(self) -> None:
        """End `hold`."""
        self._refold(self.unfolded.hold(None))

    def unfold_all(self) -> None:
        """Show every step of the tree as it is now."""
        self._refold(self.unfolded.all())

    def fold_all(self) -> None:
        """Fold every segment."""
        self._fold_by_hand()
        self._refold(self.unfolded.none())

    def _fold_by_hand(self) -> None:
        """From now on only what the user unfolds is unfolded."""
        self.by_hand = True
        self.fit(self._room)

    def _reordered(self, head: int | None, moved: set[int]) -> bool:
        """Whether branches, their order, or the lineage of the head through them have changed."""
        if self._edition != self.segments.edition:
            return True
        before, now = (p if p is None else self.segments.of(p) for p in (head, self.tree.head))
        return before != now or any(self._place[s] < len(self._strands) - 1 for s in moved)

    def _order(self) -> None:
        self._edition = self.segments.edition
        self._strands = strands(self.segments, self.tree.head)
        self._place = {strand.segment: index for index, strand in enumerate(self._strands)}
        self.lanes = 1 + max((strand.lane for strand in self._strands), default=0)
        self.branches = sum(strand.joint for strand in self._strands) + bool(self._strands)
        self.unfolded.recut()
        self._folded = [self._cut(strand) for strand in self._strands]
        self._fill(0)

    def _refold(self, segments: set[int]) -> None:
        """Recompute the pieces of these segments, and the row counts above the lowest one that
        changed."""
        changed = len(self._strands)
        for index in (self._place[segment] for segment in segments):
            pieces = self._cut(self._strands[index])
            if pieces != self._folded[index]:
                self._folded[index] = pieces
                changed = min(changed, index)
        self._fill(changed)

    def _fill(self, changed: int) -> None:
        """Unfold what there is room for, and count the rows. `changed`: index of the lowest strand
        with other pieces."""
        before, was_folded = self._pieces, self._pieces is self._folded
        self._pieces = self._roomy() or self._folded
        if not was_folded or self._pieces is not self._folded:
            pairs = enumerate(zip(before, self._pieces, strict=False))
            changed = min(changed, next((i for i, (old, new) in pairs if old != new), changed))
        self.drawing += changed < len(self._strands)
        heights = (
            strand.joint + sum(piece.rows for piece in pieces)
            for strand, pieces in zip(self._strands[changed:], self._pieces[changed:], strict=True)
        )
        self._starts[changed:] = accumulate(heights, initial=self._starts[changed])

    def _roomy(self) -> list[list[Piece]]:
        """The pieces with as much open as fits, the newest first; empty if nothing fits."""
        openings = self._openings()
        if not openings:
            return []
        return [
            [
                part
                for piece in pieces
                for part in open_from(piece, openings.get((number, piece.low)))
            ]
            for number, pieces in enumerate(self._folded)
        ]

    def _openings(self) -> dict[tuple[int, int], int]:
        """For each fold that there is room to open, by its strand and its first index, the index
        from which it is open. The rest of the room has the newest part of the newest one left."""
        if self.by_hand or len(self._strands) >= self._room:
            return {}
        rows = sum(strand.joint for strand in self._strands) + sum(
            piece.rows for pieces in self._folded for piece in pieces
        )
        free, openings = self._room - 1 - rows, dict[tuple[int, int], int]()
        folds = (
            (self.segments.nodes[strand.segment][piece.high], number, piece)
            for number, strand in enumerate(self._strands)
            for piece in self._folded[number]
            if piece.folded
        )
        closed = []
        for _, number, piece in sorted(folds, key=lambda fold: -fold[0]):
            if (more := piece.high - piece.low) <= free:
                free -= more
                openings[number, piece.low] = piece.low
            else:
                closed.append((number, piece))
        for number, piece in closed[:1]:
            if (part := min(free, piece.high - piece.low + 1 - FOLD_MIN)) > 0:
                openings[number, piece.low] = piece.high + 1 - part
        return openings

    def _opened(self) -> list[Run]:
        """The runs that are unfolded because there is room."""
        runs = []
        for (number, low), first in self._openings().items():
            nodes = self.segments.nodes[self._strands[number].segment]
            high = next(piece.high for piece in self._folded[number] if piece.low == low)
            runs.append((nodes[first], nodes[high]))
        return runs

    def _cut(self, strand: Strand) -> list[Piece]:
        """Pieces of a segment: ends, marked nodes and unfolded parts are shown, the rest is
        folded."""
        segment = strand.segment
        last = len(self.segments.nodes[segment]) - 1
        shown = [(last, last), *self.unfolded.parts(segment)]
        if strand.joint:
            shown.append((0, 0))
        kept = [(position, 0) for position in self._kept]
        marks = (self.tree.head, NEAR), (self.tree.best, 0), (self._selected, 0)
        for mark, near in (*marks, *kept):
            if mark is not None and mark != ROOT and self.segments.of(mark) == segment:
                index = self.segments.index(mark)
                shown.append((index - near, index + near))
        return cut_pieces(last + 1, shown)

    def _node_row(self, strand: Strand, pieces: list[Piece], up: int) -> Row:
        nodes, head = self.segments.nodes[strand.segment], self.tree.head
        for piece in pieces:
            if up < piece.rows:
                low = piece.low if piece.folded else piece.low + up
                high = piece.high if piece.folded else low
                kind, glyph = (Kind.FOLD, "⋮") if piece.folded else (Kind.NODE, "●")
                served = strand.served
                if head is not None and self.segments.of(head) == strand.segment:
                    served = high <= self.segments.index(head)
                rails = (*strand.rails, served)
                return Row(kind, "│ " * strand.lane + glyph, rails, nodes[high], nodes[low])
            up -= piece.rows
        raise IndexError(up)
