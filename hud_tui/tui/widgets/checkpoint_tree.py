"""CheckpointTree: the tree in lanes, newest first, of any size; only visible rows are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar, TypeVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widgets import Static

from hud_tui.keys import keyed
from hud_tui.rl.checkpoint_tree import ROOT, Tree, label, origin
from hud_tui.rl.evaluation import last_requested, seconds_left
from hud_tui.rl.filter import Predicate
from hud_tui.rl.metrics import of_weights, reading, short, signed
from hud_tui.rl.own_numbers import NONE, Own, own_metric
from hud_tui.rl.run import Run
from hud_tui.rl.text import age, counted, duration, one_line
from hud_tui.rl.tree_cursor import Matches, TreeCursor
from hud_tui.rl.tree_layout import Kind, Lanes, Row
from hud_tui.rl.work import has_ended, is_lost, weights_name
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import bar
from hud_tui.tui.theme import EIGHTHS, eighth, reward_style
from hud_tui.tui.widgets.lines import LinesView, fit_text, revealed
from hud_tui.wire import BASE, Estimate, Evaluation, WorkState

# The columns of the checkpoint tree: which of them fit, and their text for a node.


GAP = 2
MARKS = 4
"""Width of the gutter, cells: marked, head, best, pinned; if there are notes, one more: noted."""
LANES_MOST = 24
"""Most cells for lanes; more are cut off at the left."""


@dataclass(frozen=True)
class Column:
    """One column after the lanes."""

    title: str
    width: int
    rank: int
    """On a narrow screen, columns with the highest rank are left out first."""
    right: bool = True
    """Whether it is aligned to the right, as numbers are."""
    key: str = ""
    """The metric it shows; empty if it shows none."""

    def pad(self, text: str) -> str:
        """A text padded or cut to the column's width in cells."""
        return fit_text(text, self.width, self.right)


NAME = Column("checkpoint", 12, 0, right=False)
REWARD = Column("reward", 8, 1)
"""The checkpoint's own reward: of rollouts sampled from its weights."""
DELTA = Column("Δ", 8, 2)
HELDOUT = Column("held-out", 12, 5)
"""Its own, and of how many rollouts."""
ERROR_BAR = 8
"""Width of an interval, cells; all share one scale."""
EVALUATION = Column("evaluation", ERROR_BAR + 12, 4)
"""Mean reward on held-out tasks with its interval and tasks × rollouts; shown if anything was
evaluated."""
NOTE = Column("note", 19, 6, right=False)
"""If there are notes, they come before how the step was trained."""
LOSS = Column("loss", 19, 7, right=False)
RATE = Column("lr", 6, 8)
TRACES = Column("rollouts", 8, 9)
AGE = Column("age", 5, 3)
MORE = (
    Column("std", 7, 10, key="reward_std"),
    Column("kl", 8, 11, key="kl_sample_train"),
    Column("entropy", 7, 12, key="entropy"),
    Column("zero-variance", 13, 13, key="frac_reward_zero_std"),
    Column("clip", 7, 14, key="clip_fraction"),
    Column("length", 7, 15, key="completion_length_mean"),
)
"""More columns, for wide screens."""
COLUMNS = (NAME, REWARD, DELTA, HELDOUT, EVALUATION, NOTE, LOSS, RATE, TRACES, *MORE, AGE)
PLAIN = Style()


def lanes_width(lanes: int) -> int:
    """Width of a drawing of this many lanes, cells; at most LANES_MOST."""
    return min(2 * lanes - 1, LANES_MOST)


def fit(width: int, lanes: int, noted: bool = False, evaluated: bool = False) -> list[Column]:
    """The columns that fit into a line of `width` cells, in order; always with the name. Whether
    there are notes and evaluations decides about theirs."""
    room = width - MARKS - noted - lanes_width(lanes)
    kept: list[Column] = []
    absent = {NOTE: noted, EVALUATION: evaluated}
    offered = [column for column in COLUMNS if absent.get(column, True)]
    for column in sorted(offered, key=lambda column: column.rank):
        if column is HELDOUT and EVALUATION in kept:  # which says it too
            continue
        if room < GAP + column.width and kept:
            if column is EVALUATION:  # evaluations are wide: the held-out reward alone may fit
                continue
            break
        room -= GAP + column.width
        kept.append(column)
    return [column for column in COLUMNS if column in kept]


