"""The wire: one pydantic model per JSON body, with the wire's own field names.

A response keeps fields that it does not know (``extra="allow"``): HUD's service sends more than its
SDK reads, and a newer server must not break an older client. A request forbids them, so a misspelt
field fails here and not on the server.

Source: the request and reply models of the public ``hud`` SDK, 0.6.21. Fields marked "embedded" are
sent by the embedded service only; they are None or empty on HUD.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from hud_tui.parameters import EvaluationRows, RunRows

T = TypeVar("T")


class _FailFast(FailFast):
    __hash__ = object.__hash__  # typing hashes the members of a union


Many = Annotated[list[T], _FailFast()]
"""A list that may be long: validation stops at the first invalid item."""
Json = dict[str, Any]


class Body(BaseModel):
    """What bodies and events have in common: they are immutable."""

    model_config = ConfigDict(frozen=True, protected_namespaces=(), defer_build=True)


class Response(Body):
    model_config = ConfigDict(extra="allow")


class Request(Body):
    model_config = ConfigDict(extra="forbid")


class OpenRequest(Request):
    """A request whose unknown fields are ignored: the SDK sends more than a service reads."""

    model_config = ConfigDict(extra="ignore")


class Page(Response, Generic[T]):
    """One page of a collection under /v2."""

    items: list[T]
    total: int
    limit: int = 0
    offset: int = 0


class Identity(Response):
    """GET /v2/auth/me."""

    user_id: str
    team_id: str
    version: str = ""
    """Embedded: version of the service, and digest of its files."""
    build: str = ""
    data_id: str | None = None
    """Embedded: id of the data directory, by which its service is known wherever it runs."""


# Checkpoints, evaluations, and the head.


class Group(Response):
    """The rollouts of one task in one step."""

    task_slug: str
    rewards: list[float]
    """Shape (G,), in the taskset's reward unit."""
    trace_ids: list[str] = Field(default_factory=list)
    """Shape (G,), in the order of `rewards`."""
    num_tokens: list[int] = Field(default_factory=list)
    """Generated tokens of each rollout, shape (G,)."""


class JobError(Response):
    code: str | None = None
    message: str | None = None
    param: str | None = None


class Estimate(Response):
    """A mean over tasks with its 95 % interval, by bootstrap over the tasks."""

    value: float
    low: float | None = None
    """None if there is only one task; so is `high`."""
    high: float | None = None


class Evaluation(Response):
    """Result of evaluating a checkpoint's own weights on some tasks."""

    split: str = "heldout"
    """Tasks of the taskset: ``heldout``, ``train`` or ``all``."""
    mean_reward: float
    """Mean over all rollouts, in the taskset's reward unit."""
    num_tasks: int
    num_traces: int
    """Number of rollouts: tasks × samples per task."""
    job_id: str | None = None
    """The job of its rollouts."""
    created_at: str | None = None
    id: str | None = None
    """Id for requesting its rewards by task. Absent in old rows, as are all fields below."""
    samples: int | None = None
    """Rollouts per task."""
    mean: Estimate | None = None
    """`mean_reward` with its interval."""
    pass_at: dict[int, Estimate] = Field(default_factory=dict)
    """pass@k by k, from 1 to `samples`: probability that one of k rollouts of a task solves it."""
    solved_at: float = 1.0
    """Reward from which a rollout counts as solved."""
    name: str | None = None
    """Name of the tasks, e.g. the taskset's."""
    tasks_digest: str | None = None
    """Hash of the tasks: equal for two evaluations on the same tasks."""
    max_tokens: int | None = None
    """Maximum tokens of one answer."""
    temperature: float | None = None
    seed: int | None = None
    """Evaluations of the same weights with the same seed have the same rollouts; None if the
    service does not support seeds."""


