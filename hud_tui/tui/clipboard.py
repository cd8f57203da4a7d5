"""A rollout to paste elsewhere: as text, as Markdown, or as the JSON that the service keeps.

In text and Markdown what could act on a terminal is shown as pictures; JSON has every
character that is not ASCII escaped, so that nothing is lost and nothing acts.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from hud_tui.rl.metrics import short
from hud_tui.rl.text import WHOLE, clean, one_line
from hud_tui.tui.widgets.rollout import role_of
from hud_tui.wire import Trace, TraceEvent, TraceEvents

_TICKS = re.compile("`+")


def as_text(trace: Trace, events: TraceEvents | None) -> str:
    """Who said what."""
    said = [f"{role}:\n{text}" for role, text in _turns(trace, events)]
    return "\n\n".join([_title(trace), *said]) + "\n"


def as_markdown(trace: Trace, events: TraceEvents | None) -> str:
    """The same under headings, every text in a fence that it cannot close."""
    parts = [f"## {_title(trace)}"]
    for role, text in _turns(trace, events):
        longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        parts.append(f"### {role}\n\n{fence}text\n{text}\n{fence}")
    return "\n\n".join(parts) + "\n"


def as_json(trace: Trace, events: TraceEvents | None) -> str:
    """The trace and its events, as the service sent them."""
    body = {
        "trace": trace.model_dump(mode="json", exclude_none=True),
        "events": [
            event.model_dump(mode="json", exclude_none=True)
            for event in (events.events if events is not None else ())
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=True) + "\n"


FORMS: Mapping[str, tuple[str, Callable[[Trace, TraceEvents | None], str]]] = {
    "text": ("Text", as_text),
    "markdown": ("Markdown", as_markdown),
    "json": ("JSON", as_json),
}
"""What a rollout can be copied as: a name, what it is called, and what makes it."""


def _title(trace: Trace) -> str:
    where = "" if trace.step is None else f", step {trace.step}"
    return f"{one_line(trace.task_slug or 'rollout', 80)}{where}, reward {short(trace.reward)}"


def _turns(trace: Trace, events: TraceEvents | None) -> Iterator[tuple[str, str]]:
    if events is None or not events.events:
        yield "assistant", clean(trace.completion or "", WHOLE)
        return
    for event in events.events:
        yield from _said(event)


def _said(event: TraceEvent) -> Iterator[tuple[str, str]]:
    if event.reasoning:
        yield "reasoning", clean(event.reasoning, WHOLE)
    if event.kind == "tool_call":
        yield "tool call", clean(f"{event.tool_name} {event.arguments}", WHOLE)
        yield "tool result", clean(event.result_text or "", WHOLE)
    elif event.text or not event.tool_calls:
        yield role_of(event), clean(event.text or "", WHOLE)
    for call in event.tool_calls or ():
        yield "calls", clean(json.dumps(call), WHOLE)
