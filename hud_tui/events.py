"""What happens to a model while it trains: the values that a feed yields.

The embedded service sends them as server-sent events on
``GET /v1/models/{id}/train/events`` (SSE ``event:`` = `type`, ``data:`` = the JSON,
``id:`` = a number that grows and survives a restart). Against a service without
that endpoint the client polls and makes the same values from what changed.

One optimizer step arrives as Checkpoint, Head, Step, in that order, then Job. A Checkpoint
that is already known is an update: its stored state or its own rewards have changed.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from hud_tui.wire import Checkpoint, EvaluationJob, Group, JobStatus


class _Event(BaseModel):
    model_config = ConfigDict(
        extra="ignore", frozen=True, protected_namespaces=(), defer_build=True
    )

    at: float = 0.0
    """When it happened, Unix seconds by the service's clock; 0 where it cannot say."""


class TreeRead(_Event):
    """The whole tree as just read. A feed starts with one; never sent by a service."""

    type: Literal["tree"] = "tree"
    checkpoints: tuple[Checkpoint, ...]
    """Oldest first."""


class CheckpointAdded(_Event):
    type: Literal["checkpoint"] = "checkpoint"
    checkpoint: Checkpoint


class HeadMoved(_Event):
    type: Literal["head"] = "head"
    checkpoint_id: str | None
    previous: str | None = None
    cause: Literal["step", "set", "unknown"] = "unknown"
    """A training step promoted it, or somebody set it."""


class RolloutDone(_Event):
    type: Literal["rollout"] = "rollout"
    job_id: str | None = None
    trace_id: str
    step: int | None = None
    """The step it is sampled for, as its checkpoint will have it: counted over the tree.
    (The trace's own counts within its job.)"""
    task_slug: str | None = None
    rollout: int | None = None
    """Index in its group, from 0."""
    attempt: int | None = None
    """Attempt at its step, from 1: a zero-variance batch is sampled again."""
    reward: float | None = None
    status: str = "completed"
    heldout: bool = False
    num_tokens: int | None = None


class StepTaken(_Event):
    type: Literal["step"] = "step"
    step: int
    checkpoint_id: str
    job_id: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    groups: list[Group] = Field(default_factory=list)


class JobChanged(_Event):
    type: Literal["job"] = "job"
    job: JobStatus


class EvaluationChanged(_Event):
    """An evaluation was asked for, is further on, or is over. What it found is said of its
    checkpoint as well."""

    type: Literal["evaluation"] = "evaluation"
    evaluation: EvaluationJob


class EvaluationsRead(_Event):
    """All evaluations of the model that are known, as just read; never sent by a service."""

    type: Literal["evaluations"] = "evaluations"
    evaluations: tuple[EvaluationJob, ...]
    """Oldest first."""


Event = Annotated[
    TreeRead
    | CheckpointAdded
    | HeadMoved
    | RolloutDone
    | StepTaken
    | JobChanged
    | EvaluationChanged
    | EvaluationsRead,
    Field(discriminator="type"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event, config=ConfigDict(defer_build=True))
