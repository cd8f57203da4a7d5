"""The wire of managed runs and of evaluations: what is submitted, driven and reported, and the list
of runs.

Source: as for `hud_tui.wire`, whose rules for unknown fields apply here too.
"""

from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from hud_tui.parameters import EvaluationRows, RunRows
from hud_tui.wire import (
    Count,
    Counts,
    Evaluation,
    Group,
    JobError,
    Json,
    Many,
    Page,
    Request,
    Response,
    Rewards,
    WorkState,
    no_items,
)
from hud_tui.wire_time import DriverTime


class EvaluationParameters(Request, EvaluationRows):
    """How the rollouts of an evaluation are sampled: `samples` of each task."""


class UsualTasks(Response):
    """GET /v1/models/{id}/evaluations/tasks: the default tasks of an evaluation (embedded). 404 if
    the model has had no managed run. `name` is that of the tasks, e.g. their taskset's."""

    name: str | None = None
    heldout: Count = 0
    train: Count = 0


class SubmitEvaluation(Request):
    """POST /v1/models/{id}/evaluations (embedded)."""

    checkpoint_id: str | None = None
    """As in `WorkState`."""
    split: Literal["heldout", "train", "all"] | None = None
    """None: the held-out tasks, or all if there are none."""
    tasks: Many[Json] | None = None
    """None: the tasks of the model's latest managed run. `name` is that of the tasks."""
    name: str | None = Field(default=None, max_length=200)
    parameters: EvaluationParameters = Field(default_factory=EvaluationParameters)


class JobParameters(Request, RunRows):
    """``config.parameters``: HUD defines reasoning_effort; the others are the embedded
    service's."""

    sweep: str | None = Field(default=None, max_length=100)
    """Name of the sweep that the run belongs to; a label without effect."""

    @field_validator("reward_scale")
    @classmethod
    def _leaves_a_gradient(cls, value: float | None) -> float | None:
        if value == 0:
            raise PydanticCustomError("reward_scale", "0 leaves no gradient")
        return value


class JobConfig(Request):
    parameters: JobParameters = Field(default_factory=JobParameters)


class JobDataset(Request):
    tasks: Many[Json] = Field(min_length=1)


class SubmitJob(Request):
    """POST /v1/training/jobs."""

    model_id: str
    dataset: JobDataset
    config: JobConfig = Field(default_factory=JobConfig)
    start: str | None = None
    """Embedded: id of the head that the first step is taken from, or `BASE`; refused if the head is
    another by then. If it is absent, as from HUD's SDK, the run starts at whatever is the head."""


class ModelRef(Response):
    id: str


class SubmittedJob(Response):
    job_id: str
    model: ModelRef


class DriveRun(Request):
    """PUT /v1/training/jobs/{id}/drive (embedded): begin or continue a run whose steps a client
    takes. `driver` and `parameters` are as in `WorkState`."""

    model_id: str
    start: str | None = None
    """As in `SubmitJob`; a new run of a model that has checkpoints must say it."""
    name: str = Field(min_length=1, max_length=200)
    taskset: str = Field(default="", max_length=200)
    driver: str = Field(min_length=1, max_length=200)
    parameters: Json
    """Includes ``steps`` and ``group_size``."""


class DriveReport(Request):
    """PATCH /v1/training/jobs/{id}/drive (embedded): state of a run, or of an evaluation, that a
    client carries out; `attempt` and `note` as in `WorkState`. Sent every few seconds; if none
    arrives for a while, it is ``interrupted``."""

    status: Literal["running", "succeeded", "failed", "cancelled", "interrupted"] = "running"
    busy_s: float | None = Field(default=None, ge=0)
    """Seconds spent on its steps so far."""
    attempt: int | None = Field(default=None, ge=1)
    wasted: int = Field(default=0, ge=0, le=1_000_000)
    """Rollouts without a gradient since the last report, which are not trained on."""
    note: str | None = Field(default=None, max_length=2000)
    reason: str | None = Field(default=None, max_length=2000)
    error: JobError | None = None
    time: DriverTime | None = None


