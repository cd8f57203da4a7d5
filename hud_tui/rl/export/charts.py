"""Which charts a report has, and what they are called."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from hud_tui.rl.export.drawing import Line, Mark, chart
from hud_tui.rl.export.names import escaped, plain_name
from hud_tui.rl.metrics import metric, ranked, title
from hud_tui.rl.own import HELDOUT
from hud_tui.rl.run import Run
from hud_tui.rl.vocabulary import METRICS

REWARD = "reward_mean"
MOST = 60
"""Charts of a report; metrics beyond are in its table only."""


@dataclass(frozen=True)
class Chart:
    """One picture."""

    file: str
    alt: str
    """Its name, escaped for Markdown."""
    svg: str


def charts(run: Run) -> list[Chart]:
    """A chart a metric that changes, the reward with the held-out one first."""
    marks = [
        Mark(alarm.row, f"{alarm.title} since step {alarm.onset}")
        for alarm in run.alarms.alarms
        if alarm.row < run.series.length
    ]
    keys = [key for key in ranked(run.series.keys) if _changes(run, key)]
    if REWARD in keys and HELDOUT in keys:
        keys.remove(HELDOUT)
    found: dict[str, Chart] = {}
    for key in keys[:MOST]:
        file, number = f"{plain_name(key)}.svg", 2
        while file.lower() in found:  # some disks take a and A for one name
            file, number = f"{plain_name(key)}-{number}.svg", number + 1
        found[file.lower()] = _chart(run, key, file, marks)
    return list(found.values())


def _chart(run: Run, key: str, file: str, marks: Sequence[Mark]) -> Chart:
    shown = [key]
    if key == REWARD and _changes(run, HELDOUT):
        shown.append(HELDOUT)
    lines = [Line(title(one), run.series.values(one)) for one in shown]
    alt = escaped(title(key)) if key in METRICS else plain_name(key)
    return Chart(file, alt, chart(title(key), metric(key).meaning, lines, marks))


def _changes(run: Run, key: str) -> bool:
    if key not in run.series.keys:
        return False
    finite = [value for value in run.series.values(key) if isfinite(value)]
    return bool(finite) and min(finite) < max(finite)
