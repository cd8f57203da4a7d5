"""Demo: a pathology as the events of a run, to be played like a recording."""

from datetime import UTC, datetime

from hud_tui.errors import HudUsage
from hud_tui.events import CheckpointAdded, Event, HeadMoved, JobChanged, StepTaken, TreeRead
from hud_tui.rl.alarms.curves import STEP_S, noise
from hud_tui.rl.alarms.pathologies import BEGAN, HEALTHY, PATHOLOGIES, Pathology
from hud_tui.rl.recording import Moment, Recording
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, Group, JobStatus, Model

TASKS, SIZE = 12, 8
"""Groups of a step, and rollouts of a group."""
MODEL = "demo"


def demo_names() -> list[str]:
    return [HEALTHY.name, *PATHOLOGIES]


def demo(name: str, ended: float | None = None) -> Recording:
    """The run that goes wrong in this way.

    Args:
        name: One of `demo_names`.
        ended: Unix seconds at which all its steps are over; None dates it the same every time.

    Raises:
        HudUsage: There is no such way.
    """
    pathology = HEALTHY if name == HEALTHY.name else PATHOLOGIES.get(name)
    if pathology is None:
        names = ", ".join(demo_names())
        raise HudUsage(f"--demo {one_line(name, 40)}: there is no such demo", f"one of {names}")
    began = BEGAN if ended is None else ended - pathology.steps * STEP_S
    model = Model(id=MODEL, model_name=f"demo/{name}", is_trainable=True, created_at=_iso(began))
    moments = [Moment(0.0, MODEL, TreeRead(checkpoints=()))]
    moments.append(Moment(0.0, MODEL, _job(pathology, 0, began)))
    last = pathology.silent_from or pathology.steps
    for step in range(1, last + 1):
        moments += [Moment(step * STEP_S, MODEL, one) for one in _step(pathology, step, began)]
    return Recording((model,), tuple(moments), began)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _step(pathology: Pathology, step: int, began: float) -> list[Event]:
    at, metrics = began + step * STEP_S, pathology.metrics(step)
    groups = _groups(step, metrics)
    node = Checkpoint(
        id=f"c{step}",
        name=f"step-{step:06d}",
        prev_model_checkpoint_id=f"c{step - 1}" if step > 1 else None,
        created_at=_iso(at),
        num_traces=TASKS * SIZE,
        num_tokens=int(metrics["num_tokens"]),
        learning_rate=metrics["learning_rate"],
        mean_reward=metrics["reward_mean"],
        loss_fn="importance_sampling",
        metrics=metrics,
        step=step,
        groups=groups,
    )
    previous = node.prev_model_checkpoint_id
    return [
        CheckpointAdded(at=at, checkpoint=node),
        HeadMoved(at=at, checkpoint_id=node.id, previous=previous, cause="step"),
        StepTaken(at=at, step=step, checkpoint_id=node.id, metrics=metrics, groups=groups),
        _job(pathology, step, began),
    ]


def _job(pathology: Pathology, step: int, began: float) -> JobChanged:
    over = step >= pathology.steps and pathology.silent_from is None
    job = JobStatus(
        status="succeeded" if over else "running",
        id=f"demo-{pathology.name}",
        name=pathology.about,
        model_id=MODEL,
        step=step,
        steps=pathology.steps,
        created_at=began,
        parameters={"group_size": SIZE, "tasks_per_step": TASKS},
    )
    return JobChanged(at=began + step * STEP_S, job=job)


def _groups(step: int, metrics: dict[str, float]) -> list[Group]:
    """Groups whose shares without spread are about those of the metrics."""
    good = round(TASKS * metrics["frac_groups_all_good"])
    bad = round(TASKS * metrics["frac_groups_all_bad"])
    return [
        Group(task_slug=f"task-{task:02d}", rewards=_rewards(step, task, good, bad, metrics))
        for task in range(TASKS)
    ]


def _rewards(step: int, task: int, good: int, bad: int, metrics: dict[str, float]) -> list[float]:
    if task < bad or task >= TASKS - good:
        return [0.0 if task < bad else 1.0] * SIZE
    solved = min(SIZE - 1, max(1, round(SIZE * metrics["reward_mean"] + noise(step + 97 * task))))
    return [1.0] * solved + [0.0] * (SIZE - solved)
