"""The gateway: chat completions that carry tokens."""

from pydantic import ConfigDict, Field, field_validator

from hud_tui.wire.base import COOLEST, Json, Many, Request, Response


class Chat(Request):
    """POST /chat/completions, the part of OpenAI's request that is used here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    messages: Many[Json]
    stream: bool = False
    logprobs: bool | None = None
    return_token_ids: bool | None = None
    tools: Many[Json] | None = None
    checkpoint: str | None = None
    """Sample this checkpoint and not the head."""
    n: int | None = Field(default=None, ge=1, le=64)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = None
    """The embedded service samples from all tokens: it takes 1 only."""
    stop: str | Many[str] | None = None
    seed: int | None = None
    prompt_token_ids: Many[int] | None = None
    continuation_from: int | None = None

    @field_validator("temperature")
    @classmethod
    def _can_be_sampled_at(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < COOLEST:
            raise ValueError(f"0 takes the likeliest token; else at least {COOLEST}")
        return value


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
