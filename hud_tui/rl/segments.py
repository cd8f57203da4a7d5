"""Segments: a checkpoint tree cut at its fork points into straight runs.

A run of training is one long chain, so a tree of a hundred thousand checkpoints has a
handful of segments. What depends on the tree's shape is worked out by segment, and a
step that extends a branch costs the same at any size: it is appended to one list.

A fork in the middle of a segment cuts it in two. The shorter part gets the new number,
so that a node changes its segment O(log N) times at most, however the tree grows.
"""

from collections.abc import Iterator

ROOT = -1
"""The segment below the first steps: the base weights."""


class Segments:
    """The segments of a growing tree. Nodes are known by their position, oldest first."""

    def __init__(self) -> None:
        self.nodes: list[list[int]] = []
        """Positions in each segment, oldest first; never empty."""
        self.below: list[int] = []
        """The segment that each one grows from, or ROOT."""
        self.above: list[set[int]] = []
        """The segments that grow from each one's newest node: none, or two and more."""
        self.roots: set[int] = set()
        """The segments that grow from the base weights."""
        self.edition = 0
        """Grows with every new or cut segment, not when one gets longer."""
        self._of: list[int] = []
        self._depths: list[int] = []

    def __len__(self) -> int:
        return len(self._of)

    def add(self, parent: int) -> int:
        """Append the next position under its parent, or ROOT; return its segment."""
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
        """The segment that a node lies in."""
        return self._of[position]

    def index(self, position: int) -> int:
        """A node's place in its segment, 0 the oldest."""
        return self._depths[position] - self._depths[self.nodes[self._of[position]][0]]

    def children(self, segment: int) -> set[int]:
        """The segments that grow from one, or from ROOT."""
        return self.roots if segment == ROOT else self.above[segment]

    def lineage(self, position: int | None) -> Iterator[tuple[int, int]]:
        """From a node to the base weights: each segment, and the newest index that counts."""
        if position is None:
            return
        segment, index = self._of[position], self.index(position)
        while segment != ROOT:
            yield segment, index
            segment = self.below[segment]
            index = len(self.nodes[segment]) - 1 if segment != ROOT else 0

    def ancestors(self, position: int, depths: list[int]) -> list[int]:
        """A node's ancestors at the given depths, each from 1 to its own; ascending."""
        found: list[int] = []
        wanted = sorted(depths, reverse=True)
        for segment, _ in self.lineage(position):
            nodes = self.nodes[segment]
            first = self._depths[nodes[0]]
            while len(found) < len(wanted) and wanted[len(found)] >= first:
                found.append(nodes[wanted[len(found)] - first])
        return found[::-1]

    def newest(self) -> list[int]:
        """For each segment, the newest position in it and all that grows from it. O(segments)."""
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
        """Cut after a node; return the lower part, which the node now ends."""
        nodes = self.nodes[segment]
        lower, upper = nodes[: index + 1], nodes[index + 1 :]
        if len(upper) <= len(lower):
            self._cut_upper(segment, lower, upper)
            return segment
        return self._cut_lower(segment, lower, upper)

    def _cut_upper(self, segment: int, lower: list[int], upper: list[int]) -> None:
        part = self._number(upper, segment)
        for above in self.above[segment]:
            self.below[above] = part
        self.above[part] = self.above[segment]
        self.above[segment] = {part}
        self.nodes[segment] = lower
        self._move(upper, part)

    def _cut_lower(self, segment: int, lower: list[int], upper: list[int]) -> int:
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
