"""Transcript: a rollout as it is read, whoever sampled it and however many turns it has.

`transcript_of` reads a trace's events. A `Turn` is a message, and in the policy's turns each `Call`
of a tool stands once, with its arguments and its result. What the environment did around the
rollout is in `setup` and `grading`, never among the turns. What is known of its reward is in
`hud_tui.rl.outcome`, and its forms as text in `hud_tui.rl.transcript_forms`.

Texts are as they were received: clean them (`hud_tui.rl.text`) before they are shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hud_tui.rl import json_tree
from hud_tui.rl.outcome import FAILED_KEYS
from hud_tui.rl.text import seconds
from hud_tui.wire_training import (
    TraceEvent,
    TurnSample,
    call_parts,
    call_text,
    content_text,
    value_text,
)

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
ROLES = {
    "system": SYSTEM,
    "user_message": USER,
    "agent_message": ASSISTANT,
    "tool_call": TOOL,
}
"""Role of a turn by the kind of its event; another kind is a role itself."""
SETUP, GRADING = "setup", "grading"
PHASES = {"setup": SETUP, "evaluate": GRADING}
"""Phase of an environment's part by what the event calls it."""
LAID_OUT = 200_000
"""Longest text that is tried as JSON, characters."""
COMPACT = 72
"""Longest JSON that is written in one line, characters."""
FIRST = 400
"""Characters in which the first words of a text are looked for."""


@dataclass(frozen=True)
class Call:
    """A call of a tool, with what came back."""

    name: str
    arguments: object = None
    """A JSON value; text that is not JSON stays text; None if there are none."""
    result: str | None = None
    """None if no result is known."""
    error: str = ""
    """What went wrong; empty if nothing did."""
    image: str = ""
    """Address of a picture that came back."""
    seconds: float | None = None
    id: str = ""

    @property
    def is_answered(self) -> bool:
        return self.result is not None or bool(self.error)

    @property
    def text(self) -> str:
        """The call in one line, e.g. ``say {"x": 4}``."""
        return call_text({"name": self.name, "arguments": self.arguments})

    @property
    def answer(self) -> str:
        """What came back: its result, else the error, and the picture's address."""
        image = f"[image {self.image}]" if self.image else ""
        return "\n".join(filter(None, (self.result or self.error, image)))


@dataclass(frozen=True)
class Turn:
    """One message, and the calls that it makes."""

    role: str
    """SYSTEM, USER, ASSISTANT; TOOL for calls without a turn of the policy; or the service's own
    word."""
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    error: str = ""
    seconds: float | None = None
    """How long it took to sample; None if that is not known, or it was not sampled."""
    sample: TurnSample | None = None
    """Its tokens and their logprobs when sampled, shape (T,) each; None if it has none."""
    pieces: Sequence[str] = ()
    """The text of each token, shape (T,); empty if unknown."""
    number: int | None = None
    """Number among the turns with tokens, from 0."""

    @property
    def tokens(self) -> int | None:
        return None if self.sample is None else len(self.sample.output_token_ids)

    @property
    def has_error(self) -> bool:
        return bool(self.error) or any(call.error for call in self.calls)

    @property
    def words(self) -> str:
        """The first line of its text, or of its reasoning; empty if it has neither."""
        return first_line(self.text) or first_line(self.reasoning)

    def is_as(self, other: "Turn") -> bool:
        """Whether both say and do the same."""
        return _said(self) == _said(other)


@dataclass(frozen=True)
class EnvironmentPart:
    """What the environment did before, between or after the turns."""

    phase: str
    """SETUP, GRADING, or the name of another span that the environment reported."""
    name: str = ""
    arguments: object = None
    result: str = ""
    error: str = ""
    seconds: float | None = None

    def is_as(self, other: "EnvironmentPart") -> bool:
        """Whether both did the same, however long it took."""
        return replace(self, seconds=None) == replace(other, seconds=None)


