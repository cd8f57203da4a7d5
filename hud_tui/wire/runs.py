"""Managed runs: /v1/training/jobs."""

from typing import Literal

from pydantic import Field

from hud_tui.wire.base import COOLEST, Json, Many, Request, Response


class JobParameters(Request):
    """``config.parameters``: HUD defines reasoning_effort; the rest is the embedded service's."""

    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """How long a completion may be: on the embedded service it sets max_tokens."""
    steps: int | None = Field(default=None, ge=1, le=100_000)
    group_size: int | None = Field(default=None, ge=2, le=256)
    tasks_per_step: int | None = Field(default=None, ge=1, le=1024)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    loss_fn: str | None = None
    temperature: float | None = Field(default=None, ge=COOLEST, le=5)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1)
    heldout_every: int | None = Field(default=None, ge=1)
    """Steps between two samplings of the held-out tasks."""


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


class JobError(Response):
    code: str | None = None
    message: str | None = None
    param: str | None = None


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
