"""Settings in which runs differ, and groups of runs with equal settings."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hud_tui.rl.metrics import chosen_text, short
from hud_tui.rl.run_columns import BY_PARAMETER, COLUMNS, PARAMETER, Column, column, value_text
from hud_tui.rl.settings import short_label
from hud_tui.rl.text import counted
from hud_tui.rl.work import Work

IDENTITY = ("taskset", "model", "start", "engine")
"""Settings of a run beside its parameters."""


def setting(row: Work, key: str) -> object:
    """A setting of a run: one of `IDENTITY`, or a parameter by its name."""
    if key in IDENTITY:
        return getattr(row, key) or None
    if key in row.parameters or key not in BY_PARAMETER:
        return row.parameters.get(key)
    return BY_PARAMETER[key].value(row, 0.0)


HARD_TO_COMPARE = {
    "taskset": "different tasksets: rewards are not comparable",
    "start": "different starting points: they may explain a difference",
}
"""What it means that runs differ in a setting of `IDENTITY`."""


@dataclass(frozen=True)
class Differences:
    """The settings of several runs: the table beside their curves."""

    keys: tuple[str, ...]
    """Settings in which they differ; taskset, model and start come first."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """Id of each run, and its values in the order of `keys`."""
    same: tuple[tuple[str, str], ...]
    """Settings that all have in common, as key and value."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the runs hard to compare."""
        return tuple(text for key, text in HARD_TO_COMPARE.items() if key in self.keys)


def differences(rows: Sequence[Work]) -> Differences:
    """The settings in which runs differ, and those that they share."""
    keys = differing(rows)
    shared = [key for key in _settings(rows) if key not in keys]
    table = tuple((r.id, tuple(value_text(setting(r, key)) for key in keys)) for r in rows)
    same = tuple((key, value_text(setting(rows[0], key))) for key in shared if rows)
    return Differences(tuple(keys), table, same)


def differing(rows: Sequence[Work]) -> list[str]:
    """The settings in which runs differ."""
    return [key for key in _settings(rows) if len({_hashed(setting(r, key)) for r in rows}) > 1]


def _settings(rows: Sequence[Work]) -> list[str]:
    named = dict.fromkeys(key for row in rows for key in row.parameters)
    usual = dict.fromkeys(("learning_rate", "loss_fn", "group_size"))
    first, last = IDENTITY[:-1], IDENTITY[-1:]
    return [*first, *{**usual, **named}, *last]


def _hashed(value: object) -> object:
    """A hashable stand-in that is equal for equal values; numbers compare across types."""
    if isinstance(value, float | int | str | None):
        return value
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class RunGroup:
    """Runs with equal values in the columns they are grouped by."""

    keys: tuple[tuple[str, str], ...]
    """The common values, as column and value."""
    rows: tuple[Work, ...]
    mean: float | None
    """Mean of their rewards; None if none has one, or if they are not repetitions: a mean over
    different settings is no setting's."""
    std: float | None
    """Standard deviation between the runs; None for fewer than two with a reward."""
    apart: str = ""
    """Why they are not repetitions; empty if they differ in nothing but the seed."""

    @property
    def title(self) -> str:
        """E.g. ``4 runs · reward .81 ± .02 between runs · lr 3e-4 · group 8``; the rewards come
        first, since the end may be cut."""
        columns = {name for each in COLUMNS.values() for name in (each.key, each.title)}
        parts = [counted(len(self.rows), "run"), self._reward]
        for key, value in self.keys:
            if value != "–":
                parts.append(f"{short_label(key)} {value}")
            elif key in columns:  # a parameter that is not set is left out
                parts.append(f"no {key}")
        return " · ".join(text for text in parts if text)

    @property
    def _reward(self) -> str:
        """Their mean reward, or why there is none; empty without rewards."""
        of = sum(row.reward is not None for row in self.rows)
        if self.mean is None:
            return f"not averaged: {self.apart}" if of else ""
        every, chosen = of == len(self.rows), chosen_text(self.rows[0].parameters.get("draw"))
        if self.std is None:
            return f"reward {short(self.mean)}{'' if every else ' of 1 run'}{chosen}"
        among = "runs" if every else f"{of} runs"
        return f"reward {short(self.mean)} ± {short(self.std)} between {among}{chosen}"


DIFFERS = "differs"


def group_rows(rows: Sequence[Work], by: str, now: float) -> list[RunGroup]:
    """Group rows; groups and the rows in them keep their order.

    Args:
        rows: Sorted.
        by: Columns or ``param.NAME``, separated by commas; ``differs`` for all settings in which
            these rows differ except the seed, so that a group is a setting with its repetitions.
        now: Unix seconds, for values that depend on it.

    Raises:
        HudUsage: No such column.
    """
    chosen: list[tuple[str, list[object]]]
    if by.strip() == DIFFERS:
        chosen = [(key, [setting(row, key) for row in rows]) for key in _apart(rows)]
    else:
        columns = [column(word) for word in by.split(",") if word.strip()]
        chosen = [(_named(each), [each.value(row, now) for row in rows]) for each in columns]
    groups: dict[tuple[tuple[str, str], ...], list[Work]] = {}
    for index, row in enumerate(rows):
        keys = tuple((name, value_text(values[index])) for name, values in chosen)
        groups.setdefault(keys, []).append(row)
    return [_group(keys, alike) for keys, alike in groups.items()]


def _apart(rows: Sequence[Work]) -> list[str]:
    """The settings whose groups are not repetitions of each other.

    The service records all parameters of its own runs. One that a loop outside it did not report is
    unknown, which is no difference.
    """
    apart = [k for k in differing(rows) if k not in ("seed", "model")]
    return [k for k in apart if k in IDENTITY or len(_reported_values(rows, k)) > 1]


def _reported_values(rows: Sequence[Work], key: str) -> set[object]:
    """A parameter's different values, without the unknown ones."""
    values = ((row, setting(row, key)) for row in rows)
    return {_hashed(value) for row, value in values if value is not None or not row.is_loop}


def _named(column: Column) -> str:
    """A parameter's wire name; another column's title."""
    return column.key.removeprefix(PARAMETER) if column.key.startswith(PARAMETER) else column.title


def _group(keys: tuple[tuple[str, str], ...], rows: Sequence[Work]) -> RunGroup:
    apart = _why_no_repetitions(rows)
    rewards = [row.reward for row in rows if row.reward is not None and not apart]
    std = stdev(rewards) if len(rewards) > 1 else None
    return RunGroup(keys, tuple(rows), fmean(rewards) if rewards else None, std, apart)


def _why_no_repetitions(rows: Sequence[Work]) -> str:
    """In what they differ but the seed; empty if in nothing."""
    differ = ["starting point" if key == "start" else short_label(key) for key in _apart(rows)]
    if differ:
        return f"{', '.join(differ)} {'differ' if differ[1:] else 'differs'}"
    is_unknown = len(rows) > 1 and any(row.is_loop and not row.taskset for row in rows)
    return "tasksets unknown" if is_unknown else ""
