"""Rows of the drawn tree, and how a straight run is cut into shown and folded pieces."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

NEAR = 8
"""Steps shown on either side of the head."""
FOLD_MIN = 3
"""A shorter run is shown: folding it would save nothing."""


class Kind(StrEnum):
    """What a row shows."""

    NODE = "node"
    FOLD = "fold"
    JOINT = "joint"
    """Where a branch left the lane beside it; the row has no checkpoint of its own."""
    BASE = "base"


@dataclass(frozen=True)
class Row:
    """One line of the drawn tree."""

    kind: Kind
    lanes: str
    """The lanes' glyphs, two cells a lane but one for the last."""
    served: tuple[bool, ...]
    """For each lane, whether its glyph lies on the head's lineage, shape (lanes,)."""
    newest: int
    """Position of the row's checkpoint; of a fold its newest; of a joint the branch's oldest."""
    oldest: int
    """The same as `newest`, except in a fold."""


@dataclass(frozen=True)
class Piece:
    """Neighbours of one segment, by their index in it, that are all shown or one fold."""

    low: int
    high: int
    folded: bool

    @property
    def rows(self) -> int:
        return 1 if self.folded else self.high - self.low + 1


def cut_pieces(length: int, shown: Iterable[tuple[int, int]]) -> list[Piece]:
    """Cut indices 0 … length-1 into pieces, oldest first, folding what no range shows.

    Args:
        length: Nodes in the segment, at least 1.
        shown: Ranges of indices to show, both ends included; they may overlap, lie in any
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
