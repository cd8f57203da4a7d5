"""RunTable: the table of runs, which scrolls in both directions, and its arrangement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from hud_tui.errors import HudUsage
from hud_tui.rl.run_columns import COLUMNS, columns, sort_rows
from hud_tui.rl.run_columns import Column as RunColumn
from hud_tui.rl.run_groups import RunGroup, group_rows
from hud_tui.rl.work import Work
from hud_tui.tui.widgets.lines import cut_in_middle, fit_text, line
from hud_tui.tui.widgets.table import GAP, Table


@dataclass(frozen=True)
class Arrangement:
    """Which columns, in which order, and how the rows are sorted and grouped; stored in the form of
    the command line's values."""

    columns: tuple[RunColumn, ...]
    sort: str = ""
    """As in `sort_rows`; empty for the newest first."""
    group: str = ""
    """As in `group_rows`; empty for none."""

    @classmethod
    def of(cls, shown: str, sort: str, group: str) -> Arrangement:
        """The stored arrangement, with defaults for invalid parts."""
        try:
            sort_rows((), sort, 0)
            group_rows((), group, 0)
            return cls(tuple(columns(shown)), sort, group)
        except HudUsage:
            return cls(tuple(columns("")))

    @property
    def sorted_by(self) -> tuple[str, bool]:
        """The first column of the sort order, and whether it is descending."""
        first = self.sort.partition(",")[0].strip()
        return first.removeprefix("-"), first.startswith("-")

    def sorting(self, column: RunColumn) -> str:
        """The order after a click on a column: descending for numbers, then reversed."""
        key, down = self.sorted_by
        return (
            f"-{column.key}"
            if (not down if key == column.key else column.is_numeric)
            else column.key
        )

    def lines(self, rows: Sequence[Work], now: float) -> list[Work | RunGroup]:
        """Rows in their order at `now` (Unix seconds), under a heading for each group."""
        ordered = sort_rows(rows, self.sort, now)
        if not self.group:
            return list(ordered)
        lines: list[Work | RunGroup] = []
        for group in group_rows(ordered, self.group, now):
            lines += [group, *group.rows]
        return lines


NAME = "name"
MARKED, FOLLOWED = "✔", "●"
KEPT = 500
"""Rows whose texts are cached."""
FRESH_S = 5.0
"""Seconds until an age is updated."""


MORE = 2
"""Cells of the mark at the right of the titles, which says that there are more columns."""


