"""Events of a model's training, which a feed yields.

The embedded service sends them as server-sent events on ``GET /v1/models/{id}/train/events`` (SSE
``event:`` = `type`, ``data:`` = the JSON, ``id:`` = a number that increases and survives a
restart). For a service without that endpoint the client polls, and derives the same events from
what changed.

One optimizer step produces CheckpointAdded, HeadMoved, StepTaken, in that order, then WorkChanged.
A CheckpointAdded for a known checkpoint is an update: its state or its own rewards have changed.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hud_tui.wire import Body, Checkpoint, Count, Group, Reward, WorkState, no_items
from hud_tui.wire_time import StepTime


class _Event(Body):
    model_config = ConfigDict(extra="ignore")

    at: float = 0.0
    """Time of the event, Unix seconds by the service's clock; 0 if unknown."""


class TreeRead(_Event):
    """The whole tree as just read. Every feed starts with one; a service never sends it."""

    type: Literal["tree"] = "tree"
    checkpoints: tuple[Checkpoint, ...]
    """Oldest first."""


class CheckpointAdded(_Event):
    type: Literal["checkpoint"] = "checkpoint"
    checkpoint: Checkpoint


class Act(StrEnum):
    """What a move of the head that somebody made does to those before it."""

    SET = "set"
    UNDO = "undo"
    REDO = "redo"


class Actor(Body):
    """Who moved a head: program and machine by their own account."""

    program: str
    """``app``, ``headless``, ``python`` or ``driver``; of another client, its User-Agent."""
    host: str = ""
    """Name or address of its machine; empty if unknown."""
    key: str = ""
    """Name of the key that it used, by the embedded service; empty for the admin's."""
    proposed_by: str = ""
    """Name of the key that proposed the move, which the former approved; empty if nobody did."""

    def claims(self, other: "Actor | None") -> bool:
        """Whether another says that it is the same program on the same machine, or says nothing."""
        return other is None or (self.program, self.host) == (other.program, other.host)


class HeadMoved(_Event):
    type: Literal["head"] = "head"
    checkpoint_id: str | None
    previous: str | None = None
    cause: Literal["step", "set", "unknown"] = "unknown"
    """Whether a training step moved it, or somebody set it."""
    act: Act = Act.SET
    by: Actor | None = None
    """Who set it; None if unknown."""


class RolloutDone(_Event):
    type: Literal["rollout"] = "rollout"
    job_id: str | None = None
    trace_id: str
    step: Count | None = None
    """The step that it is sampled for, counted over the whole tree like the checkpoint's number.
    (The number in the trace counts within its job.)"""
    task_slug: str | None = None
    rollout: Count | None = None
    """Index in its group, from 0."""
    attempt: Count | None = None
    """Attempt at its step, from 1: a zero-variance batch is sampled again."""
    reward: Reward | None = None
    status: str = "completed"
    heldout: bool = False
    num_tokens: Count | None = None


class StepTaken(_Event):
    type: Literal["step"] = "step"
    step: Count
    checkpoint_id: str
    job_id: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    groups: list[Group] = Field(default_factory=no_items)
    time: StepTime | None = None
    """Where its time went; None if the service does not say."""


class WorkChanged(_Event):
    """A run or an evaluation was submitted, progressed, or ended. An evaluation's result is in its
    checkpoint too."""

    type: Literal["work"] = "work"
    work: WorkState

    @property
    def run(self) -> WorkState | None:
        """The run; None if it is an evaluation."""
        return None if self.work.is_evaluation else self.work


class EvaluationsRead(_Event):
    """All known evaluations of the model as just read; a service never sends it."""

    type: Literal["evaluations"] = "evaluations"
    evaluations: tuple[WorkState, ...]
    """Oldest first."""


class MovesRead(_Event):
    """All moves of the head that somebody made, as just read; a stream never has it."""

    type: Literal["moves"] = "moves"
    moves: tuple[HeadMoved, ...] = ()
    """Oldest first."""
    since: float | None = None
    """Unix seconds since when none is missing; 0: from the beginning, None: some may be."""


Event = Annotated[
    TreeRead
    | CheckpointAdded
    | HeadMoved
    | RolloutDone
    | StepTaken
    | WorkChanged
    | EvaluationsRead
    | MovesRead,
    Field(discriminator="type"),
]
