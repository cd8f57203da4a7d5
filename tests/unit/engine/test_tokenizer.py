"""The tokenizer: what it keeps, what it replaces, and that no text forges a role."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.engines.base import Call
from hud_tui.service.engines.tiny.engine import pairs_path
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
    BpeTokenizer,
    CharTokenizer,
)
from tests.pretrain.pairs import learn_pairs

TOKENIZER = CharTokenizer()
TEXTS = ["low lower lowest", "new newer", "   2    .    .   16\n   4", "wide é", "score=12"]
WORDS = (" through", "Use", "use", "low")
PAIRS = BpeTokenizer(learn_pairs(TEXTS, 20, WORDS), WORDS)


BOTH = pytest.mark.parametrize("tokenizer", [TOKENIZER, PAIRS], ids=["characters", "pairs"])


@given(st.text(alphabet="".join(TEXT_IDS.values())))
def test_text_within_the_vocabulary_survives(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text())
def test_any_other_character_is_replaced_one_for_one_and_never_a_control(text: str) -> None:
    encoded = TOKENIZER.encode(text)
    assert not set(encoded) & set(CONTROLS)
    wanted = "".join(c if ord(c) in TEXT_IDS else REPLACEMENT for c in text)
    assert TOKENIZER.decode(encoded) == wanted


@BOTH
@given(st.lists(st.integers(-2, PAIRS.vocabulary + 2)))
def test_every_id_has_a_visible_piece(
    tokenizer: CharTokenizer | BpeTokenizer, given_ids: list[int]
) -> None:
    pieces = tokenizer.pieces(given_ids)
    assert len(pieces) == len(given_ids)
    assert all(pieces)
    assert TOKENIZER.pieces([UNKNOWN, 20]) == [REPLACEMENT, "[id 20]"]


@BOTH
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text())))
def test_a_longer_conversation_continues_a_shorter_one(
    tokenizer: CharTokenizer | BpeTokenizer, turns: list[tuple[str, str]]
) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    whole = tokenizer.render(messages)
    for count in range(len(messages)):
        shorter = tokenizer.render(messages[:count])[:-1]
        assert whole[: len(shorter)] == shorter
        assert tokenizer.follow(messages, count) == whole[len(shorter) :]


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


@given(st.binary())
def test_any_bytes_survive_pairs(data: bytes) -> None:
    encoded = PAIRS.encode_bytes(data)
    assert PAIRS.bytes_of(encoded) == data
    assert not set(encoded) & set(CONTROLS)
    assert all(0 <= id_ < PAIRS.vocabulary for id_ in encoded)


@given(st.text())
def test_any_text_survives_pairs(text: str) -> None:
    assert PAIRS.decode(PAIRS.encode(text)) == text
    assert PAIRS.decode(PAIRS.encode("a\ud83d")) == "a?", "half of a pair of surrogates"


def test_frequent_pairs_and_the_cells_of_a_board_become_one_id_and_digits_stay_apart() -> None:
    pairs = BpeTokenizer(learn_pairs(["score=12 score=345"] * 3, 500, ()), ())
    assert pairs.pieces(pairs.encode("score=12 the scores")) == [
        "score", "=", "1", "2", " ", "t", "h", "e", " ", "score", "s",
    ]  # fmt: skip
    board = "   2    .    .   16\n   4    .    2    ."
    pairs = BpeTokenizer(learn_pairs([board], 500))
    assert pairs.pieces(pairs.encode(board)) == [
        "   2", "    .", "    .", "   16", "\n   4", "    .", "    2", "    .",
    ]  # fmt: skip

    pairs = learn_pairs(TEXTS, 20, WORDS)
    assert pairs == learn_pairs(list(reversed(TEXTS)), 20, WORDS)
    assert len(pairs) == 20
    assert learn_pairs(["ab"], 9) == [(8 + ord("a"), 8 + ord("b"))]


@given(st.from_regex(r"\A[A-Za-z]{3,9}([_A-Z][a-z]{1,5})?\Z"))
def test_a_name_has_the_same_ids_wherever_it_stands(name: str) -> None:
    """So that to call it is to copy it."""
    ids = PAIRS.encode(name)
    for before, after in (("[", "("), ("x\n", "("), ("Ask ", " now."), ("`", "`"), ("", '{"a":1}')):
        whole = PAIRS.encode(f"{before}{name}{after}")
        start = len(PAIRS.encode(before))
        spaced = before.endswith(" ") and f" {name}" in WORDS
        assert spaced or whole[start : start + len(ids)] == ids


def test_a_word_is_one_id_and_what_only_holds_it_is_pieces() -> None:
    told = PAIRS.pieces(PAIRS.encode("Use low_user through throughout, use through_it."))
    assert told[:4] == ["Use", " ", "low", "_"]
    assert [piece for piece in told if len(piece) > 3] == [" through"]
    assert PAIRS.pieces(PAIRS.encode(" use")) == [" ", "use"], "it may be a name: without a space"


def test_the_first_vocabulary_splits_as_ever() -> None:
    """`tiny/agent-1M` reads its prompts by it."""
    path = pairs_path("tiny/agent-1M")
    first = BpeTokenizer.read(path)
    words = first.pieces(first.encode("Use the plus tool to add 3 and 47."))
    assert words[:8] == ["Use", " the", " plus", " tool", " to", " add", " 3", " and"]
    tool = {"name": "go", "description": "Go on."}
    assert first.signature("tools[0]", tool) == "go()"
    assert first.written() == path.read_text()
    later = BpeTokenizer.read(pairs_path("tiny/tools-1M"))
    assert later.written() == pairs_path("tiny/tools-1M").read_text()
    assert later.signature("tools[0]", tool) == "go{} Go on."


def test_of_a_description_the_beginning_of_the_first_line_is_shown() -> None:
    long, lines = "x" * 99, " Go on.\n\nFar. "
    shown = {None: "", 3: "", "  ": "", lines: " Go on.", long: f" {'x' * 60}"}
    for about, expected in shown.items():
        tool = {"function": {"name": "go", "description": about}}
        assert PAIRS.signature("tools[0]", tool) == f"go{{}}{expected}"


def test_tools_are_shown_with_types_and_choices() -> None:
    properties = {"way": {"enum": ["up", "down"]}, "x": {"type": "integer"}, "y": {}}
    tool = {"function": {"name": "go", "parameters": {"properties": properties}}}
    assert PAIRS.signature("tools[0]", tool) == 'go{"way":"up|down","x":integer,"y":any}'
    bad = {"function": {"name": "go", "parameters": {"properties": {"x": 3}}}}
    with pytest.raises(ValueError, match=r"tools\[0\].function.parameters.properties.x must be"):
        PAIRS.render([], [bad])


@given(st.text(st.characters(blacklist_characters="{"), min_size=1), st.text())
def test_calls_are_read_as_pairs_render_them(name: str, rest: str) -> None:
    call = {"function": {"name": name, "arguments": "{" + rest}}
    ids = PAIRS.render([{"role": "assistant", "content": "So:", "tool_calls": [call]}])[1:-1]
    wanted = [Call(name.strip(), "{" + rest)] if name.strip() else []
    assert PAIRS.calls(ids) == ("So:", wanted)


@BOTH
def test_a_demonstration_is_the_last_message_as_the_policy_would_say_it(
    tokenizer: CharTokenizer | BpeTokenizer,
) -> None:
    call = {"function": {"name": "plus", "arguments": '{"x":2}'}}
    asked = {"role": "user", "content": "go"}
    said = {"role": "assistant", "content": "so", "tool_calls": [call]}
    tools = [{"function": {"name": "plus", "parameters": {"properties": {"x": {}}}}}]
    prompt, output = tokenizer.demonstrate([asked, said], tools)
    assert prompt == tokenizer.render([asked], tools)
    assert output[-1] == END
    assert tokenizer.calls(output[:-1]) == ("so", [Call("plus", '{"x":2}')])
    assert tokenizer.render([asked, said], tools) == [*prompt, *output, ASSISTANT]


def test_letters_without_end_are_read_at_once() -> None:
    """In time proportional to their number: by its square this would take a minute."""
    text = "a" * 80_000 + "_"
    assert PAIRS.decode(PAIRS.encode(text)) == text
