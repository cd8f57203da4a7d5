"""RunCurves and RunLegend: several runs in one chart, and beside it what they differ in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import isfinite, nan
from string import ascii_letters
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.widgets import Static

from hud_tui.rl.axes import Axis, Scale, marks, roomiest
from hud_tui.rl.chart import TICK_CELLS
from hud_tui.rl.compare import RunSeries, best_first, overlay_runs, score_at, value_at
from hud_tui.rl.curves import WEIGHTS, Bucket, Score
from hud_tui.rl.metrics import canonical, interval_text, metric, most_of, short, title
from hud_tui.rl.own_numbers import HELDOUT, REWARD
from hud_tui.rl.plot import BLANK, Layer, Plot, Shape, Sketch, Span
from hud_tui.rl.run_columns import BY_PARAMETER, COLUMNS, value_text
from hud_tui.rl.run_groups import Differences, differences
from hud_tui.rl.settings import setting_label, short_label
from hud_tui.rl.text import duration, one_line
from hud_tui.rl.work import Work
from hud_tui.tui.widgets.figure import AXIS_ROWS, FIGURE_TONES, PlotFigure, figure, styled
from hud_tui.tui.widgets.lines import LinesView, cut_in_middle, fit_text, line
from hud_tui.tui.widgets.table import Table

HUES = ("#56b4e9", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#f0e442", "#3d8fd1")
"""Colours of curves, distinguishable with colour blindness; each curve also has a letter.

Source: Okabe and Ito 2008, "Color Universal Design", the blue lightened for dark terminals.
"""
HUES_ON_LIGHT = ("#0072b2", "#b26a00", "#00795a", "#c04c00", "#a8517f", "#857400", "#2a6496")
LETTERS = ascii_letters
POINT = "●"
MOST_INTERVALS = 6
"""Runs whose intervals are drawn together; with more, only the chosen one's."""
MARGIN = 2
"""Cells to the right of the curves, for their letters."""
LEAST_ROWS, LEAST_CELLS = 4, 17
"""Least size of the chart."""


@dataclass(frozen=True)
class Compared:
    """The runs in the chart, and how they are shown."""

    runs: tuple[tuple[Work, RunSeries], ...] = ()
    key: str = REWARD
    axis: Axis = Axis.STEP
    smoothing: int = 2
    """Index into WEIGHTS."""
    log: bool = False
    hidden: frozenset[str] = frozenset()
    """Ids of runs whose curves are not drawn."""
    crosshair: float | None = None
    """Position of the crosshair on the x axis; None for none."""
    steps: tuple[int, ...] = ()
    """Number of steps of each run when this was made: the runs grow in place."""

    @property
    def weight(self) -> float:
        return WEIGHTS[self.smoothing]

    @property
    def shown(self) -> list[tuple[Work, RunSeries]]:
        return [run for run in self.runs if run[0].id not in self.hidden]

    def series(self, run_id: str) -> RunSeries:
        return next((series for row, series in self.runs if row.id == run_id), RunSeries())

    @property
    def of_scores(self) -> bool:
        """Whether held-out rewards are shown: single points without smoothing."""
        return canonical(self.key) == HELDOUT

    @property
    def is_reported(self) -> bool:
        """Whether a run has the metric at any step."""
        return any(s.scores if self.of_scores else self.key in s.keys for _, s in self.runs)

    def value(self, series: RunSeries) -> float:
        """A run's smoothed value under the crosshair, else its newest."""
        x = self._crosshair_of(series)
        return nan if x is None else value_at(series, self.key, self.axis, x, self.weight)

    def score(self, series: RunSeries) -> Score | None:
        """A run's held-out reward at the crosshair, else its newest."""
        x = self._crosshair_of(series)
        return None if x is None or not self.of_scores else score_at(series, self.axis, x)

    def _crosshair_of(self, series: RunSeries) -> float | None:
        if not len(series):
            return None
        return series.x(self.axis)[-1] if self.crosshair is None else self.crosshair

    @property
    def ranked(self) -> list[tuple[Work, float]]:
        """The runs with their values, best first; at the crosshair if there is one."""
        valued = [(row, self.value(series)) for row, series in self.runs]
        return best_first(((pair, pair[1]) for pair in valued), self.key)

    def x_text(self, x: float) -> str:
        """A position on the x axis, in its unit."""
        if self.axis is Axis.TIME:
            return duration(x)
        return f"step {x:.0f}" if self.axis is Axis.STEP else f"{short(x)} tokens"


