"""Forms of a transcript for copying and for files: text, Markdown and JSON.

In text and Markdown, control characters become visible ones; in JSON every character that is not
ASCII is escaped, so that nothing is lost and nothing affects the terminal.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hud_tui.rl.metrics import short, with_sign
from hud_tui.rl.outcome import Outcome, Subscore
from hud_tui.rl.text import WHOLE, clean, one_line
from hud_tui.rl.transcript import Call, EnvironmentPart, Transcript, Turn, laid_out
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent

_TICKS = re.compile("`+")


@dataclass(frozen=True)
class Copied:
    """A rollout to be copied."""

    trace: Trace
    transcript: Transcript
    outcome: Outcome
    events: Sequence[TraceEvent] = ()
    """As the service sent them."""


def as_text(copied: Copied) -> str:
    parts = [f"{title}:\n{text}" for title, text in _sections(copied.transcript)]
    return "\n\n".join(["\n".join(_heading(copied)), *parts]) + "\n"


def as_markdown(copied: Copied) -> str:
    """Each text in a fence that it cannot close."""
    title, *facts = _heading(copied)
    parts = [f"## {title}", *(f"- {fact}" for fact in facts)]
    for title, text in _sections(copied.transcript):
        longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        parts.append(f"### {title}\n\n{fence}text\n{text}\n{fence}")
    return "\n\n".join(parts) + "\n"


def as_json(copied: Copied) -> str:
    """The trace and its events, as the service sent them."""
    body = {
        "trace": copied.trace.model_dump(mode="json", exclude_none=True),
        "events": [event.model_dump(mode="json", exclude_none=True) for event in copied.events],
    }
    return json.dumps(body, indent=1, ensure_ascii=True) + "\n"


def as_answer(copied: Copied) -> str:
    """The policy's last text alone."""
    return clean(copied.transcript.last_answer, WHOLE)


FORMS: Mapping[str, tuple[str, Callable[[Copied], str]]] = {
    "text": ("Text", as_text),
    "markdown": ("Markdown", as_markdown),
    "json": ("JSON", as_json),
    "answer": ("Last answer", as_answer),
}
"""Forms of a rollout for copying: name → (label, function)."""


def reward_text(reward: float | None, parts: Sequence[Subscore]) -> str:
    """A reward with what it is made of, e.g. ``.600  =  exact 0 × .400 + form 1 × .600``."""
    if not parts:
        return short(reward)
    made = " + ".join(
        f"{one_line(part.name, 30)} {short(part.value)}"
        + (f" × {short(part.weight)}" if part.weight is not None else "")
        for part in parts
    )
    return f"{short(reward)}  =  {made}"


def _heading(copied: Copied) -> list[str]:
    trace, outcome = copied.trace, copied.outcome
    where = "" if trace.step is None else f", step {trace.step}"
    lines = [f"{one_line(trace.task_slug or 'rollout', 80)}{where}, reward {short(trace.reward)}"]
    if outcome.subscores:
        lines.append(f"reward {reward_text(outcome.reward, outcome.subscores)}")
    if outcome.expected:
        lines.append(f"expected: {one_line(outcome.expected, 500)}")
    if outcome.advantage is not None:
        lines.append(f"advantage {with_sign(outcome.advantage)}{outcome.formula_end}")
    if outcome.fate:
        lines.append(outcome.fate)
    if outcome.error:
        lines.append(f"error: {one_line(outcome.error, 2000)}")
    return lines


def _sections(transcript: Transcript) -> Iterator[tuple[str, str]]:
    """(title, text) of everything in it."""
    for part in transcript.setup:
        yield _part(part)
    for turn in transcript.turns:
        yield from _turn(turn)
    for part in transcript.grading:
        yield _part(part)


def _part(part: EnvironmentPart) -> tuple[str, str]:
    texts = (laid_out(part.arguments), laid_out(part.result), _error(part.error))
    name = one_line(f"{part.phase} {part.name}".strip(), 120)
    return f"environment: {name}", clean("\n".join(filter(None, texts)), WHOLE)


def _turn(turn: Turn) -> Iterator[tuple[str, str]]:
    role = one_line(turn.role, 20)
    if turn.reasoning:
        yield f"{role}, reasoning", clean(turn.reasoning, WHOLE)
    if turn.text or not (turn.calls or turn.reasoning):
        yield role, clean(turn.text, WHOLE)
    for call in turn.calls:
        yield f"call {one_line(call.name, 80)}", clean(_call(call), WHOLE)
    if turn.error:
        yield f"{role}, error", clean(turn.error, WHOLE)


def _call(call: Call) -> str:
    answer = laid_out(call.result) if call.result is not None else ""
    image = f"[image {call.image}]" if call.image else ""
    error = _error(call.error) if call.error != call.result else "(reported as an error)"
    came = "\n".join(filter(None, (answer, image, error))) or "(no result)"
    return "\n".join(filter(None, (laid_out(call.arguments), f"→ {came}")))


def _error(error: str) -> str:
    return f"error: {error}" if error else ""
