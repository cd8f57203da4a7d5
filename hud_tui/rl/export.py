"""Tables (`Sheet`) written piece by piece as CSV or JSON.

In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe, and control
characters are replaced by visible ones. Numbers are written so that they read back as the same
double. JSON contains every text unchanged, with non-ASCII characters escaped.

Source: RFC 4180 (CSV); OWASP, "CSV Injection", for what begins a formula.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.evaluation import EvaluationResult, evaluation_results, ks
from hud_tui.rl.groups import group_stats
from hud_tui.rl.metrics import metrics_of, ranked
from hud_tui.rl.own_numbers import NONE, Own
from hud_tui.rl.rollouts import RolloutGroup
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Job, Model

Cell = str | int | float | bool | None
SCHEMA = "hud-tui/1"
MOST = 20_000
"""Maximum characters of one text in CSV; unlimited in JSON."""
FORMULA = (*"=+-@|%", *map(chr, (0xFF1D, 0xFF0B, 0xFF0D, 0xFF20)))
"""First characters of formulas, including full-width forms."""


@dataclass(frozen=True)
class Sheet:
    """A table. `rows` may be a generator, so a sheet can be written only once."""

    name: str
    """One word for the file's name, e.g. ``metrics``."""
    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    """Each as long as `columns`; None for an empty cell."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts about the whole table, e.g. the model; JSON only."""
    shown: int | None = None
    """Number of rows if a filter leaves some out."""
    steps_aside: int = 0
    """Steps of the tree that it leaves out, because the head does not descend from them."""

    def only(self, keys: Collection[str]) -> "Sheet":
        """The rows with these values in the first column."""
        rows = (row for row in self.rows if row[0] in keys)
        return replace(self, rows=rows, shown=len(keys))


def csv_pieces(sheet: Sheet) -> Iterator[str]:
    """CSV lines: column names, then the rows."""
    yield _line([csv_text(name) for name in sheet.columns])
    for row in sheet.rows:
        yield _line([csv_cell(cell) for cell in row])


def json_pieces(sheet: Sheet) -> Iterator[str]:
    """One JSON document with one row per line; NaN and infinities become null."""
    head = {"schema": SCHEMA, "kind": "export", "what": sheet.name, **sheet.facts}
    if sheet.facts:
        head["steps_aside"] = sheet.steps_aside
    yield json.dumps(head)[:-1] + f', "columns": {json.dumps(list(sheet.columns))}, "rows": ['
    between = "\n"
    for row in sheet.rows:
        named = {
            name: None if isinstance(cell, float) and not isfinite(cell) else cell
            for name, cell in zip(sheet.columns, row, strict=True)
        }
        yield between + json.dumps(named, allow_nan=False)
        between = ",\n"
    yield "\n]}\n"


