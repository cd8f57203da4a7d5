"""One step at a time: /v1/models/{id}/train/…."""

from typing import Literal

from pydantic import Field

from hud_tui.wire.base import MOST_INPUTS, Json, Many, Request, Response


class Losses(Response):
    losses: list[str]


class Sample(Request):
    """One assistant turn as it was sampled."""

    prompt_token_ids: Many[int] | None = None
    prompt_chunks: Many[Json] | None = None
    output_token_ids: Many[int]
    output_logprobs: Many[float] = Field(default_factory=list)
    """Under the sampling policy, one per output token."""


class Payload(Request):
    """One trajectory, inline."""

    samples: Many[Sample] = Field(min_length=1, max_length=MOST_INPUTS)
    reward: float
    trace_id: str | None = None


class ForwardBackward(Request):
    inputs: Many[str | Payload] = Field(min_length=1, max_length=MOST_INPUTS)
    """Trace ids and payloads, in an order that matters: groups are consecutive."""
    loss_fn: str = "importance_sampling"
    loss_fn_config: dict[str, float] | None = None
    group_size: int | None = Field(default=None, ge=1)
    """None: the whole batch is one group."""
    reward_scale: float = 1.0
    num_substeps: int = Field(default=1, ge=1)


class ForwardBackwardResult(Response):
    """The reply holds these two keys and no other: the SDK refuses a third."""

    metrics: dict[str, float]
    num_datums: int


class OptimStep(Request):
    learning_rate: float = Field(gt=0)
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = Field(default=0.0, ge=0)


class OptimStepResult(Response):
    """The reply holds these five keys and no other: the SDK refuses a sixth."""

    step: int
    checkpoint_id: str
    sampler_path: str
    state_path: str
    model: str


class Forward(Request):
    inputs: Many[str | Payload] = Field(min_length=1, max_length=MOST_INPUTS)
    group_size: int | None = Field(default=None, ge=1)
    reward_scale: float = 1.0


class ForwardDatum(Response):
    """One turn's tensors; the three lists are equally long."""

    reward: float
    traj_idx: int
    group_idx: int | None = None
    logprobs: list[float]
    sampling_logprobs: list[float]
    mask: list[float]
    """1.0 on the generated tokens."""


class ForwardResult(Response):
    forward_id: str
    data: list[ForwardDatum]


class Backward(Request):
    forward_id: str
    weights: Many[Many[float]] = Field(max_length=MOST_INPUTS)
    """−dC/dlogprob per datum and token."""
    metrics: dict[str, float] = Field(default_factory=dict)


class Settled(Response):
    """POST /v1/models/{id}/train/calls/{key}/settle (embedded)."""

    state: Literal["done", "dropped", "never"]
    """dropped: its gradients are gone; never: it did not arrive, and is refused if it does."""
    call: str | None = None
    reply: Json | None = None
    """What was answered."""
