"""A rollout as lines: what was asked, what was answered, how it was graded.

Every text here was written by a model or a client: it is cleaned, and never parsed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from textual.content import Content

from hud_tui.rl.grade import subscores
from hud_tui.rl.metrics import short
from hud_tui.rl.text import WHOLE, clean, count_unsafe, one_line, pictures
from hud_tui.rl.token_shades import Shade, Shaded, by_advantage, by_logprob, by_ratio
from hud_tui.tui.widgets.rollout_tokens import MUTED, flow, legend, listed
from hud_tui.wire import Trace, TraceEvent, TraceEvents, TurnSample

ROLES = {
    "system": "system",
    "user_message": "user",
    "agent_message": "assistant",
    "tool_call": "tool",
}
INDENT = 2


@dataclass(frozen=True)
class Reading:
    """How a rollout is read: what shades its tokens, and what is known beside its turns."""

    shade: Shade = Shade.LOGPROB
    advantage: float | None = None
    """The rollout's; None where it is not trained on."""
    most: float = 0.0
    """The largest advantage of its group, by amount."""
    now: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Logprobs under the policy of now, by the turn's number among those with tokens."""
    grade: object = None
    """The evaluation's result as the service keeps it."""


def rollout_lines(
    trace: Trace, events: TraceEvents | None, reading: Reading, width: int
) -> list[Content]:
    """The conversation, `width` cells wide.

    Args:
        trace: Its row; what it says in short stands in where there are no events.
        events: Its turns; None while they are being read.
        reading: How it is read.
        width: Cells of a line.
    """
    if events is None:
        return [Content.styled("reading the conversation …", MUTED)]
    lines = [*_badge(events, width), *_graded(trace, reading, width)]
    turn = 0
    for event in events.events:
        lines += _event(event, reading, turn, width)
        turn += event.sample is not None
    if not events.events:
        lines.append(Content.styled("the service keeps no conversation of this rollout", MUTED))
        if trace.completion:
            lines += [Content(), *_said("assistant", trace.completion, width)]
    error = trace.error or next((event.error for event in events.events if event.error), None)
    if error:
        lines += Content.styled(f"error  {clean(error, 2000)}", "$error").wrap(width)
    return lines


def unsafe(events: TraceEvents) -> int:
    """Characters of the conversation that could act on a terminal."""
    return sum(count_unsafe(text) for event in events.events for text in _texts(event))


def completion_of(trace: Trace, events: TraceEvents | None) -> str:
    """The last answer, safe to paste."""
    turns = events.events if events is not None else []
    said = [event.text for event in turns if event.kind == "agent_message" and event.text]
    return clean(said[-1] if said else trace.completion or "", WHOLE)


def role_of(event: TraceEvent) -> str:
    """Who speaks."""
    return ROLES.get(event.kind, one_line(event.kind, 20))


def _badge(events: TraceEvents, width: int) -> Iterator[Content]:
    """Which characters were removed, where any was, and what stands for them."""
    found: Counter[str] = Counter()
    for event in events.events:
        for text in _texts(event):
            found.update(pictures(text))
    if not found:
        return
    which = "  ".join(f"{picture} ×{count}" for picture, count in found.most_common(6))
    text = f"␛ removed ×{found.total()}, shown as pictures:  {which}"
    yield from Content.styled(text, "bold $warning").wrap(width)
    yield Content()


def _graded(trace: Trace, reading: Reading, width: int) -> Iterator[Content]:
    """The reward, and what it is made of where that is known."""
    parts = subscores(reading.grade)
    if not parts:
        return
    made = "  ".join(
        f"{one_line(part.name, 30)} {short(part.value)}"
        + (f" × {short(part.weight)}" if part.weight is not None else "")
        for part in parts
    )
    line = Content.assemble(("reward  ", f"bold {MUTED}"), f"{short(trace.reward)}  =  {made}")
    yield from line.wrap(width)
    yield Content()


def _event(event: TraceEvent, reading: Reading, turn: int, width: int) -> Iterator[Content]:
    if event.reasoning:
        yield from _said("reasoning", event.reasoning, width)
    sample = event.sample
    if sample is not None and sample.output_token_ids:
        yield from _sampled(event, sample, reading, turn, width)
    elif event.kind == "tool_call":
        called = event.arguments if event.arguments is not None else ""
        yield from _said("tool call", f"{event.tool_name or ''} {called}".strip(), width)
        yield from _said("tool result", event.result_text or "", width)
    elif event.text or not event.tool_calls:
        yield from _said(role_of(event), event.text or "", width)
    for call in event.tool_calls or ():
        function = call.get("function")
        made = function if isinstance(function, dict) else call
        yield from _said("calls", f"{made.get('name')} {made.get('arguments', '')}", width)
    yield Content()


def _said(role: str, text: str, width: int) -> Iterator[Content]:
    yield Content.styled(role, f"bold {MUTED}")
    yield from _indented(Content(clean(text).replace("\t", "    ")), width)


def _sampled(
    event: TraceEvent, sample: TurnSample, reading: Reading, turn: int, width: int
) -> Iterator[Content]:
    """An answer with its tokens in their shades, the legend, and each token by itself.

    Where the service does not say what text each token is, the answer is its text alone: ids
    tell a reader nothing.
    """
    pieces = event.tokens or ()
    if len(pieces) != len(sample.output_token_ids):
        yield from _said(role_of(event), event.text or "", width)
        yield from _indented(_summed(sample, "   (pieces unknown: not shaded)"), width)
        return
    shaded = _shaded(sample, reading, turn)
    yield Content.styled(role_of(event), f"bold {MUTED}")
    yield from _indented(flow(pieces, shaded), width)
    yield Content()
    yield from _indented(legend(shaded), width)
    yield from _indented(_summed(sample), width)
    room = width - INDENT
    yield from (Content(" " * INDENT) + line for line in listed(pieces, shaded, room))


def _summed(sample: TurnSample, more: str = "") -> Content:
    """How many tokens there are, and their logprobs in sum, in nats."""
    logprobs = [each for each in sample.output_logprobs if each == each]
    text = f"{len(sample.output_token_ids)} tokens"
    if logprobs:
        total = sum(logprobs)
        text += f"   logprob Σ {total:.2f}   mean {total / len(logprobs):.3f}"
    return Content.styled(text + more, MUTED)


def _shaded(sample: TurnSample, reading: Reading, turn: int) -> Shaded:
    logprobs = sample.output_logprobs
    count = len(sample.output_token_ids)
    if reading.shade is Shade.ADVANTAGE:
        return by_advantage(reading.advantage, reading.most, count)
    if reading.shade is Shade.RATIO:
        now = reading.now.get(turn)
        return by_ratio([None] * len(logprobs) if now is None else now, logprobs)
    return by_logprob(logprobs)


def _indented(text: Content, width: int) -> Iterator[Content]:
    for line in text.split("\n", allow_blank=True):
        for part in line.wrap(max(8, width - INDENT)) or [Content()]:
            yield Content(" " * INDENT) + part


def _texts(event: TraceEvent) -> Iterator[str]:
    for text in (event.text, event.reasoning, event.result_text, event.arguments, event.error):
        if text is not None:
            yield str(text)
