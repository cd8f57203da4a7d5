"""The vocabulary of metrics: one key for what trainers call by many names.

A key that is in no list keeps its own name and is drawn like any other.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf

from hud_tui.rl.metric_table import TABLE, Metric

__all__ = ["METRICS", "Metric", "canonical", "spelling", "translate"]
METRICS = {metric.key: metric for metric in TABLE}
_PREFIXES = ("tinker.", "tinker/")
"""What HUD puts before the names of a trainer behind it."""
_PATTERNS = (
    (re.compile(r"train/agg/effective/[^/]+/reward/mean"), "reward_mean"),
    (re.compile(r"eval/[^/]+/effective/[^/]+/avg@\d+"), "heldout_reward"),
    (re.compile(r"val-core/.+/acc/mean@\d+"), "heldout_reward"),
)
"""Names with a part that is the run's own."""


def _ranked() -> dict[str, tuple[str, int]]:
    """For every name: the key, and how well known the name is, the key itself best."""
    names = {one.key: (one.key, -1) for one in TABLE}
    for one in TABLE:
        for rank, name in enumerate(one.names):
            names.setdefault(name, (one.key, rank))
    return names


_NAMES = _ranked()


def canonical(key: str) -> str:
    """The vocabulary's key for a trainer's name; an unknown name is its own."""
    return _place(key)[0]


def translate(metrics: Mapping[str, float]) -> dict[str, float]:
    """A step's metrics under the vocabulary's keys.

    Where several of them mean the same, the best known name is taken and the others keep
    their own: nothing is dropped.
    """
    return dict(zip(_translated(tuple(metrics)), metrics.values(), strict=True))


@lru_cache(256)
def spelling(keys: tuple[str, ...], key: str) -> str | None:
    """Which of a step's keys means the vocabulary's `key`; None where none does."""
    meant = _translated(keys)
    return keys[meant.index(key)] if key in meant else None


@lru_cache(256)
def _translated(keys: tuple[str, ...]) -> Sequence[str]:
    best: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: _place(key)[1]):
        best.setdefault(_place(key)[0], key)
    return [name if best[name := _place(key)[0]] == key else key for key in keys]


@lru_cache(4096)
def _place(key: str) -> tuple[str, float]:
    """The vocabulary's key, and a rank that is lower for better known names."""
    for prefix in ("", *_PREFIXES):
        bare = key.removeprefix(prefix)
        if bare in _NAMES and key.startswith(prefix):
            return _NAMES[bare]
    found = (name for pattern, name in _PATTERNS if pattern.fullmatch(key))
    return next(found, key), inf
