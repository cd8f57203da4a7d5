"""Progress, ETA and freshness of a run; its parameters, cost and storage."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise, takewhile
from statistics import median
from urllib.parse import urlsplit

from hud_tui.rl.names import setting_label
from hud_tui.rl.run import Run
from hud_tui.rl.tasks.checks import Finding
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import counted, one_line, seconds, size, spaced, write_loss_config
from hud_tui.wire import Checkpoint, JobParameters, Model

RECENT = 20
"""Number of newest steps in the median of seconds per step."""
ALIKE = ("group_size", "tasks_per_step")
"""Parameters that must be equal for two runs to have comparable speed."""
STALL_FACTOR = 3.0
"""A run is stalled after this multiple of its median step time without an event."""
STALL_FLOOR_S = 10.0
"""Minimum seconds without an event before a run counts as stalled."""
SILENT_S = 5.0
"""Seconds without an answer from the service after which that is shown."""
MB = 1_000_000
LARGE = 200_000
"""Bytes of a tree from which its download progress is shown."""


@dataclass(frozen=True)
class Progress:
    """Progress of a managed run."""

    step: int
    steps: int | None
    step_s: float | None
    """Median seconds per step over the last RECENT; None before two steps and while the run
    waits."""

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None if the number of steps is unknown."""
        return min(1.0, self.step / self.steps) if self.steps else None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step, at the recent pace."""
        if self.steps is None or self.step_s is None:
            return None
        return max(0, self.steps - self.step) * self.step_s


class State(StrEnum):
    """Freshness of the display."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALLED = "stalled"
    RECONNECTING = "reconnecting"


@dataclass(frozen=True)
class Liveness:
    """Freshness of the display, with the reason."""

    state: State
    source: str
    """``stream`` or ``poll``."""
    age_s: float | None
    """Seconds since the service last sent anything."""
    trouble: str = ""
    """Why it is reconnecting."""
    retry_s: float | None = None
    """Seconds until the next attempt."""
    advice: str = ""
    """What to do; set once the service has been silent for long."""
    as_of: float | None = None
    """Unix seconds of the service's last response; set once it has been silent for long."""
    reading: str = ""
    """Download progress of a large tree."""
    behind_s: float = 0.0
    """How far events lag behind the service, seconds; 0 if negligible."""
    over: bool = False
    """Whether a replay has ended: no event will come."""

    @property
    def goes_on(self) -> bool:
        """Whether events come, so that an ETA means something."""
        return self.state is State.LIVE and not self.over

    @property
    def offline(self) -> bool:
        """Whether only the last known state is displayed."""
        return bool(self.advice)

    @property
    def arriving(self) -> str:
        """`reading` while the download progresses; empty if it is stuck."""
        return self.reading if self.age_s is not None and self.age_s < SILENT_S else ""


def progress(run: Run) -> Progress | None:
    """The progress of the run's managed job; None without one."""
    if run.job is None or run.job.step is None:
        return None
    return Progress(run.job.step, run.job.steps, None if run.job.waits else step_seconds(run))


def awaiting(run: Run) -> str:
    """Text shown instead of charts before the first step."""
    job = run.job
    if job is None or job.step:
        return "No steps yet."
    if run.training and (job.attempt or 1) > 1:
        return (
            f"The first step is sampled again, attempt {job.attempt}: zero variance in every group."
        )
    if run.training:
        return "The first step is being sampled."
    return "No steps: the run ended before its first step."


def step_seconds(run: Run) -> float | None:
    """Median seconds between the last RECENT steps of the run's job; None before two steps."""
    return _pace(_own_steps(run))


def comparable_step_seconds(
    run: Run, parameters: Mapping[str, object], slugs: Set[str]
) -> float | None:
    """Seconds per step of the model's last managed run, if the planned run is comparable.

    Comparable: same model (so same engine), group size and tasks per step, and the same tasks,
    judging by the last RECENT steps.

    Args:
        run: The model's last run.
        parameters: Of the planned run.
        slugs: Its training tasks.

    Returns:
        The median; None if the runs are not comparable or the tasks are unknown.
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
    of the whole lineage if the service does not report the job."""
    nodes = (run.tree[position] for position in run.tree.lineage(run.tree.head))
    own = run.job.id if run.job is not None else None
    made = takewhile(lambda node: own is None or node.job_id in (None, own), nodes)
    return list(islice(made, RECENT + 1))


