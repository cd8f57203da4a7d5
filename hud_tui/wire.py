"""What travels: one pydantic model per JSON body, under the wire's own names.

A response keeps fields it does not know (``extra="allow"``): HUD's service sends
more than its SDK reads, and a newer server must not break an older client. A
request forbids them, so a typo fails here and not on the server.

Source: the request and reply models of the public ``hud`` SDK, 0.6.21. Fields
marked "embedded" are sent by the embedded service only; None or empty on HUD.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, field_validator

# What every body is made of, pages, and who and what answers.


T = TypeVar("T")
COOLEST = 0.01
"""The least temperature above 0 that can be sampled and trained at."""


class _FailFast(FailFast):
    __hash__ = object.__hash__  # a union hashes its members


Many = Annotated[list[T], _FailFast()]
"""A list that may be long: one item that does not fit is reported, not a million."""
Json = dict[str, Any]


class Response(BaseModel):
    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )


class Request(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )


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


class ServiceReady(Response):
    """What ``hud-tui serve`` prints when it can be called, and service.json holds."""

    url: str
    api_key: str
    telemetry_url: str
    pid: int
    data_dir: str


# A model's checkpoints, what they were trained on, and which one is served.


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
    """None if one task says nothing of others, as the one below."""
    high: float | None = None


class Evaluation(Response):
    """What one checkpoint's own weights scored on some tasks, without training on them."""

    split: str = "heldout"
    """Which tasks: ``heldout``, ``train`` or ``all`` of the taskset."""
    mean_reward: float
    """Mean over all rollouts, in the taskset's reward unit."""
    num_tasks: int
    num_traces: int
    """Rollouts in all: tasks times samples per task."""
    job_id: str | None = None
    """The job whose rollouts these were."""
    created_at: str | None = None
    id: str | None = None
    """What its rewards by task are asked for by; this and all below are absent in old rows."""
    samples: int | None = None
    """Rollouts per task."""
    mean: Estimate | None = None
    """`mean_reward` with its interval."""
    pass_at: dict[int, Estimate] = Field(default_factory=dict)
    """pass@k by k, from 1 to `samples`: the chance that one of k rollouts of a task solves it."""
    solved_at: float = 1.0
    """The reward from which on a rollout counts as solved."""
    name: str | None = None
    """What the tasks are called, e.g. the taskset's name."""
    tasks_digest: str | None = None
    """The same for two evaluations on the same tasks."""
    max_tokens: int | None = None
    """Most tokens of one answer."""
    temperature: float | None = None
    seed: int | None = None
    """Two evaluations of the same weights with the same seed have the same rollouts; None where
    the service takes none."""


class EvaluationJob(Response):
    """GET /v1/evaluations/{id}: an evaluation that is asked for, under way or over (embedded)."""

    id: str
    """Of its job too, which has the rollouts."""
    model_id: str
    model: str | None = None
    checkpoint_id: str | None = None
    """None: the weights that the model started from."""
    checkpoint: str | None = None
    """The checkpoint's name."""
    job_id: str | None = None
    """The managed run that asked for it; else the same as `id`."""
    status: str
    """A run's words: queued, running, succeeded, cancelled, failed, interrupted."""
    split: str = "heldout"
    name: str | None = None
    samples: int = 1
    num_tasks: int = 0
    done: int = 0
    """Rollouts that are made and kept."""
    total: int = 0
    mean_reward: float | None = None
    """Of those that are made."""
    parameters: Json = Field(default_factory=dict)
    """max_tokens, temperature, seed and solved_at, as it uses them."""
    created_at: str | None = None
    finished_at: str | None = None
    seconds: float | None = None
    """How long the rollouts that are made took, without waiting for others; None if unknown."""
    error: JobError | None = None
    result: Evaluation | None = None
    """None until it has succeeded."""
    groups: list[Group] = Field(default_factory=list)
    """The rewards by task, of those that are made; empty in lists and events."""


class EvaluationParameters(Request):
    """How the rollouts of an evaluation are sampled."""

    samples: int = Field(default=4, ge=1, le=256)
    """Rollouts per task."""
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=COOLEST, le=5)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """The same task's same rollout is sampled with the same numbers in every evaluation of this
    seed, so that two checkpoints differ by their weights more than by luck."""
    solved_at: float = 1.0


class UsualTasks(Response):
    """GET /v1/models/{id}/evaluations/tasks: what is evaluated where no tasks are named
    (embedded). 404 where the model has had no managed run."""

    name: str | None = None
    """What they are called, e.g. the taskset's name."""
    heldout: int = 0
    train: int = 0