class KeepEvaluation(Request):
    """PUT /v1/evaluations/{id} (embedded): state of an evaluation whose rollouts a client makes,
    under a job of the same id. Fields are as in `WorkState`."""

    model_id: str
    checkpoint_id: str | None = None
    run_id: str | None = None
    """The run, driven by a client, that requested it; None if none did."""
    driver: str | None = Field(default=None, max_length=200)
    """None: a client of an older version, which sends no reports of its own."""
    status: Literal["running", "succeeded", "failed", "cancelled"] = "running"
    split: Literal["heldout", "train", "all"] = "heldout"
    name: str | None = Field(default=None, max_length=200)
    samples: int = Field(ge=1, le=256)
    num_tasks: int = Field(ge=1, le=1_000_000)
    parameters: Json = Field(default_factory=dict)
    seconds: float | None = Field(default=None, ge=0)
    error: JobError | None = None
    groups: Many[Group] = Field(default_factory=no_items)
    """Complete if it has succeeded."""


class RunRecord(WorkState):
    """A row of GET /v1/runs (embedded): the state of a managed run, or of a training loop outside
    the service (kind ``reported``), and what it has come to. What only its own raw status says is
    left out: `error`, `reason`, `note`, `attempt`, `driver`, `asked`, `estimated_finish`,
    `trained_tokens` and `fine_tuned_model`."""

    id: str
    """The job's id; for a loop without a job its model's id. Its status is then empty."""
    model_id: str
    base: str | None = None
    engine: str | None = None
    """tiny or tinker; None if the model's base belongs to another engine than this service's."""
    forked_from: str | None = None
    start: str | None = None
    """Name of the checkpoint that its first step starts from; None for the weights that the model
    started from."""
    taskset: str | None = None
    learning_rate: float | None = None
    """Of its newest step; so is `loss_fn`."""
    loss_fn: str | None = None
    stepped_at: float | None = None
    """Unix seconds."""
    busy_s: float | None = None
    """Seconds that a managed run has spent on its steps; for a loop, from its first to its newest
    step."""
    reward_first: float | None = None
    """Mean over its first five steps of the mean reward that they were trained on; for a run of
    fewer than ten steps, over its first half."""
    reward_last: float | None = None
    """The same over its newest five steps."""
    points: Rewards = Field(default_factory=no_items)
    """Mean rewards in order, at most 32: each the mean over `stride` steps."""
    stride: Count = 1
    """Number of steps per point; the last point may have fewer."""
    heldout: float | None = None
    """Held-out reward of its newest evaluated checkpoint, else as reported by its newest step."""
    num_heldout_traces: Count | None = None
    """Rollouts of that reward; None if it is unknown."""
    evaluation: Evaluation | None = None
    """Of its newest evaluated checkpoint."""
    rollouts: Count = 0
    """Number of training rollouts, including batches that were sampled again."""
    no_gradient: float | None = None
    """Share of them in zero-variance groups."""
    tokens: Count = 0
    """Generated tokens of its training rollouts."""
    alarms: Count | None = None
    """Number of active alarms; None if no detector was run."""
    alarm: str | None = None
    """Level of the most severe one: info, warn or critical."""
    alarm_title: str | None = None
    revision: Count = 0
    """Increases with every change of the row."""


class RunPage(Page[RunRecord]):
    """GET /v1/runs?since=REVISION, newest run first; with `since`, only rows changed after it."""

    revision: Count = 0
    """The next value of `since`, once all pages are read."""


class RunSteps(Response):
    """GET /v1/runs/{id}/steps?after=N&keys=a,b: a run's steps as columns (embedded)."""

    step: Counts
    """Number within the run, from 1 to `total`, shape (N,); all lists below have this shape."""
    at: list[float | None]
    """Unix seconds."""
    tokens: Counts
    """Generated tokens of the step's rollouts."""
    checkpoint_id: list[str]
    metrics: dict[str, list[float | None]] = Field(default_factory=dict)
    """By key; null if a step does not report the metric."""
    total: Count = 0
    evaluations: dict[str, list[Evaluation]] = Field(default_factory=dict)
    """Evaluations of its checkpoints, by checkpoint id; only if ``heldout_reward`` is requested."""