class EvaluationJob(Response):
    """GET /v1/evaluations/{id}: an evaluation that is queued, active or ended (embedded). Fields
    that `Evaluation` has too are as there."""

    kind: Literal["evaluation"] = "evaluation"
    id: str
    """Also the id of the job with its rollouts."""
    model_id: str
    model: str | None = None
    checkpoint_id: str | None = None
    """None for the weights that the model started from; so is `checkpoint`, its name."""
    checkpoint: str | None = None
    job_id: str | None = None
    """The managed run that requested it; else equal to `id`."""
    status: str
    """queued, running, succeeded, cancelled, failed or interrupted."""
    split: str = "heldout"
    name: str | None = None
    samples: int = 1
    num_tasks: int = 0
    done: int = 0
    """Number of finished rollouts, of `total`."""
    total: int = 0
    mean_reward: float | None = None
    """Of the finished rollouts."""
    parameters: Json = Field(default_factory=dict)
    """max_tokens, temperature, seed and solved_at in use."""
    created_at: str | None = None
    finished_at: str | None = None
    seconds: float | None = None
    """Duration of the finished rollouts, without waiting for other work; None if unknown."""
    error: JobError | None = None
    result: Evaluation | None = None
    """None until it has succeeded."""
    groups: list[Group] = Field(default_factory=list)
    """Rewards by task of the finished rollouts; empty in lists and events."""


class EvaluationParameters(Request, EvaluationRows):
    """How the rollouts of an evaluation are sampled: `samples` of each task."""


class UsualTasks(Response):
    """GET /v1/models/{id}/evaluations/tasks: the default tasks of an evaluation (embedded). 404 if
    the model has had no managed run. `name` is that of the tasks, e.g. their taskset's."""

    name: str | None = None
    heldout: int = 0
    train: int = 0


class SubmitEvaluation(Request):
    """POST /v1/models/{id}/evaluations (embedded)."""

    checkpoint_id: str | None = None
    """As in `EvaluationJob`."""
    split: Literal["heldout", "train", "all"] | None = None
    """None: the held-out tasks, or all if there are none."""
    tasks: Many[Json] | None = None
    """None: the tasks of the model's latest managed run. `name` is that of the tasks."""
    name: str | None = Field(default=None, max_length=200)
    parameters: EvaluationParameters = Field(default_factory=EvaluationParameters)


class Checkpoint(Response):
    """A node of a model's checkpoint tree. Every optim-step appends one."""

    id: str
    name: str | None = None
    """E.g. ``step-000012``."""
    checkpoint_name: str | None = None
    """The sampler path, which the chat's ``checkpoint`` accepts (as it does an id)."""
    prev_model_checkpoint_id: str | None = None
    """The parent; None if the step started from the base weights."""
    is_active: bool = False
    """Whether this is the head, whose weights the gateway serves."""
    created_at: str | None = None
    num_traces: int | None = None
    num_datums: int | None = None
    num_tokens: int | None = None
    mean_reward: float | None = None
    """Mean over the rollouts that the step was trained on, in the taskset's reward unit. They were
    sampled from the parent's weights, so this is the reward of the step, not of the checkpoint."""
    learning_rate: float | None = None
    loss_fn: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    """The step's metrics; an open set of keys."""
    step: int | None = None
    """Embedded: number of the optimizer step, counted over the whole tree from 1."""
    job_id: str | None = None
    """Embedded: the managed run that took the step."""
    tasks_digest: str | None = None
    """Embedded: hash of the run's tasks; equal for two steps on the same tasks."""
    groups: list[Group] = Field(default_factory=list)
    """Embedded: the step's rewards by task."""
    state: str | None = None
    """Embedded: what is stored of it. ``full``; ``weights`` (can be served; training from it starts
    with fresh Adam moments); ``expired`` (nothing); ``damaged`` (its file is missing or was
    changed)."""
    pinned: bool = False
    """Embedded: whether its state is kept beyond the disk limit."""
    evaluations: list[Evaluation] = Field(default_factory=list)
    """Embedded: results of its evaluations, oldest first."""


class CheckpointTrace(Response):
    """A row of GET /v2/models/{id}/checkpoints/{cid}/traces."""

    trace_id: str
    status: str | None = None
    created_at: str | None = None
    reward: float | None = None
    task_slug: str | None = None
    """Embedded; so is `rollout`."""
    rollout: int | None = None
    """Index in its group, from 0."""


