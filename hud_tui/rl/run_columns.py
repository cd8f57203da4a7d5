"""The columns of the table of runs, and sorting and filtering by them.

A column is one value: whoever draws, sorts, filters, exports or explains runs takes it from
`COLUMNS`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.filter import Fields, parse_terms
from hud_tui.rl.metrics import SIGNAL, chosen_text, estimate_text, short
from hud_tui.rl.names import close_names
from hud_tui.rl.runs import ENDS, eta_s, left_s, silent_s, thinned
from hud_tui.rl.settings import setting_label
from hud_tui.rl.text import age, duration, one_line, percent
from hud_tui.rl.work import Work, has_ended
from hud_tui.wire import Evaluation

Value = str | float | None
Number = Callable[[Work, float], float | None]
"""A number of a run at a time in Unix seconds; None if it is missing."""
WIDEST = 24
"""Largest width of a column, cells, unless it says another."""


def _plain(row: Work) -> str:
    return "plain"


def _dim(row: Work) -> str:
    return "dim"


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    key: str
    """Name in ``--columns``, ``--sort`` and filters."""
    title: str
    value: Callable[[Work, float], Value]
    """Value for sorting, grouping and documents, given the time in Unix seconds; None if it is
    missing, which sorts last in both directions."""
    shown: Callable[[Work, float], str] | None = None
    """Its text, arguments as of `value`, if that is not just the value's."""
    write: Callable[[float], str] = short
    """Text of a number."""
    full_title: str = ""
    """The title for wide layouts, if it is another one."""
    meaning: str = ""
    """What it is, where the title is not enough; docs/runs.md has it, too."""
    is_text: bool = False
    """Whether its values are texts, which a filter compares with ``:``, ``=`` and ``!=``."""
    is_drawing: bool = False
    """Whether its text draws the number, and is not aligned as one."""
    number: Number | None = None
    """The number that a filter compares, if that is not the value."""
    names: tuple[str, ...] = ()
    """Its other names in filters."""
    parameter: str = ""
    """The parameter that it shows, by its wire name."""
    tone: Callable[[Work], str] = _plain
    """Tone of its text: plain, dim, accent or warm."""
    least: int = 0
    """Least width, cells."""
    most: int = WIDEST
    """Largest width, cells."""
    left: bool = False
    """Whether the app aligns it to the left although it is numeric: text follows the number."""
    is_detail: bool = True
    """Whether all that is known of a run includes it; not if another column says it, too."""

    @property
    def long_title(self) -> str:
        return self.full_title or self.title

    @property
    def is_numeric(self) -> bool:
        """Whether it is aligned to the right, and sorted largest first at the first key press."""
        return not (self.is_text or self.is_drawing)

    def text(self, row: Work, now: float) -> str:
        """Displayed text; a dash if the value is missing."""
        if self.shown is not None:
            return self.shown(row, now)
        value = self.value(row, now)
        if value is None:
            return "–"
        return value if isinstance(value, str) else self.write(value)

    def compared(self, row: Work, now: float) -> float | None:
        """The number that a filter compares; None if it is missing, or no number."""
        value = self.value(row, now) if self.number is None else self.number(row, now)
        return value if isinstance(value, int | float) and isfinite(value) else None


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _rate(value: float) -> str:
    """A number as typed by people: ``3e-4``, ``.01``, ``60``."""
    if not value or abs(value) >= 0.01:
        return f"{value:.4g}"
    digits, _, power = f"{value:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def _step_text(row: Work, now: float) -> str:
    return row.count or "–"


def _reward_text(row: Work, now: float) -> str:
    if row.reward is None:
        return "–"
    if len(row.points) == 1:  # of one step both ends are the same
        return short(row.reward)
    by = f" {SIGNAL}" if chosen_text(row.parameters.get("draw")) else ""
    return f"{short(row.reward_first)} → {short(row.reward)}{by}"


def _gain(row: Work, now: float) -> float | None:
    if row.reward is None or row.reward_first is None:
        return None
    return row.reward - row.reward_first


def _trend_text(row: Work, now: float) -> str:
    return "–" if len(row.points) == 1 else sparkline(row.points)


BARS = "▁▂▃▄▅▆▇█"
SPARK_BARS = 12


