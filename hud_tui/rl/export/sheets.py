"""The tables of each view: what is on the screen, all of it and in full precision."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hud_tui.rl.alarms.alarm import Alarm, Report
from hud_tui.rl.export.sheet import Cell, Sheet
from hud_tui.rl.groups import group_stats
from hud_tui.rl.metrics import ranked
from hud_tui.rl.own import NONE, Own
from hud_tui.rl.rollouts import RolloutGroup
from hud_tui.rl.run import Run
from hud_tui.rl.series import metrics_of
from hud_tui.rl.tree import Tree
from hud_tui.wire import Checkpoint, Job, Model

OWN = ("own_reward", "own_heldout_reward", "sampled")
"""What a checkpoint's own weights scored, and in how many training rollouts; the metrics
beside them are what its step reports."""
STEP = ("step", "checkpoint", "checkpoint_id", "created_at", *OWN)
NODE = (
    *("id", "name", "step", "parent_id", "depth", "is_head", "is_best", *OWN, "created_at"),
    *("loss_fn", "job_id", "state", "pinned", "note"),
)
GROUP = (
    *("step", "checkpoint_id", "task_slug", "rollouts", "mean", "spread", "teaches", "tokens"),
    *("rewards", "trace_ids"),
)
MODEL = (
    *("id", "model_name", "name", "is_trainable", "provider", "base_model", "forked_from"),
    *("created_at", "checkpoints", "head", "head_own_reward", "head_own_heldout_reward"),
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
    *("before_id", "evidence", "meaning", "advice"),
)


def metrics_sheet(run: Run, order: Sequence[str] = ()) -> Sheet:
    """Every metric of every step of the head's lineage, oldest first, and what the checkpoint
    that the step made scored.

    Args:
        run: The run.
        order: Keys of the metrics that come first.
    """
    keys = [key for key in order if key in run.series.keys]
    keys += ranked([key for key in run.series.keys if key not in keys])
    tree = run.tree
    rows = ((*_step(tree, at), *_metrics(tree[at], keys)) for at in tree.path(tree.head))
    return Sheet("metrics", (*STEP, *_columns(keys, STEP)), rows, _facts(run))


def tree_sheet(run: Run, notes: Mapping[str, str]) -> Sheet:
    """Every checkpoint of the tree, oldest first; `notes` are the user's, by id."""
    tree = run.tree
    keys = ranked(list(dict.fromkeys(key for node in tree for key in metrics_of(node))))
    rows = (
        (*_node(tree, position, notes), *_metrics(tree[position], keys))
        for position in range(len(tree))
    )
    return Sheet("checkpoints", (*NODE, *_columns(keys, NODE)), rows, _facts(run))


def groups_sheet(run: Run) -> Sheet:
    """Every group of the head's lineage, oldest first; rewards and trace ids between spaces."""
    return Sheet("groups", GROUP, _groups(run), _facts(run))


def alarms_sheet(run: Run) -> Sheet:
    """What the detectors said of the head's lineage, and of those that it has left."""
    report: Report = run.alarms
    rows = (_alarm(alarm) for alarm in (*report.alarms, *report.left))
    return Sheet("alarms", ALARM, rows, _facts(run))


def models_sheet(models: Iterable[Model], heads: Mapping[str, tuple[str, int, Own]]) -> Sheet:
    """The catalog; `heads` are name, steps and own numbers of the heads that are known, by id."""
    return Sheet("models", MODEL, (_model(model, heads.get(model.id)) for model in models))


def jobs_sheet(jobs: Iterable[Job]) -> Sheet:
    """Jobs, as they were listed."""
    return Sheet("jobs", JOB, map(_job, jobs))


def rollouts_sheet(groups: Iterable[RolloutGroup]) -> Sheet:
    """The rollouts of some groups, a row each."""
    return Sheet("rollouts", ROLLOUT, _rollouts(groups))


def _facts(run: Run) -> dict[str, Any]:
    model, head = run.model, run.head
    return {
        "model": None if model is None else model.model_name,
        "model_id": None if model is None else model.id,
        "head_id": None if head is None else head.id,
    }


def _columns(keys: Iterable[str], taken: Sequence[str]) -> list[str]:
    """Metrics under their own names, unless a column is called so."""
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


def _step(tree: Tree, position: int) -> tuple[Cell, ...]:
    node = tree[position]
    return node.step, node.name, node.id, node.created_at, *_own(tree, position)


def _own(tree: Tree, position: int) -> tuple[Cell, ...]:
    own = tree.own(position)
    return own.reward, own.heldout, own.sampled


def _node(tree: Tree, position: int, notes: Mapping[str, str]) -> tuple[Cell, ...]:
    node = tree[position]
    return (
        *(node.id, node.name, node.step, node.prev_model_checkpoint_id, tree.depth(position)),
        *(position == tree.head, position == tree.best, *_own(tree, position), node.created_at),
        *(node.loss_fn, node.job_id, node.state, node.pinned, notes.get(node.id)),
    )


def _groups(run: Run) -> Iterator[Sequence[Cell]]:
    for position in run.tree.path(run.tree.head):
        node = run.tree[position]
        for group in node.groups:
            if group.rewards:
                stats = group_stats(group.rewards)
                yield (
                    *(node.step, node.id, group.task_slug, stats.size, stats.mean, stats.spread),
                    *(stats.teaches, sum(group.num_tokens) if group.num_tokens else None),
                    " ".join(map(repr, group.rewards)),
                    " ".join(group.trace_ids),
                )


def _alarm(alarm: Alarm) -> tuple[Cell, ...]:
    return (
        *(alarm.name, str(alarm.level), alarm.active, alarm.onset, alarm.shown, alarm.raised),
        *(
            alarm.ended,
            alarm.checkpoint_id,
            alarm.before_id,
            alarm.said,
            alarm.meaning,
            alarm.advice,
        ),
    )


def _model(model: Model, head: tuple[str, int, Own] | None) -> tuple[Cell, ...]:
    name, steps, own = head or (None, model.checkpoint_count, NONE)
    provider = None if model.provider is None else model.provider.name
    return (
        *(model.id, model.model_name, model.name, model.is_trainable, provider),
        *(model.base_model, model.forked_from, model.created_at, steps, name),
        *(own.reward, own.heldout),
    )


def _job(job: Job) -> tuple[Cell, ...]:
    more = job.metadata or {}
    return (
        *(job.id, job.name, job.status, job.created_at, _said(more.get("model"))),
        *(job.taskset_name, _said(more.get("step")), _said(more.get("steps")), job.group_size),
        *(job.num_traces, _said(more.get("reason"))),
    )


def _rollouts(groups: Iterable[RolloutGroup]) -> Iterator[Sequence[Cell]]:
    for group in groups:
        for one in group.rollouts:
            trace = one.trace
            yield (
                *(trace.id, trace.job_id, trace.task_slug, trace.step, trace.attempt),
                *(trace.rollout, trace.heldout, trace.reward, one.advantage, trace.num_tokens),
                *(trace.status, trace.stop_reason, _said(trace.error), trace.completion),
            )


def _said(value: object) -> Cell:
    """A value that may be anything."""
    return value if isinstance(value, str | int | float | None) else str(value)
