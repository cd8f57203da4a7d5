"""A rollout's turns as the task's text and the policy's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.rollouts import answer_of, prompt_of
from hud_tui.wire_training import TraceEvent, TraceEvents, content_text


def event(kind: str, text: object = None, **fields: object) -> TraceEvent:
    return TraceEvent.model_validate({"id": "e", "seq": 0, "kind": kind, "text": text, **fields})


def test_the_prompt_ends_where_the_policy_speaks_and_all_that_follows_is_the_answer() -> None:
    turns = [event("system", "be brief"), event("user_message", "2 + 2?"), event("agent_message")]
    assert prompt_of(turns) == "be brief\n2 + 2?"
    assert prompt_of([]) == answer_of([]) == ""
    turns = [
        event("user_message", "look it up"),
        event("agent_message", "I do", reasoning="hm"),
        event("tool_call", tool_name="find", arguments={"q": 1}, result_text="4"),
        event("user_message", "sure?"),
        event("agent_message", "4", error="cut off"),
    ]
    assert answer_of(turns).split("\n") == [
        "(hm)",
        "I do",
        '→ find {"q": 1}',
        "4",
        "[sure?]",
        "4",
        "error: cut off",
    ]
    turn = event("agent_message", None, tool_calls=[{"name": "say", "arguments": {"x": 4}}])
    assert answer_of([turn]) == '→ say {"x": 4}'


PIXEL = "iVBORw0KGgo" * 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("2 + 2?", "2 + 2?"),
        (["2 +", None, " 2?"], "2 +\n 2?"),
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}], "a\nb"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "a"),
        ({"role": "assistant", "content": None, "refusal": "no"}, "no"),
        ({"type": "thinking", "thinking": "hm"}, "hm"),
        (
            {"role": "assistant", "content": "", "tool_calls": [
                {"type": "function", "function": {"name": "say", "arguments": '{"x": 4}'}}]},
            '→ say {"x": 4}',
        ),
        ({"type": "tool_use", "name": "say", "input": {"x": 4}}, '→ say {"x": 4}'),
        ({"type": "tool_result", "content": [{"type": "text", "text": "said"}]}, "said"),
        ({"content": [], "isError": False, "structuredContent": {"n": 1}}, '{"n": 1}'),
        ({"x": 4}, '{"x": 4}'),
        (7, "7"),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            "[image/png, 8 kB]",
        ),
        ({"type": "image_url", "image_url": {"url": "https://h/a.png"}}, "[image https://h/a.png]"),
        ({"type": "input_image", "image_url": "https://h/a.png"}, "[image https://h/a.png]"),
        ({"type": "image", "data": PIXEL, "mimeType": "image/jpeg"}, "[image/jpeg, 8 kB]"),
        (
            {"type": "image", "source": {"media_type": "image/webp", "data": "abcd"}},
            "[image/webp, 3 bytes]",
        ),
        ({"type": "input_audio", "input_audio": {"data": "abcd"}}, "[audio, 3 bytes]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource_link", "uri": "file:///a"}, "[resource file:///a]"),
        ({"type": "file", "file": {"file_id": "f1"}}, "[file f1]"),
    ],
)  # fmt: skip
def test_content_is_read_as_text_whatever_its_shape(content: object, text: str) -> None:
    assert content_text(content) == text
    read = event("user_message", content)
    assert read.text == (None if content is None else text)


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "text", "content", "tool_calls", "image_url", "url", "data",
                         "name", "function", "arguments", "resource", "role"]), inner, max_size=4),
    max_leaves=25,
))  # fmt: skip
def test_no_shape_of_content_stops_the_reading(content: object) -> None:
    assert isinstance(content_text(content), str)
    read = event("agent_message", content, tool_calls=content, result_text=content)
    assert isinstance(answer_of([read]), str)


def test_nested_content_is_bounded_and_samples_may_say_more_than_is_known() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    assert content_text(deep) == "(too deep to show)"

    sample = {"output_token_ids": [1], "output_logprobs": [-0.5], "finish_reason": "stop"}
    event = {"id": "e", "seq": 0, "kind": "agent_message", "sample": sample}
    read = TraceEvents.model_validate({"events": [event]}).events[0].sample
    assert read is not None
    assert (read.output_token_ids, read.output_logprobs) == ([1], [-0.5])
