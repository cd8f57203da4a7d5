"""Runs to look at: deterministic, made of the wire's own values, as a feed folds them."""

from datetime import UTC, datetime
from functools import cache
from math import cos, exp, nan, sin

from hud_tui.events import CheckpointAdded, HeadMoved, RolloutDone, StepTaken, TreeRead, WorkChanged
from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Model, WorkState

START = 1_780_000_000.0
"""When the runs begin, Unix seconds."""
STEP_S = 0.8
MODEL = Model(id="m1", model_name="me/arith-rl", is_trainable=True)
WORDS = ("add", "count", "mul", "reverse", "sub", "upper")


def noise(seed: int) -> float:
    """A number in [−1, 1] that looks random and never changes."""
    return ((seed * 7919 + 104_729) * 48_271 % 2_147_483_647) / 1_073_741_823.5 - 1


def reward(step: int) -> float:
    """A mean reward that rises from .3 towards .9."""
    return 0.9 - 0.6 * exp(-step / 25) + 0.04 * noise(step)


def metrics(step: int) -> dict[str, float]:
    """The metrics of a step of the embedded service."""
    fall = exp(-step / 60)
    found = {
        "loss:sum": -3 * noise(step + 7),
        "reward_mean": reward(step),
        "reward_std": 0.2 + 0.2 * fall + 0.02 * noise(step + 1),
        "kl_sample_train": 0.002 + 0.001 * abs(noise(step + 2)),
        "ratio_max": 1.2 + 0.1 * noise(step + 3),
        "clip_fraction": 0.05 + 0.04 * abs(noise(step + 4)),
        "entropy": 0.3 + fall + 0.05 * noise(step + 5),
        "grad_norm": 0.8 + 0.4 * abs(noise(step + 6)),
        "learning_rate": 3e-4,
        "frac_reward_zero_std": max(0.0, 0.4 - 0.3 * fall + 0.1 * noise(step + 8)),
        "completion_length_mean": 6 + 2 * sin(step / 40),
        "truncated_share": 0.02 * fall,
        "tokens_per_s": 41_000 + 3000 * noise(step + 9),
        "custom/format_bonus": 0.1 * (1 + cos(step / 30)),
    }
    if step % 5 == 0:
        found["heldout_reward"] = reward(step) - 0.05
    return found


def rewards(step: int, task: int, size: int) -> list[float]:
    """A group's rewards: some tasks never taught, some always, most in between."""
    if task % 6 == 2:
        return [0.0] * size
    if task % 6 == 5 and step > 3:
        return [1.0] * size
    level = reward(step) - 0.1 * (task % 6)
    raw = [level + 0.4 * noise(step * 1000 + task * 50 + j) for j in range(size)]
    return [min(1.0, max(0.0, round(value * 8) / 8)) for value in raw]


def slug(task: int) -> str:
    return f"{WORDS[task % 6]}-{task:02d}"


def groups(step: int, tasks: int, size: int = 8) -> list[Group]:
    return [
        Group(
            task_slug=slug(task),
            rewards=rewards(step, task, size),
            trace_ids=[f"{step}/{task}/{rollout}" for rollout in range(size)],
            num_tokens=[3 + (step + task + rollout) % 5 for rollout in range(size)],
        )
        for task in range(tasks)
    ]


@cache
def checkpoints(steps: int, tasks: int = 12, grouped: int = 120) -> tuple[Checkpoint, ...]:
    """A chain of checkpoints; the newest `grouped` of them carry their groups."""
    return tuple(
        Checkpoint(
            id=f"c{step}",
            name=f"step-{step:06d}",
            prev_model_checkpoint_id=f"c{step - 1}" if step > 1 else None,
            is_active=step == steps,
            created_at=datetime.fromtimestamp(START + step * STEP_S, UTC).isoformat(),
            mean_reward=reward(step),
            num_tokens=900,
            num_traces=tasks * 8,
            metrics=metrics(step),
            learning_rate=3e-4,
            loss_fn="importance_sampling",
            step=step,
            groups=groups(step, tasks) if step > steps - grouped else [],
        )
        for step in range(1, steps + 1)
    )


def job(step: int, steps: int, status: str = "running") -> WorkState:
    return WorkState(
        status=status,
        id="7f3a52c1-9d",
        name="mixed on arith-rl",
        model_id="m1",
        step=step,
        steps=steps,
        parameters={"group_size": 8, "tasks_per_step": 12},
    )