class SubmitEvaluation(Request):
    """POST /v1/models/{id}/evaluations (embedded)."""

    checkpoint_id: str | None = None
    """None: the weights that the model started from."""
    split: Literal["heldout", "train", "all"] | None = None
    """None: the held-out tasks, or all where there are none."""
    tasks: Many[Json] | None = None
    """None: those of the model's latest managed run."""
    name: str | None = Field(default=None, max_length=200)
    """What the tasks are called."""
    parameters: EvaluationParameters = Field(default_factory=EvaluationParameters)


class Checkpoint(Response):
    """One node of a model's checkpoint tree. Every optim-step appends one."""

    id: str
    name: str | None = None
    """E.g. ``step-000012``."""
    checkpoint_name: str | None = None
    """The sampler path; what the chat's ``checkpoint`` pin takes (an id works too)."""
    prev_model_checkpoint_id: str | None = None
    """The parent; None if the step started from the base weights."""
    is_active: bool = False
    """Whether this is the head: the weights the gateway serves."""
    created_at: str | None = None
    num_traces: int | None = None
    num_datums: int | None = None
    num_tokens: int | None = None
    mean_reward: float | None = None
    """Mean over the rollouts that the step was trained on, in the taskset's reward unit. They were
    sampled from the parent's weights: this is the reward of the step, not of the checkpoint."""
    learning_rate: float | None = None
    loss_fn: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    """The step's metrics; an open set of keys."""
    step: int | None = None
    """Embedded: the optimizer step's number, counted over the whole tree from 1."""
    job_id: str | None = None
    """Embedded: the managed run that took the step."""
    tasks_digest: str | None = None
    """Embedded: the same for two steps of managed runs on the same tasks."""
    groups: list[Group] = Field(default_factory=list)
    """Embedded: the step's rewards by task."""
    state: str | None = None
    """Embedded: what is kept of it: ``full``, ``weights`` (served; training from it starts
    with fresh Adam moments), ``expired`` (neither), ``damaged`` (its file is missing,
    or not the one that was saved)."""
    pinned: bool = False
    """Embedded: whether its state is kept whatever the disk limit."""
    evaluations: list[Evaluation] = Field(default_factory=list)
    """Embedded: what rollouts from this checkpoint's own weights scored, oldest first."""


class CheckpointTrace(Response):
    """One row of GET /v2/models/{id}/checkpoints/{cid}/traces."""

    trace_id: str
    status: str | None = None
    created_at: str | None = None
    reward: float | None = None
    task_slug: str | None = None
    """Embedded, as the one below."""
    rollout: int | None = None
    """Index in its group, from 0."""


class SetHead(Request):
    """Body of PUT /v2/models/{model_id}/head."""

    checkpoint_id: str


# Environments, as the registry has them.


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
    """A list of names; anything else means the service cannot say."""


# Models that can be trained, and what an engine says of itself.


class Provider(Response):
    name: str | None = None


class TrainingDefaults(Response):
    """What a run on this model starts from."""

    learning_rate: float
    group_size: int
    max_tokens: int
    tasks_per_step: int
    steps: int


class Disk(Response):
    """What a model's checkpoints take on the service's disk (embedded)."""

    checkpoint_bytes: int
    """Of one, as last measured."""
    used_bytes: int
    """By the checkpoints of all models."""
    max_bytes: int
    """Beyond this the oldest are thinned."""
    free_bytes: int | None = None
    """What the disk has room for besides."""


class EngineState(Response):
    """What samples and trains a model, and where."""

    engine: str
    """``tiny`` or ``tinker``."""
    server: str | None = None
    """URL of the server that has its weights; None on this machine."""
    place: str = ""
    """What people call that server, e.g. ``gpubox · 2×H100``; empty: by its URL."""
    queue: str = "active"
    """``active``, or what requests wait for, in plain words."""
    slots: int = 0
    """Training runs that are open on the server now."""
    ttl_s: int | None = None
    """How long the server keeps a checkpoint; None: until it is deleted."""
    saves_per_step: int = 0
    """Checkpoints that every optimizer step leaves on `server`, which keeps (and may bill for)
    them; 0 where there is no server. The tree, metrics, rewards and rollouts are kept on this
    machine in either case; with a server, a checkpoint's file here only says where it is there."""


