"""What a sink is given of a run or an evaluation: rows, each with a name that it is written under
once.

Rows follow from the state of the run alone, whatever was seen of it before. So a sink that was
killed writes what is missing, and nothing twice.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.rl.evaluation import evaluation_results
from hud_tui.rl.export import Cell, Sheet, evaluations_sheet
from hud_tui.rl.groups import group_stats
from hud_tui.rl.history import who
from hud_tui.rl.metrics import metrics_of, step_number
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line, seconds
from hud_tui.rl.work import has_ended, reason
from hud_tui.wire import Checkpoint, Evaluation, Group, Model, WorkState

RECORD = "record"
"""Column with the name of a row."""
STEP = "step"
"""Column that charts are drawn over: the number of the optimizer step."""
TASK = ("task", "rollouts", "mean", "std", "rewards")
EVENT = ("at", "step", "event", "text", "checkpoint", "checkpoint_id")
TEXT_MOST = 600


@dataclass(frozen=True)
class SinkTable:
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class SinkRow:
    """One row of the log."""

    record: str
    """Its name: of a step its checkpoint's id."""
    values: Mapping[str, Cell]
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Numbers that are drawn as a distribution, shape (N,) each."""
    tables: Mapping[str, SinkTable] = field(default_factory=dict)


def rows_of_run(run: Run, work: WorkState, written: Container[str] = ()) -> Iterator[SinkRow]:
    """The rows of a training run as it stands.

    Args:
        run: The model's tree, with evaluations, moves of the head and alarms.
        work: The run.
        written: Names of rows; steps among them are left out.
    """
    own = _own_steps(run.tree, work)
    yield from _steps(run.tree, [p for p in own if run.tree[p].id not in written])
    events = [*_moves(run, work), *_alarms(run, own)]
    yield from events
    ids = {run.tree[position].id for position in own}
    for result in evaluation_results(list(run.tree), list(run.evaluations.values())):
        if result.checkpoint_id in ids or result.evaluation.job_id == work.id:
            step = _step_of(run.tree, result.checkpoint_id)
            yield _evaluation(result.evaluation, result.name, result.checkpoint_id, step)
    if has_ended(work.status):
        tables = {
            "events": SinkTable(EVENT, [[row.values.get(key) for key in EVENT] for row in events])
        }
        sheet = evaluations_sheet(run)
        if rows := [row for row in sheet.rows if _is_of(sheet, row, ids, work.id)]:
            tables["evaluations"] = SinkTable(sheet.columns, rows)
        step = max((step_number(run.tree[p], p) for p in own), default=0)
        yield SinkRow(_end_record(work), {STEP: step, **_end(work)}, {}, tables)


def rows_of_evaluation(work: WorkState) -> Iterator[SinkRow]:
    """The rows of an evaluation as it stands, with its rewards by task: one, at its end."""
    if not has_ended(work.status):
        return
    values: dict[str, Cell] = {"rollouts": work.done, "mean_reward": work.mean_reward, **_end(work)}
    if work.result is not None:
        values |= _estimates(work.result, "")
    tables = {"tasks": SinkTable(TASK, [_task(group) for group in work.groups if group.rewards])}
    rewards = [reward for group in _known(work.groups) for reward in group.rewards]
    histograms = {"rewards": rewards} if rewards else {}
    yield SinkRow(_end_record(work), values, histograms, tables)


def settings_of(work: WorkState, model: Model | None) -> dict[str, Any]:
    """What a run or an evaluation was given: its parameters by their names, and of what it is."""
    given: dict[str, Any] = {
        "model": work.model,
        "model_id": work.model_id,
        "job_id": work.id,
        "kind": work.kind,
        "parameters": {k: v for k, v in work.parameters.items() if v not in (None, {})},
    }
    if work.is_evaluation:
        given |= {
            "checkpoint": work.checkpoint or "base",
            "checkpoint_id": work.checkpoint_id,
            "split": work.split,
            "samples": work.samples,
            "tasks": work.num_tasks,
            "run_id": work.job_id,
        }
    if model is not None:
        given |= {
            "model": model.model_name,
            "base_model": model.base_model,
            "forked_from": model.forked_from,
        }
    return {name: value for name, value in given.items() if value not in (None, "")}


def _own_steps(tree: Tree, work: WorkState) -> list[int]:
    """Positions of the checkpoints that a run made. Where the service does not say whose they are,
    those made while it ran."""
    every = range(len(tree))
    if any(tree[position].job_id for position in every):
        return [position for position in every if tree[position].job_id == work.id]
    begun, ended = work.created_at or 0.0, work.finished_at or float("inf")
    made = ((position, seconds(tree[position].created_at) or 0.0) for position in every)
    return [position for position, at in made if begun <= at <= ended]


def _steps(tree: Tree, own: Sequence[int]) -> Iterator[SinkRow]:
    for position in own:
        node = tree[position]
        values: dict[str, Cell] = {
            **metrics_of(node),
            STEP: step_number(node, position),
            "checkpoint": node.name,
            "checkpoint_id": node.id,
        }
        yield SinkRow(node.id, values, _distributions(node))


def _distributions(node: Checkpoint) -> dict[str, list[float]]:
    """A step's groups: every reward, and mean and std of each group."""
    groups = _known(node.groups)
    if not groups:
        return {}
    stats = [group_stats(group.rewards) for group in groups]
    return {
        "groups/reward": [reward for group in groups for reward in group.rewards],
        "groups/mean": [group.mean for group in stats],
        "groups/std": [group.std for group in stats],
    }


