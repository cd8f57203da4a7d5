"""Jobs and traces, and rollouts that the service makes."""

from typing import Any

from pydantic import ConfigDict, Field

from hud_tui.wire.base import Json, Request, Response


class JobEnter(Request):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str | None = None
    group: int | None = None
    taskset_id: str | None = None


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
    """Which sampling of that step, from 1: the last one is trained on, those before had no
    spread."""
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


class TurnSample(Response):
    """A `Sample` as it is read back; a span may say more of it than a request may."""

    prompt_token_ids: list[int] | None = None
    prompt_chunks: list[Json] | None = None
    output_token_ids: list[int]
    output_logprobs: list[float] = Field(default_factory=list)


class TraceEvent(Response):
    """One row of `TraceEvents`; which fields are set depends on `kind`."""

    id: str
    seq: int
    kind: str
    """user_message, agent_message, tool_call or system."""
    parent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    text: str | None = None
    reasoning: str | None = None
    tool_calls: list[Json] | None = None
    tool_name: str | None = None
    arguments: Any = None
    result_text: str | None = None
    error: Any = None
    tokens: list[str] | None = None
    """Embedded: the output's tokens as text, one per logprob."""
    sample: TurnSample | None = None
    """Embedded: the turn's token ids and logprobs."""


class TraceEvents(Response):
    """GET /v2/trace/{id}/events?since_seq=-1."""

    events: list[TraceEvent]
    latest_seq: int = -1
    status: str | None = None
    reward: float | None = None


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
