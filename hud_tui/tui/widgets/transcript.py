"""TranscriptView: one rollout, or two side by side, as turns that fold to a line each.

A `Block` is a turn, a part of the environment, or the outcome; of two rollouts it has both. A block
is laid out when it is unfolded, and a line is drawn when it is in sight, so what is folded costs
nothing, whatever its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from hud_tui.rl.metrics import signed
from hud_tui.rl.outcome import MOST_NOTES, NOTE_MOST, Outcome
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.rl.transcript import (
    Call,
    EnvironmentPart,
    Transcript,
    Turn,
    first_line,
    laid_out,
    turn_texts,
)
from hud_tui.rl.transcript_forms import reward_text
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.passages import (
    LEAST,
    Colouring,
    Passage,
    Pieces,
    overlaid,
    part_passages,
    readable,
    seconds_text,
    turn_passages,
)
from hud_tui.tui.widgets.table import Table

MARK, ROLE = 2, 12
"""Cells of a block's mark, and of its role with the gap after it."""
BETWEEN = " │ "
"""Between two rollouts."""
FACTS = 18
"""Most cells of tokens and seconds, at the right."""
MOST_FOUND = 10_000
"""Most matches of a search."""
DIFFERENCE = "≠ first difference  "
READING = "reading the conversation …"
WORDS_MOST, CALL_MOST = 32, 48
"""Most characters of a folded turn's words if it has calls, and of a call with its arguments."""
NO_TURNS = "The service has no conversation for this rollout."


@dataclass(frozen=True)
class Head:
    """A block's line: what is seen of it while it is folded."""

    label: str
    words: str = ""
    facts: str = ""
    label_tone: str = "strong"
    words_tone: str = "plain"


@dataclass(frozen=True)
class Side:
    """One rollout as it is shown."""

    transcript: Transcript | None
    """None while it is being read."""
    outcome: Outcome = field(default_factory=Outcome)
    colouring: Colouring = field(default_factory=Colouring)
    name: str = ""
    """Which of two this is; empty if it is alone."""
    why_stopped: str = ""
    removed: Counter[str] = field(default_factory=Counter)
    """Symbols that stand for control characters in its texts."""


BodyRow = tuple[int, int, int]
"""A line below a block's head: its passage, and the first and last + 1 offset of its text. The
first is TITLE for the passage's title, and DRAWN − n for its n-th drawn line."""
TITLE, DRAWN = -1, -2
BLANK = (-1, 0, 0)
"""The line of a rollout beside one whose passage is longer."""


Source = Turn | EnvironmentPart | Side | None
"""What a block has of a rollout: a turn, a part of the environment, or the outcome of that side;
None if the other rollout has more."""


@dataclass(slots=True)
class Block:
    """What is folded and unfolded together: the same place of each rollout."""

    sources: Sequence[Source]
    is_open: bool = False
    passages: list[list[Passage]] | None = None
    """Of each rollout; None until they are needed."""
    rows: list[list[BodyRow]] | None = None
    """Of each rollout, for the present width."""

    @property
    def height(self) -> int:
        if not self.is_open or self.rows is None:
            return 1
        return 1 + max(map(len, self.rows), default=0)

    drawn: dict[tuple[int, int], list[list[Segment]]] = field(default_factory=dict)
    """Passages that are drawn as a whole, by rollout and passage."""

    def forget_width(self) -> None:
        self.rows = None
        self.drawn.clear()

    def texts(self, sides: Sequence[Side]) -> list[list[Passage]]:
        """The passages of each rollout."""
        if self.passages is None:
            pairs = zip(self.sources, sides, strict=True)
            self.passages = [list(_passages(*pair)) for pair in pairs]
        return self.passages


@dataclass(frozen=True, order=True)
class Hit:
    """Where a search found its text."""

    block: int
    side: int
    passage: int
    start: int


