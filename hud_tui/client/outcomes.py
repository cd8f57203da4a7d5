"""Outcomes of rollouts that a service has: those just made, and those it has on record."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from hud_tui.errors import HudError, HudUnauthorized
from hud_tui.rl.signal import Outcome, TaskSignal
from hud_tui.rl.tasks import Task
from hud_tui.wire import Model, Trace

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

JOBS = 20
"""The newest jobs of a taskset that are looked at."""


async def recorded(
    client: "HudClient", taskset_id: str, model: Model, tasks: Sequence[Task]
) -> dict[str, TaskSignal]:
    """What a model's rollouts of a taskset came to before, by slug; empty where none is known.

    They are of whatever head the model had then, which the traces do not say.

    Raises:
        HudUnauthorized: The key may not.
    """
    known = {task.slug: task for task in tasks}
    found: dict[str, list[Trace]] = {}
    try:
        for job in await client.jobs(JOBS, taskset_id):
            for trace in await client.job_traces(job.id):
                if trace.task_slug in known and _is_of(trace, model):
                    found.setdefault(trace.task_slug, []).append(trace)
    except HudUnauthorized:
        raise
    except HudError:
        return {}  # they are an extra
    return {slug: _signal(known[slug], traces) for slug, traces in found.items()}


def outcome_of(trace: Trace) -> Outcome:
    """A trace that has a reward, as the statistics take it."""
    assert trace.reward is not None
    return Outcome(
        reward=trace.reward,
        tokens=trace.num_tokens,
        seconds=_seconds(trace),
        truncated=trace.stop_reason == "length",
    )


def _is_of(trace: Trace, model: Model) -> bool:
    sampled_by = (trace.model_extra or {}).get("inference_llm_model_id")
    return sampled_by == model.id and trace.status == "completed" and trace.reward is not None


def _signal(task: Task, traces: Sequence[Trace]) -> TaskSignal:
    outcomes = tuple(outcome_of(trace) for trace in traces)
    at = max(trace.created_at or "" for trace in traces)
    return TaskSignal(task.slug, outcomes, task.where, basis="recorded", at=at)


def _seconds(trace: Trace) -> float | None:
    """How long it took; None where the service does not say when it ended."""
    ended = (trace.model_extra or {}).get("ended_at")
    try:
        start, end = (datetime.fromisoformat(str(at)) for at in (trace.created_at, ended))
        return max(0.0, (end - start).total_seconds())
    except (TypeError, ValueError):
        return None
