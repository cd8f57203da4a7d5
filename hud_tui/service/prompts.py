"""Prompts: a chat request's messages as token ids."""

from typing import Any

from hud_tui.service.engines.base import Tokenizer
from hud_tui.service.refusals import Refused
from hud_tui.wire import Chat


def prompt_ids(body: Chat, tokens: Tokenizer) -> list[int]:
    """The prompt's tokens: the conversation, or the given tokens and what came after them.

    With `prompt_token_ids` the first `continuation_from` messages, not counting a system
    message, are those tokens exactly; only the messages after them are rendered.

    Raises:
        Refused: 400, a message or a tool cannot be read, or continuation_from is negative.
    """
    messages = [_readable(message) for message in body.messages]
    if not messages and not body.prompt_token_ids:
        raise Refused(400, "messages is empty")
    if (body.continuation_from or 0) < 0:
        raise Refused(400, "continuation_from counts messages: it must be at least 0")
    try:
        if not body.prompt_token_ids:
            return tokens.render(messages, body.tools or ())
        covered = body.continuation_from or 0
        if messages and messages[0].get("role") in ("system", "developer"):
            covered += 1
        return [*body.prompt_token_ids, *tokens.follow(messages, covered)]
    except ValueError as error:
        raise Refused(400, str(error)) from error


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its text parts joined. Raises Refused, 400, for other parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise Refused(400, "only text parts can be read: this model sees no images")
    return {**message, "content": "".join(part["text"] for part in content)}
