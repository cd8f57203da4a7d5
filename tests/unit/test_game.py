"""A game as a value: what was asked and done, and what is no turn."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hud_tui.rl.game import (
    POLICY,
    RECORDED,
    BadMove,
    Call,
    Game,
    Grade,
    Move,
    Phase,
    completion_of,
    move_of,
    recorded_turns,
)
from hud_tui.rl.transcript import transcript_of
from hud_tui.wire_training import TraceEvent

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "how": {"type": "string", "enum": ["up", "down"]},
        "to": {"type": "object", "properties": {"x": {"type": "number"}}},
    },
    "required": ["a"],
}
TOOLS = [{"type": "function", "function": {"name": "move", "parameters": SCHEMA}}]
ASKED = [
    {"role": "system", "content": "You play."},
    {"role": "user", "content": [{"type": "text", "text": "Move it."}]},
]
BEGUN = Game("board", most=3).asked(ASKED, TOOLS)


def test_a_game_from_its_prompt_to_its_grade() -> None:
    assert (BEGUN.phase, BEGUN.number) == (Phase.YOURS, 1)
    assert [row["text"] for row in BEGUN.prompt] == ["You play.", "Move it."]
    assert [(a.name, a.kind, a.is_required) for a in BEGUN.tools[0].arguments] == [
        ("a", "integer", True),
        ("how", "string", False),
        ("to", "object", False),
    ]
    call = Move(calls=(Call("move", {"a": 1}), Call("move", {"a": 2})))
    moved = BEGUN.moved(call)
    assert (moved.phase, moved.number) == (Phase.WORKING, 1)
    said = completion_of(call, "m", 1)["choices"][0]["message"]
    results = [{"role": "tool", "content": "moved"}, {"role": "tool", "content": ""}]
    more = {"role": "user", "content": "And?"}
    again = moved.asked([*ASKED, said, *results, more], TOOLS)
    assert (again.phase, again.number, again.prompt) == (Phase.YOURS, 2, BEGUN.prompt)
    assert again.turns[0].replies == ("moved", "", "And?")
    over = again.moved(Move("done"), POLICY).graded(Grade(0.5), "t")
    assert (over.phase, over.is_over, over.trace_id) == (Phase.GRADED, True, "t")
    assert [turn.by for turn in over.turns] == ["person", "policy"]
    told = [(e.kind, e.text, e.tool_name, e.result_text) for e in over.events()]
    assert told == [
        ("system", "You play.", None, None),
        ("user_message", "Move it.", None, None),
        ("agent_message", "", None, None),
        ("tool_call", None, "move", "moved"),
        ("tool_call", None, "move", ""),
        ("user_message", "And?", None, None),
        ("agent_message", "done", None, None),
    ]
    assert again.failed("gone").phase is Phase.FAILED


def test_a_turn_is_read_from_json() -> None:
    read = BEGUN.read_move({"call": "move", "arguments": {"a": 1, "how": "up"}})
    assert read == Move(calls=(Call("move", {"a": 1, "how": "up"}),))
    assert BEGUN.read_move({"answer": ""}) == Move("")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ([1], ""),
        ({}, "call"),
        ({"call": 3}, "call"),
        ({"call": "fly"}, "call"),
        ({"call": "move", "arguments": []}, "arguments"),
        ({"call": "move"}, "arguments.a"),
        ({"call": "move", "arguments": {"a": "1"}}, "arguments.a"),
        ({"call": "move", "arguments": {"a": 1, "b": 2}}, "arguments.b"),
        ({"call": "move", "arguments": {"a": 1, "how": "left"}}, "arguments.how"),
        ({"call": "move", "arguments": {"a": 1, "to": {"x": "y"}}}, "arguments.to.x"),
        ({"call": "move", "arguments": {"a": 1}, "think": "hm"}, "think"),
        ({"answer": None}, "answer"),
        ({"answer": "x", "call": "move"}, "call"),
        ({"answer": json.loads('"\\ud800"')}, "answer"),
    ],
)
def test_what_is_no_turn_names_its_field(line: Any, field: str) -> None:
    with pytest.raises(BadMove) as wrong:
        BEGUN.read_move(line)
    assert wrong.value.details == {"field": field}


def test_arguments_that_a_schema_allows_beside_its_own_are_given() -> None:
    tools = [{"name": "move", "parameters": {**SCHEMA, "additionalProperties": {"type": "number"}}}]
    game = Game("board").asked(ASKED, tools)
    assert game.read_move({"call": "move", "arguments": {"a": 1, "b": 2}}).calls
    with pytest.raises(BadMove) as wrong:
        game.read_move({"call": "move", "arguments": {"a": 1, "b": "2"}})
    assert wrong.value.details == {"field": "arguments.b"}


def test_recorded_turns_are_replayed_until_another_turn_is_made() -> None:
    called = Call("move", {"a": 1})
    rows: list[dict[str, Any]] = [
        {"kind": "user_message", "text": "Move it."},
        {"kind": "agent_message", "tool_calls": [{"name": "move", "arguments": {"a": 1}}]},
        {"kind": "tool_call", "tool_name": "move", "arguments": {"a": 1}, "result_text": "moved"},
        {"kind": "agent_message", "tool_calls": [{"name": "move", "arguments": "{broken"}]},
        {"kind": "agent_message", "text": "done"},
    ]
    events = [TraceEvent(id=str(n), seq=n, **row) for n, row in enumerate(rows)]
    turns = recorded_turns(transcript_of(events))
    assert [turn.move for turn in turns] == [
        Move(calls=(called,)),
        Move(calls=(Call("move", "{broken"),)),
        Move("done"),
    ]
    game = replace(BEGUN, upcoming=turns)
    other = game.moved(Move("mine"))
    assert other.upcoming == ()
    replayed = game.moved(turns[0].move, RECORDED)
    assert replayed.upcoming == turns[1:]
    said = completion_of(turns[0].move, "m", 1)["choices"][0]["message"]
    for result, differs in ((" moved\n", False), ("stuck", True)):
        again = replayed.asked([*ASKED, said, {"role": "tool", "content": result}], TOOLS)
        assert (again.turns[0].differs, bool(again.notice)) == (differs, differs)


def test_what_a_model_said_is_the_turn_that_it_made() -> None:
    move = Move("so", (Call("move", {"a": 1}), Call("move", "{broken")))
    assert move_of(completion_of(move, "m", 4)["choices"][0]["message"]) == move
    event = {"text": "so", "tool_calls": [{"name": "move", "arguments": {"a": 1}}]}
    assert move_of(event) == Move("so", (Call("move", {"a": 1}),))
    assert move_of({"content": None}) == Move()


@pytest.mark.parametrize("arguments", ["[" * 200_000, '{"a":' * 200_000, "[1]"])
def test_arguments_that_are_no_json_object_stay_as_the_model_wrote_them(arguments: str) -> None:
    """However deep they are nested."""
    said = {"tool_calls": [{"function": {"name": "move", "arguments": arguments}}]}
    assert move_of(said) == Move(calls=(Call("move", arguments),))
