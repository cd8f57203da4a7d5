"""A model's checkpoints, what they were trained on, and which one is served."""

from pydantic import Field

from hud_tui.wire.base import Request, Response


class Group(Response):
    """The rollouts of one task in one step."""

    task_slug: str
    rewards: list[float]
    """Shape (G,), in the taskset's reward unit."""
    trace_ids: list[str] = Field(default_factory=list)
    """Shape (G,), in the order of `rewards`."""
    num_tokens: list[int] = Field(default_factory=list)
    """Generated tokens of each rollout, shape (G,)."""


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
    """The run whose rollouts these were."""
    created_at: str | None = None


class Checkpoint(Response):
    """One node of a model's checkpoint tree. Every optim-step appends one."""

    id: str
    name: str | None = None
    """E.g. ``step-000012``."""
    checkpoint_name: str | None = None
    """The sampler path; what the chat's ``checkpoint`` pin takes (an id works too)."""
    prev_model_checkpoint_id: str | None = None
    """The parent; None where the step started from the base weights."""
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
