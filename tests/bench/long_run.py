"""A run of a hundred thousand steps with twenty metrics, as a feed would have folded it."""

from collections.abc import Iterator
from math import sin

from hud_tui.events import JobChanged, TreeRead
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint
from tests.tui import runs

STEPS, METRICS = 100_000, 20


def values(step: int) -> dict[str, float]:
    """Twenty metrics of a step, noisy and all different."""
    noise = (step * 7919 + 13) % 1009 / 1009
    found = {f"own/{number}": noise * number + sin(step / 900) for number in range(METRICS - 2)}
    return {"reward_mean": 0.5 + 0.4 * noise, "entropy": 2 - noise, **found}


def nodes(groups: int = 0) -> Iterator[Checkpoint]:
    """The steps; copied, not validated: a bench need not wait for what it does not measure."""
    likes = runs.checkpoints(200, tasks=groups)
    for step in range(1, STEPS + 1):
        like = likes[step % len(likes)]
        own = {
            "id": f"c{step}",
            "name": f"step-{step:06}",
            "prev_model_checkpoint_id": f"c{step - 1}" if step > 1 else None,
            "is_active": step == STEPS,
            "step": step,
            "metrics": values(step),
            "mean_reward": None,
            "num_tokens": None,
            "num_traces": None,
        }
        yield like.model_copy(update=own)


def run() -> Run:
    """The run, half of its steps taken."""
    found = Run(model=runs.MODEL).fold(TreeRead(checkpoints=tuple(nodes(groups=12))))
    return found.fold(JobChanged(job=runs.job(STEPS, 2 * STEPS)))
