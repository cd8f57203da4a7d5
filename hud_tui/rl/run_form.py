"""What can be set on a managed run, what each may be, and what it costs in rollouts.

The limits are the wire's (`hud_tui.wire.JobParameters`), said in words before sending.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hud_tui.rl.tasks import Task
from hud_tui.wire import JobParameters, Model

Value = int | float | str | None
EFFORTS = ("default", "low", "medium", "high")
"""Words for reasoning_effort; the first leaves it to the service."""
DEFAULT = EFFORTS[0]
HUD_EFFORT = "medium"
"""What ``hud rl run`` sends where nobody says (hud 0.5); HUD publishes no default of its own."""
UNBOUNDED = 2**31 - 1
"""A limit that nobody meets, and that is not worth saying."""


@dataclass(frozen=True)
class NumberField:
    """A parameter that is a number."""

    key: str
    """Its wire name."""
    label: str
    low: float
    high: float
    whole: bool = True
    above: bool = False
    """Whether it must be above `low`, and not `low` itself."""

    @property
    def limits(self) -> str:
        """What it may be, in a few words."""
        if self.above:
            return f"> {self.low:g} to {self.high:g}"
        if self.high == UNBOUNDED:
            return f"from {self.low:.0f}"
        if not self.whole:
            return f"{self.low:g} to {self.high:g}"
        return f"{self.low:.0f} to {self.high:.0f}"

    def read(self, text: str) -> int | float:
        """The number that was typed.

        Raises:
            ValueError: Not a number, or out of the limits; the message is the limits.
        """
        try:
            value = int(text.replace(" ", "").replace("_", "")) if self.whole else float(text)
        except ValueError:
            raise ValueError(self.limits) from None
        enough = value > self.low if self.above else value >= self.low
        if not (enough and value <= self.high):  # neither holds of NaN
            raise ValueError(self.limits)
        return value


NUMBERS = (
    NumberField("steps", "steps", 1, 100_000),
    NumberField("group_size", "group size", 2, 256),
    NumberField("tasks_per_step", "tasks a step", 1, 1024),
    NumberField("learning_rate", "learning rate", 0, 1, whole=False, above=True),
    NumberField("temperature", "temperature", 0.01, 5, whole=False),
    NumberField("seed", "seed", 0, UNBOUNDED),
)


def defaults(model: Model) -> dict[str, Value]:
    """What a run on this model starts from; only what the service leaves to us."""
    given = model.training_defaults
    if given is None:
        return {"reasoning_effort": HUD_EFFORT}
    return {
        "steps": given.steps,
        "group_size": given.group_size,
        "tasks_per_step": given.tasks_per_step,
        "learning_rate": given.learning_rate,
        "temperature": 1.0,
        "seed": 0,
        "loss_fn": "importance_sampling",
        "reasoning_effort": DEFAULT,
    }


def beyond(model: Model, given: Mapping[str, Value]) -> dict[str, Value]:
    """Of what the command line gave: parameters of a run for which the form has no field."""
    known = JobParameters.model_fields.keys() - defaults(model).keys()
    return {key: value for key, value in given.items() if key in known}


def completed(model: Model, asked: JobParameters) -> JobParameters:
    """What is sent for these parameters: HUD is told an effort, as its own CLI does."""
    if model.training_defaults is not None or asked.reasoning_effort is not None:
        return asked
    return asked.model_copy(update={"reasoning_effort": HUD_EFFORT})


def parameters(values: Mapping[str, Value]) -> JobParameters:
    """The request's parameters from the form's values."""
    sent = {key: value for key, value in values.items() if value not in (None, DEFAULT)}
    return JobParameters.model_validate(sent)


def max_tokens(model: Model, values: Mapping[str, Value]) -> int | None:
    """Most tokens of one answer; None where the service decides, as by a reasoning effort."""
    given = values.get("max_tokens")
    if isinstance(given, int):
        return given
    own = model.training_defaults
    decided = values.get("reasoning_effort") not in (None, DEFAULT)
    return None if own is None or decided else own.max_tokens


def write(value: Value) -> str:
    """A value as it stands in its field."""
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Cost:
    """How much a run will do."""

    rollouts: int
    """Over all steps; held-out ones come on top."""
    seconds: float | None
    """None where nothing like it was run yet."""
    sampling: bool = False
    """Whether `seconds` are those of its rollouts alone, without training on them."""


def cost(
    values: Mapping[str, Value],
    tasks: Sequence[Task],
    step_s: float | None = None,
    rollout_s: float | None = None,
) -> Cost | None:
    """What a run costs; None where the service decides its size.

    Args:
        values: The form's.
        tasks: The taskset.
        step_s: Seconds per step of a run like it; None where there was none.
        rollout_s: Seconds per rollout of these tasks as they were tried, for want of `step_s`.
    """
    steps, group, wide = (values.get(key) for key in ("steps", "group_size", "tasks_per_step"))
    if not (isinstance(steps, int) and isinstance(group, int) and isinstance(wide, int)):
        return None
    a_step = group * min(wide, sum(not task.heldout for task in tasks))
    rollouts = steps * a_step
    if step_s is not None:
        return Cost(rollouts, steps * step_s)
    return Cost(rollouts, None if rollout_s is None else rollouts * rollout_s, sampling=True)