def _known(groups: Iterable[Group]) -> list[Group]:
    """Those with rewards that are all known: the SDK makes no histogram with a NaN."""
    return [group for group in groups if group.rewards and isfinite(sum(group.rewards))]


def _moves(run: Run, work: WorkState) -> Iterator[SinkRow]:
    """Moves of the head that somebody made while the run went on."""
    begun, ended = work.created_at or 0.0, work.finished_at or float("inf")
    for move in run.history.moves:
        if begun <= move.at <= ended:
            nodes = (
                run.tree.node(run.tree.find(id_)) for id_ in (move.previous, move.checkpoint_id)
            )
            text = f"head {move.act}: {' → '.join(map(label, nodes))}, by {who(move.by)}"
            step = _step_of(run.tree, move.checkpoint_id)
            values = _event(run.tree, "head", move.at, step, text, move.checkpoint_id)
            yield SinkRow(f"head {move.at!r}", values)


def _step_of(tree: Tree, checkpoint_id: str | None) -> int:
    """The number of the step that made a checkpoint; 0 for the base weights."""
    position = tree.find(checkpoint_id)
    return 0 if position is None else step_number(tree[position], position)


def _alarms(run: Run, own: Sequence[int]) -> Iterator[SinkRow]:
    """Each level that an alarm of the run's own steps has reached, and its end."""
    ids = {run.tree[position].id for position in own}
    for alarm in (*run.alarms.alarms, *run.alarms.left):
        if alarm.shown_id in ids:
            what = one_line(f"{alarm.headline}: {alarm.summary}. {alarm.advice}", TEXT_MOST)
            yield _alarm(run.tree, alarm, str(alarm.level), alarm.raised, what)
            if alarm.ended is not None:
                ended = f"{alarm.title} ended at step {alarm.ended}"
                yield _alarm(run.tree, alarm, "ended", alarm.ended, ended)


def _alarm(tree: Tree, alarm: Alarm, level: str, step: int, text: str) -> SinkRow:
    values = _event(tree, "alarm", None, step, text, alarm.checkpoint_id)
    return SinkRow(f"alarm {alarm.id} {level}", values | {"alarm": alarm.name, "level": level})


def _event(
    tree: Tree, kind: str, at: float | None, step: int, text: str, id_: str | None
) -> dict[str, Cell]:
    node = tree.node(tree.find(id_))
    values = {"event": kind, "text": text, "at": at, STEP: step}
    return {**values, "checkpoint": node.name if node else None, "checkpoint_id": id_}


def _evaluation(of: Evaluation, name: str, checkpoint_id: str | None, step: int) -> SinkRow:
    values: dict[str, Cell] = {STEP: step, "checkpoint": name, "checkpoint_id": checkpoint_id}
    values |= _estimates(of, f"eval/{of.split}/")
    return SinkRow(f"eval {of.id or (of.job_id, of.split, checkpoint_id)}", values)


def _estimates(of: Evaluation, prefix: str) -> dict[str, Cell]:
    """Mean reward and pass@k with their 95 % intervals, and what they are of."""
    estimates = {"mean_reward": of.estimate}
    estimates |= {f"pass@{k}": estimate for k, estimate in of.pass_at.items()}
    values: dict[str, Cell] = {}
    for name, estimate in estimates.items():
        values[f"{prefix}{name}"] = estimate.value
        values[f"{prefix}{name}_low"] = estimate.low
        values[f"{prefix}{name}_high"] = estimate.high
    return values | {f"{prefix}tasks": of.num_tasks, f"{prefix}rollouts": of.num_traces}


def _is_of(sheet: Sheet, row: Sequence[Cell], ids: set[str], job_id: str) -> bool:
    cells = dict(zip(sheet.columns, row, strict=True))
    return cells["checkpoint_id"] in ids or cells["job_id"] == job_id


def _task(group: Group) -> Sequence[Cell]:
    stats = group_stats(group.rewards)
    rewards = " ".join(map(repr, group.rewards))
    return group.task_slug, stats.size, stats.mean, stats.std, rewards


def _end_record(work: WorkState) -> str:
    """One that was resumed ends again."""
    return f"end {work.status} {work.finished_at!r}"


def _end(work: WorkState) -> dict[str, Cell]:
    why = one_line(reason(work), TEXT_MOST) or None
    end: dict[str, Cell] = {"status": work.status, "reason": why}
    if not work.is_evaluation:
        end |= {"steps_taken": work.step, "trained_tokens": work.trained_tokens}
    return end
