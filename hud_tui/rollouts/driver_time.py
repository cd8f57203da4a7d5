"""DriverWatch: what only the driver of a run knows of its time, for its reports."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from hud_tui.rl.stopwatch import steady_clock
from hud_tui.rl.timeline import FAILED, compact, why_failed
from hud_tui.wire_time import DriverTime, TimedSpan

MOST_SPANS = 1000
"""Most spans of one report."""


class DriverWatch:
    def __init__(self) -> None:
        self.now = steady_clock()
        self._ids = count()
        self._open: dict[int, TimedSpan] = {}
        self._ended: list[TimedSpan] = []
        self._graded: dict[str, tuple[float, float]] = {}
        self._discarded: dict[str, list[str]] = {}

    @contextmanager
    def measure(self, kind: str, number: float = 1.0) -> Iterator[None]:
        """Around something. `number`: as in `TimedSpan`."""
        id_ = next(self._ids)
        self._open[id_] = TimedSpan(kind, self.now(), 0.0, number)
        try:
            yield
        finally:
            self._ended.append(self._until_now(self._open.pop(id_)))

    def _until_now(self, span: TimedSpan) -> TimedSpan:
        return span._replace(seconds=self.now() - span.start)

    def grade(self, runs: Sequence[Mapping[str, Any]]) -> None:
        """When the worker says that rollouts were graded."""
        for run in runs:
            if run.get("graded"):
                began, ended = run["graded"]
                self._graded[run["trace_id"]] = began, ended

    def discard(self, reason: str, runs: Sequence[Mapping[str, Any]]) -> None:
        """Rollouts are not trained on."""
        ids = [run["trace_id"] for run in runs]
        self._discarded.setdefault(reason, []).extend(ids)

    def discard_failed(self, runs: Sequence[Mapping[str, Any]]) -> None:
        """A group is not trained on, because some of its rollouts failed."""
        for run in runs:
            status = "completed" if run["error"] is None else "error"
            reason = why_failed(status, run.get("stop_reason"), run["error"])
            self.discard(reason or FAILED, [run])

    def take(self) -> DriverTime:
        """What was measured since it was last taken; what goes on is cut here."""
        spans = [*self._ended, *map(self._until_now, self._open.values())]
        told = DriverTime(
            at=self.now(),
            doing=next((span.kind for span in self._open.values()), None),
            spans=compact(spans, MOST_SPANS),
            graded=self._graded,
            discarded=self._discarded,
        )
        self._open = {id_: span._replace(start=told.at) for id_, span in self._open.items()}
        self._ended, self._graded, self._discarded = [], {}, {}
        return told

    def give_back(self, told: DriverTime | None) -> None:
        """What was taken was not reported."""
        if told is None:
            return
        self._ended = [*told.spans, *self._ended]
        self._graded = {**told.graded, **self._graded}
        for reason, ids in told.discarded.items():
            self._discarded[reason] = [*ids, *self._discarded.get(reason, [])]