def _pace(newest_first: Sequence[Checkpoint]) -> float | None:
    times = [at for node in newest_first if (at := seconds(node.created_at)) is not None]
    gaps = [later - earlier for later, earlier in pairwise(times) if later > earlier]
    return median(gaps) if gaps else None


def liveness(
    source: str,
    age_s: float | None,
    trouble: str,
    retry_s: float | None,
    silent_s: float | None,
    step_s: float | None,
) -> Liveness:
    """Derive the freshness of the display.

    Args:
        source: Of the feed: connecting, stream or poll.
        age_s: Seconds since the service last sent anything, including keep-alives.
        trouble: Why the feed is reconnecting; empty if it is not.
        retry_s: Seconds until the feed's next attempt.
        silent_s: Seconds since the last event of an active run, else None.
        step_s: Its median seconds per step.
    """
    if trouble:
        state = State.RECONNECTING
    elif source == "connecting" or age_s is None:
        state = State.CONNECTING
    elif silent_s is not None and is_stalled(silent_s, step_s):
        state = State.STALLED
    else:
        state = State.LIVE
    return Liveness(state, source, age_s, trouble, retry_s)


def is_stalled(silent_s: float, step_s: float | None) -> bool:
    """Whether a run whose steps take `step_s` has been silent for too long."""
    return silent_s > max(STALL_FLOOR_S, STALL_FACTOR * (step_s or 0))


def download_text(size: int, total: int | None) -> str:
    """Download progress, e.g. ``reading the tree · 12 of 50 MB``; empty for a small tree."""
    most = size if total is None else total
    if most < LARGE:
        return ""
    digits = 0 if most >= 10 * MB else 1
    of = "" if total is None else f" of {total / MB:.{digits}f}"
    return f"reading the tree · {size / MB:.{digits}f}{of} MB"


# Parameters of a managed run, their limits, and their cost in rollouts.
#
# The limits are those of the wire (`hud_tui.wire.JobParameters`); they are checked before sending.


Value = int | float | str | dict[str, float] | None
EFFORTS = ("default", "low", "medium", "high")
"""Values of reasoning_effort; the first leaves it to the service."""
DEFAULT = EFFORTS[0]
NO, YES = "no", "yes"
HUD_EFFORT = "medium"
"""Default of ``hud rl run`` (hud 0.5); HUD publishes no default of its own."""
UNBOUNDED = 2**31 - 1
"""An upper limit that is not displayed."""


@dataclass(frozen=True)
class NumberField:
    """A numeric parameter and its limits."""

    key: str
    """Its wire name."""
    low: float
    high: float
    whole: bool = True
    above: bool = False
    """Whether `low` itself is not allowed."""
    below: bool = False
    """Whether `high` itself is not allowed."""
    optional: bool = False
    """Whether the field may be empty."""
    named: str = ""
    """Its display name, if it is not the parameter's."""

    @property
    def label(self) -> str:
        """Its display name."""
        return self.named or setting_label(self.key)

    @property
    def limits(self) -> str:
        """The allowed values as text."""
        return f"– or {self.range}" if self.optional else self.range

    @property
    def range(self) -> str:
        """The allowed numbers as text, e.g. ``> 0 to 1`` or ``-1e6 to 1e6``."""
        if self.high == UNBOUNDED:
            return f"from {self.low:.0f}"
        if self.whole:
            return f"{self.low:.0f} to {self.high:.0f}"
        low, high = (f"{end:g}".replace("e+0", "e") for end in (self.low, self.high))
        return f"{'> ' * self.above}{low} to {'< ' * self.below}{high}"

    def read(self, text: str) -> int | float | None:
        """Parse a typed number; None if it is empty and optional.

        Raises:
            ValueError: Not a number, or out of the limits; the message is the limits.
        """
        if self.optional and not text:
            return None
        try:
            value = int(text.replace(" ", "").replace("_", "")) if self.whole else float(text)
        except ValueError:
            raise ValueError(self.limits) from None
        enough = value > self.low if self.above else value >= self.low
        if not (enough and (value < self.high if self.below else value <= self.high)):  # or NaN
            raise ValueError(self.limits)
        return value


