"""How far a run is, how long it still takes, and whether what we see of it is fresh."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise, takewhile
from statistics import median

from hud_tui.rl.run import Run
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import seconds, write_loss_config
from hud_tui.wire import Checkpoint, JobParameters, Model

RECENT = 20
"""Steps whose pace is the run's pace."""
ALIKE = ("group_size", "tasks_per_step")
"""Parameters that two runs of one pace have in common."""
STALL_FACTOR = 3.0
"""A run is stalled when it is silent this many times its usual step."""
STALL_FLOOR_S = 10.0
"""And at least this long."""
SILENT_S = 5.0
"""From so long without a word on, that is what is said."""
MB = 1_000_000
LARGE = 200_000
"""Bytes of a tree from which on it is said how much of it has come."""


@dataclass(frozen=True)
class Progress:
    """Where a managed run stands."""

    step: int
    steps: int | None
    step_s: float | None
    """Median seconds per step over the last RECENT; None before two steps, and while the run is
    held up: nobody knows for how long."""

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None where the number of steps is unknown."""
        return min(1.0, self.step / self.steps) if self.steps else None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step, at the recent pace."""
        if self.steps is None or self.step_s is None:
            return None
        return max(0, self.steps - self.step) * self.step_s


class State(StrEnum):
    """How much to trust what is on the screen."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALLED = "stalled"
    RECONNECTING = "reconnecting"


@dataclass(frozen=True)
class Liveness:
    """How fresh the screen is."""

    state: State
    source: str
    """``stream`` or ``poll``."""
    age_s: float | None
    """Since the service last said anything."""
    trouble: str = ""
    """Why it is reconnecting."""
    retry_s: float | None = None
    """Until the next attempt."""
    advice: str = ""
    """What it means and which key helps, where the service has been silent for long."""
    as_of: float | None = None
    """Unix seconds of the service's last word, where it has been silent for long."""
    reading: str = ""
    """How much of a large tree has come, while it comes."""
    behind_s: float = 0.0
    """How much older what comes is than what happens; 0 where that is nothing to speak of."""

    @property
    def offline(self) -> bool:
        """Whether what is shown is only what was known last."""
        return bool(self.advice)

    @property
    def arriving(self) -> str:
        """`reading`, as long as it goes on; empty where the line is silent."""
        return self.reading if self.age_s is not None and self.age_s < SILENT_S else ""


def progress(run: Run) -> Progress | None:
    """The progress of the run's managed job; None where there is none."""
    if run.job is None or run.job.step is None:
        return None
    return Progress(run.job.step, run.job.steps, None if run.job.waits else step_seconds(run))


def awaiting(run: Run) -> str:
    """What there is to say while no step has been taken."""
    job = run.job
    if job is None or job.step:
        return "No steps yet."
    if run.training and (job.attempt or 1) > 1:
        return f"Its first step is sampled again, attempt {job.attempt}: no rewards differed."
    if run.training:
        return "The first step is being sampled."
    return "No steps: the run ended before its first."


def step_seconds(run: Run) -> float | None:
    """Median seconds between the last RECENT steps of the run's job: those of a job before it
    say nothing of its pace. None before two steps."""
    return _pace(_own_steps(run))


def like_seconds(run: Run, parameters: Mapping[str, object], slugs: Set[str]) -> float | None:
    """Seconds per step of the model's last managed run, where one that is to come is like it.

    Runs are alike with the same model, and so engine; the same group size and tasks per step;
    and the same tasks, as far as its last RECENT steps tell.

    Args:
        run: The model's.
        parameters: Of the run to come.
        slugs: The tasks that it is to be trained on.

    Returns:
        The median; None where the last run was another, or its tasks are not known.
    """
    job = run.job
    if job is None or any((job.parameters or {}).get(k) != parameters.get(k) for k in ALIKE):
        return None
    nodes = [node for node in _own_steps(run) if node.job_id is not None]
    sampled = [group.task_slug for node in nodes for group in node.groups]
    seen = set(sampled)
    if not seen or not seen <= slugs or 2 * len(seen) < min(len(slugs), len(sampled)):
        return None
    return _pace(nodes)


def _own_steps(run: Run) -> list[Checkpoint]:
    """The last RECENT + 1 checkpoints of the head's lineage that the run's job made, newest first;
    any, where the service does not say which job made them."""
    nodes = (run.tree[position] for position in run.tree.lineage(run.tree.head))
    own = run.job.id if run.job is not None else None
    made = takewhile(lambda node: own is None or node.job_id in (None, own), nodes)
    return list(islice(made, RECENT + 1))


def _pace(newest_first: Sequence[Checkpoint]) -> float | None:
    times = [seconds(node.created_at) for node in newest_first]
    gaps = _gaps([stamp for stamp in times if stamp is not None])
    return median(gaps) if gaps else None


def liveness(
    source: str,
    age_s: float | None,
    trouble: str,
    retry_s: float | None,
    silent_s: float | None,
    step_s: float | None,
) -> Liveness:
    """Judge freshness.

    Args:
        source: The feed's: connecting, stream or poll.
        age_s: Seconds since the service last said anything, keep-alives included.
        trouble: Why the feed is reconnecting; empty where it is not.
        retry_s: Seconds until the feed's next attempt.
        silent_s: Seconds since the run's last event while it trains, else None.
        step_s: Its usual step.
    """
    if trouble:
        state = State.RECONNECTING
    elif source == "connecting" or age_s is None:
        state = State.CONNECTING
    elif silent_s is not None and silent_s > max(STALL_FLOOR_S, STALL_FACTOR * (step_s or 0)):
        state = State.STALLED
    else:
        state = State.LIVE
    return Liveness(state, source, age_s, trouble, retry_s)


def reading_said(size: int, total: int | None) -> str:
    """E.g. ``reading the tree · 12 of 50 MB``; empty for a tree that is there in no time."""
    most = size if total is None else total
    if most < LARGE:
        return ""
    digits = 0 if most >= 10 * MB else 1
    of = "" if total is None else f" of {total / MB:.{digits}f}"
    return f"reading the tree · {size / MB:.{digits}f}{of} MB"


def _gaps(newest_first: Sequence[float]) -> list[float]:
    pairs = pairwise(newest_first)
    return [later - earlier for later, earlier in pairs if later > earlier]


# What can be set on a managed run, what each may be, and what it costs in rollouts.
#
# The limits are the wire's (`hud_tui.wire.JobParameters`), said in words before sending.


Value = int | float | str | dict[str, float] | None
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
UPDATE_NUMBERS = (
    NumberField("reward_scale", "reward scale", -1e6, 1e6, whole=False),
    NumberField("beta1", "Adam beta1", 0, 0.999999, whole=False),
    NumberField("beta2", "Adam beta2", 0, 0.999999, whole=False),
    NumberField("eps", "Adam eps", 1e-16, 1, whole=False),
    NumberField("weight_decay", "weight decay", 0, 10, whole=False),
)
"""How a step is taken; most runs leave these as they are."""


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
    if isinstance(value, dict):
        return write_loss_config(value)
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
