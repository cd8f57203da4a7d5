"""Demo runs: a healthy run and one for each pathology, with deterministic noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, inf, nan, sin

from hud_tui.errors import HudUsage
from hud_tui.events import CheckpointAdded, Event, HeadMoved, StepTaken, TreeRead, WorkChanged
from hud_tui.rl.recording import Moment, Recording
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, Group, Model, WorkState

STEP_S = 2.0
"""Seconds per step."""
BEGAN = 1_780_000_000.0
"""Start of the runs, Unix seconds."""


def noise(seed: int) -> float:
    """Deterministic pseudo-random number in [−1, 1]."""
    mixed = (seed * 2_654_435_761 + 1_013_904_223) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_246_822_519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3_266_489_917) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) / 0x7FFFFFFF - 1


def after(step: int, onset: int, steps: float) -> float:
    """Progress of a change that begins at `onset`: from 0 towards 1 in about `steps`."""
    return 0.0 if step < onset else 1 - exp(-(step - onset + 1) / steps)


def learnt(step: int) -> float:
    """Mean reward of a healthy run: rises from .3 towards .8."""
    return 0.8 - 0.5 * exp(-step / 90)


def healthy(step: int) -> dict[str, float]:
    """Metrics of a step of a healthy run, from step 1; a held-out reward every fifth step."""
    reward = learnt(step) + 0.03 * noise(step)
    metrics = {
        "reward_mean": reward,
        "reward_std": 0.36 + 0.03 * noise(step + 11),
        "reward_min": 0.0,
        "reward_max": 1.0,
        "loss:sum": 3 * noise(step + 13),
        "kl_sample_train": 0.002 + 0.001 * noise(step + 17),
        "kl_reference": 0.02 + 0.06 * after(step, 0, 150) + 0.005 * noise(step + 19),
        "ratio_max": 1.3 + 0.2 * noise(step + 23),
        "clip_fraction": 0.08 + 0.03 * noise(step + 29),
        "entropy": 0.5 + 0.7 * exp(-step / 120) + 0.04 * noise(step + 31),
        "grad_norm": 0.8 + 0.25 * noise(step + 37),
        "learning_rate": 3e-4,
        "frac_reward_zero_std": 0.15 + 0.06 * noise(step + 41),
        "frac_groups_all_solved": 0.09 + 0.03 * noise(step + 43),
        "completion_length_mean": 60 + 6 * sin(step / 30) + 4 * noise(step + 47),
        "truncated_share": 0.01 + 0.01 * noise(step + 53),
        "staleness_mean": 1 + 0.5 * noise(step + 59),
        "errored_share": 0.01 + 0.01 * noise(step + 61),
        "reward/correct": 0.9 * reward + 0.05 * noise(step + 67),
        "reward/format": 0.1 + 0.004 * noise(step + 71),
        "rollout_s": 0.7 * STEP_S * (1 + 0.1 * noise(step + 73)),
        "train_s": 0.3 * STEP_S * (1 + 0.1 * noise(step + 79)),
        "wait_share": 0.06 + 0.02 * noise(step + 89),
        "num_traces": 96.0,
        "num_tokens": 5800.0,
    }
    zero_variance = metrics["frac_reward_zero_std"]
    metrics["frac_groups_all_failed"] = zero_variance - metrics["frac_groups_all_solved"]
    if step % 5 == 0:
        metrics["heldout_reward"] = learnt(step) - 0.04 + 0.02 * noise(step + 83)
    return metrics


def with_heldout(step: int, heldout: float, others: Mapping[str, float]) -> dict[str, float]:
    """`others`, plus a held-out reward at every fifth step."""
    return {**others, "heldout_reward": heldout} if step % 5 == 0 else dict(others)


# Pathologies: named failures. Each run is healthy until its onset, and then raises the alarms of
# the detectors that it lists. Its function gives the metrics in which it differs from a healthy
# run, by step from 1.


Curves = Callable[[int], Mapping[str, float]]


@dataclass(frozen=True)
class Pathology:
    """One named failure."""

    name: str
    about: str
    """Description in a sentence."""
    trips: tuple[str, ...]
    """Detectors that must raise an alarm; others may follow."""
    onset: int
    """The step at which it begins."""
    differs: Curves
    silent_from: int | None = None
    """The last step that sends anything; None if all do."""
    steps: int = 300

    def metrics(self, step: int) -> dict[str, float]:
        return healthy(step) | dict(self.differs(step))


PATHOLOGIES: dict[str, Pathology] = {}
"""By name, in the order in which they are listed."""


def pathology(
    onset: int, *trips: str, silent_from: int | None = None
) -> Callable[[Curves], Curves]:
    """Register the curves of a pathology; arguments as in `Pathology`. Users see the function's
    name and docstring."""

    def register(curves: Curves) -> Curves:
        name, about = curves.__name__.replace("_", "-"), curves.__doc__ or ""
        PATHOLOGIES[name] = Pathology(name, about, trips, onset, curves, silent_from)
        return curves

    return register


@pathology(150, "entropy_collapse")
def entropy_collapse(step: int) -> Mapping[str, float]:
    """Entropy collapses and the reward is flat."""
    if step < 150:
        return {}
    metrics = {"reward_mean": 0.66 + 0.03 * noise(step), "entropy": 0.7 * exp(-(step - 150) / 25)}
    return with_heldout(step, 0.62 + 0.02 * noise(step), metrics)


@pathology(120, "zero_variance")
def zero_variance(step: int) -> Mapping[str, float]:
    """More and more groups are never solved: zero variance, no gradient."""
    bad = 0.06 + 0.86 * after(step, 120, 20) + 0.02 * noise(step)
    return {"frac_reward_zero_std": bad + 0.05, "frac_groups_all_failed": bad}


@pathology(100, "zero_variance")
def saturation(step: int) -> Mapping[str, float]:
    """Nearly all groups are solved every time."""
    good = 0.09 + 0.85 * after(step, 100, 30) + 0.02 * noise(step)
    reward = min(1.0, learnt(step) + 0.22 * after(step, 100, 30))
    metrics = {
        "reward_mean": reward,
        "frac_reward_zero_std": good + 0.03,
        "frac_groups_all_solved": good,
        "frac_groups_all_failed": 0.03,
    }
    return with_heldout(step, reward - 0.04, metrics)


@pathology(140, "kl_reference")
def kl_blowup(step: int) -> Mapping[str, float]:
    """The KL to the reference blows up."""
    return {"kl_reference": 0.08 * exp(0.045 * max(0, step - 140)) + 0.005 * noise(step)}


@pathology(130, "kl_sampler", "staleness", "clip_fraction")
def off_policy(step: int) -> Mapping[str, float]:
    """Rollouts become stale, importance ratios drift, most tokens are clipped."""
    drift = after(step, 130, 30)
    return {
        "kl_sample_train": 0.002 + 0.09 * drift + 0.001 * noise(step),
        "ratio_max": 1.3 + 40 * drift,
        "clip_fraction": 0.08 + 0.4 * drift + 0.02 * noise(step),
        "staleness_mean": 1 + 10 * drift + 0.5 * noise(step),
    }


@pathology(110, "length_blow_up", "truncation")
def length_hack(step: int) -> Mapping[str, float]:
    """Rollouts grow because length is rewarded, until they are truncated."""
    paid = after(step, 110, 60)
    metrics = {
        "completion_length_mean": 60 + 240 * paid + 4 * noise(step),
        "truncated_share": 0.01 + 0.3 * after(step, 160, 40),
        "reward_mean": learnt(min(step, 110)) + 0.2 * paid + 0.01 * noise(step),
    }
    return with_heldout(step, learnt(min(step, 110)) - 0.04, metrics)


@pathology(130, "heldout_gap")
def reward_hacking(step: int) -> Mapping[str, float]:
    """The training reward rises while the held-out reward falls."""
    metrics = {"reward_mean": learnt(step) + 0.15 * after(step, 130, 40) + 0.02 * noise(step)}
    return with_heldout(step, learnt(step) - 0.04 - 0.45 * after(step, 130, 50), metrics)


@pathology(170, "grad_norm")
def gradient_explosion(step: int) -> Mapping[str, float]:
    """The gradient norm doubles every step or two, and the reward falls."""
    if step < 170:
        return {}
    size = 0.8 * exp(0.5 * min(40, step - 169))
    return {"grad_norm": size, "reward_mean": max(0.0, learnt(170) - 0.02 * (step - 170))}


@pathology(179, "non_finite", "grad_norm")
def nan_loss(step: int) -> Mapping[str, float]:
    """The loss becomes NaN."""
    if step < 180:
        return {"grad_norm": inf} if step == 179 else {}
    return {"loss:sum": nan, "grad_norm": nan, "entropy": nan, "kl_sample_train": nan}


@pathology(100, "zero_variance", "zero_gradient", "reward_collapse")
def dead_reward(step: int) -> Mapping[str, float]:
    """Every rollout gets 0 from one step on: the grader is broken."""
    if step < 100:
        return {}
    metrics = {"reward_mean": 0.0, "reward_std": 0.0, "reward_max": 0.0, "grad_norm": 0.0}
    groups = {"frac_reward_zero_std": 1.0, "frac_groups_all_failed": 1.0}
    return with_heldout(step, 0.0, metrics | groups | {"frac_groups_all_solved": 0.0})


@pathology(150, "heldout_collapse")
def forgetting(step: int) -> Mapping[str, float]:
    """The held-out reward collapses: the policy forgets."""
    return with_heldout(step, learnt(step) - 0.04 - 0.5 * after(step, 150, 40), {})


@pathology(180, "reward_collapse")
def reward_collapse(step: int) -> Mapping[str, float]:
    """The reward falls back to its initial level."""
    reward = learnt(step) - 0.55 * after(step, 180, 25)
    metrics = {"reward_mean": reward + 0.03 * noise(step)}
    return with_heldout(step, reward - 0.04, metrics)


@pathology(1, "component_dominance")
def format_dominates(step: int) -> Mapping[str, float]:
    """The format bonus makes up most of the reward's variance."""
    return {
        "reward/correct": 0.4 + 0.01 * noise(step),
        "reward/format": 0.3 + 0.2 * noise(step + 1),
    }