def cell(
    column: Column, tree: Tree, position: int, now: float, top: float, dim: Style
) -> list[Segment]:
    """A column's text for a checkpoint at a time in Unix seconds, padded to the column's width.
    `top`: the reward drawn brightest; `dim`: style of secondary text."""
    node = tree[position]
    if column is REWARD:
        return reward_cell(tree.reward(position), top, dim)
    if column is DELTA:
        delta = tree.delta(position)
        better = delta is not None and delta > 0
        apart = delta is None and not tree.on_same_tasks(tree.parent(position), position)
        text = "–" if apart else signed(delta)
        return [Segment(column.pad(text), PLAIN if better else dim)]
    if column is NAME:
        return [Segment(column.pad(one_line(label(node), 40)))]
    if column is HELDOUT:
        return [Segment(column.pad(_heldout(tree.own(position))), dim)]
    if column.key:
        return [Segment(column.pad(reading(column.key, _metric(column.key, tree, position))), dim)]
    text = {
        LOSS.title: one_line(node.loss_fn or "–", 40),
        RATE.title: short(node.learning_rate),
        TRACES.title: "–" if node.num_traces is None else str(node.num_traces),
        AGE.title: age(node.created_at, now),
    }[column.title]
    return [Segment(column.pad(text), dim)]


def evaluation_cell(
    evaluation: Evaluation | None, scale: tuple[float, float], dim: Style, heldout: Own = NONE
) -> list[Segment]:
    """The interval as an error bar, the mean, and the size; EVALUATION.width cells. Without an
    evaluation `heldout`, a held-out reward that has no column of its own."""
    if evaluation is None:
        return [Segment(EVALUATION.pad(_heldout(heldout)), dim)]
    size = f"{evaluation.num_tasks}×{evaluation.samples_per_task}"
    before, dot, after = error_bar(evaluation.estimate, scale)
    return [
        Segment(before, dim),
        Segment(dot, PLAIN),
        Segment(after, dim),
        Segment(f"{short(evaluation.estimate.value):>5}", PLAIN),
        Segment(f"{one_line(size, 6):>7}", dim),
    ]


def _heldout(own: Own) -> str:
    """A held-out reward and of how many rollouts it is, 12 cells."""
    return "–" if own.heldout is None else f"{short(own.heldout):>5}{own.over_briefly:>7}"


def error_bar(mean: Estimate, scale: tuple[float, float]) -> tuple[str, str, str]:
    """An interval in ERROR_BAR cells: the part before the mean, the mean, the rest."""
    low, high = scale
    width = high - low

    def cell(value: float) -> int:
        share = (value - low) / width if width > 0 else 0.5
        return round(min(1.0, max(0.0, share)) * (ERROR_BAR - 1))

    mean_cell = cell(mean.value)
    first = mean_cell if mean.low is None else min(mean_cell, cell(mean.low))
    last = mean_cell if mean.high is None else max(mean_cell, cell(mean.high))
    cells = "".join("─" if first <= cell_index <= last else " " for cell_index in range(ERROR_BAR))
    return cells[:mean_cell], "●", cells[mean_cell + 1 :]


def _metric(key: str, tree: Tree, position: int) -> float | None:
    """The checkpoint's own metric if it is about weights; else its step's."""
    if of_weights(key):
        return own_metric(tree.steps(position), key)
    return tree[position].metrics.get(key)


def reward_cell(reward: float | None, top: float, dim: Style) -> list[Segment]:
    """A reward with a bar of the same height and colour, REWARD.width cells."""
    if reward is None or reward != reward:
        return [Segment(REWARD.pad("–"), dim)]
    return [_bar(reward, top), Segment(f"{short(reward):>{REWARD.width - 1}}", PLAIN)]


def _bar(reward: float, top: float) -> Segment:
    """A reward as a bar in one cell, in the ramp's colour; NaN is a gap."""
    if reward != reward:
        return Segment(EIGHTHS[0])
    return Segment(eighth(max(reward, 1e-6) / top), reward_style(reward, 0.0, top))


# Lines of the checkpoint tree: its lanes, and the columns of each row.


SPARK = 24
"""Most cells of a folded run's curve."""
KEPT = {"weights": "◐", "expired": "◌", "damaged": "✘"}
"""Glyph of a node whose full state is not kept."""
PINNED, NOTED = "◆", "✎"
ONSET = "⚑ "
"""Between the name and the reward, at the onset of an alarm."""


