"""Tool calls in the text of an answer, in the two forms that chat templates ask for.

Hermes' form, which Qwen and most others have, is ``<tool_call>{"name": …, "arguments": …}
</tool_call>``, several of them and text around; Llama's is an answer that is such an object,
with ``parameters``. What is in neither form is text: the agent sees what was said.
"""

import json
import re
from typing import Any

from hud_tui.service.engines.base import Call

HERMES = "<tool_call>"
BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def split(text: str, template: str) -> tuple[str, list[Call]]:
    """The text beside the calls, and the calls, as the model's chat template has them."""
    if HERMES in template:
        calls = [call for block in BLOCK.findall(text) if (call := _read(block))]
        beside = BLOCK.sub(lambda block: "" if _read(block[1]) else block[0], text)
        return beside.strip(), calls
    whole = _read(text) if "parameters" in template else None
    return ("", [whole]) if whole else (text, [])


def with_arguments(call: Any) -> Any:
    """A call of a conversation in OpenAI's form, its arguments an object: templates dump them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        read = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": read}}


def _read(text: str) -> Call | None:
    """The call that a JSON object makes; None where it makes none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(name := found.get("name"), str) or not name:
        return None
    arguments = found.get("arguments", found.get("parameters"))
    if isinstance(arguments, str):
        return Call(name, arguments)
    return Call(name, json.dumps(arguments or {}))
