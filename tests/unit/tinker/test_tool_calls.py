"""Tool calls in an answer's text, by what the chat template asks for."""

import json

import pytest

from hud_tui.service.engines.base import Call
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer, split, with_arguments
from tests.unit.tinker.test_requests import Bytes

HERMES = "… return calls within <tool_call></tool_call> …"
LLAMA = '… respond with {"name": function, "parameters": {…}} …'
PLUS = '{"name": "plus", "arguments": {"x": 2}}'


@pytest.mark.parametrize(
    ("template", "text", "beside", "calls"),
    [
        (HERMES, f"<tool_call>\n{PLUS}\n</tool_call>", "", [Call("plus", '{"x": 2}')]),
        (
            HERMES,
            f'Both:<tool_call>{PLUS}</tool_call><tool_call>{{"name": "now"}}</tool_call>',
            "Both:",
            [Call("plus", '{"x": 2}'), Call("now", "{}")],
        ),
        (HERMES, "<tool_call>{oops</tool_call> 5", "<tool_call>{oops</tool_call> 5", []),
        (HERMES, f"<tool_call>{PLUS}", f"<tool_call>{PLUS}", []),
        (HERMES, PLUS, PLUS, []),
        (HERMES, '<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
        (HERMES, "<tool_call>" + "[" * 9999, "<tool_call>" + "[" * 9999, []),
        (LLAMA, '{"name": "plus", "parameters": {"x": 2}}', "", [Call("plus", '{"x": 2}')]),
        (LLAMA, "The answer is 5.", "The answer is 5.", []),
        ("plain", PLUS, PLUS, []),
    ],
)
def test_calls_are_told_from_text(template: str, text: str, beside: str, calls: list[Call]) -> None:
    assert split(text, template) == (beside, calls)


def test_templates_get_arguments_as_objects_and_a_tokenizer_reads_their_calls() -> None:
    function = {"name": "plus", "arguments": '{"x": 2}'}
    call = {"id": "1", "type": "function", "function": function}
    assert with_arguments(call)["function"] == {"name": "plus", "arguments": {"x": 2}}
    for odd in ("x", {}, {"function": 3}, {"function": {"arguments": "{oops"}}):
        assert with_arguments(odd) == odd

    tokenizer = Bytes()
    tokenizer.chat_template = HERMES
    tokens = ChatTokenizer(tokenizer)
    said = f"So: <tool_call>{PLUS}</tool_call>"
    beside, [call] = tokens.calls([*tokens.encode(said), 1])
    assert (beside, call.name, json.loads(call.arguments)) == ("So:", "plus", {"x": 2})