class SetHead(Request):
    """Body of PUT /v2/models/{model_id}/head."""

    checkpoint_id: str


# Environments of the registry.


class RegistryItem(Response):
    """One row of GET /v2/registry."""

    id: str
    name: str
    description: str | None = None


class ScenarioRecord(Response):
    """One row of GET /v2/registry/{id}/scenarios."""

    id: str
    name: str
    description: str | None = None
    args_schema: Json | None = None
    """JSON Schema of the scenario's args."""


class EnvironmentConfig(Response):
    """GET /environments/{name}/mcp-config."""

    mcp_config: Json = Field(default_factory=dict)
    registry_id: str | None = None
    scenarios: Any = None
    """A list of names; anything else means that the service does not know them."""


# Models, and the state of their engine and disk.


class Provider(Response):
    name: str | None = None


class TrainingDefaults(Response):
    """Default parameters of a run on this model."""

    learning_rate: float
    group_size: int
    max_tokens: int
    tasks_per_step: int
    steps: int


class Disk(Response):
    """A model's checkpoints on the service's disk, and what that has free (embedded)."""

    checkpoint_bytes: int
    """Size of one checkpoint, as last measured."""
    used_bytes: int
    """Used by the checkpoints of all models."""
    max_bytes: int
    """Limit beyond which the oldest checkpoints are thinned out."""
    free_bytes: int | None = None


class EngineState(Response):
    """The engine that samples and trains a model, and where."""

    engine: str
    """``tiny`` or ``tinker``."""
    server: str | None = None
    """URL of the server that has its weights; None for this machine."""
    place: str = ""
    """Display name of that server, e.g. ``gpubox · 2×H100``; empty: its URL is displayed."""
    queue: str = "active"
    """``active``, or what requests are waiting for, in words."""
    slots: int = 0
    """Number of training runs that are open on the server."""
    ttl_s: int | None = None
    """Seconds for which the server keeps a checkpoint; None: until it is deleted."""
    saves_per_step: int = 0
    """Number of checkpoints that each optimizer step stores on `server`, which may bill for them; 0
    without a server. The tree, metrics, rewards and rollouts are stored on this machine in either
    case; with a server, a checkpoint's local file only contains its path there."""


class Model(Response):
    """A row of the catalog, GET /v2/models; also the reply to a fork."""

    id: str
    model_name: str
    """The slug under which the gateway serves it."""
    name: str | None = None
    description: str | None = None
    """Embedded: what a base can do, what it cannot, and what training did to it."""
    sdk_agent_type: str | None = None
    is_trainable: bool = False
    provider: Provider | None = None
    created_at: str | None = None
    checkpoint_count: int | None = None
    training_defaults: TrainingDefaults | None = None
    """Embedded."""
    base_model: str | None = None
    """Embedded: the base with the same architecture and vocabulary."""
    context_length: int | None = None
    """Embedded: maximum tokens of prompt and answer together."""
    forked_from: str | None = None
    """Embedded: slug of the source, with ``@checkpoint-name`` if it had a head."""
    disk: Disk | None = None
    """Embedded; None if checkpoints are stored on a server (`engine.server`)."""
    engine: EngineState | None = None
    """Embedded."""


class HeadSet(Model):
    """The reply to PUT /v2/models/{model_id}/head."""

    previous: str | None = None
    """Embedded: id of the head that was replaced; null for the weights that the model started
    from."""


BASE = "base"
"""In place of a checkpoint: the weights that the model started from (embedded)."""


class Fork(Request):
    """POST /v2/models/fork."""

    source_model_id: str
    name: str = Field(min_length=1, max_length=100)
    checkpoint_id: str | None = None
    """Embedded: start at this checkpoint of the source, or at `BASE`. If it is absent, as from
    HUD's SDK, the fork starts at the head of the moment; null is refused unless there is none."""


# Managed runs: /v1/training/jobs.


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