class Model(Response):
    """One row of the catalog, GET /v2/models; also the reply to a fork."""

    id: str
    model_name: str
    """The slug that the gateway serves it under."""
    name: str | None = None
    sdk_agent_type: str | None = None
    is_trainable: bool = False
    provider: Provider | None = None
    created_at: str | None = None
    checkpoint_count: int | None = None
    training_defaults: TrainingDefaults | None = None
    """Embedded."""
    base_model: str | None = None
    """Embedded: the base whose architecture and vocabulary it has."""
    context_length: int | None = None
    """Embedded: most tokens of prompt and answer together."""
    forked_from: str | None = None
    """Embedded: slug of the source, with ``@checkpoint-name`` where it had a head."""
    disk: Disk | None = None
    """Embedded; None where checkpoints are kept on a server (`engine.server`)."""
    engine: EngineState | None = None
    """Embedded."""


class Fork(Request):
    """POST /v2/models/fork."""

    source_model_id: str
    name: str = Field(min_length=1, max_length=100)
    checkpoint_id: str | None = None
    """Embedded: start at this checkpoint of the source and not at its head."""


# Managed runs: /v1/training/jobs.


class JobParameters(Request):
    """``config.parameters``: HUD defines reasoning_effort; the rest is the embedded service's."""

    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """How long a completion may be: on the embedded service it sets max_tokens."""
    steps: int | None = Field(default=None, ge=1, le=100_000)
    group_size: int | None = Field(default=None, ge=2, le=256)
    tasks_per_step: int | None = Field(default=None, ge=1, le=1024)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    loss_fn: str | None = None
    loss_fn_config: dict[str, float] | None = None
    """The loss's own keys, e.g. ``clip_high_threshold`` of ppo."""
    reward_scale: float | None = Field(default=None, ge=-1e6, le=1e6)
    """What advantages (of cross_entropy: rewards) are multiplied by; 1 where it is not given."""
    norm_adv_by_std: bool | None = None
    """Divide each group's advantages by the standard deviation of its rewards, as GRPO does; off
    where it is not given (Liu et al. 2025, arXiv:2503.20783: it favours the too easy and the too
    hard)."""
    beta1: float | None = Field(default=None, ge=0, lt=1)
    """Adam's, as the three below."""
    beta2: float | None = Field(default=None, ge=0, lt=1)
    eps: float | None = Field(default=None, ge=1e-16, le=1)
    weight_decay: float | None = Field(default=None, ge=0, le=10)
    temperature: float | None = Field(default=None, ge=COOLEST, le=5)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1)
    sweep: str | None = Field(default=None, max_length=100)
    """What several runs that belong together are called; it changes nothing about them."""
    heldout_every: int | None = Field(default=None, ge=1)
    """Steps between two samplings of the held-out tasks."""
    eval_every: int | None = Field(default=None, ge=1)
    """Steps between two evaluations of the newest checkpoint on the held-out tasks."""
    eval_samples: int | None = Field(default=None, ge=1, le=256)
    """Rollouts per task of these, and of the evaluation at the end."""
    baseline: bool | None = None
    """Evaluate the weights that the first step is taken from as well."""

    @field_validator("reward_scale")
    @classmethod
    def _leaves_a_gradient(cls, value: float | None) -> float | None:
        if value == 0:
            raise ValueError("0 leaves no gradient")
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


class ModelRef(Response):
    id: str


class SubmittedJob(Response):
    job_id: str
    model: ModelRef


class JobStatus(Response):
    """GET /v1/training/jobs/{model id or job id}/raw-status."""

    status: str
    """HUD's words; the embedded service adds ``interrupted`` (resumable)."""
    model: str | None = None
    fine_tuned_model: str | None = None
    created_at: float | None = None
    """Unix seconds, as the two below."""
    finished_at: float | None = None
    estimated_finish: float | None = None
    trained_tokens: int | None = None
    """Embedded: generated tokens that had a gradient, all steps together."""
    error: JobError | str | None = None
    id: str | None = None
    """Embedded, as all below: the job's id."""
    name: str | None = None
    """E.g. ``mixed on arith-rl``."""
    model_id: str | None = None
    step: int | None = None
    """Steps taken so far."""
    steps: int | None = None
    parameters: Json | None = None
    """Every parameter as the run uses it, defaults filled in."""
    reason: str | None = None
    """Why it ended well before its last step; of one that did not, `error` says why."""
    note: str | None = None
    """Why its step is being sampled again."""
    attempt: int | None = None
    """Which sampling of the next step is due, from 1."""
    waits: str | None = None
    """What the engine's server holds it up with; None while it goes on."""
    driver: str | None = None
    """The machine and process that drives it, e.g. ``laptop:4711``; None: the service does."""
    asked: str | None = None
    """``cancel``: its driver has been asked to stop, and has not yet."""