def sparkline(points: Sequence[float]) -> str:
    """Rewards as at most SPARK_BARS bars, scaled from the smallest to the largest; empty without
    points."""
    values = thinned([point for point in points if isfinite(point)], SPARK_BARS)
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not high > low:
        return BARS[0] * len(values)
    top = len(BARS) - 1
    return "".join(BARS[round((value - low) / (high - low) * top)] for value in values)


def _heldout_text(row: Work, now: float) -> str:
    """With the number of its rollouts, unless it is the evaluation's, which says that itself."""
    if row.heldout is None:
        return "–"
    is_counted = row.heldout_rollouts and row.evaluation is None
    return f"{short(row.heldout)} ({row.heldout_rollouts})" if is_counted else short(row.heldout)


def evaluation_text(evaluation: Evaluation | None) -> str:
    """An evaluation in a cell, e.g. ``.71 [.66, .76] 48×4``: mean reward, its 95 % interval, tasks
    × samples."""
    if evaluation is None:
        return "–"
    size = ""
    if evaluation.num_tasks:
        size = f" {evaluation.num_tasks}×{evaluation.samples_per_task}"
    return f"{estimate_text(evaluation.estimate)}{size}"


def _alarm_text(row: Work, now: float) -> str:
    if row.alarms is None:
        return "–"
    more = f"+{row.alarms - 1}" if row.alarms > 1 else ""
    return " ".join(filter(None, (row.alarm, more))) if row.alarms else "0"


def _alarm_value(row: Work, now: float) -> float | None:
    """Sort key: most severe level first, then number of alarms."""
    ranks = {"": 0, "info": 1, "warn": 2, "critical": 3}
    return None if row.alarms is None else ranks.get(row.alarm, 0) + min(row.alarms, 99) / 100


def _eta_text(row: Work, now: float) -> str:
    if silent_s(row, now) is not None:
        return "stalled"
    left = eta_s(row)
    return "–" if left is None else duration(left)


def _state_tone(row: Work) -> str:
    if row.status == "running":
        return "accent"
    return "warm" if row.status in ("failed", "error", "interrupted") else "dim"


