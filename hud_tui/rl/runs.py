"""The rows of the table of all runs, whichever model they trained and whoever took their steps.

A row is what a run was given (model, starting checkpoint, taskset, parameters) and its results
(reward, held-out reward, evaluation, alarms). Its columns are in `hud_tui.rl.run_columns`; what
differs between runs, and groups of them, are in `hud_tui.rl.sweep`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from statistics import fmean
from typing import Any

from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.metrics import finite, metrics_of
from hud_tui.rl.names import close_names, find_by_id, short_prefix
from hud_tui.rl.own_numbers import HELDOUT, REWARD, heldout_evaluation, heldout_rollouts_of
from hud_tui.rl.progress import Progress, is_stalled, pace
from hud_tui.rl.text import one_line, seconds
from hud_tui.rl.work import LOOP, TRAINING, Work, is_active
from hud_tui.wire import Checkpoint, Evaluation, Job, JobStatus, Model
from hud_tui.wire_runs import RunRecord


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
    step_s: float | None = None
    """Median seconds between its newest steps."""
    waits: bool = False
    """Whether the engine's server holds it up."""
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
        return self.kind != TRAINING

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return is_active(self.status)

    @property
    def work(self) -> Work:
        """Its state, as of any work."""
        kind, title = LOOP if self.outside else TRAINING, one_line(self.title, 60)
        return Work(self.id, kind, title, self.status, self.model_id, self.step, self.steps)

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step; None if it has ended or waits, or that is unknown."""
        if not self.active or self.waits:
            return None
        return Progress(self.step, self.steps, self.step_s).eta_s

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
        step_s=finite(record.step_s),
        waits=bool(record.waits),
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
        model_id=(model.id if model is not None else None) or Work.of(job).model_id or "",
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
        step_s=finite(status.step_s),
        waits=bool(status.waits),
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
        step_s=pace([node.created_at for node in steps]),
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