class DriveRun(Request):
    """PUT /v1/training/jobs/{id}/drive (embedded): a run whose steps a client takes begins, or goes
    on."""

    model_id: str
    name: str = Field(min_length=1, max_length=200)
    taskset: str = Field(default="", max_length=200)
    driver: str = Field(min_length=1, max_length=200)
    """As of `JobStatus`."""
    parameters: Json
    """Every parameter, as of `JobStatus`; ``steps`` and ``group_size`` among them."""


class DriveReport(Request):
    """PATCH of the same: how the run is doing. Its driver sends one every few seconds; without any
    for a while, the run is ``interrupted``."""

    status: Literal["running", "succeeded", "failed", "cancelled", "interrupted"] = "running"
    busy_s: float | None = Field(default=None, ge=0)
    """Seconds spent on its steps so far."""
    attempt: int | None = Field(default=None, ge=1)
    """Which sampling of the next step is due."""
    wasted: int = Field(default=0, ge=0, le=1_000_000)
    """Rollouts without a gradient since the last report, which will not be trained on."""
    note: str | None = Field(default=None, max_length=2000)
    reason: str | None = Field(default=None, max_length=2000)
    error: JobError | None = None


class KeepEvaluation(Request):
    """PUT /v1/evaluations/{id} (embedded): how an evaluation is doing whose rollouts a client
    makes, under a job of the same id."""

    model_id: str
    checkpoint_id: str | None = None
    """None: the weights that the model started from."""
    run_id: str | None = None
    """The run that a client drives and that asked for it; None: nobody's."""
    status: Literal["running", "succeeded", "failed", "cancelled"] = "running"
    split: Literal["heldout", "train", "all"] = "heldout"
    name: str | None = Field(default=None, max_length=200)
    """What the tasks are called."""
    samples: int = Field(ge=1, le=256)
    """Rollouts per task."""
    num_tasks: int = Field(ge=1, le=1_000_000)
    parameters: Json = Field(default_factory=dict)
    """max_tokens, temperature and solved_at, as of `EvaluationJob`."""
    seconds: float | None = Field(default=None, ge=0)
    error: JobError | None = None
    groups: Many[Group] = Field(default_factory=list)
    """Rewards by task; of one that has succeeded, all of them."""


class RunRecord(Response):
    """One row of GET /v1/runs (embedded): a managed run, or a loop that is driven from outside."""

    id: str
    """Of its job; a loop that steps without a job of its own has its model's id."""
    kind: str = "training"
    """training: the service takes the steps; reported: a client's loop does."""
    name: str | None = None
    status: str | None = None
    """A job's words; None if nobody says, as of a loop without a job."""
    model_id: str
    model: str | None = None
    base: str | None = None
    engine: str | None = None
    """tiny or tinker; None if the model's base is not this service's engine's."""
    forked_from: str | None = None
    start: str | None = None
    """Name of the checkpoint that its first step was, or will be, taken from; None: the weights
    that the model started from."""
    taskset: str | None = None
    parameters: Json | None = None
    """As of `JobStatus`; of a loop, group_size alone where it says so."""
    learning_rate: float | None = None
    """Of its newest step, as the one below."""
    loss_fn: str | None = None
    step: int = 0
    """Steps taken."""
    steps: int | None = None
    created_at: float | None = None
    """Unix seconds, as the two below."""
    stepped_at: float | None = None
    finished_at: float | None = None
    busy_s: float | None = None
    """Seconds that a managed run has spent on its steps; of a loop, from first to newest."""
    reward_first: float | None = None
    """Mean of the mean rewards of its first five steps, of rollouts that they were trained on; of a
    run of fewer than ten, of its first half."""
    reward_last: float | None = None
    """The same of its newest five."""
    points: list[float] = Field(default_factory=list)
    """Its mean rewards in order, at most 32: each the mean of so many steps."""
    stride: int = 1
    """How many steps a point stands for; the last one may be of fewer."""
    heldout: float | None = None
    """Held-out reward: of its newest evaluated checkpoint, else as its newest step reports it."""
    num_heldout_traces: int | None = None
    """Rollouts of that reward; None if nobody says."""
    evaluation: Evaluation | None = None
    """Of its newest checkpoint that has one."""
    rollouts: int = 0
    """Sampled to train on, those of batches that were sampled again too."""
    no_gradient: float | None = None
    """Share of them whose group had no variance."""
    tokens: int = 0
    """Generated in the rollouts of its steps."""
    alarms: int | None = None
    """How many of them hold; None if no detector has looked."""
    alarm: str | None = None
    """The worst of these: info, warn or critical."""
    alarm_title: str | None = None
    revision: int = 0
    """Grows with every change of the row."""