SHORT_RUNS = "(of a short run, its halves)"
COLUMNS: Mapping[str, Column] = {
    column.key: column
    for column in (
        Column("name", "name", lambda row, now: row.title, is_text=True, least=16, most=40),
        Column("model", "model", lambda row, now: row.model or None, is_text=True, tone=_dim),
        Column("taskset", "taskset", lambda row, now: row.taskset or None, is_text=True),
        Column(
            "start",
            "from",
            lambda row, now: row.start or None,
            is_text=True,
            full_title="starts from",
            names=("from",),
        ),
        Column(
            "loss", "loss", lambda row, now: row.loss or None, is_text=True, parameter="loss_fn"
        ),
        Column(
            "lr",
            "lr",
            lambda row, now: row.lr,
            write=_rate,
            full_title="learning rate",
            parameter="learning_rate",
        ),
        Column(
            "group",
            "group",
            lambda row, now: row.group_size,
            write=_whole,
            full_title="group size",
            names=("group_size",),
            parameter="group_size",
        ),
        Column("seed", "seed", lambda row, now: row.seed, write=_whole, parameter="seed"),
        Column("engine", "engine", lambda row, now: row.engine or None, is_text=True),
        Column(
            "reward",
            "reward",
            lambda row, now: row.reward,
            _reward_text,
            meaning=f"mean of its first {ENDS} steps → of its newest {ENDS} {SHORT_RUNS}",
            least=11,
            left=True,
        ),
        Column(
            "spark",
            "trend",
            _gain,
            _trend_text,
            meaning="mean reward per step, scaled from its lowest to its highest",
            is_drawing=True,
            names=("gain",),
            tone=lambda row: "accent",
            least=12,
        ),
        Column(
            "heldout",
            "held-out",
            lambda row, now: row.heldout,
            _heldout_text,
            full_title="held-out reward",
            meaning="of the newest evaluated checkpoint, else as a step reports it (of N rollouts)",
            left=True,
        ),
        Column(
            "eval",
            "evaluation",
            lambda row, now: None if row.evaluation is None else row.evaluation.mean_reward,
            lambda row, now: evaluation_text(row.evaluation),
            meaning=(
                "mean reward [95 % interval] tasks × samples, of the newest evaluated checkpoint"
            ),
            most=28,
        ),
        Column(
            "nograd",
            "no gradient",
            lambda row, now: row.no_gradient,
            write=percent,
            full_title="share with no gradient",
            meaning="share of its rollouts without gradient, discarded ones, too; as in Live",
        ),
        Column(
            "alarms",
            "alarms",
            _alarm_value,
            _alarm_text,
            number=lambda row, now: row.alarms,
            tone=lambda row: "warm" if row.alarms else "dim",
            meaning="the most severe of those that hold, and how many others do",
        ),
        Column("steps", "steps", lambda row, now: row.step, _step_text, names=("step",), least=7),
        Column(
            "tokens",
            "tokens",
            lambda row, now: row.tokens or None,
            number=lambda row, now: row.tokens,
            meaning="generated in its training rollouts",
        ),
        Column(
            "duration",
            "duration",
            lambda row, now: row.duration_s,
            write=duration,
            meaning="spent on its steps; of a client loop, from its first to its newest step",
        ),
        Column("eta", "ETA", left_s, _eta_text),
        Column(
            "state",
            "state",
            lambda row, now: row.status or None,
            is_text=True,
            tone=_state_tone,
            least=9,
        ),
        Column(
            "age",
            "age",
            lambda row, now: None if row.created_at is None else -row.created_at,
            lambda row, now: age(row.created_at, now),
            number=lambda row, now: None if row.created_at is None else now - row.created_at,
            tone=_dim,
        ),
        Column("sweep", "sweep", lambda row, now: row.sweep or None, is_text=True),
        Column(
            "by",
            "by",
            lambda row, now: row.by or None,
            lambda row, now: " → ".join(filter(None, (row.by, row.resumed_by))) or "–",
            meaning="name of the key by which it was begun; after → by which it was resumed",
            is_text=True,
            tone=_dim,
        ),
        Column(
            "heldout_n",
            "held-out rollouts",
            lambda row, now: row.heldout_rollouts,
            write=_whole,
            is_detail=False,
        ),
        Column("id", "id", lambda row, now: row.id, is_text=True, tone=_dim),
        Column("note", "note", lambda row, now: row.note or None, is_text=True, most=60),
    )
}
"""All columns, in the order in which they are offered."""
DEFAULT_COLUMNS = (
    *("name", "state", "steps", "reward", "spark", "heldout", "eval", "lr", "loss", "group"),
    *("seed", "alarms", "nograd", "age", "duration", "model", "taskset", "start"),
)
"""The usual arrangement."""
BY_PARAMETER: Mapping[str, Column] = {
    column.parameter: column for column in COLUMNS.values() if column.parameter
}
"""The columns that show a parameter, by its wire name."""
PARAMETER = "param."
"""Prefix of a column that shows any other parameter: ``param.max_tokens``."""


def meaning_of(column: Column, row: Work) -> str:
    """The explanation of a run's cell; empty if the title is enough."""
    if column.key == "reward" and len(row.points) == 1:
        return "mean of its only step with a reward"
    if column.key == "reward":
        return column.meaning + chosen_text(row.parameters.get("draw"))
    return column.meaning


def column(key: str) -> Column:
    """A column by its key, or a parameter's by ``param.NAME``.

    Raises:
        HudUsage: There is no such column; the hint lists similar ones.
    """
    key = key.strip()
    if key in COLUMNS:
        return COLUMNS[key]
    if key.startswith(PARAMETER) and len(key) > len(PARAMETER):
        return _parameter_column(key)
    hint = f"{close_names(key, COLUMNS)}; a parameter is {PARAMETER}NAME"
    raise HudUsage(f"no column named {one_line(key, 40)}", hint)


def columns(text: str) -> list[Column]:
    """Columns by their keys, separated by commas; ``+KEY`` adds to the default ones, ``-KEY``
    removes one. Raises HudUsage, see `column`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        return [COLUMNS[key] for key in DEFAULT_COLUMNS]
    if not all(word[0] in "+-" for word in words):
        return [column(word) for word in words]
    chosen = {key: COLUMNS[key] for key in DEFAULT_COLUMNS}
    for word in words:
        changed = column(word[1:])
        if word[0] == "+":
            chosen[changed.key] = changed
        else:
            chosen.pop(changed.key, None)
    return list(chosen.values())


def offered(rows: Iterable[Work]) -> list[str]:
    """The keys of all columns, including the other parameters of these runs."""
    parameters = {key for row in rows for key in row.parameters} - BY_PARAMETER.keys()
    return [*COLUMNS, *(f"{PARAMETER}{key}" for key in sorted(parameters))]


def _parameter_column(key: str) -> Column:
    name = key.removeprefix(PARAMETER)

    def value(row: Work, now: float) -> Value:
        value = row.parameters.get(name)
        return value if value is None or isinstance(value, int | float | str) else value_text(value)

    def text(row: Work, now: float) -> str:
        return value_text(row.parameters.get(name))

    return Column(key, setting_label(name), value, text, parameter=name)


def value_text(value: object) -> str:
    """A parameter's value as text in one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _rate(value)
    return one_line(value if isinstance(value, str) else json.dumps(value), 60)