class RunTable(Table):
    """Lines of runs and headings; their texts are made when they become visible."""

    def __init__(self, clock: Callable[[], float], id: str | None = None) -> None:
        """`clock` gives Unix seconds, for ages."""
        super().__init__(id=id)
        self.lines: Sequence[Work | RunGroup] = ()
        self.marked: dict[str, None] = {}
        """Ids of the runs marked for comparison, in the order they were marked."""
        self.followed = ""
        self.arrangement = Arrangement(tuple(columns("")))
        self.left = 0
        """Columns after the name that are scrolled out at the left."""
        self._titles: Counter[str] = Counter()
        self._texts: dict[str, tuple[Work, float, dict[str, str]]] = {}
        """Cached texts of runs, with their row and the time they were made."""
        self._widths: dict[str, int] = {}
        self._spelled_out = False
        """Whether titles are in full words."""
        self._clock = clock

    @property
    def row(self) -> Work | None:
        line = self.lines[self.cursor] if 0 <= self.cursor < len(self.lines) else None
        return line if isinstance(line, Work) else None

    @property
    def count(self) -> int:
        return len(self.lines)

    def row_key(self, line: int) -> str | None:
        row = self.lines[line]
        return row.id if isinstance(row, Work) else None

    def show(self, lines: Sequence[Work | RunGroup], titles: Counter[str]) -> None:
        """Replace the lines. `titles`: how many runs have each name, which then show their ids."""
        if titles != self._titles:  # a name may have become that of several runs
            self._texts.clear()
        with self.changing():
            self.lines, self._titles = lines, titles

    def lay(self, arrangement: Arrangement) -> None:
        self.arrangement, self._widths = arrangement, {}
        self._texts.clear()
        self.left = min(self.left, max(0, len(arrangement.columns) - 2))

    def on_resize(self) -> None:
        self._widths = {}

    def shift(self, by: int) -> None:
        """Scroll by this many columns to the right, or to the left."""
        left = self.left + by
        if by < 0 or len(self._in_sight(self.width)) < len(self._behind):
            self.left = max(0, min(left, len(self._rest) - 1))
            self.redraw()

    def column_at(self, cell: int) -> RunColumn | None:
        """The column whose title is at a cell of the heading."""
        spans = self._spans(self.width)
        return next((column for column, start, stop in spans if start <= cell < stop), None)

    # Drawing.

    @property
    def _rest(self) -> list[RunColumn]:
        """The columns after the name, which does not scroll."""
        return [column for column in self.arrangement.columns if column.key != NAME]

    @property
    def _behind(self) -> list[RunColumn]:
        return self._rest[self.left :]

    def _width(self, column: RunColumn) -> int:
        title = cell_len(self._title(column))
        return max(self._widths.get(column.key, 0), column.least, title)

    def _title(self, column: RunColumn) -> str:
        """A column's title, with an arrow if the table is sorted by it."""
        by, down = self.arrangement.sorted_by
        title = column.long_title if self._spelled_out else column.title
        return title if column.key != by else f"{title} {'↓' if down else '↑'}"

    def _in_sight(self, width: int) -> list[RunColumn]:
        """The columns after the name that fit, beside the mark of further ones if not all do."""
        room = width - 3 - self._name_width(width)
        whole = sum(GAP + self._width(column) for column in self._behind) <= room
        room -= 0 if whole else MORE
        columns = []
        for column in self._behind:
            room -= GAP + self._width(column)
            if room < 0:
                break
            columns.append(column)
        return columns

    def _spans(self, width: int) -> list[tuple[RunColumn, int, int]]:
        """Each visible column with its first and last cell; the name takes the remaining width."""
        behind = self._in_sight(width)
        wide, name = sum(GAP + self._width(column) for column in behind), COLUMNS[NAME]
        width -= MORE if len(behind) < len(self._behind) else 0
        stop = 3 + min(self._width(name), max(self._name_width(width), width - 3 - wide))
        spans = [(name, 3, stop)]
        for column in behind:
            spans.append((column, stop + GAP, stop + GAP + self._width(column)))
            stop = spans[-1][2]
        return spans

    def _name_width(self, width: int) -> int:
        return min(self._width(COLUMNS[NAME]), max(COLUMNS[NAME].least, 3 * width // 10))

    def _measure(self, rows: Iterable[Work], width: int) -> None:
        """Let the columns grow with their visible content, and choose the form of their titles."""
        widths, most = self._widths, {column.key: column.most for column in self._all}
        for row in rows:
            for key, text in self._texts_of(row).items():
                widths[key] = max(widths.get(key, 0), min(most[key], cell_len(text)))
        # full words in titles, if every column has room for them
        self._spelled_out = True
        shown = self._all
        used = sum(map(self._width, shown)) + GAP * (len(shown) - 1)
        self._spelled_out = used + 3 <= width

    @property
    def _all(self) -> Sequence[RunColumn]:
        return (COLUMNS[NAME], *self._rest)

    def name_of(self, row: Work) -> str:
        title = row.title
        return f"{title} {row.id[:8]}" if self._titles[title] > 1 else title

    def _texts_of(self, row: Work) -> dict[str, str]:
        """A row's texts by column, cached until an age may have changed."""
        now, cached = self._clock(), self._texts.get(row.id)
        if cached is not None and cached[0] is row and now - cached[1] < FRESH_S:
            return cached[2]
        if len(self._texts) > KEPT:
            self._texts.clear()
        texts = {column.key: column.text(row, now) for column in self._all}
        texts[NAME] = self.name_of(row)
        self._texts[row.id] = row, now, texts
        return texts

    def heading(self, width: int) -> Strip:
        """The columns' titles, with an arrow at the one that is sorted by."""
        top = self.scroll_offset.y
        rows = self.lines[top : top + self.body_rows]
        self._measure((row for row in rows if isinstance(row, Work)), width)
        dim, strong = self.tone("dim"), self.tone("strong")
        parts = [(" ‹ " if self.left else "   ", dim)]
        for column, start, stop in self._spans(width):
            tone = strong if column.key == self.arrangement.sorted_by[0] else dim
            parts.append((_padded(self._title(column), stop - start, column) + " " * GAP, tone))
        more = len(self._in_sight(width)) < len(self._behind)
        strip = line(*parts)
        if more:
            gap = " " * max(0, width - 1 - strip.cell_length)
            strip = Strip.join([strip.crop(0, width - 1), line((f"{gap}›", dim))])
        return strip.crop(0, width)

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        spans = self._spans(width)
        tones = ("plain", "strong", "dim", "faint", "accent", "warm")
        inks = {name: self.tone(name) for name in tones}
        return [self._line(number, spans, width, inks) for number in rows]

    def _line(
        self,
        number: int,
        spans: Sequence[tuple[RunColumn, int, int]],
        width: int,
        inks: Mapping[str, Style],
    ) -> Strip:
        row = self.lines[number]
        if isinstance(row, RunGroup):
            return line((fit_text(f" {row.title}", width), inks["strong"]))
        texts = self._texts_of(row)
        mark = MARKED if row.id in self.marked else " "
        follows = FOLLOWED if row.model_id == self.followed else " "
        parts, tone, text = [(f"{mark}{follows} ", inks["accent"])], "", ""
        for column, start, stop in spans:  # neighbours of one tone are one segment
            now = column.tone(row) if row.whole else "faint"
            if now != tone and text:
                parts.append((text, inks[tone]))
                text = ""
            tone = now
            text += _padded(texts[column.key], stop - start, column) + " " * GAP
        parts.append((text[:-GAP], inks[tone]))
        return self.under_cursor(parts, width) if number == self.cursor else line(*parts)


def _padded(text: str, width: int, column: RunColumn) -> str:
    if column.key == NAME and width >= 12:
        text = cut_in_middle(text, width)
    return fit_text(text, width, column.is_numeric and not column.left)