def csv_cell(cell: Cell) -> str:
    """One cell; empty for None."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return csv_text(cell)
    return repr(cell)


def csv_text(text: str) -> str:
    """A quoted text in one line that is not read as a formula."""
    safe = one_line(text, MOST)
    if safe.lstrip().startswith(FORMULA):
        safe = "'" + safe
    return '"' + safe.replace('"', '""') + '"'


def _line(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\r\n"


# The table of each view, in full precision.


OWN = (
    *("own_reward", "sampled", "own_heldout_reward"),
    *("own_heldout_tasks", "own_heldout_rollouts"),
)
"""Own rewards of a checkpoint and the rollouts that they average; the other metric columns are
those of its step."""
STEP = ("step", "checkpoint", "checkpoint_id", "created_at", *OWN)
NODE = (
    *("id", "name", "step", "parent_id", "depth", "is_head", "is_best", *OWN, "created_at"),
    *("loss_fn", "job_id", "state", "pinned", "note"),
    *("eval_split", "eval_tasks", "eval_samples", "eval_rollouts"),
    *(f"eval_{name}{end}" for name in ("mean", "pass@1") for end in ("", "_low", "_high")),
)
"""Columns of a checkpoint. The ``eval_`` ones are of the held-out evaluation that the tree shows,
else of the newest evaluation."""
EVALUATION = (
    *("id", "checkpoint_id", "checkpoint", "split", "tasks_name", "tasks", "samples", "rollouts"),
    *("job_id", "created_at", "solved_at", "mean_reward", "mean_reward_low", "mean_reward_high"),
)
GROUP = (
    *("step", "checkpoint_id", "task_slug", "rollouts", "mean", "std", "has_signal", "tokens"),
    *("rewards", "trace_ids"),
)
MODEL = (
    *("id", "model_name", "name", "is_trainable", "provider", "base_model", "forked_from"),
    *("created_at", "checkpoints", "head", *(f"head_{name}" for name in OWN)),
)
JOB = (
    *("id", "name", "status", "created_at", "model", "taskset", "step", "steps", "group_size"),
    *("rollouts", "reason"),
)
ROLLOUT = (
    *("trace_id", "job_id", "task_slug", "step", "attempt", "rollout", "heldout", "reward"),
    *("advantage", "tokens", "status", "stop_reason", "error", "completion"),
)
ALARM = (
    *("name", "level", "active", "onset", "shown", "raised", "ended", "checkpoint_id"),
    *("before_id", "cause", "evidence", "meaning", "advice"),
)


def metrics_sheet(run: Run, order: Sequence[str] = ()) -> Sheet:
    """Every metric of every step of the head's lineage, oldest first, with the own rewards of the
    step's checkpoint.

    Args:
        order: Keys of metrics whose columns come first.
    """
    keys = [key for key in order if key in run.series.keys]
    keys += ranked([key for key in run.series.keys if key not in keys])
    tree = run.tree
    nodes = ((position, tree[position]) for position in tree.path(tree.head))
    rows = (
        (
            *(node.step, node.name, node.id, node.created_at),
            *(*_own(tree.own(position)), *_metrics(node, keys)),
        )
        for position, node in nodes
    )
    columns = (*STEP, *_columns(keys, STEP))
    return Sheet("metrics", columns, rows, _facts(run), steps_aside=_aside(tree))


def tree_sheet(run: Run, notes: Mapping[str, str]) -> Sheet:
    """Every checkpoint of the tree, oldest first; `notes` are the user's, by checkpoint id."""
    tree = run.tree
    keys = ranked(list(dict.fromkeys(key for node in tree for key in metrics_of(node))))
    rows = (
        (*_node(tree, position, notes), *_metrics(tree[position], keys))
        for position in range(len(tree))
    )
    return Sheet("checkpoints", (*NODE, *_columns(keys, NODE)), rows, _facts(run))


def evaluations_sheet(run: Run) -> Sheet:
    """The results of all evaluations, with 95 % intervals."""
    results = evaluation_results(list(run.tree), list(run.evaluations.values()))
    most = max((k for result in results for k in result.evaluation.pass_at), default=0)
    passes = [k for k in ks(most) if any(k in result.evaluation.pass_at for result in results)]
    columns = [f"pass@{k}{end}" for k in passes for end in ("", "_low", "_high")]
    rows = (_evaluation(result, passes) for result in results)
    return Sheet("evaluations", (*EVALUATION, *columns), rows, _facts(run))


def groups_sheet(run: Run) -> Sheet:
    """Every group of the head's lineage, oldest first; rewards and trace ids space-separated."""
    return Sheet("groups", GROUP, _groups(run), _facts(run), steps_aside=_aside(run.tree))


def alarms_sheet(run: Run) -> Sheet:
    """Alarms of the head's lineage, then those of steps that the head has left."""
    rows = (_alarm(alarm) for alarm in (*run.alarms.alarms, *run.alarms.left))
    return Sheet("alarms", ALARM, rows, _facts(run))


def models_sheet(models: Iterable[Model], heads: Mapping[str, tuple[str, int, Own]]) -> Sheet:
    """The catalog; `heads`: name, steps and own rewards of known heads, by model id."""
    return Sheet("models", MODEL, (_model(model, heads.get(model.id)) for model in models))


def jobs_sheet(jobs: Iterable[Job]) -> Sheet:
    """Jobs in the order in which they were listed."""
    return Sheet("jobs", JOB, map(_job, jobs))


def rollouts_sheet(groups: Iterable[RolloutGroup]) -> Sheet:
    """Rollouts of the given groups, one row each."""
    return Sheet("rollouts", ROLLOUT, _rollouts(groups))


def _aside(tree: Tree) -> int:
    return len(tree) - len(tree.path(tree.head))


def _facts(run: Run) -> dict[str, Any]:
    model, head = run.model, run.head
    return {
        "model": None if model is None else model.model_name,
        "model_id": None if model is None else model.id,
        "head_id": None if head is None else head.id,
    }


