"""One rollout as text: what was asked, what was answered, token by token.

Every text here was written by a model or a client: it is cleaned, and never parsed.
"""

from collections.abc import Iterator, Sequence

from textual.content import Content
from textual.widgets import Static

from hud_tui.rl.text import clean, count_unsafe, one_line
from hud_tui.tui.widgets.palette import RAMP
from hud_tui.tui.widgets.scroll_pane import ScrollPane
from hud_tui.wire import Trace, TraceEvent, TraceEvents, TurnSample

ROLES = {
    "system": "system",
    "user_message": "user",
    "agent_message": "assistant",
    "tool_call": "tool",
}
TOKENS_MOST = 600
"""Tokens that are listed of one turn; the rest is counted."""
CELL = 20
"""Cells of one token and its logprob."""
SURE = 6.0
"""A logprob this far below 0 is as unlikely as the ramp shows."""


class RolloutPane(ScrollPane):
    """One rollout's conversation, as wide as the pane."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown: tuple[Trace, TraceEvents | None] | None = None

    def compose(self) -> Iterator[Static]:
        yield Static("", id="rollout-text", markup=False)

    def show(self, trace: Trace, turns: TraceEvents | None) -> None:
        """Show a rollout; its turns are None while they are being read."""
        self.shown = trace, turns
        width = self.scrollable_content_region.width
        text = rollout_text(trace, turns, max(CELL, width))
        self.query_one("#rollout-text", Static).update(text)

    def on_resize(self) -> None:
        if self.shown is not None:
            self.show(*self.shown)


def rollout_text(trace: Trace, events: TraceEvents | None, width: int) -> Content:
    """The conversation, `width` cells wide.

    Args:
        trace: Its row; what it says in short stands in where there are no events.
        events: Its turns; None while they are being read.
    """
    if events is None:
        return Content.styled("reading the conversation …", MUTED)
    lines: list[Content] = []
    for event in events.events:
        lines += _turn(event, width)
    if not events.events:
        lines.append(Content.styled("the service keeps no conversation of this rollout", MUTED))
        if trace.completion:
            lines += [Content(), *_said("assistant", trace.completion)]
    error = trace.error or next((event.error for event in events.events if event.error), None)
    if error:
        lines += [Content(), Content.styled(f"error  {clean(error, 2000)}", "$error")]
    if removed := unsafe(events):
        lines += [Content(), Content.styled(f"␛ removed ×{removed}", "bold $warning")]
    return Content("\n").join(lines)


def unsafe(events: TraceEvents) -> int:
    """Characters of the conversation that could act on a terminal."""
    return sum(count_unsafe(text) for event in events.events for text in _texts(event))


def completion_of(trace: Trace, events: TraceEvents | None) -> str:
    """The last answer, safe to paste."""
    turns = events.events if events is not None else []
    said = [event.text for event in turns if event.kind == "agent_message" and event.text]
    return clean(said[-1] if said else trace.completion or "")


MUTED = "$text-muted"


def _turn(event: TraceEvent, width: int) -> Iterator[Content]:
    role = ROLES.get(event.kind, one_line(event.kind, 20))
    if event.reasoning:
        yield from _said("reasoning", event.reasoning)
    if event.kind == "tool_call":
        call = f"{event.tool_name or ''} {event.arguments if event.arguments is not None else ''}"
        yield from _said("tool", f"{call.strip()}\n{event.result_text or ''}".rstrip())
    elif event.text or not event.tool_calls:
        yield from _said(role, event.text or "")
    for call_ in event.tool_calls or ():
        yield from _said("calls", f"{call_.get('name')} {call_.get('arguments', '')}")
    if event.sample is not None and event.sample.output_logprobs:
        yield from _tokens(event.tokens, event.sample, width)
    yield Content()


def _said(role: str, text: str) -> Iterator[Content]:
    yield Content.styled(role, f"bold {MUTED}")
    for line in clean(text).replace("\t", "    ").split("\n"):
        yield Content(f"  {line}")


def _tokens(pieces: Sequence[str] | None, sample: TurnSample, width: int) -> Iterator[Content]:
    """Each token with its logprob; the dimmer, the less likely it was."""
    logprobs = sample.output_logprobs
    total = sum(logprobs)
    yield Content()
    yield Content.styled(
        f"  {len(logprobs)} tokens   logprob Σ {total:.2f}   mean {total / len(logprobs):.3f}",
        MUTED,
    )
    names = pieces or [f"#{token}" for token in sample.output_token_ids]
    pairs = list(zip(names, logprobs, strict=False))
    across = max(1, (width - 2) // CELL)
    down = -(-min(len(pairs), TOKENS_MOST) // across)
    for row in range(down):
        cells = [_token(*pair) for pair in pairs[row : min(len(pairs), TOKENS_MOST) : down]]
        yield Content("  ") + Content("").join(cells)
    if len(pairs) > TOKENS_MOST:
        yield Content.styled(f"  … {len(pairs) - TOKENS_MOST} more tokens", MUTED)


def _token(piece: str, logprob: float) -> Content:
    name = one_line(piece, 8).replace(" ", "␣")
    sure = 1.0 - min(SURE, -min(0.0, logprob)) / SURE if logprob == logprob else 0.0
    colour = RAMP[round(sure * (len(RAMP) - 1))]
    text = Content.styled(name.ljust(10), colour) + Content.styled(f"{logprob:>7.3f}", MUTED)
    return text.pad_right(max(0, CELL - text.cell_length))


def _texts(event: TraceEvent) -> Iterator[str]:
    for text in (event.text, event.reasoning, event.result_text, event.arguments, event.error):
        if text is not None:
            yield str(text)