@pathology(140, "errored_rollouts")
def broken_environment(step: int) -> Mapping[str, float]:
    """Rollouts end in errors: the environment is broken."""
    return {"errored_share": 0.01 + 0.4 * after(step, 140, 15)}


@pathology(60, "reward_plateau")
def plateau(step: int) -> Mapping[str, float]:
    """The reward becomes flat early."""
    metrics = {
        "reward_mean": 0.5 - 0.2 * exp(-step / 20) + 0.02 * noise(step),
        "entropy": 1.2 - 0.0022 * step,
    }
    return with_heldout(step, 0.46 - 0.2 * exp(-step / 20), metrics)


@pathology(150, "throughput")
def slow_steps(step: int) -> Mapping[str, float]:
    """Steps take three times as long."""
    slower = 1 + 2.2 * after(step, 150, 20)
    return {"rollout_s": 0.7 * STEP_S * slower, "train_s": 0.3 * STEP_S}


@pathology(120, "waiting")
def waiting(step: int) -> Mapping[str, float]:
    """The engine's server has no room: most of a step is waiting."""
    share = 0.1 + 0.65 * after(step, 120, 10)
    return {"step_s": STEP_S, "wait_share": share, "wait/queue": share - 0.05}


@pathology(200, "stall", silent_from=200)
def stall(step: int) -> Mapping[str, float]:
    """A running job sends nothing any more."""
    return {}


