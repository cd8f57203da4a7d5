"""Passages: the texts of an unfolded turn, as they are wrapped, coloured and searched.

Texts come from a model or a client: they are cleaned, and never parsed as markup. Only what is in
sight is drawn; a text is wrapped once for a width, as pairs of offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from hud_tui.rl.metrics import short
from hud_tui.rl.rollouts import (
    SURPRISES,
    Shade,
    Shaded,
    by_advantage,
    by_ratio,
    by_surprise,
    least_likely,
    surprise_level,
)
from hud_tui.rl.text import WHOLE, clean, duration, one_line
from hud_tui.rl.transcript import Call, EnvironmentPart, Turn, laid_out
from hud_tui.tui.theme import RAMP, reward_style
from hud_tui.tui.widgets.lines import Toned, fit_text
from hud_tui.wire_training import TurnSample

LEAST = 8
"""Least width of a line, cells."""
TOKENS_MOST = 600
"""Most tokens of a turn that are listed one by one; the rest is counted."""
CELL = 20
"""Cells of one token and its value."""
MEANINGS = {
    Shade.SURPRISE: "surprise: probability when sampled",
    Shade.RATIO: "importance ratio π/π_old",
    Shade.ADVANTAGE: "advantage: − pushed down … + pushed up",
}
SURPRISE_TONES = ("faint", "plain", "warm", "hot", "hot")
"""Tone of a token by its level of surprise; the last level is also reversed."""
SURPRISE_COLOURS = ("$text-disabled", "$foreground", "$warning", "$error", "reverse $error")
"""The same in the line that says what colours mean."""
MUTED = "$text-muted"
Pieces = list[tuple[int, int, Style]]
"""A line's parts: first offset, last offset + 1, style."""
Offsets = Sequence[tuple[int, int]]
"""The lines of a text: first offset of each, and the last + 1."""


@dataclass(frozen=True)
class Alternative:
    """An unlikely token that was sampled, and its alternatives."""

    index: int
    """Of the token in its turn, from 0."""
    others: Sequence[tuple[str, float]]
    """The likeliest tokens, with their logprobs."""


@dataclass(frozen=True)
class Colouring:
    """What colours the tokens of a rollout."""

    shade: Shade | None = None
    advantage: float | None = None
    """The rollout's advantage; None if it is not trained on."""
    most: float = 0.0
    """Largest absolute advantage in its group."""
    now: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Logprobs under the current policy, by the number of a turn with tokens."""
    detailed: frozenset[int] = frozenset()
    """Numbers of the turns whose tokens are listed one by one."""
    alternatives: Mapping[int, Sequence[Alternative] | str] = field(default_factory=dict)
    """By the number of a turn with tokens; or why there are none."""

    def of(self, turn: Turn) -> Shaded | None:
        """The shading of a turn's tokens; None if they are not coloured, or their texts are
        unknown."""
        sample = turn.sample
        if self.shade is None or sample is None or not turn.pieces:
            return None
        logprobs = sample.output_logprobs
        if self.shade is Shade.ADVANTAGE:
            return by_advantage(self.advantage, self.most, len(turn.pieces))
        if self.shade is Shade.RATIO:
            now = self.now.get(turn.number or 0)
            return by_ratio([None] * len(logprobs) if now is None else now, logprobs)
        return by_surprise(logprobs)


@dataclass(frozen=True)
class Passage:
    """A text under a title."""

    text: str = ""
    """Cleaned, without tabs."""
    title: str = ""
    tone: str = "plain"
    title_tone: str = "dim"
    lead: int = 0
    """Characters at its beginning that are in the title's tone."""
    ends: Sequence[int] = ()
    """Offsets at which its tokens end; empty if it is not coloured by tokens."""
    styles: Sequence[Callable[[Toned], Style]] = ()
    """Style of each token."""
    rows: Callable[[int, Toned], list[list[Segment]]] | None = None
    """Instead of a text: its lines for a width."""

    def lines(self, width: int) -> Offsets:
        return wrapped(self.text, width) if self.text else ()

    def pieces(self, start: int, stop: int, tone: Toned) -> Pieces:
        """A line of its text, by style."""
        if not self.ends:
            lead = min(max(start, self.lead), stop)
            parts = (start, lead, tone(self.title_tone)), (lead, stop, tone(self.tone))
            return [part for part in parts if part[0] < part[1]]
        pieces: Pieces = []
        index = bisect_right(self.ends, start)
        while start < stop and index < len(self.ends):
            end = min(stop, self.ends[index])
            pieces.append((start, end, self.styles[index](tone)))
            start, index = end, index + 1
        return pieces


