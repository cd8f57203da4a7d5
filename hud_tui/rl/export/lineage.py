"""A checkpoint tree in a few lines: each straight run of it as one row of a table."""

from collections.abc import Iterator

from hud_tui.rl.export.names import code
from hud_tui.rl.metrics import short
from hud_tui.rl.segments import ROOT, Segments
from hud_tui.rl.tree import Tree, label

MOST = 60
"""Straight runs that are listed; of more, the newest."""


def lineage_lines(tree: Tree) -> Iterator[str]:
    """The lines of a Markdown table, the oldest run first."""
    segments = Segments()
    for position in range(len(tree)):
        segments.add(tree.parent(position))
    order = sorted(range(len(segments.nodes)), key=lambda segment: segments.nodes[segment][0])
    serving = {segment for segment, _ in segments.lineage(tree.head)}
    if len(order) > MOST:
        yield f"{len(order) - MOST} of {len(order)} straight runs are left out.\n"
    yield "| from | first | last | steps | own reward | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for segment in order[-MOST:]:
        nodes, below = segments.nodes[segment], segments.below[segment]
        parent = "the base" if below == ROOT else code(label(tree[segments.nodes[below][-1]]), 40)
        first, last = (code(label(tree[position]), 40) for position in (nodes[0], nodes[-1]))
        said = "; ".join(_said(tree, nodes, segment in serving))
        rewards = " → ".join(short(tree.reward(position)) for position in (nodes[0], nodes[-1]))
        yield f"| {parent} | {first} | {last} | {len(nodes)} | {rewards} | {said} |"


def _said(tree: Tree, nodes: list[int], serving: bool) -> Iterator[str]:
    held = frozenset(nodes)
    if tree.head in held and tree.head is not None:
        yield f"▶ the head is {code(label(tree[tree.head]), 40)}"
    elif serving:
        yield "on the way to the head"
    if tree.best in held and tree.best is not None:
        yield f"★ the best is {code(label(tree[tree.best]), 40)}"
    if pins := len(held & tree.pinned):
        yield f"{pins} pinned"