NUMBERS = (
    NumberField("steps", 1, 100_000),
    NumberField("group_size", 2, 256),
    NumberField("tasks_per_step", 1, 1024),
    NumberField("learning_rate", 0, 1, whole=False, above=True),
    NumberField("temperature", 0.01, 5, whole=False),
    NumberField("seed", 0, UNBOUNDED),
    NumberField("eval_every", 1, UNBOUNDED, optional=True),
    NumberField("eval_samples", 1, 256, optional=True),
)
UPDATE_NUMBERS = (
    NumberField("reward_scale", -1e6, 1e6, whole=False),
    NumberField("beta1", 0, 1, whole=False, below=True),
    NumberField("beta2", 0, 1, whole=False, below=True),
    NumberField("eps", 1e-16, 1, whole=False),
    NumberField("weight_decay", 0, 10, whole=False),
)
"""Parameters of the optimizer update; most runs keep the defaults."""
UPDATE_DEFAULTS: Mapping[str, Value] = {
    "loss_fn_config": None,
    "norm_adv_by_std": False,
    **dict.fromkeys(spec.key for spec in UPDATE_NUMBERS),
}
"""Defaults of the update's fields: empty leaves the value to the engine; advantages are not divided
by the standard deviation."""


def defaults(model: Model) -> dict[str, Value]:
    """Default parameters of a run on this model, as far as the client chooses them."""
    usual = model.training_defaults
    if usual is None:
        return {"reasoning_effort": HUD_EFFORT}
    return {
        "steps": usual.steps,
        "group_size": usual.group_size,
        "tasks_per_step": usual.tasks_per_step,
        "learning_rate": usual.learning_rate,
        "temperature": 1.0,
        "seed": 0,
        "eval_every": None,
        "eval_samples": None,
        "loss_fn": "importance_sampling",
        "reasoning_effort": DEFAULT,
        "baseline": False,
    }