def wrapped(text: str, width: int) -> Offsets:
    """Where a text's lines begin and end at most `width` cells apart: at a space if there is one,
    which belongs to neither line, else within a word. O(length)."""
    lines: list[tuple[int, int]] = []
    start, length, narrow, width = 0, len(text), text.isascii(), max(LEAST, width)
    while start <= length:
        end = text.find("\n", start)
        end = length if end < 0 else end
        while not _fits(text, start, end, width, narrow):
            stop = start + (width if narrow else _reach(text, start, width))
            space = text.rfind(" ", start + 1, stop + 1)
            if space > start:
                lines.append((start, space))
                start = space + 1
            else:
                lines.append((start, stop))
                start = stop
        lines.append((start, end))
        start = end + 1
    return lines


def _fits(text: str, start: int, end: int, width: int, narrow: bool) -> bool:
    if end - start > width:
        return False
    return narrow or cell_len(text[start:end]) <= width


def _reach(text: str, start: int, width: int) -> int:
    """Number of characters from `start` that fit into `width` cells; at least one."""
    count = width
    while count > 1 and cell_len(text[start : start + count]) > width:
        count -= max(1, (cell_len(text[start : start + count]) - width) // 2)
    return max(1, count)


def overlaid(pieces: Pieces, start: int, stop: int, style: Style) -> Pieces:
    """The parts of a line, with a style over those from `start` to `stop`."""
    shown: Pieces = []
    for first, end, own in pieces:
        low, high = max(first, start), min(end, stop)
        if low >= high:
            shown.append((first, end, own))
            continue
        if first < low:
            shown.append((first, low, own))
        shown.append((low, high, own + style))
        if high < end:
            shown.append((high, end, own))
    return shown


def readable(text: str) -> str:
    """A text from outside, for the screen."""
    return clean(text, WHOLE).replace("\t", "    ")


# What a turn, and a part of the environment, has to say.


def turn_passages(turn: Turn, colouring: Colouring) -> Iterator[Passage]:
    """The texts of a turn: reasoning, text, calls with their results, error; then its tokens."""
    if turn.reasoning:
        yield Passage(readable(turn.reasoning), "reasoning", "dim")
    shaded = colouring.of(turn)
    if shaded is None:
        if turn.text:
            yield Passage(readable(turn.text))
    else:
        yield _coloured(turn.pieces, shaded)
    for call in turn.calls:
        yield from _call(call)
    if turn.error:
        yield Passage(readable(turn.error), "⚠ error", "hot", "hot")
    if colouring.shade is not None and turn.sample is not None:
        yield from _tokens(turn, turn.sample, shaded, colouring)


def part_passages(part: EnvironmentPart) -> Iterator[Passage]:
    if arguments := laid_out(part.arguments):
        yield Passage(readable(arguments), "arguments")
    if part.result:
        yield Passage(readable(laid_out(part.result)), "result")
    if part.error:
        yield Passage(readable(part.error), "⚠ error", "hot", "hot")


def seconds_text(seconds: float | None) -> str:
    """How long something took; empty if that is not known."""
    if seconds is None:
        return ""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _call(call: Call) -> Iterator[Passage]:
    """The call and its arguments, then what came back."""
    yield _led(f"→ {one_line(call.name, 80)}", laid_out(call.arguments), "plain", "second")
    took = seconds_text(call.seconds)
    image = f"[image {one_line(call.image, 200)}]" if call.image else ""
    came = "\n".join(filter(None, (laid_out(call.result or call.error), image)))
    if call.error:
        yield _led(f"⚠ error {took}".rstrip(), came, "hot", "hot")
        if call.result and call.error != call.result:
            yield Passage(readable(call.error), tone="hot")
    else:
        lead = f"← {took} ·" if took else "←"
        yield _led(lead, came if call.is_answered else "no result", "plain", "dim")


def _led(lead: str, text: str, tone: str, lead_tone: str) -> Passage:
    """A text after a few words that say what it is; in lines of its own if it has several, unless
    it is JSON."""
    between = "\n" if "\n" in text and text[0] not in "{[" else " "
    shown = f"{lead}{between}{readable(text)}".rstrip()
    return Passage(shown, tone=tone, title_tone=lead_tone, lead=len(lead))


# Tokens in colour.


def _coloured(texts: Sequence[str], shaded: Shaded) -> Passage:
    pieces = [readable(text) for text in texts]
    ends = list(accumulate(map(len, pieces)))
    shares = [*shaded.shares, *[None] * (len(pieces) - len(shaded.shares))]
    values = [*shaded.values, *[None] * (len(pieces) - len(shaded.values))]
    styles = [_style(shaded.by, *pair) for pair in zip(values, shares, strict=False)]
    return Passage("".join(pieces), ends=ends, styles=styles)


def _style(by: Shade, value: float | None, share: float | None) -> Callable[[Toned], Style]:
    if share is None:
        return lambda tone: tone("dim")
    if by is not Shade.SURPRISE:
        return lambda tone: reward_style(share)
    return SURPRISE_STYLES[surprise_level(value)]


def _level_style(level: int) -> Callable[[Toned], Style]:
    name, most = SURPRISE_TONES[level], level == len(SURPRISE_TONES) - 1
    return lambda tone: tone(name) + Style(reverse=True) if most else tone(name)


SURPRISE_STYLES = [_level_style(level) for level in range(len(SURPRISE_TONES))]


def _tokens(
    turn: Turn, sample: TurnSample, shaded: Shaded | None, colouring: Colouring
) -> Iterator[Passage]:
    """The sums; and of a turn in detail the alternatives, and the tokens one by one."""
    logprobs = [p for p in sample.output_logprobs if p == p]
    text = f"{len(sample.output_token_ids)} tokens"
    if logprobs:
        text += f"   logprob Σ {sum(logprobs):z.2f}   mean {sum(logprobs) / len(logprobs):z.3f}"
    if shaded is None:
        yield Passage(f"{text}   (token texts unknown: not coloured)", tone="dim")
        return
    unknown = "   (some unknown)" if None in shaded.shares else ""
    yield Passage(f"{text}{unknown}", tone="dim")
    if turn.number not in colouring.detailed:
        return
    if turn.number in colouring.alternatives:
        yield _alternatives(turn, sample, colouring.alternatives[turn.number])
    pieces = turn.pieces
    yield Passage(rows=lambda width, tone: list(_listed(pieces, shaded, width, tone)))
    if len(pieces) > TOKENS_MOST:
        yield Passage(f"… {len(pieces) - TOKENS_MOST} more tokens", tone="dim")


def legend(colouring: Colouring) -> Content:
    """What the colours mean, in one line; empty if nothing is coloured."""
    shade = colouring.shade
    if shade is None:
        return Content()
    named = Content.styled(f" {MEANINGS[shade]}   ", MUTED)
    if shade is Shade.SURPRISE:
        labels = (label for _, label in SURPRISES)
        pairs = zip(labels, SURPRISE_COLOURS, strict=True)
        return named + Content("  ").join(Content.styled(*pair) for pair in pairs)
    low, high = by_advantage(None, colouring.most, 0).ends
    if shade is Shade.RATIO:
        low, high = by_ratio((), ()).ends
    ramp = Content("").join(Content.styled("█", colour) for colour in RAMP)
    return named + Content.assemble((f"{low} ", MUTED), ramp, (f" {high}", MUTED))


def _alternatives(
    turn: Turn, sample: TurnSample, alternatives: Sequence[Alternative] | str
) -> Passage:
    """One line per token: its probability, and the likeliest ones."""
    if isinstance(alternatives, str):
        return Passage(readable(alternatives), tone="dim")
    lines = []
    for each in alternatives:
        own = exp(min(0.0, sample.output_logprobs[each.index]))
        token = _quoted(turn.pieces[each.index])
        likely = [(text, p) for text, p in each.others if text != turn.pieces[each.index]]
        others = "   ".join(f"{_quoted(text)} {short(exp(min(0.0, p)))}" for text, p in likely)
        lines.append(f"{token} p {short(own)} at token {each.index + 1}   alternatives: {others}")
    if not lines and not least_likely(sample.output_logprobs, 1):
        return Passage("No token of this turn was improbable.", tone="dim")
    if not lines:
        return Passage("The service gives no alternatives for this turn.", tone="dim")
    return Passage("\n".join(lines), "least likely tokens, and their alternatives")


def _quoted(token: str) -> str:
    return f"“{one_line(token, 20).replace(' ', '␣')}”"


def _listed(
    pieces: Sequence[str], shaded: Shaded, width: int, tone: Toned
) -> Iterator[list[Segment]]:
    """The tokens one by one with their values, in columns read downwards."""
    listed = list(zip(pieces[:TOKENS_MOST], shaded.values, shaded.shares, strict=False))
    across = max(1, width // CELL)
    down = -(-len(listed) // across)
    for row in range(down):
        yield [part for each in listed[row::down] for part in _token(shaded.by, *each, tone)]


def _token(
    by: Shade, piece: str, value: float | None, share: float | None, tone: Toned
) -> list[Segment]:
    name = fit_text(one_line(piece, 40).replace(" ", "␣"), 10)
    unknown = value is None or value != value
    shown = "–" if unknown else f"{value:z.3f}" if abs(value or 0) < 100 else short(value)
    return [
        Segment(name, _style(by, value, share)(tone)),
        Segment(f"{shown:>7}   ", tone("dim")),
    ]
