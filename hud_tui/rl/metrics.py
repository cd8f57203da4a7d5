"""What the metrics are called on the screen, in which order, and how their numbers are written.

Keys are an open set: any key that arrives is drawn, known or not.
"""

import re
from functools import lru_cache
from math import isclose, isfinite, isinf, nan

from hud_tui.rl.metric_table import OF_WEIGHTS
from hud_tui.rl.vocabulary import METRICS, Metric, canonical

_REWARD_PART = re.compile(r"(?:rewards?|reward_component|critic/rewards)/.+")
ORDER = {key: rank for rank, key in enumerate(METRICS)}


def metric(key: str) -> Metric:
    """What is known of a key, by whatever trainer's name; an unknown one is its own title."""
    return METRICS.get(canonical(key)) or Metric(key, key, "A metric of the service's own.")


@lru_cache(4096)
def of_weights(key: str) -> bool:
    """Whether a metric tells of the weights that sampled a step's rollouts, its parent's;
    else it tells of the step itself: its update, its cost. So does one that nobody knows."""
    return canonical(key) in OF_WEIGHTS or _REWARD_PART.fullmatch(key) is not None


def ranked(keys: list[str]) -> list[str]:
    """Known metrics first, in the table's order; then the others as they arrived."""
    return sorted(keys, key=lambda key: ORDER.get(key, len(ORDER)))


def title(key: str) -> str:
    """What a column is called; where several names mean the same, all but one keep their own."""
    return METRICS[key].title if key in METRICS else key


def healthy(known: Metric) -> str:
    """The range that is nothing to worry about, e.g. ``≤.01``; empty where nobody can say."""
    if known.healthy is None:
        return ""
    low, high = known.healthy
    if low == -high or low == 0:
        return f"≤{short(high)}"
    return f"≥{short(low)}" if high == 1 else f"{short(low)}–{short(high)}"


def outside(known: Metric, value: float) -> bool:
    """Whether a value is beyond the metric's healthy range."""
    return known.healthy is not None and not (
        value != value or known.healthy[0] <= value <= known.healthy[1]
    )


def short(value: float | None) -> str:
    """A number in at most 6 characters, e.g. ``.847``, ``1.21``, ``41k``, ``3.1e-4``."""
    if value is None or value != value:
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1000:
        return _thousands(value)
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.01:
        return f"{value:.3f}".replace("0.", ".", 1)
    return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


RESIDUE, NOTHING = 1e-9, 1e-14
"""A relative change this small is what averaging or adding up left; and one from nothing."""
SLIGHT = 0.01
"""A smaller relative change is none where both values read the same."""


def change(before: float, after: float) -> float:
    """How far `after` is from `before`: 0 where that cannot be seen, NaN where one is unknown."""
    if not (isfinite(before) and isfinite(after)):
        return nan
    still = isclose(before, after, rel_tol=RESIDUE, abs_tol=NOTHING)
    alike = isclose(before, after, rel_tol=SLIGHT) and short(before) == short(after)
    return 0.0 if still or alike else after - before


def signed(value: float | None) -> str:
    """A change with its sign and arrow first, e.g. ``▲+.021``."""
    if value is None or not isfinite(value):
        return ""
    if value == 0:
        return "=0"
    return f"{'▲+' if value > 0 else '▼-'}{short(abs(value))}"


def _thousands(value: float) -> str:
    if abs(value) >= 1e15:
        return f"{value:.0e}".replace("e+", "e")
    for suffix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= unit:
            scaled = value / unit
            return f"{scaled:.0f}{suffix}" if abs(scaled) >= 10 else f"{scaled:.1f}{suffix}"
    return f"{value:.0f}"
