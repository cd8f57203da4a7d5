"""The chunks of a stream: whatever is known at a time, they are those of the whole answer."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.completions import HALF, Asked, Stream, whole
from hud_tui.service.engines.base import EngineLost, Sampled
from hud_tui.service.engines.tiny.tokenizer import CALL, END, BpeTokenizer
from hud_tui.service.store.models import ModelRow
from hud_tui.wire_training import Chat, Completion

BYTES = BpeTokenizer([])
"""One id for each byte."""
MODEL = ModelRow("m", "m", "m", True, "toy/four", None, None, 0.0, 0)
ASK = {"role": "user", "content": "?"}
TOOL = {"type": "function", "function": {"name": "plus"}}
Json = dict[str, Any]


def asking(**body: Any) -> Asked:
    """A chat with one choice, or a text completion if there is a prompt."""
    kind = Completion if "prompt" in body else Chat
    if kind is Chat:
        body["messages"] = [ASK]
    read = kind.model_validate({"model": "m", "stream": True, "return_token_ids": True, **body})
    return Asked(MODEL, None, read, BYTES, [[65]], [], None, 0.0)


def answer(ids: Sequence[int], reason: Any = "stop") -> Sampled:
    return Sampled(list(ids), [-0.1 * n for n in range(len(ids))], reason)


def part(sampled: Sampled, start: int, end: int) -> Sampled:
    return Sampled(sampled.tokens[start:end], sampled.logprobs[start:end], "length")


def streamed(asked: Asked, sampled: Sampled, cuts: Sequence[int] = ()) -> list[Json]:
    """The choices of the chunks, where tokens are known up to each of the cuts, then all."""
    stream, chunks = Stream(asked), list[Json]()
    for start, end in pairwise([0, *sorted(cuts)]):
        stream.add(0, start, part(sampled, start, end))
        chunks += [chunk for some in stream.news() for chunk in some]
    stream.check([sampled])
    chunks += [chunk for some in stream.end([sampled]) for chunk in some]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for choice in choices:
        for call in choice.get("delta", {}).get("tool_calls", []):
            call.pop("id")
    return choices


def text_of(choices: Sequence[Json]) -> str:
    return "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices)


TEXT = st.text(alphabet="abST\n€é🙂" + HALF, max_size=6)
IDS = st.lists(
    st.one_of(
        TEXT.map(BYTES.encode),
        st.lists(st.integers(8, 263), max_size=2),
        st.sampled_from([[CALL, *BYTES.encode('plus{"x":2}')], [CALL], [END]]),
    ),
    max_size=6,
).map(lambda pieces: [id_ for piece in pieces for id_ in piece])
BODIES = st.fixed_dictionaries(
    {"stop": st.lists(TEXT, max_size=3)},
    optional={"tools": st.just([TOOL]), "prompt": st.just("?"), "logprobs": st.just(None)},
).filter(lambda body: not {"tools", "prompt"} <= body.keys())


@given(IDS, BODIES, st.sampled_from(["stop", "length"]), st.data())
def test_chunks_do_not_depend_on_how_many_tokens_are_known_at_a_time(
    ids: list[int], body: Json, reason: str, data: st.DataObject
) -> None:
    asked, sampled = asking(**body), answer(ids, reason)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=8))
    at_once, by_and_by = streamed(asked, sampled), streamed(asked, sampled, cuts)
    assert by_and_by == at_once
    [choice] = whole(asked, [sampled])["choices"]
    said = choice["text"] if "prompt" in body else choice["message"]["content"]
    assert text_of(by_and_by) == (said or "")
    assert [id_ for one in by_and_by for id_ in one.get("token_ids", [])] == ids
    assert by_and_by[-1]["finish_reason"] == choice["finish_reason"]


def known(asked: Asked, ids: Sequence[int]) -> str:
    """The text of the chunks once these tokens are known, and more may follow."""
    stream = Stream(asked)
    stream.add(0, 0, answer(ids))
    return text_of([c for some in stream.news() for chunk in some for c in chunk["choices"]])


def test_text_is_held_back_while_a_stop_sequence_may_begin_with_it() -> None:
    asked = asking(stop=["STOP", "\n\n"])
    for text, shown in (
        ("so S", "so "),
        ("so ST", "so "),
        ("so STa", "so STa"),
        ("so STOP", "so "),
        ("so STOSTO", "so STO"),
        ("so\n", "so"),
        ("so\na", "so\na"),
    ):
        assert known(asked, BYTES.encode(text)) == shown
    assert known(asking(), BYTES.encode("so STOP\n\n")) == "so STOP\n\n"


def test_a_character_is_given_whole() -> None:
    for end, shown in ((2, "a"), (3, "a"), (4, "a€"), (5, "a€b")):
        assert known(asking(), BYTES.encode("a€b")[:end]) == shown


def test_text_before_a_call_is_given_and_what_may_be_a_call_is_not() -> None:
    ids = [*BYTES.encode("So:"), CALL, *BYTES.encode('plus{"x":2}')]
    assert known(asking(tools=[TOOL]), ids) == "So:"
    assert known(asking(), ids) == 'So:plus{"x":2}'
    *text, call, last = streamed(asking(tools=[TOOL]), answer([*ids, END]), range(len(ids)))
    assert text_of(text) == "So:"
    [made] = call["delta"]["tool_calls"]
    assert made["function"] == {"name": "plus", "arguments": '{"x":2}'}
    assert (made["index"], last["finish_reason"]) == (0, "tool_calls")
    assert text_of(streamed(asking(tools=[TOOL]), answer(ids, "length"))) == 'So:plus{"x":2}'


def test_tokens_that_are_told_again_are_given_once_and_others_are_refused() -> None:
    sampled, stream = answer(BYTES.encode("abcd")), Stream(asking())
    for start, end in ((0, 2), (0, 1), (1, 4)):
        stream.add(0, start, part(sampled, start, end))
    stream.check([sampled])
    given_ = [chunk for some in stream.news() for chunk in some]
    assert text_of([c for chunk in given_ for c in chunk["choices"]]) == "abcd"
    for other in (answer(BYTES.encode("abxd")), Sampled(sampled.tokens, [0.5] * 4, "stop")):
        with pytest.raises(EngineLost, match="other numbers"):
            stream.check([other])