# Sorting and filtering.


def sort_rows(rows: Iterable[Work], by: str, now: float) -> list[Work]:
    """Sort by columns. The sort is stable; missing values come last.

    Args:
        by: Columns, separated by commas; ``-`` before one sorts the largest first, e.g.
            ``model,-reward``.
        now: Unix seconds; a loop that is stalled then has no ETA.

    Raises:
        HudUsage: No such column.
    """
    ordered = list(rows)
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        down = word.startswith("-")
        value = column(word.removeprefix("-")).value
        keyed = [(value(row, now), row) for row in ordered]
        valued = [(_sort_key(key), row) for key, row in keyed if key is not None]
        valued.sort(key=lambda pair: pair[0], reverse=down)  # reverse keeps the order of equals
        ordered = [*(row for _, row in valued), *(row for key, row in keyed if key is None)]
    return ordered


def _sort_key(value: str | float) -> tuple[int, Any]:
    """Numbers sort before texts; a parameter may be a number in one run and a text in another."""
    return (1, value.casefold()) if isinstance(value, str) else (0, value)


TEXTS: Mapping[str, Callable[[Work], str]] = {
    "kind": lambda row: row.kind,
    "alarm": lambda row: f"{row.alarm} {row.alarm_title}",
}
"""Texts that a filter compares beside those of columns."""
NUMBERS: Mapping[str, Number] = {
    "first": lambda row, now: row.reward_first,
    "step_s": lambda row, now: row.step_s,
}
"""Numbers that a filter compares beside those of columns."""
TRAITS: Mapping[str, Callable[[Work], bool]] = {
    "running": lambda row: row.status == "running",
    "active": lambda row: row.is_active,
    "ended": lambda row: has_ended(row.status),
    "failed": lambda row: row.status in ("failed", "error"),
    "alarm": lambda row: bool(row.alarms),
    "noted": lambda row: bool(row.note),
    "evaluated": lambda row: row.evaluation is not None,
    "managed": lambda row: row.kind == "training",
    "reported": lambda row: row.kind == "reported",
    "sweep": lambda row: bool(row.sweep),
}


def parse_filter(expression: str, now: float) -> Callable[[Work], bool]:
    """Parse a filter of runs. Its grammar is that of `hud_tui.rl.filter` on the columns of runs,
    e.g. ``lr:3e-4 reward>.8 state:running mixed``, ``age<2h``, ``param.max_tokens=20``,
    ``is:alarm``.

    Args:
        now: Unix seconds that ages are relative to; a loop that is stalled then has no ETA.

    Raises:
        HudUsage: An invalid term; the message names it.
    """
    named = {name: each for each in COLUMNS.values() for name in (each.key, *each.names)}
    texts = {name: partial(_text, each) for name, each in named.items() if each.is_text}
    numbers: dict[str, Number] = {
        name: each.compared for name, each in named.items() if not each.is_text
    }
    numbers |= NUMBERS

    def number(key: str) -> Callable[[Work], float | None] | None:
        compared = numbers.get(key)
        if key.startswith(PARAMETER):
            compared = _parameter_column(key).compared
        return None if compared is None else lambda row: compared(row, now)

    names = [*numbers, f"{PARAMETER}NAME"]
    return parse_terms(expression, Fields("run", words, {**texts, **TEXTS}, TRAITS, number, names))


def _text(column: Column, row: Work) -> str:
    """The text that a filter compares; texts do not depend on the time."""
    return str(column.value(row, 0.0) or "")


def words(row: Work) -> str:
    """The text that a bare word of a filter is searched in."""
    return " ".join((row.name, row.model, row.taskset, row.sweep, row.note, row.id))
