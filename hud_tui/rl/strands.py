"""Strands: the segments of a tree in the order and the lanes in which they are drawn."""

from dataclasses import dataclass

from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.segments import ROOT, Segments


@dataclass(frozen=True)
class Strand:
    """One segment's place in the drawing."""

    segment: int
    lane: int
    """0 at the left."""
    rails: tuple[bool, ...]
    """For each lane to the left, whether its line lies on the head's lineage, shape (lane,)."""
    joint: bool
    """Whether it is a branch that joins the lane to the left below its oldest node."""
    served: bool
    """Whether the head's lineage goes through it."""

    def joint_row(self, oldest: int) -> Row:
        """The row where it joins, e.g. ``│ ├─╯``; `oldest` is its oldest position."""
        beside = self.rails[-1] or self.served
        served = (*self.rails[:-1], beside, self.served)
        return Row(Kind.JOINT, "│ " * (self.lane - 1) + "├─╯", served, oldest, oldest)


def strands(segments: Segments, head: int | None) -> list[Strand]:
    """Every segment, from the base weights up; the branch that grew last is topmost.

    Where a line forks, the part with the newest step goes straight on, above the others.
    O(S log S) in the number of segments.
    """
    newest = segments.newest()
    lineage = {segment for segment, _ in segments.lineage(head)}
    drawn: list[Strand] = []
    waiting = _forks(segments, ROOT, 0, (), newest, lineage)
    while waiting:
        strand = waiting.pop()
        drawn.append(strand)
        waiting += _forks(segments, strand.segment, strand.lane, strand.rails, newest, lineage)
    return drawn


def _forks(
    segments: Segments,
    below: int,
    lane: int,
    rails: tuple[bool, ...],
    newest: list[int],
    lineage: set[int],
) -> list[Strand]:
    """What grows from one segment, topmost first."""
    forks = sorted(segments.children(below), key=lambda s: -newest[s])
    above = False  # whether the lane's line carries the lineage past this fork
    found: list[Strand] = []
    for rank, fork in enumerate(forks):
        side = (*rails, above) if rank else rails
        found.append(Strand(fork, lane + (rank > 0), side, rank > 0, fork in lineage))
        above = above or fork in lineage
    return found
