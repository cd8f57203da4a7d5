"""A chat completion's reply in OpenAI's form, with the exact token ids on each choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.service.engines.base import Call, Sampled, Tokenizer
from hud_tui.service.ids import new_id
from hud_tui.service.refusals import Refused
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.wire import Chat

ASKED = 64
"""Most stop sequences in a request."""


@dataclass(frozen=True)
class Answered:
    """A request and what was sampled for it."""

    model: ModelRow
    node: Node | None
    body: Chat
    prompt: Sequence[int]
    sampled: Sequence[Sampled]
    started_at: float


def stops(body: Chat) -> list[str]:
    """The texts that end a completion. Raises Refused, 400, for too many."""
    asked = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(asked) > ASKED:
        raise Refused(400, f"at most {ASKED} stop sequences")
    return [text for text in asked if text]


def text_of(answered: Answered, sampled: Sampled, tokens: Tokenizer) -> str:
    """The completion's text, without the stop sequence that ended it."""
    text = tokens.decode(sampled.tokens)
    if sampled.finish_reason == "stop":
        ending = next((stop for stop in stops(answered.body) if text.endswith(stop)), "")
        text = text.removesuffix(ending)
    return text


def completion(answered: Answered, tokens: Tokenizer) -> dict[str, Any]:
    """The reply's body."""
    prompt, produced = len(answered.prompt), sum(len(s.tokens) for s in answered.sampled)
    return {
        "id": f"chatcmpl-{new_id()}",
        "object": "chat.completion",
        "created": int(answered.started_at),
        "model": answered.model.slug,
        "checkpoint": answered.node.id if answered.node else None,
        "choices": [
            _choice(answered, number, sampled, tokens)
            for number, sampled in enumerate(answered.sampled)
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": produced,
            "total_tokens": prompt + produced,
        },
    }


def _choice(answered: Answered, number: int, sampled: Sampled, tokens: Tokenizer) -> dict[str, Any]:
    body, message = answered.body, _message(answered, sampled, tokens)
    choice: dict[str, Any] = {
        "index": number,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else sampled.finish_reason,
        "logprobs": None,
    }
    if body.logprobs or body.return_token_ids:
        rows = zip(tokens.pieces(sampled.tokens), sampled.logprobs, strict=True)
        choice["logprobs"] = {
            "content": [
                {"token": piece, "logprob": logprob, "bytes": None, "top_logprobs": []}
                for piece, logprob in rows
            ]
        }
    if body.return_token_ids:
        choice |= {"prompt_token_ids": list(answered.prompt), "token_ids": sampled.tokens}
    return choice


def _message(answered: Answered, sampled: Sampled, tokens: Tokenizer) -> dict[str, Any]:
    """What was said; where tools were offered, calls of them beside the text.

    A call that was cut off is no call: it stays text.
    """
    if answered.body.tools and sampled.finish_reason == "stop":
        text, calls = tokens.calls(sampled.tokens)
        if calls:
            asked = [_call(call) for call in calls]
            return {"role": "assistant", "content": text or None, "tool_calls": asked}
    return {"role": "assistant", "content": text_of(answered, sampled, tokens)}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{new_id()}", "type": "function", "function": function}
