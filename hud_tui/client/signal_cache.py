"""Outcomes that are kept: one file for each model's head, by task, with their dates.

A head's weights never change, so what it did on a task stays true until the task changes.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from hud_tui.regular_file import read_regular
from hud_tui.rl.signal import Outcome, TaskSignal
from hud_tui.rl.signal_progress import Asked
from hud_tui.rl.signal_report import Pace
from hud_tui.rl.strict_json import parse
from hud_tui.rl.tasks import Task, digest
from hud_tui.storage import change_atomic

FILES = 50
"""Heads that are remembered; those used longest ago are forgotten."""
PACE = "pace"
"""Beside the tasks, which are 40 hex digits: how quick rollouts of this head are."""
MAX_BYTES = 64 * 1024 * 1024


class SignalCache:
    def __init__(self, folder: Path, fresh: bool = False) -> None:
        """
        Args:
            folder: Made when first written to.
            fresh: Whether nothing is read: all is sampled again, and kept.
        """
        self._folder = folder
        self._fresh = fresh

    def read(self, asked: Asked, tasks: Iterable[Task]) -> dict[str, TaskSignal]:
        """What is kept of these tasks, by slug. An unreadable file is as good as none."""
        kept = {} if self._fresh else self._load(self._file(asked))
        found = {}
        for task in tasks:
            signal = _signal(kept.get(_key(task)), task)
            if signal is not None:
                found[task.slug] = signal
        return found

    def pace(self, asked: Asked) -> Pace | None:
        """How quick the rollouts were that were made last; None where it is not known."""
        row: Any = {} if self._fresh else self._load(self._file(asked)).get(PACE)
        try:
            pace = Pace(int(row["rollouts"]), float(row["seconds"]), str(row["at"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return pace if pace.rollouts > 0 and 0 < pace.seconds < inf else None

    def write(
        self, asked: Asked, tasks: Iterable[Task], signals: Iterable[TaskSignal], pace: Pace
    ) -> None:
        """Keep what was sampled; a cache that cannot be written is done without."""
        file, added = self._file(asked), _rows({t.slug: t for t in tasks}, signals, pace)
        with suppress(OSError):
            change_atomic(file, lambda: json.dumps({**self._load(file), **added}))
            self._forget()

    def _load(self, file: Path) -> dict[str, Any]:
        try:
            value = parse(read_regular(file, MAX_BYTES).decode("utf-8")).value
        except (OSError, UnicodeDecodeError):
            return {}
        return value if isinstance(value, dict) else {}

    def _forget(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda file: -file.stat().st_mtime)
        for file in files[FILES:]:
            file.unlink(missing_ok=True)

    def _file(self, asked: Asked) -> Path:
        named = digest([asked.model_id, asked.checkpoint, asked.sampling])
        return self._folder / f"{named}.json"


def _key(task: Task) -> str:
    """Names a task by all that its rollouts depend on."""
    return digest([task.env, task.scenario, task.args, task.more])


def _rows(slugs: Mapping[str, Task], signals: Iterable[TaskSignal], pace: Pace) -> dict[str, Any]:
    """What the file keeps of what was sampled."""
    rows: dict[str, Any] = {}
    for signal in signals:
        if signal.outcomes and signal.basis == "sampled":
            outcomes = [list(astuple(outcome)) for outcome in signal.outcomes]
            rows[_key(slugs[signal.slug])] = {"at": signal.at, "outcomes": outcomes}
    if pace.rollouts:
        at = pace.at or datetime.now(UTC).isoformat(timespec="seconds")
        rows[PACE] = {"rollouts": pace.rollouts, "seconds": pace.seconds, "at": at}
    return rows


def _signal(row: object, task: Task) -> TaskSignal | None:
    if not isinstance(row, dict):
        return None
    try:
        outcomes = tuple(_outcome(*one) for one in row["outcomes"])
        return TaskSignal(task.slug, outcomes, task.where, basis="cached", at=str(row["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _outcome(reward: Any, tokens: Any, seconds: Any, truncated: Any) -> Outcome:
    return Outcome(
        float(reward),
        None if tokens is None else int(tokens),
        None if seconds is None else float(seconds),
        bool(truncated),
    )
