"""What travels when tokens are sampled and trained on, by the gateway and step by step.

Source: as `hud_tui.wire`, whose rules for fields that are not known hold here too.
"""

from typing import Literal

from pydantic import Field, field_validator

from hud_tui.wire import COOLEST, Json, Many, Request, Response

MOST_INPUTS = 2**18
"""Longest list of inputs in one call: 1024 tasks of 256 rollouts."""


# The gateway: chat and text completions that carry tokens.


class StreamOptions(Request):
    include_usage: bool | None = None
    """End the stream with a chunk that has no choices and the whole request's usage."""
    include_obfuscation: bool | None = None
    """Of no effect: nothing is padded here."""


class Sampling(Request):
    """What chat and text completions ask for alike, by OpenAI's names.

    What the embedded service does not do it refuses by name, see `service.gateway.NEUTRAL`;
    what only labels a request for OpenAI's books it takes and forgets.
    """

    model: str
    checkpoint: str | None = None
    """Sample this checkpoint and not the head."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    n: int | None = Field(default=None, ge=1, le=64)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: str | Many[str] | None = None
    seed: int | None = None

    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    user: str | None = None
    metadata: Json | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    @field_validator("temperature")
    @classmethod
    def _can_be_sampled_at(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < COOLEST:
            raise ValueError(f"0 takes the likeliest token; else at least {COOLEST}")
        return value


class Chat(Sampling):
    """POST /chat/completions."""

    messages: Many[Json]
    tools: Many[Json] | None = None
    tool_choice: str | Json | None = None
    chat_template_kwargs: Json | None = None
    """The model's chat template's own options, e.g. ``{"enable_thinking": false}``."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    prompt_token_ids: Many[int] | None = None
    """The exact tokens of the turns before: their prompt and what was answered."""
    continuation_from: int | None = None
    """How many messages those tokens are, without a system message."""

    parallel_tool_calls: bool | None = None
    response_format: Json | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    audio: Json | None = None
    prediction: Json | None = None
    web_search_options: Json | None = None
    functions: Many[Json] | None = None
    function_call: str | Json | None = None


class Completion(Sampling):
    """POST /completions: a prompt as it is, with no chat template around it."""

    prompt: str | Many[str] | Many[int] | Many[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    """How many of the likeliest tokens to tell beside each token's own logprob."""

    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class ChatMessage(Response):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[Json] | None = None


class ChatChoice(Response):
    index: int = 0
    message: ChatMessage
    finish_reason: str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: Json | None = None


class ChatReply(Response):
    id: str
    model: str
    choices: list[ChatChoice]
    usage: Json | None = None


# One step at a time: /v1/models/{id}/train/….


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
