"""The wire of sampling and training: completions of the gateway, training calls, and traces'
events.

Source: as for `hud_tui.wire`, whose rules for unknown fields apply here too.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from hud_tui.parameters import COOLEST
from hud_tui.wire import Json, Many, Request, Response, Reward, no_items

MOST_INPUTS = 2**18
"""Maximum number of inputs in one call: 1024 tasks of 256 rollouts."""


# The gateway: chat and text completions, with token ids.


class StreamOptions(Request):
    include_usage: bool | None = None
    """End the stream with a chunk without choices that has the usage of the whole request."""
    include_obfuscation: bool | None = None
    """Without effect: nothing is padded here."""


class Sampling(Request):
    """Fields that chat and text completions have in common, with OpenAI's names.

    The embedded service refuses options that it does not support, see `service.gateway.NEUTRAL`; it
    accepts and ignores fields that only label a request for OpenAI.
    """

    model: str
    checkpoint: str | None = None
    """Sample this checkpoint, or `BASE`, instead of the head."""
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
            raise PydanticCustomError(
                "temperature", f"0 takes the likeliest token; else at least {COOLEST}"
            )
        return value


class Chat(Sampling):
    """POST /chat/completions."""

    messages: Many[Json]
    tools: Many[Json] | None = None
    tool_choice: str | Json | None = None
    chat_template_kwargs: Json | None = None
    """Options of the model's chat template, e.g. ``{"enable_thinking": false}``."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    prompt_token_ids: Many[int] | None = None
    """The exact tokens of the previous turns, prompts and answers."""
    continuation_from: int | None = None
    """Number of messages that these tokens cover, without a system message."""

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
    """POST /completions: a prompt without a chat template."""

    prompt: str | Many[str] | Many[int] | Many[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=20)
    """Number of most likely tokens to report for each position, beside the sampled token's
    logprob."""

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


class CompletionChoice(Response):
    index: int = 0
    text: str = ""
    logprobs: Json | None = None


class CompletionReply(Response):
    choices: list[CompletionChoice]


# Training calls: /v1/models/{id}/train/….


class Losses(Response):
    losses: list[str]
    config: dict[str, dict[str, float]] | None = None
    """The keys of each loss's loss_fn_config, with their defaults (embedded); None: not told."""


class Sample(Request):
    """One sampled assistant turn."""

    prompt_token_ids: Many[int] | None = None
    prompt_chunks: Many[Json] | None = None
    output_token_ids: Many[int]
    output_logprobs: Many[float] = Field(default_factory=no_items)
    """Under the sampling policy, one per output token."""


class Demonstration(Request):
    """POST /v1/models/{id}/train/demonstration (embedded); the reply is a `Sample` without
    logprobs, of the last message."""

    messages: Many[Json]
    """Of a chat completion; the last one is the assistant's."""
    tools: Many[Json] | None = None


class Payload(Request):
    """One trajectory, inline."""

    samples: Many[Sample] = Field(min_length=1, max_length=MOST_INPUTS)
    reward: float
    trace_id: str | None = None


class ForwardBackward(Request):
    inputs: Many[str | Payload] = Field(min_length=1, max_length=MOST_INPUTS)
    """Trace ids and payloads. Their order matters: groups are consecutive."""
    loss_fn: str = "importance_sampling"
    loss_fn_config: dict[str, float] | None = None
    group_size: int | None = Field(default=None, ge=1)
    """None: the whole batch is one group."""
    reward_scale: float = 1.0
    num_substeps: int = Field(default=1, ge=1)
    kl_coef: float | None = Field(default=None, ge=0, le=100)
    """Embedded, as is `kl_reference`: a penalty as of a run's parameters."""
    kl_reference: str | None = None


class ForwardBackwardResult(Response):
    """The reply has these two keys only, because the SDK refuses others."""

    metrics: dict[str, float]
    num_datums: int


class OptimStep(Request):
    learning_rate: float = Field(gt=0)
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = Field(default=0.0, ge=0)
    draw: Literal["signal"] | None = None
    """Embedded: as in `Checkpoint`."""
    tasks: dict[str, float] | None = Field(default=None, max_length=10)
    """Embedded: how many tasks are of which kind, as metrics of the step; see
    `hud_tui.rl.metrics.TASK_COUNTS`."""


class OptimStepResult(Response):
    """The reply has these five keys only, because the SDK refuses others."""

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
    """Tensors of one turn; the three lists have the same length."""

    reward: float
    traj_idx: int
    group_idx: int | None = None
    logprobs: list[float]
    sampling_logprobs: list[float]
    mask: list[float]
    """1.0 for generated tokens, else 0.0."""


class ForwardResult(Response):
    forward_id: str
    data: list[ForwardDatum]


class Backward(Request):
    forward_id: str
    weights: Many[Many[float]] = Field(max_length=MOST_INPUTS)
    """−dC/dlogprob per datum and token."""
    metrics: dict[str, float] = Field(default_factory=dict)


# The messages of a rollout.
#
# They are text, parts (of OpenAI, Anthropic or MCP), whole messages, or results of tools. All are
# read as text; an image, a sound or a file becomes a line that describes it.


