"""Series: every metric of one lineage, step by step, in columns.

100 000 steps of 20 metrics are 17 MB as arrays of doubles and 230 MB as dicts. A step
that lacks a metric holds NaN there, which charts draw as a gap. Versions share their
columns as `hud_tui.rl.checkpoint_tree.Tree` does: a version is the number of rows it sees.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import nan

from hud_tui.rl.metrics import translate
from hud_tui.wire import Checkpoint

FIELDS = ("mean_reward", "learning_rate", "num_tokens", "num_traces", "num_datums")
"""Checkpoint fields that are metrics too, where `metrics` does not already name them."""
ALIASES = {"mean_reward": "reward_mean"}


@dataclass(frozen=True, eq=False)
class Series:
    """Rows 0 … length-1, oldest first; row i is the lineage's (i+1)th step."""

    length: int = 0
    _columns: dict[str, "array[float]"] = field(default_factory=dict, repr=False)
    _tips: list[str] = field(default_factory=list, repr=False)
    """Checkpoint id of each row."""

    @classmethod
    def of(cls, lineage: Iterable[Checkpoint]) -> "Series":
        """The series of a lineage given oldest first."""
        series = cls()
        for checkpoint in lineage:
            series = series.add(checkpoint)
        return series

    @property
    def keys(self) -> list[str]:
        """Metric keys in the order they first arrived."""
        return list(self._columns)

    @property
    def tip(self) -> str | None:
        """Checkpoint id of the last row."""
        return self._tips[self.length - 1] if self.length else None

    def id_at(self, row: int) -> str:
        """Checkpoint id of a row."""
        if not 0 <= row < self.length:
            raise IndexError(row)
        return self._tips[row]

    def column(self, key: str) -> "array[float]":
        """A metric's values; at least `length` of them count, the caller reads no further.

        Shared with newer versions and not to be changed. Missing metrics are all NaN.
        """
        return self._columns.get(key) or array("d", [nan]) * self.length

    def values(self, key: str) -> "array[float]":
        """A metric's values, shape (length,): a copy."""
        return self.column(key)[: self.length]

    def last(self, key: str) -> float:
        """The newest value of a metric that is not NaN; NaN where there is none."""
        column = self._columns.get(key)
        if column is None:
            return nan
        rows = range(min(self.length, len(column)) - 1, -1, -1)
        return next((column[row] for row in rows if column[row] == column[row]), nan)

    def same_rows(self, other: "Series") -> bool:
        """Whether both see rows of the same columns, so that those both have are equal."""
        return self._columns is other._columns

    def add(self, checkpoint: Checkpoint) -> "Series":
        """The version with one more step."""
        series = self if self.length == len(self._tips) else self.truncate_copy()
        rows = series.length
        metrics = metrics_of(checkpoint)
        for key in metrics:
            if key not in series._columns:
                series._columns[key] = array("d", [nan]) * rows
        for key, column in series._columns.items():
            column.append(metrics.get(key, nan))
        series._tips.append(checkpoint.id)
        return replace(series, length=rows + 1)

    def truncate(self, length: int) -> "Series":
        """The version that sees only the first rows."""
        return replace(self, length=min(length, self.length))

    def truncate_copy(self) -> "Series":
        """A version with columns of its own, so that it can grow another way."""
        n = self.length
        columns = {key: column[:n] for key, column in self._columns.items()}
        return Series(n, columns, self._tips[:n])


def metrics_of(checkpoint: Checkpoint) -> Mapping[str, float]:
    """A checkpoint's metrics under the vocabulary's keys, its numeric fields among them."""
    metrics = translate(checkpoint.metrics)
    for name in FIELDS:
        value = getattr(checkpoint, name)
        if value is not None:
            metrics.setdefault(ALIASES.get(name, name), float(value))
    return metrics