def letter(index: int) -> str:
    return LETTERS[index] if index < len(LETTERS) else "·"


class RunCurves(LinesView, can_focus=False):
    """The chart: a curve per run, with its letter at the end if there are several, axes and
    crosshair."""

    def __init__(self, id: str = "compared-chart") -> None:
        super().__init__(id=id)
        self.compared = Compared()
        self.chosen = ""
        """Id of the run whose curve is on top."""
        self.order: tuple[str, ...] = ()
        """Ids of the runs in the order they were marked, which determines their letters and
        colours."""
        self._stamp: object = None
        self._figure, self._sketch = PlotFigure(Plot(Scale(0.0, 1.0), 0), (), 0), Sketch()
        """Without crosshair."""
        self._ends = 0.0, 1.0
        """Smallest and largest x."""

    @property
    def count(self) -> int:
        return self.body_rows

    def show(self, compared: Compared, order: Sequence[str], chosen: str) -> None:
        self.compared, self.order, self.chosen = compared, tuple(order), chosen
        self.redraw()

    def index_of(self, id_: str) -> int:
        return self.order.index(id_)

    def hue(self, index: int) -> Style:
        hues = HUES if self.app.current_theme.dark else HUES_ON_LIGHT
        return Style(color=hues[index % len(hues)])

    def heading(self, width: int) -> Strip:
        compared = self.compared
        averaged = f"EMA({compared.weight:g})" if compared.weight else "raw"
        of_run = " of the run" if compared.axis is Axis.STEP else ""
        parts = [
            f"by {compared.axis}{of_run}",
            "95 % intervals" if compared.of_scores else averaged,
        ]
        parts += ["log"] * compared.log
        if compared.crosshair is not None:
            parts.insert(0, f"┊ {compared.x_text(compared.crosshair)}")
        left = f" {title(compared.key)}"
        right = f"  {' · '.join(parts)} "
        room = max(0, width - cell_len(left) - cell_len(right))
        meaning = fit_text(f"  {metric(compared.key).meaning}", room) if room > 20 else " " * room
        dim = self.tone("dim")
        return line((left, self.tone("strong")), (meaning, dim), (right, dim)).crop(0, width)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        if len(rows) < LEAST_ROWS or width < LEAST_CELLS:
            return []
        compared = self.compared
        stamp = replace(compared, crosshair=None), self.order, self.chosen, width, len(rows)
        if stamp != self._stamp:
            self._stamp = stamp
            self._figure = figure(self._sketch, self._plot, width - MARGIN, len(rows))
        low, high = self._ends
        column = None
        if compared.crosshair is not None and low <= compared.crosshair <= high:
            column = round((compared.crosshair - low) / (high - low) * (self._figure.cells - 1))
        styles = {name: self.tone(tone) for name, tone in FIGURE_TONES.items()}
        for index, id_ in enumerate(self.order):
            styles[id_] = self.hue(index) + Style(bold=id_ == self.chosen)
        drawn = self._figure.pointed(column).rows
        letters = self._letters(len(rows) - AXIS_ROWS)
        named = {row: Span(f" {letter(self.index_of(id_))}", id_) for row, id_ in letters.items()}
        blank = Span(" " * MARGIN, BLANK)
        return [styled([*row, named.get(n, blank)], styles) for n, row in enumerate(drawn)]

    def _plot(self, cells: int, rows: int) -> Plot:
        """The curves; the chosen run's lies on top."""
        compared, columns = self.compared, 2 * cells
        overlaid = overlay_runs(
            compared.shown, compared.key, compared.axis, columns, compared.weight
        )
        low, high = self._ends = overlaid.low, overlaid.high
        scale = roomiest(
            *overlaid.extent, compared.log, rows, most_of(compared.key, overlaid.extent[1])
        )
        lines = sorted(
            (each for each in overlaid.lines if each.buckets),
            key=lambda each: (each.row.id != self.chosen, self.index_of(each.row.id)),
        )
        intervals = {self.chosen} if len(overlaid.lines) > MOST_INTERVALS else set(self.order)
        layers: list[Layer] = []
        for each in lines:
            id_, averaged = each.row.id, compared.weight > 0 or each.points
            if each.points:
                layers.append(Layer(id_, each.buckets, Shape.MARKS, POINT))
            layers.append(Layer(id_, each.buckets, Shape.LINE if averaged else Shape.RANGE))
            if each.points and id_ in intervals:
                apart = _apart(each.buckets, self.index_of(id_), columns)
                layers.append(Layer(id_, apart, Shape.BARS))
        found_ticks = marks(compared.axis, low, high, max(1, cells // TICK_CELLS))
        x_ticks = [((value - low) / (high - low), label) for value, label in found_ticks]
        return Plot(scale, columns, layers, x_ticks)

    def _letters(self, rows: int) -> dict[int, str]:
        """The id of the run whose letter is at a row: at its curve's end, else in the closest free
        row. Empty for a single run."""
        plot, letters = self._figure.plot, dict[int, str]()
        if len(self.order) < 2:
            return letters
        ends = {layer.name: plot.scale.share(layer.buckets[-1].smooth) for layer in plot.layers}
        for id_ in sorted(ends, key=self.index_of):
            target = round((1 - ends[id_]) * (rows - 1))
            free = (row for row in range(rows) if row not in letters)
            row = min(free, key=lambda row: abs(row - target), default=None)
            if row is not None:
                letters[row] = id_
        return letters


def _apart(buckets: Sequence[Bucket], index: int, columns: int) -> list[Bucket]:
    """Moved by a column to a side, by the run's place: intervals of one step are told apart."""
    return [
        bucket._replace(column=min(columns - 1, max(0, bucket.column + index % 3 - 1)))
        for bucket in buckets
    ]


INTERVAL = 14
"""Width of an interval in the legend, with the gap before it, cells."""
MORE_CELLS = 5
"""Width of the number of differences that do not fit, cells."""
NAME_CELLS = (12, 40)
"""Smallest and largest width of a run's name in the legend, cells."""


class RunLegend(Table, inherit_bindings=False):
    """The runs, best first: letter, name, value, and what they differ in. Its screen's keys move
    the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, curves: RunCurves) -> None:
        super().__init__(id="compared-legend")
        self.curves = curves
        self.rows: list[tuple[Work, float]] = []
        """The runs with their values, best first."""
        self.differences = Differences((), (), ())
        self.names: Mapping[str, str] = {}
        """Whole names, by the run's id."""
        self._shared = "", ""
        """How all names begin, and how they end."""

    @property
    def count(self) -> int:
        return len(self.rows) + 1 + len(self._same)

    def row_key(self, line: int) -> str | None:
        return self.rows[line][0].id if line < len(self.rows) else None

    @property
    def chosen(self) -> str:
        return self.key or ""

    @property
    def _same(self) -> list[str]:
        """Whether they do not compare, the differences that the table has no room for, and what all
        runs have in common, on as many lines as needed."""
        if not self.rows:
            return []
        warnings = [f"⚠ {text}" for text in self.differences.warnings]
        shared = [(key, text) for key, text in self.differences.same if text != "–"]
        named = [f"name {'…'.join(self._shared)}"] if any(self._shared) else []
        in_all = " · ".join([*named, *(f"{short_label(key)} {text}" for key, text in shared)])
        wide = max(12, self.width - 2)
        same = f"same in all: {in_all or 'nothing'}"
        texts = [*warnings, *self._apart(), same]
        return ["", *(part.plain for text in texts for part in Content(text).wrap(wide))]

    def _apart(self) -> Iterator[str]:
        """The differences that have no column, by value, e.g. ``lr: 1e-4 a b, 3e-4 c``."""
        table = dict(self.differences.rows)
        shown = {number for number, _, _ in self._layout(self.width)[1]}
        for key in self._keys:
            key_index = self.differences.keys.index(key)
            if key_index in shown:
                continue
            runs: dict[str, str] = {}
            for row, _ in self.rows:
                value = table[row.id][key_index]
                runs[value] = f"{runs.get(value, '')} {letter(self.curves.index_of(row.id))}"
            yield f"{short_label(key)}: {', '.join(f'{value}{of}' for value, of in runs.items())}"

    def show(self, rows: list[tuple[Work, float]], names: Mapping[str, str]) -> None:
        with self.changing():
            self.rows, self.names = rows, names
            self._shared = shared_ends([names[row.id] for row, _ in rows if row.id in names])
            self.differences = differences([row for row, _ in rows])

    @property
    def _keys(self) -> list[str]:
        """What they differ in; not their models where the names say these already."""
        is_named = all(row.model in self.names.get(row.id, "") for row, _ in self.rows)
        return [key for key in self.differences.keys if key != "model" or not is_named]

    def _short_name(self, row: Work) -> str:
        """What its name has that the others' do not."""
        begin, end = self._shared
        return self.names.get(row.id, row.title).removeprefix(begin).removesuffix(end).strip(" -/_")

    def _layout(self, width: int) -> tuple[int, list[tuple[int, str, int]]]:
        """Width of the name; and index, title and width of each difference that fits."""
        table = dict(self.differences.rows)
        width -= INTERVAL * self.curves.compared.of_scores
        wide = max((cell_len(self._short_name(row)) for row, _ in self.rows), default=0)
        columns: list[tuple[int, str, int]] = []
        keys, room = self._keys, width - 12 - NAME_CELLS[0]
        for key in keys:
            number = self.differences.keys.index(key)
            title = short_label(key)
            cells = max(cell_len(title), *(min(24, cell_len(v[number])) for v in table.values()))
            left = MORE_CELLS if len(columns) + 1 < len(keys) else 0
            if cells + 2 + left <= room:
                columns.append((number, title, cells))
                room -= cells + 2
        room -= MORE_CELLS * (len(columns) < len(keys))
        return max(1, min(max(wide, NAME_CELLS[0]), NAME_CELLS[1], NAME_CELLS[0] + room)), columns

    def heading(self, width: int) -> Strip:
        wide, columns = self._layout(width)
        more = len(self._keys) - len(columns)
        texts = [f"  {title:<{cells}}" for _, title, cells in columns]
        texts += [f"  +{more}"] * bool(more)
        compared = self.curves.compared
        value = "value" if compared.crosshair is None else "at ┊"
        texts[:0] = [f"{'95 %':>{INTERVAL}}"] * compared.of_scores
        first = "best first" if metric(compared.key).better else "greatest first"
        first = first if cell_len(first) <= wide else first.replace(" first", " ↓")
        text = f"   {fit_text(first, wide)}{value:>9}{''.join(texts)}"
        return line((fit_text(text, width), self.tone("dim")))

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        wide, columns = self._layout(width)
        table, strips = dict(self.differences.rows), []
        same = self._same
        for n in rows:
            if n < len(self.rows):
                strips.append(self._line(n, wide, columns, table, width))
            else:
                text = same[n - len(self.rows)] if n - len(self.rows) < len(same) else ""
                strips.append(line((f" {text}", self.tone("dim"))))
        return strips

    def _line(
        self,
        number: int,
        wide: int,
        columns: Sequence[tuple[int, str, int]],
        table: Mapping[str, Sequence[str]],
        width: int,
    ) -> Strip:
        row, value = self.rows[number]
        compared, place_ = self.curves.compared, self.curves.index_of(row.id)
        hidden = row.id in compared.hidden
        tone = self.tone("faint" if hidden else "plain")
        hue = self.tone("faint") if hidden else self.curves.hue(place_)
        texts = [f"  {fit_text(table[row.id][number], cells)}" for number, _, cells in columns]
        name_ = fit_text(cut_in_middle(self._short_name(row), wide), wide)
        if compared.of_scores:
            score = compared.score(compared.series(row.id))
            ends = "" if score is None else interval_text(score.low, score.high)
            texts.insert(0, f"{ends:>{INTERVAL}}")
        parts = [
            (f" {letter(place_)} ", hue),
            (name_, tone),
            (f"{short(value) if isfinite(value) else '–':>9}", tone),
            ("".join(texts), tone),
        ]
        if number == self.cursor:
            return self.under_cursor(parts, width)
        return line(*parts).crop(0, width)


WORD = re.compile(r"(?<= )|(?<=-)(?<!\de-)(?=[a-z]*\d)")
"""The end of a word of a name. A word in hyphens ends before a number or parameter, as that of a
fork in a sweep does: ``arith-rl-sweep-`` and ``lr3e-4``."""


def shared_ends(names: Sequence[str]) -> tuple[str, str]:
    """How all names begin and how they end, in whole words; at least one word of each is left.

    E.g. ``("arith on arith-rl-", "")`` of ``arith on arith-rl-lr1e-4`` and ``…-lr3e-4``.
    """
    if len(names) < 2:
        return "", ""
    begin = "".join(_common([WORD.split(name)[:-1] for name in names]))
    rests = [name.removeprefix(begin).split(" ")[:0:-1] for name in names]
    return begin, "".join(f" {word}" for word in reversed(_common(rests)))


def _common(names: Sequence[Sequence[str]]) -> list[str]:
    each = zip(*names, strict=False)
    return [first for first, *_ in takewhile(lambda words: len(set(words)) == 1, each)]


# The run under a table's cursor, for a screen that has room for it below the table.


PREVIEW_SIZE = (180, 50)
"""Least width and height of the screen."""
FACTS_LINES, FACTS_COLUMNS = 15, 3
FACTS_LABEL = 24
IN_LINE = ("name", "state", "steps", "age", "eta")
"""Columns that are in the table's lines, or change with the time alone."""


class RunPreview(Vertical):
    """A run's reward as a curve, and what is known of it in columns."""

    def __init__(self) -> None:
        super().__init__(id="run-preview")
        self.curve = RunCurves(id="run-curve")
        self.facts = Static("", id="run-facts", markup=False)
        self.row: Work | None = None
        """The run; None where nothing is shown."""

    def compose(self) -> ComposeResult:
        yield self.curve
        yield self.facts

    def show(self, row: Work | None, now: float, size: Size) -> bool:
        """Show a run at a time in Unix seconds; hidden without one, and where the screen's `size`
        in cells is too small. Returns whether the steps of its curve are to be read."""
        room = size.width >= PREVIEW_SIZE[0] and size.height >= PREVIEW_SIZE[1]
        before, self.row = self.row, row if room else None
        self.display = self.row is not None
        if self.row is None:
            return False
        self.border_title = Content(f" {one_line(self.row.title, 80)} ")
        self.facts.update(Content("\n").join(facts_of(self.row, now, size.width - 4)))
        if before is None or before.id != self.row.id:
            self.curve.display = False
        return before is None or (before.id, before.step) != (self.row.id, self.row.step)

    def draw(self, row: Work, series: RunSeries) -> None:
        if self.row is not None and self.row.id == row.id:
            self.curve.display = bool(len(series))
            compared = Compared(runs=((row, series),), steps=(len(series),))
            self.curve.show(compared, [row.id], row.id)


def facts_of(row: Work, now: float, width: int) -> list[Content]:
    """The facts' lines, each `width` cells at most; they run from the top down, then to the right.
    What is missing is left out."""
    details = (
        column for column in COLUMNS.values() if column.is_detail and column.key not in IN_LINE
    )
    facts = {column.long_title: column.text(row, now) for column in details}
    facts["worst alarm"] = row.alarm_title or ""
    parameters = sorted(row.parameters.items())
    facts |= {
        setting_label(key): value_text(value)
        for key, value in parameters
        if key not in BY_PARAMETER
    }
    given = [(name, text) for name, text in facts.items() if text not in ("", "–")]
    room = max(1, width // FACTS_COLUMNS - FACTS_LABEL - 2)
    lines = []
    for n in range(min(FACTS_LINES, len(given))):
        parts = []
        for name, text in given[n::FACTS_LINES][:FACTS_COLUMNS]:
            label = fit_text(one_line(name, 60), FACTS_LABEL - 2) + "  "
            parts.append(Content.styled(label, "$text-muted"))
            parts.append(Content(fit_text(one_line(text, 200), room) + "  "))
        lines.append(Content.assemble(*parts))
    return lines
