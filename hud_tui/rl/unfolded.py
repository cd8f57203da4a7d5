"""Unfolded: the straight runs of a tree that are shown step by step."""

from hud_tui.rl.rows import NEAR
from hud_tui.rl.segments import Segments

Run = tuple[int, int]
"""The oldest and the newest position of a lineage's part, both included."""
Part = tuple[int, int]
"""The first and the last index in a segment, both included."""


class Unfolded:
    """Runs by position, and the same by segment. Every change tells the segments it concerns."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._runs: list[Run] = []
        self._held: Run | None = None
        self._parts: dict[int, list[Part]] = {}
        self.edition = 0
        """Grows with every change."""

    @property
    def runs(self) -> list[Run]:
        """What was unfolded, and is not only held."""
        return [run for run in self._runs if run != self._held]

    def parts(self, segment: int) -> list[Part]:
        """What is unfolded of a segment."""
        return self._parts.get(segment, [])

    def recut(self) -> None:
        """Segments were cut: the runs lie in others now."""
        self._parts = self._cut()

    def add(self, oldest: int, newest: int) -> set[int]:
        """Unfold one run more."""
        return self._set([*self._runs, (oldest, newest)])

    def only(self, runs: list[Run]) -> set[int]:
        """Unfold these runs, and what is held."""
        return self._set([*runs, *([self._held] if self._held else [])])

    def all(self) -> set[int]:
        """Unfold every run there is now."""
        return self._set([(nodes[0], nodes[-1]) for nodes in self._segments.nodes])

    def none(self) -> set[int]:
        """Fold every run."""
        return self._set([])

    def fold(self, position: int) -> set[int] | None:
        """Fold the runs that a node is in; None where it is in none."""
        segment, index = self._segments.of(position), self._segments.index(position)
        kept = [run for run in self._runs if not self._spans(run, segment, index)]
        return self._set(kept) if len(kept) < len(self._runs) else None

    def hold(self, head: int | None) -> set[int]:
        """Keep the head's neighbours of this moment visible when the head moves on."""
        changed = self.release()
        if head is None:
            return changed
        nodes = self._segments.nodes[self._segments.of(head)]
        index = self._segments.index(head)
        self._held = nodes[max(0, index - NEAR)], nodes[min(index + NEAR, len(nodes) - 1)]
        return changed | self.add(*self._held)

    def release(self) -> set[int]:
        """Hold nothing more."""
        held, self._held = self._held, None
        return self._set([run for run in self._runs if run != held]) if held else set()

    def _set(self, runs: list[Run]) -> set[int]:
        before, self._runs = self._parts, runs
        self.edition += 1
        self._parts = self._cut()
        return {s for s in before.keys() | self._parts if before.get(s) != self._parts.get(s)}

    def _cut(self) -> dict[int, list[Part]]:
        parts: dict[int, list[Part]] = {}
        for oldest, newest in self._runs:
            end, low = self._segments.of(oldest), self._segments.index(oldest)
            for segment, high in self._segments.lineage(newest):
                parts.setdefault(segment, []).append((low if segment == end else 0, high))
                if segment == end:
                    break
        return parts

    def _spans(self, run: Run, segment: int, index: int) -> bool:
        """Whether a run shows this node."""
        oldest, newest = run
        for part, high in self._segments.lineage(newest):
            end = part == self._segments.of(oldest)
            if part == segment:
                return (self._segments.index(oldest) if end else 0) <= index <= high
            if end:
                return False
        return False