LETTERS = "ABCDEFGH"
"""Of marks, in the order in which they were made."""


@dataclass(frozen=True)
class Marks:
    """Notes, comparison marks and alarm onsets, by checkpoint id; BASE stands for the base."""

    notes: Mapping[str, str] = field(default_factory=dict)
    marked: Sequence[str] = ()
    onsets: frozenset[str] = frozenset()
    """Checkpoints at which alarms began."""
    evaluated: frozenset[str] = frozenset()

    @property
    def ids(self) -> set[str]:
        return {*self.notes, *self.marked, *self.onsets, *self.evaluated}

    @property
    def width(self) -> int:
        return MARKS + bool(self.notes)

    def letter(self, checkpoint_id: str) -> str:
        index = self.marked.index(checkpoint_id) if checkpoint_id in self.marked else None
        return " " if index is None else LETTERS[index]


@dataclass(frozen=True)
class Look:
    """What all lines share; made again only when it changes."""

    width: int
    lanes: int
    top: float
    """The reward drawn brightest."""
    served: Style
    dim: Style
    alarm: Style
    marks: Marks
    scale: tuple[float, float] | None
    """Range of the error bars; None if nothing was evaluated."""

    @cached_property
    def columns(self) -> list[Column]:
        return fit(self.width, self.lanes, bool(self.marks.notes), self.scale is not None)

    @property
    def gutter(self) -> int:
        return self.marks.width + lanes_width(self.lanes) + GAP

    def cells_of(self, column: Column) -> range:
        """The cells of a line for a column; empty if the column does not fit."""
        if column not in self.columns:
            return range(0)
        before = self.columns[: self.columns.index(column)]
        start = self.gutter + sum(each.width + GAP for each in before)
        return range(start, start + column.width)


def _title(look: Look, column: Column) -> str:
    """A column's title; of the error bars also the ends of their scale."""
    if column is not EVALUATION or look.scale is None:
        return column.pad(column.title)
    low, high = (f"{end:.2f}".replace("0.", ".", 1) for end in look.scale)
    return f"{low}{high:>{ERROR_BAR - len(low)}}{column.title:>12}"


def row_line(look: Look, run: Run, lanes: Lanes, row: Row, now: float) -> list[Segment]:
    line = [Segment(_marks(look.marks, run, row), look.served), *_lanes(look, run, row)]
    if row.kind is Kind.NODE:
        line += _node(look, run, row, now)
    elif row.kind is Kind.FOLD:
        line += _fold(look, run, lanes, row)
    elif row.kind is Kind.BASE:
        line += _base(look, run)
    return line


def _base(look: Look, run: Run) -> Iterator[Segment]:
    """The base weights, and their evaluation."""
    yield Segment("  base", look.served)
    cells = look.cells_of(EVALUATION)
    name = f"  {base_name(run)}"
    if not cells or look.scale is None or (evaluation := run.tree.evaluation(ROOT)) is None:
        yield Segment(name, look.dim)
        return
    room = cells.start - look.gutter - len("base")
    yield Segment(set_cell_size(name, room), look.dim)
    yield from evaluation_cell(evaluation, look.scale, look.dim)


def base_name(run: Run) -> str:
    """Name of the base weights: a base, or the start of the fork; empty if unknown."""
    model = run.model
    return one_line(origin(model) or model.base_model or "", 100) if model else ""


