"""The character tokenizer and its chat template.

128 ids: printable ASCII, newline and tab stand for themselves; a few control ids mark
whose turn it is. Text never becomes a control id, so no prompt can forge a role.

    [system]…[end][user]3 + 4 = ?[end][assistant]7[end]

A conversation's rendering is the concatenation of its turns, so a longer conversation
continues a shorter one token by token.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hud_tui.service.engines.base import NO_OPTIONS, Call

VOCABULARY = 128
PAD, END, SYSTEM, USER, ASSISTANT, TOOL, TOOLS, CALL = range(8)
UNKNOWN = 127
"""Stands for any character outside the vocabulary."""
REPLACEMENT = "\ufffd"
"""How UNKNOWN reads."""

CONTROLS = {
    PAD: "[pad]",
    END: "[end]",
    SYSTEM: "[system]",
    USER: "[user]",
    ASSISTANT: "[assistant]",
    TOOL: "[tool]",
    TOOLS: "[tools]",
    CALL: "[call]",
}
ROLES = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": TOOL,
}
TEXT_IDS = {ord(char): char for char in "\t\n" + "".join(map(chr, range(32, 127)))}


class CharTokenizer:
    """One id a character. Implements `engines.base.Tokenizer`."""

    vocabulary = VOCABULARY

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Prompt ids of a conversation in OpenAI's form, ending where the answer begins.

        Raises:
            ValueError: A role is unknown, a content is not text, or a tool or a call is not
                of that form; names the place. An option but ``enable_thinking: false``.
        """
        if any(name != "enable_thinking" or on for name, on in options.items()):
            raise ValueError("chat_template_kwargs: this model's chat template has no options")
        shown = "\n".join(_signature(f"tools[{n}]", tool) for n, tool in enumerate(tools))
        ids = [TOOLS, *self.encode(shown), END] if tools else []
        for index, message in enumerate(messages):
            role = ROLES.get(str(message.get("role")))
            if role is None:
                raise ValueError(f"messages[{index}].role must be one of {', '.join(ROLES)}")
            ids += [role, *self.encode(_text(index, message.get("content")))]
            ids += [*self._calls(f"messages[{index}].tool_calls", message), END]
        return [*ids, ASSISTANT]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; a character outside the vocabulary becomes UNKNOWN."""
        return [ord(char) if ord(char) in TEXT_IDS else UNKNOWN for char in text]

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Ids of the messages after the first `covered`. Raises ValueError as `render` does."""
        return self.render(messages[covered:], (), options)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without control tokens; UNKNOWN reads as U+FFFD."""
        return "".join(REPLACEMENT if i == UNKNOWN else TEXT_IDS.get(i, "") for i in ids)

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        """The calls ``[call]name{…}`` of an answer, and the text before them."""
        starts = [place for place, id_ in enumerate(ids) if id_ == CALL]
        bounds = pairwise([*starts, len(ids)])
        named = [self.decode(ids[a + 1 : b]).partition("{") for a, b in bounds]
        calls = [Call(name.strip(), f"{brace}{rest}" or "{}") for name, brace, rest in named]
        return self.decode(ids[: starts[0]] if starts else ids), [
            call for call in calls if call.name
        ]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as visible text: a character, a control's name, or ``[id N]``."""
        named = {**TEXT_IDS, **CONTROLS, UNKNOWN: REPLACEMENT}
        return [named.get(i, f"[id {i}]") for i in ids]

    def _calls(self, place: str, message: Mapping[str, Any]) -> list[int]:
        """An assistant's tool calls: ``[call]name{"x":2}`` each."""
        ids: list[int] = []
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ValueError(f"{place} must be a list")
        for number, call in enumerate(calls):
            call = _object(f"{place}[{number}]", call)
            function = _object(f"{place}[{number}].function", call.get("function"))
            given = function.get("arguments") or ""
            given = given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))
            ids += [CALL, *self.encode(f"{function.get('name', '')}{given}")]
        return ids


def _text(index: int, content: Any) -> str:
    """A message's content as one text: a string, a list of text parts, or nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts = [part.get("text") for part in content]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise ValueError(f"messages[{index}].content must be text: this model accepts text only")


def _object(place: str, value: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one where there is none. Raises ValueError, naming the place."""
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{place} must be an object")
    return value or {}


def _signature(place: str, tool: Mapping[str, Any]) -> str:
    """A tool as ``name(argument,…)``: the context is short."""
    function = _object(f"{place}.function", tool.get("function")) or tool
    parameters = _object(f"{place}.function.parameters", function.get("parameters"))
    properties = _object(f"{place}.function.parameters.properties", parameters.get("properties"))
    return f"{function.get('name', '')}({','.join(properties)})"
