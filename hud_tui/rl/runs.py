"""The rows of the table of all runs, whichever model they trained and whoever took their steps.

A row is what a run was given (model, starting checkpoint, taskset, parameters) and its results
(reward, held-out reward, evaluation, alarms). Its columns are in `hud_tui.rl.run_columns`; what
differs between runs, and groups of them, are in `hud_tui.rl.sweep`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.groups import rollouts_of
from hud_tui.rl.metrics import finite, flat_share, metrics_of
from hud_tui.rl.names import close_names, find_by_id, short_prefix
from hud_tui.rl.own_numbers import HELDOUT, REWARD, heldout_evaluation, heldout_rollouts_of
from hud_tui.rl.progress import Progress, is_stalled, pace
from hud_tui.rl.text import one_line, seconds
from hud_tui.rl.work import TRAINING, Work, whole
from hud_tui.wire import Checkpoint, Job, Model, WorkState

if TYPE_CHECKING:
    from hud_tui.wire_runs import RunRecord


def eta_s(run: Work) -> float | None:
    """Seconds until its last step; None if it has ended or waits, or that is unknown."""
    if not run.is_active or run.waits:
        return None
    return Progress(run.step or 0, run.steps, run.step_s).eta_s


def silent_s(run: Work, now: float) -> float | None:
    """Seconds since the newest step of an active loop outside the service, if a step is overdue;
    else None. Nobody reports that such a loop was killed.

    Args:
        now: Unix seconds.
    """
    if not run.is_active or not run.is_loop or not run.stepped_at:
        return None
    silent = now - run.stepped_at
    return silent if is_stalled(silent, run.step_s) else None


def left_s(run: Work, now: float) -> float | None:
    """As `eta_s`; None while a step is overdue."""
    return None if silent_s(run, now) is not None else eta_s(run)


def _text(text: object, limit: int) -> str:
    """`one_line` of a text, or of anything else that a service sends in its place."""
    return _shared_text(text, limit) if isinstance(text, str) else one_line(text or "", limit)


@lru_cache(4096)
def _shared_text(text: str, limit: int) -> str:
    """`one_line`, cached: many runs share these texts."""
    return one_line(text, limit)


def run_of(record: RunRecord, notes: Mapping[str, str] | None = None) -> Work:
    """A run from the embedded service's record."""
    asked = _asked(record.parameters or {})
    if asked["lr"] is None:
        asked["lr"] = finite(record.learning_rate)
    return replace(
        Work.of(record),
        name=_text(record.name, 200),
        model=_text(record.model or record.model_id, 100),
        taskset=_text(record.taskset, 100),
        start=_text(record.start or record.forked_from or record.base, 100),
        engine=_text(record.engine, 20),
        reward_first=finite(record.reward_first),
        reward=finite(record.reward_last),
        points=tuple(record.points),
        heldout=finite(record.heldout),
        heldout_rollouts=record.num_heldout_traces,
        evaluation=record.evaluation,
        no_gradient=finite(record.no_gradient),
        alarms=record.alarms,
        alarm=_text(record.alarm, 20),
        alarm_title=_text(record.alarm_title, 60),
        tokens=record.tokens,
        duration_s=finite(record.busy_s),
        stepped_at=record.stepped_at,
        note=(notes or {}).get(record.id, ""),
        **(asked | {"loss": _text(record.loss_fn, 40) or asked["loss"]}),
    )


def _asked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run that its parameters say."""
    flat = {k: value for k, value in parameters.items() if value is not None and k != "sweep"}
    config = flat.pop("loss_fn_config", None)
    if isinstance(config, Mapping):  # the loss's own parameters become entries of their own
        flat |= {f"loss_fn_config.{key}": value for key, value in config.items()}
    return {
        "sweep": _text(parameters.get("sweep"), 100),
        "parameters": flat,
        "loss": _text(flat.get("loss_fn"), 40),
        "lr": _rate(flat.get("learning_rate")),
        "group_size": whole(flat.get("group_size")),
        "seed": whole(flat.get("seed")),
    }


ENDS = 5
"""Number of steps averaged for a run's reward at its beginning and at its end."""
MOST_POINTS = 32