class JobStatus(Response):
    """GET /v1/training/jobs/{model id or job id}/raw-status."""

    status: str
    """HUD's words; the embedded service adds ``interrupted`` (resumable)."""
    kind: str = "training"
    """Embedded: as in a job's metadata."""
    model: str | None = None
    fine_tuned_model: str | None = None
    created_at: float | None = None
    """Unix seconds; so are the two below."""
    finished_at: float | None = None
    estimated_finish: float | None = None
    trained_tokens: int | None = None
    """Embedded: generated tokens with a gradient, summed over all steps."""
    error: JobError | str | None = None
    id: str | None = None
    """Embedded, as are all fields below: the job's id."""
    name: str | None = None
    """E.g. ``mixed on arith-rl``."""
    model_id: str | None = None
    step: int | None = None
    """Steps taken so far."""
    step_s: float | None = None
    """Median seconds between its newest steps; `estimated_finish` goes by it."""
    steps: int | None = None
    parameters: Json | None = None
    """Every parameter as the run uses it, including defaults."""
    reason: str | None = None
    """Why it ended early without an error; after an error see `error`."""
    note: str | None = None
    """Why its step is being sampled again."""
    attempt: int | None = None
    """Number of the next sampling of the next step, from 1."""
    waits: str | None = None
    """Why the engine's server delays it; None if it does not."""
    driver: str | None = None
    """Machine and process that take its steps, e.g. ``laptop:4711``; None: the service does."""
    asked: str | None = None
    """``cancel``: its driver has been asked to stop but has not stopped yet."""


WorkState = Annotated[
    Annotated[JobStatus, Tag("training")] | Annotated[EvaluationJob, Tag("evaluation")],
    Discriminator(lambda work: _kind_of(work)),
]
"""How a run or an evaluation stands."""


def _kind_of(work: JobStatus | EvaluationJob | Mapping[str, Any]) -> str:
    kind = work.get("kind") if isinstance(work, Mapping) else work.kind
    return "evaluation" if kind == "evaluation" else "training"


class DriveRun(Request):
    """PUT /v1/training/jobs/{id}/drive (embedded): begin or continue a run whose steps a client
    takes. `driver` and `parameters` are as in `JobStatus`."""

    model_id: str
    start: str | None = None
    """As in `SubmitJob`; a new run of a model that has checkpoints must say it."""
    name: str = Field(min_length=1, max_length=200)
    taskset: str = Field(default="", max_length=200)
    driver: str = Field(min_length=1, max_length=200)
    parameters: Json
    """Includes ``steps`` and ``group_size``."""


class DriveReport(Request):
    """PATCH /v1/training/jobs/{id}/drive (embedded): state of the run; `attempt` and `note` as in
    `JobStatus`. Sent every few seconds; if none arrives for a while, it is ``interrupted``."""

    status: Literal["running", "succeeded", "failed", "cancelled", "interrupted"] = "running"
    busy_s: float | None = Field(default=None, ge=0)
    """Seconds spent on its steps so far."""
    attempt: int | None = Field(default=None, ge=1)
    wasted: int = Field(default=0, ge=0, le=1_000_000)
    """Rollouts without a gradient since the last report, which are not trained on."""
    note: str | None = Field(default=None, max_length=2000)
    reason: str | None = Field(default=None, max_length=2000)
    error: JobError | None = None


class KeepEvaluation(Request):
    """PUT /v1/evaluations/{id} (embedded): state of an evaluation whose rollouts a client makes,
    under a job of the same id. Fields are as in `EvaluationJob`."""

    model_id: str
    checkpoint_id: str | None = None
    run_id: str | None = None
    """The run, driven by a client, that requested it; None if none did."""
    status: Literal["running", "succeeded", "failed", "cancelled"] = "running"
    split: Literal["heldout", "train", "all"] = "heldout"
    name: str | None = Field(default=None, max_length=200)
    samples: int = Field(ge=1, le=256)
    num_tasks: int = Field(ge=1, le=1_000_000)
    parameters: Json = Field(default_factory=dict)
    seconds: float | None = Field(default=None, ge=0)
    error: JobError | None = None
    groups: Many[Group] = Field(default_factory=list)
    """Complete if it has succeeded."""