@dataclass(frozen=True)
class Transcript:
    """A rollout's turns, and what the environment did around them."""

    turns: Sequence[Turn] = ()
    setup: Sequence[EnvironmentPart] = ()
    grading: Sequence[EnvironmentPart] = ()
    """Grading, and whatever else the environment reported."""
    is_recorded: bool = True
    """Whether the service has the conversation; if not, the turn is the answer of the row."""

    @cached_property
    def asked(self) -> int:
        """Number of turns before the policy's first one."""
        turns = enumerate(self.turns)
        is_prompt = (SYSTEM, USER)
        return next((n for n, turn in turns if turn.role not in is_prompt), len(self.turns))

    @property
    def prompt(self) -> str:
        """The text before the policy's first turn."""
        return "\n".join(turn.text for turn in self.turns[: self.asked] if turn.text)

    @property
    def answer(self) -> str:
        """The text after the prompt, including tool calls and their results."""
        texts = (text for turn in self.turns[self.asked :] for text in _answer_texts(turn))
        return "\n".join(filter(None, texts))

    @property
    def last_answer(self) -> str:
        """The last text of the policy; empty if it said nothing."""
        said = (turn.text for turn in reversed(self.turns) if turn.role == ASSISTANT and turn.text)
        return next(said, "")

    @property
    def said(self) -> int:
        """Number of the policy's turns."""
        return sum(turn.role == ASSISTANT for turn in self.turns)

    @property
    def calls(self) -> list[Call]:
        return [call for turn in self.turns for call in turn.calls]

    @property
    def tokens(self) -> int:
        """Tokens that the policy sampled, as far as they are known."""
        return sum(turn.tokens or 0 for turn in self.turns)

    @property
    def has_error(self) -> bool:
        return any(each.has_error for each in self.turns) or any(
            part.error for part in (*self.setup, *self.grading)
        )

    def texts(self) -> Iterator[str]:
        """Every text of it, in order."""
        for part in self.setup:
            yield from part_texts(part)
        for turn in self.turns:
            yield from turn_texts(turn)
        for part in self.grading:
            yield from part_texts(part)


def transcript_of(events: Sequence[TraceEvent], completion: str | None = None) -> Transcript:
    """The transcript of a trace.

    Args:
        events: In the order of their numbers.
        completion: The last answer as the trace's row has it; shown if there are no events.
    """
    drafts: list[_Draft] = []
    setup: list[EnvironmentPart] = []
    grading: list[EnvironmentPart] = []
    sampled = 0
    for event in events:
        if event.phase is not None:
            part = _part(event)
            (setup if part.phase == SETUP else grading).append(part)
        elif event.kind == "tool_call":
            _add_call(drafts, _call(event))
        else:
            number = sampled if event.sample is not None else None
            sampled += event.sample is not None
            drafts.append((event, [_requested(call) for call in event.tool_calls or ()], number))
    turns = [_turn(*draft) for draft in drafts]
    is_recorded = bool(turns)
    if not turns and completion:
        turns.append(Turn(ASSISTANT, completion))
    return Transcript(tuple(turns), tuple(setup), tuple(grading), is_recorded)


_Draft = tuple[TraceEvent | None, list[Call], int | None]
"""A turn's event, or None for calls that no turn made; its calls so far; its number."""


def _part(event: TraceEvent) -> EnvironmentPart:
    phase = event.phase or ""
    return EnvironmentPart(
        PHASES.get(phase, phase),
        event.name or "",
        event.arguments,
        _without_blanks(event.result_text or ""),
        _error(event),
        _seconds(event),
    )


def _without_blanks(result: str) -> str:
    """A result without the fields by which the SDK says that there is nothing. Otherwise whoever
    searches for ``error`` finds the key ``isError`` of every grading."""
    value = json_value(result)
    if not isinstance(value, Mapping):
        return result
    blank = {name for name, told in value.items() if told is None}
    blank |= {name for name in FAILED_KEYS if value.get(name) is False}
    return value_text({n: told for n, told in value.items() if n not in blank}) if blank else result