class RunPage(Page[RunRecord]):
    """GET /v1/runs?since=REVISION, newest run first; with `since`, only rows changed after it."""

    revision: int = 0
    """To ask `since` next, once all pages are read."""


class RunSteps(Response):
    """GET /v1/runs/{id}/steps?after=N&keys=a,b: a run's steps as columns (embedded)."""

    step: list[int]
    """Within the run, from 1, shape (N,), as all below."""
    at: list[float | None]
    """Unix seconds."""
    tokens: list[int]
    """Generated in the step's rollouts."""
    checkpoint_id: list[str]
    metrics: dict[str, list[float | None]] = Field(default_factory=dict)
    """By key; null where a step has no such number."""
    total: int = 0
    """Steps of the run."""
    evaluations: dict[str, list[Evaluation]] = Field(default_factory=dict)
    """Of any of its checkpoints, by their ids; only where ``heldout_reward`` is asked for."""


# Tasksets: listed, read and uploaded.


TaskRow = Json
"""A task row in any of the wire's formats; `hud_tui.rl.tasks.formats` reads them."""


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
    tasks: list[TaskRow]


class UploadTasks(Request):
    """POST /v2/tasks/upload."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    taskset_name: str | None = None
    taskset_id: str | None = None
    project_id: str | None = None
    tasks: Many[TaskRow] = Field(min_length=1)


class UploadResult(Response):
    taskset_id: str
    tasks_created: int
    tasks_updated: int


# Jobs and traces, and rollouts that the service makes.


class JobEnter(Request):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str | None = None
    group: int | None = None
    taskset_id: str | None = None
    steps: int | None = None
    """Embedded: how many optimizer steps the loop will take, so that it has an end in sight."""


class RenameJob(Request):
    """PATCH /v2/jobs/{id}."""

    name: str = Field(min_length=1, max_length=200)


class TraceEnter(Request):
    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str | None = None
    group_id: str | None = None
    task_slug: str | None = None
    model: str | None = None
    parent_trace_id: str | None = None


class TraceExit(Request):
    model_config = ConfigDict(extra="ignore", frozen=True)

    status: str = "completed"
    reward: float | None = None
    error: str | None = None
    evaluation_result: Json | None = None
    stop_reason: str | None = None
    metadata: Json | None = None


class Job(Response):
    """One row of GET /v2/jobs."""

    id: str
    name: str | None = None
    status: str | None = None
    created_at: str | None = None
    group_size: int | None = None
    taskset_id: str | None = None
    taskset_name: str | None = None
    metadata: Json | None = None
    """Embedded, for managed runs: kind ``training``, model_id, model, step, steps, attempt,
    reason, and sampled_step: the newest step that rollouts were sampled for, taken or not."""
    num_traces: int | None = None
    """Embedded: all its rollouts, those of batches that were sampled again too."""


class Trace(Response):
    """One row of GET /v2/jobs/{id}/traces, and GET /v2/trace/{id}."""

    id: str
    job_id: str | None = None
    status: str | None = None
    created_at: str | None = None
    task_slug: str | None = None
    reward: float | None = None
    stop_reason: str | None = None
    error: Any = None
    group_id: str | None = None
    """Embedded, as all below."""
    step: int | None = None
    """The step of its job that it was sampled for, from 1."""
    attempt: int | None = None
    """Attempt at that step, from 1: the last one is trained on, earlier ones had zero variance."""
    rollout: int | None = None
    """Index in its group, from 0."""
    completion: str | None = None
    """The last assistant text, at most 200 characters."""
    num_tokens: int | None = None
    """Generated tokens, all turns."""
    heldout: bool | None = None
    evaluates: str | None = None
    """The checkpoint that it was sampled from to evaluate it, `step` being that checkpoint's; None
    where it was sampled for `step`, from the weights before that."""


class RolloutAgent(Request):
    """Who makes a hosted rollout."""

    type: str
    """E.g. openai_compatible."""
    config: Json
    """model, checkpoint, system_prompt and completion_kwargs are read."""


class SubmitRollout(Request):
    """POST /v2/rollouts/submit."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    trace_id: str
    """Chosen by the client, as the job's."""
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
