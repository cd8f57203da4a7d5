"""Lines of the checkpoint tree: its lanes, and what the columns say of each row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style

from hud_tui.rl.catalog import origin
from hud_tui.rl.counts import counted
from hud_tui.rl.lanes import Lanes
from hud_tui.rl.metrics import short
from hud_tui.rl.rows import Kind, Row
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.tree_columns import (
    GAP,
    LANES_MOST,
    MARKS,
    NAME,
    NOTE,
    PLAIN,
    Column,
    cell,
    fit,
    lanes_width,
    spark,
)

SPARK = 24
"""Cells of a folded run's curve, at most."""
KEPT = {"weights": "◐", "expired": "◌", "damaged": "✘"}
"""A node's glyph where not its whole state is kept."""
PINNED, NOTED = "◆", "✎"
ONSET = "⚑ "
"""Between the name and the reward, where an alarm began."""


@dataclass(frozen=True)
class Marks:
    """What is on checkpoints beside what the service says of them, by their ids."""

    notes: Mapping[str, str] = field(default_factory=dict)
    marked: Sequence[str] = ()
    """To be compared: A, then B."""
    onsets: frozenset[str] = frozenset()
    """Where alarms began; these the detectors put there."""

    @property
    def ids(self) -> set[str]:
        """Every checkpoint that has any."""
        return {*self.notes, *self.marked, *self.onsets}

    def letter(self, checkpoint_id: str) -> str:
        """``A`` or ``B``, or a space."""
        found = self.marked.index(checkpoint_id) if checkpoint_id in self.marked else None
        return " " if found is None else "AB"[found]


@dataclass(frozen=True)
class Look:
    """What every line shares; made anew when it changes, not for every line."""

    width: int = 80
    lanes: int = 1
    top: float = 1.0
    """The reward that is drawn brightest."""
    served: Style = field(default_factory=Style)
    dim: Style = field(default_factory=Style)
    alarm: Style = field(default_factory=Style)
    columns: tuple[Column, ...] = ()
    marks: Marks = field(default_factory=Marks)

    @classmethod
    def of(
        cls,
        measures: tuple[int, int, float],
        styles: tuple[Style, Style, Style],
        marks: Marks,
    ) -> "Look":
        """
        Args:
            measures: Its width, its lanes, and the reward that is drawn brightest.
            styles: Of what is served, of what matters less, of an alarm.
            marks: On checkpoints.
        """
        columns = tuple(fit(*measures[:2], noted=bool(marks.notes)))
        return cls(*measures, *styles, columns, marks)

    @property
    def gutter(self) -> int:
        """Cells before the first column."""
        return MARKS + lanes_width(self.lanes) + GAP

    def cells_of(self, column: Column) -> range:
        """The cells of a line that a column is in; none where there is no room for it."""
        if column not in self.columns:
            return range(0)
        before = self.columns[: self.columns.index(column)]
        start = self.gutter + sum(each.width + GAP for each in before)
        return range(start, start + column.width)


def header_line(look: Look) -> list[Segment]:
    """The columns' titles."""
    titles = (" " * GAP).join(column.pad(column.title) for column in look.columns)
    return [Segment(" " * look.gutter + titles, look.dim)]


def row_line(look: Look, run: Run, lanes: Lanes, row: Row, now: float) -> list[Segment]:
    """One row: marks, lanes, and what it stands for."""
    line = [Segment(_marks(look.marks, run, row), look.served), *_lanes(look, run, row)]
    if row.kind is Kind.NODE:
        line += _node(look, run, row, now)
    elif row.kind is Kind.FOLD:
        line += _fold(look, run, lanes, row)
    elif row.kind is Kind.BASE:
        line.append(Segment("  base", look.served))
        line.append(Segment(f"  {base_name(run)}", look.dim))
    return line


def base_name(run: Run) -> str:
    """What the base weights are: a base, or where the fork starts; empty where nobody says."""
    model = run.model
    return one_line(origin(model) or model.base_model or "", 100) if model else ""


def curve(run: Run, lanes: Lanes, newest: int, oldest_depth: int, cells: int) -> list[float]:
    """Rewards along a lineage, evenly spaced: one a cell, or one a step where they are fewer."""
    last = run.tree.depth(newest)
    count = min(cells, last - oldest_depth + 1)
    span = last - oldest_depth
    depths = [oldest_depth + span * i // max(1, count - 1) for i in range(count)]
    rewards = (run.tree.reward(p) for p in lanes.segments.ancestors(newest, depths))
    return [float("nan") if reward is None else reward for reward in rewards]


def _marks(marks: Marks, run: Run, row: Row) -> str:
    """A or B, served, best, and pinned or noted: MARKS cells."""
    head = run.tree.head
    if row.kind is not Kind.NODE:
        served = row.kind is Kind.BASE and head is None and run.loaded
        return f" {'▶' if served else ' '}".ljust(MARKS)
    node = run.tree[row.newest]
    shown = (
        (row.newest == head and run.loaded, "▶"),
        (row.newest == run.tree.best, "★"),
        (node.pinned or node.id in marks.notes, PINNED if node.pinned else NOTED),
    )
    return marks.letter(node.id) + "".join(glyph if has else " " for has, glyph in shown)


def _lanes(look: Look, run: Run, row: Row) -> Iterator[Segment]:
    """The lanes' glyphs in pairs of cells; the deepest stay where there are too many."""
    width = lanes_width(look.lanes)
    glyphs, served = row.lanes, list(row.served)
    if row.kind is Kind.NODE and (kept := KEPT.get(run.tree[row.newest].state or "")):
        glyphs = glyphs[:-1] + kept
    while len(glyphs) > LANES_MOST:
        glyphs, served = glyphs[2:], served[1:]
    if len(glyphs) < len(row.lanes):
        glyphs = "…" + glyphs[1:]
    pairs = [glyphs[i : i + 2] for i in range(0, len(glyphs), 2)]
    for pair, lit in zip_longest(pairs, served, fillvalue=False):
        yield Segment(str(pair), look.served if lit else look.dim)
    yield Segment(" " * (width - len(glyphs)))


def _node(look: Look, run: Run, row: Row, now: float) -> Iterator[Segment]:
    onset = run.tree[row.newest].id in look.marks.onsets
    for place, column in enumerate(look.columns):
        flagged = onset and place == 1
        yield Segment(ONSET, look.alarm) if flagged else Segment(" " * GAP)
        if column is NOTE:
            note = look.marks.notes.get(run.tree[row.newest].id, "")
            yield Segment(NOTE.pad(one_line(note, 60)), look.dim)
            continue
        for segment in cell(column, run.tree, row.newest, now, look.top, look.dim):
            served = column is NAME and row.served[-1]
            yield Segment(segment.text, look.served) if served else segment


def _fold(look: Look, run: Run, lanes: Lanes, row: Row) -> Iterator[Segment]:
    tree = run.tree
    first, last = tree.depth(row.oldest), tree.depth(row.newest)
    yield Segment(" " * GAP)
    yield Segment(NAME.pad(counted(last - first + 1, "step")), look.dim)
    rewards = f"{short(tree.reward(row.oldest))} → {short(tree.reward(row.newest))}"
    yield Segment(f"  {rewards:<16}", look.dim)
    room = look.width - look.gutter - NAME.width - 2 * GAP - 16
    if room >= 8:
        yield Segment(" ")
        yield from spark(curve(run, lanes, row.newest, first, min(room - 1, SPARK)), look.top)


__all__ = ["PLAIN", "SPARK", "Look", "Marks", "base_name", "curve", "header_line", "row_line"]
