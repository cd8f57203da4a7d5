"""Prompts: what a request asks to be continued, as token ids."""

from typing import Any

from hud_tui.service.engines.base import Tokenizer
from hud_tui.service.refusals import Refused
from hud_tui.wire import Chat, Completion

MOST_PROMPTS = 64
"""Most prompts in one text completion."""


def prompt_ids(body: Chat, tokens: Tokenizer) -> list[int]:
    """The prompt's tokens: the conversation, or the given tokens and what came after them.

    With `prompt_token_ids` the first `continuation_from` messages, not counting a system
    message, are those tokens exactly; only the messages after them are rendered. Tools that
    may not be called (``tool_choice: none``) are not shown to the model.

    Raises:
        Refused: 400, a message, a tool or an option of the template cannot be read, or
            continuation_from is negative.
    """
    messages = [_readable(message) for message in body.messages]
    if not messages and not body.prompt_token_ids:
        raise Refused(400, "messages is empty", param="messages")
    if (body.continuation_from or 0) < 0:
        problem = "continuation_from counts messages: it must be at least 0"
        raise Refused(400, problem, param="continuation_from")
    options = body.chat_template_kwargs or {}
    try:
        if not body.prompt_token_ids:
            return tokens.render(messages, offered_tools(body), options)
        covered = body.continuation_from or 0
        if messages and messages[0].get("role") in ("system", "developer"):
            covered += 1
        return [*body.prompt_token_ids, *tokens.follow(messages, covered, options)]
    except ValueError as error:
        raise Refused(400, str(error)) from error


def offered_tools(body: Chat) -> list[dict[str, Any]]:
    """The tools that an answer may call."""
    return [] if body.tool_choice == "none" else body.tools or []


def text_prompts(body: Completion, tokens: Tokenizer) -> list[list[int]]:
    """A text completion's prompts, one or many, as texts or as token ids.

    Raises:
        Refused: 400, none, an empty one, or too many.
    """
    given: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if given and isinstance(given[0], int):
        given = [given]
    if not 1 <= len(given) <= MOST_PROMPTS:
        raise Refused(400, f"prompt must be 1 to {MOST_PROMPTS} prompts", param="prompt")
    prompts = [tokens.encode(one) if isinstance(one, str) else list(one) for one in given]
    if not all(prompts):
        raise Refused(400, "prompt must not be empty", param="prompt")
    return prompts


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its text parts joined. Raises Refused, 400, for other parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            problem = "only text parts can be read: this model sees no images"
            raise Refused(400, problem, param="messages")
    return {**message, "content": "".join(part["text"] for part in content)}
