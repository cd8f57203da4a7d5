"""Rescue: what to serve once an update has spoilt a policy.

The last checkpoint before the update is not always good: an alarm may be raised late, and
its onset be found a step or two late. So each is asked for its own numbers, newest first,
and taken where they are near the level that the run had before.
"""

from collections.abc import Sequence
from itertools import islice
from math import nan

from hud_tui.rl.alarms.statistics import Window
from hud_tui.rl.head import refusal
from hud_tui.rl.own import Own
from hud_tui.rl.tree import Tree

LEVEL = 20
"""Checkpoints before the update whose own numbers are the run's level."""
MOST = 60
"""Checkpoints that are looked at."""
SIGMAS, LEAST = 2.0, 0.05
"""Near the level is no further below it than so many robust standard deviations, or than
this share of it."""


def rescue(tree: Tree, update: int) -> int | None:
    """The last checkpoint before an update whose own numbers were good.

    Args:
        tree: Holds the update's checkpoint.
        update: Its position.

    Returns:
        Its position. Where none is known to be good, the newest that can still be served;
        None where the update was the lineage's first.
    """
    line = list(islice(tree.lineage(tree.parent(update)), MOST))
    owns = [tree.own(position) for position in line]
    floors = _floor([own.reward for own in owns]), _floor([own.heldout for own in owns])
    kept = [(p, own) for p, own in zip(line, owns, strict=True) if not refusal(tree[p])]
    good = (position for position, own in kept if _is_good(own, *floors))
    usual = kept[0][0] if kept else next(iter(line), None)
    return next(good, usual)


def _is_good(own: Own, reward: float, heldout: float) -> bool:
    """Whether all that is known of it is at its floor or above."""
    told = ((own.reward, reward), (own.heldout, heldout))
    return own.known and not any(value is not None and value < floor for value, floor in told)


def _floor(values: Sequence[float | None]) -> float:
    """The least that is near the level of the newest values; NaN where none is known."""
    window = Window(LEVEL)
    for value in islice((v for v in values if v is not None), LEVEL):
        window.push(value)
    if not len(window):
        return nan
    return window.median - max(SIGMAS * window.sigma, LEAST * abs(window.median))
