"""TranscriptView: one rollout, or two side by side, as turns that fold to a line each.

A block is laid out when it is unfolded, and a line is drawn when it is in sight, so what is folded
costs nothing, whatever its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import is_
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.selection import Selection
from textual.strip import Strip

from hud_tui.rl.transcript import EnvironmentPart, Transcript, Turn, turn_texts
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.passages import LEAST, Pieces, overlaid
from hud_tui.tui.widgets.table import Table
from hud_tui.tui.widgets.transcript_blocks import (
    BLANK,
    DRAWN,
    LONGEST_ROLE,
    OUTCOME,
    TITLE,
    TURNS,
    Block,
    Rows,
    Side,
    blocks_of,
    first_difference,
    head_of,
    is_same,
    rows_of,
)

MARK, ROLE = 2, LONGEST_ROLE + 1
"""Cells of a block's mark, and of its role with the gap after it."""
BETWEEN = " │ "
"""Between two rollouts."""
MOST_FOUND = 10_000
"""Most matches of a search."""
DIFFERENCE = "≠ first difference  "
READING = "reading the conversation …"


@dataclass(frozen=True, order=True)
class Hit:
    """Where a search found its text."""

    block: int
    side: int
    passage: int
    start: int


class TranscriptView(Table):
    """Enter folds and unfolds; a click on a block's line does so, too. Its screen handles keys."""

    class SideChosen(Table.OfTable):
        """The cursor is in another of two rollouts."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"transcript--match", "transcript--at"}

    def __init__(self, id: str | None = None, all_open: bool = False) -> None:
        super().__init__(id=id)
        self.headed = False
        self.sides: Sequence[Side] = ()
        self.failure = ""
        """Why there is nothing to read; empty while it is being read."""
        self.blocks: list[Block] = []
        self.all_open = all_open
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
        self._rows: tuple[Sequence[Transcript | None], Rows] = (), ()
        """Which turns stand side by side, and of which rollouts."""
        self.side = 0
        """Which of two rollouts has the cursor."""
        self._numbers: dict[str, int] = {}
        """The numbers of the blocks, by their keys."""
        self.cursor = 0

    # What is shown.

    def show(self, sides: Sequence[Side], is_other: bool) -> None:
        """Show a rollout, or two beside each other. `is_other`: whether they are other ones than
        before; if not, what is unfolded stays so, and so does the place, but at the end."""
        is_begun = not is_other and bool(self.blocks)
        follows, in_sight = is_begun and self.is_at_end, self.in_sight
        top = self.row_key(self.scroll_offset.y) if is_begun else None
        before = {block.key: block for block in self.blocks} if is_begun else {}
        if [side.colouring for side in sides] != [side.colouring for side in self.sides]:
            for block in self.blocks:
                block.forget_passages()
        self.sides, self.side = sides, min(self.side, max(0, len(sides) - 1))
        self._align()
        with self.changing():
            self.blocks = list(self._continued(before))
            self._numbers = {block.key: number for number, block in enumerate(self.blocks)}
            self._find_difference()
            self._laid_out = self.width
            self._begins = self._begins or not is_begun
            self._lay_out()
        self._search()
        self._begin()
        if follows:
            self.action_last()
        elif top is not None:
            self._stay_at(top, in_sight)

    def _stay_at(self, top: str, in_sight: bool) -> None:
        """Scroll to what was the uppermost row, if it is still there."""
        line = self.line_of(top)
        if line is not None:
            self.scroll_to(y=line, animate=False)
            if in_sight:
                self._reveal()

    @property
    def is_at_end(self) -> bool:
        """Whether the cursor is in the last line, or that was scrolled to, away from the cursor."""
        is_scrolled = not self.in_sight and self.max_scroll_y == self.scroll_offset.y
        return is_scrolled or self.cursor == self.count - 1

    def _align(self) -> None:
        """Decide which turns stand side by side, if the rollouts are others than before."""
        transcripts = [side.transcript for side in self.sides]
        before, _ = self._rows
        if len(before) != len(transcripts) or not all(map(is_, before, transcripts)):
            read = [each for each in transcripts if each is not None]
            self._rows = transcripts, rows_of(read) if len(read) == len(transcripts) else ()

    def _continued(self, before: Mapping[str, Block]) -> Iterator[Block]:
        """The blocks; those that were shown `before` and are the same stay laid out. A turn that
        has come is unfolded if the one above it is."""
        is_open = False
        if not self.sides or any(side.transcript is None for side in self.sides):
            return
        for block in blocks_of(self.sides, self._rows[1]):
            was, is_turn = before.get(block.key), block.key.startswith(TURNS)
            if was is None:
                block.is_open = self.all_open or (is_turn and is_open)
            elif was.sources == block.sources and block.key != OUTCOME:
                block = was
            else:
                block.is_open = was.is_open
            is_open = block.is_open if is_turn else is_open
            yield block

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
        return self._outcome

    @property
    def _outcome(self) -> Sequence[int]:
        """The number of the outcome's block, if there is one."""
        return [0] if OUTCOME in self._numbers else []

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
            if not is_same(*block.sources):
                self.first_difference = number
                self._place_of_difference = first_difference(*block.texts(self.sides))
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
        return f"{self.blocks[block].key}.{row}"

    def line_of(self, key: str) -> int | None:
        name, _, row = key.rpartition(".")
        block = self._numbers.get(name)
        if block is None:
            return None
        return self._starts[block] + min(int(row), self.blocks[block].height - 1)

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
            if block.is_open and self.width:
                block.lay_out(self.sides, width, self.tone)
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

    def unfold(self, turn: Turn) -> None:
        """Unfold a turn of the rollout that has the cursor, and go to it."""
        places = (n for n, block in enumerate(self.blocks) if block.sources[self.side] is turn)
        number = next(places, None)
        if number is not None and not self.blocks[number].is_open:
            self.reveal_block(number)

    @property
    def is_all_open(self) -> bool:
        return bool(self.blocks) and all(block.is_open for block in self.blocks)

    def fold_all(self) -> None:
        """Unfold everything; if it is, fold all but the outcome."""
        is_open = self.is_all_open
        self.all_open = not is_open
        number, _ = self.place(self.cursor)
        with self.changing():
            self._open(self._outcome if is_open else range(len(self.blocks)))
            self.cursor = self._starts[number]

    def to_side(self, side: int) -> None:
        """Put the cursor into another of the rollouts."""
        if side != self.side and side < len(self.sides):
            self.side = side
            self.redraw()
            self.post_message(self.SideChosen(self))

    def reveal_block(self, number: int, row: int = 0) -> None:
        """Unfold a block, and go to one of its rows."""
        with self.changing():
            self.blocks[number].is_open = True
            self._lay_out()
        target = self._starts[number] + min(row, self.blocks[number].height - 1)
        if not 0 <= target - self.scroll_offset.y < self.body_rows:  # what is around is seen, too
            self.scroll_to(y=max(0, target - self.body_rows // 3), animate=False)
        self._go(target)

    def on_click(self, event: Click) -> None:
        """As of any table; a click in a rollout also puts the cursor there."""
        self.to_side(self._side_at(event.x))

    def _side_at(self, x: int) -> int:
        return min(x // (self.side_width + len(BETWEEN)), max(0, len(self.sides) - 1))

    def opens(self, click: Click) -> bool:
        """A click on the mark folds, and so does a second click on a block's line."""
        _, row = self.place(self.cursor)
        begin = self._side_at(click.x) * (self.side_width + len(BETWEEN))
        return row == 0 and (click.chain == 2 or click.x - begin < MARK)

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

    def find(self, text: str, is_other: bool = False) -> None:
        """Search for a text, case-insensitively; an empty text has no matches. `is_other`: in
        another rollout than before."""
        if text != self.search_text or (text and is_other):
            self.search_text = text
            self._search()
            here, _ = self.place(min(self.cursor, self.count - 1))
            self._to_hit(next((n for n, hit in enumerate(self.hits) if hit.block >= here), 0))

    def next_hit(self, way: int) -> None:
        if self.hits:
            self._to_hit((self.hit + way) % len(self.hits))

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
            mark = Segment(self._mark(block_number, row, side, at), self.tone("accent"))
            strip = Strip([mark, *cells]).adjust_cell_length(self.side_width)
            if at and row == 0 and side == self.side:
                strip = line((fit_text(strip.text, self.side_width), self.cursor_tone))
            parts += strip
        return Strip(parts)

    def _mark(self, block: int, row: int, side: int, at: bool) -> str:
        if row == 0 and self.blocks[block].sources[side] is not None:
            return "▾ " if self.blocks[block].is_open else "▸ "
        return "▎ " if at and side == self.side else "  "

    def _head(self, number: int, side: int) -> list[Segment]:
        block = self.blocks[number]
        head, width = head_of(block.sources[side], block.is_open), self.side_width - MARK
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


def _places(text: str, needle: str) -> Iterator[int]:
    """Where a casefolded needle begins in a text."""
    folded = text.casefold()
    if len(folded) != len(text):  # offsets are those of the text
        folded = "".join(c.casefold() if len(c.casefold()) == 1 else c for c in text)
    start = folded.find(needle)
    while start >= 0:
        yield start
        start = folded.find(needle, start + 1)