HEALTHY = Pathology("healthy", "A healthy run.", (), 1, lambda step: {})


# A pathology as the events of a run, played like a recording.


TASKS, SIZE = 12, 8
"""Groups per step, and rollouts per group."""
HELDOUT_TASKS = 48
"""Held-out tasks, each rolled out once."""
MODEL = "demo"


def demo_names() -> list[str]:
    return [HEALTHY.name, *PATHOLOGIES]


def demo_list() -> str:
    """Every demo with its description, one per line."""
    demos = [HEALTHY, *PATHOLOGIES.values()]
    wide = max(len(demo.name) for demo in demos)
    return "\n".join(f"{demo.name:<{wide}}  {demo.about}" for demo in demos)


def demo(name: str, ended: float | None = None) -> Recording:
    """A pathology, or the healthy run, as a recording.

    Args:
        ended: Unix seconds of the last step; None for fixed times.

    Raises:
        HudUsage: There is no demo of this name.
    """
    pathology = HEALTHY if name == HEALTHY.name else PATHOLOGIES.get(name)
    if pathology is None:
        names = ", ".join(demo_names())
        raise HudUsage(f"--demo {one_line(name, 40)}: no such demo", f"one of {names}")
    began = BEGAN if ended is None else ended - pathology.steps * STEP_S
    model = Model(id=MODEL, model_name=f"demo/{name}", is_trainable=True, created_at=_iso(began))
    moments = [Moment(0.0, MODEL, TreeRead(checkpoints=()))]
    moments.append(Moment(0.0, MODEL, _job(pathology, 0, began)))
    last = pathology.silent_from or pathology.steps
    for step in range(1, last + 1):
        moments += [Moment(step * STEP_S, MODEL, event) for event in _step(pathology, step, began)]
    return Recording((model,), tuple(moments), began)