def steps_at_ends(steps: int) -> int:
    """Number of steps averaged at each end of a run: ENDS, or half of the steps of a shorter
    run."""
    return min(ENDS, max(1, steps // 2))


def run_of_job(
    job: Job,
    model: Model | None,
    status: WorkState | None = None,
    steps: Sequence[Checkpoint] | None = None,
    parent: Checkpoint | None = None,
) -> Work:
    """A run on a service without a list of runs, such as HUD's.

    Args:
        status: Its raw status, if it was read.
        steps: The checkpoints that it made, oldest first; None if they were not read.
        parent: The checkpoint that the first of them was made from.
    """
    status, metadata = status or WorkState(status=""), job.metadata or {}
    row = Work.of(job)
    asked = _asked(status.parameters or {})
    run = replace(
        row,
        name=_text(job.name, 200),
        kind=_text(metadata.get("kind") or TRAINING, 20),
        model_id=row.model_id or "",
        model=_text(metadata.get("model"), 100),
        done=whole(metadata.get("step")) or status.step or 0,
        total=whole(metadata.get("steps")) or status.steps,
        taskset=_text(job.taskset_name, 100),
        tokens=status.trained_tokens or 0,
        step_s=finite(status.step_s),
        waits=bool(status.waits),
        created_at=seconds(job.created_at),
        whole=False,
        **(asked | {"group_size": asked["group_size"] or job.group_size}),
    )
    if model is not None:
        run = replace(
            run,
            model_id=model.id or run.model_id,
            model=_text(model.model_name, 100),
            start=_text(model.forked_from, 100),
            engine=_text(model.engine.engine, 20) if model.engine else "",
        )
    return run if steps is None else _with_steps(run, steps, parent)


def _with_steps(run: Work, steps: Sequence[Checkpoint], parent: Checkpoint | None) -> Work:
    if not steps:
        return replace(run, whole=True)
    newest = steps[-1]
    times = [stamp for node in steps if (stamp := seconds(node.created_at)) is not None]
    if times:
        run = replace(
            run, duration_s=times[-1] - (run.created_at or times[0]), stepped_at=times[-1]
        )
    if parent is not None:
        run = replace(run, start=_text(parent.name or parent.id, 100))
    return replace(
        run,
        whole=True,
        loss=_text(newest.loss_fn or run.loss, 40),
        lr=run.lr if run.lr is not None else newest.learning_rate,
        done=max(run.done or 0, len(steps)),
        tokens=sum(node.num_tokens or 0 for node in steps) or run.tokens,
        step_s=pace([node.created_at for node in steps]),
        no_gradient=_no_gradient(steps),
        **_rewards(steps),
        **_heldout(steps),
    )


def _rewards(steps: Sequence[Checkpoint]) -> dict[str, Any]:
    """The fields of a run that its steps' rewards say."""
    rewards = [r for node in steps if (r := _metric(node, REWARD)) is not None]
    if not rewards:
        return {}
    ends = steps_at_ends(len(rewards))
    first, last = fmean(rewards[:ends]), fmean(rewards[-ends:])
    return {"reward_first": first, "reward": last, "points": tuple(thinned(rewards))}


def _heldout(steps: Sequence[Checkpoint]) -> dict[str, Any]:
    """Held-out reward of the newest evaluated checkpoint, else as reported by the newest step."""
    for node in reversed(steps):
        if (evaluation := heldout_evaluation(node.evaluations)) is not None:
            return {
                "heldout": evaluation.mean_reward,
                "heldout_rollouts": evaluation.num_traces,
                "evaluation": evaluation,
            }
    for node in reversed(steps):
        if (reward := _metric(node, HELDOUT)) is not None:
            return {"heldout": reward, "heldout_rollouts": heldout_rollouts_of(node) or None}
    return {}


def _no_gradient(steps: Sequence[Checkpoint]) -> float | None:
    """Share of the rollouts without gradient; None if the newest step does not say."""
    if not steps[-1].groups and flat_share(metrics_of(steps[-1])) is None:
        return None
    counted = [rollouts_of(node, node.groups) for node in steps]
    rollouts = sum(of_step for of_step, _ in counted)
    return sum(idle for _, idle in counted) / rollouts if rollouts else None


def _metric(node: Checkpoint, key: str) -> float | None:
    return finite(metrics_of(node).get(key))


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most `most` means, each over the same number of neighbouring values, in order."""
    stride = max(1, -(-len(values) // most))
    return [fmean(values[start : start + stride]) for start in range(0, len(values), stride)]


def _rate(value: object) -> float | None:
    with suppress(OverflowError):
        return finite(float(value)) if isinstance(value, int | float) else None
    return None


def find_run(name: str, rows: Sequence[Work]) -> Work:
    """A run by id, by name, or by a prefix of its id; a model's name finds its newest run.

    Args:
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
        texts = {text: None for row in rows for text in (row.name, row.model) if text}
        hint = short_prefix(name, rows) or close_names(name, texts)
        raise HudUsage(unknown.message, hint) from None
