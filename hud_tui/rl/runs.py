"""Runs: one table of all of them, whichever model they trained and whoever took the steps.

A row is what a run was given (model, starting checkpoint, taskset, parameters) and what came of it
(reward, held-out, evaluation, alarms). Rows are sorted, filtered and grouped by any column; marked
ones are laid over each other in one chart, beside the table of what differs between them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from statistics import fmean, stdev
from typing import Any

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.axes import time_said
from hud_tui.rl.filter import Fields, parse_terms
from hud_tui.rl.metrics import metrics_of, short
from hud_tui.rl.names import SHORTEST_PREFIX, close_names, short_prefix
from hud_tui.rl.own_numbers import heldout_evaluation
from hud_tui.rl.run import has_ended, job_model_id
from hud_tui.rl.text import age, one_line, seconds, spaced
from hud_tui.wire import Checkpoint, Evaluation, Job, JobStatus, Model, RunRecord

# Rows.


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. None is what nobody says, or is not known yet."""

    id: str
    model_id: str
    model: str
    name: str = ""
    kind: str = "training"
    """``training``: the service takes the steps; ``reported``: a loop from outside does."""
    taskset: str = ""
    start: str = ""
    """The checkpoint that its first step was taken from, else what the model was forked from."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """By the wire's names, those of the loss flat: ``loss_fn_config.beta``."""
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
    """Its rewards in order, shape (≤ 32,)."""
    heldout: float | None = None
    evaluation: Evaluation | None = None
    no_gradient: float | None = None
    """Share of its rollouts whose group had no variance."""
    alarms: int | None = None
    alarm: str = ""
    """The worst that holds: info, warn or critical."""
    alarm_title: str = ""
    step: int = 0
    steps: int | None = None
    tokens: int = 0
    duration_s: float | None = None
    status: str = ""
    """A job's word; empty if nobody says."""
    created_at: float | None = None
    """Unix seconds."""
    stepped_at: float | None = None
    sweep: str = ""
    note: str = ""
    whole: bool = True
    """Whether its steps were read; else its row says only what a list of jobs does."""

    @property
    def title(self) -> str:
        """Its name; a loop that gave none is called by its model, another run by its id."""
        if not self.name and self.kind != "training" and self.model:
            return f"loop on {self.model}"
        return self.name or self.id[:8]

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return bool(self.status) and not has_ended(self.status)

    @property
    def step_s(self) -> float | None:
        """Seconds per step, on average."""
        return None if self.duration_s is None or not self.step else self.duration_s / self.step

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step; None if it has ended or that is not known."""
        if not self.active or self.steps is None or self.step_s is None:
            return None
        return max(0, self.steps - self.step) * self.step_s


@lru_cache(4096)
def _said_once(text: str, limit: int) -> str:
    """`one_line`, of texts that many rows have in common."""
    return one_line(text, limit)


def row_of(record: RunRecord, notes: Mapping[str, str] | None = None) -> RunRow:
    """The row of what the embedded service says of a run.

    Args:
        record: As it came.
        notes: Notes that were written here, by the run's id.
    """
    given = _flat(record.parameters or {})
    sweep = given.pop("sweep", None)
    return RunRow(
        id=record.id,
        model_id=record.model_id,
        model=_said_once(record.model or record.model_id, 100),
        name=_said_once(record.name or "", 200),
        kind=record.kind,
        taskset=_said_once(record.taskset or "", 100),
        start=_said_once(record.start or record.forked_from or record.base or "", 100),
        parameters=given,
        loss=_said_once(record.loss_fn or given.get("loss_fn") or "", 40),
        lr=_number(given.get("learning_rate"), record.learning_rate),
        group_size=_whole(given.get("group_size")),
        seed=_whole(given.get("seed")),
        engine=_said_once(record.engine or "", 20),
        reward_first=_finite(record.reward_first),
        reward=_finite(record.reward_last),
        points=tuple(record.points),
        heldout=_finite(record.heldout),
        evaluation=record.evaluation,
        no_gradient=_finite(record.no_gradient),
        alarms=record.alarms,
        alarm=_said_once(record.alarm or "", 20),
        alarm_title=_said_once(record.alarm_title or "", 60),
        step=record.step,
        steps=record.steps,
        tokens=record.tokens,
        duration_s=_finite(record.busy_s),
        status=_said_once(record.status or "", 20),
        created_at=record.created_at,
        stepped_at=record.stepped_at,
        sweep=_said_once(sweep or "", 100),
        note=(notes or {}).get(record.id, ""),
    )


ENDS = 5
"""Steps whose mean is a run's reward at its beginning, and at its end."""
MOST_POINTS = 32


