"""The table of all runs, whichever model they trained and whoever took their steps.

A row is what a run was given (model, starting checkpoint, taskset, parameters) and its results
(reward, held-out reward, evaluation, alarms). Rows are sorted and filtered by any column; what
differs between runs, and groups of them, are in `hud_tui.rl.sweep`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import isfinite
from operator import attrgetter
from statistics import fmean
from typing import Any

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.axes import duration_text
from hud_tui.rl.filter import Fields, parse_terms
from hud_tui.rl.metrics import finite, interval_text, metrics_of, short
from hud_tui.rl.names import close_names, find_by_id, setting_label, short_prefix
from hud_tui.rl.own_numbers import HELDOUT, REWARD, heldout_evaluation, heldout_rollouts_of
from hud_tui.rl.progress import Progress, is_stalled
from hud_tui.rl.run import has_ended, job_model_id
from hud_tui.rl.text import age, one_line, seconds
from hud_tui.wire import Checkpoint, Evaluation, Job, JobStatus, Model, RunRecord

# Rows.


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. None where a value is not reported or not known yet."""

    id: str
    model_id: str
    model: str
    name: str = ""
    kind: str = "training"
    """``training``: the service takes the steps; ``reported``: a loop outside the service does."""
    taskset: str = ""
    start: str = ""
    """The checkpoint that its first step started from, else what the model was forked from."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """By wire name; the loss's own ones flattened: ``loss_fn_config.beta``."""
    loss: str = ""
    lr: float | None = None
    group_size: int | None = None
    seed: int | None = None
    engine: str = ""
    reward_first: float | None = None
    """Mean over its first steps, in the taskset's reward unit."""
    reward: float | None = None
    """Mean over its newest steps."""
    points: tuple[float, ...] = ()
    """Rewards of its steps in order, averaged to shape (≤ 32,)."""
    heldout: float | None = None
    heldout_rollouts: int | None = None
    """Rollouts of the held-out reward."""
    evaluation: Evaluation | None = None
    no_gradient: float | None = None
    """Share of its rollouts in zero-variance groups."""
    alarms: int | None = None
    alarm: str = ""
    """Level of its most severe active alarm: info, warn or critical."""
    alarm_title: str = ""
    step: int = 0
    steps: int | None = None
    tokens: int = 0
    duration_s: float | None = None
    status: str = ""
    """The job's status; empty if unknown."""
    created_at: float | None = None
    """Unix seconds."""
    stepped_at: float | None = None
    sweep: str = ""
    note: str = ""
    whole: bool = True
    """Whether its steps were read; if not, the row has only what a list of jobs reports."""

    @property
    def title(self) -> str:
        """Its name; without one, the model for a loop outside the service, else the beginning of
        the id."""
        if not self.name and self.outside and self.model:
            return f"loop on {self.model}"
        return self.name or self.id[:8]

    @property
    def outside(self) -> bool:
        """Whether it is a loop outside the service, of which only what it reports is known."""
        return self.kind != "training"

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return bool(self.status) and not has_ended(self.status)

    @property
    def step_s(self) -> float | None:
        """Mean seconds per step."""
        return None if self.duration_s is None or not self.step else self.duration_s / self.step

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step; None if it has ended or that is unknown."""
        return Progress(self.step, self.steps, self.step_s).eta_s if self.active else None

    def silent_s(self, now: float) -> float | None:
        """Seconds since the newest step of an active loop outside the service, if a step is
        overdue; else None. Nobody reports that such a loop was killed.

        Args:
            now: Unix seconds.
        """
        if not self.active or not self.outside or not self.stepped_at:
            return None
        silent = now - self.stepped_at
        return silent if is_stalled(silent, self.step_s) else None

    def left_s(self, now: float) -> float | None:
        """As `eta_s`; None while a step is overdue."""
        return None if self.silent_s(now) is not None else self.eta_s


@lru_cache(4096)
def _one_line(text: str, limit: int) -> str:
    """`one_line`, cached: many rows share these texts."""
    return one_line(text, limit)


def row_of(record: RunRecord, notes: Mapping[str, str] | None = None) -> RunRow:
    """The row of a run from the embedded service's record.

    Args:
        record: As received.
        notes: The user's notes, by run id.
    """
    parameters = _flat(record.parameters or {})
    return RunRow(
        id=record.id,
        model_id=record.model_id,
        model=_one_line(record.model or record.model_id, 100),
        name=_one_line(record.name or "", 200),
        kind=record.kind,
        taskset=_one_line(record.taskset or "", 100),
        start=_one_line(record.start or record.forked_from or record.base or "", 100),
        sweep=_one_line((record.parameters or {}).get("sweep") or "", 100),
        parameters=parameters,
        loss=_one_line(record.loss_fn or parameters.get("loss_fn") or "", 40),
        lr=_number(parameters.get("learning_rate"), record.learning_rate),
        group_size=_whole(parameters.get("group_size")),
        seed=_whole(parameters.get("seed")),
        engine=_one_line(record.engine or "", 20),
        reward_first=finite(record.reward_first),
        reward=finite(record.reward_last),
        points=tuple(record.points),
        heldout=finite(record.heldout),
        heldout_rollouts=record.num_heldout_traces,
        evaluation=record.evaluation,
        no_gradient=finite(record.no_gradient),
        alarms=record.alarms,
        alarm=_one_line(record.alarm or "", 20),
        alarm_title=_one_line(record.alarm_title or "", 60),
        step=record.step,
        steps=record.steps,
        tokens=record.tokens,
        duration_s=finite(record.busy_s),
        status=_one_line(record.status or "", 20),
        created_at=record.created_at,
        stepped_at=record.stepped_at,
        note=(notes or {}).get(record.id, ""),
    )


NO_GRADIENT = "frac_reward_zero_std"
"""A step's share of zero-variance groups."""
ENDS = 5
"""Number of steps averaged for a run's reward at its beginning and at its end."""
MOST_POINTS = 32


