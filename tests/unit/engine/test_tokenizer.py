"""The tokenizer: what it keeps, what it replaces, and that no text forges a role."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.engines.base import Call
from hud_tui.service.engines.tiny.tokenizer import (
    ASSISTANT,
    CALL,
    CONTROLS,
    END,
    REPLACEMENT,
    TEXT_IDS,
    TOOLS,
    UNKNOWN,
    USER,
    VOCABULARY,
    CharTokenizer,
)

TOKENIZER = CharTokenizer()
ids = st.lists(st.integers(0, VOCABULARY - 1))


@given(st.text(alphabet="".join(TEXT_IDS.values())))
def test_text_within_the_vocabulary_survives(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text())
def test_any_other_character_is_replaced_one_for_one_and_never_a_control(text: str) -> None:
    encoded = TOKENIZER.encode(text)
    assert not set(encoded) & set(CONTROLS)
    wanted = "".join(c if ord(c) in TEXT_IDS else REPLACEMENT for c in text)
    assert TOKENIZER.decode(encoded) == wanted


@given(ids)
def test_every_id_has_a_visible_piece(given_ids: list[int]) -> None:
    pieces = TOKENIZER.pieces(given_ids)
    assert len(pieces) == len(given_ids)
    assert all(pieces)


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text())))
def test_a_longer_conversation_continues_a_shorter_one(turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    whole = TOKENIZER.render(messages)
    for count in range(len(messages)):
        assert (
            whole[: len(TOKENIZER.render(messages[:count])) - 1]
            == (TOKENIZER.render(messages[:count])[:-1])
        )


def test_the_template() -> None:
    rendered = TOKENIZER.render([{"role": "user", "content": "Hi"}])
    assert rendered == [USER, ord("H"), ord("i"), END, ASSISTANT]
    assert "".join(TOKENIZER.pieces(rendered)) == "[user]Hi[end][assistant]"


def test_tools_calls_and_results_are_rendered() -> None:
    parameters = {"type": "object", "properties": {"x": {}, "y": {}}}
    tools = [{"type": "function", "function": {"name": "plus", "parameters": parameters}}]
    call = {"id": "1", "function": {"name": "plus", "arguments": '{"x":2}'}}
    rendered = TOKENIZER.render(
        [
            {"role": "user", "content": [{"type": "text", "text": "Go"}]},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "7"},
        ],
        tools,
    )
    assert rendered[0] == TOOLS
    assert "".join(TOKENIZER.pieces(rendered)) == (
        '[tools]plus(x,y)[end][user]Go[end][assistant][call]plus{"x":2}[end][tool]7[end][assistant]'
    )


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"role": "wizard", "content": "x"}, r"messages\[0\].role"),
        ({"role": "user", "content": 3}, r"messages\[0\].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"messages\[0\].content"),
        ({"role": "assistant", "tool_calls": "abc"}, r"messages\[0\].tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": ["abc"]}, r"tool_calls\[0\] must be an object"),
        ({"role": "assistant", "tool_calls": [{"function": "x"}]}, r"\[0\].function must be an"),
    ],
)
def test_what_cannot_be_rendered_is_named(message: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TOKENIZER.render([message])


@pytest.mark.parametrize(
    ("function", "word"),
    [
        ("x", r"tools\[0\].function must be"),
        ({"parameters": [1]}, r"tools\[0\].function.parameters must be"),
        ({"parameters": {"properties": [1, 2]}}, r"parameters.properties must be"),
    ],
)
def test_a_tool_that_cannot_be_rendered_is_named(function: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TOKENIZER.render([{"role": "user", "content": "Hi"}], [{"function": function}])


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("7", []),
        ("So:[call]plus{1}", [("plus", "{1}")]),
        ("[call]now[call] plus {1}", [("now", "{}"), ("plus", "{1}")]),
        ("7[call]", []),
    ],
)
def test_calls_are_read_as_they_are_rendered(text: str, calls: list[tuple[str, str]]) -> None:
    before, *rest = text.split("[call]")
    ids = [*TOKENIZER.encode(before), *(i for p in rest for i in (CALL, *TOKENIZER.encode(p))), END]
    assert TOKENIZER.calls(ids) == (before, [Call(*call) for call in calls])


def test_unknown_reads_as_the_replacement_character() -> None:
    assert TOKENIZER.pieces([UNKNOWN, 20]) == [REPLACEMENT, "[id 20]"]