class RunRecord(Response):
    """A row of GET /v1/runs (embedded): a managed run, or a training loop outside the service."""

    id: str
    """The job's id; for a loop without a job its model's id."""
    kind: str = "training"
    """training: the service takes the steps; reported: a client's loop does."""
    name: str | None = None
    status: str | None = None
    """The job's status; None if unknown, as for a loop without a job."""
    model_id: str
    model: str | None = None
    base: str | None = None
    engine: str | None = None
    """tiny or tinker; None if the model's base belongs to another engine than this service's."""
    forked_from: str | None = None
    start: str | None = None
    """Name of the checkpoint that its first step starts from; None for the weights that the model
    started from."""
    taskset: str | None = None
    parameters: Json | None = None
    """As in `JobStatus`; for a loop only group_size, if it reports that."""
    learning_rate: float | None = None
    """Of its newest step; so is `loss_fn`. `step` counts the steps taken."""
    loss_fn: str | None = None
    step: int = 0
    steps: int | None = None
    created_at: float | None = None
    """Unix seconds; so are the two below."""
    stepped_at: float | None = None
    finished_at: float | None = None
    busy_s: float | None = None
    """Seconds that a managed run has spent on its steps; for a loop, from its first to its newest
    step."""
    step_s: float | None = None
    """As in `JobStatus`; so is `waits`."""
    waits: str | None = None
    reward_first: float | None = None
    """Mean over its first five steps of the mean reward that they were trained on; for a run of
    fewer than ten steps, over its first half."""
    reward_last: float | None = None
    """The same over its newest five steps."""
    points: list[float] = Field(default_factory=list)
    """Mean rewards in order, at most 32: each the mean over `stride` steps."""
    stride: int = 1
    """Number of steps per point; the last point may have fewer."""
    heldout: float | None = None
    """Held-out reward of its newest evaluated checkpoint, else as reported by its newest step."""
    num_heldout_traces: int | None = None
    """Rollouts of that reward; None if it is unknown."""
    evaluation: Evaluation | None = None
    """Of its newest evaluated checkpoint."""
    rollouts: int = 0
    """Number of training rollouts, including batches that were sampled again."""
    no_gradient: float | None = None
    """Share of them in zero-variance groups."""
    tokens: int = 0
    """Generated tokens of its training rollouts."""
    alarms: int | None = None
    """Number of active alarms; None if no detector was run."""
    alarm: str | None = None
    """Level of the most severe one: info, warn or critical."""
    alarm_title: str | None = None
    revision: int = 0
    """Increases with every change of the row."""


class RunPage(Page[RunRecord]):
    """GET /v1/runs?since=REVISION, newest run first; with `since`, only rows changed after it."""

    revision: int = 0
    """The next value of `since`, once all pages are read."""


class RunSteps(Response):
    """GET /v1/runs/{id}/steps?after=N&keys=a,b: a run's steps as columns (embedded)."""

    step: list[int]
    """Number within the run, from 1 to `total`, shape (N,); all lists below have this shape."""
    at: list[float | None]
    """Unix seconds."""
    tokens: list[int]
    """Generated tokens of the step's rollouts."""
    checkpoint_id: list[str]
    metrics: dict[str, list[float | None]] = Field(default_factory=dict)
    """By key; null if a step does not report the metric."""
    total: int = 0
    evaluations: dict[str, list[Evaluation]] = Field(default_factory=dict)
    """Evaluations of its checkpoints, by checkpoint id; only if ``heldout_reward`` is requested."""


# Tasksets.


class TasksetRef(Response):
    """GET /v2/tasksets/by-name/{name}."""

    taskset_id: str
    name: str | None = None


class Taskset(Response):
    """GET /v2/tasksets/{id}."""

    id: str
    name: str
    can_edit: bool = True
    task_count: int | None = None
    description: str | None = None


class TasksetExport(Response):
    """GET /v2/tasksets/{id}/export."""

    taskset_id: str | None = None
    name: str
    tasks: list[Json]
    """Rows in any of the wire's formats; `hud_tui.rl.tasks.formats` reads them."""