def ends_of(steps: int) -> int:
    """Number of steps averaged at each end of a run: ENDS, or half of the steps of a shorter
    run."""
    return min(ENDS, max(1, steps // 2))


UNREAD = JobStatus(status="")
"""Stands for a status that was not read."""


def row_of_job(
    job: Job,
    model: Model | None,
    status: JobStatus | None = None,
    steps: Sequence[Checkpoint] | None = None,
    parent: Checkpoint | None = None,
) -> RunRow:
    """The row of a job on a service without a list of runs, such as HUD's.

    Args:
        job: Its row in the list of jobs.
        model: The model that it trains, if known.
        status: Its raw status, if it was read.
        steps: The checkpoints that it made, oldest first; None if they were not read.
        parent: The checkpoint that the first of them was made from.
    """
    status, metadata = status or UNREAD, job.metadata or {}
    parameters = _flat(status.parameters or {})
    row = RunRow(
        id=job.id,
        model_id=(model.id if model is not None else None) or job_model_id(job) or "",
        model=one_line(model.model_name if model is not None else metadata.get("model") or "", 100),
        name=one_line(job.name or "", 200),
        kind=one_line(metadata.get("kind") or "training", 20),
        taskset=one_line(job.taskset_name or "", 100),
        start=one_line(model.forked_from or "", 100) if model is not None else "",
        sweep=one_line((status.parameters or {}).get("sweep") or "", 100),
        parameters=parameters,
        lr=_number(parameters.get("learning_rate"), None),
        loss=one_line(parameters.get("loss_fn") or "", 40),
        group_size=_whole(parameters.get("group_size")) or job.group_size,
        seed=_whole(parameters.get("seed")),
        engine=one_line(model.engine.engine, 20) if model is not None and model.engine else "",
        step=_whole(metadata.get("step")) or status.step or 0,
        steps=_whole(metadata.get("steps")) or status.steps,
        tokens=status.trained_tokens or 0,
        status=one_line(job.status or "", 20),
        created_at=seconds(job.created_at),
        whole=False,
    )
    return row if steps is None else _with_steps(row, steps, parent)


def _with_steps(row: RunRow, steps: Sequence[Checkpoint], parent: Checkpoint | None) -> RunRow:
    if not steps:
        return replace(row, whole=True)
    rewards = [r for node in steps if (r := _metric(node, REWARD)) is not None]
    ends = ends_of(len(rewards))
    times = [at for node in steps if (at := seconds(node.created_at)) is not None]
    newest = steps[-1]
    scored = next((node for node in reversed(steps) if _metric(node, HELDOUT) is not None), None)
    evaluations = (heldout_evaluation(node.evaluations) for node in reversed(steps))
    evaluation = next((each for each in evaluations if each is not None), None)
    rollouts = sum(node.num_traces or 0 for node in steps)
    idle = sum((_metric(node, NO_GRADIENT) or 0.0) * (node.num_traces or 0) for node in steps)
    is_reported = _metric(newest, NO_GRADIENT) is not None
    found = replace(
        row,
        whole=True,
        start=one_line(parent.name or parent.id, 100) if parent is not None else row.start,
        loss=one_line(newest.loss_fn or row.loss, 40),
        lr=row.lr if row.lr is not None else newest.learning_rate,
        reward_first=fmean(rewards[:ends]) if rewards else None,
        reward=fmean(rewards[-ends:]) if rewards else None,
        points=tuple(thinned(rewards)),
        heldout=_metric(scored, HELDOUT) if scored is not None else None,
        heldout_rollouts=(heldout_rollouts_of(scored) or None) if scored is not None else None,
        no_gradient=idle / rollouts if rollouts and is_reported else None,
        step=max(row.step, len(steps)),
        tokens=sum(node.num_tokens or 0 for node in steps) or row.tokens,
        duration_s=times[-1] - (row.created_at or times[0]) if times else None,
        stepped_at=times[-1] if times else None,
    )
    if evaluation is None:
        return found
    return replace(
        found,
        heldout=evaluation.mean_reward,
        heldout_rollouts=evaluation.num_traces,
        evaluation=evaluation,
    )


def _metric(node: Checkpoint, key: str) -> float | None:
    return finite(metrics_of(node).get(key))


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most `most` means, each over the same number of neighbouring values, in order."""
    stride = max(1, -(-len(values) // most))
    return [fmean(values[at : at + stride]) for at in range(0, len(values), stride)]


def _flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without the sweep and those that are None; the loss's own ones become entries of
    their own."""
    found = {k: value for k, value in parameters.items() if value is not None and k != "sweep"}
    config = found.pop("loss_fn_config", None)
    if isinstance(config, Mapping):
        found |= {f"loss_fn_config.{key}": value for key, value in config.items()}
    return found


def _number(value: object, other: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else finite(other)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def find_run(name: str, rows: Sequence[RunRow]) -> RunRow:
    """A run by id, by name, or by a prefix of its id; a model's name finds its newest run.

    Args:
        name: As typed.
        rows: Newest first.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists similar names.
    """
    try:
        return find_by_id(name, rows, "run", lambda row: f"{row.id} ({row.name})", lambda r: r.name)
    except HudAmbiguous:
        raise
    except HudUsage as unknown:
        model = name.strip().casefold()
        newest = next((row for row in rows if row.model.casefold() == model), None)
        if newest is not None:
            return newest
        known = {text: None for row in rows for text in (row.name, row.model) if text}
        hint = short_prefix(name, rows) or close_names(name, known)
        raise HudUsage(unknown.message, hint) from None


# Columns.

Value = str | float | None


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    key: str
    """Name in ``--columns``, ``--sort`` and filters."""
    title: str
    value: Callable[[RunRow, float], Value]
    """Value for sorting, grouping and documents, given the time in Unix seconds; None if it is
    missing, which sorts last in both directions."""
    text: Callable[[RunRow, float], str]
    """Displayed text; arguments as of `value`."""
    number: bool = True
    """Whether it is numeric: aligned to the right, and sorted largest first at the first key
    press."""

    @property
    def long_title(self) -> str:
        """The full title, for wide layouts."""
        return LONG_TITLES.get(self.key, self.title)


def _text_column(key: str, title: str, get: Callable[[RunRow], str]) -> Column:
    def text(row: RunRow, now: float) -> str:
        return get(row) or "–"

    return Column(key, title, lambda row, now: get(row) or None, text, number=False)


def _number_column(
    key: str,
    title: str,
    get: Callable[[RunRow], float | None],
    write: Callable[[float], str] = short,
) -> Column:
    def text(row: RunRow, now: float) -> str:
        value = get(row)
        return "–" if value is None else write(value)

    return Column(key, title, lambda row, now: get(row), text)


def _eta_text(row: RunRow, now: float) -> str:
    if row.silent_s(now) is not None:
        return "stalled"
    return "–" if row.eta_s is None else duration_text(row.eta_s)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _rate(value: float) -> str:
    """A number as typed by people: ``3e-4``, ``.01``, ``60``."""
    if not value or abs(value) >= 0.01:
        return f"{value:.4g}"
    digits, _, power = f"{value:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def evaluation_text(evaluation: Evaluation | None) -> str:
    """An evaluation in a cell, e.g. ``.71 [.66, .76] 48×4``: mean reward, its 95 % interval, tasks
    × samples."""
    if evaluation is None:
        return "–"
    mean, size = evaluation.mean, ""
    if evaluation.num_tasks:
        each = evaluation.samples or max(1, evaluation.num_traces // evaluation.num_tasks)
        size = f" {evaluation.num_tasks}×{each}"
    if mean is None or mean.low is None or mean.high is None:
        return f"{short(evaluation.mean_reward)}{size}"
    return f"{short(mean.value)} {interval_text(mean.low, mean.high)}{size}"


def _step_text(row: RunRow, now: float) -> str:
    return f"{row.step}/{row.steps}" if row.steps is not None else str(row.step)


def _reward_text(row: RunRow, now: float) -> str:
    if row.reward is None:
        return "–"
    if len(row.points) == 1:  # of one step both ends are the same
        return short(row.reward)
    return f"{short(row.reward_first)} → {short(row.reward)}"


def _trend_text(row: RunRow, now: float) -> str:
    return "–" if len(row.points) == 1 else sparkline(row.points)


def _heldout_text(row: RunRow, now: float) -> str:
    """With the number of its rollouts, unless it is the evaluation's, which says that itself."""
    if row.heldout is None:
        return "–"
    is_counted = row.heldout_rollouts and row.evaluation is None
    return f"{short(row.heldout)} ({row.heldout_rollouts})" if is_counted else short(row.heldout)


def _alarm_text(row: RunRow, now: float) -> str:
    if row.alarms is None:
        return "–"
    return f"{row.alarms} {row.alarm}".strip() if row.alarms else "0"


def _alarm_value(row: RunRow, now: float) -> float | None:
    """Sort key: most severe level first, then number of alarms."""
    ranks = {"": 0, "info": 1, "warn": 2, "critical": 3}
    return None if row.alarms is None else ranks.get(row.alarm, 0) + min(row.alarms, 99) / 100


MEANINGS = {
    "reward": f"mean of its first {ENDS} steps → of its newest {ENDS} (of a short run, its halves)",
    "spark": "mean reward of its steps, from its least to its greatest",
    "heldout": "of the newest evaluated checkpoint, else as a step reports it (of N rollouts)",
    "eval": "mean reward [95 % interval] tasks × samples, of the newest evaluated checkpoint",
    "nograd": "share of its rollouts whose group had no variance",
    "tokens": "generated in its training rollouts",
    "duration": "spent on its steps; of a loop from outside, from its first to its newest",
}
"""Explanations of columns whose titles are not enough."""


def meaning_of(key: str, row: RunRow) -> str:
    """The explanation of a run's cell; empty if the title is enough."""
    if key == "reward" and len(row.points) == 1:
        return "mean of its only step with a reward"
    return MEANINGS.get(key, "")


BARS = "▁▂▃▄▅▆▇█"
SPARK_BARS = 12


def sparkline(points: Sequence[float]) -> str:
    """Rewards as at most SPARK_BARS bars, scaled from the smallest to the largest; empty without
    points."""
    values = thinned([point for point in points if isfinite(point)], SPARK_BARS)
    low, high = min(values, default=0.0), max(values, default=0.0)
    top = len(BARS) - 1
    share = top / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * share)] for value in values)


COLUMNS: Mapping[str, Column] = {
    column.key: column
    for column in (
        _text_column("name", "name", lambda row: row.title),
        _text_column("model", "model", lambda row: row.model),
        _text_column("taskset", "taskset", lambda row: row.taskset),
        _text_column("start", "from", lambda row: row.start),
        _text_column("loss", "loss", lambda row: row.loss),
        _number_column("lr", "lr", lambda row: row.lr, _rate),
        _number_column("group", "group", lambda row: row.group_size, "{:.0f}".format),
        _number_column("seed", "seed", lambda row: row.seed, "{:.0f}".format),
        _text_column("engine", "engine", lambda row: row.engine),
        Column("reward", "reward", lambda row, now: row.reward, _reward_text),
        Column("spark", "trend", lambda row, now: _gain(row), _trend_text, False),
        Column("heldout", "held-out", lambda row, now: row.heldout, _heldout_text),
        Column(
            "eval",
            "evaluation",
            lambda row, now: None if row.evaluation is None else row.evaluation.mean_reward,
            lambda row, now: evaluation_text(row.evaluation),
        ),
        _number_column("nograd", "no gradient", lambda row: row.no_gradient, _percent),
        Column("alarms", "alarms", _alarm_value, _alarm_text),
        Column("steps", "steps", lambda row, now: row.step, _step_text),
        _number_column("tokens", "tokens", lambda row: row.tokens or None),
        _number_column("duration", "duration", lambda row: row.duration_s, duration_text),
        Column("eta", "ETA", RunRow.left_s, _eta_text),
        _text_column("state", "state", lambda row: row.status),
        Column(
            "age",
            "age",
            lambda row, now: None if row.created_at is None else -row.created_at,
            lambda row, now: age(row.created_at, now),
        ),
        _text_column("sweep", "sweep", lambda row: row.sweep),
        _number_column(
            "heldout_n", "held-out rollouts", lambda row: row.heldout_rollouts, "{:.0f}".format
        ),
        _text_column("id", "id", lambda row: row.id),
        _text_column("note", "note", lambda row: row.note),
    )
}
"""All columns, in the order in which they are offered."""
LONG_TITLES = {
    "lr": "learning rate",
    "group": "group size",
    "start": "starts from",
    "nograd": "share with no gradient",
    "heldout": "held-out reward",
}
DEFAULT_COLUMNS = (
    *("name", "state", "steps", "reward", "spark", "heldout", "eval", "lr", "loss", "group"),
    *("seed", "alarms", "nograd", "age", "duration", "model", "taskset", "start"),
)
"""The default columns."""
PARAMETER = "param."
"""Prefix of a column that shows a parameter: ``param.max_tokens``."""


def _gain(row: RunRow) -> float | None:
    if row.reward is None or row.reward_first is None:
        return None
    return row.reward - row.reward_first


def column(key: str) -> Column:
    """A column by its key, or a parameter's by ``param.NAME``.

    Raises:
        HudUsage: There is no such column; the hint lists similar ones.
    """
    key = key.strip()
    if key in COLUMNS:
        return COLUMNS[key]
    if key.startswith(PARAMETER) and len(key) > len(PARAMETER):
        return _parameter(key)
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
        found = column(word[1:])
        if word[0] == "+":
            chosen[found.key] = found
        else:
            chosen.pop(found.key, None)
    return list(chosen.values())


def _parameter(key: str) -> Column:
    name = key.removeprefix(PARAMETER)

    def value(row: RunRow, now: float) -> Value:
        found = row.parameters.get(name)
        return found if found is None or isinstance(found, int | float | str) else value_text(found)

    def text(row: RunRow, now: float) -> str:
        return value_text(row.parameters.get(name))

    return Column(key, setting_label(name), value, text)


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


def sort_rows(rows: Iterable[RunRow], by: str, now: float) -> list[RunRow]:
    """Sort by columns. The sort is stable; missing values come last.

    Args:
        by: Columns, separated by commas; ``-`` before one sorts the largest first, e.g.
            ``model,-reward``.
        now: Unix seconds; a loop that is stalled then has no ETA.

    Raises:
        HudUsage: No such column.
    """
    found = list(rows)
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        down = word.startswith("-")
        value = column(word.removeprefix("-")).value
        keyed = [(value(row, now), row) for row in found]
        known = [(_key(key), row) for key, row in keyed if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=down)  # reverse keeps the order of equals
        found = [*(row for _, row in known), *(row for key, row in keyed if key is None)]
    return found


def _key(value: str | float) -> tuple[int, Any]:
    """Numbers sort before texts; a parameter may be a number in one run and a text in another."""
    return (1, value.casefold()) if isinstance(value, str) else (0, value)


TEXTS: Mapping[str, Callable[[RunRow], str]] = {
    **{key: attrgetter(key) for key in ("model", "taskset", "start", "loss", "engine", "kind")},
    **{key: attrgetter(key) for key in ("sweep", "id", "note")},
    "name": lambda row: row.title,
    "from": lambda row: row.start,
    "state": lambda row: row.status,
    "alarm": lambda row: f"{row.alarm} {row.alarm_title}",
}
NUMBERS: Mapping[str, Callable[[RunRow], float | None]] = {
    "lr": lambda row: row.lr,
    "group": lambda row: row.group_size,
    "group_size": lambda row: row.group_size,
    "seed": lambda row: row.seed,
    "reward": lambda row: row.reward,
    "heldout": lambda row: row.heldout,
    "heldout_n": lambda row: row.heldout_rollouts,
    "eval": lambda row: None if row.evaluation is None else row.evaluation.mean_reward,
    "nograd": lambda row: row.no_gradient,
    "duration": lambda row: row.duration_s,
    "first": lambda row: row.reward_first,
    "gain": _gain,
    "alarms": lambda row: row.alarms,
    "step": lambda row: row.step,
    "steps": lambda row: row.step,
    "tokens": lambda row: row.tokens,
    "step_s": lambda row: row.step_s,
}
TRAITS: Mapping[str, Callable[[RunRow], bool]] = {
    "running": lambda row: row.status == "running",
    "active": lambda row: row.active,
    "ended": lambda row: has_ended(row.status),
    "failed": lambda row: row.status in ("failed", "error"),
    "alarm": lambda row: bool(row.alarms),
    "noted": lambda row: bool(row.note),
    "evaluated": lambda row: row.evaluation is not None,
    "managed": lambda row: row.kind == "training",
    "reported": lambda row: row.kind == "reported",
    "sweep": lambda row: bool(row.sweep),
}


def parse_filter(expression: str, now: float) -> Callable[[RunRow], bool]:
    """Parse a filter of runs. Its grammar is that of `hud_tui.rl.filter` on the fields of runs,
    e.g. ``lr:3e-4 reward>.8 state:running mixed``, ``age<2h``, ``param.max_tokens=20``,
    ``is:alarm``.

    Args:
        expression: As typed.
        now: Unix seconds that ages are relative to; a loop that is stalled then has no ETA.

    Raises:
        HudUsage: An invalid term; the message names it.
    """

    def number(key: str) -> Callable[[RunRow], float | None] | None:
        if key == "age":
            return lambda row: None if row.created_at is None else now - row.created_at
        if key == "eta":
            return partial(RunRow.left_s, now=now)
        if key.startswith(PARAMETER):
            name = key.removeprefix(PARAMETER)
            return lambda row: _number(row.parameters.get(name), None)
        return NUMBERS.get(key)

    names = [*NUMBERS, "age", "eta", f"{PARAMETER}NAME"]
    return parse_terms(expression, Fields("run", words, TEXTS, TRAITS, number, names))


def words(row: RunRow) -> str:
    """The text that a bare word of a filter is searched in."""
    return " ".join((row.name, row.model, row.taskset, row.sweep, row.note, row.id))