def _iso(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat()


def _step(pathology: Pathology, step: int, began: float) -> list[Event]:
    stamp, metrics = began + step * STEP_S, pathology.metrics(step)
    if "heldout_reward" in metrics:
        metrics = {**metrics, "num_heldout_traces": float(HELDOUT_TASKS)}
    good = round(TASKS * metrics["frac_groups_all_solved"])
    bad = round(TASKS * metrics["frac_groups_all_failed"])
    groups = [
        Group(task_slug=f"task-{task:02d}", rewards=_rewards(step, task, good, bad, metrics))
        for task in range(TASKS)
    ]
    node = Checkpoint(
        id=f"c{step}",
        name=f"step-{step:06d}",
        prev_model_checkpoint_id=f"c{step - 1}" if step > 1 else None,
        created_at=_iso(stamp),
        is_active=True,
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
        CheckpointAdded(at=stamp, checkpoint=node),
        HeadMoved(at=stamp, checkpoint_id=node.id, previous=previous, cause="step"),
        StepTaken(at=stamp, step=step, checkpoint_id=node.id, metrics=metrics, groups=groups),
        _job(pathology, step, began),
    ]


def _job(pathology: Pathology, step: int, began: float) -> WorkChanged:
    over = step >= pathology.steps and pathology.silent_from is None
    job = WorkState(
        status="succeeded" if over else "running",
        id=f"demo-{pathology.name}",
        name=pathology.about,
        model_id=MODEL,
        step=step,
        steps=pathology.steps,
        created_at=began,
        parameters={
            "steps": pathology.steps,
            "group_size": SIZE,
            "tasks_per_step": TASKS,
            "learning_rate": pathology.metrics(1)["learning_rate"],
        },
    )
    return WorkChanged(at=began + step * STEP_S, work=job)


def _rewards(step: int, task: int, good: int, bad: int, metrics: dict[str, float]) -> list[float]:
    if task < bad or task >= TASKS - good:
        return [0.0 if task < bad else 1.0] * SIZE
    solved = min(SIZE - 1, max(1, round(SIZE * metrics["reward_mean"] + noise(step + 97 * task))))
    return [1.0] * solved + [0.0] * (SIZE - solved)