def run_of(steps: int, of: int = 400, tasks: int = 12, status: str = "running") -> Run:
    """A run after `steps` of `of` steps, with its newest steps in the log."""
    nodes = checkpoints(steps, tasks)
    run = Run(model=MODEL).fold(TreeRead(checkpoints=nodes))
    run = run.fold(WorkChanged(work=job(steps, of, status), at=START))
    for node in nodes[-6:]:
        run = run.fold(taken(node))
    return run


def taken(node: Checkpoint) -> StepTaken:
    step = node.step or 0
    return StepTaken(
        at=START + step * STEP_S,
        step=step,
        checkpoint_id=node.id,
        metrics=node.metrics,
        groups=node.groups,
    )


def sampling(run: Run, arrived: int, tasks: int = 12) -> Run:
    """The run with the first `arrived` rollouts of the step to come."""
    step = (run.job.step if run.job is not None else None) or 0
    for number in range(arrived):
        task, rollout = divmod(number, 8)
        event = RolloutDone(
            trace_id=f"{step + 1}/{task}/{rollout}",
            step=step + 1,
            task_slug=slug(task),
            rollout=rollout,
            reward=rewards(step + 1, task % tasks, 8)[rollout],
        )
        run = run.fold(event)
    return run


def with_metrics(columns: dict[str, list[float]]) -> Run:
    """A finished run with just these metrics; NaN where a step lacks one."""
    steps = max(map(len, columns.values()))
    nodes = tuple(
        Checkpoint(
            id=f"c{step}",
            name=f"step-{step + 1:06d}",
            prev_model_checkpoint_id=f"c{step - 1}" if step else None,
            is_active=step == steps - 1,
            metrics={key: values[step] for key, values in columns.items()},
        )
        for step in range(steps)
    )
    return Run(model=MODEL).fold(TreeRead(checkpoints=nodes))


def odd_metrics(steps: int = 80) -> Run:
    """Metrics that trip charts up: gaps, constants, huge and tiny, hostile names."""
    wave = [0.5 + 0.4 * sin(step / 7) for step in range(steps)]
    return with_metrics(
        {
            "reward_mean": [nan if 30 <= n < 40 or n == 60 else v for n, v in enumerate(wave)],
            "constant": [0.7] * steps,
            "zero": [0.0] * steps,
            "huge": [1e300 * (value - 0.5) for value in wave],
            "tiny": [1e-12 * value for value in wave],
            "never": [nan] * steps,
            "rare": [value if n % 9 == 0 else nan for n, value in enumerate(wave)],
            "one spike": [1e6 if n == 50 else 0.1 for n in range(steps)],
            "on a hill": [1e9 + value for value in wave],
            "[bold red]not[/x] \x1b[31mred": wave,
            "ein sehr langer Name für eine Metrik, 和中文": wave,
            "infinite": [float("inf") if n % 20 == 3 else value for n, value in enumerate(wave)],
        }
    )


def branched(steps: int, back: int, more: int) -> Run:
    """A run that was rolled back to its step `back`, and took another way from there."""
    run = run_of(steps)
    run = run.fold(HeadMoved(checkpoint_id=f"c{back}", cause="set"))
    nodes = checkpoints(steps + more)[steps:]
    for place, node in enumerate(nodes):
        low = {"reward_mean": 0.8 * node.metrics["reward_mean"] - 0.1}
        own = {"metrics": {**node.metrics, **low}, "is_active": True}
        if not place:
            own["prev_model_checkpoint_id"] = f"c{back}"
        run = run.fold(CheckpointAdded(checkpoint=node.model_copy(update=own)))
    return run.fold(WorkChanged(work=job(steps + more, 400), at=START + steps * STEP_S))


def alarm(step: int = 4, **more: object) -> Alarm:
    """An alarm that began with this step."""
    values = {
        "name": "grad_norm",
        "title": "gradient norm",
        "level": Level.WARN,
        "active": True,
        "row": step - 1,
        "onset": step,
        "checkpoint_id": f"c{step}",
        "before_id": f"c{step - 1}",
        "shown": step,
        "shown_id": f"c{step}",
        "raised": step,
        "ended": None,
        "evidence": (Evidence("gradient norm", 12.0, 3.0),),
        "meaning": "It is large.",
        "advice": "Make it smaller.",
    }
    return Alarm(**(values | more))


def evaluation(
    value: float, low: float | None = None, high: float | None = None, tasks: int = 48
) -> Evaluation:
    """Of four samples a task, with its 95 % interval."""
    mean = Estimate(value=value, low=low, high=high)
    return Evaluation(
        mean_reward=value, num_tasks=tasks, num_traces=4 * tasks, samples=4, mean=mean
    )
