"""The wire of rollouts: their traces, how a client reports its own, and hosted ones.

Source: as for `hud_tui.wire`, whose rules for unknown fields apply here too.
"""

from typing import Any

from pydantic import Field

from hud_tui.wire import Count, Json, Many, OpenRequest, Request, Response, Reward


class CheckpointTrace(Response):
    """A row of GET /v2/models/{id}/checkpoints/{cid}/traces."""

    trace_id: str
    status: str | None = None
    created_at: str | None = None
    reward: Reward | None = None
    task_slug: str | None = None
    """Embedded; so is `rollout`."""
    rollout: Count | None = None
    """Index in its group, from 0."""


class JobEnter(OpenRequest):
    name: str | None = None
    group: Count | None = None
    taskset_id: str | None = None
    steps: Count | None = None
    """Embedded: number of optimizer steps that the loop will take, from which its end is
    estimated."""


class TraceEnter(OpenRequest):
    job_id: str | None = None
    group_id: str | None = None
    task_slug: str | None = None
    model: str | None = None
    parent_trace_id: str | None = None
    step: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Embedded, as is `attempt`: in a run that a client drives, as in `Trace`."""
    attempt: int | None = Field(default=None, ge=1, le=1_000_000_000)
    played: bool = False
    """Embedded: as in `Trace`."""


class TraceExit(OpenRequest):
    status: str = "completed"
    reward: float | None = None
    error: str | None = None
    evaluation_result: Json | None = None
    stop_reason: str | None = None
    metadata: Json | None = None


class Trace(Response):
    """A row of GET /v2/jobs/{id}/traces, and the reply of GET /v2/trace/{id}."""

    id: str
    job_id: str | None = None
    status: str | None = None
    created_at: str | None = None
    task_slug: str | None = None
    reward: Reward | None = None
    stop_reason: str | None = None
    error: Any = None
    group_id: str | None = None
    """Embedded, as are all fields below."""
    step: Count | None = None
    """The step of its job that it was sampled for, from 1."""
    attempt: Count | None = None
    """Attempt at that step, from 1; the last one is trained on, earlier ones had zero variance."""
    rollout: Count | None = None
    """Index in its group, from 0."""
    completion: str | None = None
    """The last assistant text, at most 200 characters."""
    num_tokens: Count | None = None
    """Generated tokens over all turns."""
    heldout: bool | None = None
    evaluates: str | None = None
    """Id of the checkpoint that it was sampled from to evaluate it; `step` is then that
    checkpoint's. None if it was sampled to train `step`."""
    sampled_from: str | None = None
    """Id of the checkpoint whose weights gave its first answer, or ``base``; None if unknown."""
    model: str | None = None
    """Slug of the model that was sampled."""
    checkpoint_id: str | None = None
    """Id of the checkpoint that the step made which was trained on it; None if none was."""
    discarded: str | None = None
    """Why not trained on, one of `hud_tui.rl.timeline.REASONS`; only in the reply for
    one trace, as is `expected`."""
    expected: str | None = None
    """The answer that earns the whole reward, if the environment is the service's own."""
    evaluation_result: Any = None
    """What the grader reported, as in `TraceExit`; only in the reply for one trace."""
    task: Json | None = None
    """The row of its task, if the service made it; only in the reply for one trace."""
    played: bool | None = None
    """Whether a person was the policy of at least one turn: it is never trained on, and counts in
    no statistics."""


class Spans(Request):
    """POST /trace/{id}/telemetry-upload."""

    telemetry: Many[Json]


class RolloutAgent(Request):
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