class TranscriptView(Table):
    """Enter folds and unfolds; a click on a block's line does so, too. Its screen handles keys."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"transcript--match", "transcript--at"}

    class Folded(Message):
        """Something was folded or unfolded."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.headed = False
        self.sides: Sequence[Side] = ()
        self.failure = ""
        """Why there is nothing to read; empty while it is being read."""
        self.blocks: list[Block] = []
        self.all_open = False
        """Whether everything is unfolded, in the next rollout, too."""
        self.search_text = ""
        self.hits: list[Hit] = []
        self.hit = 0
        self.first_difference: int | None = None
        """The block with the first difference of two rollouts."""
        self._starts: list[int] = [0]
        """The first line of each block, and the number of lines."""
        self._laid_out = 0
        """The width that blocks are laid out for."""
        self._begins = False
        """Whether what is unfolded at first is still to be decided."""
        self._place_of_difference: tuple[int, int] | None = None
        """Passage and offset of the first difference within its block."""
        self.cursor = 0

    # What is shown.

    def show(self, sides: Sequence[Side], is_other: bool) -> None:
        """Show a rollout, or two beside each other. `is_other`: whether they are other ones than
        before; if not, what is unfolded stays so."""
        opened = [block.is_open for block in self.blocks]
        self.sides = sides
        with self.changing():
            self.blocks = list(_blocks(sides))
            self._find_difference()
            self._laid_out = self.width
            self._begins = is_other or self._begins or len(opened) != len(self.blocks)
            self._open([] if self._begins else [n for n, was in enumerate(opened) if was])
        self._search()
        self._begin()

    def _begin(self) -> None:
        """Unfold what is unfolded at first, and go to the top or to the first difference."""
        if not (self._begins and self.blocks and self.width):
            return
        self._begins = False
        with self.changing():
            self._open(self._opened_at_first())
            self.cursor = 0
        self.scroll_to(y=0, animate=False)
        if self.first_difference is not None:
            self.reveal_block(self.first_difference)

    def _opened_at_first(self) -> Sequence[int]:
        """Everything if it was asked for; the outcome and the turns if they fit; else the outcome
        alone."""
        if self.all_open:
            return range(len(self.blocks))
        if self._may_fit():
            environment = (EnvironmentPart, type(None))
            told = [
                number
                for number, block in enumerate(self.blocks)
                if not all(isinstance(source, environment) for source in block.sources)
            ]
            self._open(told)
            if self.count <= self.size.height:
                return told
        return [0]

    def _may_fit(self) -> bool:
        """Whether it is worth while to unfold everything and see whether that fits."""
        rows, room = len(self.blocks), self.size.height * self.width
        turns = (turn for side in self.sides for turn in (side.transcript or Transcript()).turns)
        if rows >= self.size.height:
            return False
        return sum(len(text) for turn in turns for text in turn_texts(turn)) <= room

    def _find_difference(self) -> None:
        self.first_difference = self._place_of_difference = None
        if len(self.sides) < 2:
            return
        for number, block in enumerate(self.blocks[1:], 1):
            if not _is_same(*block.sources):
                self.first_difference = number
                self._place_of_difference = _difference(*block.texts(self.sides))
                return

    # Folding, and where lines are.

    @property
    def count(self) -> int:
        return self._starts[-1]

    def place(self, line: int) -> tuple[int, int]:
        """The block of a line, and the line's number in it; its head is 0."""
        block = bisect_right(self._starts, line) - 1
        return block, line - self._starts[block]

    def row_key(self, line: int) -> str | None:
        if not self.blocks:
            return None
        block, row = self.place(line)
        return f"{block}.{row}"

    def line_of(self, key: str) -> int | None:
        block, row = map(int, key.split("."))
        if block >= len(self.blocks):
            return None
        return self._starts[block] + min(row, self.blocks[block].height - 1)

    @property
    def block(self) -> Block | None:
        """The block under the cursor."""
        return None if self.key is None else self.blocks[self.place(self.cursor)[0]]

    def _open(self, numbers: Iterable[int]) -> None:
        """Unfold these blocks, and fold all others."""
        chosen = set(numbers)
        for number, block in enumerate(self.blocks):
            block.is_open = number in chosen
        self._lay_out()

    def _lay_out(self) -> None:
        """Wrap what is unfolded and is not wrapped yet, and count the lines."""
        width = self.side_width - MARK
        for block in self.blocks:
            if block.is_open and block.rows is None and self.width:
                block.rows = _aligned(block.texts(self.sides), width, self.tone)
        self._starts = [0, *accumulate(block.height for block in self.blocks)]
        if not self.blocks:
            self._starts = [0, 1]

    @property
    def side_width(self) -> int:
        count = max(1, len(self.sides))
        return max(LEAST + MARK, (self.width - len(BETWEEN) * (count - 1)) // count)

    def fold(self) -> None:
        """Fold or unfold the block under the cursor; the cursor goes to its line."""
        if self.block is None:
            return
        number, _ = self.place(self.cursor)
        with self.changing():
            self.cursor = self._starts[number]
            self.blocks[number].is_open = not self.blocks[number].is_open
            self._lay_out()
        self.post_message(self.Folded())

    def unfold(self, turn: Turn) -> None:
        """Unfold a turn of the first rollout, and go to it."""
        places = (n for n, block in enumerate(self.blocks) if block.sources[0] is turn)
        number = next(places, None)
        if number is not None and not self.blocks[number].is_open:
            self.reveal_block(number)

    def fold_all(self) -> None:
        """Unfold everything; if it is, fold all but the outcome."""
        is_open = all(block.is_open for block in self.blocks)
        self.all_open = not is_open
        number, _ = self.place(self.cursor)
        with self.changing():
            self._open([0] if is_open else range(len(self.blocks)))
            self.cursor = self._starts[number]
        self.post_message(self.Folded())

    def reveal_block(self, number: int, row: int = 0) -> None:
        """Unfold a block, and go to one of its rows."""
        with self.changing():
            self.blocks[number].is_open = True
            self._lay_out()
        target = self._starts[number] + min(row, self.blocks[number].height - 1)
        if not 0 <= target - self.scroll_offset.y < self.body_rows:  # what is around is seen, too
            self.scroll_to(y=max(0, target - self.body_rows // 3), animate=False)
        self._go(target)

    def opens(self, click: Click) -> bool:
        """A click on the mark folds, and so does a second click on a block's line."""
        _, row = self.place(self.cursor)
        return row == 0 and (click.chain == 2 or click.x < MARK)

    def on_resize(self) -> None:
        if self.width and self.width != self._laid_out:
            self._laid_out = self.width
            with self.changing():
                for block in self.blocks:
                    block.forget_width()
                self._lay_out()
        self._begin()

    def _forget_styles(self) -> None:
        super()._forget_styles()
        for block in self.blocks:
            block.drawn.clear()

    # Searching.

    def find(self, text: str) -> None:
        """Search for a text, case-insensitively; an empty text has no matches."""
        if text != self.search_text:
            self.search_text = text
            self._search()
            self._to_hit(next((n for n, h in enumerate(self.hits) if self._is_after(h)), 0))

    def next_hit(self, way: int) -> None:
        if self.hits:
            self._to_hit((self.hit + way) % len(self.hits))

    def _is_after(self, hit: Hit) -> bool:
        return hit.block >= self.place(min(self.cursor, self.count - 1))[0]

    def _search(self) -> None:
        self.hits = list(self._found()) if self.search_text else []
        self.hit = min(self.hit, max(0, len(self.hits) - 1))
        self.redraw()

    def _found(self) -> Iterator[Hit]:
        needle, left = self.search_text.casefold(), MOST_FOUND
        for number, block in enumerate(self.blocks):
            for side, passages in enumerate(block.texts(self.sides)):
                for index, passage in enumerate(passages):
                    for start in _places(passage.text, needle):
                        yield Hit(number, side, index, start)
                        left -= 1
                        if not left:
                            return

    def _to_hit(self, number: int) -> None:
        if not self.hits:
            self.redraw()
            return
        self.hit = number
        hit = self.hits[number]
        block = self.blocks[hit.block]
        block.is_open = True
        self._lay_out()
        rows = (block.rows or [[]])[hit.side]
        after = (n for n, row in enumerate(rows) if row[0] == hit.passage and row[2] > hit.start)
        self.reveal_block(hit.block, 1 + next(after, 0))
        self.redraw()

    # Drawing.

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        return [self._drawn_line(number, width, number == self.cursor) for number in rows]

    def _drawn_line(self, number: int, width: int, at: bool = False) -> Strip:
        """A line; `at`: whether the cursor is on it."""
        if not self.blocks:
            return line((fit_text(self.failure or READING, width), self.tone("dim")))
        block_number, row = self.place(number)
        parts: list[Segment] = []
        for side in range(len(self.sides)):
            if side:
                parts.append(Segment(BETWEEN, self.tone("faint")))
            cells = (
                self._head(block_number, side)
                if row == 0
                else self._body(block_number, side, row - 1)
            )
            strip = Strip([Segment(self._mark(block_number, row, side, at), self.tone("accent"))])
            parts += Strip([*strip, *cells]).adjust_cell_length(self.side_width)
        if at and row == 0:
            style = self.tone("cursor" if self.has_focus else "cursor-blurred")
            plain = "".join(part.text for part in parts)
            return Strip([Segment(fit_text(plain, width), style)])
        return Strip(parts)

    def _mark(self, block: int, row: int, side: int, at: bool) -> str:
        if row == 0 and self.blocks[block].sources[side] is not None:
            return "▾ " if self.blocks[block].is_open else "▸ "
        return "▎ " if at and not side else "  "

    def _head(self, number: int, side: int) -> list[Segment]:
        block = self.blocks[number]
        head, width = _head(block.sources[side], block.is_open), self.side_width - MARK
        facts = head.facts[: max(0, width - ROLE)]
        room = max(0, width - ROLE - len(facts) - 1)
        mark = ""
        if number == self.first_difference and side:
            mark = DIFFERENCE if room >= len(DIFFERENCE) else "≠ "
        label = fit_text(head.label, max(ROLE, len(head.label) + 1 if not head.words else ROLE))
        return [
            Segment(label, self.tone(head.label_tone)),
            Segment(mark[:room], self.tone("warm") + Style(bold=True)),
            Segment(fit_text(head.words, max(0, room - len(mark))), self.tone(head.words_tone)),
            Segment(f" {facts}", self.tone("dim")),
        ]

    def _body(self, number: int, side: int, row: int) -> list[Segment]:
        block = self.blocks[number]
        rows = (block.rows or [[] for _ in self.sides])[side]
        if row >= len(rows) or rows[row] is BLANK:
            return []
        index, start, stop = rows[row]
        passage = block.texts(self.sides)[side][index]
        if start == TITLE:
            return [Segment(passage.title, self.tone(passage.title_tone))]
        if passage.rows is not None:
            if (side, index) not in block.drawn:
                block.drawn[side, index] = passage.rows(self.side_width - MARK, self.tone)
            return block.drawn[side, index][DRAWN - start]
        pieces = passage.pieces(start, stop, self.tone)
        if pieces:
            pieces = self._marked((number, side, index), pieces)
        return [Segment(passage.text[first:end], style) for first, end, style in pieces]

    def _marked(self, place: tuple[int, int, int], pieces: Pieces) -> Pieces:
        """A line's parts with its matches, and with the first difference. `place`: block, rollout
        and passage."""
        start, stop = pieces[0][0], pieces[-1][1]
        if place[0] == self.first_difference and self._place_of_difference is not None:
            index, offset = self._place_of_difference
            if index == place[2]:
                style = self.tone("warm") + Style(reverse=True)
                pieces = overlaid(pieces, offset, offset + 1, style)
        length = len(self.search_text)
        low = bisect_right(self.hits, Hit(*place, start - length))
        for order in range(low, len(self.hits)):
            hit = self.hits[order]
            if (hit.block, hit.side, hit.passage) != place or hit.start >= stop:
                break
            name = "transcript--at" if order == self.hit else "transcript--match"
            style = self.get_component_rich_style(name, partial=True)
            pieces = overlaid(pieces, hit.start, hit.start + length, style)
        return pieces

    # Selecting by mouse.

    def line_text(self, number: int) -> str:
        """The text of a line as it is drawn without the cursor."""
        return "".join(part.text for part in self._drawn_line(number, self.width)).rstrip()

    @property
    def plain(self) -> str:
        """The text of all lines, as they would be drawn."""
        return "\n".join(map(self.line_text, range(self.count)))

    def render_line(self, y: int) -> Strip:
        strip, number = super().render_line(y), self.scroll_offset.y + y
        selection = self.text_selection
        span = None if selection is None else selection.get_span(number)
        if span is not None:
            start, stop = span
            stop = strip.cell_length if stop < 0 else stop
            style = self.screen.get_component_rich_style("screen--selection")
            selected = [
                Segment(text, own + style if own else style)
                for text, own, _ in strip.crop(start, stop)
            ]
            strip = Strip.join([strip.crop(0, start), Strip(selected), strip.crop(stop, None)])
        return strip.apply_offsets(0, number)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The selected text, with its line breaks here."""
        first = 0 if selection.start is None else selection.start.y
        last = self.count - 1 if selection.end is None else selection.end.y
        texts = []
        for number in range(first, min(last, self.count - 1) + 1):
            start, stop = selection.get_span(number) or (0, -1)
            text = self.line_text(number)
            texts.append(text[start:] if stop < 0 else text[start:stop])
        return "\n".join(texts), "\n"


def _aligned(
    texts: Sequence[Sequence[Passage]], width: int, tone: Callable[[str], Style]
) -> list[list[BodyRow]]:
    """The rows of each rollout's passages; those of two begin in the same lines."""
    rows: list[list[BodyRow]] = [[] for _ in texts]
    for index, passages in enumerate(zip_longest(*texts)):
        made = [_rows(index, passage, width, tone) if passage else [] for passage in passages]
        height = max(map(len, made))
        for own, lines in zip(rows, made, strict=True):
            own += lines
            own += [BLANK] * (height - len(lines))
    return rows


def _rows(index: int, passage: Passage, width: int, tone: Callable[[str], Style]) -> list[BodyRow]:
    rows = [(index, TITLE, TITLE)] if passage.title else []
    if passage.rows is not None:
        return rows + [(index, DRAWN - n, 0) for n in range(len(passage.rows(width, tone)))]
    return rows + [(index, start, stop) for start, stop in passage.lines(width)]


def _places(text: str, needle: str) -> Iterator[int]:
    """Where a casefolded needle begins in a text."""
    folded = text.casefold()
    if len(folded) != len(text):  # offsets are those of the text
        folded = "".join(c.casefold() if len(c.casefold()) == 1 else c for c in text)
    start = folded.find(needle)
    while start >= 0:
        yield start
        start = folded.find(needle, start + 1)


def _difference(left: Sequence[Passage], right: Sequence[Passage]) -> tuple[int, int] | None:
    """The first passage that differs, and the offset at which it does; None if only the number of
    passages does."""
    for index, pair in enumerate(zip(left, right, strict=False)):
        one, other = (passage.text for passage in pair)
        if one != other:
            low, high = 0, min(len(one), len(other))
            while low < high:  # comparing slices is much faster than comparing characters
                middle = (low + high + 1) // 2
                if one[low:middle] == other[low:middle]:
                    low = middle
                else:
                    high = middle - 1
            return index, low
    return None


# The blocks of rollouts.


def _blocks(sides: Sequence[Side]) -> Iterator[Block]:
    """The outcome, what the environment did before, the turns, and what it did after: of two
    rollouts each by its place."""
    if not sides or any(side.transcript is None for side in sides):
        return
    yield Block(sides)
    transcripts = [side.transcript or Transcript() for side in sides]
    for kind in ("setup", "turns", "grading"):
        yield from map(Block, zip_longest(*(getattr(each, kind) for each in transcripts)))


def _is_same(left: Source, right: Source) -> bool:
    if isinstance(left, Turn) and isinstance(right, Turn):
        return left.is_as(right)
    if isinstance(left, EnvironmentPart) and isinstance(right, EnvironmentPart):
        return left.is_as(right)
    return False


def _head(source: Source, is_open: bool) -> Head:
    match source:
        case Turn():
            return _turn_head(source, is_open)
        case EnvironmentPart():
            return _part_head(source, is_open)
        case Side():
            outcome = source.outcome
            words = f"{source.name}   {reward_text(outcome.reward, outcome.subscores)}"
            return Head("reward", words.strip(), words_tone="strong")
    return Head("–", label_tone="faint")


def _passages(source: Source, side: Side) -> Iterable[Passage]:
    match source:
        case Turn():
            return turn_passages(source, side.colouring)
        case EnvironmentPart():
            return part_passages(source)
        case Side():
            return outcome_passages(source)
    return ()


def outcome_passages(side: Side) -> Iterator[Passage]:
    outcome, transcript = side.outcome, side.transcript or Transcript()
    if outcome.expected:
        expected = one_line(outcome.expected, NOTE_MOST)
        yield Passage(f"expected   {expected}")
    facts = []
    if outcome.advantage is not None:
        facts.append(f"advantage {signed(outcome.advantage)}{outcome.formula_end}")
    facts += [outcome.fate, side.why_stopped, *_counts(transcript)]
    yield Passage("  ·  ".join(filter(None, facts)), tone="dim")
    if outcome.error:
        yield Passage(readable(outcome.error[: 4 * NOTE_MOST]), "⚠ error", "hot", "hot")
    for name, text in outcome.notes[: MOST_NOTES + 1]:
        shown = clean(text, NOTE_MOST).replace("\t", "    ")
        if "\n" in shown:
            yield Passage(shown, one_line(name, 40))
        else:
            yield Passage(f"{one_line(name, 40)}   {shown}")
    if removed := side.removed.total():
        which = "  ".join(f"{symbol} ×{n}" for symbol, n in side.removed.most_common(6))
        yield Passage(f"␛ removed ×{removed}, shown as symbols:  {which}", tone="warm")
    if not transcript.is_recorded:
        yield Passage(NO_TURNS, tone="dim")


def _counts(transcript: Transcript) -> Iterator[str]:
    if transcript.turns:
        yield counted(len(transcript.turns), "turn")
    if calls := len(transcript.calls):
        yield counted(calls, "call")
    if tokens := transcript.tokens:
        yield counted(tokens, "token")


def _part_head(part: EnvironmentPart, is_open: bool) -> Head:
    words = one_line(f"{part.phase} {part.name}".strip(), 80)
    if not is_open:
        words = f"{words}   {one_line(first_line(laid_out(part.arguments)), 200)}".rstrip()
    if part.error:
        words = f"{words}   ⚠ {one_line(first_line(part.error), 200)}"
    tone = "hot" if part.error else "dim"
    return Head("environment", words, seconds_text(part.seconds), "second", tone)


def _turn_head(turn: Turn, is_open: bool) -> Head:
    tokens = "" if turn.tokens is None else f"{turn.tokens} tok"
    facts = "  ".join(filter(None, (tokens, seconds_text(turn.seconds))))
    role, tone = one_line(turn.role, ROLE - 1), "plain"
    words = "" if is_open else "  ".join(_folded(turn))
    if turn.has_error:
        tone = "hot"
        words = f"⚠ {words or 'error'}"
    return Head(role, words, facts, "accent" if turn.number is not None else "strong", tone)


def _folded(turn: Turn) -> Iterator[str]:
    if turn.words:
        yield one_line(turn.words, WORDS_MOST if turn.calls else 300)
    for call in turn.calls:
        yield _folded_call(call)
    if turn.error:
        yield one_line(first_line(turn.error), 200)


def _folded_call(call: Call) -> str:
    """A call in a few words, e.g. ``→ order {"n": 1} ← done``."""
    text = f"→ {one_line(call.text, CALL_MOST)}"
    if call.error:
        return f"{text} ⚠ {one_line(first_line(call.error), 100)}"
    if call.result is None:
        return text
    return f"{text} ← {one_line(first_line(call.result) or '(nothing)', 100)}"
