"""A game: a task in which a person is the policy.

What an environment's agent sends to a model is what the player sees, and what a model answers is
what the player does. So a game is made from requests and answers in OpenAI's format.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl import transcript as stored
from hud_tui.rl.tasks.task import kind_of, validator
from hud_tui.rl.text import has_surrogate, names_text, one_line
from hud_tui.rl.transcript import ASSISTANT, Transcript
from hud_tui.wire_training import TraceEvent, call_parts, content_text

PERSON, POLICY, RECORDED = "person", "policy", "recorded"
"""Who made a turn: the player; the policy, now; or the policy when the rollout was made."""


class Phase(StrEnum):
    """What a game waits for."""

    STARTING = "starting"
    """The environment starts, and yields the prompt."""
    YOURS = "your turn"
    POLICYS = "the policy's turn"
    WORKING = "waiting for the environment"
    """A call is carried out, or the last answer graded."""
    GRADED = "graded"
    FAILED = "failed"
    """It ended without a grade."""


class BadMove(HudUsage):
    """What was given is no turn; `field` says where. The turn is still to be made."""

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message, hint)
        self.field = field
        self.details = {"field": field}


# The tools, and the turns.


KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a JSON list",
    "object": "a JSON object",
}
"""The kinds of arguments, in words."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool, as its schema has it."""

    name: str
    kind: str
    """Of JSON Schema: string, integer, number, boolean, array, object; empty if it says nothing, or
    several beside null."""
    is_required: bool
    choices: tuple[Any, ...] = ()
    usual: Any = None
    about: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)

    def read(self, text: str) -> Any:
        """A typed value: JSON, or text where that is allowed and JSON is not. Raises BadMove: it is
        not of this kind."""
        if self.kind == "string":
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if not self.kind:
                return text
            raise BadMove(f"arguments.{self.name}", f"expected {self.expected}") from None
        if not self.kind:
            fits = validator(self.schema, self.name)
            return text if fits(value) and not fits(text) else value
        return value

    @property
    def expected(self) -> str:
        """What may be typed, in words."""
        if self.choices:
            return names_text([str(choice) for choice in self.choices], 8)
        return KINDS.get(self.kind, "")


@dataclass(frozen=True)
class Tool:
    """A tool that the policy may call."""

    name: str
    about: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of its arguments, as the policy gets it."""

    @property
    def arguments(self) -> list[Argument]:
        properties = self.schema.get("properties")
        required = self.schema.get("required")
        required = required if isinstance(required, list) else []
        rows = properties.items() if isinstance(properties, Mapping) else ()
        return [_argument(name, row, name in required) for name, row in rows]


def _argument(name: str, row: Any, is_required: bool) -> Argument:
    row = row if isinstance(row, Mapping) else {}
    of_value = _beside_null(row)
    kind, choices = of_value.get("type"), of_value.get("enum")
    return Argument(
        name,
        kind if isinstance(kind, str) else "",
        is_required,
        tuple(choices) if isinstance(choices, list) else (),
        row.get("default"),
        content_text(row.get("description")),
        row,
    )


def _beside_null(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a value that may be null, where it is not null; else the schema itself."""
    kinds = row.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        return {**row, "type": others[0] if len(others) == 1 else ""}
    for among in ("anyOf", "oneOf"):
        given = row.get(among)
        rows: list[Any] = given if isinstance(given, list) else []
        others = [each for each in rows if isinstance(each, Mapping) and each.get("type") != "null"]
        if len(others) == 1 < len(rows):
            return dict(others[0])
    return row


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any] | str
    """Text where a model's arguments are no JSON object."""


@dataclass(frozen=True)
class Move:
    """What a policy says in one turn: an answer, or calls, perhaps with a text."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Turn:
    """A move, and what came of it."""

    move: Move
    by: str
    """PERSON, POLICY or RECORDED."""
    replies: tuple[str, ...] = ()
    """What its calls returned, in order; then what the environment's user said."""
    expected: tuple[str, ...] = ()
    """What its calls returned when they were recorded."""

    @property
    def differs(self) -> bool:
        """Whether the environment answers otherwise than when the turn was recorded."""
        pairs = zip(self.replies, self.expected, strict=False)
        return any(there.split() != here.split() for here, there in pairs if there)


@dataclass(frozen=True)
class Grade:
    """How a game was graded."""

    reward: float
    result: Mapping[str, Any] = field(default_factory=dict)
    """Subscores and info, as a grader reports them."""
    stop: str = ""


