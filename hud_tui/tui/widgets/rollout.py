"""RolloutPane: one rollout with its conversation, token by token, and a search."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import ceil

from rich.segment import Segment
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.groups import PLAIN, Advantages
from hud_tui.rl.metrics import short
from hud_tui.rl.outcome import MOST_NOTES, NOTE_MOST, grade_notes, subscores
from hud_tui.rl.rollouts import Shade, Shaded, by_advantage, by_logprob, by_ratio
from hud_tui.rl.text import WHOLE, clean, count_unsafe, one_line, pictures
from hud_tui.tui.theme import RAMP, reward_style
from hud_tui.tui.widgets.lines import LinesView, TextPane, fit_text, line
from hud_tui.wire import Group
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent, TraceEvents, TurnSample, call_text, value_text

# An answer's tokens: as they flow, shaded; what the shades mean; and one by one.


MUTED = "$text-muted"
TOKENS_MOST = 600
"""Most tokens of a turn that are listed one by one; the rest is counted."""
CELL = 20
"""Cells of one token and its value."""
MEANINGS = {
    Shade.LOGPROB: "logprob when sampled",
    Shade.RATIO: "importance ratio π/π_old",
    Shade.ADVANTAGE: "advantage: − pushed down … + pushed up",
}


def flow(pieces: Sequence[str], shaded: Shaded) -> Content:
    """The tokens as text, shaded."""
    shares = [*shaded.shares, *[None] * len(pieces)]
    return Content("").join(
        Content.styled(clean(piece).replace("\t", "    "), _colour(share))
        for piece, share in zip(pieces, shares, strict=False)
    )


def legend(shaded: Shaded) -> Content:
    """Legend of the token shading, in one line."""
    low, high = shaded.ends
    ramp = Content("").join(Content.styled("█", colour) for colour in RAMP)
    named = Content.styled(f"{MEANINGS[shaded.by]}   {low} ", MUTED)
    unknown = "   (some unknown)" if None in shaded.shares else ""
    return named + ramp + Content.styled(f" {high}{unknown}", MUTED)


def listed(pieces: Sequence[str], shaded: Shaded, width: int) -> Iterator[Content]:
    """The tokens one by one with their values, in columns read downwards, `width` cells wide."""
    names, values = pieces[:TOKENS_MOST], shaded.values[:TOKENS_MOST]
    pairs = list(zip(names, values, shaded.shares, strict=False))
    across = max(1, width // CELL)
    down = -(-len(pairs) // across)
    for row in range(down):
        yield Content("").join(_token(*pair) for pair in pairs[row::down])
    if len(pieces) > TOKENS_MOST:
        yield Content.styled(f"… {len(pieces) - TOKENS_MOST} more tokens", MUTED)


def _token(piece: str, value: float | None, share: float | None) -> Content:
    name = Content(one_line(piece, 40).replace(" ", "␣")).truncate(10, ellipsis=True)
    unknown = value is None or value != value
    shown = "–" if unknown else f"{value:z.3f}" if abs(value or 0) < 100 else short(value)
    text = name.stylize(_colour(share)) + Content(" " * (10 - name.cell_length))
    return (text + Content.styled(f"{shown:>7}", MUTED)).pad_right(CELL - 17)


def _colour(share: float | None) -> str:
    if share is None:
        return MUTED
    return RAMP[round(min(1.0, max(0.0, share)) * (len(RAMP) - 1))]


# A rollout as lines: prompt, answer and grading.
#
# All texts come from a model or a client: they are cleaned, and never parsed as markup.


ROLES = {
    "system": "system",
    "user_message": "user",
    "agent_message": "assistant",
    "tool_call": "tool",
}
INDENT = 2


@dataclass(frozen=True)
class Reading:
    """How a rollout is shown: the token shading, and data beside its turns."""

    shade: Shade = Shade.LOGPROB
    advantage: float | None = None
    """The rollout's advantage; None if it is not trained on."""
    most: float = 0.0
    """Largest absolute advantage in its group."""
    now: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Logprobs under the current policy, by turn; only turns with tokens are counted."""
    grade: object = None
    """The grading as the service stores it."""


def rollout_lines(
    trace: Trace, events: TraceEvents | None, reading: Reading, width: int
) -> list[Content]:
    """The conversation, `width` cells wide; its turns are None while they are being read."""
    if events is None:
        return [Content.styled("reading the conversation …", MUTED)]
    lines = [*_badge(events, width), *_graded(trace, reading, width)]
    turn = 0
    for event in events.events:
        lines += _event(event, reading, turn, width)
        turn += event.sample is not None
    if not events.events:
        lines.append(Content.styled("the service has no conversation for this rollout", MUTED))
        if trace.completion:
            lines += [Content(), *_titled("assistant", trace.completion, width)]
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
    texts = [event.text for event in turns if event.kind == "agent_message" and event.text]
    return clean(texts[-1] if texts else trace.completion or "", WHOLE)


def role_of(event: TraceEvent) -> str:
    return ROLES.get(event.kind, one_line(event.kind, 20))


def _badge(events: TraceEvents, width: int) -> Iterator[Content]:
    """Which control characters were replaced, and how."""
    counts: Counter[str] = Counter()
    for event in events.events:
        for text in _texts(event):
            counts.update(pictures(text))
    if not counts:
        return
    which = "  ".join(f"{picture} ×{count}" for picture, count in counts.most_common(6))
    text = f"␛ removed ×{counts.total()}, shown as symbols:  {which}"
    yield from Content.styled(text, "bold $warning").wrap(width)
    yield Content()


def _graded(trace: Trace, reading: Reading, width: int) -> Iterator[Content]:
    """The reward, and its components if known."""
    parts, notes = subscores(reading.grade), grade_notes(reading.grade)
    if parts:
        made = "  ".join(
            f"{one_line(part.name, 30)} {short(part.value)}"
            + (f" × {short(part.weight)}" if part.weight is not None else "")
            for part in parts[:MOST_NOTES]
        )
        line = Content.assemble(("reward  ", f"bold {MUTED}"), f"{short(trace.reward)}  =  {made}")
        yield from line.wrap(width)
    for name, text in notes:
        if "\n" in text:
            yield from _titled(one_line(name, 40), clean(text, NOTE_MOST), width)
        else:
            label = f"{one_line(name, 40)}  ", f"bold {MUTED}"
            yield from Content.assemble(label, one_line(text, NOTE_MOST)).wrap(width)
    if parts or notes:
        yield Content()


def _event(event: TraceEvent, reading: Reading, turn: int, width: int) -> Iterator[Content]:
    if event.reasoning:
        yield from _titled("reasoning", event.reasoning, width)
    sample = event.sample
    if sample is not None and sample.output_token_ids:
        yield from _sampled(event, sample, reading, turn, width)
    elif event.kind == "tool_call":
        called = {"name": event.tool_name, "arguments": event.arguments}
        yield from _titled("tool call", call_text(called), width)
        shown = [event.result_text or ""]
        if event.screenshot_url:
            shown.append(f"[image {one_line(event.screenshot_url, 200)}]")
        yield from _titled("tool result", "\n".join(filter(None, shown)), width)
    elif event.text or not event.tool_calls:
        yield from _titled(role_of(event), event.text or "", width)
    for call in event.tool_calls or ():
        yield from _titled("calls", call_text(call), width)
    yield Content()


def _titled(role: str, text: str, width: int) -> Iterator[Content]:
    yield Content.styled(role, f"bold {MUTED}")
    yield from _indented(Content(clean(text).replace("\t", "    ")), width)


def _sampled(
    event: TraceEvent, sample: TurnSample, reading: Reading, turn: int, width: int
) -> Iterator[Content]:
    """An answer with shaded tokens, the legend, and the list of tokens.

    If the service does not give the tokens' texts, only the answer's text is shown.
    """
    pieces = event.tokens or ()
    if len(pieces) != len(sample.output_token_ids):
        yield from _titled(role_of(event), event.text or "", width)
        yield from _indented(_summed(sample, "   (token texts unknown: not shaded)"), width)
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
    """Number of tokens, and the sum of their logprobs in nats."""
    logprobs = [each for each in sample.output_logprobs if each == each]
    text = f"{len(sample.output_token_ids)} tokens"
    if logprobs:
        total = sum(logprobs)
        text += f"   logprob Σ {total:z.2f}   mean {total / len(logprobs):z.3f}"
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
    for paragraph in text.split("\n", allow_blank=True):
        for part in paragraph.wrap(max(8, width - INDENT)) or [Content()]:
            yield Content(" " * INDENT) + part


def _texts(event: TraceEvent) -> Iterator[str]:
    for text in (event.text, event.reasoning, event.result_text, event.screenshot_url):
        if text is not None:
            yield text
    for value in (event.tool_name, event.arguments, event.tool_calls, event.error):
        if value is not None:
            yield value_text(value)


LEAST = 20
"""Least width of a layout, cells."""
HIT, AT = "reverse", "bold reverse $warning"
"""Styles of matches, and of the current match."""


class RolloutPane(TextPane):
    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rollout: tuple[Trace, TraceEvents | None, Reading] | None = None
        self._plain: list[Content] = []
        self.search_text = ""
        self.hits: list[tuple[int, int]] = []
        """The matches: line, and index of the first character in it."""
        self.hit = 0

    def show_rollout(self, trace: Trace, turns: TraceEvents | None, reading: Reading) -> None:
        other = self._rollout is None or self._rollout[0].id != trace.id
        self._rollout = trace, turns, reading
        self.lay_out()
        if other:
            self.hit = 0
            self.scroll_home(animate=False)

    def lay_out(self) -> None:
        """Wrap the lines to the pane's width."""
        if self._rollout is not None:
            self._plain = rollout_lines(*self._rollout, max(LEAST, self.width))
            self._search()

    def find(self, text: str) -> None:
        """Search for a text, case-insensitively; an empty text has no matches."""
        if text != self.search_text:
            self.search_text, self.hit = text, 0
            self._search()
            self._reveal()

    def next_hit(self, way: int) -> None:
        if self.hits:
            self.hit = (self.hit + way) % len(self.hits)
            self._paint()
            self._reveal()

    def _search(self) -> None:
        pattern = self.search_text.casefold()
        self.hits = []
        for number, shown in enumerate(self._plain if pattern else ()):
            text, start = shown.plain.casefold(), -1
            while (start := text.find(pattern, start + 1)) >= 0:
                self.hits.append((number, start))
        self.hit = min(self.hit, max(0, len(self.hits) - 1))
        self._paint()

    def _paint(self) -> None:
        lines, length = list(self._plain), len(self.search_text)
        for number, (row, start) in enumerate(self.hits):
            style = AT if number == self.hit else HIT
            lines[row] = lines[row].stylize(style, start, start + length)
        self.show(lines)

    def _reveal(self) -> None:
        if self.hits:
            line, top = self.hits[self.hit][0], self.scroll_offset.y
            if not top <= line < top + self.size.height:
                self.scroll_to(y=max(0, line - self.size.height // 2), animate=False)


LEAST_COLUMN, MOST_COLUMN = 24, 60
"""Smallest and largest width of a column, cells."""
GAP = 2
FACTS = 3
"""Lines above a rollout's text."""


@dataclass(frozen=True)
class Answer:
    """One rollout of the group."""

    number: int
    """Its place in the group, from 1."""
    reward: float
    advantage: float | None
    """None if it is not trained on."""
    trace_id: str | None = None
    """None if the service does not give it."""
    tokens: int | None = None
    text: str | None = None
    """Its text; None until it is read."""
    ended: str = ""
    """Why it ended, as the service says."""
    of: str = ""
    """The side that it is of, if two are compared: ``A step-000012``."""


def answers(
    group: Group, rule: Advantages | None = PLAIN, sides: Sequence[tuple[str, int]] = ()
) -> list[Answer]:
    """A group's rollouts, highest reward first, with advantages as its run makes them.

    Args:
        rule: None for rollouts that are not trained on.
        sides: If the group is of two sides that are compared: the name of each and its number of
            rollouts, in their order. Those of the two then take turns.
    """
    size = len(group.rewards)
    ids = group.trace_ids if len(group.trace_ids) == size else [None] * size
    tokens = group.num_tokens if len(group.num_tokens) == size else [None] * size
    advantages: Sequence[float | None] = [None] * size
    if rule is not None and group.rewards:
        advantages = rule.of(group.rewards)
    facts = zip(group.rewards, advantages, ids, tokens, strict=True)
    read = [Answer(number, *fact) for number, fact in enumerate(facts, start=1)]
    if not sides:
        return sorted(read, key=lambda answer: -answer.reward)
    return [answer for pair in zip_longest(*_by_side(read, sides)) for answer in pair if answer]


def _by_side(read: Sequence[Answer], sides: Sequence[tuple[str, int]]) -> Iterator[list[Answer]]:
    """The rollouts of each side, highest reward first."""
    start = 0
    for name, count in sides:
        own = [replace(answer, of=name) for answer in read[start : start + count]]
        yield sorted(own, key=lambda answer: -answer.reward)
        start += count


READING = "reading …"


class RolloutColumns(LinesView, can_focus=True):
    """A group's rollouts side by side. ←/→ move between them; up and down scroll all texts
    together.

    Short texts are shown in several rows of columns.
    """

    answers: reactive[Sequence[Answer]] = reactive[Sequence[Answer]]((), repaint=False)
    picked: reactive[int] = reactive(0, repaint=False)
    unread = ""
    """Shown in place of the texts if they cannot be read, or nobody has asked for them yet."""

    def show_unread(self, text: str) -> None:
        """Show this in place of the texts, or what each has to say."""
        self.unread = text
        self.redraw()

    watch_answers = watch_picked = LinesView.redraw

    @property
    def across(self) -> int:
        """Number of visible columns."""
        return max(1, min(len(self.answers), (self.width + GAP) // (LEAST_COLUMN + GAP)))

    @property
    def cell(self) -> int:
        return min(MOST_COLUMN, (self.width + GAP) // self.across - GAP)

    @property
    def tall(self) -> int:
        return FACTS + max((len(self._text(answer)) for answer in self.answers), default=0)

    @property
    def banks(self) -> int:
        """Number of rows of columns; more than one only for short texts."""
        needed = ceil(len(self.answers) / self.across)
        return max(1, min(needed, (self.body_rows + 1) // (self.tall + 1)))

    @property
    def first(self) -> int:
        """Index of the first visible rollout."""
        seen = self.across * self.banks
        return max(0, min(self.picked - seen // 2, len(self.answers) - seen))

    @property
    def count(self) -> int:
        return self.banks * (self.tall + 1) - 1

    def title(self, width: int) -> str:
        size, last = len(self.answers), self.first + self.across * self.banks
        more = f" · {self.first + 1}–{last} in sight" if size > last - self.first else ""
        order = "of A and B in turn, best first" if self.compares else "best first"
        return f"{size} rollouts, {order}{more}"

    @property
    def compares(self) -> bool:
        """Whether they are of two sides."""
        return any(answer.of for answer in self.answers)

    def draw(self, width: int, rows: range) -> list[Strip]:
        across, tall = self.across, self.tall
        last = min(len(self.answers), self.first + across * self.banks)
        drawn = [self._column(number) for number in range(self.first, last)]
        blank, gap = Strip([Segment(" " * self.cell)]), Strip([Segment(" " * GAP)])

        def line_of(row: int) -> Strip:
            bank, y = divmod(row, tall + 1)
            beside = drawn[bank * across : (bank + 1) * across]
            parts = [(lines[y] if y < len(lines) else blank, gap) for lines in beside]
            return Strip.join([part for pair in parts for part in pair][:-1])

        return [line_of(row) for row in rows]

    def _column(self, index: int) -> list[Strip]:
        answer, cell = self.answers[index], self.cell
        picked = index == self.picked
        number = f"{'▸' if picked else ' '}{answer.number}"
        reward = f"reward {short(answer.reward)}"
        head = fit_text(f"{number:<5}{reward}", cell - 2)
        worth = one_line(answer.of, 60) or "evaluated, not trained on"
        if answer.advantage is not None:
            worth = f"advantage {'+' if answer.advantage > 0 else ''}{short(answer.advantage)}"
        tokens = "" if answer.tokens is None else f"{answer.tokens} tokens"
        unsafe = count_unsafe(answer.text or "")
        removed = f"␛ removed ×{unsafe}" if unsafe else ""
        facts = "  ".join(part for part in (tokens, one_line(answer.ended, 20), removed) if part)
        dim = self.tone("dim")
        strong = self.tone("cursor" if picked else "strong")
        style = self.tone("dim" if answer.text is None else "plain")
        rewards = [answer.reward for answer in self.answers]
        low, high = min(0.0, *rewards, 0.0), max(1.0, *rewards, 1.0)
        return [
            line((head, strong), (" █", reward_style(answer.reward, low, high))),
            line((fit_text(f"  {worth}", cell), self.tone("plain"))),
            line((fit_text(f"  {facts}", cell), self.tone("warm") if removed else dim)),
            *(line((fit_text(f"  {text}", cell), style)) for text in self._text(answer)),
        ]

    def _text(self, answer: Answer) -> list[str]:
        if answer.text is None:
            reason = (
                READING if answer.trace_id else "The service does not say which rollout this is."
            )
            text = self.unread or reason
        else:
            text = clean(answer.text).replace("\t", "    ") or "(nothing)"
        return [part.plain for part in Content(text).wrap(max(1, self.cell - 2))]

    def move(self, steps: int) -> None:
        self.picked = max(0, min(len(self.answers) - 1, self.picked + steps))

    def on_click(self, event: Click) -> None:
        bank = (self.scroll_offset.y + max(0, event.y - 1)) // (self.tall + 1)
        number = self.first + bank * self.across + event.x // (self.cell + GAP)
        if number < len(self.answers):
            self.picked = number
