"""What the detectors say of a whole series at once."""

from collections.abc import Iterable, Mapping

from hud_tui.rl.alarms.alarm import Report
from hud_tui.rl.alarms.demos import BEGAN, STEP_S, Pathology
from hud_tui.rl.alarms.monitor import DetectorSet
from hud_tui.rl.alarms.statistics import Row, row_of
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.checkpoint_tree import Tree


def row(step: int, metrics: Mapping[str, float]) -> Row:
    """The row of a demo's step, from 1."""
    return Row(step - 1, metrics, step, f"c{step}", BEGAN + step * STEP_S)


def rows_of(demo: Pathology, steps: int | None = None) -> list[Row]:
    """A demo as rows for detectors."""
    return [row(step, demo.metrics(step)) for step in range(1, (steps or demo.steps) + 1)]


def inspect(
    rows: Iterable[Row], thresholds: Thresholds | None = None, steps: int | None = None
) -> Report:
    """What all detectors say of a whole series."""
    watch = DetectorSet(thresholds, steps)
    for row in rows:
        watch.read(row)
    return watch.report()


def inspect_lineage(tree: Tree) -> DetectorSet:
    """The detectors after the whole lineage of a tree's head."""
    watch = DetectorSet()
    for place, position in enumerate(tree.path(tree.head)):
        watch.read(row_of(place, tree[position]))
    return watch
