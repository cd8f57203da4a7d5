"""Blocks of the reader: what a turn, a part of the environment and the outcome show of themselves.

Of two rollouts a block has what stands side by side of both. Its line is made when it is drawn, its
passages when it is unfolded or searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style

from hud_tui.rl.alignment import aligned, aligned_parts
from hud_tui.rl.metrics import with_sign
from hud_tui.rl.outcome import MOST_NOTES, NOTE_MOST, Outcome
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.rl.transcript import (
    FIRST,
    Call,
    EnvironmentPart,
    Transcript,
    Turn,
    first_line,
    laid_out,
)
from hud_tui.rl.transcript_forms import reward_text
from hud_tui.tui.widgets.passages import (
    Colouring,
    Passage,
    part_passages,
    readable,
    seconds_text,
    turn_passages,
)

LONGEST_ROLE = 11
"""Most characters of a turn's role."""
WORDS_MOST, CALL_MOST = 32, 48
"""Most characters of a folded turn's words if it has calls, and of a call with its arguments."""
OUTCOME, TURNS = "outcome", "turns"
"""Key of the block of the outcome, and how those of turns begin."""
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
    outcome: Outcome | None = None
    """None for a rollout that is not over, of which nothing is to be said above its turns."""
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
    """What is folded and unfolded together: what stands side by side of each rollout."""

    sources: Sequence[Source]
    key: str
    """Which one it is, also after more turns have come."""
    is_open: bool = False
    passages: list[list[Passage]] | None = None
    """Of each rollout; None until they are needed."""
    rows: list[list[BodyRow]] | None = None
    """Of each rollout, for the present width."""
    drawn: dict[tuple[int, int], list[list[Segment]]] = field(default_factory=dict)
    """Passages that are drawn as a whole, by rollout and passage."""

    @property
    def height(self) -> int:
        if not self.is_open or self.rows is None:
            return 1
        return 1 + max(map(len, self.rows), default=0)

    def forget_width(self) -> None:
        self.rows = None
        self.drawn.clear()

    def forget_passages(self) -> None:
        self.passages = None
        self.forget_width()

    def texts(self, sides: Sequence[Side]) -> list[list[Passage]]:
        """The passages of each rollout."""
        if self.passages is None:
            pairs = zip(self.sources, sides, strict=True)
            self.passages = [list(_passages(*pair)) for pair in pairs]
        return self.passages

    def lay_out(self, sides: Sequence[Side], width: int, tone: Callable[[str], Style]) -> None:
        """Wrap its passages, unless that was done for this width."""
        if self.rows is None:
            self.rows = _aligned(self.texts(sides), width, tone)


Rows = Sequence[Sequence[int | None]]
"""The turns that stand side by side: for each rollout its number, or None."""


def rows_of(transcripts: Sequence[Transcript]) -> Rows:
    """The turns of one rollout, or of two aligned."""
    if len(transcripts) == 2:
        return aligned(*(transcript.turns for transcript in transcripts))
    return [(number,) for each in transcripts for number in range(len(each.turns))]


def blocks_of(sides: Sequence[Side], rows: Rows) -> Iterator[Block]:
    """The outcome, what the environment did before, the turns, and what it did after."""
    transcripts = [side.transcript for side in sides if side.transcript is not None]
    if all(side.outcome is not None for side in sides):
        yield Block(sides, OUTCOME)
    before = [each.setup for each in transcripts]
    yield from _beside(before, _rows_of_parts(before), "setup")
    yield from _beside([each.turns for each in transcripts], rows, TURNS)
    after = [each.grading for each in transcripts]
    yield from _beside(after, _rows_of_parts(after), "grading")


def _rows_of_parts(sides: Sequence[Sequence[EnvironmentPart]]) -> Rows:
    if len(sides) == 2:
        return aligned_parts(*sides)
    return [(number,) for parts in sides for number in range(len(parts))]


def _beside(sides: Sequence[Sequence[Source]], rows: Rows, name: str) -> Iterator[Block]:
    for row in rows:
        pairs = zip(sides, row, strict=True)
        yield Block([None if n is None else own[n] for own, n in pairs], f"{name} {row}")


def is_same(left: Source, right: Source) -> bool:
    if isinstance(left, Turn) and isinstance(right, Turn):
        return left.is_as(right)
    if isinstance(left, EnvironmentPart) and isinstance(right, EnvironmentPart):
        return left.is_as(right)
    return False


def head_of(source: Source, is_open: bool) -> Head:
    match source:
        case Turn():
            return _turn_head(source, is_open)
        case EnvironmentPart():
            return _part_head(source, is_open)
        case Side(outcome=Outcome() as outcome):
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
    outcome, transcript = side.outcome or Outcome(), side.transcript or Transcript()
    if outcome.expected:
        expected = one_line(outcome.expected, NOTE_MOST)
        yield Passage(f"expected   {expected}")
    facts = []
    if outcome.advantage is not None:
        facts.append(f"advantage {with_sign(outcome.advantage)}{outcome.formula_end}")
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
    if transcript.said:
        yield counted(transcript.said, "turn")
    if calls := len(transcript.calls):
        yield counted(calls, "call")
    if tokens := transcript.tokens:
        yield counted(tokens, "token")


def _part_head(part: EnvironmentPart, is_open: bool) -> Head:
    words = one_line(f"{part.phase} {part.name}".strip(), 80)
    if not is_open:
        told = laid_out(part.arguments)[:FIRST] or part.result[:FIRST]
        words = f"{words}   {one_line(' '.join(told.split()), 200)}".rstrip()
    if part.error:
        words = f"{words}   ⚠ {one_line(first_line(part.error), 200)}"
    tone = "hot" if part.error else "dim"
    return Head("environment", words, seconds_text(part.seconds), "second", tone)


def _turn_head(turn: Turn, is_open: bool) -> Head:
    tokens = "" if turn.tokens is None else f"{turn.tokens} tok"
    facts = "  ".join(filter(None, (tokens, seconds_text(turn.seconds))))
    role, tone = one_line(turn.role, LONGEST_ROLE), "plain"
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


# What two rollouts have in common, and their lines beside each other.


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


def first_difference(left: Sequence[Passage], right: Sequence[Passage]) -> tuple[int, int] | None:
    """The first passage that differs, and the offset at which it does; None if only the number of
    passages does."""
    for index, pair in enumerate(zip(left, right, strict=False)):
        before, after = (passage.text for passage in pair)
        if before != after:
            low, high = 0, min(len(before), len(after))
            while low < high:  # comparing slices is much faster than comparing characters
                middle = (low + high + 1) // 2
                if before[low:middle] == after[low:middle]:
                    low = middle
                else:
                    high = middle - 1
            return index, low
    return None
