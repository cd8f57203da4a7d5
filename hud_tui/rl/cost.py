"""What a planned run samples and trains on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hud_tui.parameters import USUAL
from hud_tui.rl.settings import Value, defaults, max_tokens
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import counted, dollars, spaced
from hud_tui.wire import Model, TokenPrices


@dataclass(frozen=True)
class Prices:
    """What a run is charged, as far as that is known."""

    tokens: TokenPrices | None = None
    """Of the server of its weights."""
    hourly: float = 0.0
    """US dollars per hour of the rented machine in use; 0: none is."""

    def machine(self, seconds: float) -> float:
        """US dollars of the machine for so long."""
        return self.hourly * seconds / 3600

    def machine_text(self, seconds: float) -> str:
        """E.g. ``about $0.40 at $4.20 per hour``; empty if no machine is rented."""
        if not self.hourly:
            return ""
        return f"about {dollars(self.machine(seconds))} at {dollars(self.hourly)} per hour"


UNPRICED = Prices()


@dataclass(frozen=True)
class Cost:
    """Cost of a planned run."""

    rollouts: int
    """Training rollouts over all steps; held-out ones not included."""
    seconds: float | None
    """None if no comparable run is known."""
    sampling: bool = False
    """Whether `seconds` covers only sampling, without training."""
    basis: str = ""
    """Name of the run that `seconds` goes by; empty if measured on the model's own tasks."""


def cost(
    values: Mapping[str, Value],
    tasks: Sequence[Task],
    step_s: float | None = None,
    rollout_s: float | None = None,
) -> Cost | None:
    """The cost of a run; None if the service decides its size.

    Args:
        step_s: Seconds per step of a comparable run; None if there was none.
        rollout_s: Measured seconds per rollout of these tasks; used without `step_s`.
    """
    steps, group, wide = (values.get(key) for key in ("steps", "group_size", "tasks_per_step"))
    if not (isinstance(steps, int) and isinstance(group, int) and isinstance(wide, int)):
        return None
    a_step = group * min(wide, sum(not task.heldout for task in tasks))
    rollouts = -(-steps // _whole(values, "substeps")) * a_step
    if step_s is not None:
        return Cost(rollouts, steps * step_s)
    return Cost(rollouts, None if rollout_s is None else rollouts * rollout_s, sampling=True)


@dataclass(frozen=True)
class RunSize:
    """What a planned run samples and trains on, at most."""

    steps: int
    rollouts: int
    """Training rollouts."""
    heldout: int
    """Rollouts on held-out tasks that steps report."""
    heldout_every: int
    """Steps from one such report to the next."""
    evaluations: int
    """Number of evaluations of its checkpoints: periodically, and at the end."""
    evaluation: int
    """Rollouts per evaluation."""
    baseline: int
    """Rollouts of the evaluation before the first step; 0 without one."""
    max_tokens: int | None
    """Maximum tokens of one answer; None if the service decides."""

    @property
    def sampled(self) -> int:
        """All rollouts, including held-out ones and evaluations."""
        return self.rollouts + self.heldout + self.evaluated

    def dollars(self, prices: TokenPrices, prompt: float, sampled: float) -> float:
        """US dollars if each rollout has so many tokens; held-out ones and evaluations are only
        sampled."""
        apart = self.sampled - self.rollouts
        trained = prices.cost(prompt * self.rollouts, sampled * self.rollouts)
        return trained + prices.sampling(prompt * apart, sampled * apart)

    @property
    def evaluated(self) -> int:
        """Rollouts of all evaluations, including the baseline."""
        return self.evaluations * self.evaluation + self.baseline


def run_size(model: Model, requested: Mapping[str, Value], tasks: Sequence[Task]) -> RunSize | None:
    """The size of a run on the embedded service; None if the service decides it.

    Args:
        model: The trained model, whose own defaults count.
        requested: Parameters by wire name, as sent.
    """
    values = {**(defaults(model) if model.training_defaults is not None else {}), **requested}
    size, steps = cost(values, tasks), values.get("steps")
    if size is None or not isinstance(steps, int):
        return None
    held, last = sum(task.heldout for task in tasks), steps - 1
    every, apart = _whole(values, "eval_every", steps), _whole(values, "heldout_every")
    once = held * _whole(values, "eval_samples")
    return RunSize(
        steps=steps,
        rollouts=size.rollouts,
        heldout=held * (last // apart + 1 + (last % apart > 0)),
        heldout_every=apart,
        evaluations=(last // every + 1) if held else 0,
        evaluation=once,
        baseline=once if values.get("baseline") else 0,
        max_tokens=max_tokens(model, values),
    )


def tokens_text(sampled: int, trained: int, amount: float | None) -> str:
    """E.g. ``at most 640 sampled, 320 trained, $0.40; plus prompts``. `amount`: US dollars."""
    cost = "" if amount is None else f", {dollars(amount)}"
    return f"at most {spaced(sampled)} sampled, {spaced(trained)} trained{cost}; plus prompts"


def _whole(values: Mapping[str, Value], key: str, usual: int | None = None) -> int:
    """A parameter that is an integer of at least 1, or its default."""
    value = values.get(key)
    if value is None:
        value = USUAL[key] if usual is None else usual
    return max(1, int(str(value)))


EVALUATES = ("eval_every", "eval_samples", "baseline")
"""Parameters that `evaluation_facts` tells."""


def evaluation_facts(
    size: RunSize, requested: Mapping[str, Value], held: int
) -> list[tuple[str, str]]:
    """Labels and texts about the evaluations of a run; empty without held-out tasks."""
    if not held:
        return []
    tasks = f"{counted(held, 'task')} × {size.evaluation // held}"
    of = f"{tasks} = {counted(size.evaluation, 'rollout')}"
    every, times = requested.get("eval_every"), size.evaluations
    often = f", at the end and every {every} steps: {times} times" if every else ", at the end"
    first = f"{of}, before the first step" if size.baseline else "no"
    return [("evaluation", of + often), ("baseline", first)]