def curve(run: Run, lanes: Lanes, newest: int, oldest_depth: int, cells: int) -> list[float]:
    """Rewards along a lineage, evenly spaced: one per cell, or one per step if there are fewer."""
    last = run.tree.depth(newest)
    count = min(cells, last - oldest_depth + 1)
    span = last - oldest_depth
    depths = [oldest_depth + span * i // max(1, count - 1) for i in range(count)]
    rewards = (run.tree.reward(p) for p in lanes.segments.ancestors(newest, depths))
    return [float("nan") if reward is None else reward for reward in rewards]


def _marks(marks: Marks, run: Run, row: Row) -> str:
    """A letter, head, best, pinned, and noted: as many cells as `Marks.width`."""
    head = run.tree.head
    if row.kind is not Kind.NODE:
        served = row.kind is Kind.BASE and head is None and run.loaded
        letter = marks.letter(BASE) if row.kind is Kind.BASE else " "
        return f"{letter}{'▶' if served else ' '}".ljust(marks.width)
    node, choice = run.tree[row.newest], run.tree.choice
    shown = (
        (row.newest == head and run.loaded, "▶"),
        (row.newest == run.tree.best, "" if choice is None else choice.glyph),
        (node.pinned, PINNED),
        (node.id in marks.notes, NOTED),
    )
    gutter = marks.letter(node.id) + "".join(glyph if has else " " for has, glyph in shown)
    return gutter[: marks.width]


def _lanes(look: Look, run: Run, row: Row) -> Iterator[Segment]:
    """The lanes' glyphs in pairs of cells; if there are too many, the rightmost stay."""
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
    for number, column in enumerate(look.columns):
        flagged = onset and number == 1
        yield Segment(ONSET, look.alarm) if flagged else Segment(" " * GAP)
        if column is NOTE:
            note = look.marks.notes.get(run.tree[row.newest].id, "")
            yield Segment(NOTE.pad(one_line(note, 60)), look.dim)
            continue
        if column is EVALUATION and look.scale is not None:
            evaluation = run.tree.evaluation(row.newest)
            own = NONE if HELDOUT in look.columns else run.tree.own(row.newest)
            yield from evaluation_cell(evaluation, look.scale, look.dim, own)
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
        steps = curve(run, lanes, row.newest, first, min(room - 1, SPARK))
        yield from (_bar(reward, look.top) for reward in steps)


UNMATCHED = "  No checkpoint matches. {^checkpoints.leave} shows all."
AGE_S = 1.0
"""Seconds between two checks of the displayed ages."""


T = TypeVar("T")


class CheckpointTree(LinesView, can_focus=True):
    """Every checkpoint of a model, under a header. The cursor stays on its checkpoint when steps
    arrive."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tree--served",
        "tree--dim",
        "tree--alarm",
        "tree--cursor",
        "tree--cursor-blurred",
    }

    run: reactive[Run] = reactive(Run, repaint=False)
    follow: reactive[bool] = reactive(True)
    """Whether the cursor follows the head."""

    @dataclass
    class Moved(Message):
        """The cursor is on another row, or its row has changed."""

        position: int
        """Position of the checkpoint; for a folded run of its newest; ROOT for the base weights."""
        oldest: int
        """The same, except for a folded run: its oldest."""
        folded: bool
        by_run: bool = False
        """Whether the tree changed, and not the user moved the cursor."""

    @dataclass
    class Opened(Message):
        """The row under the cursor was clicked twice."""

    def __init__(self, clock: Callable[[], float], id: str | None = None) -> None:
        """`clock` gives Unix seconds, for ages."""
        super().__init__(id=id)
        self.clock = clock
        self.cursor = TreeCursor()
        self.marks = Marks()
        self._look: Look | None = None
        self._scale: tuple[float, float] | None = None

    def on_mount(self) -> None:
        self.set_interval(AGE_S, self._grow_older)

    @property
    def checkpoints(self) -> Tree:
        return self.cursor.tree

    @property
    def lanes(self) -> Lanes:
        return self.cursor.lanes

    @property
    def rows(self) -> Lanes | Matches:
        """The listed rows: the whole tree, or what matches the filter."""
        return self.cursor.rows

    @property
    def count(self) -> int:
        return len(self.rows) or 1

    @property
    def cursor_y(self) -> int:
        return self.headed + self.cursor.number - self.scroll_offset.y

    @property
    def position(self) -> int:
        """The checkpoint under the cursor, or ROOT."""
        return self.cursor.position

    def heading(self, width: int) -> Strip:
        look = self._look_now()
        titles = (" " * GAP).join(_title(look, column) for column in look.columns)
        return Strip([Segment(" " * look.gutter + titles, look.dim)])

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        look, now = self._look_now(), self.clock()
        if not len(self.rows):
            return [Strip([Segment(keyed(UNMATCHED), look.dim)])]
        return [self._line(number, look, now) for number in rows]

    def _line(self, number: int, look: Look, now: float) -> Strip:
        strip = Strip(row_line(look, self.run, self.lanes, self.rows.row(number), now))
        if number != self.cursor.number:
            return strip
        name = "tree--cursor" if self.has_focus else "tree--cursor-blurred"
        over = self.get_component_rich_style(name, partial=True)
        return strip.adjust_cell_length(look.width).apply_style(over)

    def mark(self, marks: Marks) -> None:
        """Draw these notes and marks; runs with one are not folded. Who has scrolled away from the
        cursor stays there."""
        in_sight = self._in_sight
        self.marks, self._look = marks, None
        self.cursor.keep(marks.ids)
        if in_sight:
            self._reveal()
        else:
            self.resize_virtually()
        self.redraw()

    def _forget_styles(self) -> None:
        super()._forget_styles()
        self._look = None

    def on_resize(self) -> None:
        self.lanes.fit(self.body_rows)
        self._reveal()

    def _look_now(self) -> Look:
        """What the lines share, made again if a measure or the theme has changed."""
        lanes = self.lanes.lanes if self.cursor.matches is None else 1
        measures = self.width, lanes, max(1.0, self.checkpoints.peak)
        if self._look is None or measures != (self._look.width, self._look.lanes, self._look.top):
            names = "tree--served", "tree--dim", "tree--alarm"
            served, dim, alarm = (
                self.get_component_rich_style(name, partial=True) for name in names
            )
            self._look = Look(*measures, served, dim, alarm, self.marks, self._scale)
        return self._look

    def _measure(self, run: Run) -> None:
        """Update the scale of the error bars; if it changed, all lines are redrawn."""
        scale = run.tree.evaluated_range
        if scale != self._scale:
            self._scale, self._look = scale, None
            self.redraw()

    def _reveal(self) -> None:
        self.resize_virtually()
        self._show_from(revealed(self.cursor.number, self.scroll_offset.y, self._visible))

    @property
    def _visible(self) -> int:
        return max(1, self.body_rows)

    @property
    def _in_sight(self) -> bool:
        """Whether the cursor is visible."""
        return 0 <= self.cursor.number - self.scroll_offset.y < self._visible

    def _show_from(self, row: int) -> None:
        self.scroll_to(y=max(0, row), animate=False, force=True)

    def _grow_older(self) -> None:
        if self.is_on_screen:
            self.redraw()

    # The cursor, and what moves it.

    @property
    def cursor_moved(self) -> Moved:
        """The row under the cursor."""
        row = self.cursor.row
        return self.Moved(row.newest, row.oldest, row.kind is Kind.FOLD)

    def watch_run(self, before: Run, run: Run) -> None:
        """Draw new steps, and leave the cursor at its place on the screen."""
        if run.tree is self.checkpoints and run.model is before.model:
            self._measure(run)
            return
        scroll, size = self.scroll_offset.y, len(self.rows)
        line, in_sight = self.cursor.number - scroll, self._in_sight
        if other := (run.model and run.model.id) != (before.model and before.model.id):
            self.cursor, self.follow = TreeCursor(), True
            self.lanes.fit(self.body_rows)
            self.cursor.keep(self.marks.ids)
        self.cursor.show(run.tree, self.follow)
        self._measure(run)  # may draw, which takes the rows of this tree
        self.resize_virtually()
        if self.follow and (in_sight or other):
            self._reveal()
        elif self.follow:  # after scrolling away from the head, the visible rows stay
            self._show_from(scroll + len(self.rows) - size)
        elif scroll or self.cursor.number >= self._visible:
            self._show_from(self.cursor.number - line)
        self.redraw()
        self.post_message(replace(self.cursor_moved, by_run=True))

    def watch_follow(self, follow: bool) -> None:
        """The rows around the cursor are not folded while steps arrive."""
        if follow:
            self.lanes.release()
        else:
            self.lanes.hold()

    def filter(self, keep: Predicate | None) -> None:
        """List only what `keep` accepts; None lists everything again."""
        self.follow = self.follow and keep is None
        self._change(lambda: self.cursor.filter(keep))

    def go(self, position: int) -> None:
        self.follow = False
        self._change(lambda: self.cursor.go(position))

    def go_to_head(self) -> None:
        self.follow = False
        self._change(self.cursor.go_to_head)

    def toggle(self) -> bool:
        """Fold or unfold the run under the cursor; returns False if there is none."""
        return self.unfold() or self.fold()

    def unfold(self) -> bool:
        """Unfold the folded run under the cursor; returns False if there is none."""
        return self._change(self.cursor.unfold)

    def fold(self) -> bool:
        """Fold the run under the cursor again; the cursor is then on the fold."""
        return self._change(self.cursor.fold)

    def unfold_only(self, runs: Iterable[tuple[str, str]] | None) -> None:
        """Unfold these runs, by their checkpoints' ids, and fold all others; None: as there is
        room."""
        self._change(lambda: self.cursor.unfold_only(runs))

    def fold_all(self) -> None:
        """Unfold every straight run; fold them all again if none is folded."""
        self._change(self.cursor.fold_all)

    def action_move(self, rows: int) -> None:
        """Move the cursor; rows that only join lanes are skipped."""
        self._step_to(self.cursor.number + rows, 1 if rows > 0 else -1)

    def action_page(self, pages: int) -> None:
        number = self.cursor.number + pages * self.page
        self._step_to(number, 1 if pages > 0 else -1)

    def action_first(self) -> None:
        self._step_to(0, 1)

    def action_last(self) -> None:
        self._step_to(len(self.rows) - 1, -1)

    def on_click(self, event: Click) -> None:
        """Select a row; a second click opens it."""
        offset = event.get_content_offset(self)
        if offset is None or offset.y < self.headed:
            return
        number = offset.y - self.headed + self.scroll_offset.y
        if number < len(self.rows):
            again = number == self.cursor.number
            self._step_to(number, 1)
            if again and event.chain == 2:
                self.post_message(self.Opened())

    def _step_to(self, number: int, way: int) -> None:
        self.follow = False
        self._change(lambda: self.cursor.step_to(number, way))

    def _change(self, change: Callable[[], T]) -> T:
        """Change folds or the cursor, and repaint what moved."""
        old, before = self.cursor.number, (self.rows, len(self.rows), self.lanes.drawing)
        done = change()
        self._reveal()
        if (self.rows, len(self.rows), self.lanes.drawing) == before:
            self.redraw_lines((old, self.cursor.number))
        else:
            self.redraw()
        self.post_message(self.cursor_moved)
        return done


# The line below the tree: evaluations in progress.


MOST_UNDER_WAY = 3
"""Most running evaluations with a line each; the others are counted."""
PROGRESS = 8


class EvaluationProgress(Static):
    """The evaluations in progress, else the last requested one if it was interrupted."""

    def __init__(self) -> None:
        super().__init__("", id="tree-evaluations", markup=False)

    def show(self, run: Run) -> None:
        lines = evaluations_under_way(run)
        self.display = bool(lines)
        self.update(Content("\n").join(lines))


def evaluations_under_way(run: Run) -> list[Content]:
    """A line for each evaluation in progress; else for the last, if it was interrupted."""
    evaluations = list(run.evaluations.values())
    active = [job for job in evaluations if not has_ended(job.status)]
    lines = [_under_way(job) for job in active[:MOST_UNDER_WAY]]
    if len(active) > MOST_UNDER_WAY:
        lines.append(Content.styled(f"… {len(active) - MOST_UNDER_WAY} more queued", "$text-muted"))
    cut = last_requested(evaluations)
    if cut is not None and not active and is_lost(cut.status):
        title = f"evaluation of {one_line(weights_name(cut), 40)} {one_line(cut.status, 20)}"
        why = f": {one_line(cut.error.message, 120)}" if cut.error else ""
        how = keyed(" · {checkpoints.resume_evaluation} samples the rest")
        done = f" after {cut.done} of {cut.total} rollouts"
        lines.append(Content.assemble((title + done + why, "$warning"), (how, "$text-muted")))
    return lines


def _under_way(job: WorkState) -> Content:
    name = one_line(weights_name(job), 40)
    if job.status == "queued":
        return Content.styled(f"evaluation of {name} queued: {job.total} rollouts", "$text-muted")
    left = seconds_left(job)
    mean = "" if job.mean_reward is None else f"  mean reward {short(job.mean_reward)}"
    eta = "" if left is None else f"  {duration(left)} left"
    cancel = keyed("  {checkpoints.cancel_evaluation} cancel")
    return Content.assemble(
        f"evaluating {name}  ",
        bar(job.done / job.total if job.total else 0.0, PROGRESS),
        f"  {job.done}/{job.total}{mean}{eta}",
        (cancel, "$text-muted"),
    )