DEEPEST = 12
"""Maximum nesting of parts that are read as text; deeper ones are shown as JSON."""
NAMED = 200
"""Maximum characters of a URL or a name in such a line."""
TEXTS = (
    *("text", "content", "refusal", "thinking", "reasoning", "output", "parts", "resource"),
    "structuredContent",
)
"""Keys of a message or part that may contain its text; the first one with a value is used."""
MEDIA = ("image", "screenshot", "audio", "video", "file", "document", "resource")
"""Beginnings of the types of parts that are not text, after ``input_`` or ``output_``."""


def content_text(value: object, depth: int = DEEPEST) -> str:
    """The text of a message's content in any form."""
    if value is None or isinstance(value, str):
        return value or ""
    if depth and isinstance(value, list):
        return "\n".join(filter(None, (content_text(part, depth - 1) for part in value)))
    if depth and isinstance(value, dict):
        return _part_text(value, depth - 1)
    return value_text(value)


def value_text(value: object) -> str:
    """A call's arguments, or any other value, as one line of JSON; a text unchanged."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "(too deep to show)"


def call_parts(call: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments of a tool call in any form."""
    function = call.get("function")
    made = function if isinstance(function, Mapping) else call
    arguments = next((made[key] for key in ("arguments", "input", "args") if key in made), None)
    return value_text(made.get("name") or "?"), arguments


def call_text(call: Mapping[str, Any]) -> str:
    """A tool call in any form as text, e.g. ``say {"x": 4}``."""
    name, arguments = call_parts(call)
    return name if arguments is None else f"{name} {value_text(arguments)}"


def _part_text(part: Mapping[str, Any], depth: int) -> str:
    kind = str(part.get("type") or "").removeprefix("input_").removeprefix("output_")
    calls = part.get("tool_calls")
    if kind in ("tool_use", "function_call", "tool_call"):
        return f"→ {call_text(part)}"
    if kind.startswith(MEDIA) and (media := _media_line(kind, part)):
        return media
    text = next((part[key] for key in TEXTS if part.get(key)), None)
    if text is None and calls is None and kind in ("", "json") and "role" not in part:
        return value_text(part)
    made = [f"→ {call_text(call)}" for call in _calls(calls) or ()]
    return "\n".join(filter(None, [content_text(text, depth), *made]))


def _media_line(kind: str, part: Mapping[str, Any]) -> str:
    """Description of an image, a sound or a file, e.g. ``[image/png, 12 kB]``; empty if it is
    text."""
    inner = next((v for v in part.values() if isinstance(v, Mapping)), {})
    both = {**part, **inner}
    if kind == "resource" and isinstance(both.get("text"), str):
        return ""
    named = ("mimeType", "media_type", "mime_type")
    what = next((str(both[key]) for key in named if both.get(key)), kind.partition("_")[0])
    keys = ("data", "blob", "file_data", "url", "image_url", "uri", "file_id", "name")
    where = next((both[key] for key in keys if isinstance(both.get(key), str)), "")
    if where.startswith("data:"):
        head, _, where = where.partition(",")
        what = head.removeprefix("data:").partition(";")[0] or what
        return f"[{what[:NAMED]}, {_bytes(where)}]"
    if any(both.get(key) == where for key in ("data", "blob", "file_data")) and where:
        return f"[{what[:NAMED]}, {_bytes(where)}]"
    return f"[{what[:NAMED]}{f' {where[:NAMED]}' if where else ''}]"


def _bytes(base64: str) -> str:
    count = 3 * len(base64) // 4
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.0f} kB"


def _content(value: object) -> str | None:
    return None if value is None else content_text(value)


def _calls(value: object) -> list[Json] | None:
    if value is None:
        return None
    made = value if isinstance(value, list) else [value]
    return [
        dict(call) if isinstance(call, Mapping) else {"name": value_text(call)} for call in made
    ]


Content = Annotated[str | None, BeforeValidator(_content)]


class TurnSample(Response):
    """A `Sample` in a trace's event; it may have more fields than a request."""

    prompt_token_ids: list[int] | None = None
    prompt_chunks: list[Json] | None = None
    output_token_ids: list[int]
    output_logprobs: list[float] = Field(default_factory=no_items)


class TraceEvent(Response):
    """An event of `TraceEvents`; which fields are set depends on `kind`."""

    id: str
    seq: int
    kind: str
    """user_message, agent_message, tool_call or system."""
    parent_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    text: Content = None
    reasoning: Content = None
    tool_calls: Annotated[list[Json] | None, BeforeValidator(_calls)] = None
    tool_name: str | None = None
    arguments: Any = None
    result_text: Content = None
    screenshot_url: Content = None
    error: Any = None
    call_id: str | None = None
    """Embedded, as are all fields below: id of the call in the policy's `tool_calls`."""
    phase: str | None = None
    """``setup``, ``evaluate`` or the name of a span, if the environment did this, not the
    conversation; `name`, `arguments` and `result_text` are of what it did."""
    name: str | None = None
    tokens: list[str] | None = None
    """The output's tokens as text, one per logprob."""
    sample: TurnSample | None = None
    """The turn's token ids and logprobs."""


class TraceEvents(Response):
    """GET /v2/trace/{id}/events?since_seq=-1."""

    events: list[TraceEvent]
    latest_seq: int = -1
    status: str | None = None
    reward: Reward | None = None