def _columns(keys: Iterable[str], taken: Sequence[str]) -> list[str]:
    """Column names for metrics, prefixed where they would clash with `taken`."""
    names = dict.fromkeys(taken)
    for key in keys:
        name = key
        while name in names:
            name = f"metrics.{name}"
        names[name] = None
    return list(names)[len(taken) :]


def _metrics(node: Checkpoint, keys: Iterable[str]) -> Iterator[Cell]:
    metrics = metrics_of(node)
    return (metrics.get(key) for key in keys)


def _own(own: Own) -> tuple[Cell, ...]:
    return own.reward, own.sampled, own.heldout, own.heldout_tasks, own.heldout_rollouts


def _node(tree: Tree, position: int, notes: Mapping[str, str]) -> tuple[Cell, ...]:
    node = tree[position]
    return (
        *(node.id, node.name, node.step, node.prev_model_checkpoint_id, tree.depth(position)),
        *(position == tree.head, position == tree.best, *_own(tree.own(position)), node.created_at),
        *(node.loss_fn, node.job_id, node.state, node.pinned, notes.get(node.id)),
        *_shown(tree.evaluation(position) or next(reversed(node.evaluations), None)),
    )


def _shown(evaluation: Evaluation | None) -> tuple[Cell, ...]:
    """The ``eval_`` cells of a checkpoint's row."""
    if evaluation is None:
        return (None,) * 10
    return (
        *(evaluation.split, evaluation.num_tasks, evaluation.samples, evaluation.num_traces),
        *(*_estimate(evaluation.estimate), *_estimate(evaluation.pass_at.get(1))),
    )


def _estimate(estimate: Estimate | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


def _groups(run: Run) -> Iterator[Sequence[Cell]]:
    for position in run.tree.path(run.tree.head):
        node = run.tree[position]
        for group in node.groups:
            if group.rewards:
                stats = group_stats(group.rewards)
                yield (
                    *(node.step, node.id, group.task_slug, stats.size, stats.mean, stats.std),
                    *(stats.has_signal, sum(group.num_tokens) if group.num_tokens else None),
                    " ".join(map(repr, group.rewards)),
                    " ".join(group.trace_ids),
                )


def _evaluation(result: EvaluationResult, passes: Sequence[int]) -> tuple[Cell, ...]:
    evaluation = result.evaluation
    estimates = (evaluation.estimate, *(evaluation.pass_at.get(k) for k in passes))
    return (
        *(evaluation.id, result.checkpoint_id, result.name, evaluation.split, evaluation.name),
        *(evaluation.num_tasks, evaluation.samples, evaluation.num_traces, evaluation.job_id),
        *(evaluation.created_at, evaluation.solved_at),
        *(cell for estimate in estimates for cell in _estimate(estimate)),
    )


def _alarm(alarm: Alarm) -> tuple[Cell, ...]:
    return (
        *(alarm.name, str(alarm.level), alarm.active, alarm.onset, alarm.shown, alarm.raised),
        *(alarm.ended, alarm.checkpoint_id, alarm.before_id, alarm.cause or None),
        *(alarm.summary, alarm.meaning, alarm.advice),
    )


def _model(model: Model, head: tuple[str, int, Own] | None) -> tuple[Cell, ...]:
    name, steps, own = head or (None, model.checkpoint_count, NONE)
    provider = None if model.provider is None else model.provider.name
    return (
        *(model.id, model.model_name, model.name, model.is_trainable, provider),
        *(model.base_model, model.forked_from, model.created_at, steps, name),
        *_own(own),
    )


def _job(job: Job) -> tuple[Cell, ...]:
    more = job.metadata or {}
    return (
        *(job.id, job.name, job.status, job.created_at, _cell(more.get("model"))),
        *(job.taskset_name, _cell(more.get("step")), _cell(more.get("steps")), job.group_size),
        *(job.num_traces, _cell(more.get("reason"))),
    )


def _rollouts(groups: Iterable[RolloutGroup]) -> Iterator[Sequence[Cell]]:
    for group in groups:
        for rollout in group.rollouts:
            trace = rollout.trace
            yield (
                *(trace.id, trace.job_id, trace.task_slug, trace.step, trace.attempt),
                *(trace.rollout, trace.heldout, trace.reward, rollout.advantage, trace.num_tokens),
                *(trace.status, trace.stop_reason, _cell(trace.error), trace.completion),
            )


def _cell(value: object) -> Cell:
    """A value of any type as a cell."""
    return value if isinstance(value, str | int | float | None) else str(value)
