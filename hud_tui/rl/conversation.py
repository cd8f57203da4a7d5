"""A rollout's turns as two texts: what the task asked, and what the policy made of it."""

from collections.abc import Sequence

from hud_tui.wire import TraceEvent

ASKING = frozenset({"system", "user_message"})
"""Kinds of event that come from the task."""


def prompt_of(events: Sequence[TraceEvent]) -> str:
    """What was asked before the policy said anything."""
    asked = []
    for event in events:
        if event.kind not in ASKING:
            break
        asked.append(event.text or "")
    return "\n".join(text for text in asked if text)


def answer_of(events: Sequence[TraceEvent]) -> str:
    """What came after the prompt, tool calls and their results included."""
    first = next((at for at, event in enumerate(events) if event.kind not in ASKING), len(events))
    return "\n".join(text for event in events[first:] for text in _said(event) if text)


def _said(event: TraceEvent) -> list[str]:
    said = [f"({event.reasoning})" if event.reasoning else ""]
    if event.kind == "tool_call":
        arguments = "" if event.arguments is None else event.arguments
        said += [f"→ {event.tool_name or 'tool'} {arguments}".rstrip(), event.result_text or ""]
    elif event.kind in ASKING:
        said.append(f"[{event.text or ''}]")
    else:
        said.append(event.text or "")
    return [*said, f"error: {event.error}" if event.error else ""]