@dataclass(frozen=True)
class Game:
    """A game so far."""

    source: str
    task: str = ""
    """Slug of the task."""
    most: int = 0
    """Most turns, after which it is graded as it is; 0: unknown."""
    phase: Phase = Phase.STARTING
    prompt: tuple[Mapping[str, str], ...] = ()
    """Role and text of the messages before the first turn."""
    tools: tuple[Tool, ...] = ()
    turns: tuple[Turn, ...] = ()
    grade: Grade | None = None
    trouble: str = ""
    """Why it ended without a grade."""
    advice: str = ""
    """What can be done about that."""
    notice: str = ""
    """What is to be known of this turn: e.g. why the policy gave no answer to it."""
    upcoming: tuple[Turn, ...] = ()
    """Recorded turns that can be replayed; none after any other turn was made."""
    trace_id: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.GRADED, Phase.FAILED)

    @property
    def number(self) -> int:
        """Number of the turn that is to be made, or was made last, from 1."""
        return len(self.turns) + self.waits

    @property
    def waits(self) -> bool:
        """Whether a turn is to be made."""
        return self.phase in (Phase.YOURS, Phase.POLICYS)

    # What happens.

    def asked(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> "Game":
        """The environment's agent has asked for the next turn."""
        after = _after_last_answer(messages)
        if self.turns:
            *before, last = self.turns
            last = replace(last, replies=tuple(text_of(message) for message in after))
            game = replace(self, turns=(*before, last), notice=DIFFERS * last.differs)
        else:
            prompt = tuple({"role": _role(each), "text": text_of(each)} for each in messages)
            game = replace(self, prompt=prompt)
        return replace(game, phase=Phase.YOURS, tools=tuple(map(_tool, tools or ())))

    def left_to_policy(self) -> "Game":
        """The policy is to make this turn."""
        return replace(self, phase=Phase.POLICYS, notice="")

    def given_back(self, notice: str) -> "Game":
        """The policy could not make it."""
        return replace(self, phase=Phase.YOURS, notice=notice)

    def moved(self, move: Move, by: str = PERSON) -> "Game":
        """The turn was made."""
        expected = self.upcoming[0].expected if by == RECORDED and self.upcoming else ()
        upcoming = self.upcoming[1:] if by == RECORDED else ()
        turns = (*self.turns, Turn(move, by, expected=expected))
        return replace(self, phase=Phase.WORKING, turns=turns, upcoming=upcoming, notice="")

    def graded(self, grade: Grade, trace_id: str = "") -> "Game":
        trace_id = trace_id or self.trace_id
        return replace(self, phase=Phase.GRADED, grade=grade, trace_id=trace_id, notice="")

    def failed(self, trouble: str, advice: str = "", trace_id: str = "") -> "Game":
        """It ended without a grade."""
        ended = replace(self, phase=Phase.FAILED, trouble=trouble, advice=advice, notice="")
        return replace(ended, trace_id=trace_id or self.trace_id)

    # What can be read.

    def read_move(self, line: Any) -> Move:
        """A turn from JSON: ``{"call": NAME, "arguments": {…}}`` or ``{"answer": TEXT}``. Raises
        BadMove: it is neither, or there is no such tool, or its schema has other arguments."""
        if not isinstance(line, dict):
            raise BadMove("", f"expected an object, found {kind_of(line)}", FORMS)
        names = {"answer"} if "answer" in line else {"call", "arguments"}
        if unknown := [name for name in line if name not in names]:
            raise BadMove(one_line(unknown[0], 80), "not known here", FORMS)
        if "answer" in line:
            return Move(_text("answer", line["answer"]))
        if "call" not in line:
            raise BadMove("call", "missing", FORMS)
        name, arguments = _text("call", line["call"]), line.get("arguments", {})
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            tools = names_text([tool.name for tool in self.tools], 10)
            hint = f"the tools: {tools}" if tools else "this task has no tools: give an answer"
            raise BadMove("call", f"no tool named {one_line(name, 80)}", hint)
        check_arguments(tool, arguments)
        return Move(calls=(Call(name, arguments),))

    def events(self) -> list[TraceEvent]:
        """The conversation as a stored rollout has it."""
        rows: list[dict[str, Any]] = [
            {
                "kind": "system" if message["role"] == "system" else "user_message",
                "text": message["text"],
            }
            for message in self.prompt
        ]
        for turn in self.turns:
            called = [{"name": c.name, "arguments": c.arguments} for c in turn.move.calls]
            said: dict[str, Any] = {"kind": "agent_message", "text": turn.move.text}
            rows.append(said | ({"tool_calls": called} if called else {}))
            for number, call in enumerate(called):
                result = turn.replies[number] if number < len(turn.replies) else None
                row = {"kind": "tool_call", "tool_name": call["name"]}
                answer = "error" if (result or "").startswith(FAILED) else "result_text"
                rows.append({**row, "arguments": call["arguments"], answer: result})
            for text in turn.replies[len(called) :]:
                rows.append({"kind": "user_message", "text": text})
        return [
            TraceEvent.model_validate({"id": str(number), "seq": number, **row})
            for number, row in enumerate(rows)
        ]


DIFFERS = "the environment answers otherwise than when this was recorded"
FAILED = ("tool error: ", "unknown tool: ", "Error calling tool ", "Error executing tool ")
"""How answers of calls that failed begin: the SDK, FastMCP and MCP's own server write them, and
nothing else in a message tells the policy."""
FORMS = 'a line is {"call": NAME, "arguments": {…}} or {"answer": TEXT}'


def check_arguments(tool: Tool, arguments: Any) -> None:
    """Raises BadMove, which names the argument: they do not fit the tool's schema."""
    if not isinstance(arguments, dict):
        raise BadMove("arguments", f"expected an object, found {kind_of(arguments)}")
    if has_surrogate(json.dumps(arguments, ensure_ascii=False)):
        raise BadMove("arguments", "a lone surrogate is no text")
    names = [argument.name for argument in tool.arguments]
    takes_others = tool.schema.get("additionalProperties") or "patternProperties" in tool.schema
    for name in arguments:
        if names and name not in names and not takes_others:
            hint = f"{one_line(tool.name, 80)} takes {names_text(names, 10)}"
            raise BadMove(f"arguments.{one_line(name, 40)}", "not known", hint)
    for problem in validator(tool.schema, "arguments")(arguments):
        where, _, what = problem.partition(": ")
        raise BadMove(where, what)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadMove(name, f"expected text, found {kind_of(value)}")
    if has_surrogate(value):
        raise BadMove(name, "a lone surrogate is no text")
    return value


def recorded_turns(transcript: Transcript) -> tuple[Turn, ...]:
    """The policy's turns of a stored rollout, to be replayed."""
    return tuple(
        Turn(
            Move(turn.text, tuple(_again(call) for call in turn.calls)),
            RECORDED,
            expected=tuple(call.answer for call in turn.calls),
        )
        for turn in transcript.turns
        if turn.role == ASSISTANT
    )


def _again(call: stored.Call) -> Call:
    arguments = {} if call.arguments is None else call.arguments
    return Call(call.name, arguments if isinstance(arguments, Mapping | str) else "")


# OpenAI's format.


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message; an image in it is named."""
    return content_text(message.get("content"))


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return "system" if role in ("system", "developer") else str(role or "user")


def _after_last_answer(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The messages that nobody has answered yet."""
    last = max((n for n, each in enumerate(messages) if each.get("role") == "assistant"), default=0)
    return messages[last + 1 :]


def _tool(row: Mapping[str, Any]) -> Tool:
    function = row.get("function")
    function = function if isinstance(function, Mapping) else row
    schema = function.get("parameters")
    return Tool(
        str(function.get("name") or "?"),
        content_text(function.get("description")),
        schema if isinstance(schema, Mapping) else {},
    )


def completion_of(move: Move, model: str, number: int) -> dict[str, Any]:
    """A move as a chat completion. `number`: of the turn, in the ids of its calls."""
    calls = [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": _written(call.arguments)},
        }
        for index, call in enumerate(move.calls, 1)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": move.text}
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
    }
    usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def _written(arguments: Mapping[str, Any] | str) -> str:
    """As policies write them: without blanks."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))


def move_of(message: Mapping[str, Any]) -> Move:
    """What a model said: a message of a completion, or an event of a stored rollout."""
    calls = message.get("tool_calls")
    said = message.get("content", message.get("text"))
    return Move(content_text(said), tuple(map(_call, calls if isinstance(calls, list) else ())))


def _call(row: Mapping[str, Any]) -> Call:
    name, arguments = call_parts(row)
    read = stored.json_value(arguments)
    return Call(name, read if isinstance(read, dict) else arguments or {})