def _turn(event: TraceEvent | None, calls: Sequence[Call], number: int | None) -> Turn:
    if event is None:
        return Turn(TOOL, calls=tuple(calls))
    role = ROLES.get(event.kind, event.kind)
    sample, pieces = event.sample, event.tokens or ()
    if sample is None or len(pieces) != len(sample.output_token_ids):
        pieces = ()
    return Turn(
        role,
        event.text or "",
        event.reasoning or "",
        tuple(calls),
        _error(event),
        _seconds(event) if role == ASSISTANT else None,
        sample,
        pieces,
        number,
    )


def _requested(call: Mapping[str, Any]) -> Call:
    name, arguments = call_parts(call)
    return Call(name, json_value(arguments), id=value_text(call.get("id") or ""))


def _call(event: TraceEvent) -> Call:
    return Call(
        event.tool_name or "tool",
        json_value(event.arguments),
        event.result_text,
        _error(event),
        event.screenshot_url or "",
        _seconds(event),
        event.call_id or "",
    )


def _error(event: TraceEvent) -> str:
    if event.error is True:
        return "reported as an error"
    return content_text(event.error) if event.error else ""


def _seconds(event: TraceEvent) -> float | None:
    began, ended = seconds(event.started_at), seconds(event.ended_at)
    return None if began is None or ended is None else max(0.0, ended - began)


def _add_call(drafts: list[_Draft], call: Call) -> None:
    """Give a call's result to the turn that made it; one that no turn made is added to the last
    turn of the policy, or is a turn of its own."""
    event = drafts[-1][0] if drafts else None
    if not drafts or (event is not None and event.kind != "agent_message"):
        drafts.append((None, [call], None))
        return
    calls = drafts[-1][1]
    index = _place(calls, call)
    if index is None:
        calls.append(call)
    elif call.id or not calls[index].id:
        calls[index] = call
    else:
        calls[index] = replace(call, id=calls[index].id)


def _place(calls: Sequence[Call], made: Call) -> int | None:
    """Which of the calls that wait for their result this one is: by its id, else by its name and
    arguments, else by its name alone."""
    waiting = [n for n, call in enumerate(calls) if not call.is_answered]
    if made.id and (same := [n for n in waiting if calls[n].id == made.id]):
        return same[0]
    named = [n for n in waiting if calls[n].name == made.name]
    same = [n for n in named if calls[n].arguments == made.arguments]
    return next(iter(same or named), None)


def _said(turn: Turn) -> tuple[object, ...]:
    calls = [(call.name, call.arguments, call.result, call.error) for call in turn.calls]
    return turn.role, turn.text, turn.reasoning, turn.error, calls


def _answer_texts(turn: Turn) -> Iterator[str]:
    yield f"({turn.reasoning})" if turn.reasoning else ""
    yield f"[{turn.text}]" if turn.role in (SYSTEM, USER) else turn.text
    for call in turn.calls:
        yield f"→ {call.text}"
        yield call.answer
    yield f"error: {turn.error}" if turn.error else ""


def turn_texts(turn: Turn) -> Iterator[str]:
    yield from (turn.reasoning, turn.text, turn.error)
    for call in turn.calls:
        yield from (call.text, call.answer, call.error)


def part_texts(part: EnvironmentPart) -> Iterator[str]:
    yield from (part.phase, part.name, laid_out(part.arguments), part.result, part.error)


def first_line(text: str) -> str:
    """The first line that is not blank, looked for in the first `FIRST` characters."""
    return next((line.strip() for line in text[:FIRST].splitlines() if line.strip()), "")


# JSON, laid out.


def json_value(value: object) -> object:
    """The value of a text that is a JSON object or list; anything else unchanged."""
    if not isinstance(value, str) or len(value) > LAID_OUT or value.lstrip()[:1] not in ("{", "["):
        return value
    parsed = json_tree.parse(value)
    return value if parsed.fault else parsed.value


def laid_out(value: object) -> str:
    """A value for reading: JSON in one line if it is short, else indented; any other text
    unchanged."""
    value = json_value(value)
    if value is None or isinstance(value, str):
        return value or ""
    line = value_text(value)
    if len(line) <= COMPACT or len(line) > LAID_OUT:
        return line
    try:
        return json_tree.value_text(value)
    except (ValueError, RecursionError, TypeError):
        return line