class UploadTasks(OpenRequest):
    """POST /v2/tasks/upload."""

    taskset_name: str | None = None
    taskset_id: str | None = None
    project_id: str | None = None
    tasks: Many[Json] = Field(min_length=1)


class UploadResult(Response):
    taskset_id: str
    tasks_created: int
    tasks_updated: int


# Jobs, traces, and hosted rollouts.


class JobEnter(OpenRequest):
    name: str | None = None
    group: int | None = None
    taskset_id: str | None = None
    steps: int | None = None
    """Embedded: number of optimizer steps that the loop will take, from which its end is
    estimated."""


class RenameJob(Request):
    """PATCH /v2/jobs/{id}."""

    name: str = Field(min_length=1, max_length=200)


class TraceEnter(OpenRequest):
    job_id: str | None = None
    group_id: str | None = None
    task_slug: str | None = None
    model: str | None = None
    parent_trace_id: str | None = None
    step: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Embedded, as is `attempt`: in a run that a client drives, as in `Trace`."""
    attempt: int | None = Field(default=None, ge=1, le=1_000_000_000)


class TraceExit(OpenRequest):
    status: str = "completed"
    reward: float | None = None
    error: str | None = None
    evaluation_result: Json | None = None
    stop_reason: str | None = None
    metadata: Json | None = None


class Job(Response):
    """A row of GET /v2/jobs."""

    id: str
    name: str | None = None
    status: str | None = None
    created_at: str | None = None
    group_size: int | None = None
    taskset_id: str | None = None
    taskset_name: str | None = None
    metadata: Json | None = None
    """Embedded, for managed runs: kind ``training``, model_id, model, step, steps, attempt,
    reason, and sampled_step: the newest step that rollouts were sampled for, whether or not it
    was taken."""
    num_traces: int | None = None
    """Embedded: number of rollouts, including batches that were sampled again."""


class Trace(Response):
    """A row of GET /v2/jobs/{id}/traces, and the reply of GET /v2/trace/{id}."""

    id: str
    job_id: str | None = None
    status: str | None = None
    created_at: str | None = None
    task_slug: str | None = None
    reward: float | None = None
    stop_reason: str | None = None
    error: Any = None
    group_id: str | None = None
    """Embedded, as are all fields below."""
    step: int | None = None
    """The step of its job that it was sampled for, from 1."""
    attempt: int | None = None
    """Attempt at that step, from 1; the last one is trained on, earlier ones had zero variance."""
    rollout: int | None = None
    """Index in its group, from 0."""
    completion: str | None = None
    """The last assistant text, at most 200 characters."""
    num_tokens: int | None = None
    """Generated tokens over all turns."""
    heldout: bool | None = None
    evaluates: str | None = None
    """Id of the checkpoint that it was sampled from to evaluate it; `step` is then that
    checkpoint's. None if it was sampled to train `step`, from the weights before that step."""


class RolloutAgent(Request):
    """The agent of a hosted rollout."""

    type: str
    """E.g. openai_compatible."""
    config: Json
    """Its keys model, checkpoint, system_prompt and completion_kwargs are read."""


class SubmitRollout(OpenRequest):
    """POST /v2/rollouts/submit."""

    trace_id: str
    """Chosen by the client, as is `job_id`."""
    job_id: str
    env: str
    task: str
    """The scenario."""
    slug: str | None = None
    args: Json = Field(default_factory=dict)
    agent: RolloutAgent
    group_id: str | None = None
    parent_trace_id: str | None = None
    runtime_config: Json | None = None
    verifier: Json | None = None


class SubmittedRollout(Response):
    job_id: str
    trace_id: str
    status: str


class CancelRollout(Request):
    """POST /v2/rollouts/cancel; without a trace, the whole job."""

    job_id: str | None = None
    trace_id: str | None = None


class CancelJob(Request):
    """POST /v2/rollouts/cancel_job."""

    job_id: str


class CancelJobResult(Response):
    cancelled: int
    status: str | None = None