SERVICE_DEFAULTS: Mapping[str, object] = {
    "loss_fn_config": {},
    **{"reward_scale": 1.0, "norm_adv_by_std": False},
    **{"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0},
    **{"temperature": 1.0, "seed": 0, "heldout_every": 5, "eval_samples": 1, "baseline": False},
    "loss_fn": "importance_sampling",
}
"""Defaults of the embedded service, beside the model's own."""


@dataclass(frozen=True)
class Setting:
    """One parameter of a run, as displayed."""

    label: str
    text: str
    """Its value; ``–`` if there is none."""
    usual: bool
    """Whether it has its default value."""


OF_MANAGED = frozenset(
    {"reasoning_effort", "norm_adv_by_std", "baseline", "heldout_every", "sweep"}
)
"""Parameters of managed runs only: a run whose steps a client takes has none of them."""


def settings(
    model: Model | None, values: Mapping[str, object], managed: bool = True
) -> list[Setting]:
    """Every parameter of a run, in the wire's order; unknown ones last.

    Args:
        model: The trained model, whose own defaults count; None if unknown.
        values: Parameters by wire name, as reported by the service or as sent.
        managed: Whether the service takes its steps.
    """
    own = {} if model is None or model.training_defaults is None else defaults(model)
    if own and model is not None and model.training_defaults is not None:
        own["max_tokens"] = model.training_defaults.max_tokens
    usual = {**SERVICE_DEFAULTS, **own}
    known = [key for key in JobParameters.model_fields if managed or key not in OF_MANAGED]
    extra = [key for key in values if key not in known]
    return [_setting(key, values, usual) for key in (*known, *extra)]


def _setting(key: str, values: Mapping[str, object], usual: Mapping[str, object]) -> Setting:
    value = values.get(key)
    value = usual.get(key) if value is None else value
    is_usual = values.get(key) is None or value == usual.get(key)
    known = isinstance(value, bool | int | float | str | dict)
    text = write(value) if known else ""  # type: ignore[arg-type]
    shown = "–" if value in (None, {}, DEFAULT) else one_line(text, 200)
    return Setting(setting_label(key), shown, is_usual)


def form_values(model: Model) -> dict[str, Value]:
    """The fields of the form for a run on this model, with their initial values."""
    usual = defaults(model)
    return usual if model.training_defaults is None else {**usual, **UPDATE_DEFAULTS}


def without_field(model: Model, values: Mapping[str, Value]) -> dict[str, Value]:
    """Parameters from the command line that have no field in the form."""
    known = JobParameters.model_fields.keys() - form_values(model).keys()
    return {key: value for key, value in values.items() if key in known}


def completed(model: Model, asked: JobParameters) -> JobParameters:
    """The parameters as sent: HUD gets a reasoning effort, as its own CLI sends one."""
    if model.training_defaults is not None or asked.reasoning_effort is not None:
        return asked
    return asked.model_copy(update={"reasoning_effort": HUD_EFFORT})


def parameters(values: Mapping[str, Value]) -> JobParameters:
    """The request's parameters from the form's values."""
    chosen = {key: value for key, value in values.items() if value is not False}  # but keep 0
    sent = {key: value for key, value in chosen.items() if value not in (None, DEFAULT)}
    return JobParameters.model_validate(sent)


def max_tokens(model: Model, values: Mapping[str, Value]) -> int | None:
    """Maximum tokens of one answer; None if the service decides, e.g. from a reasoning effort."""
    typed = values.get("max_tokens")
    if isinstance(typed, int):
        return typed
    own = model.training_defaults
    decided = values.get("reasoning_effort") not in (None, DEFAULT)
    return None if own is None or decided else own.max_tokens


def write(value: Value) -> str:
    """A value as displayed in its field, e.g. ``0.0003``, ``1e-8``."""
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    if isinstance(value, dict):
        return write_loss_config(value)
    return "" if value is None else str(value)


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
        values: The form's.
        tasks: The taskset.
        step_s: Seconds per step of a comparable run; None if there was none.
        rollout_s: Measured seconds per rollout of these tasks; used without `step_s`.
    """
    steps, group, wide = (values.get(key) for key in ("steps", "group_size", "tasks_per_step"))
    if not (isinstance(steps, int) and isinstance(group, int) and isinstance(wide, int)):
        return None
    a_step = group * min(wide, sum(not task.heldout for task in tasks))
    rollouts = steps * a_step
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

    @property
    def evaluated(self) -> int:
        """Rollouts of all evaluations, including the baseline."""
        return self.evaluations * self.evaluation + self.baseline


def run_size(model: Model, requested: Mapping[str, Value], tasks: Sequence[Task]) -> RunSize | None:
    """The size of a run on the embedded service; None if the service decides it.

    Args:
        model: The trained model, whose own defaults count.
        requested: Parameters by wire name, as sent.
        tasks: The taskset.
    """
    values = {**(defaults(model) if model.training_defaults is not None else {}), **requested}
    size, steps = cost(values, tasks), values.get("steps")
    if size is None or not isinstance(steps, int):
        return None
    held, last = sum(task.heldout for task in tasks), steps - 1
    usual = SERVICE_DEFAULTS["heldout_every"]
    every, apart = _whole(values, "eval_every", steps), _whole(values, "heldout_every", usual)
    once = held * _whole(values, "eval_samples", SERVICE_DEFAULTS["eval_samples"])
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


def _whole(values: Mapping[str, Value], key: str, usual: object) -> int:
    """A parameter that is an integer of at least 1, or its default."""
    value = values.get(key)
    return max(1, int(str(usual if value is None else value)))


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
    return [("evaluates", of + often), ("baseline", first)]


# Where a run stores its checkpoints, and how much they take: shown before it is submitted.


AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Units of time with their seconds, longest first."""


def engine_place(model: Model | None) -> str:
    """Where a model is sampled and trained, e.g. ``tinker @ trainer:8000``; empty if that is this
    machine or unknown."""
    state = model.engine if model is not None else None
    if state is None or state.server is None:
        return ""
    if state.place:
        return f"{one_line(state.engine, 20)} @ {one_line(state.place, 60)}"
    parts = urlsplit(state.server if "//" in state.server else f"//{state.server}")
    host = parts.netloc.rpartition("@")[2]  # without user and password
    return f"{one_line(state.engine, 20)} @ {one_line(host, 40)}"


def retention_text(ttl_s: int | None) -> str:
    """How long a server keeps a checkpoint, e.g. ``for 7 d``."""
    if ttl_s is None:
        return "until deleted"
    for length, unit in AGES:
        if ttl_s % length == 0:
            return f"for {ttl_s // length} {unit}"
    return f"for {ttl_s} s"


def where_stored(
    model: Model, steps: int | None, rollouts: int | None, max_tokens: int | None
) -> list[tuple[str, str]]:
    """What a run sends to a server and stores there, or stores on this disk: labels and texts.

    Args:
        model: The trained model.
        steps: As for `disk_use`.
        rollouts: Training rollouts; None if unknown.
        max_tokens: Maximum tokens of one answer; None if unknown.
    """
    place, state = engine_place(model), model.engine
    if not place or state is None:
        use = disk_use(model, steps)
        return [("disk", use)] if use else []
    facts = [("server", f"{place}: receives prompts, completions and weights; may cost money")]
    if rollouts is not None and max_tokens is not None:
        most = f"at most {spaced(rollouts * max_tokens)} sampled and as many trained"
        facts.append(("tokens", f"{most}, plus prompts"))
    count = _steps(model, steps)
    if state.saves_per_step and count is not None:
        saved = counted(count * state.saves_per_step, "checkpoint")
        left = f"{saved} on the server, kept {retention_text(state.ttl_s)}"
        facts.append(("stored", f"{left}; the tree, metrics and rollouts on this machine"))
    return facts


def disk_use(model: Model, steps: int | None) -> str:
    """E.g. ``1.2 GB: 600 checkpoints of 2.1 MB; beyond 10 GB in total (now 83 MB) the oldest are
    thinned out``; empty if the service does not report disk space.

    Args:
        model: The trained model.
        steps: Steps of the run; None for the model's default.
    """
    disk, steps = model.disk, _steps(model, steps)
    if disk is None or steps is None:
        return ""
    most = f"{size(steps * disk.checkpoint_bytes)}: {counted(steps, 'checkpoint')}"
    bound = f"beyond {size(disk.max_bytes)} in total (now {size(disk.used_bytes)})"
    return f"{most} of {size(disk.checkpoint_bytes)}; {bound} the oldest are thinned out"


def checkpoints_that_fit(model: Model, steps: int | None) -> tuple[int, int] | None:
    """How many of a run's checkpoints fit on the disk, and how many it makes; None if all fit or
    the service does not report disk space. Old checkpoints that are thinned out free their space.

    Args:
        model: The trained model.
        steps: As for `disk_use`.
    """
    disk, steps = model.disk, _steps(model, steps)
    if disk is None or disk.free_bytes is None or steps is None:
        return None
    grows = max(disk.max_bytes - disk.used_bytes, disk.checkpoint_bytes)
    if disk.free_bytes >= min(steps * disk.checkpoint_bytes, grows):
        return None
    return disk.free_bytes // disk.checkpoint_bytes, steps


def check_room(model: Model, steps: int | None) -> list[Finding]:
    """A finding on whether a run fits on the disk; empty if the service does not report disk
    space."""
    if model.disk is None or model.disk.free_bytes is None or _steps(model, steps) is None:
        return []
    free, found = size(model.disk.free_bytes), checkpoints_that_fit(model, steps)
    if found is None:
        return [Finding("disk", "ok", f"enough space for its checkpoints: {free} free")]
    fits, made = found
    message = f"the disk has room for at most {fits} of {made} checkpoints: {free} free"
    fix = "free disk space, use fewer steps, or serve with a lower --max-disk"
    return [Finding("disk", "warning" if fits else "failure", message, fix=fix)]


def _steps(model: Model, steps: int | None) -> int | None:
    if steps is None and model.training_defaults is not None:
        return model.training_defaults.steps
    return steps