def ends_of(steps: int) -> int:
    """How many steps the reward at a run's beginning, and at its end, is the mean of: `ENDS`; of a
    run of fewer than two times so many, the first and the last half."""
    return min(ENDS, max(1, steps // 2))


def row_of_job(
    job: Job,
    model: Model | None,
    status: JobStatus | None = None,
    steps: Sequence[Checkpoint] | None = None,
    parent: Checkpoint | None = None,
) -> RunRow:
    """A row of what HUD's wire says, which has no list of runs.

    Args:
        job: Its row in the list of jobs.
        model: What it trains, where that is known.
        status: Its raw status, where it was read.
        steps: The checkpoints that it made, oldest first; None if they were not read.
        parent: What the first of them was made from.
    """
    given = _flat((status.parameters if status is not None else None) or {})
    sweep = given.pop("sweep", None)
    said = job.metadata or {}
    model_id = (model.id if model is not None else None) or job_model_id(job) or ""
    created = seconds(job.created_at)
    row = RunRow(
        id=job.id,
        model_id=model_id,
        model=one_line(model.model_name if model is not None else said.get("model") or "", 100),
        name=one_line(job.name or "", 200),
        kind=one_line(said.get("kind") or "training", 20),
        taskset=one_line(job.taskset_name or "", 100),
        start=one_line(model.forked_from or "", 100) if model is not None else "",
        parameters=given,
        lr=_number(given.get("learning_rate"), None),
        loss=one_line(given.get("loss_fn") or "", 40),
        group_size=_whole(given.get("group_size")) or job.group_size,
        seed=_whole(given.get("seed")),
        engine=one_line(model.engine.engine, 20) if model is not None and model.engine else "",
        step=_whole(said.get("step")) or (status.step if status is not None else None) or 0,
        steps=_whole(said.get("steps")) or (status.steps if status is not None else None),
        tokens=(status.trained_tokens if status is not None else None) or 0,
        status=one_line(job.status or "", 20),
        created_at=created,
        sweep=one_line(sweep or "", 100),
        whole=False,
    )
    return row if steps is None else _with_steps(row, steps, parent)


def _with_steps(row: RunRow, steps: Sequence[Checkpoint], parent: Checkpoint | None) -> RunRow:
    if not steps:
        return replace(row, whole=True)
    rewards = [r for r in map(_reward, steps) if r is not None]
    ends = ends_of(len(rewards))
    times = [at for at in (seconds(node.created_at) for node in steps) if at is not None]
    newest = steps[-1]
    heldout = next((h for h in map(_heldout, reversed(steps)) if h is not None), None)
    evaluations = (heldout_evaluation(node.evaluations) for node in reversed(steps))
    evaluation = next((each for each in evaluations if each is not None), None)
    rollouts = sum(node.num_traces or 0 for node in steps)
    idle = sum((_idle(node) or 0.0) * (node.num_traces or 0) for node in steps)
    return replace(
        row,
        whole=True,
        start=one_line(parent.name or parent.id, 100) if parent is not None else row.start,
        loss=one_line(newest.loss_fn or row.loss, 40),
        lr=row.lr if row.lr is not None else newest.learning_rate,
        reward_first=fmean(rewards[:ends]) if rewards else None,
        reward=fmean(rewards[-ends:]) if rewards else None,
        points=tuple(thinned(rewards)),
        heldout=evaluation.mean_reward if evaluation is not None else heldout,
        evaluation=evaluation,
        no_gradient=idle / rollouts if rollouts and _idle(newest) is not None else None,
        step=max(row.step, len(steps)),
        tokens=sum(node.num_tokens or 0 for node in steps) or row.tokens,
        duration_s=times[-1] - (row.created_at or times[0]) if times else None,
        stepped_at=times[-1] if times else None,
    )


def _reward(node: Checkpoint) -> float | None:
    return _finite(metrics_of(node).get("reward_mean"))


def _heldout(node: Checkpoint) -> float | None:
    return _finite(metrics_of(node).get("heldout_reward"))


def _idle(node: Checkpoint) -> float | None:
    return _finite(metrics_of(node).get("frac_reward_zero_std"))


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most so many means of equally many neighbours each, in order."""
    stride = max(1, -(-len(values) // most))
    return [fmean(values[at : at + stride]) for at in range(0, len(values), stride)]


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without those that nobody gave, the loss's own keys beside the others."""
    found = {key: value for key, value in given.items() if value is not None}
    config = found.pop("loss_fn_config", None)
    if isinstance(config, Mapping):
        found |= {f"loss_fn_config.{key}": value for key, value in config.items()}
    return found


def _number(value: object, other: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else _finite(other)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def find_run(name: str, rows: Sequence[RunRow]) -> RunRow:
    """One run by id, then by name, then by how its id begins; a model names its newest run.

    Args:
        name: As it was typed.
        rows: Newest first.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists close names.
    """
    wanted = name.strip().casefold()
    plain = wanted.replace("-", "")
    ranks: tuple[Callable[[RunRow], bool], ...] = (
        lambda row: wanted == row.id.casefold(),
        lambda row: wanted == row.name.casefold(),
        lambda row: len(plain) >= SHORTEST_PREFIX and row.id.replace("-", "").startswith(plain),
    )
    for rank in ranks:
        found = [row for row in rows if rank(row)]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(f"{row.id} ({row.name})" for row in found[:5])
            raise HudAmbiguous(
                f"{len(found)} runs are called {one_line(name)}", f"say which: {several}"
            )
    newest = next((row for row in rows if row.model.casefold() == wanted), None)
    if newest is not None:
        return newest
    known = {text: None for row in rows for text in (row.name, row.model) if text}
    hint = short_prefix(name, rows) or close_names(name, known)
    raise HudUsage(f"no run named {one_line(name)}", hint)


# Columns.

Value = str | float | None


@dataclass(frozen=True)
class Column:
    """One column of the table."""

    key: str
    """What it is called in ``--columns``, ``--sort`` and filters."""
    title: str
    value: Callable[[RunRow], Value]
    """What it is sorted and filtered by; None if it is missing, which is last in any order."""
    text: Callable[[RunRow, float], str]
    """What is shown of it, given the time in Unix seconds."""
    number: bool = True
    """Numbers are aligned to the right, and a first press sorts the greatest first."""

    @property
    def long_title(self) -> str:
        """The title in whole words, where there is room for them."""
        return LONG_TITLES.get(self.key, self.title)


def _said(key: str, title: str, get: Callable[[RunRow], str]) -> Column:
    def text(row: RunRow, now: float) -> str:
        return get(row) or "–"

    return Column(key, title, lambda row: get(row) or None, text, number=False)


def _counted(
    key: str,
    title: str,
    get: Callable[[RunRow], float | None],
    write: Callable[[float], str] = short,
) -> Column:
    def text(row: RunRow, now: float) -> str:
        value = get(row)
        return "–" if value is None else write(value)

    return Column(key, title, get, text)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _rate(value: float) -> str:
    """A number as it is typed: ``3e-4``, ``.01``, ``60``."""
    if not value or abs(value) >= 0.01:
        return f"{value:.4g}"
    digits, _, power = f"{value:.3e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def evaluation_said(evaluation: Evaluation | None) -> str:
    """E.g. ``.71 [.66, .76] 48×4``: mean reward, its 95 % interval, tasks × samples."""
    if evaluation is None:
        return "–"
    mean, size = evaluation.mean, ""
    if evaluation.num_tasks:
        each = evaluation.samples or max(1, evaluation.num_traces // evaluation.num_tasks)
        size = f" {evaluation.num_tasks}×{each}"
    if mean is None or mean.low is None or mean.high is None:
        return f"{short(evaluation.mean_reward)}{size}"
    return f"{short(mean.value)} [{short(mean.low)}, {short(mean.high)}]{size}"


def _step_text(row: RunRow, now: float) -> str:
    return f"{row.step}/{row.steps}" if row.steps is not None else str(row.step)


def _reward_text(row: RunRow, now: float) -> str:
    if row.reward is None:
        return "–"
    return f"{short(row.reward_first)} → {short(row.reward)}"


def _alarm_text(row: RunRow, now: float) -> str:
    if row.alarms is None:
        return "–"
    return f"{row.alarms} {row.alarm}".strip() if row.alarms else "0"


def _alarm_value(row: RunRow) -> float | None:
    """The worst first, then how many."""
    ranks = {"": 0, "info": 1, "warn": 2, "critical": 3}
    return None if row.alarms is None else ranks.get(row.alarm, 0) + min(row.alarms, 99) / 100


MEANINGS = {
    "reward": f"mean of its first {ENDS} steps → of its newest {ENDS} (of a short run, its halves)",
    "spark": "mean reward of its steps, from its least to its greatest",
    "heldout": "of the newest evaluated checkpoint, else as the newest step reports it",
    "eval": "mean reward [95 % interval] tasks × samples, of the newest evaluated checkpoint",
    "nograd": "share of its rollouts whose group had no variance",
    "tokens": "generated in its training rollouts",
    "duration": "spent on its steps; of a loop from outside, from its first to its newest",
}
"""What columns show whose titles do not say it."""
BARS = "▁▂▃▄▅▆▇█"


def sparkline(points: Sequence[float], width: int = 12, bars: str = BARS) -> str:
    """Its rewards as bars, the least lowest; at most `width` of them, empty without points."""
    values = thinned([point for point in points if isfinite(point)], width)
    low, high = min(values, default=0.0), max(values, default=0.0)
    top = len(bars) - 1
    share = top / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * share)] for value in values)


COLUMNS: Mapping[str, Column] = {
    column.key: column
    for column in (
        _said("name", "name", lambda row: row.title),
        _said("model", "model", lambda row: row.model),
        _said("taskset", "taskset", lambda row: row.taskset),
        _said("start", "from", lambda row: row.start),
        _said("loss", "loss", lambda row: row.loss),
        _counted("lr", "lr", lambda row: row.lr, _rate),
        _counted("group", "group", lambda row: row.group_size, lambda n: f"{n:.0f}"),
        _counted("seed", "seed", lambda row: row.seed, lambda n: f"{n:.0f}"),
        _said("engine", "engine", lambda row: row.engine),
        Column("reward", "reward", lambda row: row.reward, _reward_text),
        Column(
            "spark", "trend", lambda row: _gain(row), lambda row, now: sparkline(row.points), False
        ),
        _counted("heldout", "held-out", lambda row: row.heldout),
        Column(
            "eval",
            "evaluation",
            lambda row: None if row.evaluation is None else row.evaluation.mean_reward,
            lambda row, now: evaluation_said(row.evaluation),
        ),
        _counted("nograd", "no gradient", lambda row: row.no_gradient, _percent),
        Column("alarms", "alarms", _alarm_value, _alarm_text),
        Column("steps", "steps", lambda row: row.step, _step_text),
        _counted("tokens", "tokens", lambda row: row.tokens or None),
        _counted("duration", "duration", lambda row: row.duration_s, time_said),
        _counted("eta", "ETA", lambda row: row.eta_s, time_said),
        _said("state", "state", lambda row: row.status),
        Column(
            "age",
            "age",
            lambda row: None if row.created_at is None else -row.created_at,
            lambda row, now: age(row.created_at, now),
        ),
        _said("sweep", "sweep", lambda row: row.sweep),
        _said("id", "id", lambda row: row.id),
        _said("note", "note", lambda row: row.note),
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
USUAL = (
    *("name", "state", "steps", "reward", "spark", "heldout", "eval", "lr", "loss", "group"),
    *("seed", "alarms", "nograd", "age", "duration", "model", "taskset", "start"),
)
"""Those that are shown where nobody says which."""
PARAMETER = "param."
"""Before a parameter's name where it is a column: ``param.max_tokens``."""


def _gain(row: RunRow) -> float | None:
    if row.reward is None or row.reward_first is None:
        return None
    return row.reward - row.reward_first


def column(key: str) -> Column:
    """A column by its key, or a parameter by ``param.NAME``.

    Raises:
        HudUsage: There is none of this name; the hint lists close ones.
    """
    key = key.strip()
    if key in COLUMNS:
        return COLUMNS[key]
    if key.startswith(PARAMETER) and len(key) > len(PARAMETER):
        return _parameter(key)
    hint = f"{close_names(key, COLUMNS)}; a parameter is {PARAMETER}NAME"
    raise HudUsage(f"no column named {one_line(key, 40)}", hint)


def columns(text: str) -> list[Column]:
    """Columns by their keys with commas between; ``+KEY`` adds to the usual ones, ``-KEY`` takes
    one of these away. Raises HudUsage, as `column`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        return [COLUMNS[key] for key in USUAL]
    if not all(word[0] in "+-" for word in words):
        return [column(word) for word in words]
    chosen = {key: COLUMNS[key] for key in USUAL}
    for word in words:
        found = column(word[1:])
        if word[0] == "+":
            chosen[found.key] = found
        else:
            chosen.pop(found.key, None)
    return list(chosen.values())


def _parameter(key: str) -> Column:
    name = key.removeprefix(PARAMETER)

    def value(row: RunRow) -> Value:
        found = row.parameters.get(name)
        return found if found is None or isinstance(found, int | float | str) else value_said(found)

    def text(row: RunRow, now: float) -> str:
        return value_said(row.parameters.get(name))

    return Column(key, name, value, text)


def value_said(value: object) -> str:
    """A parameter's value in one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _rate(value)
    return one_line(value if isinstance(value, str) else json.dumps(value), 60)


# Order and filter.


def sort_rows(rows: Iterable[RunRow], by: str) -> list[RunRow]:
    """Rows by columns with commas between, ``-`` before one for the greatest first: as
    ``model,-reward``. Equal ones stay in their order, and what is missing comes last.

    Raises:
        HudUsage: No such column.
    """
    found = list(rows)
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        down = word.startswith("-")
        value = column(word.removeprefix("-")).value
        known: list[tuple[tuple[int, Any], RunRow]] = []
        missing: list[RunRow] = []
        for row in found:
            key = value(row)
            if key is None:
                missing.append(row)
            else:
                known.append((_key(key), row))
        known.sort(key=lambda pair: pair[0], reverse=down)  # stable in reverse too
        found = [*(row for _, row in known), *missing]
    return found


def _key(value: str | float) -> tuple[int, Any]:
    """Numbers before texts, where a parameter is now one and now the other."""
    return (1, value.casefold()) if isinstance(value, str) else (0, value)


def _text_fields() -> dict[str, Callable[[RunRow], str]]:
    found: dict[str, Callable[[RunRow], str]] = {}
    for key in ("name", "model", "taskset", "loss", "engine", "state", "sweep", "id", "note"):
        found[key] = _text_of(COLUMNS[key])
    found["from"] = found["start"] = _text_of(COLUMNS["start"])
    found["kind"] = lambda row: row.kind
    found["alarm"] = lambda row: f"{row.alarm} {row.alarm_title}"
    return found


def _text_of(one: Column) -> Callable[[RunRow], str]:
    return lambda row: str(one.value(row) or "")


NUMBERS: Mapping[str, Callable[[RunRow], float | None]] = {
    "lr": lambda row: row.lr,
    "group": lambda row: row.group_size,
    "group_size": lambda row: row.group_size,
    "seed": lambda row: row.seed,
    "reward": lambda row: row.reward,
    "heldout": lambda row: row.heldout,
    "eval": lambda row: None if row.evaluation is None else row.evaluation.mean_reward,
    "nograd": lambda row: row.no_gradient,
    "duration": lambda row: row.duration_s,
    "eta": lambda row: row.eta_s,
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


def parse_filter(expression: str, now: float | None = None) -> Callable[[RunRow], bool]:
    """Read a filter of runs: the tree's grammar (`hud_tui.rl.filter`) on runs' fields, as in
    ``lr:3e-4 reward>.8 state:running mixed``, ``age<2h``, ``param.max_tokens=20``, ``is:alarm``.

    Args:
        expression: What was typed.
        now: Unix seconds that ages are told of; None if none is asked for.

    Raises:
        HudUsage: An invalid term; the message shows it.
    """

    def number(key: str) -> Callable[[RunRow], float | None] | None:
        if key == "age" and now is not None:
            return lambda row: None if row.created_at is None else now - row.created_at
        if key.startswith(PARAMETER):
            name = key.removeprefix(PARAMETER)
            return lambda row: _number(row.parameters.get(name), None)
        return NUMBERS.get(key)

    names = [*NUMBERS, "age", f"{PARAMETER}NAME"]
    return parse_terms(expression, Fields("run", words, _text_fields(), TRAITS, number, names))


def words(row: RunRow) -> str:
    """The text that a bare word of a filter is looked for in."""
    return " ".join((row.name, row.model, row.taskset, row.sweep, row.note, row.id))


# What differs, and groups of what does not.

IDENTITY = ("taskset", "model", "start", "engine")
"""Beside its parameters, what a run is told apart by."""
REPEATS = frozenset({"seed", "param.seed"})
"""What repetitions of a run differ in."""


def setting(row: RunRow, key: str) -> object:
    """What a run was given: one of `IDENTITY`, or a parameter by its name."""
    match key:
        case "learning_rate":
            return row.parameters.get(key, row.lr)
        case "loss_fn":
            return row.parameters.get(key, row.loss or None)
        case "group_size":
            return row.parameters.get(key, row.group_size)
    return getattr(row, key) or None if key in IDENTITY else row.parameters.get(key)


@dataclass(frozen=True)
class Differences:
    """What tells runs apart: the table beside their curves."""

    keys: tuple[str, ...]
    """Of settings that are not the same in all: tasks, model and start come first."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """Each run's id, and its values in the order of `keys`."""
    same: tuple[tuple[str, str], ...]
    """What all of them have, as key and value."""


def differences(rows: Sequence[RunRow]) -> Differences:
    """The settings in which runs differ, and those that all share."""
    keys = differing(rows)
    shared = [key for key in _settings(rows) if key not in keys]
    table = tuple((r.id, tuple(value_said(setting(r, key)) for key in keys)) for r in rows)
    same = tuple((key, value_said(setting(rows[0], key))) for key in shared if rows)
    return Differences(tuple(keys), table, same)


def differing(rows: Sequence[RunRow]) -> list[str]:
    """The settings that are not the same in all of these runs."""
    return [key for key in _settings(rows) if len({_hashed(setting(r, key)) for r in rows}) > 1]


def _settings(rows: Sequence[RunRow]) -> list[str]:
    named = dict.fromkeys(key for row in rows for key in row.parameters)
    usual = dict.fromkeys(("learning_rate", "loss_fn", "group_size"))
    first, last = IDENTITY[:-1], IDENTITY[-1:]
    return [*first, *{**usual, **named}, *last]


def _hashed(value: object) -> object:
    """Equal for equal numbers, whatever their type; a list or an object by its JSON."""
    if isinstance(value, float | int | str | None):
        return value
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class RunGroup:
    """Runs that are alike in what they are grouped by."""

    keys: tuple[tuple[str, str], ...]
    """What they have in common, as key and value."""
    rows: tuple[RunRow, ...]
    mean: float | None
    """Of their rewards; None if none has one."""
    std: float | None
    """Standard deviation between the runs, of two or more that have a reward."""

    @property
    def title(self) -> str:
        """E.g. ``lr 3e-4 · group 8 · 4 runs · reward .81 ± .02``, ``no sweep · 2 runs``."""
        told = (f"{key} {value}" if value != "–" else f"no {key}" for key, value in self.keys)
        named = " · ".join(told) or "all"
        many = f"{spaced(len(self.rows))} run{'s' * (len(self.rows) != 1)}"
        spread = "" if self.std is None else f" ± {short(self.std)}"
        reward = "" if self.mean is None else f" · reward {short(self.mean)}{spread}"
        return f"{named} · {many}{reward}"


DIFFERS = "differs"


def group_rows(rows: Sequence[RunRow], by: str) -> list[RunGroup]:
    """Groups in the order of their first row, rows in the order they had.

    Args:
        rows: As they are sorted.
        by: Columns or ``param.NAME`` with commas between; ``differs`` for whatever differs between
            these rows but the seed, so that a group is a setting and its repetitions.

    Raises:
        HudUsage: No such column.
    """
    get = _differing_values(rows) if by.strip() == DIFFERS else _column_values(by)
    found: dict[tuple[tuple[str, str], ...], list[RunRow]] = {}
    for row in rows:
        found.setdefault(get(row), []).append(row)
    return [_group(keys, alike) for keys, alike in found.items()]


Keys = Callable[[RunRow], tuple[tuple[str, str], ...]]


def _differing_values(rows: Sequence[RunRow]) -> Keys:
    keys = [k for k in differing(rows) if k not in REPEATS and k != "model"]
    return lambda row: tuple((key, value_said(setting(row, key))) for key in keys)


def _column_values(by: str) -> Keys:
    chosen = [column(word) for word in by.split(",") if word.strip()]

    def get(row: RunRow) -> tuple[tuple[str, str], ...]:
        return tuple((one.title, value_said(one.value(row))) for one in chosen)

    return get


def _group(keys: tuple[tuple[str, str], ...], rows: Sequence[RunRow]) -> RunGroup:
    rewards = [row.reward for row in rows if row.reward is not None]
    std = stdev(rewards) if len(rewards) > 1 else None
    return RunGroup(keys, tuple(rows), fmean(rewards) if rewards else None, std)
